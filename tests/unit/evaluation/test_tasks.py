"""Several tasks in one pass: one-sided models, rated pairs, folds, plausible matches and limited data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import crossmatch.evaluation.data_shapes as shapes
from crossmatch.data.benchmark import Benchmark
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval, data_hash
from crossmatch.data.plausible_matches import PlausibleMatches
from crossmatch.data.rated_pairs import Similarity
from crossmatch.data.result import load_result, save_result
from crossmatch.data.scores import Embeddings
from crossmatch.evaluation.evaluate import evaluate, evaluate_all
from crossmatch.evaluation.summarise import summarise
from crossmatch.metrics.metric_table import metric
from crossmatch.models.abilities import list_abilities
from crossmatch.ranking.sweep import sweep
from crossmatch.report.comparison import compare

RNG = np.random.default_rng(2)
IMAGES, CAPTIONS = 20, 60
COLLECTION = Collection(
    [f"i{n}" for n in range(IMAGES)], [f"c{n}" for n in range(CAPTIONS)], tuple(f"caption {n}" for n in range(CAPTIONS)),
    [[n // 3, n] for n in range(CAPTIONS)],
)  # fmt: skip
OWNER = np.arange(CAPTIONS) // 3


def random_pairs(n, m, share, kind, positive=1.0):
    rows, columns = np.nonzero(np.random.default_rng(n + m).random((n, m)) < share)
    is_pair = rows != columns if n == m else rows == rows
    grades = np.round(np.random.default_rng(1).uniform(0, 5, is_pair.sum()), 1)
    return Judgements(kind, rows[is_pair], columns[is_pair], grades, (n, m), positive, kind=kind)


FOLDS = np.arange(IMAGES) // 5
LINKS = Judgements.from_links(COLLECTION)
FOLDED = Judgements("links", LINKS.rows, LINKS.columns, LINKS.grades, LINKS.shape, folds=(FOLDS, FOLDS[OWNER]))
TEXTS, PICTURES = (
    random_pairs(CAPTIONS, CAPTIONS, 0.1, "caption-caption", 3.0),
    random_pairs(IMAGES, IMAGES, 0.4, "image-image", 2.5),
)
ACROSS = random_pairs(IMAGES, CAPTIONS, 0.2, "image-caption", 3.0)
LABELS = PlausibleMatches.from_labels(COLLECTION, "plausible", RNG.random((IMAGES, 3)) < 0.5)
HITS = ("hit@1", "hit@5", "median-rank", "mean-rank")


def declared(name, data, directions=("i2t", "t2i"), metrics=HITS):
    return Benchmark(name, "made up", lambda: data, metrics, directions)


LINKED = declared("linked", Retrieval(COLLECTION, {"links": LINKS}), metrics=(*HITS, "rsum"))
FOLDED_TASK = declared("folded", Retrieval(COLLECTION, {"links": FOLDED}), metrics=(*HITS, "rsum"))
FOUR = declared("four", Retrieval(COLLECTION, {"a": ACROSS, "t": TEXTS, "i": PICTURES}), ("i2t", "t2i", "t2t", "i2i"))
PLAUSIBLE = declared("plausible", Retrieval(COLLECTION, {"labels": LABELS}), metrics=("pmrp", "pmrp@50"))
CORRELATIONS = ("bootstrap-spearman", "spearman", "kendall", "pearson")
RATED = {
    direction: declared(f"rated-{direction}", Similarity(COLLECTION, judgements, direction), (direction,), CORRELATIONS)
    for direction, judgements in (("t2t", TEXTS), ("i2i", PICTURES), ("i2t", ACROSS), ("t2i", ACROSS))
}
ALL = [LINKED, FOLDED_TASK, FOUR, PLAUSIBLE, *RATED.values()]


class Dual:
    signature = "dual"

    def __init__(self):
        rng = np.random.default_rng(9)
        self.images = rng.standard_normal((IMAGES, 6))
        self.texts = self.images[OWNER] + rng.standard_normal((CAPTIONS, 6))
        self.passes = 0

    def scores(self, data):
        self.passes += 1
        return Embeddings(COLLECTION.image_ids, self.images, COLLECTION.caption_ids, self.texts)


class TextsOnly:
    def embed_texts(self, texts):
        return Dual().texts[[int(text.split()[1]) for text in texts]]


class Fitted(TextsOnly):
    """Must see all texts first."""

    def embed_texts(self, texts):
        raise AssertionError("the fitted encoder is to be asked")

    def fitted(self, texts):
        assert len(texts) == CAPTIONS
        return TextsOnly()


def values(result):
    return [(row.key, row.value, row.low, row.high, row.chance, row.signature) for row in result.rows]


def test_one_pass_equals_separate_evaluations(monkeypatch):
    sweeps = []
    monkeypatch.setattr(shapes, "sweep", lambda *arguments: sweeps.append(arguments) or sweep(*arguments))
    model = Dual()
    together = evaluate_all(model, ALL, samples=30)
    assert (model.passes, len(sweeps)) == (1, 1)
    for task, result in zip(ALL, together, strict=True):
        assert values(evaluate(Dual(), task, samples=30)) == values(result)


def test_tasks_on_different_items_are_evaluated_separately():
    other = Collection.from_captions({"x": ["one"], "y": ["two", "three"]})
    strange = declared("strange", Retrieval(other, {"links": Judgements.from_links(other)}))
    both = evaluate_all("random", [LINKED, strange], samples=10)
    assert [r.task for r in both] == ["linked", "strange"]
    assert values(both[1]) == values(evaluate("random", strange, samples=10))


def test_oracle_gets_the_judgements_of_each_task():
    judged = declared("judged", Retrieval(COLLECTION, {"a": ACROSS}))
    tasks = [LINKED, judged]
    for task, result in zip(tasks, evaluate_all("oracle", tasks, samples=30), strict=True):
        assert values(evaluate("oracle", task, samples=30)) == values(result)


def test_order_of_items_does_not_matter():
    image, caption = RNG.permutation(IMAGES), RNG.permutation(CAPTIONS)
    for task in ALL:
        shuffled = task.loader().select(image, caption)
        assert data_hash(shuffled) == data_hash(task.loader())
        assert values(evaluate(Dual(), task, data=shuffled, samples=30)) == values(evaluate(Dual(), task, samples=30))


def by_hand(direction, judgements, fold=None):
    """The rank of the best positive of every query, by sorting."""
    model = Dual()
    sides = {"image": model.images, "caption": model.texts}
    unit = {side: v / np.linalg.norm(v, axis=1, keepdims=True) for side, v in sides.items()}
    names = {"i2t": ("image", "caption"), "t2i": ("caption", "image"), "t2t": ("caption", "caption"), "i2i": ("image", "image")}
    q, c = names[direction]
    scores = unit[q] @ unit[c].T
    rows, columns = (judgements.columns, judgements.rows) if direction == "t2i" else (judgements.rows, judgements.columns)
    out = {}
    for query in np.unique(rows[judgements.grades >= judgements.positive]):
        gallery = np.ones(scores.shape[1], dtype=bool) if fold is None else fold[c] == fold[q][query]
        if q == c:
            gallery[query] = False
        best = scores[query, columns[(rows == query) & (judgements.grades >= judgements.positive)]].max()
        out[int(query)] = 1 + int((scores[query][gallery] > best).sum())
    return out


@pytest.mark.parametrize("direction", ["i2t", "t2i", "t2t", "i2i"])
def test_four_directions_equal_sorting(direction):
    result = evaluate(Dual(), FOUR, samples=10)
    ranks = by_hand(direction, {"i2t": ACROSS, "t2i": ACROSS, "t2t": TEXTS, "i2i": PICTURES}[direction])
    assert result[f"{direction}/mean-rank"].value == pytest.approx(np.mean(list(ranks.values())))
    assert result[f"{direction}/hit@5"].value == pytest.approx(100 * np.mean([r <= 5 for r in ranks.values()]))
    assert ("self:excluded" in result[f"{direction}/hit@1"].signature) == (direction in ("t2t", "i2i"))


def test_folds_are_averaged():
    result = evaluate(Dual(), FOLDED_TASK, samples=50)
    for direction, of_query in (("i2t", FOLDS), ("t2i", FOLDS[OWNER])):
        ranks = by_hand(direction, FOLDED, {"image": FOLDS, "caption": FOLDS[OWNER]})
        folds = [[r for q, r in ranks.items() if of_query[q] == fold] for fold in range(4)]
        assert result[f"{direction}/median-rank"].value == pytest.approx(np.mean([np.median(f) for f in folds]))
        assert result[f"{direction}/hit@1"].value == pytest.approx(100 * np.mean([np.mean(np.array(f) == 1) for f in folds]))
        assert "folds:4" in result[f"{direction}/hit@1"].signature
    assert set(result.parts["i2t"].evidence.gallery_size) == {15}
    assert set(result.parts["t2i"].evidence.gallery_size) == {5}


def test_unequal_folds_weigh_the_same():
    uneven = np.repeat([0, 1], [4, 16])
    judgements = Judgements("links", LINKS.rows, LINKS.columns, LINKS.grades, LINKS.shape, folds=(uneven, uneven[OWNER]))
    result = evaluate(Dual(), declared("uneven", Retrieval(COLLECTION, {"links": judgements})), samples=20)
    ranks = by_hand("i2t", judgements, {"image": uneven, "caption": uneven[OWNER]})
    means = [np.mean([r == 1 for q, r in ranks.items() if uneven[q] == fold]) for fold in (0, 1)]
    assert result["i2t/hit@1"].value == pytest.approx(100 * np.mean(means))


def test_rsum_is_the_sum_over_both_directions():
    result = evaluate(Dual(), LINKED, samples=200)
    row = result["rsum"]
    parts = evaluate(Dual(), LINKED, samples=10, metrics=("hit@1", "hit@5", "hit@10")).rows
    assert row.value == pytest.approx(sum(r.value for r in parts))
    assert row.chance == pytest.approx(sum(r.chance for r in parts))
    assert row.low < row.value < row.high
    assert row.best == 600


def test_plausible_matches_and_their_mean():
    result = evaluate(Dual(), PLAUSIBLE, samples=20)
    for direction in ("i2t", "t2i"):
        for name in ("pmrp", "pmrp@50"):
            of_zeta = [result[f"{direction}/zeta={z}/{name}"].value for z in (0, 1, 2)]
            assert result[f"{direction}/mean/{name}"].value == pytest.approx(np.mean(of_zeta))


@pytest.mark.parametrize("direction", list(RATED))
def test_correlations_equal_scipy(direction):
    result = evaluate(Dual(), RATED[direction], samples=50)
    rated_pairs = result.parts[""].evidence
    assert result["spearman"].value == pytest.approx(100 * stats.spearmanr(rated_pairs.human, rated_pairs.model).statistic)
    assert result["kendall"].value == pytest.approx(100 * stats.kendalltau(rated_pairs.human, rated_pairs.model).statistic)
    assert result["pearson"].value == pytest.approx(100 * stats.pearsonr(rated_pairs.human, rated_pairs.model).statistic)
    row = result["bootstrap-spearman"]
    assert row.std is not None
    assert result.as_json()["bootstrap-spearman-std"] == round(row.std, 4)
    assert f"query:{'image' if direction in ('i2i', 'i2t') else 'caption'}" in row.signature
    assert "seed:0" in row.signature
    assert evaluate(Dual(), RATED[direction], samples=50, seed=1)["bootstrap-spearman"].value != row.value


def test_text_model_runs_only_text_tasks():
    assert list_abilities(TextsOnly()) == ("embed texts",)
    result = evaluate(TextsOnly(), FOUR, samples=10)
    assert {row.part for row in result.rows} == {"t2t"}
    assert "i2t, t2i, i2i" in result.notes[0]
    assert values(result)[0][1] == evaluate(Dual(), FOUR, samples=10)["t2t/hit@1"].value
    assert evaluate(TextsOnly(), RATED["t2t"], samples=10).rows
    for task in (LINKED, RATED["i2i"], RATED["i2t"], PLAUSIBLE):
        with pytest.raises(CrossmatchError, match=r"the model has them in t2t alone.*cxc-sts"):
            evaluate(TextsOnly(), task, samples=10)


def test_an_encoder_that_must_see_all_texts_is_fitted_first():
    assert values(evaluate(Fitted(), FOUR, samples=10)) == values(evaluate(TextsOnly(), FOUR, samples=10))


def test_file_with_one_side_runs_its_tasks(tmp_path):
    np.savez(tmp_path / "texts.npz", caption_ids=COLLECTION.caption_ids, caption_embeddings=Dual().texts)
    model = f"precomputed:{tmp_path / 'texts.npz'}"
    assert {row.part for row in evaluate(model, FOUR, samples=10).rows} == {"t2t"}
    with pytest.raises(CrossmatchError, match="t2t alone"):
        evaluate(model, LINKED, samples=10)
    np.savez(
        tmp_path / "half.npz", caption_ids=COLLECTION.caption_ids, caption_embeddings=Dual().texts, image_ids=COLLECTION.image_ids
    )
    with pytest.raises(CrossmatchError, match="come in pairs"):
        evaluate(f"precomputed:{tmp_path / 'half.npz'}", LINKED, samples=10)


def test_limited_data_is_noted_and_not_compared():
    full, part, same = evaluate(Dual(), LINKED, samples=10), *(evaluate(Dual(), LINKED, samples=10, limit=7) for _ in range(2))
    assert part.rows[0].n == 7
    assert values(part) == values(same)
    assert "limit:7" in part.rows[0].signature
    assert part.options == {"limit": "7", "samples": "10"}
    assert part.notes[0].startswith("partial")
    with pytest.raises(CrossmatchError, match="cannot be compared"):
        compare(full, part)
    assert evaluate(Dual(), LINKED, samples=10, limit=7, seed=5).parts["i2t"].ids.tolist() != part.parts["i2t"].ids.tolist()


@pytest.mark.parametrize("task", ALL, ids=lambda t: t.name)
def test_every_shape_can_be_limited_and_saved_and_compared(tmp_path, task):
    result = evaluate(Dual(), task, samples=20, limit=15)
    back = load_result(save_result(result, tmp_path))
    assert back.rows == result.rows
    assert values(summarise(back, [metric(n) for n in task.metrics], {})) is not None
    other = evaluate("random", task, samples=20, limit=15)
    compared = compare(back, other)
    assert len(compared) == len(result.rows)
    assert all(0 < c.p <= 1 for c in compared)


def test_limit_without_positives_is_an_error():
    with pytest.raises(UsageError, match="limit"):
        evaluate(Dual(), LINKED, limit=0)
    lone = Judgements("one", [0], [59], [1.0], (IMAGES, CAPTIONS))
    with pytest.raises(UsageError, match="Raise --limit"):
        evaluate(Dual(), declared("lone", Retrieval(COLLECTION, {"one": lone})), limit=1, samples=10)


def test_absent_positives_count_but_are_never_retrieved():
    near = Judgements("x", LINKS.rows, LINKS.columns, LINKS.grades, LINKS.shape, only_direction="i2t", absent_positives=(0, 0, 4))
    task = declared("absent", Retrieval(COLLECTION, {"x": near}), metrics=("r-precision", "map@r", "hit@1"))
    same = declared("all there", Retrieval(COLLECTION, {"x": LINKS}), metrics=task.metrics)
    result, plain = (evaluate("oracle", t, samples=10) for t in (task, same))
    r_precisions = result.parts["i2t"].values["r-precision"]
    ids = result.parts["i2t"].ids.tolist()
    assert r_precisions[ids.index("i0")] == pytest.approx(3 / 5)
    assert r_precisions[ids.index("i4")] == pytest.approx(3 / 4)
    assert (np.delete(r_precisions, [ids.index("i0"), ids.index("i4")]) == 1).all()
    assert result["i2t/hit@1"].value == plain["i2t/hit@1"].value
    assert "never found" in result.notes[0]


def test_unknown_option_in_a_task_name_is_an_error():
    with pytest.raises(UsageError, match="option=value"):
        evaluate("random", "cxc-sits+image")
    with pytest.raises(UsageError, match="cxc-sits has no option 'side'"):
        evaluate("random", "cxc-sits+side=image")


def test_equal_ids_with_other_texts_are_another_collection():
    """Two folders with equal file names: each is evaluated with its own captions."""
    moved = Collection(
        COLLECTION.image_ids, COLLECTION.caption_ids, COLLECTION.captions[3:] + COLLECTION.captions[:3], COLLECTION.links
    )
    tasks = [declared(n, Retrieval(h, {"t": TEXTS}), ("t2t",)) for n, h in (("one", COLLECTION), ("other", moved))]
    together = evaluate_all(TextsOnly(), tasks, samples=10)
    assert [values(r) for r in together] == [values(evaluate(TextsOnly(), t, samples=10)) for t in tasks]
    assert together[0]["t2t/mean-rank"].value != together[1]["t2t/mean-rank"].value


def test_short_run_is_an_error_despite_absent_positives():
    from crossmatch.data.scores import Run

    judgements = Judgements("x", [0, 0], [0, 1], [1.0, 1.0], (IMAGES, CAPTIONS), only_direction="i2t", absent_positives=(0,))
    task = declared("absent", Retrieval(COLLECTION, {"x": judgements}), ("i2t",), ("r-precision",))

    class Ranking:
        def __init__(self, depth):
            self.items = np.array(["c9", "c0", "c1", "c7"][:depth])

        def scores(self, data):
            return Run(np.full(len(self.items), "i0"), self.items, np.arange(len(self.items), 0, -1.0))

    assert evaluate(Ranking(3), task, samples=5).rows[0].value == pytest.approx(100 * 2 / 3)
    with pytest.raises(CrossmatchError, match="lists 2 candidates for query 'i0', but r-precision needs 3"):
        evaluate(Ranking(2), task, samples=5)


def test_a_total_counts_each_query_once():
    assert (evaluate(Dual(), LINKED, samples=5)["rsum"].n, evaluate(Dual(), LINKED, samples=5)["rsum"].positives) == (80, 120)


def test_low_ratings_count_as_pairs():
    low = Judgements("low", np.arange(10), np.arange(10) * 3, np.linspace(0.1, 2.9, 10), (IMAGES, CAPTIONS), positive=0.1)
    result = evaluate(Dual(), declared("low", Similarity(COLLECTION, low, "i2t"), ("i2t",), ("spearman",)), samples=10, limit=18)
    assert result.rows[0].positives >= 8


def test_few_images_are_noted():
    assert "only 20 images" in evaluate(Dual(), LINKED, samples=5).notes[-1]
    many = Collection.from_captions({f"i{n}": [f"caption {n}"] for n in range(50)})
    task = declared("many", Retrieval(many, {"links": Judgements.from_links(many)}))
    assert evaluate("random", task, samples=5).notes == ()
