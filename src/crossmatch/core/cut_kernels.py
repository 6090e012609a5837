"""The compiled loops behind `cuts.py`, which does the same in NumPy without them."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from crossmatch.core.kernels import _exact

# Cells in a step of the histogram: fewer make a longer table, more make longer lists of candidates near a cut.
STEP = 32
STEPS = 65_536 // STEP
SQUARE = 32

_jit: Any = nb.njit(nogil=True, cache=True, boundscheck=False)


@_jit
def fill_cells(tile, low, zoom, place):  # type: ignore[no-untyped-def]
    """The whole part of (value / 2 - low) · zoom, for `cuts.Cells`; monotonic in the value, whatever the rounding."""
    for r in range(tile.shape[0]):
        line, out = tile[r], place[r]
        for c in range(line.shape[0]):
            out[c] = np.uint16(np.int32((0.5 * np.float64(line[c]) - low) * zoom))


@_jit
def columns(values, first, last):  # type: ignore[no-untyped-def]
    """Columns of a matrix as lines, copied in small squares: a column at a time would fetch every cache line thirty times."""
    out = np.empty((last - first, values.shape[0]), values.dtype)
    for r0 in range(0, values.shape[0], SQUARE):
        for c0 in range(first, last, SQUARE):
            for r in range(r0, min(r0 + SQUARE, values.shape[0])):
                for c in range(c0, min(c0 + SQUARE, last)):
                    out[c - first, r] = values[r, c]
    return out


@_jit
def cut_lines(lines, first, k, query_set, item_set, level, reach, sides, out):  # type: ignore[no-untyped-def]
    """For each line of cells and each cut K: what is above the K-th highest score, what is level, and the positives among both.

    A histogram says how many candidates are above each step. Those in the steps that a K-th score can reach into are listed in
    one go for all cuts of the query, and then each cut is settled among them.
    """
    caps, zetas = k.shape[0], k.shape[1]
    n = lines.shape[1]
    over = np.empty((STEPS, zetas + 1), np.int32)
    listed, wanted = np.empty(n, np.int64), np.zeros(STEPS, np.uint8)
    step_of = np.empty((caps, zetas), np.int64)
    near, exact, sums = np.empty(n, np.int64), np.empty(n), np.empty(sides.item.shape[1])
    for row in range(lines.shape[0]):
        line, q = lines[row], first + row
        if not k[0, 0, q]:
            continue
        match, around = level[query_set[q]], (reach[q] + STEP - 1) // STEP
        bottom, top = _ends(line)
        _count_above(line, match, item_set, over, bottom, top)
        wanted[bottom : top + 1] = 0
        for cap in range(caps):
            for zeta in range(zetas):
                at = _step_of(over[:, zetas], bottom, top, k[cap, zeta, q])
                step_of[cap, zeta] = at
                wanted[max(at - around, bottom) : min(at + around, top) + 1] = 1
        size = 0
        for c in range(n):
            listed[size] = c
            size += wanted[line[c] // STEP]
        for cap in range(caps):
            for zeta in range(zetas):
                low, high = max(step_of[cap, zeta] - around, bottom), min(step_of[cap, zeta] + around, top)
                above, positive = np.int64(over[high, zetas]), np.int64(over[high, zeta])
                cell = _cell_of(line, listed[:size], low * STEP, (high + 1) * STEP, k[cap, zeta, q] - above)
                settled = 0
                for j in range(size):
                    c = listed[j]
                    gap = np.int64(line[c]) - cell
                    if line[c] // STEP > high or gap < -reach[q]:
                        continue
                    if gap > reach[q]:
                        above += 1
                        positive += match[item_set[c]] <= zeta
                    else:
                        near[settled], exact[settled] = c, _exact(sides, q, c, sums)
                        settled += 1
                t = np.sort(exact[:settled])[settled - (k[cap, zeta, q] - above)]
                level_with, level_positive = np.int64(0), np.int64(0)
                for j in range(settled):
                    is_positive = match[item_set[near[j]]] <= zeta
                    if exact[j] > t:
                        above += 1
                        positive += is_positive
                    elif exact[j] == t:
                        level_with += 1
                        level_positive += is_positive
                out[0, cap, zeta, q], out[1, cap, zeta, q] = above, level_with
                out[2, cap, zeta, q], out[3, cap, zeta, q] = positive, level_positive


@_jit
def _ends(line):  # type: ignore[no-untyped-def]
    """The lowest and the highest step of a line: scores seldom fill the whole range."""
    low, high = line[0], line[0]
    for c in range(line.shape[0]):
        low = min(low, line[c])
        high = max(high, line[c])
    return low // STEP, high // STEP


@_jit
def _count_above(line, match, item_set, over, bottom, top):  # type: ignore[no-untyped-def]
    """For each step, how many candidates lie in higher ones: of each zeta or below in the first columns, all in the last."""
    last = over.shape[1] - 1
    over[bottom : top + 1] = 0
    for c in range(line.shape[0]):
        over[line[c] // STEP, match[item_set[c]]] += 1
    total = np.zeros(last + 1, np.int32)
    for step in range(top, bottom - 1, -1):
        here = np.int32(0)
        for z in range(last + 1):
            here += over[step, z]
            over[step, z] = total[z]
            total[z] += here


@_jit
def _step_of(over, low, high, k):  # type: ignore[no-untyped-def]
    """The step of the k-th highest cell: the lowest with fewer than k above it."""
    while low < high:
        middle = (low + high) // 2
        if over[middle] < k:
            high = middle
        else:
            low = middle + 1
    return low


@_jit
def _cell_of(line, listed, first, last, rank):  # type: ignore[no-untyped-def]
    """The rank-th highest of the listed cells from `first` up to before `last`."""
    filled = np.zeros(last - first, np.int32)
    for j in range(listed.shape[0]):
        cell = np.int64(line[listed[j]])
        if first <= cell < last:
            filled[cell - first] += 1
    seen, at = np.int64(0), last - first
    while seen < rank:
        at -= 1
        seen += filled[at]
    return first + at
