"""Compiled loops of `nearest_neighbours.py`, over the arrays of its `_TopCandidates`.

While tiles pass, a query keeps a few more candidates than `k`, ordered by rounded scores: all that could still be among its best
despite rounding. They get exact scores at the end. A query that would have to keep too many, because many scores are nearly equal,
becomes exact at once and accepts only exact scores from then on.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from crossmatch.ranking.rank_count_kernels import exact_score, largest

# Scores that are tested together; small, because all of them are scanned if one passes the test.
CHUNK = 128

_jit: Any = nb.njit(nogil=True, cache=True, boundscheck=False)


@_jit
def offer_tile(tile, first_row, first_column, by_row, by_column, rows, columns, is_diagonal, vectors):  # type: ignore[no-untyped-def]
    """Offer every score of a tile to the queries of its row and of its column, in one pass.

    In a diagonal tile the diagonal is skipped, because an item does not retrieve itself.
    """
    sums = np.empty(vectors.item.shape[1])
    width = tile.shape[1]
    for r in range(tile.shape[0]):
        q = first_row + r
        for begin in range(0, width, CHUNK):
            part = tile[r][begin : begin + CHUNK]
            first = first_column + begin
            if by_row and largest(part) >= rows.threshold[q]:
                for n in range(part.shape[0]):
                    if part[n] >= rows.threshold[q] and not (is_diagonal and first + n == q):
                        _offer(rows, q, first + n, part[n], vectors, sums)
            if by_column:
                threshold = columns.threshold[first : first + part.shape[0]]
                if _any_reaches(part, threshold):
                    for n in range(part.shape[0]):
                        if part[n] >= threshold[n]:
                            _offer(columns, first + n, q, part[n], vectors, sums)


@_jit
def merge(top, of_thread, first, last, vectors):  # type: ignore[no-untyped-def]
    """Merge the candidates of another thread into these queries."""
    sums = np.empty(vectors.item.shape[1])
    for q in range(first, last):
        if of_thread.is_exact[q] and not top.is_exact[q]:
            _make_query_exact(top, q, vectors, sums)
        for n in range(of_thread.filled_places[q]):
            if of_thread.is_exact[q]:
                _insert(top, q, of_thread.item[q, n], of_thread.score[q, n])
            elif top.is_exact[q] or of_thread.score[q, n] >= top.threshold[q]:
                _offer(top, q, of_thread.item[q, n], of_thread.score[q, n], vectors, sums)


@_jit
def make_exact(top, first, last, vectors):  # type: ignore[no-untyped-def]
    """Make the scores of these queries exact, and keep the k best."""
    sums = np.empty(vectors.item.shape[1])
    for q in range(first, last):
        if not top.is_exact[q]:
            _make_query_exact(top, q, vectors, sums)


@_jit
def _any_reaches(part, threshold):  # type: ignore[no-untyped-def]
    """Whether any score reaches the threshold of its query."""
    hits = np.int32(0)  # a 32-bit sum lets the compiler vectorise the loop
    for n in range(part.shape[0]):
        hits += np.int32(1) if part[n] >= threshold[n] else np.int32(0)
    return hits > 0


@_jit
def _offer(top, q, c, x, vectors, sums):  # type: ignore[no-untyped-def]
    """Add a candidate by its score in a tile, which is rounded unless the margin is 0."""
    if top.margin[q] == 0:
        _insert(top, q, c, np.float64(x))
        return
    score, item, k, n = top.score[q], top.item[q], top.k, top.filled_places[q]
    if not top.is_exact[q] and n == score.shape[0]:
        last = score[k - 1]
        if x > last:
            last = min(score[k - 2], np.float64(x)) if k > 1 else np.float64(x)
        if score[n - 1] < last - 2 * top.margin[q]:
            n -= 1  # the last one cannot be among the k best any more
        else:
            _make_query_exact(top, q, vectors, sums)
    if top.is_exact[q]:
        _insert(top, q, c, exact_score(vectors, c, q, sums) if top.is_transposed else exact_score(vectors, q, c, sums))
        return
    at = n
    while at > 0 and x > score[at - 1]:
        score[at], item[at] = score[at - 1], item[at - 1]
        at -= 1
    score[at], item[at] = x, c
    top.filled_places[q] = n + 1
    if n + 1 >= k:
        top.threshold[q] = _round_down(score[k - 1] - 2 * top.margin[q])


@_jit
def _make_query_exact(top, q, vectors, sums):  # type: ignore[no-untyped-def]
    """Replace the rounded scores of a query by exact ones."""
    n = top.filled_places[q]
    score, item = top.score[q, :n].copy(), top.item[q, :n].copy()
    top.score[q], top.item[q], top.filled_places[q], top.is_exact[q] = -np.inf, -1, 0, 1
    low = score[top.k - 1] - 2 * top.margin[q] if n >= top.k else -np.inf
    for at in range(n):
        if score[at] >= low:
            c = item[at]
            _insert(top, q, c, exact_score(vectors, c, q, sums) if top.is_transposed else exact_score(vectors, q, c, sums))


@_jit
def _insert(top, q, c, s):  # type: ignore[no-untyped-def]
    """Insert a candidate with an exact score at its place, if it is among the k best."""
    score, item, k, n = top.score[q], top.item[q], top.k, top.filled_places[q]
    at = n
    while at > 0 and (s > score[at - 1] or (s == score[at - 1] and top.id_rank[c] < top.id_rank[item[at - 1]])):
        at -= 1
    if at == k:
        return
    for place in range(min(n, k - 1), at, -1):
        score[place], item[place] = score[place - 1], item[place - 1]
    score[at], item[at] = s, c
    top.filled_places[q] = min(n + 1, k)
    if top.filled_places[q] == k:
        bound = score[k - 1] * top.scale - top.margin[q]
        top.threshold[q] = _round_down(bound) if top.margin[q] > 0 else bound


@_jit
def _round_down(bound):  # type: ignore[no-untyped-def]
    """A value below the bound, by more than rounding to float32 can add."""
    return bound - 1.2e-7 * abs(bound) - 1e-38
