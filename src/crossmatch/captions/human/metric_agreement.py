"""Agreement of caption metrics with people: correlation with ratings, and accuracy on preferences."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from crossmatch.captions.caption_metric_table import CaptionResult
from crossmatch.captions.human.floating_point_ties import merge_rounding_ties, score_preferences
from crossmatch.captions.human.score_judged_captions import prepare_preferences, prepare_ratings, score_judged_captions
from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.ratings import Preferences, Ratings
from crossmatch.data.signature import protocol_signature
from crossmatch.metrics.cluster_bootstrap import DEFAULT_SAMPLES
from crossmatch.metrics.correlation.replicated_correlations import COEFFICIENTS, replicated_correlations
from crossmatch.metrics.jackknife import ClusterJackknife, jackknife_interval
from crossmatch.metrics.paired_tests import (
    MIN_OBSERVATIONS,
    SIGN_FLIP_TEST,
    Difference,
    holm_correction,
    paired_difference,
    williams_test,
)
from crossmatch.metrics.proportions import clustered_proportion

RATING_MODES = ("each", "mean")
TIE_CREDIT = {"wrong": 0.0, "half": 0.5, "right": 1.0}  # what a pair with equal scores counts
GROUP_MEAN = "mean"  # the name of the mean over groups
JACKKNIFE = "Student's t from the jackknife over images"


@dataclass(frozen=True, eq=False)
class MetricDifferences:
    """Differences between pairs of metrics, first minus second: value, interval, and p with Holm's correction over all pairs."""

    value: FloatArray
    low: FloatArray
    high: FloatArray
    p: FloatArray
    test: str  # the test that gave p, in words
    min_p: float = 0.0  # the smallest p, before Holm's correction, that this number of images can give


@dataclass(frozen=True, eq=False)
class RatingAgreement:
    """Correlations of metrics with human ratings.

    `differences` come from the jackknife over images and cover every coefficient. Williams' test covers Pearson's r only and treats
    captions as independent; papers quote it, but its p is too small if captions share an image. It uses `williams_r`, the
    correlation with the mean rating of each caption, which equals the r in `values` only if `rating` is "mean".
    """

    study: Ratings  # the candidates that were compared
    rating: str
    metrics: tuple[str, ...]
    coefficients: tuple[str, ...]
    values: FloatArray  # (metrics, coefficients), like `low` and `high`
    low: FloatArray
    high: FloatArray
    metric_pairs: IntArray  # (pairs, 2), positions of metrics
    differences: MetricDifferences  # arrays of shape (pairs, coefficients)
    williams_r: FloatArray  # (metrics,); NaN if all captions have the same mean rating
    williams_t: FloatArray  # (pairs,)
    williams_p: FloatArray  # (pairs,), with Holm's correction
    degrees_of_freedom: int
    scores: FloatArray  # (metrics, candidates)
    levels: FloatArray  # the distinct ratings
    level_counts: IntArray  # (levels,), of single ratings
    level_means: FloatArray  # (metrics, levels): the mean score of captions with this rating
    excluded: int
    left_out: int
    signatures: tuple[str, ...]  # of the metrics
    signature: str

    def as_json(self) -> dict[str, Any]:
        """Plain numbers for `--json`."""
        return {
            "signature": self.signature,
            "candidates": len(self.study),
            "ratings": len(self.study.values),
            "images": len(set(self.study.images.tolist())),
            "excluded": self.excluded,
            "left_out": self.left_out,
            "unreferenced": self.study.unreferenced,
            "test": self.differences.test,
            "metrics": {
                metric: {name: _interval_json(*numbers) for name, *numbers in zip(self.coefficients, *rows, strict=True)}
                | {"signature": signature}
                for metric, signature, *rows in zip(self.metrics, self.signatures, self.values, self.low, self.high, strict=True)
            },
            "differences": [
                {
                    "first": self.metrics[a],
                    "second": self.metrics[b],
                    "williams": {
                        "r": [_finite_or_none(self.williams_r[a]), _finite_or_none(self.williams_r[b])],
                        "t": _finite_or_none(self.williams_t[n]),
                        "freedom": self.degrees_of_freedom,
                        "p": float(self.williams_p[n]),
                    },
                    **{name: _difference_json(self.differences, (n, c)) for c, name in enumerate(self.coefficients)},
                }
                for n, (a, b) in enumerate(self.metric_pairs.tolist())
            ],
        }


