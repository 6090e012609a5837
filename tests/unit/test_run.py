"""The one loop: what it computes, what it saves, what it refuses, and that nothing depends on order, block or chance."""

import gc
import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core.benchmark import Benchmark, Retrieval, data_hash
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.core.ranks import TIES
from crossmatch.core.result import file_name, load, load_all, save
from crossmatch.core.scores import Embeddings, Matrix
from crossmatch.core.trials import Trials
from crossmatch.metrics.table import METRICS, metric
from crossmatch.report.compare import compare
from crossmatch.run import evaluate, summarise

RETRIEVAL = tuple(m.name for m in METRICS.values() if m.shape == "retrieval")
HELD = Collection.of({f"i{n}": [f"caption {n}", f"other {n}"] for n in range(6)})


class Fixed:
    """A source of fixed scores."""

    def __init__(self, said):
        self.said = said

    def scores(self, data):
        return self.said


def own(metrics=("hit@1", "map@r"), held=HELD, judgements=None, **more):
    data = Retrieval(held, judgements or {"links": Judgements.from_links(held)})
    return Benchmark("own", "", lambda: data, metrics, **more)


def matrix(values, held=HELD):
    return Fixed(Matrix(held.image_ids, held.caption_ids, np.asarray(values)))


def choices(c, i, n=4, categories=None):
    images = [[f"i{k}.{m}" for m in range(i)] for k in range(n)]
    captions = [[f"c {k} {m}" for m in range(c)] for k in range(n)]
    return Trials([f"t{k}" for k in range(n)], images, captions, categories or ["k"] * n)


def rows(result):
    return [(r.key, r.value, r.low, r.high, r.chance, r.n, r.positives, r.ties, r.unjudged, r.signature) for r in result.rows]


def write_run(path, queries, items, scores):
    lines = [
        f"{q} Q0 {c} 0 {s!r} tag"
        for q, line in zip(queries, scores, strict=True)
        for c, s in zip(items, line, strict=True)
        if s is not None
    ]
    path.write_text("\n".join(lines))
    return f"precomputed:{path}"


# What comes out


@pytest.fixture(scope="module")
def tiny():
    return {m: evaluate(m, "diorama/retrieval", size="tiny", samples=50) for m in ("random", "oracle")}


def test_the_embedded_world_frames_every_metric(tiny):
    low, high = tiny["random"], tiny["oracle"]
    assert [r.key for r in low.rows] == [r.key for r in high.rows]
    for row in high.rows:
        if row.part.endswith("truth") and not row.metric.startswith("recall@"):
            assert row.value == row.best
    for row in (*low.rows, *high.rows):
        assert row.low <= row.high
        assert np.isfinite([row.value, row.low, row.high, row.chance]).all()
        assert f"|data:{low.rows[0].signature.split('data:')[1][:8]}|" in row.signature
        assert (row.unjudged == 0.0) == row.part.endswith("truth")


def test_links_are_part_of_the_truth_and_the_note_says_how_much_is_missing(tiny):
    links, truth = tiny["oracle"]["i2t/links/hit@1"], tiny["oracle"]["i2t/truth/hit@1"]
    assert links.positives == 250
    assert links.positives < truth.positives
    share = 100 * (1 - links.positives / truth.positives)
    assert tiny["oracle"].notes == (
        f"links hold 250 of the {truth.positives:,} pairs that are true: {share:.1f} % of the positives are missing from them",
    )


