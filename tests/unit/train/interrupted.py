"""Train the toy in processes that are killed: `python interrupted.py FOLDER`. Prints one json line for each moment.

Each moment has its own folder. A process trains in it and kills itself with signal 9; others resume in the same way, until the last
one finishes. They are forked, so that torch is imported once.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from toy import noisy_hinge, toy_data, toy_model

from crossmatch.data.io import atomic_write
from crossmatch.models.files.model_folder import hash_weights
from crossmatch.train import checkpoints, loop, output_folder, zoo_training
from crossmatch.train.recipe import TrainSettings

SETTINGS = TrainSettings(
    optimiser="adamw", weight_decay=0.01, learning_rate=3e-2, batch=20, epochs=3, schedule="one-cycle", clip=10.0, pairs="captions",
)  # fmt: skip
IDENTITY = checkpoints.TrainingIdentity("recipe", "data")


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def after(count, function, then=die):
    """Return the function, except that its call number `count` kills the process."""
    calls = []

    def call(*arguments, **options):
        calls.append(0)
        return then(*arguments, **options) if len(calls) == count else function(*arguments, **options)

    return call


def half_a_file(count):
    """Kill in the middle of writing checkpoint number `count`."""

    class Half:
        def __init__(self, file):
            self.file = file

        def write(self, content):
            self.file.write(content[: len(content) // 2])
            self.file.flush()
            if len(content) > 1000:  # not in the header
                die()

    from contextlib import contextmanager

    true, calls = atomic_write.atomic_write, []

    @contextmanager
    def whole_file(path, **options):
        with true(path, **options) as file:
            calls.append(0)
            yield Half(file) if len(calls) == count else file

    checkpoints.atomic_write = whole_file


def at_step(count):
    return lambda: setattr(loop, "_descend", after(count, loop._descend))


MOMENTS = {
    "first step": [at_step(1)],
    "mid-epoch": [at_step(3)],
    "second epoch": [at_step(9)],
    "half a checkpoint": [lambda: half_a_file(4)],
    "half the first checkpoint": [lambda: half_a_file(1)],
    "before it has its name": [lambda: setattr(os, "replace", after(5, os.replace))],
    "validation": [lambda: setattr(zoo_training, "validate", after(2, zoo_training.validate))],
    "before the log": [lambda: setattr(loop, "write_log", after(1, loop.write_log))],
    "the end": [lambda: setattr(loop, "require_finite", die)],
    "again and again": [at_step(2), at_step(2), lambda: half_a_file(2), at_step(5), at_step(1)],
}


def train(folder: Path, every: float) -> None:
    data = toy_data(40, 0)
    model = toy_model(data)
    training = zoo_training.ZooTraining(model, noisy_hinge, data, toy_data(20, 1), SETTINGS)
    with output_folder.lock_folder(folder):
        state = loop.fit(training, checkpoints.Checkpoints(folder, IDENTITY), every=every)
    last = torch.load(io.BytesIO(max((folder / "checkpoints").iterdir()).read_bytes().partition(b"\n")[2]))
    digests = [digest(last[name]) for name in ("net", "optimiser", "chance")]
    (folder / "end.json").write_text(json.dumps([hash_weights(model.net), state.best, state.best_epoch, *digests]))


def digest(value) -> str:
    """Hash of all tensors and numbers."""
    if isinstance(value, dict):
        return digest([part for pair in value.items() for part in pair])
    if isinstance(value, list | tuple):
        return hashlib.sha256("".join(map(digest, value)).encode()).hexdigest()[:12]
    return hashlib.sha256(value.numpy().tobytes() if isinstance(value, torch.Tensor) else repr(value).encode()).hexdigest()


def in_a_process(folder: Path, prepare, every: float) -> int:
    """Train in a forked process, and return the signal that ended it."""
    child = os.fork()
    if not child:
        try:
            prepare()
            train(folder, every)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return status if os.WIFSIGNALED(status) else -os.waitstatus_to_exitcode(status)


def main(home: Path) -> None:
    torch.set_num_threads(1)
    train(home / "before", 0.0)  # imports everything before the processes are forked
    for name, plans in {"never": [], "never, few checkpoints": [], **MOMENTS}.items():
        folder = home / name
        every = 1000.0 if "few" in name else 0.0
        ends = [in_a_process(folder, prepare, every) for prepare in plans]
        ends.append(in_a_process(folder, lambda: None, every))
        log = (folder / "log.csv").read_text().splitlines()
        report = {"moment": name, "ends": ends, "end": json.loads((folder / "end.json").read_text()), "log": log}
        print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
