"""Bounds of ranking metrics over all possible labels of unjudged pairs.

For each query, some candidates are known positives, some are unjudged, and the rest are known negatives. A *labelling* assigns
positive or negative to each unjudged candidate. The bounds are the lowest and the highest value of the metric over all
labellings; ties count by the mean over all orders, as everywhere.

**Which candidates may be positive.** The caller marks candidates as unjudged, in one of two readings:

    closed   candidates retrieved among the first ranks of some model; all others stay irrelevant
    open     all unjudged candidates

Closed is the default of all callers. In the open reading, a COCO caption has 4,999 unjudged images, and metrics that are divided
by R, the number of positives, can take nearly any value.

**How the bounds are found.** Moving a positive from rank r' up to r < r' never lowers a metric of this table. The first k ranks
then contain as many positives as before or one more, which proves it for all metrics but mAP@R. There, with N positives above r
and b between r and r', the term (N + b + 1)/r' is replaced by (N + 1)/r, and each of the b gains one over its rank, at least 1/r':
(N + 1)/r + b/r' >= (N + b + 1)/r'. (If r' was beyond R, no term is lost.)

So among the labellings with m new positives, and the same R, the m highest-ranked candidates give the highest value and the m
lowest the lowest, for every order of ties and thus in the mean. There is no such rule over m: one more positive raises R, by
which recall, R-precision, mAP@R and nDCG are divided. mAP@R of a positive at rank 1 is 1; with another at rank 9 it is 1/2, with
another at rank 2 it is 1 again. So all m are tried: u + 1 values instead of 2^u. hit@k, precision@k and MRR never fall with
another positive and need only the two extremes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.metrics.metric_table import Metric
from crossmatch.ranking.ranks import Ranks

UNJUDGED, NEGATIVE, POSITIVE = -1, 0, 1
Labels = NDArray[np.int8]  # queries x listed candidates, each -1, 0 or 1

MAX_ELEMENTS = 1 << 20  # labels evaluated at a time
MONOTONE = ("hit", "precision", "mrr")  # never lower with another positive
BOUNDED = (*MONOTONE, "recall", "ndcg", "r-precision", "map")


@dataclass(frozen=True, eq=False)
class Placements:
    """Where a model ranks the listed candidates of each query: matrices, queries x candidates, as in `RankCounts`.

    Known negatives need not be listed. Shorter rows are padded with candidates labelled negative.

    Attributes:
        above: Number of candidates with a higher score.
        size: Number of candidates with the same score, including itself.
        gallery: Number of candidates of each query.
        depth: How far down each ranking is known.
    """

    above: IntArray
    size: IntArray
    gallery: IntArray
    depth: IntArray

    @classmethod
    def from_scores(cls, scores: ArrayLike) -> Placements:
        """Create placements from a small matrix of scores, queries x candidates, all of them listed.

        >>> Placements.from_scores([[0.9, 0.5, 0.5]]).above
        array([[0, 1, 1]])
        """
        s = np.asarray(scores)
        above = (s[:, None, :] > s[:, :, None]).sum(axis=2)
        size = (s[:, None, :] == s[:, :, None]).sum(axis=2)
        gallery = np.full(len(s), s.shape[1], dtype=np.int64)
        return cls(above, size, gallery, gallery)

    @cached_property
    def order(self) -> IntArray:
        """Indices of the listed candidates of each query, best first."""
        return np.argsort(self.above, axis=1, kind="stable")

    @cached_property
    def by_rank(self) -> tuple[IntArray, IntArray]:
        return np.take_along_axis(self.above, self.order, 1), np.take_along_axis(self.size, self.order, 1)

    def select(self, queries: IntArray | BoolArray) -> Placements:
        return Placements(self.above[queries], self.size[queries], self.gallery[queries], self.depth[queries])

    def ranks(self, positive: BoolArray) -> Ranks:
        """Ranks under one labelling; each query needs a positive."""
        above, size = self.by_rank
        is_positive = np.take_along_axis(positive, self.order, 1)
        start = np.concatenate([[0], np.cumsum(is_positive.sum(axis=1))]).astype(np.int64)
        return Ranks(start, above[is_positive], size[is_positive], np.ones(start[-1]), self.gallery, self.depth)

    def values(self, metric: Metric, positive: BoolArray) -> FloatArray:
        """The metric of each query under one labelling."""
        ranks = self.ranks(positive)
        if metric.required_depth is not None:
            needed = np.minimum(metric.required_depth(ranks), ranks.gallery_size)
            short = np.flatnonzero(ranks.depth < needed)
            if len(short):
                q = short[0]
                raise CrossmatchError(
                    f"{metric.name} may need {needed[q]:,} of {ranks.gallery_size[q]:,} candidates of a query, but the run lists "
                    f"{ranks.depth[q]:,}. Write deeper rankings, or choose another metric."
                )
        return np.asarray(metric.values(ranks), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class MetricBounds:
    """Lowest and highest value of each query."""

    low: FloatArray
    high: FloatArray

    @property
    def mean(self) -> tuple[float, float]:
        """Bounds of the mean over queries; no pair belongs to two queries, so all can be extreme at once."""
        return float(self.low.mean()), float(self.high.mean())


def require_bounded_metric(metric: Metric) -> str:
    """Return the family name of a metric, or raise an error if it has no bounds."""
    stem = metric.name.partition("@")[0]
    if stem not in BOUNDED:
        available = ", ".join(sorted(name if name in ("mrr", "r-precision") else f"{name}@…" for name in BOUNDED))
        raise UsageError(f"Bounds of {metric.name} are not available. Choose one of {available}.")
    return stem


def require_labels(label: Labels) -> Labels:
    """Check labels: values -1, 0 and 1, and a known positive for each query."""
    label = np.asarray(label, dtype=np.int8)
    if label.ndim != 2 or not np.isin(label, (UNJUDGED, NEGATIVE, POSITIVE)).all():
        raise CrossmatchError(f"Labels must be a matrix of 1 (positive), 0 (negative) and -1 (unjudged); got shape {label.shape}.")
    without_positive = np.flatnonzero(~(label == POSITIVE).any(axis=1))
    if len(without_positive):
        raise CrossmatchError(
            f"Query {without_positive[0]} has no known positive, so its value may be undefined. Leave it out of the evaluation."
        )
    return label


def metric_bounds(metric: Metric, placed: Placements, label: Labels) -> MetricBounds:
    """Lowest and highest value of each query over all labellings; exact, also under ties.

    >>> from crossmatch.metrics.metric_table import metric
    >>> label = np.array([[1, -1, 0, -1]], dtype=np.int8)           # ranked 1, 2, 3, 4
    >>> bounds = metric_bounds(metric("map@r"), Placements.from_scores([[4, 3, 2, 1]]), label)
    >>> bounds.low, bounds.high
    (array([0.5]), array([1.]))
    """
    low, high = bounds_by_new_positives(metric, placed, label)
    return MetricBounds(np.nanmin(low, axis=1), np.nanmax(high, axis=1))


def bounds_by_new_positives(metric: Metric, placed: Placements, label: Labels) -> tuple[FloatArray, FloatArray]:
    """Lowest and highest value with exactly m = 0, 1, … new positives; NaN beyond the number of unjudged candidates.

    For monotone metrics only the extremes are filled: the lowest at 0, the highest at the last m.
    """
    stem, label = require_bounded_metric(metric), require_labels(label)
    count = (label == UNJUDGED).sum(axis=1)
    low, high = (np.full((len(label), int(count.max(initial=0)) + 1), np.nan) for _ in range(2))
    if stem in MONOTONE:
        low[:, 0] = placed.values(metric, label == POSITIVE)
        high[np.arange(len(label)), count] = placed.values(metric, label != NEGATIVE)
        return low, high
    rank_numbers = number_unjudged(placed, label)
    for m in range(low.shape[1]):
        rows = np.flatnonzero(count >= m)
        selected, is_positive, number = placed.select(rows), label[rows] == POSITIVE, rank_numbers[rows]
        high[rows, m] = selected.values(metric, is_positive | ((number > 0) & (number <= m)))
        low[rows, m] = selected.values(metric, is_positive | (number > (count[rows] - m)[:, None])) if m else high[rows, m]
    return low, high


def number_unjudged(placed: Placements, label: Labels) -> IntArray:
    """Number the unjudged candidates 1, 2, … in the order of the ranking; 0 for the others.

    >>> number_unjudged(Placements.from_scores([[1, 2, 3, 4]]), np.array([[-1, 1, -1, 0]]))
    array([[2, 0, 1, 0]])
    """
    unjudged = np.take_along_axis(label == UNJUDGED, placed.order, 1)
    number = np.where(unjudged, np.cumsum(unjudged, axis=1), 0)
    out = np.empty_like(number)
    np.put_along_axis(out, placed.order, number, 1)
    return out


def judgement_effects(metric: Metric, placed: Placements, label: Labels) -> tuple[FloatArray, FloatArray]:
    """Change of the value by each unjudged candidate: if no other is positive, and if all others are; 0 for judged ones.

    >>> from crossmatch.metrics.metric_table import metric
    >>> label = np.array([[1, -1, -1]], dtype=np.int8)
    >>> judgement_effects(metric("precision@2"), Placements.from_scores([[4, 3, 2]]), label)[0]
    array([[0. , 0.5, 0. ]])
    """
    require_bounded_metric(metric)
    label = require_labels(label)
    added_first, added_last = np.zeros(label.shape), np.zeros(label.shape)
    lowest_labels, all_positive = (placed.values(metric, positive) for positive in (label == POSITIVE, label != NEGATIVE))
    rows, columns = np.nonzero(label == UNJUDGED)
    step = max(1, MAX_ELEMENTS // label.shape[1])
    for n in range(0, len(rows), step):
        row, column = rows[n : n + step], columns[n : n + step]
        selected, is_candidate = placed.select(row), np.arange(label.shape[1]) == column[:, None]
        added_first[row, column] = selected.values(metric, (label[row] == POSITIVE) | is_candidate) - lowest_labels[row]
        added_last[row, column] = all_positive[row] - selected.values(metric, (label[row] != NEGATIVE) & ~is_candidate)
    return added_first, added_last