def test_metrics_of_a_small_matrix_are_those_of_sorting_by_hand():
    rng = np.random.default_rng(3)
    scores = rng.permutation(72).reshape(6, 12) / 7
    result = evaluate(matrix(scores), own(("hit@1", "hit@5", "mrr", "median-rank", "map@r", "precision@5")), samples=10)
    for direction, lines, links in (("i2t", scores, HELD.links), ("t2i", scores.T, HELD.links[:, ::-1])):
        found = []
        for q, line in enumerate(lines):
            good = {c for a, c in links.tolist() if a == q}
            hits = [c in good for c in np.argsort(-line)]
            r = len(good)
            found.append((
                hits[0], any(hits[:5]), 1 / (hits.index(True) + 1), hits.index(True) + 1,
                sum(sum(hits[: k + 1]) / (k + 1) for k in range(r) if hits[k]) / r, sum(hits[:5]) / 5,
            ))  # fmt: skip
        h1, h5, rr, first, ap, p5 = np.array(found, dtype=float).T
        slow = [100 * h1.mean(), 100 * h5.mean(), 100 * rr.mean(), np.median(first), 100 * ap.mean(), 100 * p5.mean()]
        assert [r.value for r in result.rows if r.part == direction] == pytest.approx(slow, rel=1e-12)  # sums in another order


def test_unjudged_pairs_among_the_first_ten_are_counted():
    scores = np.tile(np.arange(12.0), (6, 1))  # caption 11 first, caption 2 tenth, for every image
    graded = [(n, 11, 1) for n in range(6)] + [(0, 10, 0), (0, 0, 0)]
    said = Judgements("p", *zip(*graded, strict=True), (6, 12))
    result = evaluate(matrix(scores), own(("hit@1",), judgements={"p": said}, directions=("i2t",)), samples=10)
    judged_in_first_ten = [2, 1, 1, 1, 1, 1]
    assert result.rows[0].unjudged == pytest.approx(100 * np.mean([1 - j / 10 for j in judged_in_first_ten]), rel=1e-12)
    assert "unjudged:irrelevant" in result.rows[0].signature


def test_a_gallery_smaller_than_ten_is_judged_as_far_as_it_goes():
    held = Collection.of({"a": ["x"], "b": ["y"], "c": ["z"]})
    result = evaluate("random", own(("hit@1",), held), samples=10)
    assert result.rows[0].unjudged == pytest.approx(100 * 2 / 3)


def test_all_scores_equal_is_chance_and_all_ties():
    result = evaluate(matrix(np.zeros((6, 12))), own(RETRIEVAL), samples=10)
    for row in result.rows:
        assert row.value == pytest.approx(row.chance, rel=1e-12)
        assert row.ties == 100.0


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1)])
def test_one_image_or_one_caption_is_enough(shape):
    links = list(product(range(shape[0]), range(shape[1])))
    held = Collection([f"i{n}" for n in range(shape[0])], [f"c{n}" for n in range(shape[1])], tuple("abcde"[: shape[1]]), links)
    result = evaluate("random", own(RETRIEVAL, held), samples=10)
    for row in result.rows:  # all of the gallery is positive: nothing can go wrong but a k past the gallery
        if not row.metric.startswith(("recall@", "precision@")):
            assert (row.value, row.chance) == (row.best, row.best)
        assert row.ties == 0


def test_a_k_past_the_gallery_is_the_whole_gallery():
    result = evaluate("random", own(("hit@1000", "recall@1000", "ndcg@1000", "ndcg@12", "precision@1000")), samples=10)
    for part, gallery, positives in (("i2t", 12, 2), ("t2i", 6, 1)):
        assert result[f"{part}/hit@1000"].value == result[f"{part}/recall@1000"].value == 100
        assert result[f"{part}/ndcg@1000"].value == pytest.approx(result[f"{part}/ndcg@12"].value, rel=1e-12)
        assert result[f"{part}/precision@1000"].value == pytest.approx(100 * positives / 1000)
        assert gallery >= positives


@pytest.mark.parametrize("name", ["hit@99999999999999999999999", "ndcg@99999999999999", "recall@9223372036854775807"])
def test_a_k_beyond_all_galleries_is_refused_or_means_all(name):
    try:
        result = evaluate("random", own((name,)), samples=10)
    except CrossmatchError:
        return
    assert result.rows[0].value == pytest.approx(
        evaluate("random", own((f"{name.partition('@')[0]}@12",)), samples=10).rows[0].value
    )


