"""Bootstrap over clusters, for statistics whose variance has no formula, such as corpus BLEU.

Captions of one image are not independent, so whole clusters are drawn: a replicate draws as many clusters as there are, with
replacement, and every caption is weighted by how often its cluster was drawn (field2007bootstrapping; efron1993introduction, ch. 6).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crossmatch.data.arrays import FloatArray, IntArray

DEFAULT_SAMPLES = 1000
CONFIDENCE_LEVEL = 0.95
REPLICATES_PER_BLOCK = 1000


@dataclass(frozen=True, eq=False)
class ClusterBootstrap:
    """Bootstrap replicates over clusters, drawn again from the seed on every iteration.

    Attributes:
        cluster_index: Cluster of each observation, numbered from 0.
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
    """Draws shared by all metrics of a corpus."""
    return tuple(ClusterBootstrap(np.zeros(0, np.int64), clusters, samples, seed)._draw())


def percentile_interval(replicates: FloatArray, level: float = CONFIDENCE_LEVEL) -> tuple[float, float]:
    """Percentile interval of the replicates.

    >>> percentile_interval(np.arange(101.0), 0.5)
    (25.0, 75.0)
    """
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
