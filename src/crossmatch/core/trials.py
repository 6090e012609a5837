"""Forced choices, and what a model said about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from crossmatch.core.arrays import FloatArray, IdArray, IntArray, as_ids, frozen, require_finite
from crossmatch.core.errors import CrossmatchError

if TYPE_CHECKING:
    from PIL.Image import Image


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
    open_image: Callable[[str], Image] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids, "trial"))
        for name in ("images", "captions", "categories"):
            object.__setattr__(self, name, _as_texts(getattr(self, name), name, self.ids))
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

    def chosen(self, which: IntArray) -> Trials:
        """The trials at these positions."""
        return Trials(self.ids[which], self.images[which], self.captions[which], self.categories[which], self.open_image)

    def __repr__(self) -> str:
        return f"Trials({len(self.ids):,} of {self.shape[1]} images x {self.shape[0]} captions)"


def _as_texts(values: object, what: str, ids: IdArray) -> np.ndarray[Any, np.dtype[np.str_]]:
    try:
        given = np.array(values)
    except ValueError:
        raise CrossmatchError(
            f"the {what} of the trials differ in number; the same I and C for every trial were expected. Split them up."
        ) from None
    blank = [
        n for n, row in enumerate(given.tolist()) for text in (row if isinstance(row, list) else [row]) if not _is_text(text, what)
    ]
    if blank:
        raise CrossmatchError(f"trial {str(ids[blank[0]])!r} has something else than a text among its {what}. Mend it.")
    return given.astype(np.str_)


def _is_text(value: object, what: str) -> bool:
    """Ids may be numbers; captions are texts that say something; a category may be empty."""
    return isinstance(value, str | int) if what != "captions" else isinstance(value, str) and bool(value.strip())


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
        return self.values[_places(self.ids, trials)]


@dataclass(frozen=True, eq=False)
class TrialChoices:
    """The image that a model chose in each trial of one caption, as BISON's prediction files have it."""

    ids: IdArray
    images: IdArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids, "trial"))
        object.__setattr__(self, "images", np.asarray(self.images, dtype=np.str_))
        if self.images.shape != self.ids.shape:
            raise CrossmatchError(f"{len(self.ids):,} trials came with {self.images.shape} choices; one each was expected.")

    def aligned(self, trials: Trials) -> FloatArray:
        """1 for the chosen image and 0 for the others, in the order of the trials."""
        if trials.shape[0] != 1:
            raise CrossmatchError(f"choices of an image fit trials of one caption; these have {trials.shape[0]}. Give scores.")
        chosen = self.images[_places(self.ids, trials)]
        scores = (trials.images == chosen[:, None]).astype(np.float64)
        if not scores.any(axis=1).all():
            n = int((~scores.any(axis=1)).argmax())
            raise CrossmatchError(
                f"trial {str(trials.ids[n])!r} was answered with image {str(chosen[n])!r}, which is none of its candidates "
                f"{', '.join(map(repr, trials.images[n].tolist()))}. Mend that row."
            )
        return np.asarray(scores[:, None, :], dtype=np.float64)


def _places(ids: IdArray, trials: Trials) -> list[int]:
    """Where each trial is answered; every trial once, no stranger."""
    place = {name: n for n, name in enumerate(ids.tolist())}
    missing = [name for name in trials.ids.tolist() if name not in place]
    if missing:
        raise CrossmatchError(
            f"{len(missing):,} of {len(trials.ids):,} trials are not answered; first missing: {missing[0]!r}. Add it."
        )
    if len(place) > len(trials.ids):
        known = set(trials.ids.tolist())
        strange = next(name for name in place if name not in known)
        raise CrossmatchError(f"trial {strange!r} is answered but not in the benchmark. Leave it out.")
    return [place[name] for name in trials.ids.tolist()]
