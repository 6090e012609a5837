r"""Csv files that a spreadsheet of any locale opens without running a formula.

A spreadsheet evaluates a cell that begins with = + - @ or one of their full-width forms. In another locale it also splits cells at
semicolons, tabs or line breaks, because it does not recognise the quotes around them. So every part of a text that would begin a
formula gets an apostrophe in front, by which spreadsheets mark text. Numbers stay as they are, but not as text at the beginning of a
row or beside a separator: there the next cell would be part of the formula. `restore_text` restores the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

APOSTROPHE = "'"
SEPARATORS = re.compile("([;\u061b|\t\n\v\f\r\x85\u2028\u2029])")  # between cells or rows in some locale; \u061b is Arabic
INVISIBLE = "\u200b-\u200f\u2060\ufeff"
SIGNS = "-=+@＝＋－＠﹦﹢﹣﹫"  # plain, full-width and small
BEGINS_FORMULA = re.compile(rf"[\s{INVISIBLE}\"']*[{SIGNS}]")
BEGINS_WITH_BREAK = re.compile(r"[ \"']*[\t\r\n]")  # spreadsheets may drop it and read on
NEEDS_QUOTES = re.compile('[,"\r\n]')
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def escape_formulas(cell: object, *, keep_numbers: bool = True) -> str:
    """The text of a cell, with an apostrophe before every part that a spreadsheet would take for a formula.

    >>> escape_formulas("=1+1"), escape_formulas("-3.5"), escape_formulas(-3.5), escape_formulas("A cat.")
    ("'=1+1", '-3.5', '-3.5', 'A cat.')
    >>> escape_formulas("a cat; =1+1")
    "a cat;' =1+1"
    """
    if not isinstance(cell, str):
        return "" if cell is None else str(cell)
    parts = SEPARATORS.split(cell)
    if not (keep_numbers and NUMBER.fullmatch(cell.strip())):
        parts[::2] = [APOSTROPHE + part if BEGINS_FORMULA.match(part) else part for part in parts[::2]]
    text = "".join(parts)
    return APOSTROPHE + text if BEGINS_WITH_BREAK.match(text) else text


def restore_text(cell: str) -> str:
    """The text that `escape_formulas` was given.

    >>> restore_text("'=1+1"), restore_text("a cat;' =1+1"), restore_text("'tis a cat")
    ('=1+1', 'a cat; =1+1', "'tis a cat")
    """
    if cell.startswith(APOSTROPHE) and BEGINS_WITH_BREAK.match(cell[1:]):
        cell = cell[1:]
    parts = SEPARATORS.split(cell)
    parts[::2] = [part[1:] if part.startswith(APOSTROPHE) and BEGINS_FORMULA.match(part[1:]) else part for part in parts[::2]]
    return "".join(parts)


def format_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A csv with this header and these rows, in which no cell is a formula."""
    escaped = ([escape_formulas(cell, keep_numbers=n > 0) for n, cell in enumerate(row)] for row in (header, *rows))
    return "".join(",".join(map(_quote, row)) + "\n" for row in escaped)


def _quote(text: str) -> str:
    """A cell in quotes if it needs them. `csv.writer` leaves a lone carriage return unquoted."""
    return '"' + text.replace('"', '""') + '"' if NEEDS_QUOTES.search(text) else text