@dataclass(frozen=True, eq=False)
class PreferenceAgreement:
    """Shares of pairs in which a metric prefers the caption that people prefer; the last group is the mean over groups."""

    study: Preferences
    ties: str
    metrics: tuple[str, ...]
    groups: tuple[str, ...]
    values: FloatArray  # (metrics, groups), like `low`, `high` and `tie_counts`
    low: FloatArray
    high: FloatArray
    tie_counts: IntArray  # pairs with equal scores
    counts: IntArray  # (groups,), of pairs
    metric_pairs: IntArray  # (pairs of metrics, 2)
    differences: MetricDifferences  # arrays of shape (pairs of metrics,), of the mean over groups
    scores: FloatArray  # (metrics, pairs, 2)
    signatures: tuple[str, ...]
    signature: str

    def as_json(self) -> dict[str, Any]:
        """Plain numbers for `--json`."""
        return {
            "signature": self.signature,
            "pairs": len(self.study),
            "test": self.differences.test,
            "metrics": {
                metric: {
                    group: _interval_json(*numbers) | {"ties": int(ties)}
                    for group, *numbers, ties in zip(self.groups, *rows, strict=True)
                }
                | {"signature": signature}
                for metric, signature, *rows in zip(
                    self.metrics, self.signatures, self.values, self.low, self.high, self.tie_counts, strict=True
                )
            },
            "differences": [
                {"first": self.metrics[a], "second": self.metrics[b], GROUP_MEAN: _difference_json(self.differences, n)}
                for n, (a, b) in enumerate(self.metric_pairs.tolist())
            ],
        }  # fmt: skip


def measure_agreement(
    study: Ratings | Preferences,
    names: Iterable[str],
    *,
    rating: str = "each",
    ties: str = "wrong",
    documents: str = "images",
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    images: Callable[[str], Any] | None = None,
    **resources: Any,
) -> RatingAgreement | PreferenceAgreement:
    """Measure how well caption metrics agree with human ratings or preferences.

    Args:
        study: Ratings or preferences of captions; see `load_ratings`.
        names: Names of caption metrics, such as `bleu-4`, `cider-d+sigma=4` or `all`.
        rating: For ratings, what an observation is: `each` single rating, or the `mean` rating of a caption.
        ties: For preferences, what a pair with equal scores counts as: `wrong`, `right` or `half`.
        documents: What CIDEr counts as a document: `images`, each once, or `candidates`, each judged caption.
        samples: For ratings, the largest number of image groups of the jackknife.
        seed: For ratings, the seed that assigns images to groups.
        images: Opens the image of an id, for metrics that need images.
        **resources: What else a metric needs: `embedder` for CLIPScore, `grounder` for TIGEr, `frequencies` for CIDEr.

    Returns:
        For ratings the correlations of each metric with people, for preferences the share of pairs in which it agrees with
        them. Both have intervals and the differences between metrics.

    >>> from crossmatch import Ratings
    >>> rows = [("7", "a dog", [4, 3]), ("7", "a cat", [1]), ("8", "a cow", [3]), ("8", "a bird", [1])]
    >>> ratings = Ratings.from_rows("mine", rows, {"7": ["the dog"], "8": ["the cow"]}, scale=(1, 4))
    >>> agreement = measure_agreement(ratings, ["bleu-1"])
    >>> dict(zip(agreement.coefficients, agreement.values[0].round(2).tolist()))
    {'tau-b': 0.87, 'tau-c': 0.96, 'spearman': 0.91, 'pearson': 0.95}
    """
    if isinstance(study, Preferences):
        return measure_accuracy(study, names, ties=ties, documents=documents, images=images, **resources)
    return measure_correlation(
        study, names, rating=rating, documents=documents, samples=samples, seed=seed, images=images, **resources
    )


