"""Tests of the difference between two results on the same items, and Holm's correction for several tests.

McNemar, sign flips     right and wrong answers to trials
Student                 metrics of queries, from the influence of each cluster on the difference
bootstrap               corpus values of captions, from paired replicates (`cluster_bootstrap`)
Williams                two correlations with the same human ratings
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.cluster_bootstrap import CONFIDENCE_LEVEL, percentile_interval
from crossmatch.metrics.proportions import student_quantile

MIN_P_VALUE = 1e-6  # smallest p reported from a normal or Student distribution, whose tails are an assumption
MCNEMAR_TEST = "McNemar's exact test"
SIGN_FLIP_TEST = "sign-flip test over clusters"
MAX_ENUMERATED = 12  # clusters up to which all sign patterns are enumerated
MIN_OBSERVATIONS = 4  # of Williams' test: t has n - 3 degrees of freedom
ROUNDING = 1e-12  # smaller differences of correlations, and smaller determinants, count as 0


@dataclass(frozen=True)
class Difference:
    """Second result minus first, with its interval and two-sided p-value.

    Attributes:
        value: The difference.
        low: Lower end of the interval.
        high: Upper end of the interval.
        p: Two-sided p-value.
        min_p: Smallest p-value that this number of replicates or clusters can give.
        cluster_p: p-value of a second test that does not treat trials as independent.
        test: Name of the test, where a function has several.
    """

    value: float
    low: float
    high: float
    p: float
    min_p: float = 0.0
    cluster_p: float | None = None
    test: str = ""


def mcnemar_test(only_first: int, only_second: int) -> float:
    """Exact two-sided p-value of McNemar's test: is each trial that only one model wins equally likely to be won by either?

        p = min(1, 2 P[ B <= min(b, c) ]),   B ~ Binomial(b + c, 1/2)

    Source: mcnemar1947note; the exact form is the sign test on the discordant trials.

    >>> mcnemar_test(1, 8), mcnemar_test(0, 0)
    (0.0390625, 1.0)
    """
    n = only_first + only_second
    return min(1.0, 2 * float(special.bdtr(min(only_first, only_second), n, 0.5))) if n else 1.0


def paired_difference(first: FloatArray, second: FloatArray, clusters: IntArray, folds: IntArray | None = None) -> Difference:
    """Second proportion minus first, with interval and p-values; with folds, the difference of the means over folds.

    `p` is McNemar's exact test, which treats trials as independent, and `cluster_p` the sign-flip test, which does not; it is
    None if every trial is its own cluster. With folds, or with partly right trials, McNemar's test does not exist and `p` is the
    sign-flip test. `test` names the test of `p`. The interval is Wald's from the mean and the variance of the differences g
    after adding two trials to each fold, half a trial with g = 1, half a trial with g = -1, and one with 0:

        m = Σ g / (n + 2),    v = ((Σ g² + 1) / (n + 2) - m²) / (n + 2)

    For right or wrong answers this is half a trial in each cell of the paired table (agresti2005simple). The variance is
    multiplied by the design effect of the clusters, and the interval contains the value.

    >>> one, two = np.repeat([1.0, 0, 1, 0], [60, 20, 5, 15]), np.repeat([1.0, 1, 0, 0], [60, 20, 5, 15])
    >>> difference = paired_difference(one, two, np.arange(100))
    >>> difference.value, round(difference.low, 3), round(difference.high, 3), round(difference.p, 4), difference.test
    (0.15, 0.052, 0.242, 0.0041, "McNemar's exact test")
    """
    gap = np.asarray(np.asarray(second, dtype=np.float64) - first)
    member = np.unique(clusters, return_inverse=True)[1].ravel()
    fold = np.zeros(len(gap), np.int64) if folds is None else np.unique(folds, return_inverse=True)[1].ravel()
    n = np.bincount(fold)
    sums, squares = (np.bincount(fold, weights=part) for part in (gap, gap**2))
    cells = n + 2
    adjusted_mean = float((sums / cells).mean())
    independent_variance = float((((squares + 1) / cells - (sums / cells) ** 2) / cells).sum()) / len(n) ** 2
    weighted = gap / (n[fold] * len(n))
    value = float(weighted.sum())
    cluster_count = int(member.max()) + 1
    margin = student_quantile(cluster_count) * float(
        np.sqrt(
            independent_variance * _paired_effect(weighted, (gap - (sums / n)[fold]) / (n[fold] * len(n)), member, cluster_count)
        )
    )
    ends = max(-1.0, min(value, adjusted_mean - margin)), min(1.0, max(value, adjusted_mean + margin))
    flip_p = sign_flip_test(np.asarray(np.bincount(member, weights=weighted), dtype=np.float64))
    if len(n) > 1 or not np.isin(gap, (-1.0, 0.0, 1.0)).all():
        return Difference(value, *ends, flip_p, test=SIGN_FLIP_TEST)
    exact = mcnemar_test(int((gap < 0).sum()), int((gap > 0).sum()))
    return Difference(value, *ends, exact, cluster_p=flip_p if cluster_count < len(gap) else None, test=MCNEMAR_TEST)


def sign_flip_test(sums: FloatArray) -> float:
    """Two-sided p-value of a sum over clusters under random sign flips of whole clusters.

    Under the null hypothesis, the signs of all differences in a cluster may be flipped together. The sum then has variance Σ_k
    G_k², where G_k is the sum of cluster k, and is nearly normal. For up to 12 clusters with a nonzero sum, all sign patterns
    are enumerated: five clusters that agree give p = 2/32.

    >>> sign_flip_test(np.ones(5)), round(sign_flip_test(np.ones(13)), 5), sign_flip_test(np.zeros(3))
    (0.0625, 0.00031, 1.0)
    """
    nonzero = sums[sums != 0]
    total = abs(float(nonzero.sum()))
    if not total:
        return 1.0
    if len(nonzero) > MAX_ENUMERATED:
        return max(MIN_P_VALUE, 2 * float(special.ndtr(-total / np.sqrt((nonzero**2).sum()))))
    signs = 1 - 2.0 * (np.arange(2 ** len(nonzero))[:, None] >> np.arange(len(nonzero)) & 1)
    return float(np.mean(np.abs(signs @ nonzero) >= total * (1 - 1e-9)))  # equal up to rounding


def _paired_effect(weighted: FloatArray, centred: FloatArray, member: IntArray, clusters: int) -> float:
    """Design effect of the differences, at least 1; shrunken as in `proportion`."""
    size = np.bincount(member)
    worst = float((size.astype(np.float64) ** 2).sum() / size.sum())
    independent_variance = float((centred**2).sum())
    ratio = (
        float((np.bincount(member, weights=centred, minlength=clusters) ** 2).sum()) / independent_variance
        if independent_variance > 0
        else worst
    )
    informative_clusters = int((np.bincount(member, weights=np.abs(weighted)) > 0).sum())
    return max(1.0, (informative_clusters * ratio + worst) / (informative_clusters + 1))


def cluster_t_test(value: float, influence: FloatArray, clusters: IntArray, max_abs: float) -> Difference:
    """Student's test and interval of a difference, from the influence of each query on it and the cluster of each query.

    The influences of a cluster are added up to I_k. With K clusters,

        v = K/(K - 1) · ( Σ_k I_k² + (d/K)² ),    d ± t(K - 1) √v,    p = 2 P[ T(K - 1) > |d| / √v ]

    (d/K)² is the influence of one more cluster without a difference. It hardly changes v, unless all clusters have the same
    difference, where v would be 0. So p < .05 exactly if the interval excludes 0. Fewer than six clusters cannot give p < .05 in
    a sign-flip test, so p is at least `min_p_value(K)`, and the interval of fewer than six clusters contains 0.

    Args:
        value: d, the difference of two metrics, which may be means, medians or sums of both directions.
        influence: Influence of each query on d; adds up to 0.
        clusters: Cluster of each query.
        max_abs: Largest possible absolute difference, to which the interval is clipped. For one cluster it is the interval.

    >>> gap = np.array([0.0, 0.5, 1.0, 0.5, 0.5, 0.2, 0.1, 0.0, 0.3, 0.4])
    >>> difference = cluster_t_test(float(gap.mean()), (gap - gap.mean()) / 10, np.arange(10), max_abs=1.0)
    >>> round(difference.low, 3), round(difference.high, 3), round(difference.p, 4)
    (0.118, 0.582, 0.0077)
    """
    totals = np.bincount(np.unique(clusters, return_inverse=True)[1].ravel(), weights=influence)
    count = len(totals)
    min_p = min_p_value(count)
    if count < 2:
        return Difference(value, -max_abs, max_abs, 1.0, min_p)
    error = float(np.sqrt(count / (count - 1) * ((totals**2).sum() + (value / count) ** 2)))
    margin = student_quantile(count) * error
    if min_p >= 1 - CONFIDENCE_LEVEL:
        margin = max(margin, abs(value))
    p = 2 * float(special.stdtr(count - 1, -abs(value) / error)) if error > 0 else 1.0
    return Difference(value, max(-max_abs, value - margin), min(max_abs, value + margin), max(min_p, p), min_p)


def compare_replicates(first: FloatArray, second: FloatArray, value: float) -> Difference:
    """Paired bootstrap test: p is twice the smaller share of replicates on one side of zero.

    This is the level at which the percentile interval of the difference just reaches zero (efron1993introduction, ch. 15). One
    replicate is added to each side, so p is at least 2 / (replicates + 1).
    """
    if first.shape != second.shape:
        raise CrossmatchError(
            f"Replicates must be paired (got shapes {first.shape} and {second.shape}). "
            "Use the same number of samples for both results."
        )
    gap = second - first
    n = len(gap)
    p = 2 * min(((gap <= 0).sum() + 1) / (n + 1), ((gap >= 0).sum() + 1) / (n + 1))
    return Difference(value, *percentile_interval(gap), min(1.0, float(p)), 2 / (n + 1))


def compare_clusters(first: FloatArray, second: FloatArray, value: float, clusters: int) -> Difference:
    """`compare_replicates` with p-values smaller than 2 / (replicates + 1), for corrections over many tests.

    With n replicates no p is below 2 / (n + 1), and Holm's correction multiplies it by the number of tests. So if all replicates
    lie on one side of zero,

        p = 2 P[ T(K - 1) > |value| / s ],    at most 2 / (n + 1),

    where s is the bootstrap's standard error for K clusters (its variance times K / (K - 1)). This assumes a nearly normal
    difference in the tails. p is at least `min_p_value(K)`. The interval is that of `compare_replicates`.

    >>> replicates = np.random.default_rng(0).normal(0.4, 0.1, 1000)       # four standard errors from zero
    >>> zeros = 0 * replicates
    >>> one, two = compare_replicates(zeros, replicates, 0.4), compare_clusters(zeros, replicates, 0.4, 400)
    >>> f"{one.p:.1e} {two.p:.1e} {compare_clusters(zeros, replicates, 0.4, 6).p:.1e}"
    '2.0e-03 5.2e-05 3.1e-02'
    """
    counted = compare_replicates(first, second, value)
    error = float((second - first).std() * np.sqrt(clusters / max(1, clusters - 1)))
    p = counted.p
    if p <= counted.min_p and error > 0:
        p = min(p, 2 * float(special.stdtr(max(1, clusters - 1), -abs(value) / error)))
    floor = min_p_value(clusters)
    return replace(counted, p=max(floor, p), min_p=floor)


def min_p_value(clusters: int) -> float:
    """Smallest two-sided p-value that this number of clusters can give: 2^(1 - K), as in a sign-flip test, or MIN_P_VALUE.

    >>> min_p_value(1), min_p_value(5), min_p_value(1000)
    (1.0, 0.0625, 1e-06)
    """
    return max(MIN_P_VALUE, 2.0 ** (1 - max(1, clusters))) if clusters < 64 else MIN_P_VALUE


@dataclass(frozen=True)
class WilliamsTest:
    """Williams' t, its degrees of freedom, and the two-sided p-value."""

    t: float
    degrees_of_freedom: int
    p: float