@st.composite
def tied_scores(draw):
    levels = draw(st.integers(1, 4))
    return np.array(draw(st.lists(st.integers(0, levels), min_size=72, max_size=72)), dtype=float).reshape(6, 12)


@given(tied_scores())
@settings(max_examples=10, deadline=None)
def test_pessimistic_is_at_most_expected_is_at_most_optimistic(scores):
    low, middle, high = (
        evaluate(matrix(scores), own(RETRIEVAL), ties=t, samples=2) for t in ("pessimistic", "expected", "optimistic")
    )
    for a, b, c in zip(low.rows, middle.rows, high.rows, strict=True):
        first, last = (a, c) if metric(a.metric).higher_is_better else (c, a)
        assert first.value <= b.value + 1e-9 <= last.value + 2e-9  # rounding of sums
        assert a.ties == b.ties == c.ties


# Nothing depends on order, block, or chance


def some_embeddings(order_i=slice(None), order_c=slice(None)):
    rng = np.random.default_rng(1)
    base = rng.standard_normal((5, 8)).astype(np.float32)
    images, captions = base[rng.integers(5, size=6)], base[rng.integers(5, size=12)]  # full of exact ties
    return Fixed(Embeddings(HELD.image_ids[order_i], images[order_i], HELD.caption_ids[order_c], captions[order_c]))


def test_the_order_in_a_file_changes_nothing():
    rng = np.random.default_rng(2)
    want = rows(evaluate(aligned(some_embeddings()), own(RETRIEVAL), samples=20))
    for _ in range(3):
        moved = some_embeddings(rng.permutation(6), rng.permutation(12))
        assert rows(evaluate(aligned(moved), own(RETRIEVAL), samples=20)) == want


def aligned(source):
    return Fixed(source.said.aligned(HELD))


@pytest.mark.parametrize("tile", [1, 7, 40])
def test_the_block_changes_nothing(monkeypatch, tile):
    import crossmatch.evidence as gathering
    from crossmatch.core.sweep import sweep

    want = rows(evaluate(some_embeddings(), own(RETRIEVAL), samples=20))
    for compiled in (False, True):
        monkeypatch.setattr(
            gathering, "sweep", lambda said, lists, cuts, c=compiled: sweep(said, lists, cuts, tile=tile, threads=2, compiled=c)
        )
        assert rows(evaluate(some_embeddings(), own(RETRIEVAL), samples=20)) == want


def test_the_seed_decides_the_interval_and_nothing_else():
    one, again, other = (evaluate("random", own(RETRIEVAL), samples=30, seed=s) for s in (5, 5, 6))
    assert rows(one) == rows(again)
    assert [r.value for r in one.rows] == [r.value for r in other.rows]
    assert [(r.low, r.high) for r in one.rows] != [(r.low, r.high) for r in other.rows]


def test_a_negative_seed_is_refused_in_our_words():
    with pytest.raises(CrossmatchError, match="seed"):
        evaluate("random", own(), samples=10, seed=-1)


# What is saved is enough


def again(result, data):
    """From the saved evidence alone."""
    bare = replace(result, rows=(), parts={n: replace(p, values={}) for n, p in result.parts.items()})
    chosen = list(dict.fromkeys(r.metric for r in result.rows))
    return summarise(bare, [metric(m) for m in chosen], {"data": data})


@pytest.mark.parametrize("ties", TIES)
def test_every_row_can_be_computed_again_from_the_files(tmp_path, ties):
    bench = own(RETRIEVAL)
    result = evaluate(some_embeddings(), bench, ties=ties, samples=20, name="mine")
    read = load(save(result, tmp_path))
    assert rows(read) == rows(result)
    assert rows(again(read, data_hash(bench.loaded()))) == rows(result)
    for name, part in result.parts.items():
        assert part.values.keys() == read.parts[name].values.keys()
        assert all(np.array_equal(v, read.parts[name].values[k]) for k, v in part.values.items())