def measure_correlation(
    study: Ratings,
    names: Iterable[str],
    *,
    rating: str = "each",
    documents: str = "images",
    samples: int = DEFAULT_SAMPLES,
    seed: int = 0,
    images: Callable[[str], Any] | None = None,
    **resources: Any,
) -> RatingAgreement:
    """Kendall's tau-b and tau-c, Spearman's and Pearson's r of each metric with the ratings, over captions.

    With `rating="each"` every single rating is an observation, so a caption with three ratings counts three times, as in the
    literature. With `"mean"` a caption is one observation with its mean rating; this averages out disagreement between people and
    gives higher numbers.

    Intervals, and the p of the difference of two metrics, come from the jackknife over images with Student's t. It leaves out one
    image at a time, or one of `samples` random groups of images if there are more. With a single image, or if a correlation is
    undefined without some image, the interval is the whole range. In simulations with 3 to 40 images the jackknife covered the true
    value in at least 91 % of cases; bootstrap percentiles covered it in 57 % (tau-c, 3 images) to 95 %. Williams' test always uses
    the mean rating of each caption, because it assumes independent observations. Scores that differ only by rounding are equal.

    Source: anderson2016spice; jiang2019tiger, sec. 4.3 and 4.4; graham2014testing; kott2001delete.

    >>> captions = [("7", "a dog runs", [4, 3]), ("7", "two cats", [1, 1]), ("8", "a red car", [4, 4]), ("8", "a dog", [2, 1])]
    >>> study = Ratings.from_rows("mine", captions, {"7": ["the dog runs", "a dog"], "8": ["a car", "the red car"]}, scale=(1, 4))
    >>> agreement = measure_correlation(study, ["bleu-1", "rouge-l"])
    >>> [round(float(tau), 3) for tau in agreement.values[:, 0]], agreement.level_counts
    ([0.858, 0.858], array([3, 1, 1, 3]))
    """
    if rating not in RATING_MODES:
        raise UsageError(f"Unknown value {rating!r} for rating. Choose from: {', '.join(RATING_MODES)}.")
    if samples < 2:
        raise UsageError(f"The jackknife needs at least 2 groups of images, got {samples} (the default is {DEFAULT_SAMPLES}).")
    study, candidates = prepare_ratings(study)
    results = score_judged_captions(candidates, names, documents, images, **resources)
    metrics, coefficients = tuple(results), COEFFICIENTS
    scores = np.stack([merge_rounding_ties(result.scores.values) for result in results.values()])
    for metric, metric_scores in zip(metrics, scores, strict=True):
        _require_variation(metric, metric_scores)
    observations = study.candidate_of_rating if rating == "each" else np.arange(len(study))
    ratings = study.values if rating == "each" else study.mean
    _require_variation("people", ratings)
    cluster = np.unique(study.images, return_inverse=True)[1].ravel()
    jackknife = ClusterJackknife.from_clusters(cluster[observations], samples, seed)
    estimates = [replicated_correlations(ratings, row[observations], jackknife, coefficients) for row in scores]
    values, without = (np.stack([estimate[part] for estimate in estimates]) for part in (0, 1))
    intervals = [[jackknife_interval(float(v), w) for v, w in zip(*row, strict=True)] for row in zip(values, without, strict=True)]
    low, high = (np.array([[getattr(interval, end) for interval in row] for row in intervals]) for end in ("low", "high"))
    pairs = _metric_pairs(len(metrics))
    r, t, williams_p, freedom = _williams_tests(study.mean, scores, pairs)
    levels, level = np.unique(study.values, return_inverse=True)
    level_counts = np.bincount(level.ravel())
    level_means = np.stack([np.bincount(level.ravel(), row[study.candidate_of_rating]) / level_counts for row in scores])
    signature = protocol_signature(
        "agreement", study.name, "", data=study.digest, ratings=rating, equal=study.reference_rule,
        df=_document_label(documents, resources), interval=f"jackknife/images/{jackknife.groups}", seed=seed,
    )  # fmt: skip
    return RatingAgreement(
        study, rating, metrics, coefficients, values, low, high, pairs, _correlation_differences(values, without, pairs), r, t,
        williams_p, freedom, scores, levels, level_counts, level_means, candidates.excluded, candidates.left_out,
        _signatures(results), signature,
    )  # fmt: skip


def measure_accuracy(
    study: Preferences,
    names: Iterable[str],
    *,
    ties: str = "wrong",
    documents: str = "images",
    images: Callable[[str], Any] | None = None,
    **resources: Any,
) -> PreferenceAgreement:
    """The share of pairs in which a metric scores the preferred caption higher, in each group, and the mean over groups.

    A pair with equal scores counts as `wrong` (jiang2019tiger, sec. 4.3), `right` (anderson2016spice), or `half` right, the
    expected value of a random choice. Scores that differ only by rounding count as equal. Intervals are Wilson's, with images as
    clusters. Two metrics are compared by McNemar's exact test if there is one group, no two pairs share an image and no pair is
    half right; otherwise by a sign-flip test over images (`differences.test` names the test).

    >>> pairs = [("a dog runs", "a cat"), ("a cat", "a red car")]
    >>> study = Preferences("mine", ["0", "1"], ["7", "8"], pairs, [["the dog runs"], ["a car"]], [0, 0], ["HI", "MM"])
    >>> agreement = measure_accuracy(study, ["bleu-1"])
    >>> agreement.groups, agreement.values, agreement.tie_counts
    (('HI', 'MM', 'mean'), array([[1. , 0. , 0.5]]), array([[0, 0, 0]]))
    """
    if ties not in TIE_CREDIT:
        raise UsageError(f"Unknown rule {ties!r} for pairs with equal scores. Choose from: {', '.join(TIE_CREDIT)}.")
    results = score_judged_captions(prepare_preferences(study), names, documents, images, **resources)
    metrics = tuple(results)
    scores = np.stack([result.scores.values.reshape(-1, 2) for result in results.values()])
    credit, is_tied = score_preferences(scores, study.preferred, TIE_CREDIT[ties])
    cluster = np.unique(study.images, return_inverse=True)[1].ravel()
    groups, group = np.unique(study.groups, return_inverse=True)
    group = group.ravel()
    members = [np.flatnonzero(group == g) for g in range(len(groups))]
    shares = [
        [*(clustered_proportion(row[part], cluster[part]) for part in members), clustered_proportion(row, cluster, group)]
        for row in credit
    ]
    values, low, high = np.moveaxis(np.array([[(share.value, share.low, share.high) for share in row] for row in shares]), -1, 0)
    tie_counts = np.array([[*(int(row[part].sum()) for part in members), int(row.sum())] for row in is_tied])
    pairs = _metric_pairs(len(metrics))
    differences = [paired_difference(credit[b], credit[a], cluster, group) for a, b in pairs]
    signature = protocol_signature(
        "accuracy", study.name, "", data=study.digest, ties=ties, df=_document_label(documents, resources), interval="wilson/images"
    )
    return PreferenceAgreement(
        study, ties, metrics, (*groups.tolist(), GROUP_MEAN), values, low, high, tie_counts,
        np.array([*(len(part) for part in members), len(study)]), pairs, _correct_differences(differences), scores,
        _signatures(results), signature,
    )  # fmt: skip


