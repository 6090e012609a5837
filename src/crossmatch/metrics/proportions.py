"""Proportions of right answers, and means of values in [0, 1], with intervals; items that share an image are not independent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import special

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.data.trial_outcomes import Outcomes, count_codes
from crossmatch.metrics import forced_choice
from crossmatch.metrics.cluster_bootstrap import CONFIDENCE_LEVEL

NORMAL_QUANTILE = float(special.ndtri((1 + CONFIDENCE_LEVEL) / 2))
PRIOR_CLUSTERS = 1.5  # c of `proportion` at its largest, chosen by simulation (docs/decisions/0023-intervals.md)
ROUNDING = 1e-12  # relative variances below this count as 0


@dataclass(frozen=True)
class Proportion:
    """A proportion or mean, its interval, and the number of independent 0/1 values with the same precision."""

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
    sums, size, _ = _cluster_sums(_columns(np.asarray(right, dtype=np.float64), clusters, folds))
    return proportion(sums, size)


Columns: TypeAlias = Sequence[tuple[FloatArray, IntArray]]  # values in [0, 1] and their clusters, of each fold, or of each summand


def clustered_mean(columns: Columns) -> Proportion:
    """Unweighted mean over folds (columns) of the mean of values in [0, 1], with the interval of `proportion`.

    >>> clusters = np.array([7, 7, 3, 3])
    >>> clustered_mean([(np.array([1.0, 0.5, 0.0, 0.5]), clusters)]).value
    0.5
    """
    return proportion(*_cluster_sums(columns))


def clustered_total(columns: Columns) -> Proportion:
    """Unweighted mean of the means of several columns that share clusters, such as the summands of RSUM.

    Every cluster is one value, the mean of its columns, so an image and its captions count once. The weight of a cluster is its
    share of each column, which is about the same for all. The interval is that of `proportion`.

    >>> clusters = np.array([7, 7, 3, 3])
    >>> clustered_total([(np.array([1.0, 0.5, 0.0, 0.5]), clusters), (np.ones(4), clusters)]).value
    0.75
    """
    sums, size, _ = _cluster_sums(columns)
    weight = len(sums) / (len(columns) * size.sum(axis=0))
    sums, size = sums @ weight, size @ weight
    return proportion(sums, size, np.array([(sums**2 / size).sum()]))


def _columns(values: FloatArray, clusters: IntArray, folds: IntArray | None) -> Columns:
    if folds is None:
        return [(values, clusters)]
    return [(values[folds == fold], clusters[folds == fold]) for fold in np.unique(folds)]


def _cluster_sums(columns: Columns) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sums and numbers of values by cluster (row) and column, and sums of squares by column."""
    member = np.unique(np.concatenate([clusters for _, clusters in columns]), return_inverse=True)[1].ravel()
    column = np.repeat(np.arange(len(columns)), [len(values) for values, _ in columns])
    shape = int(member.max()) + 1, len(columns)
    cell = member * shape[1] + column
    values = np.concatenate([values for values, _ in columns])
    sums, size = (
        np.asarray(np.bincount(cell, weights=w, minlength=shape[0] * shape[1]).reshape(shape), dtype=np.float64)
        for w in (values, None)
    )
    return sums, size, np.asarray(np.bincount(column, weights=values**2), dtype=np.float64)


def proportion(right: FloatArray, size: FloatArray, squares: FloatArray | None = None) -> Proportion:
    """Proportion of right answers, from the right answers and the trials of each cluster (row) in each fold (column).

    Answers may also be partly right: any values in [0, 1] with their sums of squares. Several folds give the unweighted mean of
    their means. With sum s_kf of n_kf values in cluster k and fold f of F, sum of squares q_f, and n_f values with mean p_f in a
    fold, the residual of a cluster, and the variances of the mean by clusters, by single values, and of independent 0/1 values are

        e_k = Σ_f (s_kf - p_f n_kf) / (n_f F),             v = Σ_k e_k²,
        i = Σ_f (q_f - n_f p_f²) / (n_f F)²,               u = Σ_f p_f (1 - p_f) / (n_f F²).

    max(v, i) / u, the design effect, is unreliable if few clusters differ from the mean, as near 0 and 1. The number of clusters
    that v rests on is E = v² / Σ_k e_k⁴: all of them if all residuals are equally large, one if a single cluster differs. So

        log d = ( E log(max(v, i) / u) + c log w ) / (E + c),    c = 3/2 · (1 - 2p)²,    w = Σ_k n_k² / Σ_k n_k

    adds c clusters with the effect w, that of right and wrong answers that are equal within a cluster. The effective number of
    values is n* = N / d, reduced by the squared ratio of the normal and Student's quantile for K clusters (korn1998confidence),
    unless all values are 0 or 1 and independent. For a mean over folds, N is the number with the variance u, after adding two
    right and two wrong answers to each fold. The interval is Wilson's for n* values (wilson1927probable): it stays within 0 and 1
    and has positive width even if every answer is right. For a single cluster it is [0, 1]. `docs/coverage.md` shows the coverage.

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
    squares = right_totals if squares is None else squares
    p, trials = right_totals / n, float(n.sum())
    value = float(p.mean())
    if clusters < 2:
        return Proportion(value, 0.0, 1.0, 1.0)
    effective = trials if folds == 1 else _effective_of_mean(right_totals, n)
    if clusters < trials * (1 - ROUNDING) or (squares < right_totals * (1 - ROUNDING)).any():
        effective *= (NORMAL_QUANTILE / student_quantile(clusters)) ** 2 / _design_effect(right, size, p, squares)
    effective = max(1.0, effective)
    return Proportion(value, *wilson_interval(value, effective), effective)


def _design_effect(right: FloatArray, size: FloatArray, p: FloatArray, squares: FloatArray) -> float:
    """d of `proportion`: the variance as a multiple of that of independent 0/1 values."""
    n, folds = size.sum(axis=0), size.shape[1]
    cluster_sizes = size.sum(axis=1)
    worst = float((cluster_sizes**2).sum() / cluster_sizes.sum())
    residual_squares = ((right - p * size) / n).mean(axis=1) ** 2
    by_cluster = float(residual_squares.sum())
    by_value = float(((squares - n * p**2) / n**2).sum()) / folds**2
    independent = float((p * (1 - p) / n).sum()) / folds**2
    if independent <= 0 or by_cluster <= ROUNDING * independent:
        return worst
    informative_clusters = by_cluster**2 / float((residual_squares**2).sum())
    prior_clusters = PRIOR_CLUSTERS * (1 - 2 * float(p.mean())) ** 2
    log_ratio = np.log(max(by_cluster, by_value) / independent)
    return float(
        np.exp((informative_clusters * log_ratio + prior_clusters * np.log(worst)) / (informative_clusters + prior_clusters))
    )


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
