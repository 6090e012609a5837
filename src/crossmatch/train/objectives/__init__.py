"""The table of training objectives, by the name that recipes use, with their options. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from crossmatch.data.name_lookup import Catalog

if TYPE_CHECKING:
    from torch import Tensor

    from crossmatch.models.zoo.inputs import Vocabulary
    from crossmatch.train.data.training_set import TrainingBatch, TrainingSet

    Objective = Callable[[Any, TrainingBatch, Mapping[str, Any]], Tensor]


# -- options: the table [objective] of a recipe

WEIGHT: Mapping[str, float] = {"least": 0, "most": 1e6}  # weight of a term of the loss
MARGIN: Mapping[str, float] = {"least": 0, "most": 100}
SHARE: Mapping[str, float] = {"least": 0, "most": 1}  # share of the training
Negatives = Literal["sum", "semi-hard", "hardest"]


@dataclass(frozen=True)
class ObjectiveOptions:
    """`cross-entropy`, and base of all others."""

    name: str


@dataclass(frozen=True)
class TripletOptions(ObjectiveOptions):
    """`triplet`."""

    negatives: Negatives = "hardest"
    margin: float = field(default=0.2, metadata=MARGIN)
    warm_up: float = field(default=0.0, metadata=SHARE)


@dataclass(frozen=True)
class VSRNOptions(TripletOptions):
    """`vsrn`."""

    matching: float = field(default=1.0, metadata=WEIGHT)
    generation: float = field(default=1.0, metadata=WEIGHT)


@dataclass(frozen=True)
class PVSEOptions(TripletOptions):
    """`pvse`."""

    margin: float = field(default=0.1, metadata=MARGIN)
    diversity: float = field(default=0.1, metadata=WEIGHT)
    mmd: float = field(default=0.01, metadata=WEIGHT)
    mmd_power: int = field(default=1, metadata={"least": 1, "most": 2})


@dataclass(frozen=True)
class PCMEOptions(ObjectiveOptions):
    """`pcme`."""

    samples: int = field(default=7, metadata={"least": 1, "most": 1024})
    kl: float = field(default=1e-5, metadata=WEIGHT)
    uniformity: float = field(default=0.0, metadata=WEIGHT)


@dataclass(frozen=True)
class SampledSoftmaxOptions(ObjectiveOptions):
    """`sampled-softmax`."""

    task: Literal["i2t", "t2t", "t2t+i2t"] = "i2t"
    weight: float = field(default=1.0, metadata=WEIGHT)


@dataclass(frozen=True)
class InfoNCEOptions(ObjectiveOptions):
    """`info-nce`."""

    same: Literal["left-out", "negatives"] = "left-out"


@dataclass(frozen=True)
class SelfCriticalOptions(ObjectiveOptions):
    """`self-critical`."""

    end: bool = True


# -- the table


@dataclass(frozen=True)
class ObjectiveEntry:
    """An objective: where it is implemented, its options, and the families that it works with."""

    module: str  # of this folder
    function: str
    options: type
    families: tuple[str, ...]
    uses_negatives: bool = False  # uses the hard negatives of a batch
    needs_training_set: bool = False  # its function takes the training set and the vocabulary, and returns the objective


CAPTIONERS = ("show-tell", "show-att-tell", "up-down")
MATCHERS = ("vse", "vse-infinity", "scan", "sgraf", "vsrn", "pvse", "pcme", "dual-encoder", "clip")  # all other zoo families
OBJECTIVES: Mapping[str, ObjectiveEntry] = {
    "triplet": ObjectiveEntry("triplet", "triplet", TripletOptions, MATCHERS),
    "vsrn": ObjectiveEntry("vsrn", "vsrn", VSRNOptions, ("vsrn",)),
    "pvse": ObjectiveEntry("pvse", "pvse", PVSEOptions, ("pvse",)),
    "pcme": ObjectiveEntry("pcme", "pcme", PCMEOptions, ("pcme",)),
    "sampled-softmax": ObjectiveEntry("dual_encoder", "sampled_softmax", SampledSoftmaxOptions, MATCHERS),
    "info-nce": ObjectiveEntry("info_nce", "contrastive", InfoNCEOptions, ("clip",), uses_negatives=True),
    "cross-entropy": ObjectiveEntry("cross_entropy", "cross_entropy", ObjectiveOptions, CAPTIONERS),
    "self-critical": ObjectiveEntry(
        "self_critical", "make_self_critical", SelfCriticalOptions, CAPTIONERS, needs_training_set=True
    ),
}


def make_objective(name: str, data: TrainingSet | None = None, vocabulary: Vocabulary | None = None) -> Objective:
    """Return the objective of a name: a function of the network, a batch and the recipe's options that returns the loss."""
    entry = Catalog("objective", OBJECTIVES)[name]
    function = getattr(import_module(f"crossmatch.train.objectives.{entry.module}"), entry.function)
    objective: Objective = function(data, vocabulary) if entry.needs_training_set else function
    return objective
