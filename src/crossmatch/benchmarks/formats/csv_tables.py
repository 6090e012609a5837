"""Reads csv and tsv tables with named columns, and decodes text files written by people or spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.spreadsheet_csv import restore_text

BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
csv.field_size_limit(2**31 - 1)  # a cell may hold a caption of any length
DELIMITERS = {".csv": ",", ".tsv": "\t"}
TYPO_SIMILARITY = 0.85  # an unknown column at least this similar to a known one is a typo


@dataclass(frozen=True)
class TableRow:
    """The stripped cells of a row by column, and the place of the row in the file, for messages."""

    cells: Mapping[str, str]
    where: str


def decode_text(content: bytes, where: str) -> str:
    r"""Decode the bytes of a file as UTF-8, or as its byte-order mark says.

    >>> decode_text("caf\u00e9".encode("utf-16"), "a.csv") == decode_text("caf\u00e9".encode("utf-8-sig"), "a.csv") == "caf\u00e9"
    True
    >>> decode_text(b"image,caption\na.jpg,A caf\xe9.", "a.csv")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: a.csv line 2: byte 0xe9 (byte 25 of the file) is not utf-8. Save the file as UTF-8.
    """
    codec = next((codec for mark, codec in BYTE_ORDER_MARKS if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(codec)
    except UnicodeDecodeError as error:
        at = error.start + (3 if codec == "utf-8-sig" else 0)  # this codec counts from the end of the mark
        line = content[:at].count(b"\n") + 1
        raise CrossmatchError(
            f"{where} line {line}: byte 0x{content[at]:02x} (byte {at} of the file) is not {codec}. Save the file as UTF-8."
        ) from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise CrossmatchError(f"{where} line {line}: the text has a NUL character, so this is not a text file. Save it as UTF-8.")
    return text


def read_table(
    path: Path,
    required: Sequence[Sequence[str]],
    optional: Sequence[str] = (),
    row_noun: str = "pair",
    has_escaped_formulas: bool = False,
) -> list[TableRow]:
    """Read the rows of a csv (commas) or tsv (tabs) with a header.

    `required` has groups of column names: at least one column of each group must exist. Case is ignored. Columns that are neither
    required nor `optional` are ignored, unless their name looks like a typo. `row_noun` says in messages what a row describes.
    `has_escaped_formulas` is for files that this package writes with `format_csv`: the original texts are restored.
    """
    text = decode_text(path.read_bytes(), str(path))
    rows = _read_rows(path, text)
    header = next(rows, None)
    if header is None:
        raise CrossmatchError(
            f"{path} is empty. Write a header ({', '.join(group[0] for group in required)}) and one row per {row_noun}."
        )
    columns = [name.strip().lower() for name in header[1]]
    _check_columns(path, columns, required, optional)
    table_rows = []
    for line, cells in rows:
        if len(cells) != len(columns):
            raise CrossmatchError(
                f"{path} line {line}: {len(cells)} cells, but the header has {len(columns)}. "
                "Put double quotes around a cell that contains a separator."
            )
        stripped = (cell.strip() for cell in cells)
        texts = map(restore_text, stripped) if has_escaped_formulas else stripped
        table_rows.append(TableRow(dict(zip(columns, texts, strict=True)), f"{path} line {line}"))
    if not table_rows:
        raise CrossmatchError(f"{path} has a header but no rows. Write one row per {row_noun}.")
    return table_rows


def _read_rows(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each non-blank row with the number of its first line."""
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


def _check_columns(path: Path, columns: list[str], required: Sequence[Sequence[str]], optional: Sequence[str]) -> None:
    duplicate = next((name for name in columns if columns.count(name) > 1), None)
    if duplicate is not None:
        raise CrossmatchError(f"{path} has two columns {duplicate!r}. Rename or remove one.")
    known_columns = [*(name for group in required for name in group), *optional]
    for group in required:
        if not set(group) & set(columns):
            close = [c for c in columns if c not in known_columns and get_close_matches(c, group, n=1, cutoff=0.6)]
            raise CrossmatchError(
                f"{path} has the columns {', '.join(map(repr, columns))}; a column {' or '.join(map(repr, group))} is missing. "
                + (f"Is it {close[0]!r}? Rename it." if close else _header_hint(path, columns))
            )
    missing = [name for name in known_columns if name not in columns]
    for name in (name for name in columns if name not in known_columns):
        close = get_close_matches(name, missing, n=1, cutoff=TYPO_SIMILARITY)
        if close:
            raise CrossmatchError(f"{path} has a column {name!r}. Did you mean {close[0]!r}? Rename it.")


def _header_hint(path: Path, columns: list[str]) -> str:
    """Explain what to do about a missing header, or one with another separator."""
    if len(columns) == 1:
        actual = next((name for name, mark in (("semicolons", ";"), ("tabs", "\t"), ("commas", ",")) if mark in columns[0]), None)
        expected = {",": "commas", "\t": "tabs"}[DELIMITERS[path.suffix.lower()]]
        if actual is not None and actual != expected:
            return f"The columns seem to be separated by {actual}; a {path.suffix} needs {expected}. Save it with {expected}."
    return "The first line must name the columns."
