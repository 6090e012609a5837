"""Forced choices, and what a model said about them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossmatch.core.arrays import FloatArray, IdArray, as_ids, frozen, require_finite
from crossmatch.core.errors import CrossmatchError


@dataclass(frozen=True, eq=False)
class Trials:
    """N choices among `images` ids of shape (N, I) and `captions` texts of shape (N, C), each with a category.

    Caption n and image n of a trial belong together; the rest are distractors.

    >>> Trials(["t0"], [["left.jpg", "right.jpg"]], [["A cat."]], ["object"])
    Trials(1 of 2 images x 1 captions)
    """

    ids: IdArray
    images: IdArray
    captions: np.ndarray[tuple[int, int], np.dtype[np.str_]]
    categories: IdArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids, "trial"))
        for name in ("images", "captions", "categories"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=np.str_))
        n = len(self.ids)
        if self.images.ndim != 2 or self.captions.ndim != 2 or len(self.images) != n or len(self.captions) != n:
            raise CrossmatchError(
                f"{n:,} trials came with images of shape {self.images.shape} and captions of shape {self.captions.shape}; "
                f"({n}, I) and ({n}, C) were expected, the same I and C for every trial."
            )
        if self.images.shape[1] * self.captions.shape[1] < 2:
            raise CrossmatchError("a trial with one image and one caption leaves no choice. Add a distractor.")
        if self.categories.shape != (n,):
            raise CrossmatchError(f"{n:,} trials came with {self.categories.shape} categories; one each was expected.")
        for array in (self.ids, self.images, self.captions, self.categories):
            frozen(array)

    @property
    def shape(self) -> tuple[int, int]:
        """(captions, images) of each trial, the shape of its scores."""
        return self.captions.shape[1], self.images.shape[1]

    def __repr__(self) -> str:
        return f"Trials({len(self.ids):,} of {self.shape[1]} images x {self.shape[0]} captions)"


@dataclass(frozen=True, eq=False)
class TrialScores:
    """A score for every caption (row) and image (column) of every trial; `values` has shape (N, C, I)."""

    ids: IdArray
    values: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids, "trial"))
        object.__setattr__(self, "values", np.asarray(self.values, dtype=np.float64))
        if self.values.ndim != 3 or len(self.values) != len(self.ids):
            raise CrossmatchError(f"trial scores have shape {self.values.shape}; ({len(self.ids)}, C, I) was expected.")
        require_finite(self.values, "trial scores", "Every choice needs a finite score for each of its pairs.")

    def aligned(self, trials: Trials) -> FloatArray:
        """The scores in the order of the trials; every trial once, no stranger."""
        if self.values.shape[1:] != trials.shape:
            c, i = trials.shape
            raise CrossmatchError(
                f"scores are {self.values.shape[1]} captions x {self.values.shape[2]} images per trial; the benchmark's trials "
                f"are {c} x {i}. Give columns s_c0_i0 to s_c{c - 1}_i{i - 1}."
            )
        place = {str(t): n for n, t in enumerate(self.ids)}
        missing = [str(t) for t in trials.ids if str(t) not in place]
        if missing:
            raise CrossmatchError(f"{len(missing):,} of {len(trials.ids):,} trials have no score; first missing: {missing[0]!r}.")
        if len(place) > len(trials.ids):
            strange = next(t for t in place if t not in set(trials.ids.tolist()))
            raise CrossmatchError(f"trial {strange!r} is scored but not in the benchmark. Leave it out.")
        return self.values[[place[str(t)] for t in trials.ids]]
