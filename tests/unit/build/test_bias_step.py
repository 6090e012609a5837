"""The bias of a pool: against scoring every subset anew by hand, from the rows that a pool really has."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from crossmatch.build.bias import Candidate, analysed, bias, in_turn, measured, proposed, ranked_candidates, read_answers
from crossmatch.build.bias_report import bias_panel, bias_tables
from crossmatch.build.files import manifest, read_rows
from crossmatch.build.pool import Pooling, pool
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.metrics.bias import versions
from crossmatch.report.analysis_page import write

HELD = Collection.of({f"i{n}": [f"text {n} {k}" for k in range(2)] for n in range(8)})
NAMES = ("a", "b", "c")


def table(tmp_path: Path, name: str, seed: int, true) -> str:
    """A model: what is true, with noise."""
    noise = np.random.default_rng(seed).normal(size=HELD.shape)
    np.savez(tmp_path / f"{name}.npz", image_ids=HELD.image_ids, caption_ids=HELD.caption_ids, scores=true + noise)
    return f"precomputed:{tmp_path / name}.npz"


@pytest.fixture
def world(tmp_path: Path):
    """A pool of three models, top 3, and what is true of each pair: 0, 0.5 or 1."""
    true = np.random.default_rng(7).choice([0.0, 0.5, 1.0], HELD.shape, p=[0.6, 0.2, 0.2])
    models = [table(tmp_path, name, n, 2 * true) for n, name in enumerate(NAMES)]
    pool(HELD, models, tmp_path / "pool", how=Pooling(top=3, certain=0, gold=0))
    images, captions = HELD.image_ids.tolist(), HELD.caption_ids.tolist()
    answers = {(images[i], captions[c]): float(true[i, c]) for i in range(len(images)) for c in range(len(captions))}
    text = "image_id,caption_id,grade\n" + "".join(f"{i},{c},{g}\n" for (i, c), g in answers.items())
    (tmp_path / "answers.csv").write_text(text)
    return tmp_path, models, answers


def by_hand(models, rows, answers, direction: str) -> dict[tuple[str, ...], list[float]]:
    """hit@1 of each model by the pairs of each subset, with nothing but dictionaries."""
    side = {"i2t": 0, "t2i": 1}[direction]
    by = {(r["image_id"], r["caption_id"]): r["retrieved"][direction] for r in rows if direction in r["retrieved"]}
    scored = {pair[side] for pair in by if answers[pair] > 0}
    first = {(name, pair[side]): pair for pair, ranks in by.items() for name, rank in ranks.items() if rank == 1}
    out = {}
    for size in range(1, len(models) + 1):
        for chosen in combinations(models, size):
            out[chosen] = [
                float(np.mean([answers[p] if set(by[p := first[name, q]]) & set(chosen) else 0.0 for q in scored]))
                for name in models
            ]
    return out


@pytest.mark.parametrize("direction", ["i2t", "t2i"])
def test_scores_of_every_subset_are_those_by_hand(world, direction):
    folder, models, answers = world
    found = measured(proposed(folder / "pool", direction, answers), samples=0)
    expected = by_hand(models, read_rows(folder / "pool"), answers, direction)
    assert found.versions.scores == pytest.approx(np.asarray(list(expected.values())))
    every = np.asarray(list(expected.values()))[-1]
    apart = np.abs(np.asarray(list(expected.values()))[:3] - every)  # by one model each
    means = found.bias.by_size()[1]
    assert means[0] == pytest.approx(apart.mean())
    assert means[1] == pytest.approx(np.diag(apart).mean()) == pytest.approx(0)  # its own first items it has proposed itself
    assert means[2] == pytest.approx(np.mean([np.delete(apart[m], m).mean() for m in range(3)]))


def test_draws_are_of_queries(world):
    """Against versions of the queries that were drawn, one replicate after the other."""
    folder, _, answers = world
    found = proposed(folder / "pool", "t2i", answers)
    scored = versions(found.pool, found.rankings, samples=5, seed=3)
    with_positive = np.unique(found.pool.query[found.pool.relevance > 0])
    draws = np.random.default_rng(3).multinomial(len(with_positive), np.full(len(with_positive), 1 / len(with_positive)), 5)
    assert scored.samples is not None
    for times, sample in zip(draws, scored.samples, strict=True):
        values = []
        for query in with_positive:
            kept = found.pool.query == query
            one = type(found.pool)(found.pool.models, found.pool.query[kept], found.pool.item[kept], found.pool.relevance[kept],
                                   found.pool.proposed[kept])  # fmt: skip
            values.append(versions(one, found.rankings).scores)
        assert sample == pytest.approx(np.average(values, axis=0, weights=times))
    told = measured(found, samples=200)
    for size, mean in told.bias.by_size().items():
        assert told.low[size][2] <= mean[2] <= told.high[size][2] or told.low[size][2] == pytest.approx(mean[2])


def test_the_order_is_greedy(world):
    folder, models, answers = world
    found = measured(proposed(folder / "pool", "i2t", answers), samples=0)
    order = in_turn([found])
    assert sorted(name for name, _ in order) == sorted(models)
    singles = {models[n]: found.bias.other[n] for n in range(3)}
    assert order[0] == (min(singles, key=singles.__getitem__), pytest.approx(min(singles.values())))
    pairs = {frozenset(np.asarray(models)[m]): v for m, v in zip(found.bias.members, found.bias.other, strict=True) if m.sum() == 2}
    best = min((v, n) for n in models if n != order[0][0] for v in [pairs[frozenset({order[0][0], n})]])
    assert order[1] == (best[1], pytest.approx(best[0]))


def test_the_step_writes_rows_a_picture_and_whom_to_add(world):
    folder, models, answers = world
    near, far = table(folder, "near", 11, 2 * np.asarray(list(answers.values())).reshape(HELD.shape)), table(folder, "far", 12, 0.0)
    some = {pair: grade for n, (pair, grade) in enumerate(answers.items()) if n % 5}
    (folder / "some.csv").write_text("image_id,caption_id,grade\n" + "".join(f"{i},{c},{g}\n" for (i, c), g in some.items()))
    found, told = bias(
        folder / "pool", folder / "some.csv", folder / "out", metrics=("hit@1", "r-precision"), collection=HELD,
        candidates=[far, near], samples=20,
    )  # fmt: skip
    assert told["finished"]
    assert told["inputs"]["pool"] == manifest(folder / "pool")["sha256"][:16]
    rows = {row["id"]: row for row in read_rows(folder / "out", "bias")}
    every = rows[f"i2t/hit@1/{'+'.join(models)}"]
    assert every["bias"] == 0
    assert len([row for row in rows.values() if "scores" in row]) == 2 * 2 * 7
    unjudged = [r for r in read_rows(folder / "pool") if "i2t" in r["retrieved"] and (r["image_id"], r["caption_id"]) not in some]
    assert found.unjudged["i2t"] == len(unjudged) == told["counts"]["unjudged i2t"]
    assert [one.model for one in found.candidates] == [near, far]
    tables = bias_tables(found)
    assert tables[-1].notes[0].startswith("add precomputed:near.npz")
    write(folder / "bias.svg", "bias", tables, [bias_panel(found)])
    assert "annotator models" in (folder / "bias.svg").read_text()


def test_without_samples_there_are_no_intervals(world):
    folder, _, _ = world
    found, _ = bias(folder / "pool", folder / "answers.csv", folder / "out", metrics=("hit@1", "hit@1"), samples=0)
    assert len(found.measured) == 2  # a metric that is named twice is measured once, in both directions
    assert not found.measured[0].low
    told = bias_tables(found)[1]
    assert all("[" not in cell for row in told.rows for cell in row)
    assert "no intervals" in told.notes[0]
    rows = [row for row in read_rows(folder / "out", "bias") if "models" in row]
    assert rows
    assert all(len(row["non_self"]) == 1 for row in rows)
    write(folder / "bias.svg", "bias", bias_tables(found), [bias_panel(found)])


def test_another_model_under_the_name_of_a_candidate_is_another_analysis(world):
    folder, _, _ = world
    how = {"collection": HELD, "candidates": [table(folder, "new", 5, 0.0)], "samples": 5}
    _, told = bias(folder / "pool", folder / "answers.csv", folder / "out", **how)
    assert {"pool", "answers", "collection"} < set(told["inputs"])
    table(folder, "new", 6, 0.0)
    with pytest.raises(WrongWords, match=r"other inputs: candidate precomputed:.* was"):
        bias(folder / "pool", folder / "answers.csv", folder / "out", **how)


def test_a_candidate_by_hand(world):
    folder, _, answers = world
    name = table(folder, "new", 5, 0.0)
    some = dict(list(answers.items())[::2])
    (one,) = analysed(folder / "pool", some, collection=HELD, candidates=[name], samples=0).candidates
    scores = np.load(folder / "new.npz")["scores"]
    images, captions = HELD.image_ids.tolist(), HELD.caption_ids.tolist()
    listed = [[(i, captions[c]) for c in np.argsort(-scores[n])[:3]] for n, i in enumerate(images)]
    listed += [[(images[i], c) for i in np.argsort(-scores[:, n])[:3]] for n, c in enumerate(captions)]
    assert one.pairs == len({pair for pairs in listed for pair in pairs} - set(some))
    assert one.low == pytest.approx(np.mean([some.get(pairs[0], 0.0) for pairs in listed]))
    assert one.high == pytest.approx(np.mean([some.get(pairs[0], 1.0) for pairs in listed]))
    assert one.expected == pytest.approx(one.unsure * np.mean([some[pairs[0]] for pairs in listed if pairs[0] in some]))


def test_candidates_that_nothing_is_known_of_come_last():
    found = [Candidate("x", 9, 1.0, 0.0, 1.0), Candidate("b", 5, 0.2, 0.4, 0.6), Candidate("a", 5, 0.2, 0.4, 0.6)]
    assert [one.model for one in ranked_candidates(found)] == ["a", "b", "x"]


def test_what_cannot_be_measured(world):
    folder, models, answers = world
    with pytest.raises(WrongWords, match="Name its collection"):
        analysed(folder / "pool", answers, metrics=("r-precision",))
    with pytest.raises(WrongWords, match="is in the pool already"):
        analysed(folder / "pool", answers, collection=HELD, candidates=models[:1], samples=0)
    with pytest.raises(CrossmatchError, match="no answer is about a pair"):
        analysed(folder / "pool", {("x", "y"): 1.0})
    pool(HELD, models, folder / "less", how=Pooling(top=3, certain=0, gold=0, judge_links=False))
    with pytest.raises(CrossmatchError, match="leaves out links"):
        analysed(folder / "less", answers)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image_id,caption_id,grade\na,b,4.5\n", "relevance from 0 to 1 was expected"),
        ("image_id,caption_id,grade\na,b,1\na,b,0\n", "have two grades"),
    ],
)
def test_answers_that_are_no_relevance(tmp_path: Path, text, message):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(CrossmatchError, match=message):
        read_answers(tmp_path / "x.csv")
    with pytest.raises(WrongWords, match="is no table of answers"):
        read_answers(tmp_path / "none.csv")
