"""The trust gate in the report: results of scorers without knowledge, compared with theory."""

from __future__ import annotations

from collections.abc import Sequence

from crossmatch.data.errors import UsageError
from crossmatch.data.result import Result
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.metrics.forced_choice_chance import SCORERS, GateCheck, GateResult, check_gate
from crossmatch.metrics.measurement import evidence_kind
from crossmatch.metrics.metric_table import metric
from crossmatch.report.tables import EMPTY_CELL, Table, group_by_task, task_title

PREFIX = "gate:"


def is_gate_result(result: Result) -> bool:
    """Whether a result is of a gate scorer."""
    return result.model.startswith(PREFIX) and gate_scorer_name(result) in SCORERS


def gate_scorer_name(result: Result) -> str:
    """The name of the gate scorer, without its seed."""
    return result.model.removeprefix(PREFIX).partition(":")[0]


def check_gate_results(results: Sequence[Result]) -> tuple[GateCheck, ...]:
    """Check every metric of every gate scorer on one task against theory, over all trials."""
    gate_results = []
    for result in results:
        part = result.parts[""]
        if not isinstance(part.evidence, Outcomes):
            raise UsageError(f"The trust gate needs trials, but {result.task} has none. Leave out --gate.")
        metrics = [metric(row.metric) for row in result.rows if row.part == ""]
        measured = evidence_kind(part).measure(metrics, part, result.ties, result.samples, result.seed).by_metric
        for m in metrics:
            value, trials = measured[m.name].value, measured[m.name].effective_trials
            gate_results.append(GateResult(gate_scorer_name(result), m.name, m.values, part.evidence.shape, value, trials))
    return check_gate(gate_results)


def gate_tables(results: Sequence[Result]) -> list[Table]:
    """A table for each task, with a row for each scorer and a column for each metric: measured and theoretical value."""
    tables = []
    for group in group_by_task([r for r in results if is_gate_result(r)]):
        checks = check_gate_results(group)
        names = list(dict.fromkeys(check.metric for check in checks))
        cells = {(check.scorer, check.metric): check for check in checks}
        rows = []
        for scorer in (name for name in SCORERS if any(check.scorer == name for check in checks)):
            scorer_checks = [cells.get((scorer, name)) for name in names]
            passed = all(check is None or check.passed for check in scorer_checks)
            rows.append((scorer, *map(_format_check, scorer_checks), "passes" if passed else "FAILS"))
        notes = tuple(
            f"{check.scorer} got {100 * check.value:.1f} in {metric(check.metric).label}, outside of [{100 * check.low:.1f}, "
            f"{100 * check.high:.1f}]: the evaluation is wrong, or the trials contain duplicates"
            for check in checks
            if not check.passed
        )
        header = (("", *(metric(name).label for name in names), "verdict"),)
        title = f"trust gate, {task_title(group[0])}: measured (theory; allowed range), percent"
        tables.append(Table(title, header, tuple(rows), 1, notes))
    return tables


def _format_check(check: GateCheck | None) -> str:
    """The measured value, with the theoretical value and the allowed range in parentheses."""
    if check is None:
        return EMPTY_CELL
    low, high = 100 * check.low, 100 * check.high
    allowed = "" if low == high else f"; {low:.0f} to {high:.0f}"
    return f"{100 * check.value:.1f} ({100 * check.expected:.1f}{allowed})"
