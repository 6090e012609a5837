"""The ranks of each query's positives, under every way to break ties at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from crossmatch.core.arrays import FloatArray, IntArray, frozen, require_finite
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.judgements import Listed
from crossmatch.core.scores import Matrix
from crossmatch.core.standing import Standing
from crossmatch.core.sweep import stand

TIES = ("expected", "pessimistic", "optimistic")


@dataclass(frozen=True, eq=False)
class Ranks:
    """The positives of all queries, one after another; query q owns the slice `start[q]:start[q + 1]`, best first.

    A positive with `above` candidates over it, in a group of `size` candidates of equal score, takes each of the ranks
    above + 1 … above + size with the same probability. That is all a ranking metric needs: its value is the
    **expected** one, the mean over all orders of the tied candidates. `settle` breaks the ties for the best or the worst
    instead, and leaves ranks without ties, so that a metric is written once.

    `gallery` is the number of candidates of each query; `depth` how far down the ranking is known.

    >>> Ranks.of([[1, 4, 5], [2]]).count
    array([3, 1])
    """

    start: IntArray
    above: IntArray
    size: IntArray
    gain: FloatArray
    gallery: IntArray
    depth: IntArray = None  # type: ignore[assignment]  # derived: the whole gallery

    def __post_init__(self) -> None:
        if self.depth is None:
            object.__setattr__(self, "depth", self.gallery)
        lengths = np.diff(self.start)
        if not len(lengths) or lengths.min() <= 0:
            empty = int(lengths.argmin()) if len(lengths) else 0
            raise CrossmatchError(
                f"query {empty} has no positive, so it has no rank. Leave queries without positives out of the evaluation."
            )
        for array in (self.start, self.above, self.size, self.gain, self.gallery, self.depth):
            frozen(array)
        below = self.above[self.leader] + self.size[self.leader]  # the last rank of each tie group
        same = np.diff(self.query[self.leader]) == 0
        apart = (self.above[self.leader][1:] >= below[:-1]) | ~same
        if (
            self.above.min() < 0
            or (below > self.gallery[self.query[self.leader]]).any()
            or not apart.all()
            or (self.together > self.size[self.leader]).any()
        ):
            raise CrossmatchError(
                "these ranks cannot be: they count from one to the length of the gallery, and only tied candidates share one."
            )

    @classmethod
    def of(
        cls, ranks: Sequence[Sequence[int]], gallery: int | None = None, gains: Sequence[Sequence[float]] | None = None
    ) -> Ranks:
        """From the ranks of each query's positives, counted from one, without ties."""
        empty = next((q for q, rs in enumerate(ranks) if not rs), None if ranks else 0)
        if empty is not None:
            raise CrossmatchError(f"query {empty} has no positive, so it has no rank. Leave it out of the evaluation.")
        start = np.cumsum([0, *map(len, ranks)])
        flat = [
            (r, g) for q, rs in enumerate(ranks) for r, g in sorted(zip(rs, gains[q] if gains else [1.0] * len(rs), strict=True))
        ]
        above = np.asarray([r - 1 for r, _ in flat], dtype=np.int64)
        most = gallery or max(r for r, _ in flat)
        return cls(
            start, above, np.ones_like(above), np.asarray([g for _, g in flat], dtype=np.float64),
            np.full(len(ranks), most, dtype=np.int64),
        )  # fmt: skip

    @classmethod
    def level(cls, count: ArrayLike, gallery: ArrayLike, gain: ArrayLike | None = None) -> Ranks:
        """What a constant scorer gives: all of the gallery in one tie. Its expected value is chance."""
        count = np.asarray(count, dtype=np.int64)
        galleries = np.broadcast_to(np.asarray(gallery, dtype=np.int64), count.shape).copy()
        start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        gains = np.ones(start[-1]) if gain is None else np.asarray(gain, dtype=np.float64).copy()
        return cls(start, np.zeros(start[-1], np.int64), np.repeat(galleries, count), gains, galleries)

    @classmethod
    def from_standing(cls, standing: Standing, positive: float = 1.0) -> Ranks:
        """Keep the candidates graded `positive` or better, best rank first."""
        listed = standing.listed
        kept = np.flatnonzero(listed.grade >= positive)
        query = np.repeat(np.arange(len(listed.query)), listed.count)[kept]
        longest = int(standing.gallery.max())
        kept = kept[np.argsort(query * (longest + 1) + standing.above[kept], kind="stable")]
        start = np.concatenate([[0], np.cumsum(np.bincount(query, minlength=len(listed.query)))])
        return cls(
            start.astype(np.int64),
            standing.above[kept],
            standing.size[kept],
            listed.grade[kept],
            standing.gallery.copy(),
            standing.depth.copy(),
        )

    @cached_property
    def count(self) -> IntArray:
        """R, the number of positives of each query."""
        return np.diff(self.start)

    @cached_property
    def query(self) -> IntArray:
        """The query of each positive."""
        return np.repeat(np.arange(len(self.count)), self.count)

    @cached_property
    def group(self) -> IntArray:
        """A number for each tie group, ascending; positives of one group stand side by side."""
        new = np.ones(len(self.above), dtype=bool)
        new[1:] = (np.diff(self.query) > 0) | (np.diff(self.above) > 0) | (np.diff(self.size) != 0) | (self.size[1:] == 1)
        return np.cumsum(new) - 1

    @cached_property
    def leader(self) -> IntArray:
        """The first positive of each tie group."""
        return np.flatnonzero(np.diff(self.group, prepend=-1))

    @cached_property
    def before(self) -> IntArray:
        """For each tie group, how many positives of its query are strictly above it."""
        return self.leader - self.start[self.query[self.leader]]

    @cached_property
    def together(self) -> IntArray:
        """For each tie group, how many positives it holds."""
        return np.diff(np.append(self.leader, len(self.above)))

    def chosen(self, queries: IntArray) -> Ranks:
        """The ranks of some of the queries."""
        count = self.count[queries]
        start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        kept = np.arange(start[-1]) - np.repeat(start[:-1] - self.start[queries], count)
        return Ranks(start, self.above[kept], self.size[kept], self.gain[kept], self.gallery[queries], self.depth[queries])

    def settle(self, ties: str) -> Ranks:
        """Break ties: `optimistic` puts positives first, `pessimistic` last; `expected` keeps them open."""
        if ties not in TIES:
            raise CrossmatchError(f"ties is {ties!r}; one of {', '.join(TIES)} was expected.")
        if ties == "expected":
            return self
        worst_first = 1 if ties == "pessimistic" else -1
        order = np.lexsort((worst_first * self.gain, self.group))
        place = np.arange(len(self.above)) - self.leader[self.group]
        negatives = (self.size[self.leader] - self.together)[self.group] if ties == "pessimistic" else 0
        return replace(self, above=self.above + negatives + place, size=np.ones_like(self.size), gain=self.gain[order])

    def within(self, k: ArrayLike) -> FloatArray:
        """For each positive the probability that its rank is at most k (one k, or one for each query)."""
        k = np.broadcast_to(np.asarray(k), self.count.shape)[self.query]
        return np.asarray(np.clip((k - self.above) / self.size, 0.0, 1.0), dtype=np.float64)

    def total(self, values: FloatArray) -> FloatArray:
        """Sum over each query's positives."""
        return np.add.reduceat(values, self.start[:-1])

    def total_by_group(self, values: FloatArray) -> FloatArray:
        """Sum values given per tie group over each query."""
        return np.asarray(np.bincount(self.query[self.leader], values, len(self.count)), dtype=np.float64)

    @cached_property
    def tied(self) -> FloatArray:
        """For each query 1 if some positive is level with a candidate that is none, else 0."""
        known = self.above[self.leader] < self.depth[self.query[self.leader]]  # what a run does not list is no tie
        mixed = known & (self.size[self.leader] > self.together)
        return (self.total_by_group(mixed.astype(np.float64)) > 0).astype(np.float64)


