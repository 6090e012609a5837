"""The picture of a grounding: which regions are framed, how strongly, and what is written beside."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.report.grounding import grounding_figure, grounding_svg, save_grounding
from crossmatch.report.plots import COLOURS

pytest.importorskip("matplotlib")
pytest.importorskip("PIL")

from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from PIL import Image

PICTURE = Image.new("RGB", (200, 100), "#88aacc")
BOXES = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.4, 0.8], [0.5, 0.5, 0.9, 0.9], [0.6, 0.1, 0.8, 0.3]])
OWN, THEIRS = np.array([0.2, 0.9, 0.4, 0.0]), np.array([0.1, 0.3, 0.8, 0.05])


def frames(figure):
    """Of each frame on the picture: colour, width, and its box in fractions of the picture."""
    found = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    return [(to_hex(p.get_edgecolor()).upper(), p.get_linewidth(), (p.get_x() / 200, p.get_y() / 100)) for p in found]


def written(figure):
    return [text.get_text() for text in figure.texts]


def test_the_strongest_regions_are_framed_and_the_strongest_most():
    figure = grounding_figure(PICTURE, BOXES, {"candidate": OWN, "references": THEIRS}, strongest=2)
    drawn = frames(figure)
    assert [colour for colour, _, _ in drawn] == [COLOURS[0], COLOURS[1], COLOURS[0], COLOURS[1]]
    widths = [width for _, width, _ in drawn]  # of 0.9 and 0.3 in region 1, of 0.4 and 0.8 in region 2
    assert widths == pytest.approx([4.0, 1.2 + 2.8 / 3, 1.2 + 2.8 * 4 / 9, 1.2 + 2.8 * 8 / 9])
    for (_, _, (x, y)), box in zip(drawn, BOXES[[1, 1, 2, 2]], strict=True):
        assert (x, y) == pytest.approx(box[:2], abs=0.02)


def test_regions_are_numbered_by_their_strongest_weight_in_picture_and_bars():
    figure = grounding_figure(PICTURE, BOXES, {"candidate": OWN, "references": THEIRS}, strongest=2)
    on, beside = figure.axes
    assert sorted(text.get_text() for text in on.texts) == ["1", "2"]
    assert [tick.get_text() for tick in beside.get_yticklabels()] == ["1", "2", "3", "4"]
    lengths = [bar.get_width() for bar in beside.patches]
    assert lengths == pytest.approx([0.9, 0.4, 0.2, 0.0, 0.3, 0.8, 0.1, 0.05])
    assert [text.get_text() for text in beside.texts] == ["0.90", "0.40", "0.20", "0.00", "0.30", "0.80", "0.10", "0.05"]


def test_captions_and_scores_are_written():
    texts = {"candidate": ["a dog costs $5 and $6"], "references": ["the dog", ""]}
    said = written(grounding_figure(PICTURE, BOXES, {"candidate": OWN, "references": THEIRS}, texts, {"TIGEr": 0.71234, "RRS": 1}))
    for line in ("candidate", "a dog costs $5 and $6", "references", "the dog", "(empty)", "TIGEr 0.712   RRS 1.000"):
        assert line in said


def test_a_long_caption_is_cut_to_two_lines():
    said = written(grounding_figure(PICTURE, BOXES, {"candidate": OWN}, {"candidate": ["word " * 10_000]}))
    assert sum("word" in line for line in said) == 2
    assert any(line.endswith("…") for line in said)


def test_padding_is_left_out_and_many_regions_are_summed_up():
    padded = {"candidate": np.append(OWN, np.nan)}
    figure = grounding_figure(PICTURE, np.vstack([BOXES, np.zeros((1, 4))]), padded)
    assert len(figure.axes[1].patches) == 4
    many = np.tile(BOXES, (9, 1))
    figure = grounding_figure(PICTURE, many, {"candidate": np.linspace(0.1, 0.9, 36)})
    assert len(figure.axes[1].patches) == 12
    assert figure.axes[1].get_title(loc="right") == "24 weaker regions are not shown"


@pytest.mark.parametrize("weights", [np.zeros(4), np.full(4, -0.3)])
def test_a_caption_that_is_grounded_nowhere_frames_nothing(weights):
    assert frames(grounding_figure(PICTURE, BOXES, {"candidate": weights})) == []


def test_equal_weights_are_framed_all_or_not_at_all():
    assert len(frames(grounding_figure(PICTURE, BOXES, {"candidate": np.full(4, 0.5)}, strongest=2))) == 4
    assert frames(grounding_figure(PICTURE, np.tile(BOXES, (2, 1)), {"candidate": np.full(8, 0.5)}, strongest=2)) == []


def test_the_users_settings_change_nothing_and_stay():
    import matplotlib

    with matplotlib.rc_context({"font.size": 30}):
        svg = grounding_svg(PICTURE, BOXES, {"candidate": OWN}, {"candidate": ["a dog <b>&</b>"]})
        assert matplotlib.rcParams["font.size"] == 30
    assert svg == grounding_svg(PICTURE, BOXES, {"candidate": OWN}, {"candidate": ["a dog <b>&</b>"]})
    assert svg.startswith("<svg")
    assert "&lt;b&gt;" in svg


def test_it_is_saved_as_its_name_ends(tmp_path):
    figure = grounding_figure(PICTURE, BOXES, {"candidate": OWN}, {"candidate": ["a dog 🐕 كلب"]})
    saved = save_grounding(figure, tmp_path / "new" / "dog.png")
    with Image.open(saved) as image:
        assert image.width > 800
    with pytest.raises(WrongWords, match=r"dog\.doc should end in \.png"):
        save_grounding(figure, tmp_path / "dog.doc")


@pytest.mark.parametrize(
    ("boxes", "weights", "message"),
    [
        (BOXES, {}, "0 captions were given to draw"),
        (BOXES, {"a": OWN, "b": OWN, "c": OWN}, "3 captions were given to draw"),
        (BOXES[:3], {"a": OWN}, "weights of shape"),
        (BOXES, {"a": OWN, "b": OWN[:3]}, "weights of shape"),
        (BOXES, {"a": np.full(4, np.nan)}, "no region with a finite weight"),
        (BOXES * 200, {"a": OWN}, "beyond the picture"),
    ],
)
def test_what_cannot_be_drawn_is_refused(boxes, weights, message):
    with pytest.raises(CrossmatchError, match=message):
        grounding_figure(PICTURE, boxes, weights)


def test_one_text_in_place_of_a_list_is_refused():
    with pytest.raises(CrossmatchError, match="Put it in a list"):
        grounding_figure(PICTURE, BOXES, {"candidate": OWN}, {"candidate": "a dog"})
