"""What a recipe may say in [objective], by the objective's name. The defaults are the objective's own. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

WEIGHT: Mapping[str, float] = {"least": 0, "most": 1e6}  # of a term of the loss
MARGIN: Mapping[str, float] = {"least": 0, "most": 100}
SHARE: Mapping[str, float] = {"least": 0, "most": 1}  # of the training
Negatives = Literal["sum", "semi-hard", "hardest"]


@dataclass(frozen=True)
class Triplet:
    """`triplet`."""

    name: str
    negatives: Negatives = "hardest"
    margin: float = field(default=0.2, metadata=MARGIN)
    warm_up: float = field(default=0.0, metadata=SHARE)


@dataclass(frozen=True)
class VSRN(Triplet):
    """`vsrn`."""

    matching: float = field(default=1.0, metadata=WEIGHT)
    generation: float = field(default=1.0, metadata=WEIGHT)


@dataclass(frozen=True)
class PVSE(Triplet):
    """`pvse`."""

    margin: float = field(default=0.1, metadata=MARGIN)
    diversity: float = field(default=0.1, metadata=WEIGHT)
    mmd: float = field(default=0.01, metadata=WEIGHT)
    mmd_power: int = field(default=1, metadata={"least": 1, "most": 2})


@dataclass(frozen=True)
class PCME:
    """`pcme`."""

    name: str
    samples: int = field(default=7, metadata={"least": 1, "most": 1024})
    kl: float = field(default=1e-5, metadata=WEIGHT)
    uniformity: float = field(default=0.0, metadata=WEIGHT)


@dataclass(frozen=True)
class SampledSoftmax:
    """`sampled-softmax`."""

    name: str
    task: Literal["i2t", "t2t", "t2t+i2t"] = "i2t"
    weight: float = field(default=1.0, metadata=WEIGHT)


@dataclass(frozen=True)
class InfoNCE:
    """`info-nce`."""

    name: str
    same: Literal["left-out", "negatives"] = "left-out"


@dataclass(frozen=True)
class CrossEntropy:
    """`cross-entropy`."""

    name: str


@dataclass(frozen=True)
class SelfCritical:
    """`self-critical`."""

    name: str
    end: bool = True


OPTIONS: Mapping[str, type] = {
    "triplet": Triplet,
    "vsrn": VSRN,
    "pvse": PVSE,
    "pcme": PCME,
    "sampled-softmax": SampledSoftmax,
    "info-nce": InfoNCE,
    "cross-entropy": CrossEntropy,
    "self-critical": SelfCritical,
}
CAPTIONERS = ("show-tell", "show-att-tell", "up-down")
MATCHERS = ("vse", "vse-infinity", "scan", "sgraf", "vsrn", "pvse", "pcme", "dual-encoder", "clip")  # all others
FAMILIES: Mapping[str, tuple[str, ...]] = {  # objectives that ask for some kind of network
    "triplet": MATCHERS,
    "sampled-softmax": MATCHERS,
    "vsrn": ("vsrn",),
    "pvse": ("pvse",),
    "pcme": ("pcme",),
    "info-nce": ("clip",),
    "cross-entropy": CAPTIONERS,
    "self-critical": CAPTIONERS,
}
