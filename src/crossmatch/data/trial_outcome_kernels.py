"""Compiled loops (numba) of `trial_outcomes.py`."""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np

_jit: Any = nb.njit(nogil=True, cache=True, boundscheck=False)


@_jit
def encode(scores, out, pairs):  # type: ignore[no-untyped-def]
    """The outcome codes of scores of shape (trials, captions, images)."""
    if scores.shape[1] == 2 and scores.shape[2] == 2:
        _encode_2x2(scores, out)
        return out
    for n in range(len(scores)):
        code, is_tied = np.uint64(0), False
        for m in range(pairs):
            matching = scores[n, m, m]
            best = -np.inf
            for c in range(scores.shape[1]):
                if c != m:
                    best = max(best, scores[n, c, m])
            code |= np.uint64(matching > best) << np.uint64(m)
            is_tied |= matching == best
            best = -np.inf
            for i in range(scores.shape[2]):
                if i != m:
                    best = max(best, scores[n, m, i])
            code |= np.uint64(matching > best) << np.uint64(pairs + m)
            is_tied |= matching == best
        out[n] = code | np.uint64(is_tied) << np.uint64(2 * pairs)
    return out


@_jit
def _encode_2x2(scores, out):  # type: ignore[no-untyped-def]
    """Four comparisons and no branch."""
    for n in range(len(scores)):
        a, b, c, d = scores[n, 0, 0], scores[n, 0, 1], scores[n, 1, 0], scores[n, 1, 1]
        ties = (a == c) | (d == b) | (a == b) | (d == c)
        out[n] = (a > c) | (d > b) << 1 | (a > b) << 2 | (d > c) << 3 | ties << 4


@_jit
def count_codes(codes, group, groups, size):  # type: ignore[no-untyped-def]
    """Count the codes in each group; an empty `group` means one group."""
    counts = np.zeros((groups, size), dtype=np.int64)
    if len(group):
        for n in range(len(codes)):
            counts[group[n], codes[n]] += 1
    else:
        for n in range(len(codes)):
            counts[0, codes[n]] += 1
    return counts
