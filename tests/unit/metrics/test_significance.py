"""The paired comparison of replicates where many are compared at once."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crossmatch.metrics.significance import Draws, compare_clusters, compare_replicates, holm, replicate_means


def drawn(gap: np.ndarray, samples: int = 1000, seed: int = 0) -> np.ndarray:
    return replicate_means([gap], Draws.of(np.arange(len(gap)), samples, seed))[0]


@pytest.mark.parametrize("n", [30, 300])
def test_far_from_zero_p_is_near_students(n: int) -> None:
    gap = np.random.default_rng(n).normal(size=n)
    gap += 4.9 * gap.std() / np.sqrt(n) - gap.mean()
    found = drawn(gap)
    p = compare_clusters(0 * found, found, float(gap.mean()), n).p
    slow = stats.ttest_1samp(gap, 0).pvalue
    assert slow < 1e-4
    assert np.log10(p) == pytest.approx(np.log10(slow), abs=0.6)  # the standard error of 1,000 replicates is known to 2 %


def test_near_zero_nothing_changes() -> None:
    gap = np.random.default_rng(1).normal(0.15, 1, 100)
    found = drawn(gap)
    one, two = compare_replicates(0 * found, found, float(gap.mean())), compare_clusters(0 * found, found, float(gap.mean()), 100)
    assert one.p > one.floor
    assert (one.value, one.low, one.high, one.p) == (two.value, two.low, two.high, two.p)


def test_a_large_difference_survives_the_correction_for_many() -> None:
    gap = np.random.default_rng(2).normal(1, 1, 200)
    found = drawn(gap)
    counted, told = (p.p for p in (compare_replicates(0 * found, found, 1.0), compare_clusters(0 * found, found, 1.0, 200)))
    assert holm([counted] * 26)[0] > 0.05
    assert holm([told] * 26)[0] == pytest.approx(26e-6)


def test_no_p_is_below_what_so_few_clusters_can_tell() -> None:
    """Five images that all gain: one in 16 of all ways to turn them around is as extreme, whatever the replicates say."""
    found = drawn(np.array([1.0, 1.1, 0.9, 1.2, 1.0]))
    assert compare_replicates(0 * found, found, 1.04).p == pytest.approx(2 / 1001)
    told = compare_clusters(0 * found, found, 1.04, 5)
    assert (told.p, told.floor) == (0.0625, 0.0625)
    assert compare_clusters(np.zeros(99), np.ones(99), 1.0, 50).p == pytest.approx(2 / 100)  # no spread to go by
    assert compare_clusters(np.zeros(99), np.zeros(99), 0.0, 50).p == 1.0


def test_level_under_the_null() -> None:
    rng = np.random.default_rng(3)
    trials, wrong = 600, 0
    for seed in range(trials):
        found = drawn(rng.normal(size=40), 300, seed)
        wrong += compare_clusters(0 * found, found, float(found.mean()), 40).p < 0.01
    assert wrong <= trials * 0.02 + 3 * np.sqrt(trials * 0.02 * 0.98)  # percentiles of 40 images are a little too sure
