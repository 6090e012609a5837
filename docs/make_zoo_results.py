"""Write the part of docs/results.md on the trained retrieval systems, and docs/pictures/uncertainty.svg.

python docs/make_zoo_results.py [FOLDER]        # FOLDER keeps the trained models and the results, `demo/zoo` by default

Trains every recipe on the embedded world, two at a time, and evaluates it on the test split. What is in FOLDER is not made again.
"""

# ruff: noqa: E501 - prose

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
from blocks import replace_block, require_block
from crossmatch.diorama.world import SIZES, Diorama
from crossmatch.models import make_model
from crossmatch.models.zoo.model import uncertainty_of_images, uncertainty_of_texts
from crossmatch.report.analysis_page import write
from crossmatch.report.tables import Table, value_with_error
from crossmatch.report.uncertainty_plot import Multiplicity, multiplicity, uncertainty_panel
from crossmatch.train.recipe import load_recipe
from make_caption_results import by_quality
from make_results import markdown
from trained import Job, all_made, evaluated, recipe_of

HERE = Path(__file__).parent
CHOICES = ("diorama/retrieval", "diorama/bison", "diorama/bivlc", "diorama/sugarcrepe")
GRADED = ("diorama/cxc", "diorama/sts", "diorama/sis", "diorama/sits")
SEEDS = range(3)
PROBABLE, HARDLY = "pcme-probability", "pcme-five-steps"


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
MINING = {"none": "vse0", "semi-hard": "vse-semi-hard", "hardest": "vse++"}
JOBS = (
    *(Job(name, name, (*CHOICES, *GRADED) if name in ("vse++", "vsrn") else CHOICES) for name in (*POOLED, *ATTENTION)),
    *(Job(name, name, tasks) for name, tasks in DUAL.items()),
    *(Job(f"{recipe}-{seed}", recipe, ("diorama/retrieval",), seed=seed) for recipe in MINING.values() for seed in SEEDS if seed),
    *(Job(f"{recipe}-at-once", recipe, ("diorama/retrieval",), ("objective.warm_up=0.0",)) for recipe in ("vse-semi-hard", "vse++")),
    Job(HARDLY, "pcme", CHOICES[:1], ("train.images=128", "train.epochs=1")),  # five steps, as what an untrained network says
    *(Job(f"{recipe}-short", recipe, CHOICES, ("train.batch=32", "train.epochs=1")) for recipe in ("vse++", "scan-t2i")),
)  # fmt: skip


def by_probability(folder: Path) -> dict[str, cm.Result]:
    """PCME with the same weights, but retrieval by the matching probability instead of the means."""
    model = folder / "models" / PROBABLE
    shutil.copytree(folder / "models" / "pcme", model, dirs_exist_ok=True)
    told = json.loads((model / "model.json").read_text())
    told["config"]["net"]["retrieval"] = "probability"
    (model / "model.json").write_text(json.dumps(told))
    return evaluated(folder, PROBABLE, CHOICES)


# -- the tables

COLUMNS = (
    ("i2t R@1, links", "diorama/retrieval", "i2t/links/hit@1"), ("t2i R@1, links", "diorama/retrieval", "t2i/links/hit@1"),
    ("i2t R@1, truth", "diorama/retrieval", "i2t/truth/hit@1"), ("t2i R@1, truth", "diorama/retrieval", "t2i/truth/hit@1"),
    ("i2t mAP@R, truth", "diorama/retrieval", "i2t/truth/map@r"), ("t2i mAP@R, truth", "diorama/retrieval", "t2i/truth/map@r"),
    ("BISON", "diorama/bison", "accuracy"), ("BiVLC I2T", "diorama/bivlc", "i2t"), ("BiVLC T2I", "diorama/bivlc", "t2i"),
    ("BiVLC Group", "diorama/bivlc", "group"), ("SugarCrepe", "diorama/sugarcrepe", "accuracy"),
)  # fmt: skip
SHOWN = ("vse++", "vse-infinity", "vsrn", "pcme", "scan-t2i", "sgr")
SHORT = ("i2t R@1, links", "t2i R@1, links", "t2i R@1, truth", "t2i mAP@R, truth", "BISON", "BiVLC Group", "SugarCrepe")
MINED = (("links/hit@1", "R@1, links"), ("truth/hit@1", "R@1, truth"), ("truth/map@r", "mAP@R, truth"))
PAIRED = (  # region attention, and what pools with as many steps on as many pairs, or with the best pooling
    ("scan-t2i", "vse++"), ("scan-t2i", "vse-infinity"), ("scan-i2t", "vse++"), ("scan-t2i-short", "vse++-short"),
    ("sgr", "vse++-short"), ("saf", "vse++-short"),
)  # fmt: skip
WAYS = ("i2t", "t2i", "t2t", "i2i")


