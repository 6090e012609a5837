"""The evaluation path: values, saved results, errors, and independence of order and tile size."""

import gc
import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.data.benchmark import Benchmark
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval, data_hash
from crossmatch.data.result import load_result, load_results, safe_file_name, save_result
from crossmatch.data.scores import Embeddings, Matrix
from crossmatch.data.trials import Trials
from crossmatch.evaluation.evaluate import evaluate
from crossmatch.evaluation.summarise import summarise
from crossmatch.metrics.metric_table import METRICS, metric
from crossmatch.ranking.ranks import TIE_POLICIES
from crossmatch.report.comparison import compare

RETRIEVAL = tuple(m.name for m in METRICS.values() if m.shape == "retrieval")
COLLECTION = Collection.from_captions({f"i{n}": [f"caption {n}", f"other {n}"] for n in range(6)})


class Fixed:
    """A source of fixed scores."""

    def __init__(self, fixed_scores):
        self.fixed_scores = fixed_scores

    def scores(self, data):
        return self.fixed_scores


def own(metrics=("hit@1", "map@r"), collection=COLLECTION, judgements=None, **options):
    data = Retrieval(collection, judgements or {"links": Judgements.from_links(collection)})
    return Benchmark("own", "", lambda: data, metrics, **options)


def matrix(values, collection=COLLECTION):
    return Fixed(Matrix(collection.image_ids, collection.caption_ids, np.asarray(values)))


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


# Values


@pytest.fixture(scope="module")
def tiny():
    return {m: evaluate(m, "diorama/retrieval", size="tiny", samples=50) for m in ("random", "oracle")}


def test_random_and_oracle_bound_every_metric(tiny):
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


def test_note_says_how_many_positives_the_links_miss(tiny):
    links, truth = tiny["oracle"]["i2t/links/hit@1"], tiny["oracle"]["i2t/truth/hit@1"]
    assert links.positives == 250
    assert links.positives < truth.positives
    share = 100 * (1 - links.positives / truth.positives)
    assert tiny["oracle"].notes == (
        f"links contain 250 of the {truth.positives:,} true pairs: {share:.1f} % of the positives are missing from them",
    )


def test_metrics_equal_sorting():
    rng = np.random.default_rng(3)
    scores = rng.permutation(72).reshape(6, 12) / 7
    result = evaluate(matrix(scores), own(("hit@1", "hit@5", "mrr", "median-rank", "map@r", "precision@5")), samples=10)
    for direction, lines, links in (("i2t", scores, COLLECTION.links), ("t2i", scores.T, COLLECTION.links[:, ::-1])):
        values_by_query = []
        for q, line in enumerate(lines):
            positives_of_query = {c for a, c in links.tolist() if a == q}
            hits = [c in positives_of_query for c in np.argsort(-line)]
            r = len(positives_of_query)
            values_by_query.append((
                hits[0], any(hits[:5]), 1 / (hits.index(True) + 1), hits.index(True) + 1,
                sum(sum(hits[: k + 1]) / (k + 1) for k in range(r) if hits[k]) / r, sum(hits[:5]) / 5,
            ))  # fmt: skip
        h1, h5, rr, first, ap, p5 = np.array(values_by_query, dtype=float).T
        slow = [100 * h1.mean(), 100 * h5.mean(), 100 * rr.mean(), np.median(first), 100 * ap.mean(), 100 * p5.mean()]
        assert [r.value for r in result.rows if r.part == direction] == pytest.approx(slow, rel=1e-12)  # sums in another order


def test_unjudged_share_of_the_first_ten():
    scores = np.tile(np.arange(12.0), (6, 1))  # caption 11 first, caption 2 tenth, for every image
    graded = [(n, 11, 1) for n in range(6)] + [(0, 10, 0), (0, 0, 0)]
    graded = Judgements("p", *zip(*graded, strict=True), (6, 12))
    result = evaluate(matrix(scores), own(("hit@1",), judgements={"p": graded}, directions=("i2t",)), samples=10)
    judged_in_first_ten = [2, 1, 1, 1, 1, 1]
    assert result.rows[0].unjudged == pytest.approx(100 * np.mean([1 - j / 10 for j in judged_in_first_ten]), rel=1e-12)
    assert "unjudged:irrelevant" in result.rows[0].signature


def test_unjudged_share_of_a_small_gallery():
    collection = Collection.from_captions({"a": ["x"], "b": ["y"], "c": ["z"]})
    result = evaluate("random", own(("hit@1",), collection), samples=10)
    assert result.rows[0].unjudged == pytest.approx(100 * 2 / 3)


