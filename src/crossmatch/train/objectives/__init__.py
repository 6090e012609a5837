"""What a model is trained towards, by the name that a recipe calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from crossmatch.core.catalog import Catalog

if TYPE_CHECKING:
    from torch import Tensor

    from crossmatch.train.batch import Batch

    Objective = Callable[[Any, Batch, Mapping[str, Any]], Tensor]

# By name: the module here, and the function in it.
OBJECTIVES: Mapping[str, tuple[str, str]] = {
    "triplet": ("triplet", "triplet"),
    "vsrn": ("vsrn", "vsrn"),
    "pvse": ("pvse", "pvse"),
    "pcme": ("pcme", "pcme"),
    "sampled-softmax": ("dual_encoder", "sampled_softmax"),
}


def objective(name: str) -> Objective:
    """The objective of this name: a function of the network, a batch and the recipe's options, which gives the loss."""
    module, function = Catalog("objective", OBJECTIVES)[name]
    found: Objective = getattr(import_module(f"crossmatch.train.objectives.{module}"), function)
    return found
