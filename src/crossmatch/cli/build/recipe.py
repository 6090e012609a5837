"""`crossmatch build recipe`: the whole construction of a paper, up to where people must answer, and on from their answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from crossmatch.cli.build.common import named_models
from crossmatch.cli.folders import FOLDER
from crossmatch.core.errors import MissingDependency, WrongWords


@click.command("recipe")
@click.argument("name", required=False, default="")
@click.option("--data", default="", help="What it is made of: collection:FOLDER, diorama, diorama:tiny.")
@click.option("-o", "--output", type=FOLDER, help="Folder for everything; the same folder again goes on.")
@click.option("-m", "--model", "models", multiple=True, help="Models that the recipe asks: several for eccv, one for cxc.")
@click.option("--by", help="How negatives are written: rules, diorama, or llm.  [default: rules; diorama on diorama]")
@click.option("--llm", help="The model of --by llm: a folder or .gguf file, or with --endpoint its name there.")
@click.option("--endpoint", help="Address that speaks OpenAI's protocol, for --by llm.")
@click.option("--generator", help="What draws images: diorama, or diffusers:FOLDER.")
@click.option("--captions", type=click.IntRange(1), help="Make negatives of so many captions, drawn by the seed.  [default: all]")
@click.option("--share", type=click.FloatRange(0, 1, min_open=True), help="Of negatives that refinement begins with.")
@click.option("--people", type=click.IntRange(1), help="Answers to each item.  [default: as in the paper]")
@click.option("--skip-bad", is_flag=True, help="Leave out pictures that do not open and empty captions; skipped.jsonl lists them.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--list", "listed", is_flag=True, help="List the recipes and their stages.")
def recipe_command(name: str, data: str, output: Path | None, listed: bool, seed: int, **options: Any) -> None:
    """Run the construction of a paper: bison, cxc, bivlc, eccv, trohn-text, trohn-img. Call it again once people have answered."""
    try:
        from crossmatch.build.recipe_table import RECIPES, recipe
        from crossmatch.build.recipes import Work, carry_on, next_words
    except ImportError as error:
        raise MissingDependency(error.name or "SQLAlchemy", "study") from None
    from crossmatch.report.tables import Table, as_text

    if listed or not name:
        rows = tuple(
            (one.name if n == 0 else "", stage.name, "people" if stage.items else "", stage.about)
            for one in RECIPES.values()
            for n, stage in enumerate(one.stages)
        )
        click.echo(as_text(Table("recipes", (("recipe", "stage", "", ""),), rows, 4)))
        return
    if not data or output is None:
        raise WrongWords(f"say what {name} is to be made of and where: --data collection:FOLDER -o FOLDER")
    chosen = recipe(name)
    options["models"] = tuple(named_models(options["models"]))
    given = {
        key: list(value) if isinstance(value, tuple) else value for key, value in options.items() if value not in (None, (), False)
    }
    work = Work(output, data, given, seed)
    found = carry_on(chosen, work)
    far = tuple((one.stage, one.state, one.said or one.about) for one in found)
    click.echo(as_text(Table(f"{name} · {output}", (("stage", "", ""),), far, 3)))
    click.echo("next: " + " · ".join(next_words(chosen, work, found)), err=True)
