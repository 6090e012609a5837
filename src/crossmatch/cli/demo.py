"""The demo: everything on the embedded world, ends with a report. What is already built is used again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from crossmatch.benchmarks import benchmarks
from crossmatch.core.benchmark import Retrieval, data_hash
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.result import Result, load, result_path, save
from crossmatch.core.signature import system
from crossmatch.report.html import write_report
from crossmatch.report.tables import as_text, results_table
from crossmatch.run import evaluate

TASK = "diorama/retrieval"
TINY: dict[str, Any] = {"images": 200, "epochs": 2}  # enough to see every step work, not to learn much


def run_demo(folder: Path, size: str) -> None:
    """Train, evaluate, print, report."""
    results = evaluate_demo(folder, size)
    click.echo("\n" + as_text(results_table(results)[0]) + "\n")
    click.echo(f"report: {write_report(results, folder / 'report.html').resolve()}")


def evaluate_demo(folder: Path, size: str) -> list[Result]:
    """The results of a random scorer, a dual encoder trained on drawings, and an oracle."""
    from crossmatch.models.reference import Oracle, RandomScorer
    from crossmatch.train.dual import train_dual

    begun = time.perf_counter()
    benchmark = benchmarks()[TASK]
    data = benchmark.loaded(size=size)
    assert isinstance(data, Retrieval)
    _say(f"1/3 a world of {data.collection.shape[0]:,} scenes and {data.collection.shape[1]:,} captions", begun)
    dual = train_dual(folder / "dual", **TINY) if size == "tiny" else train_dual(folder / "dual")
    _say(f"2/3 a small dual encoder, trained on other scenes: {folder / 'dual'}", begun)
    kept = folder / "results"
    options: dict[str, Any] = {} if size == "default" else {"size": size}
    results = []
    for name, model in (("random", RandomScorer()), ("dual", dual), ("oracle", Oracle())):
        result = _kept(result_path(kept, name, TASK, options), system(name, model.signature), data_hash(data))
        if result is None:
            result = evaluate(model, benchmark, name=name, data=data, **options)
            save(result, kept)
        results.append(result)
    _say(f"3/3 evaluated beside a random scorer and an oracle: {kept}", begun)
    return results


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
