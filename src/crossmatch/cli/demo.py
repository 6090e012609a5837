"""The demo: everything on the embedded world, ends with a report. What is already built is used again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from crossmatch.benchmarks import benchmark_named, load_data
from crossmatch.cli.show import run_tables
from crossmatch.core.benchmark import Loaded, Retrieval, data_hash
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.result import Result, load, result_path, save
from crossmatch.core.signature import system
from crossmatch.core.trials import Trials
from crossmatch.report.html import write_report
from crossmatch.report.tables import as_text
from crossmatch.run import evaluate_all, with_alterations

TASK = "diorama/retrieval"
CHOICES = ("diorama/bison", "diorama/bivlc", "diorama/sugarcrepe")
LARGE = ("coco",)  # sizes whose trials would take longer to draw than the rest of the demo
TINY: dict[str, Any] = {"images": 200, "epochs": 2}  # enough to see every step work, not to learn much


def run_demo(folder: Path, size: str) -> None:
    """Train, evaluate, print, report."""
    results = evaluate_demo(folder, size)
    click.echo("\n" + "\n\n".join(map(as_text, run_tables(results))) + "\n")
    click.echo(f"report: {write_report(results, folder / 'report.html').resolve()}")


def evaluate_demo(folder: Path, size: str) -> list[Result]:
    """The results of a random scorer, a dual encoder trained on drawings, an oracle; altered queries and the gate."""
    from crossmatch.models.gate import GATE
    from crossmatch.models.reference import Oracle, RandomScorer
    from crossmatch.train.dual import train_dual

    begun = time.perf_counter()
    options: dict[str, Any] = {} if size == "default" else {"size": size}
    data = load_data(TASK, **options)
    assert isinstance(data, Retrieval)
    choices = [] if size in LARGE else [(name, load_data(name, **options)) for name in CHOICES]
    trials = sum(len(held.ids) for _, held in choices if isinstance(held, Trials))
    images, captions = data.collection.shape
    _say(f"1/3 a world of {images:,} scenes and {captions:,} captions, and {trials:,} forced choices", begun)
    dual = train_dual(folder / "dual", **TINY) if size == "tiny" else train_dual(folder / "dual")
    _say(f"2/3 a small dual encoder, trained on other scenes: {folder / 'dual'}", begun)
    kept = folder / "results"
    results = []
    for name, model in (("random", RandomScorer()), ("dual", dual), ("oracle", Oracle())):
        results += _evaluated(kept, name, model, [(TASK, data), *choices], options)
    if choices:
        results += _evaluated(kept, "dual", dual, with_alterations(CHOICES[0], options)[1:], options)
        for scorer in GATE:
            results += _evaluated(kept, f"gate:{scorer.name}", scorer, choices, options)
    _say(f"3/3 evaluated beside a random scorer, an oracle and scorers that know nothing: {kept}", begun)
    return results


def _evaluated(kept: Path, name: str, model: Any, tasks: list[tuple[str, Loaded]], options: dict[str, Any]) -> list[Result]:
    """The results of a model on these tasks; those of an earlier run are used again."""
    found: dict[str, Result] = {}
    for task, data in tasks:
        declared, chosen = benchmark_named(task, options)
        told = {key: value for key, value in chosen.items() if value != declared.options.get(key)}
        result = _kept(result_path(kept, name, declared.name, told), system(name, model.signature), data_hash(data))
        if result is not None:
            found[task] = result
    left = [(task, data) for task, data in tasks if task not in found]
    if left:
        names, held = [task for task, _ in left], [data for _, data in left]
        for task, result in zip(names, evaluate_all(model, names, name=name, data=held, **options), strict=True):
            save(result, kept)
            found[task] = result
    return [found[task] for task, _ in tasks]


def _kept(path: Path, system_line: str, data: str) -> Result | None:
    """A result of an earlier run, if it is of the same model, data and version."""
    try:
        result = load(path)
    except CrossmatchError:
        return None
    from crossmatch import __version__

    same = all(f"|data:{data}|" in row.signature and row.signature.endswith(f"|v{__version__}") for row in result.rows)
    return result if same and result.system == system_line else None


def _say(message: str, begun: float) -> None:
    click.echo(f"[{time.perf_counter() - begun:5.1f} s] {message}", err=True)
