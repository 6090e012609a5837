"""`crossmatch captions generate`: have a captioner tell what is in each image, for `captions score` to judge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click

from crossmatch.core.errors import WrongWords
from crossmatch.models.telling import OF, Telling, decoding_of

WORLD = "diorama"
TASK = "diorama/retrieval"  # the task that has its images and references
WAYS = {"greedy": "greedy", "sample": "sampled", "beam": "beam"}  # as one says it, and as `Telling` does
SAID = {"greedy": "greedy decoding", "sampled": "sampling", "beam": "beam search"}
USUAL = Telling()


class Finite(click.FloatRange):
    """A number within its limits, which endless ones and nan are not."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not math.isfinite(click.FLOAT.convert(value, param, ctx)):
            self.fail(f"{value} was given; a finite number was expected.", param, ctx)
        return super().convert(value, param, ctx)


def within(option: str) -> click.IntRange | Finite:
    """The limits of an option of `Telling`, as they are declared there."""
    limits = next(each.metadata for each in fields(Telling) if each.name == option)
    kind = click.IntRange if isinstance(getattr(USUAL, option), int) else Finite
    return kind(limits.get("least", limits.get("above")), limits.get("most"), min_open="above" in limits)


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
@click.option("--width", type=within("width"),
              help="Captions that a beam search follows at once; its time and memory grow with them, and beyond ten or so "
              f"they rarely bring a better one.  [default: {USUAL.width}]")  # fmt: skip
@click.option(
    "--length-penalty",
    type=within("length_penalty"),
    help=f"Of a beam search: the power of its length that a log-likelihood is divided by.  [default: {USUAL.length_penalty:g}]",
)
@click.option(
    "--temperature",
    type=within("temperature"),
    help="Of sampling, which it asks for where no --decoding is named: below 1 likely words become likelier.  "
    f"[default: {USUAL.temperature:g}]",
)
@click.option("--seed", type=within("seed"), help=f"Of sampling, which it asks for as well.  [default: {USUAL.seed}]")
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
    from crossmatch.models.generation import chosen_images, cut_short, filled, require_teller, told_captions, write_results
    from crossmatch.models.pair_cache import items_of

    if output.suffix.lower() != ".json":
        raise WrongWords(f"{output} should end in .json, as COCO's files of results do. Name it so.")
    asked = {"width": width, "length_penalty": length_penalty, "temperature": temperature, "seed": seed}
    how = decoding_of({"decoding": decoding and WAYS[decoding], **asked}, {own: said for said, own in WAYS.items()})
    teller = require_teller(make_model(model, "updown"), model)
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
    full = filled(teller, captions)
    unended += f" · {full:,} of them ({full / len(captions):.1%}) ended at the last word that the limit allows" if full else ""
    advice = f"crossmatch captions score --candidates {output} --references {scored}{partial}"
    found = worded(how, getattr(teller, "usual_telling", None))
    click.echo(f"{output} · {len(captions):,} captions by {found}{unended} · {advice}")


def worded(how: Mapping[str, Any], usual: Telling | None = None) -> str:
    """How captions were found, as far as it is known: what was asked for, and what the model does where nothing is.

    >>> worded({"decoding": "beam", "width": 3}, USUAL)
    'beam search (width 3, length penalty 1.0)'
    >>> worded({})
    "the model's own decoding"
    """
    known = {**(asdict(usual) if usual else {}), **how}
    way = known.get("decoding")
    if way is None:
        return "the model's own decoding"
    told = ", ".join(f"{name.replace('_', ' ')} {known[name]}" for name, of in OF.items() if of == way and name in known)
    return f"{SAID[way]} ({told})" if told else SAID[way]


def task_of(words: str) -> str:
    """The task with the images of this name: the embedded world by its name alone, with options after it, or any task.

    >>> task_of("diorama+size=tiny"), task_of("collection:pets")
    ('diorama/retrieval+size=tiny', 'collection:pets')
    """
    name, plus, options = words.partition("+")
    return f"{TASK}{plus}{options}" if name == WORLD else words
