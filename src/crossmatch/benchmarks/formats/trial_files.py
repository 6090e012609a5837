"""Reads forced choices from csv, tsv and jsonl files, checks them, and builds `Trials`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from crossmatch.benchmarks.formats.coco_json import parse_id
from crossmatch.benchmarks.formats.csv_tables import TYPO_SIMILARITY, decode_text, read_table
from crossmatch.benchmarks.formats.image_caption_records import FileSlice, ImageOpener
from crossmatch.benchmarks.formats.image_decoding import decode_image
from crossmatch.benchmarks.formats.image_folder import require_inside
from crossmatch.data.errors import CrossmatchError, SkippedItem
from crossmatch.data.trials import Trials

if TYPE_CHECKING:
    from PIL.Image import Image

TrialShape = tuple[int, int]  # images and captions of a trial, as in 2x1

# Subtypes of BiVLC and SugarCrepe: the names in their papers, and the abbreviations in their files.
SUBTYPE_ABBREVIATIONS = {"object": "obj", "attribute": "att", "relation": "rel"}


@dataclass(frozen=True)
class TrialRecord:
    """A trial in a file: image n and caption n belong together.

    `where` is its place in the file, for messages. `by` says who accepted it, if the file does.
    """

    id: str
    images: tuple[str, ...]
    captions: tuple[str, ...]
    category: str
    where: str
    by: str = ""


@dataclass(frozen=True)
class MissingImages:
    """An image opener for trials without image files: opening an image raises an error that says how to get the files."""

    hint: str

    def __call__(self, image: str) -> NoReturn:
        raise CrossmatchError(f"image {str(image)!r} cannot be opened: {self.hint}")


def build_trials(
    records: Sequence[TrialRecord],
    shape: TrialShape | None = None,
    open_image: Callable[[str], Image] | None = None,
    references: Mapping[str, tuple[str, ...]] | None = None,
    rows: Sequence[int] | None = None,
    notes: tuple[str, ...] = (),
) -> Trials:
    """Check records, and build trials from them in the same order.

    All trials must have one shape. A trial with the same caption or image twice cannot be won, and is an error. Every run of
    white space in a caption becomes one space, as in the COCO tables.

    `shape` is by default that of the first trial. `rows` are the rows of the trials in the official file.

    >>> build_trials([TrialRecord("a", ("1.jpg", "2.jpg"), ("A  cat. ",), "", "line 2")]).captions
    array([['A cat.']], dtype='<U6')
    """
    if not records:
        raise CrossmatchError("there are no trials. Give at least one.")
    expected = shape or (len(records[0].images), len(records[0].captions))
    origin = "of the first trial" if shape is None else "option"
    first_place: dict[str, str] = {}
    captions = []
    for record in records:
        actual = len(record.images), len(record.captions)
        if actual != expected:
            raise _trial_error(
                record,
                f"has {_describe_shape(actual)}, but the shape {origin} is {expected[0]}x{expected[1]}, "
                f"{_describe_shape(expected)}. Correct it, or put trials of another shape into a separate file.",
            )
        if record.id in first_place:
            raise _trial_error(record, f"has the same id as the trial in {first_place[record.id]}. Give each trial its own id.")
        first_place[record.id] = record.where
        texts = tuple(" ".join(text.split()) for text in record.captions)
        captions.append(texts)
        _check_items(record, texts)
    return Trials(
        [record.id for record in records],  # type: ignore[arg-type]
        [record.images for record in records],  # type: ignore[arg-type]
        captions,  # type: ignore[arg-type]
        [record.category for record in records],  # type: ignore[arg-type]
        open_image,
        references,
        None if rows is None else np.asarray(rows, dtype=np.int64),
        notes,
    )


def rows_with_captions(records: Sequence[TrialRecord]) -> tuple[list[int], tuple[SkippedItem, ...]]:
    """Return the rows of the trials without an empty caption, and the other trials as skipped items."""
    complete = [all(text.strip() for text in record.captions) for record in records]
    incomplete = [record for record, is_complete in zip(records, complete, strict=True) if not is_complete]
    skipped = tuple(SkippedItem("trial", record.id, f"{record.where}: a caption is empty") for record in incomplete)
    return [n for n, is_complete in enumerate(complete) if is_complete], skipped


def _check_items(record: TrialRecord, texts: tuple[str, ...]) -> None:
    if "" in texts:
        raise _trial_error(record, f"has an empty caption_{texts.index('')}. Fill it in, or remove the trial.")
    if "" in record.images:
        raise _trial_error(record, f"has an empty image_{record.images.index('')}. Fill it in, or remove the trial.")
    for side, items in (("caption", texts), ("image", record.images)):
        duplicate = next((item for n, item in enumerate(items) if item in items[:n]), None)
        if duplicate is not None:
            raise _trial_error(
                record, f"has the {side} {duplicate!r:.80} twice, so it cannot be won. Replace one, or remove the trial."
            )
    all_text = "\n".join((record.id, record.category, *record.images, *texts))
    if "\0" in all_text or any("\ud800" <= letter <= "\udfff" for letter in ("" if all_text.isascii() else all_text)):
        raise CrossmatchError(f"{record.where}: trial {record.id!a} has a character that is not valid Unicode. Save it as UTF-8.")


def _trial_error(record: TrialRecord, why: str) -> CrossmatchError:
    return CrossmatchError(f"{record.where}: trial {record.id!r} {why}")


def _describe_shape(shape: TrialShape) -> str:
    return " and ".join(f"{n} {side}{'s' * (n != 1)}" for n, side in zip(shape, ("image", "caption"), strict=True))


# Records: a row of a table or a line of jsonl

NUMBERED_COLUMN = re.compile(r"(caption|image)_(0|[1-9]\d*)")
KNOWN_COLUMNS = ("trial_id", "id", "category", "type", "subtype", "caption", "negative_caption", "image", "negative_image")


@dataclass(frozen=True)
class TrialColumns:
    """The columns of a file by meaning; `id` is None if the row number is the id of a trial."""

    id: str | None
    images: tuple[str, ...]
    captions: tuple[str, ...]
    category: tuple[str, ...]


def identify_columns(names: tuple[str, ...], where: str, allow_lists: bool = False) -> TrialColumns:
    """Find the columns of ids, images, captions and categories.

    Unknown columns are ignored, unless their name looks like a typo. With `allow_lists` (json), a list of `captions` and a list of
    `images` are accepted too.

    >>> identify_columns(("caption_0", "image_0", "image_1", "note"), "a.csv")
    TrialColumns(id=None, images=('image_0', 'image_1'), captions=('caption_0',), category=())
    >>> identify_columns(("image", "caption", "negative_caption", "type", "subtype"), "a.csv").captions
    ('caption', 'negative_caption')
    """
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise CrossmatchError(f"{where} has two columns {duplicate!r}. Rename or remove one.")
    listed = ("captions", "images") if allow_lists else ()
    sides = [_side_columns(side, names, where, allow_lists) for side in ("image", "caption")]
    known_columns = {
        *KNOWN_COLUMNS,
        *listed,
        *(f"{side}_0" for side in ("image", "caption") if not any(_column_numbers(side, names))),
    }
    for name in names:
        close = (
            []
            if name in known_columns or NUMBERED_COLUMN.fullmatch(name)
            else get_close_matches(name, known_columns - set(names), n=1, cutoff=TYPO_SIMILARITY)
        )
        if close:
            raise CrossmatchError(f"{where} has a column {name!r}. Did you mean {close[0]!r}? Rename it.")
    category = [key for key in (("category",) if "category" in names else ("type", "subtype")) if key in names]
    return TrialColumns(next((key for key in ("trial_id", "id") if key in names), None), sides[0], sides[1], tuple(category))


def _side_columns(side: str, names: tuple[str, ...], where: str, allow_lists: bool) -> tuple[str, ...]:
    """Return the columns of images or captions: numbered from zero, a single one, one with a negative, or a list."""
    plain = side if side == "caption" or "image" in names or "filename" not in names else "filename"
    numbers = _column_numbers(side, names)
    ways = {
        "numbered": tuple(f"{side}_{n}" for n in numbers),
        "plain": tuple(name for name in (plain, f"negative_{side}") if name in names) if plain in names else (),
        "list": (f"{side}s",) if allow_lists and f"{side}s" in names else (),
    }
    used = [columns for columns in ways.values() if columns]
    if len(used) > 1:
        raise CrossmatchError(f"{where} has both {used[0][0]!r} and {used[1][0]!r}. Keep one way to name {side}s.")
    if not used:
        close = get_close_matches(side, [name for name in names if name not in KNOWN_COLUMNS], n=1, cutoff=0.6)
        hint = f"Is it {close[0]!r}? Rename it." if close else f"Add {side}_0, {side}_1, …, or a single column {side}."
        if len(names) == 1 and re.search("[;\t,]", names[0]):
            hint = "Separate the columns with commas (.csv) or tabs (.tsv)."
        raise CrossmatchError(f"{where} has the columns {', '.join(map(repr, names))}, and none holds {side}s. {hint}")
    if numbers and numbers != list(range(len(numbers))):
        gap = next(n for n in range(len(numbers)) if n not in numbers)
        raise CrossmatchError(f"{where} has {side}_{numbers[-1]}, but no {side}_{gap}. Number them from 0 without a gap.")
    return used[0]


def _column_numbers(side: str, names: Sequence[str]) -> list[int]:
    return sorted(int(match[2]) for name in names if (match := NUMBERED_COLUMN.fullmatch(name)) and match[1] == side)


def parse_trial(record: Mapping[str, Any], columns: TrialColumns, number: int, where: str) -> TrialRecord:
    """Parse a trial. Without an id column its id is the number of its record, counted from zero."""
    trial_id = str(number) if columns.id is None else parse_id(record[columns.id], where, columns.id).strip()
    if not trial_id:
        raise CrossmatchError(f"{where}: the trial has an empty {columns.id}. Fill it in.")
    captions, images = (_trial_items(record, keys, f"{where}: trial {trial_id!r}") for keys in (columns.captions, columns.images))
    not_text = next((n for n, text in enumerate(captions) if not isinstance(text, str)), None)
    if not_text is not None:
        raise CrossmatchError(f"{where}: caption_{not_text} of trial {trial_id!r} must be text (got {captions[not_text]!r:.40}).")
    files = tuple("" if image in ("", None) else parse_id(image, f"{where}: trial {trial_id!r}", "image") for image in images)
    category = category_path([record[key] for key in columns.category], f"{where}: trial {trial_id!r}")
    return TrialRecord(trial_id, files, captions, category, where, str(record.get("by", "")))


def _trial_items(record: Mapping[str, Any], keys: tuple[str, ...], where: str) -> tuple[Any, ...]:
    if keys[0] in ("captions", "images"):
        listed = record[keys[0]]
        if not isinstance(listed, list):
            raise CrossmatchError(f"{where}: {keys[0]} must be a list (got {listed!r:.40}).")
        return tuple(listed)
    return tuple(record[key] for key in keys)


def category_path(parts: Sequence[object], where: str) -> str:
    """Return a category unchanged, or type and subtype as a lower-case path with abbreviated names.

    >>> category_path(["Replace", "Attribute"], "line 2"), category_path(["Cats and dogs"], "line 2")
    ('replace/att', 'Cats and dogs')
    """
    not_text = next((part for part in parts if part is not None and not isinstance(part, str)), None)
    if not_text is not None:
        raise CrossmatchError(f"{where}: the category must be text (got {not_text!r:.40}).")
    names = [part.strip() for part in parts if isinstance(part, str)]
    if len(parts) == 1:
        return names[0] if names else ""
    return "/".join(SUBTYPE_ABBREVIATIONS.get(name.lower(), name.lower()) for name in names if name)


# Files


def read_records(path: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the records of a csv, tsv or jsonl with lower-case keys, and the place of each."""
    text = decode_text(path.read_bytes(), str(path))
    if not text.strip():
        raise CrossmatchError(f"{path} is empty. Write one {'line' if is_jsonl(path) else 'row'} per trial.")
    if not is_jsonl(path):
        yield from ((row.cells, row.where) for row in read_table(path, (), row_noun="trial"))
        return
    for number, line in enumerate(text.split("\n"), 1):  # not splitlines: a caption may contain other separators
        if line.strip():
            yield parse_json_line(line, f"{path} line {number}"), f"{path} line {number}"