def cell(results: Mapping[str, cm.Result], task: str, key: str) -> str:
    return value_with_error(results[task][key]) if task in results else "–"


def every_model(folder: Path, found: Mapping[str, Mapping[str, cm.Result]], names: Sequence[str]) -> Table:
    """BISON's Table 3 and ECCV's Table 4 in one, with how long each was trained."""
    rows = [(name, budget(folder, name), *(cell(found[name], task, key) for _, task, key in COLUMNS)) for name in names]
    return Table("", (("model", "training", *(head for head, *_ in COLUMNS)),), tuple(rows), 2)


def in_short(found: Mapping[str, Mapping[str, cm.Result]]) -> Table:
    """The README's table: one model of each kind, by links and by truth."""
    rows = [(name, *(cell(found[name], task, key) for head, task, key in COLUMNS if head in SHORT)) for name in SHOWN]
    return Table("", (("model", *(head for head, *_ in COLUMNS if head in SHORT)),), tuple(rows), 1)


def against_pooled(found: Mapping[str, Mapping[str, cm.Result]]) -> Table:
    """Region attention minus pooling, on the same queries and trials, with the interval of the difference."""
    rows = []
    for attention, pooled in PAIRED:
        sides = [[trimmed(found[name][task], key) for name in (pooled, attention)] for _, task, key in COLUMNS]
        gaps = [cm.compare(*both)[0].difference for both in sides]
        rows.append((f"{attention} − {pooled}", *(f"{gap.value:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]" for gap in gaps)))
    return Table("", (("", *(head for head, *_ in COLUMNS)),), tuple(rows), 1)


def trimmed(result: cm.Result, key: str) -> cm.Result:
    return replace(result, rows=(result[key],))


def budget(folder: Path, name: str) -> str:
    """Passes over how many images, and pairs of a batch."""
    told = recipe_of(folder, name)["train"]
    return f"{told['epochs']} x {told['images'] or SIZES['default']['train']:,}, {told['batch']}"


def learning(folder: Path) -> Table:
    """What validation said after each pass, for those of which it is asked whether they were trained for long enough."""
    rows = []
    for name in ("vse++", "vsrn", "de-i2t", "de-t2t-i2t"):
        with (folder / "models" / name / "log.csv").open() as file:
            rows.append((name, " · ".join(f"{float(row['sum']):.0f}" for row in csv.DictReader(file))))
    return Table("", (("model", "hits in validation, summed, after each pass"),), tuple(rows), 2)


def mining(found: Mapping[str, Mapping[str, cm.Result]]) -> Table:
    """VSE by which negatives count, three seeds of it, and once from the first step: by the links, and by the truth."""
    jobs: dict[str, list[str]] = {}
    for kind, recipe in MINING.items():
        late = "" if kind == "none" else f" after {100 * load_recipe(recipe).objective['warm_up']:.0f} % of the steps"
        jobs[f"{kind}{late}"] = [recipe if seed == 0 else f"{recipe}-{seed}" for seed in SEEDS]
    jobs |= {f"{kind} at once": [f"{MINING[kind]}-at-once"] for kind in ("semi-hard", "hardest")}
    rows = [
        (kind, *(_over_seeds([found[name]["diorama/retrieval"][f"{way}/{key}"].value for name in names])
                 for key, _ in MINED for way in WAYS[:2]))
        for kind, names in jobs.items()
    ]  # fmt: skip
    return Table("", (("negatives", *(f"{way} {head}" for _, head in MINED for way in WAYS[:2])),), tuple(rows), 1)


def _over_seeds(values: Sequence[float]) -> str:
    spread = f" [{min(values):.1f}, {max(values):.1f}]" if len(values) > 1 else ""
    return f"{np.mean(values):.1f}{spread}"


