"""Write the part of docs/results.md on forced choice with real data: published outcomes, blind baselines, a real captioner.

python docs/make_trial_results.py        # needs bison, bivlc, sugarcrepe, coco and captions in $CROSSMATCH_DATA
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import crossmatch as cm
from blocks import PICTURES, RESULTS, excerpt, markdown, replace_block
from crossmatch.benchmarks import load_benchmark_data
from crossmatch.data.io.paths import data_folder
from crossmatch.data.trials import Trials
from crossmatch.evaluation.controls import evaluate_gate, load_with_alterations
from crossmatch.evaluation.evaluate import evaluate_all
from crossmatch.evaluation.plan import load_task
from crossmatch.models.baselines.caption_proxy import make_caption_proxy
from crossmatch.report.analysis.analysis_plots import direction_panels
from crossmatch.report.analysis.caption_statistics_comparison import compare_statistics, statistics_table
from crossmatch.report.analysis.direction_gap import analyse_directions, direction_tables, ranking_table
from crossmatch.report.pages import write_analysis
from crossmatch.report.query_variants import alteration_tables
from crossmatch.report.tables import Table, result_tables
from make_results import gate_section

PUBLISHED = {"CLIP": "ViT-B-32", "CLIP_COCO": "CLIP_COCO", "CLIP_TROHN-Text": "CLIP_TROHN-Text"}
REFERENCES = ("rouge-1", "rouge-l", "bleu-4", "cider-d", "meteor", "spice", "overlap", "tfidf", "bow", "minilm")
STATISTICS = ("examples", "unique images", "unique captions", "words per caption", "median", "vocabulary", "shared, % of the other's",
              "% of the words", "noun", "verb", "adjective", "adverb", "preposition", "determiner")  # fmt: skip


def published_outcomes() -> list[cm.Result]:
    """The outcomes of three models that the authors of BiVLC published."""
    folder = data_folder() / "bivlc" / "results"
    return [
        cm.evaluate(f"precomputed:{folder}/{kind}_{file}.csv", task, name=model)
        for kind, task in (("BiVLC", "bivlc"), ("SUGARCREPE_CORRECT", "sugarcrepe"))
        for model, file in PUBLISHED.items()
    ]


def main_categories(result: cm.Result) -> cm.Result:
    """The result without rows of subcategories."""
    return replace(result, rows=tuple(row for row in result.rows if "/" not in row.part))


def blind_results() -> list[cm.Result]:
    """SugarCrepe by scorers that never see an image, and by the detector."""
    trials = load_benchmark_data("sugarcrepe")
    assert isinstance(trials, Trials)
    detector = data_folder() / "bivlc" / "detectors" / "SUGARCREPE_Classifier_CLIP_baseline.csv"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "captions.txt"
        file.write_text("\n".join(captions_of_other_images(trials)), encoding="utf-8")
        return [
            *(
                cm.evaluate(f"blind:ngram={file}", "sugarcrepe", data=trials, likelihood=kind, name=f"trigrams, {kind}")
                for kind in ("plain", "per-token")
            ),
            *(cm.evaluate(f"blind:{name}", "sugarcrepe", data=trials, name=name) for name in ("shortest", "longest")),
            cm.evaluate(f"detector:{detector}", "sugarcrepe", data=trials, name="detector"),
        ]


def captions_of_other_images(trials: Trials) -> list[str]:
    """COCO captions of the test split, without images and texts of the trials."""
    collection = load_benchmark_data("coco-5k").collection
    trial_images = {name.removesuffix(".jpg").lstrip("0") for name in trials.images.ravel().tolist()}
    trial_texts = {text.strip().lower() for text in trials.captions.ravel().tolist()}
    owner = collection.caption_owners()
    return [
        text
        for n, text in enumerate(collection.captions)
        if str(collection.image_ids[owner[n]]) not in trial_images and text.strip().lower() not in trial_texts
    ]


def caption_score_results() -> list[cm.Result]:
    """BISON by caption scores between the query and the references of both images."""
    trials = load_benchmark_data("bison")
    return [
        cm.evaluate(f"references:{name}", "bison", data=trials, partial=True, name=f"`references:{name}`") for name in REFERENCES
    ]


def captioner_results() -> list[cm.Result]:
    """BISON and its altered queries by BLIP-2's captions."""
    tasks = load_with_alterations("bison", {})
    model = make_caption_proxy(f"{data_folder()}/captions/blip2_results_xe.json+minilm")
    return evaluate_all(model, tasks, name="BLIP-2's captions, MiniLM", partial=True)


