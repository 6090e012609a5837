"""Results as tables: the same cells for the terminal and for the page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crossmatch.core.result import Result, Row
from crossmatch.metrics.table import metric
from crossmatch.report.compare import Comparison

NONE = "–"
SHORTER = re.compile(r"(?<=:)[^:+]*/(?=[^/])")  # the folder of a file in a model's name


@dataclass(frozen=True)
class Table:
    """Rows of cells under a head; the first `stub` columns name the row and are set to the left."""

    title: str
    head: tuple[tuple[str, ...], ...]
    rows: tuple[tuple[str, ...], ...]
    stub: int
    notes: tuple[str, ...] = ()


def by_task(results: Sequence[Result]) -> list[list[Result]]:
    """Results that may share a table: the same task with the same options."""
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(_heading(result), []).append(result)
    return list(groups.values())


def _heading(result: Result) -> tuple[str, ...]:
    """The task and what is unusual about its data or protocol; a table may hold results with more or fewer metrics."""
    return result.task, *(f"{key} {value}" for key, value in sorted(result.options.items()) if key != "metrics")


def results_table(results: Sequence[Result]) -> list[Table]:
    """One table per task: a row for each direction and metric, a column for each model and set of judgements."""
    return [_trials_table(group) if is_trials(group) else _task_table(group) for group in by_task(results)]


def is_trials(results: Sequence[Result]) -> bool:
    return all(metric(row.metric).shape == "trials" for r in results for row in r.rows)


def _trials_table(results: list[Result]) -> Table:
    """As the papers have it: a column for each metric, a row for each category and model, chance above them."""
    names = list(dict.fromkeys(row.metric for r in results for row in r.rows))
    parts = list(dict.fromkeys(row.part for r in results for row in r.rows))
    cells = {(n, row.part, row.metric): row for n, r in enumerate(results) for row in r.rows}
    first = {name: next(row for r in results for row in r.rows if row.metric == name) for name in names}
    body = [("chance", "", "", *(_number(first[name].chance, first[name].unit) for name in names))]
    for part in parts:
        for n, model in enumerate(labels(results)):
            rows = [cells.get((n, part, name)) for name in names]
            trials = next((f"{row.n:,}" for row in rows if row), NONE)
            shown = part or "all"
            body.append((shown if n == 0 else "", model, trials, *(value_with_error(row) if row else NONE for row in rows)))
    head = ("", "", "trials", *(metric(name).label or name for name in names))
    return Table(called(results[0]), (head,), tuple(body), 2, _notes(results))


def _task_table(results: list[Result]) -> Table:
    cells = {(n, *_split(row)): row for n, result in enumerate(results) for row in result.rows}
    lines = list(dict.fromkeys((_split(row)[0], row.metric) for r in results for row in r.rows))
    columns = list(dict.fromkeys((n, _split(row)[1]) for n, r in enumerate(results) for row in r.rows))
    sets = list(dict.fromkeys(judged for _, judged in columns))
    body = []
    for at, (direction, name) in enumerate(lines):
        found = [cells.get((n, direction, judged, name)) for n, judged in columns]
        chance = [next((row for (_, j), row in zip(columns, found, strict=True) if j == judged and row), None) for judged in sets]
        body.append((
            direction if at == 0 or lines[at - 1][0] != direction else "", metric(name).label or name,
            *(value_with_error(row) if row else NONE for row in found),
            *(_number(row.chance, row.unit) if row else NONE for row in chance),
        ))  # fmt: skip
    names = labels(results)
    upper = ["", "", *(names[n] if at == 0 or columns[at - 1][0] != n else "" for at, (n, _) in enumerate(columns)), "chance"]
    upper += [""] * (len(sets) - 1)
    head = (tuple(upper),) if sets == [""] else (tuple(upper), ("", "", *(j for _, j in columns), *sets))
    return Table(called(results[0]), head, tuple(body), 2, _notes(results))


def labels(results: Sequence[Result]) -> list[str]:
    """The models' names, files without their folders; a name that comes again is numbered."""
    seen: dict[str, int] = {}
    out = []
    for result in results:
        name = SHORTER.sub("", result.model)
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out


def _split(row: Row) -> tuple[str, str, str]:
    direction, _, judged = row.part.partition("/")
    return "both" if metric(row.metric).shape == "total" else direction, judged, row.metric


def called(result: Result) -> str:
    """The task and what is unusual about it, as titles have it."""
    return " · ".join(_heading(result))


def _notes(results: list[Result]) -> tuple[str, ...]:
    """What must be said beside the numbers: ties, unjudged pairs, what is missing."""
    notes: dict[str, None] = dict.fromkeys(findings(results))
    for name, result in zip(labels(results), results, strict=True):
        for kind, unit in (
            ("ties", "of the queries have a positive in a tie"),
            ("unjudged", "of the first 10 retrieved are unjudged"),
        ):
            told = {row.part: getattr(row, kind) for row in result.rows if metric(row.metric).shape not in ("pairs", "total")}
            told = {part: share for part, share in told.items() if share}
            if told and is_trials(results):
                notes[f"{name}: {_ties(told)}"] = None
            elif told:
                notes[f"{name}: " + ", ".join(f"{s:.1f} % in {p or result.task}" for p, s in told.items()) + f" {unit}"] = None
    return tuple(notes)