def crisscrossed(found: Mapping[str, Mapping[str, cm.Result]]) -> Table:
    """CxC's Tables 2 to 5: four retrieval tasks and three correlations."""
    rows = []
    for name in ("vse++", "vsrn", *DUAL):
        results = found[name]
        there = {row.part for row in results["diorama/cxc"].rows}
        retrieved = [cell(results, "diorama/cxc", f"{way}/hit@1") if way in there else "–" for way in WAYS]
        rows.append(
            (name, *retrieved, *(cell(results, f"diorama/{task}", "bootstrap-spearman") for task in ("sts", "sis", "sits")))
        )
    return Table("", (("model", *(f"{way} R@1" for way in WAYS), "STS", "SIS", "SITS"),), tuple(rows), 1)


def unsure(folder: Path, name: str = "pcme") -> tuple[Multiplicity, Multiplicity]:
    """PCME's uncertainty of images and of captions against how many captions and images are true of them."""
    world, model = Diorama.make("test"), make_model(str(folder / "models" / name))
    pictures = [world.picture(n) for n in range(len(world.scenes))]
    texts = [caption.text for caption in world.captions]
    owner = np.repeat(np.arange(len(pictures)), len(texts) // len(pictures))
    return (
        multiplicity(uncertainty_of_images(model, pictures), world.truth.sum(axis=1)),
        multiplicity(uncertainty_of_texts(model, texts), world.truth.sum(axis=0), cluster=owner),
    )


def spearman(found: Multiplicity) -> str:
    r = found.spearman
    return f"{r.value:.2f} [{r.low:.2f}, {r.high:.2f}]"


def grounded_by(folder: Path) -> Table:
    """TIGEr and its parts on captions of known quality, with each trained SCAN as the grounding model."""
    rows = []
    for name in ("scan-i2t", "scan-t2i"):
        _, order = by_quality(("tiger", "rrs", "wds"), grounder=make_model(str(folder / "models" / name)))
        rows += [(f"{row[0]}, {name}", *row[1:]) for row in order.rows]
    return Table("", order.head, tuple(rows), 1)


def page(folder: Path, found: Mapping[str, Mapping[str, cm.Result]]) -> str:
    (images, captions), hardly = unsure(folder), unsure(folder, HARDLY)
    write(
        HERE / "pictures" / "uncertainty.svg", "", [], [uncertainty_panel({"images": images, "captions": captions}, "true matches")]
    )
    return "\n".join(
        [
            "## Trained retrieval systems on the embedded world",
            "Every recipe, trained on diorama's train split by its validation images and evaluated on the test split (`crossmatch train RECIPE --data diorama`, seed 0). Links are the five captions that were written for a scene; the truth is whether a caption holds of a scene. Intervals are over images and trials, of one training each: another seed may differ by more.\n",
            markdown(
                every_model(folder, found, (*POOLED, PROBABLE, *ATTENTION, "de-i2t", "de-t2t-i2t", "vse++-short", "scan-t2i-short"))
            ),
            "\n### Region attention against pooling",
            "Paired differences with 95 % intervals. The models named short, SGR and SAF were trained alike: one pass, batches of 32.\n",
            markdown(against_pooled(found)),
            "\n### Was that long enough?\n",
            markdown(learning(folder)),
            "\n### Which negatives count",
            "VSE with the hinge loss over all negatives of a batch (none), over the nearest that is still farther than the true one (semi-hard) or over the nearest (hardest): mean of three seeds [lowest, highest], or one seed.\n",
            markdown(mining(found)),
            "\n### Dual encoders, as in Crisscrossed Captions",
            "R@1 by what is true of a scene (i2t, t2i) and by what two captions or two scenes share (t2t from grade 3, i2i from 2.5), and Spearman's r with the grades.\n",
            markdown(crisscrossed(found)),
            "\n### TIGEr with a trained SCAN",
            "Captions of known quality, as in the table above with the small grounding model:\n",
            markdown(grounded_by(folder)),
            "\n### Is PCME less sure of what has more matches?",
            f"Spearman's r of its uncertainty with the number of true matches: {spearman(images)} for images, {spearman(captions)} for captions. The same network after five steps: {spearman(hardly[0])} and {spearman(hardly[1])}.\n",
            "![PCME's uncertainty against the number of true matches](pictures/uncertainty.svg)",
            "",
        ]
    )


def main(folder: Path) -> None:
    require_block(HERE / "results.md", "zoo")
    found = all_made(folder, JOBS) | {PROBABLE: by_probability(folder)}
    replace_block(HERE / "results.md", "zoo", page(folder, found))
    replace_block(HERE.parent / "README.md", "zoo", markdown(in_short(found)))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/zoo"))
