"""Two small tables made of COCO's official annotations (lin2014microsoft): captions of the test split, and classes in each image.

The rules were read off the tables that the benchmarks are checked with; docs/data.md says what could be checked and what could not.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.core.errors import CrossmatchError
from crossmatch.core.files import read_json

KEPT = ("annotations", "categories", "id", "name", "image_id", "category_id", "iscrowd", "caption")


def captions_table(test_ids: Path, captions: Path) -> str:
    """`caption_id, image_id, caption` of the Karpathy test split (karpathy2015deep), in the order of `coco_test_ids.npy`.

    A caption is written on one line: every run of white space becomes one space, none is left at the ends.
    """
    wanted = np.load(test_ids, allow_pickle=False).tolist()
    said = {a["id"]: a for a in _parts(captions, annotations={"id", "image_id", "caption"})[0]}
    missing = [number for number in wanted if number not in said]
    if missing:
        raise CrossmatchError(
            f"{captions} lacks {len(missing):,} of the {len(wanted):,} test captions; first missing: {missing[0]}. "
            "Give COCO's official captions_val2014.json."
        )
    rows = ((number, said[number]["image_id"], " ".join(said[number]["caption"].split())) for number in wanted)
    return _table(("caption_id", "image_id", "caption"), rows)


def labels_table(instances: Path) -> str:
    """`image_id, labels` of every image with an instance, by number; the names of its classes in alphabetical order, with commas.

    Every annotation counts, crowds too, as in the official code of PMRP (chun2022eccv). An image without instances has no row.
    """
    return _labels(instances, crowds=True)


def labels_table_without_crowds(instances: Path) -> str:
    """The same without annotations that are marked as crowds."""
    return _labels(instances, crowds=False)


def _labels(instances: Path, crowds: bool) -> str:
    categories, annotations = _parts(instances, categories={"id", "name"}, annotations={"image_id", "category_id"})
    names = {c["id"]: c["name"] for c in categories}
    found: dict[int, set[str]] = {}
    for a in annotations:
        if crowds or not a.get("iscrowd"):
            found.setdefault(a["image_id"], set()).add(names[a["category_id"]])
    return _table(("image_id", "labels"), ((image, ",".join(sorted(found[image]))) for image in sorted(found)))


def _parts(path: Path, **keys: set[str]) -> list[list[dict[str, Any]]]:
    """These lists of the json file, every item of which must have these keys."""
    content = read_json(path, KEPT)
    parts = [content.get(part) if isinstance(content, dict) else None for part in keys]
    for items, (part, wanted) in zip(parts, keys.items(), strict=True):
        if not isinstance(items, list) or not all(isinstance(item, dict) and item.keys() >= wanted for item in items):
            raise CrossmatchError(f"{path} has no list of {part} with {', '.join(sorted(wanted))}. Give COCO's official json file.")
    return [items for items in parts if items is not None]


def _table(head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in (head, *rows))