def _metric_pairs(metrics: int) -> IntArray:
    return np.array(list(combinations(range(metrics), 2)), dtype=np.int64).reshape(-1, 2)


def _require_variation(source: str, values: FloatArray) -> None:
    if len(values) and values.min() == values.max():
        raise CrossmatchError(
            f"All {len(values):,} scores by {source} are {values[0]:g}, so a correlation is not defined. "
            "Leave the metric out, or use more captions."
        )


def _correlation_differences(values: FloatArray, without: FloatArray, pairs: IntArray) -> MetricDifferences:
    """Differences of every coefficient; both metrics leave out the same images."""
    by_coefficient = []
    for c in range(values.shape[1]):
        differences = [jackknife_interval(float(values[a, c] - values[b, c]), without[a, c] - without[b, c], 2.0) for a, b in pairs]
        by_coefficient.append(_correct_differences(differences, JACKKNIFE))
    value, low, high, p = (
        np.stack([getattr(column, name) for column in by_coefficient], axis=1) for name in ("value", "low", "high", "p")
    )
    return MetricDifferences(value, low, high, p, JACKKNIFE, max(column.min_p for column in by_coefficient))


def _correct_differences(differences: list[Difference], test: str = "") -> MetricDifferences:
    """Apply Holm's correction. The test over clusters is preferred, because pairs of one image are not independent."""
    value, low, high = np.array([(d.value, d.low, d.high) for d in differences]).reshape(-1, 3).T
    p = holm_correction([d.p if d.cluster_p is None else d.cluster_p for d in differences])
    tests = dict.fromkeys(d.test if d.cluster_p is None else SIGN_FLIP_TEST for d in differences)
    min_p = max((d.min_p for d in differences), default=0.0)
    return MetricDifferences(value, low, high, np.array(p), test or "; ".join(tests), min_p)


def _williams_tests(mean: FloatArray, scores: FloatArray, pairs: IntArray) -> tuple[FloatArray, FloatArray, FloatArray, int]:
    """Pearson's r of each metric with the mean ratings; t and corrected p of each pair of metrics; degrees of freedom.

    With too few captions t is 0 and p is 1.
    """
    n = len(mean)
    if mean.min() == mean.max():
        return np.full(len(scores), np.nan), np.zeros(len(pairs)), np.ones(len(pairs)), max(0, n - 3)
    r = np.clip(np.corrcoef(np.vstack([mean, scores])), -1.0, 1.0)
    if n < MIN_OBSERVATIONS:
        return r[0, 1:], np.zeros(len(pairs)), np.ones(len(pairs)), max(0, n - 3)
    tests = [williams_test(float(r[0, 1 + a]), float(r[0, 1 + b]), float(r[1 + a, 1 + b]), n) for a, b in pairs]
    return r[0, 1:], np.array([test.t for test in tests]), np.array(holm_correction([test.p for test in tests])), n - 3


def _document_label(documents: str, resources: dict[str, Any]) -> str:
    frequencies = resources.get("frequencies")
    return documents if frequencies is None else f"{frequencies.digest}/{frequencies.images}"


def _signatures(results: dict[str, CaptionResult]) -> tuple[str, ...]:
    return tuple(result.signature for result in results.values())


def _difference_json(differences: MetricDifferences, at: int | tuple[int, int]) -> dict[str, float]:
    interval = _interval_json(float(differences.value[at]), float(differences.low[at]), float(differences.high[at]))
    return interval | {"p": float(differences.p[at])}


def _interval_json(value: float, low: float, high: float) -> dict[str, float]:
    return {"value": round(float(value), 6), "low": round(float(low), 6), "high": round(float(high), 6)}


def _finite_or_none(value: float) -> float | None:
    """A rounded number; None for infinity and NaN, which JSON does not have."""
    return round(float(value), 6) if np.isfinite(value) else None
