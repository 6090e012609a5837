"""Bootstrap over clusters of queries.

Captions of one image are not independent, so whole clusters are drawn: a replicate draws as many clusters as there are, with
replacement, and every query is weighted by how often its cluster was drawn (field2007bootstrapping; efron1993introduction, ch. 6).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.metrics.metric_table import Metric
from crossmatch.metrics.retrieval import best_positive_group, first_rank_cdf
from crossmatch.ranking.ranks import Ranks

DEFAULT_SAMPLES = 1000
CONFIDENCE_LEVEL = 0.95
REPLICATES_PER_BLOCK = 1000


@dataclass(frozen=True, eq=False)
class ClusterBootstrap:
    """Bootstrap replicates over clusters, drawn again from the seed on every iteration.

    Attributes:
        cluster_index: Cluster of each query, numbered from 0.
        cluster_count: Number of clusters.
        samples: Number of replicates.
        seed: Seed of the draws.

    >>> draws = ClusterBootstrap.from_clusters(np.array([4, 4, 7]), samples=3)
    >>> draws.cluster_count, [int(times.sum()) for times in np.concatenate(list(draws))]
    (2, [2, 2, 2])
    """

    cluster_index: IntArray
    cluster_count: int
    samples: int
    seed: int

    @classmethod
    def from_clusters(cls, clusters: IntArray, samples: int = DEFAULT_SAMPLES, seed: int = 0) -> ClusterBootstrap:
        unique, member = np.unique(clusters, return_inverse=True)
        return cls(member.ravel(), len(unique), samples, seed)

    def select(self, queries: IntArray) -> ClusterBootstrap:
        """The same replicates for a subset of the queries."""
        return replace(self, cluster_index=self.cluster_index[queries])

    def __iter__(self) -> Iterator[FloatArray]:
        """Yield blocks of cluster weights, shape (replicates, clusters)."""
        return (
            iter(_cached_draws(self.cluster_count, self.samples, self.seed))
            if self.samples <= REPLICATES_PER_BLOCK
            else self._draw()
        )

    def _draw(self) -> Iterator[FloatArray]:
        rng, n = np.random.default_rng(self.seed), self.cluster_count
        for start in range(0, self.samples, REPLICATES_PER_BLOCK):
            size = min(REPLICATES_PER_BLOCK, self.samples - start)
            drawn = rng.integers(0, n, (size, n)) + n * np.arange(size)[:, None]
            yield np.bincount(drawn.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)


@lru_cache(maxsize=2)
def _cached_draws(clusters: int, samples: int, seed: int) -> tuple[FloatArray, ...]:
    """Draws shared by all metrics of a part and both directions of a collection."""
    return tuple(ClusterBootstrap(np.zeros(0, np.int64), clusters, samples, seed)._draw())


def metric_replicates(metric: Metric, values: FloatArray, draws: ClusterBootstrap, ranks: Ranks | None = None) -> FloatArray:
    """The metric in each replicate.

    For the median, tied ranks are drawn at random in each replicate, because its exact expectation is too expensive. The
    interval of a median under ties therefore includes the randomness of ties.
    """
    if metric.aggregate == "median" and ranks is not None:
        return _medians(ranks, draws)
    return np.asarray(replicate_means([values], draws)[0], dtype=np.float64)


def replicate_means(values: Sequence[FloatArray], draws: ClusterBootstrap) -> FloatArray:
    """Means of several arrays of values in each replicate, shape (arrays, replicates)."""
    columns = (*values, np.ones(len(draws.cluster_index)))
    sums = np.stack([np.bincount(draws.cluster_index, weights=column, minlength=draws.cluster_count) for column in columns])
    totals = np.concatenate([times @ sums.T for times in draws])
    with np.errstate(invalid="ignore"):  # NaN if none of these queries was drawn; folds handle it
        return np.asarray((totals[:, :-1] / totals[:, -1:]).T, dtype=np.float64)


def percentile_interval(replicates: FloatArray, level: float = CONFIDENCE_LEVEL) -> tuple[float, float]:
    """Percentile interval of the replicates.

    >>> percentile_interval(np.arange(101.0), 0.5)
    (25.0, 75.0)
    """
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _medians(ranks: Ranks, draws: ClusterBootstrap) -> FloatArray:
    a, n, p = best_positive_group(ranks)
    tied = np.flatnonzero(n > 0)
    if not len(tied):
        return _weighted_medians(a + 1, draws)
    rng = np.random.default_rng([draws.seed, 1])
    ranks_drawn = a + 1
    order = np.argsort(ranks_drawn, kind="stable")
    medians = []
    for block in draws:
        tied_ranks = _draw_first_ranks(a[tied], n[tied], p[tied], len(block), rng)
        for b, times in enumerate(block):
            if len(tied):
                ranks_drawn[tied] = tied_ranks[:, b]
                order = np.argsort(ranks_drawn, kind="stable")
            cumulative = np.cumsum(times[draws.cluster_index[order]])
            if not cumulative[-1]:
                medians.append(np.nan)
                continue
            low, high = np.searchsorted(cumulative, [(cumulative[-1] + 1) // 2, cumulative[-1] // 2 + 1])
            medians.append((ranks_drawn[order[low]] + ranks_drawn[order[high]]) / 2)
    return np.asarray(medians)


def _weighted_medians(ranks: IntArray, draws: ClusterBootstrap) -> FloatArray:
    """Median of untied ranks in each replicate, from counts at a few ranks only.

    Medians of replicates are close together, so a narrow window of ranks around the overall median contains nearly all of them;
    the window is widened until it contains all.
    """
    values = np.unique(ranks)
    middle, half_width = int(np.searchsorted(values, np.median(ranks))), 16
    while True:
        window = values[max(0, middle - half_width) : middle + half_width + 1]
        window_index = np.searchsorted(window, ranks)  # index of the first rank in the window that is not lower
        counts = np.zeros((draws.cluster_count, len(window) + 1))
        np.add.at(counts, (draws.cluster_index, window_index), 1.0)
        cumulative = np.concatenate([times @ counts for times in draws]).cumsum(axis=1)  # (replicates, window + 1)
        total = cumulative[:, -1]
        ends = [(total + 1) // 2, total // 2 + 1]
        inside = [(total == 0) | (window[0] == values[0]) | (cumulative[:, 0] < end) for end in ends]
        inside += [(total == 0) | (window[-1] == values[-1]) | (cumulative[:, -2] >= end) for end in ends]
        if np.all(inside):
            break
        half_width *= 4
    low, high = (window[np.minimum((cumulative < end[:, None]).sum(axis=1), len(window) - 1)] for end in ends)
    return np.where(total > 0, (low + high) / 2, np.nan)


def _draw_first_ranks(a: IntArray, n: IntArray, p: IntArray, samples: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Random ranks of the best positive, shape (queries, samples); equal distributions are computed once."""
    drawn = np.empty((len(a), samples), dtype=np.int32)
    shapes, member = np.unique(np.stack([n, p]), axis=1, return_inverse=True)
    for shape, (negatives, positives) in enumerate(shapes.T.tolist()):
        queries = np.flatnonzero(member.ravel() == shape)
        cdf = first_rank_cdf(np.int64(0), np.int64(negatives), np.int64(positives), np.arange(1, negatives + 2))
        drawn[queries] = a[queries, None] + 1 + np.searchsorted(cdf, rng.random((len(queries), samples)), "right")
    return drawn
