"""Tables of results: the same cells for the terminal and for pages, and the formatting of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crossmatch.data.result import Result, ResultRow, shorten_model_name
from crossmatch.metrics.metric_table import metric
from crossmatch.metrics.proportions import Proportion
from crossmatch.report.comparison import MetricComparison

EMPTY_CELL = "–"
MAX_ASYMMETRY = 1.25  # an interval whose longer side is more than this many times the shorter one is shown with both ends


@dataclass(frozen=True)
class Table:
    """Rows of cells with a header; the first `label_columns` columns name the row and are left-aligned."""

    title: str
    header: tuple[tuple[str, ...], ...]
    rows: tuple[tuple[str, ...], ...]
    label_columns: int
    notes: tuple[str, ...] = ()


def group_by_task(results: Sequence[Result]) -> list[list[Result]]:
    """Groups of results that can share a table: the same task with the same options."""
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(_task_and_options(result), []).append(result)
    return list(groups.values())


def _task_and_options(result: Result) -> tuple[str, ...]:
    """The task and its options except the metrics, because results with different metrics can share a table."""
    return result.task, *(f"{key} {value}" for key, value in sorted(result.options.items()) if key != "metrics")


def task_title(result: Result) -> str:
    """The task and its options, as in titles."""
    return " · ".join(_task_and_options(result))


def result_tables(results: Sequence[Result]) -> list[Table]:
    """One table per task."""
    return [_trials_table(group) if has_only_trials(group) else _retrieval_table(group) for group in group_by_task(results)]


def has_only_trials(results: Sequence[Result]) -> bool:
    """Whether all metrics of the results are about trials."""
    return all(metric(row.metric).shape == "trials" for r in results for row in r.rows)


def _trials_table(results: list[Result]) -> Table:
    """A column for each metric, a row for each category and model, and chance in the first row, as in the papers."""
    names = list(dict.fromkeys(row.metric for r in results for row in r.rows))
    parts = list(dict.fromkeys(row.part for r in results for row in r.rows))
    cells = {(n, row.part, row.metric): row for n, r in enumerate(results) for row in r.rows}
    examples = [next(row for r in results for row in r.rows if row.metric == name) for name in names]
    body = [("chance", "", "", *(_format_number(row.chance, row.unit) for row in examples))]
    for part in parts:
        for n, model in enumerate(model_labels(results)):
            rows = [cells.get((n, part, name)) for name in names]
            trials = next((f"{row.n:,}" for row in rows if row), EMPTY_CELL)
            category = (part or "all") if n == 0 else ""
            body.append((category, model, trials, *(format_row(row) if row else EMPTY_CELL for row in rows)))
    header = ("", "", "trials", *(metric(name).label or name for name in names))
    return Table(task_title(results[0]), (header,), tuple(body), 2, _notes(results))


def _retrieval_table(results: list[Result]) -> Table:
    """A row for each direction and metric, a column for each model and set of judgements."""
    cells = {(n, *_split_key(row)): row for n, result in enumerate(results) for row in result.rows}
    lines = list(dict.fromkeys((_split_key(row)[0], row.metric) for r in results for row in r.rows))
    columns = list(dict.fromkeys((n, _split_key(row)[1]) for n, r in enumerate(results) for row in r.rows))
    judgement_sets = list(dict.fromkeys(judgements for _, judgements in columns))
    body = []
    for at, (direction, name) in enumerate(lines):
        rows = [cells.get((n, direction, judgements, name)) for n, judgements in columns]
        examples = [
            next(
                (row for (_, column_judgements), row in zip(columns, rows, strict=True) if column_judgements == judgements and row),
                None,
            )
            for judgements in judgement_sets
        ]
        body.append((
            direction if at == 0 or lines[at - 1][0] != direction else "", metric(name).label or name,
            *(format_row(row) if row else EMPTY_CELL for row in rows),
            *(_format_number(row.chance, row.unit) if row else EMPTY_CELL for row in examples),
        ))  # fmt: skip
    names = model_labels(results)
    models = (names[n] if at == 0 or columns[at - 1][0] != n else "" for at, (n, _) in enumerate(columns))
    upper = ("", "", *models, "chance", *[""] * (len(judgement_sets) - 1))
    lower = ("", "", *(judgements for _, judgements in columns), *judgement_sets)
    header = (upper,) if judgement_sets == [""] else (upper, lower)
    return Table(task_title(results[0]), header, tuple(body), 2, _notes(results))


def model_labels(results: Sequence[Result]) -> list[str]:
    """Short names of the models; repeated names are numbered."""
    counts: dict[str, int] = {}
    labels = []
    for result in results:
        name = shorten_model_name(result.model)
        counts[name] = counts.get(name, 0) + 1
        labels.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return labels


def _split_key(row: ResultRow) -> tuple[str, str, str]:
    """Direction, set of judgements and metric of a row."""
    return "both" if metric(row.metric).shape == "total" else row.direction, row.judgements, row.metric


def _notes(results: list[Result]) -> tuple[str, ...]:
    """Notes of the results, shares of ties, and shares of unjudged pairs."""
    notes: dict[str, None] = dict.fromkeys(collect_notes(results))
    for name, result in zip(model_labels(results), results, strict=True):
        rows = [row for row in result.rows if metric(row.metric).shape not in ("pairs", "total")]
        ties = {row.part: row.ties for row in rows if row.ties}
        unjudged = {row.part: row.unjudged for row in rows if row.unjudged}
        if has_only_trials(results):
            notes |= {f"{name}: {_trial_ties_note(shares)}": None for shares in (ties, unjudged) if shares}
            continue
        for shares, meaning in (
            (ties, "share of queries with a positive in a tie"),
            (unjudged, "share of unjudged pairs among the first 10 retrieved"),
        ):
            if shares:
                listed = ", ".join(f"{part or result.task} {share:.1f} %" for part, share in shares.items())
                notes[f"{name}: {meaning}: {listed}"] = None
    return tuple(notes)


def _trial_ties_note(shares: Mapping[str, float]) -> str:
    """The share of trials with a tie, and the category with the most ties.

    >>> _trial_ties_note({"": 45.6, "macro": 45.6, "swap": 90.1, "add": 1.9})
    '45.6 % of the trials have a tie, which counts as a loss (most in swap: 90.1 %)'
    """
    most = max((part for part in shares if part not in ("", "macro")), key=lambda part: shares[part], default="")
    total = shares.get("", 0.0)
    category = f" (most in {most}: {shares[most]:.1f} %)" if most else ""
    return f"{f'{total:.1f}' if total >= 0.05 else '< 0.1'} % of the trials have a tie, which counts as a loss{category}"


def collect_notes(results: Sequence[Result]) -> tuple[str, ...]:
    """The notes of the results; a note that not all of them have names its model."""
    notes: dict[str, None] = {}
    for name, result in zip(model_labels(results), results, strict=True):
        for note in result.notes:
            notes[note if all(note in r.notes for r in results) else f"{name}: {note}"] = None
    return tuple(notes)


def comparison_table(comparisons: Sequence[MetricComparison], first: str, second: str) -> Table:
    """Differences between two models with intervals, p, and the better model."""
    body, previous_part = [], None
    first, second = shorten_model_name(first), shorten_model_name(second)
    for c in comparisons:
        part = c.first.part or ("all" if metric(c.first.metric).shape == "trials" else "")
        ends = (c.difference.value, c.difference.low, c.difference.high)
        value, low, high = (format_signed(_format_number(x, c.first.unit), "+") for x in ends)
        p = format_p_value(c.p)
        body.append((
            part if part != previous_part else "", metric(c.first.metric).label or c.first.metric,
            _format_number(c.first.value, c.first.unit), _format_number(c.second.value, c.second.unit), f"{value} [{low}, {high}]",
            "≤ " + p.removeprefix("< ") if c.is_p_minimal else p, {1: second, -1: first, 0: "cannot tell"}[c.winner],
        ))  # fmt: skip
        previous_part = part
    header = (("", "", first, second, "difference [95 %]", "p (Holm)", "better"),)
    note = (
        "p: McNemar's exact test, corrected over the categories of a metric. Some trials share images, so a model is called better "
        "only if the test over clusters of trials agrees."
    )
    notes = (note,) if any(c.cluster_p is not None for c in comparisons) else ()
    return Table(f"{comparisons[0].task}: {second} minus {first}", header, tuple(body), 2, notes)


def format_row(row: ResultRow) -> str:
    """The value of a row with its interval; `75.4 (std 0.4)` for metrics that papers report with a standard deviation."""
    if row.std is not None:
        return f"{_format_number(row.value, row.unit)} (std {row.std:.1f})"
    return format_interval(row.value, row.low, row.high, row.unit)


def format_interval(value: float, low: float, high: float, unit: str = "%") -> str:
    """A value ± half the width of its interval; or with both ends if the interval is asymmetric.

    >>> format_interval(71.3, 69.2, 73.4), format_interval(100.0, 91.2, 100.0), format_interval(0.0, 0.0, 36.0)
    ('71.3 ± 2.1', '100.0 [91.2, 100.0]', '0.0 [0.0, 36.0]')
    """
    below, above = max(0.0, value - low), max(0.0, high - value)
    digits = ",.0f" if _has_no_decimals(value, unit) else ".1f"
    if max(below, above) > MAX_ASYMMETRY * min(below, above) + 0.1:
        return f"{_format_number(value, unit)} [{low:{digits}}, {high:{digits}}]"
    return f"{_format_number(value, unit)} ± {(high - low) / 2:{digits}}"


def format_share(share: Proportion) -> str:
    """A share with its interval, in percent."""
    return format_interval(100 * share.value, 100 * share.low, 100 * share.high)


def format_p_value(p: float) -> str:
    """A p-value without leading zero, with a fourth digit close to .05.

    >>> format_p_value(0.00004), format_p_value(0.0312)
    ('< .001', '.031')
    """
    if p < 0.001:
        return "< .001"
    digits = 4 if abs(p - 0.05) < 0.0005 else 3  # shows on which side of .05 it is
    return f"{p:.{digits}f}".removeprefix("0")


def format_bounded_p_value(p: float, min_p: float = 0.0) -> str:
    """A p-value with leading zero; an upper bound if it is the smallest that the test can give.

    >>> format_bounded_p_value(0.0004), format_bounded_p_value(0.042, 0.042), format_bounded_p_value(0.25, 0.042)
    ('< 0.001', '≤ 0.042', '0.250')
    """
    return "< 0.001" if p < 0.001 else f"≤ {p:.3f}" if p <= min_p * 1.0001 else f"{p:.3f}"


def _format_number(value: float, unit: str) -> str:
    return f"{value:,.0f}" if _has_no_decimals(value, unit) else f"{value:.1f}"


def _has_no_decimals(value: float, unit: str) -> bool:
    """Whether a number is shown without decimals: large ranks are."""
    return unit == "rank" and abs(value) >= 100


def format_signed(number: str, plus: str = "") -> str:
    """A formatted number with a real minus sign, and no sign for zero.

    >>> format_signed("-0.33"), format_signed("-0.0", "+"), format_signed("2.5", "+")
    ('−0.33', '0.0', '+2.5')
    """
    digits = number.removeprefix("-")
    return digits if not digits.strip("0.") else f"{plus if digits == number else '−'}{digits}"


def format_table(table: Table) -> str:
    """A table as text with aligned columns, for the terminal.

    >>> print(format_table(Table("t", (("", "a"),), (("x", "1.0"), ("yy", "10.0")), 1)))
    t
           a
    x    1.0
    yy  10.0
    """
    lines = [*table.header, *table.rows]
    widths = [max(len(line[c]) for line in lines) for c in range(len(lines[0]))]
    text = [table.title]
    for line in lines:
        cells = (
            cell.ljust(width) if c < table.label_columns else cell.rjust(width)
            for c, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        text.append("  ".join(cells).rstrip())
    return "\n".join([*text, *(f"  {note}" for note in table.notes)])
