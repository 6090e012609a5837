"""Candidate lists, their rank counts and counts at a cutoff K: the evidence behind all ranking metrics, and requests for it.

The rank of a candidate with score s needs two numbers only:

    above = |{ c : s(c) > s }|          tie_size = |{ c : s(c) = s }|   (itself included)

`ranking/sweep.py` counts both for all listed pairs of all tasks in one pass over the scores, and `ranking/ranks_in_run.py` reads
them from a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import FloatArray, IntArray, make_read_only
from crossmatch.data.errors import CrossmatchError


@dataclass(frozen=True, eq=False)
class CandidateLists:
    """For each query the candidates whose ranks are counted, in compressed sparse rows."""

    query: IntArray  # positions of the queries on their side of the collection, ascending
    start: IntArray  # the candidates of query n are `item[start[n]:start[n + 1]]`
    item: IntArray  # positions of the candidates on their side, ascending within a query
    grade: FloatArray  # of each candidate
    folds: tuple[IntArray, IntArray] | None = None  # of all items on the side of the queries, and of the candidates

    def __post_init__(self) -> None:
        for name in ("query", "start", "item", "grade"):
            object.__setattr__(self, name, getattr(self, name).view())
        lengths = np.diff(self.start)
        if not len(self.query):
            raise CrossmatchError("No query has a positive, so nothing can be ranked. Check the judgements.")
        if (lengths <= 0).any():
            raise CrossmatchError(
                f"Query {self.query[lengths.argmin()]} has no listed candidate. Leave queries without positives out."
            )
        for array in (self.query, self.start, self.item, self.grade):
            make_read_only(array)

    @property
    def count(self) -> IntArray:
        """The number of listed candidates of each query."""
        return np.diff(self.start)

    @property
    def pair_query(self) -> IntArray:
        """The position of the query of each listed pair."""
        return np.repeat(self.query, self.count)

    def reorder(self, query_order: IntArray | None, item_order: IntArray | None) -> CandidateLists:
        """The same pairs after the items of a side were put in another order: item n of a side is the former item order[n]."""
        if query_order is None and item_order is None:
            return self
        query = self.query if query_order is None else np.argsort(query_order)[self.query]
        item = self.item if item_order is None else np.argsort(item_order)[self.item]
        by_query = np.argsort(query, kind="stable")
        count = self.count[by_query]
        start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        pairs = np.arange(start[-1]) - np.repeat(start[:-1] - self.start[by_query], count)
        folds = self.folds
        if folds is not None:
            folds = (
                folds[0] if query_order is None else folds[0][query_order],
                folds[1] if item_order is None else folds[1][item_order],
            )
        return CandidateLists(query[by_query], start, item[pairs], self.grade[pairs], folds)


@dataclass(frozen=True, eq=False)
class RankCounts:
    """For each listed candidate how many candidates score higher, and how many score the same."""

    lists: CandidateLists
    above: IntArray  # for each listed pair the number of candidates with a higher score
    tie_size: IntArray  # for each listed pair the number of candidates with the same score, itself included
    depth: IntArray  # for each query how many ranks are known
    gallery_size: IntArray  # for each query the number of candidates

    def subset(self, lists: CandidateLists, shape: tuple[int, int]) -> RankCounts:
        """The counts of some of the listed pairs."""
        if lists is self.lists:
            return self
        width = max(shape)
        pairs = np.searchsorted(self.lists.pair_query * width + self.lists.item, lists.pair_query * width + lists.item)
        query = np.searchsorted(self.lists.query, lists.query)
        return RankCounts(lists, self.above[pairs], self.tie_size[pairs], self.depth[query], self.gallery_size[query])

    def reordered_for(self, lists: CandidateLists, query_order: IntArray | None) -> RankCounts:
        """The same counts for `lists`, before its queries were reordered (`CandidateLists.reorder`)."""
        if lists is self.lists:
            return self
        new_query = lists.query if query_order is None else np.argsort(query_order)[lists.query]
        order = np.argsort(new_query, kind="stable")
        count, start = lists.count[order], self.lists.start[:-1]
        pairs = np.empty(len(lists.item), dtype=np.int64)
        pairs[np.repeat(lists.start[:-1][order] - start, count) + np.arange(len(pairs))] = np.arange(len(pairs))
        query = np.empty_like(order)
        query[order] = np.arange(len(order))
        return RankCounts(lists, self.above[pairs], self.tie_size[pairs], self.depth[query], self.gallery_size[query])


def gallery_sizes(lists: CandidateLists, candidates: int, same_side: bool) -> IntArray:
    """The number of candidates of each query: all of them or those of its fold, without the query itself."""
    if lists.folds is None:
        sizes = np.full(len(lists.query), candidates, dtype=np.int64)
    else:
        query_fold, item_fold = lists.folds
        sizes = np.bincount(item_fold, minlength=int(query_fold.max()) + 1)[query_fold[lists.query]].astype(np.int64)
    return sizes - 1 if same_side else sizes


def add_absent_positives(counts: RankCounts, absent_positives: tuple[int, ...]) -> RankCounts:
    """Add positives that are not in the gallery, as candidates after its end.

    `absent_positives` has the query of each of them.
    """
    if not absent_positives:
        return counts
    lists = counts.lists
    n = np.searchsorted(lists.query, np.asarray(absent_positives))
    if (lists.query[np.minimum(n, len(lists.query) - 1)] != absent_positives).any():
        raise CrossmatchError("A query has positives outside its gallery and none inside. Leave the query out.")
    added = np.bincount(n, minlength=len(lists.query))
    number = np.concatenate([np.arange(count) for count in added])  # 0, 1, … among the absent positives of a query
    end, query = np.repeat(lists.start[1:], added), np.repeat(np.arange(len(added)), added)
    new_rank = counts.gallery_size[query] + number
    start = lists.start + np.concatenate([[0], np.cumsum(added)])
    item, grade = np.insert(lists.item, end, new_rank), np.insert(lists.grade, end, 1.0)
    # A ranking that was known to its end still is. One that was cut does not become deeper.
    depth = np.where(counts.depth == counts.gallery_size, counts.depth + added, counts.depth)
    return RankCounts(
        CandidateLists(lists.query, start, item, grade, lists.folds),
        np.insert(counts.above, end, new_rank),
        np.insert(counts.tie_size, end, 1),
        depth,
        counts.gallery_size + added,
    )


@dataclass(frozen=True, eq=False)
class CountsAtK:
    """Counts at the K-th highest score of each query, under several caps and zetas (see `PlausibleMatches`).

    >>> counts = CountsAtK(*(np.array([[[n]]]) for n in (3, 2, 4, 1, 2)), np.array([[3]]), np.array([9]), (0,))
    >>> counts.positives_in_top_k                                  # 1 of the 4 tied candidates is in the top K, 2 of 4 are positive
    array([[[1.5]]])
    >>> counts.break_ties("pessimistic").positives_in_top_k
    array([[[1.]]])
    """

    k: IntArray  # the cutoffs, of shape (caps, zetas, queries), as for the next four
    above: IntArray  # number of candidates above the K-th highest score
    tie_size: IntArray  # number of candidates tied with it, itself included
    positives_above: IntArray
    positives_in_tie: IntArray
    positive_counts: IntArray  # R, the number of positives, of shape (zetas, queries)
    gallery_size: IntArray  # for each query the number of candidates
    caps: tuple[int, ...]  # the largest cutoffs K; 0 means no limit
    ties: str = "expected"  # the tie policy

    def __post_init__(self) -> None:
        for array in (
            self.k, self.above, self.tie_size, self.positives_above, self.positives_in_tie, self.positive_counts, self.gallery_size
        ):  # fmt: skip
            make_read_only(array)

    @property
    def positives_in_top_k(self) -> FloatArray:
        """The number of positives among the first K, under the tie policy."""
        places, negatives_in_tie = self.k - self.above, self.tie_size - self.positives_in_tie
        from_tie = {
            "expected": places * self.positives_in_tie / self.tie_size,
            "optimistic": np.minimum(places, self.positives_in_tie),
            "pessimistic": np.maximum(0, places - negatives_in_tie),
        }[self.ties]
        return np.asarray(self.positives_above + from_tie, dtype=np.float64)

    @property
    def is_tied(self) -> FloatArray:
        """For each query 1.0 if a cutoff splits a tie of positives with other candidates, else 0.0."""
        is_split = (self.above + self.tie_size > self.k) & (self.positives_in_tie > 0) & (self.positives_in_tie < self.tie_size)
        return np.asarray(is_split.any(axis=(0, 1)), dtype=np.float64)

    def break_ties(self, ties: str) -> CountsAtK:
        """The same counts under another tie policy."""
        return replace(self, ties=ties)

    def select_zetas(self, zetas: Sequence[int]) -> CountsAtK:
        """The counts at some of the zetas, given by their index."""
        at = list(zetas)
        return replace(
            self,
            k=self.k[:, at],
            above=self.above[:, at],
            tie_size=self.tie_size[:, at],
            positives_above=self.positives_above[:, at],
            positives_in_tie=self.positives_in_tie[:, at],
            positive_counts=self.positive_counts[at],
        )


@dataclass(frozen=True, eq=False)
class RankRequest:
    """Asks for the rank counts of listed candidates in one direction."""

    direction: str
    lists: CandidateLists

    @property
    def query(self) -> IntArray:
        """Positions of the queries."""
        return self.lists.query

    @property
    def query_folds(self) -> IntArray | None:
        """The fold of each query, if there are folds."""
        return None if self.lists.folds is None else self.lists.folds[0][self.query]


@dataclass(frozen=True, eq=False)
class CutoffRequest:
    """Asks for the counts at K of every query that has a positive."""

    direction: str
    caps: tuple[int, ...]  # the largest cutoffs K; 0 means no limit
    k: IntArray  # the cutoffs, of shape (caps, zetas, queries)
    positives: IntArray  # the number of positives, of shape (zetas, queries)
    query_set: IntArray  # the label set of each query
    item_set: IntArray  # the label set of each candidate
    first_matching_zeta: NDArray[np.uint8]  # see `PlausibleMatches`

    query_folds = None

    def __post_init__(self) -> None:
        if not self.positives[0].any():
            raise CrossmatchError("No query has a positive, so nothing can be ranked. Check the labels.")
        if self.k.max() > len(self.item_set):
            raise CrossmatchError(f"The cutoff {self.k.max():,} is larger than the number of candidates, {len(self.item_set):,}.")

    @property
    def query(self) -> IntArray:
        """Positions of the queries that have a positive. Only these are evaluated."""
        return np.flatnonzero(self.positives[0] > 0)

    def reorder(self, query_order: IntArray | None, item_order: IntArray | None) -> CutoffRequest:
        """The same request after the items of a side were put in another order."""
        item_set = self.item_set if item_order is None else self.item_set[item_order]
        if query_order is None:
            return replace(self, item_set=item_set)
        return replace(
            self, k=self.k[..., query_order], positives=self.positives[:, query_order], query_set=self.query_set[query_order],
            item_set=item_set,
        )  # fmt: skip

    def counts(self, counts: IntArray, candidates: int) -> CountsAtK:
        """The result for counts of shape (4, caps, zetas, evaluated queries)."""
        above, tie_size, positives_above, positives_in_tie = counts
        gallery_size = np.full(counts.shape[-1], candidates, dtype=np.int64)
        k, positive_counts = self.k[..., self.query], self.positives[:, self.query]
        return CountsAtK(k, above, tie_size, positives_above, positives_in_tie, positive_counts, gallery_size, self.caps)
