"""Write the part of docs/results.md on the trained retrieval systems, and docs/pictures/uncertainty.svg.

python docs/make_zoo_results.py [FOLDER]        # FOLDER keeps the trained models and the results, `demo/zoo` by default

Trains every recipe on diorama, two at a time, and evaluates it on the test split. Models and results in FOLDER are reused.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import crossmatch as cm
from blocks import PICTURES, RESULTS, excerpt, markdown, replace_block, require_block
from crossmatch.diorama.world import SIZES, Diorama
from crossmatch.models import make_model
from crossmatch.models.zoo.trained_model import uncertainty_of_images, uncertainty_of_texts
from crossmatch.report.analysis.uncertainty_by_positives import UncertaintyBins, bin_uncertainty, uncertainty_panel
from crossmatch.report.pages import write_analysis
from crossmatch.report.tables import Table, format_row
from crossmatch.train.recipe import load_recipe
from make_caption_results import quality_tables
from training_jobs import Job, Results, evaluate_model, load_train_settings, run_jobs

CHOICES = ("diorama/retrieval", "diorama/bison", "diorama/bivlc", "diorama/sugarcrepe")
GRADED = ("diorama/cxc", "diorama/sts", "diorama/sis", "diorama/sits")
SEEDS = range(3)
BY_PROBABILITY, UNTRAINED = "pcme-probability", "pcme-five-steps"
POOLED = (
    "convnet-bow",
    "convnet-bigru",
    "obj-bigru",
    "vse0",
    "vse-semi-hard",
    "vse++",
    "vse-infinity",
    "vsrn",
    "pvse-k1",
    "pvse-k2",
    "pcme",
)
ATTENTION = ("scan-i2t", "scan-t2i", "sgr", "saf")
DUAL = {"de-i2t": (*CHOICES, *GRADED), "de-t2t": ("diorama/cxc", "diorama/sts"), "de-t2t-i2t": (*CHOICES, *GRADED)}
MINING = {"all": "vse0", "semi-hard": "vse-semi-hard", "hardest": "vse++"}
JOBS = (
    *(Job(name, name, (*CHOICES, *GRADED) if name in ("vse++", "vsrn") else CHOICES) for name in (*POOLED, *ATTENTION)),
    *(Job(name, name, tasks) for name, tasks in DUAL.items()),
    *(Job(f"{recipe}-{seed}", recipe, ("diorama/retrieval",), seed=seed) for recipe in MINING.values() for seed in SEEDS if seed),
    *(Job(f"{recipe}-at-once", recipe, ("diorama/retrieval",), ("objective.warm_up=0.0",)) for recipe in ("vse-semi-hard", "vse++")),
    Job(UNTRAINED, "pcme", CHOICES[:1], ("train.images=128", "train.epochs=1")),  # five steps: almost an untrained network
    *(Job(f"{recipe}-short", recipe, CHOICES, ("train.batch=32", "train.epochs=1")) for recipe in ("vse++", "scan-t2i")),
)  # fmt: skip


def evaluate_by_probability(folder: Path) -> dict[str, cm.Result]:
    """PCME with the same weights, but retrieval by the matching probability instead of the means."""
    model = folder / "models" / BY_PROBABILITY
    shutil.copytree(folder / "models" / "pcme", model, dirs_exist_ok=True)
    settings = json.loads((model / "model.json").read_text())
    settings["config"]["net"]["retrieval"] = "probability"
    (model / "model.json").write_text(json.dumps(settings))
    return evaluate_model(folder, BY_PROBABILITY, CHOICES)


COLUMNS = (
    ("i2t R@1, links", "diorama/retrieval", "i2t/links/hit@1"), ("t2i R@1, links", "diorama/retrieval", "t2i/links/hit@1"),
    ("i2t R@1, truth", "diorama/retrieval", "i2t/truth/hit@1"), ("t2i R@1, truth", "diorama/retrieval", "t2i/truth/hit@1"),
    ("i2t mAP@R, truth", "diorama/retrieval", "i2t/truth/map@r"), ("t2i mAP@R, truth", "diorama/retrieval", "t2i/truth/map@r"),
    ("BISON", "diorama/bison", "accuracy"), ("BiVLC I2T", "diorama/bivlc", "i2t"), ("BiVLC T2I", "diorama/bivlc", "t2i"),
    ("BiVLC Group", "diorama/bivlc", "group"), ("SugarCrepe", "diorama/sugarcrepe", "accuracy"),
)  # fmt: skip
MAIN_COLUMNS = ("i2t R@1, links", "t2i R@1, links", "i2t mAP@R, truth", "t2i mAP@R, truth", "BiVLC Group", "SugarCrepe")
MAIN_MODELS = ("vse0", "vse-semi-hard", "vse++", "vse-infinity", "vsrn", "pvse-k2", "pcme", "scan-i2t", "scan-t2i", "sgr", "saf",
               "de-i2t", "de-t2t-i2t", "vse++-short", "scan-t2i-short")  # fmt: skip
MINING_COLUMNS = {"links/hit@1": "R@1, links", "truth/hit@1": "R@1, truth", "truth/map@r": "mAP@R, truth"}
PAIRS = (  # region attention and pooling: with the same training, or against the best pooling
    ("scan-t2i", "vse++"), ("scan-t2i", "vse-infinity"), ("scan-i2t", "vse++"), ("scan-t2i-short", "vse++-short"),
    ("sgr", "vse++-short"), ("saf", "vse++-short"),
)  # fmt: skip
DIRECTIONS = ("i2t", "t2i", "t2t", "i2i")


def format_cell(results: Mapping[str, cm.Result], task: str, key: str) -> str:
    return format_row(results[task][key]) if task in results else "–"


def models_table(folder: Path, results: Results, names: Sequence[str]) -> Table:
    """BISON's Table 3 and ECCV's Table 4 in one, with the length of each training."""
    rows = [
        (name, format_training(folder, name), *(format_cell(results[name], task, key) for _, task, key in COLUMNS))
        for name in names
    ]
    return Table("", (("model", "training", *(label for label, *_ in COLUMNS)),), tuple(rows), 2)


def difference_table(results: Results) -> Table:
    """Region attention minus pooling on the same queries and trials, with the interval of the difference."""
    rows = []
    for attention, pooling in PAIRS:
        cells = [f"{attention} − {pooling}"]
        for _, task, key in COLUMNS:
            first, second = (replace(results[name][task], rows=(results[name][task][key],)) for name in (pooling, attention))
            gap = cm.compare(first, second)[0].difference
            cells.append(f"{gap.value:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]")
        rows.append(tuple(cells))
    return Table("", (("", *(label for label, *_ in COLUMNS)),), tuple(rows), 1)


def format_training(folder: Path, name: str) -> str:
    """Epochs x images, and the batch size."""
    settings = load_train_settings(folder, name)
    return f"{settings['epochs']} x {settings['images'] or SIZES['default']['train']:,}, {settings['batch']}"


def validation_table(folder: Path) -> Table:
    """The validation score after each epoch, for models that may not have been trained long enough."""
    rows = []
    for name in ("vse++", "vsrn", "de-i2t", "de-t2t-i2t"):
        with (folder / "models" / name / "log.csv").open() as file:
            rows.append((name, " · ".join(f"{float(row['sum']):.0f}" for row in csv.DictReader(file))))
    return Table("", (("model", "validation score after each epoch"),), tuple(rows), 2)


def mining_table(results: Results) -> Table:
    """VSE with different negatives: three seeds, and mining from the first step, by the links and by the truth."""
    models: dict[str, list[str]] = {}
    for kind, recipe in MINING.items():
        start = "" if kind == "all" else f" after {100 * load_recipe(recipe).objective['warm_up']:.0f} % of the steps"
        models[f"{kind}{start}"] = [recipe if seed == 0 else f"{recipe}-{seed}" for seed in SEEDS]
    models |= {f"{kind} from the first step": [f"{MINING[kind]}-at-once"] for kind in ("semi-hard", "hardest")}
    columns = [(direction, key) for key in MINING_COLUMNS for direction in DIRECTIONS[:2]]
    rows = [
        (kind, *(_over_seeds([results[name]["diorama/retrieval"][f"{direction}/{key}"].value for name in names])
                 for direction, key in columns))
        for kind, names in models.items()
    ]  # fmt: skip
    header = ("negatives", *(f"{direction} {MINING_COLUMNS[key]}" for direction, key in columns))
    return Table("", (header,), tuple(rows), 1)


def _over_seeds(values: Sequence[float]) -> str:
    spread = f" [{min(values):.1f}, {max(values):.1f}]" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{spread}"


def crisscrossed_table(results: Results) -> Table:
    """CxC's Tables 2 to 5: four retrieval tasks and three correlations."""
    rows = []
    for name in ("vse++", "vsrn", *DUAL):
        tasks = results[name]
        parts = {row.part for row in tasks["diorama/cxc"].rows}
        hits = [format_cell(tasks, "diorama/cxc", f"{direction}/hit@1") if direction in parts else "–" for direction in DIRECTIONS]
        correlations = [format_cell(tasks, f"diorama/{task}", "bootstrap-spearman") for task in ("sts", "sis", "sits")]
        rows.append((name, *hits, *correlations))
    return Table("", (("model", *(f"{direction} R@1" for direction in DIRECTIONS), "STS", "SIS", "SITS"),), tuple(rows), 1)


