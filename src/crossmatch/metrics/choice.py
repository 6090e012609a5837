"""Forced choice: which caption for this image, which image for this caption. A strict win counts, a tie loses.

Scores have shape (N trials, C captions, I images). Caption n and image n belong together; whatever is beyond the shorter
side is a distractor, so BISON is C=1, I=2, SugarCrepe C=2, I=1, Winoground and BiVLC C=2, I=2.
"""

from __future__ import annotations

from itertools import permutations
from math import factorial

import numpy as np

from crossmatch.core.arrays import BoolArray, FloatArray


def i2t_choice(scores: FloatArray) -> FloatArray:
    """1 where every image scores strictly highest with its own caption (I2T; Winoground's text score).

        I2T = Π_i 1[ s(c_i, i) > max_{c != c_i} s(c, i) ]

    Source: miranda2024bivlc, eq. 1; thrush2022winoground, eq. 1.

    >>> i2t_choice(np.array([[[0.9, 0.2], [0.1, 0.3]], [[0.5, 0.2], [0.5, 0.3]]]))    # the second trial ties
    array([1., 0.])
    """
    return np.asarray(_own_wins(scores, axis=1).all(axis=1), dtype=np.float64)


def t2i_choice(scores: FloatArray) -> FloatArray:
    """1 where every caption scores strictly highest with its own image (T2I; BISON; Winoground's image score).

        T2I = Π_c 1[ s(c, i_c) > max_{i != i_c} s(c, i) ]

    Source: hu2019bison, sec. 3.3; miranda2024bivlc, eq. 2.

    >>> t2i_choice(np.array([[[0.9, 0.2]], [[0.4, 0.4]]]))        # one caption, two images
    array([1., 0.])
    """
    return np.asarray(_own_wins(scores, axis=2).all(axis=1), dtype=np.float64)


def group_choice(scores: FloatArray) -> FloatArray:
    """1 where both directions are right.

        Group = I2T · T2I

    Source: thrush2022winoground, eq. 3; miranda2024bivlc, eq. 3.

    >>> group_choice(np.array([[[0.9, 0.2], [0.1, 0.3]]]))
    array([1.])
    """
    return i2t_choice(scores) * t2i_choice(scores)


def tied_choices(scores: FloatArray) -> FloatArray:
    """1 where some comparison that decides the trial is a tie."""
    out = np.zeros(len(scores))
    for axis in (1, 2):
        if scores.shape[axis] > 1:
            own, rest = _own_and_best_other(scores, axis)
            out = np.maximum(out, (own == rest).any(axis=1))
    return out


def chance_of(choice, shape: tuple[int, int]) -> float:  # type: ignore[no-untyped-def]
    """The expected value of a choice for random scores without ties: the mean over all orders of the C x I scores.

    >>> round(chance_of(group_choice, (2, 2)), 4), chance_of(t2i_choice, (1, 2))
    (0.1667, 0.5)
    """
    cells = shape[0] * shape[1]
    if factorial(cells) > 400_000:
        orders = np.random.default_rng(0).random((400_000, cells))
    else:
        orders = np.asarray(list(permutations(range(cells))), dtype=np.float64)
    return float(choice(orders.reshape(-1, *shape)).mean())


def _own_wins(scores: FloatArray, axis: int) -> BoolArray:
    own, rest = _own_and_best_other(scores, axis)
    return own > rest


def _own_and_best_other(scores: FloatArray, axis: int) -> tuple[FloatArray, FloatArray]:
    """For each matched pair its score, and the best rival along `axis` (captions: 1, images: 2)."""
    matched = min(scores.shape[1:])
    own = np.stack([scores[:, m, m] for m in range(matched)], axis=1)
    lines = np.stack([scores[:, :, m] if axis == 1 else scores[:, m, :] for m in range(matched)], axis=1)
    rivals = np.where(np.arange(lines.shape[2]) == np.arange(matched)[:, None], -np.inf, lines)
    return own, rivals.max(axis=2)
