"""Write the part of docs/results.md on text models and the BLIP-2 caption proxy, measured on the real COCO test split.

CROSSMATCH_DATA=FOLDER python docs/make_text_results.py        # the folder needs cxc/, coco/ and captions/

It needs the packages of the extra `text`, and eccv_caption. Nothing is downloaded, and the same numbers come out each time; most
of the time goes into embedding 30,000 captions with MiniLM.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

import crossmatch as cm
from blocks import replace_block
from crossmatch.benchmarks.coco import collection
from crossmatch.benchmarks.cxc import both_ways, judged
from crossmatch.core.places import data_folder
from crossmatch.models.proxy import CaptionProxy
from crossmatch.run import evaluate_all

MODELS = {
    "tfidf": "TF-IDF, 4,096 words",
    "bow": "averaged word vectors (WordLlama, 256-d)",
    "bow:idf": "the same, weighted by idf",
    "minilm": "all-MiniLM-L6-v2",
}
TASKS = ("coco-5k", "coco-1k", "cxc", "cxc-sts", "cxc-sis", "cxc-sits", "cxc-sits+query=caption", "eccv-caption")
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
    """Which captions count as found for a caption: what could be meant by text-to-text retrieval on CxC."""
    held = collection("test")
    shape = (held.shape[1], held.shape[1])
    owned = csr_array((np.ones(len(held.links)), (held.links[:, 1], held.links[:, 0])), shape=(held.shape[1], held.shape[0]))
    a, b = (owned @ owned.T).nonzero()
    links = (a[a != b], b[a != b])
    owner = held.owners()
    rated = judged(held, "sts", "test")
    good = rated.grades >= rated.positive
    forward = (rated.rows[good], rated.columns[good])
    both = both_ways(rated)
    either = (both.rows[both.grades >= both.positive], both.columns[both.grades >= both.positive])
    other = owner[either[0]] != owner[either[1]]
    sets = {
        "co-captions": [links],
        "co-captions, and STS ≥ 3": [links, either],
        "co-captions, and STS ≥ 3 from caption1 to caption2": [links, forward],
        "STS ≥ 3": [either],
        "STS ≥ 3 from caption1 to caption2": [forward],
        "STS ≥ 3 of other images' captions": [(either[0][other], either[1][other])],
    }
    return {name: positives(name, parts, shape) for name, parts in sets.items()}


def positives(name: str, parts: list[tuple[np.ndarray, np.ndarray]], shape: tuple[int, int]) -> cm.Judgements:
    key = np.unique(np.concatenate([a * shape[0] + b for a, b in parts]))
    rows, columns = np.divmod(key, shape[0])
    return cm.Judgements(name, rows, columns, np.ones(len(key)), shape, kind="caption-caption")


CONVENTIONS = cm.Benchmark(
    name="t2t-conventions",
    about="text-to-text retrieval on CxC under several meanings of it",
    load=lambda: cm.Retrieval(collection("test"), conventions()),
    metrics=HITS,
    directions=("t2t",),
)


def number(result: cm.Result, key: str) -> str:
    row = result[key]
    return f"{row.value:.1f}".removesuffix(".0") if row.metric == "median-rank" else f"{row.value:.1f}"


def with_std(result: cm.Result) -> str:
    row = result["bootstrap-spearman"]
    return f"{row.value:.1f} ± {row.std:.1f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    rule = [":--", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)) + "\n"


def page(results: dict[str, dict[str, cm.Result]]) -> str:
    hits = ["R@1", "R@5", "R@10", "Med r"]
    named = {name: MODELS[name] for name in results}
    first = next(iter(results.values()))["t2t-conventions"]
    meanings = list(dict.fromkeys(row.part.removeprefix("t2t/") for row in first.rows))
    usual = "co-captions, and STS ≥ 3"
    text_rows = [
        [f"`{name}`: {about}", *(number(results[name]["t2t-conventions"], f"t2t/{usual}/{m}") for m in HITS),
         with_std(results[name]["cxc-sts"])] for name, about in named.items()
    ]  # fmt: skip
    convention_rows = [
        [meaning, f"{first[f't2t/{meaning}/hit@1'].n:,}",
         *(" ".join(number(results[name]["t2t-conventions"], f"t2t/{meaning}/{m}") for m in HITS) for name in named)]
        for meaning in meanings
    ]  # fmt: skip
    proxy_rows = [
        [f"`+{name}`", task, direction, *(number(results[name][task], f"{direction}/{m}") for m in HITS)]
        for name in named
        for task, directions in (("coco-5k", ("i2t", "t2i")), ("cxc", ("i2t", "t2i", "i2i")))
        for direction in directions
    ]  # fmt: skip
    eccv = ("map@r", "r-precision", "hit@1")
    eccv_rows = [
        [f"`+{name}`", direction, *(number(results[name]["eccv-caption"], f"{direction}/{m}") for m in eccv)]
        for name in named
        for direction in ("i2t", "t2i")
    ]
    rated_rows = [
        [f"`+{name}`", *(with_std(results[name][task]) for task in ("cxc-sis", "cxc-sits", "cxc-sits+query=caption"))]
        for name in named
    ]
    return "\n".join(
        [
            "## Text models on CxC",
            "Text-to-text retrieval among the 25,000 captions of the COCO test split, and correlation with people's ratings (mean "
            "± standard deviation of Spearman's r over 1,000 samples of half the queries, caption1 being the query). A caption "
            "counts as found if it is of the same image or if people rated it at least 3; the query is not in the gallery.\n",
            table(["model", *hits, "STS"], text_rows + [[f"*{name}*, published", *values] for name, values in PAPER.items()]),
            "*Published: parekh2021cxc, tables 3 and 5.*\n",
            "### What text-to-text retrieval means",
            "R@1, R@5, R@10 and the median rank of the same embeddings, by what counts as found:\n",
            table(["found", "queries", *(f"`{name}`" for name in named)], convention_rows),
            "## A real system on COCO 5K: BLIP-2's captions for the images, compared as texts",
            "`caption-proxy:captions/blip2_results_xe.json+TEXTMODEL`: an image stands for the caption that BLIP-2 wrote for it.\n",
            table(["text model", "task", "", *hits], proxy_rows),
            table(["text model", "eccv-caption", "mAP@R", "R-precision", "R@1"], eccv_rows),
            table(["text model", "SIS", "SITS, image as query", "SITS, caption as query"], rated_rows),
        ]
    )


def main(names: list[str]) -> None:
    file = data_folder() / "captions" / "blip2_results_xe.json"
    results = {}
    for name in names or MODELS:
        found = evaluate_all(CaptionProxy.from_name(f"{file}+{name}"), [*TASKS, CONVENTIONS], name=name)
        results[name] = dict(zip((*TASKS, CONVENTIONS.name), found, strict=True))
    replace_block(Path(__file__).with_name("results.md"), "coco", page(results))


if __name__ == "__main__":
    main(sys.argv[1:])
