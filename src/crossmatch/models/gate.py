"""The trust gate: scorers that know nothing, and whose score on every kind of trial follows from theory.

They are asked as any cross encoder is, trial by trial and in the order presented, but see ids of images instead of pictures. One
that gets more or less than `metrics.theory` says has found a fault in the evaluation: an order that tells the answer, ties
that win, scores put to the wrong pair. What the wording of captions gives away, `blind` and `detector` find.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import WrongWords
from crossmatch.core.presented import uniform

Names = Sequence[str]


@dataclass(frozen=True)
class GateScorer:
    """A scorer by name; `says(images, texts, seed)` are its scores, or what broadcasts to (images, texts).

    >>> gate_scorer("position-biased").score(["b.jpg", "a.jpg"], ["A cat.", "A dog."])
    array([[2., 1.],
           [1., 0.]])
    """

    name: str
    about: str
    says: Callable[[Names, Names, int], FloatArray] = field(repr=False)
    seed: int = 0
    sees: str = "ids"

    @property
    def signature(self) -> str:
        return f"gate:{self.name}|seed:{self.seed}"

    def score(self, images: Names, texts: Names) -> FloatArray:
        return np.broadcast_to(self.says(images, texts, self.seed), (len(images), len(texts)))


def constant(images: Names, texts: Names, seed: int) -> FloatArray:
    """Level scores: every comparison is a tie, and a tie loses."""
    return np.zeros((1, 1))


def random(images: Names, texts: Names, seed: int) -> FloatArray:
    """A number of its own for every pair: chance."""
    pairs = [f"{image}\0{text}" for image in images for text in texts]
    return uniform(pairs, 1, "gate random", seed).reshape(len(images), len(texts))


def text_blind(images: Names, texts: Names, seed: int) -> FloatArray:
    """A number for each image, whatever the caption. The same image has the same number in every trial."""
    return uniform(list(images), 1, "gate text-blind", seed)


def image_blind(images: Names, texts: Names, seed: int) -> FloatArray:
    """A number for each caption's text, whatever the image. The same text has the same number in every trial."""
    return uniform(list(texts), 1, "gate image-blind", seed).T


def position_biased(images: Names, texts: Names, seed: int) -> FloatArray:
    """The earlier an image or a caption is shown, the higher: always the first candidate."""
    return np.asarray(np.arange(len(images))[::-1, None] + np.arange(len(texts))[::-1], dtype=np.float64)


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
