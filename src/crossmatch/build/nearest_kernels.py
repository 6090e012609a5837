"""The compiled loop behind `nearest.py`, which does the same in NumPy without it."""

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


@_jit
def offer_tile(tile, row0, column0, by_row, by_column, rows, columns, alike, sides, rounded):  # type: ignore[no-untyped-def]
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
                        s = _exact(sides, q, first + n, sums) if rounded else np.float64(part[n])
                        _take(rows, q, first + n, s, rounded)
            if by_column:
                low = columns.low[first : first + part.shape[0]]
                if _reaches(part, low):
                    for n in range(part.shape[0]):
                        if part[n] >= low[n]:
                            s = _exact(sides, q, first + n, sums) if rounded else np.float64(part[n])
                            _take(columns, first + n, q, s, rounded)


@_jit
def _reaches(part, low):  # type: ignore[no-untyped-def]
    """Whether any score is as high as the lowest that its own query still takes."""
    found = np.int32(0)  # a sum in 32 bits: so this becomes a vector loop
    for n in range(part.shape[0]):
        found += np.int32(1) if part[n] >= low[n] else np.int32(0)
    return found > 0


@_jit
def _take(best, q, c, s, rounded):  # type: ignore[no-untyped-def]
    """Put a candidate into its place among the best of a query, or nowhere."""
    score, item = best.score[q], best.item[q]
    at = score.shape[0]
    while at > 0 and (s > score[at - 1] or (s == score[at - 1] and best.rank[c] < best.rank[item[at - 1]])):
        at -= 1
    if at == score.shape[0]:
        return
    for n in range(score.shape[0] - 1, at, -1):
        score[n], item[n] = score[n - 1], item[n - 1]
    score[at], item[at] = s, c
    last = score[score.shape[0] - 1]
    if last > -np.inf:
        bound = last * best.zoom - best.margin[q]
        if rounded:
            bound -= 1.2e-7 * abs(bound) + 1e-38  # more than the next line can add in rounding to float32
        best.low[q] = bound
