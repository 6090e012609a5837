"""Write docs/papers.md: where every part of the five papers is in crossmatch, from the tables docs/papers/*.toml.

python docs/make_papers.py

A table has one `[[row]]` for each system, formula, step of data collection, table, figure and study of its paper:

    kind = "formula"                                          one of KINDS
    where = "eq. E.2"                                         place in the paper
    what = "share of queries whose first item is positive"    one line
    by = ["crossmatch run -m MODEL -t eccv-caption"]          commands, dotted names, or files of the repository
    status = "exact"                                          one of STATUSES
    why = ""                                                  reason for every status but exact
    tests = ["tests/laws/test_metrics.py::test_..."]          tests that show it
    points = [19]                                             points of issue 25 about it, if any
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blocks import wrap_prose

HERE = Path(__file__).parent
PAGE = HERE / "papers.md"
PAPERS = {
    "bison": "BISON (hu2019bison)",
    "cxc": "Crisscrossed Captions (parekh2021cxc)",
    "tiger": "TIGEr (jiang2019tiger)",
    "bivlc": "BiVLC (miranda2024bivlc)",
    "eccv": "ECCV Caption (chun2022eccv)",
}
KINDS = {
    "system": "Systems and training",
    "formula": "Formulas and metrics",
    "data": "Data collection",
    "table": "Tables",
    "figure": "Figures",
    "study": "Studies and analyses",
}
STATUSES = {
    "exact": "the paper's definition or numbers; a test compares it with the paper, a released file, or an independent computation",
    "equivalent": "it does the same work, but its numbers are not the paper's or were not compared with them",
    "approximated": "it differs from the paper in a way that can change numbers",
    "impossible here": "it needs weights, pictures, people or files that are not public or not on the machine of the tests",
    "missing": "it is not built",
}
COLUMNS = ("where", "what", "done by", "status", "reason", "test")
MAX_ROWS = 15  # per table of the page


@dataclass(frozen=True)
class PaperRow:
    """One part of a paper, and what does it here."""

    paper: str
    kind: str
    where: str
    what: str
    status: str
    by: tuple[str, ...] = ()
    why: str = ""
    tests: tuple[str, ...] = ()
    points: tuple[int, ...] = ()

    @property
    def reason(self) -> str:
        """The reason, with the points of issue 25."""
        label = "point" if len(self.points) == 1 else "points"
        points = f"{label} {', '.join(map(str, self.points))}" if self.points else ""
        return "; ".join(filter(None, (self.why, points)))


def load_rows() -> list[PaperRow]:
    """All rows, in the order of `PAPERS`, then of `KINDS`, then of the file."""
    rows = []
    for paper in PAPERS:
        path = HERE / "papers" / f"{paper}.toml"
        for number, row in enumerate(tomllib.loads(path.read_text(encoding="utf-8"))["row"], start=1):
            for name, choices in (("kind", KINDS), ("status", STATUSES)):
                if row[name] not in choices:
                    raise SystemExit(f"{path}, row {number}: {name} is {row[name]!r}. Use one of: {', '.join(choices)}.")
            values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
            rows.append(PaperRow(paper, **values))
    papers, kinds = list(PAPERS), list(KINDS)
    return sorted(rows, key=lambda row: (papers.index(row.paper), kinds.index(row.kind)))


def page(rows: Sequence[PaperRow]) -> str:
    """The whole page."""
    lines = [
        "# The five papers",
        "",
        "Where each system, formula, table, figure, study and analysis of the five papers is in crossmatch. "
        "`docs/make_papers.py` writes this page from `docs/papers/*.toml`; a test checks that every command, option, function and "
        "test exists. If a row names a script of docs, its numbers are on [the results page](results.md), and the test covers the "
        "method, not these numbers. Points are those of issue 25; what is missing without a point, the issue does not ask for.",
        "",
        *(f"- **{status}**: {meaning}." for status, meaning in STATUSES.items()),
        "",
        *_markdown(("paper", "rows", *STATUSES), _counts(rows)),
    ]
    for paper, title in PAPERS.items():
        lines += ["", f"## {title}"]
        for kind, heading in KINDS.items():
            group = [row for row in rows if (row.paper, row.kind) == (paper, kind)]
            if len(group) > MAX_ROWS:
                raise SystemExit(f"{paper}: {len(group)} rows of kind {kind!r}, but a table has at most {MAX_ROWS}. Merge some.")
            if group:
                lines += ["", f"### {heading} of {title.partition(' (')[0]}", "", *_markdown(COLUMNS, map(_cells, group))]
    return wrap_prose("\n".join(lines)) + "\n"


def _counts(rows: Sequence[PaperRow]) -> list[tuple[str, ...]]:
    """A row for each paper and one for all of them: the number of rows by status."""
    groups = {title: [row for row in rows if row.paper == paper] for paper, title in PAPERS.items()} | {"all": list(rows)}
    counts = {title: Counter(row.status for row in group) for title, group in groups.items()}
    return [(title, str(by_status.total()), *(str(by_status[s]) for s in STATUSES)) for title, by_status in counts.items()]


def _cells(row: PaperRow) -> tuple[str, ...]:
    return (row.where, row.what, _code(row.by), row.status, row.reason, _code(row.tests))


def _code(texts: Sequence[str]) -> str:
    return "<br>".join(f"`{text}`" for text in texts)


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]] | map[tuple[str, ...]]) -> list[str]:
    cells = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in cells]


if __name__ == "__main__":
    PAGE.write_text(page(load_rows()), encoding="utf-8")