def _ties(shares: Mapping[str, float]) -> str:
    """How many trials tie, and in which category most.

    >>> _ties({"": 45.6, "macro": 45.6, "swap": 90.1, "add": 1.9})
    '45.6 % of the trials tie, and a tie loses (most of all in swap: 90.1 %)'
    """
    most = max((part for part in shares if part not in ("", "macro")), key=lambda part: shares[part], default="")
    whole = shares.get("", 0.0)
    where = f" (most of all in {most}: {shares[most]:.1f} %)" if most else ""
    return f"{f'{whole:.1f}' if whole >= 0.05 else '< 0.1'} % of the trials tie, and a tie loses{where}"


def findings(results: Sequence[Result]) -> tuple[str, ...]:
    """What the results say of themselves; a note that is not about all of them names its model."""
    told: dict[str, None] = {}
    for name, result in zip(labels(results), results, strict=True):
        for note in result.notes:
            told[note if all(note in other.notes for other in results) else f"{name}: {note}"] = None
    return tuple(told)


def comparison_table(compared: Sequence[Comparison], first: str, second: str) -> Table:
    """Differences with their intervals; a mark where one is better beyond doubt."""
    body, above = [], None
    first, second = (SHORTER.sub("", name) for name in (first, second))
    for c in compared:
        place = c.first.part or ("all" if metric(c.first.metric).shape == "trials" else "")
        low, high = (_signed(x, c.first.unit) for x in (c.difference.low, c.difference.high))
        verdict = {1: second, -1: first, 0: "cannot tell"}[c.better]
        body.append((
            place if place != above else "", metric(c.first.metric).label or c.first.metric, _number(c.first.value, c.first.unit),
            _number(c.second.value, c.second.unit), f"{_signed(c.difference.value, c.first.unit)} [{low}, {high}]",
            "≤ " + p_value(c.p).removeprefix("< ") if c.at_floor else p_value(c.p), verdict,
        ))  # fmt: skip
        above = place
    head = (("", "", first, second, "difference [95 %]", "p (Holm)", "better"),)
    notes = (
        "p: McNemar's exact test, corrected over the categories of a metric; some trials share images, so one is called better",
        "only if the test over clusters of trials agrees",
    )
    told_so = any(c.clustered is not None for c in compared)
    return Table(f"{compared[0].task}: {second} minus {first}", head, tuple(body), 2, (" ".join(notes),) if told_so else ())


LOPSIDED = 1.25  # how many times the shorter side of an interval its longer one may be to pass for ± half its width


def value_with_error(row: Row) -> str:
    """The value and its interval; `75.4 (std 0.4)` where a paper tells the spread instead."""
    if row.std is not None:
        return f"{_number(row.value, row.unit)} (std {row.std:.1f})"
    return told(row.value, row.low, row.high, row.unit)


def told(value: float, low: float, high: float, unit: str = "%") -> str:
    """A value with its interval: ± half the width, or both ends where the value is far from the middle.

    >>> told(71.3, 69.2, 73.4), told(100.0, 91.2, 100.0), told(0.0, 0.0, 36.0)
    ('71.3 ± 2.1', '100.0 [91.2, 100.0]', '0.0 [0.0, 36.0]')
    """
    below, above = max(0.0, value - low), max(0.0, high - value)
    digits = ",.0f" if _is_whole(value, unit) else ".1f"
    if max(below, above) > LOPSIDED * min(below, above) + 0.1:
        return f"{_number(value, unit)} [{low:{digits}}, {high:{digits}}]"
    return f"{_number(value, unit)} ± {(high - low) / 2:{digits}}"


def p_value(p: float) -> str:
    """
    >>> p_value(0.00004), p_value(0.0312)
    ('< .001', '.031')
    """
    if p < 0.001:
        return "< .001"
    near = abs(p - 0.05) < 0.0005  # another digit, so that it is seen on which side it is
    return f"{p:.{4 if near else 3}f}".removeprefix("0")


def _number(value: float, unit: str) -> str:
    return f"{value:,.0f}" if _is_whole(value, unit) else f"{value:.1f}"


def _is_whole(value: float, unit: str) -> bool:
    """Long ranks are shown without decimals."""
    return unit == "rank" and value >= 100


def _signed(value: float, unit: str) -> str:
    text = _number(abs(value), unit)
    return text if set(text) <= {"0", "."} else f"{'+' if value > 0 else '−'}{text}"


def as_text(table: Table) -> str:
    """Aligned columns for the terminal.

    >>> print(as_text(Table("t", (("", "a"),), (("x", "1.0"), ("yy", "10.0")), 1)))
    t
           a
    x    1.0
    yy  10.0
    """
    lines = [*table.head, *table.rows]
    widths = [max(len(line[c]) for line in lines) for c in range(len(lines[0]))]
    out = [table.title]
    for line in lines:
        cells = (text.ljust(w) if c < table.stub else text.rjust(w) for c, (text, w) in enumerate(zip(line, widths, strict=True)))
        out.append("  ".join(cells).rstrip())
    return "\n".join([*out, *(f"  {note}" for note in table.notes)])
