"""Ranking metrics: one value per query from the ranks of its positives.

Every function gives the mean over all orders of tied candidates; with `Ranks.settle` before, the best or the worst case.
In the formulas a tie group has `s` candidates, `p` of them positive and n = s - p not, with `a` candidates and `b`
positives above it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.ranks import Ranks


def hit_at(ranks: Ranks, k: int) -> FloatArray:
    """1 if any positive is among the first k. Papers on image-text retrieval call its mean R@k; it is not recall.

        hit@k = 1[min rank <= k];   under ties 1 - C(n, m) / C(s, m) with m = k - a, for the group of the best positive

    Source: karpathy2015deep; ties by the hypergeometric distribution.

    >>> hit_at(Ranks.of([[3, 9], [6]]), 5)
    array([1., 0.])
    """
    return first_rank_cdf(*first_group(ranks), k)


def recall_at(ranks: Ranks, k: int) -> FloatArray:
    """Share of the positives that are among the first k.

        recall@k = 1/R · Σ_i 1[rank_i <= k]

    Source: manning2008introduction, eq. 8.2.

    >>> recall_at(Ranks.of([[3, 9], [6]]), 5)
    array([0.5, 0. ])
    """
    return ranks.total(ranks.within(k)) / ranks.count


def precision_at(ranks: Ranks, k: int) -> FloatArray:
    """Share of the first k that is positive. With fewer than k candidates the missing ones count as misses.

        P@k = 1/k · Σ_i 1[rank_i <= k]

    Source: manning2008introduction, eq. 8.1.

    >>> precision_at(Ranks.of([[3, 4], [6]]), 5)
    array([0.4, 0. ])
    """
    return ranks.total(ranks.within(k)) / k


def r_precision(ranks: Ranks) -> FloatArray:
    """Share of the first R retrieved items that are positive, R being the query's number of positives.

        R-P = 1/R · Σ_i 1[rank_i <= R]

    Source: chun2022eccv, eq. E.3; musgrave2020metric.

    >>> r_precision(Ranks.of([[1, 4, 5]]))          # three positives, one of them in the top three
    array([0.33333333])
    """
    return ranks.total(ranks.within(ranks.count)) / ranks.count


def map_at_r(ranks: Ranks) -> FloatArray:
    """Mean over the first R places of the precision at each place that holds a positive.

        mAP@R = 1/R · Σ_{i<=R} P(i) · rel(i)

    Under ties the place a + j of a group is a positive with probability p/s, and then b + 1 + (j - 1)(p - 1)/(s - 1)
    positives are expected up to it; the sum over j has a closed form in harmonic numbers.
    Source: musgrave2020metric; chun2022eccv, sec. 4.1.

    >>> map_at_r(Ranks.of([[1, 2, 9]]))             # (1/1 + 2/2) / 3
    array([0.66666667])
    """
    s, p, a, b = ranks.size[ranks.leader], ranks.together, ranks.above[ranks.leader], ranks.before
    r = ranks.count[ranks.query[ranks.leader]]
    m = np.clip(r - a, 0, s)  # places of the group among the first R
    reciprocals = _harmonic(a + m) - _harmonic(a)  # Σ_j 1/(a + j)
    slope = (p - 1) / np.maximum(s - 1, 1)
    summed = (b + 1) * reciprocals + slope * (m - (a + 1) * reciprocals)  # (j - 1)/(a + j) = 1 - (a + 1)/(a + j)
    summed = np.where(s == 1, m * ((b + 1) / (a + 1)), summed)  # without ties to the last digit
    return ranks.total_by_group(p / s * summed) / ranks.count


def reciprocal_rank(ranks: Ranks) -> FloatArray:
    """One over the rank of the best positive; its mean is MRR.

        RR = 1 / min rank;   under ties Σ_j P(first = a + j) / (a + j)

    Source: voorhees1999trec.

    >>> reciprocal_rank(Ranks.of([[2, 3], [4]]))
    array([0.5 , 0.25])
    """
    a, n, p = first_group(ranks)
    values = np.asarray(1.0 / (a + 1.0), dtype=np.float64)
    tied = np.flatnonzero(n > 0)
    triples, back = np.unique(np.stack([a[tied], n[tied], p[tied]]), axis=1, return_inverse=True)
    means = np.array([_mean_reciprocal(*map(int, t)) for t in triples.T])
    if len(tied):
        values[tied] = means[back.ravel()]
    return values


def first_rank(ranks: Ranks) -> FloatArray:
    """The rank of the best positive, counted from one (smaller is better); under ties its mean a + (s + 1)/(p + 1).

    Source: karpathy2015deep (its median over the queries is `Med r`).

    >>> first_rank(Ranks.of([[2, 3], [4]]))
    array([2., 4.])
    """
    a, n, p = first_group(ranks)
    return np.asarray(a + (n + p + 1) / (p + 1), dtype=np.float64)


def ndcg_at(ranks: Ranks, k: int) -> FloatArray:
    """Discounted gain of the first k over the best possible one; the gain is the grade, unjudged counts as nothing.

        nDCG@k = Σ_{i<=k} g_i / log2(i + 1)  /  the same for the ideal order

    Under ties every place of a group gains the group's mean grade (mcsherry2008computing).
    Source: jarvelin2002cumulated; the discount log2(i + 1) is that of burges2005learning, the linear gain trec_eval's.

    >>> ndcg_at(Ranks.of([[1, 3]]), 10).round(4)    # (1 + 1/2) / (1 + 1/log2(3))
    array([0.9197])
    """
    k = min(k, int(ranks.gallery.max()))
    size, above = ranks.size[ranks.leader], ranks.above[ranks.leader]
    discount = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, k + 2)))])
    gained = discount[np.minimum(above + size, k)] - discount[np.minimum(above, k)]
    grades = np.add.reduceat(ranks.gain, ranks.leader)
    best_first = ranks.gain[np.lexsort((-ranks.gain, ranks.query))]
    place = np.arange(len(best_first)) - ranks.start[ranks.query]
    ideal = ranks.total(np.where(place < k, best_first * np.diff(discount)[np.minimum(place, k - 1)], 0.0))
    return ranks.total_by_group(grades / size * gained) / ideal


def first_group(ranks: Ranks) -> tuple[IntArray, IntArray, IntArray]:
    """(a, n, p) of each query's best positive: candidates above, negatives level with it, positives in its group."""
    best = ranks.group[ranks.start[:-1]]
    at = ranks.leader[best]
    return ranks.above[at], ranks.size[at] - ranks.together[best], ranks.together[best]


