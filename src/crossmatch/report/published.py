"""What others printed in papers: shown beside one's own results on request, and never mixed with them.

A published number is a type of its own. It has no interval, no evidence and no signature, so nothing that compares, ranks or saves
results takes it; in a table its row says "published" and its paper, and the number stands in parentheses.
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

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.result import Result
from crossmatch.metrics.table import metric
from crossmatch.report.tables import NONE, Table, labels, value_with_error

# What is reported and the bootstrap: the data are the same. The paper's reading of co-captions is its own.
HARMLESS = {"metrics", "samples", "seed", "cocaptions"}
LEGEND = (
    "(in parentheses) numbers that others published: not measured here, without intervals, their handling of ties unknown",
    "rows are in the order of their sources and are not ranked",
)


@dataclass(frozen=True)
class Published:
    """One number from a paper, in percent or as a rank, and exactly as it was printed."""

    model: str
    task: str
    part: str  # such as i2t; `mean` for the mean of i2t and t2i; nothing for a number of the whole task
    metric: str
    printed: str
    paper: str
    table: str

    @property
    def value(self) -> float:
        return float(self.printed.partition("±")[0])

    @property
    def std(self) -> float | None:
        """The spread over bootstrap samples, where it was printed."""
        return float(self.printed.partition("±")[2]) if "±" in self.printed else None

    @property
    def key(self) -> str:
        return f"{self.part}/{self.metric}" if self.part else self.metric

    @property
    def source(self) -> str:
        return f"{self.paper}, {self.table}"


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper; `notes` say for a task what is wrong with its numbers or must be known to read them."""

    paper: str
    table: str
    about: str
    notes: Mapping[str, str]
    printed_names: Mapping[str, str]  # model -> its name in this table
    numbers: tuple[Published, ...]

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.printed_names)

    def __getitem__(self, at: tuple[str, str]) -> Published:
        """The number of a model under `task:key`."""
        for number in self.numbers:
            if (number.model, f"{number.task}:{number.key}") == at:
                return number
        raise CrossmatchError(f"{self.paper}, {self.table} has no {at[1]} of {at[0]}. Its models: {', '.join(self.models)}.")


@cache
def published_tables() -> Mapping[tuple[str, str], PublishedTable]:
    """All tables, by paper and table.

    >>> [table for paper, table in published_tables() if paper == "chun2022eccv"]
    ['Table 4', 'Table D.2', 'Table D.3']
    """
    folder = files("crossmatch.report") / "papers"
    declared = tomllib.loads((folder / "tables.toml").read_text(encoding="utf-8"))["table"]
    return MappingProxyType({
        (about["paper"], about["table"]): _read((folder / about["file"]).read_text(encoding="utf-8"), about) for about in declared
    })  # fmt: skip


def published_table(paper: str, table: str) -> PublishedTable:
    """One table of one paper.

    >>> published_table("chun2022eccv", "Table 4")["BLIP", "eccv-caption:mean/map@r"].value
    40.52
    >>> published_table("parekh2021cxc", "Table 5")["BoW", "cxc-sts:bootstrap-spearman"].std
    0.6
    """
    known = published_tables()
    if (paper, table) not in known:
        raise WrongWords(f"there is no {table} of {paper} here; there are {', '.join(f'{p}, {t}' for p, t in known)}.")
    return known[paper, table]


def published_numbers(task: str) -> tuple[Published, ...]:
    """Everything that was published on a task, in the order of the tables.

    >>> len({number.model for number in published_numbers("eccv-caption")})
    25
    """
    return tuple(number for table in published_tables().values() for number in table.numbers if number.task == task)


def beside(results: Sequence[Result]) -> list[Table]:
    """For each task with published numbers a table of one's own results, and below them what was published, told apart.

    Columns are the metrics of the results; published numbers of other metrics are left out. Results on other data than the papers'
    (another split, a part of the data) get none.
    """
    if not results:
        raise CrossmatchError("there are no results to show published numbers beside. Make some: crossmatch run -m MODEL -t TASK")
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Result]] = {}
    for result in results:
        unlike = tuple(sorted((key, value) for key, value in result.options.items() if key not in HARMLESS))
        groups.setdefault((result.task, unlike), []).append(result)
    tables = [_beside(task, mine) for (task, unlike), mine in groups.items() if not unlike and published_numbers(task)]
    if not tables:
        covered = dict.fromkeys(number.task for table in published_tables().values() for number in table.numbers)
        raise WrongWords(
            f"nothing was published for {', '.join(' '.join([t, *(f'{k}={v}' for k, v in u)]) for t, u in groups)}; "
            f"there are numbers for the usual data of {', '.join(covered)}."
        )
    return tables


def as_rows(task: str) -> list[dict[str, str | float]]:
    """Published numbers for JSON, to stand under a key of their own, such as `published`.

    >>> as_rows("cxc-sis")[0]
    {'published': True, 'model': 'InceptionV3', 'metric': 'bootstrap-spearman', 'value': 19.6, 'source': 'parekh2021cxc, Table 5'}
    """
    return [
        {"published": True, "model": n.model, "metric": n.key, "value": n.value, "source": n.source}
        for n in published_numbers(task)
    ]


def _beside(task: str, results: list[Result]) -> Table:
    told = {(n.part, n.metric) for n in published_numbers(task)}  # a column without any would only make the table wide
    every = list(dict.fromkeys((row.part, row.metric) for r in results for row in r.rows))
    columns = [c for c in every if c in told] or every
    body = []
    for name, result in zip(labels(results), results, strict=True):
        mine = {(row.part, row.metric): row for row in result.rows}
        body.append(("measured", name, "this result", *(value_with_error(mine[c]) if c in mine else NONE for c in columns)))
    cells = {(n.paper, n.model, n.part, n.metric): n for n in published_numbers(task)}
    used: set[tuple[str, str]] = set()
    for paper, model in dict.fromkeys((n.paper, n.model) for n in published_numbers(task)):
        found = [cells.get((paper, model, *c)) for c in columns]
        if any(found):
            used |= {(n.paper, n.table) for n in found if n}
            tables = ", ".join(dict.fromkeys(n.table for n in found if n))
            body.append(("published", f"({model})", f"{paper}, {tables}", *(f"({n.printed})" if n else NONE for n in found)))
    head = (
        ("", "", "", *(part if at == 0 or columns[at - 1][0] != part else "" for at, (part, _) in enumerate(columns))),
        ("whose", "model", "source", *(metric(name).label or name for _, name in columns)),
    )
    notes = [f"{t.paper}, {t.table}: {t.notes[task]}" for key, t in published_tables().items() if key in used and task in t.notes]
    return Table(f"{task}: measured, and published by others", head, tuple(body), 3, (*LEGEND, *notes))


def _read(text: str, about: Mapping[str, Any]) -> PublishedTable:
    lines = list(csv.DictReader(text.splitlines()))
    paper, table = about["paper"], about["table"]
    numbers = tuple(
        Published(line["model"], task, part.rpartition("/")[0], part.rpartition("/")[2], cell, paper, table)
        for line in lines
        for column, cell in line.items()
        for task, colon, part in (column.partition(":"),)
        if colon and cell
    )
    notes = {task: " ".join(note.split()) for task, note in about.get("notes", {}).items()}
    names = {line["model"]: line["printed"] for line in lines}
    return PublishedTable(paper, table, about["about"], MappingProxyType(notes), MappingProxyType(names), numbers)
