"""`crossmatch train`: a system of the zoo by its recipe, and the two small models of the embedded world."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from crossmatch.cli.detector import train_detector_command
from crossmatch.cli.folders import FOLDER
from crossmatch.cli.stopped import goes_on

PLACE = "RECIPE"  # the command that stands for all recipes


class Recipes(click.Group):
    """A group in which the name of every recipe, and every recipe file, is a command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        from crossmatch.train.recipe import is_recipe

        return super().get_command(ctx, PLACE if is_recipe(cmd_name) else cmd_name)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        from crossmatch.core.declared import nearest
        from crossmatch.train.recipe import names

        name = str(args[0])
        if name == PLACE and not {"-h", "--help"} & set(args[1:]):
            ctx.fail("RECIPE stands for the name of a recipe; `crossmatch train --list` lists them all.")
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            if name.endswith(".toml"):
                ctx.fail(f"there is no recipe file {name}. Check the path.")
            hint = nearest(name, [*names(), *(each for each in self.commands if each != PLACE)])
            ctx.fail(f"No such command '{name}', and no such recipe. {hint} `crossmatch train --list` lists them all.")
        return super().resolve_command(ctx, args)


def _list(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the recipes."""
    if wanted and not ctx.resilient_parsing:
        from crossmatch.report.tables import Table, as_text
        from crossmatch.train.recipe import recipes

        rows = tuple((r.name, r.family, r.paper, ", ".join(r.evaluated_by), r.about) for r in recipes().values())
        notes = ("the paper published the system; `crossmatch train NAME -o FOLDER` trains it on the embedded world",)
        click.echo(as_text(Table("recipes", (("name", "family", "paper", "evaluated by", "about"),), rows, 5, notes)))
        ctx.exit()


OUTPUT = click.option("-o", "--output", type=FOLDER, required=True, help="Folder of the trained model.")
IMAGES = click.option("--images", type=click.IntRange(20), help="Training scenes.  [default: the recipe's]")
EPOCHS = click.option("--epochs", type=click.IntRange(1), help="Passes over them.  [default: the recipe's]")
SEED = click.option("--seed", type=click.IntRange(0), default=0, show_default=True)


@click.group(cls=Recipes)
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="List the recipes, and stop.")
def train() -> None:
    """Train a model: one of the papers' systems by its recipe, or a small one of our own."""


@train.command(PLACE)
@OUTPUT
@click.option("--data", default="diorama", show_default=True, help="diorama, collection:FOLDER, or precomp:FOLDER (SCAN's layout).")
@click.option("--regions", type=click.Path(path_type=Path), help="Region features of the collection's images, from a file.")
@click.option("--negatives", type=click.Path(path_type=Path), help="Hard negatives of the collection, for a recipe that has them.")
@click.option("--validation", help="A collection to validate with.  [default: a tenth of the images]")
@click.option(
    "--size", default="default", show_default=True, help="Size of the world, for diorama: default, or tiny for a quick look."
)
@click.option("--images", type=click.IntRange(2), help="Images to train on, at most.  [default: the recipe's, or all]")
@click.option("--epochs", type=click.IntRange(1), help="Passes over them.  [default: the recipe's]")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Of all chance in it.  [default: the recipe's, which is 0]")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads of the computation; sums depend on them.  [default: 1]")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change the recipe, as in train.learning_rate=1e-3.")
@click.option(
    "--begin",
    metavar="MODEL",
    help="Folder of a trained model of the same family to begin with; for CLIP also hf:… or open_clip:….  [default: the recipe's "
    "own, trained in OUTPUT/begin]",
)
@click.option("--restart", is_flag=True, help="Begin again, whatever the folder holds.")
@click.option("--tensorboard", is_flag=True, help="Also write event files for TensorBoard.")
@click.pass_context
def train_recipe_command(ctx: click.Context, output: Path, data: str, regions: Path | None, negatives: Path | None,
                         validation: str | None, size: str, images: int | None, epochs: int | None, seed: int | None,
                         threads: int | None, overrides: tuple[str, ...], begin: str | None, restart: bool,
                         tensorboard: bool) -> None:  # fmt: skip
    """A system of the papers by its recipe (see --list), or by a recipe file of your own.

    The folder gets the model of the best epoch (model.json and weights) and log.csv. An interrupted training goes on when it is
    started again with the same words, and ends with the same weights. A recipe that goes on from another one, as updown-scst from
    updown, trains that first, unless --begin names a model; --set begin.train.epochs=3 changes that other one.
    """
    from crossmatch.train.judge import FOUND
    from crossmatch.train.sources import Asked
    from crossmatch.train.zoo import train_zoo

    given = {"images": images, "epochs": epochs, "seed": seed, "threads": threads}
    changed = [f"train.{key}={value}" for key, value in given.items() if value is not None]
    asked = Asked(size=size, validation=validation, regions=regions, negatives=negatives)
    with goes_on(restart):
        model = train_zoo(str(ctx.info_name), output, data=data, asked=asked, overrides=[*overrides, *changed], begin=begin,
                          restart=restart, tensorboard=tensorboard, tell=lambda said: click.echo(said, err=True))  # fmt: skip
    told = model.recipe
    trials = hasattr(model, "caption_regions")  # a captioner looks at all pairs one by one
    of_world = "diorama/bison" if trials else "diorama/retrieval"
    small = "" if size == "default" or data != "diorama" else f" --size {size}"
    task = of_world if data == "diorama" else data if data.startswith("collection:") else "TASK"
    words = told.get("validated_by", FOUND.words)  # earlier folders did not say it
    click.echo(
        f"{output} · epoch {told['best_epoch']} of {told['epochs']}, {words} {told['validation']:.1f}{out_of(model, words)}"
        f"{level(told['validation'], trials)} · "
        f"crossmatch run -m {quote(str(getattr(model, 'name', output)))} -t {quote(task)}{small}"
    )


def level(best: float, captioner: bool) -> str:
    """What is to be said where no epoch was better than nothing.

    >>> level(0.0, captioner=False)
    ', as in every epoch: the first is kept, and nothing was learnt that shows there'
    """
    from crossmatch.train.judge import DIGITS

    if round(best, DIGITS) > 0:
        return ""
    kept = "the one to which the true captions are likeliest" if captioner else "the first"
    return f", as in every epoch: {kept} is kept, and nothing was learnt that shows there"


def out_of(model: Any, words: str) -> str:
    """What the value by which an epoch was chosen would be at best, where it is a sum of per cents.

    Hits are three in each direction, and a model of texts has one. Of four choices, a collection whose negatives are texts has one.
    """
    from crossmatch.train.judge import CHOICES, FOUND

    told = model.recipe
    if words == FOUND.words:
        return " of 600" if hasattr(model, "compare") else " of 300"
    if words != CHOICES:
        return ""
    return " of 100" if told["data"] != "diorama" and told["negatives"]["kind"] == "texts" else " of 400"


@train.command("dual")
@OUTPUT
@IMAGES
@EPOCHS
@SEED
def train_dual_command(output: Path, images: int | None, epochs: int | None, seed: int) -> None:
    """The small dual encoder on the embedded world: a CNN, a text tower of word trigrams and the in-batch contrastive loss."""
    from crossmatch.train.dual import train_dual

    given: dict[str, Any] = {key: value for key, value in (("images", images), ("epochs", epochs)) if value is not None}
    train_dual(output, seed=seed, **given)
    click.echo(f"{output} · crossmatch run -m {quote(str(output))} -t diorama/retrieval")


@train.command("grounded")
@OUTPUT
@IMAGES
@EPOCHS
@SEED
def train_grounded_command(output: Path, images: int | None, epochs: int | None, seed: int) -> None:
    """The small grounding model on the embedded world: SCAN's attention between the things in a picture and the words."""
    from crossmatch.train.grounded import train_grounded

    given: dict[str, Any] = {key: value for key, value in (("images", images), ("epochs", epochs)) if value is not None}
    train_grounded(output, seed=seed, **given)
    click.echo(f"{output} · crossmatch captions explain --grounder {quote(str(output))} --help")


train.add_command(train_detector_command)
