"""Tables and a plot of the bias of a pool (chun2022eccv, Table E.1 and Figure E.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossmatch.build.pool_bias_step import MeasuredBias, PoolBiasAnalysis
from crossmatch.data.result import shorten_model_name
from crossmatch.report.pages import Panel, write_analysis
from crossmatch.report.result_plots import COLOURS
from crossmatch.report.tables import Table

BIAS_LABELS = ("all models", "self", "all models but self")


def write_bias_report(folder: Path, analysis: PoolBiasAnalysis) -> list[Table]:
    """Write the plot (svg, png) and a page with the tables into a folder; return the tables."""
    tables = bias_tables(analysis)
    for name in ("bias.svg", "bias.png", "bias.html"):
        write_analysis(folder / name, "How the choice of models biases the pool", tables, [bias_panel(analysis)])
    return tables


def bias_tables(analysis: PoolBiasAnalysis) -> list[Table]:
    """Scores by proposing model, bias by number of models, order of the models, and candidates to add."""
    tables = [table for measured in analysis.measured for table in (_score_table(measured), _size_table(measured))]
    rows = [
        (str(n), shorten_model_name(name), f"{100 * value:.1f}" if n < len(analysis.order) else "–")
        for n, (name, value) in enumerate(analysis.order, 1)
    ]
    notes = ("each model lowers the bias against the models after it most; the pool needs the last one least",)
    tables.append(Table("best order of pooling the models", (("", "model", "non-self-bias"),), tuple(rows), 2, notes))
    return [*tables, _candidate_table(analysis)] if analysis.candidates else tables


def _score_table(measured: MeasuredBias) -> Table:
    """Table E.1: one row per model; one column for the pairs that each model proposed, and one for all pairs."""
    scored = measured.subset_scores
    columns = [*range(len(scored.models)), len(scored.scores) - 1]
    best = [scored.scores[t].max() for t in columns]
    rows = []
    for m, name in enumerate(scored.models):
        cells = (f"{100 * scored.scores[t, m]:.1f}{'*' if scored.scores[t, m] == best[n] else ' '}" for n, t in enumerate(columns))
        rows.append((shorten_model_name(name), *cells))
    notes = (f"{scored.queries:,} queries; *: best on these pairs", "column: score on the pairs that this model proposed")
    head = (("model", *(f"by {shorten_model_name(name)}" for name in scored.models), "by all"),)
    return Table(f"{measured.direction}, {measured.metric} in %", head, tuple(rows), 1, notes)


def _size_table(measured: MeasuredBias) -> Table:
    rows = []
    for size, mean in measured.bias.by_size().items():
        cells = []
        for n in range(len(BIAS_LABELS)):
            interval = f" [{100 * measured.low[size][n]:.1f}, {100 * measured.high[size][n]:.1f}]" if measured.low else ""
            cells.append(f"{100 * mean[n]:.1f}{interval}")
        rows.append((str(size), *cells))
    intervals = "95 % intervals over queries" if measured.low else "no intervals, because no samples were drawn"
    notes = (f"means over all subsets of this many models, in points; {intervals}",)
    head = (("annotator models", *BIAS_LABELS),)
    return Table(f"{measured.direction}, bias of {measured.metric}", head, tuple(rows), 1, notes)


def _candidate_table(analysis: PoolBiasAnalysis) -> Table:
    rows = tuple(
        (
            str(n),
            shorten_model_name(candidate.model),
            f"{candidate.pairs:,}",
            f"{100 * candidate.unsure:.1f}",
            f"{100 * candidate.low:.1f} to {100 * candidate.high:.1f}",
            f"+{100 * candidate.expected:.1f}",
        )
        for n, candidate in enumerate(analysis.candidates, 1)
    )
    notes = (
        f"add {shorten_model_name(analysis.candidates[0].model)}: the pool is expected to disadvantage it most",
        "hit@1 in %: if no unjudged first item is positive, and if all are; expected: if unjudged are positive as often as judged",
    )
    return Table("models to add", (("", "model", "pairs to judge", "first unjudged, %", "hit@1", "expected"),), rows, 2, notes)


def bias_panel(analysis: PoolBiasAnalysis) -> Panel:
    """Figure E.2: bias by number of annotator models, one plot for each direction and metric."""

    def draw(figure: Any) -> None:
        plots = figure.subplots(1, len(analysis.measured), squeeze=False)[0]
        for axes, measured in zip(plots, analysis.measured, strict=True):
            sizes = measured.bias.by_size()
            for n, (label, marker) in enumerate(zip(BIAS_LABELS, "os^", strict=True)):
                mean = [100 * value[n] for value in sizes.values()]
                below, above = (
                    [100 * max(0.0, sign * (limits[size][n] - value[n])) for size, value in sizes.items()] if limits else []
                    for sign, limits in ((-1, measured.low), (1, measured.high))
                )
                errors = [below, above] if measured.low else None
                x = [size + (n - 1) * 0.06 for size in sizes]
                axes.errorbar(x, mean, yerr=errors, fmt=f"{marker}-", ms=5, lw=1.6, capsize=2.5, color=COLOURS[n], label=label)
            axes.set_title(f"{measured.direction}, {measured.metric}", fontsize=10)
            axes.set_xticks(list(sizes))
            axes.set_xlim(min(sizes) - 0.5, max(sizes) + 0.5)  # with a single size, the three values stay close to it
            axes.set_xlabel("annotator models")
            axes.set_ylabel("bias, points")
            axes.set_ylim(bottom=-0.03 * axes.get_ylim()[1])  # markers at 0 are visible
        handles = plots[-1].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=len(BIAS_LABELS), frameon=False)

    about = "Distance of scores from those on the whole pool if only some of its models had proposed pairs; 95 % intervals."
    return Panel("Bias by number of annotator models", about, 3.2, draw)
