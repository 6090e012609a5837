"""The demo: train and evaluate a model on diorama, and write a report. Finished parts are reused."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from crossmatch.cli.run import run_tables
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.loaded_data import data_hash
from crossmatch.data.result import Result, load_result, result_path, save_result
from crossmatch.data.signature import system_signature
from crossmatch.evaluation.controls import load_with_alterations
from crossmatch.evaluation.data_shapes import shape_of
from crossmatch.evaluation.evaluate import evaluate_all
from crossmatch.evaluation.plan import Task, load_task
from crossmatch.report.html_report import write_report
from crossmatch.report.tables import format_table

RETRIEVAL_TASK = "diorama/retrieval"
TRIAL_TASKS = ("diorama/bison", "diorama/bivlc", "diorama/sugarcrepe")
SIZES_WITHOUT_TRIALS = ("coco",)  # drawing the trials would take longer than the rest of the demo
TINY_TRAINING: dict[str, Any] = {"images": 200, "epochs": 2}  # enough to run every step, but not to learn much


def run_demo(folder: Path, size: str) -> None:
    """Train, evaluate, print the tables and write the report."""
    results = evaluate_demo(folder, size)
    click.echo("\n" + "\n\n".join(map(format_table, run_tables(results))) + "\n")
    click.echo(f"report: {write_report(results, folder / 'report.html').resolve()}")


def evaluate_demo(folder: Path, size: str) -> list[Result]:
    """The results of a random scorer, a trained dual encoder, an oracle, altered queries and the gate."""
    from crossmatch.models.baselines.gate_scorers import GATE_SCORERS
    from crossmatch.models.baselines.random_and_oracle import Oracle, RandomScorer
    from crossmatch.train.small_dual_encoder import train_dual

    start = time.perf_counter()
    options: dict[str, Any] = {} if size == "default" else {"size": size}
    retrieval_task = load_task(RETRIEVAL_TASK, options)
    trial_tasks = [load_task(name, options) for name in (() if size in SIZES_WITHOUT_TRIALS else TRIAL_TASKS)]
    trial_count = sum(shape_of(task.data).item_count(task.data) for task in trial_tasks)
    shape = shape_of(retrieval_task.data)
    images, captions = len(shape.image_ids(retrieval_task.data)), shape.item_count(retrieval_task.data)
    _show_step(f"1/3 diorama with {images:,} scenes, {captions:,} captions and {trial_count:,} forced choices", start)
    dual_encoder = train_dual(folder / "dual", **TINY_TRAINING) if size == "tiny" else train_dual(folder / "dual")
    _show_step(f"2/3 a small dual encoder, trained on other scenes: {folder / 'dual'}", start)
    results_folder = folder / "results"
    results = []
    for name, model in (("random", RandomScorer()), ("dual", dual_encoder), ("oracle", Oracle())):
        results += _evaluate_or_load(results_folder, name, model, [retrieval_task, *trial_tasks])
    if trial_tasks:
        altered_tasks = load_with_alterations(TRIAL_TASKS[0], options)[1:]
        results += _evaluate_or_load(results_folder, "dual", dual_encoder, altered_tasks)
        for scorer in GATE_SCORERS:
            results += _evaluate_or_load(results_folder, f"gate:{scorer.name}", scorer, trial_tasks)
    _show_step(f"3/3 evaluated, with a random scorer, an oracle and the gate scorers: {results_folder}", start)
    return results


def _evaluate_or_load(folder: Path, name: str, model: Any, tasks: list[Task]) -> list[Result]:
    """The results of a model on these tasks. Results of an earlier run of the same model, data and version are loaded."""
    results: dict[str, Result] = {}
    for task in tasks:
        path = result_path(folder, name, task.benchmark.name, task.options)
        earlier = _load_if_same(path, system_signature(name, model.signature), data_hash(task.data))
        if earlier is not None:
            results[task.name] = earlier
    remaining = [task for task in tasks if task.name not in results]
    if remaining:
        for task, result in zip(remaining, evaluate_all(model, remaining, name=name), strict=True):
            save_result(result, folder)
            results[task.name] = result
    return [results[task.name] for task in tasks]


def _load_if_same(path: Path, system_line: str, hash_of_data: str) -> Result | None:
    from crossmatch import __version__

    try:
        result = load_result(path)
    except CrossmatchError:
        return None
    is_same = all(
        f"|data:{hash_of_data}|" in row.signature and row.signature.endswith(f"|v{__version__}") for row in result.rows
    )  # fmt: skip
    return result if is_same and result.system == system_line else None


def _show_step(message: str, start: float) -> None:
    click.echo(f"[{time.perf_counter() - start:5.1f} s] {message}", err=True)
