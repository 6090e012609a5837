"""Write the part of docs/results.md on text models and the BLIP-2 caption proxy, measured on the real COCO test split.

CROSSMATCH_DATA=FOLDER python docs/make_text_results.py        # the folder needs cxc/, coco/ and captions/

It needs the packages of the extra `text`, and eccv_caption. Nothing is downloaded, and the numbers are the same each time. Most
of the time is spent on embedding 30,000 captions with MiniLM.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.sparse import csr_array

import crossmatch as cm
from blocks import RESULTS, excerpt, markdown, replace_block
from crossmatch.benchmarks.coco import coco_collection
from crossmatch.benchmarks.cxc import cxc_ratings, symmetrise
from crossmatch.data.io.paths import data_folder
from crossmatch.evaluation.evaluate import evaluate_all
from crossmatch.models.baselines.caption_proxy import make_caption_proxy
from crossmatch.report.tables import Table

MODELS = {
    "tfidf": "TF-IDF, 4,096 words",
    "bow": "averaged word vectors (WordLlama, 256-d)",
    "bow:idf": "the same, weighted by idf",
    "minilm": "all-MiniLM-L6-v2",
}
TASKS = ("coco-5k", "coco-1k", "cxc", "cxc-sts", "cxc-sis", "cxc-sits", "cxc-sits+query=caption", "eccv-caption")
USUAL_READING = "co-captions, and STS ≥ 3"
HITS = ("hit@1", "hit@5", "hit@10", "median-rank")

# parekh2021cxc, tables 3 (text to text) and 5 (STS): R@1, R@5, R@10, median rank; mean and std of Spearman's r.
PAPER = {
    "BoW (GloVe)": ("21.2", "38.2", "47.4", "13", "55.1 ± 0.6"),
    "USE, multilingual, large": ("31.2", "51.5", "61.3", "5", "71.4 ± 0.4"),
    "VSE++": ("38.7", "62.3", "72.2", "3", "74.4 ± 0.4"),
    "VSRN": ("41.0", "64.8", "74.5", "2", "73.0 ± 0.4"),
    "DE, text-text": ("41.7", "64.4", "73.4", "2", "72.9 ± 0.4"),
    "DE, image-text": ("26.0", "47.1", "57.5", "7", "50.9 ± 0.6"),
    "DE, both": ("42.4", "64.9", "74.0", "2", "74.2 ± 0.4"),
}


def conventions() -> dict[str, cm.Judgements]:
    """The readings of text-to-text retrieval on CxC: which captions are positives of a caption."""
    collection = coco_collection("test")
    image_count, caption_count = collection.shape
    images, captions = collection.links.T
    belongs = csr_array((np.ones(len(collection.links)), (captions, images)), shape=(caption_count, image_count))
    first, second = (belongs @ belongs.T).nonzero()
    co_captions = (first[first != second], second[first != second])
    owner = collection.caption_owners()
    ratings = cxc_ratings(collection, "sts", "test").judgements()
    is_good = ratings.grades >= ratings.positive
    forward = (ratings.rows[is_good], ratings.columns[is_good])
    symmetric = symmetrise(ratings)
    is_good = symmetric.grades >= symmetric.positive
    either = (symmetric.rows[is_good], symmetric.columns[is_good])
    of_other_image = owner[either[0]] != owner[either[1]]
    pairs = {
        "co-captions": [co_captions],
        USUAL_READING: [co_captions, either],
        "co-captions, and STS ≥ 3 from caption1 to caption2": [co_captions, forward],
        "STS ≥ 3": [either],
        "STS ≥ 3 from caption1 to caption2": [forward],
        "STS ≥ 3 of other images' captions": [(either[0][of_other_image], either[1][of_other_image])],
    }
    return {name: _judgements(name, parts, caption_count) for name, parts in pairs.items()}


def _judgements(name: str, parts: list[tuple[np.ndarray, np.ndarray]], captions: int) -> cm.Judgements:
    keys = np.unique(np.concatenate([rows * captions + columns for rows, columns in parts]))
    rows, columns = np.divmod(keys, captions)
    return cm.Judgements(name, rows, columns, np.ones(len(keys)), (captions, captions), kind="caption-caption")


CONVENTIONS = cm.Benchmark(
    name="t2t-conventions",
    description="text-to-text retrieval on CxC by several definitions of a positive",
    loader=lambda: cm.Retrieval(coco_collection("test"), conventions()),
    metrics=HITS,
    directions=("t2t",),
)


def format_value(result: cm.Result, key: str) -> str:
    row = result[key]
    return f"{row.value:.1f}".removesuffix(".0") if row.metric == "median-rank" else f"{row.value:.1f}"


def format_with_std(result: cm.Result) -> str:
    row = result["bootstrap-spearman"]
    return f"{row.value:.1f} ± {row.std:.1f}"


def _table(head: list[str], rows: list[list[str]], *notes: str) -> Table:
    return Table("", (tuple(head),), tuple(map(tuple, rows)), 1, notes)


def page(results: dict[str, dict[str, cm.Result]]) -> str:
    labels = ["R@1", "R@5", "R@10", "Med r"]
    models = {name: MODELS[name] for name in results}
    first = next(iter(results.values()))[CONVENTIONS.name]
    readings = list(dict.fromkeys(row.judgements for row in first.rows))

    def hits(model: str, task: str, part: str) -> list[str]:
        return [format_value(results[model][task], f"{part}/{name}") for name in HITS]

    text_rows = [
        [f"`{name}`: {about}", *hits(name, CONVENTIONS.name, f"t2t/{USUAL_READING}"), format_with_std(results[name]["cxc-sts"])]
        for name, about in models.items()
    ]
    published_rows = [[f"*{name}*, published", *values] for name, values in PAPER.items()]
    reading_rows = [
        [reading, f"{first[f't2t/{reading}/hit@1'].n:,}",
         *(" ".join(hits(name, CONVENTIONS.name, f"t2t/{reading}")) for name in models)]
        for reading in readings
    ]  # fmt: skip
    proxy_rows = [
        [f"`+{name}`", task, direction, *hits(name, task, direction)]
        for name in models
        for task, directions in (("coco-5k", ("i2t", "t2i")), ("cxc", ("i2t", "t2i", "i2i")))
        for direction in directions
    ]
    eccv_rows = [
        [f"`+{name}`", direction,
         *(format_value(results[name]["eccv-caption"], f"{direction}/{m}") for m in ("map@r", "r-precision", "hit@1"))]
        for name in models
        for direction in ("i2t", "t2i")
    ]  # fmt: skip
    rating_rows = [
        [f"`+{name}`", *(format_with_std(results[name][task]) for task in ("cxc-sis", "cxc-sits", "cxc-sits+query=caption"))]
        for name in models
    ]
    return page_text(
        _table(["model", *labels, "STS"], text_rows + published_rows, "Published: parekh2021cxc, tables 3 and 5"),
        _table(["positives", "queries", *(f"`{name}`" for name in models)], reading_rows),
        _table(["text model", "task", "direction", *labels], proxy_rows),
        _table(["text model", "eccv-caption", "mAP@R", "R-precision", "R@1"], eccv_rows),
        _table(["text model", "SIS", "SITS, image as query", "SITS, caption as query"], rating_rows),
    )


def page_text(text_models: Table, readings: Table, proxy: Table, eccv: Table, ratings: Table) -> str:
    return "\n".join(
        [
            "## Text models on CxC",
            "Text-to-text retrieval among the 25,000 captions of the COCO test split. A caption is positive if it belongs to the same "
            "image as the query, or if people rated the pair at least 3. The query is not in the gallery. STS is the correlation with "
            "human ratings: mean ± standard deviation of Spearman's r over 1,000 samples of half of the queries (`caption1`).\n",
            markdown(text_models),
            "\nTo reproduce a row: `crossmatch run -m MODEL -t cxc+cocaptions=all,cxc-sts`. Without the option, only pairs that "
            "people rated at least 3 are positive (`STS ≥ 3` in the next table; [decision 13](decisions/0013-cxc-conventions.md) "
            "explains both).\n",
            "### Which captions are positive?",
            "The paper does not say. R@1, R@5, R@10 and median rank of the same embeddings, for six definitions of a positive:\n",
            markdown(readings),
            "\n## BLIP-2's captions as a retrieval model on COCO 5K",
            "The model `caption-proxy:captions/blip2_results_xe.json+TEXTMODEL` represents an image by the caption that BLIP-2 wrote "
            "for it, and compares texts. To reproduce: `crossmatch run -m caption-proxy:FILE+TEXTMODEL -t "
            "coco-5k,cxc,eccv-caption,cxc-sis,cxc-sits,cxc-sits+query=caption`.\n",
            excerpt(proxy, "blip2-proxy", rows=lambda row: row[0] in ("`+tfidf`", "`+minilm`")),
            "",
            markdown(eccv),
            "",
            markdown(ratings),
            "",
        ]
    )


def main(names: list[str]) -> None:
    file = data_folder() / "captions" / "blip2_results_xe.json"
    results = {}
    for name in names or MODELS:
        model = make_caption_proxy(f"{file}+{name}")
        results[name] = dict(zip((*TASKS, CONVENTIONS.name), evaluate_all(model, [*TASKS, CONVENTIONS], name=name), strict=True))
    replace_block(RESULTS, "coco", page(results))


if __name__ == "__main__":
    main(sys.argv[1:])
