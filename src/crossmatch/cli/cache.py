"""The options --cache and --no-cache, and the command `crossmatch cache`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from crossmatch.cli.base import Command
from crossmatch.data.errors import UsageError

if TYPE_CHECKING:
    from crossmatch.models.cache import Cache
    from crossmatch.models.cache.store import EntrySummary

CallbackT = TypeVar("CallbackT", bound=Callable[..., object])
FOLDER = click.Path(path_type=Path, file_okay=False)


def cache_options(callback: CallbackT) -> CallbackT:
    """Add `--cache DIR` and `--no-cache`, which become the arguments of `score_cache`."""
    off = click.option("--no-cache", is_flag=True, help="Compute everything, and store nothing in the cache.")
    folder = click.option(
        "--cache", type=FOLDER, help="Cache scores and embeddings in this folder.  [default: the user's cache folder]"
    )
    return folder(off(callback))


def score_cache(cache: Path | None, no_cache: bool) -> Cache | None:
    """Return the cache that the two options choose; its messages go to standard error."""
    from crossmatch.models.cache import Cache, default_cache_folder

    if no_cache and cache is not None:
        raise UsageError("--cache and --no-cache contradict each other. Use one of them.")
    return None if no_cache else Cache(cache or default_cache_folder(), lambda message: click.echo(f"cache: {message}", err=True))


@click.command("cache", cls=Command)
@click.option("--cache", type=FOLDER, help="The cache folder, if it is not the default one.")
@click.option("--clear", is_flag=True, help="Remove cache entries, and nothing else that may be in the folder.")
@click.option("--model", "system", help="With --clear: only the entries of this model (its signature or key, as listed).")
@click.option("--features", is_flag=True, help="With --clear: also training features (regions, texts, and their encoders).")
def cache_command(cache: Path | None, clear: bool, system: str | None, features: bool) -> None:
    """List or clear the cache of scores and embeddings."""
    if clear:
        _clear(cache, system, features)
        return
    if system or features:
        raise UsageError(f"{'--model' if system else '--features'} works only with --clear. Add --clear.")
    _list(cache)


def _list(cache: Path | None) -> None:
    """Print the cached models with the number of pairs or items, how much is complete, and the size."""
    from crossmatch.data.io.paths import features_folder
    from crossmatch.models.cache import Cache, default_cache_folder
    from crossmatch.models.cache.embeddings import count_items
    from crossmatch.report.tables import Table, format_table

    folder = cache or default_cache_folder()
    scores, embeddings, others = [], [], []
    for entry in Cache(folder).summaries():
        size = f"{entry.bytes / 1e6:,.1f} MB"
        if entry.kind == "scores":
            pairs = f"{entry.about['images']:,} x {entry.about['captions']:,}"
            scores.append((entry.system, pairs, f"{100 * entry.blocks // max(entry.about['blocks'], 1)} %", size, entry.key))
        elif entry.kind == "embeddings":
            embeddings.append((entry.system, f"{count_items(entry):,}", size, entry.key))
        else:
            others.append((entry.system, entry.kind, size, entry.key))
    tables = (
        Table(f"scores in {folder}", (("system", "images x captions", "complete", "size", "key"),), tuple(scores), 1),
        Table(f"embeddings in {folder}", (("system", "items", "size", "key"),), tuple(embeddings), 1),
        Table(f"other entries in {folder}", (("system", "kind", "size", "key"),), tuple(others), 1),
    )
    click.echo("\n\n".join(format_table(table) for table in tables if table.rows) or f"the cache in {folder} is empty")
    if cache is None:
        if size_of_old := _size(_earlier_folder()):
            click.echo(f"\n{size_of_old / 1e6:,.1f} MB of an earlier version in {_earlier_folder()} (remove with `cache --clear`)")
        if size_of_features := _size(features_folder()):
            click.echo(
                f"\n{size_of_features / 1e6:,.1f} MB of training features in {features_folder()} "
                "(remove with `cache --clear --features`)"
            )


def _clear(cache: Path | None, system: str | None, features: bool) -> None:
    """Remove cache entries and report what was removed."""
    import shutil

    from crossmatch.data.io.paths import features_folder
    from crossmatch.models.cache import Cache, default_cache_folder

    folder = cache or default_cache_folder()
    signatures = {entry.key: entry.system for entry in Cache(folder).summaries()}
    system = signatures.get(system, system) if system else None
    removed = Cache(folder).clear(system) + (Cache(_earlier_folder()).clear(system) if cache is None else [])
    click.echo(
        f"removed {_describe(removed, 'scores')} of scores, {_describe(removed, 'embeddings')} of embeddings, and "
        f"{_describe(removed, None)} of other kinds",
        err=True,
    )
    if features:
        size = _size(features_folder())
        shutil.rmtree(features_folder(), ignore_errors=True)
        click.echo(f"removed {size / 1e6:,.1f} MB of training features", err=True)


def _describe(entries: list[EntrySummary], kind: str | None) -> str:
    """Number and size of the entries of one kind; of all kinds without a table of their own for None."""
    chosen = [entry for entry in entries if (entry.kind if entry.kind in ("scores", "embeddings") else None) == kind]
    return f"{len(chosen):,} entries ({sum(entry.bytes for entry in chosen) / 1e6:,.1f} MB)"


def _earlier_folder() -> Path:
    """The default cache folder of earlier versions, whose entries are not read any more."""
    from crossmatch.data.io.paths import cache_folder

    return cache_folder() / "scores"


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
