"""Measures metrics from the evidence of a part: values, confidence intervals, chance levels, ties and unjudged pairs.

Each kind of evidence has one implementation of `EvidenceKind` in the table `EVIDENCE_KINDS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.rank_counts import CountsAtK, RankCounts
from crossmatch.data.rated_pairs import RatedPairs
from crossmatch.data.result import ResultPart
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.metrics.correlation.correlation_with_ratings import sampled_spearman_interval
from crossmatch.metrics.median_rank import median_difference, median_interval
from crossmatch.metrics.metric_table import Metric
from crossmatch.metrics.paired_tests import Difference
from crossmatch.metrics.proportions import (
    are_all_distinct,
    choice_proportions,
    clustered_mean,
    clustered_proportion,
    mean_proportion,
)
from crossmatch.ranking.ranks import Ranks

EvidenceT = TypeVar("EvidenceT", RankCounts, CountsAtK, Outcomes, RatedPairs)
INTERVALS = {"mean": "wilson", "median": "woodruff", "samples": "jackknife", "whole": "jackknife"}  # by the aggregate of a metric
DIRECTIONS_OF_TOTALS = ("i2t", "t2i")
SAME_SIDE = ("t2t", "i2i")
UNJUDGED_AT = 10  # unjudged pairs are counted among the first 10 retrieved


@dataclass(frozen=True, eq=False)
class Measurement:
    """The value of one metric on one part, as a fraction or a rank.

    Attributes:
        value: The value.
        low: Lower end of the confidence interval.
        high: Upper end of the confidence interval.
        chance: Expected value of a scorer without knowledge.
        n: Number of queries or trials.
        positives: Number of positives, trials or pairs.
        values: Values of the queries, or of the samples; empty for trials.
        std: Standard deviation over samples, for metrics that a paper reports with it.
        effective_trials: For proportions of trials, the number of independent trials with the same uncertainty.
    """

    value: float
    low: float
    high: float
    chance: float
    n: int
    positives: int
    values: FloatArray
    std: float | None = None
    effective_trials: float = 0.0


@dataclass(frozen=True, eq=False)
class PartMeasurements:
    """The measurements of one part by metric, and the percentages of tied queries and of unjudged pairs (None if unknown)."""

    by_metric: Mapping[str, Measurement]
    tied: float | None
    unjudged: float | None


class EvidenceKind(ABC):
    """How one kind of evidence is measured."""

    def supports(self, metric: Metric, part: ResultPart) -> bool:
        """Whether a metric of the right shape can be computed on a part."""
        return True

    def metric_input(self, metric: Metric, part: ResultPart, ties: str) -> Any:
        """The argument of the metric's function."""
        return part.evidence

    @abstractmethod
    def measure(self, metrics: Sequence[Metric], part: ResultPart, ties: str, samples: int, seed: int) -> PartMeasurements:
        """Compute all metrics of a part. `samples` and `seed` are those of metrics that draw samples of rated pairs."""

    def protocol_facts(self, part: ResultPart, ties: str) -> dict[str, object]:
        """The facts about ties, unjudged pairs, folds and galleries in the signature."""
        folds = {} if part.folds is None else {"folds": count_folds(part)}
        return {"ties": ties, **folds, **({"self": "excluded"} if part.direction in SAME_SIDE else {})}


class RankCountsKind(EvidenceKind):
    """Rank counts of retrieval. Chance is the expected value of a constant scorer, under which all candidates tie."""

    def metric_input(self, metric: Metric, part: ResultPart, ties: str) -> Ranks:
        return _ranks(part, metric.graded).break_ties(ties)

    def measure(self, metrics: Sequence[Metric], part: ResultPart, ties: str, samples: int, seed: int) -> PartMeasurements:
        with_ties = {graded: _ranks(part, graded) for graded in {False, *(m.graded for m in metrics)}}
        ranks = {graded: with_ties[graded].break_ties(ties) for graded in with_ties}
        for m in metrics:
            _require_depth(m, ranks[m.graded], part)
        inputs = {m.name: ranks[m.graded] for m in metrics}
        measurements = _measure_queries(metrics, part, inputs, lambda m, r: m.chance(r), lambda r: int(r.start[-1]))
        return PartMeasurements(measurements, _percent(with_ties[False].is_tied), _percent_unjudged(part))

    def protocol_facts(self, part: ResultPart, ties: str) -> dict[str, object]:
        ties_fact, *facts = super().protocol_facts(part, ties).items()
        return dict([ties_fact, ("unjudged", "none" if part.complete else "irrelevant"), *facts])


