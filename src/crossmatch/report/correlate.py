"""Do the metrics agree on which model is better? Kendall's tau-b between every two of them over the models present."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.result import Result, Row
from crossmatch.metrics.rank_correlation import LEAST, Masked, tau_b, tau_b_interval, tau_b_p_values
from crossmatch.metrics.significance import holm
from crossmatch.metrics.table import metric
from crossmatch.report.compare import require_same_protocol
from crossmatch.report.gate import is_gate
from crossmatch.report.published import HARMLESS, published_table
from crossmatch.report.tables import NONE, Table, p_value
from crossmatch.report.variants import is_variant

MEAN = "mean"
PAIRED = ("i2t", "t2i")  # the directions that the papers average over
DECIMALS = 9  # a mean of two floats must not break a tie
KINDS: dict[str, dict[str, None]] = {
    ".png": {},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None},
}  # without the time of drawing
CELL = 0.52  # inches

# The metrics of chun2022eccv, Table 5, in its order. Table 4 has those that it prints, PMRP among them; the others are means of
# Tables D.2 and D.3.
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
    """Models by metrics, all from one source: measured, or published. `present` says which cells there are."""

    source: str
    models: tuple[str, ...]
    metrics: tuple[str, ...]  # task:part/metric
    values: FloatArray
    present: BoolArray
    notes: Mapping[str, str] = field(default_factory=dict)  # metric -> what must be known to read its column
    left_out: str = ""  # what was given and is not in it

    def with_metrics(self, names: Sequence[str]) -> Scoreboard:
        """The columns of these metrics alone, such as `hit@1`."""
        ends = [_split(key)[2] for key in self.metrics]
        unknown = [name for name in names if name not in ends]
        if unknown:
            raise WrongWords(f"no result has {unknown[0]!r}; there are {', '.join(dict.fromkeys(ends))}.")
        at = [n for n, end in enumerate(ends) if end in names]
        return replace(self, metrics=tuple(self.metrics[n] for n in at), values=self.values[:, at], present=self.present[:, at])


@dataclass(frozen=True, eq=False)
class Correlation:
    """Tau between every two metrics, and the doubt about it. Masked where undefined."""

    board: Scoreboard
    tau: Masked
    models: IntArray
    p: Masked | None = None
    low: Masked | None = None
    high: Masked | None = None

    @property
    def constant(self) -> tuple[str, ...]:
        """Metrics by which all models are level: they order nothing, so tau with them is undefined."""
        b = self.board
        columns = [b.values[b.present[:, n], n] for n in range(len(b.metrics))]
        return tuple(key for key, column in zip(b.metrics, columns, strict=True) if len(column) >= LEAST and len(set(column)) == 1)


def correlate(board: Scoreboard, samples: int = 0, seed: int = 0) -> Correlation:
    """Kendall's tau-b between every two metrics; with `samples`, also p and the intervals of a bootstrap over the models.

    Metrics of which less is better, such as ranks, are turned round: tau compares the orders of the models from best to worst.
    Source: chun2022eccv, sec. 4.2 and Table 5.

    >>> found = correlate(published_scoreboard())
    >>> at = found.board.metrics.index
    >>> float(found.tau[at("coco-1k:mean/hit@1"), at("eccv-caption:mean/map@r")].round(2))
    0.47
    """
    if len(board.models) < LEAST:
        there = f"{len(board.models)} {'model is' if len(board.models) == 1 else 'models are'} there"
        named = f" ({', '.join(board.models)})" if board.models else ""
        raise CrossmatchError(f"{there}{named}; the order of models can be compared from {LEAST} on. Evaluate more models.")
    if len(board.metrics) < 2:
        raise CrossmatchError(f"only {', '.join(board.metrics) or 'no metric'} is there; a correlation needs two metrics.")
    turned = board.values * np.asarray([1 if _more_is_better(key) else -1 for key in board.metrics])
    found = tau_b(turned, board.present)
    if not (found.models[np.triu_indices(len(board.metrics), 1)] >= LEAST).any():
        raise CrossmatchError(f"no two metrics have {LEAST} models in common. Evaluate the models on the same tasks.")
    if not samples:
        return Correlation(board, found.tau, found.models)
    low, high = tau_b_interval(turned, board.present, samples=samples, seed=seed)
    return Correlation(board, found.tau, found.models, tau_b_p_values(turned, board.present), low, high)


def scoreboard(results: Sequence[Result], mean_directions: bool = True, categories: bool = False) -> Scoreboard:
    """Every number of every model, under `task:part/metric`. Unequal protocols are refused, as everywhere.

    With `mean_directions` i2t and t2i are averaged, as in the papers, where a model has both; else each stands for itself. Scorers
    of the trust gate are no models, and an altered query makes no metric: both are left out, and so are the categories of trials,
    which are parts of the whole, unless `categories` asks for them.
    """
    rows: dict[str, dict[str, Row]] = {}
    models = [r for r in results if not is_gate(r)]
    shown = [r for r in models if not is_variant(r)]
    for result in shown:
        unlike = "".join(f"+{k}={v}" for k, v in sorted(result.options.items()) if k not in HARMLESS)
        for row in (row for row in result.rows if categories or not row.part or metric(row.metric).shape != "trials"):
            column = rows.setdefault(f"{result.task}{unlike}:{row.key}", {})
            if result.model in column:
                raise CrossmatchError(
                    f"there are two results of {result.model} for {result.task}{unlike} {row.key}. Name one folder, or give the "
                    "models names of their own (run --name)."
                )
            first = next(iter(column), result.model)
            require_same_protocol(column.get(first, row), row, first, result.model)
            column[result.model] = row
    values = {key: {model: row.value for model, row in column.items()} for key, column in rows.items()}
    board = _board("measured", _averaged(values) if mean_directions else values)
    counts = (("of scorers of the trust gate", len(results) - len(models)), ("of other queries", len(models) - len(shown)))
    told = ", ".join(f"{n} {kind}" for kind, n in counts if n)
    return replace(board, left_out=f"results left out: {told}" if told else "")


def published_scoreboard() -> Scoreboard:
    """The 25 models of chun2022eccv under the metrics of its Table 5: from Table 4, or, where that has none, means of D.2 and D.3.

    >>> len(published_scoreboard().models)
    25
    """
    whole, *halves = (published_table("chun2022eccv", table) for table in ("Table 4", "Table D.2", "Table D.3"))
    printed = {f"{n.task}:{n.key}" for n in whole.numbers}
    values = {
        key: {
            model: whole[model, key].value
            if key in printed
            else sum(half[model, key.replace(f":{MEAN}", f":{d}")].value for half, d in zip(halves, PAIRED, strict=True)) / 2
            for model in whole.models
        }
        for key in TABLE_5
    }
    return replace(_board("published: chun2022eccv, Tables 4, D.2 and D.3", values), notes=PUBLISHED_NOTES)


def _averaged(values: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Columns of both directions become one; a column without its partner keeps its name."""
    out: dict[str, dict[str, float]] = {}
    for key, column in values.items():
        task, _, rest = key.rpartition(":")
        direction, _, end = rest.partition("/")
        pair = [f"{task}:{d}/{end}" for d in PAIRED]
        if direction not in PAIRED or not all(k in values for k in pair):
            out[key] = column
        elif direction == PAIRED[0]:
            other = values[pair[1]]
            out[f"{task}:{MEAN}/{end}"] = {model: (column[model] + other[model]) / 2 for model in column if model in other}
    return out


