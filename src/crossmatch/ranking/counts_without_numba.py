"""Rank counts and counts at cutoffs in float64, query by query: the path that needs no numba."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.collection import SIDES
from crossmatch.data.rank_counts import CandidateLists, CountsAtK, CutoffRequest, RankCounts, gallery_sizes
from crossmatch.data.scores import Embeddings, Matrix

BLOCK = 1 << 22  # scores computed together: 32 MB


class ScoreBlocks:
    """Float64 scores of some queries with all candidates, and a bound on their rounding error.

    The scores of a matrix are exact. Those of embeddings come from a matrix product, which adds in an unknown order. They differ
    from the exact scores (`scores.exact_dot`) by at most

        |fl(s) - s| <= (2d + 16) · 2⁻⁵³ · |u| · |v|        (higham2002accuracy, sec. 3.1, for the product and for the exact score)
    """

    def __init__(self, scores: Embeddings | Matrix, direction: str, block_size: int | None = None) -> None:
        self.scores, self.direction = scores, direction
        if isinstance(scores, Embeddings):
            self._queries, items = (scores.vectors(side) for side in SIDES[direction])
            self._query_scale, item_scale = (scores.scale(side) for side in SIDES[direction])
            self._items = items * item_scale[:, None]
            self._longest_item = float(np.linalg.norm(self._items, axis=1).max())
            self.candidates = len(items)
        else:
            self.candidates = scores.shape[1] if direction == "i2t" else scores.shape[0]
        self.queries_per_block = max(1, (block_size or BLOCK) // self.candidates)

    def compute(self, queries: IntArray) -> tuple[FloatArray, FloatArray]:
        """Scores of shape (queries, candidates), and the largest rounding error of each query."""
        if isinstance(self.scores, Matrix):
            values = self.scores.values[queries] if self.direction == "i2t" else self.scores.values[:, queries].T
            return np.array(values, dtype=np.float64), np.zeros(len(queries))
        vectors = self._queries[queries] * self._query_scale[queries, None]
        rounding = (2 * vectors.shape[1] + 16) * 2.0**-53
        margin = rounding * self._longest_item * np.linalg.norm(vectors, axis=1)
        return vectors @ self._items.T, margin + np.finfo(np.float64).tiny

    def lines(self, queries: IntArray) -> Iterator[tuple[int, FloatArray, float]]:
        """For each query its position, its scores with all candidates, and their largest rounding error."""
        for first in range(0, len(queries), self.queries_per_block):
            some = queries[first : first + self.queries_per_block]
            yield from zip(some.tolist(), *self.compute(some), strict=True)


def count_ranks_in_float64(
    scores: Embeddings | Matrix, direction: str, lists: CandidateLists, block_size: int | None = None
) -> RankCounts:
    """Count the candidates above each listed candidate and those tied with it."""
    same_side = SIDES[direction][0] == SIDES[direction][1]
    blocks = ScoreBlocks(scores, direction, block_size)
    exact = scores.score_pairs(lists.pair_query, lists.item, direction)
    above, tie_size = np.empty(len(exact), dtype=np.int64), np.empty(len(exact), dtype=np.int64)
    for n, (query, line, margin) in enumerate(blocks.lines(lists.query)):
        pairs = slice(lists.start[n], lists.start[n + 1])
        if lists.folds is not None:
            line[lists.folds[1] != lists.folds[0][query]] = -np.inf
        if same_side:
            line[query] = -np.inf
        listed = np.sort(exact[pairs])
        items = np.flatnonzero(line >= listed[0] - margin)  # all others are below every listed candidate
        values = line[items]
        near = np.searchsorted(listed, values - margin, "left") < np.searchsorted(listed, values + margin, "right")
        values[near] = scores.score_pairs(np.full(near.sum(), query), items[near], direction)
        values.sort()
        left, right = (np.searchsorted(values, exact[pairs], side) for side in ("left", "right"))
        above[pairs], tie_size[pairs] = len(values) - right, right - left
    gallery = gallery_sizes(lists, blocks.candidates, same_side)
    return RankCounts(lists, above, tie_size, gallery.copy(), gallery)


def count_at_cutoffs_in_float64(scores: Embeddings | Matrix, request: CutoffRequest, block_size: int | None = None) -> CountsAtK:
    """Count the candidates above the K-th highest score and those tied with it, and the positives among both."""
    blocks = ScoreBlocks(scores, request.direction, block_size)
    queries = request.query
    counts = np.zeros((4, *request.k[..., queries].shape), dtype=np.int64)
    for n, (query, line, margin) in enumerate(blocks.lines(queries)):
        k = request.k[..., query]
        if margin:  # an exact score may be on the other side of the K-th one only within twice the margin
            thresholds = np.unique(_kth_highest(line, k))
            low = np.searchsorted(thresholds, line - 2 * margin, "left")
            high = np.searchsorted(thresholds, line + 2 * margin, "right")
            near = np.flatnonzero(low < high)
            line[near] = scores.score_pairs(np.full(len(near), query), near, request.direction)
        zeta_of_match = request.first_matching_zeta[request.query_set[query]][request.item_set]
        for (cap, zeta), threshold in np.ndenumerate(_kth_highest(line, k)):
            is_positive, is_above, is_tied = zeta_of_match <= zeta, line > threshold, line == threshold
            counts[:, cap, zeta, n] = [
                is_above.sum(), is_tied.sum(), (is_positive & is_above).sum(), (is_positive & is_tied).sum()
            ]  # fmt: skip
    return request.counts(counts, blocks.candidates)


def _kth_highest(line: FloatArray, k: IntArray) -> FloatArray:
    """The k-th highest value of a line, for an array of k."""
    place = len(line) - k
    return np.asarray(np.partition(line, np.unique(place))[place], dtype=np.float64)
