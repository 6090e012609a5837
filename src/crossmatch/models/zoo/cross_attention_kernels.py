"""Compiled (numba) part of cross attention after the matrix product. See `cross_attention.py`, which also has a torch version.

A block contains the dot products of all sources (rows) with all queries (columns). Queries are contiguous, so loops over them
vectorise. Each score depends on one image and one text, so the number of threads does not change it.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

# Allowed reordering: sums (so that they vectorise), and fused multiply-add.
_jit: Any = nb.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})

TILE = 256  # queries per tile, unless one item has more: 36 KB with 36 sources
MEAN, SUM, MAX, LSE = range(4)
# exp(x) = 2ⁿ eʳ with n = round(x / ln 2); ln 2 is split in two so that r is exact, and eʳ is a series. Relative error below 2e-7.
_LOG2E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
_SERIES = tuple(np.float32(1 / n) for n in (720, 120, 24, 6, 2))


@_jit
def _exponentials(logits, power, out):  # type: ignore[no-untyped-def]
    """Write exp(logits) to `out`. `power` is the memory of `out` as integers, because 2ⁿ is a bit pattern."""
    for c in range(logits.shape[0]):
        n = np.floor(logits[c] * _LOG2E + np.float32(0.5))
        power[c] = (np.int32(n) + np.int32(127)) << np.int32(23)
        r = logits[c] - n * _LN2_HIGH - n * _LN2_LOW
        s = _SERIES[0]
        s = s * r + _SERIES[1]
        s = s * r + _SERIES[2]
        s = s * r + _SERIES[3]
        s = s * r + _SERIES[4]
        s = s * r + np.float32(1)
        logits[c] = s * r + np.float32(1)
    for c in range(logits.shape[0]):
        out[c] *= logits[c]


@_jit
def scores(dots, gram, position, source, query, options, first, last, out):  # type: ignore[no-untyped-def]
    """Write the scores of all source items with the query items `first` to `last` to out[source item, query item].

    Args:
        dots: (sources, queries).
        gram: (items, s, s), the dot products of an item's sources with each other.
        position: Position of each source within its item, an index into gram.
        source: Start of each source item in dots, and the end.
        query: Start of each query item in dots, and the end.
        options: λ₁, leak, λ₂, the smallest length, and the kind of aggregation.
        first: First query item.
        last: End of the query items.
        out: Result.
    """
    temperature, leak, sharpness, tiny, kind = options
    most = 1
    for m in range(len(source) - 1):
        most = max(most, source[m + 1] - source[m])
    width = TILE
    for n in range(first, last):
        width = max(width, query[n + 1] - query[n])
    weight = np.empty((most, width), np.float32)
    power = weight.view(np.int32)
    logit, along, total, quadratic, inner = np.empty((5, width), np.float32)
    begin = first
    while begin < last:
        end = begin + 1
        while end < last and query[end + 1] - query[begin] <= width:
            end += 1
        left = query[begin]
        q = query[end] - left
        for m in range(len(source) - 1):
            top = source[m]
            s = source[m + 1] - top
            along[:q] = np.float32(0)
            total[:q] = np.float32(0)
            quadratic[:q] = np.float32(0)
            for j in range(s):
                row = dots[top + j, left : left + q]
                for n in range(begin, end):  # normalised over the queries of one item
                    a, b = query[n] - left, query[n + 1] - left
                    squares = np.float32(0)
                    for c in range(a, b):
                        clipped = max(row[c], leak * row[c])
                        logit[c] = clipped
                        squares += clipped * clipped
                    gain = temperature / max(np.sqrt(squares), tiny)
                    for c in range(a, b):
                        logit[c] *= gain
                _exponentials(logit[:q], power[j, :q], weight[j, :q])
                own_weight = weight[j, :q]
                for c in range(q):
                    along[c] += own_weight[c] * row[c]
                    total[c] += own_weight[c]
                half = gram[m, position[top + j], position[top + j]] * np.float32(0.5)
                for c in range(q):
                    inner[c] = half * own_weight[c]
                k = 0
                while k + 4 <= j:
                    g = gram[m, position[top + j]]
                    p0, p1, p2, p3 = position[top + k], position[top + k + 1], position[top + k + 2], position[top + k + 3]
                    g0, g1, g2, g3 = g[p0], g[p1], g[p2], g[p3]
                    w0, w1, w2, w3 = weight[k, :q], weight[k + 1, :q], weight[k + 2, :q], weight[k + 3, :q]
                    for c in range(q):
                        inner[c] += g0 * w0[c] + g1 * w1[c] + g2 * w2[c] + g3 * w3[c]
                    k += 4
                while k < j:
                    g0, w0 = gram[m, position[top + j], position[top + k]], weight[k, :q]
                    for c in range(q):
                        inner[c] += g0 * w0[c]
                    k += 1
                for c in range(q):
                    quadratic[c] += own_weight[c] * inner[c]
            for c in range(q):
                along[c] /= max(np.sqrt(max(np.float32(2) * quadratic[c], np.float32(0))), tiny * total[c])
            for n in range(begin, end):
                out[m, n] = _aggregate(along[query[n] - left : query[n + 1] - left], kind, sharpness) if s else np.float32(0)
        begin = end


@_jit
def _aggregate(cosines, kind, sharpness):  # type: ignore[no-untyped-def]
    if not len(cosines):
        return np.float32(0)
    if kind <= SUM:  # or MEAN
        total = np.float32(0)
        for c in range(len(cosines)):
            total += cosines[c]
        return total / np.float32(len(cosines)) if kind == MEAN else total
    largest = cosines[0]
    for c in range(len(cosines)):
        largest = max(largest, cosines[c])
    if kind == MAX:
        return largest
    total = np.float32(0)
    for c in range(len(cosines)):
        total += np.exp(sharpness * (cosines[c] - largest))
    return largest + np.log(total) / sharpness
