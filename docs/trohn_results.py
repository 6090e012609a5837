"""TROHN from start to end in the results pages: recipes write hard negatives, and a small CLIP is fine-tuned with them."""

from __future__ import annotations

from pathlib import Path

import crossmatch as cm
from blocks import markdown
from crossmatch.report.tables import Table, format_row
from training_jobs import evaluate_model, run_crossmatch, settings_options

CAPTIONS = 1500
BASE = "clip"
RECIPES = {"trohn-text": "clip-hard-texts", "trohn-img": "clip-hard-pairs"}  # recipe of the data, recipe of the training
TASKS = ("diorama/sugarcrepe", "diorama/bivlc")
COLUMNS = (
    ("SugarCrepe", TASKS[0], "accuracy"),
    ("I2T", TASKS[1], "i2t"),
    ("T2I", TASKS[1], "t2i"),
    ("Group", TASKS[1], "group"),
)
SETTINGS = ("train.learning_rate=5e-4", "train.batch=100", "train.epochs=6")  # those of the recipes on diorama


def fine_tune(folder: Path, name: str) -> dict[str, cm.Result]:
    """Build the data of a recipe, fine-tune the base model with them, and return its results."""
    output = folder / "trohn" / name
    run_crossmatch("build", "recipe", name, "--data", "diorama:default/train", "--captions", CAPTIONS, "-o", output)
    data = ["--data", f"collection:{output / 'training' / 'collection'}", "--negatives", negatives_file(folder, name)]
    model = folder / "models" / f"{BASE}-{name}"
    begin = folder / "models" / BASE
    run_crossmatch("train", RECIPES[name], *data, "--begin", begin, "-o", model, *settings_options(SETTINGS))
    return evaluate_model(folder, model.name, TASKS)


def negatives_file(folder: Path, name: str) -> Path:
    return folder / "trohn" / name / "training" / "negatives.jsonl"


def models_table(folder: Path) -> Table:
    base = evaluate_model(folder, BASE, TASKS)
    rows = [
        ("chance", "", *(f"{base[task][key].chance:.1f}" for _, task, key in COLUMNS)),
        ("base", "", *(format_row(base[task][key]) for _, task, key in COLUMNS)),
    ]
    for name in RECIPES:
        results = fine_tune(folder, name)
        pairs = len(negatives_file(folder, name).read_text(encoding="utf-8").splitlines())
        rows.append((name, f"{pairs:,}", *(format_row(results[task][key]) for _, task, key in COLUMNS)))
    return Table("", (("", "pairs", *(label for label, *_ in COLUMNS)),), tuple(rows), 2)


def section(folder: Path) -> str:
    return "\n".join(
        [
            "### TROHN from start to end",
            f"`build recipe trohn-text` and `trohn-img` on {CAPTIONS:,} captions of the train split, with edits of diorama as "
            "negatives. Then `train clip-hard-texts` and `clip-hard-pairs` fine-tune the small CLIP of this page with their files. "
            "One seed; intervals over trials.\n",
            markdown(models_table(folder)),
            "",
        ]
    )
