"""The demo: train and evaluate a model on diorama, and write a report. Finished parts are reused."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from crossmatch.benchmarks import load_benchmark_data, resolve_task
from crossmatch.cli.run import run_tables
from crossmatch.data.benchmark import LoadedData, Retrieval, data_hash
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.result import Result, load_result, result_path, save_result
from crossmatch.data.signature import system_signature
from crossmatch.data.trials import Trials
from crossmatch.evaluation.controls import load_with_alterations
from crossmatch.evaluation.evaluate import evaluate_all
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
    data = load_benchmark_data(RETRIEVAL_TASK, **options)
    assert isinstance(data, Retrieval)
    trial_names = () if size in SIZES_WITHOUT_TRIALS else TRIAL_TASKS
    trial_tasks = [(name, load_benchmark_data(name, **options)) for name in trial_names]
    trial_count = sum(len(trials.ids) for _, trials in trial_tasks if isinstance(trials, Trials))
    images, captions = data.collection.shape
    _show_step(f"1/3 diorama with {images:,} scenes, {captions:,} captions and {trial_count:,} forced choices", start)
    dual_encoder = train_dual(folder / "dual", **TINY_TRAINING) if size == "tiny" else train_dual(folder / "dual")
    _show_step(f"2/3 a small dual encoder, trained on other scenes: {folder / 'dual'}", start)
    results_folder = folder / "results"
    results = []
    for name, model in (("random", RandomScorer()), ("dual", dual_encoder), ("oracle", Oracle())):
        results += _evaluate_or_load(results_folder, name, model, [(RETRIEVAL_TASK, data), *trial_tasks], options)
    if trial_tasks:
        altered_tasks = load_with_alterations(TRIAL_TASKS[0], options)[1:]
        results += _evaluate_or_load(results_folder, "dual", dual_encoder, altered_tasks, options)
        for scorer in GATE_SCORERS:
            results += _evaluate_or_load(results_folder, f"gate:{scorer.name}", scorer, trial_tasks, options)
    _show_step(f"3/3 evaluated, with a random scorer, an oracle and the gate scorers: {results_folder}", start)
    return results


def _evaluate_or_load(
    folder: Path, name: str, model: Any, tasks: list[tuple[str, LoadedData]], options: dict[str, Any]
) -> list[Result]:
    """The results of a model on these tasks. Results of an earlier run of the same model, data and version are loaded."""
    results: dict[str, Result] = {}
    for task, data in tasks:
        benchmark, benchmark_options = resolve_task(task, options)
        changed = {key: value for key, value in benchmark_options.items() if value != benchmark.options.get(key)}
        path = result_path(folder, name, benchmark.name, changed)
        earlier = _load_if_same(path, system_signature(name, model.signature), data_hash(data))
        if earlier is not None:
            results[task] = earlier
    remaining = [(task, data) for task, data in tasks if task not in results]
    if remaining:
        names, loaded = [task for task, _ in remaining], [data for _, data in remaining]
        for task, result in zip(names, evaluate_all(model, names, name=name, data=loaded, **options), strict=True):
            save_result(result, folder)
            results[task] = result
    return [results[task] for task, _ in tasks]


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
