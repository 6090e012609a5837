"""Plots of forced choices, as inline SVG."""

from __future__ import annotations

from collections.abc import Sequence

from crossmatch.core.result import Result, Row
from crossmatch.language.alter import ALTERATIONS
from crossmatch.metrics.table import metric
from crossmatch.report.plots import COLOURS, _figure, _handle, _short, _styled, _svg
from crossmatch.report.variants import Variant, changed


@_styled
def by_choice(results: Sequence[Result], part: str) -> str:
    """Every metric of one part, with its interval; the grey tick is chance."""
    rows = {(n, row.metric): row for n, r in enumerate(results) for row in r.rows if row.part == part}
    names = list(dict.fromkeys(name for _, name in rows))
    return _dots(results, [(metric(name).label or name, [rows.get((n, name)) for n in range(len(results))]) for name in names])


@_styled
def by_category(results: Sequence[Result], name: str) -> str:
    """One metric in every category, with its interval; the grey tick is chance."""
    rows = {(n, row.part): row for n, r in enumerate(results) for row in r.rows if row.metric == name}
    parts = [part for part in dict.fromkeys(part for _, part in rows) if part != "macro"]
    return _dots(results, [(part or "all", [rows.get((n, part)) for n in range(len(results))]) for part in parts])


def alteration_chart(found: Sequence[Variant]) -> str:
    """For each alteration and model, the share of predictions that it changed (hu2019bison, fig. 9)."""
    models = list({v.base.model: v.base for v in found}.values())
    kinds = [how for how in ALTERATIONS if any(v.how == how for v in found)]
    shares = {(v.base.model, v.how): changed(v) for v in found}

    @_styled
    def draw(models: Sequence[Result], _: str) -> str:
        figure, axes = _figure(9.0, 3.4)
        width = 0.8 / len(models)
        for n, (model, label) in enumerate(zip(models, _short(models), strict=True)):
            for k, how in enumerate(kinds):
                if (model.model, how) not in shares:
                    continue
                share = shares[model.model, how]
                at = k + (n - (len(models) - 1) / 2) * width
                height, low, high = (100 * x for x in (share.value, share.low, share.high))
                axes.bar(at, height, 0.92 * width, color=COLOURS[n % len(COLOURS)], label=label if k == 0 else None)
                axes.errorbar(at, height, [[max(0.0, height - low)], [max(0.0, high - height)]], color="#333333", lw=1)
                axes.text(at, high + 0.6, f"{height:.1f}", ha="center", va="bottom", fontsize=9)
        axes.set_xticks(range(len(kinds)), kinds)
        axes.set_ylabel("predictions changed, percent")
        axes.set_ylim(0, 115 * max(share.high for share in shares.values()) + 2)
        axes.grid(axis="x", visible=False)
        axes.legend(ncols=len(models), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
        return _svg(figure)

    return draw(models, "")


def _dots(results: Sequence[Result], lines: Sequence[tuple[str, list[Row | None]]]) -> str:
    figure, axes = _figure(9.0, 0.26 * len(lines) * len(results) + 1.2)
    y = 0
    for _, rows in lines:
        for n, row in enumerate(rows):
            if row is not None:
                colour = COLOURS[n % len(COLOURS)]
                error = [[max(0.0, row.value - row.low)], [max(0.0, row.high - row.value)]]
                axes.plot(row.chance, y, marker="|", ms=9, color="#999999", zorder=1)
                axes.errorbar(row.value, y, xerr=error, fmt="o", ms=6, color=colour, lw=1, zorder=3)
            y += 1
    for at in range(len(results), y, len(results)):
        axes.axhline(at - 0.5, color="#dddddd", lw=0.8)
    middles = [len(results) * n + (len(results) - 1) / 2 for n in range(len(lines))]
    axes.set_yticks(middles, [label for label, _ in lines])
    axes.set_ylim(y - 0.5, -0.5)
    axes.set_xlim(-2, 102)
    axes.set_xlabel("percent")
    axes.grid(axis="y", visible=False)
    handles = [_handle(COLOURS[n % len(COLOURS)], name, True) for n, name in enumerate(_short(results))]
    axes.legend(handles=handles, ncols=min(4, len(handles)), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    return _svg(figure)
