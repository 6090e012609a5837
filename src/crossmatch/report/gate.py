"""The trust gate in the report: what scorers that know nothing got, against what theory gives them."""

from __future__ import annotations

from collections.abc import Sequence

from crossmatch.core.errors import WrongWords
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.result import Result
from crossmatch.metrics.measure import measure
from crossmatch.metrics.significance import Draws
from crossmatch.metrics.table import metric
from crossmatch.metrics.theory import SCORERS, Finding, Verdict, verdicts
from crossmatch.report.tables import NONE, Table, by_task, called

PREFIX = "gate:"


def is_gate(result: Result) -> bool:
    return result.model.startswith(PREFIX) and scorer_of(result) in SCORERS


def scorer_of(result: Result) -> str:
    """The name of a scorer, without its seed."""
    return result.model.removeprefix(PREFIX).partition(":")[0]


def gate_verdicts(results: Sequence[Result]) -> tuple[Verdict, ...]:
    """The verdict on every metric of every scorer of the gate on one task, over all trials together."""
    findings = []
    for result in results:
        part = result.parts[""]
        if not isinstance(part.evidence, Outcomes):
            raise WrongWords(f"the gate is for forced choices, and {result.task} has none. Leave --gate out.")
        chosen = [metric(row.metric) for row in result.rows if row.part == ""]
        measured = measure(chosen, part, Draws.of(part.clusters, 2), result.ties)
        for m in chosen:
            found = measured[m.name]
            findings.append(Finding(scorer_of(result), m.name, m.values, part.evidence.shape, found.value, found.effective))
    return verdicts(findings)


def gate_tables(results: Sequence[Result]) -> list[Table]:
    """For each task a row for each scorer, a column for each metric: found, and what theory says."""
    out = []
    for group in by_task([r for r in results if is_gate(r)]):
        found = gate_verdicts(group)
        names = list(dict.fromkeys(v.metric for v in found))
        cells = {(v.scorer, v.metric): v for v in found}
        rows = []
        for scorer in (name for name in SCORERS if any(v.scorer == name for v in found)):
            mine = [cells.get((scorer, name)) for name in names]
            rows.append((scorer, *(_told(v) for v in mine), "passes" if all(v is None or v.passed for v in mine) else "FAILS"))
        failed = [v for v in found if not v.passed]
        notes = tuple(
            f"{v.scorer} got {100 * v.found:.1f} in {metric(v.metric).label}, outside of [{100 * v.low:.1f}, {100 * v.high:.1f}]: "
            "the evaluation is broken, or the trials repeat themselves"
            for v in failed
        )
        head = (("", *(metric(name).label for name in names), "verdict"),)
        title = f"trust gate, {called(group[0])}: found (theory; allowed), percent"
        out.append(Table(title, head, tuple(rows), 1, notes))
    return out


def _told(verdict: Verdict | None) -> str:
    """What was found, and what theory gives with what is allowed around it."""
    if verdict is None:
        return NONE
    low, high = 100 * verdict.low, 100 * verdict.high
    allowed = "" if low == high else f"; {low:.0f} to {high:.0f}"
    return f"{100 * verdict.found:.1f} ({100 * verdict.theory:.1f}{allowed})"
