"""A metric's scores on the scale that people used, by matching the distribution, and how far off they are caption by caption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crossmatch.captions.levels import runs
from crossmatch.core.arrays import FloatArray, require_finite
from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics.proportion import Share, share_of

ONE = 1.0 + 1e-9  # within one level; means of ratings are sums of thirds


@dataclass(frozen=True, eq=False)
class HumanScale:
    """What a metric says in people's levels. N ratings, L levels, D different differences."""

    levels: FloatArray  # (L,), ascending
    parts: FloatArray  # (N, L): how much of each caption is put into each level; rows sum to 1
    differences: FloatArray  # (D,), mapped minus people's, ascending
    shares: FloatArray  # (D,), of all ratings
    unrelated: FloatArray  # (D,), the shares that a metric would have that knows nothing but the distribution
    exact: Share
    within_one: Share

    @property
    def mean(self) -> float:
        """The mean difference. Zero where the distribution is that of these ratings; else how much better they are."""
        return float(self.differences @ self.shares)

    @property
    def off(self) -> float:
        """The mean absolute difference, in levels' units."""
        return float(np.abs(self.differences) @ self.shares)


def human_scale(
    scores: FloatArray | Sequence[float],
    ratings: FloatArray | Sequence[float],
    image: Sequence[str] | None = None,
    distribution: Mapping[float, float] | None = None,
) -> HumanScale:
    """Put captions, in the order of their scores, into people's levels, so that each level holds as many as people put there.

    With people's shares p_1 … p_L of the levels and the captions sorted by score, the caption at the quantile q is put into level l
    where p_1 + … + p_{l-1} ≤ q < p_1 + … + p_l. Captions with equal scores share their stretch of quantiles, and so are all put
    into the same levels in the same parts: no order of the captions enters. A caption with several
    ratings is listed once for each of them.
    `distribution` gives the shares of other people's ratings; by default they are those of `ratings`, and the mean difference is 0.
    Intervals are Wilson's, with the captions of one image taken together. Source: jiang2019tiger, A.1 and fig. 8.

    >>> found = human_scale([0.1, 0.5, 0.4, 0.9], [1, 2, 1, 4])
    >>> found.parts.argmax(axis=1), found.exact.value
    (array([0, 1, 0, 2]), 1.0)
    >>> human_scale([0.3, 0.3, 0.3, 0.9], [1, 2, 1, 4]).parts[0].round(2)           # three are equal: two thirds 1, one third 2
    array([0.67, 0.33, 0.  ])
    """
    said, given = np.asarray(ratings, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    if said.ndim != 1 or given.shape != said.shape or not len(said):
        raise CrossmatchError(
            f"scores of shape {given.shape} and ratings of shape {said.shape}; one score for each rating was expected."
        )
    require_finite(given, "scores", "Score these captions again, or leave them out.")
    require_finite(said, "ratings", "Mend the file, or leave them out.")
    levels, p = _distribution(said, distribution)
    parts = _parts(given, np.concatenate([[0.0], np.cumsum(p)]))
    off = np.round(levels - said[:, None], 9)
    differences, at = np.unique(off, return_inverse=True)
    at = at.reshape(off.shape)
    shares, unrelated = (
        np.bincount(at.ravel(), each.ravel(), len(differences)) / len(said) for each in (parts, np.broadcast_to(p, off.shape))
    )
    cluster = np.arange(len(said)) if image is None else np.unique(image, return_inverse=True)[1].ravel()
    exact, near = (share_of((parts * hit).sum(axis=1), cluster) for hit in (off == 0, np.abs(off) <= ONE))
    return HumanScale(levels, parts, differences, shares, unrelated, exact, near)


def _distribution(said: FloatArray, distribution: Mapping[float, float] | None) -> tuple[FloatArray, FloatArray]:
    """People's levels and the share of each."""
    if distribution is None:
        levels, times = np.unique(said, return_counts=True)
        return levels, times / len(said)
    levels = np.array(sorted(distribution), dtype=np.float64)
    p = np.array([distribution[level] for level in levels.tolist()], dtype=np.float64)
    if not len(p) or p.min() < 0 or not p.sum() > 0:
        raise CrossmatchError(
            f"the distribution of ratings is {dict(distribution)}; shares of 0 or more, not all 0, were expected."
        )
    return levels, p / p.sum()


def _parts(scores: FloatArray, ends: FloatArray) -> FloatArray:
    """How much of each caption falls between each two of the ends, equal scores sharing alike."""
    order = np.argsort(scores, kind="stable")
    first = runs(scores[order])
    last = np.append(first[1:], len(scores))
    low, high = (at[:, None] / len(scores) for at in (first, last))
    overlap = np.minimum(high, np.append(ends[1:-1], 1.0)) - np.maximum(low, ends[:-1])
    shared = np.where(overlap > 1e-12, overlap, 0.0) / (high - low)
    parts = np.empty((len(scores), len(ends) - 1))
    parts[order] = np.repeat(shared / shared.sum(axis=1, keepdims=True), last - first, axis=0)
    return parts
