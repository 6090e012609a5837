"""The compiled counting loops (numba). `standing.py` says what they compute, and does the same in NumPy without them.

Each call takes a tile of scores and, for every query that the tile crosses, counts the candidates above and level with
each listed score. A query's counters are touched by one thread only, and they are integers: no order can matter.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

# From this many listed scores on, finding each candidate's place beats comparing it with each of them.
MANY = 5
# Columns are copied this many at a time: one cache line of float32.
STRIP = 16
# Candidates compared at a time: they stay in the first-level cache, and only a chunk with a near tie is looked at singly.
CHUNK = 512
# Cells for each listed score, and at most: more cells, fewer candidates to look at singly, but a longer table.
CELLS, MOST_CELLS = 32, 4096

_jit: Any = nb.njit(nogil=True, cache=True, boundscheck=False)


@_jit
def exact_dot(a, b, sums):  # type: ignore[no-untyped-def]
    """The same sum as `scores.exact_dot`; `sums` is room for half of the products. Slices let the loops become vector instructions."""
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
def exact_pairs(a, a_scale, i, b, b_scale, j, out):  # type: ignore[no-untyped-def]
    sums = np.empty(a.shape[1])
    for n in range(len(i)):
        out[n] = exact_dot(a[i[n]], b[j[n]], sums) * (a_scale[i[n]] * b_scale[j[n]])


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath={"nnan"})  # scores are finite; so this too is a vector loop
def _largest(x):  # type: ignore[no-untyped-def]
    top = x[0]
    for k in range(x.shape[0]):
        top = x[k] if x[k] > top else top
    return top


@_jit
def _count(x, high, low):  # type: ignore[no-untyped-def]
    """How many are above `high`, and how many are at least `low`.

    Sums in 32 bits over a range from zero: so the loop becomes vector instructions.
    """
    above = np.int32(0)
    reach = np.int32(0)
    for k in range(x.shape[0]):
        above += np.int32(1) if x[k] > high else np.int32(0)
        reach += np.int32(1) if x[k] >= low else np.int32(0)
    return above, reach


@_jit
def _few(x, item0, q, first, last, listed, exact, high, low, above, size, rounded, a, sa, b, sb, room):  # type: ignore[no-untyped-def]
    """Compare every candidate with every listed score, chunk by chunk; settle those inside the margin."""
    for begin in range(0, len(x), CHUNK):
        chunk = x[begin : begin + CHUNK]
        top = _largest(chunk)
        for p in range(first, last):
            if low[p] > top:
                break  # listed scores ascend: the chunk reaches none of the rest
            over, reach = _count(chunk, high[p], low[p])
            above[p] += over
            near = reach - over
            if near == 0:
                continue
            own = listed[p] - item0 - begin
            if not rounded or (near == 1 and 0 <= own < chunk.shape[0]):
                size[p] += near
                continue
            for k in range(chunk.shape[0]):
                if low[p] <= chunk[k] <= high[p]:
                    s = exact[p]
                    if k != own:
                        c = item0 + begin + k
                        s = exact_dot(a[q], b[c], room[0]) * (sa[q] * sb[c])
                    if s > exact[p]:
                        above[p] += 1
                    elif s == exact[p]:
                        size[p] += 1


@_jit
def _cell(value, floor, zoom, last):  # type: ignore[no-untyped-def]
    """The cell of a score: 0 below the floor, `last` above the ceiling. It never decreases, whatever the rounding."""
    y = (value - floor) * zoom + type(value)(1)
    y = y if y > 0 else type(value)(0)
    return np.int32(y if y < last else last)


@_jit
def _many(x, item0, q, first, last, exact, high, low, above, size, rounded, a, sa, b, sb, room):  # type: ignore[no-untyped-def]
    """Put each candidate into one of many cells between the lowest and the highest listed score, then add up from the top.

    Only candidates in a cell that some listed score (or its margin) reaches into are looked at singly, which is few.
    A candidate level with a run of equal scores is filed before all of them: above none of the run.
    """
    sums, cell, single = room
    n = last - first
    high, low, exact = high[first:last], low[first:last], exact[first:last]
    cells = min(MOST_CELLS, CELLS * n)
    floor, top = low[0], x.dtype.type(cells + 1)
    zoom = x.dtype.type((cells - 1) / max(np.float64(high[n - 1]) - np.float64(floor), 1e-30))
    place = np.zeros(cells + 2, np.int32)  # how many listed scores lie clearly below the cell
    reached = np.zeros(cells + 2, np.uint8)  # some listed score reaches into the cell
    for p in range(n):
        end = _cell(high[p], floor, zoom, top)
        place[end + 1 : end + 2] += 1
        reached[_cell(low[p], floor, zoom, top) : end + 1] = 1
    for k in range(x.shape[0]):
        cell[k] = _cell(x[k], floor, zoom, top)
    filled = np.zeros((2, cells + 2), np.int32)  # two rows, so that equal neighbours do not wait for each other
    singles = 0
    for k in range(x.shape[0]):
        c = np.uint32(cell[k])
        filled[np.uint32(k & 1), c] += 1
        single[singles] = k
        singles += reached[c]
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
            s = np.float64(x[k])
            if rounded:
                s = exact_dot(a[q], b[item0 + k], sums) * (sa[q] * sb[item0 + k])
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
        above[first + p] += higher
    for p in range(n):
        if exact[p] != exact[run]:
            run = p
        size[first + p] += level[run]


@_jit
def _tally(x, item0, q, first, last, listed, exact, high, low, above, size, rounded, a, sa, b, sb, room):  # type: ignore[no-untyped-def]
    if last - first > MANY:
        _many(x, item0, q, first, last, exact, high, low, above, size, rounded, a, sa, b, sb, room)
    else:
        _few(x, item0, q, first, last, listed, exact, high, low, above, size, rounded, a, sa, b, sb, room)


@_jit
def tally_rows(tile, row0, col0, n0, n1, query, start, listed, exact, high, low, above, size, rounded, a, sa, b, sb):  # type: ignore[no-untyped-def]
    """Queries n0 .. n1 are rows of the tile; candidates are its columns."""
    room = np.empty(a.shape[1]), np.empty(tile.shape[1], np.int32), np.empty(tile.shape[1], np.int32)
    for n in range(n0, n1):
        _tally(tile[query[n] - row0], col0, query[n], start[n], start[n + 1], listed, exact, high, low, above, size, rounded, a, sa, b, sb, room)  # fmt: skip


@_jit
def tally_columns(tile, row0, col0, n0, n1, query, start, listed, exact, high, low, above, size, rounded, a, sa, b, sb):  # type: ignore[no-untyped-def]
    """Queries n0 .. n1 are columns of the tile; candidates are its rows. A strip of columns is copied at a time."""
    height = tile.shape[0]
    room = np.empty(a.shape[1]), np.empty(height, np.int32), np.empty(height, np.int32)
    x = np.empty((STRIP, height), tile.dtype)
    for m in range(n0, n1, STRIP):
        strip = min(STRIP, n1 - m)
        column = query[m] - col0
        if query[m + strip - 1] - query[m] == strip - 1:
            block = tile[:, column : column + strip]
            for r in range(height):
                for s in range(strip):
                    x[s, r] = block[r, s]
        else:
            for s in range(strip):
                for r in range(height):
                    x[s, r] = tile[r, query[m + s] - col0]
        for s in range(strip):
            n = m + s
            _tally(x[s], row0, query[n], start[n], start[n + 1], listed, exact, high, low, above, size, rounded, a, sa, b, sb, room)  # fmt: skip
