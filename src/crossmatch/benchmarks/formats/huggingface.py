"""Reads a Hugging Face data set on disk, as a collection or as rows with several images.

The files are the arrow files of `save_to_disk`, or parquet shards as on the hub.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.formats.arrow import Shard, open_shards
from crossmatch.benchmarks.formats.caption_columns import CAPTION_ID_NAMES, CAPTION_NAMES, find_caption_columns, parse_captions
from crossmatch.benchmarks.formats.coco_json import parse_id, read_json
from crossmatch.benchmarks.formats.image_caption_records import CaptionRecord, FolderContents
from crossmatch.data.errors import CrossmatchError, UsageError

# The first name that exists is used, so the most specific names come first.
IMAGE_NAMES = ("image", "img", "picture", "photo", "jpg", "jpeg", "png", "webp")
IMAGE_ID_NAMES = ("image_id", "cocoid", "img_id", "imgid", "filename", "file_name", "image_name", "id", "key")
SPLITS = ("train", "validation", "val", "dev", "test")
SHARD_PATTERNS = ("*.arrow", "*.parquet", "data/*.parquet")
SHARD = re.compile(r"(?P<split>.+?)-(?P<n>\d+)-of-(?P<of>\d+)(-[0-9a-f]+)?")


@dataclass(frozen=True)
class ImageCell:
    """An image in a row of a shard."""

    shard: Shard
    column: str
    row: int

    @property
    def where(self) -> str:
        return f"{self.shard.path} row {self.row}"

    def read(self) -> bytes:
        value = self.shard.cell(self.column, self.row)
        data = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(data, bytes):
            raise CrossmatchError(
                f"{self.where}: column {self.column!r} has no image bytes. Save the data set again with save_to_disk."
            )
        return data


def read_huggingface(folder: Path, split: str) -> FolderContents:
    """Read rows with an image and its captions.

    Rows with one image id are one image, and must hold the same bytes. Without an id column, the file names of the images are
    the ids if they are unique, else the row numbers.
    """
    shards = open_shards(find_shard_files(folder, split))
    column = find_image_column(shards[0])
    caption_columns = find_caption_columns(shards[0].names)
    if not caption_columns:
        raise CrossmatchError(
            f"{shards[0].path} has the columns {', '.join(map(repr, shards[0].names))}, and none holds captions. "
            f"Rename one to {' or '.join(map(repr, CAPTION_NAMES[:2]))}."
        )
    columns = [*caption_columns, *(name for name in CAPTION_ID_NAMES if name in shards[0].names)]
    images: dict[str, ImageCell] = {}
    digests: dict[str, bytes] = {}
    captions: list[CaptionRecord] = []
    for image, cell, record in _read_records(shards, column, columns):
        first = images.setdefault(image, cell)
        if first is not cell and digests.setdefault(image, _digest(first)) != _digest(cell):
            raise CrossmatchError(
                f"{cell.where}: image id {image!r} is a different image in {first.where}. Give each image its own id."
            )
        captions += parse_captions(record, image, cell.where)
    return FolderContents(images, tuple(captions))


def find_image_column(shard: Shard) -> str:
    """Return the column with images: bytes, or records of bytes and path."""
    preferred = [name for name in IMAGE_NAMES if name in shard.images]
    if not preferred and len(shard.images) != 1:
        names = ", ".join(map(repr, shard.names))
        raise CrossmatchError(f"{shard.path} has {len(shard.images) or 'no'} image columns among {names}. Rename one to 'image'.")
    return preferred[0] if preferred else next(iter(shard.images))


def find_shard_files(folder: Path, split: str) -> list[Path]:
    """Return the files of one split; a missing shard is an error."""
    if (folder / "dataset_dict.json").is_file():
        content = read_json(folder / "dataset_dict.json")
        splits = content.get("splits", []) if isinstance(content, dict) else []
        raise _split_error(folder, split, [str(name) for name in splits])
    splits_of: dict[str, list[Path]] = defaultdict(list)
    for path in _list_data_files(folder):
        match = SHARD.fullmatch(path.stem)
        splits_of[match["split"] if match else path.stem if path.stem in SPLITS else "data"].append(path)
    if (split and split not in splits_of) or (not split and len(splits_of) > 1):
        raise _split_error(folder, split, sorted(splits_of))
    files = splits_of[split] if split else next(iter(splits_of.values()))
    for path in files:
        match = SHARD.fullmatch(path.stem)
        if match and len(files) != int(match["of"]):
            raise CrossmatchError(
                f"{folder} has {len(files)} of {int(match['of'])} files such as {path.name}. Get the missing ones."
            )
    return files


def _split_error(folder: Path, split: str, splits: Sequence[str]) -> UsageError:
    problem = f"no split {split!r}" if split else "several splits"
    return UsageError(f"{folder} has {problem}; choose one of {', '.join(splits)} with --split.")


def _list_data_files(folder: Path) -> list[Path]:
    """Return the files listed by `save_to_disk`, or all data files except the cache files of `datasets`."""
    if (folder / "state.json").is_file():
        content = read_json(folder / "state.json")
        listed = content.get("_data_files") if isinstance(content, dict) else None
        if isinstance(listed, list) and all(isinstance(part, dict) and isinstance(part.get("filename"), str) for part in listed):
            paths = [folder / Path(part["filename"]).name for part in listed]
        else:
            raise CrossmatchError(f"{folder / 'state.json'} lists no data files. Save the data set again with save_to_disk.")
    else:
        paths = sorted(path for mark in SHARD_PATTERNS for path in folder.glob(mark))
        paths = [path for path in paths if not path.name.startswith((".", "cache-"))]
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None or not paths:
        raise CrossmatchError(f"{missing or folder / '*.arrow'} is missing. Save the data set again with save_to_disk.")
    return paths


def _read_records(shards: list[Shard], column: str, columns: list[str]) -> Iterator[tuple[str, ImageCell, dict[str, Any]]]:
    """Yield image id, image and captions of every row."""
    key = next((name for name in IMAGE_ID_NAMES if name in shards[0].names and name != column), None)
    names = _image_names(shards, column) if key is None else []
    position = 0
    for shard in shards:
        values = shard.values([*columns, *([key] if key else [])])
        for row in range(shard.rows):
            cell = ImageCell(shard, column, row)
            yield (
                names[position] if key is None else parse_id(values[key][row], cell.where, key),
                cell,
                {name: values[name][row] for name in columns},
            )
            position += 1


def _image_names(shards: list[Shard], column: str) -> list[str]:
    """Return the file names of the images if all are unique, else zero-padded row numbers."""
    paths = [path for shard in shards for path in shard.paths(column)]
    names = [Path(path).name for path in paths if path]
    if len(set(names)) == len(paths):
        return names
    return [f"{row:0{len(str(len(paths)))}d}" for row in range(len(paths))]


def _digest(cell: ImageCell) -> bytes:
    return hashlib.sha256(cell.read()).digest()


@dataclass(frozen=True)
class ShardRow:
    """The texts of a row by column, its images (read on demand), and their file names if the shard has them."""

    texts: Mapping[str, Any]
    images: tuple[ImageCell, ...]
    files: tuple[str | None, ...]

    @property
    def where(self) -> str:
        return self.images[0].where


def has_shards(folder: Path) -> bool:
    return any(any(folder.glob(mark)) for mark in SHARD_PATTERNS)


def read_shard_rows(folder: Path, images: tuple[str, ...], texts: tuple[str, ...]) -> list[ShardRow]:
    """Read all rows of the parquet or arrow files in a folder, in the order of the file names."""
    rows = []
    for shard in open_shards(find_shard_files(folder, "")):
        missing = [name for name in images if name not in shard.images] + [name for name in texts if name not in shard.names]
        if missing:
            raise CrossmatchError(
                f"{shard.path} has the columns {', '.join(map(repr, shard.names))}; {missing[0]!r} is missing or has another type. "
                "Get the official files."
            )
        values, files = shard.values(list(texts)), [shard.paths(name) for name in images]
        for row in range(shard.rows):
            cells = tuple(ImageCell(shard, name, row) for name in images)
            rows.append(ShardRow({name: values[name][row] for name in texts}, cells, tuple(paths[row] for paths in files)))
    return rows
