"""Results as tables: the same cells for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crossmatch.core.result import Result, Row
from crossmatch.metrics.table import metric
from crossmatch.report.compare import Comparison

NONE = "–"


@dataclass(frozen=True)
class Table:
    """Rows of cells under a head; the first `stub` columns name the row and are set to the left."""

    title: str
    head: tuple[tuple[str, ...], ...]
    rows: tuple[tuple[str, ...], ...]
    stub: int
    notes: tuple[str, ...] = ()


def results_table(results: Sequence[Result]) -> list[Table]:
    """One table per task: a row for each direction and metric, a column for each model and set of judgements."""
    return [_task_table([r for r in results if r.task == task]) for task in dict.fromkeys(r.task for r in results)]


def _task_table(results: list[Result]) -> Table:
    cells = {(r.model, _split(row)): row for r in results for row in r.rows}
    lines = list(dict.fromkeys((_split(row)[0], row.metric) for r in results for row in r.rows))
    columns = list(dict.fromkeys((r.model, _split(row)[1]) for r in results for row in r.rows))
    sets = list(dict.fromkeys(judged for _, judged in columns))

    def cell(model: str, direction: str, judged: str, name: str) -> Row | None:
        return cells.get((model, (direction, judged, name)))

    body = []
    for n, (direction, name) in enumerate(lines):
        found = [cell(model, direction, judged, name) for model, judged in columns]
        chance = [next((r for model, _ in columns if (r := cell(model, direction, judged, name))), None) for judged in sets]
        first = n == 0 or lines[n - 1][0] != direction
        body.append((
            direction if first else "", metric(name).label or name,
            *(value_with_error(row) if row else NONE for row in found),
            *(_number(row.chance, row.unit) if row else NONE for row in chance),
        ))  # fmt: skip
    names = ["", "", *(m if n == 0 or columns[n - 1][0] != m else "" for n, (m, _) in enumerate(columns)), "chance"]
    names += [""] * (len(sets) - 1)
    head = (tuple(names),) if sets == [""] else (tuple(names), ("", "", *(j for _, j in columns), *sets))
    return Table(_title(results), head, tuple(body), 2, _notes(results))


def _split(row: Row) -> tuple[str, str, str]:
    direction, _, judged = row.part.partition("/")
    return direction, judged, row.metric


def _title(results: list[Result]) -> str:
    options = {k: v for k, v in results[0].options.items() if v != "default"}
    return " · ".join([results[0].task, *(f"{k} {v}" for k, v in options.items())])


def _notes(results: list[Result]) -> tuple[str, ...]:
    """What must be said beside the numbers: ties, unjudged pairs, what is missing."""
    notes = dict.fromkeys(note for r in results for note in r.notes)
    for result in results:
        for kind, unit in (
            ("ties", "of the queries have a positive in a tie"),
            ("unjudged", "of the first 10 retrieved are unjudged"),
        ):
            told = {row.part: getattr(row, kind) for row in result.rows}
            told = {part: share for part, share in told.items() if share}
            if told:
                notes[f"{result.model}: " + ", ".join(f"{s:.1f} % in {p or result.task}" for p, s in told.items()) + f" {unit}"] = (
                    None
                )
    return tuple(notes)


def comparison_table(compared: Sequence[Comparison], first: str, second: str) -> Table:
    """Differences with their intervals; a mark where one is better beyond doubt."""
    body = []
    for c in compared:
        low, high = (_signed(x, c.first.unit) for x in (c.difference.low, c.difference.high))
        verdict = {1: second, -1: first, 0: "cannot tell"}[c.better]
        body.append((
            c.first.part, metric(c.first.metric).label or c.first.metric, _number(c.first.value, c.first.unit),
            _number(c.second.value, c.second.unit), f"{_signed(c.difference.value, c.first.unit)} [{low}, {high}]",
            p_value(c.p), verdict,
        ))  # fmt: skip
    head = (("", "", first, second, "difference [95 %]", "p (Holm)", "better"),)
    return Table(f"{compared[0].task}: {second} minus {first}", head, tuple(body), 2)


def value_with_error(row: Row) -> str:
    """`71.3 ± 2.1`: the value and half the width of its interval."""
    return f"{_number(row.value, row.unit)} ± {_number((row.high - row.low) / 2, row.unit)}"


def p_value(p: float) -> str:
    """
    >>> p_value(0.00004), p_value(0.0312)
    ('< .001', '.031')
    """
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def _number(value: float, unit: str) -> str:
    return f"{value:,.0f}" if unit == "rank" and value >= 100 else f"{value:.1f}"


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
