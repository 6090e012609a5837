"""Compare two results with paired tests: bootstrap, or McNemar's exact test for trials. Protocols must be equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.progress import track
from crossmatch.data.rated_pairs import RatedPairs
from crossmatch.data.result import Result, ResultPart, ResultRow
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.metrics.cluster_bootstrap import ClusterBootstrap, replicate_means
from crossmatch.metrics.correlation.correlation_with_ratings import compare_correlations
from crossmatch.metrics.measurement import replicate_metric
from crossmatch.metrics.metric_table import Metric, metric
from crossmatch.metrics.paired_tests import Difference, compare_replicates, holm_correction, paired_difference

SAMPLES = 10_000  # more than for an interval, so that p can stay small after Holm's correction over dozens of rows


@dataclass(frozen=True)
class MetricComparison:
    """One metric of two models, the difference second minus first, and p with Holm's correction.

    The correction is over all rows; for trials, over the categories of a metric including the total. If trials are not independent,
    `cluster_p` is the corrected p of the test over clusters, and a model is better only if both are small.
    """

    task: str
    first: ResultRow
    second: ResultRow
    difference: Difference
    p: float
    cluster_p: float | None = None

    @property
    def is_p_minimal(self) -> bool:
        """Whether p is the smallest that this number of replicates can give."""
        return self.difference.p <= self.difference.min_p

    @property
    def winner(self) -> int:
        """1 if the second model is better, -1 if the first is, 0 if the difference is not significant at p < .05."""
        if max(self.p, self.cluster_p or 0.0) >= 0.05 or self.difference.value == 0:
            return 0
        return 1 if (self.difference.value > 0) == metric(self.first.metric).higher_is_better else -1


def compare(first: Result, second: Result) -> list[MetricComparison]:
    """Compare two results on the same task, row by row.

    Args:
        first: The result of the first model.
        second: The result of the second model.

    Returns:
        A comparison for each metric that both have: the difference with its interval, p after Holm's correction, and the winner
        (1 if the second model is better, -1 if the first is, 0 if the difference is not significant).

    Raises:
        CrossmatchError: The tasks or protocols differ, or the results share no metric.

    >>> from crossmatch import evaluate
    >>> both = [evaluate(m, "diorama/retrieval", size="tiny", samples=200, metrics=("hit@10",)) for m in ("random", "oracle")]
    >>> [c.winner for c in compare(*both)]
    [1, 1, 1, 1]
    """
    if first.task != second.task:
        raise CrossmatchError(
            f"{first.model} was run on {first.task}, but {second.model} on {second.task}. Compare results on the same task."
        )
    _require_same_options(first, second)
    rows = {row.key: row for row in second.rows}
    shared = [row for row in first.rows if row.key in rows]
    if not shared:
        raise CrossmatchError(
            f"{first.model} and {second.model} have no metric in common on {first.task}. Evaluate both with the same metrics."
        )
    for row in shared:
        require_same_protocol(row, rows[row.key], first.model, second.model)
    parts = list(dict.fromkeys(row.part for row in shared))
    differences = [entry for part in track(parts, "comparing") for entry in _differences(first, second, part, shared, rows)]
    families = [row.metric if metric(row.metric).shape == "trials" else "" for row, _, _ in differences]
    adjusted = _correct_by_family(families, [d.p for _, _, d in differences])
    over_clusters = _correct_by_family(families, [d.p if d.cluster_p is None else d.cluster_p for _, _, d in differences])
    return [
        MetricComparison(first.task, a, b, d, p, None if d.cluster_p is None else q)
        for (a, b, d), p, q in zip(differences, adjusted, over_clusters, strict=True)
    ]


def _correct_by_family(families: Sequence[str], p: Sequence[float]) -> list[float]:
    """Holm's correction within each family."""
    adjusted = [0.0] * len(p)
    for family in dict.fromkeys(families):
        members = [n for n, name in enumerate(families) if name == family]
        for n, value in zip(members, holm_correction([p[n] for n in members]), strict=True):
            adjusted[n] = value
    return adjusted


