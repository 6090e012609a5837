"""The median rank, exactly, when ties leave the rank of each query's best positive to chance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.ranks import Ranks
from crossmatch.metrics.ranking import first_group, first_rank_cdf

NEGLIGIBLE = 1e-15


def median_rank(ranks: Ranks) -> float:
    """The median over queries of the rank of the best positive; under ties its mean over all orders.

        E[med] = (E[X_(h)] + E[X_(h')]) / 2,    E[X_(h)] = Σ_r P(fewer than h queries have a rank of r or less)

    with h, h' the two middle places (equal for an odd number of queries). The number of queries at rank r or better is
    a sum of independent yes-or-no variables, whose distribution is computed exactly. The median of the mean ranks would
    be another number: a random scorer with five positives per query would seem to beat it.
    Source: karpathy2015deep, sec. 4.2.

    >>> median_rank(Ranks.of([[1], [7], [3], [5]]))
    4.0
    >>> median_rank(Ranks.level([1, 1, 1], 9))      # three constant queries over nine candidates
    5.0
    """
    a, n, p = first_group(ranks)
    queries = len(a)
    if not n.any():
        return float(np.median(a + 1))
    places = ((queries + 1) // 2, queries // 2 + 1)
    return float(np.mean([_expected_order_statistic(a, n, p, h) for h in places]))


def _expected_order_statistic(a: IntArray, n: IntArray, p: IntArray, h: int) -> float:
    """E[X_(h)] = Σ_{r >= 0} P(X_(h) > r), summed only where the probability is neither 0 nor 1."""

    def late(r: int) -> float:
        return float(_fewer_than(h, first_rank_cdf(a, n, p, r)[None, :])[0])

    top = int((a + n + 1).max())
    low = _last_where(lambda r: late(r) >= 1 - NEGLIGIBLE, -1, top)
    high = _last_where(lambda r: late(r) > NEGLIGIBLE, low, top)
    expected = low + 1.0
    step = max(1, 2_000_000 // len(a))
    for at in range(low + 1, high + 1, step):
        r = np.arange(at, min(at + step, high + 1))
        expected += float(_fewer_than(h, first_rank_cdf(a, n, p, r[:, None])).sum())
    return expected


def _last_where(holds, low: int, high: int) -> int:  # type: ignore[no-untyped-def]
    """The last integer in low … high at which a condition holds that is true up to some point and false after."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def _fewer_than(h: int, chance: NDArray[np.float64]) -> FloatArray:
    """P(fewer than h of independent events happen), for each row of probabilities (the Poisson binomial distribution)."""
    certain = (chance >= 1).all(axis=0)
    h = h - int(certain.sum())
    open_ = chance[:, ~certain & (chance > 0).any(axis=0)]
    if h <= 0:
        return np.zeros(len(chance))
    if open_.shape[1] < h:
        return np.ones(len(chance))
    return np.clip(_sum_distribution(open_)[:, :h].sum(axis=1), 0.0, 1.0)


def _sum_distribution(chance: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distribution of the number of events: polynomials 1 - p + p·x multiplied in pairs, by FFT once they are long."""
    parts = np.stack([1 - chance, chance], axis=-1)  # rows x polynomials x coefficients
    while parts.shape[1] > 1:
        if parts.shape[1] % 2:
            one = np.zeros_like(parts[:, :1])
            one[..., 0] = 1.0
            parts = np.concatenate([parts, one], axis=1)
        left, right = parts[:, 0::2], parts[:, 1::2]
        length = 2 * parts.shape[2] - 1
        if length <= 32:
            product = np.zeros((*left.shape[:2], length))
            for k in range(left.shape[2]):
                product[..., k : k + right.shape[2]] += left[..., k : k + 1] * right
        else:
            product = np.fft.irfft(np.fft.rfft(left, length) * np.fft.rfft(right, length), length)
        parts = product
    return parts[:, 0]