def first_rank_cdf(a: ArrayLike, n: ArrayLike, p: ArrayLike, rank: ArrayLike) -> FloatArray:
    """P(the best positive is at `rank` or better): 1 - C(n, m) / C(n + p, m), m = rank - a.

    >>> first_rank_cdf(np.array([0]), np.array([1]), np.array([1]), 1)
    array([0.5])
    """
    m, n, p = np.broadcast_arrays(np.asarray(rank) - np.asarray(a), n, p)
    inside, past = (m > 0) & (m <= n), m > n
    m = np.where(inside, m, 0)
    # C(n, m) / C(n + p, m) = Π_i (n - m + i) / (n + i), i = 1 … p: exact for few positives, by logarithms for many
    missed = np.ones(m.shape)
    few = p <= 64
    for i in range(1, int(p[few].max(initial=0)) + 1):
        missed = np.where(few & (i <= p), missed * ((n - m + i) / (n + i)), missed)
    logs = gammaln(n + 1) - gammaln(n - m + 1) + gammaln(n + p - m + 1) - gammaln(n + p + 1)
    missed = np.where(few, missed, np.exp(np.minimum(logs, 0.0)))
    return np.where(past, 1.0, np.where(inside, 1.0 - missed, 0.0))


def _mean_reciprocal(a: int, n: int, p: int) -> float:
    """Σ_j P(first = j) / (a + j), with P(first > j) = P(first > j - 1) · (n - j + 1) / (n + p - j + 1)."""
    j = np.arange(1, n + 2)
    later = np.concatenate([[1.0], np.cumprod((n - j[:-1] + 1) / (n + p - j[:-1] + 1))])  # P(first > j - 1)
    chance = later * p / (n + p - j + 1)
    return float((chance / (a + j)).sum())


def _harmonic(n: IntArray) -> FloatArray:
    """1 + 1/2 + … + 1/n from a table as long as the largest n."""
    table = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, int(n.max(initial=0)) + 1))])
    return table[n]
