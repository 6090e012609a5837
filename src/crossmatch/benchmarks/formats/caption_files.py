"""Files of captions by image, as captioning tools write them: candidates (one for each image) and references (one or more)."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.formats.coco import as_id
from crossmatch.benchmarks.formats.gathered import Pictures, Span, decoded
from crossmatch.benchmarks.formats.images import ImageFolder
from crossmatch.benchmarks.formats.table import DELIMITERS, read_table, text_of
from crossmatch.core.errors import CrossmatchError, WrongWords

KEYS = ("image_id", "id", "image")  # columns, or keys of a record, that may hold the image's id; the first that is there does
CANDIDATE, REFERENCE = ("caption", "candidate", "text"), ("caption", "reference", "text")  # and its text, by its role
RATING = ("rating", "score")
LARGEST = 1e9  # of ratings: beyond it, sums of squares lose what tells them apart
LAYOUTS = (
    'COCO annotations {"annotations": […]}, COCO results [{"image_id": …, "caption": …}], {id: text}, {id: [texts]}, '
    "jsonl records, or a csv or tsv with the columns image_id and caption"
)


def read_references(path: Path, texts: Sequence[str] = REFERENCE) -> dict[str, list[str]]:
    """The captions of each image, in the order of the file.

    A json may hold COCO's annotations, COCO's results, `{id: text}` or `{id: [texts]}`; a jsonl one record a line; a csv or tsv one
    row for each caption. Ids are texts: 7 and "7" are one image.
    """
    found: dict[str, list[str]] = {}
    for image, text, where in _captions(path, texts):
        if not isinstance(text, str):
            raise CrossmatchError(f"{where}: the caption of image {image!r} is {text!r:.40}; a text was expected. Mend it.")
        found.setdefault(image, []).append(text)
    if not found:
        raise CrossmatchError(f"{path} holds no captions; it may be one of: {LAYOUTS}.")
    return found


def read_candidates(path: Path) -> dict[str, str]:
    """The one caption of each image; a second one is an error that names the image."""
    found = read_references(path, CANDIDATE)
    many = next((image for image, texts in found.items() if len(texts) > 1), None)
    if many is not None:
        first, second, *_ = found[many]
        raise CrossmatchError(
            f"{path} has {len(found[many])} candidates of image {many!r} ({first!r:.40}, {second!r:.40}, …); one was expected. "
            "Keep one, or give each candidate an id of its own."
        )
    return {image: texts[0] for image, texts in found.items()}


def read_ratings(path: Path) -> list[tuple[str, str, list[float]]]:
    """Image, caption and ratings of each candidate, from a csv or tsv with one row for each rating.

    Several rows with the same image and caption are several people's ratings of one candidate.
    """
    if path.suffix.lower() not in DELIMITERS:
        raise WrongWords(f"{path} should be a csv or a tsv with the columns image_id, caption and rating.")
    said: dict[tuple[str, str], list[float]] = {}
    for row in read_table(path, (KEYS, CANDIDATE, RATING), each="rating"):
        key, text, number = (next(name for name in names if name in row.cells) for names in (KEYS, CANDIDATE, RATING))
        image = as_id(row.cells[key], row.where, key)
        said.setdefault((image, row.cells[text]), []).append(_number(row.cells[number], f"{row.where}, image {image!r}"))
    return [(image, caption, values) for (image, caption), values in said.items()]


def _number(text: str, where: str) -> float:
    try:
        value = float(text.replace("_", "?"))  # Python would read 1_0 as ten
    except ValueError:
        value = math.nan
    if not abs(value) <= LARGEST:
        raise CrossmatchError(f"{where}: the rating is {text!r:.40}; a number was expected. Mend it, or remove the row.")
    return value


def _captions(path: Path, texts: Sequence[str]) -> Iterator[tuple[str, Any, str]]:
    """Image, caption and place of each."""
    kind = path.suffix.lower()
    if kind in DELIMITERS:
        for row in read_table(path, (KEYS, texts), each="caption"):
            key, text = (next(name for name in names if name in row.cells) for names in (KEYS, texts))
            yield as_id(row.cells[key], row.where, key), row.cells[text], row.where
        return
    if kind not in (".json", ".jsonl", ".ndjson"):
        raise WrongWords(f"{path} ends in {kind or 'nothing'!r}; .json, .jsonl, .csv or .tsv was expected: {LAYOUTS}.")
    text = text_of(path.read_bytes(), str(path))
    if kind == ".json":
        yield from _in_json(_json(text, str(path)), str(path), texts)
        return
    lines = ((f"{path} line {n}", line) for n, line in enumerate(text.split("\n"), 1) if line.strip())
    yield from _records(((where, _json(line, where)) for where, line in lines), texts)


def _in_json(held: Any, where: str, texts: Sequence[str]) -> Iterator[tuple[str, Any, str]]:
    if isinstance(held, dict) and isinstance(held.get("annotations"), list):
        held, where = held["annotations"], f"{where} annotations"
        numbers = Counter(str(one["id"]) for one in held if isinstance(one, dict) and "id" in one)
        twice = next((number for number, n in numbers.items() if n > 1), None)
        if twice is not None:
            raise CrossmatchError(f"{where}: annotation id {twice} stands there {numbers[twice]} times. Remove the repeats.")
    if isinstance(held, list):
        yield from _records(((f"{where}[{n}]", one) for n, one in enumerate(held)), texts)
    elif isinstance(held, dict):
        for image, value in held.items():
            for text in value if isinstance(value, list) else [value]:
                yield as_id(image, where), text["caption"] if _is_record(text) else text, where
            if value == []:
                raise CrossmatchError(f"{where}: image {image!r} has no captions. Add one, or remove it.")
    else:
        raise CrossmatchError(f"{where} holds {held!r:.40}; it may be one of: {LAYOUTS}.")


def _is_record(value: object) -> bool:
    """pycocoevalcap's way to hold a caption."""
    return isinstance(value, dict) and "caption" in value