def _board(source: str, values: dict[str, dict[str, float]]) -> Scoreboard:
    models = tuple(dict.fromkeys(model for column in values.values() for model in column))
    table = np.asarray([[column.get(m, np.nan) for column in values.values()] for m in models]).reshape(len(models), len(values))
    present = ~np.isnan(table)
    return Scoreboard(source, models, tuple(values), np.where(present, table, 0.0).round(DECIMALS), present)


def _more_is_better(key: str) -> bool:
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


def label(key: str) -> str:
    """A metric as a person calls it.

    >>> label("coco-1k:mean/hit@1"), label("cxc:t2t/median-rank"), label("diorama/retrieval:mean/truth/map@r")
    ('coco-1k R@1', 'cxc t2t Med r', 'diorama/retrieval truth mAP@R')
    """
    task, part, name = _split(key)
    shown = part.removeprefix(MEAN).strip("/").replace("/", " ")
    return " ".join(x for x in (task, shown, metric(name).label or name) if x)


def _labels(board: Scoreboard) -> list[str]:
    """The task is not repeated where there is only one: the title has it."""
    lone = len(_tasks(board)) == 1
    return [label(f":{key.rpartition(':')[2]}" if lone else key) for key in board.metrics]


def _tasks(board: Scoreboard) -> list[str]:
    return list(dict.fromkeys(_split(key)[0] for key in board.metrics))


