"""TROHN from end to end: recipes write hard negatives, and a small CLIP is trained further with them, in the results pages."""

# ruff: noqa: E501 - prose

from __future__ import annotations

import subprocess
from pathlib import Path

import crossmatch as cm
from crossmatch.report.tables import Table, value_with_error
from make_results import markdown
from trained import RUN, evaluated

CAPTIONS = 1500
BASE = "clip"
ARMS = {"trohn-text": "clip-hard-texts", "trohn-img": "clip-hard-pairs"}  # recipe of the data, recipe of the training
CHOICES = ("diorama/sugarcrepe", "diorama/bivlc")
KEYS = (
    ("SugarCrepe", CHOICES[0], "accuracy"),
    ("I2T", CHOICES[1], "i2t"),
    ("T2I", CHOICES[1], "t2i"),
    ("Group", CHOICES[1], "group"),
)
SETTINGS = ("train.learning_rate=5e-4", "train.batch=100", "train.epochs=6")  # as the recipes have it on the embedded world


def built(folder: Path, name: str) -> Path:
    """The data of a recipe, ready to train with."""
    output = folder / name
    subprocess.run(
        [*RUN, "build", "recipe", name, "--data", "diorama:default/train", "--captions", str(CAPTIONS), "-o", str(output)],
        check=True,
    )
    return output


def trained(folder: Path, name: str) -> dict[str, cm.Result]:
    """The base, trained further with these data, and its results."""
    made = built(folder / "trohn", name) / "training"
    words = [word for each in SETTINGS for word in ("--set", each)]
    model = folder / "models" / f"{BASE}-{name}"
    data = ["--data", f"collection:{made / 'collection'}", "--negatives", str(made / "negatives.jsonl")]
    subprocess.run(
        [*RUN, "train", ARMS[name], *data, "--begin", str(folder / "models" / BASE), "-o", str(model), *words], check=True
    )
    return evaluated(folder, model.name, CHOICES)


def section(folder: Path) -> str:
    found = {"base": evaluated(folder, BASE, CHOICES)} | {name: trained(folder, name) for name in ARMS}
    rows = []
    for name, results in found.items():
        if name == "base":
            pairs = ""
        else:
            file = folder / "trohn" / name / "training" / "negatives.jsonl"
            pairs = f"{sum(1 for _ in file.open(encoding='utf-8')):,}"
        rows.append((name, pairs, *(value_with_error(results[task][key]) for _, task, key in KEYS)))
    chance = ("chance", "", *(f"{found['base'][task][key].chance:.1f}" for _, task, key in KEYS))
    return "\n".join(
        [
            "### TROHN from end to end",
            f"`build recipe trohn-text` and `trohn-img` on {CAPTIONS:,} captions of the train split, by edits of the world; then `train clip-hard-texts` and `clip-hard-pairs` with their files, from the small CLIP of this page. One seed; intervals over trials.\n",
            markdown(Table("", (("", "pairs", *(head for head, *_ in KEYS)),), (chance, *rows), 2)),
            "",
        ]
    )
