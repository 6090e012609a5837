"""Graded pairs, and the lists of pairs whose rank is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray, as_whole, frozen, require_finite
from crossmatch.core.collection import SIDES, Collection
from crossmatch.core.errors import CrossmatchError


@dataclass(frozen=True, eq=False)
class Listed:
    """For each query the candidates whose standing is wanted, query after query (compressed sparse rows).

    Query n is row `query[n]` of its side of the collection; its candidates are `item[start[n]:start[n + 1]]`, ascending.
    `folds` are the fold of every item on the queries' side and on the candidates': a gallery is one fold.
    """

    query: IntArray
    start: IntArray
    item: IntArray
    grade: FloatArray
    folds: tuple[IntArray, IntArray] | None = None

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

    def permuted(self, query: IntArray | None, item: IntArray | None) -> Listed:
        """The same pairs where the items of a side stand in another order: item n of it is the former item `order[n]`."""
        if query is None and item is None:
            return self
        new_query = self.query if query is None else np.argsort(query)[self.query]
        new_item = self.item if item is None else np.argsort(item)[self.item]
        by_query = np.argsort(new_query, kind="stable")
        count = self.count[by_query]
        start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        kept = np.arange(start[-1]) - np.repeat(start[:-1] - self.start[by_query], count)
        folds = self.folds
        if folds is not None:
            folds = (folds[0] if query is None else folds[0][query], folds[1] if item is None else folds[1][item])
        return Listed(new_query[by_query], start, new_item[kept], self.grade[kept], folds)

    @property
    def row(self) -> IntArray:
        """The query of each listed pair, as its position on its side of the collection."""
        return np.repeat(self.query, self.count)


# What a judgement is about: the sides of its rows and columns, and the directions it can be asked in.
KINDS = {
    "image-caption": (("image", "caption"), ("i2t", "t2i")),
    "caption-caption": (("caption", "caption"), ("t2t",)),
    "image-image": (("image", "image"), ("i2i",)),
}


@dataclass(frozen=True, eq=False)
class Judgements:
    """Graded pairs, and who said so: an image (row) and a caption (column), or two of a kind. **Unjudged is not zero.**

    A pair is a positive from the grade `positive` on. `complete` says that every pair was judged and those that
    are not listed got zero; otherwise they are unjudged, which the papers' metrics count as irrelevant and the
    reports count in the open. Pairs of two captions or two images run from the query (row) to the item (column), and never
    from an item to itself; a judgement that holds both ways is listed both ways. `folds` divide rows and columns into
    galleries of their own: a candidate of another fold than the query's is not in its gallery.

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
    kind: str = "image-caption"
    folds: tuple[IntArray, IntArray] | None = None
    only: str = ""  # the one direction that they were made for, if they do not hold for the other
    absent: tuple[int, ...] = ()  # a query for each positive that is not in the gallery: it can never be found, but it counts

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise CrossmatchError(f"judgements {self.source!r} are of kind {self.kind!r}; one of {', '.join(KINDS)} was expected.")
        for name in ("rows", "columns"):
            object.__setattr__(self, name, as_whole(getattr(self, name), f"{name} of {self.source!r}"))
        object.__setattr__(self, "grades", np.array(self.grades, dtype=np.float64))
        if -np.inf < self.positive <= 0:
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
                f"judgements {self.source!r} name a pair outside {self.shape[0]:,} {self.sides[0]}s x {self.shape[1]:,} "
                f"{self.sides[1]}s. Check that they belong to this collection."
            )
        if self.sides[0] == self.sides[1] and (rows == columns).any():
            raise CrossmatchError(
                f"judgements {self.source!r} compare {self.sides[0]} {int(rows[(rows == columns).argmax()])} with itself. "
                "A query never retrieves itself: leave such pairs out."
            )
        if self.folds is not None:
            self._check_folds(self.folds)
        if self.absent and not self.only:
            raise CrossmatchError(f"judgements {self.source!r} have absent positives, so they must be for one direction `only`.")
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

    def _check_folds(self, folds: tuple[IntArray, IntArray]) -> None:
        if tuple(map(len, folds)) != self.shape:
            raise CrossmatchError(f"folds of {tuple(map(len, folds))} items were given for judgements of shape {self.shape}.")
        across = folds[0][self.rows] != folds[1][self.columns]
        if across.any():
            raise CrossmatchError(
                f"{across.sum():,} pairs of judgements {self.source!r} reach from one fold into another. Leave them out."
            )

    @property
    def sides(self) -> tuple[str, str]:
        return KINDS[self.kind][0]

    @property
    def directions(self) -> tuple[str, ...]:
        return (self.only,) if self.only else KINDS[self.kind][1]

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
        """The judged candidates of every query that has a positive, in one of the kind's directions."""
        if direction not in self.directions:
            raise CrossmatchError(
                f"{self.kind} judgements have no direction {direction!r}; they have {' and '.join(self.directions)}."
            )
        straight = SIDES[direction] == self.sides
        query, item = (self.rows, self.columns) if straight else (self.columns, self.rows)
        folds = self.folds if straight or self.folds is None else self.folds[::-1]
        order = np.lexsort((item, query))
        query, item, grade = query[order], item[order], self.grades[order]
        has_positive = np.zeros(max(self.shape), dtype=bool)
        has_positive[query[grade >= self.positive]] = True
        kept = has_positive[query]
        query, item, grade = query[kept], item[kept], grade[kept]
        unique, start = np.unique(query, return_index=True)
        return Listed(unique, np.append(start, len(query)).astype(np.int64), item, grade, folds)

    def reordered(self, rows: IntArray, columns: IntArray) -> Judgements | None:
        """The judgements among the items at these positions, which become 0, 1, …; nothing if no positive is left.

        Judgements without a threshold (`positive` of minus infinity) need only be left at all.
        """
        row, column = (np.full(n, -1, dtype=np.int64) for n in self.shape)
        row[rows], column[columns] = np.arange(len(rows)), np.arange(len(columns))
        kept = (row[self.rows] >= 0) & (column[self.columns] >= 0)
        if not (self.grades[kept] >= self.positive).any():
            return None
        return replace(
            self, rows=row[self.rows][kept], columns=column[self.columns][kept], grades=self.grades[kept],
            shape=(len(rows), len(columns)), absent=self._absent_among(row, column),
            folds=(self.folds[0][rows], self.folds[1][columns]) if self.folds is not None else None,
        )  # fmt: skip

    def _absent_among(self, row: IntArray, column: IntArray) -> tuple[int, ...]:
        if not self.absent:
            return ()
        place = row if SIDES[self.only][0] == self.sides[0] else column
        return tuple(int(place[q]) for q in self.absent if place[q] >= 0)

    @property
    def count(self) -> int:
        return int((self.grades >= self.positive).sum()) + len(self.absent)

    def __repr__(self) -> str:
        return f"Judgements({self.source!r}, {len(self.rows):,} pairs, {self.count:,} positive)"


def as_ids_with_repeats(values: Iterable[object]) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    """Ids of pairs: one id may stand in many of them."""
    return np.asarray([str(v) for v in values], dtype=np.str_)
