"""Train the toy in processes that are killed: `python interrupted.py FOLDER`. Prints one json line for each moment.

Each moment has a folder of its own. A process trains in it and kills itself there with signal 9; others go on in the same way, and
the last one ends. They are forked, so that torch is imported once.
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
from toy import model_of, sampled, toy

from crossmatch.core import whole
from crossmatch.models.folder import weights_of
from crossmatch.train import checkpoints, loop
from crossmatch.train.recipe import TrainSettings

SETTINGS = TrainSettings(
    optimiser="adamw", weight_decay=0.01, learning_rate=3e-2, batch=20, epochs=3, schedule="one-cycle", clip=10.0, pairs="captions",
)  # fmt: skip
OPTIONS = {"margin": 0.2, "warm_up": 0.6}
IDENTITY = checkpoints.Identity("recipe", "data")


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def after(count, function, then=die):
    """The function, but its call number `count` ends the process instead."""
    calls = []

    def call(*given, **named):
        calls.append(0)
        return then(*given, **named) if len(calls) == count else function(*given, **named)

    return call


def half_a_file(count):
    """Kill in the middle of writing checkpoint number `count`."""

    class Half:
        def __init__(self, file):
            self.file = file

        def write(self, content):
            self.file.write(content[: len(content) // 2])
            self.file.flush()
            if len(content) > 1000:  # not yet in the line of text at its beginning
                die()

    from contextlib import contextmanager

    true, calls = whole.whole_file, []

    @contextmanager
    def whole_file(path, **options):
        with true(path, **options) as file:
            calls.append(0)
            yield Half(file) if len(calls) == count else file

    checkpoints.whole_file = whole_file


def at_step(count):
    return lambda: setattr(loop, "_stepped", after(count, loop._stepped))


MOMENTS = {
    "first step": [at_step(1)],
    "mid-epoch": [at_step(3)],
    "second epoch": [at_step(9)],
    "half a checkpoint": [lambda: half_a_file(4)],
    "half the first checkpoint": [lambda: half_a_file(1)],
    "before it has its name": [lambda: setattr(os, "replace", after(5, os.replace))],
    "validation": [lambda: setattr(loop, "judged", after(2, loop.judged))],
    "before the log": [lambda: setattr(loop, "write_log", after(1, loop.write_log))],
    "the end": [lambda: setattr(loop, "require_finite", die)],
    "again and again": [at_step(2), at_step(2), lambda: half_a_file(2), at_step(5), at_step(1)],
}


def train(folder: Path, every: float) -> None:
    data = toy(40, 0)
    model = model_of(data)
    training = loop.Training(model, sampled, OPTIONS, data, toy(20, 1), SETTINGS)
    with checkpoints.alone(folder):
        state = loop.fit(training, checkpoints.Checkpoints(folder, IDENTITY), every=every)
    last = torch.load(io.BytesIO(max((folder / "checkpoints").iterdir()).read_bytes().partition(b"\n")[2]))
    told = [digest(last[name]) for name in ("net", "optimiser", "chance")]
    (folder / "end.json").write_text(json.dumps([weights_of(model.net), state.best, state.best_epoch, *told]))


def digest(thing) -> str:
    """Of all tensors and numbers in it, bit for bit."""
    if isinstance(thing, dict):
        return digest([part for pair in thing.items() for part in pair])
    if isinstance(thing, list | tuple):
        return hashlib.sha256("".join(map(digest, thing)).encode()).hexdigest()[:12]
    return hashlib.sha256(thing.numpy().tobytes() if isinstance(thing, torch.Tensor) else repr(thing).encode()).hexdigest()


def in_a_process(folder: Path, prepare, every: float) -> int:
    """The signal that ended it."""
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
    train(home / "before", 0.0)  # here: all that is imported late is then there for the processes to come
    for name, plans in {"never": [], "never, few checkpoints": [], **MOMENTS}.items():
        folder = home / name
        every = 1000.0 if "few" in name else 0.0
        ends = [in_a_process(folder, prepare, every) for prepare in plans]
        ends.append(in_a_process(folder, lambda: None, every))
        log = (folder / "log.csv").read_text().splitlines()
        told = {"moment": name, "ends": ends, "end": json.loads((folder / "end.json").read_text()), "log": log}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
