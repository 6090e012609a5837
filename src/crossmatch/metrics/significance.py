"""How sure a number is: bootstrap over clusters of queries, and the paired comparison of two results.

Captions of one image are not independent, so whole images are drawn: a replicate takes as many clusters as there are, with
replacement, and every query counts as often as its cluster was drawn (field2007bootstrapping; efron1993introduction, ch. 6).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.ranks import Ranks
from crossmatch.metrics.ranking import first_group, first_rank_cdf
from crossmatch.metrics.table import Metric

SAMPLES = 1000
LEVEL = 0.95


def draws(clusters: IntArray, samples: int = SAMPLES, seed: int = 0) -> NDArray[np.int32]:
    """How often each query counts in each replicate; shape (samples, queries).

    >>> draws(np.array([0, 0, 7]), samples=2).sum(axis=1) >= 2      # two clusters, one of two queries
    array([ True,  True])
    """
    unique, member = np.unique(clusters, return_inverse=True)
    n = len(unique)
    times = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=samples).astype(np.int32)
    return times[:, member]


def replicates(metric: Metric, values: FloatArray, times: NDArray[np.int32], ranks: Ranks | None = None, seed: int = 0) -> FloatArray:
    """The metric in each replicate. For the median, tied ranks are drawn anew each time, so that chance in ties shows too."""
    if metric.aggregate == "median" and ranks is not None:
        return _medians(ranks, times, seed)
    return (times @ values) / times.sum(axis=1)


def interval(found: FloatArray, level: float = LEVEL) -> tuple[float, float]:
    """The percentile interval of the replicates.

    >>> interval(np.arange(101.0), 0.9)
    (5.0, 95.0)
    """
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Difference:
    """The second result minus the first, with its interval and the two-sided p-value of the paired bootstrap."""

    value: float
    low: float
    high: float
    p: float


def compare_replicates(first: FloatArray, second: FloatArray, value: float) -> Difference:
    """Paired bootstrap: both sides in the same replicates; p is twice the smaller share of replicates on one side of zero.

    One replicate is added to either side, so that p is never zero (davison1997bootstrap, sec. 4.2.3).
    """
    if first.shape != second.shape:
        raise CrossmatchError(f"{first.shape} replicates cannot be paired with {second.shape}. Use the same number of samples.")
    gap = second - first
    n = len(gap)
    p = 2 * min(((gap <= 0).sum() + 1) / (n + 1), ((gap >= 0).sum() + 1) / (n + 1))
    return Difference(value, *interval(gap), min(1.0, float(p)))


def _medians(ranks: Ranks, times: NDArray[np.int32], seed: int) -> FloatArray:
    a, n, p = first_group(ranks)
    rng = np.random.default_rng([seed, 1])
    tied = np.flatnonzero(n > 0)
    out = np.empty(len(times))
    order = np.argsort(a, kind="stable")
    place = (a + 1).astype(np.float64)
    for b, weight in enumerate(times):
        if len(tied):
            place = (a + 1).astype(np.float64)
            place[tied] = _draw_first_ranks(a[tied], n[tied], p[tied], rng)
            order = np.argsort(place, kind="stable")
        reach = np.cumsum(weight[order])
        total = reach[-1]
        low, high = np.searchsorted(reach, [(total + 1) // 2, total // 2 + 1])
        out[b] = (place[order[low]] + place[order[high]]) / 2
    return out


def _draw_first_ranks(a: IntArray, n: IntArray, p: IntArray, rng: np.random.Generator) -> IntArray:
    """One draw of the best positive's rank for each query, by bisection of its distribution."""
    u = rng.random(len(a))
    low, high = np.zeros_like(a), n + 1  # the rank is a + high; below low it is not
    while (high - low > 1).any():
        middle = (low + high) // 2
        reached = first_rank_cdf(a, n, p, a + middle) >= u
        high, low = np.where(reached, middle, high), np.where(reached, low, middle)
    return a + high