def test_constant_scorer_gets_chance():
    result = evaluate(matrix(np.zeros((6, 12))), own(RETRIEVAL), samples=10)
    for row in result.rows:
        assert row.value == pytest.approx(row.chance, rel=1e-12)
        assert row.ties == 100.0


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1)])
def test_one_image_or_one_caption_is_enough(shape):
    links = list(product(range(shape[0]), range(shape[1])))
    collection = Collection(
        [f"i{n}" for n in range(shape[0])], [f"c{n}" for n in range(shape[1])], tuple("abcde"[: shape[1]]), links
    )
    result = evaluate("random", own(RETRIEVAL, collection), samples=10)
    for row in result.rows:  # all of the gallery is positive: nothing can go wrong but a k past the gallery
        if not row.metric.startswith(("recall@", "precision@")):
            assert (row.value, row.chance) == (row.best, row.best)
        assert row.ties == 0


def test_k_beyond_the_gallery_means_the_whole_gallery():
    result = evaluate("random", own(("hit@1000", "recall@1000", "ndcg@1000", "ndcg@12", "precision@1000")), samples=10)
    for part, gallery, positives in (("i2t", 12, 2), ("t2i", 6, 1)):
        assert result[f"{part}/hit@1000"].value == result[f"{part}/recall@1000"].value == 100
        assert result[f"{part}/ndcg@1000"].value == pytest.approx(result[f"{part}/ndcg@12"].value, rel=1e-12)
        assert result[f"{part}/precision@1000"].value == pytest.approx(100 * positives / 1000)
        assert gallery >= positives


@pytest.mark.parametrize("name", ["hit@99999999999999999999999", "ndcg@99999999999999", "recall@9223372036854775807"])
def test_huge_k_is_an_error_or_means_the_whole_gallery(name):
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
@settings(max_examples=10)
def test_tie_policies_are_ordered(scores):
    low, middle, high = (
        evaluate(matrix(scores), own(RETRIEVAL), ties=t, samples=2) for t in ("pessimistic", "expected", "optimistic")
    )
    for a, b, c in zip(low.rows, middle.rows, high.rows, strict=True):
        first, last = (a, c) if metric(a.metric).higher_is_better else (c, a)
        assert first.value <= b.value + 1e-9 <= last.value + 2e-9  # rounding of sums
        assert a.ties == b.ties == c.ties


# Independence of order, tile size and seed


def some_embeddings(order_i=slice(None), order_c=slice(None)):
    rng = np.random.default_rng(1)
    base = rng.standard_normal((5, 8)).astype(np.float32)
    images, captions = base[rng.integers(5, size=6)], base[rng.integers(5, size=12)]  # full of exact ties
    return Fixed(Embeddings(COLLECTION.image_ids[order_i], images[order_i], COLLECTION.caption_ids[order_c], captions[order_c]))


def test_order_of_embeddings_does_not_matter():
    rng = np.random.default_rng(2)
    expected = rows(evaluate(aligned(some_embeddings()), own(RETRIEVAL), samples=20))
    for _ in range(3):
        moved = some_embeddings(rng.permutation(6), rng.permutation(12))
        assert rows(evaluate(aligned(moved), own(RETRIEVAL), samples=20)) == expected


def aligned(source):
    return Fixed(source.fixed_scores.align_to(COLLECTION))


@pytest.mark.parametrize("tile", [1, 7, 40])
def test_tile_size_does_not_matter(monkeypatch, tile):
    import crossmatch.evaluation.data_shapes as shapes
    from crossmatch.ranking.sweep import sweep

    expected = rows(evaluate(some_embeddings(), own(RETRIEVAL), samples=20))
    for compiled in (False, True):
        monkeypatch.setattr(
            shapes, "sweep", lambda scores, requests, c=compiled: sweep(scores, requests, tile=tile, threads=2, compiled=c)
        )
        assert rows(evaluate(some_embeddings(), own(RETRIEVAL), samples=20)) == expected


def test_retrieval_needs_no_seed():
    first, second = (evaluate("random", own(RETRIEVAL), samples=n, seed=n) for n in (30, 40))
    assert rows(first) == rows(second)


# Saved results


