"""Student's test over images: p and interval agree, copies do not help, few images cannot be significant."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.metrics.paired_tests import cluster_t_test

GAPS = st.lists(st.tuples(st.sampled_from([-1.0, -0.4, 0.0, 0.1, 0.5, 1.0]), st.integers(0, 12)), min_size=1, max_size=40)


def compare_gaps(gaps: np.ndarray, clusters: np.ndarray):
    return cluster_t_test(float(gaps.mean()), (gaps - gaps.mean()) / len(gaps), clusters, max_abs=1.0)


@given(GAPS)
def test_p_is_small_exactly_if_the_interval_excludes_zero(rows):
    gaps, clusters = (np.array(column) for column in zip(*rows, strict=True))
    difference = compare_gaps(gaps, clusters)
    assert -1 <= difference.low <= difference.value <= difference.high <= 1
    assert difference.min_p <= difference.p <= 1
    assert (difference.p < 0.05) == (difference.low > 0 or difference.high < 0)


@given(GAPS)
def test_copies_of_queries_change_nothing(rows):
    gaps, clusters = (np.array(column) for column in zip(*rows, strict=True))
    once, copies = compare_gaps(gaps, clusters), compare_gaps(np.repeat(gaps, 5), np.repeat(clusters, 5))
    assert (copies.p, copies.low, copies.high) == pytest.approx((once.p, once.low, once.high))


def test_equal_differences_of_all_images_have_an_interval_of_positive_width():
    difference = compare_gaps(np.full(10, 0.5), np.arange(10))
    assert 0 < difference.low < 0.5 < difference.high
    assert difference.p == 2**-9  # all ten images agree


def test_five_images_cannot_be_significant():
    difference = compare_gaps(np.full(5, 0.5), np.arange(5))
    assert difference.p == 0.0625
    assert difference.low <= 0


def test_one_image_says_nothing():
    difference = compare_gaps(np.array([0.5, 0.7]), np.array([3, 3]))
    assert (difference.low, difference.high, difference.p) == (-1.0, 1.0, 1.0)
