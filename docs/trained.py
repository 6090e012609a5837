"""Trainings for the results pages: made two at a time, each on one core, and not again where they are finished."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import crossmatch as cm
from crossmatch.core.result import load_all
from crossmatch.models import make_model

RUN = [sys.executable, "-c", "from crossmatch.cli import main; main()"]


@dataclass(frozen=True)
class Job:
    """A model to train on the embedded world, and what it is evaluated on."""

    name: str
    recipe: str
    tasks: tuple[str, ...]
    set: tuple[str, ...] = ()
    seed: int = 0
    begin: str = ""  # the job whose model it begins with


def made(folder: Path, job: Job) -> dict[str, cm.Result]:
    """The results of a job, by task; a model that is finished is not trained again."""
    words = [word for each in job.set for word in ("--set", each)]
    words += ["--begin", str(folder / "models" / job.begin)] if job.begin else []
    model = str(folder / "models" / job.name)
    subprocess.run([*RUN, "train", job.recipe, "--data", "diorama", "-o", model, "--seed", str(job.seed), *words], check=True)
    return evaluated(folder, job.name, job.tasks)


def evaluated(folder: Path, name: str, tasks: Sequence[str]) -> dict[str, cm.Result]:
    """The results of a trained model, by task; those of the very same model are kept."""
    model, results = folder / "models" / name, folder / "results" / name
    loaded: Any = make_model(str(model))
    system = loaded.signature
    found = {result.task: result for result in load_all([results])} if results.is_dir() else {}
    absent = [task for task in tasks if task not in found or system not in found[task].system]
    if absent:
        words = ["run", "-m", str(model), "--name", name, "-t", ",".join(absent), "-o", str(results)]
        subprocess.run([*RUN, *words], check=True, stdout=subprocess.DEVNULL)
    return {result.task: result for result in load_all([results])}


def recipe_of(folder: Path, name: str) -> dict[str, Any]:
    """By what recipe a model was trained."""
    told: dict[str, Any] = json.loads((folder / "models" / name / "model.json").read_text())["recipe"]
    return told


def all_made(folder: Path, jobs: Sequence[Job]) -> dict[str, dict[str, cm.Result]]:
    """The results of all jobs by name; those that begin with others come after them."""
    found: dict[str, dict[str, cm.Result]] = {}
    left = list(jobs)
    while left:
        ready = [job for job in left if not job.begin or job.begin in found]
        if not ready:
            raise SystemExit(f"{left[0].name} begins with {left[0].begin}, which no job makes. Add the job.")
        with ThreadPoolExecutor(2) as pool:
            found |= zip((job.name for job in ready), pool.map(lambda job: made(folder, job), ready), strict=True)
        left = [job for job in left if job.name not in found]
    return found