def recompute(result, data):
    """Compute a result from its saved evidence."""
    bare = replace(result, rows=(), parts={n: replace(p, values={}) for n, p in result.parts.items()})
    chosen = list(dict.fromkeys(r.metric for r in result.rows))
    return summarise(bare, [metric(m) for m in chosen], {"data": data})


@pytest.mark.parametrize("ties", TIE_POLICIES)
def test_saved_evidence_reproduces_every_row(tmp_path, ties):
    benchmark = own(RETRIEVAL)
    result = evaluate(some_embeddings(), benchmark, ties=ties, samples=20, name="mine")
    loaded = load_result(save_result(result, tmp_path))
    assert rows(loaded) == rows(result)
    assert rows(recompute(loaded, data_hash(benchmark.load()))) == rows(result)
    for name, part in result.parts.items():
        assert part.values.keys() == loaded.parts[name].values.keys()
        assert all(np.array_equal(v, loaded.parts[name].values[k]) for k, v in part.values.items())


def test_saved_evidence_reproduces_diorama(tmp_path, tiny):
    result = tiny["random"]
    loaded = load_result(save_result(result, tmp_path))
    assert rows(recompute(loaded, result.rows[0].signature.split("data:")[1][:8])) == rows(result)
    assert (loaded.model, loaded.task, loaded.notes) == ("random", "diorama/retrieval", result.notes)
    assert loaded.options == {"size": "tiny", "samples": "50"}


def test_saved_evidence_reproduces_trials(tmp_path):
    data = choices(2, 2, 6, ["a", "b", "a", "b", "c", "c"])
    result = evaluate("random", Benchmark("t", "", lambda: data, ("i2t", "t2i", "group")), samples=20)
    assert rows(recompute(load_result(save_result(result, tmp_path)), data_hash(data))) == rows(result)


def test_failed_save_keeps_the_old_files(tmp_path, monkeypatch):
    result = evaluate("random", own(), samples=10)
    save_result(result, tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(CrossmatchError, match=r"No space.*Make room"):
        save_result(evaluate("random", own(), samples=11), tmp_path)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "3",
        "\0",
        "{}",
        *(f'{{"format": 2{rest}}}' for rest in ("", ', "parts": 3', ', "parts": {"i2t": {}}')),
    ],
)
def test_damaged_result_is_an_error(tmp_path, content):
    path = save_result(evaluate("random", own(), samples=10), tmp_path)
    path.write_text(content)
    with pytest.raises(CrossmatchError, match=r"damaged|format"):
        load_result(path)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("damage", ["gone", "empty", "half", "text"])
def test_damaged_evidence_is_an_error(tmp_path, damage):
    path = save_result(evaluate("random", own(), samples=10), tmp_path)
    evidence = path.with_suffix(".npz")
    whole = evidence.read_bytes()
    evidence.unlink()
    if damage != "gone":
        evidence.write_bytes({"empty": b"", "half": whole[: len(whole) // 2], "text": b"hello"}[damage])
    try:
        with pytest.raises(CrossmatchError, match="damaged"):
            load_result(path)
    finally:
        gc.collect()  # numpy leaves the file of a failed load open: let it be closed here, not in the next test


def test_result_of_another_format_is_an_error(tmp_path):
    path = save_result(evaluate("random", own(), samples=10), tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(CrossmatchError, match="format 99, expected 2"):
        load_result(path)


def test_load_results_finds_each_result_once(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        load_results([tmp_path / "nowhere"])
    with pytest.raises(UsageError, match="no results below"):
        load_results([tmp_path])
    path = save_result(evaluate("random", own(), samples=10), tmp_path)
    assert len(load_results([tmp_path, path, tmp_path])) == 1


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", ".", "/", "a/b\\c", "", "-", "\n", "a\0b"])
def test_file_name_of_a_model_is_safe(name):
    file_name = safe_file_name(name)
    assert file_name not in ("", ".", "..")
    assert not set(file_name) & set("/\\\0\n")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("/home/ann/experiments/2026/scan", "scan~"),
        ("precomputed:/home/ann/experiments/2026/clip.npz", "precomputed-clip.npz~"),
        ("regions:/data/bottom-up/36+/home/ann/runs/scan", "regions-36+scan~"),
        ("runs/scan", "runs-scan~"),
    ],
)
def test_file_name_of_a_model_has_no_long_folders(name, start):
    assert safe_file_name(name).startswith(start)
    assert safe_file_name(name) != safe_file_name(name.replace("ann", "bob").replace("runs", "older"))


def test_models_options_and_protocols_have_different_files(tmp_path):
    names = ("a/b", "a-b", "模型", "模特", "precomputed:" + "very/" * 80 + "long.npz")
    for name in names:
        save_result(evaluate("random", own(), samples=10, name=name), tmp_path / "names")
    assert {r.model for r in load_results([tmp_path / "names"])} == set(names)
    benchmark = replace(own(options={"size": "s"}), loader=lambda size: own().load())
    for options in ({}, {"size": "m"}, {"ties": "optimistic"}, {"seed": 3}, {"metrics": ("hit@5",)}):
        save_result(evaluate("random", benchmark, **options), tmp_path / "options")
    assert len(load_results([tmp_path / "options"])) == 5


# Errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ties": "hopeful"}, "expected, pessimistic, optimistic"),
        ({"samples": 1}, "at least 2"),
        ({"samples": 0}, "at least 2"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"metrics": ("hit@0",)}, "must be between 1 and"),
        ({"metrics": ("map@rr",)}, "Did you mean 'map@r'"),
        ({"metrics": ("hit@-1",)}, "no metric"),
        ({"metrics": ("hit@",)}, "no metric"),
        ({"metrics": ("hit@1.5",)}, "no metric"),
        ({"metrics": ("",)}, "no metric"),
        ({"split": "val"}, "no option 'split'"),
    ],
)
def test_invalid_options_are_an_error(options, message):
    with pytest.raises(UsageError, match=message):
        evaluate("random", own(), **options)


