"""Tables and lines as text, such that no spreadsheet takes a cell for a formula."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t", "\r")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def safe(cell: object) -> str:
    """A cell that no spreadsheet takes for a formula; numbers are left as they are.

    >>> safe("=1+1"), safe("-3.5"), safe("- a list"), safe("A cat.")
    (' =1+1', '-3.5', ' - a list', 'A cat.')
    """
    text = "" if cell is None else str(cell)
    return f" {text}" if text.startswith(FORMULA) and not NUMBER.fullmatch(text) else text


def as_csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    held = io.StringIO()
    writer = csv.writer(held, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([safe(cell) for cell in row] for row in rows)
    return held.getvalue()


def as_jsonl(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
