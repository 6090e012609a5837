"""Ties between scores: scores that differ only by rounding count as equal."""

from __future__ import annotations

import numpy as np

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray

# Relative to the larger score. Sums in a different order differ by less than 1e-14. BLEU's guards, by which coco-caption orders
# captions that differ only in length, differ by more than 1e-12 (measured on the three published studies).
ROUNDING_TOLERANCE = 1e-13


def equal_up_to_rounding(first: FloatArray, second: FloatArray) -> BoolArray:
    """Whether scores are equal except for rounding.

    >>> equal_up_to_rounding(np.array([0.1 + 0.2, 0.3]), np.array([0.3, 0.3 + 1e-10]))
    array([ True, False])
    """
    largest = np.maximum(np.abs(first), np.abs(second))
    return np.asarray(np.abs(first - second) <= ROUNDING_TOLERANCE * largest, dtype=np.bool_)


def tie_starts(ascending: FloatArray) -> IntArray:
    """The start of each run of equal scores, for scores in ascending order.

    >>> tie_starts(np.array([0.1, 0.3, 0.1 + 0.2, 0.4]))
    array([0, 1, 3])
    """
    return np.flatnonzero(np.append(True, ~equal_up_to_rounding(ascending[1:], ascending[:-1])))


def merge_rounding_ties(scores: FloatArray) -> FloatArray:
    """The scores, where those that differ only by rounding are replaced by the lowest of them.

    >>> merge_rounding_ties(np.array([0.4, 0.1 + 0.2, 0.3]))
    array([0.4, 0.3, 0.3])
    """
    order = np.argsort(scores, kind="stable")
    starts = tie_starts(scores[order])
    merged = np.empty(len(scores))
    merged[order] = np.repeat(scores[order][starts], np.diff(np.append(starts, len(scores))))
    return merged


def score_preferences(scores: FloatArray, preferred: IntArray, tie_credit: float) -> tuple[FloatArray, BoolArray]:
    """Credit a metric for each pair in which it scores the preferred caption higher.

    `preferred` is 0 or 1, the caption that people prefer. Returns the credit of each pair, and whether its scores are equal.

    >>> score_preferences(np.array([[0.2, 0.1], [0.2, 0.1], [0.3, 0.1 + 0.2]]), np.array([0, 1, 0]), 0.5)
    (array([1. , 0. , 0.5]), array([False, False,  True]))
    """
    first, second = scores[..., 0], scores[..., 1]
    is_tied = equal_up_to_rounding(first, second)
    return np.where(is_tied, tie_credit, ((first > second) == (preferred == 0)).astype(np.float64)), is_tied
