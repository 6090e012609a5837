"""Between which values a ranking metric must lie, whatever is true of the pairs that nobody judged.

For each query some candidates are known positives, some are unjudged, and all else is known not to match. A *labelling* says of
each unjudged candidate whether it matches. The bounds are the lowest and the highest value of the metric over all labellings, with
ties as everywhere: the value is the mean over the orders of equal scores.

**Which candidates may match** is what the caller marks as unjudged, in one of two readings:

    closed   those that were retrieved: among the first places of a model (`closed`); what no model retrieved stays irrelevant
    open     all that nobody judged

Closed is the default of all that calls this. In the open reading a caption of COCO has 4,999 unjudged images, all of them may
match, and what is divided by R, the number of positives, can be next to anything for every model.

**How the bounds are found.** Moving a positive forward in a ranking, from r' to r < r', never lowers a metric of this table.
The first k places then hold as many positives as before or one more, which settles all of them but mAP@R. There, with N positives
above r and b between r and r', the term (N + b + 1)/r' gives way to (N + 1)/r, and each of the b gains one over its rank, so at
least 1/r': (N + 1)/r + b/r' >= (N + b + 1)/r'. (If r' was beyond R, nothing gives way.)

So among all labellings with the same number m of new positives, and so with the same R, the m that stand first give the highest
value and the m that stand last the lowest, in every order of the ties and so in their mean. Over m there is no such rule: one more
positive raises R, by which recall, R-precision, mAP@R and nDCG are divided, and at which two of them stop. mAP@R of a positive at
rank 1 is 1; with another at rank 9 it is 1/2, with another at rank 2 it is 1 again. So all m from none to all are tried: u + 1
values instead of 2^u. hit@k, precision@k and MRR never fall with a positive more, and need the two ends alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.ranks import Ranks
from crossmatch.metrics.table import Metric

UNJUDGED, NEGATIVE, POSITIVE = -1, 0, 1
Labels = NDArray[np.int8]  # queries x listed candidates: one of the three

BLOCK = 1 << 20  # labels looked at together
GROWING = ("hit", "precision", "mrr")  # never lower with a positive more
BOUNDED = (*GROWING, "recall", "ndcg", "r-precision", "map")


@dataclass(frozen=True, eq=False)
class Placed:
    """Where a model places the listed candidates of each query: two matrices, queries x candidates, as counts of `Standing`.

    What is known not to match need not be listed. Rows of unequal length are filled up with candidates labelled negative.
    """

    above: IntArray
    size: IntArray
    gallery: IntArray
    depth: IntArray  # how far down each ranking is known

    @classmethod
    def of(cls, scores: ArrayLike) -> Placed:
        """From a small matrix of scores, queries x candidates, all of them listed.

        >>> Placed.of([[0.9, 0.5, 0.5]]).above
        array([[0, 1, 1]])
        """
        s = np.asarray(scores)
        above = (s[:, None, :] > s[:, :, None]).sum(axis=2)
        size = (s[:, None, :] == s[:, :, None]).sum(axis=2)
        gallery = np.full(len(s), s.shape[1], dtype=np.int64)
        return cls(above, size, gallery, gallery)

    @cached_property
    def order(self) -> IntArray:
        """The listed candidates of each query, best first."""
        return np.argsort(self.above, axis=1, kind="stable")

    @cached_property
    def by_rank(self) -> tuple[IntArray, IntArray]:
        return np.take_along_axis(self.above, self.order, 1), np.take_along_axis(self.size, self.order, 1)

    def chosen(self, queries: IntArray | BoolArray) -> Placed:
        return Placed(self.above[queries], self.size[queries], self.gallery[queries], self.depth[queries])

    def ranks(self, positive: BoolArray) -> Ranks:
        """The ranks under one labelling; each query needs a positive."""
        above, size = self.by_rank
        held = np.take_along_axis(positive, self.order, 1)
        start = np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int64)
        return Ranks(start, above[held], size[held], np.ones(start[-1]), self.gallery, self.depth)

    def values(self, metric: Metric, positive: BoolArray) -> FloatArray:
        """The metric of each query under one labelling."""
        ranks = self.ranks(positive)
        if metric.depth is not None:
            needed = np.minimum(metric.depth(ranks), ranks.gallery)
            short = np.flatnonzero(ranks.depth < needed)
            if len(short):
                q = short[0]
                raise CrossmatchError(
                    f"the run lists {ranks.depth[q]:,} candidates for a query that may need {needed[q]:,} of {ranks.gallery[q]:,} "
                    f"for {metric.name}. Write deeper rankings, or ask for another metric."
                )
        return np.asarray(metric.values(ranks), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Bounds:
    """For each query the lowest and the highest value."""

    low: FloatArray
    high: FloatArray

    @property
    def mean(self) -> tuple[float, float]:
        """The bounds of the mean over the queries: no pair belongs to two queries, so that each can take its extreme."""
        return float(self.low.mean()), float(self.high.mean())


def require_bounded(metric: Metric) -> str:
    """The name of a metric's family, if bounds are known for it."""
    stem = metric.name.partition("@")[0]
    if stem not in BOUNDED:
        known = ", ".join(sorted(name if name in ("mrr", "r-precision") else f"{name}@…" for name in BOUNDED))
        raise WrongWords(f"there are no bounds of {metric.name}; they are known for {known}.")
    return stem


