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
from crossmatch.metrics.cluster_bootstrap import ClusterBootstrap, metric_replicates, percentile_interval, replicate_means
from crossmatch.metrics.metric_table import Metric
from crossmatch.metrics.proportions import are_all_distinct, choice_proportions, clustered_proportion, mean_proportion
from crossmatch.ranking.ranks import Ranks

EvidenceT = TypeVar("EvidenceT", RankCounts, CountsAtK, Outcomes, RatedPairs)
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
        replicates: Value in each bootstrap replicate; empty for trials.
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
    replicates: FloatArray
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

    uses_bootstrap = True

    def supports(self, metric: Metric, part: ResultPart) -> bool:
        """Whether a metric of the right shape can be computed on a part."""
        return True

    def metric_input(self, metric: Metric, part: ResultPart, ties: str) -> Any:
        """The argument of the metric's function."""
        return part.evidence

    @abstractmethod
    def measure(self, metrics: Sequence[Metric], part: ResultPart, ties: str, samples: int, seed: int) -> PartMeasurements:
        """Compute all metrics of a part, with intervals from this number of bootstrap samples."""

    def protocol_facts(self, part: ResultPart, ties: str) -> dict[str, object]:
        """The facts about ties, unjudged pairs and intervals in the signature."""
        return {"ties": ties}


class RankCountsKind(EvidenceKind):
    """Rank counts of retrieval. Chance is the expected value of a constant scorer, under which all candidates tie."""

    def metric_input(self, metric: Metric, part: ResultPart, ties: str) -> Ranks:
        return _ranks(part, metric.graded).break_ties(ties)

    def measure(self, metrics: Sequence[Metric], part: ResultPart, ties: str, samples: int, seed: int) -> PartMeasurements:
        with_ties = {graded: _ranks(part, graded) for graded in {False, *(m.graded for m in metrics)}}
        ranks = {graded: with_ties[graded].break_ties(ties) for graded in with_ties}
        for m in metrics:
            _require_depth(m, ranks[m.graded], part)
        bootstrap = ClusterBootstrap.from_clusters(part.clusters, samples, seed)
        inputs = {m.name: ranks[m.graded] for m in metrics}
        measurements = _measure_queries(metrics, part, bootstrap, inputs, lambda m, r: m.chance(r), lambda r: int(r.start[-1]))
        return PartMeasurements(measurements, _percent(with_ties[False].is_tied), _percent_unjudged(part))

    def protocol_facts(self, part: ResultPart, ties: str) -> dict[str, object]:
        return {"ties": ties, "unjudged": "none" if part.complete else "irrelevant"}


class CountsAtKKind(EvidenceKind):
    """Counts at cutoffs of plausible matches. Chance is the share of positives in the gallery."""

    def metric_input(self, metric: Metric, part: ResultPart, ties: str) -> CountsAtK:
        return _evidence(part, CountsAtK).break_ties(ties)

    def measure(self, metrics: Sequence[Metric], part: ResultPart, ties: str, samples: int, seed: int) -> PartMeasurements:
        counts = _evidence(part, CountsAtK)
        chance = float((counts.positive_counts / counts.gallery_size).mean())
        positives = int(counts.positive_counts.sum())
        bootstrap = ClusterBootstrap.from_clusters(part.clusters, samples, seed)
        inputs = {m.name: counts.break_ties(ties) for m in metrics}
        measurements = _measure_queries(metrics, part, bootstrap, inputs, lambda m, c: chance, lambda c: positives)
        return PartMeasurements(measurements, _percent(counts.is_tied), 0.0)


class OutcomesKind(EvidenceKind):
    """Outcomes of forced choices. Chance is the expected value of random scores; a tie loses."""

    uses_bootstrap = False

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
        nothing = np.zeros(0)
        measurements = {}
        for m in metrics:
            p = proportions[m.name]
            measurements[m.name] = Measurement(
                p.value, p.low, p.high, m.chance(outcomes.shape), n, n, nothing, nothing, effective_trials=p.effective
            )
        return PartMeasurements(measurements, _percent(outcomes.is_tied) if outcomes.ties_known else None, None)

    def protocol_facts(self, part: ResultPart, ties: str) -> dict[str, object]:
        categories = {} if part.folds is None else {"categories": count_folds(part)}
        return {"ties": "lose", **categories, "interval": "wilson"}


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


