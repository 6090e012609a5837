"""Where scores and embeddings of slow models are kept: the options of commands that score, and `crossmatch cache`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from crossmatch.core.errors import WrongWords

if TYPE_CHECKING:
    from crossmatch.models.cache import ScoreCache

Command = TypeVar("Command", bound=Callable[..., object])
FOLDER = click.Path(path_type=Path, file_okay=False)


def cache_options(command: Command) -> Command:
    """`--cache DIR` and `--no-cache`, which become the arguments of `score_cache`."""
    off = click.option("--no-cache", is_flag=True, help="Score everything anew, and keep nothing.")
    folder = click.option(
        "--cache", type=FOLDER, help="Keep scores of pairs and embeddings here.  [default: the user's cache folder]"
    )
    return folder(off(command))


def score_cache(cache: Path | None, no_cache: bool) -> ScoreCache | None:
    """What the two options mean; the cache tells its news on standard error."""
    from crossmatch.models.cache import ScoreCache, default_folder

    if no_cache and cache is not None:
        raise WrongWords("--cache and --no-cache contradict each other. Give one of them.")
    return None if no_cache else ScoreCache(cache or default_folder(), lambda line: click.echo(f"cache: {line}", err=True))


@click.group("cache")
def cache_group() -> None:
    """See and clear what is kept: scores of models that score pairs, embeddings of images and texts, and what trainings saw."""


@cache_group.command("list")
@click.option("--cache", type=FOLDER, help="The folder, if it is not the usual one.")
def list_cache(cache: Path | None) -> None:
    """List what is kept: models, pairs or items, how much is there, and its size."""
    from crossmatch.core.places import features_folder
    from crossmatch.models.cache import default_folder
    from crossmatch.models.embedding_cache import held_embeddings
    from crossmatch.models.shelf import held
    from crossmatch.report.tables import Table, as_text

    folder = cache or default_folder()
    rows = [
        (
            h.system,
            f"{h.images:,} x {h.captions:,}",
            f"{100 * h.there // max(h.blocks, 1)} %",
            f"{h.bytes / 1e6:,.1f} MB",
            h.folder.name,
        )
        for h in held(folder)
    ]
    head = (("system", "images x captions", "there", "size", "key"),)
    vectors = [(h.system, f"{h.items:,}", f"{h.bytes / 1e6:,.1f} MB", h.folder.name) for h in held_embeddings(folder)]
    found = [Table(f"scores in {folder}", head, tuple(rows), 1)] if rows else []
    found += [Table(f"embeddings in {folder}", (("system", "items", "size", "key"),), tuple(vectors), 1)] if vectors else []
    click.echo("\n\n".join(map(as_text, found)) if found else f"no scores are kept in {folder}, and no embeddings")
    if cache is None and (size := _size(features_folder())):
        click.echo(f"\nand {size / 1e6:,.1f} MB of what trainings saw and read in {features_folder()} (`clear --features`)")


@cache_group.command("clear")
@click.option("--cache", type=FOLDER, help="The folder, if it is not the usual one.")
@click.option("--system", help="Clear what is kept of this model alone (its signature or its key, as `cache list` shows them).")
@click.option("--features", is_flag=True, help="Also what trainings saw and read: features of regions and texts, and encoders.")
def clear_cache(cache: Path | None, system: str | None, features: bool) -> None:
    """Remove what is kept, and nothing else that may be in the folder."""
    import shutil

    from crossmatch.core.places import features_folder
    from crossmatch.models.cache import default_folder
    from crossmatch.models.embedding_cache import clear_embeddings, held_embeddings
    from crossmatch.models.shelf import clear, held

    folder = cache or default_folder()
    by_key = {h.folder.name: h.system for h in held(folder)} | {h.folder.name: h.system for h in held_embeddings(folder)}
    system = by_key.get(system, system) if system else system
    gone, vectors = clear(folder, system), clear_embeddings(folder, system)
    click.echo(
        f"removed the scores of {len(gone):,} models and collections, {sum(h.bytes for h in gone) / 1e6:,.1f} MB, and the "
        f"embeddings of {len(vectors):,} models, {sum(h.bytes for h in vectors) / 1e6:,.1f} MB",
        err=True,
    )
    if features:
        size = _size(features_folder())
        shutil.rmtree(features_folder(), ignore_errors=True)
        click.echo(f"removed {size / 1e6:,.1f} MB of what trainings saw and read", err=True)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
