"""Compiled loops (numba) of `counts_at_k.py`."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

from crossmatch.ranking.rank_count_kernels import exact_score

# Quantization steps in a bin of the histogram: fewer make a longer histogram, more make longer lists of candidates near a cutoff.
BIN = 32
BINS = 65_536 // BIN
SQUARE = 32

_jit: Any = nb.njit(nogil=True, cache=True, boundscheck=False)


@_jit
def quantize(tile, lowest, steps_per_unit, out):  # type: ignore[no-untyped-def]
    """The integer part of (score / 2 - lowest) · steps_per_unit. It never decreases with the score, whatever the rounding."""
    for r in range(tile.shape[0]):
        line, out_line = tile[r], out[r]
        for c in range(line.shape[0]):
            out_line[c] = np.uint16(np.int32((0.5 * np.float64(line[c]) - lowest) * steps_per_unit))


@_jit
def copy_columns(values, first, last):  # type: ignore[no-untyped-def]
    """Columns of a matrix as rows, copied in small squares: one column at a time would fetch every cache line thirty times."""
    out = np.empty((last - first, values.shape[0]), values.dtype)
    for r0 in range(0, values.shape[0], SQUARE):
        for c0 in range(first, last, SQUARE):
            for r in range(r0, min(r0 + SQUARE, values.shape[0])):
                for c in range(c0, min(c0 + SQUARE, last)):
                    out[c - first, r] = values[r, c]
    return out


@_jit
def count_lines(lines, first, k, query_set, item_set, first_matching_zeta, margin, vectors, counts):  # type: ignore[no-untyped-def]
    """For each line of quantized scores and each cutoff K: count candidates above the K-th highest score, ties, and positives.

    A histogram gives the number of candidates above each bin. The candidates in the bins around any K-th score are listed once
    for all cutoffs of the query, and each cutoff is then decided among them.
    """
    caps, zetas = k.shape[0], k.shape[1]
    n = lines.shape[1]
    above_bin = np.empty((BINS, zetas + 1), np.int32)
    listed, is_listed_bin = np.empty(n, np.int64), np.zeros(BINS, np.uint8)
    cutoff_bin = np.empty((caps, zetas), np.int64)
    near, exact, sums = np.empty(n, np.int64), np.empty(n), np.empty(vectors.item.shape[1])
    for row in range(lines.shape[0]):
        line, q = lines[row], first + row
        if not k[0, 0, q]:
            continue
        match, margin_bins = first_matching_zeta[query_set[q]], (margin[q] + BIN - 1) // BIN
        bottom, top = _bin_range(line)
        _count_above_bins(line, match, item_set, above_bin, bottom, top)
        is_listed_bin[bottom : top + 1] = 0
        for cap in range(caps):
            for zeta in range(zetas):
                middle = _find_bin(above_bin[:, zetas], bottom, top, k[cap, zeta, q])
                cutoff_bin[cap, zeta] = middle
                is_listed_bin[max(middle - margin_bins, bottom) : min(middle + margin_bins, top) + 1] = 1
        size = 0
        for c in range(n):
            listed[size] = c
            size += is_listed_bin[line[c] // BIN]
        for cap in range(caps):
            for zeta in range(zetas):
                low = max(cutoff_bin[cap, zeta] - margin_bins, bottom)
                high = min(cutoff_bin[cap, zeta] + margin_bins, top)
                above, positives_above = np.int64(above_bin[high, zetas]), np.int64(above_bin[high, zeta])
                step = _find_step(line, listed[:size], low * BIN, (high + 1) * BIN, k[cap, zeta, q] - above)
                near_count = 0
                for j in range(size):
                    c = listed[j]
                    gap = np.int64(line[c]) - step
                    if line[c] // BIN > high or gap < -margin[q]:
                        continue
                    if gap > margin[q]:
                        above += 1
                        positives_above += match[item_set[c]] <= zeta
                    else:
                        near[near_count], exact[near_count] = c, exact_score(vectors, q, c, sums)
                        near_count += 1
                threshold = np.sort(exact[:near_count])[near_count - (k[cap, zeta, q] - above)]
                tie_size, positives_in_tie = np.int64(0), np.int64(0)
                for j in range(near_count):
                    is_positive = match[item_set[near[j]]] <= zeta
                    if exact[j] > threshold:
                        above += 1
                        positives_above += is_positive
                    elif exact[j] == threshold:
                        tie_size += 1
                        positives_in_tie += is_positive
                counts[0, cap, zeta, q], counts[1, cap, zeta, q] = above, tie_size
                counts[2, cap, zeta, q], counts[3, cap, zeta, q] = positives_above, positives_in_tie


@_jit
def _bin_range(line):  # type: ignore[no-untyped-def]
    """The lowest and the highest bin of a line: scores seldom fill the whole range."""
    low, high = line[0], line[0]
    for c in range(line.shape[0]):
        low = min(low, line[c])
        high = max(high, line[c])
    return low // BIN, high // BIN


@_jit
def _count_above_bins(line, match, item_set, above_bin, bottom, top):  # type: ignore[no-untyped-def]
    """Count for each bin the candidates in higher bins: positives at each zeta in the first columns, all in the last."""
    last = above_bin.shape[1] - 1
    above_bin[bottom : top + 1] = 0
    for c in range(line.shape[0]):
        above_bin[line[c] // BIN, match[item_set[c]]] += 1
    total = np.zeros(last + 1, np.int32)
    for n in range(top, bottom - 1, -1):
        in_bin = np.int32(0)
        for z in range(last + 1):
            in_bin += above_bin[n, z]
            above_bin[n, z] = total[z]
            total[z] += in_bin


@_jit
def _find_bin(above_bin, low, high, k):  # type: ignore[no-untyped-def]
    """The bin of the k-th highest score: the lowest with fewer than k candidates above it."""
    while low < high:
        middle = (low + high) // 2
        if above_bin[middle] < k:
            high = middle
        else:
            low = middle + 1
    return low


@_jit
def _find_step(line, listed, first, last, rank):  # type: ignore[no-untyped-def]
    """The rank-th highest of the listed quantized scores from `first` up to before `last`."""
    filled = np.zeros(last - first, np.int32)
    for j in range(listed.shape[0]):
        step = np.int64(line[listed[j]])
        if first <= step < last:
            filled[step - first] += 1
    counted, offset = np.int64(0), last - first
    while counted < rank:
        offset -= 1
        counted += filled[offset]
    return first + offset