def test_the_embedded_world_can_be_computed_again_from_the_files(tmp_path, tiny):
    result = tiny["random"]
    read = load(save(result, tmp_path))
    assert rows(again(read, result.rows[0].signature.split("data:")[1][:8])) == rows(result)
    assert (read.model, read.task, read.options, read.notes) == (
        "random",
        "diorama/retrieval",
        {"size": "tiny", "samples": "50"},
        result.notes,
    )


def test_trials_can_be_computed_again_from_the_files(tmp_path):
    data = choices(2, 2, 6, ["a", "b", "a", "b", "c", "c"])
    result = evaluate("random", Benchmark("t", "", lambda: data, ("i2t", "t2i", "group")), samples=20)
    assert rows(again(load(save(result, tmp_path)), data_hash(data))) == rows(result)


def test_a_failed_save_leaves_nothing_half_written(tmp_path, monkeypatch):
    result = evaluate("random", own(), samples=10)
    save(result, tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(CrossmatchError, match=r"No space.*Make room"):
        save(evaluate("random", own(), samples=11), tmp_path)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        "{}",
        '{"format": 1}',
        '{"format": 1, "parts": 3}',
        '{"format": 1, "parts": {"i2t": {}}, "rows": []}',
        "\0",
    ],
)
def test_a_damaged_result_is_refused(tmp_path, content):
    path = save(evaluate("random", own(), samples=10), tmp_path)
    path.write_text(content)
    with pytest.raises(CrossmatchError, match=r"damaged|format"):
        load(path)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("damage", ["gone", "empty", "half", "text"])
def test_damaged_evidence_is_refused(tmp_path, damage):
    path = save(evaluate("random", own(), samples=10), tmp_path)
    evidence = path.with_suffix(".npz")
    whole = evidence.read_bytes()
    evidence.unlink()
    if damage != "gone":
        evidence.write_bytes({"empty": b"", "half": whole[: len(whole) // 2], "text": b"hello"}[damage])
    try:
        with pytest.raises(CrossmatchError, match="damaged"):
            load(path)
    finally:
        gc.collect()  # numpy leaves the file of a failed load open: let it be closed here, not in the next test


def test_results_of_another_format_are_refused(tmp_path):
    path = save(evaluate("random", own(), samples=10), tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(CrossmatchError, match="format 99, not 2"):
        load(path)


def test_results_are_looked_for_where_they_are_said_to_be(tmp_path):
    with pytest.raises(WrongWords, match="there is no"):
        load_all([tmp_path / "nowhere"])
    with pytest.raises(WrongWords, match="no results below"):
        load_all([tmp_path])
    path = save(evaluate("random", own(), samples=10), tmp_path)
    assert len(load_all([tmp_path, path, tmp_path])) == 1


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", ".", "/", "a/b\\c", "", "-", "\n", "a\0b"])
def test_a_models_name_never_leaves_the_folder(name):
    made = file_name(name)
    assert made not in ("", ".", "..")
    assert not set(made) & set("/\\\0\n")


@pytest.mark.parametrize(("one", "two"), [("a/b", "a-b"), ("模型", "模特")])
def test_models_of_different_names_do_not_overwrite_each_other(tmp_path, one, two):
    save(evaluate("random:1", own(), samples=10, name=one), tmp_path)
    save(evaluate("random:2", own(), samples=10, name=two), tmp_path)
    assert {r.model for r in load_all([tmp_path])} == {one, two}


def test_a_very_long_name_can_be_saved(tmp_path):
    result = evaluate("random", own(), samples=10, name="precomputed:" + "very/" * 80 + "long.npz")
    assert load(save(result, tmp_path)).model == result.model


def test_another_size_of_the_world_does_not_overwrite_the_first(tmp_path):
    bench = own(options={"size": "s"})
    bench = replace(bench, load=lambda size: own().loaded())
    for size in ("s", "m"):
        save(evaluate("random", bench, samples=10, size=size), tmp_path)
    assert len(load_all([tmp_path])) == 2


# What is refused


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"ties": "hopeful"}, "expected, pessimistic, optimistic"),
        ({"samples": 1}, "at least 2"),
        ({"samples": 0}, "at least 2"),
        ({"metrics": ("hit@0",)}, "counts from one"),
        ({"metrics": ("map@rr",)}, "Did you mean 'map@r'"),
        ({"metrics": ("hit@-1",)}, "no metric"),
        ({"metrics": ("hit@",)}, "no metric"),
        ({"metrics": ("hit@1.5",)}, "no metric"),
        ({"metrics": ("",)}, "no metric"),
        ({"split": "val"}, "no option 'split'"),
    ],
)
def test_wrong_words_are_named(words, says):
    with pytest.raises(WrongWords, match=says):
        evaluate("random", own(), **words)


