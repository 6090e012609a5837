"""Train and evaluate the models of the results pages: two at a time, each on one core; finished ones are not repeated."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crossmatch as cm
from crossmatch.data.result import load_results
from crossmatch.models import make_model

CROSSMATCH = [sys.executable, "-c", "from crossmatch.cli import main; main()"]
Results = Mapping[str, Mapping[str, cm.Result]]  # by model and task


@dataclass(frozen=True)
class Job:
    """A model to train on diorama, and the tasks to evaluate it on."""

    name: str
    recipe: str
    tasks: tuple[str, ...]
    settings: tuple[str, ...] = ()
    seed: int = 0
    begin: str = ""  # the job whose model this one starts from


def run_crossmatch(*words: object, **options: Any) -> None:
    """Run a command as on the command line; a failure stops the script."""
    subprocess.run([*CROSSMATCH, *map(str, words)], check=True, **options)


def settings_options(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def run_job(folder: Path, job: Job) -> dict[str, cm.Result]:
    """Train a model unless it is finished, and return its results by task."""
    options = settings_options(job.settings)
    if job.begin:
        options += ["--begin", str(folder / "models" / job.begin)]
    model = folder / "models" / job.name
    run_crossmatch("train", job.recipe, "--data", "diorama", "-o", model, "--seed", job.seed, *options)
    return evaluate_model(folder, job.name, job.tasks)


def evaluate_model(folder: Path, name: str, tasks: Sequence[str]) -> dict[str, cm.Result]:
    """The results of a trained model by task; saved results of the same weights are not computed again."""
    model, output = folder / "models" / name, folder / "results" / name
    loaded: Any = make_model(str(model))
    saved = {result.task: result for result in load_results([output])} if output.is_dir() else {}
    missing = [task for task in tasks if task not in saved or loaded.signature not in saved[task].system]
    if missing:
        run_crossmatch("run", "-m", model, "--name", name, "-t", ",".join(missing), "-o", output, stdout=subprocess.DEVNULL)
    return {result.task: result for result in load_results([output])}


def load_train_settings(folder: Path, name: str) -> dict[str, Any]:
    """The table `train` of the recipe of a trained model."""
    settings: dict[str, Any] = json.loads((folder / "models" / name / "model.json").read_text())["recipe"]["train"]
    return settings


def run_jobs(folder: Path, jobs: Sequence[Job]) -> dict[str, dict[str, cm.Result]]:
    """The results of all jobs by name; a job that starts from another one runs after it."""
    results: dict[str, dict[str, cm.Result]] = {}
    waiting = list(jobs)
    while waiting:
        ready = [job for job in waiting if not job.begin or job.begin in results]
        if not ready:
            raise SystemExit(f"{waiting[0].name} starts from {waiting[0].begin}, but no job trains it. Add the job.")
        with ThreadPoolExecutor(2) as pool:
            results |= zip((job.name for job in ready), pool.map(lambda job: run_job(folder, job), ready), strict=True)
        waiting = [job for job in waiting if job.name not in results]
    return results
