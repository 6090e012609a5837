"""The pictures about caption metrics: what is in them, in which order, and that they can be written."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from crossmatch.captions.agree import EVERY
from crossmatch.captions.human_scale import human_scale
from crossmatch.captions.reference_curve import Point
from crossmatch.captions.sensitivity import BLIND, Noticed
from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics.proportion import share_of_alike
from crossmatch.report import caption_plots
from crossmatch.report.analysis_page import as_svg, write
from crossmatch.report.caption_plots import (
    Bar,
    curve_panel,
    difference_panel,
    forest_panel,
    histogram_panel,
    level_panel,
    sensitivity_panel,
)

METRICS = ("bleu-4", "cider-d")


def points(groups=("HC", "HI", EVERY), most=5):
    return [
        Point(metric, group, k, value, value - 0.05, value + 0.05, value - 0.02, value + 0.02, 1 if k == most else 9, 100, 0.0)
        for n, metric in enumerate(METRICS)
        for g, group in enumerate(groups)
        for k in range(1, most + 1)
        for value in [0.5 + 0.1 * n + 0.1 * g + 0.01 * k]
    ]


def noticed():
    parts = [("object", ""), ("action", ""), ("property", ""), ("property", "colour"), ("property", "size")]
    return [
        Noticed(metric, component, kind, share_of_alike(20 + 20 * n, 100), 0.25, 100)
        for n, metric in enumerate((*METRICS, BLIND))
        for component, kind in parts
    ]


def scales():
    rng = np.random.default_rng(0)
    ratings = rng.integers(1, 5, 300).astype(float)
    return {
        metric: human_scale(ratings + noise * rng.standard_normal(300), ratings)
        for metric, noise in zip(METRICS, (3, 1), strict=True)
    }


LEVELS = np.arange(1.0, 5)
PANELS = {
    "curve": lambda: curve_panel(points()),
    "one curve": lambda: curve_panel(points((EVERY,), 50), "Kendall's tau", 1.0),
    "components": lambda: sensitivity_panel(noticed()),
    "kinds": lambda: sensitivity_panel(noticed(), kinds=True),
    "differences": lambda: difference_panel(scales()),
    "levels": lambda: level_panel(METRICS, LEVELS, np.array([LEVELS / 9, LEVELS**2]), np.array([90, 50, 10, 5])),
    "forest": lambda: forest_panel(
        [Bar("bleu-4", 0.31, 0.29, 0.33, 0.138), Bar("cider-d", 0.44, 0.42, 0.46)], "Which?", "tau-c", 0.0
    ),
    "histogram": lambda: histogram_panel({"bleu-4": np.zeros(50), "cider-d": np.random.default_rng(1).gamma(1, 1, 500)}),
}


def drawn(panel):
    figure = Figure(figsize=(9, panel.height), layout="constrained")
    panel.draw(figure)
    return figure


@pytest.mark.parametrize("name", PANELS)
def test_every_picture_can_be_written_and_is_whole(name, tmp_path):
    panel = PANELS[name]()
    picture = write(tmp_path / "p.png", "", [], [panel]).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 5_000
    svg = ElementTree.fromstring(as_svg(panel))
    wide, high = (float(size) for size in svg.attrib["viewBox"].split()[2:])
    assert (wide, high) == pytest.approx((648, 72 * panel.height), rel=0.01)
    assert "nan" not in as_svg(panel)
    figure = drawn(panel)
    figure.canvas.draw()
    boxes = [axes.get_tightbbox() for axes in figure.axes if axes.get_visible() and axes.axison]
    for n, one in enumerate(boxes):
        for two in boxes[n + 1 :]:  # no label of one picture lies on another one
            assert min(one.x1, two.x1) - max(one.x0, two.x0) < 1 or min(one.y1, two.y1) - max(one.y0, two.y0) < 1


def test_a_curve_for_each_group_with_one_scale_and_the_best_first():
    figure = drawn(curve_panel(points()))
    shown = [axes for axes in figure.axes if axes.lines]
    assert [axes.get_title() for axes in shown] == ["mean of the groups", "HC", "HI"]
    spans = [np.ptp(axes.get_ylim()) for axes in shown]
    assert spans == pytest.approx([spans[0]] * 3)
    key = next(axes.get_legend() for axes in figure.axes if axes.get_legend())
    assert [text.get_text() for text in key.get_texts()] == ["cider-d", "bleu-4"]
    line = next(line for line in shown[1].lines if line.get_label() == "bleu-4")
    assert line.get_ydata().tolist() == pytest.approx([51, 52, 53, 54, 55])
    for axes in shown:
        for line in axes.lines:
            assert axes.get_ylim()[0] < min(line.get_ydata()) <= max(line.get_ydata()) < axes.get_ylim()[1]


NAN = float("nan")


def test_points_without_a_value_are_left_out():
    """Of the first number of references, of the last, and of a whole metric: the rest is drawn, and the scale holds it."""
    whole = points((EVERY,))
    lost = [(METRICS[0], 1), (METRICS[1], 5)]
    found = [
        replace(p, value=NAN, low=NAN, high=NAN, least=NAN, most=NAN) if (p.metric, p.references) in lost else p for p in whole
    ]
    panel = curve_panel(found)
    axes = drawn(panel).axes[0]
    lines = {line.get_label(): line for line in axes.lines if line.get_label() in METRICS}
    assert [lines[metric].get_xdata().tolist() for metric in METRICS] == [[2, 3, 4, 5], [1, 2, 3, 4]]
    assert "nan" not in as_svg(panel)
    assert axes.get_ylim()[1] > 100 * max(p.high for p in found if p.references == 4 and p.metric == METRICS[1])
    alone = [p for p in found if p.metric == METRICS[0]] + [replace(p, value=NAN) for p in whole if p.metric == METRICS[1]]
    assert [line.get_label() for line in drawn(curve_panel(alone)).axes[0].lines if line.get_label() in METRICS] == [METRICS[0]]
    with pytest.raises(CrossmatchError, match="no points"):
        curve_panel([replace(p, value=NAN) for p in whole])


def test_bands_are_claimed_only_where_there_are_some():
    panel = curve_panel(points())
    assert "one more random choice of references would lie with 95 %, by 9 of them" in panel.about
    single = curve_panel([replace(p, least=NAN, most=NAN, draws=1) for p in points()])
    assert "Bands" not in single.about
    assert "Bars at the right" in single.about
    for one, bands in ((panel, 3 * len(METRICS)), (single, 0)):
        held = [each for axes in drawn(one).axes for each in axes.collections]
        assert sum(isinstance(each, PolyCollection) for each in held) == bands
    assert "nan" not in as_svg(single)


def test_many_references_have_few_ticks():
    figure = drawn(curve_panel(points((EVERY,), 50)))
    assert figure.axes[0].get_xticks().tolist() == [1, 10, 20, 30, 40, 50]


def test_bars_fill_the_whole_and_chance_is_marked():
    figure = drawn(sensitivity_panel(noticed()))
    assert [axes.get_title() for axes in figure.axes] == ["object  (100)", "action  (100)", "property  (100)"]
    for axes in figure.axes:
        widths = [patch.get_width() for patch in axes.patches]
        assert sum(widths) == pytest.approx(300)
        assert widths[:3] == pytest.approx([20, 25, 55])
        assert any(line.get_linestyle() == ":" and set(line.get_xdata()) == {50.0} for line in axes.lines)
    assert [axes.get_title() for axes in drawn(sensitivity_panel(noticed(), kinds=True)).axes] == ["colour  (100)", "size  (100)"]


def test_differences_hold_all_ratings():
    figure = drawn(difference_panel(scales()))
    for axes in figure.axes:
        assert sum(patch.get_height() for patch in axes.patches) == pytest.approx(100)
        dark = [patch for patch in axes.patches if patch.get_facecolor() != axes.patches[0].get_facecolor()]
        assert [round(patch.get_x() + patch.get_width() / 2, 9) for patch in dark] == [0]


def test_a_forest_is_sorted():
    figure = drawn(PANELS["forest"]())
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["cider-d", "bleu-4"]


NOTHING = {"curve": ([],), "sensitivity": ([],), "difference": ({},), "forest": ([], "", ""), "histogram": ({},)}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_cannot_be_drawn(name):
    with pytest.raises(CrossmatchError, match=r"there (is|are) (no|nothing)"):
        getattr(caption_plots, f"{name}_panel")(*NOTHING[name])
