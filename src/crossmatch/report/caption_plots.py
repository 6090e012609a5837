"""The pictures about caption metrics and people, each a `Panel` to be drawn into a page or a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from crossmatch.captions.agree import EVERY
from crossmatch.captions.human_scale import HumanScale
from crossmatch.captions.reference_curve import Point
from crossmatch.captions.sensitivity import BLIND, CHANCE, Noticed
from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.report.analysis_page import Panel
from crossmatch.report.analysis_plots import INK, MOST_BINS, SOFT, short
from crossmatch.report.plots import COLOURS

PALE = "#d9d9d9"
DASHES = ("-", "--", ":")  # with six colours, for eighteen metrics
BESIDE = 3  # panels in a row
APART = 1.5  # points of a percent that a scale leaves above and below the lines


def curve_panel(points: Sequence[Point], what: str = "accuracy, percent", best: float = 100.0) -> Panel:
    """Agreement with people against the number of references, for each group (jiang2019tiger, fig. 5).

    All groups have the same scale, each at its own height, so that equal slopes look alike. Points without a value are left out.
    """
    found = [point for point in points if np.isfinite(point.value)]
    if not found:
        raise CrossmatchError("there are no points of a curve to draw; compute them with accuracy_curve or correlation_curve.")
    metrics = _by_last(found)
    groups = sorted(dict.fromkeys(point.group for point in found), key=lambda group: (group != EVERY, group))
    ends = {group: _ends([p for p in found if p.group == group], best) for group in groups}
    tall = max(high - low for low, high in ends.values())

    def draw(figure: Any) -> None:
        grid, rest = _grid(figure, len(groups) + (len(groups) > 1))
        for axes, group in zip(grid, groups, strict=False):
            for metric in metrics:
                _line(axes, [p for p in found if (p.group, p.metric) == (group, metric)], metrics.index(metric), best)
            middle = min(sum(ends[group]) / 2, 1.02 * best - tall / 2)  # nothing is better than the best
            axes.set_ylim(middle - tall / 2, middle + tall / 2)
            axes.set_xticks(_ticks(sorted({p.references for p in found})))
            axes.set_title(("mean of the groups" if len(groups) > 1 else "") if group == EVERY else group, fontsize=10)
            axes.set_xlabel("references")
            axes.margins(x=0.06)
        grid[0].set_ylabel(what)
        handles = grid[0].get_legend_handles_labels()
        if len(groups) > 1:
            key = grid[len(groups)]
            key.axis("off")
            key.legend(*handles, loc="center left", frameon=False, title="highest mean first", alignment="left")
        else:
            grid[0].legend(*handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        for axes in [*grid[len(groups) + 1 :], *rest]:
            axes.set_visible(False)

    draws = max(point.draws for point in found)
    about = "Bars at the right: 95 % interval over images."
    if any(point.least < point.most for point in found):
        about = f"Bands: where one more random choice of references would lie with 95 %, by {draws} of them. {about}"
    rows = -(-(len(groups) + (len(groups) > 1)) // BESIDE)
    return Panel("How many references does a metric need?", about, 2.7 * rows + (0.3 if len(groups) > 1 else 0.6), draw)


def _line(axes: Any, mine: Sequence[Point], number: int, best: float) -> None:
    if not mine:
        return
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number // len(COLOURS) % len(DASHES)]
    mine = sorted(mine, key=lambda p: p.references)
    x = [p.references for p in mine]
    banded = [p for p in mine if np.isfinite(p.least)]
    if banded:
        ends = [best * p.least for p in banded], [best * p.most for p in banded]
        axes.fill_between([p.references for p in banded], *ends, color=colour, alpha=0.15, lw=0)
    axes.plot(x, [best * p.value for p in mine], dash, color=colour, lw=1.8, marker="o", ms=3.5, label=short(mine[0].metric, 22))
    last = mine[-1]
    beside = last.references + 0.035 * (number + 1) * max(1, x[-1] - x[0])  # apart, or the bars would hide one another
    bar = [[best * max(0.0, last.value - last.low)], [best * max(0.0, last.high - last.value)]]
    axes.errorbar(beside, best * last.value, yerr=bar, fmt="none", color=colour, lw=1.1, alpha=0.7)


def _by_last(points: Sequence[Point]) -> list[str]:
    """The metrics, the one with the highest value at the largest number of references first."""
    whole = [p for p in points if p.group == EVERY] or list(points)
    last = {p.metric: p.value for p in sorted(whole, key=lambda p: p.references)}
    return sorted(last, key=lambda metric: -last[metric])


def _ends(points: Sequence[Point], best: float) -> tuple[float, float]:
    """The lowest and the highest thing to draw: values, bands, and the bar of each metric's last point."""
    last = {p.metric: p for p in sorted(points, key=lambda p: p.references)}.values()
    shown = np.array([x for p in points for x in (p.value, p.least, p.most)] + [x for p in last for x in (p.low, p.high)])
    return best * float(np.nanmin(shown)) - APART * best / 100, best * float(np.nanmax(shown)) + APART * best / 100


