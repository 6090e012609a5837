"""Four correlations of two lists in thousands of replicates (bootstrap or jackknife), with ties, by counting instead of sorting.

A replicate gives every cluster a number of times w. All that a rank correlation needs of it are sums of w over blocks of equal
values, and these are one sparse product for all replicates; the orders of the values never change and are found once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import sparse

from crossmatch.core.arrays import FloatArray, IntArray, require_finite
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.metrics.jackknife import LeftOut
from crossmatch.metrics.significance import Draws

Replicates: TypeAlias = Draws | LeftOut  # how often each cluster counts in each replicate
HELD = 1 << 19  # numbers in one array at a time: fits the cache, changes no value


def correlations(
    human: FloatArray, model: FloatArray, draws: Replicates, names: tuple[str, ...] = ("tau-b", "tau-c", "spearman", "pearson")
) -> tuple[FloatArray, FloatArray]:
    """The coefficients of these names, shape (names,), and in each replicate of the clusters, shape (names, samples).

        tau-b = (C - D) / √((n₀ - t_h)(n₀ - t_m)),   n₀ = n(n - 1)/2
        tau-c = 2 m (C - D) / (n² (m - 1))
        spearman, pearson: Pearson's r of the ranks (ties with their mean) and of the values

    C and D count the pairs of observations that both lists order alike and unlike, t_h and t_m those level in one list, and m is
    the smaller number of different values in a list: tau-c reaches 1 in a table that is not square, where tau-b cannot.
    Replicates draw clusters anew (`Draws`) or leave some out in turn (`LeftOut`). An observation drawn twice is two that are level
    with one another. m is that of the whole list in every replicate. A replicate in which all values of a list are equal has no
    correlation: NaN, which the caller must expect.
    Source: kendall1945treatment; stuart1953estimation (tau-c); spearman1904proof.

    >>> human, model = np.array([1.0, 2, 2, 4]), np.array([0.1, 0.2, 0.3, 0.9])
    >>> values, drawn = correlations(human, model, Draws.of(np.arange(4), samples=5))
    >>> values.round(4), drawn.shape
    (array([0.9129, 0.9375, 0.9487, 0.9766]), (4, 5))
    """
    unknown = next((name for name in names if name not in COEFFICIENTS), None)
    if unknown is not None:
        raise WrongWords(f"there is no correlation coefficient {unknown!r}; there are {', '.join(COEFFICIENTS)}.")
    asked = {family: prepare for family, prepare in FAMILIES.items() if set(family) & set(names)}
    human, model = np.asarray(human, dtype=np.float64), np.asarray(model, dtype=np.float64)
    if human.ndim != 1 or human.shape != model.shape or human.shape != draws.member.shape:
        raise CrossmatchError(
            f"ratings of shape {human.shape}, scores {model.shape} and clusters {draws.member.shape}; "
            "three flat lists of one length were expected."
        )
    require_finite(human, "ratings", "Leave captions without a rating out.")
    require_finite(model, "scores", "Check what the metric gives for these captions.")
    order = [name for family in asked for name in family]
    prepared = [prepare(human, model, draws) for prepare in asked.values()]

    def computed(times: FloatArray) -> FloatArray:
        rows = dict(zip(order, np.concatenate([of_times(times) for of_times in prepared]), strict=True))
        return np.stack([rows[name] for name in names])

    size = max(1, HELD // len(human))
    drawn = [computed(part) for times in draws for part in np.array_split(times, -(-len(times) // size))]
    return computed(np.ones((1, draws.clusters)))[:, 0], np.concatenate(drawn, axis=1)


OfTimes = Callable[[FloatArray], FloatArray]  # from times of each cluster (replicates, clusters) to (coefficients, replicates)


def _taus(human: FloatArray, model: FloatArray, draws: Replicates) -> OfTimes:
    levels, scores = _Blocks.of(human, draws), _Blocks.of(model, draws)
    ordered = _ordered(levels, scores, draws)
    m = min(levels.blocks, scores.blocks)

    def of_times(times: FloatArray) -> FloatArray:
        n, alike = levels.total(times), ordered(times)
        all_pairs = n * (n - 1) / 2
        untied = np.sqrt((all_pairs - levels.level(times)) * (all_pairs - scores.level(times)))
        return np.stack([_divided(alike, untied), _divided(2 * m * alike, np.where(untied > 0, n * n * (m - 1), 0.0))])

    return of_times


def _spearman(human: FloatArray, model: FloatArray, draws: Replicates) -> OfTimes:
    levels, scores = _Blocks.of(human, draws), _Blocks.of(model, draws)
    cells, cell = np.unique(levels.code * scores.blocks + scores.code, return_inverse=True)
    in_cell = _counts(cell.ravel(), len(cells), draws)
    level, score = cells // scores.blocks, cells % scores.blocks

    def of_times(times: FloatArray) -> FloatArray:
        (a, aa), (b, bb) = levels.ranks(times), scores.ranks(times)
        both = in_cell @ times.T
        both *= a[level]
        both *= b[score]
        return _divided(both.sum(axis=0), np.sqrt(aa * bb))[None]

    return of_times


def _pearson(human: FloatArray, model: FloatArray, draws: Replicates) -> OfTimes:
    h, m = _standard(human), _standard(model)
    parts = (np.ones(len(h)), h, m, h * h, m * m, h * m)
    sums = np.stack([np.bincount(draws.member, part, draws.clusters) for part in parts], axis=1)

    def of_times(times: FloatArray) -> FloatArray:
        n, h, m, hh, mm, hm = (times @ sums).T
        vary_h, vary_m = n * hh - h * h, n * mm - m * m
        slight = 1e-12 * n * n  # what rounding leaves of no variance at all, of values whose variance is 1
        return _divided(n * hm - h * m, np.sqrt(np.where(vary_h > slight, vary_h, 0) * np.where(vary_m > slight, vary_m, 0)))[None]

    return of_times


FAMILIES: Mapping[tuple[str, ...], Callable[[FloatArray, FloatArray, Replicates], OfTimes]] = {
    ("tau-b", "tau-c"): _taus,
    ("spearman",): _spearman,
    ("pearson",): _pearson,
}
COEFFICIENTS = tuple(name for family in FAMILIES for name in family)


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Blocks of equal values in ascending order, and how many observations of each a replicate has."""

    code: IntArray  # of each observation: its block
    blocks: int
    counts: sparse.csr_array  # (blocks, clusters)
    each: FloatArray  # of each cluster: its observations

    @classmethod
    def of(cls, values: FloatArray, draws: Replicates) -> _Blocks:
        unique, code = np.unique(values, return_inverse=True)
        each = np.bincount(draws.member, minlength=draws.clusters).astype(np.float64)
        return cls(code.ravel(), len(unique), _counts(code.ravel(), len(unique), draws), each)

    def total(self, times: FloatArray) -> FloatArray:
        return np.asarray(times @ self.each, dtype=np.float64)

    def level(self, times: FloatArray) -> FloatArray:
        """The pairs of observations in the same block."""
        size = self.counts @ times.T
        return np.asarray((np.einsum("nb,nb->b", size, size) - size.sum(axis=0)) / 2, dtype=np.float64)

    def ranks(self, times: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Twice the rank less the mean rank of each block (blocks, replicates), and its sum of squares over observations."""
        size = self.counts @ times.T
        rank = np.cumsum(size, axis=0)
        rank *= 2
        rank -= size
        rank -= size.sum(axis=0)
        return rank, np.einsum("nb,nb,nb->b", size, rank, rank)


def _ordered(levels: _Blocks, scores: _Blocks, draws: Replicates) -> OfTimes:
    """C - D: pairs ordered alike less pairs ordered unlike.

    Ratings as binary numbers: the highest bit in which two differ decides which is the higher. So for each bit, among observations
    whose higher bits are equal, those with a 1 are compared with those with a 0, in the order of their scores; a running sum counts
    for each the lower ones of the other kind. As many steps as the number of different ratings has bits.
    """
    steps = []
    for bit in range((levels.blocks - 1).bit_length()):
        key = (levels.code >> bit + 1) * scores.blocks + scores.code  # equal higher bits together, by score
        places, place = np.unique(key, return_inverse=True)
        start = np.flatnonzero(np.diff(places // scores.blocks, prepend=-1))
        one = (levels.code >> bit & 1) == 1
        steps.append((_counts(place.ravel(), len(places), draws, ~one), _counts(place.ravel(), len(places), draws, one), start))

    def of_times(times: FloatArray) -> FloatArray:
        found = np.zeros(len(times))
        for zeros, ones, start in steps:
            zero, one = zeros @ times.T, ones @ times.T
            below_zero, below_one = np.cumsum(zero, axis=0) - zero, np.cumsum(one, axis=0) - one
            found += np.einsum("nb,nb->b", one, below_zero) - np.einsum("nb,nb->b", zero, below_one)
            first_zero, first_one = below_zero[start], below_one[start]  # those with other higher bits do not count
            found -= (np.add.reduceat(one, start) * first_zero).sum(axis=0) - (np.add.reduceat(zero, start) * first_one).sum(axis=0)
        return found

    return of_times


def _counts(label: IntArray, labels: int, draws: Replicates, which: np.ndarray | None = None) -> sparse.csr_array:
    """How many observations each cluster has of each label, shape (labels, clusters)."""
    at = slice(None) if which is None else which
    one = np.ones(len(label))[at]
    return sparse.csr_array((one, (label[at], draws.member[at])), shape=(labels, draws.clusters))


def _standard(values: FloatArray) -> FloatArray:
    """With mean 0 and variance 1, so that sums of squares lose nothing; all 0 if all are equal."""
    scaled = np.ldexp(values, -np.frexp(np.abs(values).max())[1])  # a power of two is exact, and keeps squares in range
    centred = scaled - scaled.mean()
    spread = centred.std()
    return np.asarray(centred / spread if values.min() < values.max() else np.zeros(len(values)), dtype=np.float64)


def _divided(top: FloatArray, below: FloatArray) -> FloatArray:
    found = np.divide(top, below, out=np.full(len(top), np.nan), where=below > 0)
    return np.asarray(np.clip(found, -1.0, 1.0), dtype=np.float64)
