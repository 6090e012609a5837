"""trec_eval on the files that crossmatch writes: the same numbers from the same rankings and judgements."""

import csv
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from crossmatch.core.collection import SIDES, Collection
from crossmatch.core.judgements import Judgements
from crossmatch.core.ranks import Ranks
from crossmatch.core.scores import Embeddings
from crossmatch.core.sweep import stand
from crossmatch.core.trec import read_qrels, read_run, write_qrels, write_run
from crossmatch.metrics.table import metric

pytrec_eval = pytest.importorskip("pytrec_eval", reason="pip install pytrec_eval-terrier")

DATA = Path(os.environ.get("CROSSMATCH_DATA") or Path(__file__).parents[3] / "shared" / "data")
EQUAL = 1e-9
PAIRS = 300  # of each file: galleries that are quickly written and read

# Crisscrossed Captions: the kind of its pairs, their columns and the grade of a positive
CXC = {
    "sits": ("image-caption", ("image", "caption"), 3.0),
    "sts": ("caption-caption", ("caption1", "caption2"), 3.0),
    "sis": ("image-image", ("image1", "image2"), 2.5),
}
WAYS = [("sits", "i2t"), ("sits", "t2i"), ("sts", "t2t"), ("sis", "i2i")]
MEASURES = {
    "hit@1": "success.1", "hit@5": "success.5", "hit@10": "success.10", "precision@1": "P.1", "precision@5": "P.5",
    "precision@20": "P.20", "recall@10": "recall.10", "recall@100": "recall.100", "r-precision": "Rprec", "mrr": "recip_rank",
    "ndcg@5": "ndcg_cut.5", "ndcg@10": "ndcg_cut.10", "ndcg@100": "ndcg_cut.100",
}  # fmt: skip


def human(name, direction):
    """Real pairs of the most judged queries, and the items that they are about; two items of a kind are judged both ways."""
    path = DATA / "cxc" / f"{name}_test.csv"
    if not path.exists():
        pytest.skip(f"no {path}: set CROSSMATCH_DATA to the folder of the data sets")
    kind, columns, positive = CXC[name]
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    asked = columns[direction == "t2i"]
    often = Counter(row[asked] for row in rows)
    rows = sorted(rows, key=lambda row: (-often[row[asked]], row[asked]))[:PAIRS]
    pairs = {(row[columns[0]], row[columns[1]]): float(row["agg_score"]) for row in rows if row[columns[0]] != row[columns[1]]}
    if kind != "image-caption":
        pairs |= {(b, a): grade for (a, b), grade in pairs.items()}
    ids = [sorted({pair[side] for pair in pairs}) for side in (0, 1)]
    images = ids[0] if kind != "caption-caption" else ["none"]
    captions = ids[1] if kind != "image-image" else ["none"]
    held = Collection(images, captions, ["text"] * len(captions), np.zeros((0, 2)))
    at = [np.array([ids[side].index(pair[side]) for pair in pairs]) for side in (0, 1)]
    said = Judgements("people", *at, list(pairs.values()), (len(ids[0]), len(ids[1])), positive, kind=kind)
    return held, said


def signal(held, said, seed):
    """Random embeddings in which an item leans towards those that people found similar to it."""
    rng = np.random.default_rng(seed)
    vectors = {"image": rng.normal(size=(held.shape[0], 32)), "caption": rng.normal(size=(held.shape[1], 32))}
    a, b = (vectors[side] for side in said.sides)
    np.add.at(a, said.rows, 0.15 * said.grades[:, None] * b[said.columns].copy())
    noisy = {
        side: (v + rng.normal(size=v.shape)).astype(np.float32) for side, v in vectors.items()
    }  # or leaning both ways would tie
    return Embeddings(held.image_ids, noisy["image"], held.caption_ids, noisy["caption"])


def exported(tmp_path, scores, said, held, direction, grades="whole", depth=None):
    wrote = write_qrels(said, held, direction, tmp_path / "qrels.txt", grades)
    write_run(scores, held, direction, tmp_path / "run.trec", depth=depth)
    with (tmp_path / "run.trec").open() as file:
        run = pytrec_eval.parse_run(file)
    with (tmp_path / "qrels.txt").open() as file:
        return run, pytrec_eval.parse_qrel(file), int(wrote.level)


def ours(name, scores, said, direction):
    listed = said.listed(direction)
    m = metric(name)
    least = np.nextafter(0.0, 1.0) if m.graded else said.positive  # nDCG gains by every grade above zero
    return listed.query, m.values(Ranks.from_standing(stand(scores, {direction: listed})[direction], least))


def apart_in_float32(run):
    """Queries whose scores differ also in trec_eval's float32."""
    return {query for query, line in run.items() if len(np.unique(np.float32(list(line.values())))) == len(line)}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("name", "direction"), WAYS)