def parse_json_line(line: str, where: str) -> Mapping[str, Any]:
    """Parse a line of a jsonl file as an object with lower-case keys.

    >>> parse_json_line('{"id": 3,', "a.jsonl line 2")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: a.jsonl line 2 is not json (Expecting property name ... at column 10). Correct the line.
    """
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise CrossmatchError(f"{where} is not json ({error.msg} at column {error.colno}). Correct the line.") from None
    except RecursionError:
        raise CrossmatchError(f"{where} is nested too deeply. Correct the line.") from None
    if not isinstance(record, dict):
        raise CrossmatchError(f'{where} must be an object such as {{"captions": […], "images": […]}} (got {record!r:.40}).')
    return {key.strip().lower(): value for key, value in record.items()}


def is_jsonl(path: Path) -> bool:
    return path.suffix.lower() in (".jsonl", ".ndjson")


def read_trial_records(path: Path) -> list[TrialRecord]:
    """Read the trials of a csv, tsv or jsonl. The lines of a jsonl may have different keys."""
    is_json, columns_by_names, trials = is_jsonl(path), dict[tuple[str, ...], TrialColumns](), list[TrialRecord]()
    for number, (record, where) in enumerate(read_records(path)):
        names = tuple(record)
        if names not in columns_by_names:
            columns_by_names[names] = identify_columns(names, where if is_json else str(path), is_json)
        trials.append(parse_trial(record, columns_by_names[names], number, where))
    return trials


