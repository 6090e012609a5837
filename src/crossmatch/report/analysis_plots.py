"""The pictures of the analyses, each a `Panel` to be drawn into a page or a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.result import Result
from crossmatch.metrics.proportion import Share
from crossmatch.metrics.table import metric
from crossmatch.report.analysis_page import Panel, as_svg
from crossmatch.report.distribution import Apart
from crossmatch.report.gap import PAIRS, Difficulty, Found, Ranking, gap
from crossmatch.report.gap_tables import direction_tables, ranking_table, signed
from crossmatch.report.plots import COLOURS
from crossmatch.report.statistics import Compared, length_quantile
from crossmatch.report.tables import Table

INK, SOFT = "#222222", "#777777"
MOST_BINS = 40
BESIDE = 3  # panels of distributions in a row


def short(name: str, most: int = 26) -> str:
    """
    >>> short("precomputed:a-very-long-name-of-a-file.csv", 20)
    'precomputed:a-very-…'
    """
    return name if len(name) <= most else f"{name[: most - 1]}…"


# Scores of right and wrong trials


def apart_panels(found: Sequence[Apart]) -> list[Panel]:
    """For each score, its distribution over right and over wrong trials (hu2019bison, fig. 8)."""
    rows = -(-len(found) // BESIDE)
    about = "Each curve holds 100 % of its trials; dashed: medians. Where one curve lies on the other, the score does not tell."

    def draw(figure: Any) -> None:
        columns = min(BESIDE, len(found))
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, one in zip(grid.flat, found, strict=False):
            _one_apart(axes, one)
        for axes in list(grid.flat)[len(found) :]:
            axes.set_visible(False)
        handles, names = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)

    return [Panel("Scores of the trials answered rightly and wrongly", about, 3.0 * rows + 0.4, draw)]


def _one_apart(axes: Any, one: Apart) -> None:
    edges = _edges(one)
    for values, colour, label in ((one.right, COLOURS[0], "answered rightly"), (one.wrong, COLOURS[1], "answered wrongly")):
        counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] * (100 / len(values))
        axes.stairs(counts, edges, fill=True, color=colour, alpha=0.25)
        axes.stairs(counts, edges, color=colour, lw=1.6, label=label)
        axes.axvline(float(np.median(values)), color=colour, lw=1.2, ls="--")
    axes.set_title(one.score if one.auc is None else f"{one.score}\nAUC {one.auc:.2f} [{one.low:.2f}, {one.high:.2f}]", fontsize=10)
    axes.set_ylabel("percent of the trials")
    axes.grid(axis="x", visible=False)


def _edges(one: Apart) -> FloatArray:
    """The more trials, the finer; zero is always an edge, because it parts right from wrong margins.

    All but half a percent at either end, so that a few outliers do not squeeze the rest; what is outside is put into the last bins.
    """
    low, high = (float(x) for x in np.quantile(np.concatenate([one.right, one.wrong]), [0.005, 0.995]))
    bins = min(MOST_BINS, 2 * int(np.ceil(min(len(one.right), len(one.wrong)) ** (1 / 3))) + 4)
    step = (high - low) / bins if high > low else 1.0
    return np.asarray(
        step * np.arange(np.floor(low / step), max(np.ceil(high / step), np.floor(low / step) + 1) + 1), dtype=np.float64
    )


# Directions, categories, ranks


def gap_panels(found: Found) -> list[Panel]:
    tasks = list(dict.fromkeys(g.task for g in found.gaps))
    by_category = [task for task in tasks if any(d.task == task for d in found.difficulties)]
    return [
        *(_direction_panel(found, task) for task in tasks),
        *(_category_panel(found, task) for task in by_category),
        *(_rank_panel(ranking) for ranking in found.rankings if len(ranking.models) > 1),
    ]


def gap_sections(results: Sequence[Result]) -> list[tuple[Table, list[tuple[str, str, str]]]]:
    """For the report: tables of directions and of ranks, each with its figure (title, about, svg). Categories are there anyway.

    Results that cannot be compared, such as two of one model, have no such section: the report shows them one by one.
    """
    try:
        found = gap(results)
    except CrossmatchError:
        return []
    tasks = dict.fromkeys(g.task for g in found.gaps)
    pairs = [(table, _direction_panel(found, task)) for table, task in zip(direction_tables(found), tasks, strict=True)]
    pairs += [(ranking_table(ranking), _rank_panel(ranking)) for ranking in found.rankings if len(ranking.models) > 1]
    return [(table, [(panel.title, panel.about, as_svg(panel))]) for table, panel in pairs]


def _direction_panel(found: Found, task: str) -> Panel:
    models = list(dict.fromkeys(g.model for g in found.gaps if g.task == task))

    def draw(figure: Any) -> None:
        for axes, pair in zip(figure.subplots(1, len(PAIRS), sharex=True, sharey=True), PAIRS, strict=True):
            mine = [g for g in found.gaps if (g.task, g.metrics) == (task, pair)]
            for y, g in enumerate(mine):
                first, second = (100 * s.value for s in g.shares)
                axes.plot([first, second], [y, y], color="#bbbbbb", lw=2, zorder=1)
                for share, colour in zip(g.shares, COLOURS, strict=False):
                    _dot(axes, share, y, colour)
                sure = "" if g.sure else " ?"
                axes.text((first + second) / 2, y - 0.2, f"{signed(second - first, 1, '+')}{sure}", ha="center", va="bottom",
                          fontsize=9, color=INK)  # fmt: skip
            for name, colour in zip(pair, COLOURS, strict=False):
                axes.plot([], [], "o", color=colour, label=metric(name).label)
            axes.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, handletextpad=0.2)
            _chance(axes, pair[0])
            axes.set_xlabel("percent")
            axes.grid(axis="y", visible=False)
            axes.margins(x=0.12)
        axes.set_yticks(range(len(models)), [short(m) for m in models])
        axes.set_ylim(len(models) - 0.6, -0.7)

    about = (
        "I2T: images find their captions; T2I: captions their images. Number: second minus first, ? where p ≥ .05. Dotted: chance."
    )
    return Panel(f"{task}: which direction is harder?", about, 0.55 * len(models) + 1.3, draw)


def _category_panel(found: Found, task: str) -> Panel:
    mine = [d for d in found.difficulties if d.task == task]
    models = found.models[task]
    step = 0.8 / len(models)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for n in range(len(models)):
            for y, d in enumerate(mine):
                share = d.shares[n]
                if share is not None:
                    _dot(axes, share, y + (n - (len(models) - 1) / 2) * step, COLOURS[n % len(COLOURS)])
            axes.plot([], [], "o", color=COLOURS[n % len(COLOURS)], label=short(models[n]))
        _chance(axes, mine[0].metric)
        _separate(axes, mine)
        axes.set_yticks(range(len(mine)), [d.category for d in mine])
        axes.set_ylim(len(mine) - 0.5, -0.5)
        axes.set_xlim(0, 100)
        axes.set_xlabel(f"{metric(mine[0].metric).label}, percent")
        axes.grid(axis="y", visible=False)
        axes.legend(ncols=min(4, len(models)), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, handletextpad=0.2)

    about = "With 95 % intervals, the lowest first: above the line whole categories, below it what they consist of. Dotted: chance."
    return Panel(f"{task}: which category is hardest?", about, 0.12 * len(mine) * (len(models) + 1) + 1.3, draw)


def _chance(axes: Any, name: str) -> None:
    """Of a 2 x 2 trial: all panels here are of these."""
    axes.axvline(100 * metric(name).chance((2, 2)), color=SOFT, lw=1.2, ls=":", zorder=0)


def _separate(axes: Any, mine: Sequence[Difficulty]) -> None:
    depth = [d.category.count("/") for d in mine]
    for at in (n for n in range(1, len(mine)) if depth[n] != depth[n - 1]):
        axes.axhline(at - 0.5, color=SOFT, lw=1)


def _rank_panel(one: Ranking) -> Panel:
    names = [f"{task}, {label}" for task, label in zip(one.tasks, ("accuracy", "Group"), strict=True)]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for n, (model, shares, places) in enumerate(zip(one.models, one.shares, one.places, strict=True)):
            colour = COLOURS[n % len(COLOURS)]
            axes.plot([0, 1], places, "o-", color=colour, lw=2.5, ms=8)
            told = [f"{100 * share.value:.1f}" for share in shares]
            axes.text(-0.04, places[0], f"{short(model)}  {told[0]}", ha="right", va="center", color=colour)
            axes.text(1.04, places[1], f"{told[1]}  {short(model)}", ha="left", va="center", color=colour)
        axes.set_xlim(-0.75, 1.75)
        axes.set_ylim(len(one.models) + 0.5, 0.3)
        axes.set_xticks([0, 1], names)
        axes.xaxis.tick_top()
        axes.set_yticks(range(1, len(one.models) + 1))
        axes.set_ylabel("place")
        axes.tick_params(length=0)
        axes.grid(visible=False)
        for side in ("bottom", "left"):
            axes.spines[side].set_visible(False)

    tau = (
        "too few models for a correlation" if one.tau is None else f"Kendall's τ-b {signed(one.tau)} over {len(one.models)} models"
    )
    about = f"Lines that cross are models that the two tasks put in opposite orders; {tau}."
    return Panel(f"Do {one.tasks[0]} and {one.tasks[1]} rank the models alike?", about, 0.42 * len(one.models) + 1.0, draw)


def _dot(axes: Any, share: Share, y: float, colour: str) -> None:
    value, low, high = (100 * x for x in (share.value, share.low, share.high))
    axes.errorbar(value, y, xerr=[[max(0.0, value - low)], [max(0.0, high - value)]], fmt="o", ms=6, color=colour, lw=1.2, zorder=3)


# What the captions are like


def statistics_panels(found: Compared) -> list[Panel]:
    """How long captions are and which parts of speech they are made of, the benchmark against its source (hu2019bison, fig. 6)."""
    both = found.both

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(1.1, 1))
        parts = sorted(both[0].texts.parts, key=lambda part: -both[0].texts.parts[part])
        least = max(0, min(min(d.texts.lengths) for d in both) - 1)
        most = max(length_quantile(d.texts, 0.995) for d in both) + 1
        edges = np.arange(least, most + 2) - 0.5
        for n, one in enumerate(both):
            colour, texts = COLOURS[n], one.texts
            shares = [100 * texts.lengths.get(length, 0) / texts.captions for length in range(least, most + 1)]
            left.stairs(shares, edges, color=colour, lw=1.8, label=short(one.name, 40))
            left.stairs(shares, edges, color=colour, fill=True, alpha=0.2)
            left.axvline(texts.mean_length, color=colour, lw=1.2, ls="--")
            height = 0.8 / len(both)
            at = np.arange(len(parts)) + (n - (len(both) - 1) / 2) * height
            right.barh(at, [100 * texts.parts[part] for part in parts], 0.9 * height, color=colour)
        left.set_xlabel("words of a caption")
        left.set_ylabel("percent of the captions")
        left.grid(axis="x", visible=False)
        right.set_yticks(range(len(parts)), parts)
        right.invert_yaxis()
        right.set_xlabel("percent of the words")
        right.grid(axis="y", visible=False)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)

    about = "Left: how many captions have so many words, dashed the mean. Right: which kinds of words they are made of."
    return [Panel("What the captions are like", about, 3.6, draw)]
