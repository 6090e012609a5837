"""Proportions of right answers with intervals; trials that share an image are not independent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.data.trial_outcomes import Outcomes, count_codes
from crossmatch.metrics import forced_choice
from crossmatch.metrics.cluster_bootstrap import CONFIDENCE_LEVEL


@dataclass(frozen=True)
class Proportion:
    """A proportion of right answers, its interval, and the number of independent trials with the same precision."""

    value: float
    low: float
    high: float
    effective: float

    def standard_error(self, value: float | None = None) -> float:
        """Standard error of a proportion of this value (by default its own) from as many independent trials."""
        p = self.value if value is None else value
        return float(np.sqrt(p * (1 - p) / self.effective))


def clustered_proportion(right: FloatArray | BoolArray, clusters: IntArray, folds: IntArray | None = None) -> Proportion:
    """Proportion of right answers among trials in clusters; with folds, the mean of the proportions of the folds.

    >>> clustered_proportion(np.array([True, True, False, True]), np.array([7, 7, 3, 3])).value
    0.75
    """
    member = np.unique(clusters, return_inverse=True)[1].ravel()
    fold = np.zeros(len(member), np.int64) if folds is None else np.unique(folds, return_inverse=True)[1].ravel()
    shape = int(member.max()) + 1, int(fold.max()) + 1
    cell = member * shape[1] + fold
    sums, size = (np.bincount(cell, weights=w, minlength=shape[0] * shape[1]).reshape(shape) for w in (right, None))
    return proportion(np.asarray(sums, dtype=np.float64), np.asarray(size, dtype=np.float64))


def proportion(right: FloatArray, size: FloatArray) -> Proportion:
    """Proportion of right answers, from the right answers and the trials of each cluster (row) in each fold (column).

    Several folds give the unweighted mean of their proportions. With s_kf right of n_kf trials in cluster k and fold f of F, and
    n_f and p_f the trials and the proportion of a fold, the linearised variance of the mean and that of independent trials are

        v = Σ_k ( Σ_f (s_kf - p_f n_kf) / n_f )² / F²,       u = Σ_f p_f (1 - p_f) / n_f / F².

    Their ratio, the design effect, is unreliable if few clusters contain an answer of the rarer kind. With E such clusters it is

        d = max(1, (E v / u + w) / (E + 1)),       w = Σ_k n_k² / Σ_k n_k,

    where w is its value if all answers of a cluster were equal. The effective number of trials is n* = N / d, reduced by the
    squared ratio of Student's quantiles for few clusters (korn1998confidence). For a mean over folds, n* is the number with its
    variance, after adding two right and two wrong answers to each fold. The interval is Wilson's for n* trials
    (wilson1927probable): it stays within 0 and 1 and has positive width even if every answer is right. For a single cluster it
    is [0, 1].

    >>> ones = np.ones(100)
    >>> result = proportion(np.arange(100) < 90, ones)
    >>> result.value, round(result.low, 3), round(result.high, 3)
    (0.9, 0.826, 0.945)
    >>> round(proportion(ones, ones).low, 4), proportion(np.array([1.0]), np.array([1.0])).low
    (0.963, 0.0)
    """
    right, size = (np.asarray(x, dtype=np.float64).reshape(len(x), -1) for x in (right, size))
    clusters, folds = right.shape
    n, right_totals = size.sum(axis=0), right.sum(axis=0)
    p, trials = right_totals / n, float(n.sum())
    value = float(p.mean())
    if clusters < 2:
        return Proportion(value, 0.0, 1.0, 1.0)
    effect = _design_effect(right, size, p)
    effective = (trials if folds == 1 else _effective_of_mean(right_totals, n)) / effect
    if clusters < trials:
        effective *= (student_quantile(int(trials)) / student_quantile(clusters)) ** 2
    effective = max(1.0, effective)
    return Proportion(value, *wilson_interval(value, effective), effective)


def _design_effect(right: FloatArray, size: FloatArray, p: FloatArray) -> float:
    """d of `proportion`: the variance as a multiple of that of independent trials."""
    n, folds = size.sum(axis=0), size.shape[1]
    cluster_sizes = size.sum(axis=1)
    worst = float((cluster_sizes**2).sum() / cluster_sizes.sum())
    independent_variance = float((p * (1 - p) / n).sum()) / folds**2
    ratio = float((((right - p * size) / n).mean(axis=1) ** 2).sum()) / independent_variance if independent_variance > 0 else worst
    informative_clusters = min(int((right.sum(axis=1) > 0).sum()), int(((size - right).sum(axis=1) > 0).sum()))
    return max(1.0, (informative_clusters * ratio + worst) / (informative_clusters + 1))


def independent_proportion(right: int, n: int) -> Proportion:
    """`proportion` if every trial is its own cluster, from the counts alone.

    >>> [round(x.low, 9) for x in (independent_proportion(90, 100), proportion(np.arange(100) < 90, np.ones(100)))]
    [0.825634338, 0.825634338]
    """
    p = right / n
    if n < 2:
        return Proportion(p, 0.0, 1.0, 1.0)
    return Proportion(p, *wilson_interval(p, float(n)), float(n))


def mean_proportion(shares: Sequence[Proportion]) -> Proportion:
    """Unweighted mean of proportions of independent trials, as in `proportion`.

    >>> right, folds = np.arange(100) % 5 > 0, np.arange(100) % 2
    >>> slow = clustered_proportion(right, np.arange(100), folds)
    >>> fast = mean_proportion([independent_proportion(int(right[folds == f].sum()), 50) for f in (0, 1)])
    >>> round(fast.value - slow.value, 12), round(fast.low - slow.low, 12)
    (0.0, 0.0)
    """
    n, p = (np.array([getattr(s, name) for s in shares]) for name in ("effective", "value"))
    value, trials = float(p.mean()), float(n.sum())
    if trials < 2:
        return Proportion(value, 0.0, 1.0, 1.0)
    effective = _effective_of_mean(p * n, n)
    return Proportion(value, *wilson_interval(value, effective), effective)


def _effective_of_mean(right_totals: FloatArray, n: FloatArray) -> float:
    """Number of trials with the variance of a mean over folds, with two right and two wrong answers added to each."""
    q = (right_totals + 2) / (n + 4)
    return max(1.0, float(q.mean() * (1 - q.mean()) / ((q * (1 - q) / n).sum() / len(n) ** 2)))


def are_all_distinct(clusters: IntArray) -> bool:
    """Whether every trial is its own cluster. Clusters must be numbered from zero, without large gaps.

    >>> are_all_distinct(np.array([0, 2, 1])), are_all_distinct(np.array([0, 1, 0]))
    (True, False)
    """
    return bool((np.bincount(clusters) <= 1).all())


def choice_proportions(
    outcomes: Outcomes, choices: Mapping[str, forced_choice.Choice], member: IntArray | None = None, groups: int = 1
) -> list[dict[str, Proportion]]:
    """Forced-choice metrics in each group of trials that share no image, from the counts of outcome codes.

    >>> outcomes = Outcomes.from_scores(np.array([[[0.9, 0.2], [0.1, 0.3]], [[0.5, 0.9], [0.4, 0.3]]]))
    >>> choices = {"i2t": forced_choice.i2t_choice, "t2i": forced_choice.t2i_choice}
    >>> groups = choice_proportions(outcomes, choices, np.array([1, 0]), 2)
    >>> [{name: proportion.value for name, proportion in group.items()} for group in groups]
    [{'i2t': 0.0, 't2i': 0.0}, {'i2t': 1.0, 't2i': 1.0}]
    """
    codes, times = count_codes(outcomes, member, groups)
    distinct = Outcomes(codes.astype(outcomes.codes.dtype), outcomes.shape)
    wins = {name: choice(distinct) > 0 for name, choice in choices.items()}
    return [{name: independent_proportion(int(row[won].sum()), int(row.sum())) for name, won in wins.items()} for row in times]


def wilson_interval(p: float, n: float, level: float = CONFIDENCE_LEVEL) -> tuple[float, float]:
    """Wilson's score interval of a proportion p of n trials: all q with |p - q| <= z √(q (1 - q) / n) (wilson1927probable).

    >>> [round(end, 4) for end in wilson_interval(0.0, 10)]
    [0.0, 0.2775]
    """
    z2 = special.ndtri((1 + level) / 2) ** 2
    middle, margin = p + z2 / (2 * n), np.sqrt(z2 * (p * (1 - p) / n + z2 / (4 * n * n)))
    low, high = (middle - margin) / (1 + z2 / n), (middle + margin) / (1 + z2 / n)
    return max(0.0, float(low)) if p > 0 else 0.0, min(1.0, float(high)) if p < 1 else 1.0


def student_quantile(n: int) -> float:
    """Student's quantile for n clusters."""
    return float(special.stdtrit(max(1, n - 1), (1 + CONFIDENCE_LEVEL) / 2))
