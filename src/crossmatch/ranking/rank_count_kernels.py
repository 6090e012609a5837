"""Compiled loops (numba) that count, for each listed score of a query, the candidates above it and those tied with it.

Each call takes a tile of scores and updates the counters of every query that the tile crosses. Only one thread touches the
counters of a query, and they are integers, so no order of execution changes a count.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

# Up to this many listed scores, comparing each candidate with each of them is faster than looking up its place among them.
MANY = 64
# Columns are copied this many at a time: one cache line of float32.
STRIP = 16
# Candidates compared at a time: their cells fit into the first-level cache, their vectors into the last-level one.
CHUNK = 1024
# Cells of 16 bits run from -CELL_OFFSET - 1 (below every listed score) to TOP_CELL - CELL_OFFSET (above).
CELL_OFFSET, TOP_CELL = 32_767, 65_534
# Cells for each of many listed scores, and their maximum: more cells leave fewer candidates to compare, but need a longer table.
CELLS_PER_SCORE, MAX_CELLS = 32, 4096

_jit: Any = nb.njit(nogil=True, cache=True, boundscheck=False)


class ListedScores(NamedTuple):
    """Listed scores, ascending within each query, and their running counts. `sweep._RankCounter` computes the fields."""

    query: NDArray[np.int64]
    start: NDArray[np.int64]
    item: NDArray[np.int64]
    exact: NDArray[np.float64]
    upper: NDArray[np.floating]
    lower: NDArray[np.floating]
    upper_cell: NDArray[np.int16]
    lower_cell: NDArray[np.int16]
    floor: NDArray[np.float32]
    zoom: NDArray[np.float32]
    above: NDArray[np.int64]
    tie_size: NDArray[np.int64]
    is_rounded: bool


class PairVectors(NamedTuple):
    """The vectors of the queries and of the candidates, each with 1 / length."""

    query: NDArray[np.floating]
    query_scale: NDArray[np.float64]
    item: NDArray[np.floating]
    item_scale: NDArray[np.float64]


@_jit
def exact_dot(a, b, sums):  # type: ignore[no-untyped-def]
    """The same sum as `scores.exact_dot`; `sums` is scratch memory for half of the products. Slices make these vector loops."""
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
def exact_pairs(vectors, i, j, out):  # type: ignore[no-untyped-def]
    """Exact scores of query i[n] with candidate j[n]."""
    sums = np.empty(vectors.query.shape[1])
    for n in range(len(i)):
        out[n] = exact_score(vectors, i[n], j[n], sums)


@_jit
def exact_score(vectors, q, c, sums):  # type: ignore[no-untyped-def]
    """Exact score of query q with candidate c."""
    return exact_dot(vectors.query[q], vectors.item[c], sums) * (vectors.query_scale[q] * vectors.item_scale[c])


@nb.njit(nogil=True, cache=True, boundscheck=False, fastmath={"nnan"})  # scores are finite, so this becomes a vector loop
def largest(x):  # type: ignore[no-untyped-def]
    """The largest value of an array without NaN."""
    top = x[0]
    for k in range(x.shape[0]):
        top = x[k] if x[k] > top else top
    return top


@_jit
def _count_exact(x, n, listed):  # type: ignore[no-untyped-def]
    """Compare every candidate with every listed score. The scores are exact, so every comparison is final."""
    top = largest(x)
    for p in range(listed.start[n], listed.start[n + 1]):
        s = listed.upper[p]
        if s > top:
            break  # listed scores ascend: no candidate of the chunk reaches the rest
        above, tied = np.int32(0), np.int32(0)  # 32-bit sums, so that this becomes a vector loop
        for k in range(x.shape[0]):
            above += np.int32(1) if x[k] > s else np.int32(0)
            tied += np.int32(1) if x[k] == s else np.int32(0)
        listed.above[p] += above
        listed.tie_size[p] += tied


@_jit
def _count_cells_above(cell, low, high, near):  # type: ignore[no-untyped-def]
    """Count the cells above `high`, and mark those from `low` to `high` in `near`."""
    above, reach = np.int16(0), np.uint16(high - low)  # all in 16 bits, so that this becomes a vector loop of sixteen at a time
    for k in range(cell.shape[0]):
        above = np.int16(above + (cell[k] > high))
        near[k] |= np.uint16(cell[k] - low) <= reach
    return np.int64(above)


@_jit
def _count_few(x, item0, n, listed, vectors, scratch):  # type: ignore[no-untyped-def]
    """Compare 16-bit cells of candidates and listed scores. Candidates within a margin are compared by their exact scores."""
    cell, near, single = scratch.cell[: x.shape[0]], scratch.near[: x.shape[0]], scratch.single
    floor, zoom = listed.floor[n], listed.zoom[n]
    for k in range(x.shape[0]):
        y = min(max((x[k] - floor) * zoom, np.float32(-1)), np.float32(TOP_CELL))
        cell[k] = np.int32(y) - np.int32(CELL_OFFSET)
    q, first, last, top = listed.query[n], listed.start[n], listed.start[n + 1], largest(cell)
    if listed.lower_cell[first] > top:
        return
    near[:] = 0
    for p in range(first, last):
        if listed.lower_cell[p] > top:
            last = p  # listed scores ascend: no candidate of the chunk reaches the rest
            break
        listed.above[p] += _count_cells_above(cell, listed.lower_cell[p], listed.upper_cell[p], near)
    singles = 0
    for begin in range(0, x.shape[0], STRIP):
        strip = near[begin : begin + STRIP]
        any_near = np.int16(0)
        for k in range(strip.shape[0]):
            any_near |= strip[k]
        if any_near:
            for k in range(strip.shape[0]):
                single[singles] = begin + k
                singles += strip[k]
    for j in range(singles):
        k = single[j]
        c, p = cell[k], first
        while p < last and listed.upper_cell[p] < c:
            p += 1
        if p == last or listed.lower_cell[p] > c:
            continue
        s = listed.exact[p] if listed.item[p] == item0 + k else exact_score(vectors, q, item0 + k, scratch.sums)
        while p < last and listed.lower_cell[p] <= c:
            listed.above[p] += s > listed.exact[p]
            listed.tie_size[p] += s == listed.exact[p]
            p += 1


@_jit
def _find_cell(value, floor, zoom, last):  # type: ignore[no-untyped-def]
    """The cell of a score: 0 below the floor, `last` above the ceiling. It never decreases with the score."""
    y = (value - floor) * zoom + type(value)(1)
    y = y if y > 0 else type(value)(0)
    return np.int32(y if y < last else last)


@_jit
def _count_many(x, item0, n, listed, vectors, scratch):  # type: ignore[no-untyped-def]
    """Count candidates in many cells between the lowest and the highest listed score, then add up from the top.

    Only candidates in a cell that a listed score or its margin reaches into are compared one by one, and those are few.
    A candidate tied with a run of equal scores is counted before all of them: above none of the run.
    """
    cell, single = scratch.place, scratch.single
    first, last = listed.start[n], listed.start[n + 1]
    q, n = listed.query[n], last - first
    upper, lower, exact = listed.upper[first:last], listed.lower[first:last], listed.exact[first:last]
    cells = min(MAX_CELLS, CELLS_PER_SCORE * n)
    floor, top = lower[0], x.dtype.type(cells + 1)
    zoom = x.dtype.type((cells - 1) / max(np.float64(upper[n - 1]) - np.float64(floor), 1e-30))
    place = np.zeros(cells + 2, np.int32)  # how many listed scores lie clearly below the cell
    reached = np.zeros(cells + 2, np.uint8)  # whether a listed score reaches into the cell
    for p in range(n):
        end = _find_cell(upper[p], floor, zoom, top)
        if end <= cells:
            place[end + 1] += 1
        for c in range(_find_cell(lower[p], floor, zoom, top), end + 1):
            reached[c] = 1
    for k in range(x.shape[0]):
        cell[k] = _find_cell(x[k], floor, zoom, top)
    filled = np.zeros((2, cells + 2), np.int32)  # two rows, so that equal neighbours do not wait for each other
    singles = 0
    for k in range(x.shape[0]):
        at = np.uint32(cell[k])
        filled[np.uint32(k & 1), at] += 1
        single[singles] = k
        singles += reached[at]
    over = np.zeros(n + 1, np.int32)  # over[p]: candidates above exactly p listed scores
    tied = np.zeros(n + 1, np.int32)  # tied[p]: candidates tied with the run of equal scores that starts at p
    for c in range(cells + 2):
        place[c] += place[c - 1] if c else 0
        if not reached[c]:
            over[place[c]] += filled[0, c] + filled[1, c]
    for j in range(singles):
        k = single[j]
        p = place[cell[k]]
        while p < n and upper[p] < x[k]:
            p += 1
        if p < n and lower[p] <= x[k]:
            s = exact_score(vectors, q, item0 + k, scratch.sums) if listed.is_rounded else np.float64(x[k])
            while p < n and exact[p] < s:
                p += 1
            while p > 0 and exact[p - 1] >= s:
                p -= 1
            if p < n and exact[p] == s:
                tied[p] += 1
        over[p] += 1
    higher, run = 0, 0
    for p in range(n - 1, -1, -1):
        higher += over[p + 1]
        listed.above[first + p] += higher
    for p in range(n):
        if exact[p] != exact[run]:
            run = p
        listed.tie_size[first + p] += tied[run]


class _Scratch(NamedTuple):
    """Scratch memory of one thread."""

    sums: NDArray[np.float64]
    cell: NDArray[np.int16]
    near: NDArray[np.int16]
    place: NDArray[np.int32]
    single: NDArray[np.int32]


@_jit
def _allocate_scratch(dimensions, length):  # type: ignore[no-untyped-def]
    return _Scratch(
        np.empty(dimensions), np.empty(CHUNK, np.int16), np.empty(CHUNK, np.int16),
        np.empty(length, np.int32), np.empty(max(length, CHUNK), np.int32),
    )  # fmt: skip


@_jit
def _count_query(x, item0, n, listed, vectors, scratch):  # type: ignore[no-untyped-def]
    if listed.start[n + 1] - listed.start[n] > MANY:
        _count_many(x, item0, n, listed, vectors, scratch)
    elif listed.is_rounded:
        _count_few(x, item0, n, listed, vectors, scratch)
    else:
        _count_exact(x, n, listed)


@_jit
def _select_queries(start, n0, n1, many):  # type: ignore[no-untyped-def]
    """The queries with many listed scores, or those with few."""
    out, size = np.empty(n1 - n0, np.int64), 0
    for n in range(n0, n1):
        out[size] = n
        size += (start[n + 1] - start[n] > MANY) == many
    return out[:size]


@_jit
def count_rows(tile, row0, col0, n0, n1, listed, vectors):  # type: ignore[no-untyped-def]
    """Count for queries n0 .. n1, which are rows of the tile; candidates are its columns.

    All queries are compared with one chunk of candidates before the next, so that the vectors of near candidates stay in the
    cache. Only the table for many listed scores is built for a whole row.
    """
    width = tile.shape[1]
    scratch = _allocate_scratch(vectors.item.shape[1], width)
    for many in (False, True):
        queries = _select_queries(listed.start, n0, n1, many)
        chunk = width if many else CHUNK
        for begin in range(0, width, chunk):
            for n in queries:
                _count_query(tile[listed.query[n] - row0][begin : begin + chunk], col0 + begin, n, listed, vectors, scratch)


@_jit
def count_columns(tile, row0, col0, n0, n1, listed, vectors):  # type: ignore[no-untyped-def]
    """Count for queries n0 .. n1, which are columns of the tile; candidates are its rows. Columns are copied in strips."""
    scratch = _allocate_scratch(vectors.item.shape[1], tile.shape[0])
    # Lines a power of two apart would share their place in the cache: hence the odd length.
    lines = np.empty((STRIP, tile.shape[0] // STRIP * STRIP + STRIP + STRIP), tile.dtype)
    for many in (False, True):
        queries = _select_queries(listed.start, n0, n1, many)
        chunk = tile.shape[0] if many else CHUNK
        for begin in range(0, tile.shape[0], chunk):
            rows = tile[begin : begin + chunk]
            for m in range(0, len(queries), STRIP):
                strip = queries[m : m + STRIP]
                _copy_strip(rows, strip, col0, listed.query, lines)
                for s in range(len(strip)):
                    _count_query(lines[s][: len(rows)], row0 + begin, strip[s], listed, vectors, scratch)


@_jit
def _copy_strip(rows, strip, col0, query, lines):  # type: ignore[no-untyped-def]
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
