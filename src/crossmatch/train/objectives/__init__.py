"""The table of training objectives, by the name that recipes use, with their options. Needs no torch.

The default of an option is the published value, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from crossmatch.data.errors import UsageError
from crossmatch.data.settings import suggest_name, validate_settings

if TYPE_CHECKING:
    from torch import Tensor

    from crossmatch.models.zoo.network_inputs import Vocabulary
    from crossmatch.train.data.training_set import TrainingBatch, TrainingSet

    # the loss of a network on a batch, when this share of all steps is done
    Objective = Callable[[Any, TrainingBatch, float], Tensor]


# -- options: the table [objective] of a recipe

WEIGHT: Mapping[str, float] = {"least": 0, "most": 1e6}  # weight of a term of the loss
MARGIN: Mapping[str, float] = {"least": 0, "most": 100}
SHARE: Mapping[str, float] = {"least": 0, "most": 1}  # share of the training
Negatives = Literal["sum", "semi-hard", "hardest"]


@dataclass(frozen=True)
class ObjectiveOptions:
    """`cross-entropy`, and base of all others."""


@dataclass(frozen=True)
class TripletOptions(ObjectiveOptions):
    """`triplet`."""

    negatives: Negatives = "hardest"
    margin: float = field(default=0.2, metadata=MARGIN)  # faghri2018vse, sec. 4.1
    warm_up: float = field(default=0.0, metadata=SHARE)  # share of the training in which all negatives count


@dataclass(frozen=True)
class VSRNOptions(TripletOptions):
    """`vsrn`."""

    matching: float = field(default=1.0, metadata=WEIGHT)
    generation: float = field(default=1.0, metadata=WEIGHT)


@dataclass(frozen=True)
class PVSEOptions(TripletOptions):
    """`pvse`: margin and weights of the command for COCO in the released code's README (song2019pvse)."""

    margin: float = field(default=0.1, metadata=MARGIN)
    diversity: float = field(default=0.1, metadata=WEIGHT)
    mmd: float = field(default=0.01, metadata=WEIGHT)
    mmd_power: int = field(default=1, metadata={"least": 1, "most": 2})


@dataclass(frozen=True)
class PCMEOptions(ObjectiveOptions):
    """`pcme`: config/coco/pcme_coco.yaml of the released code (chun2021pcme)."""

    samples: int = field(default=7, metadata={"least": 1, "most": 1024})
    kl: float = field(default=1e-5, metadata=WEIGHT)
    uniformity: float = field(default=0.0, metadata=WEIGHT)


@dataclass(frozen=True)
class SampledSoftmaxOptions(ObjectiveOptions):
    """`sampled-softmax`."""

    task: Literal["i2t", "t2t", "t2t+i2t"] = "i2t"
    weight: float = field(default=1.0, metadata=WEIGHT)  # of t2t in t2t+i2t

    def __post_init__(self) -> None:
        if self.weight != 1.0 and self.task != "t2t+i2t":
            raise UsageError(f'[objective] has weight = {self.weight:g}, which has no effect with task = "{self.task}". Remove it.')


@dataclass(frozen=True)
class InfoNCEOptions(ObjectiveOptions):
    """`info-nce`."""

    same: Literal["left-out", "negatives"] = "left-out"


@dataclass(frozen=True)
class SelfCriticalOptions(ObjectiveOptions):
    """`self-critical`."""

    end: bool = True  # whether the end of a caption counts as a word


# -- the table


@dataclass(frozen=True)
class ObjectiveEntry:
    """An objective: where it is implemented, its options, and the families that it works with."""

    module: str  # of this folder
    function: str
    options: type[ObjectiveOptions]
    families: tuple[str, ...]
    uses_negatives: bool = False  # uses the hard negatives of a batch
    needs_training_set: bool = False  # its function takes options, training set and vocabulary, and returns the objective
    zero_loss_hint: str = ""  # why the loss of an epoch may be 0, and what to do


CAPTIONERS = ("show-tell", "show-att-tell", "up-down")
MATCHERS = ("vse", "vse-infinity", "scan", "sgraf", "vsrn", "pvse", "pcme", "dual-encoder", "clip")  # all other zoo families
OBJECTIVES: Mapping[str, ObjectiveEntry] = {
    "triplet": ObjectiveEntry("triplet", "triplet", TripletOptions, MATCHERS),
    "vsrn": ObjectiveEntry("vsrn", "vsrn", VSRNOptions, ("vsrn",)),
    "pvse": ObjectiveEntry("pvse", "pvse", PVSEOptions, ("pvse",)),
    "pcme": ObjectiveEntry("pcme", "pcme", PCMEOptions, ("pcme",)),
    "sampled-softmax": ObjectiveEntry("sampled_softmax", "sampled_softmax", SampledSoftmaxOptions, MATCHERS),
    "info-nce": ObjectiveEntry("info_nce", "contrastive", InfoNCEOptions, ("clip",), uses_negatives=True),
    "cross-entropy": ObjectiveEntry("cross_entropy", "cross_entropy", ObjectiveOptions, CAPTIONERS),
    "self-critical": ObjectiveEntry(
        "self_critical",
        "make_self_critical",
        SelfCriticalOptions,
        CAPTIONERS,
        needs_training_set=True,
        zero_loss_hint="Every sampled caption had the same reward as the greedy one, perhaps 0. Start from a model whose captions "
        "resemble those of the training set.",
    ),
}


def parse_objective(table: Mapping[str, Any], where: str, family: str = "") -> tuple[ObjectiveEntry, ObjectiveOptions]:
    """Look up the objective of a table `[objective]`, and check that it fits the family, if given, and its options.

    `where` is the place of the table, for error messages.
    """
    options = dict(table)
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in OBJECTIVES:
        raise UsageError(f"{where} has the unknown objective {name!r}. {suggest_name(str(name), OBJECTIVES)}")
    entry = OBJECTIVES[name]
    if family and family not in entry.families:
        usable = ", ".join(entry.families)
        raise UsageError(f"{where} has the objective {name!r}, which works with {usable} only. Use another.")
    return entry, entry.options(**validate_settings(options, entry.options, f"{where}: [objective]"))


def make_objective(
    entry: ObjectiveEntry, options: ObjectiveOptions, data: TrainingSet | None = None, vocabulary: Vocabulary | None = None
) -> Objective:
    """Make the objective of a training."""
    function = getattr(import_module(f"crossmatch.train.objectives.{entry.module}"), entry.function)
    objective: Objective = function(options, data, vocabulary) if entry.needs_training_set else partial(function, options=options)
    return objective
