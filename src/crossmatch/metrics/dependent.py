"""Whether two correlations with the same variable differ, when they are taken on the same observations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from crossmatch.core.errors import CrossmatchError

FEWEST = 4  # observations: t has n - 3 degrees of freedom
ROUNDING = 1e-12  # correlations closer than this are equal, and determinants as small are 0


@dataclass(frozen=True)
class Williams:
    """Williams' t, its degrees of freedom, and the two-sided p."""

    t: float
    freedom: int
    p: float


def williams(first: float, second: float, between: float, n: int) -> Williams:
    """Williams' test of the difference between two dependent correlations that share one variable.

        t(n - 3) = (r₁ - r₂) √( (n - 1)(1 + r₁₂) / (2 K (n - 1)/(n - 3) + (r₁ + r₂)²/4 · (1 - r₁₂)³) )
        K = 1 - r₁² - r₂² - r₁₂² + 2 r₁ r₂ r₁₂

    r₁ and r₂ are Pearson's correlations of two metrics with people, r₁₂ that between the metrics, all of the same n observations:
    the more alike the metrics, the smaller the difference that can be told. It is derived for Pearson's r of independent, normal
    observations; for rank correlations, and for captions that share an image, take the bootstrap over images beside it.
    K is a determinant, 0 where any two of the three lists give the third. Equal r have t = 0 and p = 1, as those of two metrics
    that are equal but for their scale (r₁₂ = 1, but for rounding); others whose difference has no variance have t = ±∞ and p = 0.
    Source: williams1959comparison; steiger1980tests, eq. 7; graham2014testing.

    >>> found = williams(0.5, 0.4, 0.7, 103)
    >>> round(found.t, 3), found.freedom, round(found.p, 4)
    (1.49, 100, 0.1393)
    """
    if n < FEWEST:
        raise CrossmatchError(f"Williams' test was given {n} observations; {FEWEST} are the fewest. Give more captions.")
    for r in (first, second, between):
        if not -1 <= r <= 1:
            raise CrossmatchError(f"Williams' test was given a correlation of {r}; -1 to 1 was expected.")
    k = 1 - first**2 - second**2 - between**2 + 2 * first * second * between
    if k < -1e-9:  # more than rounding
        raise CrossmatchError(
            f"Williams' test was given correlations of {first:g}, {second:g} and {between:g}, which no three lists can have. "
            "Take all three on the same observations."
        )
    if abs(first - second) <= ROUNDING:
        return Williams(0.0, n - 3, 1.0)
    below = 2 * (k if k > ROUNDING else 0.0) * (n - 1) / (n - 3) + (first + second) ** 2 / 4 * (1 - between) ** 3
    t = (first - second) * np.sqrt((n - 1) * (1 + between) / below) if below > 0 else np.copysign(np.inf, first - second)
    return Williams(float(t), n - 3, float(2 * stdtr(n - 3, -abs(t))))
