"""Train a recipe, and the one that it begins with, in processes that are killed: `python interrupted_begin.py FOLDER RECIPE`.

Like `interrupted.py`. FOLDER contains the toy data in SCAN's layout as `toy`; CLIP is trained on a few scenes of the embedded world.
The steps of both stages are counted together: 12 of the first, if there is one, and 8 of the second.
"""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import interrupted
from interrupted import after, at_step, die, in_a_process

from crossmatch.models.files.model_folder import hash_weights
from crossmatch.train import run_recipe
from crossmatch.train.data.sources import DataOptions

FIRST = 12  # steps: 80 captions, 20 at a time, in 3 epochs; as many of 60 captions, 15 at a time
SMALL = ("model.dimensions=16", "model.word_dimensions=8", "train.fewest=1", "train.batch=20", "train.epochs=2")
BEGIN = ("begin.train.epochs=3", "begin.train.learning_rate=2e-2")
TINY = ("model.dimensions=16", "model.image_width=16", "model.text_width=16", "model.image_layers=1", "model.text_layers=1",
        "features.kind=pixels", "features.side=16", "train.images=12", "train.validation=4", "train.batch=3", "train.epochs=2",
        "begin.train.batch=15", "begin.train.epochs=3")  # fmt: skip
IN_FIRST = {
    "in the first": [at_step(6)],
    "before the first has its name": [lambda: setattr(run_recipe, "_save", die)],
    "before the first step of the second": [at_step(FIRST + 1)],
    "in both": [at_step(3), at_step(7), at_step(6), at_step(3)],
}


def in_last(first: int) -> dict:
    return {
        "in the last": [at_step(first + 6)],
        "before the last has its name": [lambda: setattr(run_recipe, "_save", after(1 + bool(first), run_recipe._save))],
    }


@dataclass(frozen=True)
class Case:
    data: str
    words: tuple[str, ...]
    moments: dict


CASES = {
    "show-tell-scst": Case("precomp:toy", (*SMALL, *BEGIN, "begin.train.batch=20"),
                           {**IN_FIRST, **in_last(FIRST)}),
    "updown": Case("precomp:toy", (*SMALL, "model.attention=8", "train.learning_rate=2e-2"), in_last(0)),
    "clip-hard-pairs": Case("diorama", TINY, {"in the first": IN_FIRST["in the first"], **in_last(FIRST)}),
}  # fmt: skip


def train(folder: Path, recipe: str, every: float) -> None:
    case = CASES[recipe]
    data = case.data.replace("toy", str(folder.parent / "toy"))
    model = run_recipe.train_recipe(recipe, folder, data=data, overrides=case.words, options=DataOptions(size="tiny"), every=every)
    begin = model.recipe.get("begin", {}).get("weights", "")
    report = {"weights": hash_weights(model.net), "base": begin, "validation": model.recipe["validation"]}
    (folder / "end.json").write_text(json.dumps(report))


def logged(path: Path) -> list[dict[str, str]]:
    """The rows of a log without the seconds."""
    with path.open(newline="") as file:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def main(home: Path, recipe: str) -> None:
    torch.set_num_threads(1)
    interrupted.train = lambda folder, every: train(folder, recipe, every)
    train(home / "before", recipe, 0.0)  # imports everything before the processes are forked
    for name, plans in {"never": [], **CASES[recipe].moments}.items():
        folder = home / name
        ends = [in_a_process(folder, prepare, 0.0) for prepare in plans]
        ends.append(in_a_process(folder, lambda: None, 0.0))
        logs = [logged(path) for path in (folder / "begin/log.csv", folder / "log.csv") if path.exists()]
        report = {"moment": name, "ends": ends, "end": json.loads((folder / "end.json").read_text()), "logs": logs}
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
