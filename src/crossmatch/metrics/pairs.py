"""The correlations of `correlation.py`, asked of rated pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from crossmatch.core.arrays import FloatArray
from crossmatch.core.pairs import Pairs
from crossmatch.metrics.correlation import Estimate, bootstrap_spearman, estimate, left_out


def of_samples(pairs: Pairs) -> FloatArray:
    """Spearman's r in each sample of half the queries with one pair each."""
    return bootstrap_spearman(pairs.query, pairs.human, pairs.model, pairs.samples, pairs.seed)


def of_all(pairs: Pairs, coefficient: str) -> Estimate:
    """A coefficient over all pairs; pairs of one query leave the jackknife together."""
    return estimate(coefficient, pairs.query, pairs.human, pairs.model, seed=pairs.seed)


@dataclass(frozen=True)
class Gap:
    """The difference of two coefficients over the same pairs, its interval, and the two-sided p-value."""

    low: float
    high: float
    p: float


def gap(coefficient: str, first: Pairs, second: Pairs) -> Gap:
    """Second minus first, by leaving the same groups of queries out of both (the jackknife of `correlation.estimate`).

        v = (G - 1)/G · Σ_g (d_(g) - d)²,     d ± t(G - 1) · √v,     p from Student's distribution of d / √v

    >>> rng = np.random.default_rng(0)
    >>> query, human = np.arange(500), rng.random(500)
    >>> noisy, noisier = (Pairs(query, human, human + s * rng.random(500)) for s in (0.5, 3))
    >>> gap("spearman", noisy, noisier).p < 0.001, gap("spearman", noisy, noisy).p
    (True, 1.0)
    """
    both = [left_out(coefficient, one.query, one.human, one.model, seed=one.seed) for one in (first, second)]
    (a, without_a), (b, without_b) = both
    groups = len(without_a)
    error = float(np.sqrt((groups - 1) / groups * np.square(without_b - without_a - (b - a)).sum()))
    reach = float(stdtrit(groups - 1, 0.975)) * error
    p = 2 * float(stdtr(groups - 1, -abs(b - a) / error)) if error else 1.0 if a == b else 0.0
    return Gap(b - a - reach, b - a + reach, p)
