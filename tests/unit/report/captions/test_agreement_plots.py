"""Figures about caption metrics: their content, order and files."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from crossmatch.captions.human.metric_agreement import GROUP_MEAN
from crossmatch.captions.human.rating_scale_matching import match_rating_scale
from crossmatch.captions.human.reference_curve import CurvePoint
from crossmatch.captions.human.sensitivity import FREQUENCY_SCORER, SensitivityRow
from crossmatch.metrics.proportions import independent_proportion
from crossmatch.report.captions.agreement_plots import (
    ForestBar,
    curve_panel,
    difference_panel,
    forest_panel,
    histogram_panel,
    level_panel,
    sensitivity_panel,
)
from crossmatch.report.pages import panel_svg, write_analysis

METRICS = ("bleu-4", "cider-d")


def points(groups=("HC", "HI", GROUP_MEAN), most=5):
    return [
        CurvePoint(metric, group, k, value, value - 0.05, value + 0.05, value - 0.02, value + 0.02, 1 if k == most else 9, 100, 0.0)
        for n, metric in enumerate(METRICS)
        for g, group in enumerate(groups)
        for k in range(1, most + 1)
        for value in [0.5 + 0.1 * n + 0.1 * g + 0.01 * k]
    ]


def sensitivity_rows():
    parts = [("object", ""), ("action", ""), ("property", ""), ("property", "colour"), ("property", "size")]
    return [
        SensitivityRow(metric, component, kind, independent_proportion(20 + 20 * n, 100), 0.25, 100)
        for n, metric in enumerate((*METRICS, FREQUENCY_SCORER))
        for component, kind in parts
    ]


def scales():
    rng = np.random.default_rng(0)
    ratings = rng.integers(1, 5, 300).astype(float)
    return {
        metric: match_rating_scale(ratings + noise * rng.standard_normal(300), ratings)
        for metric, noise in zip(METRICS, (3, 1), strict=True)
    }


LEVELS = np.arange(1.0, 5)
PANELS = {
    "curve": lambda: curve_panel(points()),
    "one curve": lambda: curve_panel(points((GROUP_MEAN,), 50), "Kendall's tau", 1.0),
    "components": lambda: sensitivity_panel(sensitivity_rows()),
    "kinds": lambda: sensitivity_panel(sensitivity_rows(), kinds=True),
    "differences": lambda: difference_panel(scales()),
    "levels": lambda: level_panel(METRICS, LEVELS, np.array([LEVELS / 9, LEVELS**2]), np.array([90, 50, 10, 5])),
    "forest": lambda: forest_panel(
        [ForestBar("bleu-4", 0.31, 0.29, 0.33, 0.138), ForestBar("cider-d", 0.44, 0.42, 0.46)], "Which?", "tau-c", 0.0
    ),
    "histogram": lambda: histogram_panel({"bleu-4": np.zeros(50), "cider-d": np.random.default_rng(1).gamma(1, 1, 500)}),
}


def draw(panel):
    figure = Figure(figsize=(9, panel.height), layout="constrained")
    panel.draw(figure)
    return figure


@pytest.mark.parametrize("name", PANELS)
def test_every_panel_can_be_written_without_overlap(name, tmp_path):
    panel = PANELS[name]()
    picture = write_analysis(tmp_path / "p.png", "", [], [panel]).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 5_000
    svg = ElementTree.fromstring(panel_svg(panel))
    width, height = (float(size) for size in svg.attrib["viewBox"].split()[2:])
    assert (width, height) == pytest.approx((648, 72 * panel.height), rel=0.01)
    assert "nan" not in panel_svg(panel)
    figure = draw(panel)
    figure.canvas.draw()
    boxes = [axes.get_tightbbox() for axes in figure.axes if axes.get_visible() and axes.axison]
    for n, box in enumerate(boxes):
        for other_box in boxes[n + 1 :]:  # no label of one picture lies on another one
            assert (
                min(box.x1, other_box.x1) - max(box.x0, other_box.x0) < 1
                or min(box.y1, other_box.y1) - max(box.y0, other_box.y0) < 1
            )


def test_curves_of_groups_have_equal_scales():
    figure = draw(curve_panel(points()))
    with_lines = [axes for axes in figure.axes if axes.lines]
    assert [axes.get_title() for axes in with_lines] == ["mean of the groups", "HC", "HI"]
    spans = [np.ptp(axes.get_ylim()) for axes in with_lines]
    assert spans == pytest.approx([spans[0]] * 3)
    legend = next(axes.get_legend() for axes in figure.axes if axes.get_legend())
    assert [text.get_text() for text in legend.get_texts()] == ["cider-d", "bleu-4"]
    line = next(line for line in with_lines[1].lines if line.get_label() == "bleu-4")
    assert line.get_ydata().tolist() == pytest.approx([51, 52, 53, 54, 55])
    for axes in with_lines:
        for line in axes.lines:
            assert axes.get_ylim()[0] < min(line.get_ydata()) <= max(line.get_ydata()) < axes.get_ylim()[1]


NAN = float("nan")


def test_points_without_a_value_are_left_out():
    """Missing values at the first and last number of references, and of a whole metric."""
    all_points = points((GROUP_MEAN,))
    missing = [(METRICS[0], 1), (METRICS[1], 5)]
    with_gaps = [
        replace(p, value=NAN, low=NAN, high=NAN, draw_low=NAN, draw_high=NAN) if (p.metric, p.references) in missing else p
        for p in all_points
    ]
    panel = curve_panel(with_gaps)
    axes = draw(panel).axes[0]
    lines = {line.get_label(): line for line in axes.lines if line.get_label() in METRICS}
    assert [lines[metric].get_xdata().tolist() for metric in METRICS] == [[2, 3, 4, 5], [1, 2, 3, 4]]
    assert "nan" not in panel_svg(panel)
    assert axes.get_ylim()[1] > 100 * max(p.high for p in with_gaps if p.references == 4 and p.metric == METRICS[1])
    alone = [p for p in with_gaps if p.metric == METRICS[0]] + [replace(p, value=NAN) for p in all_points if p.metric == METRICS[1]]
    assert [line.get_label() for line in draw(curve_panel(alone)).axes[0].lines if line.get_label() in METRICS] == [METRICS[0]]


def test_bands_are_described_only_if_drawn():
    panel = curve_panel(points())
    assert "prediction interval of one more draw of references, from 9 draws" in panel.description
    single = curve_panel([replace(p, draw_low=NAN, draw_high=NAN, draws=1) for p in points()])
    assert "Bands" not in single.description
    assert "Bars at the right" in single.description
    for drawn_panel, bands in ((panel, 3 * len(METRICS)), (single, 0)):
        collections = [item for axes in draw(drawn_panel).axes for item in axes.collections]
        assert sum(isinstance(item, PolyCollection) for item in collections) == bands
    assert "nan" not in panel_svg(single)


def test_many_references_have_few_ticks():
    figure = draw(curve_panel(points((GROUP_MEAN,), 50)))
    assert figure.axes[0].get_xticks().tolist() == [1, 10, 20, 30, 40, 50]


def test_sensitivity_bars_sum_to_100_percent():
    figure = draw(sensitivity_panel(sensitivity_rows()))
    assert [axes.get_title() for axes in figure.axes] == ["object  (100)", "action  (100)", "property  (100)"]
    for axes in figure.axes:
        widths = [patch.get_width() for patch in axes.patches]
        assert sum(widths) == pytest.approx(300)
        assert widths[:3] == pytest.approx([20, 25, 55])
        assert any(line.get_linestyle() == ":" and set(line.get_xdata()) == {50.0} for line in axes.lines)
    assert [axes.get_title() for axes in draw(sensitivity_panel(sensitivity_rows(), kinds=True)).axes] == [
        "colour  (100)",
        "size  (100)",
    ]


def test_difference_bars_sum_to_100_percent():
    figure = draw(difference_panel(scales()))
    for axes in figure.axes:
        assert sum(patch.get_height() for patch in axes.patches) == pytest.approx(100)
        dark = [patch for patch in axes.patches if patch.get_facecolor() != axes.patches[0].get_facecolor()]
        assert [round(patch.get_x() + patch.get_width() / 2, 9) for patch in dark] == [0]


def test_forest_plot_is_sorted():
    figure = draw(PANELS["forest"]())
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["cider-d", "bleu-4"]
