"""What torch can compute on here."""

from __future__ import annotations


def device() -> str:
    """The best device, in words."""
    import torch

    if torch.cuda.is_available():
        return f"cuda, {torch.cuda.get_device_name()}"
    return "mps" if torch.backends.mps.is_available() else "cpu"
