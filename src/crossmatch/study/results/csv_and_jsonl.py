"""Formats csv and jsonl files. Cells of a csv cannot start a formula in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def escape_formula(cell: object) -> str:
    """The text of a cell, with a blank before anything that a spreadsheet would take for a formula. Numbers stay as they are.

    >>> escape_formula("=1+1"), escape_formula("-3.5"), escape_formula("- a list"), escape_formula("A cat.")
    (' =1+1', '-3.5', ' - a list', 'A cat.')
    """
    text = "" if cell is None else str(cell)
    return f" {text}" if text.startswith(FORMULA_STARTS) and not NUMBER.fullmatch(text) else text


def format_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A csv with this header and these rows."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([escape_formula(cell) for cell in row] for row in rows)
    return text.getvalue()


def format_jsonl(rows: Iterable[Mapping[str, Any]]) -> str:
    """One json object per line."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
