"""Map a metric's scores to the scale of human ratings by matching distributions, and measure the error per caption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crossmatch.captions.human.floating_point_ties import tie_starts
from crossmatch.captions.human.metric_agreement import RatingAgreement
from crossmatch.data.arrays import FloatArray, require_finite
from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.proportions import Proportion, clustered_proportion

ONE_LEVEL = 1.0 + 1e-9  # means of ratings are sums of thirds, hence the tolerance


@dataclass(frozen=True, eq=False)
class RatingScaleMatch:
    """Scores of a metric mapped to rating levels. N ratings, L levels, D distinct differences between mapped and human rating."""

    levels: FloatArray  # (L,), ascending
    level_weights: FloatArray  # (N, L): the weight of each level for each caption; rows sum to 1
    differences: FloatArray  # (D,), mapped minus human rating, ascending
    shares: FloatArray  # (D,), of all ratings
    chance_shares: FloatArray  # (D,), the shares of a metric that knows only the distribution of ratings
    exact: Proportion
    within_one: Proportion

    @property
    def mean_distance(self) -> float:
        """The mean absolute difference, in units of the rating scale."""
        return float(np.abs(self.differences) @ self.shares)


def map_to_rating_scale(agreement: RatingAgreement) -> dict[str, RatingScaleMatch]:
    """Map the scores of each metric of a study to its rating scale; see `match_rating_scale`."""
    study = agreement.study
    images = study.images[study.candidate_of_rating].tolist()
    return {
        metric: match_rating_scale(scores[study.candidate_of_rating], study.values, images)
        for metric, scores in zip(agreement.metrics, agreement.scores, strict=True)
    }


def match_rating_scale(
    scores: FloatArray | Sequence[float],
    ratings: FloatArray | Sequence[float],
    image: Sequence[str] | None = None,
) -> RatingScaleMatch:
    """Assign captions, sorted by score, to rating levels, so that each level has as many captions as people gave it.

    With the shares p_1 … p_L of the levels among people's ratings, the caption at quantile q is assigned to the level l with
    p_1 + … + p_{l-1} ≤ q < p_1 + … + p_l. Captions with equal scores share their range of quantiles, so each gets the same weights
    of levels, and the order of captions does not matter.

    A caption with several ratings is listed once for each. Wilson's intervals treat the ratings of an image as a cluster.

    Source: jiang2019tiger, A.1 and fig. 8.

    >>> match = match_rating_scale([0.1, 0.5, 0.4, 0.9], [1, 2, 1, 4])
    >>> match.level_weights.argmax(axis=1), match.exact.value
    (array([0, 1, 0, 2]), 1.0)
    >>> match_rating_scale([0.3, 0.3, 0.3, 0.9], [1, 2, 1, 4]).level_weights[0].round(2)  # three equal scores share two levels
    array([0.67, 0.33, 0.  ])
    """
    ratings, scores = np.asarray(ratings, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    if ratings.ndim != 1 or scores.shape != ratings.shape or not len(ratings):
        raise CrossmatchError(f"Expected one score for each rating, got shapes {scores.shape} and {ratings.shape}.")
    require_finite(scores, "scores", "Score these captions again, or leave them out.")
    require_finite(ratings, "ratings", "Correct the file, or leave them out.")
    levels, counts = np.unique(ratings, return_counts=True)
    level_shares = counts / len(ratings)
    weights = _level_weights(scores, np.concatenate([[0.0], np.cumsum(level_shares)]))
    difference = np.round(levels - ratings[:, None], 9)
    differences, at = np.unique(difference, return_inverse=True)
    at = at.ravel()
    shares, chance_shares = (
        np.bincount(at, part.ravel(), len(differences)) / len(ratings)
        for part in (weights, np.broadcast_to(level_shares, difference.shape))
    )
    cluster = np.arange(len(ratings)) if image is None else np.unique(image, return_inverse=True)[1].ravel()
    exact, within_one = (
        clustered_proportion((weights * hit).sum(axis=1), cluster) for hit in (difference == 0, np.abs(difference) <= ONE_LEVEL)
    )
    return RatingScaleMatch(levels, weights, differences, shares, chance_shares, exact, within_one)


def _level_weights(scores: FloatArray, boundaries: FloatArray) -> FloatArray:
    """How much of each caption's range of quantiles lies in each level; captions with equal scores share a range."""
    order = np.argsort(scores, kind="stable")
    first = tie_starts(scores[order])
    last = np.append(first[1:], len(scores))
    low, high = (end[:, None] / len(scores) for end in (first, last))
    overlap = np.minimum(high, np.append(boundaries[1:-1], 1.0)) - np.maximum(low, boundaries[:-1])
    shared = np.where(overlap > 1e-12, overlap, 0.0) / (high - low)
    weights = np.empty((len(scores), len(boundaries) - 1))
    weights[order] = np.repeat(shared / shared.sum(axis=1, keepdims=True), last - first, axis=0)
    return weights
