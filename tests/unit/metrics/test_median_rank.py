"""The median rank: its interval and the difference of two, against a search over all ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crossmatch.metrics.median_rank import median_difference, median_interval
from crossmatch.ranking.ranks import Ranks

GALLERY = 60


def ranked(first_ranks: list[int]) -> Ranks:
    return Ranks.from_lists([[rank] for rank in first_ranks], gallery=GALLERY)


def fold(first_ranks: list[int], clusters: list[int] | None = None) -> list[tuple[Ranks, np.ndarray]]:
    return [(ranked(first_ranks), np.arange(len(first_ranks)) if clusters is None else np.asarray(clusters))]


@given(st.lists(st.integers(1, GALLERY), min_size=2, max_size=40))
def test_interval_contains_every_rank_that_a_sign_test_accepts(first_ranks):
    """Each query is its own image: the share of ranks up to r is compared with one half at every r."""
    n, z = len(first_ranks), stats.norm.ppf(0.975)

    def share(r: int) -> float:
        return sum(rank <= r for rank in first_ranks) / n

    margin = z * np.sqrt(0.25 / n)
    accepted = [r for r in range(1, GALLERY + 1) if share(r) >= 0.5 - margin - 1e-9 and share(r - 1) <= 0.5 + margin + 1e-9]
    value, low, high = median_interval(fold(first_ranks))
    assert value == np.median(first_ranks)
    assert (low, high) == (min(accepted), max(accepted))


def test_copies_of_a_query_do_not_narrow_the_interval():
    first_ranks = np.random.default_rng(0).integers(1, GALLERY, 40).tolist()
    single = median_interval(fold(first_ranks))
    copies = median_interval(fold(np.repeat(first_ranks, 5).tolist(), np.repeat(np.arange(40), 5).tolist()))
    independent = median_interval(fold(np.repeat(first_ranks, 5).tolist()))
    assert copies[2] - copies[1] == pytest.approx(single[2] - single[1], abs=3)
    assert independent[2] - independent[1] < 0.7 * (single[2] - single[1])


def test_interval_of_folds_adds_distances_in_squares():
    ranks = np.random.default_rng(1).integers(1, GALLERY, (2, 30)).tolist()
    (a, low_a, high_a), (b, low_b, high_b) = (median_interval(fold(x)) for x in ranks)
    value, low, high = median_interval([*fold(ranks[0]), *fold(ranks[1])])
    assert value == (a + b) / 2
    assert low == pytest.approx(value - np.hypot(a - low_a, b - low_b) / 2)
    assert high == pytest.approx(value + np.hypot(high_a - a, high_b - b) / 2)


def test_ties_are_counted_with_their_expected_share():
    """All candidates tie: every rank has the same chance, so the median is in the middle."""
    ranks = Ranks.all_tied([1] * 400, GALLERY)
    value, low, high = median_interval([(ranks, np.arange(400))])
    assert value == pytest.approx((GALLERY + 1) / 2, abs=0.5)
    assert low < value < high
    assert (low, high) == pytest.approx((GALLERY * 0.45, GALLERY * 0.55), abs=1)


@given(st.lists(st.tuples(st.integers(1, GALLERY), st.integers(1, GALLERY)), min_size=2, max_size=30))
def test_p_is_small_exactly_if_the_interval_excludes_zero(pairs):
    first, second = (fold(list(x)) for x in zip(*pairs, strict=True))
    difference = median_difference(first, second, GALLERY)
    opposite = median_difference(second, first, GALLERY)
    assert difference.low <= difference.value <= difference.high
    assert (difference.p < 0.05) == (difference.low > 0 or difference.high < 0)
    assert (opposite.value, opposite.low, opposite.high) == (-difference.value, -difference.high, -difference.low)
    assert opposite.p == difference.p


def test_a_model_does_not_differ_from_itself():
    first = fold(np.random.default_rng(2).integers(1, GALLERY, 30).tolist())
    difference = median_difference(first, first, GALLERY)
    assert (difference.value, difference.p) == (0.0, 1.0)


def test_single_image_says_nothing():
    difference = median_difference(fold([1, 1], [0, 0]), fold([9, 9], [0, 0]), GALLERY)
    assert (difference.low, difference.high, difference.p) == (-GALLERY, GALLERY, 1.0)
    assert median_interval(fold([3, 3], [0, 0]))[1:] == (1.0, GALLERY)
