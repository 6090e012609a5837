"""`crossmatch build card`: write a data sheet and parquet files for a result folder."""

from __future__ import annotations

from pathlib import Path

import click

from crossmatch.cli.base import FOLDER, Command

PATH = click.Path(path_type=Path)


@click.command("card", cls=Command)
@click.argument("folder", type=FOLDER)
@click.option("-o", "--output", type=FOLDER, required=True, help="Folder to publish.")
@click.option("--name", default="", help="Name of the data set.  [default: the folder's name]")
@click.option("--about", default="", help="Description in one or two sentences.")
@click.option("--licence", default="", help="Licence of the annotations, such as cc-by-4.0.")
@click.option("--image-licences", type=PATH, help="Table with image_id and licence.")
@click.option(
    "--step", "earlier", multiple=True, type=FOLDER, help="Folder of a step or study export behind the result. Repeatable."
)
@click.option("--url", default="", help="Web address.")
@click.option("--cite", default="", help="Citation.")
@click.option("--released", default="", help="Release date, such as 2026-11-17.")
@click.option("--version", default="1.0.0", show_default=True, help="Version of the data.")
def card_command(folder: Path, output: Path, name: str, about: str, licence: str, image_licences: Path | None,
                 earlier: tuple[Path, ...], url: str, cite: str, released: str, version: str) -> None:  # fmt: skip
    """Write a data sheet and parquet files for a result FOLDER.

    FOLDER has judgements or trials. The result also has Croissant metadata.
    """
    from crossmatch.build.publishing.published_folder import CardTexts, write_card

    texts = CardTexts(name or folder.resolve().name, about, licence, url, cite, released, version)
    manifest = write_card(folder, output, texts, earlier=earlier, licences=image_licences)
    click.echo(", ".join(f"{number:,} {name}" for name, number in manifest["counts"].items()))
    if not licence:
        click.echo("No licence was stated. Add one with --licence.", err=True)
    load = f'datasets.load_dataset("{output}")'
    click.echo(f"saved {output / 'README.md'}, {output / 'croissant.json'} · {load}", err=True)