def rank(scores: ArrayLike, relevance: ArrayLike, ties: str = "expected", positive: float = 0.0, **options: bool | int) -> Ranks:
    """Ranks from a small matrix of scores (queries x candidates) and one of grades; positives are graded above `positive`.

    >>> rank([[0.9, 0.5, 0.5]], [[0, 1, 0]]).within(2)      # the positive ties with one negative for ranks 2 and 3
    array([0.5])
    """
    scores, grades = np.asarray(scores), np.asarray(relevance, dtype=np.float64)
    if scores.ndim != 2 or scores.shape != grades.shape:
        raise CrossmatchError(f"scores have shape {scores.shape} and relevance {grades.shape}; two equal matrices were expected.")
    require_finite(grades, "relevance", "Give 0 to what is not relevant.")
    rows, columns = np.nonzero(grades > positive)
    missing = np.setdiff1d(np.arange(len(scores)), rows)
    if len(missing):
        raise CrossmatchError(f"query {missing[0]} has no positive, so it has no rank. Leave it out of the evaluation.")
    start = np.searchsorted(rows, np.arange(len(scores) + 1)).astype(np.int64)
    listed = Listed(np.arange(len(scores)), start, columns.astype(np.int64), grades[rows, columns])
    said = Matrix(np.arange(scores.shape[0]), np.arange(scores.shape[1]), scores)  # type: ignore[arg-type]
    standing = stand(said, {"i2t": listed}, **options)["i2t"]  # type: ignore[arg-type]
    return Ranks.from_standing(standing, positive=-np.inf).settle(ties)