def measure_uncertainty(folder: Path, name: str) -> tuple[UncertaintyBins, UncertaintyBins]:
    """PCME's uncertainty of images and of captions, by their number of true matches."""
    world, model = Diorama.make("test"), make_model(str(folder / "models" / name))
    pictures = [world.picture(n) for n in range(len(world.scenes))]
    texts = [caption.text for caption in world.captions]
    owner = np.repeat(np.arange(len(pictures)), len(texts) // len(pictures))
    return (
        bin_uncertainty(uncertainty_of_images(model, pictures), world.truth.sum(axis=1)),
        bin_uncertainty(uncertainty_of_texts(model, texts), world.truth.sum(axis=0), cluster=owner),
    )


def format_spearman(bins: UncertaintyBins) -> str:
    r = bins.spearman
    return f"{r.value:.2f} [{r.low:.2f}, {r.high:.2f}]"


def grounder_table(folder: Path) -> Table:
    """TIGEr and its parts on captions of known quality, with each trained SCAN as the grounding model."""
    rows = []
    for name in ("scan-i2t", "scan-t2i"):
        _, agreement = quality_tables(("tiger", "rrs", "wds"), grounder=make_model(str(folder / "models" / name)))
        rows += [(f"{row[0]}, {name}", *row[1:]) for row in agreement.rows]
    return Table("", agreement.header, tuple(rows), 1)


def page(folder: Path, results: Results) -> str:
    images, captions = measure_uncertainty(folder, "pcme")
    untrained_images, untrained_captions = measure_uncertainty(folder, UNTRAINED)
    panel = uncertainty_panel({"images": images, "captions": captions}, "true matches")
    write_analysis(PICTURES / "uncertainty.svg", "", [], [panel])
    names = (*POOLED, BY_PROBABILITY, *ATTENTION, "de-i2t", "de-t2t-i2t", "vse++-short", "scan-t2i-short")
    return "\n".join(
        [
            "## Tables of the retrieval systems",
            "Every recipe was trained on diorama's train split (`crossmatch train RECIPE --data diorama`, seed 0), the epoch was chosen "
            "on the val split, and the model was evaluated on the test split. Links are the five captions that were written for a "
            "scene; the truth is whether a caption is true of a scene. Intervals are over images and trials of one training. Another "
            "seed may change a number by more.\n",
            excerpt(
                models_table(folder, results, names), "zoo-models", rows=lambda row: row[0] in MAIN_MODELS, columns=MAIN_COLUMNS
            ),
            "\n`training` is epochs x images, and the batch size.\n",
            "### Region attention against pooling",
            "Paired differences with 95 % intervals. SGR, SAF and the models with `-short` had the same training: one epoch with "
            "batches of 32.\n",
            excerpt(difference_table(results), "zoo-attention", columns=(*MAIN_COLUMNS, "BISON")),
            "\n### Was the training long enough?",
            "The validation score is the sum of six hit rates, at most 600.\n",
            markdown(validation_table(folder)),
            "\n### Which negatives are used",
            "VSE with the hinge loss over all negatives of a batch (all), over the nearest negative that scores below the positive "
            "(semi-hard), or over the nearest negative (hardest). Mean of three seeds [lowest, highest], or one seed.\n",
            markdown(mining_table(results)),
            "\n### Dual encoders, as in Crisscrossed Captions",
            "R@1 by what is true of a scene (i2t, t2i) and by graded similarity (t2t from grade 3, i2i from grade 2.5), and Spearman's "
            "r with the grades.\n",
            markdown(crisscrossed_table(results)),
            "\n### TIGEr with a trained SCAN",
            "Captions of known quality, as in the table above with the small grounding model:\n",
            markdown(grounder_table(folder)),
            "\n### Is PCME less certain about items with more matches?",
            f"Spearman's r of its uncertainty with the number of true matches is {format_spearman(images)} for images and "
            f"{format_spearman(captions)} for captions. For the same network after five steps it is "
            f"{format_spearman(untrained_images)} and {format_spearman(untrained_captions)}.\n",
            "![PCME's uncertainty against the number of true matches](pictures/uncertainty.svg)",
            "",
        ]
    )


def main(folder: Path) -> None:
    require_block(RESULTS, "zoo")
    results = run_jobs(folder, JOBS) | {BY_PROBABILITY: evaluate_by_probability(folder)}
    replace_block(RESULTS, "zoo", page(folder, results))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/zoo"))
