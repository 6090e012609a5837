"""The compiled loops behind `nearest.py`, which does the same in NumPy without them.

While tiles go by, a query keeps a few more candidates than it wants, ordered by their rounded scores: all that could still be among
its best in spite of rounding. They are scored exactly in the end. A query that has to keep too many, because many scores are
all but equal, is settled at once, and from then on takes exact scores only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

from crossmatch.core.kernels import _exact, _largest

# Scores looked at together: few enough that looking at each of them costs little where one of them matters.
CHUNK = 128

_jit: Any = nb.njit(nogil=True, cache=True, boundscheck=False)


class Best(NamedTuple):
    """The best candidates of each query so far; `nearest._Held` says what the fields are."""

    score: NDArray[np.float64]
    item: NDArray[np.int64]
    low: NDArray[np.floating]
    rank: NDArray[np.int64]
    margin: NDArray[np.float64]
    zoom: float
    k: int
    filled: NDArray[np.int32]
    settled: NDArray[np.uint8]
    turned: bool


@_jit
def offer_tile(tile, row0, column0, by_row, by_column, rows, columns, alike, sides):  # type: ignore[no-untyped-def]
    """Offer every score of a tile to the query of its row and to that of its column, in one pass over the tile.

    `alike` says that an item meets itself on the diagonal of this tile, which is passed over.
    """
    sums = np.empty(sides.item.shape[1])
    width = tile.shape[1]
    for r in range(tile.shape[0]):
        q = row0 + r
        for begin in range(0, width, CHUNK):
            part = tile[r][begin : begin + CHUNK]
            first = column0 + begin
            if by_row and _largest(part) >= rows.low[q]:
                for n in range(part.shape[0]):
                    if part[n] >= rows.low[q] and not (alike and first + n == q):
                        _take(rows, q, first + n, part[n], sides, sums)
            if by_column:
                low = columns.low[first : first + part.shape[0]]
                if _reaches(part, low):
                    for n in range(part.shape[0]):
                        if part[n] >= low[n]:
                            _take(columns, first + n, q, part[n], sides, sums)


@_jit
def join(best, other, first, last, sides):  # type: ignore[no-untyped-def]
    """Take over what another thread has found for these queries, and settle them."""
    sums = np.empty(sides.item.shape[1])
    for q in range(first, last):
        if other.settled[q] and not best.settled[q]:
            _settle(best, q, sides, sums)
        for n in range(other.filled[q]):
            if other.settled[q]:
                _insert(best, q, other.item[q, n], other.score[q, n])
            elif best.settled[q] or other.score[q, n] >= best.low[q]:
                _take(best, q, other.item[q, n], other.score[q, n], sides, sums)


@_jit
def settle(best, first, last, sides):  # type: ignore[no-untyped-def]
    """Exact scores for what these queries hold, and no more than they want."""
    sums = np.empty(sides.item.shape[1])
    for q in range(first, last):
        if not best.settled[q]:
            _settle(best, q, sides, sums)


@_jit
def _reaches(part, low):  # type: ignore[no-untyped-def]
    """Whether any score is as high as the lowest that its own query still takes."""
    found = np.int32(0)  # a sum in 32 bits: so this becomes a vector loop
    for n in range(part.shape[0]):
        found += np.int32(1) if part[n] >= low[n] else np.int32(0)
    return found > 0


@_jit
def _take(best, q, c, x, sides, sums):  # type: ignore[no-untyped-def]
    """Take in a candidate by its score in a tile, which is rounded unless there is no margin."""
    if best.margin[q] == 0:
        _insert(best, q, c, np.float64(x))
        return
    score, item, k, n = best.score[q], best.item[q], best.k, best.filled[q]
    if not best.settled[q] and n == score.shape[0]:
        last = score[k - 1]
        if x > last:
            last = min(score[k - 2], np.float64(x)) if k > 1 else np.float64(x)
        if score[n - 1] < last - 2 * best.margin[q]:
            n -= 1  # the last one cannot be among the best any more
        else:
            _settle(best, q, sides, sums)
    if best.settled[q]:
        _insert(best, q, c, _exact(sides, c, q, sums) if best.turned else _exact(sides, q, c, sums))
        return
    at = n
    while at > 0 and x > score[at - 1]:
        score[at], item[at] = score[at - 1], item[at - 1]
        at -= 1
    score[at], item[at] = x, c
    best.filled[q] = n + 1
    if n + 1 >= k:
        best.low[q] = _below(score[k - 1] - 2 * best.margin[q])


@_jit
def _settle(best, q, sides, sums):  # type: ignore[no-untyped-def]
    """From rounded scores to exact ones."""
    n = best.filled[q]
    score, item = best.score[q, :n].copy(), best.item[q, :n].copy()
    best.score[q], best.item[q], best.filled[q], best.settled[q] = -np.inf, -1, 0, 1
    low = score[best.k - 1] - 2 * best.margin[q] if n >= best.k else -np.inf
    for at in range(n):
        if score[at] >= low:
            c = item[at]
            _insert(best, q, c, _exact(sides, c, q, sums) if best.turned else _exact(sides, q, c, sums))


@_jit
def _insert(best, q, c, s):  # type: ignore[no-untyped-def]
    """Put a candidate with its exact score into its place among the best of a query, or nowhere."""
    score, item, k, n = best.score[q], best.item[q], best.k, best.filled[q]
    at = n
    while at > 0 and (s > score[at - 1] or (s == score[at - 1] and best.rank[c] < best.rank[item[at - 1]])):
        at -= 1
    if at == k:
        return
    for later in range(min(n, k - 1), at, -1):
        score[later], item[later] = score[later - 1], item[later - 1]
    score[at], item[at] = s, c
    best.filled[q] = min(n + 1, k)
    if best.filled[q] == k:
        bound = score[k - 1] * best.zoom - best.margin[q]
        best.low[q] = _below(bound) if best.margin[q] > 0 else bound


@_jit
def _below(bound):  # type: ignore[no-untyped-def]
    """A little less: more than is added in rounding it to float32."""
    return bound - 1.2e-7 * abs(bound) - 1e-38
