"""Generated blocks and tables of Markdown pages. A script replaces the text between its own marks and keeps the rest."""

from __future__ import annotations

import csv
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from crossmatch.report.tables import Table

HERE = Path(__file__).parent
RESULTS = HERE / "results.md"
PICTURES = HERE / "pictures"
TABLES = HERE / "tables"  # complete tables, of which pages show an excerpt
WIDTH = 120


def require_block(path: Path, name: str) -> tuple[str, str]:
    """The page before and after the block `name`, including the marks `<!-- begin name -->` and `<!-- end name -->`."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->\n"
    page = path.read_text(encoding="utf-8")
    if begin not in page or end not in page:
        raise SystemExit(f"{path} has no block {name}. Add the lines {begin.strip()} and {end.strip()} where it belongs.")
    before, _, rest = page.partition(begin)
    return before + begin, end + rest.partition(end)[2]


def replace_block(path: Path, name: str, text: str) -> None:
    """Put `text` between `<!-- begin name -->` and `<!-- end name -->`, with its prose wrapped."""
    before, after = require_block(path, name)
    path.write_text(before + wrap_prose(text).rstrip() + "\n" + after, encoding="utf-8")


def wrap_prose(text: str) -> str:
    """Wrap long lines of prose and list items; tables, code, headings and images stay as they are.

    >>> print(wrap_prose("- " + "word " * 30))
    - word word word word word word word word word word word word word word word word word word word word word word word
      word word word word word word word
    """
    lines, is_code = [], False
    for line in text.split("\n"):
        is_code ^= line.startswith("```")
        if is_code or len(line) <= WIDTH or line.startswith(("|", "    ", "#", "```", "!", "<")):
            lines.append(line)
            continue
        bullet = re.match(r"\s*(?:[-*]|\d+\.)\s+", line)
        indent = " " * len(bullet[0]) if bullet else ""
        lines += textwrap.wrap(
            line.rstrip(), WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )  # fmt: skip
    return "\n".join(lines)


def markdown(table: Table) -> str:
    """A Markdown table with its notes below.

    >>> print(markdown(Table("", (("", "R@1"),), (("vse0", "42.4"),), 1, ("one seed",))))
    |  | R@1 |
    | :-- | --: |
    | vse0 | 42.4 |
    <BLANKLINE>
    *one seed.*
    """
    names = column_names(table)
    rule = [":--" if n < table.label_columns else "--:" for n in range(len(names))]
    lines = ["| " + " | ".join(cells) + " |" for cells in (names, rule, *table.rows)]
    return "\n".join([*lines, *(f"\n*{note.removesuffix('.')}.*" for note in table.notes)])


def column_names(table: Table) -> list[str]:
    """The header as one row; a header of two rows becomes names such as `dual links`."""
    if len(table.header) == 1:
        return list(table.header[0])
    names, upper = [], ""
    for cell, lower in zip(table.header[0], table.header[-1], strict=True):
        upper = cell or upper
        names.append(" ".join(dict.fromkeys(word for word in (upper, lower) if word)))
    return names


def excerpt(
    table: Table,
    name: str,
    *,
    rows: Callable[[tuple[str, ...]], bool] = lambda row: True,
    columns: Sequence[str] = (),
    without: Sequence[str] = (),
) -> str:
    """The most useful rows and columns of a large table as Markdown; `tables/NAME.csv` gets the complete table.

    Args:
        table: The complete table. An empty first cell repeats the one above it.
        name: Name of the csv file.
        rows: Whether to show a row; gets its cells with the first one filled in.
        columns: Names of the columns to show besides the labels; all if empty.
        without: Models to leave out, with their rows, columns and notes.
    """
    complete, first = [], ""
    for row in table.rows:
        first = row[0] or first
        complete.append((first, *row[1:]))
    names = column_names(table)
    TABLES.mkdir(exist_ok=True)
    with (TABLES / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([names, *complete])
    places = [
        n
        for n, column in enumerate(names)
        if n < table.label_columns
        or ((not columns or column in columns) and not any(column.startswith(f"{model} ") for model in without))
    ]
    shown = tuple(tuple(row[n] for n in places) for row in complete if rows(row) and not set(without) & set(row))
    notes = tuple(note for note in table.notes if not any(note.startswith(f"{model}: ") for model in without))
    short = Table("", (tuple(names[n] for n in places),), shown, table.label_columns, notes)
    return f"{markdown(short)}\n\n[The complete table](tables/{name}.csv) has {len(complete)} rows and {len(names)} columns."