def correlation_table(found: Correlation) -> Table:
    """The whole matrix; columns are numbered as the rows."""
    names = _labels(found.board)
    undefined = np.ma.getmaskarray(found.tau)
    body = [
        (str(a + 1), name, *(NONE if a == b or undefined[a, b] else _two(found.tau[a, b]) for b in range(len(names))))
        for a, name in enumerate(names)
    ]
    head = (("", "", *(str(n + 1) for n in range(len(names)))),)
    return Table(_title(found), head, tuple(body), 2, _notes(found))


def pairs_table(found: Correlation) -> Table:
    """A line for every two metrics with all that is known about it: tau, interval, p after Holm's correction, models."""
    name = dict(zip(found.board.metrics, _labels(found.board), strict=True))
    body = []
    for row in as_rows(found):
        span = f"[{_two(row['low'])}, {_two(row['high'])}]" if "low" in row else NONE
        tau, p = (_two(row["tau"]), p_value(row["p_holm"])) if "p_holm" in row else (NONE, NONE)
        body.append((name[row["first"]], name[row["second"]], tau, span, p, str(row["models"])))
    sure = "τ = ±1 in every replicate gives no interval to speak of: go by p there"
    notes = (*_notes(found), *([sure] if any(row["tau"] in (-1, 1) for row in as_rows(found)) else []))
    return Table(_title(found), (("", "", "τ", "95 %", "p (Holm)", "models"),), tuple(body), 2, notes)


def _two(tau: float) -> str:
    """Two decimals, without the sign of a zero.

    >>> _two(-0.004), _two(0.465)
    ('0.00', '0.47')
    """
    return f"{round(float(tau), 2) + 0.0:.2f}"


def as_rows(found: Correlation) -> list[dict[str, Any]]:
    """A row for every two metrics, for JSON. Where tau is undefined it is null and `why` says why; it is never NaN."""
    keys, out = found.board.metrics, []
    undefined = np.ma.getmaskarray(found.tau)
    for a, b in zip(*np.triu_indices(len(keys), 1), strict=True):
        row: dict[str, Any] = {"source": found.board.source, "first": keys[a], "second": keys[b], "models": int(found.models[a, b])}
        if undefined[a, b]:
            few = found.models[a, b] < LEAST
            why = f"fewer than {LEAST} models have both" if few else "all models that have both are level by one of them"
            out.append({**row, "tau": None, "why": why})
            continue
        row["tau"] = float(found.tau[a, b])
        if found.p is not None:
            row["p"] = float(found.p[a, b])
        if found.low is not None and found.high is not None and not np.ma.getmaskarray(found.low)[a, b]:
            row |= {"low": float(found.low[a, b]), "high": float(found.high[a, b])}
        out.append(row)
    told = [row for row in out if "p" in row]
    for row, p in zip(told, holm([row["p"] for row in told]), strict=True):
        row["p_holm"] = p
    return out


def _title(found: Correlation) -> str:
    return f"Kendall's τ-b between metrics over {_about(found)}"


def _about(found: Correlation) -> str:
    tasks = _tasks(found.board)
    return f"{len(found.board.models)} models · {found.board.source}" + (f" · {tasks[0]}" if len(tasks) == 1 else "")


