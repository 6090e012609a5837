"""Figures about the agreement of caption metrics with people, each a `Panel`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from crossmatch.captions.human.metric_agreement import GROUP_MEAN
from crossmatch.captions.human.rating_scale_matching import RatingScaleMatch
from crossmatch.captions.human.reference_curve import CurvePoint
from crossmatch.captions.human.sensitivity import CHANCE, FREQUENCY_SCORER, SensitivityRow
from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.report.analysis.analysis_plots import MAX_BINS
from crossmatch.report.pages import Panel
from crossmatch.report.result_plots import COLOURS, COLUMNS, DARK, GREY, axes_grid, error_bar, shorten

PALE = "#d9d9d9"
DASHES = ("-", "--", ":")  # with six colours, enough for eighteen metrics
MARGIN = 1.5  # percent of the scale above and below the lines


def curve_panel(points: Sequence[CurvePoint], label: str = "accuracy, percent", best: float = 100.0) -> Panel:
    """Agreement with people by number of references, for each group (jiang2019tiger, fig. 5).

    All groups have the same scale with different offsets, so that equal slopes look equal. Points without a value are omitted.
    """
    defined = [point for point in points if np.isfinite(point.value)]
    metrics = _by_last_value(defined)
    groups = sorted(dict.fromkeys(point.group for point in defined), key=lambda group: (group != GROUP_MEAN, group))
    ranges = {group: _value_range([p for p in defined if p.group == group], best) for group in groups}
    height = max(high - low for low, high in ranges.values())

    def draw(figure: Any) -> None:
        grid = axes_grid(figure, len(groups) + (len(groups) > 1))
        for axes, group in zip(grid, groups, strict=False):
            for metric in metrics:
                _draw_curve(axes, [p for p in defined if (p.group, p.metric) == (group, metric)], metrics.index(metric), best)
            middle = min(sum(ranges[group]) / 2, 1.02 * best - height / 2)  # no space above the best value
            axes.set_ylim(middle - height / 2, middle + height / 2)
            axes.set_xticks(_choose_ticks(sorted({p.references for p in defined})))
            axes.set_title(("mean of the groups" if len(groups) > 1 else "") if group == GROUP_MEAN else group, fontsize=10)
            axes.set_xlabel("references")
            axes.margins(x=0.06)
        grid[0].set_ylabel(label)
        handles = grid[0].get_legend_handles_labels()
        if len(groups) > 1:
            legend = grid[len(groups)]
            legend.axis("off")
            legend.legend(*handles, loc="center left", frameon=False, title="highest mean first", alignment="left")
        else:
            grid[0].legend(*handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)

    draws = max(point.draws for point in defined)
    description = "Bars at the right: 95 % confidence interval over images."
    if any(point.draw_low < point.draw_high for point in defined):
        description = f"Bands: 95 % prediction interval of one more draw of references, from {draws} draws. {description}"
    rows = -(-(len(groups) + (len(groups) > 1)) // COLUMNS)
    return Panel("Agreement by number of references", description, 2.7 * rows + (0.3 if len(groups) > 1 else 0.6), draw)


def _draw_curve(axes: Any, points: Sequence[CurvePoint], number: int, best: float) -> None:
    if not points:
        return
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
    points = sorted(points, key=lambda p: p.references)
    x = [p.references for p in points]
    banded = [p for p in points if np.isfinite(p.draw_low)]
    if banded:
        ends = [best * p.draw_low for p in banded], [best * p.draw_high for p in banded]
        axes.fill_between([p.references for p in banded], *ends, color=colour, alpha=0.15, lw=0)
    axes.plot(
        x, [best * p.value for p in points], dash, color=colour, lw=1.8, marker="o", ms=3.5, label=shorten(points[0].metric, 22)
    )
    last = points[-1]
    bar_x = last.references + 0.035 * (number + 1) * max(1, x[-1] - x[0])  # bars of different metrics must not overlap
    bar = error_bar(best * last.value, best * last.low, best * last.high)
    axes.errorbar(bar_x, best * last.value, yerr=bar, fmt="none", color=colour, lw=1.1, alpha=0.7)


def _by_last_value(points: Sequence[CurvePoint]) -> list[str]:
    """The metrics, sorted by their value with the largest number of references, highest first."""
    means = [p for p in points if p.group == GROUP_MEAN] or list(points)
    last = {p.metric: p.value for p in sorted(means, key=lambda p: p.references)}
    return sorted(last, key=lambda metric: -last[metric])


def _value_range(points: Sequence[CurvePoint], best: float) -> tuple[float, float]:
    """The range of all values, bands and bars."""
    last = {p.metric: p for p in sorted(points, key=lambda p: p.references)}.values()
    drawn = np.array([x for p in points for x in (p.value, p.draw_low, p.draw_high)] + [x for p in last for x in (p.low, p.high)])
    return best * float(np.nanmin(drawn)) - MARGIN * best / 100, best * float(np.nanmax(drawn)) + MARGIN * best / 100


def _choose_ticks(counts: Sequence[int]) -> list[int]:
    """All numbers, or the first, every tenth and the last if there are more than ten."""
    return list(counts) if len(counts) <= 10 else [n for n in counts if n in (counts[0], counts[-1]) or n % 10 == 0]


def sensitivity_panel(rows: Sequence[SensitivityRow], kinds: bool = False) -> Panel:
    """How often a metric prefers the near word, by component or by kind of property (jiang2019tiger, fig. 7)."""
    selected = [row for row in rows if bool(row.attribute) == kinds]
    metrics = list(dict.fromkeys(row.metric for row in selected))
    parts = list(dict.fromkeys((row.component, row.attribute) for row in selected))

    def draw(figure: Any) -> None:
        grid = axes_grid(figure, len(parts), sharex=True, sharey=True)
        for axes, part in zip(grid, parts, strict=True):
            by_metric = {row.metric: row for row in selected if (row.component, row.attribute) == part}
            for y, metric in enumerate(metrics):
                if metric in by_metric:
                    _draw_sensitivity(axes, by_metric[metric], y)
            axes.axvline(100 * CHANCE, color=DARK, lw=1.2, ls=":", zorder=4)
            axes.set_title(f"{part[1] or part[0]}  ({next(iter(by_metric.values())).probes:,})", fontsize=10)
            axes.set_yticks(range(len(metrics)), [shorten(metric, 18) for metric in metrics])
            axes.set_ylim(len(metrics) - 0.5, -0.5)
            axes.set_xlim(0, 100)
            axes.grid(axis="y", visible=False)
            axes.tick_params(axis="x", labelbottom=True)
            axes.set_xlabel("percent of the probes")
        handles, names = grid[0].get_legend_handles_labels()
        figure.legend(*zip(*dict(zip(names, zip(handles, names, strict=True), strict=True)).values(), strict=True),
                      loc="outside lower center", ncols=3, frameon=False)  # fmt: skip

    description = (
        "A word is replaced by a near and by a far word. Share of probes in which the near caption scores higher. Dotted: chance."
    )
    if any(row.metric == FREQUENCY_SCORER for row in selected):
        description += "\nLast row: a baseline that prefers the more frequent word and ignores the references."
    title = "Sensitivity by kind of property" if kinds else "Sensitivity by part of the caption"
    row_height = 0.3 * len(metrics) + 1.0
    return Panel(title, description, row_height * -(-len(parts) // COLUMNS) + 0.4, draw)


def _draw_sensitivity(axes: Any, row: SensitivityRow, y: int) -> None:
    right, ties = 100 * row.correct.value, 100 * row.ties
    axes.barh(y, right, 0.62, color=COLOURS[0], label="near higher: correct")
    axes.barh(y, ties, 0.62, left=right, color=PALE, label="equal: wrong")
    axes.barh(y, max(0.0, 100 - right - ties), 0.62, left=right + ties, color=COLOURS[1], alpha=0.45, label="far higher: wrong")
    bar = error_bar(right, 100 * row.correct.low, 100 * row.correct.high)
    axes.errorbar(right, y, xerr=bar, fmt="none", color=DARK, lw=1.2, capsize=2.5, zorder=5)


def difference_panel(matches: Mapping[str, RatingScaleMatch]) -> Panel:
    """Differences between mapped scores and human ratings (jiang2019tiger, fig. 8)."""
    top = max(100 * float(max(match.shares.max(), match.chance_shares.max())) for match in matches.values())

    def draw(figure: Any) -> None:
        grid = axes_grid(figure, len(matches), sharex=True, sharey=True)
        for axes, (metric, match) in zip(grid, matches.items(), strict=True):
            width = 0.8 * float(np.diff(match.differences).min(initial=1.0))
            colours = [COLOURS[0] if off == 0 else "#9ecae1" for off in match.differences]
            axes.bar(match.differences, 100 * match.shares, width, color=colours)
            axes.hlines(100 * match.chance_shares, match.differences - width / 2, match.differences + width / 2, color=DARK, lw=1.3,
                        label="a metric without knowledge")  # fmt: skip
            axes.set_title(
                f"{shorten(metric, 24)}: {100 * match.exact.value:.0f} % equal, {100 * match.within_one.value:.0f} % within 1",
                fontsize=10,
            )
            axes.set_ylim(0, 1.12 * top)
            axes.set_xlabel("metric − people, levels")
            axes.tick_params(axis="x", labelbottom=True)
            axes.grid(axis="x", visible=False)
            if len(match.differences) <= 11:
                axes.set_xticks(match.differences, [f"{off:+g}".replace("-", "−") if off else "0" for off in match.differences])
        for axes in grid[::COLUMNS]:
            axes.set_ylabel("percent of the ratings")
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", frameon=False)

    description = (
        "Scores are mapped to rating levels, so that each level has as many captions as ratings. Dark: equal to the rating."
    )
    return Panel("Difference between metric and people per caption", description, 2.5 * -(-len(matches) // COLUMNS) + 0.4, draw)


def level_panel(metrics: Sequence[str], levels: FloatArray, means: FloatArray, counts: IntArray) -> Panel:
    """The mean score of the captions with each rating; `means` has shape (metrics, levels) (jiang2019tiger, fig. 4)."""

    def draw(figure: Any) -> None:
        grid = axes_grid(figure, len(metrics))
        for axes, metric, row in zip(grid, metrics, means, strict=True):
            axes.plot(levels, row, "o-", color=COLOURS[0], lw=1.8, ms=6)
            for n, (x, y) in enumerate(zip(levels, row, strict=True)):
                alignment = "right" if n else "center"  # the first label must not cover the axis
                axes.annotate(
                    f"{y:.2g}", (x, y), (-3 if n else 0, 7), textcoords="offset points", fontsize=8, color=DARK, ha=alignment
                )
            axes.set_ylim(min(0.0, 1.15 * float(row.min())), 1.2 * float(row.max()) or 1.0)
            axes.set_title(shorten(metric, 24), fontsize=10)
            axes.margins(x=0.18)
            axes.grid(axis="x", visible=False)
            axes.set_xlabel("human rating")
            if len(levels) <= 7:
                axes.set_xticks(
                    levels, [f"{level:g}\n({count:,})" for level, count in zip(levels, counts, strict=True)], fontsize=9
                )
        for axes in grid[::COLUMNS]:
            axes.set_ylabel("mean score")

    description = "If the metric agrees with people, the line rises at every step. In parentheses: the number of ratings."
    return Panel("Mean score by human rating", description, 2.6 * -(-len(metrics) // COLUMNS), draw)


class ForestBar(NamedTuple):
    """One row of a forest plot: a value with its interval, and the published value, if there is one."""

    name: str
    value: float
    low: float
    high: float
    published: float | None = None


def forest_panel(bars: Sequence[ForestBar], title: str, label: str, baseline: float | None = None) -> Panel:
    """A forest plot of values with intervals, the highest first; `baseline` is drawn as a line, such as a correlation of 0."""
    ordered = sorted(bars, key=lambda bar: -bar.value)
    published = any(bar.published is not None for bar in ordered)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for y, bar in enumerate(ordered):
            error = error_bar(bar.value, bar.low, bar.high)
            axes.errorbar(
                bar.value, y, xerr=error, fmt="o", ms=6, lw=1.6, color=COLOURS[0], zorder=3, label="" if y else "measured here"
            )
            axes.annotate(f"{bar.value:.3g}" if abs(bar.value) >= 1 else f"{bar.value:.3f}", (1.01, y),
                          xycoords=("axes fraction", "data"), va="center", fontsize=9, color=DARK)  # fmt: skip
        diamonds = [(bar.published, y) for y, bar in enumerate(ordered) if bar.published is not None]
        if diamonds:
            axes.plot(*zip(*diamonds, strict=True), "D", ms=11, mfc="none", color=COLOURS[1], zorder=4, label="published")
        if baseline is not None:
            axes.axvline(baseline, color=GREY, lw=1.2, ls=":")
        axes.set_yticks(range(len(ordered)), [shorten(bar.name) for bar in ordered])
        axes.set_ylim(len(ordered) - 0.4, -0.6)
        axes.set_xlabel(label)
        axes.grid(axis="y", visible=False)
        if published:
            axes.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, handletextpad=0.2)

    description = "With 95 % intervals, the highest first." + (" Diamonds: published values." if published else "")
    return Panel(title, description, 0.3 * len(ordered) + (1.2 if published else 0.8), draw)


def histogram_panel(values: Mapping[str, FloatArray], title: str = "Distribution of scores") -> Panel:
    """The distribution of the scores of each metric."""

    def draw(figure: Any) -> None:
        grid = axes_grid(figure, len(values))
        for axes, (metric, scores) in zip(grid, values.items(), strict=True):
            edges = _bin_edges(np.asarray(scores, dtype=np.float64))
            counts = np.histogram(np.clip(scores, edges[0], edges[-1]), edges)[0] * (100 / len(scores))
            axes.stairs(counts, edges, fill=True, color=COLOURS[0], alpha=0.3)
            axes.stairs(counts, edges, color=COLOURS[0], lw=1.5)
            middle = float(np.median(scores))
            axes.axvline(middle, color=COLOURS[1], lw=1.4, ls="--")
            axes.set_title(f"{shorten(metric, 24)}: median {middle:.3f}", fontsize=10)
            axes.grid(axis="x", visible=False)
            axes.set_xlabel("score")
        for axes in grid[::COLUMNS]:
            axes.set_ylabel("percent of the captions")

    description = "Each histogram covers 100 % of the captions. Dashed: median. Outliers are counted in the last bin."
    return Panel(title, description, 2.4 * -(-len(values) // COLUMNS), draw)


def _bin_edges(values: FloatArray) -> FloatArray:
    """Edges of bins, finer for more captions; the top half percent is in the last bin."""
    low, high = float(values.min()), float(np.quantile(values, 0.995))
    bins = int(min(MAX_BINS, 2 * np.ceil(len(values) ** (1 / 3)) + 4))
    return np.linspace(low, high, bins + 1) if high > low else np.array([low - 0.5, low + 0.5])