def test_unknown_tasks_and_models_get_a_hint():
    with pytest.raises(WrongWords, match="Did you mean 'diorama/retrieval'"):
        evaluate("random", "diorama/retreival")
    with pytest.raises(WrongWords, match="Did you mean 'random'"):
        evaluate("randon", own())


def test_a_metric_of_another_shape_is_refused():
    with pytest.raises(CrossmatchError, match="none of the metrics t2i, group fits own"):
        evaluate("random", own(("t2i", "group")), samples=10)


def test_a_metric_that_was_asked_for_is_not_left_out_in_silence():
    """Asked for by name, and not there: an error, or at least a note."""
    try:
        told = evaluate("random", own(), metrics=("hit@1", "group"), samples=10).notes
    except CrossmatchError as error:
        told = (str(error),)
    assert any("group" in line for line in told)


def test_a_metric_named_twice_is_one_row():
    keys = [r.key for r in evaluate("random", own(), metrics=("hit@1", "hit@1", "hit@01"), samples=10).rows]
    assert keys == ["i2t/hit@1", "t2i/hit@1"]


def test_asking_for_a_row_that_is_not_there_lists_those_that_are():
    with pytest.raises(CrossmatchError, match=r"hit@1, map@r after one of i2t/, t2i/"):
        evaluate("random", own(), samples=10)["i2t/hit@2"]


# Runs


def deep(n, seed=0):
    """The first n captions of each image, and None for the rest."""
    scores = np.random.default_rng(seed).permutation(72).reshape(6, 12).astype(float)
    place = (-scores).argsort(axis=1).argsort(axis=1)
    return [
        [s if p < n else None for s, p in zip(line, places, strict=True)]
        for line, places in zip(scores.tolist(), place.tolist(), strict=True)
    ]


def test_a_full_run_gives_what_its_matrix_gives(tmp_path):
    model = write_run(tmp_path / "a.trec", HELD.image_ids, HELD.caption_ids, deep(12))
    bench = own(RETRIEVAL, directions=("i2t",))
    want = evaluate(matrix(deep(12)), bench, samples=20)
    assert rows(evaluate(model, bench, samples=20)) == rows(want)


def test_a_run_of_one_direction_is_evaluated_and_the_other_is_noted(tmp_path):
    model = write_run(tmp_path / "a.trec", HELD.image_ids, HELD.caption_ids, deep(12))
    result = evaluate(model, own(), samples=10)
    assert {r.part for r in result.rows} == {"i2t"}
    assert result.notes[0] == "not evaluated, for want of scores in that direction: t2i"


def test_a_run_of_the_wrong_direction_only_is_told_so(tmp_path):
    model = write_run(tmp_path / "a.trec", HELD.image_ids, HELD.caption_ids, deep(12))
    with pytest.raises(CrossmatchError, match="t2i"):
        evaluate(model, own(directions=("t2i",)), samples=10)