class CountsAtKKind(EvidenceKind):
    """Counts at cutoffs of plausible matches. Chance is the share of positives in the gallery."""

    def metric_input(self, metric: Metric, part: ResultPart, ties: str) -> CountsAtK:
        return _evidence(part, CountsAtK).break_ties(ties)

    def measure(self, metrics: Sequence[Metric], part: ResultPart, ties: str, samples: int, seed: int) -> PartMeasurements:
        counts = _evidence(part, CountsAtK)
        chance = float((counts.positive_counts / counts.gallery_size).mean())
        positives = int(counts.positive_counts.sum())
        inputs = {m.name: counts.break_ties(ties) for m in metrics}
        measurements = _measure_queries(metrics, part, inputs, lambda m, c: chance, lambda c: positives)
        return PartMeasurements(measurements, _percent(counts.is_tied), 0.0)


class OutcomesKind(EvidenceKind):
    """Outcomes of forced choices. Chance is the expected value of random scores; a tie loses."""

    def supports(self, metric: Metric, part: ResultPart) -> bool:
        shape = _evidence(part, Outcomes).shape
        captions, images = (n > 1 for n in shape)
        return {
            "captions": captions, "images": images, "captions images": captions and images, "one side": captions != images,
            "2x2": shape == (2, 2), "": True,
        }[metric.choices]  # fmt: skip

    def measure(self, metrics: Sequence[Metric], part: ResultPart, ties: str, samples: int, seed: int) -> PartMeasurements:
        outcomes, n, choices = _evidence(part, Outcomes), len(part.ids), {m.name: m.values for m in metrics}
        if not are_all_distinct(part.clusters):
            proportions = {m.name: clustered_proportion(m.values(outcomes), part.clusters, part.folds) for m in metrics}
        elif part.folds is None:  # no two trials share an image: the proportions follow from the counts of outcome codes
            (proportions,) = choice_proportions(outcomes, choices)
        else:
            by_fold = choice_proportions(outcomes, choices, part.folds, int(part.folds.max()) + 1)
            proportions = {name: mean_proportion([fold[name] for fold in by_fold]) for name in choices}
        measurements = {}
        for m in metrics:
            p = proportions[m.name]
            measurements[m.name] = Measurement(
                p.value, p.low, p.high, m.chance(outcomes.shape), n, n, np.zeros(0), effective_trials=p.effective
            )
        return PartMeasurements(measurements, _percent(outcomes.is_tied) if outcomes.ties_known else None, None)

    def protocol_facts(self, part: ResultPart, ties: str) -> dict[str, object]:
        categories = {} if part.folds is None else {"categories": count_folds(part)}
        return {"ties": "lose", **categories}


class RatedPairsKind(EvidenceKind):
    """Rated pairs of similarity tasks. Chance is no correlation."""

    def measure(self, metrics: Sequence[Metric], part: ResultPart, ties: str, samples: int, seed: int) -> PartMeasurements:
        pairs = replace(_evidence(part, RatedPairs), samples=samples, seed=seed)
        return PartMeasurements({m.name: _measure_correlation(m, pairs) for m in metrics}, _percent(pairs.is_tied), None)

    def protocol_facts(self, part: ResultPart, ties: str) -> dict[str, object]:
        return {}


# The shape of the metrics that each kind of evidence supports, and its implementation.
EVIDENCE_KINDS: Mapping[type, tuple[str, EvidenceKind]] = {
    RankCounts: ("retrieval", RankCountsKind()),
    CountsAtK: ("plausible", CountsAtKKind()),
    Outcomes: ("trials", OutcomesKind()),
    RatedPairs: ("pairs", RatedPairsKind()),
}


def evidence_kind(part: ResultPart) -> EvidenceKind:
    """Return the implementation for the evidence of a part."""
    return EVIDENCE_KINDS[type(part.evidence)][1]


def is_applicable(metric: Metric, part: ResultPart) -> bool:
    """Whether a metric can be computed on a part."""
    metric_shape, kind = EVIDENCE_KINDS[type(part.evidence)]
    return metric.shape == metric_shape and kind.supports(metric, part)


def part_ranks(part: ResultPart, ties: str) -> Ranks:
    """Build the ranks of a part's positives under a tie policy."""
    return _ranks(part).break_ties(ties)


def influences(metric: Metric, part: ResultPart, ties: str) -> FloatArray:
    """How much each query moves the mean of a metric: (y_q - mean of its fold) / (n_f F) with F folds of n_f queries; sums to 0."""
    values = part.values.get(metric.name)
    values = metric.values(evidence_kind(part).metric_input(metric, part, ties)) if values is None else values
    by_fold = fold_queries(part)
    moved = np.zeros(len(values))
    for queries in by_fold:
        moved[queries] = (values[queries] - values[queries].mean()) / (len(queries) * len(by_fold))
    return moved


def compare_medians(first: ResultPart, second: ResultPart, ties: str) -> Difference:
    """Compare the median ranks of two models on the same queries."""
    ranks = part_ranks(first, ties), part_ranks(second, ties)
    folds = [[(side.select(queries), first.clusters[queries]) for queries in fold_queries(first)] for side in ranks]
    return median_difference(folds[0], folds[1], max_abs=float(ranks[0].gallery_size.max() - 1))


