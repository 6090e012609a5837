"""Proportions of right answers: coverage of intervals with and without clusters, and paired tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.metrics.forced_choice import i2t_choice, tneg2i
from crossmatch.metrics.paired_tests import mcnemar_test, paired_difference, sign_flip_test
from crossmatch.metrics.proportions import (
    choice_proportions,
    clustered_proportion,
    independent_proportion,
    proportion,
    wilson_interval,
)


@pytest.mark.parametrize(("right", "n"), [(0, 10), (1, 10), (5, 10), (10, 10), (49, 50), (1500, 2933)])
def test_wilson_equals_scipy(right, n):
    slow = stats.binomtest(right, n).proportion_ci(method="wilson")
    assert wilson_interval(right / n, n) == pytest.approx((slow.low, slow.high), abs=1e-12)
    assert independent_proportion(right, n).low == pytest.approx(slow.low, abs=1e-12)


@pytest.mark.parametrize(("b", "c"), [(0, 0), (0, 5), (1, 8), (30, 31), (200, 120), (7, 7)])
def test_mcnemar_equals_the_binomial_test(b, c):
    slow = stats.binomtest(b, b + c).pvalue if b + c else 1.0
    assert mcnemar_test(b, c) == pytest.approx(slow, rel=1e-9)
    assert mcnemar_test(b, c) == mcnemar_test(c, b)


def test_cluster_of_copies_counts_as_one_trial():
    rng = np.random.default_rng(0)
    right = (rng.random(400) < 0.7).astype(float)
    copies = proportion(5 * right, np.full(400, 5.0))
    independent = proportion(right, np.ones(400))
    assert copies.value == independent.value
    assert independent.effective == pytest.approx(400)
    assert copies.effective == pytest.approx(400, rel=0.01)  # slightly less by Student's quantile of 400 clusters
    assert copies.effective <= 400


SIZES = {
    "like diorama/bison": np.random.default_rng(5).geometric(0.2, 195),
    "many small": np.random.default_rng(6).geometric(0.4, 1161),
    "eight of 25": np.full(8, 25),
    "fifteen of 10": np.full(15, 10),
    "alone": np.ones(400, dtype=int),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(("p", "rho"), [(0.5, 0.3), (0.9, 1.0), (0.98, 0.0), (0.98, 0.3)])
def test_intervals_have_their_coverage(sizes, p, rho):
    """800 samples, answers within a cluster correlated by rho: 95 %, less four standard errors."""
    rng = np.random.default_rng(1)
    k = len(sizes)
    covered = 0
    for _ in range(800):
        spread = rng.beta(p * (1 / rho - 1), (1 - p) * (1 / rho - 1), k) if 0 < rho < 1 else rng.random(k) < p
        skill = np.full(k, p) if rho == 0 else spread
        result = proportion(rng.binomial(sizes, skill).astype(float), sizes.astype(float))
        covered += result.low <= p <= result.high
    assert covered >= 800 * 0.95 - 4 * np.sqrt(800 * 0.95 * 0.05)


CATEGORIES = {
    "tiny ones": ((300, 3, 3, 3, 3, 3, 3), (0.7,) * 7),
    "small ones": ((300, 10, 10, 10, 10, 10, 10), (0.9,) * 7),
    "like BiVLC": ((76, 399, 437, 1200, 462, 278, 81), (0.22, 0.43, 0.45, 0.73, 0.27, 0.15, 0.1)),
    "nearly all right": ((200, 200), (0.98, 0.99)),
    "opposites": ((100, 100), (0.99, 0.01)),
}


@pytest.mark.parametrize(("sizes", "truth"), CATEGORIES.values(), ids=CATEGORIES)
def test_macro_mean_interval_has_its_coverage(sizes, truth):
    rng = np.random.default_rng(3)
    folds = np.repeat(np.arange(len(sizes)), sizes)
    skill = np.asarray(truth)[folds]
    covered = 0
    for _ in range(800):
        result = clustered_proportion(rng.random(len(folds)) < skill, np.arange(len(folds)), folds)
        covered += result.low <= np.mean(truth) <= result.high
    assert covered >= 800 * 0.95 - 4 * np.sqrt(800 * 0.95 * 0.05)


def test_interval_is_continuous_at_zero():
    """No right answer of 49 in seven clusters, or one, which shows that answers of a cluster need not be equal."""
    none, single = (proportion(np.array([n, 0, 0, 0, 0, 0, 0.0]), np.full(7, 7.0)) for n in (0, 1))
    assert none.high > single.high > 0.5 * none.high


def test_macro_mean_is_the_mean_of_the_folds():
    right, size = np.array([[3.0, 1.0], [5.0, 0.0]]), np.array([[4.0, 2.0], [6.0, 3.0]])
    assert proportion(right, size).value == pytest.approx((8 / 10 + 1 / 5) / 2)


def test_single_cluster_has_the_widest_interval():
    assert (proportion(np.array([3.0]), np.array([4.0])).low, proportion(np.array([3.0]), np.array([4.0])).high) == (0.0, 1.0)


def test_paired_interval_has_its_coverage_and_widens_with_clusters():
    rng = np.random.default_rng(2)
    covered = 0
    for _ in range(600):
        skill = rng.random(150)
        first, second = (rng.random(150) < skill).astype(float), (rng.random(150) < np.minimum(1, skill + 0.1)).astype(float)
        result = paired_difference(first, second, np.arange(150))
        truth = 0.1 - 0.005  # the mean of min(1, u + 0.1) - u over u between 0 and 1
        covered += result.low <= truth <= result.high
    assert abs(covered - 570) < 4 * np.sqrt(600 * 0.95 * 0.05)
    copies = paired_difference(np.repeat(first, 4), np.repeat(second, 4), np.repeat(np.arange(150), 4))
    assert copies.high - copies.low == pytest.approx(result.high - result.low, rel=0.1)


TRIALS = {"alone": (150, 1), "five of an image": (40, 5), "few images": (8, 6)}


@pytest.mark.parametrize("folds", [1, 3])
@pytest.mark.parametrize(("clusters", "size"), TRIALS.values(), ids=TRIALS)
@pytest.mark.parametrize("tie", [0.0, 0.5, 1.0])
def test_paired_interval_has_its_coverage_for_every_tie_credit(tie, clusters, size, folds):
    """Answers are right, wrong or tied, and correlated within a cluster; one model has more ties, the other more right ones."""
    rng = np.random.default_rng(11)
    member = np.repeat(np.arange(clusters), size)
    fold = np.arange(len(member)) % folds
    worth = np.array([0.0, tie, 1.0])
    chances = np.array([[0.2, 0.6, 0.2], [0.3, 0.1, 0.6]])
    truth = float((chances[1] - chances[0]) @ worth)
    covered, trials = 0, 500
    for _ in range(trials):
        shared = np.repeat(rng.random((2, clusters)), size, axis=1)
        drawn = np.where(rng.random(len(member)) < 0.5, shared, rng.random((2, len(member))))
        first, second = (worth[np.searchsorted(np.cumsum(p), u)] for p, u in zip(chances, drawn, strict=True))
        result = paired_difference(first, second, member, fold)
        assert result.low <= result.value <= result.high
        covered += result.low <= truth <= result.high
    assert covered >= trials * 0.95 - 4 * np.sqrt(trials * 0.95 * 0.05)


def test_interval_of_tiny_folds_contains_the_value():
    result = paired_difference(np.zeros(40), np.ones(40), np.arange(40), np.arange(40))
    assert result.value == pytest.approx(1.0)
    assert result.low <= result.value <= result.high


@pytest.mark.parametrize("n", [1, 2, 5, 9, 12])
def test_few_clusters_enumerate_all_signs(n):
    """Equal to SciPy's permutation test; with equal parts, to the sign test."""
    sums = np.random.default_rng(n).normal(0.5, 1, n)
    slow = stats.permutation_test((sums,), np.sum, permutation_type="samples", n_resamples=np.inf) if n > 1 else None
    assert sign_flip_test(sums) == pytest.approx(1.0 if slow is None else slow.pvalue)
    assert sign_flip_test(np.ones(n)) == pytest.approx(stats.binomtest(n, n).pvalue)


