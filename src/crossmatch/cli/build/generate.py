"""`crossmatch build generate`: generate images of hard negative captions."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import quote
from typing import Any

import click

from crossmatch.cli.base import Command, resumable
from crossmatch.cli.build.common import OUTPUT, SEED, SOURCE, failure_note, load_world, print_summary
from crossmatch.data.errors import UsageError


@click.command("generate", cls=Command)
@SOURCE
@OUTPUT
@click.option("--by", required=True, help="diorama for negatives of the embedded world, or diffusers:FOLDER-OR-NAME.")
@click.option("--data", default="", help="With --by diorama: the data that the captions come from, diorama or diorama:tiny.")
@click.option("--number", type=click.IntRange(1, 64), default=1, show_default=True,
              help="Images per negative; 4 for people to choose from.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="Setting of the generator, such as num_inference_steps=30 or pixels=512. Repeatable.")  # fmt: skip
@SEED
def generate_command(source: Path, output: Path, by: str, data: str, number: int, settings: tuple[str, ...], seed: int) -> None:
    """Generate images of negative captions (BiVLC).

    SOURCE is a folder of `build negatives` or `build refine`.
    """
    from crossmatch.build.generation.generators import load_generator
    from crossmatch.build.generation.negative_images import ITEMS, generate_images

    generator = load_generator(by, load_world(data) if data else None, _parse_settings(settings))
    with resumable():
        manifest = generate_images(source, output, generator=generator, number=number, seed=seed)
    choose = f"crossmatch study new bivlc-choose --items {quote(str(output / ITEMS))} -o CAMPAIGN"
    print_summary(output, manifest, failure_note(output, manifest), choose if number == 4 and manifest["rows"] else "")


def _parse_settings(settings: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not key or not equals:
            raise UsageError(f"--set {setting}: expected KEY=VALUE, such as pixels=512.")
        if key in values:
            raise UsageError(f"--set {key} was given twice. Give it once.")
        try:
            values[key] = json.loads(text)
        except ValueError:
            values[key] = text
    return values
