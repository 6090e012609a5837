"""The compiled loops over forced choices (numba). `outcomes.py` says what they compute, and does the same in NumPy without them."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

_jit: Any = nb.njit(nogil=True, cache=True, boundscheck=False)


@_jit
def codes(scores, out, pairs):  # type: ignore[no-untyped-def]
    if scores.shape[1] == 2 and scores.shape[2] == 2:
        _codes_2x2(scores, out)
        return out
    for n in range(len(scores)):
        code, tie = np.uint64(0), False
        for m in range(pairs):
            own = scores[n, m, m]
            best = -np.inf
            for c in range(scores.shape[1]):
                if c != m:
                    best = max(best, scores[n, c, m])
            code |= np.uint64(own > best) << np.uint64(m)
            tie |= own == best
            best = -np.inf
            for i in range(scores.shape[2]):
                if i != m:
                    best = max(best, scores[n, m, i])
            code |= np.uint64(own > best) << np.uint64(pairs + m)
            tie |= own == best
        out[n] = code | np.uint64(tie) << np.uint64(2 * pairs)
    return out


@_jit
def _codes_2x2(scores, out):  # type: ignore[no-untyped-def]
    """Four comparisons and no branch."""
    for n in range(len(scores)):
        a, b, c, d = scores[n, 0, 0], scores[n, 0, 1], scores[n, 1, 0], scores[n, 1, 1]
        ties = (a == c) | (d == b) | (a == b) | (d == c)
        out[n] = (a > c) | (d > b) << 1 | (a > b) << 2 | (d > c) << 3 | ties << 4


@_jit
def tally(codes, member, groups, size):  # type: ignore[no-untyped-def]
    counts = np.zeros((groups, size), dtype=np.int64)
    if len(member):
        for n in range(len(codes)):
            counts[member[n], codes[n]] += 1
    else:
        for n in range(len(codes)):
            counts[0, codes[n]] += 1
    return counts