def test_sign_flip_test_keeps_its_level():
    rng = np.random.default_rng(8)
    for n in (1, 2, 4, 6, 8, 13, 20):
        result = np.mean([sign_flip_test(rng.choice([-1.0, 1.0], n)) < 0.05 for _ in range(2000)])
        assert result <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 2000), n


def test_half_right_answers_use_the_sign_flip_test():
    """Half right answers have no table of wins and losses, so McNemar's test does not apply."""
    rng = np.random.default_rng(9)
    gap = rng.choice([1.0, -0.5, 0.0], p=[0.2, 0.4, 0.4], size=400)
    result = paired_difference(np.maximum(-gap, 0), np.maximum(gap, 0), np.arange(400))
    assert (result.test.startswith("sign-flip test"), result.cluster_p) == (True, None)
    assert result.p == pytest.approx(2 * stats.norm.sf(abs(gap.sum()) / np.sqrt((gap**2).sum())))
    assert mcnemar_test(int((gap < 0).sum()), int((gap > 0).sum())) < 1e-3  # by the sign test
    assert paired_difference(np.zeros(4), np.ones(4), np.arange(4)).test == "McNemar's exact test"


def test_cluster_test_keeps_its_level_and_mcnemar_does_not():
    """Two equally good models on 60 clusters of 10 correlated trials."""
    rng = np.random.default_rng(4)
    clusters = np.repeat(np.arange(60), 10)
    exact = by_cluster = 0
    for _ in range(400):
        lean = np.repeat(rng.random(60), 10)
        gap = np.where(rng.random(600) < 0.5, 0, np.where(rng.random(600) < lean, 1.0, -1.0))
        result = paired_difference((gap < 0).astype(float), (gap > 0).astype(float), clusters)
        exact += result.p < 0.05
        by_cluster += result.cluster_p < 0.05
    assert by_cluster <= 400 * 0.05 + 4 * np.sqrt(400 * 0.05 * 0.95)
    assert exact > 400 * 0.1


