"""Cross attention after the matrix product, compiled (numba). `cross_attention.py` says what it computes, and does it in torch too.

A block holds the dot products of all sources (rows) with all queries (columns); queries lie one after the other, so every loop
over them is one over neighbouring numbers. Each score depends on one image and one text: no order or number of threads matters.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

# What may be computed in another order: sums (so that they become vector loops), and products with sums in one step.
_jit: Any = nb.njit(nogil=True, cache=True, boundscheck=False, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})

TILE = 256  # queries at a time, unless one item has more: with 36 sources, 36 KB
MEAN, SUM, MAX, LSE = range(4)
# exp(x) = 2ⁿ eʳ with n = round(x / ln 2), where ln 2 is in two parts so that r is exact, and eʳ by its series: 2e-7 at most.
_LOG2E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
_SERIES = tuple(np.float32(1 / n) for n in (720, 120, 24, 6, 2))


@_jit
def _exponentials(given, power, out):  # type: ignore[no-untyped-def]
    """exp of each number, in place of `out`; `power` is the same memory as `out`, as integers, for 2ⁿ is a bit pattern."""
    for c in range(given.shape[0]):
        n = np.floor(given[c] * _LOG2E + np.float32(0.5))
        power[c] = (np.int32(n) + np.int32(127)) << np.int32(23)
        r = given[c] - n * _LN2_HIGH - n * _LN2_LOW
        s = _SERIES[0]
        s = s * r + _SERIES[1]
        s = s * r + _SERIES[2]
        s = s * r + _SERIES[3]
        s = s * r + _SERIES[4]
        s = s * r + np.float32(1)
        given[c] = s * r + np.float32(1)
    for c in range(given.shape[0]):
        out[c] *= given[c]


@_jit
def scores(dots, gram, place, source, query, options, first, last, out):  # type: ignore[no-untyped-def]
    """Similarities of all source items with the query items from `first` to `last`, into out[source item, query item].

    dots (sources, queries); gram (items, s, s), the dot products of an item's sources, at `place` of each source;
    source, query: where each item begins in dots, and the end; options: λ₁, leak, λ₂, what counts as nothing, kind of aggregation.
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
                mine = weight[j, :q]
                for c in range(q):
                    along[c] += mine[c] * row[c]
                    total[c] += mine[c]
                half = gram[m, place[top + j], place[top + j]] * np.float32(0.5)
                for c in range(q):
                    inner[c] = half * mine[c]
                k = 0
                while k + 4 <= j:
                    g = gram[m, place[top + j]]
                    g0, g1, g2, g3 = g[place[top + k]], g[place[top + k + 1]], g[place[top + k + 2]], g[place[top + k + 3]]
                    w0, w1, w2, w3 = weight[k, :q], weight[k + 1, :q], weight[k + 2, :q], weight[k + 3, :q]
                    for c in range(q):
                        inner[c] += g0 * w0[c] + g1 * w1[c] + g2 * w2[c] + g3 * w3[c]
                    k += 4
                while k < j:
                    g0, w0 = gram[m, place[top + j], place[top + k]], weight[k, :q]
                    for c in range(q):
                        inner[c] += g0 * w0[c]
                    k += 1
                for c in range(q):
                    quadratic[c] += mine[c] * inner[c]
            for c in range(q):
                along[c] /= max(np.sqrt(max(np.float32(2) * quadratic[c], np.float32(0))), tiny * total[c])
            for n in range(begin, end):
                out[m, n] = _aggregated(along[query[n] - left : query[n + 1] - left], kind, sharpness) if s else np.float32(0)
        begin = end


@_jit
def _aggregated(cosines, kind, sharpness):  # type: ignore[no-untyped-def]
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
