"""The ranks of each query's positives, under all tie policies at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from crossmatch.data.arrays import FloatArray, IntArray, make_read_only, require_finite
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.rank_counts import CandidateLists, RankCounts
from crossmatch.data.scores import Matrix
from crossmatch.ranking.sweep import count_ranks

TIE_POLICIES = ("expected", "pessimistic", "optimistic")
NO_POSITIVE = "Query {} has no positive, so it has no rank. Leave queries without positives out of the evaluation."


@dataclass(frozen=True, eq=False)
class Ranks:
    """The positives of all queries, one query after another, best rank first.

    A positive with `above` candidates over it, in a group of `tie_size` candidates of equal score, takes each of the ranks
    above + 1 … above + tie_size with the same probability. Metrics compute the **expected** value, the mean over all orders of
    the tied candidates. `break_ties` gives the pessimistic or optimistic ranks, which have no ties, so each metric has one formula.

    Attributes:
        start: Query q owns the positives `start[q]:start[q + 1]`.
        above: For each positive the number of candidates with a higher score.
        tie_size: For each positive the number of candidates with the same score, itself included.
        gain: The grade of each positive.
        gallery_size: The number of candidates of each query.
        depth: How many ranks of each query are known; by default the whole gallery.

    >>> Ranks.from_lists([[1, 4, 5], [2]]).positive_counts
    array([3, 1])
    """

    start: IntArray
    above: IntArray
    tie_size: IntArray
    gain: FloatArray
    gallery_size: IntArray
    depth: IntArray = None  # type: ignore[assignment]  # derived: the whole gallery

    def __post_init__(self) -> None:
        if self.depth is None:
            object.__setattr__(self, "depth", self.gallery_size)
        lengths = np.diff(self.start)
        if not len(lengths) or lengths.min() <= 0:
            raise CrossmatchError(NO_POSITIVE.format(int(lengths.argmin()) if len(lengths) else 0))
        for array in (self.start, self.above, self.tie_size, self.gain, self.gallery_size, self.depth):
            make_read_only(array)
        last_rank = self.above[self.group_start] + self.tie_size[self.group_start]
        same_query = np.diff(self.query[self.group_start]) == 0
        overlaps = same_query & (self.above[self.group_start][1:] < last_rank[:-1])
        if (
            self.above.min() < 0
            or (last_rank > self.gallery_size[self.query[self.group_start]]).any()
            or overlaps.any()
            or (self.group_positives > self.tie_size[self.group_start]).any()
        ):
            raise CrossmatchError("Invalid ranks: they run from 1 to the size of the gallery, and only tied candidates share one.")

    @classmethod
    def from_lists(
        cls, ranks: Sequence[Sequence[int]], gallery: int | None = None, gains: Sequence[Sequence[float]] | None = None
    ) -> Ranks:
        """From ranks without ties.

        Args:
            ranks: For each query the ranks of its positives, counted from one.
            gallery: Number of candidates; by default the largest rank.
            gains: The grade of each positive; by default 1.
        """
        empty = next((q for q, query_ranks in enumerate(ranks) if not query_ranks), None if ranks else 0)
        if empty is not None:
            raise CrossmatchError(NO_POSITIVE.format(empty))
        start = np.cumsum([0, *map(len, ranks)])
        gains = gains or [[1.0] * len(query_ranks) for query_ranks in ranks]
        pairs = [pair for q, query_ranks in enumerate(ranks) for pair in sorted(zip(query_ranks, gains[q], strict=True))]
        above = np.asarray([rank - 1 for rank, _ in pairs], dtype=np.int64)
        gallery_size = np.full(len(ranks), gallery or max(rank for rank, _ in pairs), dtype=np.int64)
        return cls(start, above, np.ones_like(above), np.asarray([gain for _, gain in pairs], dtype=np.float64), gallery_size)

    @classmethod
    def all_tied(cls, count: ArrayLike, gallery: ArrayLike, gain: ArrayLike | None = None) -> Ranks:
        """The ranks of a constant scorer: the whole gallery is one tie. The expected value of a metric on them is chance."""
        count = np.asarray(count, dtype=np.int64)
        gallery_size = np.broadcast_to(np.asarray(gallery, dtype=np.int64), count.shape).copy()
        start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        gains = np.ones(start[-1]) if gain is None else np.asarray(gain, dtype=np.float64).copy()
        return cls(start, np.zeros(start[-1], np.int64), np.repeat(gallery_size, count), gains, gallery_size)

    @classmethod
    def from_counts(cls, counts: RankCounts, positive: float = 1.0) -> Ranks:
        """The ranks of the listed candidates whose grade is at least `positive`."""
        lists = counts.lists
        pairs = np.flatnonzero(lists.grade >= positive)
        query = np.repeat(np.arange(len(lists.query)), lists.count)[pairs]
        width = int(counts.gallery_size.max()) + 1
        pairs = pairs[np.argsort(query * width + counts.above[pairs], kind="stable")]
        start = np.concatenate([[0], np.cumsum(np.bincount(query, minlength=len(lists.query)))]).astype(np.int64)
        gallery_size, depth = counts.gallery_size.copy(), counts.depth.copy()
        return cls(start, counts.above[pairs], counts.tie_size[pairs], lists.grade[pairs], gallery_size, depth)

    @cached_property
    def positive_counts(self) -> IntArray:
        """R, the number of positives of each query."""
        return np.diff(self.start)

    @cached_property
    def query(self) -> IntArray:
        """The query of each positive."""
        return np.repeat(np.arange(len(self.positive_counts)), self.positive_counts)

    @cached_property
    def group(self) -> IntArray:
        """The number of the tie group of each positive, ascending."""
        is_new = np.ones(len(self.above), dtype=bool)
        is_new[1:] = (
            (np.diff(self.query) > 0) | (np.diff(self.above) > 0) | (np.diff(self.tie_size) != 0) | (self.tie_size[1:] == 1)
        )  # fmt: skip
        return np.cumsum(is_new) - 1

    @cached_property
    def group_start(self) -> IntArray:
        """The first positive of each tie group."""
        return np.flatnonzero(np.diff(self.group, prepend=-1))

    @cached_property
    def positives_before(self) -> IntArray:
        """For each tie group the number of positives of its query that score higher."""
        return self.group_start - self.start[self.query[self.group_start]]

    @cached_property
    def group_positives(self) -> IntArray:
        """For each tie group the number of its positives."""
        return np.diff(np.append(self.group_start, len(self.above)))

    def select(self, queries: IntArray) -> Ranks:
        """The ranks of some of the queries."""
        count = self.positive_counts[queries]
        start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        at = np.arange(start[-1]) - np.repeat(start[:-1] - self.start[queries], count)
        return Ranks(start, self.above[at], self.tie_size[at], self.gain[at], self.gallery_size[queries], self.depth[queries])

    def break_ties(self, ties: str) -> Ranks:
        """Apply a tie policy: `optimistic` puts positives first, `pessimistic` last; `expected` changes nothing."""
        if ties not in TIE_POLICIES:
            raise CrossmatchError(f"Unknown tie policy {ties!r}. Use one of {', '.join(TIE_POLICIES)}.")
        if ties == "expected":
            return self
        gain_sign = 1 if ties == "pessimistic" else -1
        order = np.lexsort((gain_sign * self.gain, self.group))
        place_in_group = np.arange(len(self.above)) - self.group_start[self.group]
        negatives = (self.tie_size[self.group_start] - self.group_positives)[self.group] if ties == "pessimistic" else 0
        above = self.above + negatives + place_in_group
        return replace(self, above=above, tie_size=np.ones_like(self.tie_size), gain=self.gain[order])

    @cached_property
    def perfect(self) -> Ranks:
        """The ranks of a perfect scorer: positives first, the highest grade on top. Metrics are best on them."""
        order = np.lexsort((-self.gain, self.query))
        place = np.arange(len(self.above)) - self.start[self.query]
        return Ranks(self.start, place, np.ones_like(place), self.gain[order], self.gallery_size)

    def probability_within(self, k: ArrayLike) -> FloatArray:
        """For each positive the probability that its rank is at most k (one k, or one for each query)."""
        k = np.broadcast_to(np.asarray(k), self.positive_counts.shape)[self.query]
        return np.asarray(np.clip((k - self.above) / self.tie_size, 0.0, 1.0), dtype=np.float64)

    def sum_by_query(self, values: FloatArray) -> FloatArray:
        """Sum the values of each query's positives."""
        return np.add.reduceat(values, self.start[:-1])

    def sum_groups_by_query(self, values: FloatArray) -> FloatArray:
        """Sum the values of each query's tie groups."""
        return np.asarray(np.bincount(self.query[self.group_start], values, len(self.positive_counts)), dtype=np.float64)

    @cached_property
    def is_tied(self) -> FloatArray:
        """For each query 1.0 if a positive is tied with a candidate that is not positive, else 0.0."""
        is_known = self.above[self.group_start] < self.depth[self.query[self.group_start]]  # unlisted candidates of a run
        mixed = is_known & (self.tie_size[self.group_start] > self.group_positives)
        return (self.sum_groups_by_query(mixed.astype(np.float64)) > 0).astype(np.float64)


