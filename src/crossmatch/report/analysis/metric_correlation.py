"""Rank correlation between metrics over models: Kendall's tau-b of every pair of metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.result import Result, ResultRow
from crossmatch.metrics.correlation.kendall_tau import MIN_MODELS, MaskedFloats, tau_b, tau_b_interval, tau_b_p_values
from crossmatch.metrics.metric_table import metric
from crossmatch.metrics.paired_tests import holm_correction
from crossmatch.report.comparison import require_same_protocol
from crossmatch.report.pages import require_figure_suffix, write_output
from crossmatch.report.published_results import IGNORED_OPTIONS, load_published_table
from crossmatch.report.query_variants import is_query_variant
from crossmatch.report.result_plots import figure_bytes, styled
from crossmatch.report.tables import EMPTY_CELL, Table, format_p_value
from crossmatch.report.trust_gate_table import is_gate_result

MEAN = "mean"
DIRECTIONS = ("i2t", "t2i")  # the directions that papers average over
DECIMALS = 9  # values are rounded, so that a mean of two floats does not break a tie
CELL_SIZE = 0.52  # inches

# The metrics of chun2022eccv, Table 5, in its order. Table 4 prints some of them; the others are means of Tables D.2 and D.3.
TABLE_5 = (
    "coco-1k:mean/hit@1", "coco-1k:mean/hit@5", "coco-1k:mean/hit@10", "coco-1k:rsum",
    "coco-5k:mean/hit@1", "coco-5k:mean/hit@5", "coco-5k:mean/hit@10", "cxc:mean/hit@1",
    "eccv-caption:mean/hit@1", "eccv-caption:mean/r-precision", "eccv-caption:mean/map@r", "pmrp:mean/zeta=0/pmrp@50",
)  # fmt: skip
PUBLISHED_NOTES = {
    TABLE_5[
        -1
    ]: "PMRP of PCME (CutMix) and VSE∞ (WSL grid) are both printed as 57.65; with the second above the first every cell is that "
    "of the paper's Table 5, with the tie four cells of PMRP come out 0.01 lower"
}


@dataclass(frozen=True, eq=False)
class Scoreboard:
    """A matrix of models and metrics from one source: measured or published. `present` marks the known cells."""

    source: str
    models: tuple[str, ...]
    metrics: tuple[str, ...]  # task:part/metric
    values: FloatArray
    present: BoolArray
    notes: Mapping[str, str] = field(default_factory=dict)  # explanations by metric
    omitted: str = ""  # which results are not included

    def with_metrics(self, names: Sequence[str]) -> Scoreboard:
        """Only the columns of these metrics, such as `hit@1`."""
        column_names = [_split(key)[2] for key in self.metrics]
        unknown = [name for name in names if name not in column_names]
        if unknown:
            raise UsageError(f"No result has the metric {unknown[0]!r}. Choose from: {', '.join(dict.fromkeys(column_names))}.")
        columns = [n for n, name in enumerate(column_names) if name in names]
        return replace(
            self, metrics=tuple(self.metrics[n] for n in columns), values=self.values[:, columns], present=self.present[:, columns]
        )


@dataclass(frozen=True, eq=False)
class MetricCorrelation:
    """Kendall's tau-b of every pair of metrics, with p and intervals; masked if undefined."""

    board: Scoreboard
    tau: MaskedFloats
    models: IntArray
    p: MaskedFloats | None = None
    low: MaskedFloats | None = None
    high: MaskedFloats | None = None

    @property
    def constant(self) -> tuple[str, ...]:
        """Metrics with the same value for all models; tau with them is undefined."""
        b = self.board
        columns = [b.values[b.present[:, n], n] for n in range(len(b.metrics))]
        return tuple(
            key for key, column in zip(b.metrics, columns, strict=True) if len(column) >= MIN_MODELS and len(set(column)) == 1
        )