def require_labels(label: Labels) -> Labels:
    """Labels as they must be: of the three kinds, and each query with a known positive."""
    label = np.asarray(label, dtype=np.int8)
    if label.ndim != 2 or not np.isin(label, (UNJUDGED, NEGATIVE, POSITIVE)).all():
        raise CrossmatchError(f"labels have shape {label.shape}; a matrix of 1 (match), 0 (none) and -1 (unjudged) was expected.")
    bare = np.flatnonzero(~(label == POSITIVE).any(axis=1))
    if len(bare):
        raise CrossmatchError(
            f"query {bare[0]} has no known positive, so that it may have none at all, and no value. Leave it out of the evaluation."
        )
    return label


def closed(label: Labels, models: Iterable[Placed], depth: int) -> Labels:
    """The closed reading: what no model may have among its first `depth` places is taken not to match.

    With ties at the cut, whatever some order of them brings there was retrieved.

    >>> closed(np.array([[1, -1, -1]]), [Placed.of([[3, 1, 2]])], 2)
    array([[ 1,  0, -1]], dtype=int8)
    """
    label = np.asarray(label, dtype=np.int8)
    seen = np.zeros(label.shape, dtype=bool)
    for placed in models:
        seen |= placed.above < depth
    return np.where((label == UNJUDGED) & ~seen, np.int8(NEGATIVE), label)


def bounds(metric: Metric, placed: Placed, label: Labels) -> Bounds:
    """The lowest and the highest value of each query over all labellings: exact, under ties too.

    >>> from crossmatch.metrics.table import metric
    >>> known = np.array([[1, -1, 0, -1]], dtype=np.int8)           # ranked 1, 2, 3, 4
    >>> found = bounds(metric("map@r"), Placed.of([[4, 3, 2, 1]]), known)
    >>> found.low, found.high
    (array([0.5]), array([1.]))
    """
    low, high = by_number(metric, placed, label)
    return Bounds(np.nanmin(low, axis=1), np.nanmax(high, axis=1))


def by_number(metric: Metric, placed: Placed, label: Labels) -> tuple[FloatArray, FloatArray]:
    """The lowest and the highest value with exactly m new positives, m = 0, 1, …; nan beyond the number of unjudged ones.

    For metrics that never fall with a positive more, only the ends are filled in: the lowest at 0, the highest at the last.
    """
    stem, label = require_bounded(metric), require_labels(label)
    count = (label == UNJUDGED).sum(axis=1)
    low, high = (np.full((len(label), int(count.max(initial=0)) + 1), np.nan) for _ in range(2))
    if stem in GROWING:
        low[:, 0] = placed.values(metric, label == POSITIVE)
        high[np.arange(len(label)), count] = placed.values(metric, label != NEGATIVE)
        return low, high
    nth = nth_unjudged(placed, label)
    for m in range(low.shape[1]):
        at = np.flatnonzero(count >= m)
        there, known, number = placed.chosen(at), label[at] == POSITIVE, nth[at]
        high[at, m] = there.values(metric, known | ((number > 0) & (number <= m)))
        low[at, m] = there.values(metric, known | (number > (count[at] - m)[:, None])) if m else high[at, m]
    return low, high


def nth_unjudged(placed: Placed, label: Labels) -> IntArray:
    """For each unjudged candidate 1, 2, … in the order of the ranking; 0 for the others.

    >>> nth_unjudged(Placed.of([[1, 2, 3, 4]]), np.array([[-1, 1, -1, 0]]))
    array([[2, 0, 1, 0]])
    """
    unjudged = np.take_along_axis(label == UNJUDGED, placed.order, 1)
    number = np.where(unjudged, np.cumsum(unjudged, axis=1), 0)
    out = np.empty_like(number)
    np.put_along_axis(out, placed.order, number, 1)
    return out


def moves(metric: Metric, placed: Placed, label: Labels) -> tuple[FloatArray, FloatArray]:
    """How much each unjudged candidate alone changes the value: if no other matches, and if all others do. 0 for judged ones.

    >>> from crossmatch.metrics.table import metric
    >>> moves(metric("precision@2"), Placed.of([[4, 3, 2]]), np.array([[1, -1, -1]], dtype=np.int8))[0]
    array([[0. , 0.5, 0. ]])
    """
    require_bounded(metric)
    label = require_labels(label)
    alone, last = np.zeros(label.shape), np.zeros(label.shape)
    none, every = (placed.values(metric, positive) for positive in (label == POSITIVE, label != NEGATIVE))
    rows, columns = np.nonzero(label == UNJUDGED)
    step = max(1, BLOCK // label.shape[1])
    for n in range(0, len(rows), step):
        at, column = rows[n : n + step], columns[n : n + step]
        there, one = placed.chosen(at), np.arange(label.shape[1]) == column[:, None]
        alone[at, column] = there.values(metric, (label[at] == POSITIVE) | one) - none[at]
        last[at, column] = every[at] - there.values(metric, (label[at] != NEGATIVE) & ~one)
    return alone, last


def as_ranked(ranks: Sequence[Sequence[int]], gallery: int) -> Placed:
    """From the ranks of the listed candidates of each query, counted from one, without ties.

    >>> as_ranked([[1, 9]], 20).above
    array([[0, 8]])
    """
    above = np.asarray(ranks, dtype=np.int64) - 1
    lengths = np.full(len(above), gallery, dtype=np.int64)
    return Placed(above, np.ones_like(above), lengths, lengths)
