"""Trials (forced choices), and a model's scores, choices or outcomes for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from crossmatch.data.arrays import FloatArray, IdArray, IntArray, as_ids, make_read_only
from crossmatch.data.errors import CrossmatchError, SkippedItem
from crossmatch.data.trial_outcomes import Outcomes, describe_shape

if TYPE_CHECKING:
    from PIL.Image import Image


MAX_CHARACTERS = {"images": 1_000, "captions": 10_000, "categories": 80}


@dataclass(frozen=True, eq=False)
class Trials:
    """N forced choices among I images and C captions, each with a category.

    Caption n and image n of a trial match; all others are distractors. A category is a path: a trial of `replace/obj` belongs to
    `replace` and to `replace/obj`.

    Attributes:
        ids: The ids of the trials.
        images: Image ids of shape (N, I).
        captions: Texts of shape (N, C).
        categories: The category of each trial.
        open_image: Opens the image of an id.
        references: Captions of each image, for analyses that compare texts with texts.
        file_rows: The row of each trial in its file; by default 0, 1, …
        notes: Notes that every result on these trials shows.
        cluster_by: "images" or "captions": trials that share one of these are not independent.
        original_captions: The captions before they were altered.
        skipped: Trials that were left out because they cannot be used.

    >>> Trials(["t0"], [["left.jpg", "right.jpg"]], [["A cat."]], ["object"])
    Trials(1 of 2 images x 1 captions)
    """

    ids: IdArray
    images: IdArray
    captions: np.ndarray[tuple[int, int], np.dtype[np.str_]]
    categories: IdArray
    open_image: Callable[[str], Image] | None = field(default=None, repr=False)
    references: Mapping[str, tuple[str, ...]] | None = field(default=None, repr=False)
    file_rows: IntArray | None = field(default=None, repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)
    cluster_by: tuple[str, ...] = field(default=("images",), repr=False)
    original_captions: np.ndarray[tuple[int, int], np.dtype[np.str_]] | None = field(default=None, repr=False)
    skipped: tuple[SkippedItem, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids, "trial"))
        for name in ("images", "captions", "categories"):
            object.__setattr__(self, name, _as_texts(getattr(self, name), name, self.ids))
        n = len(self.ids)
        if self.images.ndim != 2 or self.captions.ndim != 2 or len(self.images) != n or len(self.captions) != n:
            raise CrossmatchError(
                f"{n:,} trials have images of shape {self.images.shape} and captions of shape {self.captions.shape}; expected "
                f"({n}, I) and ({n}, C), with the same I and C for every trial."
            )
        if self.images.shape[1] * self.captions.shape[1] < 2:
            raise CrossmatchError("A trial with one image and one caption leaves no choice. Add a distractor.")
        if self.categories.shape != (n,):
            raise CrossmatchError(f"{n:,} trials have categories of shape {self.categories.shape}; expected one per trial.")
        if self.file_rows is None:
            object.__setattr__(self, "file_rows", np.arange(n))
        for array in (self.ids, self.images, self.captions, self.categories, self.file_rows):
            make_read_only(array)  # type: ignore[arg-type]

    @property
    def shape(self) -> tuple[int, int]:
        """Number of captions and images of each trial: the shape of its scores."""
        return self.captions.shape[1], self.images.shape[1]

    def select(self, positions: IntArray) -> Trials:
        """The trials at these positions."""
        assert self.file_rows is not None
        return replace(
            self,
            ids=self.ids[positions],
            images=self.images[positions],
            captions=self.captions[positions],
            categories=self.categories[positions],
            file_rows=self.file_rows[positions],
            original_captions=None if self.original_captions is None else self.original_captions[positions],
        )

    def covers_last_row(self, count: int) -> bool:
        """Whether one of these trials is the last row of a file with `count` rows."""
        assert self.file_rows is not None
        return int(self.file_rows.max()) + 1 == count

    def require_all_rows(self, count: int) -> None:
        """Refuse a file with fewer rows than these trials have, because it is unknown which rows are missing."""
        assert self.file_rows is not None
        if (expected := int(self.file_rows.max()) + 1) > count:
            raise CrossmatchError(
                f"the file has {count:,} rows in the official order, which has at least {expected:,}. Which rows are missing is unknown "
                "without trial ids. Add the missing rows, or a column trial_id."
            )

    def ids_by_row(self, count: int) -> IdArray:
        """The trial id of each row of a file with `count` rows; `row n` for rows that are not among these trials.

        >>> Trials(["a", "b"], [["1", "2"]] * 2, [["x"]] * 2, ["", ""]).select(np.array([1])).ids_by_row(2)
        array(['row 0', 'b'], dtype='<U5')
        """
        assert self.file_rows is not None
        names = np.array([f"row {n}" for n in range(count)], dtype=object)
        is_inside = self.file_rows < count
        names[self.file_rows[is_inside]] = self.ids[is_inside]
        return names.astype(np.str_)

    @cached_property
    def clusters(self) -> IntArray:
        """The cluster of each trial: trials that share an image (or what `cluster_by` names), directly or through others.

        >>> Trials([*"abc"], [["1", "2"], ["3", "4"], ["2", "5"]], [["x"], ["y"], ["z"]], [""] * 3).clusters
        array([0, 1, 0])
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        node_count, nodes_by_side = 0, []
        for side in self.cluster_by:
            names, position = np.unique(getattr(self, side), return_inverse=True)
            nodes_by_side.append(position.reshape(len(self.ids), -1) + node_count)
            node_count += len(names)
        nodes = np.concatenate(nodes_by_side, axis=1)
        edges = np.repeat(nodes[:, 0], nodes.shape[1]), nodes.ravel()
        graph = coo_array((np.ones(nodes.size, dtype=bool), edges), shape=(node_count, node_count))
        component = connected_components(graph, directed=False)[1][nodes[:, 0]]
        _, first, member = np.unique(component, return_index=True, return_inverse=True)
        return np.asarray(np.argsort(np.argsort(first))[member.ravel()], dtype=np.int64)

    def __repr__(self) -> str:
        return f"Trials({len(self.ids):,} of {describe_shape(self.shape)})"


