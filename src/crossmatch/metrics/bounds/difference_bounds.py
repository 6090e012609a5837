"""Bounds of the difference of two models over all possible labels of unjudged pairs.

Both models are scored with the same labels, so the bounds of the difference are narrower than the difference of the bounds. Each
query is treated alone, for each number m of new positives:

**Precision, recall, R-precision, nDCG.** Each positive adds its own weight to the value (at R = known + m), so the m largest and
the m smallest differences of weights give the extremes. Exact, also under ties.

**hit@k, MRR.** Without ties only the best positive counts. A labelling in which A's best is i is no better for A - B than the
one in which i is the only new positive: others can only help B. So no new positive and each single one are tried. Exact without
ties.

**mAP@R.** With N(x) positives among the first x ranks and g(n) = n(n + 1)/2, it follows from
1/j = Σ_{x=j}^{R-1} 1/(x(x + 1)) + 1/R that

    R · mAP@R = Σ_{j<=R} rel(j) N(j)/j = Σ_{x<R} g(N(x)) / (x(x + 1)) + g(N(R)) / R

a sum over cut-offs. At one cut-off only counts matter: how many of the m are above it for A only, for both, for neither, for B
only; the best counts have a closed form. The sum of the best is a bound that may not be reached, because cut-offs may need
different labellings; the extreme itself is a quadratic 0-1 programme. The bound is never wider than the highest of A minus the
lowest of B at the same m, and it is zero for two equal rankings.

**Ties in hit@k, MRR or mAP@R.** The highest of A minus the lowest of B (for mAP@R, at the same m), which may not be reached either.

If a bound may not be reached and a query has few unjudged candidates, all labellings are tried, which makes it exact.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.metrics.bounds.metric_bounds import (
    MAX_ELEMENTS,
    POSITIVE,
    UNJUDGED,
    Labels,
    MetricBounds,
    Placements,
    bounds_by_new_positives,
    require_bounded_metric,
    require_labels,
)
from crossmatch.metrics.metric_table import Metric

MAX_EXHAUSTIVE = 6  # unjudged candidates of a query for which all labellings are tried


def difference_bounds(
    metric: Metric, a: Placements, b: Placements, label: Labels, exhaustive: int = MAX_EXHAUSTIVE
) -> MetricBounds:
    """Bounds of the value of A minus that of B for each query, over all labellings.

    All labellings of a query are tried if it has at most `exhaustive` unjudged candidates.

    >>> from crossmatch.metrics.metric_table import metric
    >>> a, b = Placements.from_scores([[3, 2, 1]]), Placements.from_scores([[3, 1, 2]])       # both rank the positive first
    >>> bounds = difference_bounds(metric("map@r"), a, b, np.array([[1, -1, 0]], dtype=np.int8))
    >>> bounds.low, bounds.high                                     # A ranks the unjudged one second, B third
    (array([0.]), array([0.5]))
    """
    require_bounded_metric(metric)
    label = require_labels(label)
    high, low = _highest(metric, a, b, label), _highest(metric, b, a, label)
    bounds = MetricBounds(-low, high)
    is_small = (label == UNJUDGED).sum(axis=1) <= exhaustive
    if _stem(metric) in WEIGHTS or not is_small.any():
        return bounds
    return _enumerate_labellings(metric, a, b, label, bounds, np.flatnonzero(is_small))


def _highest(metric: Metric, a: Placements, b: Placements, label: Labels) -> FloatArray:
    """Highest value of A - B, or an upper bound of it."""
    stem = _stem(metric)
    if stem in WEIGHTS:
        return _by_weights(metric, a, b, label)
    listed = label != 0
    tied = ((np.maximum(a.size, b.size) > 1) & listed).any(axis=1)
    highest = np.empty(len(label))
    untied_bound = BY_STEM[stem]
    for rows, upper_bound in ((tied, _by_separate_bounds), (~tied, untied_bound)):
        if rows.any():
            highest[rows] = upper_bound(metric, a.select(rows), b.select(rows), label[rows])
    return highest


# -- metrics to which each positive adds its own weight


def _probability_in_top_k(metric: Metric, placed: Placements, r: IntArray) -> FloatArray:
    """Probability of each candidate to be among the first k; r is not used."""
    return np.clip((_k(metric) - placed.above) / placed.size, 0.0, 1.0)


def _first_r(metric: Metric, placed: Placements, r: IntArray) -> FloatArray:
    return np.clip((r[:, None] - placed.above) / placed.size, 0.0, 1.0) / r[:, None]


def _gain(metric: Metric, placed: Placements, r: IntArray) -> FloatArray:
    k = min(_k(metric), int(placed.gallery.max()))
    discount = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, k + 2)))])
    gained = discount[np.minimum(placed.above + placed.size, k)] - discount[np.minimum(placed.above, k)]
    return np.asarray(gained / placed.size / discount[np.minimum(r, k)][:, None], dtype=np.float64)


Weight = Callable[[Metric, Placements, IntArray], FloatArray]
WEIGHTS: dict[str, Weight] = {
    "precision": lambda metric, placed, r: _probability_in_top_k(metric, placed, r) / _k(metric),
    "recall": lambda metric, placed, r: _probability_in_top_k(metric, placed, r) / r[:, None],
    "r-precision": _first_r,
    "ndcg": _gain,
}


def _stem(metric: Metric) -> str:
    return metric.name.partition("@")[0]


def _k(metric: Metric) -> int:
    return int(metric.name.partition("@")[2])


def _by_weights(metric: Metric, a: Placements, b: Placements, label: Labels) -> FloatArray:
    """max over m of Σ_known w + the m largest w of the unjudged, where w = weight in A - weight in B at R = known + m."""
    unjudged, is_positive = label == UNJUDGED, label == POSITIVE
    count, positive_count = unjudged.sum(axis=1), is_positive.sum(axis=1)
    highest = np.full(len(label), -np.inf)
    for m in range(int(count.max(initial=0)) + 1):
        rows = np.flatnonzero(count >= m)
        weights = [WEIGHTS[_stem(metric)](metric, placed.select(rows), positive_count[rows] + m) for placed in (a, b)]
        weight = weights[0] - weights[1]
        best = -np.sort(np.where(unjudged[rows], -weight, np.inf), axis=1)[:, :m]
        highest[rows] = np.maximum(highest[rows], np.where(is_positive[rows], weight, 0.0).sum(axis=1) + best.sum(axis=1))
    return highest


# -- metrics of the best positive alone


def _by_first(metric: Metric, a: Placements, b: Placements, label: Labels) -> FloatArray:
    """Without ties: no unjudged candidate is positive, or exactly one is."""
    sides = []
    for placed in (a, b):
        rank = placed.above + 1
        best = np.where(label == POSITIVE, rank, placed.gallery[:, None]).min(axis=1)[:, None]
        first = np.minimum(best, np.where(label == UNJUDGED, rank, placed.gallery[:, None]))
        first = np.concatenate([best, first], axis=1)
        sides.append(1.0 / first if _stem(metric) == "mrr" else (first <= _k(metric)).astype(np.float64))
    return np.asarray((sides[0] - sides[1]).max(axis=1), dtype=np.float64)


# -- mAP@R


def _by_cuts(metric: Metric, a: Placements, b: Placements, label: Labels) -> FloatArray:
    """Without ties: max over m of the sum over cut-offs of the best value at each."""
    count = (label == UNJUDGED).sum(axis=1)
    highest = np.empty(len(label))
    width = int((label != 0).sum(axis=1).max())
    step = max(1, MAX_ELEMENTS // (width * width))
    for rows in np.array_split(np.argsort(count, kind="stable"), -(-len(label) // step)):  # rows of similar length together
        if len(rows):
            highest[rows] = _cut_block(a.select(rows), b.select(rows), label[rows])
    return highest


def _cut_block(a: Placements, b: Placements, label: Labels) -> FloatArray:
    unjudged, is_positive = label == UNJUDGED, label == POSITIVE
    positive_count, count = is_positive.sum(axis=1), unjudged.sum(axis=1)
    cutoffs = int((positive_count + count).max())
    ranks = [np.minimum(placed.above, cutoffs) for placed in (a, b)]  # from 0; `places` means beyond the last cut-off
    positives_a, positives_b = (_count_up_to(rows, is_positive, cutoffs) for rows in ranks)
    only_a = _count_up_to(ranks[0], unjudged, cutoffs)
    only_b = _count_up_to(ranks[1], unjudged, cutoffs)
    in_both = _count_up_to(np.maximum(*ranks), unjudged, cutoffs)
    only_a, only_b = only_a - in_both, only_b - in_both
    neither = count[:, None] - only_a - only_b - in_both
    x = np.arange(1, cutoffs + 1)
    step = 1.0 / (x * (x + 1.0))
    highest = np.full(len(label), -np.inf)
    counts = (positives_a, positives_b, only_a, only_b, in_both, neither)
    for m in range(int(count.max(initial=0)) + 1):
        rows = count >= m
        r = (positive_count[rows] + m)[:, None]
        last = int(r.max())  # last relevant cut-off
        gap = _best_at_cuts(m, *(part[rows, :last] for part in counts))
        share = np.where(x[:last] < r, step[:last], np.where(x[:last] == r, 1.0 / r, 0.0))
        highest[rows] = np.maximum(highest[rows], (share * gap).sum(axis=1) / r[:, 0])
    return highest


def _count_up_to(ranks: IntArray, mask: BoolArray, cutoffs: int) -> IntArray:
    """Number of selected candidates among the first x ranks, for x = 1 … cutoffs."""
    rows, columns = np.nonzero(mask)
    cell = rows * (cutoffs + 1) + ranks[rows, columns]
    counts = np.bincount(cell, minlength=len(ranks) * (cutoffs + 1)).reshape(len(ranks), cutoffs + 1)
    return np.cumsum(counts, axis=1)[:, :cutoffs]


def _best_at_cuts(
    m: int, positives_a: IntArray, positives_b: IntArray, only_a: IntArray, only_b: IntArray, in_both: IntArray, neither: IntArray
) -> IntArray:
    """Highest g(N_A) - g(N_B) with m new positives, at each cut-off.

    Candidates above the cut-off for A only come first: each is better than any other. One above it for both changes g(N_A) -
    g(N_B) by N_A - N_B, the same sign for all of them, so as many or as few as possible are best. Candidates for B only come last.
    """
    first = np.minimum(m, only_a)
    rest = m - first
    most = np.minimum(rest, in_both)
    fewest = np.minimum(most, np.maximum(rest - neither, 0))
    differences = []
    for shared in (fewest, most):
        last = np.maximum(rest - shared - neither, 0)
        n_a, n_b = positives_a + first + shared, positives_b + shared + last
        differences.append((n_a * (n_a + 1) - n_b * (n_b + 1)) // 2)
    return np.asarray(np.maximum(*differences), dtype=np.int64)


# -- ties


def _by_separate_bounds(metric: Metric, a: Placements, b: Placements, label: Labels) -> FloatArray:
    """Highest of A minus lowest of B with the same number of new positives, or with any number for monotone metrics."""
    (_, high), (low, _) = bounds_by_new_positives(metric, a, label), bounds_by_new_positives(metric, b, label)
    if _stem(metric) in ("hit", "mrr"):
        return np.asarray(np.nanmax(high, axis=1) - np.nanmin(low, axis=1), dtype=np.float64)
    return np.asarray(np.nanmax(high - low, axis=1), dtype=np.float64)


Bound = Callable[[Metric, Placements, Placements, Labels], FloatArray]
BY_STEM: dict[str, Bound] = {"hit": _by_first, "mrr": _by_first, "map": _by_cuts}


def _enumerate_labellings(
    metric: Metric, a: Placements, b: Placements, label: Labels, bounds: MetricBounds, rows: IntArray
) -> MetricBounds:
    """The bounds, with those of `rows` computed from all labellings."""
    low, high = bounds.low.copy(), bounds.high.copy()
    count = (label[rows] == UNJUDGED).sum(axis=1)
    for u in np.unique(count).tolist():
        same_count = rows[count == u]
        step = max(1, MAX_ELEMENTS // (label.shape[1] << u))
        for block in (same_count[n : n + step] for n in range(0, len(same_count), step)):
            values_a, values_b = (values_of_all_labellings(metric, placed.select(block), label[block]) for placed in (a, b))
            gap = values_a - values_b
            low[block], high[block] = gap.min(axis=1), gap.max(axis=1)
    return MetricBounds(low, high)


def values_of_all_labellings(metric: Metric, placed: Placements, label: Labels) -> FloatArray:
    """Value under every labelling, for queries with the same number u of unjudged candidates: queries x 2^u.

    >>> from crossmatch.metrics.metric_table import metric
    >>> label = np.array([[1, -1, 0]], dtype=np.int8)
    >>> values_of_all_labellings(metric("precision@2"), Placements.from_scores([[3, 2, 1]]), label)
    array([[0.5, 1. ]])
    """
    unjudged = label == UNJUDGED
    u = int(unjudged[0].sum()) if len(label) else 0
    number = np.where(unjudged, np.cumsum(unjudged, axis=1) - 1, 0)
    ways = np.arange(1 << u)[None, :, None]
    positive = (label == POSITIVE)[:, None, :] | (unjudged[:, None, :] & ((ways >> number[:, None, :]) & 1).astype(bool))
    repeated = placed.select(np.repeat(np.arange(len(label)), 1 << u))
    return repeated.values(metric, positive.reshape(-1, label.shape[1])).reshape(len(label), 1 << u)
