"""Delete-a-group jackknife over clusters: intervals for statistics that are not means, and for few clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.metrics.cluster_bootstrap import CONFIDENCE_LEVEL
from crossmatch.metrics.paired_tests import Difference, min_p_value

ROUNDING = 1e-12  # smaller values count as 0


@dataclass(frozen=True, eq=False)
class ClusterJackknife:
    """Replicates that leave out one group of clusters each; used like `ClusterBootstrap`, with weights 0 and 1.

    Clusters are assigned to groups at random by the seed. With at most as many clusters as groups, each cluster is a group.

    >>> next(iter(ClusterJackknife.from_clusters(np.array([4, 4, 7, 9]), groups=10)))
    array([[0., 1., 1.],
           [1., 0., 1.],
           [1., 1., 0.]])
    """

    cluster_index: IntArray
    cluster_count: int
    group: IntArray  # of each cluster
    groups: int

    @classmethod
    def from_clusters(cls, clusters: IntArray, groups: int, seed: int = 0) -> ClusterJackknife:
        unique, member = np.unique(clusters, return_inverse=True)
        n, groups = len(unique), min(groups, len(unique))
        group = np.arange(n)
        if groups < n:
            group[np.argsort(np.random.SFC64(seed).random_raw(n), kind="stable")] = np.arange(n) % groups
        return cls(member.ravel(), n, group, groups)

    def __iter__(self) -> Iterator[FloatArray]:
        """Yield one block of weights, shape (groups, clusters)."""
        yield (self.group != np.arange(self.groups)[:, None]).astype(np.float64)


def jackknife_interval(value: float, without: FloatArray, max_abs: float = 1.0) -> Difference:
    """Interval of a statistic, and the p-value of its being zero, from its values without each of G groups of clusters.

        v = (G - 1)/G · Σ_g (r_(g) - r)²,    r ± t(G - 1) √v, clipped to ±max_abs,    p = 2 P[ T(G - 1) > |r| / √v ]

    For a paired test of two statistics, pass their difference and the differences without each group. Unlike bootstrap percentiles,
    the interval is not too narrow for few clusters, and it is centred at r even if replicates are biased (tau-c pairs a cluster
    with itself). p is at least `min_p_value(G)`; where that is .05 or more, the interval includes zero. With one group, or if a
    replicate is NaN, the interval is ±max_abs and p is 1.

    Args:
        value: r.
        without: r_(g) for each group.
        max_abs: Largest possible absolute value.

    Source: kott2001delete.

    >>> result = jackknife_interval(0.5, np.array([0.45, 0.5, 0.55, 0.5]))
    >>> round(result.low, 3), round(result.high, 3), result.p
    (0.0, 1.0, 0.125)
    """
    groups = len(without)
    if groups < 2 or not np.isfinite(without).all():
        return Difference(value, -max_abs, max_abs, 1.0)
    error = float(np.sqrt((groups - 1) / groups * np.square(without - value).sum()))
    margin = float(stdtrit(groups - 1, (1 + CONFIDENCE_LEVEL) / 2)) * error
    min_p = min_p_value(groups)
    if min_p >= 1 - CONFIDENCE_LEVEL:
        margin = max(margin, abs(value))
    is_nonzero = abs(value) > ROUNDING
    p = 2 * float(stdtr(groups - 1, -abs(value) / error)) if is_nonzero and error > 0 else 1.0 - is_nonzero
    return Difference(value, max(-max_abs, value - margin), min(max_abs, value + margin), max(min_p, p), min_p)
