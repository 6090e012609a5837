"""Train a recipe that begins with another, in processes that are killed: `python interrupted_begin.py FOLDER`. As `interrupted.py`.

FOLDER has the toy in SCAN's layout as `toy`. Both trainings, the one that is begun with and the one that goes on from it, take
their steps in `loop._stepped`, which counts through: 12 of the first, 8 of the second.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import interrupted
from interrupted import after, at_step, die, in_a_process

from crossmatch.models.folder import weights_of
from crossmatch.train import zoo

SMALL = ("model.dimensions=16", "model.word_dimensions=8", "train.fewest=1", "train.batch=20", "begin.train.batch=20",
         "train.epochs=2", "begin.train.epochs=3", "begin.train.learning_rate=2e-2", "objective.longest=12")  # fmt: skip
FIRST, SECOND = 12, 8  # steps: 80 captions, 20 at a time, in 3 and 2 epochs
MOMENTS = {
    "in the first": [at_step(6)],
    "before the first has its name": [lambda: setattr(zoo, "_save", die)],
    "before the first step of the second": [at_step(FIRST + 1)],
    "in the second": [at_step(FIRST + 6)],
    "before the second has its name": [lambda: setattr(zoo, "_save", after(2, zoo._save))],
    "in both": [at_step(3), at_step(7), at_step(6), at_step(3)],
}


def train(folder: Path, every: float) -> None:
    model = zoo.train_zoo("show-tell-scst", folder, data=f"precomp:{folder.parent / 'toy'}", overrides=SMALL, every=every)
    told = {"weights": weights_of(model.net), "base": model.recipe["begin"]["weights"], "validation": model.recipe["validation"]}
    (folder / "end.json").write_text(json.dumps(told))


def main(home: Path) -> None:
    torch.set_num_threads(1)
    interrupted.train = train
    train(home / "before", 0.0)  # all that is imported late is then there
    for name, plans in {"never": [], **MOMENTS}.items():
        folder = home / name
        ends = [in_a_process(folder, prepare, 0.0) for prepare in plans]
        ends.append(in_a_process(folder, lambda: None, 0.0))
        logs = [(folder / path).read_text().count("\n") for path in ("begin/log.csv", "log.csv")]
        told = {"moment": name, "ends": ends, "end": json.loads((folder / "end.json").read_text()), "logs": logs}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
