"""Precision and recall of judgements, and likeness of top-k lists, against loops over sets and pairs."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.metrics.agreement import PairSet, list_likeness, list_tau, overlap, overlap_of, rank_of_first

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


@settings(deadline=None)
@given(worlds, st.sampled_from(["left out", "zero"]))
def test_precision_and_recall_are_those_of_the_loops(world, empty):
    said, verified, truth = ({q: sets[n] for q, sets in world.items()} for n in (0, 1, 2))
    precisions, recalls = by_loops(world, empty)
    if not any(r or h for r, h, _ in world.values()):
        with pytest.raises(CrossmatchError, match="nothing to compare"):
            overlap(said, truth, verified)
        return
    found = overlap(said, truth, verified)
    assert len(found.query) == len(world)
    if precisions:
        assert found.precision() == pytest.approx(np.mean(precisions))
    else:
        with pytest.raises(CrossmatchError, match="no precision"):
            found.precision()
    if recalls:
        assert found.recall(empty) == pytest.approx(np.mean(recalls))
    else:
        with pytest.raises(CrossmatchError, match="no recall"):
            found.recall(empty)


@settings(deadline=None)
@given(worlds)
def test_without_verified_pairs_every_pair_counts(world):
    truth = {q: t for q, (_, _, t) in world.items() if t}
    said = {q: r for q, (r, _, _) in world.items()}
    if not truth:
        return
    found = overlap(said, truth)
    precisions, recalls = by_loops({q: (world[q][0], set(range(7)), t) for q, t in truth.items()}, "zero")
    assert found.recall("zero") == pytest.approx(np.mean(recalls))
    if precisions:
        assert found.precision() == pytest.approx(np.mean(precisions))


def test_a_query_of_which_nothing_was_verified_is_left_out_of_both():
    found = overlap({1: "a", 2: "x"}, {1: "ab", 2: "y"}, {1: "ab", 2: "y"})
    assert found.empty.tolist() == [False, True]
    assert (found.precision(), found.recall(), found.recall("zero")) == (1.0, 0.5, 0.25)


def test_a_query_with_nothing_true_counts_for_precision_alone():
    found = overlap({1: "a", 2: "c"}, {1: "a", 2: ""}, {1: "ab", 2: "c"})
    assert (found.precision(), found.recall()) == (0.5, 1.0)


def test_what_was_said_of_other_queries_is_not_looked_at():
    assert overlap({1: "a", 5: "zzz"}, {1: "a"}).said.tolist() == [1]


@pytest.mark.parametrize("direction", ["i2t", "t2i"])
def test_judgements_dictionaries_and_lists_give_the_same(direction):
    rng = np.random.default_rng(5)
    shape = (12, 20)
    looked = rng.random(shape) < 0.4
    grades = np.where(rng.random(shape) < 0.5, 1.0, 0.5)
    people = Judgements("people", *np.nonzero(looked), grades[looked], shape)
    pairs = np.nonzero(rng.random(shape) < 0.3)
    said = Judgements("said", *pairs, np.ones(len(pairs[0])), shape)
    found = overlap_of(said, people, direction)
    flip = (lambda a: a) if direction == "i2t" else (lambda a: a.T)
    r = np.zeros(shape, dtype=bool)
    r[pairs] = True
    sets = [{q: set(np.flatnonzero(row).tolist()) for q, row in enumerate(flip(a)) if row.any()} for a in
            (r, looked & (grades == 1), looked)]  # fmt: skip
    again = overlap(sets[0], sets[1], sets[2])
    assert (found.precision(), found.recall()) == (again.precision(), again.recall())
    listed = overlap(said.listed(direction), PairSet.positives(people, direction), PairSet.judged(people, direction))
    assert (listed.precision(), listed.recall()) == (again.precision(), again.recall())


def test_complete_judgements_have_verified_every_pair():
    truth = Judgements.from_matrix("truth", np.array([[True, False], [False, True]]))
    said = Judgements("said", [0, 0], [0, 1], [1, 1], (2, 2))
    assert PairSet.judged(truth, "i2t") is None
    assert overlap_of(said, truth, "i2t").precision() == 0.5


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: overlap({1: "a"}, {"1": "a"}), CrossmatchError, "queries are int64 on one side"),
        (lambda: overlap({1: [1]}, {1: ["1"]}), CrossmatchError, "items are int64 on one side"),
        (lambda: overlap({1: "a"}, {1: "ab"}, {1: "a"}), CrossmatchError, "query 1 has a true pair that is not among"),
        (lambda: overlap({1: "a"}, {1: "a", 2: "b"}, {1: "ab"}), CrossmatchError, "query 2 has a true pair that is not among"),
        (lambda: overlap({1: "a"}, {1: "a"}).recall("none"), WrongWords, "left out, zero"),
        (lambda: PairSet.positives(Judgements("x", [0], [0], [1], (1, 1)), "t2t"), WrongWords, "i2t and t2i"),
    ],
)
def test_judgements_that_cannot_be_compared_are_refused(call, error, says):
    with pytest.raises(error, match=says):
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


@settings(deadline=None)
@given(top_lists, st.sampled_from(["common", "below"]))
def test_the_tau_of_two_lists_is_that_of_the_loops(lists, missing):
    first, second = (np.array([pair[n] for pair in lists]) for n in (0, 1))
    found = list_tau(first, second, missing)
    for n, (a, b) in enumerate(lists):
        slow = tau_by_loops(a, b, missing)
        assert np.ma.getmaskarray(found)[n] == (slow is None)
        if slow is not None:
            assert found[n] == pytest.approx(slow, abs=1e-12)


@settings(deadline=None)
@given(top_lists)
def test_the_rank_of_the_first_is_where_it_stands(lists):
    first, second = (np.array([pair[n] for pair in lists]) for n in (0, 1))
    found = rank_of_first(first, second)
    assert found.filled(-1).tolist() == [b.index(a[0]) + 1 if a[0] in b else -1 for a, b in lists]


def test_disjoint_lists_have_nothing_in_common_and_disagree_below():
    first, second = np.arange(25)[None], np.arange(25, 50)[None]
    assert np.ma.getmaskarray(list_tau(first, second)).all()
    assert list_tau(first, second, "below")[0] == pytest.approx(
        -625 / 925
    )  # all 25 x 25 pairs across; 300 pairs level in each list


def test_many_queries_are_the_same_in_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    first, second = (np.stack([rng.permutation(30)[:9] for _ in range(50)]) for _ in range(2))
    whole = list_tau(first, second)
    monkeypatch.setattr("crossmatch.metrics.agreement.BLOCK", 7)
    assert np.array_equal(list_tau(first, second).filled(9), whole.filled(9))


def test_the_likeness_of_three_models():
    rng = np.random.default_rng(1)
    lists = {name: np.stack([rng.permutation(12)[:5] for _ in range(40)]) for name in "abc"}
    for missing in ("common", "below"):
        found = list_likeness(lists, missing)
        for (a, one), (b, other) in itertools.product(enumerate(lists.values()), repeat=2):
            taus = [tau_by_loops(x, y, missing) for x, y in zip(one.tolist(), other.tolist(), strict=True)]
            assert found.tau[a, b] == pytest.approx(np.mean([t for t in taus if t is not None]))
            places = [y.index(x[0]) + 1 if x[0] in y else None for x, y in zip(one.tolist(), other.tolist(), strict=True)]
            known = [p if p is not None else 6 for p in places if p is not None or missing == "below"]
            assert found.rank[a, b] == pytest.approx(np.mean(known))
            assert found.absent[a, b] == pytest.approx(places.count(None) / 40)
            shared = [len(set(x) & set(y)) for x, y in zip(one.tolist(), other.tolist(), strict=True)]
            assert found.shared[a, b] == pytest.approx(np.mean(shared))


def test_a_model_is_like_itself():
    found = list_likeness({"a": np.array([[3, 1, 2]]), "b": np.array([[3, 1, 2]])})
    assert (found.tau == 1).all()
    assert (found.rank == 1).all()
    assert (found.absent == 0).all()


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ([[1, 2]], [[1, 2, 3]], "shapes"),
        ([[1, 1]], [[1, 2]], "names an item twice"),
        ([[1, 2]], [["1", "2"]], "Write ids the same way"),
    ],
)
def test_lists_that_cannot_be_compared_are_refused(first, second, says):
    with pytest.raises(CrossmatchError, match=says):
        list_tau(np.array(first), np.array(second))


def test_an_unknown_convention_is_refused():
    with pytest.raises(WrongWords, match="common, below"):
        list_tau(np.array([[1]]), np.array([[1]]), "none")
    with pytest.raises(CrossmatchError, match="needs two"):
        list_likeness({"a": np.array([[1]])})
