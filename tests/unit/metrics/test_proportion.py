"""Shares of right answers: intervals that hold what they promise, with and without clusters, and the exact paired test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crossmatch.core.outcomes import Outcomes
from crossmatch.metrics.proportion import choice_shares, mcnemar, normal, paired, share, share_of_alike, wilson


@pytest.mark.parametrize(("right", "n"), [(0, 10), (1, 10), (5, 10), (10, 10), (49, 50), (1500, 2933)])
def test_wilson_is_scipys(right, n):
    slow = stats.binomtest(right, n).proportion_ci(method="wilson")
    assert wilson(right / n, n) == pytest.approx((slow.low, slow.high), abs=1e-12)
    assert share_of_alike(right, n).low == pytest.approx(slow.low, abs=1e-12)


@pytest.mark.parametrize(("b", "c"), [(0, 0), (0, 5), (1, 8), (30, 31), (200, 120), (7, 7)])
def test_mcnemar_is_the_binomial_test_on_the_disagreements(b, c):
    slow = stats.binomtest(b, b + c).pvalue if b + c else 1.0
    assert mcnemar(b, c) == pytest.approx(slow, rel=1e-9)
    assert mcnemar(b, c) == mcnemar(c, b)


def test_clusters_of_copies_are_worth_one_trial_each():
    rng = np.random.default_rng(0)
    once = (rng.random(400) < 0.7).astype(float)
    copies = share(5 * once, np.full(400, 5.0))
    alone = share(once, np.ones(400))
    assert copies.value == alone.value
    # five copies are known to be copies; Student's quantile of 400 clusters makes them a touch less sure
    assert alone.effective == pytest.approx(400)
    assert copies.effective == pytest.approx(400, rel=0.01)
    assert copies.effective <= 400


def test_intervals_hold_the_truth_as_often_as_they_say():
    """1,000 samples of 120 clusters whose trials go together: 95 % give or take four standard errors."""
    rng = np.random.default_rng(1)
    held = plain = 0
    for _ in range(1000):
        size = rng.integers(1, 8, 120)
        right = rng.binomial(size, rng.beta(2, 1, 120))
        found = share(right, size)
        alone = share_of_alike(int(right.sum()), int(size.sum()))
        held += found.low <= 2 / 3 <= found.high
        plain += alone.low <= 2 / 3 <= alone.high
    margin = 4 * np.sqrt(0.95 * 0.05 * 1000)
    assert abs(held - 950) < margin
    assert plain < 950 - margin  # which is why clusters are asked for


def test_a_macro_mean_is_the_mean_of_the_groups():
    right, size = np.array([[3.0, 1.0], [5.0, 0.0]]), np.array([[4.0, 2.0], [6.0, 3.0]])
    assert share(right, size).value == pytest.approx((8 / 10 + 1 / 5) / 2)


def test_a_single_cluster_tells_nothing_about_its_error():
    assert (share(np.array([3.0]), np.array([4.0])).low, share(np.array([3.0]), np.array([4.0])).high) == (0.0, 1.0)


def test_the_paired_interval_holds_the_truth_and_widens_with_clusters():
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(600):
        skill = rng.random(150)
        first, second = (rng.random(150) < skill).astype(float), (rng.random(150) < np.minimum(1, skill + 0.1)).astype(float)
        found = paired(first, second, np.arange(150))
        truth = 0.1 - 0.005  # the mean of min(1, u + 0.1) - u over u between 0 and 1
        held += found.low <= truth <= found.high
    assert abs(held - 570) < 4 * np.sqrt(600 * 0.95 * 0.05)
    copies = paired(np.repeat(first, 4), np.repeat(second, 4), np.repeat(np.arange(150), 4))
    assert copies.high - copies.low == pytest.approx(found.high - found.low, rel=0.1)


def test_equal_models_cannot_be_told_apart():
    same = np.array([1.0, 0, 1, 1])
    found = paired(same, same, np.arange(4))
    assert (found.value, found.p) == (0.0, 1.0)
    assert found.low < 0 < found.high
    assert normal(1.0, 0.5).p == pytest.approx(2 * stats.norm.sf(2))


def test_shares_by_group_are_the_metrics_by_group():
    rng = np.random.default_rng(3)
    scores, group = rng.integers(0, 5, (300, 2, 2)).astype(float), rng.integers(0, 3, 300)
    for g, found in enumerate(choice_shares(Outcomes.of(scores), ("i2t", "tneg2i"), group, 3)):
        mine = scores[group == g]
        own = (mine[:, 0, 0] > mine[:, 1, 0]) & (mine[:, 1, 1] > mine[:, 0, 1])
        assert found["i2t"].value == pytest.approx(own.mean())
        assert found["tneg2i"].value == pytest.approx((mine[:, 1, 1] > mine[:, 1, 0]).mean())
