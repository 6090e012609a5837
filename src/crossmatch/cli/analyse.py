"""`crossmatch analyse`: what is behind the numbers of forced choices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crossmatch.cli.folders import FOLDER
from crossmatch.core.errors import WrongWords

if TYPE_CHECKING:
    from crossmatch.core.result import Result
    from crossmatch.report.analysis_page import Panel
    from crossmatch.report.tables import Table

SIZE = click.option("--size", help="Size of the world, for diorama tasks: default, coco, tiny.")
SPLIT = click.option("--split", help="Split of the data, where the task has several.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print it as JSON on standard output.")
FILE = click.Path(path_type=Path, dir_okay=False)
OUTPUT = click.option("-o", "--output", type=FILE, help="Write a page (.html) or the pictures alone (.png, .svg, .pdf).")


@click.group()
def analyse() -> None:
    """Look behind the numbers of forced choices."""


@analyse.command("references")
@click.option("-t", "--task", required=True, help="A task of one caption each, such as bison or diorama/bison.")
@click.option("-m", "--scores", default="overlap,rouge-1,tfidf", show_default=True,
              help="Caption scores or text encoders, separated by commas.")  # fmt: skip
@click.option("--partial", is_flag=True, help="Leave out trials for whose images no captions are known.")
@SIZE
@SPLIT
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the draw of references.")
@click.option("--published", is_flag=True, help="Show published results of the same task in a table of its own.")
@click.option("-o", "--output", type=FOLDER, help="Save the results in this folder.")
@JSON
def references(task: str, scores: str, partial: bool, size: str | None, split: str | None, seed: int, published: bool,
               output: Path | None, as_json: bool) -> None:  # fmt: skip
    """How often a caption score finds the right image by people's captions of both (BISON, section 6)."""
    from crossmatch.benchmarks import load_data
    from crossmatch.core.result import save
    from crossmatch.models.references import references_model
    from crossmatch.report.published import beside
    from crossmatch.report.tables import results_table
    from crossmatch.run import evaluate

    models = [references_model(name.strip(), seed) for name in scores.split(",") if name.strip()]
    if not models:
        raise WrongWords("no caption score was named. Name some: -m overlap,tfidf")
    options: dict[str, Any] = _given(size=size, split=split)
    data = load_data(task, **options)
    mark = f":{seed}" if seed else ""
    results = [
        evaluate(model, task, name=f"references:{model.name}{mark}", data=data, partial=partial, **options) for model in models
    ]
    tables = [*results_table(results), *(beside(results) if published and not as_json else ())]
    saved = [save(result, output) for result in results] if output else []
    if as_json:
        click.echo(json.dumps({r.model: r.as_json() for r in results}, indent=1))
    else:
        _print(tables)
    if saved:
        click.echo(f"saved {', '.join(map(str, saved))}", err=True)


@analyse.command("statistics")
@click.option("-t", "--task", required=True, help="Any task (see `tasks`).")
@click.option("--source", help="What its captions were taken from: a task, collection:FOLDER, a file of captions, or references "
              "(the captions of its own images).")  # fmt: skip
@SIZE
@SPLIT
@OUTPUT
@JSON
def statistics(task: str, source: str | None, size: str | None, split: str | None, output: Path | None, as_json: bool) -> None:
    """Examples, images, captions, their lengths, parts of speech and vocabulary (BISON, Table 2 and Figure 6)."""
    from crossmatch.report import statistics as analysis

    _require_file(output)
    found = analysis.compare_statistics(task, source, **_given(size=size, split=split))
    table = analysis.statistics_table(found)
    if as_json:
        click.echo(json.dumps(analysis.as_json(found), indent=1, allow_nan=False))
    else:
        _print([table])
    if output:
        from crossmatch.report.analysis_plots import statistics_panels

        _write(output, " against ".join(d.name for d in found.both), [table], statistics_panels(found))


@analyse.command("scores")
@click.argument("result", type=FILE)
@click.option("--by", "files", type=FILE, multiple=True,
              help="A csv with trial_id (or image_id, of the positive image) and one or more columns of scores. "
              "[default: the model's own margin and confidence]")  # fmt: skip
@click.option("--metric", "name", help="What counts as right: accuracy, group, i2t, t2i, …  [default: accuracy, or group]")
@click.option("--partial", is_flag=True, help="Leave out trials without a score.")
@OUTPUT
@JSON
def scores(result: Path, files: tuple[Path, ...], name: str | None, partial: bool, output: Path | None, as_json: bool) -> None:
    """Has another score to do with what a model gets right? Its distribution over right and wrong trials (BISON, Figure 8)."""
    from crossmatch.report import distribution as analysis

    _require_file(output)
    (held,) = _results([result])
    found = analysis.apart(held, analysis.read_all_scores(files, held) if files else None, name, partial=partial)
    table = analysis.apart_table(held, found)
    if as_json:
        click.echo(json.dumps(analysis.as_rows(found), indent=1, allow_nan=False))
    else:
        _print([table])
    if output:
        from crossmatch.report.analysis_plots import apart_panels

        _write(output, table.title, [table], apart_panels(found))


@analyse.command("gap")
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@OUTPUT
@JSON
def gap(results: tuple[Path, ...], output: Path | None, as_json: bool) -> None:
    """Which direction and category is harder, and do SugarCrepe and BiVLC rank models alike? (BiVLC, findings 1 to 3)"""
    from crossmatch.report import gap_tables as analysis
    from crossmatch.report.gap import gap as find

    _require_file(output)
    found = find(_results(list(results)))
    tables = analysis.gap_tables(found)
    if as_json:
        click.echo(json.dumps(analysis.as_json(found), indent=1, allow_nan=False))
    else:
        _print(tables)
    if output:
        from crossmatch.report.analysis_plots import gap_panels

        _write(output, "Directions, categories and ranks", tables, gap_panels(found))


def _given(**options: str | None) -> dict[str, str]:
    return {key: value for key, value in options.items() if value is not None}


def _results(paths: list[Path]) -> list[Result]:
    from crossmatch.core.result import load_all

    return load_all(paths)


def _require_file(output: Path | None) -> None:
    """Before any work: a name that cannot be written to is no reason to lose it."""
    if output is not None:
        from crossmatch.report.analysis_page import require_file

        require_file(output)


def _print(tables: Sequence[Table]) -> None:
    from crossmatch.report.tables import as_text

    click.echo("\n\n".join(map(as_text, tables)))


def _write(output: Path, title: str, tables: Sequence[Table], panels: Sequence[Panel]) -> None:
    from crossmatch.report.analysis_page import write

    click.echo(f"wrote {write(output, title, tables, panels)}", err=True)
