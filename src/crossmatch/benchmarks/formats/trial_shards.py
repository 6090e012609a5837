"""Forced choices in a Hugging Face data set on disk: rows with several images in their cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.formats.arrow import open_shards
from crossmatch.benchmarks.formats.huggingface import Cell, shard_files
from crossmatch.core.errors import CrossmatchError

MARKS = ("*.parquet", "data/*.parquet", "*.arrow")


@dataclass(frozen=True)
class ShardRow:
    """The texts of a row by column, its images (opened when they are asked for) and the names of their files, where known."""

    texts: Mapping[str, Any]
    images: tuple[Cell, ...]
    files: tuple[str | None, ...]

    @property
    def where(self) -> str:
        return self.images[0].where


def has_shards(folder: Path) -> bool:
    return any(any(folder.glob(mark)) for mark in MARKS)


def shard_rows(folder: Path, images: tuple[str, ...], texts: tuple[str, ...]) -> list[ShardRow]:
    """All rows of the parquet or arrow files in a folder, in the order of the files' names."""
    found = []
    for shard in open_shards(shard_files(folder, "")):
        absent = [name for name in images if name not in shard.images] + [name for name in texts if name not in shard.names]
        if absent:
            raise CrossmatchError(
                f"{shard.path} has the columns {', '.join(map(repr, shard.names))}; {absent[0]!r} is missing or of another kind. "
                "Fetch the official files."
            )
        held, files = shard.values(list(texts)), [shard.paths(name) for name in images]
        for row in range(shard.rows):
            cells = tuple(Cell(shard, name, row) for name in images)
            found.append(ShardRow({name: held[name][row] for name in texts}, cells, tuple(paths[row] for paths in files)))
    return found