def fold_queries(part: ResultPart) -> list[IntArray]:
    """The queries of each fold; without folds, all queries."""
    if part.folds is None:
        return [np.arange(len(part.clusters))]
    return [np.flatnonzero(part.folds == fold) for fold in np.unique(part.folds)]


def _ranks(part: ResultPart, graded: bool = False) -> Ranks:
    """Build the ranks of a part's positives, with ties; `graded` includes all grades above zero, as for nDCG."""
    lowest_grade = min(part.positive, np.nextafter(0.0, 1.0)) if graded else part.positive
    return Ranks.from_counts(_evidence(part, RankCounts), lowest_grade)


def count_clusters(part: ResultPart) -> int:
    """Count the clusters of a part: images with their captions, or groups of trials that share no image."""
    return len(np.unique(part.clusters))


def count_folds(part: ResultPart) -> int:
    """Count the folds of a part."""
    return 0 if part.folds is None else int(np.count_nonzero(np.bincount(part.folds)))


def _measure_queries(
    metrics: Sequence[Metric],
    part: ResultPart,
    inputs: Mapping[str, Any],
    chance: Callable[[Metric, Any], float],
    count_positives: Callable[[Any], int],
) -> dict[str, Measurement]:
    """Measure metrics with one value per query."""
    by_fold = fold_queries(part)
    measurements = {}
    for m in metrics:
        metric_input = inputs[m.name]
        values = m.values(metric_input)
        if m.aggregate == "median":
            value, low, high = median_interval([(metric_input.select(queries), part.clusters[queries]) for queries in by_fold])
        else:
            value = float(np.mean([values[queries].mean() for queries in by_fold]))
            low, high = _mean_interval(m, metric_input, values, [(queries, part.clusters[queries]) for queries in by_fold])
        measurements[m.name] = Measurement(
            value, min(low, value), max(high, value), chance(m, metric_input), len(values), count_positives(metric_input), values
        )
    return measurements


def _mean_interval(
    metric: Metric, metric_input: Any, values: FloatArray, folds: Sequence[tuple[IntArray, IntArray]]
) -> tuple[float, float]:
    """Interval of a mean of values within the range of the metric."""
    low, high = metric.value_range(metric_input)
    low, high = min(low, float(values.min())), max(high, float(values.max()))  # a metric of the user may leave its declared range
    if low == high:  # a gallery of one candidate
        return low, high
    scaled = np.clip((values - low) / (high - low), 0.0, 1.0)
    mean = clustered_mean([(scaled[queries], clusters) for queries, clusters in folds])
    return low + (high - low) * mean.low, low + (high - low) * mean.high


def _measure_correlation(metric: Metric, pairs: RatedPairs) -> Measurement:
    n = len(np.unique(pairs.query))
    if metric.aggregate == "whole":
        overall = metric.values(pairs)
        return Measurement(overall.value, overall.low, overall.high, 0.0, n, len(pairs), np.zeros(0), overall.standard_error)
    values = metric.values(pairs)
    mean = float(values.mean())
    interval = sampled_spearman_interval(pairs, mean)
    return Measurement(mean, interval.low, interval.high, 0.0, n, len(pairs), values, float(values.std(ddof=1)))


def _percent(flags: Any) -> float:
    return 100 * float(np.mean(flags))


def _percent_unjudged(part: ResultPart) -> float | None:
    """Percentage of unjudged pairs among the first `UNJUDGED_AT` retrieved; None if the rankings are not that deep."""
    if part.complete:
        return 0.0
    judged = Ranks.from_counts(_evidence(part, RankCounts), positive=-np.inf)
    retrieved = np.minimum(UNJUDGED_AT, judged.gallery_size)
    if (judged.depth < retrieved).any():
        return None
    return 100 * float(1 - np.mean(judged.sum_by_query(judged.probability_within(retrieved)) / retrieved))


def _require_depth(metric: Metric, ranks: Ranks, part: ResultPart) -> None:
    """Raise an error if the rankings of a run are not deep enough for a metric."""
    if metric.required_depth is None:
        return
    required = metric.required_depth(ranks)
    is_short = ranks.depth < np.minimum(required, ranks.gallery_size)
    if is_short.any():
        worst = int(np.where(is_short, required, 0).argmax())
        raise CrossmatchError(
            f"the run lists {ranks.depth[worst]} candidates for query {str(part.ids[worst])!r}, but {metric.name} needs "
            f"{required[worst]:,} of {ranks.gallery_size[worst]:,}. Write deeper rankings, or leave {metric.name} out "
            "with --metrics."
        )


def _evidence(part: ResultPart, kind: type[EvidenceT]) -> EvidenceT:
    """Return the evidence of a part, which must be of this kind."""
    if not isinstance(part.evidence, kind):
        raise TypeError(f"expected {kind.__name__}, got {type(part.evidence).__name__}")
    return part.evidence
