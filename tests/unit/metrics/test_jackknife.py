"""Jackknife over clusters: against the formula, and coverage of intervals of correlations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.metrics.correlation.correlation_with_ratings import estimate_correlation
from crossmatch.metrics.correlation.replicated_correlations import COEFFICIENTS, replicated_correlations
from crossmatch.metrics.jackknife import ClusterJackknife, jackknife_interval


def simulate(rng: np.random.Generator, images: int) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
    """Three captions per image with three ratings from 1 to 4, and a strong and a weak metric, all with image effects."""
    image = np.repeat(np.arange(images), 3)
    quality = rng.normal(size=len(image)) + 0.7 * rng.normal(size=images)[image]
    strong, weak = (s * quality + rng.normal(size=len(image)) + 0.7 * rng.normal(size=images)[image] for s in (4.0, 1.0))
    human = np.clip(np.round(2.2 + 0.8 * quality[:, None] + 0.5 * rng.normal(size=(len(image), 3))), 1, 4)
    of = np.repeat(np.arange(len(image)), 3)
    return human.ravel(), strong[of], weak[of], image[of]


@pytest.mark.slow
@pytest.mark.parametrize(("images", "trials"), [(5, 300), (10, 300), (20, 300), (40, 200)])
def test_intervals_have_their_coverage_for_few_images(images: int, trials: int) -> None:
    """At least 90 % of the intervals of two correlations and of their difference, within three standard errors."""
    rng = np.random.default_rng(images)
    human, strong, weak, image = simulate(rng, 40_000)
    halves = ClusterJackknife.from_clusters(image, 2)
    first, second = (replicated_correlations(human, metric, halves)[0] for metric in (strong, weak))
    truth = np.stack([first, second, first - second])
    covered = np.zeros((3, 4))
    for _ in range(trials):
        human, strong, weak, image = simulate(rng, images)
        replicates = ClusterJackknife.from_clusters(image, 1000)
        (strong_value, first_without), (weak_value, second_without) = (
            replicated_correlations(human, metric, replicates) for metric in (strong, weak)
        )
        interval = (
            (strong_value, first_without, 1.0),
            (weak_value, second_without, 1.0),
            (strong_value - weak_value, first_without - second_without, 2.0),
        )
        for n, (value, without, max_abs) in enumerate(interval):
            spans = [jackknife_interval(float(v), w, max_abs) for v, w in zip(value, without, strict=True)]
            covered[n] += [span.low <= t <= span.high for span, t in zip(spans, truth[n], strict=True)]
    assert (covered / trials >= 0.9 - 3 * np.sqrt(0.9 * 0.1 / trials)).all(), covered / trials


def test_equal_metrics_are_rarely_significant() -> None:
    """Two metrics with the same error on 20 images: about 5 % of p below 0.05, and less than 10 %."""
    rng = np.random.default_rng(2)
    trials, wrong = 400, np.zeros(4)
    for _ in range(trials):
        human, _, _, image = simulate(rng, 20)
        candidates = [human + rng.normal(size=len(human)) + rng.normal(size=20)[image] for _ in range(2)]
        replicates = ClusterJackknife.from_clusters(image, 1000)
        (first, first_without), (second, second_without) = (
            replicated_correlations(human, metric, replicates) for metric in candidates
        )
        wrong += [
            jackknife_interval(float(a - b), c - d, 2.0).p < 0.05
            for a, b, c, d in zip(first, second, first_without, second_without, strict=True)
        ]
    assert (wrong / trials <= 0.07 + 3 * np.sqrt(0.07 * 0.93 / trials)).all(), wrong / trials


def test_interval_equals_estimate_correlation() -> None:
    """The same method in another module, with one group per cluster."""
    human, metric, _, image = simulate(np.random.default_rng(3), 30)
    values, without = replicated_correlations(human, metric, ClusterJackknife.from_clusters(image, 100))
    for name, slow in (("tau-b", "kendall"), ("spearman", "spearman"), ("pearson", "pearson")):
        at = COEFFICIENTS.index(name)
        interval, estimate = jackknife_interval(float(values[at]), without[at]), estimate_correlation(slow, image, human, metric)
        assert (interval.low, interval.high) == pytest.approx((estimate.low, estimate.high), abs=1e-9)


def test_p_of_a_mean_equals_students() -> None:
    """A mean without one of n is (n m - x) / (n - 1): the jackknife's error is the standard error."""
    x = np.random.default_rng(4).normal(0.4, 1, 25)
    interval = jackknife_interval(float(x.mean()), (x.sum() - x) / 24, 9.0)
    slow = stats.ttest_1samp(x, 0)
    assert interval.p == pytest.approx(slow.pvalue)
    assert (interval.low, interval.high) == pytest.approx(tuple(slow.confidence_interval()))


def test_groups_share_the_clusters() -> None:
    replicates = ClusterJackknife.from_clusters(np.repeat(np.arange(50), 2), groups=8, seed=1)
    times = next(iter(replicates))
    assert times.shape == (8, 50)
    assert ((times == 0).sum(axis=0) == 1).all()
    assert set((times == 0).sum(axis=1).tolist()) == {6, 7}
    assert (times != next(iter(ClusterJackknife.from_clusters(np.arange(50), groups=8, seed=2)))).any()


def test_undefined_replicates_have_the_widest_interval() -> None:
    for without in (np.array([0.5]), np.array([0.5, np.nan, 0.4])):
        interval = jackknife_interval(0.5, without)
        assert (interval.low, interval.high, interval.p) == (-1.0, 1.0, 1.0)
    certain = jackknife_interval(0.5, np.full(6, 0.5))
    assert (certain.low, certain.high, certain.p, certain.min_p) == (0.5, 0.5, 1 / 32, 1 / 32)
    few = jackknife_interval(0.5, np.full(5, 0.5))
    assert (few.low, few.high, few.p, few.min_p) == (0.0, 1.0, 1 / 16, 1 / 16)  # p and interval agree
    assert jackknife_interval(0.0, np.zeros(9)).p == 1.0
    assert jackknife_interval(2e-16, np.full(9, 2e-16)).p == 1.0  # rounding
