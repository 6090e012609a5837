"""Annotator-model bias: against loops over subsets, queries and places."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.metrics.bias import RELEVANCE, Pool, annotator_bias, bias_of, subsets, versions

GALLERY = 9


def world(seed, models=3, queries=5, depth=2):
    """Models that rank alike to some degree, and people's answers about what they propose."""
    rng = np.random.default_rng(seed)
    truth = rng.choice([0.0, 0.5, 1.0], size=(queries, GALLERY), p=[0.6, 0.2, 0.2])
    noise = rng.uniform(0.2, 2.0, models)
    lists = {f"m{m}": np.argsort(-(truth + noise[m] * rng.random(truth.shape)), axis=1) + 100 for m in range(models)}
    said = {(q, item + 100): truth[q, item] for q in range(queries) for item in range(GALLERY)}
    return lists, said, depth


def score_by_loops(lists, said, depth, chosen, phi, metric):
    """One model on the data that the chosen models' proposals give, as the appendix says it."""
    names = list(lists)
    queries = len(lists[names[0]])

    def annotated(q, by):
        return {item: said[q, item] for m in by for item in lists[names[m]][q][:depth].tolist()}

    values = []
    for q in range(queries):
        if not any(v > 0 for v in annotated(q, range(len(names))).values()):
            continue
        known = annotated(q, chosen)
        ranking = lists[names[phi]][q].tolist()
        if metric == "hit@1":
            values.append(known.get(ranking[0], 0.0))
        else:
            r = sum(v > 0 for v in known.values())
            values.append(sum(known.get(item, 0.0) for item in ranking[:r]) / r if r else 0.0)
    return np.mean(values)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 3), st.sampled_from(["hit@1", "r-precision"]))
def test_every_model_on_every_version_is_that_of_the_loops(seed, models, depth, metric):
    lists, said, depth = world(seed, models, depth=depth)
    pool = Pool.from_lists(lists, depth, said)
    if not (pool.relevance > 0).any():
        with pytest.raises(CrossmatchError, match="nothing to score by"):
            versions(pool, lists, metric)
        return
    found = versions(pool, lists, metric)
    assert len(found.scores) == 2**models - 1
    for t, chosen in enumerate(subsets(models)):
        assert np.flatnonzero(found.members[t]).tolist() == list(chosen)
        slow = [score_by_loops(lists, said, depth, chosen, phi, metric) for phi in range(models)]
        assert found.scores[t] == pytest.approx(slow, abs=1e-12)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from(["hit@1", "r-precision"]))
def test_bias_self_and_non_self_are_those_of_the_loops(seed, metric):
    models = 4
    lists, said, depth = world(seed, models, queries=8)
    found = bias_of(versions(Pool.from_lists(lists, depth, said), lists, metric))
    everyone = tuple(range(models))
    full = [score_by_loops(lists, said, depth, everyone, phi, metric) for phi in everyone]
    for size in (1, 2, 3):
        whole, own, other = [], [], []
        for chosen in itertools.combinations(everyone, size):
            apart = [abs(score_by_loops(lists, said, depth, chosen, phi, metric) - full[phi]) for phi in everyone]
            whole.append(np.mean(apart))
            own.append(np.mean([apart[phi] for phi in chosen]))
            other.append(np.mean([apart[phi] for phi in everyone if phi not in chosen]))
        assert found.by_size()[size] == pytest.approx((np.mean(whole), np.mean(own), np.mean(other)), abs=1e-12)
    assert set(found.by_size()) == {1, 2, 3}


def test_more_models_leave_less_bias_and_spare_their_own():
    lists, said, depth = world(3, models=5, queries=400)
    for metric in ("hit@1", "r-precision"):
        by_size = bias_of(versions(Pool.from_lists(lists, depth, said), lists, metric)).by_size()
        whole = [by_size[n][0] for n in (1, 2, 3, 4)]
        assert whole == sorted(whole, reverse=True)
        assert all(own < other for _, own, other in by_size.values())


