"""Shared parts of the `crossmatch build` commands: common options, loading of data, and the summary line."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from crossmatch.cli.base import FOLDER
from crossmatch.cli.base import split_names as split_comma_names
from crossmatch.data.errors import CrossmatchError, UsageError

if TYPE_CHECKING:
    from crossmatch.data.collection import Collection
    from crossmatch.data.errors import SkippedItem
    from crossmatch.data.loaded_data import Retrieval

DATA = click.option("--data", required=True, help="Images and captions: collection:FOLDER, diorama, diorama:tiny/train, coco-5k, …")
OUTPUT = click.option("-o", "--output", type=FOLDER, required=True, help="Folder of the step: rows.jsonl and manifest.json.")
SEED = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Seed of random choices.")
SKIP_BAD = click.option(
    "--skip-bad", is_flag=True, help="Skip pictures that do not open and empty captions; skipped.jsonl lists them."
)
SOURCE = click.argument("source", type=click.Path(path_type=Path, file_okay=False))


def load_collection(data: str) -> Collection:
    """Load the collection of `--data`, for a command that cannot skip items."""
    from crossmatch.data.errors import UnusableItemError

    try:
        return _load_retrieval(data).collection
    except UnusableItemError as error:
        raise CrossmatchError(error.reason) from None


def _load_retrieval(data: str, skip_bad: bool = False) -> Retrieval:
    """Load a folder or the embedded world, as `crossmatch study new` names them, or the collection of a task."""
    from crossmatch.benchmarks import list_benchmarks, load_benchmark_data
    from crossmatch.data.loaded_data import Retrieval
    from crossmatch.study.design.data_source import retrieval_of

    warnings.filterwarnings(
        "ignore", message="Image size .* exceeds limit"
    )  # Pillow's warning; such pictures are rejected with our own message
    loaded = load_benchmark_data(data, skip_bad=skip_bad) if data.partition("+")[0] in list_benchmarks() else None
    return loaded if isinstance(loaded, Retrieval) else retrieval_of(data, skip_bad)


def load_usable(data: str, skip_bad: bool) -> tuple[Collection, tuple[SkippedItem, ...]]:
    """Load the collection of `--data`; with `skip_bad`, without unusable items, which are returned too."""
    from crossmatch.data.loaded_data import Retrieval
    from crossmatch.evaluation.input_checks import drop_unreadable_images

    loaded = _load_retrieval(data, skip_bad)
    if not skip_bad:
        return loaded.collection, ()
    ((usable, skipped, _),) = drop_unreadable_images([loaded])
    assert isinstance(usable, Retrieval)
    return usable.collection, skipped


def write_skipped(folder: Path, skipped: tuple[SkippedItem, ...]) -> str:
    """List skipped items in a file beside the rows; return a note for the summary."""
    from crossmatch.build.lookalikes import SKIPPED_FILE
    from crossmatch.data.io.atomic_write import atomic_write

    if not skipped:
        return ""
    with atomic_write(folder / SKIPPED_FILE) as file:
        for item in skipped:
            file.write((json.dumps({item.kind: item.id, "why": item.reason}, ensure_ascii=False) + "\n").encode())
    numbers = {
        "pictures": sum(item.kind == "image" for item in skipped),
        "captions": sum(item.kind == "caption" for item in skipped),
    }
    return f"{', '.join(f'{n:,} {kind}' for kind, n in numbers.items() if n)} left out ({folder / SKIPPED_FILE})"


def print_summary(folder: Path, manifest: Mapping[str, Any], *notes: str) -> None:
    """Print one line: number of rows, counts of the manifest, notes, and the next command."""
    counts = ", ".join(f"{name} {number:,}" for name, number in manifest["counts"].items())
    click.echo(" · ".join(part for part in (f"{folder}: {manifest['rows']:,} rows", counts, *notes) if part))


def study_command(preset: str, option: str, file: Path, data: str) -> str:
    """The command that opens a study on the rows of a step."""
    return f"crossmatch study new {preset} {option} {quote(str(file))} --data {quote(data)} -o CAMPAIGN"


def split_names(text: str, noun: str) -> list[str]:
    """Names separated by commas; at least one."""
    names = split_comma_names(text)
    if not names:
        raise UsageError(f"No {noun} is named. Name one, or several separated by commas.")
    return names


def split_model_names(values: Iterable[str]) -> list[str]:
    """Model names, separated by commas or given by repeated options; the comma in an open_clip name is part of it.

    >>> split_model_names(["random,conse", "open_clip:ViT-B-32,openai"])
    ['random', 'conse', 'open_clip:ViT-B-32,openai']
    """
    return [name for value in values for name in ([value] if value.startswith("open_clip:") else split_names(value, "model"))]


def read_ids_file(path: Path | None) -> list[str] | None:
    """The ids of a file, one per line; None without a file."""
    from crossmatch.data.io.file_contents import read_lines

    return None if path is None else [line.strip() for line in read_lines(path) if line.strip()]


def refuse_options(names: Iterable[str], situation: str) -> None:
    """Raise an error if one of these options was given on the command line, because it has no effect in this situation."""
    context = click.get_current_context()
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if option.name in names and source is click.core.ParameterSource.COMMANDLINE:
            raise UsageError(f"{max(option.opts, key=len)} has no effect {situation}. Remove it.")


def failure_note(output: Path, manifest: Mapping[str, Any]) -> str:
    return f"why: {output / 'failed.jsonl'}" if any(name.startswith("failed") for name in manifest["counts"]) else ""


def load_world(data: str) -> Any:
    from crossmatch.study.design.data_source import is_world, world_of

    if not is_world(data):
        raise UsageError(f"--data {data} is not the embedded world. Pass --data diorama.")
    return world_of(data)
