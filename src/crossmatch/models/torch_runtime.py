"""The device that torch computes on, and the number of its threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


def describe_device() -> str:
    """Return the best device that torch can use here, such as "cpu" or "cuda, NVIDIA A100"."""
    import torch

    if torch.cuda.is_available():
        return f"cuda, {torch.cuda.get_device_name()}"
    return "mps" if torch.backends.mps.is_available() else "cpu"


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Let torch use `count` threads per operation within the context."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
