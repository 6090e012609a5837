"""Figures of rated pairs: distributions, positives per item, disagreement, and scores against ratings (parekh2021cxc)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.data.arrays import BoolArray, FloatArray
from crossmatch.data.rated_pairs import PairRatings
from crossmatch.report.analysis.rated_examples import ExampleGroup, ModelScores
from crossmatch.report.analysis.rating_distributions import (
    ALL,
    METHOD_LABELS,
    PositivesPerItem,
    count_positives,
    describe_positives,
    methods_of,
)
from crossmatch.report.pages import Panel, render_panels, render_template, write_output
from crossmatch.report.result_plots import COLOURS, COLUMNS, DARK, GREY, axes_grid, shorten
from crossmatch.report.tables import Table

BINS = 20
MOST_BARS = 11  # 0, 1, …, 9, and ten or more positives
MAX_POINTS = 1000  # of a scatter plot, as in Figure 5 of the paper
AXES_HEIGHT = 2.9
KIND_TITLES = {"caption-caption": "two captions", "image-image": "two images", "image-caption": "image and caption"}


def rating_panels(ratings: Mapping[str, PairRatings], scores: Sequence[ModelScores] = (), seed: int = 0) -> list[Panel]:
    """All figures that the ratings and scores allow."""
    sources = list(ratings.values())
    panels = [_distribution_panel(sources), _positives_panel([item for source in sources for item in count_positives(source)])]
    with_deviation = [source for source in sources if np.isfinite(source.deviations).any()]
    if with_deviation:
        panels.append(_deviation_panel(with_deviation))
    pairs = [(model, source) for model in scores for source in sources if source.source in model.by_source]
    return [*panels, _score_panel(pairs, seed)] if pairs else panels


def _rows_of_axes(count: int) -> int:
    return -(-count // COLUMNS)


def _draw_methods(axes: Any, source: PairRatings, values: FloatArray, edges: FloatArray, is_drawn: BoolArray) -> None:
    """A curve for each sampling method, in percent of its pairs, and a dark one for all of them."""
    methods = methods_of(source)
    colours = {name: COLOURS[n % len(COLOURS)] for n, name in enumerate(name for name in methods if name != ALL)}
    for name in [*colours, ALL]:
        selected = values[methods[name] & is_drawn]
        if not len(selected):
            continue
        shares = np.histogram(np.clip(selected, edges[0], edges[-1]), edges)[0] * (100 / len(selected))
        is_all = name == ALL
        label = "all pairs" if is_all else METHOD_LABELS.get(name, name)
        if not is_all:
            axes.stairs(shares, edges, fill=True, color=colours[name], alpha=0.2)
        style = {"color": DARK, "lw": 1.3, "ls": "-"} if is_all else {"color": colours[name], "lw": 1.8}
        axes.stairs(shares, edges, label=f"{label} ({len(selected):,})", **style)
    axes.set_title(f"{source.source}: {KIND_TITLES[source.kind]}", fontsize=10)
    axes.set_ylabel("percent of the pairs")
    axes.grid(axis="x", visible=False)
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(-0.1, -0.19), borderaxespad=0)


def _distribution_panel(sources: Sequence[PairRatings]) -> Panel:
    def draw(figure: Any) -> None:
        for axes, source in zip(axes_grid(figure, len(sources)), sources, strict=True):
            edges = np.linspace(min(0.0, float(source.grades.min())), _end_of_scale(source), BINS + 1)
            _draw_methods(axes, source, source.grades, edges, np.ones(len(source), dtype=bool))
            axes.axvline(source.positive, color=GREY, lw=1.2, ls=":")
            axes.set_xlabel("rating")

    description = "Each curve covers 100 % of its pairs. Right of the dotted line a pair is positive (parekh2021cxc, fig. 3)."
    return Panel("How did people rate the pairs?", description, (AXES_HEIGHT + 0.7) * _rows_of_axes(len(sources)), draw)


def _end_of_scale(source: PairRatings) -> float:
    """The end of the scale of the ratings: 5, or 1, or the next whole number."""
    highest = float(source.grades.max())
    return next((end for end in (1.0, 5.0) if highest <= end), float(np.ceil(highest)))


def _positives_panel(items: Sequence[PositivesPerItem]) -> Panel:
    def draw(figure: Any) -> None:
        for axes, item in zip(axes_grid(figure, len(items)), items, strict=True):
            counts = np.bincount(np.minimum(item.counts, MOST_BARS - 1), minlength=MOST_BARS)
            colour = COLOURS[0 if item.side == "caption" else 1]
            bars = axes.bar(range(MOST_BARS), counts * (100 / len(item.counts)), color=colour, width=0.8)
            axes.bar_label(bars, [f"{n:,}" if n else "" for n in counts.tolist()], fontsize=6, color=DARK)
            axes.set_title(f"{item.source}: positives of each {item.side}", fontsize=10)
            axes.set_xticks(range(MOST_BARS), [*map(str, range(MOST_BARS - 1)), f"≥{MOST_BARS - 1}"], fontsize=8)
            axes.set_xlabel(f"positive pairs; mean {item.counts.mean():.1f}")
            axes.set_ylabel(f"percent of the {item.side}s")
            axes.grid(axis="x", visible=False)

    description = "Rated items by their number of positive pairs, and how many items these are (parekh2021cxc, fig. 4)."
    return Panel("How many positives does an item have?", description, AXES_HEIGHT * _rows_of_axes(len(items)), draw)


def _deviation_panel(sources: Sequence[PairRatings]) -> Panel:
    highest = max(float(np.nanmax(source.deviations)) for source in sources) or 1.0
    edges = np.linspace(0.0, highest, BINS + 1)

    def draw(figure: Any) -> None:
        for axes, source in zip(axes_grid(figure, len(sources)), sources, strict=True):
            _draw_methods(axes, source, source.deviations, edges, np.isfinite(source.deviations))
            axes.set_xlabel("standard deviation")

    description = (
        "Standard deviation of the ratings of a pair: low if people agree. Each curve covers 100 % of its pairs (parekh2021cxc, "
        "app. fig. 2)."
    )
    return Panel("Do people agree?", description, (AXES_HEIGHT + 0.7) * _rows_of_axes(len(sources)), draw)


def _score_panel(pairs: Sequence[tuple[ModelScores, PairRatings]], seed: int) -> Panel:
    def draw(figure: Any) -> None:
        for axes, (model, source) in zip(axes_grid(figure, len(pairs)), pairs, strict=True):
            values, grades = model.by_source[source.source], source.grades
            order = np.random.default_rng(seed).permutation(len(values))[:MAX_POINTS]
            axes.plot(grades[order], values[order], ".", ms=3, alpha=0.45, color=COLOURS[0])
            if np.ptp(grades[order]) > 0:
                slope, level = np.polyfit(grades[order], values[order], 1)
                ends = np.array([grades[order].min(), grades[order].max()])
                axes.plot(ends, slope * ends + level, color=COLOURS[1], lw=2)
            axes.set_title(f"{shorten(model.name)}: {source.source}", fontsize=10)
            axes.set_xlabel("rating of people")
            axes.set_ylabel("score of the model")

    description = f"At most {MAX_POINTS:,} random pairs, with the line of best fit (parekh2021cxc, fig. 5)."
    return Panel("Does the model score pairs as people do?", description, AXES_HEIGHT * _rows_of_axes(len(pairs)), draw)


def write_ratings_page(
    path: Path,
    title: str,
    ratings: Mapping[str, PairRatings],
    tables: Sequence[Table],
    panels: Sequence[Panel],
    groups: Sequence[ExampleGroup],
) -> Path:
    """Write a self-contained html page with figures, tables and examples of rated pairs."""
    lead = f"{sum(map(len, ratings.values())):,} rated pairs: {', '.join(ratings)}"
    findings = [*(source.note for source in ratings.values() if source.note), *map(describe_positives, ratings.values())]
    page = render_template(
        "ratings.html", title=title, lead=lead, findings=findings, tables=tables, figures=render_panels(panels), groups=groups
    )  # fmt: skip
    return write_output(path, page.encode("utf-8", "surrogatepass"))
