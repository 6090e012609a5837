"""Plots as inline SVG, drawn by matplotlib."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import cycle
from typing import Any

import numpy as np

from crossmatch.core.errors import MissingDependency
from crossmatch.core.result import Result
from crossmatch.core.standing import Standing
from crossmatch.metrics.measure import ranks_of
from crossmatch.metrics.ranking import hit_at
from crossmatch.metrics.table import metric
from crossmatch.report.tables import labels

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")  # okabe2008color: told apart by everyone
FILLED = (False, True, True)  # the circle of the first set of judgements is open
DASHES = ("--", "-", ":", "-.")
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e6e6e6", "axes.axisbelow": True, "svg.hashsalt": "crossmatch", "svg.fonttype": "none", "text.parse_math": False,
}  # fmt: skip


def _styled(draw: Callable[[Sequence[Result], str], str]) -> Callable[[Sequence[Result], str], str]:
    """Draw under our style from beginning to end, whatever the user's own settings are."""

    @wraps(draw)
    def styled(results: Sequence[Result], direction: str) -> str:
        try:
            import matplotlib
        except ImportError:
            raise MissingDependency("matplotlib", "report") from None
        with matplotlib.rc_context(STYLE):
            return draw(results, direction)

    return styled


@_styled
def by_metric(results: Sequence[Result], direction: str) -> str:
    """For each model and metric a line from its value by one set of judgements to its value by the other, with intervals."""
    sets = _sets(results)
    shown = [row.metric for x in results for row in x.rows if row.part.partition("/")[0] == direction]
    names = [m for m in dict.fromkeys(shown) if metric(m).unit == "%"]
    figure, axes = _figure(9.0, 0.32 * len(names) * len(results) + 1.4)
    lines = [(name, result) for name in names for result in results]
    for y, (name, result) in enumerate(lines):
        colour = COLOURS[results.index(result) % len(COLOURS)]
        rows = [row for judged in sets for row in result.rows if row.part == _part(direction, judged) and row.metric == name]
        axes.plot([row.value for row in rows], [y] * len(rows), color=colour, lw=1.5, alpha=0.45, zorder=2)
        for row, filled in zip(rows, FILLED if len(sets) > 1 else (True,), strict=False):
            error = [[max(0.0, row.value - row.low)], [max(0.0, row.high - row.value)]]
            axes.errorbar(row.value, y, xerr=error, fmt="o", ms=6, color=colour, mfc=colour if filled else "white", lw=1, zorder=3)
        if rows:
            axes.plot(rows[-1].chance, y, marker="|", ms=9, color="#999999", zorder=1)
    for at in range(len(results), len(lines), len(results)):
        axes.axhline(at - 0.5, color="#dddddd", lw=0.8)
    axes.set_yticks([len(results) * n + (len(results) - 1) / 2 for n in range(len(names))], [metric(n).label for n in names])
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xlim(-2, 102)
    axes.set_xlabel("percent")
    axes.grid(axis="y", visible=False)
    handles = [_handle(COLOURS[n % len(COLOURS)], name, True) for n, name in enumerate(_short(results))]
    if len(sets) > 1:
        handles += [_handle("#555555", f"by {judged}", filled) for judged, filled in zip(sets, FILLED, strict=False)]
    axes.legend(handles=handles, ncols=len(handles), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    return _svg(figure)


@_styled
def hits_by_depth(results: Sequence[Result], direction: str) -> str:
    """Share of the queries with a positive among the first k, for every k: the whole curve of which R@1, R@5, R@10 are points."""
    figure, axes = _figure(9.0, 3.6)
    sets = _sets(results)
    for n, result in enumerate(results):
        for judged, dash in zip(sets, cycle(DASHES if len(sets) > 1 else ("-",)), strict=False):
            part = result.parts.get(_part(direction, judged))
            if part is None or not isinstance(part.evidence, Standing):
                continue
            ranks = ranks_of(part, result.ties)
            depth = int(ranks.depth.min())
            ks = np.unique(np.geomspace(1, depth, 60).round().astype(int))
            label = f"{_short(results)[n]}, by {judged}" if judged else _short(results)[n]
            axes.plot(ks, [100 * hit_at(ranks, int(k)).mean() for k in ks], dash, color=COLOURS[n % len(COLOURS)], label=label)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(0, 103)
    axes.set_xlabel("k, the number of retrieved items looked at")
    axes.set_ylabel("queries with a hit, percent")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return _svg(figure)


def _short(results: Sequence[Result]) -> list[str]:
    """Names that fit a legend; the table has them in full."""
    return [name if len(name) <= 32 else f"{name[:31]}…" for name in labels(results)]


def _sets(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(row.part.partition("/")[2] for r in results for row in r.rows))


def _part(direction: str, judged: str) -> str:
    return f"{direction}/{judged}" if judged else direction


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _handle(colour: str, label: str, filled: bool) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], marker="o", ls="", color=colour, mfc=colour if filled else "white", label=label)


def _svg(figure: Any) -> str:
    out = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # text stays text in the svg: the browser has the glyphs
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()[out.getvalue().index("<svg") :]
