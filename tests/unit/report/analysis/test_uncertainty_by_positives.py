"""Uncertainty by number of positives: bins, intervals, correlation and figure."""

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy import stats

from crossmatch.data.errors import CrossmatchError
from crossmatch.report.analysis.uncertainty_by_positives import bin_uncertainty, uncertainty_panel
from crossmatch.report.pages import panel_svg, write_analysis


def make_items(n=400, slope=0.5, seed=0):
    rng = np.random.default_rng(seed)
    positives = rng.geometric(0.15, n)
    return slope * np.log(positives) + rng.standard_normal(n), positives


@given(st.lists(st.integers(0, 6), max_size=50), st.integers(1, 12))
def test_bins_are_ordered_and_disjoint(positives, bins):
    positives = [*positives, 2, 3, 5, 8]  # so that they differ whatever item is left out
    uncertainty = np.random.default_rng(len(positives)).standard_normal(len(positives))
    result = bin_uncertainty(uncertainty, positives, bins)
    assert result.items.sum() == len(positives)
    assert result.items.min() > 0
    assert len(result.items) <= bins
    assert (result.most[:-1] < result.least[1:]).all()  # equal numbers are never parted
    for least, most, items, mean, average in zip(
        result.least, result.most, result.items, result.mean, result.positives, strict=True
    ):
        in_bin = (np.asarray(positives) >= least) & (np.asarray(positives) <= most)
        assert in_bin.sum() == items
        assert mean == pytest.approx(uncertainty[in_bin].mean())
        assert average == pytest.approx(np.asarray(positives)[in_bin].mean())


def test_bins_of_distinct_numbers_are_equal_in_size():
    result = bin_uncertainty(np.random.default_rng(0).standard_normal(100), np.random.default_rng(1).permutation(100), bins=5)
    assert result.items.tolist() == [20] * 5
    assert result.least.tolist() == [0, 20, 40, 60, 80]


def test_intervals_are_students():
    result = bin_uncertainty([1.0, 3.0, 2.0, 9.0, 7.0], [1, 1, 1, 8, 5], bins=5)
    low, high = stats.t.interval(0.95, 2, loc=2.0, scale=stats.sem([1.0, 3.0, 2.0]))
    assert (result.low[0], result.high[0]) == pytest.approx((low, high))
    assert result.items.tolist() == [3, 1, 1]
    assert np.isnan(result.low[1:]).all()
    assert np.isnan(result.high[1:]).all()


def test_correlation_is_spearmans():
    uncertainty, positives = make_items()
    result = bin_uncertainty(uncertainty, positives).spearman
    assert result.value == pytest.approx(stats.spearmanr(uncertainty, positives)[0])
    assert 0 < result.low < result.value < result.high < 1
    uncorrelated = bin_uncertainty(*make_items(slope=0.0)).spearman
    assert uncorrelated.low < 0 < uncorrelated.high


def test_repeated_items_of_a_cluster_do_not_narrow_the_interval():
    uncertainty, positives = make_items(100)
    single = bin_uncertainty(uncertainty, positives).spearman
    repeated = bin_uncertainty(np.repeat(uncertainty, 5), np.repeat(positives, 5), cluster=np.repeat(np.arange(100), 5)).spearman
    assert (repeated.value, repeated.low, repeated.high) == pytest.approx((single.value, single.low, single.high))


@pytest.mark.parametrize(
    ("uncertainty", "positives", "message"),
    [
        ([1.0, 2.0], [1, 2], "at least 3"),
        ([1.0, 2.0, 3.0], [1, 2], "of the same length"),
        ([1.0, np.nan, 3.0], [1, 2, 3], "NaN"),
        ([1.0, 2.0, 3.0], [1, -2, 3], "got 10 and -2"),
        ([1.0, 2.0, 3.0], [1, 1.5, 3], "not whole"),
    ],
)
def test_invalid_input_is_an_error(uncertainty, positives, message):
    with pytest.raises(CrossmatchError, match=message):
        bin_uncertainty(uncertainty, positives)


def test_panel_has_axes_for_each_kind_of_item(tmp_path):
    result = {"images": bin_uncertainty(*make_items()), "captions": bin_uncertainty(*make_items(seed=1), bins=4)}
    figure = Figure()
    panel = uncertainty_panel(result, "captions that are true of the image")
    panel.draw(figure)
    assert [axes.get_title().split(":")[0] for axes in figure.axes] == ["images", "captions"]
    for axes, item_bins in zip(figure.axes, result.values(), strict=True):
        assert f"ρ {item_bins.spearman.value:.2f}" in axes.get_title()
        curve = next(line for line in axes.lines if len(line.get_xdata()) == len(item_bins.items) and line.get_marker() == "o")
        assert np.allclose(curve.get_ydata(), item_bins.mean)
        assert np.allclose(curve.get_xdata(), item_bins.positives)
    ElementTree.fromstring(panel_svg(panel))
    assert write_analysis(tmp_path / "uncertainty.png", "Figure 3b", [], [panel]).read_bytes()[:4] == b"\x89PNG"
    ElementTree.fromstring(
        panel_svg(uncertainty_panel({"one": bin_uncertainty([1.0, 3.0, 2.0, 9.0, 7.0], [1, 1, 1, 80, 0], bins=5)}))
    )
    with pytest.raises(CrossmatchError, match="bin_uncertainty"):
        uncertainty_panel({})
