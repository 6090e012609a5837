"""A user's own forced choices as a benchmark, with no code: `-t trials:FILE`."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

from crossmatch.benchmarks.altered import alterable
from crossmatch.benchmarks.folder import OPTION
from crossmatch.benchmarks.formats.table import DELIMITERS, MARKS, text_of
from crossmatch.benchmarks.formats.trials import (
    Columns,
    Shape,
    as_trials,
    columns_of,
    is_jsonl,
    offer_of,
    pictures_of,
    read_offers,
    record_of,
    usable_rows,
)
from crossmatch.core.benchmark import Benchmark
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.trials import Trials

BOTH = ("i2t", "t2i", "group")
BY_CELL = ("ipos2t", "ineg2t", "tpos2i", "tneg2i")


def trials_task(words: str) -> tuple[Benchmark, dict[str, str]]:
    """What `trials:WORDS` means: a file, and options behind it unless they belong to the file's name.

    The head of the file is read, or its first record: the shape of the trials decides about the metrics.
    """
    options: dict[str, str] = {}
    while not Path(words).expanduser().is_file() and (match := OPTION.fullmatch(words)):
        words, key, value = match.groups()
        options = {key: value, **options}
    return trials_benchmark(words, options.get("shape", "")), options


def trials_benchmark(path: Path | str, shape: str = "") -> Benchmark:
    """The benchmark `trials:NAME` of a file called NAME.csv, NAME.tsv or NAME.jsonl.

    Options: `shape` is what every trial must have, images x captions as in 2x1, instead of what the first one has;
    `categories` are the allowed ones, with semicolons between them.
    """
    file = _existing(Path(path).expanduser())
    try:
        found = parsed_shape(shape) if shape else shape_of(file)
    except OSError as error:
        raise CrossmatchError(f"{file} cannot be read ({error.strerror or error}). Check who may read it.") from None
    declared = Benchmark(
        name=f"trials:{file.stem}",
        about=f"your own choices among {found[0]} images and {found[1]} captions in {file}",
        load=partial(load_trials, file),
        metrics=metrics_of(found),
        options={"shape": "", "categories": ""},
        checks=("shape", "categories"),
        skips=True,
    )
    return alterable(declared) if found[1] == 1 else declared


def load_trials(path: Path, shape: str = "", categories: str = "", bad: str = "refuse") -> Trials:
    """The trials of a file; the images are opened from its folder, or from `images/` beside it, when a model asks for them.

    An empty caption is an error, or with `bad="skip"` its trial is left out.
    """
    path = _existing(path)
    expected = parsed_shape(shape) if shape else None
    try:
        offers = read_offers(path)
        rows, left = usable_rows(offers) if bad == "skip" else (list(range(len(offers))), ())
        offers = [offers[n] for n in rows]
        how = (
            f"no image that {path.name} names is in {path.parent} or its images/. Put them there, named as in the file, or "
            "evaluate scores of the trials: -m precomputed:FILE"
        )
        trials = as_trials(offers, expected, pictures_of(offers, path.parent, how), rows=rows)
    except OSError as error:
        raise CrossmatchError(
            f"{error.filename or path} cannot be read ({error.strerror or error}). Check who may read it."
        ) from None
    known = [name.strip() for name in categories.split(";")] if categories else []
    strange = next((offer for offer in offers if known and offer.category not in known), None)
    if strange is not None:
        raise CrossmatchError(
            f"{strange.where}: trial {strange.id!r} has the category {strange.category!r}; known: {', '.join(known)}. "
            "Mend it, or name it among +categories=a;b."
        )
    return replace(trials, skipped=left) if left else trials


def metrics_of(shape: Shape) -> tuple[str, ...]:
    """The metrics of trials of so many images and captions.

    >>> metrics_of((2, 1)), metrics_of((1, 2)), metrics_of((3, 2))
    (('accuracy',), ('accuracy',), ('i2t', 't2i', 'group'))
    """
    if min(shape) == 1:
        return ("accuracy",)
    return (*BOTH, *BY_CELL) if shape == (2, 2) else BOTH


def parsed_shape(words: str) -> Shape:
    """Images x captions.

    >>> parsed_shape("2x1")
    (2, 1)
    """
    match = re.fullmatch(r"([1-9]\d?)[xX×]([1-9]\d?)", words)
    if match is None or match[1] == match[2] == "1":
        raise WrongWords(f"shape is {words!r}; images x captions with a choice was expected, such as 2x1, 1x2 or 2x2.")
    return int(match[1]), int(match[2])


def shape_of(path: Path) -> Shape:
    """Images and captions of a trial, told from the head of a table or the first record of a jsonl; the rest is not read."""
    codec = "utf-8"
    with path.open("rb") as file:
        begins = file.read(4)
    codec = next((codec for mark, codec in MARKS if begins.startswith(mark)), codec)
    try:
        with path.open(encoding=codec, newline="") as lines:
            number, line = next(((n, line) for n, line in enumerate(lines, 1) if line.strip()), (0, ""))
    except UnicodeError:
        text_of(path.read_bytes(), str(path))  # says where
        raise
    if not number:
        raise CrossmatchError(f"{path} is empty. Write one {'line' if is_jsonl(path) else 'row'} per trial.")
    if is_jsonl(path):
        where = f"{path} line {number}"
        record = record_of(line, where)
        offer = offer_of(record, columns_of(tuple(record), where, lists=True), 0, where)
        found = len(offer.images), len(offer.captions)
    else:
        columns = _head(path, line)
        found = len(columns.images), len(columns.captions)
    if found[0] * found[1] < 2:
        raise CrossmatchError(
            f"{path} offers {found[0]} image and {found[1]} caption per trial, which leaves no choice. Add image_1 or caption_1."
        )
    return found


def _head(path: Path, line: str) -> Columns:
    cells = next(csv.reader([line], delimiter=DELIMITERS[path.suffix.lower()]))
    return columns_of(tuple(cell.strip().lower() for cell in cells), str(path))


def _existing(path: Path) -> Path:
    if not path.is_file():
        seen = "is a folder; name a file in it" if path.is_dir() else "is not there. Check the path"
        raise WrongWords(f"{path} {seen}.")
    if path.suffix.lower() not in DELIMITERS and not is_jsonl(path):
        raise WrongWords(
            f"{path} ends in {path.suffix or 'nothing'!r}; trials are read from .csv, .tsv and .jsonl. Save it as one."
        )
    return path