def test_a_run_must_reach_as_deep_as_the_metric(tmp_path):
    model = write_run(tmp_path / "a.trec", HELD.image_ids, HELD.caption_ids, deep(5))
    both = own(directions=("i2t",))
    for name in ("hit@1", "hit@5", "precision@5", "r-precision", "map@r", "ndcg@5"):
        assert (
            evaluate(model, both, metrics=(name,), samples=10).rows[0].value
            == evaluate(matrix(deep(12)), both, metrics=(name,), samples=10).rows[0].value
        )
    for name in ("hit@6", "recall@10", "ndcg@10", "hit@100"):
        with pytest.raises(CrossmatchError, match=rf"lists 5 candidates for query 'i\d', but {name} needs (6|10|12) of 12"):
            evaluate(model, both, metrics=(name,), samples=10)


def test_the_first_rank_is_known_only_if_it_is_listed(tmp_path):
    """Image 0 has its positives below the cut: its reciprocal rank is not known, and no zero is put in its place."""
    scores = deep(5)
    scores[0] = [None if c in (0, 1) else float(c) for c in range(12)]
    model = write_run(tmp_path / "a.trec", HELD.image_ids, HELD.caption_ids, scores)
    for name in ("mrr", "median-rank", "mean-rank"):
        for ties in TIES:
            with pytest.raises(CrossmatchError, match=f"but {name} needs 12 of 12"):
                evaluate(model, own((name,), directions=("i2t",)), ties=ties, samples=10)


def test_a_query_without_any_row_is_missed(tmp_path):
    scores = deep(12)
    scores[2] = [None] * 12
    model = write_run(tmp_path / "a.trec", HELD.image_ids, HELD.caption_ids, scores)
    with pytest.raises(CrossmatchError, match="no row for 1 of 6 queries; first missing: 'i2'"):
        evaluate(model, own(), samples=10)


# Trials


def strict_wins(scores):
    """(i2t, t2i) of one trial by the papers' words."""
    c, i = scores.shape
    own_caption = all(scores[n, n] > scores[m, n] for n in range(min(c, i)) for m in range(c) if m != n)
    own_image = all(scores[n, n] > scores[n, m] for n in range(min(c, i)) for m in range(i) if m != n)
    return own_caption, own_image


