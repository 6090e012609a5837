"""What the steps of `crossmatch build` share: where data come from, how a step ends, and options of several of them."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from crossmatch.cli.folders import FOLDER
from crossmatch.core.errors import CrossmatchError, WrongWords

if TYPE_CHECKING:
    from crossmatch.core.benchmark import Retrieval
    from crossmatch.core.collection import Collection
    from crossmatch.core.skipped import Skipped

DATA = click.option("--data", required=True, help="Images and captions: collection:FOLDER, diorama, diorama:tiny/train, coco-5k, …")
OUTPUT = click.option("-o", "--output", type=FOLDER, required=True, help="Folder of the step: rows.jsonl and manifest.json.")
SEED = click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Of what is drawn by lot.")
SKIP_BAD = click.option(
    "--skip-bad", is_flag=True, help="Leave out pictures that do not open and empty captions; skipped.jsonl lists them."
)
SOURCE = click.argument("source", type=click.Path(path_type=Path, file_okay=False))


def collection(words: str) -> Collection:
    """What `--data` names, for a command that can leave nothing out."""
    from crossmatch.core.skipped import Unusable

    try:
        return _retrieval(words).collection
    except Unusable as error:
        raise CrossmatchError(error.why) from None


def _retrieval(words: str, skip_bad: bool = False) -> Retrieval:
    """In the words of `crossmatch study new` a folder or the embedded world, or the collection of a task."""
    from crossmatch.benchmarks import benchmarks, load_data
    from crossmatch.core.benchmark import Retrieval
    from crossmatch.study.sources import retrieval_of

    warnings.filterwarnings("ignore", message="Image size .* exceeds limit")  # of Pillow; such pictures are refused in our words
    found = load_data(words, skip_bad=skip_bad) if words.partition("+")[0] in benchmarks() else None
    return found if isinstance(found, Retrieval) else retrieval_of(words, skip_bad)


def usable(words: str, skip_bad: bool) -> tuple[Collection, tuple[Skipped, ...]]:
    """What `--data` names, without empty captions and pictures that do not open if that is asked for, and those."""
    from crossmatch.core.benchmark import Retrieval
    from crossmatch.inputs import without_bad

    found = _retrieval(words, skip_bad)
    if not skip_bad:
        return found.collection, ()
    ((kept, left, _),) = without_bad([found])
    assert isinstance(kept, Retrieval)
    return kept.collection, left


def tell_skipped(folder: Path, left: tuple[Skipped, ...]) -> str:
    """List what was left out beside the rows, and say how many these are."""
    from crossmatch.build.mine import SKIPPED
    from crossmatch.core.whole import whole_file

    if not left:
        return ""
    with whole_file(folder / SKIPPED) as file:
        for one in left:
            file.write((json.dumps({one.kind: one.id, "why": one.why}, ensure_ascii=False) + "\n").encode())
    kinds = [
        (n, what) for what, kind in (("pictures", "image"), ("captions", "caption")) if (n := sum(one.kind == kind for one in left))
    ]
    return f"{', '.join(f'{n:,} {what}' for n, what in kinds)} left out ({folder / SKIPPED})"


def ended(folder: Path, told: Mapping[str, Any], *then: str) -> None:
    """The last line: how many rows, what the manifest counts, and what may come next."""
    counts = ", ".join(f"{name} {number:,}" for name, number in told["counts"].items())
    click.echo(" · ".join(part for part in (f"{folder}: {told['rows']:,} rows", counts, *then) if part))


def study(preset: str, option: str, file: Path, data: str) -> str:
    """The words of the study that may follow."""
    return f"crossmatch study new {preset} {option} {quote(str(file))} --data {quote(data)} -o CAMPAIGN"


def listed(words: str, what: str) -> list[str]:
    """Names that are separated by commas."""
    names = [name.strip() for name in words.split(",") if name.strip()]
    if not names:
        raise WrongWords(f"no {what} was named. Name one, or several with commas between them.")
    return names


def named_models(words: Iterable[str]) -> list[str]:
    """Models, each named alone or several with commas between them; the comma in a name of open_clip is part of it.

    >>> named_models(["random,conse", "open_clip:ViT-B-32,openai"])
    ['random', 'conse', 'open_clip:ViT-B-32,openai']
    """
    return [name for some in words for name in ([some] if some.startswith("open_clip:") else listed(some, "model"))]


def lines_of(path: Path | None) -> list[str] | None:
    """The lines of a file of ids; nothing where none was named."""
    from crossmatch.core.lines import read_lines

    return None if path is None else [line.strip() for line in read_lines(path) if line.strip()]
