"""What a model is trained towards, by the name that a recipe calls it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from crossmatch.core.catalog import Catalog

if TYPE_CHECKING:
    from torch import Tensor

    from crossmatch.models.zoo.inputs import Vocabulary
    from crossmatch.train.batch import Batch
    from crossmatch.train.data import TrainingSet

    Objective = Callable[[Any, Batch, Mapping[str, Any]], Tensor]

# By name: the module here, and the function in it.
OBJECTIVES: Mapping[str, tuple[str, str]] = {
    "triplet": ("triplet", "triplet"),
    "vsrn": ("vsrn", "vsrn"),
    "pvse": ("pvse", "pvse"),
    "pcme": ("pcme", "pcme"),
    "sampled-softmax": ("dual_encoder", "sampled_softmax"),
    "info-nce": ("info_nce", "contrastive"),
    "cross-entropy": ("cross_entropy", "cross_entropy"),
    "self-critical": ("self_critical", "made_for"),
}
USE_NEGATIVES = ("info-nce",)  # those that look at a batch's hard negatives
# Those that must know the training set: their function takes it and the vocabulary, and gives the objective.
KNOWING = ("self-critical",)


def objective(name: str, data: TrainingSet | None = None, vocabulary: Vocabulary | None = None) -> Objective:
    """The objective of this name: a function of the network, a batch and the recipe's options, which gives the loss."""
    module, function = Catalog("objective", OBJECTIVES)[name]
    found = getattr(import_module(f"crossmatch.train.objectives.{module}"), function)
    made: Objective = found(data, vocabulary) if name in KNOWING else found
    return made