def _as_texts(values: object, name: str, ids: IdArray) -> np.ndarray[Any, np.dtype[np.str_]]:
    """Check and convert the field `name` of trials."""
    _require_short(values, name, ids)
    try:
        texts = np.array(values)
    except ValueError:
        raise CrossmatchError(_describe_uneven_trial(values, name, ids)) from None
    for n, row in enumerate(texts.tolist()):
        for text in row if isinstance(row, list) else [row]:
            if not _is_text(text, name):
                raise CrossmatchError(f"Trial {str(ids[n])!r} has {text!r:.60} among its {name}, expected a text. Correct it.")
    return texts.astype(np.str_)


def _require_short(values: Any, name: str, ids: IdArray) -> None:
    """Reject a text so long that it must be a mistake: an array of texts is as wide as its longest."""
    limit = MAX_CHARACTERS[name]
    if isinstance(values, np.ndarray) and values.dtype.kind == "U" and values.dtype.itemsize <= 4 * limit and name != "categories":
        return
    for n, row in enumerate(values):
        trial = repr(str(ids[n])) if n < len(ids) else str(n)
        for text in row if isinstance(row, list | tuple | np.ndarray) else (row,):
            if isinstance(text, str) and len(text) > limit:
                raise CrossmatchError(
                    f"Trial {trial} has a text of {len(text):,} characters among its {name}; the limit is {limit:,}. Check for an "
                    "unclosed quote, or shorten the text."
                )
            if name == "categories" and isinstance(text, str) and not text.isprintable():
                raise CrossmatchError(f"Trial {trial} has the category {text!r}, which cannot be printed. Rename it.")


def _describe_uneven_trial(values: Any, name: str, ids: IdArray) -> str:
    """Which trial has another number of images or captions than the first."""
    sizes = [len(row) if isinstance(row, Sequence | np.ndarray) and not isinstance(row, str) else 1 for row in values]
    odd = next((n for n, size in enumerate(sizes) if size != sizes[0]), 0)
    return (
        f"Trial {str(ids[odd])!r} has {sizes[odd]} {name} and trial {str(ids[0])!r} has {sizes[0]}; every trial needs the same "
        "number. Correct it, or put trials of another shape into a separate file."
    )


def _is_text(value: object, name: str) -> bool:
    """Image ids may be numbers, captions must not be blank, and a category may be empty."""
    return isinstance(value, str | int) if name != "captions" else isinstance(value, str) and bool(value.strip())


@dataclass(frozen=True, eq=False)
class TrialScores:
    """A score for every caption and image of every trial; `values` has shape (N, C, I)."""

    ids: IdArray
    values: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids, "trial"))
        object.__setattr__(self, "values", np.asarray(self.values, dtype=np.float64))
        if self.values.ndim != 3 or len(self.values) != len(self.ids):
            raise CrossmatchError(f"Trial scores have shape {self.values.shape}, expected ({len(self.ids)}, C, I).")
        is_bad = ~np.isfinite(self.values)
        if is_bad.any():
            n, caption, image = (int(position) for position in np.argwhere(is_bad)[0])
            raise CrossmatchError(
                f"Trial {str(self.ids[n])!r} has the score {self.values[n, caption, image]} for caption {caption} and image "
                f"{image}; {is_bad.sum():,} of {is_bad.size:,} scores are NaN or infinite. Give each pair a finite score."
            )

    def select_ids(self, ids: IdArray) -> TrialScores:
        """The scores of the trials with these ids."""
        is_selected = np.isin(self.ids, ids)
        return TrialScores(self.ids[is_selected], self.values[is_selected])

    def align_to(self, trials: Trials) -> FloatArray:
        """The scores in the order of the trials. Every trial must have scores, and no other trial."""
        if self.values.shape[1:] != trials.shape:
            c, i = trials.shape
            raise CrossmatchError(
                f"The scores are {self.values.shape[1]} captions x {self.values.shape[2]} images per trial, but the benchmark's "
                f"trials are {c} x {i}. Provide columns s_c0_i0 to s_c{c - 1}_i{i - 1}."
            )
        return self.values[_find_trials(self.ids, trials)]


