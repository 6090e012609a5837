"""The compiled counting loops (numba). `standing.py` says what they compute, and does the same in NumPy without them.

Each call takes a tile of scores and, for every query that the tile crosses, counts the candidates above and level with
each listed score. A query's counters are touched by one thread only, and they are integers: no order can matter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

# Up to this many listed scores, comparing each candidate with each of them beats finding its place among them.
MANY = 64
# Columns are copied this many at a time: one cache line of float32.
STRIP = 16
# Candidates compared at a time: their cells stay in the first-level cache, their vectors in the last-level one.
CHUNK = 1024
# Cells of 16 bits run from -HALF - 1 (below every listed score) to TOP - HALF (above).
HALF, TOP = 32_767, 65_534
# Cells for each of many listed scores, and at most: more cells, fewer candidates to look at singly, but a longer table.
CELLS, MOST_CELLS = 32, 4096

_jit: Any = nb.njit(nogil=True, cache=True, boundscheck=False)


class Lists(NamedTuple):
    """The listed scores of a job, ascending within each query; `standing._Job` says what the fields are."""

    query: NDArray[np.int64]
    start: NDArray[np.int64]
    item: NDArray[np.int64]
    exact: NDArray[np.float64]
    high: NDArray[np.floating]
    low: NDArray[np.floating]
    high_cell: NDArray[np.int16]
    low_cell: NDArray[np.int16]
    floor: NDArray[np.float32]
    zoom: NDArray[np.float32]
    above: NDArray[np.int64]
    size: NDArray[np.int64]
    rounded: bool


class Sides(NamedTuple):
    """The vectors of the queries and of the candidates, each with 1 / length."""

    query: NDArray[np.floating]
    query_scale: NDArray[np.float64]
    item: NDArray[np.floating]
    item_scale: NDArray[np.float64]


@_jit
def exact_dot(a, b, sums):  # type: ignore[no-untyped-def]
    """The same sum as `scores.exact_dot`; `sums` is room for half of the products. Slices make these vector loops."""
    width = a.shape[0]
    half = (width + 1) // 2
    near_a, far_a, near_b, far_b = a[: width - half], a[half:], b[: width - half], b[half:]
    for k in range(far_a.shape[0]):
        sums[k] = np.float64(near_a[k]) * np.float64(near_b[k]) + np.float64(far_a[k]) * np.float64(far_b[k])
    if width % 2:
        sums[half - 1] = np.float64(a[half - 1]) * np.float64(b[half - 1])
    width = half
    while width > 1:
        half = (width + 1) // 2
        near, far = sums[: width - half], sums[half:width]
        for k in range(far.shape[0]):
            near[k] += far[k]
        width = half
    return sums[0]


@_jit
def exact_pairs(sides, i, j, out):  # type: ignore[no-untyped-def]
    sums = np.empty(sides.query.shape[1])
    for n in range(len(i)):
        out[n] = _exact(sides, i[n], j[n], sums)


@_jit
def _exact(sides, q, c, sums):  # type: ignore[no-untyped-def]
    return exact_dot(sides.query[q], sides.item[c], sums) * (sides.query_scale[q] * sides.item_scale[c])


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath={"nnan"})  # scores are finite: so this is a vector loop
def _largest(x):  # type: ignore[no-untyped-def]
    top = x[0]
    for k in range(x.shape[0]):
        top = x[k] if x[k] > top else top
    return top


@_jit
def _plain(x, n, lists):  # type: ignore[no-untyped-def]
    """Compare every candidate with every listed score: no score was rounded, so there is nothing to settle."""
    top = _largest(x)
    for p in range(lists.start[n], lists.start[n + 1]):
        s = lists.high[p]
        if s > top:
            break  # listed scores ascend: the chunk reaches none of the rest
        above, level = np.int32(0), np.int32(0)  # sums in 32 bits: so this becomes a vector loop
        for k in range(x.shape[0]):
            above += np.int32(1) if x[k] > s else np.int32(0)
            level += np.int32(1) if x[k] == s else np.int32(0)
        lists.above[p] += above
        lists.size[p] += level


@_jit
def _above(cell, low, high, near):  # type: ignore[no-untyped-def]
    """How many cells are above `high`; those from `low` to `high` are marked in `near`."""
    above, reach = np.int16(0), np.uint16(high - low)  # all in 16 bits: so this becomes a vector loop of sixteen at a time
    for k in range(cell.shape[0]):
        above = np.int16(above + (cell[k] > high))
        near[k] |= np.uint16(cell[k] - low) <= reach
    return np.int64(above)


@_jit
def _few(x, item0, n, lists, sides, room):  # type: ignore[no-untyped-def]
    """The same on cells of 16 bits. Candidates in the cells that a margin reaches into are marked, and then settled."""
    cell, near, single = room.cell[: x.shape[0]], room.near[: x.shape[0]], room.single
    floor, zoom = lists.floor[n], lists.zoom[n]
    for k in range(x.shape[0]):
        y = min(max((x[k] - floor) * zoom, np.float32(-1)), np.float32(TOP))
        cell[k] = np.int32(y) - np.int32(HALF)
    q, first, last, top = lists.query[n], lists.start[n], lists.start[n + 1], _largest(cell)
    if lists.low_cell[first] > top:
        return
    near[:] = 0
    for p in range(first, last):
        if lists.low_cell[p] > top:
            last = p  # listed scores ascend: the chunk reaches none of the rest
            break
        lists.above[p] += _above(cell, lists.low_cell[p], lists.high_cell[p], near)
    singles = 0
    for begin in range(0, x.shape[0], STRIP):
        some = near[begin : begin + STRIP]
        any_near = np.int16(0)
        for k in range(some.shape[0]):
            any_near |= some[k]
        if any_near:
            for k in range(some.shape[0]):
                single[singles] = begin + k
                singles += some[k]
    for j in range(singles):
        k = single[j]
        c, p = cell[k], first
        while p < last and lists.high_cell[p] < c:
            p += 1
        if p == last or lists.low_cell[p] > c:
            continue
        s = lists.exact[p] if lists.item[p] == item0 + k else _exact(sides, q, item0 + k, room.sums)
        while p < last and lists.low_cell[p] <= c:
            lists.above[p] += s > lists.exact[p]
            lists.size[p] += s == lists.exact[p]
            p += 1


@_jit
def _cell(value, floor, zoom, last):  # type: ignore[no-untyped-def]
    """The cell of a score: 0 below the floor, `last` above the ceiling. It never decreases, whatever the rounding."""
    y = (value - floor) * zoom + type(value)(1)
    y = y if y > 0 else type(value)(0)
    return np.int32(y if y < last else last)


@_jit
def _many(x, item0, n, lists, sides, room):  # type: ignore[no-untyped-def]
    """Put each candidate into one of many cells between the lowest and the highest listed score, then add up from the top.

    Only candidates in a cell that some listed score (or its margin) reaches into are looked at singly, which is few.
    A candidate level with a run of equal scores is filed before all of them: above none of the run.
    """
    cell, single = room.place, room.single
    first, last = lists.start[n], lists.start[n + 1]
    q, n = lists.query[n], last - first
    high, low, exact = lists.high[first:last], lists.low[first:last], lists.exact[first:last]
    cells = min(MOST_CELLS, CELLS * n)
    floor, top = low[0], x.dtype.type(cells + 1)
    zoom = x.dtype.type((cells - 1) / max(np.float64(high[n - 1]) - np.float64(floor), 1e-30))
    place = np.zeros(cells + 2, np.int32)  # how many listed scores lie clearly below the cell
    reached = np.zeros(cells + 2, np.uint8)  # some listed score reaches into the cell
    for p in range(n):
        end = _cell(high[p], floor, zoom, top)
        if end <= cells:
            place[end + 1] += 1
        for c in range(_cell(low[p], floor, zoom, top), end + 1):
            reached[c] = 1
    for k in range(x.shape[0]):
        cell[k] = _cell(x[k], floor, zoom, top)
    filled = np.zeros((2, cells + 2), np.int32)  # two rows, so that equal neighbours do not wait for each other
    singles = 0
    for k in range(x.shape[0]):
        at = np.uint32(cell[k])
        filled[np.uint32(k & 1), at] += 1
        single[singles] = k
        singles += reached[at]
    over = np.zeros(n + 1, np.int32)  # candidates that are above exactly so many listed scores
    level = np.zeros(n + 1, np.int32)  # candidates level with the run of equal scores that starts here
    for c in range(cells + 2):
        place[c] += place[c - 1] if c else 0
        if not reached[c]:
            over[place[c]] += filled[0, c] + filled[1, c]
    for j in range(singles):
        k = single[j]
        p = place[cell[k]]
        while p < n and high[p] < x[k]:
            p += 1
        if p < n and low[p] <= x[k]:
            s = _exact(sides, q, item0 + k, room.sums) if lists.rounded else np.float64(x[k])
            while p < n and exact[p] < s:
                p += 1
            while p > 0 and exact[p - 1] >= s:
                p -= 1
            if p < n and exact[p] == s:
                level[p] += 1
        over[p] += 1
    higher, run = 0, 0
    for p in range(n - 1, -1, -1):
        higher += over[p + 1]
        lists.above[first + p] += higher
    for p in range(n):
        if exact[p] != exact[run]:
            run = p
        lists.size[first + p] += level[run]


class _Room(NamedTuple):
    """Scratch memory of one thread."""

    sums: NDArray[np.float64]
    cell: NDArray[np.int16]
    near: NDArray[np.int16]
    place: NDArray[np.int32]
    single: NDArray[np.int32]


@_jit
def _room(dimensions, length):  # type: ignore[no-untyped-def]
    return _Room(
        np.empty(dimensions), np.empty(CHUNK, np.int16), np.empty(CHUNK, np.int16),
        np.empty(length, np.int32), np.empty(max(length, CHUNK), np.int32),
    )  # fmt: skip


@_jit
def _tally(x, item0, n, lists, sides, room):  # type: ignore[no-untyped-def]
    if lists.start[n + 1] - lists.start[n] > MANY:
        _many(x, item0, n, lists, sides, room)
    elif lists.rounded:
        _few(x, item0, n, lists, sides, room)
    else:
        _plain(x, n, lists)


@_jit
def _chosen(start, n0, n1, many):  # type: ignore[no-untyped-def]
    """The queries with many listed scores, or those with few."""
    out, size = np.empty(n1 - n0, np.int64), 0
    for n in range(n0, n1):
        out[size] = n
        size += (start[n + 1] - start[n] > MANY) == many
    return out[:size]


@_jit
def tally_rows(tile, row0, col0, n0, n1, lists, sides):  # type: ignore[no-untyped-def]
    """Queries n0 .. n1 are rows of the tile; candidates are its columns.

    All queries meet one chunk of candidates before the next: the vectors of those that need settling stay in the cache.
    Only the table for many listed scores is worth its making for a whole row alone.
    """
    width = tile.shape[1]
    room = _room(sides.item.shape[1], width)
    for many in (False, True):
        chosen = _chosen(lists.start, n0, n1, many)
        chunk = width if many else CHUNK
        for begin in range(0, width, chunk):
            for n in chosen:
                _tally(tile[lists.query[n] - row0][begin : begin + chunk], col0 + begin, n, lists, sides, room)


@_jit
def tally_columns(tile, row0, col0, n0, n1, lists, sides):  # type: ignore[no-untyped-def]
    """Queries n0 .. n1 are columns of the tile; candidates are its rows. A strip of columns is copied at a time."""
    room = _room(sides.item.shape[1], tile.shape[0])
    # Lines a power of two apart would share their place in the cache: hence the odd length.
    lines = np.empty((STRIP, tile.shape[0] // STRIP * STRIP + STRIP + STRIP), tile.dtype)
    for many in (False, True):
        chosen = _chosen(lists.start, n0, n1, many)
        chunk = tile.shape[0] if many else CHUNK
        for begin in range(0, tile.shape[0], chunk):
            rows = tile[begin : begin + chunk]
            for m in range(0, len(chosen), STRIP):
                strip = chosen[m : m + STRIP]
                _copy(rows, strip, col0, lists.query, lines)
                for s in range(len(strip)):
                    _tally(lines[s][: len(rows)], row0 + begin, strip[s], lists, sides, room)


@_jit
def _copy(rows, strip, col0, query, lines):  # type: ignore[no-untyped-def]
    column = query[strip[0]] - col0
    if len(strip) == STRIP and query[strip[STRIP - 1]] - col0 == column + STRIP - 1:
        for r in range(len(rows)):  # neighbours: every cache line of the tile is read once
            block = rows[r][column : column + STRIP]
            for s in range(STRIP):
                lines[s, r] = block[s]
    else:
        for s in range(len(strip)):
            for r in range(len(rows)):
                lines[s, r] = rows[r, query[strip[s]] - col0]
