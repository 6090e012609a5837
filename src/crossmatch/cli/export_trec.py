"""`crossmatch export`: rankings and judgements as TREC files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from crossmatch.cli.base import FILE, SIZE, SPLIT, Command, without_none
from crossmatch.cli.cache import cache_options, score_cache
from crossmatch.data.errors import UsageError

if TYPE_CHECKING:
    from crossmatch.data.judgements import Judgements
    from crossmatch.data.loaded_data import Retrieval
    from crossmatch.models.cache import Cache

# Repeated here because the modules that define them import NumPy, and `--help` should be fast.
DIRECTIONS = ("i2t", "t2i", "t2t", "i2i")
GRADES = ("whole", "given", "binary")


@click.command("export", cls=Command)
@click.argument("kind", type=click.Choice(["run", "qrels"]))
@click.option("-t", "--task", required=True, help="A retrieval task (`crossmatch list tasks`).")
@click.option(
    "--direction", type=click.Choice(DIRECTIONS), required=True, help="Direction: i2t (images search captions), t2i, t2t or i2i."
)
@click.option("-m", "--model", help="run: a model (`crossmatch list models`).")
@click.option("--depth", type=click.IntRange(1), default=100, show_default=True,
              help="run: candidates per query; candidates tied with the last one are added.")  # fmt: skip
@click.option("--all", "whole", is_flag=True, help="run: write whole rankings.")
@click.option("--tag", default="crossmatch", show_default=True, help="run: name of the run, its last column.")
@click.option("--grades", type=click.Choice(GRADES), default="whole", show_default=True,
              help="qrels: scaled to integers (whole), unchanged (given), or 1 if positive (binary).")  # fmt: skip
@click.option("--judgements", "judgements_name", help="Which judgements, if the task has several.")
@SPLIT
@SIZE
@cache_options
@click.option("-o", "--output", type=FILE, help="File to write.  [default: run.trec or qrels.txt]")
def export(kind: str, task: str, direction: str, model: str | None, depth: int, whole: bool, tag: str, grades: str,
           judgements_name: str | None, cache: Path | None, no_cache: bool, output: Path | None,
           **options: str | None) -> None:  # fmt: skip
    """Export rankings and judgements as TREC files.

    `run` writes the rankings of a model, `qrels` the judgements of a task. Queries without a positive are left out of a run.
    """
    if (model is None) == (kind == "run"):
        raise UsageError("export run needs a model: -m MODEL." if kind == "run" else "export qrels takes no model. Remove -m.")
    data, judgements = _load(task, direction, judgements_name, options)
    path = output or Path("run.trec" if kind == "run" else "qrels.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    if model is None:
        _export_qrels(task, data, judgements, direction, grades, path)
    else:
        _export_run(model, data, judgements, direction, None if whole else depth, tag, score_cache(cache, no_cache), path)


def _export_run(
    model: str, data: Retrieval, judgements: dict[str, Judgements], direction: str, depth: int | None, tag: str, cache: Cache | None,
    path: Path,
) -> None:  # fmt: skip
    import numpy as np

    from crossmatch.evaluation.model_scores import score_collection
    from crossmatch.models import make_model
    from crossmatch.ranking.trec_files import write_run

    candidate_lists = [judged.candidate_lists(direction) for judged in judgements.values()]
    if any(lists.folds is not None for lists in candidate_lists) and len(candidate_lists) > 1:
        raise UsageError(f"the judgements {', '.join(judgements)} have different galleries. Choose one with --judgements.")
    queries = np.unique(np.concatenate([lists.query for lists in candidate_lists]))
    scores = score_collection(make_model(model), data, cache=cache)
    folds = candidate_lists[0].folds
    written = write_run(scores, data.collection, direction, path, depth=depth, queries=queries, folds=folds, tag=tag)
    click.echo(f"saved {path} · {written.rows:,} rows for {written.queries:,} queries", err=True)


def _export_qrels(task: str, data: Retrieval, judgements: dict[str, Judgements], direction: str, grades: str, path: Path) -> None:
    from crossmatch.ranking.trec_files import write_qrels

    if len(judgements) > 1:
        raise UsageError(f"{task} has the judgements {', '.join(judgements)} for {direction}. Choose one with --judgements.")
    written = write_qrels(next(iter(judgements.values())), data.collection, direction, path, grades)
    facts = [
        f"saved {path}",
        f"{written.rows:,} pairs for {written.queries:,} queries",
        f"positive from {written.positive_grade:g}",
    ]
    if written.scale > 1:
        facts.append(f"grades x {written.scale}")
    if written.queries_without_positives:
        facts.append(
            f"{written.queries_without_positives:,} queries have no positive: trec_eval counts them as 0, crossmatch leaves them out"
        )
    click.echo(" · ".join(facts), err=True)


def _load(
    task: str, direction: str, judgements_name: str | None, options: dict[str, str | None]
) -> tuple[Retrieval, dict[str, Judgements]]:
    """The data of a task in canonical order, and its judgements for this direction."""
    from crossmatch.benchmarks import resolve_task
    from crossmatch.data.judgements import Judgements
    from crossmatch.data.loaded_data import Retrieval, sort_canonically

    benchmark, benchmark_options = resolve_task(task, without_none(**options))
    data = sort_canonically(benchmark.load(**benchmark_options))
    if not isinstance(data, Retrieval):
        raise UsageError(f"-t {task} has no rankings to export. Name a retrieval task (`crossmatch list tasks`).")
    if direction not in benchmark.directions:
        raise UsageError(f"-t {task} has no judgements for {direction}; its directions are {', '.join(benchmark.directions)}.")
    available = {
        name: judgements
        for name, judgements in data.judgements.items()
        if isinstance(judgements, Judgements) and direction in judgements.directions
    }
    if not available:
        raise UsageError(
            f"-t {task} defines its {direction} positives by a rule and has no list of judged pairs. Name another task."
        )
    if judgements_name is None:
        return data, available
    if judgements_name not in available:
        raise UsageError(f"--judgements: {task} has no {judgements_name!r} for {direction}; it has {', '.join(available)}.")
    return data, {judgements_name: available[judgements_name]}
