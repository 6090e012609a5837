"""From evidence to a result: every metric of every part, with confidence interval, chance level and signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from crossmatch.data.errors import UsageError
from crossmatch.data.io.progress import track
from crossmatch.data.rank_counts import RankCounts
from crossmatch.data.result import Result, ResultPart, ResultRow
from crossmatch.data.signature import protocol_signature
from crossmatch.metrics.cluster_bootstrap import percentile_interval
from crossmatch.metrics.measurement import PartMeasurements, count_folds, evidence_kind, is_applicable
from crossmatch.metrics.metric_table import Metric, metric

FEW_CLUSTERS = 30  # with fewer, percentile intervals are known to be too narrow (efron1993introduction)
SAME_SIDE = ("t2t", "i2i")
BOTH_DIRECTIONS = ("i2t", "t2i")


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
    """Return a warning if the bootstrap has few clusters. The intervals of trials account for it."""
    sizes = [len(np.unique(part.clusters)) for part in parts.values() if evidence_kind(part).uses_bootstrap]
    fewest = min(sizes, default=FEW_CLUSTERS)
    if fewest >= FEW_CLUSTERS:
        return ()
    return (f"only {fewest} images: confidence intervals are too narrow and p-values too small",)


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
    if not all(name in result.parts and isinstance(result.parts[name].evidence, RankCounts) for name in BOTH_DIRECTIONS):
        return []
    directions = [measured[name] for name in BOTH_DIRECTIONS]
    summands = [direction.by_metric[member] for direction in directions for member in total.members]
    first_members = [direction.by_metric[total.members[0]] for direction in directions]
    low, high = percentile_interval(np.sum([summand.replicates for summand in summands], axis=0))
    return [
        ResultRow(
            part="",
            metric=total.name,
            value=100 * float(sum(summand.value for summand in summands)),
            low=100 * low,
            high=100 * high,
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
    kind = evidence_kind(part)
    all_facts = {**facts, **kind.protocol_facts(part, result.ties)}
    if kind.uses_bootstrap:
        if part.folds is not None:
            all_facts["folds"] = count_folds(part)
        if part.direction in SAME_SIDE:
            all_facts["self"] = "excluded"
        all_facts |= {"bootstrap": result.samples, "seed": result.seed}
    return protocol_signature(m.name, result.task, name, **all_facts)
