"""From evidence to a result: every metric of every part, with confidence interval, chance level and signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from crossmatch.data.errors import UsageError
from crossmatch.data.io.progress import track
from crossmatch.data.rank_counts import RankCounts
from crossmatch.data.result import Result, ResultPart, ResultRow
from crossmatch.data.signature import protocol_signature
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.metrics.measurement import (
    DIRECTIONS_OF_TOTALS,
    INTERVALS,
    PartMeasurements,
    count_clusters,
    evidence_kind,
    fold_queries,
    is_applicable,
)
from crossmatch.metrics.metric_table import Metric, metric
from crossmatch.metrics.proportions import clustered_total

FEW_CLUSTERS = 50  # with fewer, the coverage of some intervals differs from 95 % by more than two points (docs/coverage.md)


def summarise(result: Result, metrics: Sequence[Metric], facts: Mapping[str, object]) -> Result:
    """Compute metrics from the evidence of a result, without the model.

    Metrics are computed on all parts that they apply to; the rows of the result are replaced. `facts` about the data go into the
    signatures.
    """
    totals = [m for m in metrics if m.shape == "total"]
    members = [metric(name) for total in totals for name in total.members]
    rows: list[ResultRow] = []
    parts: dict[str, ResultPart] = {}
    measured: dict[str, PartMeasurements] = {}
    for name, part in track(list(result.parts.items()), "metrics and intervals"):
        needed = {m.name: m for m in (*metrics, *members) if is_applicable(m, part)}
        measured[name] = evidence_kind(part).measure(list(needed.values()), part, result.ties, result.samples, result.seed)
        reported = [m for m in metrics if m.name in needed]
        rows += [_build_row(result, name, part, m, measured[name], facts) for m in reported]
        values = {m.name: measured[name].by_metric[m.name].values for m in reported}
        parts[name] = replace(part, values={**part.values, **{key: v for key, v in values.items() if len(v)}})
    rows += [row for total in totals for row in _build_total(result, total, measured, facts)]
    if not rows:
        raise UsageError(f"none of the metrics {', '.join(m.name for m in metrics)} applies to {result.task}.")
    return replace(result, rows=tuple(rows), parts=parts)


def note_few_clusters(parts: Mapping[str, ResultPart]) -> tuple[str, ...]:
    """Return a warning if a result rests on few images, or on few independent trials (of all categories together)."""
    trials = [part for part in parts.values() if isinstance(part.evidence, Outcomes)]
    if not trials:
        fewest = min(count_clusters(part) for part in parts.values())
        few = _only(fewest, "image")
    else:
        fewest, n = count_clusters(trials[0]), len(trials[0].ids)
        groups = f"{fewest:,} independent groups" if fewest > 1 else "one group"
        few = _only(n, "trial") if fewest == n else f"the {n:,} trials share images and form only {groups}"
    if fewest >= FEW_CLUSTERS:
        return ()
    return (f"{few}: intervals and p-values are approximate; use at least {FEW_CLUSTERS}",)


def _only(n: int, noun: str) -> str:
    return f"only {n:,} {noun}{'s' * (n != 1)}"


def _build_row(
    result: Result, name: str, part: ResultPart, m: Metric, measured: PartMeasurements, facts: Mapping[str, object]
) -> ResultRow:
    measurement = measured.by_metric[m.name]
    return ResultRow(
        part=name,
        metric=m.name,
        value=m.scale * measurement.value,
        low=m.scale * measurement.low,
        high=m.scale * measurement.high,
        chance=m.scale * measurement.chance,
        unit=m.unit,
        best=m.scale * m.best,
        n=measurement.n,
        positives=measurement.positives,
        ties=measured.tied,
        unjudged=measured.unjudged,
        signature=_signature(result, name, part, m, facts),
        std=None if measurement.std is None else m.scale * measurement.std,
        direction=part.direction,
        judgements=part.judgements,
    )


def _build_total(
    result: Result, total: Metric, measured: Mapping[str, PartMeasurements], facts: Mapping[str, object]
) -> list[ResultRow]:
    """Add up the members of a total over both directions; no row if a direction is missing or has several judgements."""
    if not all(name in result.parts and isinstance(result.parts[name].evidence, RankCounts) for name in DIRECTIONS_OF_TOTALS):
        return []
    directions = [measured[name] for name in DIRECTIONS_OF_TOTALS]
    summands = [direction.by_metric[member] for direction in directions for member in total.members]
    first_members = [direction.by_metric[total.members[0]] for direction in directions]
    # An image and its captions are one cluster of both directions.
    mean = clustered_total([
        (measured[name].by_metric[member].values[queries], result.parts[name].clusters[queries])
        for name in DIRECTIONS_OF_TOTALS
        for member in total.members
        for queries in fold_queries(result.parts[name])
    ])  # fmt: skip
    scale = total.scale * total.best
    return [
        ResultRow(
            part="",
            metric=total.name,
            value=100 * float(sum(summand.value for summand in summands)),
            low=scale * mean.low,
            high=scale * mean.high,
            chance=100 * float(sum(summand.chance for summand in summands)),
            unit=total.unit,
            best=100 * total.best,
            n=sum(m.n for m in first_members),
            positives=sum(m.positives for m in first_members),
            ties=max(direction.tied or 0.0 for direction in directions),
            unjudged=None,
            signature=_signature(result, "", result.parts["i2t"], total, facts),
        )
    ]


def _signature(result: Result, name: str, part: ResultPart, m: Metric, facts: Mapping[str, object]) -> str:
    all_facts = {**facts, **evidence_kind(part).protocol_facts(part, result.ties)}
    if m.aggregate == "samples":
        all_facts["bootstrap"] = result.samples
    if m.shape == "pairs":
        all_facts["seed"] = result.seed
    return protocol_signature(m.name, result.task, name, **all_facts, interval=INTERVALS[m.aggregate])
