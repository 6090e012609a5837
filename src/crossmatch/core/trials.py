"""Forced choices, and what a model said about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from crossmatch.core.arrays import FloatArray, IdArray, IntArray, as_ids, frozen
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.skipped import Skipped

if TYPE_CHECKING:
    from PIL.Image import Image


LONGEST = {"images": 1_000, "captions": 10_000, "categories": 80}  # characters


@dataclass(frozen=True, eq=False)
class Trials:
    """N choices among `images` ids of shape (N, I) and `captions` texts of shape (N, C), each with a category.

    Caption n and image n of a trial belong together; the rest are distractors. A category is a path: a trial of `replace/obj`
    belongs to `replace` and to `replace/obj`. `references` are captions of the images, for analyses that compare texts with texts.
    `rows` are the places of the trials in the file they came from, which is their order unless told otherwise.

    >>> Trials(["t0"], [["left.jpg", "right.jpg"]], [["A cat."]], ["object"])
    Trials(1 of 2 images x 1 captions)
    """

    ids: IdArray
    images: IdArray
    captions: np.ndarray[tuple[int, int], np.dtype[np.str_]]
    categories: IdArray
    open_image: Callable[[str], Image] | None = field(default=None, repr=False)
    references: Mapping[str, tuple[str, ...]] | None = field(default=None, repr=False)
    rows: IntArray | None = field(default=None, repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)  # what every result on them must say
    by: tuple[str, ...] = field(default=("images",), repr=False)  # what makes two trials that share it depend on each other
    unaltered: np.ndarray[tuple[int, int], np.dtype[np.str_]] | None = field(default=None, repr=False)  # the captions as they were
    skipped: tuple[Skipped, ...] = field(default=(), repr=False)  # trials that cannot be used, left out because that was asked for

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
        if self.rows is None:
            object.__setattr__(self, "rows", np.arange(n))
        for array in (self.ids, self.images, self.captions, self.categories, self.rows):
            frozen(array)  # type: ignore[arg-type]

    @property
    def shape(self) -> tuple[int, int]:
        """(captions, images) of each trial, the shape of its scores."""
        return self.captions.shape[1], self.images.shape[1]

    def chosen(self, which: IntArray) -> Trials:
        """The trials at these positions."""
        parts = (self.ids[which], self.images[which], self.captions[which], self.categories[which])
        assert self.rows is not None
        before = None if self.unaltered is None else self.unaltered[which]
        return Trials(*parts, self.open_image, self.references, self.rows[which], self.notes, self.by, before, self.skipped)

    def spans(self, count: int) -> bool:
        """Whether the last of these trials is the last row of a file with so many, in the official order."""
        assert self.rows is not None
        return int(self.rows.max()) + 1 == count

    def names_by_row(self, count: int) -> IdArray:
        """The ids that belong to the rows of a file in the official order; a row that is no trial of these is called by its number.

        >>> Trials(["a", "b"], [["1", "2"]] * 2, [["x"]] * 2, ["", ""]).chosen(np.array([1])).names_by_row(2)
        array(['row 0', 'b'], dtype='<U5')
        """
        assert self.rows is not None
        names = np.array([f"row {n}" for n in range(count)], dtype=object)
        there = self.rows < count
        names[self.rows[there]] = self.ids[there]
        return names.astype(np.str_)

    @cached_property
    def clusters(self) -> IntArray:
        """For each trial the cluster it belongs to: trials that share an image, directly or through others, are in one.

        `by` may name captions, too: then trials that share a text are in one cluster as well.

        >>> Trials([*"abc"], [["1", "2"], ["3", "4"], ["2", "5"]], [["x"], ["y"], ["z"]], [""] * 3).clusters
        array([0, 1, 0])
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        found, places = 0, []
        for side in self.by:
            names, at = np.unique(getattr(self, side), return_inverse=True)
            places.append(at.reshape(len(self.ids), -1) + found)
            found += len(names)
        place = np.concatenate(places, axis=1)
        pairs = np.repeat(place[:, 0], place.shape[1]), place.ravel()
        links = coo_array((np.ones(place.size, dtype=bool), pairs), shape=(found, found))
        component = connected_components(links, directed=False)[1][place[:, 0]]
        _, first, member = np.unique(component, return_index=True, return_inverse=True)
        return np.asarray(np.argsort(np.argsort(first))[member.ravel()], dtype=np.int64)

    def __repr__(self) -> str:
        return f"Trials({len(self.ids):,} of {self.shape[1]} images x {self.shape[0]} captions)"


def _as_texts(values: object, what: str, ids: IdArray) -> np.ndarray[Any, np.dtype[np.str_]]:
    _require_short(values, what, ids)
    try:
        given = np.array(values)
    except ValueError:
        raise CrossmatchError(_uneven(values, what, ids)) from None
    blank = [
        n for n, row in enumerate(given.tolist()) for text in (row if isinstance(row, list) else [row]) if not _is_text(text, what)
    ]
    if blank:
        raise CrossmatchError(f"trial {str(ids[blank[0]])!r} has something else than a text among its {what}. Mend it.")
    return given.astype(np.str_)