def test_equal_models_have_p_one_and_clear_differences_a_small_p():
    same = np.array([1.0, 0, 1, 1])
    result = paired_difference(same, same, np.arange(4))
    assert (result.value, result.p, result.cluster_p) == (0.0, 1.0, None)
    assert result.low < 0 < result.high
    folds = np.arange(60) % 3
    macro = paired_difference(np.zeros(60), np.ones(60), np.arange(60), folds)
    assert macro.value == pytest.approx(1)
    assert macro.p < 0.001
    assert macro.low < 0.99  # not certain from sixty trials


def test_macro_difference_is_the_mean_over_folds():
    rng = np.random.default_rng(5)
    first, second, folds = (
        rng.integers(0, 2, 90).astype(float),
        rng.integers(0, 2, 90).astype(float),
        np.repeat([0, 1, 2], [60, 20, 10]),
    )
    slow = np.mean([(second - first)[folds == f].mean() for f in range(3)])
    assert paired_difference(first, second, np.arange(90), folds).value == pytest.approx(slow)


def test_choice_proportions_equal_the_metrics_by_group():
    rng = np.random.default_rng(3)
    scores, group = rng.integers(0, 5, (300, 2, 2)).astype(float), rng.integers(0, 3, 300)
    for g, result in enumerate(choice_proportions(Outcomes.from_scores(scores), {"i2t": i2t_choice, "tneg2i": tneg2i}, group, 3)):
        own_scores = scores[group == g]
        is_right = (own_scores[:, 0, 0] > own_scores[:, 1, 0]) & (own_scores[:, 1, 1] > own_scores[:, 0, 1])
        assert result["i2t"].value == pytest.approx(is_right.mean())
        assert result["tneg2i"].value == pytest.approx((own_scores[:, 1, 1] > own_scores[:, 1, 0]).mean())