def _require_same_options(first: Result, second: Result) -> None:
    """Refuse data that were loaded or limited differently, and name the option; signatures cover the rest of the protocol."""
    for key in sorted({*first.options, *second.options} - {"metrics", "ties", "samples", "seed"}):
        first_value, second_value = (result.options.get(key, "the default") for result in (first, second))
        if first_value != second_value:
            raise CrossmatchError(
                f"{first.task}: {first.model} and {second.model} cannot be compared: {key} is {first_value} and {second_value}. "
                "Evaluate both with the same options."
            )


def require_same_protocol(a: ResultRow, b: ResultRow, first: str, second: str) -> None:
    """Refuse rows with different protocols, and name the first difference."""
    if a.signature == b.signature:
        return
    parts = zip(a.signature.split("|"), b.signature.split("|"), strict=False)
    different = next(((x, y) for x, y in parts if x != y), (a.signature, b.signature))
    raise CrossmatchError(
        f"{a.key} of {first} and {second} cannot be compared: {different[0]} and {different[1]} differ. "
        "Evaluate both with the same protocol."
    )


def _differences(
    first: Result, second: Result, name: str, shared: list[ResultRow], rows: dict[str, ResultRow]
) -> Iterator[tuple[ResultRow, ResultRow, Difference]]:
    """The differences of all metrics of one part, in the same replicates."""
    part_rows = [row for row in shared if row.part == name]
    totals = [row for row in part_rows if metric(row.metric).shape == "total"]
    for row in totals:
        pair = [_total_replicates(result, metric(row.metric).members) for result in (first, second)]
        yield row, rows[row.key], compare_replicates(100 * pair[0], 100 * pair[1], rows[row.key].value - row.value)
    part_rows = [row for row in part_rows if row not in totals]
    if not part_rows:
        return
    if isinstance(first.parts[name].evidence, Outcomes):
        yield from (
            (row, rows[row.key], _trial_difference(first.parts[name], second.parts[name], metric(row.metric))) for row in part_rows
        )
        return
    draws = ClusterBootstrap.from_clusters(first.parts[name].clusters, SAMPLES, first.seed)
    sides = [result.parts[name] for result in (first, second)]
    means = [row.metric for row in part_rows if metric(row.metric).aggregate == "mean" and sides[0].folds is None]
    drawn = replicate_means([part.values[m] for part in sides for m in means], draws)
    for row in part_rows:
        m, second_row = metric(row.metric), rows[row.key]
        if m.aggregate == "whole":
            yield row, second_row, _correlation_difference(m, sides, second_row.value - row.value)
            continue
        if m.name in means:
            pair = [drawn[side * len(means) + means.index(m.name)] for side in (0, 1)]
        elif m.aggregate == "samples":  # the same pairs in the same samples
            pair = [part.values[m.name] for part in sides]
        else:
            pair = [replicate_metric(m, part, draws, first.ties) for part in sides]
        yield row, second_row, compare_replicates(m.scale * pair[0], m.scale * pair[1], second_row.value - row.value)


def _trial_difference(first: ResultPart, second: ResultPart, m: Metric) -> Difference:
    """The paired difference of two models on the same trials, in percent."""
    first_values, second_values = (np.asarray(m.values(part.evidence), dtype=np.float64) for part in (first, second))
    difference = paired_difference(first_values, second_values, first.clusters, first.folds)
    return replace(difference, value=100 * difference.value, low=100 * difference.low, high=100 * difference.high)


def _total_replicates(result: Result, members: tuple[str, ...]) -> FloatArray:
    """The sum of the metrics over both directions, in each replicate."""
    replicates = []
    for name in ("i2t", "t2i"):
        part = result.parts[name]
        draws = ClusterBootstrap.from_clusters(part.clusters, SAMPLES, result.seed)
        replicates += [replicate_metric(metric(m), part, draws, result.ties) for m in members]
    return np.asarray(np.sum(replicates, axis=0), dtype=np.float64)


def _correlation_difference(m: Metric, sides: list[ResultPart], value: float) -> Difference:
    """The difference of two correlations by the jackknife, which leaves out the same groups of queries of both."""
    first, second = (part.evidence for part in sides)
    assert isinstance(first, RatedPairs)
    assert isinstance(second, RatedPairs)
    difference = compare_correlations(m.name, first, second)
    return Difference(value, m.scale * difference.low, m.scale * difference.high, difference.p)
