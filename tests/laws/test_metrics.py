"""Laws that every metric in the table obeys; a new metric in the table is tested automatically."""

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.trials import TrialScores
from crossmatch.metrics.metric_table import FAMILIES, METRICS, metric
from crossmatch.ranking.ranks import TIE_POLICIES, Ranks, rank

RETRIEVAL = [m for m in METRICS.values() if m.shape == "retrieval"]
TRIALS = [m for m in METRICS.values() if m.shape == "trials"]
each = pytest.mark.parametrize("m", RETRIEVAL, ids=lambda m: m.name)
each_trial = pytest.mark.parametrize("m", TRIALS, ids=lambda m: m.name)


@st.composite
def queries(draw, most_queries=3, most_items=6, levels=3, grades=2):
    """Few queries over few candidates with few distinct scores: full of ties. Every query has a positive."""
    n, c = draw(st.integers(1, most_queries)), draw(st.integers(1, most_items))
    scores = np.array(
        draw(st.lists(st.lists(st.integers(0, levels - 1), min_size=c, max_size=c), min_size=n, max_size=n)),
        dtype=float,
    )
    relevance = np.array(draw(st.lists(st.lists(st.integers(0, grades), min_size=c, max_size=c), min_size=n, max_size=n)))
    positive = np.arange(n), [draw(st.integers(0, c - 1)) for _ in range(n)]
    relevance[positive] = np.maximum(relevance[positive], 1)
    return scores, relevance


trials = st.integers(1, 3).flatmap(
    lambda c: st.integers(1, 3).flatmap(
        lambda i: st.lists(st.lists(st.integers(0, 3), min_size=c * i, max_size=c * i), min_size=1, max_size=5).map(
            lambda rows: np.array(rows, dtype=float).reshape(-1, c, i)
        )
    )
)


# The slow, obvious version: sort, then count; enumerate the tie orders.


def orders(scores):
    """All rankings that agree with the scores."""
    levels = [np.flatnonzero(scores == s) for s in sorted(set(scores), reverse=True)]
    return [list(sum(parts, ())) for parts in product(*(permutations(level.tolist()) for level in levels))]


def by_sorting(name, ranking, relevance):
    gains = np.array([relevance[c] for c in ranking], dtype=float)
    hits = gains > 0
    r, at = int(hits.sum()), int(name.partition("@")[2]) if name.partition("@")[2].isdecimal() else None
    first = int(hits.argmax()) + 1
    discounts = 1 / np.log2(np.arange(2, len(gains) + 2))
    result = {
        "hit": lambda: float(hits[:at].any()),
        "recall": lambda: hits[:at].sum() / r,
        "precision": lambda: hits[:at].sum() / at,
        "ndcg": lambda: (gains * discounts)[:at].sum() / (np.sort(gains)[::-1] * discounts)[:at].sum(),
        "r-precision": lambda: hits[:r].mean(),
        "map": lambda: sum(hits[: i + 1].mean() for i in range(r) if hits[i]) / r,
        "mrr": lambda: 1 / first,
        "median-rank": lambda: first,
        "mean-rank": lambda: first,
    }
    return result[name.partition("@")[0]]()


@each
@given(queries())
def test_expected_value_is_the_mean_over_all_tie_orders(m, drawn):
    scores, relevance = drawn
    slow = [
        np.mean([by_sorting(m.name, order, row) for order in orders(line)]) for line, row in zip(scores, relevance, strict=True)
    ]
    assert m.values(rank(scores, relevance)) == pytest.approx(slow, abs=1e-12)


@each
@given(queries())
def test_other_policies_are_the_best_and_worst_tie_order(m, drawn):
    scores, relevance = drawn
    better, worse = (max, min) if m.higher_is_better else (min, max)
    for policy, pick in (("optimistic", better), ("pessimistic", worse)):
        slow = [pick(by_sorting(m.name, order, row) for order in orders(line)) for line, row in zip(scores, relevance, strict=True)]
        assert m.values(rank(scores, relevance, ties=policy)) == pytest.approx(slow, abs=1e-12)


@each
@given(queries(most_items=4))
def test_aggregate_is_the_mean_over_all_tie_orders(m, drawn):
    scores, relevance = drawn
    summary = np.median if m.aggregate == "median" else np.mean
    per_query = [[by_sorting(m.name, order, row) for order in orders(line)] for line, row in zip(scores, relevance, strict=True)]
    assert m.summarise(rank(scores, relevance)) == pytest.approx(np.mean([summary(way) for way in product(*per_query)]), abs=1e-9)


