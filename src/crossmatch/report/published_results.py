"""Numbers published in papers. They are shown next to measured results on request, but never mixed with them.

`PublishedNumber` is a separate type without interval, evidence and signature, so functions that compare, rank or save results do
not accept it. In a table its row says "published" and names the paper, and the number is in parentheses.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.result import Result
from crossmatch.metrics.metric_table import metric
from crossmatch.report.tables import EMPTY_CELL, Table, format_row, model_labels

# Options that do not change the data. Papers have their own reading of co-captions.
IGNORED_OPTIONS = {"metrics", "samples", "seed", "cocaptions"}
LEGEND = (
    "numbers in parentheses are published: not measured here, without intervals, with unknown handling of ties",
    "rows are in the order of their sources, not ranked",
)


@dataclass(frozen=True)
class PublishedNumber:
    """One number from a paper, in percent or as a rank, exactly as printed."""

    model: str
    task: str
    part: str  # such as i2t; `mean` for the mean of i2t and t2i; empty for the whole task
    metric: str
    printed: str
    paper: str
    table: str

    @property
    def value(self) -> float:
        return float(self.printed.partition("±")[0])

    @property
    def std(self) -> float | None:
        """The standard deviation over bootstrap samples, if printed."""
        return float(self.printed.partition("±")[2]) if "±" in self.printed else None

    @property
    def key(self) -> str:
        return f"{self.part}/{self.metric}" if self.part else self.metric

    @property
    def source(self) -> str:
        return f"{self.paper}, {self.table}"


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper; `notes` explain problems or peculiarities of the numbers, by task."""

    paper: str
    table: str
    description: str
    notes: Mapping[str, str]
    printed_names: Mapping[str, str]  # model to its name in this table
    numbers: tuple[PublishedNumber, ...]

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.printed_names)

    def __getitem__(self, model_and_key: tuple[str, str]) -> PublishedNumber:
        """The number of a model under `task:key`."""
        for number in self.numbers:
            if (number.model, f"{number.task}:{number.key}") == model_and_key:
                return number
        model, key = model_and_key
        raise CrossmatchError(f"{self.paper}, {self.table} has no {key} for {model}. Its models: {', '.join(self.models)}.")


@cache
def load_published_tables() -> Mapping[tuple[str, str], PublishedTable]:
    """Load all tables, by paper and table.

    >>> [table for paper, table in load_published_tables() if paper == "chun2022eccv"]
    ['Table 4', 'Table D.2', 'Table D.3']
    """
    folder = files("crossmatch.report") / "papers"
    declarations = tomllib.loads((folder / "tables.toml").read_text(encoding="utf-8"))["table"]
    return MappingProxyType({
        (d["paper"], d["table"]): _parse_table((folder / d["file"]).read_text(encoding="utf-8"), d) for d in declarations
    })  # fmt: skip


def load_published_table(paper: str, table: str) -> PublishedTable:
    """Load one table of a paper.

    >>> load_published_table("chun2022eccv", "Table 4")["BLIP", "eccv-caption:mean/map@r"].value
    40.52
    >>> load_published_table("parekh2021cxc", "Table 5")["BoW", "cxc-sts:bootstrap-spearman"].std
    0.6
    """
    tables = load_published_tables()
    if (paper, table) not in tables:
        raise UsageError(f"No {table} of {paper}. Choose from: {'; '.join(f'{p}, {t}' for p, t in tables)}.")
    return tables[paper, table]


def find_published_numbers(task: str) -> tuple[PublishedNumber, ...]:
    """All published numbers of a task, in the order of the tables.

    >>> len({number.model for number in find_published_numbers("eccv-caption")})
    25
    """
    return tuple(number for table in load_published_tables().values() for number in table.numbers if number.task == task)


