"""How difficult hard negatives are for a text encoder: the cosine between each caption and its negative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from crossmatch.build.negatives.caption_format import format_caption
from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.cluster_bootstrap import CONFIDENCE_LEVEL
from crossmatch.models.baselines.text_encoders import TextModel, embed_unique_texts


@dataclass(frozen=True)
class ClusterMean:
    """Mean of clustered values, with its interval."""

    value: float
    low: float
    high: float
    number: int


def caption_similarity(captions: Sequence[str], negatives: Sequence[str], encoder: TextModel) -> FloatArray:
    """Cosine of each caption and its negative, both formatted, so that capitals and periods do not count."""
    if len(captions) != len(negatives):
        raise CrossmatchError(
            f"Expected one negative per caption, got {len(captions):,} captions and {len(negatives):,} negatives."
        )
    texts = [format_caption(text) for text in (*captions, *negatives)]
    vectors = np.asarray(embed_unique_texts(encoder, texts, "embedding captions"), dtype=np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray((unit[: len(captions)] * unit[len(captions) :]).sum(axis=1), dtype=np.float64)


def clustered_mean(values: FloatArray, clusters: Sequence[str]) -> ClusterMean:
    """Mean of values with a Student interval from the deviations summed within clusters (field2007bootstrapping).

        v = K / (K - 1) · Σ_k ( Σ_{i in k} (x_i - m) )² / n²

    >>> mean = clustered_mean(np.array([0.0, 0.0, 1.0, 1.0]), ["a", "a", "b", "b"])       # two clusters, not four values
    >>> mean.value, mean.low < 0 < 1 < mean.high
    (0.5, True)
    """
    cluster: NDArray[np.int64] = np.unique(np.asarray(clusters, dtype=np.str_), return_inverse=True)[1].ravel()
    n, number = len(values), int(cluster.max()) + 1 if len(values) else 0
    if number < 2:
        raise CrossmatchError(f"Need values of at least two images for an interval, got {n:,} values of {number}.")
    mean = float(values.mean())
    sums = np.bincount(cluster, weights=values - mean)
    error = float(np.sqrt(number / (number - 1) * (sums**2).sum())) / n
    margin = float(special.stdtrit(number - 1, (1 + CONFIDENCE_LEVEL) / 2)) * error
    return ClusterMean(mean, mean - margin, mean + margin, n)