@each
@pytest.mark.parametrize("ties", TIE_POLICIES)
@given(queries(levels=6))
def test_monotone_maps_do_not_matter(m, ties, drawn):
    scores, relevance = drawn
    before = m.values(rank(scores, relevance, ties=ties))
    for stretch in (lambda s: 3 * s - 7, np.exp, lambda s: -1 / (1 + s), lambda s: s.astype(np.float32) * 1e-3):
        assert np.array_equal(before, m.values(rank(stretch(scores), relevance, ties=ties)))


@each
@pytest.mark.parametrize("ties", TIE_POLICIES)
@given(queries(levels=4), st.randoms(use_true_random=False))
def test_order_of_candidates_does_not_matter(m, ties, drawn, random):
    scores, relevance = drawn
    order = list(range(scores.shape[1]))
    random.shuffle(order)
    before = m.values(rank(scores, relevance, ties=ties))
    assert m.values(rank(scores[:, order], relevance[:, order], ties=ties)) == pytest.approx(before, abs=1e-12)


@each
@given(queries(most_items=8))
def test_constant_scorer_gets_chance_and_less_with_pessimistic_ties(m, drawn):
    _, relevance = drawn
    level = np.zeros(relevance.shape)
    ranks = rank(level, relevance)
    chance = m.chance(ranks)
    assert m.summarise(ranks) == pytest.approx(chance, abs=1e-12)
    worst = m.summarise(rank(level, relevance, ties="pessimistic"))
    assert worst <= chance + 1e-12 if m.higher_is_better else worst >= chance - 1e-12


@pytest.fixture(scope="module")
def random_rankings():
    """40 queries with one to seven positives among 30 candidates, ranked at random 500 times."""
    rng = np.random.default_rng(1)
    relevance = np.zeros((40, 30))
    for q in range(40):
        relevance[q, rng.choice(30, 1 + q % 7, replace=False)] = 1
    return [rank(rng.random(relevance.shape), relevance) for _ in range(500)]


@each
def test_random_scores_get_chance(m, random_rankings):
    result = [m.summarise(ranks) for ranks in random_rankings]
    assert m.chance(random_rankings[0]) == pytest.approx(np.mean(result), abs=4 * np.std(result) / np.sqrt(len(result)))


@each
@given(queries(grades=1))
def test_perfect_scorer_gets_the_best_value(m, drawn):
    _, relevance = drawn
    values = m.values(rank(relevance, relevance))
    if m.name.startswith(("recall@", "precision@")):  # bounded by how many positives there are
        k, count = int(m.name.partition("@")[2]), relevance.sum(axis=1)
        assert values == pytest.approx(np.minimum(k, count) / (count if "recall" in m.name else k))
    else:
        assert values == pytest.approx(np.full(len(relevance), m.best))


@each
@given(queries())
def test_values_stay_within_bounds(m, drawn):
    scores, relevance = drawn
    low, high = (0.0, 1.0) if m.unit == "%" else (1.0, scores.shape[1])
    for ties in TIE_POLICIES:
        values = m.values(rank(scores, relevance, ties=ties))
        assert np.isfinite(values).all()
        assert (values >= low - 1e-12).all()
        assert (values <= high + 1e-12).all()


# nDCG is left out: it is normalised by the ideal gain at k, so it may fall.
GROWING = [f for f in FAMILIES if f.usual_k and f.shape == "retrieval" and f.name != "ndcg@k"]


@pytest.mark.parametrize("family", GROWING, ids=lambda f: f.name)
@given(queries(grades=1))
def test_families_are_monotone_in_k(family, drawn):
    """Hits and recall never fall with k; the number of positives found (k times precision) neither."""
    scores, relevance = drawn
    ranks = rank(scores, relevance)
    values = np.array([family.with_k(k).values(ranks) * (k if "precision" in family.name else 1) for k in range(1, 9)])
    assert (np.diff(values, axis=0) >= -1e-12).all()


@each
def test_inputs_are_not_modified(m):
    scores, relevance = np.array([[0.5, 0.5, 0.1]]), np.array([[0, 2, 1]])
    kept = scores.copy(), relevance.copy()
    ranks = rank(scores, relevance)
    before = {name: np.array(getattr(ranks, name)) for name in ("start", "above", "tie_size", "gain", "gallery_size", "depth")}
    m.values(ranks)
    m.summarise(ranks)
    assert np.array_equal(scores, kept[0])
    assert np.array_equal(relevance, kept[1])
    assert all(np.array_equal(before[name], getattr(ranks, name)) for name in before)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_scores_are_refused(bad):
    with pytest.raises(CrossmatchError, match="NaN or infinite"):
        rank([[0.1, bad]], [[1, 0]])


