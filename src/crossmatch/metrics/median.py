"""The median rank, exactly, when ties leave the rank of each query's best positive to chance."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import gammaln, ndtr, xlog1py, xlogy

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.ranks import Ranks
from crossmatch.metrics.ranking import first_group, first_rank_cdf

NEGLIGIBLE = 1e-13  # a probability that changes no digit anyone reads
MANY = 250  # variance of the number of events from which their distribution is as good as known


def median_rank(ranks: Ranks) -> float:
    """The median over queries of the rank of the best positive; under ties its mean over all orders.

        E[med] = (E[X_(h)] + E[X_(h')]) / 2,    E[X_(h)] = Σ_r P(fewer than h queries have a rank of r or less)

    with h, h' the two middle places (equal for an odd number of queries). The number of queries at rank r or better is
    a sum of independent yes-or-no variables, whose distribution is computed exactly (for more than a thousand tied queries or so
    nearly so, see `_nearly_fewer_than`). The median of the mean ranks would
    be another number: a random scorer with five positives per query would seem to beat it.
    Source: karpathy2015deep.

    >>> median_rank(Ranks.of([[1], [7], [3], [5]]))
    4.0
    >>> median_rank(Ranks.level([1, 1, 1], 9))      # three constant queries over nine candidates
    5.0
    """
    a, n, p = first_group(ranks)
    if not n.any():
        return float(np.median(a + 1))
    groups, times = np.unique(np.stack([a, n, p]), axis=1, return_counts=True)
    places = {(len(a) + 1) // 2, len(a) // 2 + 1}
    return float(np.mean([_expected_order_statistic(groups.tobytes(), times.tobytes(), h) for h in places]))


@lru_cache(maxsize=64)  # chance is the same for every model on a benchmark
def _expected_order_statistic(groups: bytes, multiplicity: bytes, h: int) -> float:
    """E[X_(h)] = Σ_{r >= 0} P(X_(h) > r), summed only where the probability is neither 0 nor 1."""
    a, n, p = np.frombuffer(groups, np.int64).reshape(3, -1)
    times = np.frombuffer(multiplicity, np.int64)

    def late(r: int) -> float:
        return float(_fewer_than(h, first_rank_cdf(a, n, p, r)[None, :], times)[0])

    top = int((a + n + 1).max())
    low = _last_where(lambda r: late(r) >= 1 - NEGLIGIBLE, -1, top)
    high = _last_where(lambda r: late(r) > NEGLIGIBLE, low, top)
    expected = low + 1.0
    step = max(1, 1_000_000 // int(times.sum()))
    for at in range(low + 1, high + 1, step):
        r = np.arange(at, min(at + step, high + 1))
        expected += float(_fewer_than(h, first_rank_cdf(a, n, p, r[:, None]), times).sum())
    return expected


def _last_where(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The last integer in low … high at which a condition holds that is true up to some point and false after."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _fewer_than(h: int, chance: NDArray[np.float64], times: IntArray) -> FloatArray:
    """P(fewer than h of independent events happen), for each row of probabilities; column g stands for `times[g]` events."""
    certain = (chance >= 1).all(axis=0)
    h = h - int(times[certain].sum())
    kept = ~certain & (chance > 0).any(axis=0)
    if h <= 0:
        return np.zeros(len(chance))
    if times[kept].sum() < h:
        return np.ones(len(chance))
    if (chance[:, kept] * (1 - chance[:, kept]) @ times[kept]).min() > MANY:
        return _nearly_fewer_than(h, chance[:, kept], times[kept])
    return np.asarray(np.clip(_sum_distribution(chance[:, kept], times[kept])[:, :h].sum(axis=1), 0.0, 1.0), dtype=np.float64)


def _nearly_fewer_than(h: int, chance: NDArray[np.float64], times: IntArray) -> FloatArray:
    """The same for many events, by the normal distribution with a correction for skewness.

        P(S < h) = Φ(x) + γ (1 - x²) φ(x) / 6,      x = (h - 1/2 - μ) / σ,      γ the skewness of S

    Its error falls with 1/σ² (volkova1996refinement); where it is used, the median of a constant scorer is off by less than a
    millionth of its value (a test holds that), and takes milliseconds instead of seconds.
    """
    spread = chance * (1 - chance)
    variance = spread @ times
    skewness = (spread * (1 - 2 * chance)) @ times / variance**1.5
    x = (h - 0.5 - chance @ times) / np.sqrt(variance)
    density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    return np.asarray(np.clip(ndtr(x) + skewness * (1 - x**2) * density / 6, 0.0, 1.0), dtype=np.float64)


def _binomial(m: int, p: FloatArray) -> FloatArray:
    """P(k of m events of probability p happen), k = 0 … m, for each row."""
    k = np.arange(m + 1)
    ways = gammaln(m + 1) - gammaln(k + 1) - gammaln(m - k + 1)
    return np.asarray(np.exp(ways + xlogy(k, p) + xlog1py(m - k, -p)), dtype=np.float64)


def _sum_distribution(chance: NDArray[np.float64], times: IntArray) -> NDArray[np.float64]:
    """The distribution of the number of events (Poisson binomial): binomial ones, convolved shortest first."""
    heap: list[tuple[int, int, FloatArray]] = [(m, g, _binomial(m, chance[:, g : g + 1])) for g, m in enumerate(times.tolist())]
    heapify(heap)
    while len(heap) > 1:
        m, g, left = heappop(heap)
        k, _, right = heappop(heap)
        length = m + k + 1
        fast = next_fast_len(length, real=True)
        product = np.asarray(irfft(np.multiply(rfft(left, fast), rfft(right, fast)), fast))[:, :length]
        heappush(heap, (m + k, g, product))
    return heap[0][2]
