"""Annotators' answers, and items grouped by the values they received."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray, as_integers, make_read_only, require_finite
from crossmatch.data.errors import CrossmatchError

Values = NDArray[np.int64 | np.float64]


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers as flat arrays: person `person[n]` gave item `item[n]` the value `value[n]`.

    Ids are integers. Values are codes of categories or numbers on a scale. A person answers an item at most once. Missing answers
    have no row, and there may be no rows at all.

    >>> Answers.from_triples([(7, 1, 3), (7, 2, 4), (9, 1, 3)]).value
    array([3, 4, 3])
    >>> Answers.from_triples([(7, 1, 3), (7, 1, 4)])
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: person 1 answered item 7 more than once. Keep one answer per person and item, such as \
the last.
    """

    item: IntArray
    person: IntArray
    value: Values

    def __post_init__(self) -> None:
        object.__setattr__(self, "item", as_integers(self.item, "items"))
        object.__setattr__(self, "person", as_integers(self.person, "people"))
        object.__setattr__(self, "value", _as_values(self.value))
        shapes = [array.shape for array in (self.item, self.person, self.value)]
        if shapes != [(len(self.value),)] * 3:
            raise CrossmatchError(
                f"items, people and values must be flat arrays of equal length (got shapes {', '.join(map(str, shapes))})."
            )
        order = np.lexsort((self.person, self.item))
        is_repeated = (np.diff(self.item[order]) == 0) & (np.diff(self.person[order]) == 0)
        if is_repeated.any():
            row = order[is_repeated.argmax()]
            raise CrossmatchError(
                f"person {self.person[row]} answered item {self.item[row]} more than once. "
                "Keep one answer per person and item, such as the last."
            )
        for array in (self.item, self.person, self.value):
            make_read_only(array)

    def __len__(self) -> int:
        return len(self.value)

    @classmethod
    def from_triples(cls, triples: Iterable[tuple[int, int, float]]) -> Answers:
        """Create answers from triples (item, person, value)."""
        item, person, value = zip(*triples, strict=True) if (triples := list(triples)) else ((), (), ())
        return cls(np.asarray(item, np.int64), np.asarray(person, np.int64), np.asarray(value))

    @classmethod
    def from_table(cls, table: ArrayLike) -> Answers:
        """Create answers from a table, items x people, with NaN for missing answers.

        >>> Answers.from_table([[1, 2], [np.nan, 2]]).item
        array([0, 0, 1])
        """
        cells = np.asarray(table)
        if cells.ndim != 2 or cells.dtype.kind not in "biuf":
            raise CrossmatchError(f"the table must hold numbers, items x people (got shape {cells.shape}, dtype {cells.dtype}).")
        item, person = np.nonzero(~np.isnan(cells))
        return cls(item, person, cells[item, person])

    def select(self, mask: BoolArray) -> Answers:
        """The answers where `mask` is true."""
        return Answers(self.item[mask], self.person[mask], self.value[mask])


def _as_values(array: Any) -> Values:
    values = np.asarray(array)
    if values.size and values.dtype.kind not in "biuf":
        raise CrossmatchError(
            f"values must be numbers (got dtype {values.dtype}). Number the answers, such as 0 for no, 1 for yes."
        )
    if values.dtype.kind == "f" and values.size:
        require_finite(values, "values", "Leave out missing answers.")
        return np.array(values, dtype=np.float64)
    return np.array(values, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class AnswerPatterns:
    """Items grouped by pattern: items with the same multiset of answers belong to one pattern.

    A study with few values has few patterns, however many items. A bootstrap replicate is the number of times each pattern is
    drawn. Patterns are sorted, so results do not depend on the order of items.

    >>> patterns = AnswerPatterns.from_answers(Answers.from_table([[5, 8], [8, 8], [8, 5]]))
    >>> patterns.item_counts, patterns.value_counts.toarray(), patterns.values
    (array([2, 1]), array([[1., 1.], [0., 2.]]), array([5, 8]))
    """

    item_counts: IntArray  # items of each pattern
    value_counts: csr_array  # patterns x values: answers to one item of the pattern
    answer_counts: IntArray  # answers to one item of each pattern
    values: Values

    @classmethod
    def from_answers(cls, answers: Answers) -> AnswerPatterns:
        values, code = np.unique(answers.value, return_inverse=True)
        order = np.lexsort((code, answers.item))
        starts = np.flatnonzero(np.diff(answers.item[order], prepend=answers.item[order][:1] - 1)).tolist()
        code_bytes = code[order].astype(">i4").tobytes()
        items_with: dict[bytes, int] = {}
        for start, end in pairwise([*starts, len(answers)]):
            pattern = code_bytes[4 * start : 4 * end]
            items_with[pattern] = items_with.get(pattern, 0) + 1
        patterns = sorted(items_with, key=lambda pattern: (len(pattern), pattern))
        answer_counts = np.array([len(pattern) // 4 for pattern in patterns], dtype=np.int64)
        rows = np.repeat(np.arange(len(patterns)), answer_counts)
        columns = np.frombuffer(b"".join(patterns), dtype=">i4").astype(np.int64)
        shape = (len(patterns), len(values))
        value_counts = csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)  # sums repeated cells
        item_counts = np.array([items_with[pattern] for pattern in patterns], dtype=np.int64)
        return cls(item_counts, value_counts, answer_counts, values)

    def value_totals(self) -> FloatArray:
        """Number of answers with each value."""
        return np.asarray(self.item_counts @ self.value_counts, dtype=np.float64)
