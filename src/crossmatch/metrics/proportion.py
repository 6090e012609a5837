"""How sure a share of right answers is, and whether two models' shares differ: trials that share an image are not independent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.outcomes import Outcomes, tally
from crossmatch.metrics import choice
from crossmatch.metrics.significance import LEVEL, Difference


@dataclass(frozen=True)
class Share:
    """A share of right answers, its interval, and the number of independent trials that would be as sure."""

    value: float
    low: float
    high: float
    effective: float

    def error(self, value: float | None = None) -> float:
        """The standard error of a share of this value (by default its own) from as many independent trials."""
        p = self.value if value is None else value
        return float(np.sqrt(p * (1 - p) / self.effective))


def share(right: FloatArray, size: FloatArray) -> Share:
    """The share of right answers, from the right answers and the trials of each cluster.

    With s_k right of n_k trials in cluster k of K, p = Σ s_k / Σ n_k has the linearised variance

        v = Σ_k (s_k - p n_k)² / (Σ n_k)²,

    which makes n* = p (1 - p) / v independent trials' worth, and never more than there are; with few clusters it is cut by the
    squared ratio of Student's quantiles (korn1998confidence). The interval is Wilson's for n* trials (wilson1927probable), so that
    it stays within 0 and 1 and has a width even where every answer is right; there, clusters count as one trial each.

    Several columns (clusters, groups) give the mean over groups, each group counting the same: a macro mean.

    >>> ones = np.ones(100)
    >>> found = share(np.arange(100) < 90, ones)
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (0.9, 0.826, 0.945)
    >>> round(share(ones, ones).low, 4), share(np.array([1.0]), np.array([1.0])).low
    (0.963, 0.0)
    """
    right, size = (np.asarray(x, dtype=np.float64).reshape(len(x), -1) for x in (right, size))
    total = size.sum(axis=0)
    p = right.sum(axis=0) / total
    value, clusters = float(p.mean()), len(right)
    effective = _effective(value, ((right - p * size) / total).mean(axis=1), clusters, float(total.sum()))
    if clusters < 2:
        return Share(value, 0.0, 1.0, effective)
    return Share(value, *wilson(value, effective), effective)


def share_of_alike(right: int, n: int) -> Share:
    """`share` where every trial is a cluster of its own, from the counts alone.

    >>> [round(x.low, 9) for x in (share_of_alike(90, 100), share(np.arange(100) < 90, np.ones(100)))]
    [0.825634338, 0.825634338]
    """
    p = right / n
    if n < 2:
        return Share(p, 0.0, 1.0, 1.0)
    return Share(p, *wilson(p, float(n)), float(n))


def choice_shares(
    outcomes: Outcomes, names: Sequence[str], member: IntArray | None = None, groups: int = 1
) -> list[dict[str, Share]]:
    """The metrics of these names in each group of trials that share no image, from how often each code occurs in it.

    >>> outcomes = Outcomes.of(np.array([[[0.9, 0.2], [0.1, 0.3]], [[0.5, 0.9], [0.4, 0.3]]]))
    >>> [{name: s.value for name, s in found.items()} for found in choice_shares(outcomes, ("i2t", "t2i"), np.array([1, 0]), 2)]
    [{'i2t': 0.0, 't2i': 0.0}, {'i2t': 1.0, 't2i': 1.0}]
    """
    patterns, times = tally(outcomes, member, groups)
    masks = {name: choice.mask(name, outcomes.matched) for name in names}
    wins = {name: patterns & mask == mask for name, mask in masks.items()}
    return [{name: share_of_alike(int(row[won].sum()), int(row.sum())) for name, won in wins.items()} for row in times]


def wilson(p: float, n: float, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's score interval of a share p of n trials: all q with |p - q| <= z √(q (1 - q) / n) (wilson1927probable).

    >>> [round(end, 4) for end in wilson(0.0, 10)]
    [0.0, 0.2775]
    """
    z2 = special.ndtri((1 + level) / 2) ** 2
    middle, reach = p + z2 / (2 * n), np.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n * n)))
    low, high = (middle - reach) / (1 + z2 / n), (middle + reach) / (1 + z2 / n)
    return max(0.0, float(low)) if p > 0 else 0.0, min(1.0, float(high)) if p < 1 else 1.0


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p-value of McNemar's test: of the trials that one model wins alone, each is as likely to win.

        p = min(1, 2 P[ B <= min(b, c) ]),   B ~ Binomial(b + c, 1/2)

    Source: mcnemar1947note; the exact form is the sign test on the trials in which the two disagree.

    >>> mcnemar(1, 8), mcnemar(0, 0)
    (0.0390625, 1.0)
    """
    n = only_first + only_second
    return min(1.0, 2 * float(special.bdtr(min(only_first, only_second), n, 0.5))) if n else 1.0


def paired(first: FloatArray, second: FloatArray, member: IntArray) -> Difference:
    """The second share minus the first with its interval, and p of the exact test. `member` is the cluster of each trial.

    The interval is Wald's after adding half a trial to each of the four cells of the paired table (agresti2005simple), its variance
    raised by what the clusters make of it. The exact test takes trials as independent.

    >>> one, two = np.repeat([1.0, 0, 1, 0], [60, 20, 5, 15]), np.repeat([1.0, 1, 0, 0], [60, 20, 5, 15])
    >>> found = paired(one, two, np.arange(100))
    >>> found.value, round(found.low, 3), round(found.high, 3), round(found.p, 4)
    (0.15, 0.052, 0.242, 0.0041)
    """
    gap = second - first
    n, value = len(gap), float(gap.mean())
    gained, lost = int((gap > 0).sum()), int((gap < 0).sum())
    cells, b, c = n + 2, gained + 0.5, lost + 0.5
    alone = ((b + c) / cells - ((b - c) / cells) ** 2) / cells
    sums = np.bincount(member, weights=gap - value)
    clusters = int(np.count_nonzero(np.bincount(member)))
    plain = float(((gap - value) ** 2).sum())
    effect = float((sums**2).sum()) / plain if plain > 0 else n / clusters
    reach = _quantile(clusters) * float(np.sqrt(alone * max(1.0, effect)))
    middle = (b - c) / cells
    return Difference(value, max(-1.0, middle - reach), min(1.0, middle + reach), mcnemar(lost, gained))


def normal(value: float, error: float) -> Difference:
    """A difference with a known standard error, under the normal distribution; no error at all tells nothing.

    >>> normal(3.0, 1.0).p < 0.003, normal(0.0, 0.0).p
    (True, 1.0)
    """
    reach = float(special.ndtri((1 + LEVEL) / 2)) * error
    p = 2 * float(special.ndtr(-abs(value) / error)) if error > 0 else 1.0
    return Difference(value, value - reach, value + reach, p)


def _effective(value: float, influence: FloatArray, clusters: int, trials: float) -> float:
    """n*, the independent trials that would be as sure; `influence` is each cluster's share in the error."""
    if clusters < 2:
        return 1.0
    variance = float((influence**2).sum())
    found = float(clusters) if value in (0.0, 1.0) else min(trials, value * (1 - value) / max(variance, 1e-300))
    if clusters < trials:
        found *= (_quantile(int(trials)) / _quantile(clusters)) ** 2
    return max(1.0, found)


def _quantile(n: int) -> float:
    """Student's quantile for n clusters."""
    return float(special.stdtrit(max(1, n - 1), (1 + LEVEL) / 2))
