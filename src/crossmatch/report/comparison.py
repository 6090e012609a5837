"""Compare two results with paired tests over images: Student's, a jackknife, or McNemar's for trials. Protocols must be equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.progress import track
from crossmatch.data.rank_counts import RankCounts
from crossmatch.data.rated_pairs import RatedPairs
from crossmatch.data.result import Result, ResultPart, ResultRow
from crossmatch.metrics.correlation.correlation_with_ratings import compare_correlations
from crossmatch.metrics.measurement import DIRECTIONS_OF_TOTALS, compare_medians, influences
from crossmatch.metrics.metric_table import Metric, metric
from crossmatch.metrics.paired_tests import Difference, cluster_t_test, holm_correction, paired_difference


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
        """Whether p is the smallest that this number of clusters can give."""
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
    """The differences of all metrics of one part."""
    for row in (row for row in shared if row.part == name):
        m, second_row = metric(row.metric), rows[row.key]
        value = second_row.value - row.value
        if m.shape == "trials":
            difference = _trial_difference(first.parts[name], second.parts[name], m)
        elif m.shape == "pairs":
            difference = _correlation_difference(m, first.parts[name], second.parts[name], value)
        elif m.aggregate == "median":
            difference = compare_medians(first.parts[name], second.parts[name], first.ties)
        else:
            difference = _query_difference(m, first, second, name, value)
        yield row, second_row, difference


def _query_difference(m: Metric, first: Result, second: Result, name: str, value: float) -> Difference:
    """The difference of a metric of queries. In a total an image and its captions are one cluster of both directions."""
    names, members = (DIRECTIONS_OF_TOTALS, [metric(member) for member in m.members]) if m.shape == "total" else ((name,), [m])
    sides = [(first.parts[part_name], second.parts[part_name], member) for part_name in names for member in members]
    moved = [influences(member, b, second.ties) - influences(member, a, first.ties) for a, b, member in sides]
    clusters = np.concatenate([a.clusters for a, _, _ in sides])
    return cluster_t_test(value, m.scale * np.concatenate(moved), clusters, max_abs=_largest_difference(m, sides[0][0]))


def _largest_difference(m: Metric, part: ResultPart) -> float:
    """Largest possible difference of two models, in the unit of the metric."""
    if np.isfinite(m.worst):
        return m.scale * abs(m.best - m.worst)
    assert isinstance(part.evidence, RankCounts)
    return float(part.evidence.gallery_size.max() - 1)


def _trial_difference(first: ResultPart, second: ResultPart, m: Metric) -> Difference:
    """The paired difference of two models on the same trials, in percent."""
    first_values, second_values = (np.asarray(m.values(part.evidence), dtype=np.float64) for part in (first, second))
    difference = paired_difference(first_values, second_values, first.clusters, first.folds)
    return replace(difference, value=100 * difference.value, low=100 * difference.low, high=100 * difference.high)


def _correlation_difference(m: Metric, first: ResultPart, second: ResultPart, value: float) -> Difference:
    """The difference of two correlations by the jackknife, which leaves out the same groups of queries of both."""
    assert isinstance(first.evidence, RatedPairs)
    assert isinstance(second.evidence, RatedPairs)
    difference = compare_correlations(m.name, first.evidence, second.evidence, value / m.scale)
    return replace(difference, value=value, low=m.scale * difference.low, high=m.scale * difference.high)
