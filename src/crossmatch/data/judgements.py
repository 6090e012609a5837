"""Judgements: graded pairs of images and captions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray, as_integers, make_read_only, require_finite
from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.rank_counts import CandidateLists, RankCounts, RankRequest, add_absent_positives

# For each kind of judgement the sides of its rows and columns, and the directions it can be evaluated in.
KINDS = {
    "image-caption": (("image", "caption"), ("i2t", "t2i")),
    "caption-caption": (("caption", "caption"), ("t2t",)),
    "image-image": (("image", "image"), ("i2i",)),
}

PEOPLE, LINKS, ARTIFICIAL = "people", "links", "artificial annotators"  # who made a judgement: the column `by` of exports


def rehearsal_note(subject: str) -> str:
    """A note for readers who do not know the study.

    >>> rehearsal_note("grades of eccv-hit")
    'grades of eccv-hit are from artificial annotators (rehearsal), not people'
    """
    return f"{subject} are from {ARTIFICIAL} (rehearsal), not people"


@dataclass(frozen=True, eq=False)
class Judgements:
    """Graded pairs with a source: an image (row) and a caption (column), or two items of a kind. **Unjudged is not zero.**

    Pairs of two captions or two images run from the query (row) to the item (column), never from an item to itself. A judgement
    that holds both ways is listed both ways.

    Attributes:
        source: Name of the source, such as `links` or `truth`.
        rows: Positions of the row items.
        columns: Positions of the column items.
        grades: The grade of each pair.
        shape: Number of row items and column items.
        positive: The lowest grade of a positive.
        complete: Whether every pair was judged, so that pairs not listed have the grade zero. Otherwise they are unjudged: the
            papers' metrics count them as irrelevant, and reports say how often.
        kind: `image-caption`, `caption-caption` or `image-image`.
        folds: The folds of rows and columns. A candidate of another fold than the query's is not in its gallery.
        only_direction: The single direction that the judgements hold for, or "".
        absent_positives: The query of each positive that is not in the gallery. It is never retrieved, but counts as a positive.
        note: A note that every result by these judgements shows.

    >>> judgements = Judgements("links", rows=[0, 1, 1], columns=[0, 1, 2], grades=[1, 1, 1], shape=(2, 3))
    >>> judgements.candidate_lists("i2t").item, judgements.candidate_lists("t2i").item
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
    only_direction: str = ""
    absent_positives: tuple[int, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        label = f"Judgements {self.source!r}"
        if self.kind not in KINDS:
            raise CrossmatchError(f"{label}: unknown kind {self.kind!r}. Use one of {', '.join(KINDS)}.")
        for name in ("rows", "columns"):
            object.__setattr__(self, name, as_integers(getattr(self, name), f"{name} of {self.source!r}"))
        object.__setattr__(self, "grades", np.array(self.grades, dtype=np.float64))
        if -np.inf < self.positive <= 0:
            raise CrossmatchError(
                f"{label}: the lowest positive grade is {self.positive}; it must be above zero, or a positive would gain nothing. "
                "Shift the grades."
            )
        rows, columns, grades = self.rows, self.columns, self.grades
        if not rows.shape == columns.shape == grades.shape or rows.ndim != 1:
            raise CrossmatchError(
                f"{label}: rows have shape {rows.shape}, columns {columns.shape} and grades {grades.shape}; expected three flat "
                "arrays of equal length."
            )
        require_finite(grades, f"grades of {self.source!r}", "Leave unjudged pairs out.")
        if rows.size and (rows.min() < 0 or columns.min() < 0 or rows.max() >= self.shape[0] or columns.max() >= self.shape[1]):
            raise CrossmatchError(
                f"{label}: a pair is outside {self.shape[0]:,} {self.sides[0]}s x {self.shape[1]:,} {self.sides[1]}s. "
                "Check that the judgements belong to this collection."
            )
        if self.sides[0] == self.sides[1] and (rows == columns).any():
            raise CrossmatchError(
                f"{label}: {self.sides[0]} {int(rows[(rows == columns).argmax()])} is paired with itself, but a query never "
                "retrieves itself. Leave such pairs out."
            )
        if self.folds is not None:
            self._check_folds(self.folds)
        if self.absent_positives and not self.only_direction:
            raise CrossmatchError(f"{label}: absent positives need `only_direction`, the direction that they hold for.")
        pair = np.sort(rows * self.shape[1] + columns)
        if (pair[1:] == pair[:-1]).any():
            repeated = divmod(int(pair[1:][pair[1:] == pair[:-1]][0]), self.shape[1])
            raise CrossmatchError(f"{label}: the pair {repeated} is graded twice. Merge the two grades first.")
        if not (grades >= self.positive).any():
            raise CrossmatchError(f"{label}: no positive, because no grade is {self.positive} or more. Check the threshold.")
        for array in (rows, columns, grades):
            make_read_only(array)

    def _check_folds(self, folds: tuple[IntArray, IntArray]) -> None:
        sizes = tuple(map(len, folds))
        if sizes != self.shape:
            raise CrossmatchError(
                f"Judgements {self.source!r}: folds of {sizes} items, but the judgements have shape {self.shape}."
            )
        crosses = folds[0][self.rows] != folds[1][self.columns]
        if crosses.any():
            raise CrossmatchError(
                f"Judgements {self.source!r}: {crosses.sum():,} pairs reach from one fold into another. Leave them out."
            )

    @property
    def sides(self) -> tuple[str, str]:
        """The sides of the rows and of the columns."""
        return KINDS[self.kind][0]

    @property
    def directions(self) -> tuple[str, ...]:
        return (self.only_direction,) if self.only_direction else KINDS[self.kind][1]

    @property
    def positive_count(self) -> int:
        return int((self.grades >= self.positive).sum()) + len(self.absent_positives)

    @classmethod
    def from_links(cls, collection: Collection, source: str = "links") -> Judgements:
        """The original links of a collection as positives; all other pairs are unjudged."""
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
        images, captions = (np.asarray([str(triple[n]) for triple in triples], dtype=np.str_) for n in range(2))
        rows, columns = collection.image_positions(images), collection.caption_positions(captions)
        grades = np.asarray([triple[2] for triple in triples], dtype=np.float64)
        return cls(source, rows, columns, grades, collection.shape, positive, complete)

    @classmethod
    def from_matrix(cls, source: str, true: BoolArray) -> Judgements:
        """From a matrix (images x captions) that says for every pair whether it matches."""
        rows, columns = np.nonzero(true)
        return cls(source, rows, columns, np.ones(len(rows)), (true.shape[0], true.shape[1]), complete=True)

    def oriented_pairs(self, direction: str) -> tuple[IntArray, IntArray]:
        """The judged pairs as positions of queries and items."""
        if direction not in self.directions:
            raise CrossmatchError(f"{self.kind} judgements have no direction {direction!r}, only {' and '.join(self.directions)}.")
        return (self.rows, self.columns) if SIDES[direction] == self.sides else (self.columns, self.rows)

    def candidate_lists(self, direction: str) -> CandidateLists:
        """The judged candidates of every query that has a positive."""
        query, item = self.oriented_pairs(direction)
        folds = self.folds if SIDES[direction] == self.sides or self.folds is None else self.folds[::-1]
        order = np.lexsort((item, query))
        query, item, grade = query[order], item[order], self.grades[order]
        has_positive = np.zeros(max(self.shape), dtype=bool)
        has_positive[query[grade >= self.positive]] = True
        is_listed = has_positive[query]
        query, item, grade = query[is_listed], item[is_listed], grade[is_listed]
        unique, start = np.unique(query, return_index=True)
        return CandidateLists(unique, np.append(start, len(query)).astype(np.int64), item, grade, folds)

    def request(self, direction: str) -> RankRequest:
        """Ask for the ranks of the judged candidates."""
        return RankRequest(direction, self.candidate_lists(direction))

    def evidence(self, counts: RankCounts) -> dict[str, RankCounts]:
        """The evidence by part: one part without a name of its own."""
        return {"": add_absent_positives(counts, self.absent_positives)}

    def count_queries_and_positives(self, direction: str) -> tuple[int, int]:
        return len(self.candidate_lists(direction).query), self.positive_count

    def hash_content(self) -> tuple[str, list[np.ndarray]]:
        """The text and the arrays that the data hash covers."""
        only_direction = f" {self.only_direction}" if self.only_direction else ""
        suffix = f" {self.kind}" if self.kind != "image-caption" else only_direction
        order = np.lexsort((self.columns, self.rows))
        arrays = [self.rows[order], self.columns[order], self.grades[order], *(self.folds or ()), np.sort(self.absent_positives)]
        return f"{self.positive} {self.complete}{suffix}", arrays

    def select(self, rows: IntArray, columns: IntArray) -> Judgements | None:
        """The judgements among the items at these positions, which become 0, 1, …; None if no positive is left.

        Judgements without a threshold (`positive` is minus infinity) are None if no pair is left.
        """
        new_row, new_column = (np.full(n, -1, dtype=np.int64) for n in self.shape)
        new_row[rows], new_column[columns] = np.arange(len(rows)), np.arange(len(columns))
        is_selected = (new_row[self.rows] >= 0) & (new_column[self.columns] >= 0)
        if not (self.grades[is_selected] >= self.positive).any():
            return None
        absent_positives: tuple[int, ...] = ()
        if self.absent_positives:
            new_query = new_row if SIDES[self.only_direction][0] == self.sides[0] else new_column
            absent_positives = tuple(int(new_query[q]) for q in self.absent_positives if new_query[q] >= 0)
        return replace(
            self,
            rows=new_row[self.rows][is_selected],
            columns=new_column[self.columns][is_selected],
            grades=self.grades[is_selected],
            shape=(len(rows), len(columns)),
            folds=(self.folds[0][rows], self.folds[1][columns]) if self.folds is not None else None,
            absent_positives=absent_positives,
        )

    def __repr__(self) -> str:
        return f"Judgements({self.source!r}, {len(self.rows):,} pairs, {self.positive_count:,} positive)"
