"""Correlations in thousands of bootstrap or jackknife replicates.

A replicate gives every cluster a weight. Rank correlations need only sums of weights over blocks of equal values, which are one
sparse product for all replicates; values are sorted only once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import sparse

from crossmatch.data.arrays import FloatArray, IntArray, require_finite
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.metrics.cluster_bootstrap import ClusterBootstrap
from crossmatch.metrics.jackknife import ClusterJackknife

Replicates: TypeAlias = ClusterBootstrap | ClusterJackknife  # weights of clusters in each replicate
MAX_ELEMENTS = 1 << 19  # array elements at a time: fits the CPU cache


def replicated_correlations(
    human: FloatArray, model: FloatArray, draws: Replicates, names: tuple[str, ...] = ("tau-b", "tau-c", "spearman", "pearson")
) -> tuple[FloatArray, FloatArray]:
    """Correlation coefficients of all observations, and in each replicate of the clusters.

        tau-b = (C - D) / √((n₀ - t_h)(n₀ - t_m)),   n₀ = n(n - 1)/2
        tau-c = 2 m (C - D) / (n² (m - 1))
        spearman, pearson: Pearson's r of the ranks (mean ranks for ties) and of the values

    C and D count concordant and discordant pairs of observations, t_h and t_m pairs tied in one list; m is the smaller number of
    distinct values, taken from all observations in every replicate. tau-c can reach 1 in a table that is not square; tau-b
    cannot. An observation drawn twice is tied with itself.

    Args:
        human: Human ratings.
        model: Model scores.
        draws: Replicates that draw clusters (`ClusterBootstrap`) or leave clusters out (`ClusterJackknife`).
        names: Coefficients, from `COEFFICIENTS`.

    Returns:
        Coefficients of shape (names,), and replicates of shape (names, samples). Replicates in which a list is constant are NaN.

    Source: kendall1945treatment; stuart1953estimation (tau-c); spearman1904proof.

    >>> human, model = np.array([1.0, 2, 2, 4]), np.array([0.1, 0.2, 0.3, 0.9])
    >>> values, replicates = replicated_correlations(human, model, ClusterBootstrap.from_clusters(np.arange(4), samples=5))
    >>> values.round(4), replicates.shape
    (array([0.9129, 0.9375, 0.9487, 0.9766]), (4, 5))
    """
    unknown = next((name for name in names if name not in COEFFICIENTS), None)
    if unknown is not None:
        raise UsageError(f"Unknown correlation coefficient {unknown!r}. Choose from {', '.join(COEFFICIENTS)}.")
    families = {family: prepare for family, prepare in FAMILIES.items() if set(family) & set(names)}
    human, model = np.asarray(human, dtype=np.float64), np.asarray(model, dtype=np.float64)
    if human.ndim != 1 or human.shape != model.shape or human.shape != draws.cluster_index.shape:
        raise CrossmatchError(
            f"Ratings, scores and clusters must be flat arrays of equal length "
            f"(got shapes {human.shape}, {model.shape} and {draws.cluster_index.shape})."
        )
    require_finite(human, "ratings", "Leave out captions without a rating.")
    require_finite(model, "scores", "Check the metric on these captions.")
    family_names = [name for family in families for name in family]
    prepared = [prepare(human, model, draws) for prepare in families.values()]

    def compute(times: FloatArray) -> FloatArray:
        rows = dict(zip(family_names, np.concatenate([compute_from(times) for compute_from in prepared]), strict=True))
        return np.stack([rows[name] for name in names])

    size = max(1, MAX_ELEMENTS // len(human))
    replicates = [compute(block) for times in draws for block in np.array_split(times, -(-len(times) // size))]
    return compute(np.ones((1, draws.cluster_count)))[:, 0], np.concatenate(replicates, axis=1)


Compute = Callable[[FloatArray], FloatArray]  # cluster weights (replicates, clusters) -> (coefficients, replicates)


def _tau_coefficients(human: FloatArray, model: FloatArray, draws: Replicates) -> Compute:
    ratings, scores = _Blocks.of(human, draws), _Blocks.of(model, draws)
    ordered = _concordance(ratings, scores, draws)
    m = min(ratings.blocks, scores.blocks)

    def compute_from(times: FloatArray) -> FloatArray:
        n, concordance = ratings.total(times), ordered(times)
        all_pairs = n * (n - 1) / 2
        untied = np.sqrt((all_pairs - ratings.tied_pairs(times)) * (all_pairs - scores.tied_pairs(times)))
        return np.stack([_divide(concordance, untied), _divide(2 * m * concordance, np.where(untied > 0, n * n * (m - 1), 0.0))])

    return compute_from


def _spearman(human: FloatArray, model: FloatArray, draws: Replicates) -> Compute:
    ratings, scores = _Blocks.of(human, draws), _Blocks.of(model, draws)
    cells, cell = np.unique(ratings.code * scores.blocks + scores.code, return_inverse=True)
    in_cell = _count_labels(cell.ravel(), len(cells), draws)
    rating, score = cells // scores.blocks, cells % scores.blocks

    def compute_from(times: FloatArray) -> FloatArray:
        (a, aa), (b, bb) = ratings.ranks(times), scores.ranks(times)
        products = in_cell @ times.T
        products *= a[rating]
        products *= b[score]
        return _divide(products.sum(axis=0), np.sqrt(aa * bb))[None]

    return compute_from


def _pearson(human: FloatArray, model: FloatArray, draws: Replicates) -> Compute:
    h, m = _standardise(human), _standardise(model)
    parts = (np.ones(len(h)), h, m, h * h, m * m, h * m)
    sums = np.stack([np.bincount(draws.cluster_index, part, draws.cluster_count) for part in parts], axis=1)

    def compute_from(times: FloatArray) -> FloatArray:
        n, h, m, hh, mm, hm = (times @ sums).T
        variance_h, variance_m = n * hh - h * h, n * mm - m * m
        rounding = 1e-12 * n * n  # rounding error of a zero variance, for values with variance 1
        return _divide(
            n * hm - h * m, np.sqrt(np.where(variance_h > rounding, variance_h, 0) * np.where(variance_m > rounding, variance_m, 0))
        )[None]

    return compute_from


FAMILIES: Mapping[tuple[str, ...], Callable[[FloatArray, FloatArray, Replicates], Compute]] = {
    ("tau-b", "tau-c"): _tau_coefficients,
    ("spearman",): _spearman,
    ("pearson",): _pearson,
}
COEFFICIENTS = tuple(name for family in FAMILIES for name in family)


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Blocks of equal values in ascending order, with the number of observations per cluster."""

    code: IntArray  # block of each observation
    blocks: int
    counts: sparse.csr_array  # (blocks, clusters)
    cluster_sizes: FloatArray

    @classmethod
    def of(cls, values: FloatArray, draws: Replicates) -> _Blocks:
        unique, code = np.unique(values, return_inverse=True)
        cluster_sizes = np.bincount(draws.cluster_index, minlength=draws.cluster_count).astype(np.float64)
        return cls(code.ravel(), len(unique), _count_labels(code.ravel(), len(unique), draws), cluster_sizes)

    def total(self, times: FloatArray) -> FloatArray:
        return np.asarray(times @ self.cluster_sizes, dtype=np.float64)

    def tied_pairs(self, times: FloatArray) -> FloatArray:
        """Number of pairs of observations in the same block."""
        size = self.counts @ times.T
        return np.asarray((np.einsum("nb,nb->b", size, size) - size.sum(axis=0)) / 2, dtype=np.float64)

    def ranks(self, times: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Twice the centred rank of each block (blocks, replicates), and its sum of squares over observations."""
        size = self.counts @ times.T
        rank = np.cumsum(size, axis=0)
        rank *= 2
        rank -= size
        rank -= size.sum(axis=0)
        return rank, np.einsum("nb,nb,nb->b", size, rank, rank)


def _concordance(ratings: _Blocks, scores: _Blocks, draws: Replicates) -> Compute:
    """C - D: concordant minus discordant pairs.

    The highest bit in which the codes of two ratings differ decides which rating is higher. For each bit, observations with equal
    higher bits are sorted by score, and running sums count for each observation with a 1 the lower ones with a 0, and vice versa.
    """
    steps = []
    for bit in range((ratings.blocks - 1).bit_length()):
        key = (ratings.code >> bit + 1) * scores.blocks + scores.code  # groups of equal higher bits, sorted by score
        keys, key_index = np.unique(key, return_inverse=True)
        start = np.flatnonzero(np.diff(keys // scores.blocks, prepend=-1))
        has_bit = (ratings.code >> bit & 1) == 1
        zeros, ones = (_count_labels(key_index.ravel(), len(keys), draws, mask) for mask in (~has_bit, has_bit))
        steps.append((zeros, ones, start))

    def compute_from(times: FloatArray) -> FloatArray:
        concordance = np.zeros(len(times))
        for zeros, ones, start in steps:
            size_0, size_1 = zeros @ times.T, ones @ times.T
            below_0, below_1 = np.cumsum(size_0, axis=0) - size_0, np.cumsum(size_1, axis=0) - size_1
            concordance += np.einsum("nb,nb->b", size_1, below_0) - np.einsum("nb,nb->b", size_0, below_1)
            # Exclude observations with other higher bits.
            outside_1 = (np.add.reduceat(size_1, start) * below_0[start]).sum(axis=0)
            outside_0 = (np.add.reduceat(size_0, start) * below_1[start]).sum(axis=0)
            concordance -= outside_1 - outside_0
        return concordance

    return compute_from


def _count_labels(label: IntArray, labels: int, draws: Replicates, mask: np.ndarray | None = None) -> sparse.csr_array:
    """Number of observations of each label in each cluster, shape (labels, clusters)."""
    selected = slice(None) if mask is None else mask
    weights = np.ones(len(label))[selected]
    return sparse.csr_array((weights, (label[selected], draws.cluster_index[selected])), shape=(labels, draws.cluster_count))


def _standardise(values: FloatArray) -> FloatArray:
    """Values with mean 0 and variance 1, so that sums of squares keep their precision; all 0 if constant."""
    scaled = np.ldexp(values, -np.frexp(np.abs(values).max())[1])  # exact, and keeps squares in range
    centred = scaled - scaled.mean()
    spread = centred.std()
    return np.asarray(centred / spread if values.min() < values.max() else np.zeros(len(values)), dtype=np.float64)


def _divide(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    quotient = np.divide(numerator, denominator, out=np.full(len(numerator), np.nan), where=denominator > 0)
    return np.asarray(np.clip(quotient, -1.0, 1.0), dtype=np.float64)
