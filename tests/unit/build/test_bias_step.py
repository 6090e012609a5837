"""The bias of a pool: against scoring every subset with a slow implementation."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from crossmatch.build.pool_bias_report import bias_panel, bias_tables
from crossmatch.build.pool_bias_step import (
    CandidateModel,
    analyse_pool,
    load_pool_direction,
    measure_bias,
    order_pool_models,
    read_relevance,
    sort_candidates,
    write_pool_bias,
)
from crossmatch.build.pooling import PoolOptions, build_pool
from crossmatch.build.step_files import read_manifest, read_rows
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.metrics.pool_bias import score_subsets
from crossmatch.report.pages import write_analysis

DATA = Collection.from_captions({f"i{n}": [f"text {n} {k}" for k in range(2)] for n in range(8)})
NAMES = ("a", "b", "c")


def save_model(tmp_path: Path, name: str, seed: int, truth) -> str:
    """A precomputed model: the truth with noise."""
    noise = np.random.default_rng(seed).normal(size=DATA.shape)
    np.savez(tmp_path / f"{name}.npz", image_ids=DATA.image_ids, caption_ids=DATA.caption_ids, scores=truth + noise)
    return f"precomputed:{tmp_path / name}.npz"


@pytest.fixture
def world(tmp_path: Path):
    """A pool of three models, top 3, and the relevance of each pair: 0, 0.5 or 1."""
    truth = np.random.default_rng(7).choice([0.0, 0.5, 1.0], DATA.shape, p=[0.6, 0.2, 0.2])
    models = [save_model(tmp_path, name, n, 2 * truth) for n, name in enumerate(NAMES)]
    build_pool(DATA, models, tmp_path / "pool", options=PoolOptions(top=3, certain=0, gold=0))
    images, captions = DATA.image_ids.tolist(), DATA.caption_ids.tolist()
    answers = {(images[i], captions[c]): float(truth[i, c]) for i in range(len(images)) for c in range(len(captions))}
    text = "image_id,caption_id,grade\n" + "".join(f"{i},{c},{g}\n" for (i, c), g in answers.items())
    (tmp_path / "answers.csv").write_text(text)
    return tmp_path, models, answers


def by_hand(models, rows, answers, direction: str) -> dict[tuple[str, ...], list[float]]:
    """hit@1 of each model on the pairs of each subset, with dictionaries only."""
    side = {"i2t": 0, "t2i": 1}[direction]
    ranks = {(r["image_id"], r["caption_id"]): r["retrieved"][direction] for r in rows if direction in r["retrieved"]}
    scored = {pair[side] for pair in ranks if answers[pair] > 0}
    first = {(name, pair[side]): pair for pair, ranks in ranks.items() for name, rank in ranks.items() if rank == 1}
    scores_by_subset = {}
    for size in range(1, len(models) + 1):
        for chosen in combinations(models, size):
            scores_by_subset[chosen] = [
                float(np.mean([answers[p] if set(ranks[p := first[name, q]]) & set(chosen) else 0.0 for q in scored]))
                for name in models
            ]
    return scores_by_subset


@pytest.mark.parametrize("direction", ["i2t", "t2i"])
def test_subset_scores_equal_the_slow_version(world, direction):
    folder, models, answers = world
    result = measure_bias(load_pool_direction(folder / "pool", direction, answers), samples=0)
    expected = by_hand(models, read_rows(folder / "pool"), answers, direction)
    assert result.subset_scores.scores == pytest.approx(np.asarray(list(expected.values())))
    on_all_pairs = np.asarray(list(expected.values()))[-1]
    bias_by_model = np.abs(np.asarray(list(expected.values()))[:3] - on_all_pairs)  # by one model each
    means = result.bias.by_size()[1]
    assert means[0] == pytest.approx(bias_by_model.mean())
    assert means[1] == pytest.approx(np.diag(bias_by_model).mean()) == pytest.approx(0)  # a model proposed its own first items
    assert means[2] == pytest.approx(np.mean([np.delete(bias_by_model[m], m).mean() for m in range(3)]))


def test_bootstrap_resamples_queries(world):
    """Each bootstrap replicate equals the weighted mean over the drawn queries."""
    folder, _, answers = world
    result = load_pool_direction(folder / "pool", "t2i", answers)
    scored = score_subsets(result.pool, result.rankings, samples=5, seed=3)
    with_positive = np.unique(result.pool.query[result.pool.relevance > 0])
    draws = np.random.default_rng(3).multinomial(len(with_positive), np.full(len(with_positive), 1 / len(with_positive)), 5)
    assert scored.samples is not None
    for times, sample in zip(draws, scored.samples, strict=True):
        values = []
        for query in with_positive:
            of_query = result.pool.query == query
            arrays = (result.pool.query, result.pool.item, result.pool.relevance, result.pool.proposed)
            single_query = type(result.pool)(result.pool.models, *(array[of_query] for array in arrays))
            values.append(score_subsets(single_query, result.rankings).scores)
        assert sample == pytest.approx(np.average(values, axis=0, weights=times))
    measured = measure_bias(result, samples=200)
    for size, mean in measured.bias.by_size().items():
        assert measured.low[size][2] <= mean[2] <= measured.high[size][2] or measured.low[size][2] == pytest.approx(mean[2])


def test_model_order_is_greedy(world):
    folder, models, answers = world
    result = measure_bias(load_pool_direction(folder / "pool", "i2t", answers), samples=0)
    order = order_pool_models([result])
    assert sorted(name for name, _ in order) == sorted(models)
    singles = {models[n]: result.bias.other_bias[n] for n in range(3)}
    assert order[0] == (min(singles, key=singles.__getitem__), pytest.approx(min(singles.values())))
    pairs = {
        frozenset(np.asarray(models)[m]): v
        for m, v in zip(result.bias.members, result.bias.other_bias, strict=True)
        if m.sum() == 2
    }
    best = min((v, n) for n in models if n != order[0][0] for v in [pairs[frozenset({order[0][0], n})]])
    assert order[1] == (best[1], pytest.approx(best[0]))


def test_step_writes_rows_plot_and_candidates(world):
    folder, models, answers = world
    near = save_model(folder, "near", 11, 2 * np.asarray(list(answers.values())).reshape(DATA.shape))
    far = save_model(folder, "far", 12, 0.0)
    partial = {pair: grade for n, (pair, grade) in enumerate(answers.items()) if n % 5}
    (folder / "some.csv").write_text("image_id,caption_id,grade\n" + "".join(f"{i},{c},{g}\n" for (i, c), g in partial.items()))
    result, manifest = write_pool_bias(
        folder / "pool", folder / "some.csv", folder / "out", metrics=("hit@1", "r-precision"), collection=DATA,
        candidates=[far, near], samples=20,
    )  # fmt: skip
    assert manifest["finished"]
    assert manifest["inputs"]["pool"] == read_manifest(folder / "pool")["sha256"][:16]
    rows = {row["id"]: row for row in read_rows(folder / "out", "bias")}
    on_all_pairs = rows[f"i2t/hit@1/{'+'.join(models)}"]
    assert on_all_pairs["bias"] == 0
    assert len([row for row in rows.values() if "scores" in row]) == 2 * 2 * 7
    unjudged = [
        r for r in read_rows(folder / "pool") if "i2t" in r["retrieved"] and (r["image_id"], r["caption_id"]) not in partial
    ]
    assert result.unjudged["i2t"] == len(unjudged) == manifest["counts"]["unjudged i2t"]
    assert [candidate.model for candidate in result.candidates] == [near, far]
    tables = bias_tables(result)
    assert tables[-1].notes[0].startswith("add precomputed:near.npz")
    write_analysis(folder / "bias.svg", "bias", tables, [bias_panel(result)])
    assert "annotator models" in (folder / "bias.svg").read_text()


def test_pool_of_two_models_has_its_values_beside_the_only_tick(world):
    """With a single number of annotator models, the three values are close to its tick, as with several numbers."""
    from matplotlib.figure import Figure

    folder, models, _ = world
    build_pool(DATA, models[:2], folder / "two", options=PoolOptions(top=3, certain=0, gold=0))
    result, _ = write_pool_bias(folder / "two", folder / "answers.csv", folder / "out", samples=20)
    figure = Figure()
    bias_panel(result).draw(figure)
    for axes in figure.axes:
        assert axes.get_xticks().tolist() == [1]
        left, right = axes.get_xlim()
        places = [(line.get_xdata()[0] - left) / (right - left) for container in axes.containers for line in container.lines[:1]]
        assert len(places) == 3
        assert all(0.4 < place < 0.6 for place in places)


def test_without_samples_there_are_no_intervals(world):
    folder, _, _ = world
    result, _ = write_pool_bias(folder / "pool", folder / "answers.csv", folder / "out", metrics=("hit@1", "hit@1"), samples=0)
    assert len(result.measured) == 2  # a metric that is named twice is measured once, in both directions
    assert not result.measured[0].low
    table = bias_tables(result)[1]
    assert all("[" not in cell for row in table.rows for cell in row)
    assert "no intervals" in table.notes[0]
    rows = [row for row in read_rows(folder / "out", "bias") if "models" in row]
    assert rows
    assert all(len(row["non_self"]) == 1 for row in rows)
    write_analysis(folder / "bias.svg", "bias", bias_tables(result), [bias_panel(result)])


def test_changed_candidate_model_is_a_changed_input(world):
    folder, _, _ = world
    options = {"collection": DATA, "candidates": [save_model(folder, "new", 5, 0.0)], "samples": 5}
    _, manifest = write_pool_bias(folder / "pool", folder / "answers.csv", folder / "out", **options)
    assert {"pool", "answers", "collection"} < set(manifest["inputs"])
    save_model(folder, "new", 6, 0.0)
    with pytest.raises(UsageError, match=r"other inputs: candidate precomputed:.* was"):
        write_pool_bias(folder / "pool", folder / "answers.csv", folder / "out", **options)


def test_candidate_equals_the_slow_version(world):
    folder, _, answers = world
    name = save_model(folder, "new", 5, 0.0)
    partial = dict(list(answers.items())[::2])
    (candidate,) = analyse_pool(folder / "pool", partial, collection=DATA, candidates=[name], samples=0).candidates
    scores = np.load(folder / "new.npz")["scores"]
    images, captions = DATA.image_ids.tolist(), DATA.caption_ids.tolist()
    listed = [[(i, captions[c]) for c in np.argsort(-scores[n])[:3]] for n, i in enumerate(images)]
    listed += [[(images[i], c) for i in np.argsort(-scores[:, n])[:3]] for n, c in enumerate(captions)]
    assert candidate.pairs == len({pair for pairs in listed for pair in pairs} - set(partial))
    assert candidate.low == pytest.approx(np.mean([partial.get(pairs[0], 0.0) for pairs in listed]))
    assert candidate.high == pytest.approx(np.mean([partial.get(pairs[0], 1.0) for pairs in listed]))
    assert candidate.expected == pytest.approx(
        candidate.unsure * np.mean([partial[pairs[0]] for pairs in listed if pairs[0] in partial])
    )


def test_candidates_without_judged_items_come_last():
    candidates = [
        CandidateModel("x", 9, 1.0, 0.0, 1.0),
        CandidateModel("b", 5, 0.2, 0.4, 0.6),
        CandidateModel("a", 5, 0.2, 0.4, 0.6),
    ]
    assert [candidate.model for candidate in sort_candidates(candidates)] == ["a", "b", "x"]


def test_invalid_analyses_are_rejected(world):
    folder, models, answers = world
    with pytest.raises(UsageError, match="Pass --data"):
        analyse_pool(folder / "pool", answers, metrics=("r-precision",))
    with pytest.raises(UsageError, match="is already in the pool"):
        analyse_pool(folder / "pool", answers, collection=DATA, candidates=models[:1], samples=0)
    with pytest.raises(CrossmatchError, match="no answer is about a pair"):
        analyse_pool(folder / "pool", {("x", "y"): 1.0})
    build_pool(DATA, models, folder / "less", options=PoolOptions(top=3, certain=0, gold=0, judge_links=False))
    with pytest.raises(CrossmatchError, match="leaves out retrieved links"):
        analyse_pool(folder / "less", answers)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image_id,caption_id,grade\na,b,4.5\n", "expected a grade from 0 to 1"),
        ("image_id,caption_id,grade\na,b,1\na,b,0\n", "have two grades"),
    ],
)
def test_invalid_answer_tables_are_rejected(tmp_path: Path, text, message):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(CrossmatchError, match=message):
        read_relevance(tmp_path / "x.csv")
    with pytest.raises(UsageError, match="none.csv does not exist; expected a table of answers"):
        read_relevance(tmp_path / "none.csv")
