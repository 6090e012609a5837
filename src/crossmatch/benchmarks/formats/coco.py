"""`images/` beside a json in the layout of COCO's captions: `{"images": […], "annotations": […]}`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.formats.gathered import Caption, Gathered, Span
from crossmatch.benchmarks.formats.images import ImageFolder
from crossmatch.benchmarks.formats.table import text_of
from crossmatch.core.errors import CrossmatchError

KEYS = ("images", "annotations")


def read_coco(path: Path) -> Gathered:
    """The images that the json lists (others in `images/` are left alone), and the annotations as their captions.

    An annotation's `id` is the caption's, and one id on several images is one caption of several images; where no
    annotation has an id, captions are numbered for each image. Images without annotations are distractors.
    """
    held = read_json(path)
    if not is_coco(held):
        seen = f"the keys {', '.join(map(repr, list(held)[:6]))}" if isinstance(held, dict) else f"a {type(held).__name__}"
        raise CrossmatchError(f"{path} holds {seen}; lists under 'images' and 'annotations' were expected, as in COCO's captions.")
    folder = ImageFolder.at(path.parent / "images")
    images: dict[str, Span] = {}
    aliases: dict[str, str] = {}
    absent: list[tuple[str, str]] = []
    for where, entry in _entries(path, held, "images"):
        image, name = as_id(entry.get("id"), where), entry.get("file_name")
        if not isinstance(name, str) or not name:
            raise CrossmatchError(f"{where} (id {image}) has no 'file_name'. Name its file in {folder.root}.")
        if image in images:
            raise CrossmatchError(f"{where}: image id {image} stands there twice. Remove the repeat.")
        file = folder.find(name, where)
        if file is None:
            absent.append((name, where))
            continue
        if file in aliases:
            raise CrossmatchError(f"{where}: {name!r} is image {image}, but was image {aliases[file]} before. Give it one id.")
        images[image] = Span(folder.files[file])
        aliases |= {file: image, folder.ids[file]: image}
    if absent:
        raise folder.absent(*absent[0], len(absent))
    captions = []
    for where, entry in _entries(path, held, "annotations"):
        image, text = as_id(entry.get("image_id"), where, "image_id"), entry.get("caption")
        if image not in images:
            raise CrossmatchError(f"{where}: image_id {image} is not under 'images'. List the image, or remove the annotation.")
        if not isinstance(text, str):
            raise CrossmatchError(
                f"{where}: its 'caption' is {text!r:.60}; a text was expected. These must be captions, not boxes."
            )
        captions.append(Caption(image, text.strip(), where, as_id(entry["id"], where) if "id" in entry else None))
    return Gathered(images, tuple(captions), aliases)


def read_only_coco(folder: Path, files: list[Path]) -> Path | None:
    """The one json among `files` that has COCO's layout, under whatever name."""
    found = [path for path in files if is_coco(read_json(path))]
    if len(found) > 1:
        raise CrossmatchError(
            f"{folder} has several json files with captions: {', '.join(p.name for p in found)}. Call the right one captions.json."
        )
    return found[0] if found else None


def read_json(path: Path) -> Any:
    """What a json file holds; a mistake in it is named by line and column."""
    return json_of(text_of(path.read_bytes(), str(path)), str(path))


def json_of(text: str, where: str) -> Any:
    """
    >>> json_of('{"caption": "A cat."', "a.json")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: a.json is not json (Expecting ',' delimiter in line 1, column 21). Write it again.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise CrossmatchError(
            f"{where} is not json ({error.msg} in line {error.lineno}, column {error.colno}). Write it again."
        ) from None
    except RecursionError:
        raise CrossmatchError(f"{where} is nested too deeply. Write it again.") from None


def is_coco(held: object) -> bool:
    return isinstance(held, dict) and all(isinstance(held.get(key), list) for key in KEYS)


def as_id(value: object, where: str, key: str = "id") -> str:
    """A whole number or a text, as text."""
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise CrossmatchError(f"{where}: its {key!r} is {value!r:.40}; a whole number or a text was expected. Fill it in.")
    return str(value)


def _entries(path: Path, held: Mapping[str, Any], key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for n, entry in enumerate(held[key]):
        where = f"{path} {key}[{n}]"
        if not isinstance(entry, dict):
            raise CrossmatchError(f"{where} is {entry!r:.40}; an object was expected. Write it as COCO does.")
        yield where, entry
