"""A picture with the regions that captions speak of (jiang2019tiger, fig. 1 and 6): boxes on it, and a strip of bars beside it."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crossmatch.captions.tiger import TAU, rrs, wds
from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.grounding import Grounder
from crossmatch.report.correlate import KINDS
from crossmatch.report.plots import COLOURS, STYLE, _svg

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

STRONGEST = 4  # regions of each caption that are framed and numbered
WIDTH, HEIGHT = 9.6, 4.4  # of the figure, in inches
LINE = 96  # letters of a caption in a line
DASHES = ("-", (0, (4, 2)))  # the second caption's frames are dashed: two colours in one place stay two
LEAST, MOST = 1.2, 4.0  # widths of frames
STEP = 0.21  # from line to line, in inches
INK, FAINT = "#222222", "#777777"


def _styled(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Draw under our style, whatever the user's own settings are."""

    @wraps(draw)
    def styled(*given: Any, **named: Any) -> Any:
        try:
            import matplotlib
        except ImportError:
            raise MissingDependency("matplotlib", "report") from None
        with matplotlib.rc_context(STYLE):
            return draw(*given, **named)

    return styled


@_styled
def grounding_figure(
    picture: Image,
    boxes: ArrayLike,
    weights: Mapping[str, ArrayLike],
    texts: Mapping[str, Sequence[str]] | None = None,
    scores: Mapping[str, float] | None = None,
    strongest: int = STRONGEST,
) -> Figure:
    """The picture with the strongest regions of one or two captions framed and numbered, and all weights as bars.

    `boxes` is (regions, 4): left, top, right and bottom in fractions of the picture. `weights` holds the grounding vector of each
    caption by its label ("candidate", "references"), `texts` the captions of a label, `scores` what to say above ("TIGEr": 0.71).
    Each caption has a colour that everyone can tell from the other's; the second one's frames are dashed too. The thicker and the
    less transparent a frame is, the larger its weight. Regions are numbered by the strongest weight that either caption gives them.
    Regions whose weight is NaN are padding.

    >>> from PIL import Image
    >>> figure = grounding_figure(Image.new("RGB", (64, 48)), [[0, 0, 0.5, 1], [0.5, 0, 1, 1]], {"candidate": [0.8, 0.1]})
    >>> [round(float(bar.get_width()), 2) for bar in figure.axes[1].patches]
    [0.8, 0.1]
    """
    from matplotlib.figure import Figure

    labels, given, places = _checked(boxes, weights)
    order = np.argsort(-given.max(axis=0), kind="stable")
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(1, len(order) + 1)
    shown = [_strongest(row, strongest) for row in given]
    captions = [_caption(label, (texts or {}).get(label, ())) for label in labels]
    lines = sum(caption.count("\n") + 1 for caption in captions) + bool(scores)
    head = STEP * (lines + 1)
    bars = min(len(order), 3 * strongest)
    height = max(HEIGHT, 1.0 + 0.17 * bars * len(labels))
    shape = picture.width / picture.height
    tall = min(height - 0.45, 5.3 / shape)
    figure = Figure(figsize=(WIDTH, height + head))
    total = height + head
    on = figure.add_axes((0.15 / WIDTH, (height - 0.1 - tall) / total, tall * shape / WIDTH, tall / total))
    left = tall * shape + 0.75
    beside = figure.add_axes((left / WIDTH, 0.8 / total, (WIDTH - left - 0.35) / WIDTH, (height - 0.9) / total))
    _say(figure, labels, captions, scores or {}, total)
    _frame(on, picture, places, given, shown, number)
    _bars(beside, labels, given, order[:bars], number, len(order), shown)
    kinds = "the strongest regions" + (f" of each caption ({labels[1]}: dashed)" if len(labels) > 1 else "")
    figure.text(0.15 / WIDTH, 0.1 / total, f"framed: {kinds}, numbered as in the bars", fontsize=9, color=FAINT)
    return figure


def grounding_svg(
    picture: Image,
    boxes: ArrayLike,
    weights: Mapping[str, ArrayLike],
    texts: Mapping[str, Sequence[str]] | None = None,
    scores: Mapping[str, float] | None = None,
) -> str:
    """The same as inline SVG, for a page."""
    svg: str = _styled(_svg)(grounding_figure(picture, boxes, weights, texts, scores))
    return svg


