"""Between which values the difference of two models must lie, whatever is true of the pairs that nobody judged.

Both models are scored by the same labels, so that the bounds of their difference are narrower than the difference of their bounds:
what both retrieve at the same place cancels out. Each query is looked at alone, with each number m of new positives:

**Precision, recall, R-precision, nDCG.** Each positive adds a weight of its own to the value (at R = known + m), so that the m
largest and the m smallest differences of weights give the extremes: exact, under ties too.

**hit@k, MRR.** Without ties the best positive alone counts. A labelling in which A's best is i is no better for A - B than the one
in which i is the only new positive: others can only help B. So none and each single one are tried: exact without ties.

**mAP@R.** With N(x) positives among the first x places and g(n) = n(n + 1)/2, from 1/j = Σ_{x=j}^{R-1} 1/(x(x + 1)) + 1/R follows

    R · mAP@R = Σ_{j<=R} rel(j) N(j)/j = Σ_{x<R} g(N(x)) / (x(x + 1)) + g(N(R)) / R

a sum over cut-offs. At one cut-off only counts matter: how many of the m are above it for A alone, for both, for neither, for B
alone, and the best counts have a closed form. The sum of the best is a bound that may not be reached, because different cut-offs
may want different labellings; the extreme itself is a quadratic programme in zeros and ones. The bound is never wider than the
highest of A minus the lowest of B at the same m, and it is zero for two models that rank alike.

**Ties in hit@k, MRR or mAP@R**: the highest of A minus the lowest of B (for mAP@R, at the same m), which may not be reached either.

Where a bound may not be reached and a query has few unjudged candidates left, all labellings are tried, and it is exact.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.metrics.bounds import BLOCK, POSITIVE, UNJUDGED, Bounds, Labels, Placed, by_number, require_bounded, require_labels
from crossmatch.metrics.table import Metric

EXHAUSTIVE = 6  # unjudged candidates of a query up to which all labellings are tried


def difference(metric: Metric, a: Placed, b: Placed, label: Labels, exhaustive: int = EXHAUSTIVE) -> Bounds:
    """Bounds of the value of A minus that of B for each query, over all labellings.

    >>> from crossmatch.metrics.table import metric
    >>> a, b = Placed.of([[3, 2, 1]]), Placed.of([[3, 1, 2]])       # both have the positive first
    >>> found = difference(metric("map@r"), a, b, np.array([[1, -1, 0]], dtype=np.int8))
    >>> found.low, found.high                                       # A has the unjudged one at 2, B at 3
    (array([0.]), array([0.5]))
    """
    require_bounded(metric)
    label = require_labels(label)
    high, low = (_highest(metric, *both, label) for both in ((a, b), (b, a)))
    found = Bounds(-low, high)
    few = (label == UNJUDGED).sum(axis=1) <= exhaustive
    return found if _stem(metric) in WEIGHTS or not few.any() else _with_all(metric, a, b, label, found, np.flatnonzero(few))


def _highest(metric: Metric, a: Placed, b: Placed, label: Labels) -> FloatArray:
    """The highest value of A - B, or what it is sure not to exceed."""
    stem = _stem(metric)
    if stem in WEIGHTS:
        return _by_weights(metric, a, b, label)
    listed = label != 0
    tied = ((np.maximum(a.size, b.size) > 1) & listed).any(axis=1)
    out = np.empty(len(label))
    apart = BY_STEM[stem]
    for rows, find in ((tied, _same_number), (~tied, apart)):
        if rows.any():
            out[rows] = find(metric, a.chosen(rows), b.chosen(rows), label[rows])
    return out


# -- metrics to which each positive adds its own weight


def _top(metric: Metric, placed: Placed, r: IntArray) -> FloatArray:
    """The probability of each candidate to be among the first k; r is not used."""
    return np.clip((_k(metric) - placed.above) / placed.size, 0.0, 1.0)


def _first_r(metric: Metric, placed: Placed, r: IntArray) -> FloatArray:
    return np.clip((r[:, None] - placed.above) / placed.size, 0.0, 1.0) / r[:, None]


def _gain(metric: Metric, placed: Placed, r: IntArray) -> FloatArray:
    k = min(_k(metric), int(placed.gallery.max()))
    discount = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, k + 2)))])
    gained = discount[np.minimum(placed.above + placed.size, k)] - discount[np.minimum(placed.above, k)]
    return np.asarray(gained / placed.size / discount[np.minimum(r, k)][:, None], dtype=np.float64)


Weight = Callable[[Metric, Placed, IntArray], FloatArray]
WEIGHTS: dict[str, Weight] = {
    "precision": lambda metric, placed, r: _top(metric, placed, r) / _k(metric),
    "recall": lambda metric, placed, r: _top(metric, placed, r) / r[:, None],
    "r-precision": _first_r,
    "ndcg": _gain,
}


def _stem(metric: Metric) -> str:
    return metric.name.partition("@")[0]


def _k(metric: Metric) -> int:
    return int(metric.name.partition("@")[2])


def _by_weights(metric: Metric, a: Placed, b: Placed, label: Labels) -> FloatArray:
    """max over m of Σ_known w + the m largest w of the unjudged, with w = weight in A - weight in B at R = known + m."""
    unjudged, known = label == UNJUDGED, label == POSITIVE
    count, sure = unjudged.sum(axis=1), known.sum(axis=1)
    out = np.full(len(label), -np.inf)
    for m in range(int(count.max(initial=0)) + 1):
        at = np.flatnonzero(count >= m)
        there = [WEIGHTS[_stem(metric)](metric, placed.chosen(at), sure[at] + m) for placed in (a, b)]
        weight = there[0] - there[1]
        best = -np.sort(np.where(unjudged[at], -weight, np.inf), axis=1)[:, :m]
        out[at] = np.maximum(out[at], np.where(known[at], weight, 0.0).sum(axis=1) + best.sum(axis=1))
    return out


# -- metrics of the best positive alone


def _by_first(metric: Metric, a: Placed, b: Placed, label: Labels) -> FloatArray:
    """Without ties: none of the unjudged ones matches, or one of them alone."""
    sides = []
    for placed in (a, b):
        rank = placed.above + 1
        best = np.where(label == POSITIVE, rank, placed.gallery[:, None]).min(axis=1)[:, None]
        first = np.minimum(best, np.where(label == UNJUDGED, rank, placed.gallery[:, None]))
        first = np.concatenate([best, first], axis=1)
        sides.append(1.0 / first if _stem(metric) == "mrr" else (first <= _k(metric)).astype(np.float64))
    return np.asarray((sides[0] - sides[1]).max(axis=1), dtype=np.float64)


# -- mAP@R


def _by_cuts(metric: Metric, a: Placed, b: Placed, label: Labels) -> FloatArray:
    """Without ties: max over m of the sum over cut-offs of the best at each."""
    count = (label == UNJUDGED).sum(axis=1)
    out = np.empty(len(label))
    width = int((label != 0).sum(axis=1).max())
    step = max(1, BLOCK // (width * width))
    for at in np.array_split(np.argsort(count, kind="stable"), -(-len(label) // step)):  # rows of like length together
        if len(at):
            out[at] = _cut_block(a.chosen(at), b.chosen(at), label[at])
    return out


def _cut_block(a: Placed, b: Placed, label: Labels) -> FloatArray:
    unjudged, known = label == UNJUDGED, label == POSITIVE
    sure, count = known.sum(axis=1), unjudged.sum(axis=1)
    places = int((sure + count).max())
    place = [np.minimum(placed.above, places) for placed in (a, b)]  # from 0; `places` is beyond the last cut-off
    sure_a, sure_b = (_up_to(at, known, places) for at in place)
    only_a = _up_to(place[0], unjudged, places)
    only_b = _up_to(place[1], unjudged, places)
    both = _up_to(np.maximum(*place), unjudged, places)
    only_a, only_b = only_a - both, only_b - both
    neither = count[:, None] - only_a - only_b - both
    x = np.arange(1, places + 1)
    step = 1.0 / (x * (x + 1.0))
    out = np.full(len(label), -np.inf)
    counts = (sure_a, sure_b, only_a, only_b, both, neither)
    for m in range(int(count.max(initial=0)) + 1):
        at = count >= m
        r = (sure[at] + m)[:, None]
        last = int(r.max())  # no cut-off beyond it counts
        gap = _best_at_cuts(m, *(each[at, :last] for each in counts))
        share = np.where(x[:last] < r, step[:last], np.where(x[:last] == r, 1.0 / r, 0.0))
        out[at] = np.maximum(out[at], (share * gap).sum(axis=1) / r[:, 0])
    return out


def _up_to(place: IntArray, which: BoolArray, places: int) -> IntArray:
    """How many of some candidates are among the first x places, for x = 1 … places."""
    rows, columns = np.nonzero(which)
    at = rows * (places + 1) + place[rows, columns]
    held = np.bincount(at, minlength=len(place) * (places + 1)).reshape(len(place), places + 1)
    return np.cumsum(held, axis=1)[:, :places]


def _best_at_cuts(
    m: int, sure_a: IntArray, sure_b: IntArray, only_a: IntArray, only_b: IntArray, both: IntArray, neither: IntArray
) -> IntArray:
    """The highest g(N_A) - g(N_B) with m new positives, at each cut-off.

    Those above the cut for A alone come first: each is better than any other. One above it for both changes g(N_A) - g(N_B) by
    N_A - N_B, the same sign for each of them, so that as many or as few as possible are best; one for B alone is the last resort.
    """
    first = np.minimum(m, only_a)
    rest = m - first
    most = np.minimum(rest, both)
    fewest = np.minimum(most, np.maximum(rest - neither, 0))
    found = []
    for shared in (fewest, most):
        last = np.maximum(rest - shared - neither, 0)
        n_a, n_b = sure_a + first + shared, sure_b + shared + last
        found.append((n_a * (n_a + 1) - n_b * (n_b + 1)) // 2)
    return np.asarray(np.maximum(*found), dtype=np.int64)


# -- what is left


def _same_number(metric: Metric, a: Placed, b: Placed, label: Labels) -> FloatArray:
    """The highest of A minus the lowest of B with the same number of new positives, or with any, where the metric only grows."""
    (_, high), (low, _) = by_number(metric, a, label), by_number(metric, b, label)
    if _stem(metric) in ("hit", "mrr"):
        return np.asarray(np.nanmax(high, axis=1) - np.nanmin(low, axis=1), dtype=np.float64)
    return np.asarray(np.nanmax(high - low, axis=1), dtype=np.float64)


BY_STEM: dict[str, Callable[[Metric, Placed, Placed, Labels], FloatArray]] = {"hit": _by_first, "mrr": _by_first, "map": _by_cuts}


def _with_all(metric: Metric, a: Placed, b: Placed, label: Labels, found: Bounds, rows: IntArray) -> Bounds:
    """The bounds, those of `rows` from all of their labellings."""
    low, high = found.low.copy(), found.high.copy()
    count = (label[rows] == UNJUDGED).sum(axis=1)
    for u in np.unique(count).tolist():
        same = rows[count == u]
        step = max(1, BLOCK // (label.shape[1] << u))
        for at in (same[n : n + step] for n in range(0, len(same), step)):
            gap = all_values(metric, a.chosen(at), label[at]) - all_values(metric, b.chosen(at), label[at])
            low[at], high[at] = gap.min(axis=1), gap.max(axis=1)
    return Bounds(low, high)


def all_values(metric: Metric, placed: Placed, label: Labels) -> FloatArray:
    """The value under every labelling, for queries with the same number u of unjudged candidates: queries x 2^u.

    >>> from crossmatch.metrics.table import metric
    >>> all_values(metric("precision@2"), Placed.of([[3, 2, 1]]), np.array([[1, -1, 0]], dtype=np.int8))
    array([[0.5, 1. ]])
    """
    unjudged = label == UNJUDGED
    u = int(unjudged[0].sum()) if len(label) else 0
    number = np.where(unjudged, np.cumsum(unjudged, axis=1) - 1, 0)
    ways = np.arange(1 << u)[None, :, None]
    positive = (label == POSITIVE)[:, None, :] | (unjudged[:, None, :] & ((ways >> number[:, None, :]) & 1).astype(bool))
    repeated = placed.chosen(np.repeat(np.arange(len(label)), 1 << u))
    return repeated.values(metric, positive.reshape(-1, label.shape[1])).reshape(len(label), 1 << u)
