"""Leaving out clusters in turn: against the formula, and how often the interval of a correlation holds the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.metrics.concordance import COEFFICIENTS, correlations
from crossmatch.metrics.correlation import estimate
from crossmatch.metrics.jackknife import LeftOut, jackknife
from crossmatch.metrics.significance import Draws, interval


def made(rng: np.random.Generator, images: int) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
    """Three captions of each image with three ratings of one to four; a strong and a weak metric; images differ in all of it."""
    image = np.repeat(np.arange(images), 3)
    quality = rng.normal(size=len(image)) + 0.7 * rng.normal(size=images)[image]
    strong, weak = (s * quality + rng.normal(size=len(image)) + 0.7 * rng.normal(size=images)[image] for s in (4.0, 1.0))
    human = np.clip(np.round(2.2 + 0.8 * quality[:, None] + 0.5 * rng.normal(size=(len(image), 3))), 1, 4)
    of = np.repeat(np.arange(len(image)), 3)
    return human.ravel(), strong[of], weak[of], image[of]


@pytest.mark.parametrize(("images", "trials"), [(5, 300), (10, 300), (20, 300), (40, 200)])
def test_intervals_hold_the_truth_for_few_images(images: int, trials: int) -> None:
    """At least 90 % of the intervals of two correlations and of their difference, within three standard errors."""
    rng = np.random.default_rng(images)
    human, strong, weak, image = made(rng, 40_000)
    once = LeftOut.of(image, 2)
    first, second = (correlations(human, metric, once)[0] for metric in (strong, weak))
    truth = np.stack([first, second, first - second])
    held = np.zeros((3, 4))
    for _ in range(trials):
        human, strong, weak, image = made(rng, images)
        left = LeftOut.of(image, 1000)
        (one, one_left), (two, two_left) = (correlations(human, metric, left) for metric in (strong, weak))
        found = ((one, one_left, 1.0), (two, two_left, 1.0), (one - two, one_left - two_left, 2.0))
        for n, (value, without, most) in enumerate(found):
            spans = [jackknife(float(v), w, most) for v, w in zip(value, without, strict=True)]
            held[n] += [span.low <= t <= span.high for span, t in zip(spans, truth[n], strict=True)]
    assert (held / trials >= 0.9 - 3 * np.sqrt(0.9 * 0.1 / trials)).all(), held / trials


def test_percentiles_of_the_bootstrap_would_not() -> None:
    """Why they were given up: tau-c of ten images, a strong metric."""
    rng = np.random.default_rng(1)
    human, strong, _, image = made(rng, 40_000)
    truth = correlations(human, strong, LeftOut.of(image, 2), ("tau-c",))[0][0]
    held = 0
    for seed in range(200):
        human, strong, _, image = made(rng, 10)
        low, high = interval(correlations(human, strong, Draws.of(image, 200, seed), ("tau-c",))[1][0])
        held += low <= truth <= high
    assert held / 200 < 0.9


def test_equally_good_metrics_are_seldom_told_apart() -> None:
    """Two metrics with the same error on 20 images: 5 % of p below 0.05, a few more for so few images, but not 10 %."""
    rng = np.random.default_rng(2)
    trials, wrong = 400, np.zeros(4)
    for _ in range(trials):
        human, _, _, image = made(rng, 20)
        both = [human + rng.normal(size=len(human)) + rng.normal(size=20)[image] for _ in range(2)]
        left = LeftOut.of(image, 1000)
        (one, one_left), (two, two_left) = (correlations(human, metric, left) for metric in both)
        wrong += [jackknife(float(a - b), c - d, 2.0).p < 0.05 for a, b, c, d in zip(one, two, one_left, two_left, strict=True)]
    assert (wrong / trials <= 0.07 + 3 * np.sqrt(0.07 * 0.93 / trials)).all(), wrong / trials


def test_equals_the_estimate_of_pairs() -> None:
    """The same method by the other code, where each cluster is a group."""
    human, metric, _, image = made(np.random.default_rng(3), 30)
    values, without = correlations(human, metric, LeftOut.of(image, 100))
    for name, slow in (("tau-b", "kendall"), ("spearman", "spearman"), ("pearson", "pearson")):
        at = COEFFICIENTS.index(name)
        found, other = jackknife(float(values[at]), without[at]), estimate(slow, image, human, metric)
        assert (found.low, found.high) == pytest.approx((other.low, other.high), abs=1e-9)


def test_p_of_a_mean_is_students() -> None:
    """A mean without one of n is (n m - x) / (n - 1): the jackknife's error is the standard error."""
    x = np.random.default_rng(4).normal(0.4, 1, 25)
    found = jackknife(float(x.mean()), (x.sum() - x) / 24, 9.0)
    slow = stats.ttest_1samp(x, 0)
    assert found.p == pytest.approx(slow.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(slow.confidence_interval()))


def test_groups_share_the_clusters() -> None:
    left = LeftOut.of(np.repeat(np.arange(50), 2), groups=8, seed=1)
    times = next(iter(left))
    assert times.shape == (8, 50)
    assert ((times == 0).sum(axis=0) == 1).all()
    assert set((times == 0).sum(axis=1).tolist()) == {6, 7}
    assert (times != next(iter(LeftOut.of(np.arange(50), groups=8, seed=2)))).any()


def test_what_cannot_be_told() -> None:
    for without in (np.array([0.5]), np.array([0.5, np.nan, 0.4])):
        found = jackknife(0.5, without)
        assert (found.low, found.high, found.p) == (-1.0, 1.0, 1.0)
    certain = jackknife(0.5, np.full(5, 0.5))
    assert (certain.low, certain.high, certain.p, certain.floor) == (0.5, 0.5, 0.0625, 0.0625)
    assert jackknife(0.0, np.zeros(9)).p == 1.0
    assert jackknife(2e-16, np.full(9, 2e-16)).p == 1.0  # rounding