@pytest.mark.parametrize(("c", "i", "expected"), [(1, 2, {"t2i"}), (2, 1, {"i2t"}), (2, 2, {"i2t", "t2i", "group"})])
def test_trials_of_every_shape_from_csv(tmp_path, c, i, expected):
    n = 40
    data = choices(c, i, n)
    scores = np.random.default_rng(c + i).integers(0, 4, (n, c, i)).astype(float)
    order = np.random.default_rng(0).permutation(n)
    head = [f"s_c{a}_i{b}" for a in range(c) for b in range(i)]
    lines = [",".join(["trial_id", *head]), *(",".join([f"t{k}", *map(str, scores[k].ravel())]) for k in order)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    result = evaluate(f"precomputed:{tmp_path / 'a.csv'}", Benchmark("t", "", lambda: data, ("i2t", "t2i", "group")), samples=10)
    wins = np.array([strict_wins(s) for s in scores])
    slow = {"i2t": wins[:, 0].mean(), "t2i": wins[:, 1].mean(), "group": wins.all(axis=1).mean()}
    assert {r.key: r.value for r in result.rows} == {k: pytest.approx(100 * v) for k, v in slow.items() if k in expected}
    chance = {"i2t": 50 if i == 1 else 25, "t2i": 50 if c == 1 else 25, "group": 100 / 6}
    assert {r.key: r.chance for r in result.rows} == {k: pytest.approx(v) for k, v in chance.items() if k in expected}
    assert result.rows[0].unjudged is None
    assert "ties:lose" in result.rows[0].signature


def test_a_tie_loses_and_is_reported(tmp_path):
    (tmp_path / "a.csv").write_text("trial_id,s_c0_i0,s_c0_i1\nt0,1,1\nt1,2,1\nt2,1,2\nt3,1,1\n")
    row = evaluate(f"precomputed:{tmp_path / 'a.csv'}", Benchmark("t", "", lambda: choices(1, 2), ("t2i",)), samples=10)["t2i"]
    assert (row.value, row.ties) == (25.0, 50.0)


def test_categories_are_parts_and_the_whole_stays_the_whole():
    data = choices(1, 2, 6, ["a", "b", "a", "b", "b", "b"])
    result = evaluate("oracle", Benchmark("t", "", lambda: data, ("t2i",)), samples=10)
    assert {r.key: r.n for r in result.rows} == {"t2i": 6, "macro/t2i": 6, "a/t2i": 2, "b/t2i": 4}


def test_a_category_without_a_name_does_not_take_the_place_of_the_whole():
    data = choices(1, 2, 6, ["", "b", "", "b", "b", "b"])
    try:
        result = evaluate("oracle", Benchmark("t", "", lambda: data, ("t2i",)), samples=10)
    except CrossmatchError:
        return
    assert result["t2i"].n == 6


# Order, grades, depth


def shuffled(data, seed):
    """The same data, its images and captions in another order."""
    rng = np.random.default_rng(seed)
    held = data.collection
    image, caption = rng.permutation(held.shape[0]), rng.permutation(held.shape[1])
    row, column = np.argsort(image), np.argsort(caption)
    moved = Collection(
        held.image_ids[image], held.caption_ids[caption], [held.captions[n] for n in caption],
        np.stack([row[held.links[:, 0]], column[held.links[:, 1]]], axis=1)[rng.permutation(len(held.links))],
    )  # fmt: skip
    said = {name: replace(j, rows=row[j.rows], columns=column[j.columns]) for name, j in data.judgements.items()}
    return Retrieval(moved, said)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_order_of_the_collection_changes_no_bit_of_a_result(seed):
    bench = own(RETRIEVAL)
    data = bench.loaded()
    before = evaluate("random", bench, data=data, samples=30)
    after = evaluate("random", bench, data=shuffled(data, seed), samples=30)
    assert before.rows == after.rows
    assert [c.better for c in compare(before, after)] == [0] * len(before.rows)


def test_ndcg_counts_grades_below_a_positive():
    """Grades 2, 1 and 0 with positives from 2 on: the second place is worth more with grade 1 in it."""
    held = Collection.of({"a": ["x", "y", "z"]})
    said = Judgements.from_ids(held, "people", [("a", "a#0", 2), ("a", "a#1", 1), ("a", "a#2", 0)], positive=2)
    bench = Benchmark("graded", "", lambda: Retrieval(held, {"people": said}), ("ndcg@10", "hit@1"), directions=("i2t",))
    found = [
        evaluate(lambda images, texts, s=s: np.array([s]), bench, data=pictured(held, said), samples=2)["i2t/ndcg@10"].value
        for s in ([3.0, 2.0, 1.0], [3.0, 1.0, 2.0])
    ]
    assert found[0] == pytest.approx(100)
    assert found[1] == pytest.approx(100 * (2 + 1 / 2) / (2 + 1 / np.log2(3)))


def pictured(held, said):
    return Retrieval(replace(held, open_image=lambda name: name), {"people": said})


def test_what_a_run_does_not_list_is_no_tie(tmp_path):
    model = write_run(tmp_path / "a.trec", HELD.image_ids, HELD.caption_ids, deep(5))
    assert evaluate(model, own(("hit@1",), directions=("i2t",)), samples=10).rows[0].ties == 0.0


def test_another_protocol_does_not_overwrite_the_usual_one(tmp_path):
    for words in ({}, {"ties": "optimistic"}, {"seed": 3}, {"metrics": ("hit@5",)}):
        save(evaluate("random", own(), **words), tmp_path)
    assert len(load_all([tmp_path])) == 4
