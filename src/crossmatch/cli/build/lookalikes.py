"""`crossmatch build lookalikes`: pair each image with a look-alike image."""

from __future__ import annotations

from pathlib import Path

import click

from crossmatch.cli.base import FILE, FOLDER, Command, resumable
from crossmatch.cli.build.common import (
    DATA,
    OUTPUT,
    load_collection,
    print_summary,
    read_ids_file,
    study_command,
)


@click.command("lookalikes", cls=Command)
@DATA
@OUTPUT
@click.option("-m", "--model", default="bow", show_default=True, help="Text encoder whose vectors are compared.")
@click.option("--roles", type=click.Choice(["query", "once", "both"]), default="query", show_default=True,
              help="query: each image is the positive of one pair; once: each pair once; both: each pair twice, swapped.")  # fmt: skip
@click.option("--neighbours", type=click.IntRange(1), default=1, show_default=True,
              help="How many nearest images to try if nearer ones are in --refused or --earlier.")  # fmt: skip
@click.option("--search", type=click.Choice(["exact", "faiss"]), default="exact", show_default=True,
              help="Exact search, or approximate search with FAISS.")  # fmt: skip
@click.option(
    "--pictures/--no-pictures", default=True, show_default=True, help="Open images, and skip unreadable and duplicate ones."
)
@click.option("--captions/--no-captions", default=True, show_default=True,
              help="Compare captions, and skip images whose captions equal those of an earlier image.")  # fmt: skip
@click.option("--refused", type=FILE, help="File with ids of refused pairs, one per line; the next neighbour replaces them.")
@click.option("--earlier", type=FOLDER, multiple=True, help="Folder of an earlier run, whose pairs are not repeated. Repeatable.")
def lookalikes_command(data: str, output: Path, model: str, roles: str, neighbours: int, search: str, pictures: bool,
                       captions: bool, refused: Path | None, earlier: tuple[Path, ...]) -> None:  # fmt: skip
    """Pair each image with a look-alike image (BISON).

    The look-alike is the image with the most similar captions.
    """
    from crossmatch.build.lookalikes import LookalikeOptions, find_lookalikes

    options = LookalikeOptions(roles, neighbours, search, pictures, captions)
    refused_ids = read_ids_file(refused) or ()
    with resumable():
        manifest = find_lookalikes(
            load_collection(data), output, model=model, options=options, refused=refused_ids, earlier=earlier
        )  # fmt: skip
    print_summary(output, manifest, study_command("bison-select", "--items", output / "rows.jsonl", data))