def _ticks(counts: Sequence[int]) -> list[int]:
    """All of them, or, of many, one, every tenth and the last."""
    return list(counts) if len(counts) <= 10 else [n for n in counts if n in (counts[0], counts[-1]) or n % 10 == 0]


def sensitivity_panel(rows: Sequence[Noticed], kinds: bool = False) -> Panel:
    """How often a metric prefers the near to the far word, for each component or each kind of property (jiang2019tiger, fig. 7)."""
    mine = [row for row in rows if bool(row.attribute) == kinds]
    if not mine:
        raise CrossmatchError("there is nothing to draw: no probes of this kind. Compute them with probes and sensitivity.")
    metrics = list(dict.fromkeys(row.metric for row in mine))
    parts = list(dict.fromkeys((row.component, row.attribute) for row in mine))

    def draw(figure: Any) -> None:
        grid, rest = _grid(figure, len(parts), sharex=True, sharey=True)
        for axes, part in zip(grid, parts, strict=True):
            here = {row.metric: row for row in mine if (row.component, row.attribute) == part}
            for y, metric in enumerate(metrics):
                if metric in here:
                    _noticed(axes, here[metric], y)
            axes.axvline(100 * CHANCE, color=INK, lw=1.2, ls=":", zorder=4)
            axes.set_title(f"{part[1] or part[0]}  ({next(iter(here.values())).probes:,})", fontsize=10)
            axes.set_yticks(range(len(metrics)), [short(metric, 18) for metric in metrics])
            axes.set_ylim(len(metrics) - 0.5, -0.5)
            axes.set_xlim(0, 100)
            axes.grid(axis="y", visible=False)
            axes.tick_params(axis="x", labelbottom=True)
            axes.set_xlabel("percent of the probes")
        handles, names = grid[0].get_legend_handles_labels()
        figure.legend(*zip(*dict(zip(names, zip(handles, names, strict=True), strict=True)).values(), strict=True),
                      loc="outside lower center", ncols=3, frameon=False)  # fmt: skip
        for axes in rest:
            axes.set_visible(False)

    about = "A word becomes a near or a far one (number of probes in brackets): does the near caption score higher? Dotted: chance."
    if any(row.metric == BLIND for row in mine):
        about += "\nLast row: taking the more frequent of the two words, without a look at any reference."
    title = "Which kind of property does a metric see?" if kinds else "Which part of a caption does a metric see?"
    each = 0.3 * len(metrics) + 1.0
    return Panel(title, about, each * -(-len(parts) // BESIDE) + 0.4, draw)


def _noticed(axes: Any, row: Noticed, y: int) -> None:
    right, ties = 100 * row.right.value, 100 * row.ties
    axes.barh(y, right, 0.62, color=COLOURS[0], label="near higher: right")
    axes.barh(y, ties, 0.62, left=right, color=PALE, label="equal: wrong")
    axes.barh(y, max(0.0, 100 - right - ties), 0.62, left=right + ties, color=COLOURS[1], alpha=0.45, label="far higher: wrong")
    bar = [[max(0.0, right - 100 * row.right.low)], [max(0.0, 100 * row.right.high - right)]]
    axes.errorbar(right, y, xerr=bar, fmt="none", color=INK, lw=1.2, capsize=2.5, zorder=5)


def difference_panel(found: Mapping[str, HumanScale]) -> Panel:
    """How far a metric, put on people's scale, is from what people said (jiang2019tiger, fig. 8)."""
    if not found:
        raise CrossmatchError("there are no metrics on people's scale to draw; compute them with human_scale.")
    top = max(100 * float(max(each.shares.max(), each.unrelated.max())) for each in found.values())

    def draw(figure: Any) -> None:
        grid, rest = _grid(figure, len(found), sharex=True, sharey=True)
        for axes, (metric, one) in zip(grid, found.items(), strict=True):
            wide = 0.8 * float(np.diff(one.differences).min(initial=1.0))
            colours = [COLOURS[0] if off == 0 else "#9ecae1" for off in one.differences]
            axes.bar(one.differences, 100 * one.shares, wide, color=colours)
            axes.hlines(100 * one.unrelated, one.differences - wide / 2, one.differences + wide / 2, color=INK, lw=1.3,
                        label="a metric that knows nothing")  # fmt: skip
            axes.set_title(
                f"{short(metric, 24)}: {100 * one.exact.value:.0f} % equal, {100 * one.within_one.value:.0f} % within 1",
                fontsize=10,
            )
            axes.set_ylim(0, 1.12 * top)
            axes.set_xlabel("metric − people, levels")
            axes.tick_params(axis="x", labelbottom=True)
            axes.grid(axis="x", visible=False)
            if len(one.differences) <= 11:
                axes.set_xticks(one.differences, [f"{off:+g}".replace("-", "−") if off else "0" for off in one.differences])
        for axes in grid[::BESIDE]:
            axes.set_ylabel("percent of the ratings")
        handles, names = grid[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", frameon=False)
        for axes in rest:
            axes.set_visible(False)

    about = "Scores are put into people's levels so that each level holds as many captions. Dark: the same level as people said."
    return Panel("How far from people, caption by caption?", about, 2.5 * -(-len(found) // BESIDE) + 0.4, draw)


def level_panel(metrics: Sequence[str], levels: FloatArray, means: FloatArray, counts: IntArray) -> Panel:
    """The mean score of the captions that people gave each rating; `means` is (metrics, levels) (jiang2019tiger, fig. 4)."""

    def draw(figure: Any) -> None:
        grid, rest = _grid(figure, len(metrics))
        for axes, metric, row in zip(grid, metrics, means, strict=True):
            axes.plot(levels, row, "o-", color=COLOURS[0], lw=1.8, ms=6)
            for n, (x, y) in enumerate(zip(levels, row, strict=True)):
                beside: dict[str, Any] = {"ha": "right"} if n else {"ha": "center"}  # the axis is left of the first
                axes.annotate(f"{y:.2g}", (x, y), (-3 if n else 0, 7), textcoords="offset points", fontsize=8, color=INK, **beside)
            axes.set_ylim(min(0.0, 1.15 * float(row.min())), 1.2 * float(row.max()) or 1.0)
            axes.set_title(short(metric, 24), fontsize=10)
            axes.margins(x=0.18)
            axes.grid(axis="x", visible=False)
            axes.set_xlabel("people's rating")
            if len(levels) <= 7:
                axes.set_xticks(
                    levels, [f"{level:g}\n({count:,})" for level, count in zip(levels, counts, strict=True)], fontsize=9
                )
        for axes in grid[::BESIDE]:
            axes.set_ylabel("mean score")
        for axes in rest:
            axes.set_visible(False)

    about = "If the metric agrees with people, the line climbs at every step. In brackets: the number of ratings."
    return Panel("What does a metric give to good and bad captions?", about, 2.6 * -(-len(metrics) // BESIDE), draw)


class Bar(NamedTuple):
    """One line of a forest: a number with its interval, and the number that a paper prints, if it does."""

    name: str
    value: float
    low: float
    high: float
    published: float | None = None


def forest_panel(bars: Sequence[Bar], title: str, what: str, none: float | None = None) -> Panel:
    """Numbers with intervals below one another, the highest first; `none` is where nothing is told, such as a correlation of 0."""
    if not bars:
        raise CrossmatchError("there are no numbers to draw; at least one was expected.")
    shown = sorted(bars, key=lambda bar: -bar.value)
    published = any(bar.published is not None for bar in shown)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for y, bar in enumerate(shown):
            error = [[max(0.0, bar.value - bar.low)], [max(0.0, bar.high - bar.value)]]
            axes.errorbar(
                bar.value, y, xerr=error, fmt="o", ms=6, lw=1.6, color=COLOURS[0], zorder=3, label="" if y else "measured here"
            )
            axes.annotate(f"{bar.value:.3g}" if abs(bar.value) >= 1 else f"{bar.value:.3f}", (1.01, y),
                          xycoords=("axes fraction", "data"), va="center", fontsize=9, color=INK)  # fmt: skip
        told = [(bar.published, y) for y, bar in enumerate(shown) if bar.published is not None]
        if told:
            axes.plot(*zip(*told, strict=True), "D", ms=11, mfc="none", color=COLOURS[1], zorder=4, label="published")
        if none is not None:
            axes.axvline(none, color=SOFT, lw=1.2, ls=":")
        axes.set_yticks(range(len(shown)), [short(bar.name) for bar in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.set_xlabel(what)
        axes.grid(axis="y", visible=False)
        if published:
            axes.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, handletextpad=0.2)

    about = "With 95 % intervals, the highest first." + (" Diamonds: what the paper prints." if published else "")
    return Panel(title, about, 0.3 * len(shown) + (1.2 if published else 0.8), draw)


def histogram_panel(values: Mapping[str, FloatArray], title: str = "How are the scores of single captions spread?") -> Panel:
    """The distribution of each metric's scores of captions."""
    if not values or not all(len(each) for each in values.values()):
        raise CrossmatchError("there are no scores to draw; at least one for each metric was expected.")

    def draw(figure: Any) -> None:
        grid, rest = _grid(figure, len(values))
        for axes, (metric, each) in zip(grid, values.items(), strict=True):
            edges = _edges(np.asarray(each, dtype=np.float64))
            counts = np.histogram(np.clip(each, edges[0], edges[-1]), edges)[0] * (100 / len(each))
            axes.stairs(counts, edges, fill=True, color=COLOURS[0], alpha=0.3)
            axes.stairs(counts, edges, color=COLOURS[0], lw=1.5)
            middle = float(np.median(each))
            axes.axvline(middle, color=COLOURS[1], lw=1.4, ls="--")
            axes.set_title(f"{short(metric, 24)}: median {middle:.3f}", fontsize=10)
            axes.grid(axis="x", visible=False)
            axes.set_xlabel("score")
        for axes in grid[::BESIDE]:
            axes.set_ylabel("percent of the captions")
        for axes in rest:
            axes.set_visible(False)

    about = "Each histogram holds 100 % of the captions. Dashed: median. What lies far out is put into the last bin."
    return Panel(title, about, 2.4 * -(-len(values) // BESIDE), draw)


def _edges(values: FloatArray) -> FloatArray:
    """Bins, the finer the more captions there are; the top half percent is put into the last one."""
    low, high = float(values.min()), float(np.quantile(values, 0.995))
    bins = int(min(MOST_BINS, 2 * np.ceil(len(values) ** (1 / 3)) + 4))
    return np.linspace(low, high, bins + 1) if high > low else np.array([low - 0.5, low + 0.5])


def _grid(figure: Any, many: int, **options: Any) -> tuple[list[Any], list[Any]]:
    """As many axes as asked for, three in a row, and those that are left over."""
    columns = min(BESIDE, many)
    flat = list(figure.subplots(-(-many // columns), columns, squeeze=False, **options).flat)
    return flat[:many], flat[many:]