def test_unknown_tasks_and_models_get_a_hint():
    with pytest.raises(UsageError, match="Did you mean 'diorama/retrieval'"):
        evaluate("random", "diorama/retreival")
    with pytest.raises(UsageError, match="Did you mean 'random'"):
        evaluate("randon", own())


def test_metrics_of_another_shape_are_an_error():
    with pytest.raises(CrossmatchError, match="none of the metrics t2i, group applies to own"):
        evaluate("random", own(("t2i", "group")), samples=10)


def test_requested_metric_that_does_not_apply_is_reported():
    with pytest.raises(UsageError, match="group cannot be computed on own"):
        evaluate("random", own(), metrics=("hit@1", "group"), samples=10)


def test_a_metric_named_twice_is_one_row():
    keys = [r.key for r in evaluate("random", own(), metrics=("hit@1", "hit@1", "hit@01"), samples=10).rows]
    assert keys == ["i2t/hit@1", "t2i/hit@1"]


def test_unknown_row_lists_the_known_ones():
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


def test_complete_run_equals_its_matrix(tmp_path):
    model = write_run(tmp_path / "a.trec", COLLECTION.image_ids, COLLECTION.caption_ids, deep(12))
    benchmark = own(RETRIEVAL, directions=("i2t",))
    expected = evaluate(matrix(deep(12)), benchmark, samples=20)
    assert rows(evaluate(model, benchmark, samples=20)) == rows(expected)


def test_missing_direction_of_a_run_is_noted(tmp_path):
    model = write_run(tmp_path / "a.trec", COLLECTION.image_ids, COLLECTION.caption_ids, deep(12))
    result = evaluate(model, own(), samples=10)
    assert {r.part for r in result.rows} == {"i2t"}
    assert result.notes[0] == "not evaluated, because the scores lack this direction: t2i"


def test_run_of_another_direction_is_an_error(tmp_path):
    model = write_run(tmp_path / "a.trec", COLLECTION.image_ids, COLLECTION.caption_ids, deep(12))
    with pytest.raises(CrossmatchError, match="t2i"):
        evaluate(model, own(directions=("t2i",)), samples=10)


def test_run_must_be_as_deep_as_the_metric_needs(tmp_path):
    model = write_run(tmp_path / "a.trec", COLLECTION.image_ids, COLLECTION.caption_ids, deep(5))
    both = own(directions=("i2t",))
    for name in ("hit@1", "hit@5", "precision@5", "r-precision", "map@r", "ndcg@5"):
        assert (
            evaluate(model, both, metrics=(name,), samples=10).rows[0].value
            == evaluate(matrix(deep(12)), both, metrics=(name,), samples=10).rows[0].value
        )
    for name in ("hit@6", "recall@10", "ndcg@10", "hit@100"):
        with pytest.raises(CrossmatchError, match=rf"lists 5 candidates for query 'i\d', but {name} needs (6|10|12) of 12"):
            evaluate(model, both, metrics=(name,), samples=10)