def _require_short(values: Any, what: str, ids: IdArray) -> None:
    """Refuse a text so long that it must be a mistake: an array of texts is as wide as its longest."""
    most = LONGEST[what]
    if isinstance(values, np.ndarray) and values.dtype.kind == "U" and values.dtype.itemsize <= 4 * most and what != "categories":
        return
    for n, row in enumerate(values):
        for text in row if isinstance(row, list | tuple | np.ndarray) else (row,):
            if isinstance(text, str) and len(text) > most:
                raise CrossmatchError(
                    f"trial {_called(ids, n)} has a text of {len(text):,} characters among its {what}; at most {most:,} were "
                    "expected. Close every quote, or cut it."
                )
            if what == "categories" and isinstance(text, str) and not text.isprintable():
                raise CrossmatchError(f"trial {_called(ids, n)} has the category {text!r}, which cannot be printed. Rename it.")


def _called(ids: IdArray, n: int) -> str:
    return repr(str(ids[n])) if n < len(ids) else str(n)


def _uneven(values: Any, what: str, ids: IdArray) -> str:
    """Which trial has another number of images or captions than the first."""
    sizes = [len(row) if isinstance(row, Sequence | np.ndarray) and not isinstance(row, str) else 1 for row in values]
    odd = next((n for n, size in enumerate(sizes) if size != sizes[0]), 0)
    return (
        f"trial {str(ids[odd])!r} has {sizes[odd]} {what} and trial {str(ids[0])!r} has {sizes[0]}; the same I and C for every "
        "trial were expected. Mend it, or put trials of another shape into a file of their own."
    )


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
        bad = ~np.isfinite(self.values)
        if bad.any():
            n, caption, image = (int(at) for at in np.argwhere(bad)[0])
            raise CrossmatchError(
                f"trial {str(self.ids[n])!r} has the score {self.values[n, caption, image]} for caption {caption} and image "
                f"{image}; {bad.sum():,} of {bad.size:,} scores are NaN or infinite. Give each pair a finite score."
            )

    def among(self, ids: IdArray) -> TrialScores:
        """The answers to these trials."""
        there = np.isin(self.ids, ids)
        return TrialScores(self.ids[there], self.values[there])

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

    def among(self, ids: IdArray) -> TrialChoices:
        """The answers to these trials."""
        there = np.isin(self.ids, ids)
        return TrialChoices(self.ids[there], self.images[there])

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


@dataclass(frozen=True, eq=False)
class TrialOutcomes:
    """What came of each trial, where the scores behind it are not known: published outcomes, detectors."""

    ids: IdArray
    outcomes: Outcomes

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids, "trial"))
        if len(self.ids) != len(self.outcomes):
            raise CrossmatchError(f"{len(self.ids):,} trials came with {len(self.outcomes):,} outcomes; one each was expected.")

    def among(self, ids: IdArray) -> TrialOutcomes:
        """The answers to these trials."""
        there = np.isin(self.ids, ids)
        return TrialOutcomes(self.ids[there], self.outcomes.chosen(there))

    def aligned(self, trials: Trials) -> Outcomes:
        """The outcomes in the order of the trials; every trial once, no stranger."""
        if self.outcomes.shape != trials.shape:
            if self.outcomes.matched == 1 == min(trials.shape):  # right or wrong, whichever side the choice was on
                right = self.outcomes.won(0b11)
                wins = np.stack([right | (trials.shape[0] == 1), right | (trials.shape[1] == 1)], axis=1)
                return TrialOutcomes(self.ids, Outcomes.from_wins(wins, trials.shape)).aligned(trials)
            found, asked = (f"{shape[1]} images x {shape[0]} captions" for shape in (self.outcomes.shape, trials.shape))
            raise CrossmatchError(f"the outcomes are of trials of {found}; the benchmark's trials are {asked}. Take its own file.")
        return self.outcomes.chosen(np.asarray(_places(self.ids, trials)))


Answers = TrialScores | TrialChoices | TrialOutcomes


def _places(ids: IdArray, trials: Trials) -> list[int]:
    """Where each trial is answered; every trial once, no stranger."""
    place = {name: n for n, name in enumerate(ids.tolist())}
    missing = [name for name in trials.ids.tolist() if name not in place]
    if missing:
        raise CrossmatchError(
            f"{len(missing):,} of {len(trials.ids):,} trials are not answered; first missing: {missing[0]!r}. Add it, or say "
            "--partial to evaluate the answered ones alone."
        )
    if len(place) > len(trials.ids):
        known = set(trials.ids.tolist())
        strange = next(name for name in place if name not in known)
        raise CrossmatchError(f"trial {strange!r} is answered but not in the benchmark. Leave it out.")
    return [place[name] for name in trials.ids.tolist()]
