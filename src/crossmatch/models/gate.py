"""The trust gate: scorers that know nothing, and whose score on every kind of trial follows from theory.

A benchmark that gives one of them more than `metrics.theory` says has a leak: an order that tells the answer, ties that win,
candidates that differ without a look at the other side. They need neither pictures nor a model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.presented import presented, uniform
from crossmatch.core.trials import Trials, TrialScores


@dataclass(frozen=True)
class GateScorer:
    """A scorer of trials by name; `says(trials, seed)` are its scores, or what broadcasts to (N, C, I).

    >>> trials = Trials(["t0"], [["a.jpg", "b.jpg"]], [["A cat.", "A dog."]], [""])
    >>> gate_scorer("constant").scores(trials).values.tolist()
    [[[0.0, 0.0], [0.0, 0.0]]]
    """

    name: str
    about: str
    says: Callable[[Trials, int], FloatArray] = field(repr=False)
    seed: int = 0

    @property
    def signature(self) -> str:
        return f"gate:{self.name}|seed:{self.seed}"

    def scores(self, data: object) -> TrialScores:
        if not isinstance(data, Trials):
            raise CrossmatchError(
                f"gate:{self.name} answers forced choices, and this task has none. For retrieval, take random and oracle."
            )
        return TrialScores(data.ids, np.broadcast_to(self.says(data, self.seed), (len(data.ids), *data.shape)))


def constant(trials: Trials, seed: int = 0) -> FloatArray:
    """Level scores: every comparison is a tie, and a tie loses."""
    return np.zeros((1, 1, 1))


def random(trials: Trials, seed: int = 0) -> FloatArray:
    """A number of its own for every pair of every trial: chance."""
    return uniform(trials.ids, int(np.prod(trials.shape)), "gate random", seed).reshape(-1, *trials.shape)


def text_blind(trials: Trials, seed: int = 0) -> FloatArray:
    """A number for each image, whatever the caption. The same image has the same number in every trial."""
    return _by_name(trials.images, "gate text-blind", seed)[:, None, :]


def image_blind(trials: Trials, seed: int = 0) -> FloatArray:
    """A number for each caption's text, whatever the image. The same text has the same number in every trial."""
    return _by_name(trials.captions, "gate image-blind", seed)[:, :, None]


def position_biased(trials: Trials, seed: int = 0) -> FloatArray:
    """The earlier an image or a caption was shown, the higher: always the first candidate (`core.presented`)."""
    images, captions = presented(trials, seed)
    return np.asarray(-_place(captions)[:, :, None] - _place(images)[:, None, :], dtype=np.float64)


def _by_name(names: np.ndarray[tuple[int, int], np.dtype[np.str_]], purpose: str, seed: int) -> FloatArray:
    distinct, which = np.unique(names, return_inverse=True)
    return np.asarray(uniform(distinct, 1, purpose, seed)[which.ravel(), 0].reshape(names.shape), dtype=np.float64)


def _place(order: IntArray) -> IntArray:
    """When each candidate was shown: the inverse of the order."""
    return np.asarray(np.argsort(order, axis=1), dtype=np.int64)


GATE: tuple[GateScorer, ...] = (
    GateScorer("constant", "the same score for every pair", constant),
    GateScorer("random", "an independent random score for every pair", random),
    GateScorer("text-blind", "a random score for each image, whatever the caption", text_blind),
    GateScorer("image-blind", "a random score for each caption, whatever the image", image_blind),
    GateScorer("position-biased", "the candidate that was shown first", position_biased),
)


def gate_scorer(rest: str) -> GateScorer:
    """The scorer of this name, `NAME` or `NAME:SEED`.

    >>> gate_scorer("text-blind:7").signature
    'gate:text-blind|seed:7'
    """
    name, _, seed = rest.partition(":")
    found = next((scorer for scorer in GATE if scorer.name == name), None)
    if found is None or not (seed or "0").isdecimal():
        names = ", ".join(f"gate:{scorer.name}" for scorer in GATE)
        raise WrongWords(f"gate:{rest} has no meaning; there are {names}, and a seed may follow, as in gate:random:7.")
    return replace(found, seed=int(seed or 0))
