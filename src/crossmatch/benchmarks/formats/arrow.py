"""Reads arrow and parquet files with pyarrow, which is imported when the first file is opened."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol, TypeVar

from crossmatch.data.errors import CrossmatchError, MissingDependencyError

T = TypeVar("T")
CACHE_BYTES = 1 << 28  # size of the cache of parquet row groups


class ColumnStore(Protocol):
    """Access to the columns of a file."""

    def table(self, names: list[str]) -> Any:
        """Return whole columns."""

    def paths(self, column: str) -> list[str | None]:
        """Return the file name stored with each image."""

    def cell(self, column: str, row: int) -> Any:
        """Return one value, without reading the others if the format allows it."""


@dataclass(frozen=True, eq=False)
class Shard:
    """A file: its columns, its image columns (mapped to whether they have file names), and access to its values."""

    path: Path
    names: list[str]
    images: dict[str, bool]
    rows: int
    store: ColumnStore

    def values(self, names: list[str]) -> dict[str, list[Any]]:
        """Return whole columns as lists."""
        absent = next((name for name in names if name not in self.names), None)
        if absent is not None:
            raise CrossmatchError(f"{self.path} has no column {absent!r}, unlike the first file. All files need the same columns.")
        table = _explain_errors(self.path, lambda: self.store.table(names))
        columns: dict[str, list[Any]] = _explain_errors(self.path, lambda: {name: table.column(name).to_pylist() for name in names})
        short = next((name for name in names if len(columns[name]) != self.rows), None)
        if short is not None:
            raise CrossmatchError(
                f"{self.path} has {len(columns[short]):,} values of {short!r} in {self.rows:,} rows. Download or save it again."
            )
        return columns

    def paths(self, column: str) -> list[str | None]:
        """Return the file name of each image, or None."""
        return _explain_errors(self.path, lambda: self.store.paths(column)) if self.images.get(column) else [None] * self.rows

    def cell(self, column: str, row: int) -> Any:
        return _explain_errors(self.path, lambda: self.store.cell(column, row))


@dataclass(frozen=True, eq=False)
class MappedArrowTable:
    """A memory-mapped arrow table. Threads can share it."""

    arrow_table: Any

    def table(self, names: list[str]) -> Any:
        return self.arrow_table.select(names)

    def paths(self, column: str) -> list[str | None]:
        paths: list[str | None] = (
            _import_pyarrow("pyarrow.compute").struct_field(self.arrow_table.column(column), "path").to_pylist()
        )
        return paths

    def cell(self, column: str, row: int) -> Any:
        return self.arrow_table.column(column)[row].as_py()


class RowGroupCache:
    """Least-recently-used cache of parquet row groups, limited in bytes. Threads can share it."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._columns: OrderedDict[tuple[Path, int, str], Any] = OrderedDict()
        self._lock = threading.Lock()

    def column(self, path: Path, group: int, name: str) -> Any:
        key = (path, group, name)
        with self._lock:
            if key not in self._columns:
                with _import_pyarrow("pyarrow.parquet").ParquetFile(path) as file:
                    self._columns[key] = file.read_row_group(group, columns=[name]).column(name)
            self._columns.move_to_end(key)
            while len(self._columns) > 1 and sum(column.nbytes for column in self._columns.values()) > self.max_bytes:
                self._columns.popitem(last=False)
            return self._columns[key]


@dataclass(frozen=True, eq=False)
class ParquetStore:
    """A parquet file. An image can only be read together with its row group, so row groups are cached."""

    path: Path
    starts: list[int]  # first row of each group, followed by the number of rows
    cache: RowGroupCache

    def table(self, names: list[str]) -> Any:
        with _import_pyarrow("pyarrow.parquet").ParquetFile(self.path) as file:
            return file.read(columns=names)

    def paths(self, column: str) -> list[str | None]:
        return [record["path"] if record else None for record in self.table([f"{column}.path"]).column(column).to_pylist()]

    def cell(self, column: str, row: int) -> Any:
        group = bisect_right(self.starts, row) - 1
        return self.cache.column(self.path, group, column)[row - self.starts[group]].as_py()


def open_shards(paths: list[Path]) -> list[Shard]:
    """Open arrow files (streams, as `datasets` writes them, or files with a footer) and parquet files."""
    cache = RowGroupCache(CACHE_BYTES)
    return [
        _explain_errors(path, partial(_open_parquet if path.suffix.lower() == ".parquet" else _open_arrow, path, cache))
        for path in paths
    ]


def _open_arrow(path: Path, _: RowGroupCache) -> Shard:
    ipc = _import_pyarrow("pyarrow.ipc")
    with path.open("rb") as file:
        has_footer = file.read(6) == b"ARROW1"
    source = _import_pyarrow("pyarrow").memory_map(str(path))
    table = (ipc.open_file if has_footer else ipc.open_stream)(source).read_all()
    table.validate(full=True)  # a damaged offset would crash the process; this reads offsets and texts, but no image
    return Shard(path, table.schema.names, _find_image_columns(table.schema), table.num_rows, MappedArrowTable(table))


def _open_parquet(path: Path, cache: RowGroupCache) -> Shard:
    with _import_pyarrow("pyarrow.parquet").ParquetFile(path) as file:
        metadata, schema = file.metadata, file.schema_arrow
        starts = [0, *accumulate(metadata.row_group(n).num_rows for n in range(metadata.num_row_groups))]
    return Shard(path, schema.names, _find_image_columns(schema), starts[-1], ParquetStore(path, starts, cache))


def _find_image_columns(schema: Any) -> dict[str, bool]:
    """Return the columns that can hold images, and whether each stores file names with the bytes."""
    types = _import_pyarrow("pyarrow").types
    image_columns = {}
    for name, kind in zip(schema.names, schema.types, strict=True):
        inside = [kind.field(n).name for n in range(kind.num_fields)] if types.is_struct(kind) else []
        if "bytes" in inside or types.is_binary(kind) or types.is_large_binary(kind):
            image_columns[name] = "path" in inside
    return image_columns


def _explain_errors(path: Path, read: Callable[[], T]) -> T:
    damage: tuple[type[Exception], ...] = (OSError, UnicodeDecodeError, _import_pyarrow("pyarrow").ArrowException)
    try:
        return read()
    except damage as error:
        message = (str(error).splitlines() or [type(error).__name__])[0]
        raise CrossmatchError(f"{path} cannot be read ({message:.120}). Download or save it again.") from None


def _import_pyarrow(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise MissingDependencyError("pyarrow", "hf") from None