def main() -> None:
    published, blind, captioner = published_outcomes(), blind_results(), captioner_results()
    directions = analyse_directions(published)
    text = page(
        result_tables([main_categories(r) for r in published if r.task == "bivlc"])[0],
        [*direction_tables(directions), *map(ranking_table, directions.rankings)],
        result_tables(blind)[0],
        next(r for r in blind if r.model == "trigrams, plain")["accuracy"].value,
        result_tables(caption_score_results())[0],
        result_tables(captioner[:1])[0],
        replace(alteration_tables(captioner)[0][0], notes=()),
        statistics_table(compare_statistics("bison", "coco-5k")),
        gate_section(evaluate_gate([load_task(name) for name in ("bison", "bivlc", "sugarcrepe")])),
    )
    replace_block(RESULTS, "trials", text)
    write_analysis(PICTURES / "bivlc-findings.svg", "", [], direction_panels(directions))


def page(
    bivlc: Table,
    directions: list[Table],
    blind: Table,
    trigram_accuracy: float,
    caption_scores: Table,
    captioner: Table,
    alterations: Table,
    statistics: Table,
    gate: list[str],
) -> str:
    return "\n".join(
        [
            "## Forced choices on the real benchmarks",
            "### Three CLIP models on BiVLC and SugarCrepe",
            "Computed from the outcomes that the authors published (miranda2024bivlc, tables 2 to 4). The intervals are not in the "
            "paper. [trials.md](trials.md) defines the metrics.\n",
            excerpt(bivlc, "bivlc-published", rows=lambda row: row[0] != "macro",
                    columns=("trials", "I2T", "T2I", "Group")),
            "",
            *(f"{markdown(table)}\n" for table in directions),
            "### SugarCrepe without looking at the image",
            "A trigram language model that was fitted on COCO captions of other images chooses the right caption in "
            f"{trigram_accuracy:.1f} % of the trials by plain likelihood, more often than the original CLIP. `shortest` takes the "
            "shorter caption. `detector` is the published output of a detector of synthetic text.\n",
            excerpt(blind, "sugarcrepe-blind", rows=lambda row: "/" not in row[0] and row[0] != "macro",
                    without=("trigrams, per-token", "longest")),
            "\n### Caption scores as BISON predictors",
            "The query is compared with the captions of both images (hu2019bison, sec. 6). Only the trials whose images have captions "
            "in the available COCO files are used. `tfidf`, `bow` and `minilm` are text encoders: mean cosine with the captions.\n",
            markdown(caption_scores),
            "\nThe paper has 70.73 for BLEU-4, 70.78 for CIDEr-D, 74.44 for METEOR and 62.79 for SPICE, on all trials. CIDEr-D "
            "agrees; BLEU-4 and METEOR are lower here, and SPICE, which uses another parser, is higher. For BLEU-4 we also tried "
            "BLEU-1 to BLEU-3, means over single references, and references scored against the query. None of them comes closer to "
            "the paper, and the reason is unknown.\n",
            "### A captioner on COCO-BISON, and altered queries",
            "Each image is represented by BLIP-2's caption of it, and MiniLM compares this caption with the query. Only the trials "
            "with both images in the test split are used.\n",
            markdown(captioner),
            "\nThe percentage of predictions that change when the query is altered:\n",
            markdown(alterations),
            "\n### Caption statistics of COCO-BISON",
            excerpt(statistics, "bison-statistics", rows=lambda row: row[0].strip() in STATISTICS),
            *gate,
        ]
    )  # fmt: skip


if __name__ == "__main__":
    main()
