"""Annotator-model bias: against loops over subsets, queries and places."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.metrics.pool_bias import JudgedPool, pool_bias, score_subsets, subset_bias, subsets

GALLERY = 9


def world(seed, models=3, queries=5, depth=2):
    """Models with correlated rankings, and the relevance of all pairs."""
    rng = np.random.default_rng(seed)
    truth = rng.choice([0.0, 0.5, 1.0], size=(queries, GALLERY), p=[0.6, 0.2, 0.2])
    noise = rng.uniform(0.2, 2.0, models)
    lists = {f"m{m}": np.argsort(-(truth + noise[m] * rng.random(truth.shape)), axis=1) + 100 for m in range(models)}
    relevance = {(q, item + 100): truth[q, item] for q in range(queries) for item in range(GALLERY)}
    return lists, relevance, depth


def score_by_loops(lists, relevance, depth, selected, phi, metric):
    """The score of one model on the pairs that the selected models proposed, as in the appendix."""
    names = list(lists)
    queries = len(lists[names[0]])

    def annotated(q, by):
        return {item: relevance[q, item] for m in by for item in lists[names[m]][q][:depth].tolist()}

    values = []
    for q in range(queries):
        if not any(v > 0 for v in annotated(q, range(len(names))).values()):
            continue
        judged = annotated(q, selected)
        ranking = lists[names[phi]][q].tolist()
        if metric == "hit@1":
            values.append(judged.get(ranking[0], 0.0))
        else:
            r = sum(v > 0 for v in judged.values())
            values.append(sum(judged.get(item, 0.0) for item in ranking[:r]) / r if r else 0.0)
    return np.mean(values)


@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 3), st.sampled_from(["hit@1", "r-precision"]))
def test_subset_scores_equal_loops(seed, models, depth, metric):
    lists, grades, depth = world(seed, models, depth=depth)
    pool = JudgedPool.from_lists(lists, depth, grades)
    if not (pool.relevance > 0).any():
        with pytest.raises(CrossmatchError, match="No pair of the pool is relevant"):
            score_subsets(pool, lists, metric)
        return
    result = score_subsets(pool, lists, metric)
    assert len(result.scores) == 2**models - 1
    for t, selected in enumerate(subsets(models)):
        assert np.flatnonzero(result.members[t]).tolist() == list(selected)
        slow = [score_by_loops(lists, grades, depth, selected, phi, metric) for phi in range(models)]
        assert result.scores[t] == pytest.approx(slow, abs=1e-12)


@given(st.integers(0, 10_000), st.sampled_from(["hit@1", "r-precision"]))
def test_bias_equals_loops(seed, metric):
    models = 4
    lists, relevance, depth = world(seed, models, queries=8)
    result = pool_bias(score_subsets(JudgedPool.from_lists(lists, depth, relevance), lists, metric))
    everyone = tuple(range(models))
    full = [score_by_loops(lists, relevance, depth, everyone, phi, metric) for phi in everyone]
    for size in (1, 2, 3):
        overall, self_bias, other_bias = [], [], []
        for selected in itertools.combinations(everyone, size):
            distances = [abs(score_by_loops(lists, relevance, depth, selected, phi, metric) - full[phi]) for phi in everyone]
            overall.append(np.mean(distances))
            self_bias.append(np.mean([distances[phi] for phi in selected]))
            other_bias.append(np.mean([distances[phi] for phi in everyone if phi not in selected]))
        assert result.by_size()[size] == pytest.approx((np.mean(overall), np.mean(self_bias), np.mean(other_bias)), abs=1e-12)
    assert set(result.by_size()) == {1, 2, 3}


def test_bias_falls_with_models_and_favours_proposers():
    lists, relevance, depth = world(3, models=5, queries=400)
    for metric in ("hit@1", "r-precision"):
        by_size = pool_bias(score_subsets(JudgedPool.from_lists(lists, depth, relevance), lists, metric)).by_size()
        overall = [by_size[n][0] for n in (1, 2, 3, 4)]
        assert overall == sorted(overall, reverse=True)
        assert all(self_bias < other_bias for _, self_bias, other_bias in by_size.values())


def test_order_of_pairs_and_models_does_not_matter():
    lists, grades, depth = world(1)
    pool = JudgedPool.from_lists(lists, depth, grades)
    order = np.random.default_rng(0).permutation(len(pool.query))
    shuffled = JudgedPool(pool.models, *(a[order] for a in (pool.query, pool.item, pool.relevance, pool.proposed)))
    backwards = dict(reversed(lists.items()))
    assert np.array_equal(score_subsets(shuffled, backwards).scores, score_subsets(pool, lists).scores)


def test_block_size_does_not_matter(monkeypatch):
    lists, relevance, depth = world(2, models=4)
    pool = JudgedPool.from_lists(lists, depth, relevance)
    overall = score_subsets(pool, lists, "r-precision").scores
    monkeypatch.setattr("crossmatch.metrics.pool_bias.MAX_ELEMENTS", 1)
    assert np.array_equal(score_subsets(pool, lists, "r-precision").scores, overall)


def test_query_without_positive_is_not_scored():
    lists = {"a": np.array([[1, 2], [3, 4]]), "b": np.array([[2, 1], [4, 3]])}
    relevance = {(0, 1): 1.0, (0, 2): 0.0, (1, 3): 0.0, (1, 4): 0.0}
    result = score_subsets(JudgedPool.from_lists(lists, 1, relevance), lists)
    assert result.queries == 1
    assert result.scores.tolist() == [[1, 0], [0, 0], [1, 0]]


LISTS = {"a": np.array([[1, 2]]), "b": np.array([[2, 1]])}
RELEVANT = {(0, 1): 1.0, (0, 2): 1.0}


def pool_with(**change):
    arguments = {"models": ("a", "b"), "query": [0, 0], "item": [1, 2], "relevance": [1.0, 0.5], "proposed": np.eye(2, dtype=bool)}
    return JudgedPool(**{**arguments, **change})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: score_subsets(JudgedPool.from_lists(LISTS, 1, RELEVANT), LISTS, "map@r"), UsageError, "hit@1 or r-precision"),
        (
            lambda: score_subsets(JudgedPool.from_lists(LISTS, 1, RELEVANT), {"a": LISTS["a"]}),
            CrossmatchError,
            "the pool is of a, b",
        ),
        (
            lambda: score_subsets(JudgedPool.from_lists(LISTS, 1, RELEVANT), {**LISTS, "b": np.array([[2]])}),
            CrossmatchError,
            "queries x k",
        ),
        (
            lambda: score_subsets(JudgedPool.from_lists(LISTS, 1, RELEVANT), {**LISTS, "b": np.array([[2, 2]])}),
            CrossmatchError,
            "twice",
        ),
        (
            lambda: score_subsets(
                JudgedPool.from_lists(LISTS, 1, RELEVANT), {n: r[:, :1] for n, r in LISTS.items()}, "r-precision"
            ),
            CrossmatchError,
            "rankings of depth 2",
        ),
        (lambda: score_subsets(pool_with(query=[0, 7]), LISTS), CrossmatchError, "contains query 7"),
        (lambda: JudgedPool.from_lists(LISTS, 1, {(0, 1): 1.0}), CrossmatchError, "query 0, item 2.* proposed but not judged"),
        (lambda: pool_with(models=("a",), proposed=np.ones((2, 1))), CrossmatchError, "between 2 and 16 models"),
        (lambda: pool_with(relevance=[1.0, 2.0]), CrossmatchError, "between 0 and 1"),
        (lambda: pool_with(relevance=[1.0, np.nan]), CrossmatchError, "NaN"),
        (lambda: pool_with(proposed=[[True, False], [False, False]]), CrossmatchError, "not proposed by any model"),
        (lambda: pool_with(item=[1, 1]), CrossmatchError, "in the pool twice"),
        (lambda: pool_with(item=[1]), CrossmatchError, "arrays do not fit"),
        (lambda: subset_bias(np.ones((1, 2)), np.ones(2), np.ones((1, 2), dtype=bool)), CrossmatchError, "contains every model"),
        (lambda: subset_bias(np.ones((1, 2)), np.ones(3), np.eye(2, dtype=bool)), CrossmatchError, "must be subsets x models"),
    ],
)
def test_invalid_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
