"""Precision and recall of judgements, and similarity of top-k lists, against loops over sets and pairs."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.metrics.agreement.annotation_overlap import (
    PairSet,
    compare_rankings,
    overlap,
    rank_of_top_item,
    top_k_tau,
)

items = st.sets(st.integers(0, 6), max_size=5)
# r, h and the part of h that is true, for each query
worlds = st.dictionaries(st.integers(0, 9), st.tuples(items, items, items), min_size=1, max_size=6).map(
    lambda world: {q: (r, h, t & h) for q, (r, h, t) in world.items()}
)


def by_loops(world, empty):
    """The definition before Table 2, query by query."""
    precisions, recalls = [], []
    for r, h, t in world.values():
        checked = {item for item in r if item in h}
        if checked:
            precisions.append(len([item for item in checked if item in t]) / len(checked))
        if t and (checked or empty == "zero"):
            recalls.append(1 - len([item for item in t if item not in checked]) / len(t))
    return precisions, recalls


@given(worlds, st.sampled_from(["left out", "zero"]))
def test_precision_and_recall_equal_loops(world, empty):
    predicted, verified, truth = ({q: sets[n] for q, sets in world.items()} for n in (0, 1, 2))
    precisions, recalls = by_loops(world, empty)
    if not any(r or h for r, h, _ in world.values()):
        with pytest.raises(CrossmatchError, match="no pairs to compare"):
            overlap(predicted, truth, verified)
        return
    result = overlap(predicted, truth, verified)
    assert len(result.query) == len(world)
    if precisions:
        assert result.precision() == pytest.approx(np.mean(precisions))
    else:
        with pytest.raises(CrossmatchError, match="Precision is undefined"):
            result.precision()
    if recalls:
        assert result.recall(empty) == pytest.approx(np.mean(recalls))
    else:
        with pytest.raises(CrossmatchError, match="Recall is undefined"):
            result.recall(empty)


@given(worlds)
def test_without_verified_pairs_every_pair_counts(world):
    truth = {q: t for q, (_, _, t) in world.items() if t}
    predicted = {q: r for q, (r, _, _) in world.items()}
    if not truth:
        return
    result = overlap(predicted, truth)
    precisions, recalls = by_loops({q: (world[q][0], set(range(7)), t) for q, t in truth.items()}, "zero")
    assert result.recall("zero") == pytest.approx(np.mean(recalls))
    if precisions:
        assert result.precision() == pytest.approx(np.mean(precisions))


def test_query_without_verified_prediction_is_left_out():
    result = overlap({1: "a", 2: "x"}, {1: "ab", 2: "y"}, {1: "ab", 2: "y"})
    assert result.has_no_prediction.tolist() == [False, True]
    assert (result.precision(), result.recall(), result.recall("zero")) == (1.0, 0.5, 0.25)


def test_query_without_true_pairs_counts_for_precision_only():
    result = overlap({1: "a", 2: "c"}, {1: "a", 2: ""}, {1: "ab", 2: "c"})
    assert (result.precision(), result.recall()) == (0.5, 1.0)


def test_predictions_for_other_queries_are_ignored():
    assert overlap({1: "a", 5: "zzz"}, {1: "a"}).predicted.tolist() == [1]


@pytest.mark.parametrize("direction", ["i2t", "t2i"])
def test_judgements_lists_and_dictionaries_give_the_same(direction):
    rng = np.random.default_rng(5)
    matrices = [rng.random((12, 20)) < share for share in (0.3, 0.4)]
    judgements = [Judgements("people", *np.nonzero(matrix), np.ones(matrix.sum()), matrix.shape) for matrix in matrices]
    oriented = [matrix if direction == "i2t" else matrix.T for matrix in matrices]
    sets = [{q: set(np.flatnonzero(row).tolist()) for q, row in enumerate(matrix) if row.any()} for matrix in oriented]
    expected = overlap(*sets)
    from_pairs = overlap(*(PairSet.positives(side, direction) for side in judgements))
    from_lists = overlap(judgements[0].candidate_lists(direction), PairSet.positives(judgements[1], direction))
    for result in (from_pairs, from_lists):
        assert (result.precision(), result.recall()) == (expected.precision(), expected.recall())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: overlap({1: "a"}, {"1": "a"}), CrossmatchError, "queries are int64 on one side"),
        (lambda: overlap({1: [1]}, {1: ["1"]}), CrossmatchError, "items are int64 on one side"),
        (lambda: overlap({1: "a"}, {1: "ab"}, {1: "a"}), CrossmatchError, "Query 1 has a true pair that is not among"),
        (lambda: overlap({1: "a"}, {1: "a", 2: "b"}, {1: "ab"}), CrossmatchError, "Query 2 has a true pair that is not among"),
        (lambda: overlap({1: "a"}, {1: "a"}).recall("none"), UsageError, "left out, zero"),
        (lambda: PairSet.positives(Judgements("x", [0], [0], [1], (1, 1)), "t2t"), UsageError, "Choose i2t or t2i"),
    ],
)
def test_incomparable_judgements_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


# Top-k lists


def tau_by_loops(first, second, missing):
    """Kendall's tau-b over the items of both lists, or of either."""
    k = len(first)
    chosen = [x for x in first if x in second] if missing == "common" else list(dict.fromkeys([*first, *second]))
    x = [first.index(item) if item in first else k for item in chosen]
    y = [second.index(item) if item in second else k for item in chosen]
    over = under_x = under_y = 0
    for a, b in itertools.combinations(range(len(chosen)), 2):
        u, v = (x[a] > x[b]) - (x[a] < x[b]), (y[a] > y[b]) - (y[a] < y[b])
        over, under_x, under_y = over + u * v, under_x + u * u, under_y + v * v
    return over / math.sqrt(under_x * under_y) if under_x and under_y else None


