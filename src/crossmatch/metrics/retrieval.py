"""Ranking metrics: one value per query from the ranks of its positives.

Every function returns the mean over all orders of tied candidates; after `Ranks.break_ties` it is the best or the worst case. In
the formulas, a tie group has s candidates, p of them positive and n = s - p not, with a candidates and b positives above it. R is
the number of positives of a query.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import UsageError
from crossmatch.data.rank_counts import CountsAtK
from crossmatch.ranking.ranks import Ranks


def hit_at_k(ranks: Ranks, k: int) -> FloatArray:
    """1 if any positive is among the first k, else 0. Image-text papers call its mean R@k; it is not recall.

        hit@k = 1[min rank <= k];   under ties 1 - C(n, m) / C(s, m) with m = k - a, for the group of the best positive

    Source: karpathy2015deep; ties by the hypergeometric distribution.

    >>> hit_at_k(Ranks.from_lists([[3, 9], [6]]), 5)
    array([1., 0.])
    """
    return first_rank_cdf(*best_positive_group(ranks), k)


def recall_at_k(ranks: Ranks, k: int) -> FloatArray:
    """Share of the positives that are among the first k.

        recall@k = 1/R · Σ_i 1[rank_i <= k]

    Source: manning2008introduction, eq. 8.2.

    >>> recall_at_k(Ranks.from_lists([[3, 9], [6]]), 5)
    array([0.5, 0. ])
    """
    return ranks.sum_by_query(ranks.probability_within(k)) / ranks.positive_counts


def precision_at_k(ranks: Ranks, k: int) -> FloatArray:
    """Share of the first k candidates that are positive. Missing candidates of short galleries count as misses.

        P@k = 1/k · Σ_i 1[rank_i <= k]

    Source: manning2008introduction, eq. 8.1.

    >>> precision_at_k(Ranks.from_lists([[3, 4], [6]]), 5)
    array([0.4, 0. ])
    """
    return ranks.sum_by_query(ranks.probability_within(k)) / k


def r_precision(ranks: Ranks) -> FloatArray:
    """Share of the first R candidates that are positive.

        R-P = 1/R · Σ_i 1[rank_i <= R]

    Source: chun2022eccv, eq. E.3; musgrave2020metric.

    >>> r_precision(Ranks.from_lists([[1, 4, 5]]))          # three positives, one of them in the top three
    array([0.33333333])
    """
    return ranks.sum_by_query(ranks.probability_within(ranks.positive_counts)) / ranks.positive_counts


def map_at_r(ranks: Ranks) -> FloatArray:
    """Mean over the first R ranks of the precision at each rank with a positive.

        mAP@R = 1/R · Σ_{i<=R} P(i) · rel(i)

    Under ties, rank a + j of a group is positive with probability p/s, and then b + 1 + (j - 1)(p - 1)/(s - 1) positives are
    expected up to it. The sum over j has a closed form in harmonic numbers.
    Source: musgrave2020metric; chun2022eccv, sec. 4.1.

    >>> map_at_r(Ranks.from_lists([[1, 2, 9]]))             # (1/1 + 2/2) / 3
    array([0.66666667])
    """
    s, p, a, b = ranks.tie_size[ranks.group_start], ranks.group_positives, ranks.above[ranks.group_start], ranks.positives_before
    r = ranks.positive_counts[ranks.query[ranks.group_start]]
    m = np.clip(r - a, 0, s)  # ranks of the group among the first R
    reciprocals = _harmonic(a + m) - _harmonic(a)  # Σ_j 1/(a + j)
    slope = (p - 1) / np.maximum(s - 1, 1)
    summed = (b + 1) * reciprocals + slope * (m - (a + 1) * reciprocals)  # (j - 1)/(a + j) = 1 - (a + 1)/(a + j)
    summed = np.where(s == 1, m * ((b + 1) / (a + 1)), summed)  # exact without ties
    return ranks.sum_groups_by_query(p / s * summed) / ranks.positive_counts


def reciprocal_rank(ranks: Ranks) -> FloatArray:
    """One over the rank of the best positive; its mean is MRR.

        RR = 1 / min rank;   under ties Σ_j P(first = a + j) / (a + j)

    Source: voorhees1999trec.

    >>> reciprocal_rank(Ranks.from_lists([[2, 3], [4]]))
    array([0.5 , 0.25])
    """
    a, n, p = best_positive_group(ranks)
    values = np.asarray(1.0 / (a + 1.0), dtype=np.float64)
    tied = np.flatnonzero(n > 0)
    triples, triple_index = np.unique(np.stack([a[tied], n[tied], p[tied]]), axis=1, return_inverse=True)
    means = np.array([_mean_reciprocal(*map(int, t)) for t in triples.T])
    if len(tied):
        values[tied] = means[triple_index.ravel()]
    return values


def first_rank(ranks: Ranks) -> FloatArray:
    """Rank of the best positive, from 1; smaller is better. Under ties its mean a + (s + 1)/(p + 1).

    Source: karpathy2015deep (its median over the queries is `Med r`).

    >>> first_rank(Ranks.from_lists([[2, 3], [4]]))
    array([2., 4.])
    """
    a, n, p = best_positive_group(ranks)
    return np.asarray(a + (n + p + 1) / (p + 1), dtype=np.float64)


def ndcg_at_k(ranks: Ranks, k: int) -> FloatArray:
    """Discounted cumulative gain of the first k, divided by that of the ideal order. The gain is the grade; unjudged is 0.

        nDCG@k = Σ_{i<=k} g_i / log2(i + 1)  /  the same for the ideal order

    Under ties, every rank of a group gains the mean grade of the group (mcsherry2008computing).
    Source: jarvelin2002cumulated; discount log2(i + 1) of burges2005learning, linear gain as in trec_eval.

    >>> ndcg_at_k(Ranks.from_lists([[1, 3]]), 10).round(4)    # (1 + 1/2) / (1 + 1/log2(3))
    array([0.9197])
    """
    k = min(k, int(ranks.gallery_size.max()))
    size, above = ranks.tie_size[ranks.group_start], ranks.above[ranks.group_start]
    discount = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, k + 2)))])
    gained = discount[np.minimum(above + size, k)] - discount[np.minimum(above, k)]
    grades = np.add.reduceat(ranks.gain, ranks.group_start)
    best_first = ranks.gain[np.lexsort((-ranks.gain, ranks.query))]
    place = np.arange(len(best_first)) - ranks.start[ranks.query]
    ideal = ranks.sum_by_query(np.where(place < k, best_first * np.diff(discount)[np.minimum(place, k - 1)], 0.0))
    return ranks.sum_groups_by_query(grades / size * gained) / ideal


def plausible_match_r_precision(counts: CountsAtK, k: int = 0) -> FloatArray:
    """Plausible-match R-precision (PMRP) of each query: the mean over all values of zeta in the counts.

        PMRP = 1/|Z| Σ_ζ 1/K_ζ Σ_{i <= K_ζ} m_i,      K_ζ = R_ζ (chun2021pcme), or min(R_ζ, k) (chun2022eccv, sec. 4.1)

    >>> counts = CountsAtK(*(np.array([[[n]]]) for n in (3, 2, 4, 1, 2)), np.array([[3]]), np.array([9]), caps=(0,))
    >>> plausible_match_r_precision(counts)
    array([0.5])
    """
    if k not in counts.caps:
        available = ", ".join("pmrp" if cap == 0 else f"pmrp@{cap}" for cap in counts.caps)
        raise UsageError(f"pmrp@{k} was not counted; the result has {available}.")
    cap = counts.caps.index(k)
    return np.asarray((counts.positives_in_top_k[cap] / counts.k[cap]).mean(axis=0), dtype=np.float64)


def best_positive_group(ranks: Ranks) -> tuple[IntArray, IntArray, IntArray]:
    """(a, n, p) of the tie group of each query's best positive: candidates above, negatives and positives in it."""
    best = ranks.group[ranks.start[:-1]]
    start = ranks.group_start[best]
    return ranks.above[start], ranks.tie_size[start] - ranks.group_positives[best], ranks.group_positives[best]


def first_rank_cdf(a: ArrayLike, n: ArrayLike, p: ArrayLike, rank: ArrayLike) -> FloatArray:
    """Probability that the best positive has this rank or better: 1 - C(n, m) / C(n + p, m), m = rank - a.

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
    probability = later * p / (n + p - j + 1)
    return float((probability / (a + j)).sum())


def _harmonic(n: IntArray) -> FloatArray:
    """Harmonic numbers 1 + 1/2 + … + 1/n."""
    table = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, int(n.max(initial=0)) + 1))])
    return table[n]
