"""How sure a number is, by leaving out clusters in turn: for numbers that are no means, and for few clusters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.metrics.significance import LEVEL, Difference, surest

ROUNDING = 1e-12  # a number as small is 0: its error is rounding too, and their ratio means nothing


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Replicates that each leave out one group of clusters: as `Draws`, but a cluster counts once or not at all.

    Clusters, in ascending order, are dealt to the groups at random, by the seed; with no more clusters than groups each is a group
    of its own, and the seed changes nothing.

    >>> next(iter(LeftOut.of(np.array([4, 4, 7, 9]), groups=10)))
    array([[0., 1., 1.],
           [1., 0., 1.],
           [1., 1., 0.]])
    """

    member: IntArray
    clusters: int
    group: IntArray  # of each cluster
    groups: int

    @classmethod
    def of(cls, clusters: IntArray, groups: int, seed: int = 0) -> LeftOut:
        unique, member = np.unique(clusters, return_inverse=True)
        n, groups = len(unique), min(groups, len(unique))
        dealt = np.arange(n)
        if groups < n:
            dealt[np.argsort(np.random.SFC64(seed).random_raw(n), kind="stable")] = np.arange(n) % groups
        return cls(member.ravel(), n, dealt, groups)

    def __iter__(self) -> Iterator[FloatArray]:
        """One block of shape (groups, clusters)."""
        yield (self.group != np.arange(self.groups)[:, None]).astype(np.float64)


def jackknife(value: float, without: FloatArray, most: float = 1.0) -> Difference:
    """The interval of a number, and the p of its being zero, from the same number without each of G groups of clusters.

        v = (G - 1)/G · Σ_g (r_(g) - r)²,    r ± t(G - 1) √v, no further than ±most,    p = 2 P[ T(G - 1) > |r| / √v ]

    A number that is the difference of two on the same observations takes the differences without each group: that is the paired
    test. Percentiles of the bootstrap are too narrow for few clusters, and off where the number itself is (tau-c counts a cluster
    with itself); Student's quantile and the distance from r, not from the mean of all r_(g), mend both. p is never below what G
    groups can tell (`surest`). Where a group cannot be left out (NaN), or there is one
    alone, the interval is all there is and p is 1. Source: kott2001delete.

    >>> found = jackknife(0.5, np.array([0.45, 0.5, 0.55, 0.5]))
    >>> round(found.low, 3), round(found.high, 3), found.p
    (0.305, 0.695, 0.125)
    """
    groups = len(without)
    if groups < 2 or not np.isfinite(without).all():
        return Difference(value, -most, most, 1.0)
    error = float(np.sqrt((groups - 1) / groups * np.square(without - value).sum()))
    reach = float(stdtrit(groups - 1, (1 + LEVEL) / 2)) * error
    floor = surest(groups)
    apart = abs(value) > ROUNDING
    p = 2 * float(stdtr(groups - 1, -abs(value) / error)) if apart and error > 0 else 1.0 - apart
    return Difference(value, max(-most, value - reach), min(most, value + reach), max(floor, p), floor)