def williams_test(first: float, second: float, between: float, n: int) -> WilliamsTest:
    """Williams' test of the difference between two dependent correlations that share one variable.

        t(n - 3) = (r₁ - r₂) √( (n - 1)(1 + r₁₂) / (2 K (n - 1)/(n - 3) + (r₁ + r₂)²/4 · (1 - r₁₂)³) )
        K = 1 - r₁² - r₂² - r₁₂² + 2 r₁ r₂ r₁₂

    The test is derived for Pearson's r of independent, normal observations. For rank correlations, and for captions that share an
    image, use the bootstrap over images as well. Equal correlations give t = 0 and p = 1. Different ones whose difference has no
    variance give t = ±∞ and p = 0.

    Args:
        first: r₁, correlation of the first metric with people.
        second: r₂, correlation of the second metric with people.
        between: r₁₂, correlation between the two metrics.
        n: Number of observations, the same for all three.

    Source: williams1959comparison; steiger1980tests, eq. 7; graham2014testing.

    >>> test = williams_test(0.5, 0.4, 0.7, 103)
    >>> round(test.t, 3), test.degrees_of_freedom, round(test.p, 4)
    (1.49, 100, 0.1393)
    """
    if n < MIN_OBSERVATIONS:
        raise CrossmatchError(f"Williams' test needs at least {MIN_OBSERVATIONS} observations (got {n}).")
    for r in (first, second, between):
        if not -1 <= r <= 1:
            raise CrossmatchError(f"Williams' test needs correlations between -1 and 1 (got {r}).")
    k = 1 - first**2 - second**2 - between**2 + 2 * first * second * between
    if k < -1e-9:  # more than rounding
        raise CrossmatchError(
            f"No three variables have the correlations {first:g}, {second:g} and {between:g}. "
            "Compute all three on the same observations."
        )
    if abs(first - second) <= ROUNDING:
        return WilliamsTest(0.0, n - 3, 1.0)
    denominator = 2 * (k if k > ROUNDING else 0.0) * (n - 1) / (n - 3) + (first + second) ** 2 / 4 * (1 - between) ** 3
    t = (
        (first - second) * np.sqrt((n - 1) * (1 + between) / denominator)
        if denominator > 0
        else np.copysign(np.inf, first - second)
    )
    return WilliamsTest(float(t), n - 3, float(2 * special.stdtr(n - 3, -abs(t))))


def holm_correction(p: list[float]) -> list[float]:
    """Holm's step-down correction for multiple tests (holm1979simple).

    >>> holm_correction([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, largest = [0.0] * len(p), 0.0
    for step, at in enumerate(sorted(range(len(p)), key=lambda n: p[n])):
        largest = max(largest, min(1.0, (len(p) - step) * p[at]))
        adjusted[at] = round(largest, 12)
    return adjusted