def correlate_metrics(board: Scoreboard, samples: int = 0, seed: int = 0) -> MetricCorrelation:
    """Kendall's tau-b of every pair of metrics; with `samples`, also p and intervals from a bootstrap over models.

    Tau compares the orders of the models from best to worst, so metrics for which lower is better are negated.

    Source: chun2022eccv, sec. 4.2 and Table 5.

    >>> correlation = correlate_metrics(published_scoreboard())
    >>> at = correlation.board.metrics.index
    >>> float(correlation.tau[at("coco-1k:mean/hit@1"), at("eccv-caption:mean/map@r")].round(2))
    0.47
    """
    if len(board.models) < MIN_MODELS:
        names = f" ({', '.join(board.models)})" if board.models else ""
        raise CrossmatchError(
            f"A rank correlation needs at least {MIN_MODELS} models, got {len(board.models)}{names}. Evaluate more models."
        )
    if len(board.metrics) < 2:
        raise CrossmatchError(f"A correlation needs at least two metrics, got {', '.join(board.metrics) or 'none'}.")
    oriented = board.values * np.asarray([1 if _is_higher_better(key) else -1 for key in board.metrics])
    taus = tau_b(oriented, board.present)
    if not (taus.model_counts[np.triu_indices(len(board.metrics), 1)] >= MIN_MODELS).any():
        raise CrossmatchError(f"No two metrics have {MIN_MODELS} models in common. Evaluate the models on the same tasks.")
    if not samples:
        return MetricCorrelation(board, taus.tau, taus.model_counts)
    low, high = tau_b_interval(oriented, board.present, samples=samples, seed=seed)
    return MetricCorrelation(board, taus.tau, taus.model_counts, tau_b_p_values(oriented, board.present), low, high)


def build_scoreboard(results: Sequence[Result], mean_directions: bool = True, categories: bool = False) -> Scoreboard:
    """Collect every number of every model under `task:part/metric`. Gate scorers and altered queries are omitted.

    With `mean_directions` i2t and t2i are averaged if a model has both, as in the papers. Different protocols are an error.
    """
    rows: dict[str, dict[str, ResultRow]] = {}
    models = [r for r in results if not is_gate_result(r)]
    included = [r for r in models if not is_query_variant(r)]
    for result in included:
        options = "".join(f"+{k}={v}" for k, v in sorted(result.options.items()) if k not in IGNORED_OPTIONS)
        for row in (row for row in result.rows if categories or not row.part or metric(row.metric).shape != "trials"):
            column = rows.setdefault(f"{result.task}{options}:{row.key}", {})
            if result.model in column:
                raise CrossmatchError(
                    f"There are two results of {result.model} for {result.task}{options} {row.key}. Name one folder, or give the "
                    "models different names (run --name)."
                )
            first = next(iter(column), result.model)
            require_same_protocol(column.get(first, row), row, first, result.model)
            column[result.model] = row
    values = {key: {model: row.value for model, row in column.items()} for key, column in rows.items()}
    board = _board("measured", _average_directions(values) if mean_directions else values)
    counts = (("of gate scorers", len(results) - len(models)), ("of other queries", len(models) - len(included)))
    omitted = ", ".join(f"{n} {kind}" for kind, n in counts if n)
    return replace(board, omitted=f"omitted results: {omitted}" if omitted else "")


def published_scoreboard() -> Scoreboard:
    """The 25 models of chun2022eccv with the metrics of its Table 5: from Table 4, or means of Tables D.2 and D.3.

    >>> len(published_scoreboard().models)
    25
    """
    whole, *halves = (load_published_table("chun2022eccv", table) for table in ("Table 4", "Table D.2", "Table D.3"))
    printed = {f"{n.task}:{n.key}" for n in whole.numbers}
    values = {
        key: {
            model: whole[model, key].value
            if key in printed
            else sum(half[model, key.replace(f":{MEAN}", f":{d}")].value for half, d in zip(halves, DIRECTIONS, strict=True)) / 2
            for model in whole.models
        }
        for key in TABLE_5
    }
    return replace(_board("published: chun2022eccv, Tables 4, D.2 and D.3", values), notes=PUBLISHED_NOTES)


