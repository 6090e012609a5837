"""Graded pairs, and the lists of pairs whose rank is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray, as_whole, frozen, require_finite
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError


@dataclass(frozen=True, eq=False)
class Listed:
    """For each query the candidates whose standing is wanted, query after query (compressed sparse rows).

    Query n is row `query[n]` of its side of the collection; its candidates are `item[start[n]:start[n + 1]]`, ascending.
    """

    query: IntArray
    start: IntArray
    item: IntArray
    grade: FloatArray

    def __post_init__(self) -> None:
        for name in ("query", "start", "item", "grade"):
            object.__setattr__(self, name, getattr(self, name).view())
        lengths = np.diff(self.start)
        if not len(self.query):
            raise CrossmatchError("no query has a positive, so there is nothing to rank. Check the judgements.")
        if (lengths <= 0).any():
            raise CrossmatchError(
                f"query {self.query[lengths.argmin()]} has no listed candidate. Leave queries without positives out."
            )
        for array in (self.query, self.start, self.item, self.grade):
            frozen(array)

    @property
    def count(self) -> IntArray:
        return np.diff(self.start)

    @property
    def row(self) -> IntArray:
        """The query of each listed pair, as its position on its side of the collection."""
        return np.repeat(self.query, self.count)


@dataclass(frozen=True, eq=False)
class Judgements:
    """Graded pairs of an image (row) and a caption (column), and who said so. **Unjudged is not zero.**

    A pair is a positive from the grade `positive` on. `complete` says that every pair was judged and those that
    are not listed got zero; otherwise they are unjudged, which the papers' metrics count as irrelevant and the
    reports count in the open.

    >>> said = Judgements("links", rows=[0, 1, 1], columns=[0, 1, 2], grades=[1, 1, 1], shape=(2, 3))
    >>> said.listed("i2t").item, said.listed("t2i").item
    (array([0, 1, 2]), array([0, 1, 1]))
    """

    source: str
    rows: IntArray
    columns: IntArray
    grades: FloatArray
    shape: tuple[int, int]
    positive: float = 1.0
    complete: bool = False

    def __post_init__(self) -> None:
        for name in ("rows", "columns"):
            object.__setattr__(self, name, as_whole(getattr(self, name), f"{name} of {self.source!r}"))
        object.__setattr__(self, "grades", np.array(self.grades, dtype=np.float64))
        if self.positive <= 0:
            raise CrossmatchError(
                f"judgements {self.source!r} call a grade of {self.positive} positive; it must be above zero, or a positive would "
                "gain nothing. Shift the grades."
            )
        rows, columns, grades = self.rows, self.columns, self.grades
        if not rows.shape == columns.shape == grades.shape or rows.ndim != 1:
            raise CrossmatchError(
                f"judgements {self.source!r} have {rows.shape} rows, {columns.shape} columns and {grades.shape} grades; "
                "three flat arrays of equal length were expected."
            )
        require_finite(grades, f"grades of {self.source!r}", "Leave unjudged pairs out instead.")
        if rows.size and (rows.min() < 0 or columns.min() < 0 or rows.max() >= self.shape[0] or columns.max() >= self.shape[1]):
            raise CrossmatchError(
                f"judgements {self.source!r} name a pair outside {self.shape[0]:,} images x {self.shape[1]:,} captions. "
                "Check that they belong to this collection."
            )
        key = np.sort(rows * self.shape[1] + columns)
        if (key[1:] == key[:-1]).any():
            pair = divmod(int(key[1:][key[1:] == key[:-1]][0]), self.shape[1])
            raise CrossmatchError(f"judgements {self.source!r} grade the pair {pair} twice. Merge the two grades first.")
        if not (grades >= self.positive).any():
            raise CrossmatchError(
                f"judgements {self.source!r} hold no grade of {self.positive} or more: no positive. Check the threshold."
            )
        for array in (rows, columns, grades):
            frozen(array)

    @classmethod
    def from_links(cls, collection: Collection, source: str = "links") -> Judgements:
        """What the data set came with: each link a positive, all else unjudged."""
        rows, columns = collection.links.T
        return cls(source, rows, columns, np.ones(len(rows)), collection.shape)

    @classmethod
    def from_ids(
        cls,
        collection: Collection,
        source: str,
        graded: Iterable[tuple[str, str, float]],
        positive: float = 1.0,
        complete: bool = False,
    ) -> Judgements:
        """From triples (image id, caption id, grade)."""
        triples = list(graded)
        images = as_ids_with_repeats([t[0] for t in triples])
        captions = as_ids_with_repeats([t[1] for t in triples])
        return cls(
            source,
            collection.image_positions(images),
            collection.caption_positions(captions),
            np.asarray([t[2] for t in triples], dtype=np.float64),
            collection.shape,
            positive,
            complete,
        )

    @classmethod
    def from_matrix(cls, source: str, true: BoolArray) -> Judgements:
        """From the answer for every single pair."""
        rows, columns = np.nonzero(true)
        return cls(source, rows, columns, np.ones(len(rows)), (true.shape[0], true.shape[1]), complete=True)

    def listed(self, direction: str) -> Listed:
        """The judged candidates of every query that has a positive, in direction `i2t` or `t2i`."""
        sides = {"i2t": (self.rows, self.columns), "t2i": (self.columns, self.rows)}
        if direction not in sides:
            raise CrossmatchError(f"image-caption judgements have no direction {direction!r}; they have {' and '.join(sides)}.")
        query, item = sides[direction]
        order = np.lexsort((item, query))
        query, item, grade = query[order], item[order], self.grades[order]
        has_positive = np.zeros(max(self.shape), dtype=bool)
        has_positive[query[grade >= self.positive]] = True
        kept = has_positive[query]
        query, item, grade = query[kept], item[kept], grade[kept]
        unique, start = np.unique(query, return_index=True)
        return Listed(unique, np.append(start, len(query)).astype(np.int64), item, grade)

    @property
    def count(self) -> int:
        return int((self.grades >= self.positive).sum())

    def __repr__(self) -> str:
        return f"Judgements({self.source!r}, {len(self.rows):,} pairs, {self.count:,} positive)"


def as_ids_with_repeats(values: Iterable[object]) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """Ids of pairs: one id may stand in many of them."""
    return np.asarray([str(v) for v in values], dtype=np.str_)
