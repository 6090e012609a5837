"""A Hugging Face data set on disk: the arrow files of `save_to_disk`, or parquet shards as on the hub."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.formats.arrow import Shard, open_shards
from crossmatch.benchmarks.formats.coco import as_id, read_json
from crossmatch.benchmarks.formats.gathered import Caption, Gathered
from crossmatch.benchmarks.formats.rows import CAPTION_ID_NAMES, CAPTION_NAMES, caption_columns, captions_in
from crossmatch.core.errors import CrossmatchError, WrongWords

# The first name that is there is taken, so the more telling ones come first.
IMAGE_NAMES = ("image", "img", "picture", "photo", "jpg", "jpeg", "png", "webp")
IMAGE_ID_NAMES = ("image_id", "cocoid", "img_id", "imgid", "filename", "file_name", "image_name", "id", "key")
SPLITS = ("train", "validation", "val", "dev", "test")
SHARD = re.compile(r"(?P<split>.+?)-(?P<n>\d+)-of-(?P<of>\d+)(-[0-9a-f]+)?")


@dataclass(frozen=True)
class Cell:
    """An image in a row of a shard."""

    shard: Shard
    column: str
    row: int

    @property
    def where(self) -> str:
        return f"{self.shard.path} row {self.row}"

    def read(self) -> bytes:
        held = self.shard.cell(self.column, self.row)
        data = held.get("bytes") if isinstance(held, dict) else held
        if not isinstance(data, bytes):
            raise CrossmatchError(
                f"{self.where}: column {self.column!r} holds no bytes. Save the data set again with save_to_disk."
            )
        return data


def read_huggingface(folder: Path, split: str) -> Gathered:
    """Rows with an image and its captions.

    Rows with one image id are one image, and must hold the same bytes; without a column of ids, the names of the image files
    are the ids where they are unique, else the numbers of the rows.
    """
    shards = open_shards(shard_files(folder, split))
    column = image_column(shards[0])
    named = caption_columns(shards[0].names)
    if not named:
        raise CrossmatchError(
            f"{shards[0].path} has the columns {', '.join(map(repr, shards[0].names))}, none of them captions. "
            f"Rename one to {' or '.join(map(repr, CAPTION_NAMES[:2]))}."
        )
    wanted = [*named, *(name for name in CAPTION_ID_NAMES if name in shards[0].names)]
    images: dict[str, Cell] = {}
    digests: dict[str, bytes] = {}
    captions: list[Caption] = []
    for image, cell, record in _records(shards, column, wanted):
        first = images.setdefault(image, cell)
        if first is not cell and digests.setdefault(image, _digest(first)) != _digest(cell):
            raise CrossmatchError(
                f"{cell.where}: image id {image!r} is another image than in {first.where}. Give each an id of its own."
            )
        captions += captions_in(record, image, cell.where)
    return Gathered(images, tuple(captions))


def image_column(shard: Shard) -> str:
    """The column with images: bytes, or a record of bytes and path."""
    known = [name for name in IMAGE_NAMES if name in shard.images]
    if not known and len(shard.images) != 1:
        names = ", ".join(map(repr, shard.names))
        raise CrossmatchError(f"{shard.path} has {len(shard.images) or 'no'} columns of images among {names}. Call one 'image'.")
    return known[0] if known else next(iter(shard.images))


def shard_files(folder: Path, split: str) -> list[Path]:
    """The files of one split, all of them there."""
    if (folder / "dataset_dict.json").is_file():
        held = read_json(folder / "dataset_dict.json")
        splits = held.get("splits", []) if isinstance(held, dict) else []
        raise _choose(folder, split, [str(name) for name in splits])
    splits_of: dict[str, list[Path]] = defaultdict(list)
    for path in _listed(folder):
        match = SHARD.fullmatch(path.stem)
        splits_of[match["split"] if match else path.stem if path.stem in SPLITS else "data"].append(path)
    if (split and split not in splits_of) or (not split and len(splits_of) > 1):
        raise _choose(folder, split, sorted(splits_of))
    files = splits_of[split] if split else next(iter(splits_of.values()))
    for path in files:
        match = SHARD.fullmatch(path.stem)
        if match and len(files) != int(match["of"]):
            raise CrossmatchError(
                f"{folder} has {len(files)} of {int(match['of'])} files such as {path.name}. Fetch those that are missing."
            )
    return files


def _choose(folder: Path, split: str, splits: Sequence[str]) -> WrongWords:
    seen = f"no split {split!r}" if split else "several splits"
    return WrongWords(f"{folder} has {seen}; choose one of {', '.join(splits)} with --split.")


def _listed(folder: Path) -> list[Path]:
    """The files that `save_to_disk` says it wrote, or all of them; `datasets` puts its cache beside them."""
    if (folder / "state.json").is_file():
        held = read_json(folder / "state.json")
        listed = held.get("_data_files") if isinstance(held, dict) else None
        if isinstance(listed, list) and all(isinstance(part, dict) and isinstance(part.get("filename"), str) for part in listed):
            found = [folder / Path(part["filename"]).name for part in listed]
        else:
            raise CrossmatchError(f"{folder / 'state.json'} lists no data files. Save the data set again with save_to_disk.")
    else:
        found = sorted(path for mark in ("*.arrow", "*.parquet", "data/*.parquet") for path in folder.glob(mark))
        found = [path for path in found if not path.name.startswith((".", "cache-"))]
    absent = next((path for path in found if not path.is_file()), None)
    if absent is not None or not found:
        raise CrossmatchError(f"{absent or folder / '*.arrow'} is missing. Save the data set again with save_to_disk.")
    return found


def _records(shards: list[Shard], column: str, wanted: list[str]) -> Iterator[tuple[str, Cell, dict[str, Any]]]:
    """Image id, image and captions of every row."""
    key = next((name for name in IMAGE_ID_NAMES if name in shards[0].names and name != column), None)
    names = _names(shards, column) if key is None else []
    at = 0
    for shard in shards:
        held = shard.values([*wanted, *([key] if key else [])])
        for row in range(shard.rows):
            cell = Cell(shard, column, row)
            yield (
                names[at] if key is None else as_id(held[key][row], cell.where, key),
                cell,
                {name: held[name][row] for name in wanted},
            )
            at += 1


def _names(shards: list[Shard], column: str) -> list[str]:
    """The names of the image files, or, where they are not all there and unique, row numbers that sort in the order of rows."""
    paths = [path for shard in shards for path in shard.paths(column)]
    names = [Path(path).name for path in paths if path]
    if len(set(names)) == len(paths):
        return names
    return [f"{row:0{len(str(len(paths)))}d}" for row in range(len(paths))]


def _digest(cell: Cell) -> bytes:
    return hashlib.sha256(cell.read()).digest()
