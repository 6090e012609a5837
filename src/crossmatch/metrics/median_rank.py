"""The exact expected median rank when ties make the rank of each query's best positive random."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import gammaln, ndtr, xlog1py, xlogy

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.metrics.retrieval import best_positive_group, first_rank_cdf
from crossmatch.ranking.ranks import Ranks

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
