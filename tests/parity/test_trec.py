"""trec_eval on the files that crossmatch writes: the same numbers from the same rankings and judgements."""

import csv
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.judgements import Judgements
from crossmatch.data.scores import Embeddings
from crossmatch.metrics.metric_table import metric
from crossmatch.ranking.ranks import Ranks
from crossmatch.ranking.sweep import count_ranks
from crossmatch.ranking.trec_files import read_qrels, read_run, write_qrels, write_run

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
    requested = columns[direction == "t2i"]
    frequent = Counter(row[requested] for row in rows)
    rows = sorted(rows, key=lambda row: (-frequent[row[requested]], row[requested]))[:PAIRS]
    pairs = {(row[columns[0]], row[columns[1]]): float(row["agg_score"]) for row in rows if row[columns[0]] != row[columns[1]]}
    if kind != "image-caption":
        pairs |= {(b, a): grade for (a, b), grade in pairs.items()}
    ids = [sorted({pair[side] for pair in pairs}) for side in (0, 1)]
    images = ids[0] if kind != "caption-caption" else ["none"]
    captions = ids[1] if kind != "image-image" else ["none"]
    dataset = Collection(images, captions, ["text"] * len(captions), np.zeros((0, 2)))
    at = [np.array([ids[side].index(pair[side]) for pair in pairs]) for side in (0, 1)]
    relevance = Judgements("people", *at, list(pairs.values()), (len(ids[0]), len(ids[1])), positive, kind=kind)
    return dataset, relevance


def signal(dataset, relevance, seed):
    """Random embeddings in which items that people rated as similar are close."""
    rng = np.random.default_rng(seed)
    vectors = {"image": rng.normal(size=(dataset.shape[0], 32)), "caption": rng.normal(size=(dataset.shape[1], 32))}
    a, b = (vectors[side] for side in relevance.sides)
    np.add.at(a, relevance.rows, 0.15 * relevance.grades[:, None] * b[relevance.columns].copy())
    noisy = {
        side: (v + rng.normal(size=v.shape)).astype(np.float32) for side, v in vectors.items()
    }  # or leaning both ways would tie
    return Embeddings(dataset.image_ids, noisy["image"], dataset.caption_ids, noisy["caption"])


def exported(tmp_path, scores, relevance, dataset, direction, grades="whole", depth=None):
    wrote = write_qrels(relevance, dataset, direction, tmp_path / "qrels.txt", grades)
    write_run(scores, dataset, direction, tmp_path / "run.trec", depth=depth)
    with (tmp_path / "run.trec").open() as file:
        run = pytrec_eval.parse_run(file)
    with (tmp_path / "qrels.txt").open() as file:
        return run, pytrec_eval.parse_qrel(file), int(wrote.positive_grade)


def ours(name, scores, relevance, direction):
    listed = relevance.candidate_lists(direction)
    m = metric(name)
    least = np.nextafter(0.0, 1.0) if m.graded else relevance.positive  # nDCG gains by every grade above zero
    return listed.query, m.values(Ranks.from_counts(count_ranks(scores, {direction: listed})[direction], least))


def apart_in_float32(run):
    """Queries whose scores differ also in trec_eval's float32."""
    return {query for query, line in run.items() if len(np.unique(np.float32(list(line.values())))) == len(line)}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("name", "direction"), WAYS)
def test_trec_eval_gives_our_numbers_for_our_files(tmp_path, name, direction, seed):
    dataset, relevance = human(name, direction)
    scores = signal(dataset, relevance, seed)
    run, judged, level = exported(tmp_path, scores, relevance, dataset, direction)
    clear = apart_in_float32(run)
    query_ids = dataset.ids(SIDES[direction][0])
    evaluator = pytrec_eval.RelevanceEvaluator(judged, set(MEASURES.values()), relevance_level=level)
    peer_values = evaluator.evaluate(run)
    for metric_name, measure in MEASURES.items():
        query, values = ours(metric_name, scores, relevance, direction)
        selected = [n for n, q in enumerate(query) if query_ids[q] in clear]
        assert len(selected) > 0.9 * len(query) > 10
        peer = [peer_values[query_ids[query[n]]][measure.replace(".", "_")] for n in selected]
        assert values[selected] == pytest.approx(peer, abs=EQUAL), metric_name
        if metric_name in ("hit@1", "r-precision", "mrr", "ndcg@10"):
            assert len(np.unique(values)) > 1  # there is something to find, and to miss


