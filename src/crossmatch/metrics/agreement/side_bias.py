"""Position bias: are choices spread evenly over the positions where options were shown?"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from scipy import special

from crossmatch.data.arrays import IntArray, as_integers
from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.paired_tests import MIN_P_VALUE, mcnemar_test
from crossmatch.metrics.proportions import Proportion, independent_proportion

MAX_ELEMENTS = 2**22  # array elements in memory at a time


@dataclass(frozen=True)
class SideBias:
    """Shares of choices per position, and the p-value of the hypothesis that all positions are equally likely.

    `p` is None if there are no choices; `reason` says so.
    """

    proportions: tuple[Proportion, ...]  # of each position, with intervals
    p: float | None
    choices: int
    test: str = ""
    reason: str = ""


def side_bias(*choice_counts: int) -> SideBias:
    """Test whether choices are spread evenly over two positions (left, right) or more.

        X² = Σ_j (x_j - n/k)² / (n/k)

    x_j of n choices fell on position j of k. With two positions, p comes from the exact binomial test with probability 1/2. With
    more, it is the exact multinomial probability of an X² at least as large; if there are too many outcomes to enumerate, it comes
    from the χ² distribution (pearson1900criterion). Shares have Wilson intervals. Choices count as independent, and options must
    have been placed at random.

    >>> bias = side_bias(60, 40)
    >>> bias.proportions[0].value, round(bias.proportions[0].low, 3), round(bias.proportions[0].high, 3), round(bias.p, 4)
    (0.6, 0.502, 0.691, 0.0569)
    >>> round(side_bias(30, 30, 45).p, 3), side_bias(0, 0).p
    (0.124, None)
    """
    if len(choice_counts) < 2:
        raise CrossmatchError(f"side_bias needs the counts of at least two positions (got {len(choice_counts)}).")
    counts = as_integers(choice_counts, "choices")
    if (counts < 0).any():
        raise CrossmatchError(f"Choice counts must not be negative (got {counts.min()}).")
    n, k = int(counts.sum()), len(counts)
    if not n:
        return SideBias((), None, 0, reason="there are no choices yet.")
    shares = tuple(independent_proportion(int(x), n) for x in counts)
    if k == 2:
        return SideBias(shares, mcnemar_test(int(counts[0]), int(counts[1])), n, "exact binomial test")
    if comb(n + k - 1, k - 1) * k <= MAX_ELEMENTS // 16:
        return SideBias(shares, _multinomial_p_value(counts), n, "exact multinomial test")
    excess = float(np.square(counts - n / k).sum()) / (n / k)
    return SideBias(shares, max(MIN_P_VALUE, float(special.chdtrc(k - 1, excess))), n, "χ² test")


def _multinomial_p_value(counts: IntArray) -> float:
    """P(Σ x² >= that of the counts), which is P(X² >= its value), over all ways to distribute n choices."""
    n, k = int(counts.sum()), len(counts)
    bars = np.array(list(combinations(range(n + k - 1), k - 1)))  # stars and bars
    ways = np.diff(bars, axis=1, prepend=-1, append=n + k - 1) - 1
    probability = np.exp(special.gammaln(n + 1) - special.gammaln(ways + 1).sum(axis=1) - n * np.log(k))
    return min(1.0, float(probability[(ways**2).sum(axis=1) >= (counts**2).sum()].sum()))
