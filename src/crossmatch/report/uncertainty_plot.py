"""Does a probabilistic model know how much an item may mean? Its uncertainty against the number of true matches. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from crossmatch.core.arrays import FloatArray, IntArray, as_whole, require_finite
from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics.correlation import Estimate, estimate
from crossmatch.metrics.significance import LEVEL
from crossmatch.report.analysis_page import Panel
from crossmatch.report.analysis_plots import INK, short
from crossmatch.report.plots import COLOURS

BINS = 10
FEWEST = 3  # items that a correlation needs


@dataclass(frozen=True, eq=False)
class Multiplicity:
    """The mean uncertainty of items with few and with many positives, and the correlation of the two over all items."""

    least: IntArray  # positives of an item of each bin, at least
    most: IntArray  # and at most
    positives: FloatArray  # and on average
    items: IntArray
    mean: FloatArray  # uncertainty
    low: FloatArray  # its interval; NaN in a bin of one item
    high: FloatArray
    spearman: Estimate


def multiplicity(
    uncertainty: ArrayLike, positives: ArrayLike, bins: int = BINS, cluster: ArrayLike | None = None, level: float = LEVEL
) -> Multiplicity:
    """Uncertainty against the number of positives of each item, in bins of about as many items each; equal numbers stay together.

    The interval of a bin is Student's, x̄ ± t(n − 1) s/√n; that of Spearman's r is by the jackknife over `cluster` (each item is one
    of its own, if not given; captions of one image should share theirs). Source: chun2022eccv, sec. 3.3 and Figure 3b, whose
    uncertainty is that of PCME for images and whose positives are captions.

    >>> found = multiplicity([0.1, 0.2, 0.2, 0.4, 0.5, 0.6], [1, 1, 1, 2, 9, 9], bins=2)
    >>> found.least.tolist(), found.most.tolist(), found.items.tolist(), found.mean.round(3).tolist()
    ([1, 2], [1, 9], [3, 3], [0.167, 0.5])
    >>> round(found.spearman.value, 3)
    0.939
    """
    unsure, count = np.asarray(uncertainty, dtype=np.float64), as_whole(positives, "numbers of positives")
    if unsure.ndim != 1 or unsure.shape != count.shape or len(unsure) < FEWEST:
        raise CrossmatchError(
            f"uncertainty has shape {unsure.shape} and the numbers of positives {count.shape}; "
            f"two flat lists of one length, {FEWEST} or longer, were expected."
        )
    if bins < 1 or count.min() < 0:
        raise CrossmatchError(f"{bins} bins, and an item with {count.min()} positives: 1 and 0 are the least that there can be.")
    require_finite(unsure, "uncertainties", "Check the model for NaN weights.")
    owner = np.arange(len(unsure)) if cluster is None else as_whole(cluster, "clusters")
    of = _bins(count, bins)
    items = np.bincount(of)

    def per_bin(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(of, values) / items)

    mean = per_bin(unsure)
    with np.errstate(invalid="ignore", divide="ignore"):  # one item has no spread
        error = np.sqrt(np.bincount(of, (unsure - mean[of]) ** 2) / (items - 1) / items)
        reach = stdtrit(np.maximum(items - 1, 1), (1 + level) / 2) * np.where(items > 1, error, np.nan)
    edges = [(int(count[of == b].min()), int(count[of == b].max())) for b in range(len(items))]
    least, most = np.asarray(edges, dtype=np.int64).T
    found = estimate("spearman", owner, count.astype(np.float64), unsure, level=level)
    return Multiplicity(least, most, per_bin(count.astype(np.float64)), items, mean, mean - reach, mean + reach, found)


def _bins(count: IntArray, bins: int) -> IntArray:
    """The bin of each item, from 0 on: a number of positives belongs where the middle one of its items falls."""
    _unique, member, times = np.unique(count, return_inverse=True, return_counts=True)
    middle = np.cumsum(times) - times / 2
    place = np.minimum((middle * bins / len(count)).astype(np.int64), bins - 1)
    return np.asarray(np.unique(place, return_inverse=True)[1][member.ravel()], dtype=np.int64)  # without empty ones


def uncertainty_panel(found: Mapping[str, Multiplicity], positives: str = "positives") -> Panel:
    """Mean uncertainty against the number of positives, side by side for each kind of item (chun2022eccv, fig. 3b)."""
    if not found:
        raise CrossmatchError("there is no uncertainty to draw; compute it with multiplicity.")

    def draw(figure: Any) -> None:
        for axes, (name, one) in zip(figure.subplots(1, len(found), squeeze=False)[0], found.items(), strict=True):
            reach = np.nan_to_num(np.stack([one.mean - one.low, one.high - one.mean]))
            across = np.stack([one.positives - one.least, one.most - one.positives])
            axes.errorbar(one.positives, one.mean, xerr=across, fmt="none", color=COLOURS[4], lw=1.0, alpha=0.6, zorder=2)
            axes.errorbar(one.positives, one.mean, yerr=reach, fmt="o-", ms=5, lw=1.6, capsize=2.5, color=COLOURS[0], zorder=3)
            for x, y, n in zip(one.positives, one.high, one.items, strict=True):
                if np.isfinite(y):
                    axes.annotate(f"{n:,}", (x, y), (0, 3), textcoords="offset points", ha="center", fontsize=7, color=INK)
            r = one.spearman
            axes.set_title(f"{short(name)}: ρ {r.value:.2f} [{r.low:.2f}, {r.high:.2f}]", fontsize=10)
            axes.set_xlabel(positives)
            axes.set_ylabel("mean uncertainty")
            if one.most.max() > 20 * max(1, one.least.min()):
                axes.set_xscale("symlog", linthresh=1)
                axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.margins(0.08)

    about = "Bins of about as many items each: mean with 95 % interval, number of items; pale: what a bin spans. ρ: Spearman's."
    return Panel("Is the model less sure of what has more matches?", about, 3.2, draw)