def _notes(found: Correlation) -> tuple[str, ...]:
    keys, n = found.board.metrics, len(found.board.models)
    notes = [f"one pair of models in another order moves τ by {4 / (n * (n - 1)):.3f}"]
    if any(f":{MEAN}/" in key for key in keys):
        notes.append("metrics without a direction are means of i2t and t2i")
    name = dict(zip(keys, _labels(found.board), strict=True))
    notes += [f"{name[key]} is the same for all models, so it orders nothing and has no τ" for key in found.constant]
    few = {name[key] for key, there in zip(keys, found.board.present.T, strict=True) if there.sum() < n}
    if few:
        notes.append(f"not all models have {', '.join(sorted(few))}: each τ is over the models that have both metrics")
    notes += [found.board.left_out] if found.board.left_out else []
    return (*notes, *(note for key, note in found.board.notes.items() if key in keys))


# The picture


def heat_map(found: Correlation, path: Path) -> Path:
    """Write the matrix as a picture; the file's ending says which kind."""
    require_picture(path)
    try:
        import matplotlib
    except ImportError:
        raise MissingDependency("matplotlib", "report") from None
    from crossmatch.report.plots import STYLE

    out = io.BytesIO()
    with matplotlib.rc_context({**STYLE, "axes.grid": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # of a model's name: better a box than no picture
        _drawn(found).savefig(
            out, format=path.suffix[1:], dpi=160, bbox_inches="tight", pad_inches=0.2, metadata=KINDS[path.suffix]
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(out.getvalue())
    return path


def require_picture(path: Path) -> None:
    """Refuse a file of a kind that cannot be drawn."""
    if path.suffix not in KINDS:
        raise WrongWords(f"{path} should end in {', '.join(KINDS)}: the kinds of picture that can be drawn.")


def _drawn(found: Correlation) -> Any:
    from matplotlib.figure import Figure

    n = len(found.board.metrics)
    side, width = CELL * n, CELL * n + 2.0  # inches; labels reach outside and are kept by the tight box
    figure = Figure(figsize=(width, side))
    axes = figure.add_axes((0, 0, side / width, 1))
    tau = np.ma.MaskedArray(found.tau, np.ma.getmaskarray(found.tau) | np.eye(n, dtype=bool))
    image = axes.imshow(tau, cmap="RdBu", vmin=-1, vmax=1)
    axes.set_facecolor("#eeeeee")
    _write_cells(axes, tau)
    _name_cells(axes, found.board)
    bar = figure.colorbar(image, cax=figure.add_axes(((side + 0.3) / width, 0.15, 0.18 / width, 0.7)), ticks=[-1, -0.5, 0, 0.5, 1])
    bar.ax.set_yticklabels(["−1  opposite order", "−0.5", "0  unrelated", "0.5", "1  same order"])
    bar.ax.tick_params(length=0)
    bar.outline.set_visible(False)
    above = max(name.get_window_extent().y1 for name in axes.get_xticklabels()) / figure.dpi
    left = min(name.get_window_extent().x0 for name in axes.get_yticklabels()) / figure.dpi
    told = f"Kendall's τ-b over {_about(found)}"
    figure.text(left / width, (above + 0.45) / side, "Which metrics rank models alike?", fontsize=14, fontweight="bold")
    figure.text(left / width, (above + 0.18) / side, told, fontsize=9.5, color="#555555")
    return figure


def _write_cells(axes: Any, tau: Masked) -> None:
    held = ~np.ma.getmaskarray(tau)
    for a, b in zip(*np.nonzero(~np.eye(len(tau), dtype=bool)), strict=True):
        text = _two(tau[a, b]).replace("0.", ".", 1) if held[a, b] else NONE
        colour = "white" if held[a, b] and abs(tau[a, b]) > 0.6 else "#222222"
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
    for at in (a for a in range(1, len(keys)) if blocks[a] != blocks[a - 1]):
        axes.axhline(at - 0.5, color="white", lw=3)
        axes.axvline(at - 0.5, color="white", lw=3)
