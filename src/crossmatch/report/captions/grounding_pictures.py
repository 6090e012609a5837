"""Draw the image regions that captions are grounded in (jiang2019tiger, fig. 1 and 6): boxes, and bars of weights."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crossmatch.captions.tiger.score import TAU, rrs, wds
from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.grounding import Grounder
from crossmatch.report.pages import require_figure_suffix, write_output
from crossmatch.report.result_plots import COLOURS, DARK, GREY, figure_bytes, styled, to_svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

STRONGEST_REGIONS = 4  # regions of each caption that are drawn and numbered
WIDTH, HEIGHT = 9.6, 4.4  # of the figure, in inches
CAPTION_WIDTH = 96  # letters per line
DASHES = ("-", (0, (4, 2)))  # the boxes of the second caption are dashed, so that overlapping boxes can be distinguished
MIN_WIDTH, MAX_WIDTH = 1.2, 4.0  # line widths of boxes
LINE_HEIGHT = 0.21  # inches


@styled
def grounding_figure(
    picture: Image | None,
    boxes: ArrayLike | None,
    weights: Mapping[str, ArrayLike],
    texts: Mapping[str, Sequence[str]] | None = None,
    scores: Mapping[str, float] | None = None,
    strongest: int = STRONGEST_REGIONS,
) -> Figure:
    """Draw the strongest regions of one or two captions as numbered boxes on the image, and all weights as bars.

    Thicker and less transparent boxes have larger weights. Regions are numbered by their largest weight.

    `boxes` are left, top, right and bottom of each region in fractions of the image. `weights`, `texts` and `scores` are by label
    ("candidate", "references"); NaN marks padding. The scores are printed above the image. Without boxes or picture only what is
    there is drawn, and regions without boxes have their position in the list as number.

    >>> from PIL import Image
    >>> figure = grounding_figure(Image.new("RGB", (64, 48)), [[0, 0, 0.5, 1], [0.5, 0, 1, 1]], {"candidate": [0.8, 0.1]})
    >>> [round(float(bar.get_width()), 2) for bar in figure.axes[1].patches]
    [0.8, 0.1]
    """
    from matplotlib.figure import Figure

    labels, vectors, places = _check_inputs(boxes, weights)
    order = np.argsort(-vectors.max(axis=0), kind="stable")
    number = np.arange(1, len(order) + 1)
    if places is not None:
        number[order] = np.arange(1, len(order) + 1)
    selected = [_strongest_regions(row, strongest) for row in vectors]
    captions = [_wrap_texts(label, (texts or {}).get(label, ())) for label in labels]
    lines = sum(caption.count("\n") + 1 for caption in captions) + bool(scores)
    head = LINE_HEIGHT * (lines + 1)
    bars = min(len(order), 3 * strongest)
    height = max(HEIGHT, 1.0 + 0.17 * bars * len(labels))
    figure = Figure(figsize=(WIDTH, height + head))
    total = height + head
    left = 0.75
    if picture is not None:
        shape = picture.width / picture.height
        tall = min(height - 0.45, 5.3 / shape)
        on = figure.add_axes((0.15 / WIDTH, (height - 0.1 - tall) / total, tall * shape / WIDTH, tall / total))
        _draw_boxes(on, picture, places, vectors, selected, number)
        left += tall * shape
    beside = figure.add_axes((left / WIDTH, 0.8 / total, (WIDTH - left - 0.35) / WIDTH, (height - 0.9) / total))
    _draw_captions(figure, labels, captions, scores or {}, total)
    _draw_bars(beside, labels, vectors, order[:bars], number, len(order), selected)
    framed = "the strongest regions" + (f" of each caption ({labels[1]}: dashed)" if len(labels) > 1 else "")
    if places is None:
        note = "the boxes of the regions are unknown; they are numbered by their order in the file"
    else:
        note = f"boxes: {framed}, numbered as the bars" if picture is not None else "there is no image to draw the boxes on"
    figure.text(0.15 / WIDTH, 0.1 / total, note, fontsize=9, color=GREY)
    return figure


def grounding_svg(
    picture: Image | None,
    boxes: ArrayLike | None,
    weights: Mapping[str, ArrayLike],
    texts: Mapping[str, Sequence[str]] | None = None,
    scores: Mapping[str, float] | None = None,
) -> str:
    """The figure of `grounding_figure` as inline SVG."""
    svg: str = styled(to_svg)(grounding_figure(picture, boxes, weights, texts, scores))
    return svg


class GroundedCaption(NamedTuple):
    """A caption and its references grounded in the regions of an image: the arguments of `grounding_figure` after the picture."""

    boxes: FloatArray | None  # None if the boxes are unknown
    weights: dict[str, FloatArray]
    texts: dict[str, list[str]]
    scores: dict[str, float] | None


def ground_caption(
    grounder: Grounder, image: Any, caption: str, references: Sequence[str], tau: float = TAU, variant: str = "paper"
) -> GroundedCaption:
    """Ground a caption and its references, and score the caption by TIGEr. `image` is an id if the grounder takes ids."""
    texts = [caption, *references]
    grounding = grounder.ground([image] * len(texts), texts)
    regions = int(grounding.regions[0])
    weights, captions, scores = {"caption": grounding.scores[0, :regions]}, {"caption": [caption]}, None
    if references:
        mean = grounding.scores[1:].mean(axis=0, keepdims=True)
        rank, weight = float(rrs(grounding.scores[:1], mean, variant)[0]), float(wds(grounding.scores[:1], mean, tau)[0])
        weights["references"], captions["references"] = mean[0, :regions], list(references)
        scores = {"TIGEr": (rank + weight) / 2, "RRS": rank, "WDS": weight}
    boxes = None if grounding.boxes is None else grounding.boxes[0, :regions]
    return GroundedCaption(None if boxes is None or np.isnan(boxes).any() else boxes, weights, captions, scores)


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as .png, .svg or .pdf."""
    require_figure_suffix(path)
    return write_output(path, figure_bytes(figure, path.suffix.lower(), dpi=150))


