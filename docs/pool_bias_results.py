"""The bias of a pool in the results pages: how far scores on it are from the truth, and Figure E.2 (chun2022eccv, app. E)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blocks import PICTURES, excerpt
from crossmatch.build.pooling import retrieve_top
from crossmatch.data.arrays import FloatArray
from crossmatch.metrics.cluster_bootstrap import ClusterBootstrap
from crossmatch.metrics.pool_bias import subsets
from crossmatch.report.pages import Panel, write_analysis
from crossmatch.report.result_plots import COLOURS
from crossmatch.report.tables import Table
from pool_results import ANNOTATORS, DIRECTIONS, PoolExperiment

DEPTH = 5  # items that each model proposes for a query
METRICS = {"hit@1": "R@1", "r-precision": "R-Precision"}
PAPER = "from the whole pool (the paper's)"
PROPOSING, NOT_PROPOSING, ALL = "from the truth: proposing models", "from the truth: other models", "from the truth: all models"
SAMPLES = 300
PICTURE = PICTURES / "annotator_bias.svg"

Curves = Mapping[tuple[str, str], Mapping[str, FloatArray]]  # by direction and metric, then by name


@dataclass(frozen=True, eq=False)
class SubsetScores:
    """The score of every model on each query, by the pairs that each subset of the annotator models proposes, and by the truth."""

    members: NDArray[np.bool_]  # subsets x annotator models; the last subset is all of them
    by_pool: FloatArray  # subsets x models x queries
    by_truth: FloatArray  # models x queries


def score_subsets(experiment: PoolExperiment, direction: str, metric: str) -> SubsetScores:
    """chun2022eccv, eq. E.2 and E.3, with annotators who make no errors, so that only the choice of models matters.

    Queries are those with a positive in the whole pool.
    """
    true = experiment.true_pairs(direction)
    depth = int(true.sum(axis=1).max())
    queries = {direction: experiment.queries[direction]}
    ranked = [retrieve_top(scores, experiment.collection, queries, depth)[direction] for scores in experiment.scores.values()]
    row = np.arange(len(true))[:, None]
    proposed = np.zeros((len(ANNOTATORS), *true.shape), dtype=bool)
    for n in range(len(ANNOTATORS)):
        proposed[n, row, ranked[n][:, :DEPTH]] = True
    has_positive = (proposed.any(axis=0) & true).any(axis=1)
    chosen = [list(subset) for subset in subsets(len(ANNOTATORS))]
    members = np.asarray([[model in subset for model in range(len(ANNOTATORS))] for subset in chosen])

    def score_models(relevant: NDArray[np.bool_]) -> FloatArray:
        count = relevant.sum(axis=1)
        values = []
        for items in ranked:
            match = relevant[row, items]
            within = np.arange(depth) < (1 if metric == "hit@1" else count[:, None])
            values.append((match & within).sum(axis=1) / (1 if metric == "hit@1" else np.maximum(count, 1)))
        return np.asarray(values)[:, has_positive]

    by_pool = np.asarray([score_models(proposed[subset].any(axis=0) & true) for subset in chosen])
    return SubsetScores(members, by_pool, score_models(true))


def mean_distances(scores: SubsetScores, weights: FloatArray) -> dict[str, FloatArray]:
    """Mean distances in points by the number of annotator models, with a weight for each query."""
    by_pool, by_truth = (100 * x @ weights / weights.sum() for x in (scores.by_pool, scores.by_truth))
    whole_pool, annotators = by_pool[-1], len(scores.members[0])
    size = scores.members.sum(axis=1)
    error = np.abs(by_pool - by_truth)
    inside = np.hstack([scores.members, np.zeros((len(size), error.shape[1] - annotators), dtype=bool)])

    def by_size(values: FloatArray) -> FloatArray:
        return np.asarray([values[size == n].mean() for n in range(1, annotators + 1)])

    return {
        PAPER: by_size(np.abs(by_pool - whole_pool)[:, :annotators].mean(axis=1)),
        PROPOSING: by_size((error * inside).sum(axis=1) / size),
        NOT_PROPOSING: by_size((error * ~inside).sum(axis=1) / (~inside).sum(axis=1)),
        ALL: by_size(error.mean(axis=1)),
    }


def bias_curves(experiment: PoolExperiment, direction: str, metric: str) -> dict[str, FloatArray]:
    """Each curve with its interval over queries, shape (3, sizes): value, low, high."""
    scores = score_subsets(experiment, direction, metric)
    queries = scores.by_truth.shape[1]
    draws = np.concatenate(list(ClusterBootstrap.from_clusters(np.arange(queries), samples=SAMPLES)))
    values = mean_distances(scores, np.ones(queries))
    replicates = [mean_distances(scores, weights) for weights in draws]
    return {
        name: np.vstack([value, np.quantile([replicate[name] for replicate in replicates], [0.025, 0.975], axis=0)])
        for name, value in values.items()
    }


def bias_table(curves: Curves) -> Table:
    rows = [
        (direction, METRICS[metric], name, *(f"{v:.1f} [{low:.1f}, {high:.1f}]" for v, low, high in curve.T))
        for (direction, metric), by_name in curves.items()
        for name, curve in by_name.items()
    ]
    sizes = (f"{n} model{'s' * (n > 1)}" for n in range(1, len(ANNOTATORS) + 1))
    return Table("", (("", "metric", "mean distance of scores, in points", *sizes),), tuple(rows), 3)


def bias_panel(curves: Curves) -> Panel:
    def draw(figure: Any) -> None:
        grid = figure.subplots(len(DIRECTIONS), len(METRICS), squeeze=False, sharex=True)
        for axes, ((direction, metric), by_name) in zip(grid.flat, curves.items(), strict=True):
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

    about = "Distance of scores on pooled data from a reference. The paper's reference is the whole pool, so its bias ends at zero."
    return Panel("Does the bias of a pool go away with more models?", about, 6.0, draw)


def section(experiment: PoolExperiment) -> str:
    curves = {
        (direction, metric): bias_curves(experiment, direction, metric) for direction in DIRECTIONS for metric in METRICS
    }  # fmt: skip
    write_analysis(PICTURE, "", [], [bias_panel(curves)])
    return "\n".join(
        [
            "### Bias against the number of proposing models",
            "The paper's bias B is the mean distance of the annotator models' scores from those on the whole pool (Figure E.2). The "
            "other rows are distances from the scores by the truth: of the models that proposed pairs, of the other models, and of "
            "all ten. The annotators make no errors here. Intervals over queries.\n",
            excerpt(bias_table(curves), "pool-bias", rows=lambda row: row[2] != ALL or row[1] == METRICS["r-precision"]),
            f"\n![Bias against the number of annotator models](pictures/{PICTURE.name})\n",
        ]
    )
