"""Every number of the official package for ECCV Caption, on the real ids, with and without exact ties."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from crossmatch.benchmarks import list_benchmarks
from crossmatch.benchmarks.coco import coco_collection
from crossmatch.data.result import Result
from crossmatch.data.scores import Embeddings
from crossmatch.evaluation.evaluate import evaluate, evaluate_all
from crossmatch.evaluation.summarise import summarise
from crossmatch.metrics.metric_table import metric

eccv_caption = pytest.importorskip("eccv_caption")
DEPTH = 1_000  # the longest list of positives is shorter, and the first thousand hold more than ten of every fold
TASKS = {"coco_1k": "coco-1k", "coco_5k": "coco-5k", "cxc": "cxc", "eccv": "eccv-caption"}


class Similar:
    """Embeddings in which a caption resembles its image; `levels` rounds them to few values, which makes exact ties."""

    signature = "seeded"

    def __init__(self, levels: int | None) -> None:
        collection = coco_collection("test")
        rng = np.random.default_rng(4)
        images = rng.standard_normal((collection.shape[0], 16))
        captions = images[collection.caption_owners()] + 0.6 * rng.standard_normal((collection.shape[1], 16))
        if levels:
            images, captions = (np.rint(np.clip(v, -1.4, 1.4) * levels / 2) for v in (images, captions))
        self.embeddings = Embeddings(collection.image_ids, images, collection.caption_ids, captions, "dot" if levels else "cosine")

    def scores(self, data):
        return self.embeddings


def rankings(embeddings: Embeddings) -> tuple[dict, dict]:
    """The first `DEPTH` of every ranking, as the package takes them; ties in the order of the index, as argsort leaves them."""
    image, caption = (
        embeddings.vectors("image") * embeddings.scale("image")[:, None],
        embeddings.vectors("caption") * embeddings.scale("caption")[:, None],
    )
    scores = image @ caption.T
    if embeddings.similarity == "dot":
        scores = np.rint(scores)  # sums of small whole numbers: exact
    ids = [int(n) for n in embeddings.image_ids], [int(n) for n in embeddings.caption_ids]
    out = []
    for matrix, queries, items in ((scores, ids[0], ids[1]), (scores.T, ids[1], ids[0])):
        lists = {}
        for query, line in zip(queries, matrix, strict=True):
            top = np.argpartition(-line, DEPTH)[:DEPTH]
            edge = line[top].min()
            top = np.flatnonzero(line >= edge)
            lists[query] = [items[c] for c in top[np.argsort(-line[top], kind="stable")][:DEPTH]]
        out.append(lists)
    return out[0], out[1]


def official(embeddings: Embeddings) -> dict[str, dict[str, float]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about ujson, which it does not need
        metrics = eccv_caption.Metrics()
    i2t, t2i = rankings(embeddings)
    names = ("coco_1k_recalls", "coco_5k_recalls", "cxc_recalls", "eccv_map_at_r", "eccv_rprecision", "eccv_r1")
    ours = metrics.compute_all_metrics(i2t, t2i, target_metrics=names, Ks=(1, 5, 10))
    # `eccv_recalls` is left out by the package as soon as mAP@R is asked for
    return ours | metrics.compute_all_metrics(i2t, t2i, target_metrics=("eccv_recalls",), Ks=(1, 5, 10))


def ours(model: Similar, *policies: str) -> list[dict[str, dict[str, float]]]:
    """Our numbers under each tie policy, all from the evidence of one evaluation."""
    tasks = [list_benchmarks()[name] for name in TASKS.values()]
    results = dict(zip(TASKS, evaluate_all(model, tasks, samples=2), strict=True))
    return [
        by_their_names({
            key: summarise(replace(result, ties=ties), [metric(name) for name in task.metrics], {})
            for (key, result), task in zip(results.items(), tasks, strict=True)
        })
        for ties in policies
    ]  # fmt: skip


def by_their_names(results: dict[str, Result]) -> dict[str, dict[str, float]]:
    names = {"map_at_r": "map@r", "rprecision": "r-precision", "r1": "hit@1", "r5": "hit@5", "r10": "hit@10"}
    ours = {}
    for key, result in results.items():
        for their, our in names.items():
            if f"i2t/{our}" in {row.key for row in result.rows}:
                ours[f"{key}_{their}"] = {d: result[f"{d}/{our}"].value / 100 for d in ("i2t", "t2i")}
    return ours


@pytest.mark.slow
@pytest.mark.usefixtures("real_data")
def test_without_ties_every_number_is_equal():
    model = Similar(None)
    theirs, (own_value,) = official(model.embeddings), ours(model, "expected")
    assert set(theirs) == set(own_value)
    assert 0.05 < theirs["coco_5k_r1"]["t2i"] < 0.95  # a scorer that is always right or always wrong would prove nothing
    for key, by_direction in theirs.items():
        for direction, value in by_direction.items():
            assert own_value[key][direction] == pytest.approx(float(value), abs=1e-9), (key, direction)


@pytest.mark.slow
@pytest.mark.usefixtures("real_data")
def test_with_ties_the_package_is_between_worst_and_best_order():
    model = Similar(2)
    theirs, (low, middle, high) = official(model.embeddings), ours(model, "pessimistic", "expected", "optimistic")
    apart = 0
    for key, by_direction in theirs.items():
        for d, value in by_direction.items():
            assert low[key][d] - 1e-9 <= value <= high[key][d] + 1e-9, (key, d)
            assert low[key][d] <= middle[key][d] <= high[key][d]
            apart += high[key][d] - low[key][d] > 1e-3
    assert apart > 5  # there were ties, and they mattered


@pytest.mark.usefixtures("real_data")
def test_plausible_matches_equal_the_package():
    """Its R-precision on the matches of some queries, at each zeta; and the same with R cut at 50, by hand."""
    from eccv_caption._metrics import compute_rprecision

    model = Similar(None)
    data = list_benchmarks()["pmrp"].load()
    result = evaluate(model, list_benchmarks()["pmrp"], data=data, samples=2)
    plausible, collection, rng = data.judgements["plausible"], data.collection, np.random.default_rng(0)
    image, caption = (model.embeddings.vectors(s) * model.embeddings.scale(s)[:, None] for s in ("image", "caption"))
    for direction, ids in (("i2t", collection.image_ids), ("t2i", collection.caption_ids)):
        query_set, item_set = plausible.label_sets(direction)
        for n, zeta in enumerate(plausible.zetas):
            part = result.parts[f"{direction}/zeta={zeta}"]
            place = {name: at for at, name in enumerate(part.ids.tolist())}
            for q in rng.integers(0, len(ids), 25):
                line = image[q] @ caption.T if direction == "i2t" else caption[q] @ image.T
                order = np.argsort(-line).tolist()
                positive = set(np.flatnonzero(plausible.first_matching_zeta[query_set[q]][item_set] <= n).tolist())
                theirs = compute_rprecision({0: order}, {0: list(positive)})
                assert part.values["pmrp"][place[str(ids[q])]] == pytest.approx(theirs, abs=1e-9)
                k = min(50, len(positive))
                assert part.values["pmrp@50"][place[str(ids[q])]] == pytest.approx(len(positive & set(order[:k])) / k, abs=1e-9)