def _strongest_regions(weights: FloatArray, count: int) -> IntArray:
    """The regions with the largest positive weights, including ties with the last one."""
    last = np.sort(weights)[::-1][min(count, len(weights)) - 1]
    strongest = np.flatnonzero((weights >= last) & (weights > 0))
    return strongest if len(strongest) <= 2 * count else strongest[:0]  # with too many ties no region stands out


def _draw_boxes(
    axes: Any, picture: Image, boxes: FloatArray | None, vectors: FloatArray, selected: Sequence[IntArray], number: IntArray
) -> None:
    from matplotlib.patches import Rectangle

    across, down = picture.width, picture.height
    axes.imshow(np.asarray(picture.convert("RGB")), extent=(0, across, down, 0), interpolation="antialiased")
    axes.set_axis_off()
    if boxes is None:
        return
    top = max(float(vectors.max()), 0.0)
    taken: list[tuple[float, float]] = []
    step = 0.052 * max(across, down)
    for region in sorted(set(np.concatenate(selected).tolist()), key=lambda r: number[r]):
        x0, y0, x1, y1 = boxes[region] * (across, down, across, down)
        captions = [n for n, regions in enumerate(selected) if region in regions]
        for n in captions:
            share = vectors[n, region] / top
            inset = 0.006 * max(across, down) * (n + 0.5)  # the boxes of two captions are nested
            width = MIN_WIDTH + (MAX_WIDTH - MIN_WIDTH) * share
            axes.add_patch(
                Rectangle(
                    (x0 + inset, y0 + inset), max(0, x1 - x0 - 2 * inset), max(0, y1 - y0 - 2 * inset), fill=False, ls=DASHES[n],
                    lw=width, edgecolor=COLOURS[n], alpha=0.45 + 0.55 * share, zorder=3 + share,
                )
            )  # fmt: skip
        x, y = _free_position(x0, y0, step, taken, across, down)
        taken.append((x, y))
        badge = {"boxstyle": "round,pad=0.22", "fc": COLOURS[captions[0]] if len(captions) == 1 else DARK, "ec": "white", "lw": 0.8}
        axes.text(
            x, y, str(number[region]), color="white", fontsize=9, fontweight="bold", ha="center", va="center", bbox=badge, zorder=9
        )
    axes.set_xlim(0, across)
    axes.set_ylim(down, 0)


def _free_position(
    x0: float, y0: float, step: float, taken: Sequence[tuple[float, float]], across: int, down: int
) -> tuple[float, float]:
    """A position for a number at the top left corner, moved to the right while it overlaps another number."""
    x, y = min(max(x0 + step * 0.6, step * 0.6), across - step), min(max(y0 + step * 0.6, step * 0.6), down - step)
    while any(abs(x - a) < step and abs(y - b) < step for a, b in taken) and x < across - step:
        x += step / 2
    return x, y