def _average_directions(values: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Average the columns of both directions; a column without the other direction keeps its name."""
    averaged: dict[str, dict[str, float]] = {}
    for key, column in values.items():
        task, _, rest = key.rpartition(":")
        direction, _, end = rest.partition("/")
        pair = [f"{task}:{d}/{end}" for d in DIRECTIONS]
        if direction not in DIRECTIONS or not all(k in values for k in pair):
            averaged[key] = column
        elif direction == DIRECTIONS[0]:
            other = values[pair[1]]
            means = {model: (column[model] + other[model]) / 2 for model in column if model in other}
            averaged[f"{task}:{MEAN}/{end}"] = means
    return averaged


def _board(source: str, values: dict[str, dict[str, float]]) -> Scoreboard:
    models = tuple(dict.fromkeys(model for column in values.values() for model in column))
    table = np.asarray([[column.get(m, np.nan) for column in values.values()] for m in models]).reshape(len(models), len(values))
    present = ~np.isnan(table)
    return Scoreboard(source, models, tuple(values), np.where(present, table, 0.0).round(DECIMALS), present)


def _is_higher_better(key: str) -> bool:
    return metric(_split(key)[2]).higher_is_better


def _split(key: str) -> tuple[str, str, str]:
    """Task, part and metric.

    >>> _split("diorama/retrieval:mean/truth/map@r"), _split("coco-1k:rsum")
    (('diorama/retrieval', 'mean/truth', 'map@r'), ('coco-1k', '', 'rsum'))
    """
    task, _, rest = key.rpartition(":")
    part, _, name = rest.rpartition("/")
    return task, part, name


# Tables


def metric_label(key: str) -> str:
    """A short label of a metric.

    >>> metric_label("coco-1k:mean/hit@1"), metric_label("cxc:t2t/median-rank"), metric_label("diorama/retrieval:mean/truth/map@r")
    ('coco-1k R@1', 'cxc t2t Med r', 'diorama/retrieval truth mAP@R')
    """
    task, part, name = _split(key)
    part_label = part.removeprefix(MEAN).strip("/").replace("/", " ")
    return " ".join(text for text in (task, part_label, metric(name).label or name) if text)


def _labels(board: Scoreboard) -> list[str]:
    """Labels of all metrics, without the task if there is only one."""
    has_one_task = len(_tasks(board)) == 1
    return [metric_label(f":{key.rpartition(':')[2]}" if has_one_task else key) for key in board.metrics]


def _tasks(board: Scoreboard) -> list[str]:
    return list(dict.fromkeys(_split(key)[0] for key in board.metrics))


def correlation_table(correlation: MetricCorrelation) -> Table:
    """The matrix of all pairs; columns have the numbers of the rows."""
    names = _labels(correlation.board)
    undefined = np.ma.getmaskarray(correlation.tau)
    body = [
        (
            str(a + 1),
            name,
            *(EMPTY_CELL if a == b or undefined[a, b] else _format_tau(correlation.tau[a, b]) for b in range(len(names))),
        )
        for a, name in enumerate(names)
    ]
    head = (("", "", *(str(n + 1) for n in range(len(names)))),)
    return Table(_title(correlation), head, tuple(body), 2, _notes(correlation))


def pairs_table(correlation: MetricCorrelation) -> Table:
    """A row for each pair of metrics: tau, interval, p with Holm's correction, number of models."""
    name = dict(zip(correlation.board.metrics, _labels(correlation.board), strict=True))
    body = []
    for row in correlation_rows(correlation):
        span = f"[{_format_tau(row['low'])}, {_format_tau(row['high'])}]" if "low" in row else EMPTY_CELL
        tau, p = (_format_tau(row["tau"]), format_p_value(row["p_holm"])) if "p_holm" in row else (EMPTY_CELL, EMPTY_CELL)
        body.append((name[row["first"]], name[row["second"]], tau, span, p, str(row["models"])))
    extreme = "if τ is ±1 in every replicate the interval is too narrow: use p"
    notes = (*_notes(correlation), *([extreme] if any(row["tau"] in (-1, 1) for row in correlation_rows(correlation)) else []))
    return Table(_title(correlation), (("", "", "τ", "95 %", "p (Holm)", "models"),), tuple(body), 2, notes)


def _format_tau(tau: float) -> str:
    """Two decimals, without a sign for zero.

    >>> _format_tau(-0.004), _format_tau(0.465)
    ('0.00', '0.47')
    """
    return f"{round(float(tau), 2) + 0.0:.2f}"


def correlation_rows(correlation: MetricCorrelation) -> list[dict[str, Any]]:
    """A row for each pair of metrics, for JSON. If tau is undefined it is null, and `why` gives the reason."""
    keys, rows = correlation.board.metrics, []
    undefined = np.ma.getmaskarray(correlation.tau)
    for a, b in zip(*np.triu_indices(len(keys), 1), strict=True):
        row: dict[str, Any] = {
            "source": correlation.board.source,
            "first": keys[a],
            "second": keys[b],
            "models": int(correlation.models[a, b]),
        }
        if undefined[a, b]:
            too_few = correlation.models[a, b] < MIN_MODELS
            reason = f"fewer than {MIN_MODELS} models have both" if too_few else "all models that have both are tied by one of them"
            rows.append({**row, "tau": None, "why": reason})
            continue
        row["tau"] = float(correlation.tau[a, b])
        if correlation.p is not None:
            row["p"] = float(correlation.p[a, b])
        if correlation.low is not None and correlation.high is not None and not np.ma.getmaskarray(correlation.low)[a, b]:
            row |= {"low": float(correlation.low[a, b]), "high": float(correlation.high[a, b])}
        rows.append(row)
    tested = [row for row in rows if "p" in row]
    for row, p in zip(tested, holm_correction([row["p"] for row in tested]), strict=True):
        row["p_holm"] = p
    return rows


def _title(correlation: MetricCorrelation) -> str:
    return f"Kendall's τ-b between metrics over {_subject(correlation)}"


def _subject(correlation: MetricCorrelation) -> str:
    tasks = _tasks(correlation.board)
    return f"{len(correlation.board.models)} models · {correlation.board.source}" + (f" · {tasks[0]}" if len(tasks) == 1 else "")


def _notes(correlation: MetricCorrelation) -> tuple[str, ...]:
    keys, n = correlation.board.metrics, len(correlation.board.models)
    notes = [f"swapping one pair of models changes τ by {4 / (n * (n - 1)):.3f}"]
    if any(f":{MEAN}/" in key for key in keys):
        notes.append("metrics without a direction are means of i2t and t2i")
    name = dict(zip(keys, _labels(correlation.board), strict=True))
    notes += [f"{name[key]} is the same for all models, so its τ is undefined" for key in correlation.constant]
    incomplete = {name[key] for key, present in zip(keys, correlation.board.present.T, strict=True) if present.sum() < n}
    if incomplete:
        notes.append(f"not all models have {', '.join(sorted(incomplete))}: each τ is over the models that have both metrics")
    notes += [correlation.board.omitted] if correlation.board.omitted else []
    return (*notes, *(note for key, note in correlation.board.notes.items() if key in keys))


# Heat map


def write_heat_map(correlation: MetricCorrelation, path: Path) -> Path:
    """Write the matrix as an image: .png, .svg or .pdf."""
    require_figure_suffix(path)
    return write_output(path, _draw_heat_map(correlation, path.suffix.lower()))


@styled
def _draw_heat_map(correlation: MetricCorrelation, suffix: str) -> bytes:
    from matplotlib.figure import Figure

    n = len(correlation.board.metrics)
    side, width = CELL_SIZE * n, CELL_SIZE * n + 2.0  # inches; labels outside are included by the tight bounding box
    figure = Figure(figsize=(width, side))
    axes = figure.add_axes((0, 0, side / width, 1))
    tau = np.ma.MaskedArray(correlation.tau, np.ma.getmaskarray(correlation.tau) | np.eye(n, dtype=bool))
    axes.grid(visible=False)
    image = axes.imshow(tau, cmap="RdBu", vmin=-1, vmax=1)
    axes.set_facecolor("#eeeeee")
    _write_cells(axes, tau)
    _name_cells(axes, correlation.board)
    bar = figure.colorbar(image, cax=figure.add_axes(((side + 0.3) / width, 0.15, 0.18 / width, 0.7)), ticks=[-1, -0.5, 0, 0.5, 1])
    bar.ax.set_yticklabels(["−1  opposite order", "−0.5", "0  unrelated", "0.5", "1  same order"])
    bar.ax.tick_params(length=0)
    bar.outline.set_visible(False)
    above = max(name.get_window_extent().y1 for name in axes.get_xticklabels()) / figure.dpi
    left = min(name.get_window_extent().x0 for name in axes.get_yticklabels()) / figure.dpi
    subtitle = f"Kendall's τ-b over {_subject(correlation)}"
    figure.text(left / width, (above + 0.45) / side, "Which metrics rank models in the same order?", fontsize=14, fontweight="bold")
    figure.text(left / width, (above + 0.18) / side, subtitle, fontsize=9.5, color="#555555")
    return figure_bytes(figure, suffix, dpi=160, bbox_inches="tight", pad_inches=0.2)


def _write_cells(axes: Any, tau: MaskedFloats) -> None:
    is_defined = ~np.ma.getmaskarray(tau)
    for a, b in zip(*np.nonzero(~np.eye(len(tau), dtype=bool)), strict=True):
        text = _format_tau(tau[a, b]).replace("0.", ".", 1) if is_defined[a, b] else EMPTY_CELL
        colour = "white" if is_defined[a, b] and abs(tau[a, b]) > 0.6 else "#222222"
        axes.text(b, a, text, ha="center", va="center", fontsize=9, color=colour)


def _name_cells(axes: Any, board: Scoreboard) -> None:
    keys, names = board.metrics, _labels(board)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    blocks = [(task, part.removeprefix(MEAN)) for task, part, _ in map(_split, keys)]
    for at in (n for n in range(1, len(keys)) if blocks[n] != blocks[n - 1]):
        axes.axhline(at - 0.5, color="white", lw=3)
        axes.axvline(at - 0.5, color="white", lw=3)
