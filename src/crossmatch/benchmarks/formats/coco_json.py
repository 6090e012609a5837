"""Reads a json file in COCO's caption format, `{"images": […], "annotations": […]}`, with images in `images/`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.formats.csv_tables import decode_text
from crossmatch.benchmarks.formats.image_caption_records import CaptionRecord, FileSlice, FolderContents
from crossmatch.benchmarks.formats.image_folder import ImageFolder
from crossmatch.data.errors import CrossmatchError

COCO_LISTS = ("images", "annotations")


def read_coco(path: Path) -> FolderContents:
    """Read the listed images, and the annotations as their captions. Other files in `images/` are ignored.

    The `id` of an annotation is the id of its caption. One id with several images is one caption of several images. Captions
    without ids are numbered for each image. Images without annotations are distractors.
    """
    content = read_json(path)
    if not is_coco(content):
        description = (
            f"the keys {', '.join(map(repr, list(content)[:6]))}" if isinstance(content, dict) else f"a {type(content).__name__}"
        )
        raise CrossmatchError(
            f"{path} must have the lists 'images' and 'annotations', as in COCO's caption files (got {description})."
        )
    folder = ImageFolder.scan(path.parent / "images")
    images: dict[str, FileSlice] = {}
    aliases: dict[str, str] = {}
    missing: list[tuple[str, str]] = []
    for where, entry in _entries(path, content, "images"):
        image, name = parse_id(entry.get("id"), where), entry.get("file_name")
        if not isinstance(name, str) or not name:
            raise CrossmatchError(f"{where} (id {image}) has no 'file_name'. Add the name of its file in {folder.root}.")
        if image in images:
            raise CrossmatchError(f"{where}: image id {image} occurs twice. Remove the duplicate.")
        file = folder.find(name, where)
        if file is None:
            missing.append((name, where))
            continue
        if file in aliases:
            raise CrossmatchError(f"{where}: {name!r} has the id {image}, but has the id {aliases[file]} above. Give it one id.")
        images[image] = FileSlice(folder.files[file])
        aliases |= {file: image, folder.ids[file]: image}
    if missing:
        raise folder.missing_image_error(*missing[0], len(missing))
    captions = []
    for where, entry in _entries(path, content, "annotations"):
        image, text = parse_id(entry.get("image_id"), where, "image_id"), entry.get("caption")
        if image not in images:
            raise CrossmatchError(f"{where}: image_id {image} is not in 'images'. Add the image, or remove the annotation.")
        if not isinstance(text, str):
            raise CrossmatchError(f"{where}: 'caption' must be text (got {text!r:.60}). Annotations must be captions, not boxes.")
        captions.append(CaptionRecord(image, text.strip(), where, parse_id(entry["id"], where) if "id" in entry else None))
    return FolderContents(images, tuple(captions), aliases)


def find_coco_json(folder: Path, files: list[Path]) -> Path | None:
    """Return the only json file in COCO's format, whatever its name, or None."""
    matching = [path for path in files if is_coco(read_json(path))]
    if len(matching) > 1:
        raise CrossmatchError(
            f"{folder} has several json files with captions: {', '.join(p.name for p in matching)}. "
            "Rename the right one to captions.json."
        )
    return matching[0] if matching else None


def read_json(path: Path) -> Any:
    """Read a json file. A syntax error is reported with line and column."""
    return parse_json(decode_text(path.read_bytes(), str(path)), str(path))


def parse_json(text: str, where: str, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """Parse json text. A syntax error is reported with line and column.

    >>> parse_json('{"caption": "A cat."', "a.json")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: a.json is not json (Expecting ',' delimiter in line 1, column 21). Correct ... file.
    """
    try:
        return json.loads(text, object_pairs_hook=object_pairs_hook)
    except json.JSONDecodeError as error:
        raise CrossmatchError(
            f"{where} is not json ({error.msg} in line {error.lineno}, column {error.colno}). Correct or rewrite the file."
        ) from None
    except CrossmatchError:
        raise
    except ValueError as error:  # a number of thousands of digits
        raise CrossmatchError(f"{where} cannot be read ({str(error).partition(';')[0]}). Correct the number.") from None
    except RecursionError:
        raise CrossmatchError(f"{where} is nested too deeply. Rewrite the file.") from None


def is_coco(content: object) -> bool:
    return isinstance(content, dict) and all(isinstance(content.get(key), list) for key in COCO_LISTS)


def parse_id(value: object, where: str, key: str = "id") -> str:
    """Return an id, which may be a whole number or text, as text."""
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise CrossmatchError(f"{where}: {key!r} must be a whole number or text (got {value!r:.40}). Fill it in.")
    return str(value)


def _entries(path: Path, content: Mapping[str, Any], key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for n, entry in enumerate(content[key]):
        where = f"{path} {key}[{n}]"
        if not isinstance(entry, dict):
            raise CrossmatchError(f"{where} must be a json object, as in COCO's files (got {entry!r:.40}).")
        yield where, entry
