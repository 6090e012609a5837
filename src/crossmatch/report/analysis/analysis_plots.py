"""Figures of the analyses, each a `Panel`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.result import Result
from crossmatch.metrics.metric_table import metric
from crossmatch.metrics.proportions import Proportion
from crossmatch.report.analysis.caption_statistics_comparison import StatisticsComparison, length_quantile
from crossmatch.report.analysis.direction_gap import (
    PAIRS,
    CategoryDifficulty,
    DirectionAnalysis,
    TaskRanking,
    analyse_directions,
    direction_tables,
    ranking_table,
)
from crossmatch.report.analysis.scores_by_trial_outcome import ScoreSplit
from crossmatch.report.pages import Panel, panel_svg
from crossmatch.report.result_plots import COLOURS, COLUMNS, DARK, GREY, axes_grid, error_bar, shorten
from crossmatch.report.tables import Table, format_signed

MAX_BINS = 40


# Scores of correct and wrong trials


def split_panels(splits: Sequence[ScoreSplit]) -> list[Panel]:
    """The distribution of each score over correct and over wrong trials (hu2019bison, fig. 8)."""
    description = "Each curve covers 100 % of its trials; dashed: medians. If the curves overlap, the score does not separate them."

    def draw(figure: Any) -> None:
        grid = axes_grid(figure, len(splits))
        for axes, split in zip(grid, splits, strict=True):
            _draw_split(axes, split)
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)

    rows = -(-len(splits) // COLUMNS)
    return [Panel("Scores of correct and wrong trials", description, 3.0 * rows + 0.4, draw)]


def _draw_split(axes: Any, split: ScoreSplit) -> None:
    edges = _split_bin_edges(split)
    for values, colour, label in ((split.right, COLOURS[0], "correct"), (split.wrong, COLOURS[1], "wrong")):
        counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] * (100 / len(values))
        axes.stairs(counts, edges, fill=True, color=colour, alpha=0.25)
        axes.stairs(counts, edges, color=colour, lw=1.6, label=label)
        axes.axvline(float(np.median(values)), color=colour, lw=1.2, ls="--")
    axes.set_title(
        split.score if split.auc is None else f"{split.score}\nAUC {split.auc:.2f} [{split.low:.2f}, {split.high:.2f}]", fontsize=10
    )
    axes.set_ylabel("percent of the trials")
    axes.grid(axis="x", visible=False)


def _split_bin_edges(split: ScoreSplit) -> FloatArray:
    """Edges of bins, finer for more trials. Zero is always an edge, because it separates correct from wrong margins.

    The bins cover all but half a percent of the values at either end; outliers are counted in the first and last bin.
    """
    low, high = (float(x) for x in np.quantile(np.concatenate([split.right, split.wrong]), [0.005, 0.995]))
    bins = min(MAX_BINS, 2 * int(np.ceil(min(len(split.right), len(split.wrong)) ** (1 / 3))) + 4)
    step = (high - low) / bins if high > low else 1.0
    return np.asarray(
        step * np.arange(np.floor(low / step), max(np.ceil(high / step), np.floor(low / step) + 1) + 1), dtype=np.float64
    )


# Directions, categories, rankings


def direction_panels(analysis: DirectionAnalysis) -> list[Panel]:
    """Panels of directions, categories and rankings."""
    tasks = list(dict.fromkeys(g.task for g in analysis.gaps))
    by_category = [task for task in tasks if any(d.task == task for d in analysis.difficulties)]
    return [
        *(_direction_panel(analysis, task) for task in tasks),
        *(_category_panel(analysis, task) for task in by_category),
        *(_rank_panel(ranking) for ranking in analysis.rankings if len(ranking.models) > 1),
    ]


def direction_sections(results: Sequence[Result]) -> list[tuple[Table, list[tuple[str, str, str]]]]:
    """Sections of the report: tables of directions and rankings, each with its figure (title, description, svg).

    Results that cannot be compared, such as two of one model, have no such section.
    """
    try:
        analysis = analyse_directions(results)
    except CrossmatchError:
        return []
    tasks = dict.fromkeys(g.task for g in analysis.gaps)
    pairs = [(table, _direction_panel(analysis, task)) for table, task in zip(direction_tables(analysis), tasks, strict=True)]
    pairs += [(ranking_table(ranking), _rank_panel(ranking)) for ranking in analysis.rankings if len(ranking.models) > 1]
    return [(table, [(panel.title, panel.description, panel_svg(panel))]) for table, panel in pairs]


def _direction_panel(analysis: DirectionAnalysis, task: str) -> Panel:
    models = list(dict.fromkeys(g.model for g in analysis.gaps if g.task == task))

    def draw(figure: Any) -> None:
        for axes, pair in zip(figure.subplots(1, len(PAIRS), sharex=True, sharey=True), PAIRS, strict=True):
            mine = [g for g in analysis.gaps if (g.task, g.metrics) == (task, pair)]
            for y, g in enumerate(mine):
                first, second = (100 * s.value for s in g.shares)
                axes.plot([first, second], [y, y], color="#bbbbbb", lw=2, zorder=1)
                for share, colour in zip(g.shares, COLOURS, strict=False):
                    _draw_share(axes, share, y, colour)
                doubt = "" if g.is_significant else " ?"
                label = f"{format_signed(f'{second - first:.1f}', '+')}{doubt}"
                axes.text((first + second) / 2, y - 0.2, label, ha="center", va="bottom",
                          fontsize=9, color=DARK)  # fmt: skip
            for name, colour in zip(pair, COLOURS, strict=False):
                axes.plot([], [], "o", color=colour, label=metric(name).label)
            axes.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, handletextpad=0.2)
            _draw_chance(axes, pair[0])
            axes.set_xlabel("percent")
            axes.grid(axis="y", visible=False)
            axes.margins(x=0.12)
        axes.set_yticks(range(len(models)), [shorten(m) for m in models])
        axes.set_ylim(len(models) - 0.6, -0.7)

    description = (
        "I2T: captions for an image; T2I: images for a caption. Numbers: second minus first, with ? if p ≥ .05. Dotted: chance."
    )
    return Panel(f"{task}: which direction is harder?", description, 0.55 * len(models) + 1.3, draw)


def _category_panel(analysis: DirectionAnalysis, task: str) -> Panel:
    mine = [d for d in analysis.difficulties if d.task == task]
    models = analysis.models[task]
    step = 0.8 / len(models)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for n in range(len(models)):
            for y, d in enumerate(mine):
                share = d.shares[n]
                if share is not None:
                    _draw_share(axes, share, y + (n - (len(models) - 1) / 2) * step, COLOURS[n % len(COLOURS)])
            axes.plot([], [], "o", color=COLOURS[n % len(COLOURS)], label=shorten(models[n]))
        _draw_chance(axes, mine[0].metric)
        _draw_separators(axes, mine)
        axes.set_yticks(range(len(mine)), [d.category for d in mine])
        axes.set_ylim(len(mine) - 0.5, -0.5)
        axes.set_xlim(0, 100)
        axes.set_xlabel(f"{metric(mine[0].metric).label}, percent")
        axes.grid(axis="y", visible=False)
        axes.legend(ncols=min(4, len(models)), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, handletextpad=0.2)

    description = (
        "With 95 % intervals, the lowest first: main categories above the line, their subcategories below it. Dotted: chance."
    )
    return Panel(f"{task}: which category is hardest?", description, 0.12 * len(mine) * (len(models) + 1) + 1.3, draw)


def _draw_chance(axes: Any, name: str) -> None:
    """Draw the chance level of trials with two captions and two images."""
    axes.axvline(100 * metric(name).chance((2, 2)), color=GREY, lw=1.2, ls=":", zorder=0)


def _draw_separators(axes: Any, mine: Sequence[CategoryDifficulty]) -> None:
    depth = [d.category.count("/") for d in mine]
    for at in (n for n in range(1, len(mine)) if depth[n] != depth[n - 1]):
        axes.axhline(at - 0.5, color=GREY, lw=1)


def _rank_panel(ranking: TaskRanking) -> Panel:
    names = [f"{task}, {label}" for task, label in zip(ranking.tasks, ("accuracy", "Group"), strict=True)]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for n, (model, shares, places) in enumerate(zip(ranking.models, ranking.shares, ranking.ranks, strict=True)):
            colour = COLOURS[n % len(COLOURS)]
            axes.plot([0, 1], places, "o-", color=colour, lw=2.5, ms=8)
            labels = [f"{100 * share.value:.1f}" for share in shares]
            axes.text(-0.04, places[0], f"{shorten(model)}  {labels[0]}", ha="right", va="center", color=colour)
            axes.text(1.04, places[1], f"{labels[1]}  {shorten(model)}", ha="left", va="center", color=colour)
        axes.set_xlim(-0.75, 1.75)
        axes.set_ylim(len(ranking.models) + 0.5, 0.3)
        axes.set_xticks([0, 1], names)
        axes.xaxis.tick_top()
        axes.set_yticks(range(1, len(ranking.models) + 1))
        axes.set_ylabel("rank")
        axes.tick_params(length=0)
        axes.grid(visible=False)
        for side in ("bottom", "left"):
            axes.spines[side].set_visible(False)

    tau = (
        "too few models for a correlation"
        if ranking.tau is None
        else f"Kendall's τ-b {format_signed(f'{ranking.tau:.2f}')} over {len(ranking.models)} models"
    )
    description = f"Crossing lines are models that the two tasks rank in opposite orders; {tau}."
    return Panel(
        f"Do {ranking.tasks[0]} and {ranking.tasks[1]} rank the models in the same order?",
        description,
        0.42 * len(ranking.models) + 1.0,
        draw,
    )


def _draw_share(axes: Any, share: Proportion, y: float, colour: str) -> None:
    value, low, high = (100 * x for x in (share.value, share.low, share.high))
    axes.errorbar(value, y, xerr=error_bar(value, low, high), fmt="o", ms=6, color=colour, lw=1.2, zorder=3)


# Caption statistics


def statistics_panels(comparison: StatisticsComparison) -> list[Panel]:
    """Lengths and parts of speech of the captions of a benchmark and of its source (hu2019bison, fig. 6)."""
    sets = comparison.sets

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(1.1, 1))
        parts = sorted(sets[0].statistics.parts, key=lambda part: -sets[0].statistics.parts[part])
        least = max(0, min(min(d.statistics.lengths) for d in sets) - 1)
        most = max(length_quantile(d.statistics, 0.995) for d in sets) + 1
        edges = np.arange(least, most + 2) - 0.5
        for n, caption_set in enumerate(sets):
            colour, texts = COLOURS[n], caption_set.statistics
            shares = [100 * texts.lengths.get(length, 0) / texts.captions for length in range(least, most + 1)]
            left.stairs(shares, edges, color=colour, lw=1.8, label=shorten(caption_set.name, 40))
            left.stairs(shares, edges, color=colour, fill=True, alpha=0.2)
            left.axvline(texts.mean_length, color=colour, lw=1.2, ls="--")
            height = 0.8 / len(sets)
            at = np.arange(len(parts)) + (n - (len(sets) - 1) / 2) * height
            right.barh(at, [100 * texts.parts[part] for part in parts], 0.9 * height, color=colour)
        left.set_xlabel("words per caption")
        left.set_ylabel("percent of the captions")
        left.grid(axis="x", visible=False)
        right.set_yticks(range(len(parts)), parts)
        right.invert_yaxis()
        right.set_xlabel("percent of the words")
        right.grid(axis="y", visible=False)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)

    description = "Left: distribution of the number of words; dashed: mean. Right: parts of speech."
    return [Panel("Caption statistics", description, 3.6, draw)]
