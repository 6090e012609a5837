"""Figures of groundings: boxes, bars and texts."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.report.captions.grounding_pictures import grounding_figure, grounding_svg, save_figure
from crossmatch.report.result_plots import COLOURS

pytest.importorskip("matplotlib")
pytest.importorskip("PIL")

from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from PIL import Image

PICTURE = Image.new("RGB", (200, 100), "#88aacc")
BOXES = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.4, 0.8], [0.5, 0.5, 0.9, 0.9], [0.6, 0.1, 0.8, 0.3]])
CANDIDATE, REFERENCES = np.array([0.2, 0.9, 0.4, 0.0]), np.array([0.1, 0.3, 0.8, 0.05])


def drawn_boxes(figure):
    """Colour, line width and position (in fractions of the image) of each box."""
    rectangles = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    return [(to_hex(p.get_edgecolor()).upper(), p.get_linewidth(), (p.get_x() / 200, p.get_y() / 100)) for p in rectangles]


def texts_of(figure):
    return [text.get_text() for text in figure.texts]


def test_strongest_regions_have_the_widest_boxes():
    figure = grounding_figure(PICTURE, BOXES, {"candidate": CANDIDATE, "references": REFERENCES}, strongest=2)
    boxes = drawn_boxes(figure)
    assert [colour for colour, _, _ in boxes] == [COLOURS[0], COLOURS[1], COLOURS[0], COLOURS[1]]
    widths = [width for _, width, _ in boxes]  # of 0.9 and 0.3 in region 1, of 0.4 and 0.8 in region 2
    assert widths == pytest.approx([4.0, 1.2 + 2.8 / 3, 1.2 + 2.8 * 4 / 9, 1.2 + 2.8 * 8 / 9])
    for (_, _, (x, y)), box in zip(boxes, BOXES[[1, 1, 2, 2]], strict=True):
        assert (x, y) == pytest.approx(box[:2], abs=0.02)


def test_regions_are_numbered_by_weight():
    figure = grounding_figure(PICTURE, BOXES, {"candidate": CANDIDATE, "references": REFERENCES}, strongest=2)
    on, beside = figure.axes
    assert sorted(text.get_text() for text in on.texts) == ["1", "2"]
    assert [tick.get_text() for tick in beside.get_yticklabels()] == ["1", "2", "3", "4"]
    lengths = [bar.get_width() for bar in beside.patches]
    assert lengths == pytest.approx([0.9, 0.4, 0.2, 0.0, 0.3, 0.8, 0.1, 0.05])
    assert [text.get_text() for text in beside.texts] == ["0.90", "0.40", "0.20", "0.00", "0.30", "0.80", "0.10", "0.05"]


def test_captions_and_scores_are_shown():
    texts = {"candidate": ["a dog costs $5 and $6"], "references": ["the dog", ""]}
    lines = texts_of(
        grounding_figure(PICTURE, BOXES, {"candidate": CANDIDATE, "references": REFERENCES}, texts, {"TIGEr": 0.71234, "RRS": 1})
    )
    for line in ("candidate", "a dog costs $5 and $6", "references", "the dog", "(empty)", "TIGEr 0.712   RRS 1.000"):
        assert line in lines


def test_a_long_caption_is_cut_to_two_lines():
    lines = texts_of(grounding_figure(PICTURE, BOXES, {"candidate": CANDIDATE}, {"candidate": ["word " * 10_000]}))
    assert sum("word" in line for line in lines) == 2
    assert any(line.endswith("…") for line in lines)


def test_padding_and_weak_regions_are_not_shown():
    padded = {"candidate": np.append(CANDIDATE, np.nan)}
    figure = grounding_figure(PICTURE, np.vstack([BOXES, np.zeros((1, 4))]), padded)
    assert len(figure.axes[1].patches) == 4
    many = np.tile(BOXES, (9, 1))
    figure = grounding_figure(PICTURE, many, {"candidate": np.linspace(0.1, 0.9, 36)})
    assert len(figure.axes[1].patches) == 12
    assert figure.axes[1].get_title(loc="right") == "24 weaker regions are not shown"


@pytest.mark.parametrize("weights", [np.zeros(4), np.full(4, -0.3)])
def test_caption_without_positive_weights_has_no_boxes(weights):
    assert drawn_boxes(grounding_figure(PICTURE, BOXES, {"candidate": weights})) == []


def test_tied_regions_are_all_drawn_or_none():
    assert len(drawn_boxes(grounding_figure(PICTURE, BOXES, {"candidate": np.full(4, 0.5)}, strongest=2))) == 4
    assert drawn_boxes(grounding_figure(PICTURE, np.tile(BOXES, (2, 1)), {"candidate": np.full(8, 0.5)}, strongest=2)) == []


def test_matplotlib_settings_of_the_user_are_ignored_and_restored():
    import matplotlib

    with matplotlib.rc_context({"font.size": 30}):
        svg = grounding_svg(PICTURE, BOXES, {"candidate": CANDIDATE}, {"candidate": ["a dog <b>&</b>"]})
        assert matplotlib.rcParams["font.size"] == 30
    assert svg == grounding_svg(PICTURE, BOXES, {"candidate": CANDIDATE}, {"candidate": ["a dog <b>&</b>"]})
    assert svg.startswith("<svg")
    assert "&lt;b&gt;" in svg


def test_figure_type_follows_the_suffix(tmp_path):
    figure = grounding_figure(PICTURE, BOXES, {"candidate": CANDIDATE}, {"candidate": ["a dog 🐕 كلب"]})
    saved = save_figure(figure, tmp_path / "new" / "dog.png")
    with Image.open(saved) as image:
        assert image.width > 800
    with pytest.raises(UsageError, match=r"dog\.doc: the name of an image must end in \.png"):
        save_figure(figure, tmp_path / "dog.doc")


@pytest.mark.parametrize(
    ("boxes", "weights", "message"),
    [
        (BOXES, {}, "one or two captions to draw, got 0"),
        (BOXES, {"a": CANDIDATE, "b": CANDIDATE, "c": CANDIDATE}, "one or two captions to draw, got 3"),
        (BOXES[:3], {"a": CANDIDATE}, "weights of shape"),
        (BOXES, {"a": CANDIDATE, "b": CANDIDATE[:3]}, "weights of shape"),
        (BOXES, {"a": np.full(4, np.nan)}, "at least one region with a finite weight"),
        (BOXES * 200, {"a": CANDIDATE}, "exceeds the image"),
    ],
)
def test_invalid_regions_are_an_error(boxes, weights, message):
    with pytest.raises(CrossmatchError, match=message):
        grounding_figure(PICTURE, boxes, weights)


def test_bare_caption_is_an_error():
    with pytest.raises(CrossmatchError, match="Put it in a list"):
        grounding_figure(PICTURE, BOXES, {"candidate": CANDIDATE}, {"candidate": "a dog"})
