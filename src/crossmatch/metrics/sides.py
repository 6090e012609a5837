"""Whether a place is favoured: how choices fell on the sides where things were shown."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from scipy import special

from crossmatch.core.arrays import IntArray, as_whole
from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics.coefficient import number_of
from crossmatch.metrics.proportion import Share, mcnemar, share_of_alike
from crossmatch.metrics.significance import FARTHEST

ROOM = 2**22  # numbers held in memory at a time


@dataclass(frozen=True)
class SideBias:
    """How the choices fell on the places where things were shown, and the p of all places being as likely.

    `p` is None, and `reason` says why, where nothing was chosen yet.
    """

    shares: tuple[Share, ...]  # of each place, with its interval
    p: float | None
    choices: int
    test: str = ""
    reason: str = ""


def side_bias(*chosen: int) -> SideBias:
    """Whether the first of two places (left, right) is chosen as often as the second; or each of several as often as any other.

        X² = Σ_j (x_j - n/k)² / (n/k)

    x_j of n choices fell on place j of k. With two places, p is that of the exact binomial test with 1/2. With more it is the
    probability of all ways to deal n choices to k places whose X² is as large, one by one; where those are too many to go through,
    it comes from the χ² distribution (pearson1900criterion). Shares have Wilson's intervals, each by itself. Choices are taken as
    independent, and what is shown where as drawn at random: else what was chosen and where it stood cannot be told apart.

    >>> found = side_bias(60, 40)
    >>> found.shares[0].value, round(found.shares[0].low, 3), round(found.shares[0].high, 3), round(found.p, 4)
    (0.6, 0.502, 0.691, 0.0569)
    >>> round(side_bias(30, 30, 45).p, 3), side_bias(0, 0).p
    (0.124, None)
    """
    if len(chosen) < 2:
        raise CrossmatchError(f"{number_of(len(chosen), 'place')} was given; count the choices of two places or more.")
    counts = as_whole(chosen, "choices")
    if (counts < 0).any():
        raise CrossmatchError(f"a place was chosen {counts.min()} times; counts were expected.")
    n, k = int(counts.sum()), len(counts)
    if not n:
        return SideBias((), None, 0, reason="nothing was chosen yet.")
    shares = tuple(share_of_alike(int(x), n) for x in counts)
    if k == 2:
        return SideBias(shares, mcnemar(int(counts[0]), int(counts[1])), n, "exact binomial test")
    if comb(n + k - 1, k - 1) * k <= ROOM // 16:
        return SideBias(shares, _even_by_counting(counts), n, "exact multinomial test")
    excess = float(np.square(counts - n / k).sum()) / (n / k)
    return SideBias(shares, max(FARTHEST, float(special.chdtrc(k - 1, excess))), n, "χ² test")


def _even_by_counting(counts: IntArray) -> float:
    """P[ Σ x² >= that of the counts ], which is P[ X² >= its ]: a way to deal n choices is where k - 1 walls stand among them."""
    n, k = int(counts.sum()), len(counts)
    walls = np.array(list(combinations(range(n + k - 1), k - 1)))
    ways = np.diff(walls, axis=1, prepend=-1, append=n + k - 1) - 1
    chance = np.exp(special.gammaln(n + 1) - special.gammaln(ways + 1).sum(axis=1) - n * np.log(k))
    return min(1.0, float(chance[(ways**2).sum(axis=1) >= (counts**2).sum()].sum()))
