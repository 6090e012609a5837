"""Write the part of docs/results.md on captioners, hard negatives and detectors, and its pictures.

python docs/make_training_results.py [FOLDER]   # FOLDER keeps the trained models and the results, `demo/trained` by default

Trains on the embedded world, two at a time, and evaluates on the test split. What is in FOLDER is not made again.
"""

# ruff: noqa: E501 - prose

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from scipy import stats

import crossmatch as cm
from blocks import replace_block
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.judge import Judged, judge
from crossmatch.diorama.world import CAPTIONS_PER_SCENE, Diorama
from crossmatch.models import make_model
from crossmatch.report.distribution import apart
from crossmatch.report.tables import Table, value_with_error
from crossmatch.report.variants import alteration_tables
from crossmatch.run import evaluate_all, with_alterations
from make_results import markdown
from trained import RUN, Job, all_made

HERE = Path(__file__).parent
SEEDS = range(3)
CAPTIONERS = {"ShowTell": "show-tell", "ShowAttTell": "show-att-tell", "UpDown": "updown"}
METRICS = ("bleu-4", "cider-d", "spice", "meteor", "tiger")
GROUNDER, MATCHER = "scan-t2i", "vse++"  # TIGEr's grounding model, and the retrieval model that captioners are compared with
CHOICES = ("diorama/bivlc", "diorama/sugarcrepe")
TUNED = {"base": "clip", "in-batch": "clip-in-batch", "hard texts": "clip-hard-texts", "hard pairs": "clip-hard-pairs"}
NOISE = (0.2, 0.4, 0.6)
FINER = ("ipos2t", "ineg2t", "tpos2i", "tneg2i")


def jobs() -> list[Job]:
    """Everything that is trained, what others begin with first."""
    told = [Job(name, name, ("diorama/bison",)) for name in CAPTIONERS.values()]
    told += [Job(f"{name}-scst", f"{name}-scst", ("diorama/bison",), begin=name) for name in CAPTIONERS.values()]
    matched = [Job(name, name, ("diorama/bison",)) for name in (GROUNDER, MATCHER)]
    tuned = [
        Job(f"{recipe}-{seed}", recipe, CHOICES, seed=seed, begin="" if recipe == "clip" else f"clip-{seed}")
        for recipe in TUNED.values()
        for seed in SEEDS
    ]
    noisy = [
        Job(noisy_name(share, seed), "clip-hard-pairs", CHOICES, (f"negatives.noise={share}",), seed, f"clip-{seed}")
        for share in NOISE
        for seed in SEEDS
    ]
    return [*told, *matched, *tuned, *noisy]


def noisy_name(share: float, seed: int) -> str:
    return f"clip-hard-pairs-{seed}" if not share else f"clip-hard-pairs-noise-{share}-{seed}"


# -- captioners


@cache
def world() -> Diorama:
    return Diorama.make("test")


def references() -> dict[str, tuple[str, ...]]:
    """The five captions of each scene of the test split."""
    texts = [caption.text for caption in world().captions]
    names = world().collection.image_ids.tolist()
    return {name: tuple(texts[CAPTIONS_PER_SCENE * n : CAPTIONS_PER_SCENE * (n + 1)]) for n, name in enumerate(names)}


def said_by(folder: Path, name: str) -> dict[str, str]:
    """What a captioner says of each scene of the test split."""
    file = folder / "captions" / f"{name}.json"
    if not file.exists():
        words = ["captions", "generate", "-m", str(folder / "models" / name), "--data", "diorama", "-o", str(file)]
        subprocess.run([*RUN, *words], check=True)
    return {row["image_id"]: row["caption"] for row in json.loads(file.read_text())}


def judged(folder: Path, name: str, said: Mapping[str, str], against: Mapping[str, tuple[str, ...]]) -> Judged:
    grounder = make_model(str(folder / "models" / GROUNDER))
    opener = world().collection.open_image
    return judge(name, Corpus.of(dict(said), dict(against)), METRICS, images=opener, grounder=grounder)


def by_people(folder: Path) -> Judged:
    """The first caption of each scene against the other four: what people would reach."""
    held = references()
    return judged(folder, "people", {name: five[0] for name, five in held.items()}, {name: five[1:] for name, five in held.items()})


def table_4(folder: Path, found: Mapping[str, Mapping[str, cm.Result]], scored: Mapping[str, Judged]) -> Table:
    """hu2019bison, Table 4: caption scores and BISON accuracy."""
    rows = []
    for label, name in CAPTIONERS.items():
        for way, each in (("cross-entropy", name), ("then SCST", f"{name}-scst")):
            rows.append((label, way, *scores_of(scored[each]), value_with_error(accuracy(found[each]))))
    oracle = cm.evaluate("oracle", "diorama/bison")
    rows.append(("people", "the first of five", *scores_of(by_people(folder)), "–"))
    rows.append(("oracle", "", *["–"] * len(METRICS), value_with_error(oracle["accuracy"])))
    return Table("", (("", "", *METRICS, "BISON"),), tuple(rows), 2)


def scores_of(one: Judged) -> list[str]:
    return [f"{100 * one.results[name].value:.1f}" for name in METRICS]


def accuracy(results: Mapping[str, cm.Result]) -> cm.core.result.Row:
    return results["diorama/bison"]["accuracy"]