top_lists = st.integers(1, 6).flatmap(
    lambda k: st.lists(st.tuples(*[st.lists(st.integers(0, 8), min_size=k, max_size=k, unique=True)] * 2), min_size=1, max_size=4)
)


@given(top_lists, st.sampled_from(["common", "below"]))
def test_top_k_tau_equals_loops(lists, missing):
    first, second = (np.array([pair[n] for pair in lists]) for n in (0, 1))
    result = top_k_tau(first, second, missing)
    for n, (a, b) in enumerate(lists):
        slow = tau_by_loops(a, b, missing)
        assert np.ma.getmaskarray(result)[n] == (slow is None)
        if slow is not None:
            assert result[n] == pytest.approx(slow, abs=1e-12)


@given(top_lists)
def test_rank_of_top_item_equals_list_index(lists):
    first, second = (np.array([pair[n] for pair in lists]) for n in (0, 1))
    result = rank_of_top_item(first, second)
    assert result.filled(-1).tolist() == [b.index(a[0]) + 1 if a[0] in b else -1 for a, b in lists]


def test_tau_of_disjoint_lists():
    first, second = np.arange(25)[None], np.arange(25, 50)[None]
    assert np.ma.getmaskarray(top_k_tau(first, second)).all()
    assert top_k_tau(first, second, "below")[0] == pytest.approx(
        -625 / 925
    )  # all 25 x 25 pairs across; 300 pairs level in each list


def test_block_size_does_not_matter(monkeypatch):
    rng = np.random.default_rng(0)
    first, second = (np.stack([rng.permutation(30)[:9] for _ in range(50)]) for _ in range(2))
    expected = top_k_tau(first, second)
    monkeypatch.setattr("crossmatch.metrics.agreement.annotation_overlap.QUERIES_PER_BLOCK", 7)
    assert np.array_equal(top_k_tau(first, second).filled(9), expected.filled(9))


def test_similarity_of_three_models_equals_loops():
    rng = np.random.default_rng(1)
    lists = {name: np.stack([rng.permutation(12)[:5] for _ in range(40)]) for name in "abc"}
    for missing in ("common", "below"):
        result = compare_rankings(lists, missing)
        for (a, row_list), (b, column_list) in itertools.product(enumerate(lists.values()), repeat=2):
            taus = [tau_by_loops(x, y, missing) for x, y in zip(row_list.tolist(), column_list.tolist(), strict=True)]
            assert result.tau[a, b] == pytest.approx(np.mean([t for t in taus if t is not None]))
            places = [
                y.index(x[0]) + 1 if x[0] in y else None for x, y in zip(row_list.tolist(), column_list.tolist(), strict=True)
            ]
            ranks = [p if p is not None else 6 for p in places if p is not None or missing == "below"]
            assert result.mean_rank[a, b] == pytest.approx(np.mean(ranks))
            assert result.absent_share[a, b] == pytest.approx(places.count(None) / 40)
            shared = [len(set(x) & set(y)) for x, y in zip(row_list.tolist(), column_list.tolist(), strict=True)]
            assert result.shared_items[a, b] == pytest.approx(np.mean(shared))


def test_equal_lists_are_most_similar():
    result = compare_rankings({"a": np.array([[3, 1, 2]]), "b": np.array([[3, 1, 2]])})
    assert (result.tau == 1).all()
    assert (result.mean_rank == 1).all()
    assert (result.absent_share == 0).all()


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([[1, 2]], [[1, 2, 3]], "same shape"),
        ([[1, 1]], [[1, 2]], "contains an item twice"),
        ([[1, 2]], [["1", "2"]], "Use the same id type"),
    ],
)
def test_incomparable_lists_are_refused(first, second, message):
    with pytest.raises(CrossmatchError, match=message):
        top_k_tau(np.array(first), np.array(second))


def test_invalid_options_are_refused():
    with pytest.raises(UsageError, match="common, below"):
        top_k_tau(np.array([[1]]), np.array([[1]]), "none")
    with pytest.raises(CrossmatchError, match="at least two models"):
        compare_rankings({"a": np.array([[1]])})
