"""The median rank: exact expectation under ties, interval, and difference of two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import gammaln, ndtr, stdtr, xlog1py, xlogy

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.metrics.cluster_bootstrap import CONFIDENCE_LEVEL
from crossmatch.metrics.paired_tests import Difference, min_p_value
from crossmatch.metrics.proportions import NORMAL_QUANTILE, clustered_mean, student_quantile
from crossmatch.metrics.retrieval import best_positive_group, first_rank_cdf
from crossmatch.ranking.ranks import Ranks

ROUNDING = 1e-9  # closer shares count as equal
MAX_T, T_STEPS = 40, 10_000  # Student's t of a difference is searched up to 40 in steps of a ten-thousandth
NEGLIGIBLE = 1e-13  # smaller probabilities count as 0
MIN_NORMAL_VARIANCE = 250  # variance of the number of events from which the normal approximation is used


def median_rank(ranks: Ranks) -> float:
    """Median over queries of the rank of the best positive; under ties its mean over all orders.

        E[med] = (E[X_(h)] + E[X_(h')]) / 2,    E[X_(h)] = Σ_r P(fewer than h queries have a rank of r or less)

    h and h' are the two middle positions (equal for an odd number of queries). The number of queries at rank r or better is a
    sum of independent Bernoulli variables, whose distribution is computed exactly; for more than about a thousand tied queries,
    by an approximation (`_normal_fewer_than`). The median of the mean ranks is a different number: with it, a random scorer with
    five positives per query would seem better than a constant one.
    Source: karpathy2015deep.

    >>> median_rank(Ranks.from_lists([[1], [7], [3], [5]]))
    4.0
    >>> median_rank(Ranks.all_tied([1, 1, 1], 9))      # three queries with all nine candidates tied
    5.0
    """
    a, n, p = best_positive_group(ranks)
    if not n.any():
        return float(np.median(a + 1))
    groups, times = np.unique(np.stack([a, n, p]), axis=1, return_counts=True)
    middle_positions = {(len(a) + 1) // 2, len(a) // 2 + 1}
    return float(np.mean([_expected_order_statistic(groups.tobytes(), times.tobytes(), h) for h in middle_positions]))


Folds: TypeAlias = Sequence[tuple[Ranks, IntArray]]  # ranks and clusters of each fold


def median_interval(folds: Folds) -> tuple[float, float, float]:
    """Median rank and its interval, from the ranks and clusters of each fold; with several folds, the mean of their medians.

    The interval inverts a test of the share F(r) of queries with a rank of r or better (woodruff1952confidence). It contains every
    r that can be the median if F deviates from the true shares by at most h:

        low = min{ r : F(r) >= 1/2 - h },    high = min{ r : F(r) > 1/2 + h },    h = z √(1 / (4 n*))

    n* is the effective number of queries of F at the median (`proportions.proportion`), so captions of an image count together.
    Under ties, F is the expected share. Ranks are integers, so the interval covers more than its level if many queries share the
    median rank. For a mean over F folds, which share no image, distances add up in squares (zou2008construction):

        mean ± √(Σ_f (m_f - end_f)²) / F

    >>> ranks = Ranks.from_lists([[n] for n in range(1, 101)])
    >>> median_interval([(ranks, np.arange(100))])
    (50.5, 41.0, 60.0)
    """
    medians, ends = [], []
    for ranks, clusters in folds:
        shares = _RankShares(ranks, clusters)
        medians.append(median_rank(ranks))
        ends.append(shares.median_ends(NORMAL_QUANTILE * shares.standard_error))
    return _mean_of_folds(medians, ends)


def median_difference(first: Folds, second: Folds, max_abs: float) -> Difference:
    """Difference of two median ranks of the same queries, second minus first, with interval and p-value.

    Two medians differ if their intervals are disjoint, for margins t σ₁ and t σ₂ of the shares that add up to t standard errors of
    the paired difference of the shares:

        σ₁ + σ₂ = √(s₁² + s₂² - 2 ρ s₁ s₂),    σ₁ / σ₂ = s₁ / s₂,    s = √(1 / (4 n*))

    ρ is the correlation between the shares of both models at their joint median, over clusters. The interval of the difference
    contains all differences of a rank in one interval and a rank in the other, for t = t(K - 1), and p = 2 P[ T(K - 1) > t ] for
    the largest t at which the intervals are disjoint. So p < .05 exactly if the interval excludes 0, also for small ranks, where
    a median moves in steps.

    >>> better, worse = (Ranks.from_lists([[n // s + 1] for n in range(100)], gallery=100) for s in (2, 1))
    >>> folds = [[(ranks, np.arange(100))] for ranks in (better, worse)]
    >>> difference = median_difference(*folds, max_abs=99)
    >>> difference.value, difference.low, difference.high, difference.p < 0.001
    (25.0, 18.0, 32.0, True)
    """
    pairs = [(_RankShares(*a), _RankShares(*b)) for a, b in zip(first, second, strict=True)]
    factors = [_paired_factor(a, b) for a, b in pairs]
    medians = [median_rank(b) - median_rank(a) for (a, _), (b, _) in zip(first, second, strict=True)]
    clusters = len(np.unique(np.concatenate([member for _, member in first])))

    def interval(t: float) -> tuple[float, float, float]:
        ends = []
        for (a, b), factor in zip(pairs, factors, strict=True):
            (low_a, high_a), (low_b, high_b) = (x.median_ends(t * factor * x.standard_error) for x in (a, b))
            ends.append((low_b - high_a, high_b - low_a))
        return _mean_of_folds(medians, ends)

    value, min_p = float(np.mean(medians)), min_p_value(clusters)
    if clusters < 2:
        return Difference(value, -max_abs, max_abs, 1.0, min_p)
    _, low, high = interval(student_quantile(clusters))
    if min_p >= 1 - CONFIDENCE_LEVEL:
        low, high = min(low, 0.0), max(high, 0.0)
    largest_t = _bisect_last(lambda n: _excludes_zero(interval(n / T_STEPS)), -1, MAX_T * T_STEPS) / T_STEPS
    p = 2 * float(stdtr(clusters - 1, -largest_t)) if value and largest_t > 0 else 1.0
    return Difference(value, max(-max_abs, low), min(max_abs, high), max(min_p, p), min_p)


def _excludes_zero(interval: tuple[float, float, float]) -> bool:
    return interval[1] > 0 or interval[2] < 0


def _mean_of_folds(values: Sequence[float], ends: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Mean and interval of independent estimates with intervals."""
    mean, centre, (low, high) = float(np.mean(values)), np.asarray(values), np.asarray(ends).T
    below, above = (
        float(np.sqrt(np.square(x).sum())) / len(values) for x in (np.minimum(0, low - centre), np.maximum(0, high - centre))
    )
    return mean, mean - below, mean + above


def _paired_factor(first: _RankShares, second: _RankShares) -> float:
    """(σ₁ + σ₂) / (s₁ + s₂) of `median_difference`."""
    middle = first.first_rank(lambda r: first.share(r) + second.share(r) >= 1 - ROUNDING)
    a, b = first.cluster_residuals(middle), second.cluster_residuals(middle)
    s, t = first.standard_error, second.standard_error
    product = float(np.sqrt((a @ a) * (b @ b)))
    correlation = float(a @ b) / product if product > 0 else 0.0
    return float(np.sqrt(max(0.0, s * s + t * t - 2 * correlation * s * t))) / (s + t)


class _RankShares:
    """The share of queries with a given rank or a better one: F(r), its standard error near 1/2, and the ranks near the median."""

    def __init__(self, ranks: Ranks, clusters: IntArray) -> None:
        self._group = above, negatives, positives = best_positive_group(ranks)
        is_tied = negatives > 0
        self._tied = above[is_tied], negatives[is_tied], positives[is_tied]
        self._untied_ranks = np.sort(above[~is_tied]) + 1
        self._clusters = clusters
        self._last_rank = int(ranks.gallery_size.max())
        self._shares: dict[int, float] = {}
        within = self._within(self.first_rank(lambda r: self.share(r) >= 0.5 - ROUNDING))
        self.standard_error = 0.5 / float(np.sqrt(clustered_mean([(within, clusters)]).effective))

    def median_ends(self, margin: float) -> tuple[float, float]:
        """Lowest and highest rank that can be the median if shares deviate by at most the margin."""
        return (
            float(self.first_rank(lambda r: self.share(r) >= 0.5 - margin - ROUNDING)),
            float(self.first_rank(lambda r: self.share(r) > 0.5 + margin + ROUNDING)),
        )

    def first_rank(self, condition: Callable[[int], bool]) -> int:
        """First rank at which a condition becomes true and stays so; the last rank if it never does."""
        return 1 + _bisect_last(lambda r: not condition(r), 0, self._last_rank - 1)

    def share(self, rank: int) -> float:
        if rank not in self._shares:
            tied = float(first_rank_cdf(self._tied[0], self._tied[1], self._tied[2], rank).sum()) if len(self._tied[0]) else 0.0
            untied = int(np.searchsorted(self._untied_ranks, rank, side="right"))
            self._shares[rank] = (tied + untied) / len(self._clusters)
        return self._shares[rank]

    def cluster_residuals(self, rank: int) -> FloatArray:
        """Queries with this rank or a better one in each cluster, minus the expected number."""
        member = np.unique(self._clusters, return_inverse=True)[1].ravel()
        return np.asarray(np.bincount(member, weights=self._within(rank) - self.share(rank)), dtype=np.float64)

    def _within(self, rank: int) -> FloatArray:
        return first_rank_cdf(*self._group, rank)


@lru_cache(maxsize=64)  # the chance level is the same for every model of a benchmark
def _expected_order_statistic(groups: bytes, multiplicity: bytes, h: int) -> float:
    """E[X_(h)] = Σ_{r >= 0} P(X_(h) > r), summed only where the probability is neither 0 nor 1."""
    a, n, p = np.frombuffer(groups, np.int64).reshape(3, -1)
    times = np.frombuffer(multiplicity, np.int64)

    def exceeds(r: int) -> float:
        return float(_fewer_than(h, first_rank_cdf(a, n, p, r)[None, :], times)[0])

    last_rank = int((a + n + 1).max())
    low = _bisect_last(lambda r: exceeds(r) >= 1 - NEGLIGIBLE, -1, last_rank)
    high = _bisect_last(lambda r: exceeds(r) > NEGLIGIBLE, low, last_rank)
    expected = low + 1.0
    step = max(1, 1_000_000 // int(times.sum()))
    for start in range(low + 1, high + 1, step):
        r = np.arange(start, min(start + step, high + 1))
        expected += float(_fewer_than(h, first_rank_cdf(a, n, p, r[:, None]), times).sum())
    return expected


def _bisect_last(condition: Callable[[int], bool], low: int, high: int) -> int:
    """Last integer in [low, high] at which a monotone condition (true, then false) is true."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if condition(middle) else (low, middle - 1)
    return low


def _fewer_than(h: int, probability: NDArray[np.float64], times: IntArray) -> FloatArray:
    """P(fewer than h independent events happen) for each row of probabilities; column g represents `times[g]` events."""
    is_certain = (probability >= 1).all(axis=0)
    h = h - int(times[is_certain].sum())
    is_uncertain = ~is_certain & (probability > 0).any(axis=0)
    if h <= 0:
        return np.zeros(len(probability))
    if times[is_uncertain].sum() < h:
        return np.ones(len(probability))
    if (probability[:, is_uncertain] * (1 - probability[:, is_uncertain]) @ times[is_uncertain]).min() > MIN_NORMAL_VARIANCE:
        return _normal_fewer_than(h, probability[:, is_uncertain], times[is_uncertain])
    return np.asarray(
        np.clip(_sum_distribution(probability[:, is_uncertain], times[is_uncertain])[:, :h].sum(axis=1), 0.0, 1.0), dtype=np.float64
    )


def _normal_fewer_than(h: int, probability: NDArray[np.float64], times: IntArray) -> FloatArray:
    """`_fewer_than` for many events, by the normal distribution with a skewness correction.

        P(S < h) = Φ(x) + γ (1 - x²) φ(x) / 6,      x = (h - 1/2 - μ) / σ,      γ the skewness of S

    The error falls with 1/σ² (volkova1996refinement). Where it is used, the relative error of a constant scorer's median is
    below 1e-6, which a test checks.
    """
    spread = probability * (1 - probability)
    variance = spread @ times
    skewness = (spread * (1 - 2 * probability)) @ times / variance**1.5
    x = (h - 0.5 - probability @ times) / np.sqrt(variance)
    density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    return np.asarray(np.clip(ndtr(x) + skewness * (1 - x**2) * density / 6, 0.0, 1.0), dtype=np.float64)


def _binomial(m: int, p: FloatArray) -> FloatArray:
    """P(k of m events of probability p happen) for k = 0 … m and each row."""
    k = np.arange(m + 1)
    ways = gammaln(m + 1) - gammaln(k + 1) - gammaln(m - k + 1)
    return np.asarray(np.exp(ways + xlogy(k, p) + xlog1py(m - k, -p)), dtype=np.float64)


def _sum_distribution(probability: NDArray[np.float64], times: IntArray) -> NDArray[np.float64]:
    """Poisson binomial distribution of the number of events: binomials, convolved shortest first."""
    heap: list[tuple[int, int, FloatArray]] = [
        (m, g, _binomial(m, probability[:, g : g + 1])) for g, m in enumerate(times.tolist())
    ]
    heapify(heap)
    while len(heap) > 1:
        m, g, left = heappop(heap)
        k, _, right = heappop(heap)
        length = m + k + 1
        fast = next_fast_len(length, real=True)
        product = np.asarray(irfft(np.multiply(rfft(left, fast), rfft(right, fast)), fast))[:, :length]
        heappush(heap, (m + k, g, product))
    return heap[0][2]