def told_apart(found: Mapping[str, Mapping[str, cm.Result]], scored: Mapping[str, Judged]) -> Table:
    """hu2019bison, Figure 8: are a captioner's captions better where it chooses right? The AUC of each score, per trial."""
    rows = []
    for label, name in CAPTIONERS.items():
        result = found[f"{name}-scst"]["diorama/bison"]
        one = scored[f"{name}-scst"]
        trials = [str(trial) for trial in result.parts["all"].ids]
        of_trial = {
            metric: {trial: float(one.results[metric].scores.by_id[trial.partition("~")[0]]) for trial in trials}
            for metric in METRICS
        }
        cells = {each.score: f"{each.auc:.2f} [{each.low:.2f}, {each.high:.2f}]" for each in apart(result, of_trial) if each.auc}
        rows.append((label, *(cells[metric] for metric in METRICS)))
    return Table("", (("AUC", *METRICS),), tuple(rows), 1)


def alterations(folder: Path) -> list[Table]:
    """hu2019bison, Figures 9 and 15: altered queries."""
    tasks = with_alterations("diorama/bison", {})
    names, data = [name for name, _ in tasks], [data for _, data in tasks]
    results = []
    for name in (MATCHER, GROUNDER, "updown", "updown-scst"):
        results += evaluate_all(make_model(str(folder / "models" / name)), names, name=name, data=data)
    return [table for table, _ in alteration_tables(results)]


# -- hard negatives


def over_seeds(values: Sequence[float]) -> str:
    """The mean, and half of its 95 % interval by Student's t."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.1f} ± {half:.1f}"


def table_3(found: Mapping[str, Mapping[str, cm.Result]]) -> Table:
    """miranda2024bivlc, Tables 3 and 4: SugarCrepe, I2T, T2I, Group and the four finer choices."""
    heads = ("SugarCrepe", "I2T", "T2I", "Group", "Ipos2T", "Ineg2T", "Tpos2I", "Tneg2I")
    keys = (("diorama/sugarcrepe", "accuracy"), *(("diorama/bivlc", key) for key in ("i2t", "t2i", "group", *FINER)))
    rows = [(label, *(over_seeds([found[f"{recipe}-{seed}"][task][key].value for seed in SEEDS]) for task, key in keys))
            for label, recipe in TUNED.items()]  # fmt: skip
    return Table("", (("", *heads),), tuple(rows), 1)


def by_category(found: Mapping[str, Mapping[str, cm.Result]]) -> Table:
    """Group by category."""
    parts = [row.part for row in found["clip-0"]["diorama/bivlc"].rows if row.key.endswith("/group") and row.part != "all"]
    rows = [(label, *(over_seeds([found[f"{recipe}-{seed}"]["diorama/bivlc"][f"{part}/group"].value for seed in SEEDS])
                      for part in parts)) for label, recipe in TUNED.items()]  # fmt: skip
    return Table("", (("Group", *parts),), tuple(rows), 1)


def noise(found: Mapping[str, Mapping[str, cm.Result]]) -> Table:
    """What wrong negative images do to a model."""
    rows = []
    for share in (0.0, *NOISE):
        some = [found[noisy_name(share, seed)] for seed in SEEDS]
        cells = [over_seeds([one["diorama/bivlc"][key].value for one in some]) for key in ("i2t", "t2i", "group")]
        rows.append((f"{100 * share:.0f} %", *cells, over_seeds([one["diorama/sugarcrepe"]["accuracy"].value for one in some])))
    return Table("", (("wrong images", "I2T", "T2I", "Group", "SugarCrepe"),), tuple(rows), 1)


# -- detectors


def detectors(folder: Path) -> Table:
    """miranda2024bivlc, Table 5: detectors over the frozen towers of the base model and of the one tuned with hard pairs."""
    rows = []
    for label, model in (("base", "clip-0"), ("hard pairs", "clip-hard-pairs-0")):
        output = folder / "models" / f"detector-{model}"
        subprocess.run([*RUN, "train", "detector", "-m", str(folder / "models" / model), "-o", str(output)], check=True)
        results = {task: cm.evaluate(str(output), task) for task in CHOICES}
        told = "; ".join(results["diorama/bivlc"].notes)
        row = results["diorama/bivlc"]
        cells = [value_with_error(row[key]) for key in ("i2t", "t2i", "group")]
        rows.append((label, told, *cells, value_with_error(results["diorama/sugarcrepe"]["accuracy"])))
    return Table("", (("over", "detection", "I2T", "T2I", "Group", "SugarCrepe"),), tuple(rows), 2)


def page(folder: Path, found: Mapping[str, Mapping[str, cm.Result]]) -> str:
    names = [each for name in CAPTIONERS.values() for each in (name, f"{name}-scst")]
    scored = {name: judged(folder, name, said_by(folder, name), references()) for name in names}
    return "\n".join(
        [
            "## Captioners, hard negatives and detectors on the embedded world",
            "Trained on the train split, an epoch chosen by the validation split, evaluated on the test split (`crossmatch train RECIPE --data diorama`).\n",
            "### Captioners, before and after self-critical training",
            f"Beam search of width 5, each caption against the five of its scene; TIGEr with the trained `{GROUNDER}` as grounding model. All but BISON times 100.\n",
            markdown(table_4(folder, found, scored)),
            "\n### Is a caption better where its captioner chooses right?",
            "The AUC of the score of a captioner's own caption of the true image, for right against wrong trials of BISON: 0.5 says nothing.\n",
            markdown(told_apart(found, scored)),
            "\n### Altered queries",
            *(f"{markdown(table)}\n" for table in alterations(folder)),
            "### Hard negatives",
            f"Mean over {len(SEEDS)} seeds ± half of the 95 % interval by Student's t.\n",
            markdown(table_3(found)),
            "",
            markdown(by_category(found)),
            "\n### Wrong negative images",
            markdown(noise(found)),
            "\n### Detectors of the drawing style",
            markdown(detectors(folder)),
            "",
        ]
    )


def main(folder: Path) -> None:
    found = all_made(folder, jobs())
    replace_block(HERE / "results.md", "training", page(folder, found))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/trained"))
