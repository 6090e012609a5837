"""Uncertainty of a probabilistic model as a function of the number of positives of an item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from crossmatch.data.arrays import FloatArray, IntArray, as_integers, require_finite
from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.cluster_bootstrap import CONFIDENCE_LEVEL
from crossmatch.metrics.correlation.correlation_with_ratings import CorrelationEstimate, estimate_correlation
from crossmatch.report.pages import Panel
from crossmatch.report.result_plots import COLOURS, DARK, shorten

BINS = 10
MIN_ITEMS = 3  # for a correlation


@dataclass(frozen=True, eq=False)
class UncertaintyBins:
    """The mean uncertainty in bins of items by number of positives, and the correlation of the two over all items."""

    least: IntArray  # the smallest number of positives in each bin
    most: IntArray  # the largest number of positives in each bin
    positives: FloatArray  # the mean number of positives in each bin
    items: IntArray  # the number of items in each bin
    mean: FloatArray  # the mean uncertainty of each bin
    low: FloatArray  # its interval; NaN in a bin with one item
    high: FloatArray
    spearman: CorrelationEstimate


def bin_uncertainty(
    uncertainty: ArrayLike, positives: ArrayLike, bins: int = BINS, cluster: ArrayLike | None = None
) -> UncertaintyBins:
    """Mean uncertainty in bins of about equally many items, by number of positives; equal numbers share a bin.

    The interval of a bin is Student's, x̄ ± t(n − 1) s/√n. That of Spearman's r comes from the jackknife over clusters.

    The cluster of an item is for example the image of a caption; by default every item is a cluster.

    Source: chun2022eccv, sec. 3.3 and Figure 3b, for PCME's uncertainty of images and the number of their captions.

    >>> bins = bin_uncertainty([0.1, 0.2, 0.2, 0.4, 0.5, 0.6], [1, 1, 1, 2, 9, 9], bins=2)
    >>> bins.least.tolist(), bins.most.tolist(), bins.items.tolist(), bins.mean.round(3).tolist()
    ([1, 2], [1, 9], [3, 3], [0.167, 0.5])
    >>> round(bins.spearman.value, 3)
    0.939
    """
    values, count = np.asarray(uncertainty, dtype=np.float64), as_integers(positives, "numbers of positives")
    if values.ndim != 1 or values.shape != count.shape or len(values) < MIN_ITEMS:
        raise CrossmatchError(
            f"Expected two flat lists of the same length, at least {MIN_ITEMS}, "
            f"got shapes {values.shape} (uncertainty) and {count.shape} (positives)."
        )
    if bins < 1 or count.min() < 0:
        raise CrossmatchError(f"Expected at least 1 bin and at least 0 positives per item, got {bins} and {count.min()}.")
    require_finite(values, "uncertainties", "Check the model for NaN weights.")
    owner = np.arange(len(values)) if cluster is None else as_integers(cluster, "clusters")
    bin_index = _assign_bins(count, bins)
    items = np.bincount(bin_index)

    def mean_per_bin(numbers: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(bin_index, numbers) / items)

    mean = mean_per_bin(values)
    with np.errstate(invalid="ignore", divide="ignore"):  # a single item has no standard error
        error = np.sqrt(np.bincount(bin_index, (values - mean[bin_index]) ** 2) / (items - 1) / items)
        reach = stdtrit(np.maximum(items - 1, 1), (1 + CONFIDENCE_LEVEL) / 2) * np.where(items > 1, error, np.nan)
    edges = [(int(count[bin_index == b].min()), int(count[bin_index == b].max())) for b in range(len(items))]
    least, most = np.asarray(edges, dtype=np.int64).T
    spearman = estimate_correlation("spearman", owner, count.astype(np.float64), values, level=CONFIDENCE_LEVEL)
    return UncertaintyBins(least, most, mean_per_bin(count.astype(np.float64)), items, mean, mean - reach, mean + reach, spearman)


def _assign_bins(count: IntArray, bins: int) -> IntArray:
    """The bin of each item. All items with the same number of positives are in the bin of their median."""
    _unique, member, times = np.unique(count, return_inverse=True, return_counts=True)
    middle = np.cumsum(times) - times / 2
    bin_number = np.minimum((middle * bins / len(count)).astype(np.int64), bins - 1)
    return np.asarray(np.unique(bin_number, return_inverse=True)[1][member.ravel()], dtype=np.int64)  # without empty bins


def uncertainty_panel(bins_by_name: Mapping[str, UncertaintyBins], positives: str = "positives") -> Panel:
    """Mean uncertainty as a function of the number of positives, for each kind of item (chun2022eccv, fig. 3b)."""
    if not bins_by_name:
        raise CrossmatchError("There is no uncertainty to draw. Compute it with bin_uncertainty.")

    def draw(figure: Any) -> None:
        grid = figure.subplots(1, len(bins_by_name), squeeze=False)[0]
        for axes, (name, bins) in zip(grid, bins_by_name.items(), strict=True):
            reach = np.nan_to_num(np.stack([bins.mean - bins.low, bins.high - bins.mean]))
            across = np.stack([bins.positives - bins.least, bins.most - bins.positives])
            axes.errorbar(bins.positives, bins.mean, xerr=across, fmt="none", color=COLOURS[4], lw=1.0, alpha=0.6, zorder=2)
            axes.errorbar(bins.positives, bins.mean, yerr=reach, fmt="o-", ms=5, lw=1.6, capsize=2.5, color=COLOURS[0], zorder=3)
            for x, y, n in zip(bins.positives, bins.high, bins.items, strict=True):
                if np.isfinite(y):
                    axes.annotate(f"{n:,}", (x, y), (0, 3), textcoords="offset points", ha="center", fontsize=7, color=DARK)
            r = bins.spearman
            axes.set_title(f"{shorten(name)}: ρ {r.value:.2f} [{r.low:.2f}, {r.high:.2f}]", fontsize=10)
            axes.set_xlabel(positives)
            axes.set_ylabel("mean uncertainty")
            if bins.most.max() > 20 * max(1, bins.least.min()):
                axes.set_xscale("symlog", linthresh=1)
                axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.margins(0.08)

    description = (
        "Bins of about equally many items: mean with 95 % interval, and number of items. Pale: range of a bin. ρ: Spearman's r."
    )
    return Panel("Does uncertainty grow with the number of matches?", description, 3.2, draw)
