"""Reads caption files as captioning tools write them: candidates (one per image), references, and ratings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.formats.coco_json import parse_id, parse_json
from crossmatch.benchmarks.formats.csv_tables import DELIMITERS, decode_text, read_table
from crossmatch.benchmarks.formats.image_caption_records import FileSlice, ImageOpener
from crossmatch.benchmarks.formats.image_decoding import decode_image
from crossmatch.benchmarks.formats.image_folder import ImageFolder
from crossmatch.data.errors import CrossmatchError, UsageError

# Columns of a table, or keys of a record; the first one that exists is used.
IMAGE_ID_COLUMNS = ("image_id", "id", "image")
CANDIDATE_COLUMNS = ("caption", "candidate", "text")
REFERENCE_COLUMNS = ("caption", "reference", "text")
RATING_COLUMNS = ("rating", "score")
MAX_RATING = 1e9  # beyond this, sums of squares lose precision
ACCEPTED_LAYOUTS = (
    'COCO annotations {"annotations": […]}, COCO results [{"image_id": …, "caption": …}], {id: text}, {id: [texts]}, '
    "jsonl records, or a csv or tsv with the columns image_id and caption"
)


def read_references(path: Path, text_columns: Sequence[str] = REFERENCE_COLUMNS) -> dict[str, list[str]]:
    """Read the captions of each image, in file order.

    A json holds COCO annotations, COCO results, `{id: text}` or `{id: [texts]}`; a jsonl holds one record per line; a csv or tsv
    one row per caption. Ids are texts: 7 and "7" are one image.
    """
    captions: dict[str, list[str]] = {}
    for image, text, where in _read_captions(path, text_columns):
        if not isinstance(text, str):
            raise CrossmatchError(f"{where}: the caption of image {image!r} must be text (got {text!r:.40}). Correct it.")
        captions.setdefault(image, []).append(text)
    if not captions:
        raise CrossmatchError(f"{path} holds no captions. Accepted are: {ACCEPTED_LAYOUTS}.")
    return captions


def read_candidates(path: Path) -> dict[str, str]:
    """Read the candidate caption of each image. A second caption of an image is an error."""
    captions = read_references(path, CANDIDATE_COLUMNS)
    repeated = next((image for image, texts in captions.items() if len(texts) > 1), None)
    if repeated is not None:
        first, second, *_ = captions[repeated]
        raise CrossmatchError(
            f"{path} must have one candidate per image; image {repeated!r} has {len(captions[repeated])} ({first!r:.40}, "
            f"{second!r:.40}, …). Keep one, or give each candidate its own id."
        )
    return {image: texts[0] for image, texts in captions.items()}


def read_ratings(path: Path) -> list[tuple[str, str, list[float]]]:
    """Read image, caption and ratings of each candidate from a csv or tsv with one row per rating.

    Rows with equal image and caption are ratings of one candidate by several people.
    """
    if path.suffix.lower() not in DELIMITERS:
        raise UsageError(f"{path} must be a .csv or .tsv with the columns image_id, caption and rating.")
    ratings: dict[tuple[str, str], list[float]] = {}
    columns = (IMAGE_ID_COLUMNS, CANDIDATE_COLUMNS, RATING_COLUMNS)
    for row in read_table(path, columns, row_noun="rating", has_escaped_formulas=True):
        key, text, number = (next(name for name in names if name in row.cells) for names in columns)
        image = parse_id(row.cells[key], row.where, key)
        ratings.setdefault((image, row.cells[text]), []).append(_parse_rating(row.cells[number], f"{row.where}, image {image!r}"))
    return [(image, caption, values) for (image, caption), values in ratings.items()]


def _parse_rating(text: str, where: str) -> float:
    try:
        value = float(text.replace("_", "?"))  # Python would read 1_0 as ten
    except ValueError:
        value = math.nan
    if not abs(value) <= MAX_RATING:
        raise CrossmatchError(f"{where}: the rating must be a number (got {text!r:.40}). Correct it, or remove the row.")
    return value


def _read_captions(path: Path, texts: Sequence[str]) -> Iterator[tuple[str, Any, str]]:
    """Yield image, caption and place of each caption."""
    kind = path.suffix.lower()
    if kind in DELIMITERS:
        for row in read_table(path, (IMAGE_ID_COLUMNS, texts), row_noun="caption"):
            key, text = (next(name for name in names if name in row.cells) for names in (IMAGE_ID_COLUMNS, texts))
            yield parse_id(row.cells[key], row.where, key), row.cells[text], row.where
        return
    if kind not in (".json", ".jsonl", ".ndjson"):
        raise UsageError(f"{path} must be a .json, .jsonl, .csv or .tsv file (got {kind!r}): {ACCEPTED_LAYOUTS}.")
    text = decode_text(path.read_bytes(), str(path))
    if kind == ".json":
        yield from _parse_json_captions(_parse_json(text, str(path)), str(path), texts)
        return
    lines = ((f"{path} line {n}", line) for n, line in enumerate(text.split("\n"), 1) if line.strip())
    yield from _parse_records(((where, _parse_json(line, where)) for where, line in lines), texts)


def _parse_json_captions(content: Any, where: str, texts: Sequence[str]) -> Iterator[tuple[str, Any, str]]:
    if isinstance(content, dict) and isinstance(content.get("annotations"), list):
        content, where = content["annotations"], f"{where} annotations"
        numbers = Counter(str(entry["id"]) for entry in content if isinstance(entry, dict) and "id" in entry)
        duplicate = next((number for number, n in numbers.items() if n > 1), None)
        if duplicate is not None:
            raise CrossmatchError(f"{where}: annotation id {duplicate} occurs {numbers[duplicate]} times. Remove the duplicates.")
    if isinstance(content, list):
        yield from _parse_records(((f"{where}[{n}]", entry) for n, entry in enumerate(content)), texts)
    elif isinstance(content, dict):
        for image, value in content.items():
            for text in value if isinstance(value, list) else [value]:
                yield parse_id(image, where), text["caption"] if _is_record(text) else text, where
            if value == []:
                raise CrossmatchError(f"{where}: image {image!r} has no captions. Add one, or remove it.")
    else:
        raise CrossmatchError(f"{where} holds {content!r:.40}; accepted are: {ACCEPTED_LAYOUTS}.")


def _is_record(value: object) -> bool:
    """Check for a caption record as in pycocoevalcap."""
    return isinstance(value, dict) and "caption" in value


def _parse_records(records: Iterable[tuple[str, Any]], texts: Sequence[str]) -> Iterator[tuple[str, Any, str]]:
    for where, record in records:
        if not isinstance(record, dict):
            raise CrossmatchError(f'{where} must be a record {{"image_id": …, "caption": …}} (got {record!r:.40}).')
        key, text = (next((name for name in names if name in record), names[0]) for names in (IMAGE_ID_COLUMNS, texts))
        image = parse_id(record.get(key), where, key)
        if text not in record:
            raise CrossmatchError(f"{where}: image {image!r} has no 'caption', only {', '.join(map(repr, record))}. Add it.")
        yield image, record[text], where


def _parse_json(text: str, where: str) -> Any:
    """Parse json text. A duplicate key in an object is an error; most parsers ignore it."""

    def reject_duplicates(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            duplicate = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
            raise CrossmatchError(f"{where}: the id {duplicate!r} occurs twice. Keep one, or put its captions into one list.")
        return content

    return parse_json(text, where, reject_duplicates)


def find_images(folder: Path, ids: Iterable[str]) -> ImageOpener:
    """Return an opener for images by id. The id is a file name, with or without suffix.

    A COCO number also matches `000000000139` and `COCO_val2014_000000000139`.
    """
    folder_files = ImageFolder.scan(folder)
    images: dict[str, FileSlice] = {}
    missing: list[str] = []
    for image in ids:
        spellings = (image, f"{image:0>12}", f"COCO_val2014_{image:0>12}") if image.isdecimal() else (image,)
        name = next((name for spelling in spellings if (name := folder_files.find(spelling, f"image {image!r}"))), None)
        if name is None:
            missing.append(image)
        else:
            images[image] = FileSlice(folder_files.files[name])
    if missing:
        raise folder_files.missing_image_error(missing[0], "the candidates", len(missing))
    return ImageOpener(images, decode_image)
