"""`crossmatch compare`: paired tests between the results of several models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from crossmatch.cli.base import JSON, Command
from crossmatch.data.errors import UsageError

if TYPE_CHECKING:
    from crossmatch.data.result import Result
    from crossmatch.report.comparison import MetricComparison

PROTOCOL_OPTIONS = ("metrics", "ties", "samples", "seed")  # they do not change which data a result is about


@click.command(cls=Command)
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@JSON
def compare(results: tuple[Path, ...], as_json: bool) -> None:
    """Compare the first model with each of the others by paired tests."""
    from crossmatch.report import comparison
    from crossmatch.report.tables import comparison_table, format_table, task_title

    first, others = _first_and_others(_load_distinct(results))
    pairs = _comparable_pairs(first, others)
    compared = [(a, b, comparison.compare(a, b)) for a, b in pairs]
    if as_json:
        click.echo(json.dumps([row for a, b, rows in compared for row in _json_rows(a, b, rows)], indent=1))
        return
    used = {id(result) for pair in pairs for result in pair}
    unused = ", ".join(f"{task_title(result)} of {result.model}" for result in (*first, *others) if id(result) not in used)
    note = [f"not compared, because the other model has no result for it: {unused}"] if unused else []
    tables = [format_table(comparison_table(rows, a.model, b.model)) for a, b, rows in compared]
    click.echo("\n\n".join([*tables, *note]))


def _load_distinct(paths: Sequence[Path]) -> list[Result]:
    """All results in these folders. If a model's name occurs in two folders, the folder becomes part of the name."""
    from crossmatch.data.result import load_results

    loaded = [(path, result) for path in paths for result in load_results([path])]
    is_ambiguous = len({result.model for _, result in loaded}) < len({(path, result.model) for path, result in loaded})
    return [replace(result, model=f"{path}:{result.model}") if is_ambiguous else result for path, result in loaded]


def _first_and_others(results: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    first_model = results[0].model
    first = [result for result in results if result.model == first_model]
    others = [result for result in results if result.model != first_model]
    if not others:
        raise UsageError(f"all results are of {first_model!r}; a comparison needs two models. Name the folders of two models.")
    return first, others


def _comparable_pairs(first: Sequence[Result], others: Sequence[Result]) -> list[tuple[Result, Result]]:
    """Results on the same data; without any, results on the same task, so that the comparison says what differs."""
    same_data = [(a, b) for b in others for a in first if (a.task, _data_options(a)) == (b.task, _data_options(b))]
    if same_data:
        return same_data
    same_task = [(_most_similar(first, b), b) for b in others if any(a.task == b.task for a in first)]
    if not same_task:
        raise UsageError(f"{first[0].model!r} shares no task with another model. Evaluate them on the same task.")
    return same_task


def _data_options(result: Result) -> dict[str, str]:
    return {name: value for name, value in result.options.items() if name not in PROTOCOL_OPTIONS}


def _most_similar(candidates: Sequence[Result], result: Result) -> Result:
    """The candidate on the same task, with equal options if there is one."""
    same_task = [candidate for candidate in candidates if candidate.task == result.task]
    return next((candidate for candidate in same_task if dict(candidate.options) == dict(result.options)), same_task[0])


def _json_rows(a: Result, b: Result, rows: Sequence[MetricComparison]) -> list[dict[str, object]]:
    return [
        {"task": row.task, "metric": row.first.key, "first": a.model, "second": b.model, "difference": row.difference.value,
         "low": row.difference.low, "high": row.difference.high, "p": row.difference.p, "p_holm": row.p,
         "p_clustered_holm": row.cluster_p}
        for row in rows
    ]  # fmt: skip
