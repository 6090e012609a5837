"""Bounds on the order of models: against every labelling of a small pool, and under simulated judging."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.build.model_order_bounds import (
    BoundsOptions,
    ModelOrder,
    bound_model_order,
    label_rankings,
    metric_intervals,
)
from crossmatch.build.pooling import build_pool, read_pair_list
from crossmatch.build.step_files import ROWS, read_rows
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.scores import Matrix, Run
from crossmatch.metrics.bounds.metric_bounds import UNJUDGED
from crossmatch.metrics.metric_table import metric
from crossmatch.ranking.ranks import rank
from simulated_judging import choose_at_random, choose_by_bounds, choose_by_depth, judge_until_certain


class PrecomputedModel:
    """A model with precomputed scores."""

    def __init__(self, scores, signature: str) -> None:
        self.saved_scores, self.signature = scores, signature

    def scores(self, data):
        return self.saved_scores


def world(images=4, captions=2, models=2, seed=0, levels=None):
    """A collection, score matrices of models, and a truth that includes the links."""
    rng = np.random.default_rng(seed)
    data = Collection.from_captions({f"i{n}": [f"text {n} {k}" for k in range(captions)] for n in range(images)})
    drawn = [rng.integers(0, levels, data.shape) if levels else rng.random(data.shape) for _ in range(models)]
    scores = {f"m{n}": Matrix(data.image_ids, data.caption_ids, values.astype(float)) for n, values in enumerate(drawn)}
    truth = rng.random(data.shape) < 0.4
    truth[tuple(data.links.T)] = True
    return data, scores, truth


def matches(truth):
    """An oracle for t2i: queries are captions."""
    return lambda query, item: truth[item, query]


def by_all_labellings(data, scores, judged, options):
    """Mean values of each model under every labelling of the retrieved pairs."""
    grades = np.zeros(data.shape)
    grades[judged.rows, judged.columns] = judged.grades
    unjudged = set()
    for of_model in scores.values():
        for c in range(data.shape[1]):
            values = of_model.values[:, c]
            cut = np.sort(values)[::-1][min(options.depth or len(values), len(values)) - 1]
            unjudged |= {(int(i), c) for i in np.flatnonzero(values >= cut)}
    unjudged = sorted(unjudged - set(zip(judged.rows.tolist(), judged.columns.tolist(), strict=True)))
    means_by_labelling = []
    for labelling in product((0, 1), repeat=len(unjudged)):
        relevant = grades.copy()
        relevant[tuple(np.array(unjudged).T)] = labelling
        means_by_labelling.append([metric(options.metric).values(rank(s.values.T, relevant.T)).mean() for s in scores.values()])
    return np.array(means_by_labelling)


@pytest.mark.parametrize("name", ["map@r", "hit@1", "recall@2"])
@given(st.integers(0, 99), st.sampled_from([None, 3]), st.sampled_from([1, None]))
@settings(max_examples=6)
def test_bounds_equal_every_labelling_of_a_small_pool(name, seed, levels, depth):
    data, scores, _ = world(images=3, captions=1, seed=seed, levels=levels)
    judged, options = Judgements.from_links(data), BoundsOptions(name, "t2i", depth)
    order = ModelOrder(label_rankings(data, judged, scores, options))
    means_by_labelling = by_all_labellings(data, scores, judged, options)
    gap = means_by_labelling[:, 0] - means_by_labelling[:, 1]
    assert order.mean_difference(("m0", "m1")) == pytest.approx((gap.min(), gap.max()), abs=1e-12)
    for n, interval in enumerate(metric_intervals(order).values()):
        assert interval == pytest.approx((means_by_labelling[:, n].min(), means_by_labelling[:, n].max()), abs=1e-12)
    assert order.undecided == ((("m0", "m1"),) if gap.min() < -1e-12 and gap.max() > 1e-12 else ())


@pytest.mark.parametrize("choose", ["bounds", "depth", "lot"])
@pytest.mark.parametrize("name", ["map@r", "hit@1"])
def test_judging_ends_with_the_order_of_the_closed_pool(choose, name):
    data, scores, truth = world(images=12, captions=2, models=3, seed=4)
    rankings = label_rankings(data, Judgements.from_links(data), scores, BoundsOptions(name, "t2i", 4))
    chooser = {"bounds": choose_by_bounds, "depth": choose_by_depth(rankings), "lot": choose_at_random(rankings)}[choose]
    states = list(judge_until_certain(rankings, matches(truth), chooser, batch=5))
    pooled = np.zeros(data.shape, dtype=bool)
    for q, c in enumerate(rankings.query):
        pooled[rankings.item[q][rankings.item[q] >= 0], c] = True
    closed = Judgements.from_matrix("closed", truth & pooled)
    means = ModelOrder(label_rankings(data, closed, scores, BoundsOptions(name, "t2i", 4))).means
    assert states[-1].undecided == ()
    assert [s.judged for s in states[:-1]] == [5 * n for n in range(len(states) - 1)]
    assert all(set(after.undecided) <= set(before.undecided) for before, after in pairwise(states))
    ranking = sorted(means, key=lambda name: -means[name])
    order = ModelOrder(rankings)
    while order.undecided:
        rows, columns = (index[:5] for index in chooser(order))
        order.record_judgements(rows, columns, truth[rankings.item[rows, columns], rankings.query[rows]])
    for n, a in enumerate(ranking):
        for b in ranking[n + 1 :]:
            low, high = (
                order.mean_difference((a, b))
                if (a, b) in order.differences
                else tuple(-x for x in order.mean_difference((b, a))[::-1])
            )
            assert low - 1e-12 <= means[a] - means[b] <= high + 1e-12


def test_incremental_update_equals_recomputation():
    data, scores, truth = world(images=10, captions=2, models=3, seed=1, levels=6)
    rankings = label_rankings(data, Judgements.from_links(data), scores, BoundsOptions("map@r", "t2i", 4))
    order = ModelOrder(rankings)
    for _ in range(3):
        rows, columns = (index[:7] for index in order.judging_order())
        order.record_judgements(rows, columns, truth[rankings.item[rows, columns], rankings.query[rows]])
    fresh = ModelOrder(type(rankings)(rankings.metric, rankings.query, rankings.item, order.label, rankings.models))
    assert order.means == fresh.means
    assert order.undecided == fresh.undecided
    for pair in order.undecided:
        assert order.mean_difference(pair) == pytest.approx(fresh.mean_difference(pair))
        assert order.effects(pair) == pytest.approx(fresh.effects(pair))


def test_tolerance_ends_judging_sooner():
    data, scores, truth = world(images=12, captions=2, models=3, seed=4)
    rankings = label_rankings(data, Judgements.from_links(data), scores, BoundsOptions("map@r", "t2i", 4))
    strict, loose = (list(judge_until_certain(rankings, matches(truth), batch=5, tolerance=t))[-1].judged for t in (0.0, 0.2))
    assert loose < strict
    complete = list(judge_until_certain(rankings, matches(truth), choose_at_random(rankings), batch=50, to_the_end=True))
    assert complete[-1].judged == (rankings.label == UNJUDGED).sum() > strict


def test_depth_order_judges_top_ranks_first():
    data, scores, _ = world(images=12, captions=1, models=2, seed=2)
    rankings = label_rankings(data, Judgements.from_links(data), scores, BoundsOptions("map@r", "t2i", 5))
    rows, columns = choose_by_depth(rankings)(ModelOrder(rankings))
    best = np.min([placed.above[rows, columns] for placed in rankings.models.values()], axis=0)
    assert (np.diff(best) >= 0).all()
    assert len(rows) == (rankings.label == UNJUDGED).sum()


def test_rows_are_the_first_pairs_of_a_pool(tmp_path):
    data, scores, _ = world(images=8, captions=2, models=3, seed=3)
    models = {name: PrecomputedModel(of_model, name) for name, of_model in scores.items()}
    manifest, order = bound_model_order(
        data, Judgements.from_links(data), models, tmp_path / "bounds", options=BoundsOptions(depth=3)
    )
    rows = read_rows(tmp_path / "bounds", "bounds")
    assert manifest["counts"] == {"queries": 16, "unjudged": (order.label == UNJUDGED).sum(), "comparisons": 3, "undecided": 3}
    assert len(rows) == order.open_pairs(*order.undecided).sum()
    row_index, column = order.judging_order()
    assert (np.diff(sum(order.effects(pair)[row_index, column] for pair in order.undecided)) <= 0).all()
    assert [row["image_id"] for row in rows] == data.image_ids[order.rankings.item[row_index, column]].tolist()
    effects = {pair: 100 / 16 * order.effects(pair)[row_index, column] for pair in order.undecided}
    for n, row in enumerate(rows):
        assert {tuple(index["models"]): index["by"] for index in row["moves"]} == pytest.approx(
            {pair: effect[n] for pair, effect in effects.items() if effect[n] > 0}, abs=1e-6
        )
    assert all(row["image_id"] != f"i{row['caption_id'][1:].split('#')[0]}" for row in rows)  # no link
    first = read_pair_list(tmp_path / "bounds" / ROWS)
    build_pool(data, models, tmp_path / "pool", first=first)
    pooled = [(row["image_id"], row["caption_id"]) for row in read_rows(tmp_path / "pool") if row.get("first")]
    assert pooled == first
    repeated, _ = bound_model_order(data, Judgements.from_links(data), models, tmp_path / "bounds", options=BoundsOptions(depth=3))
    assert repeated == manifest
    with pytest.raises(UsageError, match="metric was 'map@r', now 'hit@1'"):
        bound_model_order(data, Judgements.from_links(data), models, tmp_path / "bounds", options=BoundsOptions("hit@1", depth=3))


def test_i2t_equals_t2i_of_the_transposed_collection():
    data, scores, _ = world(images=5, captions=2, models=2, seed=5)
    rankings = label_rankings(data, Judgements.from_links(data), scores, BoundsOptions("recall@3", "i2t", 3))
    assert rankings.label.shape[0] == 5
    transposed = {name: Matrix(s.caption_ids, s.image_ids, s.values.T) for name, s in scores.items()}
    flipped = Collection(data.caption_ids, data.image_ids, tuple(data.image_ids), data.links[:, ::-1])
    of_flipped = label_rankings(flipped, Judgements.from_links(flipped), transposed, BoundsOptions("recall@3", "t2i", 3))
    assert ModelOrder(rankings).mean_difference(("m0", "m1")) == pytest.approx(ModelOrder(of_flipped).mean_difference(("m0", "m1")))


def test_judged_pairs_are_not_open():
    data, scores, truth = world(images=5, captions=1, models=2, seed=6)
    linked = Judgements.from_links(data)
    before = label_rankings(data, linked, scores, BoundsOptions(depth=3))
    q, w = np.argwhere(before.label == UNJUDGED)[0]
    judged_pair = (before.item[q, w], before.query[q])
    extended = Judgements(
        "more",
        np.append(linked.rows, judged_pair[0]),
        np.append(linked.columns, judged_pair[1]),
        np.append(linked.grades, 0),
        data.shape,
    )
    after = label_rankings(data, extended, scores, BoundsOptions(depth=3))
    assert (after.label == UNJUDGED).sum() == (before.label == UNJUDGED).sum() - 1
    assert judged_pair[0] not in after.item[q]
    assert (label_rankings(data, Judgements.from_matrix("truth", truth), scores, BoundsOptions(depth=3)).label != UNJUDGED).all()


def test_shallow_run_is_rejected():
    data, scores, _ = world(images=6, captions=1, models=1, seed=7)
    values = scores["m0"].values
    top = [(c, i) for c in range(6) for i in np.argsort(-values[:, c])[:2]]
    captions, images = (list(index) for index in zip(*top, strict=True))
    run = Run(data.caption_ids[captions], data.image_ids[images], values[images, captions])
    judged, with_run = Judgements.from_links(data), {**scores, "run": run}
    rankings = label_rankings(data, judged, with_run, BoundsOptions("map@r", "t2i", 2))
    with pytest.raises(CrossmatchError, match="may need 3 of 6 candidates of a query, but the run lists 2"):
        metric_intervals(ModelOrder(rankings))
    for name in ("map@r", "hit@1"):
        with pytest.raises(CrossmatchError, match="run lists 2 candidates for 'i0#0'; 4 are needed"):
            label_rankings(data, judged, with_run, BoundsOptions(name, "t2i", 4))


def test_open_pool_includes_pairs_that_a_run_does_not_list():
    data, scores, _ = world(images=4, captions=1, models=1, seed=7)
    values = scores["m0"].values
    top = [(c, i) for c in range(4) for i in np.argsort(-values[:, c])[:2]]
    captions, images = (list(index) for index in zip(*top, strict=True))
    run = Run(data.caption_ids[captions], data.image_ids[images], values[images, captions])
    options, judged = BoundsOptions("recall@1", "t2i", None), Judgements.from_links(data)
    from_run, complete = (
        metric_intervals(ModelOrder(label_rankings(data, judged, {"m": of_model}, options)))["m"]
        for of_model in (run, scores["m0"])
    )
    assert from_run == pytest.approx(complete)
    assert (label_rankings(data, judged, {"m": run}, options).label == UNJUDGED).sum() == 4 * 3


def test_invalid_options_are_rejected():
    with pytest.raises(UsageError, match="Bounds of median-rank are not available"):
        BoundsOptions("median-rank")
    with pytest.raises(UsageError, match="i2t or t2i"):
        BoundsOptions(direction="t2t")
    with pytest.raises(UsageError, match="--depth must be at least 1"):
        BoundsOptions(depth=0)
    data, scores, _ = world()
    graded = Judgements("graded", [0, 1], [0, 2], [2.0, 1.0], data.shape)
    with pytest.raises(UsageError, match="bounds need grades 0 and 1"):
        label_rankings(data, graded, scores, BoundsOptions("ndcg@5"))
