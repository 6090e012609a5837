"""`crossmatch run`: evaluate models on tasks."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from crossmatch.cli.base import FOLDER, SIZE, SPLIT, Command, split_names, without_none
from crossmatch.cli.cache import cache_options
from crossmatch.data.errors import UsageError

if TYPE_CHECKING:
    from crossmatch.data.result import Result
    from crossmatch.evaluation.plan import Task

FILE_MODELS = ("precomputed", "detector")  # families that answer from a file


@click.command(cls=Command)
@click.option("-m", "--model", "models", multiple=True, required=True,
              help="A model: conse, open_clip:…, hf:…, file.py:NAME, precomputed:FILE, a trained folder, … (`crossmatch list "
              "models`). Repeat it for several models.")  # fmt: skip
@click.option("-t", "--task", "tasks", multiple=True, required=True,
              help="Tasks, separated by commas (`crossmatch list tasks`), with options as in cxc+split=val; or collection:FOLDER, "
              "trials:FILE.")  # fmt: skip
@click.option("-o", "--output", type=FOLDER, default=Path("results"), show_default=True, help="Folder for the results.")
@click.option("--name", "names", multiple=True, help="Name of the model in tables and files. Repeat it for several models.")
@click.option("--metrics", help="Metrics to report instead of the task's own, separated by commas (`crossmatch list metrics`).")
@click.option("--ties", type=click.Choice(["expected", "pessimistic", "optimistic"]), default="expected", show_default=True,
              help="expected: mean over all orders; pessimistic: ties lose; optimistic: ties win.")  # fmt: skip
@SPLIT
@SIZE
@click.option("--limit", type=click.IntRange(1), help="Evaluate a random sample of this size; the result is marked as partial.")
@click.option(
    "--partial", is_flag=True, help="Evaluate only the trials that a precomputed: file answers; the result is marked as partial."
)
@click.option("--skip-bad", is_flag=True, help="Skip unreadable images and empty captions; the result lists them.")
@click.option("--batch", type=click.IntRange(1), default=128, show_default=True, help="Items per call of the model.")
@click.option("--workers", type=click.IntRange(0), help="Threads that read images ahead.  [default: free cores]")
@click.option(
    "--likelihood",
    type=click.Choice(["per-token", "plain"]),
    help="For captioners: log-likelihood divided by the number of tokens (per-token), or summed (plain).  [default: per-token]",
)
@click.option("--alterations", is_flag=True, help="Also evaluate negated, reworded, shuffled and reversed queries (bison).")
@click.option(
    "--gate", is_flag=True, help="Trust gate for forced choices: also run scorers that know nothing and compare them with theory."
)
@click.option("--samples", type=click.IntRange(2), default=1000, show_default=True, help="Samples of bootstrap-spearman.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of bootstrap-spearman and of --limit.")
@cache_options
@click.option("--published", is_flag=True, help="Also show published results of the same tasks, in separate tables.")
@click.option("--json", "as_json", is_flag=True,
              help="Print {task: {metric: value}}; with several models {model: {task: …}}.")  # fmt: skip
def run(models: tuple[str, ...], tasks: tuple[str, ...], output: Path, names: tuple[str, ...], metrics: str | None, ties: str,
        split: str | None, size: str | None, limit: int | None, partial: bool, skip_bad: bool, batch: int, workers: int | None,
        likelihood: str | None, alterations: bool, gate: bool, samples: int, seed: int, cache: Path | None, no_cache: bool,
        published: bool, as_json: bool) -> None:  # fmt: skip
    """Evaluate models on tasks and save the results."""
    from crossmatch.cli.cache import score_cache
    from crossmatch.data.result import save_result
    from crossmatch.evaluation.controls import evaluate_gate, load_with_alterations
    from crossmatch.evaluation.evaluate import evaluate_all
    from crossmatch.evaluation.plan import load_task
    from crossmatch.metrics.metric_table import metric
    from crossmatch.report.published_results import tables_with_published
    from crossmatch.report.tables import format_table

    task_names = split_names(tasks)
    _require_valid_combination(models, names, task_names, gate=gate, partial=partial, skip_bad=skip_bad, alterations=alterations)
    warnings.filterwarnings("ignore", message="Image size .* exceeds limit")  # Pillow's; we refuse such images with an error
    data_options = without_none(split=split, size=size)
    metric_names = split_names(metrics) if metrics is not None else None
    if metric_names == []:
        raise UsageError("--metrics names no metric. `crossmatch list metrics` lists them.")
    chosen_metrics = tuple(metric(name).name for name in metric_names) if metric_names else None
    protocol: dict[str, Any] = {"ties": ties, "samples": samples, "seed": seed, "metrics": chosen_metrics, "limit": limit}
    groups = [
        load_with_alterations(name, data_options, skip_bad) if alterations else [load_task(name, data_options, skip_bad=skip_bad)]
        for name in task_names
    ]
    if alterations and all(len(group) == 1 for group in groups):
        raise UsageError(f"--alterations: {', '.join(task_names)} has another caption as query already. Omit +caption=….")
    loaded = [task for group in groups for task in group]
    by_model: dict[str, list[Result]] = {}
    for n, model in enumerate(models):
        results = evaluate_all(
            model, loaded, name=names[n] if names else None, partial=partial, likelihood=likelihood,
            cache=score_cache(cache, no_cache), skip_bad=skip_bad, batch=batch, workers=workers, **protocol,
        )  # fmt: skip
        by_model[_unused_name(results[0].model, by_model)] = results
    gate_results = evaluate_gate([group[0] for group in groups], **protocol) if gate else []
    results = [result for model_results in by_model.values() for result in model_results]
    if as_json:
        values = {model: _json_values(loaded, model_results) for model, model_results in by_model.items()}
        gate_values = {f"{result.model} {result.task}": result.as_json() for result in gate_results}
        text = json.dumps((values if len(models) > 1 else next(iter(values.values()))) | gate_values, indent=1)
    else:
        tables = [*run_tables([*results, *gate_results]), *(tables_with_published(results) if published else ())]
        text = "\n\n".join(map(format_table, tables))
    paths = [save_result(result, output) for result in (*results, *gate_results)]
    click.echo(text)
    click.echo(f"saved {', '.join(map(str, paths))} · crossmatch report {quote(str(output))}", err=True)


def _require_valid_combination(
    models: Sequence[str],
    names: Sequence[str],
    tasks: Sequence[str],
    *,
    gate: bool,
    partial: bool,
    skip_bad: bool,
    alterations: bool,
) -> None:
    """Refuse combinations of options that cannot work, before anything is loaded."""
    if not tasks:
        raise UsageError("-t names no task. `crossmatch list tasks` lists them.")
    if names and len(names) != len(models):
        raise UsageError(
            f"--name was given {len(names)} times for {len(models)} models. Give it once for each -m, in the same order."
        )
    if len(set(models)) < len(models) and not names:
        raise UsageError("-m names the same model twice, so one result would overwrite the other. Name it once, or add --name.")
    if len(set(names)) < len(names):
        raise UsageError("--name repeats a name, so one result would overwrite the other. Use different names.")
    if gate and (partial or skip_bad):
        option = "--partial" if partial else "--skip-bad"
        raise UsageError(f"--gate answers all trials and cannot be combined with {option}. Run it separately: -m random --gate")
    for model in models:
        if alterations and (family := model.partition(":")[0]) in FILE_MODELS:
            raise UsageError(
                f"--alterations: {family} reads answers from a file, which has none for altered queries. Score each altered task "
                "and evaluate its file separately: -t bison+alter=negation"
            )


def _unused_name(model: str, used: dict[str, list[Result]]) -> str:
    if model in used:
        raise UsageError(f"two models are called {model!r}, so one result would overwrite the other. Add --name for each -m.")
    return model


def _json_values(tasks: Sequence[Task], results: Sequence[Result]) -> dict[str, dict[str, float]]:
    return {_json_key(task.name, result): result.as_json() for task, result in zip(tasks, results, strict=True)}


def _json_key(task: str, result: Result) -> str:
    """The task as the user named it, with what makes the result partial."""
    partial = "".join(f"+{key}={result.options[key]}" for key in ("limit", "partial", "skipped") if key in result.options)
    return (task if "+" in task else result.task) + partial


def run_tables(results: Sequence[Result]) -> list[Any]:
    """The tables of a run: results, altered queries, and the gate."""
    from crossmatch.report.query_variants import alteration_tables, caption_choice_tables, main_results
    from crossmatch.report.tables import result_tables
    from crossmatch.report.trust_gate_table import gate_tables

    altered = [table for table, _ in (*alteration_tables(results), *caption_choice_tables(results))]
    return [*result_tables(main_results(results)), *altered, *gate_tables(results)]