def replicate_metric(metric: Metric, part: ResultPart, bootstrap: ClusterBootstrap, ties: str) -> FloatArray:
    """Compute a metric of queries in each bootstrap replicate; with folds, the mean over the folds."""
    metric_input = evidence_kind(part).metric_input(metric, part, ties)
    return _replicate(metric, part, bootstrap, metric_input, metric.values(metric_input))


def _ranks(part: ResultPart, graded: bool = False) -> Ranks:
    """Build the ranks of a part's positives, with ties; `graded` includes all grades above zero, as for nDCG."""
    lowest_grade = min(part.positive, np.nextafter(0.0, 1.0)) if graded else part.positive
    return Ranks.from_counts(_evidence(part, RankCounts), lowest_grade)


def _replicate(metric: Metric, part: ResultPart, bootstrap: ClusterBootstrap, metric_input: Any, values: FloatArray) -> FloatArray:
    """Compute a metric in each bootstrap replicate from its values."""
    by_fold = [
        metric_replicates(
            metric,
            values[queries],
            bootstrap.select(queries),
            metric_input.select(queries) if isinstance(metric_input, Ranks) else None,
        )
        for queries in _fold_queries(part, len(values))
    ]
    return np.asarray(np.nanmean(by_fold, axis=0), dtype=np.float64)  # a replicate may contain no query of a small fold


def count_folds(part: ResultPart) -> int:
    """Count the folds of a part."""
    return 0 if part.folds is None else int(np.count_nonzero(np.bincount(part.folds)))


def _measure_queries(
    metrics: Sequence[Metric],
    part: ResultPart,
    bootstrap: ClusterBootstrap,
    inputs: Mapping[str, Any],
    chance: Callable[[Metric, Any], float],
    count_positives: Callable[[Any], int],
) -> dict[str, Measurement]:
    """Measure metrics with one value per query."""
    values = {m.name: m.values(inputs[m.name]) for m in metrics}
    means = [m.name for m in metrics if m.aggregate == "mean" and _has_equal_folds(part)]
    mean_replicates = replicate_means([values[name] for name in means], bootstrap) if means else ()
    replicates = dict(zip(means, mean_replicates, strict=True))
    measurements = {}
    for m in metrics:
        metric_input, query_values = inputs[m.name], values[m.name]
        if m.name not in replicates:
            replicates[m.name] = _replicate(m, part, bootstrap, metric_input, query_values)
        by_fold = [(metric_input, query_values)]
        if part.folds is not None:
            by_fold = [
                (metric_input.select(queries) if isinstance(metric_input, Ranks) else metric_input, query_values[queries])
                for queries in _fold_queries(part, len(query_values))
            ]
        measurements[m.name] = Measurement(
            float(np.mean([m.summarise(*fold) for fold in by_fold])),
            *percentile_interval(replicates[m.name]),
            chance(m, metric_input),
            len(query_values),
            count_positives(metric_input),
            query_values,
            replicates[m.name],
        )
    return measurements


def _measure_correlation(metric: Metric, pairs: RatedPairs) -> Measurement:
    n = len(np.unique(pairs.query))
    if metric.aggregate == "whole":
        overall = metric.values(pairs)
        return Measurement(
            overall.value, overall.low, overall.high, 0.0, n, len(pairs), np.zeros(0), np.zeros(0), overall.standard_error
        )
    values = metric.values(pairs)
    std = float(values.std(ddof=1))
    return Measurement(float(values.mean()), *percentile_interval(values), 0.0, n, len(pairs), values, values, std)


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


def _fold_queries(part: ResultPart, n: int) -> list[IntArray]:
    """Return the queries of each fold; without folds, all queries."""
    if part.folds is None:
        return [np.arange(n)]
    return [np.flatnonzero(part.folds == fold) for fold in np.unique(part.folds)]


def _has_equal_folds(part: ResultPart) -> bool:
    """Whether the mean over folds equals the mean over queries."""
    return part.folds is None or len(set(np.unique(part.folds, return_counts=True)[1].tolist())) == 1


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