class Explained(NamedTuple):
    """What `grounding_figure` takes: a caption, and its references if there are any, grounded in the regions of a picture."""

    picture: Image
    boxes: FloatArray | None  # where the grounder tells them
    weights: dict[str, FloatArray]
    texts: dict[str, list[str]]
    scores: dict[str, float] | None


def explained(
    grounder: Grounder, picture: Image, caption: str, references: Sequence[str], tau: float = TAU, variant: str = "paper"
) -> Explained:
    """Ground a caption and its references, and compare them by TIGEr."""
    texts = [caption, *references]
    found = grounder.ground([picture] * len(texts), texts)
    regions = int(found.regions[0])
    weights, said, scores = {"caption": found.scores[0, :regions]}, {"caption": [caption]}, None
    if references:
        mean = found.scores[1:].mean(axis=0, keepdims=True)
        rank, weight = float(rrs(found.scores[:1], mean, variant)[0]), float(wds(found.scores[:1], mean, tau)[0])
        weights["references"], said["references"] = mean[0, :regions], list(references)
        scores = {"TIGEr": (rank + weight) / 2, "RRS": rank, "WDS": weight}
    return Explained(picture, None if found.boxes is None else found.boxes[0, :regions], weights, said, scores)


def require_kind(path: Path) -> None:
    """Refuse, before any work, a file of a kind that cannot be written."""
    if path.suffix.lower() not in KINDS:
        raise WrongWords(f"{path} should end in {', '.join(KINDS)}. Name the file so.")


