"""Bounds over unjudged pairs, against every labelling and every order of ties."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.metrics.bounds.difference_bounds import WEIGHTS, difference_bounds
from crossmatch.metrics.bounds.metric_bounds import (
    UNJUDGED,
    Placements,
    bounds_by_new_positives,
    judgement_effects,
    metric_bounds,
    number_unjudged,
)
from crossmatch.metrics.metric_table import metric

NAMES = ("hit@1", "hit@3", "recall@2", "precision@2", "r-precision", "map@r", "mrr", "ndcg@2", "ndcg@5")
each = pytest.mark.parametrize("name", NAMES)


def placements_from_ranks(ranks, gallery):
    """Placements from untied ranks, from 1."""
    above, sizes = np.asarray(ranks) - 1, np.full(len(ranks), gallery)
    return Placements(above, np.ones_like(above), sizes, sizes)


def orders(scores):
    levels = [np.flatnonzero(scores == value).tolist() for value in sorted(set(scores.tolist()), reverse=True)]
    return [sum(parts, ()) for parts in product(*(permutations(level) for level in levels))]


def by_hand(name, ranking, relevant):
    """The metric for one order of the candidates."""
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
    """All labels of the unjudged candidates."""
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


def assert_extremes(bounds, values):
    """The bounds of each query are the extremes of its values under all labellings."""
    assert bounds.low == pytest.approx([min(row) for row in values], abs=1e-12)
    assert bounds.high == pytest.approx([max(row) for row in values], abs=1e-12)


@each
@given(st.one_of(queries(), queries(items=8, levels=None)))
def test_bounds_are_the_extremes_over_all_labellings_and_tie_orders(name, drawn):
    (scores,), label = drawn
    bounds = metric_bounds(metric(name), Placements.from_scores(scores), label)
    slow = [[expected(name, line, way) for way in labellings(row)] for line, row in zip(scores, label, strict=True)]
    assert_extremes(bounds, slow)
    assert bounds.mean == pytest.approx((np.mean([min(row) for row in slow]), np.mean([max(row) for row in slow])), abs=1e-12)


EXACT_UNDER_TIES = [name for name in NAMES if name.partition("@")[0] in WEIGHTS]


def gaps(name, scores, label):
    a, b = scores
    return [
        [expected(name, x, way) - expected(name, y, way) for way in labellings(row)] for x, y, row in zip(a, b, label, strict=True)
    ]


@pytest.mark.parametrize("name", EXACT_UNDER_TIES)
@given(queries(models=2))
@settings(max_examples=20)
def test_differences_of_sums_of_weights_are_exact_under_ties(name, drawn):
    scores, label = drawn
    bounds = difference_bounds(metric(name), *map(Placements.from_scores, scores), label, exhaustive=-1)
    assert_extremes(bounds, gaps(name, scores, label))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "map@r"])
@given(queries(items=7, models=2, levels=None))
@settings(max_examples=20)
def test_differences_are_exact_without_ties(name, drawn):
    scores, label = drawn
    bounds = difference_bounds(metric(name), *map(Placements.from_scores, scores), label, exhaustive=-1)
    assert_extremes(bounds, gaps(name, scores, label))


@each
@pytest.mark.parametrize("levels", [3, None])
@given(st.data())
@settings(max_examples=20)
def test_bounds_contain_all_labellings_and_are_within_separate_bounds(name, levels, data):
    scores, label = data.draw(queries(models=2, levels=levels, items=7 if levels is None else 5))
    a, b = map(Placements.from_scores, scores)
    result = difference_bounds(metric(name), a, b, label, exhaustive=-1)
    slow = gaps(name, scores, label)
    assert (result.low <= np.array([min(row) for row in slow]) + 1e-12).all()
    assert (result.high >= np.array([max(row) for row in slow]) - 1e-12).all()
    first, second = (metric_bounds(metric(name), placed, label) for placed in (a, b))
    assert (result.high <= first.high - second.low + 1e-12).all()
    assert (result.low >= first.low - second.high - 1e-12).all()


@each
@given(queries(models=2))
@settings(max_examples=15)
def test_few_unjudged_candidates_give_exact_bounds(name, drawn):
    scores, label = drawn
    bounds = difference_bounds(metric(name), *map(Placements.from_scores, scores), label, exhaustive=5)
    assert_extremes(bounds, gaps(name, scores, label))


@each
@given(queries(models=2))
@settings(max_examples=15)
def test_bounds_of_judged_queries_are_the_value(name, drawn):
    scores, label = drawn
    label = np.where(label == UNJUDGED, 0, label).astype(np.int8)
    a, b = map(Placements.from_scores, scores)
    values = [placed.values(metric(name), label == 1) for placed in (a, b)]
    single, gap = metric_bounds(metric(name), a, label), difference_bounds(metric(name), a, b, label)
    assert_extremes(single, values[0][:, None])
    assert_extremes(gap, (values[0] - values[1])[:, None])


def test_bound_of_map_at_r_is_tight_for_similar_rankings():
    """Two rankings that differ by one swap: the difference depends on the swapped two, not on all unjudged candidates."""
    places = list(range(1, 21))
    swapped = [2, 1, *places[2:]]
    label = np.full((1, 20), UNJUDGED, dtype=np.int8)
    label[0, 5] = 1
    a, b = placements_from_ranks([places], 50), placements_from_ranks([swapped], 50)
    result, single = difference_bounds(metric("map@r"), a, b, label), metric_bounds(metric("map@r"), a, label)
    assert result.high[0] <= 0.25
    assert single.high[0] - single.low[0] > 0.9
    same = difference_bounds(metric("map@r"), a, a, label)
    assert same.low[0] == same.high[0] == 0.0


def test_bound_of_map_at_r_is_close_to_the_extreme():
    """Over random rankings of ten candidates, six of them unjudged, it is reached or missed by little."""
    rng = np.random.default_rng(0)
    scores = [np.array([rng.permutation(10) for _ in range(200)]) for _ in range(2)]
    label = np.array([rng.permutation([1, 0, 0, 0] + [UNJUDGED] * 6) for _ in range(200)], dtype=np.int8)
    a, b = map(Placements.from_scores, scores)
    bound, exact = (difference_bounds(metric("map@r"), a, b, label, exhaustive=n) for n in (-1, 6))
    excess = bound.high - exact.high
    assert excess.min() >= -1e-12
    assert np.mean(excess) < 0.05
    assert np.mean(excess < 1e-12) > 0.3


def test_another_positive_can_lower_and_raise_map_at_r():
    low, high = bounds_by_new_positives(
        metric("map@r"), placements_from_ranks([[1, 2, 9]], 20), np.array([[1, UNJUDGED, UNJUDGED]])
    )
    assert low.tolist() == [[1.0, 0.5, pytest.approx(2 / 3)]]
    assert high.tolist() == [[1.0, 1.0, pytest.approx(2 / 3)]]


@each
@given(queries(items=5))
@settings(max_examples=15)
def test_judgement_effects_are_the_change_by_one_label(name, drawn):
    (scores,), label = drawn
    single, last = judgement_effects(metric(name), Placements.from_scores(scores), label)
    for q, column in np.ndindex(label.shape):
        if label[q, column] != UNJUDGED:
            assert single[q, column] == last[q, column] == 0
            continue
        for result, value in ((single, 0), (last, 1)):
            ways = [np.where(label[q] == UNJUDGED, value, label[q]) for _ in range(2)]
            ways[0][column], ways[1][column] = 0, 1
            slow = expected(name, scores[q], ways[1]) - expected(name, scores[q], ways[0])
            assert result[q, column] == pytest.approx(slow, abs=1e-12)


def test_short_rows_are_padded_with_negatives():
    label = np.array([[1, UNJUDGED, 0, 0], [1, UNJUDGED, UNJUDGED, UNJUDGED]])
    placed = placements_from_ranks([[2, 1, 3, 4], [4, 1, 2, 3]], 9)
    for name in NAMES:
        padded = metric_bounds(metric(name), placed, label)
        for q in range(2):
            is_listed = label[q] != 0
            first = metric_bounds(
                metric(name), placements_from_ranks([(placed.above[q, is_listed] + 1).tolist()], 9), label[q : q + 1, is_listed]
            )
            assert (first.low[0], first.high[0]) == pytest.approx((padded.low[q], padded.high[q]))


def test_unjudged_are_numbered_in_the_order_of_the_ranking():
    assert number_unjudged(placements_from_ranks([[3, 1, 2]], 3), np.array([[-1, -1, 1]])).tolist() == [[2, 1, 0]]


def test_invalid_metrics_and_labels_are_refused():
    placed = placements_from_ranks([[1, 2]], 3)
    with pytest.raises(UsageError, match=r"Bounds of median-rank are not available. Choose one of hit@…"):
        metric_bounds(metric("median-rank"), placed, np.array([[1, -1]]))
    with pytest.raises(CrossmatchError, match="Query 0 has no known positive"):
        metric_bounds(metric("hit@1"), placed, np.array([[0, -1]]))
    with pytest.raises(CrossmatchError, match=r"a matrix of 1 \(positive\)"):
        difference_bounds(metric("hit@1"), placed, placed, np.array([[1, 3]]))
    short = Placements(placed.above, placed.size, placed.gallery, np.array([1]))
    with pytest.raises(CrossmatchError, match="may need 2 of 3 candidates of a query, but the run lists 1"):
        metric_bounds(metric("map@r"), short, np.array([[1, -1]]))