def tables_with_published(results: Sequence[Result]) -> list[Table]:
    """A table for each task with published numbers: measured results, followed by published numbers.

    Columns are the metrics of the results; published numbers of other metrics are omitted. Results on other data than those of the
    papers (another split, a part of the data) are omitted.
    """
    if not results:
        raise CrossmatchError("No results to compare with published numbers. Create some with: crossmatch run -m MODEL -t TASK")
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Result]] = {}
    for result in results:
        options = tuple(sorted((key, value) for key, value in result.options.items() if key not in IGNORED_OPTIONS))
        groups.setdefault((result.task, options), []).append(result)
    tables = [
        _published_table(task, group) for (task, options), group in groups.items() if not options and find_published_numbers(task)
    ]
    if not tables:
        tasks = dict.fromkeys(number.task for table in load_published_tables().values() for number in table.numbers)
        raise UsageError(
            f"No published numbers for {', '.join(' '.join([t, *(f'{k}={v}' for k, v in o)]) for t, o in groups)}. "
            f"There are numbers for the default data of {', '.join(tasks)}."
        )
    return tables


def published_rows(task: str) -> list[dict[str, str | float]]:
    """The published numbers of a task for JSON, under a key of their own such as `published`.

    >>> published_rows("cxc-sis")[0]
    {'published': True, 'model': 'InceptionV3', 'metric': 'bootstrap-spearman', 'value': 19.6, 'source': 'parekh2021cxc, Table 5'}
    """
    return [
        {"published": True, "model": n.model, "metric": n.key, "value": n.value, "source": n.source}
        for n in find_published_numbers(task)
    ]


def _published_table(task: str, results: list[Result]) -> Table:
    numbers = find_published_numbers(task)
    published = {(n.part, n.metric) for n in numbers}
    measured = list(dict.fromkeys((row.part, row.metric) for r in results for row in r.rows))
    columns = [c for c in measured if c in published] or measured  # columns without published numbers are omitted
    body = []
    for name, result in zip(model_labels(results), results, strict=True):
        row_by_column = {(row.part, row.metric): row for row in result.rows}
        body.append(
            (
                "measured",
                name,
                "this result",
                *(format_row(row_by_column[c]) if c in row_by_column else EMPTY_CELL for c in columns),
            )
        )
    cells = {(n.paper, n.model, n.part, n.metric): n for n in numbers}
    sources: set[tuple[str, str]] = set()
    for paper, model in dict.fromkeys((n.paper, n.model) for n in numbers):
        model_numbers = [cells.get((paper, model, *c)) for c in columns]
        if any(model_numbers):
            sources |= {(n.paper, n.table) for n in model_numbers if n}
            tables = ", ".join(dict.fromkeys(n.table for n in model_numbers if n))
            body.append(
                ("published", f"({model})", f"{paper}, {tables}", *(f"({n.printed})" if n else EMPTY_CELL for n in model_numbers))
            )
    header = (
        ("", "", "", *(part if at == 0 or columns[at - 1][0] != part else "" for at, (part, _) in enumerate(columns))),
        ("origin", "model", "source", *(metric(name).label or name for _, name in columns)),
    )
    notes = [
        f"{t.paper}, {t.table}: {t.notes[task]}" for key, t in load_published_tables().items() if key in sources and task in t.notes
    ]
    return Table(f"{task}: measured and published", header, tuple(body), 3, (*LEGEND, *notes))


def _parse_table(text: str, declaration: Mapping[str, Any]) -> PublishedTable:
    lines = list(csv.DictReader(text.splitlines()))
    paper, table = declaration["paper"], declaration["table"]
    numbers = tuple(
        PublishedNumber(line["model"], task, part.rpartition("/")[0], part.rpartition("/")[2], cell, paper, table)
        for line in lines
        for column, cell in line.items()
        for task, colon, part in (column.partition(":"),)
        if colon and cell
    )
    notes = {task: " ".join(note.split()) for task, note in declaration.get("notes", {}).items()}
    names = {line["model"]: line["printed"] for line in lines}
    return PublishedTable(paper, table, declaration["about"], MappingProxyType(notes), MappingProxyType(names), numbers)
