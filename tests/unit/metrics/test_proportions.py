"""Proportions of right answers: coverage of intervals with and without clusters, and paired tests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.metrics.forced_choice import i2t_choice, tneg2i
from crossmatch.metrics.paired_tests import mcnemar_test, paired_difference, sign_flip_test
from crossmatch.metrics.proportions import (
    choice_proportions,
    clustered_mean,
    clustered_proportion,
    clustered_total,
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


def slow_mean(columns):
    """Mean and effective number of values in [0, 1], as the docstring of `proportion` says, in loops."""
    clusters = sorted({int(cluster) for _, member in columns for cluster in member})
    means = [sum(values) / len(values) for values, _ in columns]
    folds, total = len(columns), sum(len(values) for values, _ in columns)
    residuals, sizes = [], []
    for cluster in clusters:
        of_columns = [[y for y, k in zip(values, member, strict=True) if k == cluster] for values, member in columns]
        residuals.append(sum((sum(y) - m * len(y)) / len(c[0]) for y, m, c in zip(of_columns, means, columns, strict=True)) / folds)
        sizes.append(sum(map(len, of_columns)))
    by_cluster, fourth = sum(e**2 for e in residuals), sum(e**4 for e in residuals)
    by_value = sum(sum((y - m) ** 2 for y in c[0]) / len(c[0]) ** 2 for m, c in zip(means, columns, strict=True)) / folds**2
    independent = sum(m * (1 - m) / len(c[0]) for m, c in zip(means, columns, strict=True)) / folds**2
    worst, p = sum(s**2 for s in sizes) / sum(sizes), sum(means) / folds
    if independent <= 0 or by_cluster <= 1e-12 * independent:
        effect = worst
    else:
        informative, prior = by_cluster**2 / fourth, 1.5 * (1 - 2 * p) ** 2
        effect = (max(by_cluster, by_value) / independent) ** (informative / (informative + prior)) * worst ** (
            prior / (informative + prior)
        )
    count = float(total)
    if folds > 1:
        adjusted = [(sum(c[0]) + 2) / (len(c[0]) + 4) for c in columns]
        middle = sum(adjusted) / folds
        count = middle * (1 - middle) * folds**2 / sum(q * (1 - q) / len(c[0]) for q, c in zip(adjusted, columns, strict=True))
        count = max(1.0, count)
    if total > len(clusters) or any(0 < y < 1 for values, _ in columns for y in values):
        count *= (stats.norm.ppf(0.975) / stats.t(len(clusters) - 1).ppf(0.975)) ** 2 / effect
    return p, max(1.0, count)


VALUES = st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0])


@given(st.lists(st.lists(st.tuples(VALUES, st.integers(0, 6)), min_size=1, max_size=12), min_size=1, max_size=3))
def test_mean_equals_a_loop(columns):
    columns = [([y for y, _ in column], [k for _, k in column]) for column in columns]
    if len({k for _, member in columns for k in member}) < 2:
        return
    result = clustered_mean([(np.array(values), np.array(member)) for values, member in columns])
    value, effective = slow_mean(columns)
    assert result.value == pytest.approx(value)
    assert result.effective == pytest.approx(effective, rel=1e-6)
    assert (result.low, result.high) == pytest.approx(wilson_interval(value, effective), abs=1e-7)


def test_summands_of_the_same_images_count_once():
    """A total of two equal summands is as uncertain as one of them; of independent ones it is less uncertain."""
    rng = np.random.default_rng(4)
    values, images = rng.random(2000), np.arange(2000)
    single = clustered_mean([(values, images)])
    equal = clustered_total([(values, images), (values, images)])
    apart = clustered_total([(values, images), (values, rng.permutation(images))])
    assert equal.high - equal.low == pytest.approx(single.high - single.low, rel=0.05)
    assert apart.high - apart.low == pytest.approx((single.high - single.low) / np.sqrt(2), rel=0.05)


def test_values_with_little_variance_have_a_narrow_interval():
    """Student's interval where the mean is in the middle; never a width of zero near the end."""
    values = 0.5 + 0.1 * np.random.default_rng(5).standard_normal(100)
    result = clustered_mean([(values, np.arange(100))])
    student = stats.t.interval(0.95, 99, values.mean(), values.std(ddof=1) / 10)
    assert (result.low, result.high) == pytest.approx(student, abs=0.002)
    assert clustered_mean([(np.ones(30), np.arange(30))]).low == pytest.approx(30 / (30 + stats.norm.ppf(0.975) ** 2))


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