def _records(records: Iterable[tuple[str, Any]], texts: Sequence[str]) -> Iterator[tuple[str, Any, str]]:
    for where, record in records:
        if not isinstance(record, dict):
            raise CrossmatchError(f'{where} is {record!r:.40}; a record {{"image_id": …, "caption": …}} was expected. Mend it.')
        key, text = (next((name for name in names if name in record), names[0]) for names in (KEYS, texts))
        image = as_id(record.get(key), where, key)
        if text not in record:
            raise CrossmatchError(f"{where}: image {image!r} has no 'caption', only {', '.join(map(repr, record))}. Add it.")
        yield image, record[text], where


def _json(text: str, where: str) -> Any:
    """What a json text holds. A key that stands twice in one object, which most readers overlook, is an error."""

    def once(pairs: list[tuple[str, Any]]) -> Mapping[str, Any]:
        held = dict(pairs)
        if len(held) < len(pairs):
            twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
            raise CrossmatchError(f"{where}: the id {twice!r} stands there twice. Keep one, or put its captions into one list.")
        return held

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        raise CrossmatchError(f"{where} is not json ({error.msg} in {at}). Write it again.") from None
    except CrossmatchError:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise CrossmatchError(f"{where} cannot be read ({str(error).partition(';')[0]}). Mend it.") from None
    except RecursionError:
        raise CrossmatchError(f"{where} is nested too deeply. Write it again.") from None


def pictures_in(folder: Path, ids: Iterable[str]) -> Pictures:
    """An opener of the picture of each id: a file of this name, with or without its ending; COCO's numbers also as `000000000139`
    and `COCO_val2014_000000000139`."""
    files = ImageFolder.at(folder)
    found: dict[str, Span] = {}
    absent: list[str] = []
    for image in ids:
        spellings = (image, f"{image:0>12}", f"COCO_val2014_{image:0>12}") if image.isdecimal() else (image,)
        name = next((name for spelling in spellings if (name := files.find(spelling, f"image {image!r}"))), None)
        if name is None:
            absent.append(image)
        else:
            found[image] = Span(files.files[name])
    if absent:
        raise files.absent(absent[0], "the candidates", len(absent))
    return Pictures(found, decoded)
