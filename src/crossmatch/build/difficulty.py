"""How hard hard negatives are for a text encoder: the cosine between a caption and its negative, category by category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from crossmatch.build.format import uniform_all
from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics.significance import LEVEL
from crossmatch.models.text import TextModel, embed_distinct


@dataclass(frozen=True)
class Mean:
    """A mean over clusters of values, with its interval."""

    value: float
    low: float
    high: float
    number: int


def similarity(captions: Sequence[str], negatives: Sequence[str], encoder: TextModel) -> FloatArray:
    """The cosine of each caption and its negative, both in the uniform form, so that capitals and periods do not count."""
    if len(captions) != len(negatives):
        raise CrossmatchError(f"there are {len(captions):,} captions and {len(negatives):,} negatives. Give one of each per pair.")
    both = uniform_all([*captions, *negatives])
    vectors = np.asarray(embed_distinct(encoder, both, "embedding captions"), dtype=np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray((unit[: len(captions)] * unit[len(captions) :]).sum(axis=1), dtype=np.float64)


def mean_of(values: FloatArray, clusters: Sequence[str]) -> Mean:
    """The mean of values, and Student's interval from the sums of their deviations in each cluster (field2007bootstrapping).

        v = K / (K - 1) · Σ_k ( Σ_{i in k} (x_i - m) )² / n²

    >>> found = mean_of(np.array([0.0, 0.0, 1.0, 1.0]), ["a", "a", "b", "b"])       # two clusters, not four values
    >>> found.value, found.low < 0 < 1 < found.high
    (0.5, True)
    """
    member: NDArray[np.int64] = np.unique(np.asarray(clusters, dtype=np.str_), return_inverse=True)[1].ravel()
    n, held = len(values), int(member.max()) + 1 if len(values) else 0
    if held < 2:
        raise CrossmatchError(f"{n:,} values in {held} clusters have no interval. Give values of at least two images.")
    mean = float(values.mean())
    sums = np.bincount(member, weights=values - mean)
    error = float(np.sqrt(held / (held - 1) * (sums**2).sum())) / n
    reach = float(special.stdtrit(held - 1, (1 + LEVEL) / 2)) * error
    return Mean(mean, mean - reach, mean + reach, n)
