"""`crossmatch build recipe`: build the benchmark of a paper, up to where people must answer, and on from their answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from crossmatch.cli.base import FOLDER, Command
from crossmatch.cli.build.common import SKIP_BAD, split_model_names
from crossmatch.data.errors import MissingDependencyError, UsageError


@click.command("recipe", cls=Command)
@click.argument("name", required=False, default="")
@click.option("--data", default="", help="Images and captions: collection:FOLDER, diorama, diorama:tiny.")
@click.option("-o", "--output", type=FOLDER, help="Folder for all stages; the same folder continues the recipe.")
@click.option("-m", "--model", "models", multiple=True, help="Models of the recipe: several for eccv, one for cxc. Repeatable.")
@click.option("--by", help="How negatives are written: rules, diorama, or llm.  [default: rules; diorama on diorama]")
@click.option("--llm", help="Model of --by llm: a folder or .gguf file, or with --endpoint its name there.")
@click.option("--endpoint", help="Address of an OpenAI-compatible server, for --by llm.")
@click.option("--generator", help="Image generator: diorama, or diffusers:FOLDER.")
@click.option("--captions", type=click.IntRange(1), help="Number of random captions to write negatives for.  [default: all]")
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True),
    help="Share of the most plausible and fluent negatives to keep, before the grid is balanced.",
)
@click.option("--people", type=click.IntRange(1), help="Answers per item.  [default: as in the paper]")
@SKIP_BAD
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of random choices.")
@click.option("--list", "list_recipes", is_flag=True, help="List the recipes and their stages.")
def recipe_command(name: str, data: str, output: Path | None, list_recipes: bool, seed: int, **options: Any) -> None:
    """Build the benchmark of a paper, stage by stage.

    Recipes: bison, cxc, bivlc, eccv, trohn-text, trohn-img. Run the same command again after people have answered.
    """
    try:
        from crossmatch.build.recipes.engine import RecipeRun, next_commands, run_stages
        from crossmatch.build.recipes.papers import RECIPES, find_recipe
    except ImportError as error:
        raise MissingDependencyError(error.name or "SQLAlchemy", "study") from None
    from crossmatch.report.tables import Table, format_table

    if list_recipes or not name:
        rows = tuple(
            (recipe.name if n == 0 else "", stage.name, "people" if stage.study_items else "", stage.about)
            for recipe in RECIPES.values()
            for n, stage in enumerate(recipe.stages)
        )
        click.echo(format_table(Table("recipes", (("recipe", "stage", "", ""),), rows, 4)))
        return
    if not data or output is None:
        raise UsageError(f"Recipe {name} needs data and a folder: --data collection:FOLDER -o FOLDER")
    recipe = find_recipe(name)
    options["models"] = split_model_names(options["models"])
    run = RecipeRun(output, data, {key: value for key, value in options.items() if value not in (None, [], False)}, seed)
    statuses = run_stages(recipe, run)
    progress = tuple((status.stage, status.state, status.message or status.about) for status in statuses)
    click.echo(format_table(Table(f"{name} · {output}", (("stage", "", ""),), progress, 3)))
    click.echo("next: " + " · ".join(next_commands(recipe, run, statuses)), err=True)
