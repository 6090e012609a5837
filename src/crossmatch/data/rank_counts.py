"""Rank counts of listed candidates, and counts at a cutoff K: the evidence behind all ranking metrics.

The rank of a candidate with score s needs two numbers only:

    above = |{ c : s(c) > s }|          tie_size = |{ c : s(c) = s }|   (itself included)

`ranking/sweep.py` counts both for all listed pairs of all tasks in one pass over the scores, and `ranking/ranks_in_run.py` reads
them from a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from crossmatch.data.arrays import FloatArray, IntArray, make_read_only
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.judgements import CandidateLists


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

    >>> counts = CountsAtK(*(np.array([[[n]]]) for n in (3, 2, 4, 1, 2)), np.array([[3]]), np.array([9]))
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
    caps: tuple[int, ...] = (0,)  # the largest cutoffs K; 0 means no limit
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