def rank(scores: ArrayLike, relevance: ArrayLike, ties: str = "expected", positive: float = 0.0, **options: bool | int) -> Ranks:
    """Rank a small matrix of scores.

    Args:
        scores: Scores of shape (queries, candidates).
        relevance: Grades of the same shape.
        ties: The tie policy: `expected`, `pessimistic` or `optimistic`.
        positive: Candidates with a grade above this are positives.
        options: Options of `crossmatch.ranking.sweep.count_ranks`.

    Returns:
        The ranks of all positives.

    Raises:
        CrossmatchError: The shapes differ, a value is not finite, or a query has no positive.

    >>> rank([[0.9, 0.5, 0.5]], [[0, 1, 0]]).probability_within(2)      # the positive ties with one negative for ranks 2 and 3
    array([0.5])
    """
    scores, grades = np.asarray(scores), np.asarray(relevance, dtype=np.float64)
    if scores.ndim != 2 or scores.shape != grades.shape:
        raise CrossmatchError(f"Scores of shape {scores.shape} and relevance of shape {grades.shape} must be equal matrices.")
    require_finite(grades, "relevance", "Use 0 for pairs that are not relevant.")
    rows, columns = np.nonzero(grades > positive)
    missing = np.setdiff1d(np.arange(len(scores)), rows)
    if len(missing):
        raise CrossmatchError(NO_POSITIVE.format(missing[0]))
    start = np.searchsorted(rows, np.arange(len(scores) + 1)).astype(np.int64)
    lists = CandidateLists(np.arange(len(scores)), start, columns.astype(np.int64), grades[rows, columns])
    matrix = Matrix(np.arange(scores.shape[0]), np.arange(scores.shape[1]), scores)  # type: ignore[arg-type]
    counts = count_ranks(matrix, {"i2t": lists}, **options)["i2t"]  # type: ignore[arg-type]
    return Ranks.from_counts(counts, positive=-np.inf).break_ties(ties)
