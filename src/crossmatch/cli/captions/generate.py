"""`crossmatch captions generate`: write a caption for each image with a captioner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click

from crossmatch.cli.base import FILE, Command, without_none
from crossmatch.cli.captions.common import DIORAMA, resolve_task
from crossmatch.data.errors import UsageError
from crossmatch.models.decoding_options import DECODING_OF_OPTION, DecodingOptions, resolve_decoding

DECODINGS = {"greedy": "greedy", "sample": "sampled", "beam": "beam"}  # name on the command line: name in `DecodingOptions`
DECODING_TITLES = {"greedy": "greedy decoding", "sampled": "sampling", "beam": "beam search"}
DEFAULTS = DecodingOptions()


class FiniteFloatRange(click.FloatRange):
    """A number within limits; infinity and nan are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not math.isfinite(click.FLOAT.convert(value, param, ctx)):
            self.fail(f"expected a finite number, got {value}.", param, ctx)
        return super().convert(value, param, ctx)


def _limits(option: str) -> click.IntRange | FiniteFloatRange:
    """The limits that `DecodingOptions` declares for an option."""
    limits = next(option_field.metadata for option_field in fields(DecodingOptions) if option_field.name == option)
    range_type = click.IntRange if isinstance(getattr(DEFAULTS, option), int) else FiniteFloatRange
    return range_type(limits.get("least", limits.get("above")), limits.get("most"), min_open="above" in limits)


@click.command("generate", cls=Command)
@click.option("-m", "--model", required=True, help="A captioner: the folder of a trained one, hf:NAME, FILE.py:NAME.")
@click.option("--data", default=DIORAMA, show_default=True, help="Images: diorama, a task, or collection:FOLDER.")
@click.option("-o", "--output", type=FILE, required=True, help="The file to write (.json), in COCO's results format.")
@click.option("--split", help="Split of the data, for tasks with several.  [default: the task's own; diorama: test]")
@click.option("--size", help="Size of the diorama: default, coco, tiny.")
@click.option("--decoding", type=click.Choice(list(DECODINGS)), help="Decoding method.  [default: the model's own, usually beam]")
@click.option("--width", type=_limits("width"),
              help=f"Beam width. More than about ten rarely gives better captions.  [default: {DEFAULTS.width}]")  # fmt: skip
@click.option("--length-penalty", type=_limits("length_penalty"),
              help="Beam search divides the log-likelihood by the length to this power.  "
              f"[default: {DEFAULTS.length_penalty:g}]")  # fmt: skip
@click.option("--temperature", type=_limits("temperature"),
              help="Sampling temperature; implies --decoding sample. Below 1, likely words become likelier.  "
              f"[default: {DEFAULTS.temperature:g}]")  # fmt: skip
@click.option("--seed", type=_limits("seed"), help=f"Seed of sampling; implies --decoding sample.  [default: {DEFAULTS.seed}]")
@click.option("--batch", type=click.IntRange(1), default=64, show_default=True, help="Images per batch; sampling always uses 64.")
@click.option("--workers", type=click.IntRange(0), help="Threads that read images ahead.  [default: free cores]")
@click.option("--limit", type=click.IntRange(1), help="Caption only this many images, the first ones.")
def generate_command(model: str, data: str, output: Path, split: str | None, size: str | None, decoding: str | None,
                     width: int | None, length_penalty: float | None, temperature: float | None, seed: int | None, batch: int,
                     workers: int | None, limit: int | None) -> None:  # fmt: skip
    """Write a caption for each image.

    `captions score` reads the file.
    """
    from crossmatch.benchmarks import load_benchmark_data
    from crossmatch.data.trials import Trials
    from crossmatch.models import make_model
    from crossmatch.models.caption_generation import (
        count_captions,
        generate_captions,
        require_captioner,
        take_first_images,
        write_coco_results,
    )
    from crossmatch.models.distinct_items import collect_items

    if output.suffix.lower() != ".json":
        raise UsageError(f"-o: {output} should end in .json, as COCO results files do.")
    options = {"width": width, "length_penalty": length_penalty, "temperature": temperature, "seed": seed}
    method = DECODINGS[decoding] if decoding else None
    decoding_options = resolve_decoding({"decoding": method, **options}, {method: name for name, method in DECODINGS.items()})
    captioner = require_captioner(make_model(model, "updown"), model)
    task, task_options = resolve_task(data), without_none(split=split, size=size)
    loaded = load_benchmark_data(task, **task_options)
    collection = collect_items([loaded])[0] if isinstance(loaded, Trials) else loaded.collection
    captions = generate_captions(captioner, take_first_images(collection, limit), batch=batch, workers=workers, **decoding_options)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_coco_results(output, captions)
    facts = [
        str(output),
        f"{len(captions):,} captions by {_describe_decoding(decoding_options, getattr(captioner, 'default_decoding', None))}",
    ]
    if truncated := count_captions(captioner, "cut_short", captions):
        facts.append(f"{truncated:,} of them ({truncated / len(captions):.1%}) reached no end and were truncated")
    if at_limit := count_captions(captioner, "filled", captions):
        facts.append(f"{at_limit:,} of them ({at_limit / len(captions):.1%}) ended exactly at the length limit")
    references = (
        "FILE" if isinstance(loaded, Trials) else task + "".join(f"+{name}={value}" for name, value in task_options.items())
    )
    partial = " --partial" if len(captions) < collection.shape[0] else ""
    facts.append(f"crossmatch captions score --candidates {output} --references {references}{partial}")
    click.echo(" · ".join(facts))


def _describe_decoding(options: Mapping[str, Any], defaults: DecodingOptions | None = None) -> str:
    """The decoding in words: the options that were given, completed by the model's defaults.

    >>> _describe_decoding({"decoding": "beam", "width": 3}, DEFAULTS)
    'beam search (width 3, length penalty 1.0)'
    >>> _describe_decoding({})
    "the model's own decoding"
    """
    values = {**(asdict(defaults) if defaults else {}), **options}
    method = values.get("decoding")
    if method is None:
        return "the model's own decoding"
    details = ", ".join(
        f"{name.replace('_', ' ')} {values[name]}"
        for name, option_method in DECODING_OF_OPTION.items()
        if option_method == method and name in values
    )
    return f"{DECODING_TITLES[method]} ({details})" if details else DECODING_TITLES[method]
