"""`crossmatch list KIND`: tasks, models, metrics, studies, recipes, data sets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from crossmatch.cli.base import JSON, Command
from crossmatch.data.errors import MissingDependencyError

if TYPE_CHECKING:
    from crossmatch.report.tables import Table


def task_tables() -> list[Table]:
    from crossmatch.benchmarks import list_benchmarks
    from crossmatch.report.tables import Table

    rows = [
        (b.name, b.description, ", ".join(b.directions), " ".join(f"+{key}={value}" for key, value in b.options.items()), b.licence)
        for b in list_benchmarks().values()
    ]
    notes = (
        "options follow the name, as in cxc+split=val; the defaults are shown",
        "your own data: collection:FOLDER (images and captions), trials:FILE (forced choices, csv or jsonl)",
        "`crossmatch list metrics` shows the metrics",
    )
    return [Table("tasks", (("name", "about", "directions", "options", "licence"),), tuple(rows), 5, notes)]


def model_tables() -> list[Table]:
    from crossmatch.models import families
    from crossmatch.models.published_systems import PUBLISHED_SYSTEMS
    from crossmatch.report.tables import Table

    rows = [
        (f"{f.name}:{f.argument}" if f.argument else f.name, f.abilities, f.about, f.weights, f.cite) for f in families().values()
    ]
    notes = (
        "also: a folder written by `crossmatch train`; file.py:make_model, a function of yours that returns a model",
        "in Python, cm.evaluate takes any object with embed_images and embed_texts, with score(images, texts), or with "
        "log_likelihood(images, texts)",
    )
    systems_note = "systems without released code are available only as scores"
    return [
        Table("models", (("name", "ability", "about", "weights", "paper"),), tuple(rows), 5, notes),
        Table(
            "systems of the papers", (("system", "evaluated by", "model", "ability", "weights"),), tuple(map(tuple, PUBLISHED_SYSTEMS)), 5,
            (systems_note,),
        ),
    ]  # fmt: skip


def metric_tables() -> list[Table]:
    from crossmatch.metrics.metric_table import FAMILIES
    from crossmatch.report.captions.scores_output import metrics_table
    from crossmatch.report.tables import Table

    rows = [
        (m.name, ",".join(map(str, m.usual_k)), m.shape, m.label, f"{m.best * m.scale:g}", m.unit, m.source, m.description)
        for m in FAMILIES
    ]
    head = ("name", "usual k", "shape", "shown as", "best", "unit", "source", "about")
    note = "chance depends on the data and is printed beside every result"
    return [Table("metrics", (head,), tuple(rows), 8, (note,)), metrics_table()]


def study_tables() -> list[Table]:
    from crossmatch.report.tables import Table
    from crossmatch.study.design.declaration import load_presets

    rows = tuple(
        (d.name, d.about, f"{d.recipe.batch} + {d.recipe.gold_positive + d.recipe.gold_negative}", str(d.recipe.people),
         d.result.combine, d.result.yields, d.paper)
        for d in load_presets().values()
    )  # fmt: skip
    notes = (
        "HIT: items that one person answers together, plus gold questions; people: answers per item",
        "`crossmatch study new NAME …` creates a study; a design of your own is a TOML file: `crossmatch study new FILE.toml …`",
    )
    return [Table("studies", (("name", "about", "HIT", "people", "combined by", "yields", "paper"),), rows, 7, notes)]


def recipe_tables() -> list[Table]:
    from crossmatch.report.tables import Table
    from crossmatch.train.recipe import recipes

    rows = tuple((r.name, r.family, r.paper, ", ".join(r.evaluated_by), r.about) for r in recipes().values())
    notes = ("`crossmatch train NAME -o FOLDER` trains a system on diorama",)
    tables = [Table("training recipes", (("name", "family", "paper", "evaluated by", "about"),), rows, 5, notes)]
    try:
        from crossmatch.build.recipes.papers import RECIPES
    except ImportError as error:
        raise MissingDependencyError(error.name or "SQLAlchemy", "study") from None
    stages = tuple(
        (recipe.name if n == 0 else "", stage.name, "people" if stage.study_items else "", stage.about)
        for recipe in RECIPES.values()
        for n, stage in enumerate(recipe.stages)
    )
    notes = ("`crossmatch build recipe NAME --data collection:FOLDER -o FOLDER` builds a benchmark",)
    return [*tables, Table("benchmark recipes", (("recipe", "stage", "needs", "about"),), stages, 4, notes)]


def data_tables() -> list[Table]:
    from crossmatch.cli.data import data_set_facts, data_sets_table

    return [data_sets_table(data_set_facts())]


KINDS: dict[str, Callable[[], list[Table]]] = {
    "tasks": task_tables,
    "models": model_tables,
    "metrics": metric_tables,
    "studies": study_tables,
    "recipes": recipe_tables,
    "data": data_tables,
}


@click.command("list", cls=Command)
@click.argument("kind", type=click.Choice(list(KINDS)))
@JSON
def list_command(kind: str, as_json: bool) -> None:
    """List tasks, models, metrics, studies, recipes or data sets."""
    from crossmatch.report.tables import format_table

    if not as_json:
        click.echo("\n\n".join(map(format_table, KINDS[kind]())))
        return
    if kind == "data":
        from crossmatch.cli.data import data_set_facts

        click.echo(json.dumps(data_set_facts(), indent=1))
        return
    click.echo(json.dumps({table.title: _records(table) for table in KINDS[kind]()}, indent=1, ensure_ascii=False))


def _records(table: Table) -> list[dict[str, Any]]:
    return [dict(zip(table.header[-1], row, strict=True)) for row in table.rows]
