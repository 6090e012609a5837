"""What people answered, one row for each answer, and the same gathered into kinds of items."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray, as_whole, frozen, require_finite
from crossmatch.core.errors import CrossmatchError

Values = NDArray[np.int64 | np.float64]


@dataclass(frozen=True, eq=False)
class Answers:
    """What people answered: person `person[n]` gave item `item[n]` the value `value[n]`; at most one answer of each to each.

    Ids are whole numbers, of any size. Values are codes of names or numbers on a scale. What nobody answered is simply not here,
    and there may be nothing at all: a study begins empty.

    >>> Answers.of([(7, 1, 3), (7, 2, 4), (9, 1, 3)]).value
    array([3, 4, 3])
    >>> Answers.of([(7, 1, 3), (7, 1, 4)])
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: person 1 answered item 7 more than once. Keep one answer of each person to each item, \
such as the last.
    """

    item: IntArray
    person: IntArray
    value: Values

    def __post_init__(self) -> None:
        object.__setattr__(self, "item", as_whole(self.item, "items"))
        object.__setattr__(self, "person", as_whole(self.person, "people"))
        object.__setattr__(self, "value", _as_values(self.value))
        shapes = [array.shape for array in (self.item, self.person, self.value)]
        if shapes != [(len(self.value),)] * 3:
            raise CrossmatchError(
                f"items, people and values have the shapes {', '.join(map(str, shapes))}; flat lists of one length were expected."
            )
        order = np.lexsort((self.person, self.item))
        again = (np.diff(self.item[order]) == 0) & (np.diff(self.person[order]) == 0)
        if again.any():
            at = order[again.argmax()]
            raise CrossmatchError(
                f"person {self.person[at]} answered item {self.item[at]} more than once. "
                "Keep one answer of each person to each item, such as the last."
            )
        for array in (self.item, self.person, self.value):
            frozen(array)

    def __len__(self) -> int:
        return len(self.value)

    @classmethod
    def of(cls, said: Iterable[tuple[int, int, float]]) -> Answers:
        """From triples (item, person, value)."""
        item, person, value = zip(*said, strict=True) if (said := list(said)) else ((), (), ())
        return cls(np.asarray(item, np.int64), np.asarray(person, np.int64), np.asarray(value))

    @classmethod
    def from_table(cls, table: ArrayLike) -> Answers:
        """From a table, items x people; NaN where a person did not answer.

        >>> Answers.from_table([[1, 2], [np.nan, 2]]).item
        array([0, 0, 1])
        """
        given = np.asarray(table)
        if given.ndim != 2 or given.dtype.kind not in "biuf":
            raise CrossmatchError(
                f"the table has shape {given.shape} and dtype {given.dtype}; numbers, items x people, were expected."
            )
        item, person = np.nonzero(~np.isnan(given))
        return cls(item, person, given[item, person])

    def among(self, kept: BoolArray) -> Answers:
        """Some of the answers."""
        return Answers(self.item[kept], self.person[kept], self.value[kept])


def _as_values(given: Any) -> Values:
    values = np.asarray(given)
    if values.size and values.dtype.kind not in "biuf":
        raise CrossmatchError(f"values have dtype {values.dtype}; numbers were expected. Number the answers, such as 0 no, 1 yes.")
    if values.dtype.kind == "f" and values.size:
        require_finite(values, "values", "Leave out what was not answered.")
        return np.array(values, dtype=np.float64)
    return np.array(values, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Kinds:
    """Items gathered by what was answered: those that got the same values, of whomever, are of one kind and tell the same.

    A study with a few values has a few kinds of items, however many items: a replicate of the bootstrap is how often each kind is
    drawn. Kinds are in the order of what was answered, so that nothing made of them depends on the order of items.

    >>> found = Kinds.of(Answers.from_table([[5, 8], [8, 8], [8, 5]]))
    >>> found.times, found.counts.toarray(), found.values
    (array([2, 1]), array([[1., 1.], [0., 2.]]), array([5, 8]))
    """

    times: IntArray  # the items of each kind
    counts: csr_array  # kinds x values: the answers to one item of the kind
    answers: IntArray  # the sum of each row
    values: Values

    @classmethod
    def of(cls, said: Answers) -> Kinds:
        values, code = np.unique(said.value, return_inverse=True)
        order = np.lexsort((code, said.item))
        starts = np.flatnonzero(np.diff(said.item[order], prepend=said.item[order][:1] - 1)).tolist()
        told = code[order].astype(">i4").tobytes()
        found: dict[bytes, int] = {}
        for start, end in pairwise([*starts, len(said)]):
            key = told[4 * start : 4 * end]
            found[key] = found.get(key, 0) + 1
        keys = sorted(found, key=lambda key: (len(key), key))
        answers = np.array([len(key) // 4 for key in keys], dtype=np.int64)
        rows, columns = np.repeat(np.arange(len(keys)), answers), np.frombuffer(b"".join(keys), dtype=">i4").astype(np.int64)
        counts = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(keys), len(values)))  # equal places add up
        return cls(np.array([found[key] for key in keys], dtype=np.int64), counts, answers, values)

    def totals(self) -> FloatArray:
        """How many answers there are of each value."""
        return np.asarray(self.times @ self.counts, dtype=np.float64)

    def table(self) -> FloatArray:
        """The answers of each value to each item: items x values."""
        return np.asarray(np.repeat(self.counts.toarray(), self.times, axis=0), dtype=np.float64)
