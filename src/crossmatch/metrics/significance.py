"""How sure a number is: bootstrap over clusters of queries, and the paired comparison of two results.

Captions of one image are not independent, so whole images are drawn: a replicate takes as many clusters as there are, with
replacement, and every query counts as often as its cluster was drawn (field2007bootstrapping; efron1993introduction, ch. 6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.ranks import Ranks
from crossmatch.metrics.ranking import first_group, first_rank_cdf
from crossmatch.metrics.table import Metric

SAMPLES = 1000
LEVEL = 0.95
FARTHEST = 1e-6  # no p from the tail of a normal or Student's distribution is told smaller: so far out it is an assumption
CHUNK = 1000  # replicates held in memory at a time


@dataclass(frozen=True, eq=False)
class Draws:
    """Replicates to come: the cluster of each query, and how often each cluster is drawn, made anew from the seed each time.

    >>> draws = Draws.of(np.array([4, 4, 7]), samples=3)
    >>> draws.clusters, [int(times.sum()) for times in np.concatenate(list(draws))]
    (2, [2, 2, 2])
    """

    member: IntArray
    clusters: int
    samples: int
    seed: int

    @classmethod
    def of(cls, clusters: IntArray, samples: int = SAMPLES, seed: int = 0) -> Draws:
        unique, member = np.unique(clusters, return_inverse=True)
        return cls(member.ravel(), len(unique), samples, seed)

    def among(self, queries: IntArray) -> Draws:
        """The same replicates for some of the queries."""
        return replace(self, member=self.member[queries])

    def __iter__(self) -> Iterator[FloatArray]:
        """Blocks of shape (replicates, clusters)."""
        return iter(_kept(self)) if self.samples <= CHUNK else self._made()

    def _made(self) -> Iterator[FloatArray]:
        rng, n = np.random.default_rng(self.seed), self.clusters
        for at in range(0, self.samples, CHUNK):
            size = min(CHUNK, self.samples - at)
            drawn = rng.integers(0, n, (size, n)) + n * np.arange(size)[:, None]
            yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


@lru_cache(maxsize=2)
def _kept_draws(clusters: int, samples: int, seed: int) -> tuple[FloatArray, ...]:
    """The same draws serve all metrics of a part, and both directions of a collection."""
    return tuple(Draws(np.zeros(0, np.int64), clusters, samples, seed)._made())


def _kept(draws: Draws) -> tuple[FloatArray, ...]:
    return _kept_draws(draws.clusters, draws.samples, draws.seed)


def replicates(metric: Metric, values: FloatArray, draws: Draws, ranks: Ranks | None = None) -> FloatArray:
    """The metric in each replicate.

    The median is no mean, and its expected value over tie orders in every replicate is out of reach; there tied ranks are drawn
    once in each replicate. The interval of a median under ties therefore holds the luck of the ties too, and is wider.
    """
    if metric.aggregate == "median" and ranks is not None:
        return _medians(ranks, draws)
    return np.asarray(replicate_means([values], draws)[0], dtype=np.float64)


def replicate_means(values: Sequence[FloatArray], draws: Draws) -> FloatArray:
    """The means of several lists of values in each replicate, shape (lists, replicates)."""
    sums = np.stack([np.bincount(draws.member, weights=v, minlength=draws.clusters) for v in (*values, np.ones(len(draws.member)))])
    totals = np.concatenate([times @ sums.T for times in draws])
    with np.errstate(invalid="ignore"):  # none of these queries drawn: NaN, of which only folds know what to do
        return np.asarray((totals[:, :-1] / totals[:, -1:]).T, dtype=np.float64)


def interval(found: FloatArray, level: float = LEVEL) -> tuple[float, float]:
    """The percentile interval of the replicates.

    >>> interval(np.arange(101.0), 0.5)
    (25.0, 75.0)
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
    floor: float = 0.0  # the smallest p that so many replicates, or clusters, can tell
    clustered: float | None = None  # p of a second test, which does not take trials as independent
    test: str = ""  # what gave p, where one function has several tests


def compare_replicates(first: FloatArray, second: FloatArray, value: float) -> Difference:
    """Paired bootstrap: both sides in the same replicates; p is twice the smaller share of replicates on one side of zero.

    That is the level at which the percentile interval of the difference just reaches zero (efron1993introduction, ch. 15).
    One replicate is added to either side, so p is never zero, and never below 2 / (replicates + 1).
    """
    if first.shape != second.shape:
        raise CrossmatchError(f"{first.shape} replicates cannot be paired with {second.shape}. Use the same number of samples.")
    gap = second - first
    n = len(gap)
    p = 2 * min(((gap <= 0).sum() + 1) / (n + 1), ((gap >= 0).sum() + 1) / (n + 1))
    return Difference(value, *interval(gap), min(1.0, float(p)), 2 / (n + 1))