IMAGE_ENDINGS = ("", ".png", ".jpg", ".jpeg", ".webp")  # an image may be named without its suffix, as in Winoground


def find_trial_images(records: Sequence[TrialRecord], folder: Path, hint: str) -> ImageOpener | MissingImages:
    """Return an opener for the images of trials, which are files in the folder or in its `images/`.

    If none of the files exists, return an opener that raises `hint`: the trials can still be evaluated with precomputed scores.
    """
    record_by_image = {name: record for record in records for name in record.images}
    files = {name: file for name in record_by_image if (file := find_image_file(name, folder)) is not None}
    if not files:
        return MissingImages(hint)
    missing = [(name, record) for name, record in record_by_image.items() if name not in files]
    if missing:
        name, record = missing[0]
        require_inside(name, f"{record.where}: trial {record.id!r}", folder)
        total = f" ({len(missing):,} of {len(record_by_image):,} images are missing)" if len(missing) > 1 else ""
        raise _trial_error(
            record, f"has the image {name!r}, which is not in {folder} or its images/{total}. Put it there, or correct the name."
        )
    for record in records:
        if len({files[name] for name in record.images}) < len(record.images):
            raise _trial_error(record, "has one image file under two names, so it cannot be won. Replace one, or remove the trial.")
    return ImageOpener({name: FileSlice(file) for name, file in files.items()}, decode_image)


def find_image_file(name: str, folder: Path) -> Path | None:
    """Return the file with this name in a folder or in its `images/`; None if it is missing or outside the folder."""
    try:
        require_inside(name, "", folder)
    except CrossmatchError:
        return None
    candidates = (folder / inside / f"{name}{ending}" for inside in ("", "images") for ending in IMAGE_ENDINGS)
    return next((path for path in candidates if path.is_file()), None)