def test_trec_eval_finds_our_numbers_in_our_files(tmp_path, name, direction, seed):
    held, said = human(name, direction)
    scores = signal(held, said, seed)
    run, judged, level = exported(tmp_path, scores, said, held, direction)
    clear = apart_in_float32(run)
    query_ids = held.ids(SIDES[direction][0])
    evaluator = pytrec_eval.RelevanceEvaluator(judged, set(MEASURES.values()), relevance_level=level)
    found = evaluator.evaluate(run)
    for metric_name, measure in MEASURES.items():
        query, values = ours(metric_name, scores, said, direction)
        kept = [n for n, q in enumerate(query) if query_ids[q] in clear]
        assert len(kept) > 0.9 * len(query) > 10
        peer = [found[query_ids[query[n]]][measure.replace(".", "_")] for n in kept]
        assert values[kept] == pytest.approx(peer, abs=EQUAL), metric_name
        if metric_name in ("hit@1", "r-precision", "mrr", "ndcg@10"):
            assert len(np.unique(values)) > 1  # there is something to find, and to miss


@pytest.mark.parametrize(("name", "direction"), WAYS)
def test_map_at_r_is_trec_evals_map_cut_at_r(tmp_path, name, direction):
    held, said = human(name, direction)
    scores = signal(held, said, 7)
    run, judged, level = exported(tmp_path, scores, said, held, direction)
    query, values = ours("map@r", scores, said, direction)
    counts = np.bincount(said.rows if direction != "t2i" else said.columns, said.grades >= said.positive).astype(int)[query]
    assert len(np.unique(counts)) > 1
    cuts = "map_cut." + ",".join(map(str, np.unique(counts).tolist()))
    found = pytrec_eval.RelevanceEvaluator(judged, {cuts}, relevance_level=level).evaluate(run)
    clear, query_ids = apart_in_float32(run), held.ids(SIDES[direction][0])
    kept = [n for n, q in enumerate(query) if query_ids[q] in clear]
    peer = [found[query_ids[query[n]]][f"map_cut_{counts[n]}"] for n in kept]
    assert values[kept] == pytest.approx(peer, abs=EQUAL)


@pytest.mark.parametrize(("name", "direction"), WAYS)
def test_binary_grades_and_a_cut_ranking_are_enough_for_the_top(tmp_path, name, direction):
    """Without grades and below place 20, all that looks at the first 10 and knows positives alone is the same."""
    held, said = human(name, direction)
    scores = signal(held, said, 3)
    run, judged, level = exported(tmp_path, scores, said, held, direction, "binary", depth=20)
    assert (level, max(map(len, run.values()))) == (1, 20)
    found = pytrec_eval.RelevanceEvaluator(judged, {"success.5", "P.5", "recall.10"}).evaluate(run)
    clear, query_ids = apart_in_float32(run), held.ids(SIDES[direction][0])
    for metric_name, measure in (("hit@5", "success_5"), ("precision@5", "P_5"), ("recall@10", "recall_10")):
        query, values = ours(metric_name, scores, said, direction)
        kept = [n for n, q in enumerate(query) if query_ids[q] in clear]
        assert values[kept] == pytest.approx([found[query_ids[query[n]]][measure] for n in kept], abs=EQUAL)


@pytest.mark.parametrize(("name", "direction"), WAYS)
def test_human_grades_come_back_exactly(tmp_path, name, direction):
    held, said = human(name, direction)
    wrote = write_qrels(said, held, direction, tmp_path / "q.txt")
    back = read_qrels(tmp_path / "q.txt", held, direction, positive=said.positive)
    orders = [np.lexsort((j.columns, j.rows)) for j in (said, back)]
    for field in ("rows", "columns", "grades"):
        one, two = (getattr(j, field)[order] for j, order in zip((said, back), orders, strict=True))
        assert one.tolist() == two.tolist()
    assert (wrote.scale, wrote.level) == (100, 100 * said.positive)
    assert back.count == said.count


def test_trec_eval_reads_scores_in_float32_and_the_file_keeps_more(tmp_path):
    """Why queries are left out above: two scores that only float64 tells apart are a tie to trec_eval, and it takes the last id."""
    held = Collection(["i"], ["a", "b"], ["x", "y"], [[0, 0]])
    close = Embeddings(["i"], [[1.0]], ["a", "b"], [[1.0 + 1e-12], [1.0]], "dot")
    run, judged, level = exported(tmp_path, close, Judgements.from_links(held), held, "i2t")
    found = pytrec_eval.RelevanceEvaluator(judged, {"P.1"}, relevance_level=level).evaluate(run)
    assert found["i"]["P_1"] == 0.0
    assert ours("precision@1", close, Judgements.from_links(held), "i2t")[1].tolist() == [1.0]
    assert read_run(tmp_path / "run.trec").values.tolist() == [1.0 + 1e-12, 1.0]


def test_a_query_without_a_positive_counts_as_zero_there_and_not_at_all_here(tmp_path):
    held = Collection(["i", "j"], ["a", "b"], ["x", "y"], [[0, 0]])
    said = Judgements("people", [0, 1], [0, 1], [1, 0], (2, 2))
    scores = Embeddings(["i", "j"], np.eye(2), ["a", "b"], np.eye(2))
    run, judged, level = exported(tmp_path, scores, said, held, "i2t")
    found = pytrec_eval.RelevanceEvaluator(judged, {"map"}, relevance_level=level).evaluate(run)
    assert {query: line["map"] for query, line in found.items()} == {"i": 1.0, "j": 0.0}
    assert ours("map@r", scores, said, "i2t")[1].tolist() == [1.0]