def test_query_without_positives_is_an_error():
    with pytest.raises(CrossmatchError, match="Query 1 has no positive"):
        rank([[0.1, 0.2], [0.3, 0.4]], [[1, 0], [0, 0]])
    with pytest.raises(CrossmatchError, match="no positive"):
        Ranks.all_tied([1, 0], 5)


# Forced choices


@each_trial
@given(trials)
def test_choices_need_a_strict_win(m, scores):
    def wins(line, own):
        return all(line[own] > other for at, other in enumerate(line) if at != own)

    c, i = scores.shape[1:]
    for scored, value in zip(scores, m.values(scores), strict=True):
        images = [wins(scored[:, n], n) for n in range(min(c, i))]
        captions = [wins(scored[n, :], n) for n in range(min(c, i))]
        i2t, t2i = all(images), all(captions)
        requested = {"i2t": i2t, "t2i": t2i, "group": i2t and t2i, "accuracy": i2t and t2i, "text": i2t, "image": t2i}
        finer = {"ipos2t": images[:1], "ineg2t": images[1:2], "tpos2i": captions[:1], "tneg2i": captions[1:2]}
        assert value == (requested | {name: all(result) for name, result in finer.items()})[m.name]


@each_trial
@given(trials)
def test_monotone_maps_do_not_change_choices(m, scores):
    assert np.array_equal(m.values(scores), m.values(np.exp(2 * scores) - 5))


@each_trial
@given(trials)
def test_choices_are_binary_pure_and_independent_of_order(m, scores):
    before = scores.copy()
    values = m.values(scores)
    assert set(values) <= {0.0, 1.0}
    assert np.array_equal(m.values(scores[::-1])[::-1], values)
    assert np.array_equal(scores, before)


@each_trial
@pytest.mark.parametrize("shape", [(1, 2), (2, 1), (2, 2), (3, 2)])
def test_perfect_scorer_wins_every_choice(m, shape):
    assert m.summarise(np.eye(*shape)[None]) == m.best


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_choices_of_non_finite_scores_are_refused(bad):
    with pytest.raises(CrossmatchError, match="NaN or infinite"):
        TrialScores(["t"], [[[1.0, bad]]])


@each_trial
def test_constant_scorer_wins_no_choice(m):
    assert not m.values(np.zeros((3, 2, 2))).any()


@each_trial
@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 2), (4, 4), (5, 2)])
def test_random_scores_get_the_chance_of_a_choice(m, shape):
    result = m.values(np.random.default_rng(0).random((200_000, *shape)))
    assert m.chance(shape) == pytest.approx(result.mean(), abs=4 * result.std() / np.sqrt(len(result)))


def test_chances_equal_known_values():
    assert metric("t2i").chance((1, 2)) == metric("i2t").chance((2, 1)) == 0.5
    assert (metric("i2t").chance((2, 2)), metric("t2i").chance((2, 2))) == (0.25, 0.25)
    assert metric("group").chance((2, 2)) == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("ranks", "percent"),
    [
        ([2, 3, 4, 5, 6, 7, 8, 99], 66.0),
        ([1, *range(93, 100)], 12.5),
        ([6, 7, 8, *range(95, 100)], 10.3),
        ([5, *range(93, 100)], 2.5),
    ],
    ids=["A", "B", "C", "D"],
)
def test_examples_of_the_eccv_paper(ranks, percent):
    """Section 4.1, for eight positives: all but the first place right, only the first, only the last three, only the fifth."""
    assert round(100 * metric("map@r").summarise(Ranks.from_lists([ranks])), 1) == percent


@pytest.mark.parametrize(("queries_", "gallery", "most"), [(2_000, 500, 2), (1_500, 25_000, 9), (3_000, 4_999, 15)])
def test_approximate_median_is_close_to_exact(monkeypatch, queries_, gallery, most):
    import crossmatch.metrics.median_rank as module

    ranks = Ranks.all_tied(np.random.default_rng(0).integers(1, most, queries_), gallery)
    result = []
    for many in (module.MIN_NORMAL_VARIANCE, np.inf):
        monkeypatch.setattr(module, "MIN_NORMAL_VARIANCE", many)
        module._expected_order_statistic.cache_clear()
        result.append(module.median_rank(ranks))
    module._expected_order_statistic.cache_clear()
    assert result[0] == pytest.approx(result[1], rel=1e-6)
