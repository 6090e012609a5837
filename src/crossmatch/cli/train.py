"""`crossmatch train`: train a recipe."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from crossmatch.cli.base import FOLDER, Command, resumable


@click.command("train", cls=Command)
@click.argument("recipe")
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder of the trained model.")
@click.option(
    "--data",
    default="diorama",
    show_default=True,
    help="diorama, collection:FOLDER, or precomp:FOLDER (SCAN's layout); detector: diorama, bivlc, trials:FILE.",
)
@click.option("--regions", type=click.Path(path_type=Path), help="Region features of the collection's images, from a file.")
@click.option("--negatives", type=click.Path(path_type=Path), help="Hard negatives of the collection, for a recipe that has them.")
@click.option("--validation", help="A collection to validate with.  [default: a tenth of the images]")
@click.option(
    "--size", default="default", show_default=True, help="Size of the world, for diorama: default, or tiny for a quick look."
)
@click.option("--images", type=click.IntRange(2), help="Images to train on, at most.  [default: the recipe's, or all]")
@click.option("--epochs", type=click.IntRange(1), help="Passes over the images.  [default: the recipe's]")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Seed of all random numbers.  [default: the recipe's, which is 0]")
@click.option(
    "--threads",
    type=click.IntRange(1, 1024),
    help="Threads of the computation; another number gives slightly different weights.  [default: 1]",
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change the recipe, as in train.learning_rate=1e-3.")
@click.option(
    "--begin",
    metavar="MODEL",
    help="Folder of a trained model of the same family to begin with; for CLIP also hf:… or open_clip:…; for detector any model "
    "that embeds.  [default: the recipe's own, trained in OUTPUT/begin]",
)
@click.option("--restart", is_flag=True, help="Replace an earlier training in the folder.")
@click.option("--tensorboard", is_flag=True, help="Also write event files for TensorBoard.")
def train(recipe: str, output: Path, data: str, regions: Path | None, negatives: Path | None, validation: str | None, size: str,
          images: int | None, epochs: int | None, seed: int | None, threads: int | None, overrides: tuple[str, ...],
          begin: str | None, restart: bool, tensorboard: bool) -> None:  # fmt: skip
    """Train a model by its recipe.

    RECIPE is a name (`crossmatch list recipes`) or a TOML file of your own.

    The folder gets the model of the best epoch (model.json and weights) and log.csv. Run the same command again to resume an
    interrupted training; it ends with the same weights. Some recipes start from another one (updown-scst from updown), which is
    trained first. Use --begin MODEL to skip that, or --set begin.KEY=VALUE to change it.
    """
    from crossmatch.train.data.sources import DataOptions
    from crossmatch.train.recipe import Override
    from crossmatch.train.run_recipe import train_recipe
    from crossmatch.train.validation import RETRIEVAL

    settings = {"images": images, "epochs": epochs, "seed": seed, "threads": threads}
    changed = [Override("train", key, value, f"--{key} {value}") for key, value in settings.items() if value is not None]
    options = DataOptions(size=size, validation=validation, regions=regions, negatives=negatives)
    with resumable(restart):
        model = train_recipe(
            recipe, output, data=data, options=options, overrides=[*overrides, *changed], begin=begin,
            restart=restart, tensorboard=tensorboard, notify=lambda message: click.echo(message, err=True),
        )  # fmt: skip
    trained = model.recipe
    if isinstance(trained["validation"], dict):  # a detector has one value per side
        click.echo(_detector_line(model, output, data, size))
        return
    is_captioner = hasattr(model, "caption_regions")
    label = trained.get("validated_by", RETRIEVAL.label)  # folders of earlier versions do not have it
    value = f"{label} {trained['validation']:.1f}{best_possible(model, label)}{no_improvement(trained['validation'], is_captioner)}"
    name = quote(_evaluated_name(model, output, regions))
    if trained.get("family") == "grounded":
        next_command = f"crossmatch captions explain --grounder {name} --help"
    else:
        world_task = "diorama/bison" if is_captioner else "diorama/retrieval"  # a captioner scores all pairs one by one
        task = world_task if data == "diorama" else data if data.startswith("collection:") else "TASK"
        size_option = "" if size == "default" or data != "diorama" else f" --size {size}"
        next_command = f"crossmatch run -m {name} -t {quote(task)}{size_option}"
    click.echo(f"{output} · epoch {trained['best_epoch']} of {trained['epochs']}, {value} · {next_command}")


def _evaluated_name(model: Any, output: Path, regions: Path | None) -> str:
    """The name with which `crossmatch run -m` evaluates a model; one that was trained on a file of regions needs such a file."""
    from crossmatch.models.zoo.trained_model import FileRegions

    name = str(getattr(model, "name", output))
    return f"regions:{regions or 'FILE'}+{name}" if isinstance(getattr(model, "extractor", None), FileRegions) else name


def _detector_line(detector: Any, output: Path, data: str, size: str) -> str:
    accuracies = ", ".join(f"{side}s {value:.1f} %" for side, value in detector.recipe["validation"].items())
    tasks = "diorama/bivlc,diorama/sugarcrepe" if data == "diorama" else data
    size_option = f" --size {size}" if data == "diorama" and size != "default" else ""
    return f"{output} · correct in validation: {accuracies} · crossmatch run -m {quote(str(output))} -t {quote(tasks)}{size_option}"


def no_improvement(best: float, is_captioner: bool) -> str:
    """Explanation for a validation score of 0 in every epoch; empty otherwise.

    >>> no_improvement(0.0, is_captioner=False)
    '. Validation score did not improve in any epoch; the weights of the first one are kept'
    """
    from crossmatch.train.validation import DIGITS

    if round(best, DIGITS) > 0:
        return ""
    best_epoch = "the one with the highest likelihood of the true captions" if is_captioner else "the first one"
    return f". Validation score did not improve in any epoch; the weights of {best_epoch} are kept"


def best_possible(model: Any, label: str) -> str:
    """The highest possible validation score, if it is a sum of per cents.

    There are three hit metrics per direction (two for small models); a model of texts has one direction. There are four choices per
    trial, or one for a collection without negative images.
    """
    from crossmatch.train.run_recipe import SMALL_FAMILIES
    from crossmatch.train.validation import RETRIEVAL, TRIALS

    recipe = model.recipe
    if label == RETRIEVAL.label:
        if recipe.get("family") in SMALL_FAMILIES:
            return " of 400"
        return " of 600" if hasattr(model, "compare") else " of 300"
    if label != TRIALS.label:
        return ""
    return " of 100" if recipe["data"] != "diorama" and recipe["negatives"]["kind"] == "texts" else " of 400"
