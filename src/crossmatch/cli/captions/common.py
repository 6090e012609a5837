"""Options and input files that the commands of `crossmatch captions` share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from crossmatch.cli.base import without_none
from crossmatch.data.errors import CrossmatchError, UsageError

if TYPE_CHECKING:
    from PIL.Image import Image

    from crossmatch.data.grounding import Grounder

DIORAMA = "diorama"
DIORAMA_TASK = "diorama/retrieval"  # the task with the images and references of diorama
DEFAULT_METRICS = "bleu,rouge-l,cider-d"
REFERENCES_HELP = "References: a file (COCO annotations, {id: [texts]}, csv, tsv), a task, or collection:FOLDER."
METRICS = click.option("--metrics", default=DEFAULT_METRICS, show_default=True,
                       help="Metrics, separated by commas (`crossmatch list metrics`); options as in cider-d+sigma=4.")  # fmt: skip
SEED = click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random draws.")
IMAGES = click.option("--images", type=click.Path(path_type=Path, file_okay=False), help="Folder of the images, named by id.")
MODEL = click.option("-m", "--model", help="A model that embeds images and texts, for clip-score and ref-clip-score.")
GROUNDER_HELP = ("A model that links words to image regions: a folder of `crossmatch train grounded`, or regions:FILE+FOLDER with "
                 "precomputed regions.")  # fmt: skip


def resolve_task(name: str) -> str:
    """The task with the images of this name. `diorama` alone means its retrieval task.

    >>> resolve_task("diorama+size=tiny"), resolve_task("collection:pets")
    ('diorama/retrieval+size=tiny', 'collection:pets')
    """
    base, plus, options = name.partition("+")
    return f"{DIORAMA_TASK}{plus}{options}" if base == DIORAMA else name


def load_references(source: str, **options: str | None) -> tuple[dict[str, list[str]], Callable[[str], Image] | None]:
    """The references of each image, and a function that opens an image where the source has images.

    Args:
        source: A file of references, a task, or `collection:FOLDER`.
        options: Options of the task, such as `split`; `None` where the user gave none.
    """
    from crossmatch.benchmarks import load_benchmark_data
    from crossmatch.benchmarks.formats.caption_scoring_files import read_references

    path, task_options = Path(source), without_none(**options)
    if not source.strip():
        raise UsageError("--references is empty. Give a file, a task, or collection:FOLDER.")
    if path.is_file():
        if task_options:
            raise UsageError(f"--{next(iter(task_options))} works only when references are a task; {source} is a file. Omit it.")
        return read_references(path), None
    if path.suffix.lower() in (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".txt"):
        problem = "is a folder" if path.is_dir() else "does not exist"
        raise CrossmatchError(f"--references: {source} {problem}. Give a file of references, a task, or collection:FOLDER.")
    data = load_benchmark_data(f"collection:{source}" if path.is_dir() else resolve_task(source), **task_options)
    collection = getattr(data, "collection", None)
    if collection is None:
        raise UsageError(f"--references: {source} has no images with captions. Give a file of references or collection:FOLDER.")
    texts, references = collection.texts(), dict[str, list[str]]()
    for image, caption in collection.links.tolist():
        references.setdefault(str(collection.image_ids[image]), []).append(texts[caption])
    return references, collection.open_image


def task_options(source: str | None, **options: str | None) -> dict[str, str]:
    """The options that the user gave for the task of --references.

    >>> task_options("diorama", size="tiny", split=None)
    {'size': 'tiny'}
    """
    values = without_none(**options)
    if values and source is None:
        raise UsageError(f"--{next(iter(values))} is an option of the task of --references, which is missing. Add it.")
    return values


def display_names(files: Sequence[Path]) -> list[str]:
    """Names for files in tables: the stem, or the whole path where stems repeat; a repeated path is numbered."""
    stems, paths = [path.stem for path in files], [str(path) for path in files]
    names = stems if len(set(stems)) == len(stems) else paths
    return [name if name not in names[:n] else f"{name} ({names[:n].count(name) + 1})" for n, name in enumerate(names)]


def load_embedder(name: str) -> object:
    from crossmatch.models import make_model
    from crossmatch.models.abilities import ImageTextEncoder

    model = make_model(name)
    if not isinstance(model, ImageTextEncoder):
        raise UsageError(
            f"-m {name}: the model does not embed images and texts, as clip-score needs. `crossmatch list models` shows abilities."
        )
    return model


def load_grounder(name: str) -> Grounder:
    from crossmatch.data.grounding import Grounder
    from crossmatch.models import make_model

    model = make_model(name, "grounded")
    if not isinstance(model, Grounder):
        raise UsageError(
            f"--grounder {name}: the model does not ground texts in regions, as tiger needs. Train one: crossmatch train grounded "
            "-o DIR, or crossmatch train scan-t2i -o DIR"
        )
    return model