def save_grounding(figure: Figure, path: Path, dpi: int = 150) -> Path:
    """Write the figure as its name ends: .png, .svg or .pdf."""
    require_kind(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # an emoji becomes a box; the rest of the caption is there
        figure.savefig(path, dpi=dpi, metadata=KINDS[path.suffix.lower()])
    return path


def _strongest(weights: FloatArray, most: int) -> IntArray:
    """The largest weights, and all that equal the last of them; none that is not above zero."""
    last = np.sort(weights)[::-1][min(most, len(weights)) - 1]
    chosen = np.flatnonzero((weights >= last) & (weights > 0))
    return chosen if len(chosen) <= 2 * most else chosen[:0]  # so many alike: none stands out


def _frame(axes: Any, picture: Image, boxes: FloatArray, given: FloatArray, shown: Sequence[IntArray], number: IntArray) -> None:
    from matplotlib.patches import Rectangle

    across, down = picture.width, picture.height
    axes.imshow(np.asarray(picture.convert("RGB")), extent=(0, across, down, 0), interpolation="antialiased")
    axes.set_axis_off()
    top = max(float(given.max()), 0.0)
    taken: list[tuple[float, float]] = []
    step = 0.052 * max(across, down)
    for region in sorted(set(np.concatenate(shown).tolist()), key=lambda r: number[r]):
        x0, y0, x1, y1 = boxes[region] * (across, down, across, down)
        mine = [n for n, chosen in enumerate(shown) if region in chosen]
        for n in mine:
            share = given[n, region] / top
            inset = 0.006 * max(across, down) * (n + 0.5)  # the frames of two captions lie one inside the other
            width = LEAST + (MOST - LEAST) * share
            axes.add_patch(
                Rectangle(
                    (x0 + inset, y0 + inset), max(0, x1 - x0 - 2 * inset), max(0, y1 - y0 - 2 * inset), fill=False, ls=DASHES[n],
                    lw=width, edgecolor=COLOURS[n], alpha=0.45 + 0.55 * share, zorder=3 + share,
                )
            )  # fmt: skip
        x, y = _free(x0, y0, step, taken, across, down)
        taken.append((x, y))
        badge = {"boxstyle": "round,pad=0.22", "fc": COLOURS[mine[0]] if len(mine) == 1 else INK, "ec": "white", "lw": 0.8}
        axes.text(
            x, y, str(number[region]), color="white", fontsize=9, fontweight="bold", ha="center", va="center", bbox=badge, zorder=9
        )
    axes.set_xlim(0, across)
    axes.set_ylim(down, 0)


def _free(x0: float, y0: float, step: float, taken: Sequence[tuple[float, float]], across: int, down: int) -> tuple[float, float]:
    """A place for a number at the top left corner, moved on while another number is there."""
    x, y = min(max(x0 + step * 0.6, step * 0.6), across - step), min(max(y0 + step * 0.6, step * 0.6), down - step)
    while any(abs(x - a) < step and abs(y - b) < step for a, b in taken) and x < across - step:
        x += step / 2
    return x, y


def _bars(
    axes: Any, labels: Sequence[str], given: FloatArray, order: IntArray, number: IntArray, regions: int, shown: Sequence[IntArray]
) -> None:
    thick = 0.8 / len(labels)
    for n, label in enumerate(labels):
        at = np.arange(len(order)) + (n - (len(labels) - 1) / 2) * thick
        values = given[n, order]
        drawn = axes.barh(at, values, 0.9 * thick, color=COLOURS[n], label=label)
        for bar, region in zip(drawn, order, strict=True):
            bar.set_alpha(1.0 if region in shown[n] else 0.45)
        for y, value in zip(at, values, strict=True):
            axes.annotate(
                f"{value:.2f}", (max(value, 0.0), y), (3, 0), textcoords="offset points", va="center", fontsize=8, color=FAINT,
            )  # fmt: skip
    axes.set_yticks(range(len(order)), [str(n) for n in number[order]])
    axes.set_ylim(len(order) - 0.4, -0.6)
    low, high = min(0.0, float(given[:, order].min())), max(0.0, float(given[:, order].max()))
    axes.set_xlim(low, high + 0.14 * (high - low or 1.0))
    axes.axvline(0, color=FAINT, lw=0.8)
    axes.grid(axis="y", visible=False)
    rest = regions - len(order)
    axes.set_ylabel("region")
    axes.set_xlabel("how much the caption speaks of the region")
    if rest:
        axes.set_title(f"{rest} weaker regions are not shown", fontsize=9, color=FAINT, loc="right")


def _say(figure: Any, labels: Sequence[str], captions: Sequence[str], scores: Mapping[str, float], total: float) -> None:
    """The captions in their colours, and the scores, from the top."""
    y = total - 1.5 * STEP
    for n, caption in enumerate(captions):
        figure.text(0.15 / WIDTH, y / total, labels[n], color=COLOURS[n], fontweight="bold", va="baseline")
        for line in caption.split("\n"):
            figure.text(1.25 / WIDTH, y / total, line, color=INK, va="baseline")
            y -= STEP
    if scores:
        said = "   ".join(f"{name} {value:.3f}" for name, value in scores.items())
        figure.text(1.25 / WIDTH, y / total, said, color=INK, va="baseline", fontweight="bold")


def _caption(label: str, texts: Sequence[str]) -> str:
    """The texts, each on lines of its own."""
    if isinstance(texts, str):
        raise CrossmatchError(f"the captions of {label!r} are one text; a list was expected. Put it in a list.")
    texts = ["".join(sign if sign.isprintable() else " " for sign in text) for text in texts]
    return "\n".join("\n   ".join(textwrap.wrap(text, LINE, max_lines=2, placeholder=" …") or ["(empty)"]) for text in texts)


def _checked(boxes: ArrayLike, weights: Mapping[str, ArrayLike]) -> tuple[list[str], FloatArray, FloatArray]:
    """Labels, weights (captions, regions) and boxes, without padding."""
    labels = list(weights)
    if not 1 <= len(labels) <= len(DASHES):
        raise CrossmatchError(f"{len(labels)} captions were given to draw; one or two were expected. Leave some out.")
    given = [np.asarray(weights[label], dtype=np.float64) for label in labels]
    places = np.asarray(boxes, dtype=np.float64)
    if any(row.shape != given[0].shape or row.ndim != 1 for row in given) or places.shape != (*given[0].shape, 4):
        raise CrossmatchError(
            f"weights of shape {', '.join(str(row.shape) for row in given)} and boxes of shape {places.shape}; (regions,) for each "
            "caption and (regions, 4) were expected."
        )
    found = np.stack(given)
    there = ~np.isnan(found).any(axis=0)
    found, places = found[:, there], places[there]
    if not there.any() or not np.isfinite(found).all():
        raise CrossmatchError("there is no region with a finite weight to draw. Give at least one.")
    if not ((places >= -1e-6) & (places <= 1 + 1e-6)).all():
        raise CrossmatchError("a box reaches beyond the picture; fractions of its width and height, from 0 to 1, were expected.")
    return labels, found, places
