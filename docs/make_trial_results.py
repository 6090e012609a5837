"""Write the part of docs/results.md on forced choice with real data: published outcomes, blind baselines, a real captioner.

python docs/make_trial_results.py        # needs bison, bivlc, sugarcrepe, coco and captions in $CROSSMATCH_DATA
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import crossmatch as cm
from blocks import replace_block
from crossmatch.benchmarks import load_data
from crossmatch.core.places import data_folder
from crossmatch.core.trials import Trials
from crossmatch.models.proxy import CaptionProxy
from crossmatch.report.analysis_page import write
from crossmatch.report.analysis_plots import gap_panels
from crossmatch.report.gap import gap
from crossmatch.report.gap_tables import direction_tables, ranking_table
from crossmatch.report.gate import gate_tables
from crossmatch.report.statistics import compare_statistics, statistics_table
from crossmatch.report.tables import Table, results_table
from crossmatch.report.variants import alteration_tables
from crossmatch.run import evaluate_all, evaluate_gate, with_alterations
from make_results import markdown

HERE = Path(__file__).parent
PUBLISHED = {"CLIP": "ViT-B-32", "CLIP_COCO": "CLIP_COCO", "CLIP_TROHN-Text": "CLIP_TROHN-Text"}
REFERENCES = ("rouge-1", "rouge-l", "bleu-4", "cider-d", "meteor", "spice", "overlap", "tfidf", "bow", "minilm")


def outcomes() -> list[cm.Result]:
    """What the authors of BiVLC published of three models, scored here."""
    place = data_folder() / "bivlc" / "results"
    kinds = (("BiVLC", "bivlc"), ("SUGARCREPE_CORRECT", "sugarcrepe"))
    return [
        cm.evaluate(f"precomputed:{place}/{kind}_{file}.csv", task, name=model)
        for kind, task in kinds
        for model, file in PUBLISHED.items()
    ]


def blind() -> list[cm.Result]:
    """Scorers that never see an image, and the detector, on SugarCrepe."""
    trials = load_data("sugarcrepe")
    assert isinstance(trials, Trials)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "captions.txt"
        file.write_text("\n".join(captions_of_other_images(trials)), encoding="utf-8")
        found = [
            cm.evaluate(f"blind:ngram={file}", "sugarcrepe", data=trials, likelihood=how, name=f"trigrams, {how}")
            for how in ("plain", "per-token")
        ]
    found += [cm.evaluate(f"blind:{name}", "sugarcrepe", data=trials, name=name) for name in ("shortest", "longest")]
    detector = data_folder() / "bivlc" / "detectors" / "SUGARCREPE_Classifier_CLIP_baseline.csv"
    return [*found, cm.evaluate(f"detector:{detector}", "sugarcrepe", data=trials, name="detector")]


def captions_of_other_images(trials: Trials) -> list[str]:
    """COCO captions of the test split, without those of images that are in the trials, and without texts that are."""
    held = load_data("coco-5k").collection
    shown = {name.removesuffix(".jpg").lstrip("0") for name in trials.images.ravel().tolist()}
    asked = {text.strip().lower() for text in trials.captions.ravel().tolist()}
    owner = held.owners()
    return [
        text
        for n, text in enumerate(held.captions)
        if str(held.image_ids[owner[n]]) not in shown and text.strip().lower() not in asked
    ]


def only(results: list[cm.Result], parts: int, macro: bool = True) -> list[cm.Result]:
    """The rows of whole tasks, and of categories down to so many steps."""
    return [
        replace(r, rows=tuple(row for row in r.rows if len(row.part.split("/")) <= parts and (macro or row.part != "macro")))
        for r in results
    ]


def bare(table: Table) -> Table:
    return replace(table, notes=())


def main() -> None:
    published = outcomes()
    choice = [r for r in published if r.task == "bivlc"]
    found = gap(published)
    unseen = blind()
    bison = load_data("bison")
    scores = [
        cm.evaluate(f"references:{name}", "bison", data=bison, partial=True, name=f"`references:{name}`") for name in REFERENCES
    ]
    proxy = CaptionProxy.from_name(f"{data_folder()}/captions/blip2_results_xe.json+minilm")
    tasks = with_alterations("bison", {})
    captioner = evaluate_all(
        proxy, [name for name, _ in tasks], name="BLIP-2's captions, MiniLM", data=[data for _, data in tasks], partial=True
    )
    captions = [bare(table) for table, _ in alteration_tables(captioner)]
    trials = [load_data(name) for name in ("bison", "bivlc", "sugarcrepe")]
    gate = gate_tables(evaluate_gate(["bison", "bivlc", "sugarcrepe"], data=trials))
    gains = next(r for r in unseen if r.model == "trigrams, plain")["accuracy"]
    lines = [
        "## Forced choice on the real benchmarks",
        "### Three CLIP models on BiVLC and SugarCrepe",
        "From the outcomes that the authors published (miranda2024bivlc, tables 2 to 4), with intervals, which the paper lacks.\n",
        markdown(results_table(only(choice, 1))[0]),
        "",
        *(f"{markdown(table)}\n" for table in direction_tables(found)),
        *(f"{markdown(ranking_table(one))}\n" for one in found.rankings),
        "### What can be had on SugarCrepe without looking at an image",
        f"A trigram language model, fitted on COCO captions of images that are not in SugarCrepe, has {gains.value:.1f} % by "
        "the plain likelihood of the caption: more than the original CLIP. `detector` is the published output of a detector of "
        "synthetic text.\n",
        markdown(results_table(only(unseen, 2))[0]),
        "\n### Caption scores as BISON predictors",
        "The query against the captions of both images (hu2019bison, sec. 6), on the trials of COCO-BISON whose images' captions "
        "are in the COCO files at hand. `tfidf`, `bow` and `minilm` are text encoders: the mean cosine with the captions. The "
        "paper has 70.73 for BLEU-4, 70.78 for CIDEr-D, 74.44 for METEOR and 62.79 for SPICE, on all trials. CIDEr-D agrees; "
        "BLEU-4 and METEOR are lower here and SPICE is higher. BLEU-1 to BLEU-3, means over single references, and references "
        "scored against the query do not bring BLEU-4 nearer; the reason is not known. SPICE rests on another parser.\n",
        markdown(results_table(scores)[0]),
        "\n### A real captioner on COCO-BISON, and altered queries",
        "BLIP-2's caption of an image stands for it, and MiniLM compares it with the query; on the trials both images of which are "
        "in the test split.\n",
        markdown(results_table(captioner[:1])[0]),
        "",
        *(f"{markdown(table)}\n" for table in captions),
        "### What COCO-BISON is made of",
        markdown(statistics_table(compare_statistics("bison", "coco-5k"))),
        "\n### The trust gate",
        "Scorers that know nothing, found (theory), in percent.\n",
        *(f"**{table.title.split(',')[1].split(':')[0].strip()}**\n\n{markdown(table)}\n" for table in gate),
    ]
    replace_block(HERE / "results.md", "trials", "\n".join(lines))
    write(HERE / "pictures" / "bivlc-findings.svg", "", [], gap_panels(found))


if __name__ == "__main__":
    main()
