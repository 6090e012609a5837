"""Bounds over unjudged pairs, against every labelling and every order of ties."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.metrics.bounds import UNJUDGED, Placed, as_ranked, bounds, by_number, closed, moves, nth_unjudged
from crossmatch.metrics.bounds_between import WEIGHTS, difference
from crossmatch.metrics.table import metric

NAMES = ("hit@1", "hit@3", "recall@2", "precision@2", "r-precision", "map@r", "mrr", "ndcg@2", "ndcg@5")
each = pytest.mark.parametrize("name", NAMES)


def orders(scores):
    levels = [np.flatnonzero(scores == value).tolist() for value in sorted(set(scores.tolist()), reverse=True)]
    return [sum(parts, ()) for parts in product(*(permutations(level) for level in levels))]


def by_hand(name, ranking, relevant):
    """One order of the candidates, and which of them match."""
    hits = np.array([relevant[c] for c in ranking], dtype=float)
    r, discount = int(hits.sum()), 1 / np.log2(np.arange(2, len(hits) + 2))
    stem, _, k = name.partition("@")
    at = int(k) if k.isdecimal() else None
    return {
        "hit": lambda: float(hits[:at].any()),
        "recall": lambda: hits[:at].sum() / r,
        "precision": lambda: hits[:at].sum() / at,
        "r-precision": lambda: hits[:r].mean(),
        "map": lambda: sum(hits[: i + 1].mean() for i in range(r) if hits[i]) / r,
        "mrr": lambda: 1 / (hits.argmax() + 1),
        "ndcg": lambda: (hits * discount)[:at].sum() / discount[: min(r, at)].sum(),
    }[stem]()


def expected(name, scores, relevant):
    return np.mean([by_hand(name, order, relevant) for order in orders(scores)])


def labellings(label):
    """Every way to decide the unjudged ones."""
    free = np.flatnonzero(label == UNJUDGED)
    for ways in product((0, 1), repeat=len(free)):
        out = np.array(label)
        out[free] = ways
        yield out


@st.composite
def queries(draw, items=5, models=1, levels=3):
    """Scores with many ties (or, with as many levels as items, without), and labels with a positive in each row."""
    n, width = draw(st.integers(1, 2)), draw(st.integers(1, items))
    row = st.permutations(range(width)) if levels is None else st.lists(st.integers(0, levels - 1), min_size=width, max_size=width)
    scores = [np.array([draw(row) for _ in range(n)]) for _ in range(models)]
    label = np.array([draw(st.lists(st.sampled_from((-1, -1, 0, 1)), min_size=width, max_size=width)) for _ in range(n)])
    label[np.arange(n), [draw(st.integers(0, width - 1)) for _ in range(n)]] = 1
    return scores, label.astype(np.int8)


@each
@given(queries())
@settings(max_examples=20, deadline=None)
def test_bounds_are_the_extremes_over_all_labellings_and_tie_orders(name, drawn):
    (scores,), label = drawn
    found = bounds(metric(name), Placed.of(scores), label)
    slow = [[expected(name, line, way) for way in labellings(row)] for line, row in zip(scores, label, strict=True)]
    assert found.low == pytest.approx([min(row) for row in slow], abs=1e-12)
    assert found.high == pytest.approx([max(row) for row in slow], abs=1e-12)
    assert found.mean == pytest.approx((np.mean([min(row) for row in slow]), np.mean([max(row) for row in slow])), abs=1e-12)


@each
@given(queries(items=8, levels=None))
@settings(max_examples=20, deadline=None)
def test_so_they_are_in_longer_rankings_without_ties(name, drawn):
    (scores,), label = drawn
    found = bounds(metric(name), Placed.of(scores), label)
    slow = [[expected(name, line, way) for way in labellings(row)] for line, row in zip(scores, label, strict=True)]
    assert found.low == pytest.approx([min(row) for row in slow], abs=1e-12)
    assert found.high == pytest.approx([max(row) for row in slow], abs=1e-12)


EXACT_UNDER_TIES = [name for name in NAMES if name.partition("@")[0] in WEIGHTS]


def gaps(name, scores, label):
    a, b = scores
    return [
        [expected(name, x, way) - expected(name, y, way) for way in labellings(row)] for x, y, row in zip(a, b, label, strict=True)
    ]


@pytest.mark.parametrize("name", EXACT_UNDER_TIES)
@given(queries(models=2))
@settings(max_examples=20, deadline=None)
def test_differences_of_sums_of_weights_are_exact_under_ties(name, drawn):
    scores, label = drawn
    found = difference(metric(name), *map(Placed.of, scores), label, exhaustive=-1)
    slow = gaps(name, scores, label)
    assert found.low == pytest.approx([min(row) for row in slow], abs=1e-12)
    assert found.high == pytest.approx([max(row) for row in slow], abs=1e-12)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "map@r"])
@given(queries(items=7, models=2, levels=None))
@settings(max_examples=20, deadline=None)
def test_differences_are_exact_without_ties(name, drawn):
    scores, label = drawn
    found = difference(metric(name), *map(Placed.of, scores), label, exhaustive=-1)
    slow = gaps(name, scores, label)
    assert found.low == pytest.approx([min(row) for row in slow], abs=1e-12)
    assert found.high == pytest.approx([max(row) for row in slow], abs=1e-12)


@each
@pytest.mark.parametrize("levels", [3, None])
@given(st.data())
@settings(max_examples=20, deadline=None)
def test_no_labelling_is_outside_the_bounds_and_those_are_within_the_separate_ones(name, levels, data):
    scores, label = data.draw(queries(models=2, levels=levels, items=7 if levels is None else 5))
    a, b = map(Placed.of, scores)
    found = difference(metric(name), a, b, label, exhaustive=-1)
    slow = gaps(name, scores, label)
    assert (found.low <= np.array([min(row) for row in slow]) + 1e-12).all()
    assert (found.high >= np.array([max(row) for row in slow]) - 1e-12).all()
    one, other = (bounds(metric(name), placed, label) for placed in (a, b))
    assert (found.high <= one.high - other.low + 1e-12).all()
    assert (found.low >= one.low - other.high - 1e-12).all()


@each
@given(queries(models=2))
@settings(max_examples=15, deadline=None)
def test_with_few_unjudged_all_labellings_are_tried(name, drawn):
    scores, label = drawn
    found = difference(metric(name), *map(Placed.of, scores), label, exhaustive=5)
    slow = gaps(name, scores, label)
    assert found.low == pytest.approx([min(row) for row in slow], abs=1e-12)
    assert found.high == pytest.approx([max(row) for row in slow], abs=1e-12)


@each
@given(queries(models=2))
@settings(max_examples=15, deadline=None)
def test_when_all_is_judged_the_bounds_are_the_value(name, drawn):
    scores, label = drawn
    label = np.where(label == UNJUDGED, 0, label).astype(np.int8)
    a, b = map(Placed.of, scores)
    values = [placed.values(metric(name), label == 1) for placed in (a, b)]
    alone, gap = bounds(metric(name), a, label), difference(metric(name), a, b, label)
    assert alone.low == pytest.approx(values[0], abs=1e-12)
    assert alone.high == pytest.approx(values[0], abs=1e-12)
    assert gap.low == pytest.approx(values[0] - values[1], abs=1e-12)
    assert gap.high == pytest.approx(values[0] - values[1], abs=1e-12)


def test_the_bound_of_map_at_r_is_tight_where_rankings_agree():
    """Two models that agree but for one swap: the difference hangs on the two that they swap, not on the many unjudged."""
    places = list(range(1, 21))
    swapped = [2, 1, *places[2:]]
    label = np.full((1, 20), UNJUDGED, dtype=np.int8)
    label[0, 5] = 1
    a, b = as_ranked([places], 50), as_ranked([swapped], 50)
    found, alone = difference(metric("map@r"), a, b, label), bounds(metric("map@r"), a, label)
    assert found.high[0] <= 0.25
    assert alone.high[0] - alone.low[0] > 0.9
    same = difference(metric("map@r"), a, a, label)
    assert same.low[0] == same.high[0] == 0.0


def test_how_far_the_bound_of_map_at_r_is_from_the_extreme():
    """Over random rankings of ten candidates, six of them unjudged, it is reached or missed by little."""
    rng = np.random.default_rng(0)
    scores = [np.array([rng.permutation(10) for _ in range(200)]) for _ in range(2)]
    label = np.array([rng.permutation([1, 0, 0, 0] + [UNJUDGED] * 6) for _ in range(200)], dtype=np.int8)
    a, b = map(Placed.of, scores)
    bound, exact = (difference(metric("map@r"), a, b, label, exhaustive=n) for n in (-1, 6))
    excess = bound.high - exact.high
    assert excess.min() >= -1e-12
    assert np.mean(excess) < 0.05
    assert np.mean(excess < 1e-12) > 0.3


def test_a_positive_more_can_lower_and_raise_map_at_r():
    low, high = by_number(metric("map@r"), as_ranked([[1, 2, 9]], 20), np.array([[1, UNJUDGED, UNJUDGED]]))
    assert low.tolist() == [[1.0, 0.5, pytest.approx(2 / 3)]]
    assert high.tolist() == [[1.0, 1.0, pytest.approx(2 / 3)]]


def test_what_was_not_retrieved_stays_irrelevant_in_the_closed_reading():
    a, b = as_ranked([[1, 3, 7, 9]], 20), as_ranked([[2, 9, 5, 8]], 20)
    label = np.array([[1, UNJUDGED, UNJUDGED, UNJUDGED]])
    assert closed(label, [a, b], 5).tolist() == [[1, -1, -1, 0]]
    assert closed(label, [a], 5).tolist() == [[1, -1, 0, 0]]
    wide, narrow = bounds(metric("recall@5"), a, label), bounds(metric("recall@5"), a, closed(label, [a], 5))
    assert wide.low[0] < narrow.low[0] == 1.0
    tied = Placed.of([[5, 4, 4, 1]])
    assert closed(label, [tied], 2).tolist() == [[1, -1, -1, 0]]


@each
@given(queries(items=5))
@settings(max_examples=15, deadline=None)
def test_moves_are_what_one_label_changes(name, drawn):
    (scores,), label = drawn
    alone, last = moves(metric(name), Placed.of(scores), label)
    for q, column in np.ndindex(label.shape):
        if label[q, column] != UNJUDGED:
            assert alone[q, column] == last[q, column] == 0
            continue
        for found, others in ((alone, 0), (last, 1)):
            ways = [np.where(label[q] == UNJUDGED, others, label[q]) for _ in range(2)]
            ways[0][column], ways[1][column] = 0, 1
            slow = expected(name, scores[q], ways[1]) - expected(name, scores[q], ways[0])
            assert found[q, column] == pytest.approx(slow, abs=1e-12)


def test_rows_of_unequal_length_are_filled_up_with_negatives():
    label = np.array([[1, UNJUDGED, 0, 0], [1, UNJUDGED, UNJUDGED, UNJUDGED]])
    placed = as_ranked([[2, 1, 3, 4], [4, 1, 2, 3]], 9)
    for name in NAMES:
        whole = bounds(metric(name), placed, label)
        for q in range(2):
            kept = label[q] != 0
            one = bounds(metric(name), as_ranked([(placed.above[q, kept] + 1).tolist()], 9), label[q : q + 1, kept])
            assert (one.low[0], one.high[0]) == pytest.approx((whole.low[q], whole.high[q]))


def test_unjudged_are_numbered_in_the_order_of_the_ranking():
    assert nth_unjudged(as_ranked([[3, 1, 2]], 3), np.array([[-1, -1, 1]])).tolist() == [[2, 1, 0]]


def test_what_cannot_be_bounded_is_refused():
    placed = as_ranked([[1, 2]], 3)
    with pytest.raises(WrongWords, match=r"no bounds of median-rank; they are known for hit@…"):
        bounds(metric("median-rank"), placed, np.array([[1, -1]]))
    with pytest.raises(CrossmatchError, match="query 0 has no known positive"):
        bounds(metric("hit@1"), placed, np.array([[0, -1]]))
    with pytest.raises(CrossmatchError, match=r"a matrix of 1 \(match\)"):
        difference(metric("hit@1"), placed, placed, np.array([[1, 3]]))
    short = Placed(placed.above, placed.size, placed.gallery, np.array([1]))
    with pytest.raises(CrossmatchError, match="lists 1 candidates for a query that may need 2 of 3"):
        bounds(metric("map@r"), short, np.array([[1, -1]]))