@pytest.mark.parametrize(("name", "direction"), WAYS)
def test_map_at_r_equals_map_cut_at_r(tmp_path, name, direction):
    dataset, relevance = human(name, direction)
    scores = signal(dataset, relevance, 7)
    run, judged, level = exported(tmp_path, scores, relevance, dataset, direction)
    query, values = ours("map@r", scores, relevance, direction)
    counts = np.bincount(
        relevance.rows if direction != "t2i" else relevance.columns, relevance.grades >= relevance.positive
    ).astype(int)[query]
    assert len(np.unique(counts)) > 1
    cuts = "map_cut." + ",".join(map(str, np.unique(counts).tolist()))
    peer_values = pytrec_eval.RelevanceEvaluator(judged, {cuts}, relevance_level=level).evaluate(run)
    clear, query_ids = apart_in_float32(run), dataset.ids(SIDES[direction][0])
    selected = [n for n, q in enumerate(query) if query_ids[q] in clear]
    peer = [peer_values[query_ids[query[n]]][f"map_cut_{counts[n]}"] for n in selected]
    assert values[selected] == pytest.approx(peer, abs=EQUAL)


@pytest.mark.parametrize(("name", "direction"), WAYS)
def test_truncated_binary_files_are_enough_for_the_top(tmp_path, name, direction):
    """Without grades and below place 20, all that looks at the first 10 and knows positives alone is the same."""
    dataset, relevance = human(name, direction)
    scores = signal(dataset, relevance, 3)
    run, judged, level = exported(tmp_path, scores, relevance, dataset, direction, "binary", depth=20)
    assert (level, max(map(len, run.values()))) == (1, 20)
    peer_values = pytrec_eval.RelevanceEvaluator(judged, {"success.5", "P.5", "recall.10"}).evaluate(run)
    clear, query_ids = apart_in_float32(run), dataset.ids(SIDES[direction][0])
    for metric_name, measure in (("hit@5", "success_5"), ("precision@5", "P_5"), ("recall@10", "recall_10")):
        query, values = ours(metric_name, scores, relevance, direction)
        selected = [n for n, q in enumerate(query) if query_ids[q] in clear]
        assert values[selected] == pytest.approx([peer_values[query_ids[query[n]]][measure] for n in selected], abs=EQUAL)


@pytest.mark.parametrize(("name", "direction"), WAYS)
def test_human_grades_are_exact(tmp_path, name, direction):
    dataset, relevance = human(name, direction)
    wrote = write_qrels(relevance, dataset, direction, tmp_path / "q.txt")
    back = read_qrels(tmp_path / "q.txt", dataset, direction, positive=relevance.positive)
    orders = [np.lexsort((j.columns, j.rows)) for j in (relevance, back)]
    for field in ("rows", "columns", "grades"):
        written, loaded = (getattr(j, field)[order] for j, order in zip((relevance, back), orders, strict=True))
        assert written.tolist() == loaded.tolist()
    assert (wrote.scale, wrote.positive_grade) == (100, 100 * relevance.positive)
    assert back.positive_count == relevance.positive_count


def test_trec_eval_reads_scores_in_float32(tmp_path):
    """Why queries are left out above: two scores that only float64 tells apart are a tie to trec_eval, and it takes the last id."""
    dataset = Collection(["i"], ["a", "b"], ["x", "y"], [[0, 0]])
    close = Embeddings(["i"], [[1.0]], ["a", "b"], [[1.0 + 1e-12], [1.0]], "dot")
    run, judged, level = exported(tmp_path, close, Judgements.from_links(dataset), dataset, "i2t")
    peer_values = pytrec_eval.RelevanceEvaluator(judged, {"P.1"}, relevance_level=level).evaluate(run)
    assert peer_values["i"]["P_1"] == 0.0
    assert ours("precision@1", close, Judgements.from_links(dataset), "i2t")[1].tolist() == [1.0]
    assert read_run(tmp_path / "run.trec").values.tolist() == [1.0 + 1e-12, 1.0]


def test_query_without_positive_counts_only_in_trec_eval(tmp_path):
    dataset = Collection(["i", "j"], ["a", "b"], ["x", "y"], [[0, 0]])
    relevance = Judgements("people", [0, 1], [0, 1], [1, 0], (2, 2))
    scores = Embeddings(["i", "j"], np.eye(2), ["a", "b"], np.eye(2))
    run, judged, level = exported(tmp_path, scores, relevance, dataset, "i2t")
    values = pytrec_eval.RelevanceEvaluator(judged, {"map"}, relevance_level=level).evaluate(run)
    assert {query: line["map"] for query, line in values.items()} == {"i": 1.0, "j": 0.0}
    assert ours("map@r", scores, relevance, "i2t")[1].tolist() == [1.0]
