"""Figures of the report as inline SVG, drawn by matplotlib."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import cycle
from typing import Any, ParamSpec, TypeVar

import numpy as np

from crossmatch.data.errors import MissingDependencyError
from crossmatch.data.rank_counts import RankCounts
from crossmatch.data.result import Result, ResultRow
from crossmatch.metrics.measurement import part_ranks
from crossmatch.metrics.metric_table import metric
from crossmatch.metrics.retrieval import hit_at_k
from crossmatch.report.query_variants import QueryVariant, changed_share
from crossmatch.report.tables import model_labels
from crossmatch.text.perturbations import ALTERATIONS

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")  # okabe2008color: safe for colour-blind readers
FILLED = (False, True, True)  # the circle of the first set of judgements is open
DASHES = ("--", "-", ":", "-.")
COLUMNS = 3  # axes in a row
DARK, GREY = "#222222", "#777777"
MAX_LEGEND = 32  # letters of a model's name in a legend
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e6e6e6", "axes.axisbelow": True, "svg.hashsalt": "crossmatch", "svg.fonttype": "none", "text.parse_math": False,
}  # fmt: skip
# Metadata by file type, without the time of drawing, so that equal figures give equal files.
FIGURE_METADATA: dict[str, dict[str, None]] = {
    ".png": {},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None},
}
P = ParamSpec("P")
R = TypeVar("R")


def styled(draw: Callable[P, R]) -> Callable[P, R]:
    """Make a function draw in the style of the report, whatever the user's matplotlib settings are."""

    @wraps(draw)
    def draw_styled(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            import matplotlib
        except ImportError:
            raise MissingDependencyError("matplotlib", "report") from None
        with matplotlib.rc_context(STYLE):
            return draw(*args, **kwargs)

    return draw_styled


def figure_bytes(figure: Any, suffix: str, **options: Any) -> bytes:
    """A figure as the content of a file of this type: .png, .svg or .pdf."""
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # SVG keeps text as text; other types show a box
        figure.savefig(out, format=suffix[1:], metadata=FIGURE_METADATA[suffix], **options)
    return out.getvalue()


def to_svg(figure: Any) -> str:
    """A figure as inline SVG."""
    text = figure_bytes(figure, ".svg").decode()
    return text[text.index("<svg") :]


@styled
def plot_metrics(results: Sequence[Result], direction: str) -> str:
    """Each metric of each model with its interval; a line connects the values by different sets of judgements."""
    judgement_sets = _judgement_sets(results)
    names = dict.fromkeys(row.metric for r in results for row in r.rows if row.direction == direction)
    metrics = [name for name in names if metric(name).unit == "%"]
    figure, axes = _new_figure(0.32 * len(metrics) * len(results) + 1.4)
    lines = [(name, n) for name in metrics for n in range(len(results))]
    for y, (name, n) in enumerate(lines):
        colour = COLOURS[n % len(COLOURS)]
        by_judgements = {row.judgements: row for row in results[n].rows if row.direction == direction and row.metric == name}
        rows = [by_judgements[judgements] for judgements in judgement_sets if judgements in by_judgements]
        axes.plot([row.value for row in rows], [y] * len(rows), color=colour, lw=1.5, alpha=0.45, zorder=2)
        for row, is_filled in zip(rows, FILLED if len(judgement_sets) > 1 else (True,), strict=False):
            style = {"color": colour, "mfc": colour if is_filled else "white"}
            axes.errorbar(row.value, y, xerr=error_bar(row.value, row.low, row.high), fmt="o", ms=6, lw=1, zorder=3, **style)
        if rows:
            axes.plot(rows[-1].chance, y, marker="|", ms=9, color="#999999", zorder=1)
    _label_rows(axes, [metric(name).label for name in metrics], len(results))
    handles = [_legend_handle(COLOURS[n % len(COLOURS)], name, True) for n, name in enumerate(short_labels(results))]
    if len(judgement_sets) > 1:
        named = zip(judgement_sets, FILLED, strict=False)
        handles += [_legend_handle("#555555", f"by {judgements}", is_filled) for judgements, is_filled in named]
    axes.legend(handles=handles, ncols=len(handles), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    return to_svg(figure)


@styled
def plot_hit_curve(results: Sequence[Result], direction: str) -> str:
    """The share of queries with a positive among the first k, for every k; R@1, R@5 and R@10 are points of this curve."""
    figure, axes = _new_figure(3.6)
    judgement_sets = _judgement_sets(results)
    for n, (result, name) in enumerate(zip(results, short_labels(results), strict=True)):
        for judgements, dash in zip(judgement_sets, cycle(DASHES if len(judgement_sets) > 1 else ("-",)), strict=False):
            part = next((p for p in result.parts.values() if (p.direction, p.judgements) == (direction, judgements)), None)
            if part is None or not isinstance(part.evidence, RankCounts):
                continue
            ranks = part_ranks(part, result.ties)
            ks = np.unique(np.geomspace(1, int(ranks.depth.min()), 60).round().astype(int))
            label = f"{name}, by {judgements}" if judgements else name
            hits = [100 * hit_at_k(ranks, int(k)).mean() for k in ks]
            axes.plot(ks, hits, dash, color=COLOURS[n % len(COLOURS)], label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(0, 103)
    axes.set_xlabel("k, the number of retrieved items")
    axes.set_ylabel("queries with a hit, percent")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return to_svg(figure)


@styled
def plot_trial_metrics(results: Sequence[Result], part: str) -> str:
    """Every metric of one part of a trial task, with its interval."""
    rows = {(n, row.metric): row for n, r in enumerate(results) for row in r.rows if row.part == part}
    names = list(dict.fromkeys(name for _, name in rows))
    return _plot_rows(results, [(metric(name).label or name, [rows.get((n, name)) for n in range(len(results))]) for name in names])


@styled
def plot_categories(results: Sequence[Result], name: str) -> str:
    """One metric in every category, with its interval."""
    rows = {(n, row.part): row for n, r in enumerate(results) for row in r.rows if row.metric == name}
    parts = [part for part in dict.fromkeys(part for _, part in rows) if part != "macro"]
    return _plot_rows(results, [(part or "all", [rows.get((n, part)) for n in range(len(results))]) for part in parts])


@styled
def plot_alterations(variants: Sequence[QueryVariant]) -> str:
    """The share of predictions that each alteration changed, for each model (hu2019bison, fig. 9)."""
    models = list({variant.base.model: variant.base for variant in variants}.values())
    kinds = [kind for kind in ALTERATIONS if any(variant.name == kind for variant in variants)]
    shares = {(variant.base.model, variant.name): changed_share(variant) for variant in variants}
    figure, axes = _new_figure(3.4)
    width = 0.8 / len(models)
    for n, (model, label) in enumerate(zip(models, short_labels(models), strict=True)):
        for k, kind in enumerate(kinds):
            if (model.model, kind) not in shares:
                continue
            share = shares[model.model, kind]
            x = k + (n - (len(models) - 1) / 2) * width
            height, low, high = (100 * end for end in (share.value, share.low, share.high))
            axes.bar(x, height, 0.92 * width, color=COLOURS[n % len(COLOURS)], label=label if k == 0 else None)
            axes.errorbar(x, height, error_bar(height, low, high), color="#333333", lw=1)
            axes.text(x, high + 0.6, f"{height:.1f}", ha="center", va="bottom", fontsize=9)
    axes.set_xticks(range(len(kinds)), kinds)
    axes.set_ylabel("predictions changed, percent")
    axes.set_ylim(0, 115 * max(share.high for share in shares.values()) + 2)
    axes.grid(axis="x", visible=False)
    axes.legend(ncols=len(models), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    return to_svg(figure)


def _plot_rows(results: Sequence[Result], lines: Sequence[tuple[str, list[ResultRow | None]]]) -> str:
    """Values with intervals, and chance, one line per label and model."""
    figure, axes = _new_figure(0.26 * len(lines) * len(results) + 1.2)
    for y, (n, row) in enumerate((n, row) for _, rows in lines for n, row in enumerate(rows)):
        if row is not None:
            axes.plot(row.chance, y, marker="|", ms=9, color="#999999", zorder=1)
            error = error_bar(row.value, row.low, row.high)
            axes.errorbar(row.value, y, xerr=error, fmt="o", ms=6, color=COLOURS[n % len(COLOURS)], lw=1, zorder=3)
    _label_rows(axes, [label for label, _ in lines], len(results))
    handles = [_legend_handle(COLOURS[n % len(COLOURS)], name, True) for n, name in enumerate(short_labels(results))]
    axes.legend(handles=handles, ncols=min(4, len(handles)), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    return to_svg(figure)


def _label_rows(axes: Any, labels: Sequence[str], group_size: int) -> None:
    """Label groups of rows on the y axis, with lines between them; the x axis is in percent."""
    for n in range(1, len(labels)):
        axes.axhline(n * group_size - 0.5, color="#dddddd", lw=0.8)
    axes.set_yticks([group_size * n + (group_size - 1) / 2 for n in range(len(labels))], labels)
    axes.set_ylim(len(labels) * group_size - 0.5, -0.5)
    axes.set_xlim(-2, 102)
    axes.set_xlabel("percent")
    axes.grid(axis="y", visible=False)


def error_bar(value: float, low: float, high: float) -> list[list[float]]:
    """The lengths of an error bar below and above a value, as matplotlib expects them."""
    return [[max(0.0, value - low)], [max(0.0, high - value)]]


def shorten(name: str, max_length: int = 26) -> str:
    """Shorten a name for a label; between two words, if that keeps at least half of the label.

    >>> shorten("precomputed:a-very-long-name-of-a-file.csv", 20), shorten("the small dual encoder", 15)
    ('precomputed:a-very-…', 'the small dual…')
    """
    if len(name) <= max_length:
        return name
    start, end = name[: max_length - 1], name[:max_length].rfind(" ")
    return f"{start[:end] if 2 * end >= max_length else start}…"


def short_labels(results: Sequence[Result]) -> list[str]:
    """Names of models that fit into a legend."""
    return [shorten(name, MAX_LEGEND) for name in model_labels(results)]


def axes_grid(figure: Any, count: int, **options: Any) -> list[Any]:
    """`count` axes, three in a row."""
    columns = min(COLUMNS, count)
    axes = list(figure.subplots(-(-count // columns), columns, squeeze=False, **options).flat)
    for unused in axes[count:]:
        unused.set_visible(False)
    return axes[:count]


def _judgement_sets(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(row.judgements for r in results for row in r.rows))


def _new_figure(height: float) -> tuple[Any, Any]:
    """A figure of this height in inches, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, height), layout="constrained")
    return figure, figure.add_subplot()


def _legend_handle(colour: str, label: str, is_filled: bool) -> Any:
    """A circle for a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], marker="o", ls="", color=colour, mfc=colour if is_filled else "white", label=label)
