"""How sure a share of right answers is, and whether two models' shares differ: trials that share an image are not independent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.core.outcomes import Outcomes, tally
from crossmatch.metrics import choice
from crossmatch.metrics.significance import FARTHEST, LEVEL, Difference

MCNEMAR = "McNemar's exact test"
SIGNS = "the test that turns the signs of all differences of a cluster around together"
COUNTED = 12  # clusters whose signs are turned in all 2^12 ways


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


def share_of(right: FloatArray | BoolArray, clusters: IntArray, folds: IntArray | None = None) -> Share:
    """The share of right answers among trials in these clusters; with folds, the mean of the shares in each of them.

    >>> share_of(np.array([True, True, False, True]), np.array([7, 7, 3, 3])).value
    0.75
    """
    member = np.unique(clusters, return_inverse=True)[1].ravel()
    fold = np.zeros(len(member), np.int64) if folds is None else np.unique(folds, return_inverse=True)[1].ravel()
    shape = int(member.max()) + 1, int(fold.max()) + 1
    place = member * shape[1] + fold
    sums, size = (np.bincount(place, weights=w, minlength=shape[0] * shape[1]).reshape(shape) for w in (right, None))
    return share(np.asarray(sums, dtype=np.float64), np.asarray(size, dtype=np.float64))


def share(right: FloatArray, size: FloatArray) -> Share:
    """The share of right answers, from the right answers and the trials of each cluster (row) in each fold (column).

    Several folds give the mean of their shares, each counting the same: a macro mean. With s_kf right of n_kf trials in cluster k
    and fold f of F, and n_f and p_f the trials and the share of a fold, the linearised variance of the mean and that of as many
    independent trials are

        v = Σ_k ( Σ_f (s_kf - p_f n_kf) / n_f )² / F²,       u = Σ_f p_f (1 - p_f) / n_f / F².

    Their ratio, the design effect, is known badly where few clusters hold an answer of the rarer kind. With E such clusters it is

        d = max(1, (E v / u + w) / (E + 1)),       w = Σ_k n_k² / Σ_k n_k,

    where w is what it would be if all answers of a cluster were alike. The trials are worth n* = N / d independent ones, cut by the
    squared ratio of Student's quantiles for so few clusters (korn1998confidence); for a macro mean n* is what has its variance,
    with two right and two wrong answers added to each fold. The interval is Wilson's for n* trials (wilson1927probable): it stays
    within 0 and 1 and has a width even where every answer is right. A single cluster tells nothing: its interval is all there is.

    >>> ones = np.ones(100)
    >>> found = share(np.arange(100) < 90, ones)
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (0.9, 0.826, 0.945)
    >>> round(share(ones, ones).low, 4), share(np.array([1.0]), np.array([1.0])).low
    (0.963, 0.0)
    """
    right, size = (np.asarray(x, dtype=np.float64).reshape(len(x), -1) for x in (right, size))
    clusters, folds = right.shape
    n, got = size.sum(axis=0), right.sum(axis=0)
    p, trials = got / n, float(n.sum())
    value = float(p.mean())
    if clusters < 2:
        return Share(value, 0.0, 1.0, 1.0)
    effect = _design_effect(right, size, p)
    effective = (trials if folds == 1 else _effective_of_mean(got, n)) / effect
    if clusters < trials:
        effective *= (_quantile(int(trials)) / _quantile(clusters)) ** 2
    effective = max(1.0, effective)
    return Share(value, *wilson(value, effective), effective)


def _design_effect(right: FloatArray, size: FloatArray, p: FloatArray) -> float:
    """d of `share`: how many times the variance of independent trials."""
    n, folds = size.sum(axis=0), size.shape[1]
    of_cluster = size.sum(axis=1)
    worst = float((of_cluster**2).sum() / of_cluster.sum())
    alone = float((p * (1 - p) / n).sum()) / folds**2
    found = float((((right - p * size) / n).mean(axis=1) ** 2).sum()) / alone if alone > 0 else worst
    telling = min(int((right.sum(axis=1) > 0).sum()), int(((size - right).sum(axis=1) > 0).sum()))
    return max(1.0, (telling * found + worst) / (telling + 1))


def share_of_alike(right: int, n: int) -> Share:
    """`share` where every trial is a cluster of its own, from the counts alone.

    >>> [round(x.low, 9) for x in (share_of_alike(90, 100), share(np.arange(100) < 90, np.ones(100)))]
    [0.825634338, 0.825634338]
    """
    p = right / n
    if n < 2:
        return Share(p, 0.0, 1.0, 1.0)
    return Share(p, *wilson(p, float(n)), float(n))


def mean_of_alike(shares: Sequence[Share]) -> Share:
    """The mean of shares of independent trials, each counting the same, as in `share`.

    >>> right, folds = np.arange(100) % 5 > 0, np.arange(100) % 2
    >>> slow = share_of(right, np.arange(100), folds)
    >>> found = mean_of_alike([share_of_alike(int(right[folds == f].sum()), 50) for f in (0, 1)])
    >>> round(found.value - slow.value, 12), round(found.low - slow.low, 12)
    (0.0, 0.0)
    """
    n, p = (np.array([getattr(s, name) for s in shares]) for name in ("effective", "value"))
    value, trials = float(p.mean()), float(n.sum())
    if trials < 2:
        return Share(value, 0.0, 1.0, 1.0)
    effective = _effective_of_mean(p * n, n)
    return Share(value, *wilson(value, effective), effective)


def _effective_of_mean(got: FloatArray, n: FloatArray) -> float:
    """How many trials have the variance of a mean over folds; two right and two wrong answers are added to each fold."""
    q = (got + 2) / (n + 4)
    return max(1.0, float(q.mean() * (1 - q.mean()) / ((q * (1 - q) / n).sum() / len(n) ** 2)))


def apart(clusters: IntArray) -> bool:
    """Whether every trial is a cluster of its own; clusters are numbered from zero, without large gaps.

    >>> apart(np.array([0, 2, 1])), apart(np.array([0, 1, 0]))
    (True, False)
    """
    return bool((np.bincount(clusters) <= 1).all())


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


def paired(first: FloatArray, second: FloatArray, clusters: IntArray, folds: IntArray | None = None) -> Difference:
    """The second share minus the first, its interval, and two p-values; with folds, of the means of the shares in each of them.

    `p` is McNemar's exact test, which takes trials as independent. `clustered` is a test that does not (`turned`); it is left out
    where every trial is a cluster of its own. A mean over folds has no single table of wins and losses, and trials that are half
    right have none at all, so that test is all there is for them; `test` tells which one `p` is. The interval is Wald's from the
    mean and the variance of the gaps g after adding two trials to each fold, half of one with a gap of 1, as much with -1, and the
    rest with 0,

        m = Σ g / (n + 2),    v = ((Σ g² + 1) / (n + 2) - m²) / (n + 2),

    which for answers that are right or wrong is half a trial in each of the four cells of the paired table (agresti2005simple).
    The variance is raised by what the clusters make of it, and the interval holds the value.

    >>> one, two = np.repeat([1.0, 0, 1, 0], [60, 20, 5, 15]), np.repeat([1.0, 1, 0, 0], [60, 20, 5, 15])
    >>> found = paired(one, two, np.arange(100))
    >>> found.value, round(found.low, 3), round(found.high, 3), round(found.p, 4), found.test
    (0.15, 0.052, 0.242, 0.0041, "McNemar's exact test")
    """
    gap = np.asarray(np.asarray(second, dtype=np.float64) - first)
    member = np.unique(clusters, return_inverse=True)[1].ravel()
    fold = np.zeros(len(gap), np.int64) if folds is None else np.unique(folds, return_inverse=True)[1].ravel()
    n = np.bincount(fold)
    sums, squares = (np.bincount(fold, weights=part) for part in (gap, gap**2))
    cells = n + 2
    middle = float((sums / cells).mean())
    alone = float((((squares + 1) / cells - (sums / cells) ** 2) / cells).sum()) / len(n) ** 2
    weighted = gap / (n[fold] * len(n))
    value = float(weighted.sum())
    held = int(member.max()) + 1
    reach = _quantile(held) * float(
        np.sqrt(alone * _paired_effect(weighted, (gap - (sums / n)[fold]) / (n[fold] * len(n)), member, held))
    )
    ends = max(-1.0, min(value, middle - reach)), min(1.0, max(value, middle + reach))
    flipped = turned(np.asarray(np.bincount(member, weights=weighted), dtype=np.float64))
    if len(n) > 1 or not np.isin(gap, (-1.0, 0.0, 1.0)).all():
        return Difference(value, *ends, flipped, test=SIGNS)
    exact = mcnemar(int((gap < 0).sum()), int((gap > 0).sum()))
    return Difference(value, *ends, exact, clustered=flipped if held < len(gap) else None, test=MCNEMAR)


def turned(sums: FloatArray) -> float:
    """The two-sided p of a sum over clusters, each of whose parts could as well have had the other sign.

    Under the null hypothesis the signs of all gaps within a cluster may be turned around together, so that the sum of all gaps has
    the variance Σ_k G_k², where G_k is the sum of those in cluster k, and is near normal. Up to 12 clusters that have a sum, all
    ways to turn them are counted instead: five clusters that agree are a p of 2/32, and not of 0.025.

    >>> turned(np.ones(5)), round(turned(np.ones(13)), 5), turned(np.zeros(3))
    (0.0625, 0.00031, 1.0)
    """
    telling = sums[sums != 0]
    total = abs(float(telling.sum()))
    if not total:
        return 1.0
    if len(telling) > COUNTED:
        return max(FARTHEST, 2 * float(special.ndtr(-total / np.sqrt((telling**2).sum()))))
    signs = 1 - 2.0 * (np.arange(2 ** len(telling))[:, None] >> np.arange(len(telling)) & 1)
    return float(np.mean(np.abs(signs @ telling) >= total * (1 - 1e-9)))  # level but for rounding


def _paired_effect(weighted: FloatArray, centred: FloatArray, member: IntArray, clusters: int) -> float:
    """How many times the variance of independent trials that of the gaps is, at least once; shrunken as in `share`."""
    size = np.bincount(member)
    worst = float((size.astype(np.float64) ** 2).sum() / size.sum())
    plain = float((centred**2).sum())
    found = float((np.bincount(member, weights=centred, minlength=clusters) ** 2).sum()) / plain if plain > 0 else worst
    telling = int((np.bincount(member, weights=np.abs(weighted)) > 0).sum())
    return max(1.0, (telling * found + worst) / (telling + 1))


def _quantile(n: int) -> float:
    """Student's quantile for n clusters."""
    return float(special.stdtrit(max(1, n - 1), (1 + LEVEL) / 2))
