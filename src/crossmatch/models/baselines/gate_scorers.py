"""Gate scorers: they know nothing, and theory says what they must score on every kind of trial.

They are called like any cross encoder, trial by trial and in the presented order, but get ids of images instead of pixels. A result
that differs from `metrics.chance_theory` reveals a fault in the evaluation: an order that gives the answer away, ties that win, or scores
assigned to the wrong pair. What the wording of captions gives away is measured by `blind` and `detector`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import UsageError
from crossmatch.data.hashed_random_numbers import hash_uniform

Names = Sequence[str]


@dataclass(frozen=True)
class GateScorer:
    """A scorer by name; `compute(images, texts, seed)` returns its scores, broadcastable to (images, texts).

    >>> make_gate_scorer("position-biased").score(["b.jpg", "a.jpg"], ["A cat.", "A dog."])
    array([[2., 1.],
           [1., 0.]])
    """

    name: str
    about: str
    compute: Callable[[Names, Names, int], FloatArray] = field(repr=False)
    seed: int = 0
    inputs: str = "ids"

    @property
    def signature(self) -> str:
        return f"gate:{self.name}|seed:{self.seed}"

    def score(self, images: Names, texts: Names) -> FloatArray:
        """Score every image id with every text."""
        return np.broadcast_to(self.compute(images, texts, self.seed), (len(images), len(texts)))


def constant(images: Names, texts: Names, seed: int) -> FloatArray:
    """The same score for every pair: every comparison is a tie, and a tie loses."""
    return np.zeros((1, 1))


def random(images: Names, texts: Names, seed: int) -> FloatArray:
    """An independent random score for every pair."""
    pairs = [f"{image}\0{text}" for image in images for text in texts]
    return hash_uniform(pairs, 1, "gate random", seed).reshape(len(images), len(texts))


def text_blind(images: Names, texts: Names, seed: int) -> FloatArray:
    """A random score for each image, whatever the caption; the same in every trial."""
    return hash_uniform(list(images), 1, "gate text-blind", seed)


def image_blind(images: Names, texts: Names, seed: int) -> FloatArray:
    """A random score for each text, whatever the image; the same in every trial."""
    return hash_uniform(list(texts), 1, "gate image-blind", seed).T


def position_biased(images: Names, texts: Names, seed: int) -> FloatArray:
    """A higher score for candidates that are presented earlier."""
    return np.asarray(np.arange(len(images))[::-1, None] + np.arange(len(texts))[::-1], dtype=np.float64)


GATE_SCORERS: tuple[GateScorer, ...] = (
    GateScorer("constant", "the same score for every pair", constant),
    GateScorer("random", "an independent random score for every pair", random),
    GateScorer("text-blind", "a random score for each image, whatever the caption", text_blind),
    GateScorer("image-blind", "a random score for each caption, whatever the image", image_blind),
    GateScorer("position-biased", "the candidate that is presented first", position_biased),
)


def make_gate_scorer(argument: str) -> GateScorer:
    """Make the scorer of `NAME` or `NAME:SEED`.

    >>> make_gate_scorer("text-blind:7").signature
    'gate:text-blind|seed:7'
    """
    name, _, seed = argument.partition(":")
    scorer = next((scorer for scorer in GATE_SCORERS if scorer.name == name), None)
    if scorer is None or not (seed or "0").isdecimal():
        names = ", ".join(f"gate:{scorer.name}" for scorer in GATE_SCORERS)
        raise UsageError(f"there is no scorer gate:{argument}. Use one of {names}; a seed may follow, as in gate:random:7.")
    return replace(scorer, seed=int(seed or 0))
