"""Scores that are equal but for rounding, as equal ones: in a list, and in pairs of which people prefer one."""

from __future__ import annotations

import numpy as np

from crossmatch.captions.candidates import same
from crossmatch.core.arrays import BoolArray, FloatArray, IntArray


def runs(ascending: FloatArray) -> IntArray:
    """Where each run of equal scores begins, in scores in ascending order.

    >>> runs(np.array([0.1, 0.3, 0.1 + 0.2, 0.4]))
    array([0, 1, 3])
    """
    return np.flatnonzero(np.append(True, ~same(ascending[1:], ascending[:-1])))


def settled(scores: FloatArray) -> FloatArray:
    """The scores, those that differ by rounding alone made equal to the lowest of them.

    >>> settled(np.array([0.4, 0.1 + 0.2, 0.3]))
    array([0.4, 0.3, 0.3])
    """
    order = np.argsort(scores, kind="stable")
    first = runs(scores[order])
    found = np.empty(len(scores))
    found[order] = np.repeat(scores[order][first], np.diff(np.append(first, len(scores))))
    return found


def answered(scores: FloatArray, preferred: IntArray, tie: float) -> tuple[FloatArray, BoolArray]:
    """Of pairs of scores (…, pairs, 2): what each counts, 1 where the preferred one is higher and `tie` where both are level; and
    which are level.

    >>> answered(np.array([[0.2, 0.1], [0.2, 0.1], [0.3, 0.1 + 0.2]]), np.array([0, 1, 0]), 0.5)
    (array([1. , 0. , 0.5]), array([False, False,  True]))
    """
    first, second = scores[..., 0], scores[..., 1]
    level = same(first, second)
    return np.where(level, tie, ((first > second) == (preferred == 0)).astype(np.float64)), level
