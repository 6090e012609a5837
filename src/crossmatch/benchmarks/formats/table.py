"""Text files that a person or a spreadsheet wrote: decoding, and tables with named columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from crossmatch.core.errors import CrossmatchError

MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)  # byte-order marks, as spreadsheets write
csv.field_size_limit(2**31 - 1)  # a cell may hold a caption of any length
DELIMITERS = {".csv": ",", ".tsv": "\t"}
NEAR = 0.85  # an unknown column as near as this to a known one is a slip of the pen, not a column of the user's own


@dataclass(frozen=True)
class Row:
    """The cells of one row by column, without blanks around them, and the place where the row begins, for messages."""

    cells: Mapping[str, str]
    where: str


def text_of(held: bytes, where: str) -> str:
    r"""Bytes as text: UTF-8, or what a byte-order mark says.

    >>> text_of("caf\u00e9".encode("utf-16"), "a.csv") == text_of("caf\u00e9".encode("utf-8-sig"), "a.csv") == "caf\u00e9"
    True
    >>> text_of(b"image,caption\na.jpg,A caf\xe9.", "a.csv")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: a.csv line 2: byte 0xe9 (byte 25 of the file) is not utf-8. Save the file as UTF-8.
    """
    codec = next((codec for mark, codec in MARKS if held.startswith(mark)), "utf-8")
    try:
        text = held.decode(codec)
    except UnicodeDecodeError as error:
        at = error.start + (3 if codec == "utf-8-sig" else 0)  # this codec counts from behind the mark
        line = held[:at].count(b"\n") + 1
        raise CrossmatchError(
            f"{where} line {line}: byte 0x{held[at]:02x} (byte {at} of the file) is not {codec}. Save the file as UTF-8."
        ) from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise CrossmatchError(f"{where} line {line}: a NUL character stands in the text; this is no text file. Save it as UTF-8.")
    return text


def read_table(path: Path, needs: Sequence[Sequence[str]], may: Sequence[str] = (), each: str = "pair") -> list[Row]:
    """The rows of a csv (commas) or tsv (tabs) with a header. Of each group in `needs` at least one column must be there.

    Names of columns are read without regard to case; columns that are not known are left alone unless they look misspelt.
    `each` says what a row stands for, for messages.
    """
    text = text_of(path.read_bytes(), str(path))
    rows = _rows(path, text)
    header = next(rows, None)
    if header is None:
        raise CrossmatchError(f"{path} is empty. Write a header ({', '.join(group[0] for group in needs)}) and one row per {each}.")
    columns = [name.strip().lower() for name in header[1]]
    _check_columns(path, columns, needs, may)
    found = []
    for line, cells in rows:
        if len(cells) != len(columns):
            raise CrossmatchError(
                f"{path} line {line}: {len(cells)} cells, but the header has {len(columns)}. "
                "Put a cell with a separator inside of it into double quotes."
            )
        found.append(Row({name: cell.strip() for name, cell in zip(columns, cells, strict=True)}, f"{path} line {line}"))
    if not found:
        raise CrossmatchError(f"{path} has a header but no rows. Write one row per {each}.")
    return found


def _rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not blank, with the line in which it begins."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=DELIMITERS[path.suffix.lower()], strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise CrossmatchError(
                f"{path} line {line}: the row cannot be read ({error}). Close every double quote; double those inside a cell."
            ) from None
        if any(cell.strip() for cell in cells):
            yield line, cells


def _check_columns(path: Path, columns: list[str], needs: Sequence[Sequence[str]], may: Sequence[str]) -> None:
    twice = next((name for name in columns if columns.count(name) > 1), None)
    if twice is not None:
        raise CrossmatchError(f"{path} has two columns {twice!r}. Rename or remove one.")
    known = [*(name for group in needs for name in group), *may]
    for group in needs:
        if not set(group) & set(columns):
            close = [c for c in columns if c not in known and get_close_matches(c, group, n=1, cutoff=0.6)]
            raise CrossmatchError(
                f"{path} has the columns {', '.join(map(repr, columns))}; one called {' or '.join(map(repr, group))} is missing. "
                + (f"Is it {close[0]!r}? Rename it." if close else _advice(path, columns))
            )
    for name in columns:
        close = [] if name in known else get_close_matches(name, [k for k in known if k not in columns], n=1, cutoff=NEAR)
        if close:
            raise CrossmatchError(f"{path} has a column {name!r}. Did you mean {close[0]!r}? Rename it.")


def _advice(path: Path, columns: list[str]) -> str:
    """What to do about a header that is none, or is separated by something else."""
    if len(columns) == 1:
        other = next((name for name, mark in (("semicolons", ";"), ("tabs", "\t"), ("commas", ",")) if mark in columns[0]), None)
        wanted = {",": "commas", "\t": "tabs"}[DELIMITERS[path.suffix.lower()]]
        if other is not None and other != wanted:
            return f"It looks separated by {other}; a {path.suffix} has {wanted}. Save it with {wanted}."
    return "The first line must name the columns."
