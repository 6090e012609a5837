"""Uncertainty against the number of positives: the bins, their intervals, the correlation, and the picture."""

import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from scipy import stats

from crossmatch.core.errors import CrossmatchError
from crossmatch.report.analysis_page import as_svg, write
from crossmatch.report.uncertainty_plot import multiplicity, uncertainty_panel


def made(n=400, slope=0.5, seed=0):
    rng = np.random.default_rng(seed)
    positives = rng.geometric(0.15, n)
    return slope * np.log(positives) + rng.standard_normal(n), positives


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=50), st.integers(1, 12))
def test_bins_are_ordered_apart_and_hold_everything_once(positives, bins):
    positives = [*positives, 2, 3, 5, 8]  # so that they differ whatever item is left out
    unsure = np.random.default_rng(len(positives)).standard_normal(len(positives))
    found = multiplicity(unsure, positives, bins)
    assert found.items.sum() == len(positives)
    assert found.items.min() > 0
    assert len(found.items) <= bins
    assert (found.most[:-1] < found.least[1:]).all()  # equal numbers are never parted
    for least, most, items, mean, average in zip(found.least, found.most, found.items, found.mean, found.positives, strict=True):
        mine = (np.asarray(positives) >= least) & (np.asarray(positives) <= most)
        assert mine.sum() == items
        assert mean == pytest.approx(unsure[mine].mean())
        assert average == pytest.approx(np.asarray(positives)[mine].mean())


def test_bins_are_about_equal_where_all_numbers_differ():
    found = multiplicity(np.random.default_rng(0).standard_normal(100), np.random.default_rng(1).permutation(100), bins=5)
    assert found.items.tolist() == [20] * 5
    assert found.least.tolist() == [0, 20, 40, 60, 80]


def test_intervals_are_students_and_a_single_item_has_none():
    found = multiplicity([1.0, 3.0, 2.0, 9.0, 7.0], [1, 1, 1, 8, 5], bins=5)
    low, high = stats.t.interval(0.95, 2, loc=2.0, scale=stats.sem([1.0, 3.0, 2.0]))
    assert (found.low[0], found.high[0]) == pytest.approx((low, high))
    assert found.items.tolist() == [3, 1, 1]
    assert np.isnan(found.low[1:]).all()
    assert np.isnan(found.high[1:]).all()


def test_the_correlation_is_spearmans_and_its_interval_covers_it():
    unsure, positives = made()
    found = multiplicity(unsure, positives).spearman
    assert found.value == pytest.approx(stats.spearmanr(unsure, positives)[0])
    assert 0 < found.low < found.value < found.high < 1
    none = multiplicity(*made(slope=0.0)).spearman
    assert none.low < 0 < none.high


def test_items_of_one_cluster_do_not_make_it_surer():
    unsure, positives = made(100)
    once = multiplicity(unsure, positives).spearman
    told = multiplicity(np.repeat(unsure, 5), np.repeat(positives, 5), cluster=np.repeat(np.arange(100), 5)).spearman
    assert (told.value, told.low, told.high) == pytest.approx((once.value, once.low, once.high))


@pytest.mark.parametrize(
    ("unsure", "positives", "said"),
    [
        ([1.0, 2.0], [1, 2], "3 or longer"),
        ([1.0, 2.0, 3.0], [1, 2], "of one length"),
        ([1.0, np.nan, 3.0], [1, 2, 3], "NaN"),
        ([1.0, 2.0, 3.0], [1, -2, 3], "an item with -2 positives"),
        ([1.0, 2.0, 3.0], [1, 1.5, 3], "not whole"),
    ],
)
def test_what_cannot_be_compared_is_refused(unsure, positives, said):
    with pytest.raises(CrossmatchError, match=said):
        multiplicity(unsure, positives)


def test_the_picture_has_a_part_for_each_kind_of_item_with_its_correlation(tmp_path):
    found = {"images": multiplicity(*made()), "captions": multiplicity(*made(seed=1), bins=4)}
    figure = Figure()
    panel = uncertainty_panel(found, "captions that are true of the image")
    panel.draw(figure)
    assert [axes.get_title().split(":")[0] for axes in figure.axes] == ["images", "captions"]
    for axes, one in zip(figure.axes, found.values(), strict=True):
        assert f"ρ {one.spearman.value:.2f}" in axes.get_title()
        drawn = next(line for line in axes.lines if len(line.get_xdata()) == len(one.items) and line.get_marker() == "o")
        assert np.allclose(drawn.get_ydata(), one.mean)
        assert np.allclose(drawn.get_xdata(), one.positives)
    ElementTree.fromstring(as_svg(panel))
    assert write(tmp_path / "uncertainty.png", "Figure 3b", [], [panel]).read_bytes()[:4] == b"\x89PNG"
    ElementTree.fromstring(as_svg(uncertainty_panel({"one": multiplicity([1.0, 3.0, 2.0, 9.0, 7.0], [1, 1, 1, 80, 0], bins=5)})))
    with pytest.raises(CrossmatchError, match="multiplicity"):
        uncertainty_panel({})


def test_it_needs_no_torch():
    code = "import sys; import crossmatch.report.uncertainty_plot; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
