"""The pictures of COCO, which several benchmarks show: files in `coco/images/<split>`, used where they are there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from crossmatch.benchmarks.formats.gathered import Pictures, Span, decoded
from crossmatch.core.places import data_folder


def coco_pictures(split: str, files: Mapping[str, str], root: Path | None = None) -> Pictures | None:
    """An opener of images by id, each in the file of this name; None where the folder of the split is not there.

    >>> coco_pictures("val2017", {"285": "000000000285.jpg"}, Path("/nowhere"))
    """
    folder = (root or data_folder()) / "coco" / "images" / split
    if not folder.is_dir():
        return None
    return Pictures({name: Span(folder / PurePosixPath(file).name) for name, file in files.items()}, decoded)


def how_to_get(split: str) -> str:
    """What to do where the pictures of a split are not there."""
    return (
        f"COCO's {split} pictures are not in {data_folder() / 'coco' / 'images' / split}. Unpack "
        f"http://images.cocodataset.org/zips/{split}.zip there, or evaluate scores of the trials: -m precomputed:FILE"
    )
