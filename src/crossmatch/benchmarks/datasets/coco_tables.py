"""Builds two small tables from COCO's official annotations: captions of the test split, and classes in each image.

Source: lin2014microsoft. docs/data.md says which parts of the tables were verified.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.file_contents import read_json

JSON_KEYS = ("annotations", "categories", "id", "name", "image_id", "category_id", "iscrowd", "caption")


def build_captions_table(test_ids: Path, captions: Path) -> str:
    """Build the table `caption_id, image_id, caption` of the Karpathy test split, in the order of `coco_test_ids.npy`.

    Every run of white space in a caption becomes one space. Source: karpathy2015deep.
    """
    caption_ids = np.load(test_ids, allow_pickle=False).tolist()
    annotations = {a["id"]: a for a in _read_lists(captions, annotations={"id", "image_id", "caption"})[0]}
    missing = [number for number in caption_ids if number not in annotations]
    if missing:
        raise CrossmatchError(
            f"{captions} lacks {len(missing):,} of {len(caption_ids):,} test captions; the first missing id is {missing[0]}. "
            "Give COCO's official captions_val2014.json."
        )
    rows = ((number, annotations[number]["image_id"], " ".join(annotations[number]["caption"].split())) for number in caption_ids)
    return _format_table(("caption_id", "image_id", "caption"), rows)


def build_labels_table(instances: Path) -> str:
    """Build the table `image_id, labels` of every image with an instance: its class names, sorted and joined by commas.

    Crowd annotations count too, as in the official code of PMRP (chun2022eccv). An image without instances has no row.
    """
    return _build_labels(instances, crowds=True)


def build_labels_table_without_crowds(instances: Path) -> str:
    """Build the same table without crowd annotations."""
    return _build_labels(instances, crowds=False)


def _build_labels(instances: Path, crowds: bool) -> str:
    categories, annotations = _read_lists(instances, categories={"id", "name"}, annotations={"image_id", "category_id"})
    names = {c["id"]: c["name"] for c in categories}
    classes: dict[int, set[str]] = {}
    for a in annotations:
        if crowds or not a.get("iscrowd"):
            classes.setdefault(a["image_id"], set()).add(names[a["category_id"]])
    return _format_table(("image_id", "labels"), ((image, ",".join(sorted(classes[image]))) for image in sorted(classes)))


def _read_lists(path: Path, **keys: set[str]) -> list[list[dict[str, Any]]]:
    """Read lists of the json file by name, and check that every item has the required keys."""
    content = read_json(path, JSON_KEYS)
    parts = [content.get(part) if isinstance(content, dict) else None for part in keys]
    for items, (part, required) in zip(parts, keys.items(), strict=True):
        if not isinstance(items, list) or not all(isinstance(item, dict) and item.keys() >= required for item in items):
            raise CrossmatchError(
                f"{path} has no list of {part} with {', '.join(sorted(required))}. Give COCO's official json file."
            )
    return [items for items in parts if items is not None]


def _format_table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in (head, *rows))
