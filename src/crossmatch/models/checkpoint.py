"""Weights as they come: refused where they cannot be what they should be."""

from __future__ import annotations

from crossmatch.core.errors import CrossmatchError, MissingDependency

try:
    import torch
    from torch import nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent


def require_finite(net: nn.Module, where: str) -> None:
    """Refuse weights that hold NaN or infinity: every score would be NaN, or worse, some would.

    >>> broken = nn.Linear(1, 1)
    >>> _ = nn.init.constant_(broken.weight, float("nan"))
    >>> require_finite(broken, "model.pt")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: model.pt: 1 of the 1 numbers in 'weight' are NaN or infinite. The file is damaged, or \
the training diverged: get it again, or take an earlier checkpoint.
    """
    for name, values in net.state_dict().items():
        if values.is_floating_point():
            bad = int((~torch.isfinite(values)).sum())
            if bad:
                raise CrossmatchError(
                    f"{where}: {bad:,} of the {values.numel():,} numbers in {name!r} are NaN or infinite. The file is damaged, or "
                    "the training diverged: get it again, or take an earlier checkpoint."
                )
