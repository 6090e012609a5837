"""R-precision where the positives are too many to list: plausible matches."""

from __future__ import annotations

import numpy as np

from crossmatch.core.arrays import FloatArray
from crossmatch.core.cuts import Cuts
from crossmatch.core.errors import WrongWords


def plausible_precision(cuts: Cuts, k: int = 0) -> FloatArray:
    """Plausible-match R-precision of each query, the mean over the zetas that the cuts hold.

        PMRP = 1/|Z| Σ_ζ 1/K_ζ Σ_{i <= K_ζ} m_i,      K_ζ = R_ζ (chun2021pcme), or min(R_ζ, k) (chun2022eccv, sec. 4.1)

    >>> plausible_precision(Cuts(*(np.array([[[n]]]) for n in (3, 2, 4, 1, 2)), np.array([[3]]), np.array([9])))
    array([0.5])
    """
    if k not in cuts.caps:
        known = ", ".join("pmrp" if cap == 0 else f"pmrp@{cap}" for cap in cuts.caps)
        raise WrongWords(f"pmrp@{k} was not asked of the data; it has {known}.")
    at = cuts.caps.index(k)
    return np.asarray((cuts.found[at] / cuts.k[at]).mean(axis=0), dtype=np.float64)
