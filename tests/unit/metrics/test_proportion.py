"""Shares of right answers: intervals that hold what they promise, with and without clusters, and the exact paired test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crossmatch.core.outcomes import Outcomes
from crossmatch.metrics.proportion import apart, choice_shares, mcnemar, paired, share, share_of, share_of_alike, turned, wilson


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
    assert alone.effective == pytest.approx(400)
    assert copies.effective == pytest.approx(400, rel=0.01)  # Student's quantile of 400 clusters makes it a touch less
    assert copies.effective <= 400


SIZES = {
    "like diorama/bison": np.random.default_rng(5).geometric(0.2, 195),
    "many small": np.random.default_rng(6).geometric(0.4, 1161),
    "eight of 25": np.full(8, 25),
    "fifteen of 10": np.full(15, 10),
    "alone": np.ones(400, dtype=int),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("p", [0.5, 0.9, 0.98])
@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_intervals_hold_the_truth_at_least_as_often_as_they_say(sizes, p, rho):
    """800 samples, answers within a cluster correlated by rho: 95 %, less four standard errors. With few clusters it is more."""
    rng = np.random.default_rng(1)
    k = len(sizes)
    held = 0
    for _ in range(800):
        spread = rng.beta(p * (1 / rho - 1), (1 - p) * (1 / rho - 1), k) if 0 < rho < 1 else rng.random(k) < p
        skill = np.full(k, p) if rho == 0 else spread
        found = share(rng.binomial(sizes, skill).astype(float), sizes.astype(float))
        held += found.low <= p <= found.high
    assert held >= 800 * 0.95 - 4 * np.sqrt(800 * 0.95 * 0.05)


def test_ignoring_clusters_would_not_hold_the_truth():
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(500):
        right = rng.binomial(5, rng.beta(2, 1, 120))
        found = share_of_alike(int(right.sum()), 600)
        held += found.low <= 2 / 3 <= found.high
    assert held < 500 * 0.9


CATEGORIES = {
    "tiny ones": ((300, 3, 3, 3, 3, 3, 3), (0.7,) * 7),
    "small ones": ((300, 10, 10, 10, 10, 10, 10), (0.9,) * 7),
    "like BiVLC": ((76, 399, 437, 1200, 462, 278, 81), (0.22, 0.43, 0.45, 0.73, 0.27, 0.15, 0.1)),
    "nearly all right": ((200, 200), (0.98, 0.99)),
    "opposites": ((100, 100), (0.99, 0.01)),
}


@pytest.mark.parametrize(("sizes", "truth"), CATEGORIES.values(), ids=CATEGORIES)
def test_the_interval_of_a_macro_mean_holds_the_truth(sizes, truth):
    rng = np.random.default_rng(3)
    folds = np.repeat(np.arange(len(sizes)), sizes)
    skill = np.asarray(truth)[folds]
    held = 0
    for _ in range(800):
        found = share_of(rng.random(len(folds)) < skill, np.arange(len(folds)), folds)
        held += found.low <= np.mean(truth) <= found.high
    assert held >= 800 * 0.95 - 4 * np.sqrt(800 * 0.95 * 0.05)


def test_nothing_jumps_at_the_end_of_the_scale():
    """No right answer of 49 in seven clusters, or one: the interval does not collapse."""
    none, one = (share(np.array([n, 0, 0, 0, 0, 0, 0.0]), np.full(7, 7.0)) for n in (0, 1))
    assert one.high > 0.6 * none.high


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


TRIALS = {"alone": (150, 1), "five of an image": (40, 5), "few images": (8, 6)}


@pytest.mark.parametrize("folds", [1, 3])
@pytest.mark.parametrize(("clusters", "each"), TRIALS.values(), ids=TRIALS)
@pytest.mark.parametrize("tie", [0.0, 0.5, 1.0])
def test_the_paired_interval_holds_the_truth_whatever_equal_scores_count(tie, clusters, each, folds):
    """Answers are right, wrong or equal, and alike within a cluster: one model has more of the equal, the other more right ones."""
    rng = np.random.default_rng(11)
    member = np.repeat(np.arange(clusters), each)
    fold = np.arange(len(member)) % folds
    worth = np.array([0.0, tie, 1.0])
    chances = np.array([[0.2, 0.6, 0.2], [0.3, 0.1, 0.6]])
    truth = float((chances[1] - chances[0]) @ worth)
    held, trials = 0, 500
    for _ in range(trials):
        alike = np.repeat(rng.random((2, clusters)), each, axis=1)
        drawn = np.where(rng.random(len(member)) < 0.5, alike, rng.random((2, len(member))))
        first, second = (worth[np.searchsorted(np.cumsum(p), u)] for p, u in zip(chances, drawn, strict=True))
        found = paired(first, second, member, fold)
        assert found.low <= found.value <= found.high
        held += found.low <= truth <= found.high
    assert held >= trials * 0.95 - 4 * np.sqrt(trials * 0.95 * 0.05)


def test_the_interval_of_a_mean_over_tiny_folds_holds_its_value():
    found = paired(np.zeros(40), np.ones(40), np.arange(40), np.arange(40))
    assert found.value == pytest.approx(1.0)
    assert found.low <= found.value <= found.high


@pytest.mark.parametrize("n", [1, 2, 5, 9, 12])
def test_few_clusters_are_turned_in_every_way(n):
    """As scipy counts them; with equal parts it is the sign test."""
    sums = np.random.default_rng(n).normal(0.5, 1, n)
    slow = stats.permutation_test((sums,), np.sum, permutation_type="samples", n_resamples=np.inf) if n > 1 else None
    assert turned(sums) == pytest.approx(1.0 if slow is None else slow.pvalue)
    assert turned(np.ones(n)) == pytest.approx(stats.binomtest(n, n).pvalue)


def test_the_test_over_clusters_holds_its_level_from_one_cluster_on():
    rng = np.random.default_rng(8)
    for n in (1, 2, 4, 6, 8, 13, 20):
        found = np.mean([turned(rng.choice([-1.0, 1.0], n)) < 0.05 for _ in range(2000)])
        assert found <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 2000), n


def test_what_p_is_of():
    """Half right answers have no table of wins and losses; where +1 is rare and -1/2 is common the mean tells nothing."""
    rng = np.random.default_rng(9)
    gap = rng.choice([1.0, -0.5, 0.0], p=[0.2, 0.4, 0.4], size=400)
    found = paired(np.maximum(-gap, 0), np.maximum(gap, 0), np.arange(400))
    assert (found.test.startswith("the test that turns"), found.clustered) == (True, None)
    assert found.p == pytest.approx(2 * stats.norm.sf(abs(gap.sum()) / np.sqrt((gap**2).sum())))
    assert mcnemar(int((gap < 0).sum()), int((gap > 0).sum())) < 1e-3  # as the sign test would have it
    assert paired(np.zeros(4), np.ones(4), np.arange(4)).test == "McNemar's exact test"


def test_the_test_over_clusters_keeps_its_level_where_mcnemars_does_not():
    """Two equally good models on 60 clusters of 10 trials that go together."""
    rng = np.random.default_rng(4)
    clusters = np.repeat(np.arange(60), 10)
    exact = over = 0
    for _ in range(400):
        lean = np.repeat(rng.random(60), 10)
        gap = np.where(rng.random(600) < 0.5, 0, np.where(rng.random(600) < lean, 1.0, -1.0))
        found = paired((gap < 0).astype(float), (gap > 0).astype(float), clusters)
        exact += found.p < 0.05
        over += found.clustered < 0.05
    assert over <= 400 * 0.05 + 4 * np.sqrt(400 * 0.05 * 0.95)
    assert exact > 400 * 0.1


def test_equal_models_cannot_be_told_apart_and_certain_differences_can():
    same = np.array([1.0, 0, 1, 1])
    found = paired(same, same, np.arange(4))
    assert (found.value, found.p, found.clustered) == (0.0, 1.0, None)
    assert found.low < 0 < found.high
    folds = np.arange(60) % 3
    macro = paired(np.zeros(60), np.ones(60), np.arange(60), folds)
    assert macro.value == pytest.approx(1)
    assert macro.p < 0.001
    assert macro.low < 0.99  # no certainty from sixty trials


def test_a_macro_difference_is_the_mean_of_the_categories_differences():
    rng = np.random.default_rng(5)
    first, second, folds = (
        rng.integers(0, 2, 90).astype(float),
        rng.integers(0, 2, 90).astype(float),
        np.repeat([0, 1, 2], [60, 20, 10]),
    )
    slow = np.mean([(second - first)[folds == f].mean() for f in range(3)])
    assert paired(first, second, np.arange(90), folds).value == pytest.approx(slow)


def test_what_stands_apart():
    assert apart(np.array([3, 0, 1]))
    assert not apart(np.array([3, 0, 3]))


def test_shares_by_group_are_the_metrics_by_group():
    rng = np.random.default_rng(3)
    scores, group = rng.integers(0, 5, (300, 2, 2)).astype(float), rng.integers(0, 3, 300)
    for g, found in enumerate(choice_shares(Outcomes.of(scores), ("i2t", "tneg2i"), group, 3)):
        mine = scores[group == g]
        own = (mine[:, 0, 0] > mine[:, 1, 0]) & (mine[:, 1, 1] > mine[:, 0, 1])
        assert found["i2t"].value == pytest.approx(own.mean())
        assert found["tneg2i"].value == pytest.approx((mine[:, 1, 1] > mine[:, 1, 0]).mean())
