"""Arrow and parquet files through pyarrow, which is imported when the first one is opened."""

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

from crossmatch.core.errors import CrossmatchError, MissingDependency

T = TypeVar("T")
KEEP = 1 << 28  # bytes of parquet row groups that stay in memory for the next image


class Store(Protocol):
    """Where the values of a file come from."""

    def table(self, names: list[str]) -> Any:
        """Whole columns."""

    def paths(self, column: str) -> list[str | None]:
        """The file name beside the bytes of each image."""

    def cell(self, column: str, row: int) -> Any:
        """One value, without reading the others where the format allows it."""


@dataclass(frozen=True, eq=False)
class Shard:
    """One file: its columns, those of them that hold images (with or without the names of their files), and its values."""

    path: Path
    names: list[str]
    images: dict[str, bool]
    rows: int
    store: Store

    def values(self, names: list[str]) -> dict[str, list[Any]]:
        """Whole columns as lists."""
        absent = next((name for name in names if name not in self.names), None)
        if absent is not None:
            raise CrossmatchError(f"{self.path} has no column {absent!r}, unlike the first file. All must have the same columns.")
        table = _checked(self.path, lambda: self.store.table(names))
        held: dict[str, list[Any]] = _checked(self.path, lambda: {name: table.column(name).to_pylist() for name in names})
        short = next((name for name in names if len(held[name]) != self.rows), None)
        if short is not None:
            raise CrossmatchError(
                f"{self.path} has {len(held[short]):,} values of {short!r} in {self.rows:,} rows. Fetch or save it again."
            )
        return held

    def paths(self, column: str) -> list[str | None]:
        """The name of each image's file, where it is known."""
        return _checked(self.path, lambda: self.store.paths(column)) if self.images.get(column) else [None] * self.rows

    def cell(self, column: str, row: int) -> Any:
        return _checked(self.path, lambda: self.store.cell(column, row))


@dataclass(frozen=True, eq=False)
class Mapped:
    """An arrow table mapped into memory: the operating system reads what is asked for, and threads may share it."""

    held: Any

    def table(self, names: list[str]) -> Any:
        return self.held.select(names)

    def paths(self, column: str) -> list[str | None]:
        found: list[str | None] = _pyarrow("pyarrow.compute").struct_field(self.held.column(column), "path").to_pylist()
        return found

    def cell(self, column: str, row: int) -> Any:
        return self.held.column(column)[row].as_py()


class RowGroups:
    """The row groups of parquet files that were asked for last, up to some bytes; safe to share among threads."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._held: OrderedDict[tuple[Path, int, str], Any] = OrderedDict()
        self._lock = threading.Lock()

    def column(self, path: Path, group: int, name: str) -> Any:
        key = (path, group, name)
        with self._lock:
            if key not in self._held:
                with _pyarrow("pyarrow.parquet").ParquetFile(path) as file:
                    self._held[key] = file.read_row_group(group, columns=[name]).column(name)
            self._held.move_to_end(key)
            while len(self._held) > 1 and sum(held.nbytes for held in self._held.values()) > self.keep:
                self._held.popitem(last=False)
            return self._held[key]


@dataclass(frozen=True, eq=False)
class Grouped:
    """A parquet file. One image cannot be read alone, only with its row group, so the last groups are kept."""

    path: Path
    starts: list[int]  # first row of each group, and behind the last the number of rows
    kept: RowGroups

    def table(self, names: list[str]) -> Any:
        with _pyarrow("pyarrow.parquet").ParquetFile(self.path) as file:
            return file.read(columns=names)

    def paths(self, column: str) -> list[str | None]:
        return [held["path"] if held else None for held in self.table([f"{column}.path"]).column(column).to_pylist()]

    def cell(self, column: str, row: int) -> Any:
        group = bisect_right(self.starts, row) - 1
        return self.kept.column(self.path, group, column)[row - self.starts[group]].as_py()


def open_shards(paths: list[Path]) -> list[Shard]:
    """Arrow files (as a stream, which `datasets` writes, or with a footer) and parquet files."""
    kept = RowGroups(KEEP)
    return [_checked(path, partial(_parquet if path.suffix.lower() == ".parquet" else _arrow, path, kept)) for path in paths]


def _arrow(path: Path, _: RowGroups) -> Shard:
    ipc = _pyarrow("pyarrow.ipc")
    with path.open("rb") as file:
        has_footer = file.read(6) == b"ARROW1"
    source = _pyarrow("pyarrow").memory_map(str(path))
    table = (ipc.open_file if has_footer else ipc.open_stream)(source).read_all()
    table.validate(full=True)  # a damaged offset would end the process; this reads offsets and texts, but no image
    return Shard(path, table.schema.names, _images(table.schema), table.num_rows, Mapped(table))


def _parquet(path: Path, kept: RowGroups) -> Shard:
    with _pyarrow("pyarrow.parquet").ParquetFile(path) as file:
        about, schema = file.metadata, file.schema_arrow
        starts = [0, *accumulate(about.row_group(n).num_rows for n in range(about.num_row_groups))]
    return Shard(path, schema.names, _images(schema), starts[-1], Grouped(path, starts, kept))


def _images(schema: Any) -> dict[str, bool]:
    """The columns that can hold images, and whether each has the names of the files beside the bytes."""
    types = _pyarrow("pyarrow").types
    found = {}
    for name, kind in zip(schema.names, schema.types, strict=True):
        inside = [kind.field(n).name for n in range(kind.num_fields)] if types.is_struct(kind) else []
        if "bytes" in inside or types.is_binary(kind) or types.is_large_binary(kind):
            found[name] = "path" in inside
    return found


def _checked(path: Path, act: Callable[[], T]) -> T:
    try:
        return act()
    except CrossmatchError:
        raise
    except Exception as error:  # a damaged file can fail anywhere inside of pyarrow
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise CrossmatchError(f"{path} cannot be read ({said:.120}). Fetch or save it again.") from None


def _pyarrow(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise MissingDependency("pyarrow", "hf") from None