def _draw_bars(
    axes: Any,
    labels: Sequence[str],
    vectors: FloatArray,
    order: IntArray,
    number: IntArray,
    regions: int,
    selected: Sequence[IntArray],
) -> None:
    thick = 0.8 / len(labels)
    for n, label in enumerate(labels):
        at = np.arange(len(order)) + (n - (len(labels) - 1) / 2) * thick
        values = vectors[n, order]
        drawn = axes.barh(at, values, 0.9 * thick, color=COLOURS[n], label=label)
        for bar, region in zip(drawn, order, strict=True):
            bar.set_alpha(1.0 if region in selected[n] else 0.45)
        for y, value in zip(at, values, strict=True):
            axes.annotate(
                f"{value:.2f}", (max(value, 0.0), y), (3, 0), textcoords="offset points", va="center", fontsize=8, color=GREY,
            )  # fmt: skip
    axes.set_yticks(range(len(order)), [str(n) for n in number[order]])
    axes.set_ylim(len(order) - 0.4, -0.6)
    low, high = min(0.0, float(vectors[:, order].min())), max(0.0, float(vectors[:, order].max()))
    axes.set_xlim(low, high + 0.14 * (high - low or 1.0))
    axes.axvline(0, color=GREY, lw=0.8)
    axes.grid(axis="y", visible=False)
    rest = regions - len(order)
    axes.set_ylabel("region")
    axes.set_xlabel("weight of the region for the caption")
    if rest:
        axes.set_title(f"{rest} weaker regions are not shown", fontsize=9, color=GREY, loc="right")


def _draw_captions(figure: Any, labels: Sequence[str], captions: Sequence[str], scores: Mapping[str, float], total: float) -> None:
    """Write the captions in their colours, and the scores, above the image."""
    y = total - 1.5 * LINE_HEIGHT
    for n, caption in enumerate(captions):
        figure.text(0.15 / WIDTH, y / total, labels[n], color=COLOURS[n], fontweight="bold", va="baseline")
        for line in caption.split("\n"):
            figure.text(1.25 / WIDTH, y / total, line, color=DARK, va="baseline")
            y -= LINE_HEIGHT
    if scores:
        text = "   ".join(f"{name} {value:.3f}" for name, value in scores.items())
        figure.text(1.25 / WIDTH, y / total, text, color=DARK, va="baseline", fontweight="bold")


def _wrap_texts(label: str, texts: Sequence[str]) -> str:
    """The texts, wrapped, each on its own lines."""
    if isinstance(texts, str):
        raise CrossmatchError(f"{label!r}: expected a list of captions, got one text. Put it in a list.")
    texts = ["".join(char if char.isprintable() else " " for char in text) for text in texts]
    return "\n".join(
        "\n   ".join(textwrap.wrap(text, CAPTION_WIDTH, max_lines=2, placeholder=" …") or ["(empty)"]) for text in texts
    )


def _check_inputs(boxes: ArrayLike | None, weights: Mapping[str, ArrayLike]) -> tuple[list[str], FloatArray, FloatArray | None]:
    """Labels, weights of shape (captions, regions), and boxes, without padding."""
    labels = list(weights)
    if not 1 <= len(labels) <= len(DASHES):
        raise CrossmatchError(f"Expected one or two captions to draw, got {len(labels)}.")
    vectors = [np.asarray(weights[label], dtype=np.float64) for label in labels]
    places = None if boxes is None else np.asarray(boxes, dtype=np.float64)
    box_shape = (*vectors[0].shape, 4) if places is None else places.shape
    if any(row.shape != vectors[0].shape or row.ndim != 1 for row in vectors) or box_shape != (*vectors[0].shape, 4):
        raise CrossmatchError(
            "Expected weights of shape (regions,) for each caption and boxes of shape (regions, 4), "
            f"got {', '.join(str(row.shape) for row in vectors)} and {box_shape}."
        )
    stacked = np.stack(vectors)
    is_region = ~np.isnan(stacked).any(axis=0)
    stacked, places = stacked[:, is_region], None if places is None else places[is_region]
    if not is_region.any() or not np.isfinite(stacked).all():
        raise CrossmatchError("Expected at least one region with a finite weight.")
    if places is not None and not ((places >= -1e-6) & (places <= 1 + 1e-6)).all():
        raise CrossmatchError("A box exceeds the image: expected fractions of its width and height from 0 to 1.")
    return labels, stacked, places
