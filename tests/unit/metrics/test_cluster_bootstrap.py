"""Paired comparison of replicates, with p-values small enough for many tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.cluster_bootstrap import ClusterBootstrap, percentile_interval
from crossmatch.metrics.paired_tests import compare_clusters, compare_replicates, holm_correction


def drawn(gap: np.ndarray, samples: int = 1000, seed: int = 0) -> np.ndarray:
    """The mean in each replicate; every value is its own cluster."""
    return np.concatenate(list(ClusterBootstrap.from_clusters(np.arange(len(gap)), samples, seed))) @ gap / len(gap)


@pytest.mark.parametrize("n", [30, 300])
def test_small_p_is_close_to_students(n: int) -> None:
    gap = np.random.default_rng(n).normal(size=n)
    gap += 4.9 * gap.std() / np.sqrt(n) - gap.mean()
    replicates = drawn(gap)
    p = compare_clusters(0 * replicates, replicates, float(gap.mean()), n).p
    slow = stats.ttest_1samp(gap, 0).pvalue
    assert slow < 1e-4
    assert np.log10(p) == pytest.approx(np.log10(slow), abs=0.6)  # the standard error of 1,000 replicates is known to 2 %


def test_large_p_is_that_of_the_bootstrap() -> None:
    gap = np.random.default_rng(1).normal(0.15, 1, 100)
    replicates = drawn(gap)
    by_replicates, by_clusters = (
        compare_replicates(0 * replicates, replicates, float(gap.mean())),
        compare_clusters(0 * replicates, replicates, float(gap.mean()), 100),
    )
    assert by_replicates.p > by_replicates.min_p
    assert (by_replicates.value, by_replicates.low, by_replicates.high, by_replicates.p) == (
        by_clusters.value,
        by_clusters.low,
        by_clusters.high,
        by_clusters.p,
    )


def test_large_difference_survives_holm() -> None:
    gap = np.random.default_rng(2).normal(1, 1, 200)
    replicates = drawn(gap)
    counted, compared = (
        p.p for p in (compare_replicates(0 * replicates, replicates, 1.0), compare_clusters(0 * replicates, replicates, 1.0, 200))
    )
    assert holm_correction([counted] * 26)[0] > 0.05
    assert holm_correction([compared] * 26)[0] == pytest.approx(26e-6)


def test_few_clusters_limit_p() -> None:
    """Five images with gains: 1 in 16 sign patterns is as extreme."""
    replicates = drawn(np.array([1.0, 1.1, 0.9, 1.2, 1.0]))
    assert compare_replicates(0 * replicates, replicates, 1.04).p == pytest.approx(2 / 1001)
    compared = compare_clusters(0 * replicates, replicates, 1.04, 5)
    assert (compared.p, compared.min_p) == (0.0625, 0.0625)
    assert compare_clusters(np.zeros(99), np.ones(99), 1.0, 50).p == pytest.approx(2 / 100)  # no variance
    assert compare_clusters(np.zeros(99), np.zeros(99), 0.0, 50).p == 1.0


def test_level_under_the_null() -> None:
    rng = np.random.default_rng(3)
    trials, false_positives = 600, 0
    for seed in range(trials):
        replicates = drawn(rng.normal(size=40), 300, seed)
        false_positives += compare_clusters(0 * replicates, replicates, float(replicates.mean()), 40).p < 0.01
    assert false_positives <= trials * 0.02 + 3 * np.sqrt(trials * 0.02 * 0.98)  # percentiles of 40 images are slightly too narrow


def test_replicates_draw_whole_clusters() -> None:
    """As many clusters as there are, with replacement: the weights of a replicate add up to their number."""
    draws = ClusterBootstrap.from_clusters(np.array([2, 2, 9, 7]), samples=300)
    weights = np.concatenate(list(draws))
    assert draws.cluster_index.tolist() == [0, 0, 2, 1]
    assert set(weights.sum(axis=1)) == {3.0}
    assert weights.mean(axis=0) == pytest.approx(np.ones(3), abs=0.2)


def test_replicates_of_different_length_are_an_error() -> None:
    with pytest.raises(CrossmatchError, match="Use the same number of samples"):
        compare_replicates(np.zeros(3), np.zeros(4), 0.0)


def test_p_is_above_zero_and_at_most_one() -> None:
    assert compare_replicates(np.zeros(99), np.ones(99), 1.0).p == pytest.approx(2 / 100)
    assert compare_replicates(np.zeros(99), np.zeros(99), 0.0).p == 1.0
    assert percentile_interval(np.full(9, 0.25)) == (0.25, 0.25)


def test_interval_contains_the_middle_95_percent_of_second_minus_first() -> None:
    assert percentile_interval(np.arange(1001.0)) == pytest.approx((25.0, 975.0))
    difference = compare_replicates(np.zeros(1001), np.arange(1001.0), 500.0)
    assert (difference.low, difference.high) == pytest.approx((25.0, 975.0))
