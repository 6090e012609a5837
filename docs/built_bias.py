"""How far a pool of a few models' proposals leads models' scores astray, and Figure E.2 (chun2022eccv, app. E), in the results pages."""

# ruff: noqa: E501 - prose

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from built_pool import ANNOTATORS, DIRECTIONS, Setting
from crossmatch.build.pool import retrieved
from crossmatch.core.arrays import FloatArray
from crossmatch.metrics.bias import subsets
from crossmatch.metrics.significance import Draws
from crossmatch.report.analysis_page import Panel, write
from crossmatch.report.plots import COLOURS
from crossmatch.report.tables import Table
from make_results import markdown

DEPTH = 5  # items that each model proposes for a query
METRICS = {"hit@1": "R@1", "r-precision": "R-Precision"}
PAPER, OWN = "from the whole pool (the paper's)", "from the truth: those who propose"
OTHER, ALL = "from the truth: all others", "from the truth: all models"
SAMPLES = 300
PICTURE = Path(__file__).parent / "pictures" / "annotator_bias.svg"


@dataclass(frozen=True, eq=False)
class Scored:
    """What every model scores on each query by the pairs that each subset of the annotator models proposes, and by the truth."""

    members: NDArray[np.bool_]  # subsets x annotator models; the last subset is all of them
    by_pool: FloatArray  # subsets x models x queries
    by_truth: FloatArray  # models x queries


def scored(setting: Setting, direction: str, metric: str) -> Scored:
    """chun2022eccv, eq. E.2 and E.3, with a crowd that makes no mistake, so that nothing but the choice of models counts.

    Queries are those with a positive in the whole pool.
    """
    true = setting.true(direction)
    depth = int(true.sum(axis=1).max())
    at = {direction: setting.queries[direction]}
    ranked = [retrieved(said, setting.held, at, depth)[direction] for said in setting.said.values()]
    row = np.arange(len(true))[:, None]
    proposed = np.zeros((len(ANNOTATORS), *true.shape), dtype=bool)
    for n in range(len(ANNOTATORS)):
        proposed[n, row, ranked[n][:, :DEPTH]] = True
    some = (proposed.any(axis=0) & true).any(axis=1)
    chosen = [list(each) for each in subsets(len(ANNOTATORS))]
    members = np.asarray([[m in each for m in range(len(ANNOTATORS))] for each in chosen])

    def scores(relevant: NDArray[np.bool_]) -> FloatArray:
        count = relevant.sum(axis=1)
        found = []
        for items in ranked:
            match = relevant[row, items]
            within = np.arange(depth) < (1 if metric == "hit@1" else count[:, None])
            found.append((match & within).sum(axis=1) / (1 if metric == "hit@1" else np.maximum(count, 1)))
        return np.asarray(found)[:, some]

    return Scored(members, np.asarray([scores(proposed[each].any(axis=0) & true) for each in chosen]), scores(true))


def curves(found: Scored, times: FloatArray) -> dict[str, FloatArray]:
    """The mean distances by the number of annotator models, in points, with the queries as often as they are drawn."""
    by_pool, by_truth = (100 * x @ times / times.sum() for x in (found.by_pool, found.by_truth))
    all_models, annotators = by_pool[-1], len(found.members[0])
    size = found.members.sum(axis=1)
    wrong = np.abs(by_pool - by_truth)
    inside = np.hstack([found.members, np.zeros((len(size), wrong.shape[1] - annotators), dtype=bool)])

    def by_size(values: FloatArray, to: int = annotators) -> FloatArray:
        return np.asarray([values[size == n].mean() for n in range(1, to + 1)])

    return {
        PAPER: by_size(np.abs(by_pool - all_models)[:, :annotators].mean(axis=1)),
        OWN: by_size((wrong * inside).sum(axis=1) / size),
        OTHER: by_size((wrong * ~inside).sum(axis=1) / (~inside).sum(axis=1)),
        ALL: by_size(wrong.mean(axis=1)),
    }


def bias_curves(setting: Setting, direction: str, metric: str) -> dict[str, FloatArray]:
    """Each curve with its interval over queries, shape (3, sizes): value, low, high."""
    found = scored(setting, direction, metric)
    draws = np.concatenate(list(Draws.of(np.arange(found.by_truth.shape[1]), samples=SAMPLES)))
    value = curves(found, np.ones(found.by_truth.shape[1]))
    drawn = [curves(found, times) for times in draws]
    return {
        name: np.vstack([value[name], np.quantile([one[name] for one in drawn], [0.025, 0.975], axis=0)]) for name in value
    }  # fmt: skip


def bias_table(found: Mapping[tuple[str, str], Mapping[str, FloatArray]]) -> Table:
    rows = [
        (direction, METRICS[metric], name, *(f"{v:.1f} [{low:.1f}, {high:.1f}]" for v, low, high in curve.T))
        for (direction, metric), by_name in found.items()
        for name, curve in by_name.items()
    ]
    heads = (
        "",
        "metric",
        "mean distance of scores, in points",
        *(f"{n} model{'s' * (n > 1)}" for n in range(1, len(ANNOTATORS) + 1)),
    )
    return Table("", (heads,), tuple(rows), 3)


def bias_panel(found: Mapping[tuple[str, str], Mapping[str, FloatArray]]) -> Panel:
    def draw(figure: Any) -> None:
        grid = figure.subplots(len(DIRECTIONS), len(METRICS), squeeze=False, sharex=True)
        for axes, ((direction, metric), by_name) in zip(grid.flat, found.items(), strict=True):
            for n, (name, (value, low, high)) in enumerate(by_name.items()):
                sizes = np.arange(1, len(value) + 1)
                axes.fill_between(sizes, low, high, color=COLOURS[n], alpha=0.15, lw=0)
                axes.plot(sizes, value, marker="o", ms=4, lw=1.6, color=COLOURS[n], ls="--" if name == PAPER else "-", label=name)
            axes.set_title(f"{direction}, {METRICS[metric]}", fontsize=10)
            axes.set_ylabel("points")
            axes.set_ylim(bottom=0)
            axes.set_xticks(range(1, len(ANNOTATORS) + 1))
        for axes in grid[-1]:
            axes.set_xlabel("models that propose pairs")
        handles, names = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)

    about = "How far models' scores on pooled data are from a reference. The paper's reference is the whole pool, so that its bias ends at zero."
    return Panel("Does the bias of a pool go away with more models?", about, 6.0, draw)


def section(setting: Setting) -> str:
    found = {(d, m): bias_curves(setting, d, m) for d in DIRECTIONS for m in METRICS}
    write(PICTURE, "", [], [bias_panel(found)])
    return "\n".join(
        [
            "### Bias against the number of models that propose",
            "The paper's bias B is the mean distance of the annotator models' scores from those on the whole pool (Figure E.2). Beside it the distance from the scores by the truth: of the models that proposed, of all others, and of all ten. People make no mistakes here. Intervals over queries.\n",
            markdown(bias_table(found)),
            f"\n![Bias against the number of annotator models](pictures/{PICTURE.name})\n",
        ]
    )