def test_the_order_of_pairs_and_models_changes_nothing():
    lists, said, depth = world(1)
    pool = Pool.from_lists(lists, depth, said)
    order = np.random.default_rng(0).permutation(len(pool.query))
    shuffled = Pool(pool.models, *(a[order] for a in (pool.query, pool.item, pool.relevance, pool.proposed)))
    backwards = dict(reversed(lists.items()))
    assert np.array_equal(versions(shuffled, backwards).scores, versions(pool, lists).scores)


def test_blocks_of_subsets_change_nothing(monkeypatch):
    lists, said, depth = world(2, models=4)
    pool = Pool.from_lists(lists, depth, said)
    whole = versions(pool, lists, "r-precision").scores
    monkeypatch.setattr("crossmatch.metrics.bias.ROOM", 1)
    assert np.array_equal(versions(pool, lists, "r-precision").scores, whole)


def test_four_answers_have_three_degrees():
    assert sorted(RELEVANCE.values()) == [0, 0, 0.5, 1]


def test_a_query_without_a_positive_is_not_scored():
    lists = {"a": np.array([[1, 2], [3, 4]]), "b": np.array([[2, 1], [4, 3]])}
    said = {(0, 1): 1.0, (0, 2): 0.0, (1, 3): 0.0, (1, 4): 0.0}
    found = versions(Pool.from_lists(lists, 1, said), lists)
    assert found.queries == 1
    assert found.scores.tolist() == [[1, 0], [0, 0], [1, 0]]


LISTS = {"a": np.array([[1, 2]]), "b": np.array([[2, 1]])}
SAID = {(0, 1): 1.0, (0, 2): 1.0}


def pool_with(**change):
    given = {"models": ("a", "b"), "query": [0, 0], "item": [1, 2], "relevance": [1.0, 0.5], "proposed": np.eye(2, dtype=bool)}
    return Pool(**{**given, **change})


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: versions(Pool.from_lists(LISTS, 1, SAID), LISTS, "map@r"), WrongWords, "hit@1 or r-precision"),
        (lambda: versions(Pool.from_lists(LISTS, 1, SAID), {"a": LISTS["a"]}), CrossmatchError, "the pool is of a, b"),
        (lambda: versions(Pool.from_lists(LISTS, 1, SAID), {**LISTS, "b": np.array([[2]])}), CrossmatchError, "queries x k"),
        (lambda: versions(Pool.from_lists(LISTS, 1, SAID), {**LISTS, "b": np.array([[2, 2]])}), CrossmatchError, "twice"),
        (
            lambda: versions(Pool.from_lists(LISTS, 1, SAID), {n: r[:, :1] for n, r in LISTS.items()}, "r-precision"),
            CrossmatchError,
            "rankings are 1 deep; R-precision needs 2",
        ),
        (lambda: versions(pool_with(query=[0, 7]), LISTS), CrossmatchError, "names query 7"),
        (lambda: Pool.from_lists(LISTS, 1, {(0, 1): 1.0}), CrossmatchError, "query 0, item 2.* proposed but not judged"),
        (lambda: pool_with(models=("a",), proposed=np.ones((2, 1))), CrossmatchError, "from 2 to"),
        (lambda: pool_with(relevance=[1.0, 2.0]), CrossmatchError, "between 0 and 1"),
        (lambda: pool_with(relevance=[1.0, np.nan]), CrossmatchError, "NaN"),
        (lambda: pool_with(proposed=[[True, False], [False, False]]), CrossmatchError, "proposed by no model"),
        (lambda: pool_with(item=[1, 1]), CrossmatchError, "in the pool twice"),
        (lambda: pool_with(item=[1]), CrossmatchError, "were expected"),
        (lambda: annotator_bias(np.ones((1, 2)), np.ones(2), np.ones((1, 2), dtype=bool)), CrossmatchError, "holds every model"),
        (lambda: annotator_bias(np.ones((1, 2)), np.ones(3), np.eye(2, dtype=bool)), CrossmatchError, "do not fit"),
    ],
)
def test_what_cannot_be_used_is_refused(call, error, says):
    with pytest.raises(error, match=says):
        call()
