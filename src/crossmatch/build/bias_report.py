"""The bias of a pool as tables and as a picture (chun2022eccv, Table E.1 and Figure E.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossmatch.build.bias import Found, Measured
from crossmatch.report.analysis_page import Panel, write
from crossmatch.report.plots import COLOURS
from crossmatch.report.tables import SHORTER, Table

CALLED = ("all models", "self", "all models but self")


def write_bias(folder: Path, found: Found) -> list[Table]:
    """The tables, which are written into a folder with the picture, and as a page."""
    tables = bias_tables(found)
    for name in ("bias.svg", "bias.png", "bias.html"):
        write(folder / name, "What the choice of annotator models did", tables, [bias_panel(found)])
    return tables


def short(name: str) -> str:
    """A model's name; a file without its folder.

    >>> short("precomputed:runs/a.npz")
    'precomputed:a.npz'
    """
    return SHORTER.sub("", name)


def bias_tables(found: Found) -> list[Table]:
    """Scores by who proposed, bias by the number of models, and which model to add."""
    tables = [table for one in found.measured for table in (_scores(one), _sizes(one))]
    rows = [
        (str(n), short(name), f"{100 * value:.1f}" if n < len(found.order) else "–")
        for n, (name, value) in enumerate(found.order, 1)
    ]
    notes = ("each lowers the bias against those that are not in yet most; the last one was the easiest to do without",)
    tables.append(
        Table("models in the order in which they are best pooled", (("", "model", "non-self-bias"),), tuple(rows), 2, notes)
    )
    return [*tables, _candidates(found)] if found.candidates else tables


def _scores(one: Measured) -> Table:
    """Table E.1: a row for each model, a column for the pairs that each model proposed, and one for those of all."""
    models, whole = one.versions.models, len(one.versions.scores) - 1
    columns = [*range(len(models)), whole]
    best = [one.versions.scores[t].max() for t in columns]
    rows = [
        (
            short(name),
            *(
                f"{100 * one.versions.scores[t, m]:.1f}{'*' if one.versions.scores[t, m] == best[n] else ' '}"
                for n, t in enumerate(columns)
            ),
        )
        for m, name in enumerate(models)
    ]
    notes = (
        f"{one.versions.queries:,} queries; *: the best by these pairs",
        "a column: scored by the pairs that this model proposed",
    )
    head = (("model", *(f"by {short(name)}" for name in models), "by all"),)
    return Table(f"{one.direction}, {one.metric} in %", head, tuple(rows), 1, notes)


def _sizes(one: Measured) -> Table:
    rows = []
    for size, mean in one.bias.by_size().items():
        within = [f" [{100 * one.low[size][n]:.1f}, {100 * one.high[size][n]:.1f}]" if one.low else "" for n in range(len(CALLED))]
        rows.append((str(size), *(f"{100 * mean[n]:.1f}{within[n]}" for n in range(len(CALLED)))))
    drawn = "95 % intervals over queries" if one.low else "no intervals: no samples were drawn"
    notes = (f"means over all subsets of so many models, in points; {drawn}",)
    return Table(f"{one.direction}, bias of {one.metric}", (("annotator models", *CALLED),), tuple(rows), 1, notes)


def _candidates(found: Found) -> Table:
    rows = tuple(
        (
            str(n),
            short(one.model),
            f"{one.pairs:,}",
            f"{100 * one.unsure:.1f}",
            f"{100 * one.low:.1f} to {100 * one.high:.1f}",
            f"+{100 * one.expected:.1f}",
        )
        for n, one in enumerate(found.candidates, 1)
    )
    notes = (
        f"add {short(found.candidates[0].model)}: by what is known of it, the pool wrongs it most",
        "hit@1, in %: if no unjudged first item is right, and if all are; expected: if as many of them are as of the judged",
    )
    return Table("models to add", (("", "model", "pairs to judge", "first unjudged, %", "hit@1", "expected"),), rows, 2, notes)


def bias_panel(found: Found) -> Panel:
    """Figure E.2: bias against the number of annotator models, side by side for each direction and metric."""

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, len(found.measured), squeeze=False)[0]
        for place, one in zip(axes, found.measured, strict=True):
            sizes = one.bias.by_size()
            for n, (name, mark) in enumerate(zip(CALLED, "os^", strict=True)):
                mean = [100 * value[n] for value in sizes.values()]
                reach = [[100 * max(0.0, v[n] - one.low[k][n]) for k, v in sizes.items()],
                         [100 * max(0.0, one.high[k][n] - v[n]) for k, v in sizes.items()]] if one.low else None  # fmt: skip
                at = [size + (n - 1) * 0.06 for size in sizes]
                place.errorbar(at, mean, yerr=reach, fmt=f"{mark}-", ms=5, lw=1.6, capsize=2.5, color=COLOURS[n], label=name)
            place.set_title(f"{one.direction}, {one.metric}", fontsize=10)
            place.set_xticks(list(sizes))
            place.set_xlabel("annotator models")
            place.set_ylabel("bias, points")
            place.set_ylim(bottom=0)
        figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=len(CALLED), frameon=False)

    about = "How far scores are from those on the whole pool, when only some of its models had proposed pairs; 95 % intervals."
    return Panel("Number of annotator models against bias", about, 3.2, draw)