@dataclass(frozen=True, eq=False)
class TrialChoices:
    """The image that a model chose in each trial of one caption, as in BISON's prediction files."""

    ids: IdArray
    images: IdArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids, "trial"))
        object.__setattr__(self, "images", np.asarray(self.images, dtype=np.str_))
        if self.images.shape != self.ids.shape:
            raise CrossmatchError(f"{len(self.ids):,} trials have choices of shape {self.images.shape}; expected one per trial.")

    def select_ids(self, ids: IdArray) -> TrialChoices:
        """The choices in the trials with these ids."""
        is_selected = np.isin(self.ids, ids)
        return TrialChoices(self.ids[is_selected], self.images[is_selected])

    def align_to(self, trials: Trials) -> FloatArray:
        """Scores in the order of the trials: 1 for the chosen image and 0 for the others."""
        if trials.shape[0] != 1:
            raise CrossmatchError(f"Choices of an image need trials of one caption; these have {trials.shape[0]}. Provide scores.")
        choices = self.images[_find_trials(self.ids, trials)]
        scores = (trials.images == choices[:, None]).astype(np.float64)
        if not scores.any(axis=1).all():
            n = int((~scores.any(axis=1)).argmax())
            raise CrossmatchError(
                f"The answer to trial {str(trials.ids[n])!r} is image {str(choices[n])!r}, which is not one of its candidates "
                f"{', '.join(map(repr, trials.images[n].tolist()))}. Correct this row."
            )
        return np.asarray(scores[:, None, :], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class TrialOutcomes:
    """The outcome of each trial, where the scores are not known: published outcomes, detectors."""

    ids: IdArray
    outcomes: Outcomes

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", as_ids(self.ids, "trial"))
        if len(self.ids) != len(self.outcomes):
            raise CrossmatchError(f"{len(self.ids):,} trials have {len(self.outcomes):,} outcomes; expected one per trial.")

    def select_ids(self, ids: IdArray) -> TrialOutcomes:
        """The outcomes of the trials with these ids."""
        is_selected = np.isin(self.ids, ids)
        return TrialOutcomes(self.ids[is_selected], self.outcomes.select(is_selected))

    def align_to(self, trials: Trials) -> Outcomes:
        """The outcomes in the order of the trials. Every trial must have an outcome, and no other trial."""
        if self.outcomes.shape != trials.shape:
            if self.outcomes.matched_pairs == 1 == min(trials.shape):  # right or wrong, whichever side the choice was on
                is_right = self.outcomes.has_wins(0b11)
                wins = np.stack([is_right | (trials.shape[0] == 1), is_right | (trials.shape[1] == 1)], axis=1)
                return TrialOutcomes(self.ids, Outcomes.from_wins(wins, trials.shape)).align_to(trials)
            raise CrossmatchError(
                f"The outcomes are of trials of {describe_shape(self.outcomes.shape)}, but the benchmark's trials are "
                f"{describe_shape(trials.shape)}. Use outcomes of this benchmark."
            )
        return self.outcomes.select(np.asarray(_find_trials(self.ids, trials)))


TrialAnswers = TrialScores | TrialChoices | TrialOutcomes


def _find_trials(ids: IdArray, trials: Trials) -> list[int]:
    """The position among `ids` of each trial; every trial must be there once, and no other trial."""
    position = {name: n for n, name in enumerate(ids.tolist())}
    trial_ids = trials.ids.tolist()
    missing = [name for name in trial_ids if name not in position]
    if missing:
        raise CrossmatchError(
            f"{len(missing):,} of {len(trial_ids):,} trials are not answered; first missing: {missing[0]!r}. Add them, or use "
            "--partial to evaluate only the answered ones."
        )
    if len(position) > len(trial_ids):
        unknown = next(name for name in position if name not in set(trial_ids))
        raise CrossmatchError(f"Trial {unknown!r} is answered but not in the benchmark. Leave it out.")
    return [position[name] for name in trial_ids]
