"""`crossmatch captions generate`: have a captioner tell what is in each image, for `captions score` to judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from crossmatch.core.errors import WrongWords

WORLD = "diorama"
TASK = "diorama/retrieval"  # the task that has its images and references
WAYS = {"greedy": "greedy", "sample": "sampled", "beam": "beam"}  # as one says it, and as `Telling` does


@click.command("generate")
@click.option(
    "-m", "--model", required=True, help="A model that tells captions: the folder of a trained captioner, hf:NAME, FILE.py:NAME."
)
@click.option("--data", default=WORLD, show_default=True, help="Images: diorama, a task, or collection:FOLDER.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The file to write (.json), as COCO's results.",
)
@click.option("--split", help="Split of the data, where there are several.  [default: the task's own; diorama: test]")
@click.option("--size", help="Size of the world, for diorama: default, coco, tiny.")
@click.option(
    "--decoding", type=click.Choice(list(WAYS)), help="How a caption is found.  [default: the model's own, which is beam]"
)
@click.option("--width", type=click.IntRange(1), help="Captions that a beam search follows.  [default: 5]")
@click.option("--length-penalty", type=float, help="Of a beam search: the power of its length that a log-likelihood is divided by.")
@click.option("--temperature", type=click.FloatRange(0, min_open=True), help="Of sampling: below 1 likely words become likelier.")
@click.option("--seed", type=click.IntRange(0), help="Of sampling.  [default: 0]")
@click.option("--batch", type=click.IntRange(1), default=64, show_default=True, help="Images at a time; when sampling always 64.")
@click.option("--workers", type=click.IntRange(0), help="Threads that open pictures ahead.  [default: cores to spare]")
@click.option("--limit", type=click.IntRange(1), help="Caption so many images only, the first ones.")
def generate_command(model: str, data: str, output: Path, split: str | None, size: str | None, decoding: str | None,
                     width: int | None, length_penalty: float | None, temperature: float | None, seed: int | None, batch: int,
                     workers: int | None, limit: int | None) -> None:  # fmt: skip
    """Write a caption for each image, in the file that `captions score --candidates` reads."""
    from crossmatch.benchmarks import load_data
    from crossmatch.core.trials import Trials
    from crossmatch.models import make_model
    from crossmatch.models.generation import chosen_images, cut_short, require_teller, told_captions, write_results
    from crossmatch.models.pair_cache import items_of
    from crossmatch.models.telling import decoding_of

    if output.suffix.lower() != ".json":
        raise WrongWords(f"{output} should end in .json, as COCO's files of results do. Name it so.")
    asked = {"width": width, "length_penalty": length_penalty, "temperature": temperature, "seed": seed}
    how = decoding_of({"decoding": decoding and WAYS[decoding], **asked})
    teller = require_teller(make_model(model), model)
    options: dict[str, Any] = {key: value for key, value in (("split", split), ("size", size)) if value is not None}
    task = task_of(data)
    loaded = load_data(task, **options)
    collection = items_of([loaded])[0] if isinstance(loaded, Trials) else loaded.collection
    captions = told_captions(teller, chosen_images(collection, limit), batch=batch, workers=workers, **how)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_results(output, captions)
    wanted = "".join(f"+{key}={value}" for key, value in options.items())
    partial = " --partial" if len(captions) < collection.shape[0] else ""
    scored = "FILE" if isinstance(loaded, Trials) else f"{task}{wanted}"
    cut = cut_short(teller, captions)
    unended = f" · {cut:,} of them ({cut / len(captions):.1%}) did not end and were cut" if cut else ""
    advice = f"crossmatch captions score --candidates {output} --references {scored}{partial}"
    click.echo(f"{output} · {len(captions):,} captions{unended} · {advice}")


def task_of(words: str) -> str:
    """The task with the images of this name: the embedded world by its name alone, with options after it, or any task.

    >>> task_of("diorama+size=tiny"), task_of("collection:pets")
    ('diorama/retrieval+size=tiny', 'collection:pets')
    """
    name, plus, options = words.partition("+")
    return f"{TASK}{plus}{options}" if name == WORLD else words
