"""`crossmatch train detector`: what tells natural images and captions from synthetic ones, over the embeddings of any model."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import click

from crossmatch.cli.cache import cache_options
from crossmatch.cli.folders import FOLDER
from crossmatch.cli.stopped import goes_on


@click.command("detector")
@click.option("-m", "--model", required=True, help="A model that embeds, and stays as it is (see `crossmatch models`).")
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder of the trained detector.")
@click.option("--data", default="diorama", show_default=True,
              help="diorama, or a task of two images and two captions each: bivlc, trials:FILE, …")  # fmt: skip
@click.option("--validation", help="A task to validate with.  [default: a fifth of the trials; for diorama, its val split]")
@click.option("--size", default="default", show_default=True, help="Size of the world, for diorama: default, or tiny.")
@click.option("--images", type=click.IntRange(5), help="Scenes of diorama to train on.  [default: 2000]")
@click.option(
    "--epochs", type=click.IntRange(1, 10**6), help="Passes over the items.  [default: 10 for texts, 1 for images; diorama: 100]"
)
@click.option(
    "--learning-rate", type=click.FloatRange(0, 1000, min_open=True), help="Of Adam.  [default: 1e-6, as published; diorama: 0.1]"
)
@click.option("--train-batch", type=click.IntRange(1, 10**9), help="Items of a step.  [default: 400]")
@click.option("--batch", type=click.IntRange(1), default=128, show_default=True, help="Items that the model embeds at a time.")
@click.option("--workers", type=click.IntRange(0), help="Threads that open pictures ahead.  [default: cores to spare]")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Of the order of the items.")
@click.option("--restart", is_flag=True, help="Begin again, whatever the folder holds.")
@cache_options
def train_detector_command(model: str, output: Path, data: str, validation: str | None, size: str, images: int | None,
                           epochs: int | None, learning_rate: float | None, train_batch: int | None, batch: int,
                           workers: int | None, seed: int, restart: bool, cache: Path | None, no_cache: bool) -> None:  # fmt: skip
    """Detectors of synthetic captions and images: a sigmoid neuron over each side of a frozen model (BiVLC, section 5.3).

    The embeddings are kept as `crossmatch run` keeps them: a training that was interrupted embeds nothing twice, and ends with the
    same weights.
    """
    from crossmatch.cli.cache import score_cache
    from crossmatch.models.detector_model import Embedding
    from crossmatch.train.detector import train_detector

    with goes_on(restart):
        made = train_detector(
            model, output, data=data, validation=validation, images=images, size=size, learning_rate=learning_rate, epochs=epochs,
            batch=train_batch, seed=seed, asking=Embedding(batch, score_cache(cache, no_cache), workers), restart=restart,
            tell=lambda said: click.echo(said, err=True),
        )  # fmt: skip
    found = ", ".join(f"{side}s {value:.1f} %" for side, value in made.recipe["validation"].items())
    tasks = "diorama/bivlc,diorama/sugarcrepe" if data == "diorama" else data
    small = f" --size {size}" if data == "diorama" and size != "default" else ""
    click.echo(f"{output} · right in validation: {found} · crossmatch run -m {quote(str(output))} -t {quote(tasks)}{small}")
