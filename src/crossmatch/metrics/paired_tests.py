"""Paired tests of two results on the same trials: McNemar's test, and sign flips over clusters."""

from __future__ import annotations

import numpy as np
from scipy import special

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.metrics.cluster_bootstrap import MIN_P_VALUE, Difference
from crossmatch.metrics.proportions import student_quantile

MCNEMAR_TEST = "McNemar's exact test"
SIGN_FLIP_TEST = "sign-flip test over clusters"
MAX_ENUMERATED = 12  # clusters up to which all sign patterns are enumerated


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
