"""A user's own forced choices as a benchmark: `-t trials:FILE`."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

from crossmatch.benchmarks.altered_queries import with_alter_option
from crossmatch.benchmarks.formats.csv_tables import BYTE_ORDER_MARKS, DELIMITERS, decode_text
from crossmatch.benchmarks.formats.trial_files import (
    TrialColumns,
    TrialShape,
    build_trials,
    find_trial_images,
    identify_columns,
    is_jsonl,
    parse_json_line,
    parse_trial,
    read_trial_records,
    rows_with_captions,
)
from crossmatch.benchmarks.user_collection import split_options
from crossmatch.data.benchmark import Benchmark
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import ARTIFICIAL, rehearsal_note
from crossmatch.data.trials import Trials

BOTH_DIRECTIONS = ("i2t", "t2i", "group")
PER_ITEM_CHOICES = ("ipos2t", "ineg2t", "tpos2i", "tneg2i")


def parse_trials_task(spec: str) -> tuple[Benchmark, dict[str, str]]:
    """Return the benchmark and the options of `trials:SPEC`, where SPEC is `FILE+option=value`.

    Reads the header or the first record of the file, because the shape of the trials determines the metrics.
    """
    file, options = split_options(spec, Path.is_file)
    return trials_benchmark(file, options.get("shape", "")), options


def trials_benchmark(path: Path | str, shape: str = "") -> Benchmark:
    """Declare the benchmark `trials:NAME` for a file called NAME.csv, NAME.tsv or NAME.jsonl.

    Options of the benchmark: `shape`, the images x captions of every trial, such as 2x1 (default: the shape of the first trial);
    `categories`, the allowed categories, separated by semicolons.
    """
    file = _require_trial_file(Path(path).expanduser())
    try:
        images_by_captions = parse_shape(shape) if shape else detect_shape(file)
    except OSError as error:
        raise CrossmatchError(f"{file} cannot be read ({error.strerror or error}). Check its permissions.") from None
    benchmark = Benchmark(
        name=f"trials:{file.stem}",
        description=f"your own choices among {images_by_captions[0]} images and {images_by_captions[1]} captions in {file}",
        loader=partial(load_trials, file),
        metrics=metrics_for_shape(images_by_captions),
        options={"shape": "", "categories": ""},
        check_options=("shape", "categories"),
        can_skip_bad=True,
    )
    return with_alter_option(benchmark) if images_by_captions[1] == 1 else benchmark


def load_trials(path: Path, shape: str = "", categories: str = "", bad: str = "refuse") -> Trials:
    """Load the trials of a file. Images are opened on demand, from the folder of the file or from `images/` in it.

    `shape` is the required images x captions, such as 2x1; `categories` are the allowed ones, separated by semicolons; `bad="skip"`
    leaves out trials with an empty caption, which is an error by default.
    """
    path = _require_trial_file(path)
    expected = parse_shape(shape) if shape else None
    try:
        records = read_trial_records(path)
        rows, skipped = rows_with_captions(records) if bad == "skip" else (list(range(len(records))), ())
        records = [records[n] for n in rows]
        hint = (
            f"none of the images in {path.name} is in {path.parent} or its images/. Put them there, named as in the file, or "
            "evaluate precomputed scores of the trials: -m precomputed:FILE"
        )
        notes = (rehearsal_note(f"trials of {path.name}"),) if any(record.by == ARTIFICIAL for record in records) else ()
        trials = build_trials(records, expected, find_trial_images(records, path.parent, hint), rows=rows, notes=notes)
    except OSError as error:
        raise CrossmatchError(
            f"{error.filename or path} cannot be read ({error.strerror or error}). Check its permissions."
        ) from None
    allowed = [name.strip() for name in categories.split(";")] if categories else []
    unexpected = next((record for record in records if allowed and record.category not in allowed), None)
    if unexpected is not None:
        raise CrossmatchError(
            f"{unexpected.where}: trial {unexpected.id!r} has the category {unexpected.category!r}; allowed: {', '.join(allowed)}. "
            "Correct it, or add it to +categories=a;b."
        )
    return replace(trials, skipped=skipped) if skipped else trials


def metrics_for_shape(shape: TrialShape) -> tuple[str, ...]:
    """Return the metrics for trials with these numbers of images and captions.

    >>> metrics_for_shape((2, 1)), metrics_for_shape((1, 2)), metrics_for_shape((3, 2))
    (('accuracy',), ('accuracy',), ('i2t', 't2i', 'group'))
    """
    if min(shape) == 1:
        return ("accuracy",)
    return (*BOTH_DIRECTIONS, *PER_ITEM_CHOICES) if shape == (2, 2) else BOTH_DIRECTIONS


def parse_shape(text: str) -> TrialShape:
    """Parse a shape written as images x captions.

    >>> parse_shape("2x1")
    (2, 1)
    """
    match = re.fullmatch(r"([1-9]\d?)[xX×]([1-9]\d?)", text)
    if match is None or match[1] == match[2] == "1":
        raise UsageError(f"shape must be images x captions with a choice, such as 2x1, 1x2 or 2x2 (got {text!r}).")
    return int(match[1]), int(match[2])


def detect_shape(path: Path) -> TrialShape:
    """Read the numbers of images and captions per trial from the header of a table or the first record of a jsonl."""
    with path.open("rb") as file:
        first_bytes = file.read(4)
    codec = next((codec for mark, codec in BYTE_ORDER_MARKS if first_bytes.startswith(mark)), "utf-8")
    try:
        with path.open(encoding=codec, newline="") as lines:
            number, line = next(((n, line) for n, line in enumerate(lines, 1) if line.strip()), (0, ""))
    except UnicodeError:
        decode_text(path.read_bytes(), str(path))  # raises an error that names the line
        raise
    if not number:
        raise CrossmatchError(f"{path} is empty. Write one {'line' if is_jsonl(path) else 'row'} per trial.")
    if is_jsonl(path):
        where = f"{path} line {number}"
        record = parse_json_line(line, where)
        trial = parse_trial(record, identify_columns(tuple(record), where, allow_lists=True), 0, where)
        shape = len(trial.images), len(trial.captions)
    else:
        columns = _header_columns(path, line)
        shape = len(columns.images), len(columns.captions)
    if shape[0] * shape[1] < 2:
        raise CrossmatchError(
            f"{path} has {shape[0]} image and {shape[1]} caption per trial, which leaves no choice. Add image_1 or caption_1."
        )
    return shape


def _header_columns(path: Path, line: str) -> TrialColumns:
    cells = next(csv.reader([line], delimiter=DELIMITERS[path.suffix.lower()]))
    return identify_columns(tuple(cell.strip().lower() for cell in cells), str(path))


def _require_trial_file(path: Path) -> Path:
    if not path.is_file():
        problem = "is a folder. Name a file in it" if path.is_dir() else "does not exist. Check the path"
        raise UsageError(f"{path} {problem}.")
    if path.suffix.lower() not in DELIMITERS and not is_jsonl(path):
        raise UsageError(f"{path} has the suffix {path.suffix!r}; expected .csv, .tsv or .jsonl. Save it in one of these formats.")
    return path