def test_rank_of_an_unlisted_positive_is_an_error(tmp_path):
    """The positives of image 0 are not listed, so its reciprocal rank is unknown, not zero."""
    scores = deep(5)
    scores[0] = [None if c in (0, 1) else float(c) for c in range(12)]
    model = write_run(tmp_path / "a.trec", COLLECTION.image_ids, COLLECTION.caption_ids, scores)
    for name in ("mrr", "median-rank", "mean-rank"):
        for ties in TIE_POLICIES:
            with pytest.raises(CrossmatchError, match=f"but {name} needs 12 of 12"):
                evaluate(model, own((name,), directions=("i2t",)), ties=ties, samples=10)


def test_query_missing_in_a_run_is_an_error(tmp_path):
    scores = deep(12)
    scores[2] = [None] * 12
    model = write_run(tmp_path / "a.trec", COLLECTION.image_ids, COLLECTION.caption_ids, scores)
    with pytest.raises(CrossmatchError, match="no row for 1 of 6 queries; first missing: 'i2'"):
        evaluate(model, own(), samples=10)


# Trials


def strict_wins(scores):
    """(i2t, t2i) of one trial, as the papers define them."""
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


def test_categories_are_parts():
    data = choices(1, 2, 6, ["a", "b", "a", "b", "b", "b"])
    result = evaluate("oracle", Benchmark("t", "", lambda: data, ("t2i",)), samples=10)
    assert {r.key: r.n for r in result.rows} == {"t2i": 6, "macro/t2i": 6, "a/t2i": 2, "b/t2i": 4}


def test_empty_category_does_not_replace_the_total():
    data = choices(1, 2, 6, ["", "b", "", "b", "b", "b"])
    assert evaluate("oracle", Benchmark("t", "", lambda: data, ("t2i",)), samples=10)["t2i"].n == 6


# Order, grades, depth


def shuffled(data, seed):
    """The same data, its images and captions in another order."""
    rng = np.random.default_rng(seed)
    collection = data.collection
    image, caption = rng.permutation(collection.shape[0]), rng.permutation(collection.shape[1])
    row, column = np.argsort(image), np.argsort(caption)
    moved = Collection(
        collection.image_ids[image], collection.caption_ids[caption], [collection.captions[n] for n in caption],
        np.stack([row[collection.links[:, 0]], column[collection.links[:, 1]]], axis=1)[rng.permutation(len(collection.links))],
    )  # fmt: skip
    graded = {name: replace(j, rows=row[j.rows], columns=column[j.columns]) for name, j in data.judgements.items()}
    return Retrieval(moved, graded)


@pytest.mark.parametrize("seed", [1, 2])
def test_order_of_the_collection_does_not_matter(seed):
    benchmark = own(RETRIEVAL)
    data = benchmark.load()
    before = evaluate("random", benchmark, data=data, samples=30)
    after = evaluate("random", benchmark, data=shuffled(data, seed), samples=30)
    assert before.rows == after.rows
    assert [c.winner for c in compare(before, after)] == [0] * len(before.rows)


def test_ndcg_counts_grades_below_a_positive():
    """Grades 2, 1 and 0, positives from 2 on: grade 1 in the second place still has a gain."""
    collection = Collection.from_captions({"a": ["x", "y", "z"]})
    graded = Judgements.from_ids(collection, "people", [("a", "a#0", 2), ("a", "a#1", 1), ("a", "a#2", 0)], positive=2)
    benchmark = Benchmark(
        "graded", "", lambda: Retrieval(collection, {"people": graded}), ("ndcg@10", "hit@1"), directions=("i2t",)
    )
    values = [
        evaluate(lambda images, texts, s=s: np.array([s]), benchmark, data=pictured(collection, graded), samples=2)[
            "i2t/ndcg@10"
        ].value
        for s in ([3.0, 2.0, 1.0], [3.0, 1.0, 2.0])
    ]
    assert values[0] == pytest.approx(100)
    assert values[1] == pytest.approx(100 * (2 + 1 / 2) / (2 + 1 / np.log2(3)))


def pictured(collection, graded):
    return Retrieval(replace(collection, open_image=lambda name: name), {"people": graded})


def test_unlisted_candidates_are_not_ties(tmp_path):
    model = write_run(tmp_path / "a.trec", COLLECTION.image_ids, COLLECTION.caption_ids, deep(5))
    assert evaluate(model, own(("hit@1",), directions=("i2t",)), samples=10).rows[0].ties == 0.0
