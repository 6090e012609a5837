"""Score candidate captions by several metrics with confidence intervals, and compare sets of candidates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossmatch.captions.caption_metric_table import CaptionResult, compute_metrics
from crossmatch.captions.corpus import CaptionCorpus, CaptionScores
from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.cluster_bootstrap import DEFAULT_SAMPLES, ClusterBootstrap, percentile_interval
from crossmatch.metrics.paired_tests import Difference, compare_clusters, holm_correction


@dataclass(frozen=True, eq=False)
class ScoredCaptions:
    """A named set of candidates, its result by each metric, and each metric's corpus value in the bootstrap replicates."""

    name: str
    corpus: CaptionCorpus
    results: Mapping[str, CaptionResult]
    replicates: Mapping[str, FloatArray]

    def __repr__(self) -> str:
        values = ", ".join(f"{metric} {result.scores.value:.4f}" for metric, result in self.results.items())
        return f"ScoredCaptions({self.name}: {values})"

    def __getitem__(self, metric: str) -> CaptionResult:
        return self.results[metric]

    def interval(self, metric: str) -> tuple[float, float]:
        """The 95 % confidence interval of a corpus value: bootstrap over images, with fixed document frequencies.

        With a single image it is NaN. If all captions have the same value, its width is 0.
        """
        return percentile_interval(self.replicates[metric]) if len(self.corpus) > 1 else (math.nan, math.nan)

    def as_json(self) -> dict[str, dict[str, object]]:
        """Value, interval and signature of each metric."""
        metrics: dict[str, dict[str, object]] = {}
        for metric, result in self.results.items():
            low, high = (None if math.isnan(end) else round(end, 6) for end in self.interval(metric))
            metrics[metric] = {"value": round(result.scores.value, 6), "low": low, "high": high, "signature": result.signature}
        return metrics


def score_captions(
    name: str, corpus: CaptionCorpus, metrics: str | Iterable[str], samples: int = DEFAULT_SAMPLES, seed: int = 0, **resources: Any
) -> ScoredCaptions:
    """Score candidates by several metrics.

    Args:
        name: A name for this set of candidates.
        corpus: The candidates with their references.
        metrics: Names of metrics, as a list or separated by commas, such as `bleu-4,cider-d+sigma=4` or `all`.
        samples: Number of bootstrap replicates for the confidence intervals.
        seed: Seed of the bootstrap.
        **resources: What some metrics need: `images`, which opens the image of an id, `embedder` for CLIPScore, `grounder` for
            TIGEr, `frequencies` for CIDEr.

    >>> from crossmatch import CaptionCorpus, score_captions
    >>> references = {"7": ["a dog is running"], "8": ["the cat sleeps", "a cat"]}
    >>> corpus = CaptionCorpus.from_texts({"7": "a dog runs", "8": "a cat"}, references)
    >>> score_captions("mine", corpus, ["rouge-l"]).as_json()["rouge-l"]["value"]
    0.778539
    """
    results = compute_metrics(corpus, metrics, **resources)
    draws = ClusterBootstrap.from_clusters(
        np.argsort(np.argsort(corpus.ids)), samples, seed
    )  # sorted by id: the order of the file must not matter
    replicates = {metric: bootstrap_replicates(result.scores, draws) for metric, result in results.items()}
    return ScoredCaptions(name, corpus, results, replicates)


def bootstrap_replicates(scores: CaptionScores, draws: ClusterBootstrap) -> FloatArray:
    """The corpus value in each replicate of the bootstrap over images, with fixed document frequencies.

    >>> draws = ClusterBootstrap.from_clusters(np.arange(2), samples=200)
    >>> replicates = bootstrap_replicates(CaptionScores(0.5, np.array([0.0, 1.0])), draws)
    >>> sorted(set(replicates.tolist()))
    [0.0, 0.5, 1.0]
    """
    statistics = scores.values[:, None] if scores.statistics is None else scores.statistics
    columns = statistics.T.astype(np.float64)
    by_image = np.stack([np.bincount(draws.cluster_index, column, draws.cluster_count) for column in columns], axis=1)
    totals = np.concatenate([times @ by_image for times in draws])
    if scores.combine is not None:
        return scores.combine(totals)
    candidates = np.bincount(draws.cluster_index, minlength=draws.cluster_count).astype(np.float64)
    return np.asarray(totals[:, 0] / np.concatenate([times @ candidates for times in draws]), dtype=np.float64)


@dataclass(frozen=True)
class CaptionComparison:
    """The difference of two sets of candidates by one metric, second minus first; `p` is corrected for all comparisons."""

    first: str
    second: str
    metric: str
    difference: Difference
    p: float
    min_p: float = 0.0  # the smallest p that this number of replicates and tests can give

    def as_json(self) -> dict[str, object]:
        """Names, metric, difference, interval and p."""
        numbers = {"value": self.difference.value, "low": self.difference.low, "high": self.difference.high, "p": self.p}
        return {"first": self.first, "second": self.second, "metric": self.metric, **{k: round(v, 6) for k, v in numbers.items()}}


def compare_captions(scored: Sequence[ScoredCaptions]) -> list[CaptionComparison]:
    """Compare every set of candidates with the first one, by each metric.

    The test is the paired bootstrap over images, with Holm's correction over all comparisons.

    Raises:
        CrossmatchError: Two sets have different images or references.
    """
    first, *rest = scored
    first_references = first.corpus.sorted_references()
    for second in rest:
        if not np.array_equal(first.corpus.ids, second.corpus.ids):
            raise CrossmatchError(
                f"{first.name} and {second.name} have different images ({len(first.corpus):,} and {len(second.corpus):,}) or a "
                "different order. Use --partial to score only the images that both have."
            )
        if not (
            np.array_equal(first.corpus.references_per_image, second.corpus.references_per_image)
            and first_references == second.corpus.sorted_references()
        ):
            raise CrossmatchError(
                f"{first.name} and {second.name} were scored with different references ({len(first_references):,} and "
                f"{len(second.corpus.reference_index):,}), so their scores cannot be compared. Score both with the same references."
            )
    differences = [(second, metric, _difference(first, second, metric)) for second in rest for metric in first.results]
    adjusted_p = holm_correction([difference.p for _, _, difference in differences])
    return [
        CaptionComparison(first.name, second.name, metric, difference, p, min(1.0, len(differences) * difference.min_p))
        for (second, metric, difference), p in zip(differences, adjusted_p, strict=True)
    ]


def _difference(first: ScoredCaptions, second: ScoredCaptions, metric: str) -> Difference:
    value = second[metric].scores.value - first[metric].scores.value
    return compare_clusters(first.replicates[metric], second.replicates[metric], value, len(first.corpus))