def compare_clusters(first: FloatArray, second: FloatArray, value: float, clusters: int) -> Difference:
    """`compare_replicates` for many tests at once: p can be smaller than replicates can count.

    With n replicates no p is below 2 / (n + 1), and Holm's correction over m tests multiplies that by m: 1,000 replicates could not
    tell any of 26 differences at 5 %, however large. So where no replicate lies on the other side of zero,

        p = 2 P[ T(K - 1) > |value| / s ],    at most 2 / (n + 1),

    with s the bootstrap's standard error, that of K clusters (its variance times K / (K - 1)). It takes the difference as near
    normal so far out, which is all that is known there. No p is below what so many clusters can tell (`surest`); that is `floor`.
    The interval is that of `compare_replicates`.

    >>> drawn = np.random.default_rng(0).normal(0.4, 0.1, 1000)       # four standard errors from zero
    >>> one, two = compare_replicates(0 * drawn, drawn, 0.4), compare_clusters(0 * drawn, drawn, 0.4, 400)
    >>> f"{one.p:.1e} {two.p:.1e} {compare_clusters(0 * drawn, drawn, 0.4, 6).p:.1e}"
    '2.0e-03 5.2e-05 3.1e-02'
    """
    counted = compare_replicates(first, second, value)
    error = float((second - first).std() * np.sqrt(clusters / max(1, clusters - 1)))
    p = counted.p
    if p <= counted.floor and error > 0:
        p = min(p, 2 * float(stdtr(max(1, clusters - 1), -abs(value) / error)))
    floor = surest(clusters)
    return replace(counted, p=max(floor, p), floor=floor)


def surest(clusters: int) -> float:
    """The smallest two-sided p that so many clusters can tell: 2^(1 - K), as of a test that turns their signs around, or FARTHEST.

    >>> surest(1), surest(5), surest(1000)
    (1.0, 0.0625, 1e-06)
    """
    return max(FARTHEST, 2.0 ** (1 - max(1, clusters))) if clusters < 64 else FARTHEST


def _medians(ranks: Ranks, draws: Draws) -> FloatArray:
    a, n, p = first_group(ranks)
    tied = np.flatnonzero(n > 0)
    if not len(tied):
        return _weighted_medians(a + 1, draws)
    rng = np.random.default_rng([draws.seed, 1])
    place = a + 1
    order = np.argsort(place, kind="stable")
    out = []
    for block in draws:
        drawn = _draw_first_ranks(a[tied], n[tied], p[tied], len(block), rng)
        for b, times in enumerate(block):
            if len(tied):
                place[tied] = drawn[:, b]
                order = np.argsort(place, kind="stable")
            reach = np.cumsum(times[draws.member[order]])
            if not reach[-1]:
                out.append(np.nan)
                continue
            low, high = np.searchsorted(reach, [(reach[-1] + 1) // 2, reach[-1] // 2 + 1])
            out.append((place[order[low]] + place[order[high]]) / 2)
    return np.asarray(out)


def _weighted_medians(place: IntArray, draws: Draws) -> FloatArray:
    """The median of untied ranks in each replicate, from how many queries of each cluster are at or below a few ranks only.

    Medians of replicates lie close together, so a narrow window of ranks around the median of all holds nearly all of them; it is
    widened until it holds every one.
    """
    values = np.unique(place)
    middle, reach = int(np.searchsorted(values, np.median(place))), 16
    while True:
        window = values[max(0, middle - reach) : middle + reach + 1]
        at_most = np.searchsorted(window, place)  # the first of the window that is not below
        counts = np.zeros((draws.clusters, len(window) + 1))
        np.add.at(counts, (draws.member, at_most), 1.0)
        reached = np.concatenate([times @ counts for times in draws]).cumsum(axis=1)  # (replicates, window + 1)
        total = reached[:, -1]
        ends = [(total + 1) // 2, total // 2 + 1]
        inside = [(total == 0) | (window[0] == values[0]) | (reached[:, 0] < end) for end in ends]
        inside += [(total == 0) | (window[-1] == values[-1]) | (reached[:, -2] >= end) for end in ends]
        if np.all(inside):
            break
        reach *= 4
    low, high = (window[np.minimum((reached < end[:, None]).sum(axis=1), len(window) - 1)] for end in ends)
    return np.where(total > 0, (low + high) / 2, np.nan)


def _draw_first_ranks(a: IntArray, n: IntArray, p: IntArray, samples: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draws of the best positive's rank, shape (queries, samples), from its distribution; equal distributions are made once."""
    drawn = np.empty((len(a), samples), dtype=np.int32)
    shapes, member = np.unique(np.stack([n, p]), axis=1, return_inverse=True)
    for shape, (negatives, positives) in enumerate(shapes.T.tolist()):
        chosen = np.flatnonzero(member.ravel() == shape)
        reach = first_rank_cdf(np.int64(0), np.int64(negatives), np.int64(positives), np.arange(1, negatives + 2))
        drawn[chosen] = a[chosen, None] + 1 + np.searchsorted(reach, rng.random((len(chosen), samples)), "right")
    return drawn


def holm(p: list[float]) -> list[float]:
    """Holm's step-down correction for several tests at once (holm1979simple).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, largest = [0.0] * len(p), 0.0
    for step, at in enumerate(sorted(range(len(p)), key=lambda n: p[n])):
        largest = max(largest, min(1.0, (len(p) - step) * p[at]))
        adjusted[at] = round(largest, 12)
    return adjusted
