"""ECCV Caption's experiment on diorama in the results pages, compared with the truth (chun2022eccv, sec. 3 and app. E)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import crossmatch as cm
from blocks import excerpt, markdown
from crossmatch.benchmarks.user_collection import load_collection_folder
from crossmatch.build.pooling import build_pool
from crossmatch.build.step_files import read_manifest
from crossmatch.build.step_inputs import score_all_pairs, sort_by_id
from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.benchmark import Benchmark
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval, canonical_order
from crossmatch.data.result import load_results
from crossmatch.data.scores import Scores
from crossmatch.diorama.random_choices import Dice
from crossmatch.diorama.world import Diorama
from crossmatch.metrics.agreement.annotation_overlap import Overlap, PairSet, overlap
from crossmatch.metrics.cluster_bootstrap import ClusterBootstrap, percentile_interval
from crossmatch.metrics.correlation.kendall_tau import kendall_tau_b
from crossmatch.models import make_model
from crossmatch.models.cache import Cache, default_cache_folder
from crossmatch.report.tables import Table
from training_jobs import Job, run_crossmatch

# Models that propose pairs: the five architectures of the paper, as far as the zoo has them (scan-t2i for ViLT).
ANNOTATORS = ("pvse-k2", "vsrn", "pcme", "scan-t2i", "clip")
OTHERS = ("convnet-bow", "vse0", "vse++", "vse-infinity", "saf")  # models that are only evaluated
SCENES = 2500  # of the training: enough for models that differ
SHARES = {"i2t": 0.25, "t2i": 0.05}  # of the images and captions that are queries, about as in the paper
DIRECTIONS = tuple(SHARES)
ACCURACY = {"faultless": 1.0, "usual": 0.9}  # the share of right answers of the artificial annotators
PEOPLE, SPREAD = 30, 0.05
ZETAS = (0, 1, 2)
SOURCES = ("links", *ACCURACY, "truth")
SOURCE_LABELS = {"faultless": "faultless annotators", "usual": "usual annotators"}
METRICS = ("hit@1", "map@r")
TASK = "diorama/retrieval"

QueryValues = Mapping[tuple[str, str, str], Mapping[str, FloatArray]]  # by direction, source and metric, then by model


def jobs() -> list[Job]:
    """All models that propose pairs or are evaluated."""
    return [Job(name, name, (TASK,), (f"train.images={SCENES}",)) for name in (*ANNOTATORS, *OTHERS)]


@dataclass(frozen=True, eq=False)
class PoolExperiment:
    """The collection, its queries, the scores of each model, and the pool with its judgements, in a folder."""

    folder: Path

    @cached_property
    def world(self) -> Diorama:
        return Diorama.make("test")

    @cached_property
    def collection(self) -> cm.Collection:
        return sort_by_id(self.world.collection)

    @cached_property
    def truth(self) -> NDArray[np.bool_]:
        images, captions = canonical_order(self.world.collection)
        return self.world.truth[np.ix_(images, captions)]

    @cached_property
    def queries(self) -> dict[str, IntArray]:
        sizes = dict(zip(DIRECTIONS, self.collection.shape, strict=True))
        samples = {d: Dice(0, "queries", d).shuffled(range(n))[: round(SHARES[d] * n)] for d, n in sizes.items()}
        return {direction: np.sort(np.asarray(sample)) for direction, sample in samples.items()}

    @cached_property
    def models(self) -> dict[str, Any]:
        return {name: make_model(str(self.folder / "models" / name)) for name in (*ANNOTATORS, *OTHERS)}

    @cached_property
    def scores(self) -> dict[str, Scores]:
        """The scores of each model for all pairs; those of cross encoders are cached on disk."""
        cache = Cache(default_cache_folder())
        return {name: score_all_pairs(model, self.collection, cache) for name, model in self.models.items()}

    def true_pairs(self, direction: str) -> NDArray[np.bool_]:
        """Which items match each query; shape (queries, items)."""
        return (self.truth if direction == "i2t" else self.truth.T)[self.queries[direction]]

    @cached_property
    def pool(self) -> Path:
        """The folder with the candidates that the annotator models propose."""
        build_pool(
            self.collection, {name: self.models[name] for name in ANNOTATORS}, self.folder / "pool",
            image_queries=self.collection.image_ids[self.queries["i2t"]],
            caption_queries=self.collection.caption_ids[self.queries["t2i"]],
        )  # fmt: skip
        return self.folder / "pool"

    def merged_judgements(self, crowd: str, direction: str) -> Judgements:
        """The answers of artificial annotators about the pool, through the web interface, merged with the links."""
        folder = self.folder / "crowds" / crowd
        campaign, export, merged = (folder / name for name in ("campaign", "judged", "merged"))
        if not (merged / "manifest.json").exists():
            accuracy = ACCURACY[crowd]
            habits = ("--people", PEOPLE, "--accuracy", accuracy, "--spread", SPREAD if accuracy < 1 else 0.0)
            pairs = ("--pool", self.pool / "rows.jsonl")
            run_crossmatch("study", "new", "eccv-hit", "--data", "diorama", "--seed", 0, *pairs, "-o", campaign)
            run_crossmatch("study", "simulate", *habits, campaign)
            run_crossmatch("study", "export", "--pending", campaign, "-o", export)
            answers = ("--answers", export, "--pool", self.pool)
            run_crossmatch("build", "merge", "--data", "diorama", "--as-is", *answers, "-o", merged)
        data = load_collection_folder(merged)
        judgements = data.judgements[f"merged-{direction}"]
        images, captions = data.collection.image_ids[judgements.rows], data.collection.caption_ids[judgements.columns]
        return Judgements.from_ids(self.collection, crowd, zip(images, captions, judgements.grades.tolist(), strict=True))

    def judgements(self, source: str, direction: str) -> Judgements:
        """Links, the answers of annotators with the links, or the truth, about the queries of one direction."""
        if source == "links":
            judgements = Judgements.from_links(self.collection)
        elif source == "truth":
            judgements = Judgements.from_matrix("truth", self.truth)
        else:
            judgements = self.merged_judgements(source, direction)
        is_query = np.isin(judgements.rows if direction == "i2t" else judgements.columns, self.queries[direction])
        rows, columns, grades = judgements.rows[is_query], judgements.columns[is_query], judgements.grades[is_query]
        return Judgements(
            source, rows, columns, grades, judgements.shape, complete=judgements.complete, only_direction=direction
        )  # fmt: skip


# -- precision and recall (Table 2)


def same_kind_pairs(experiment: PoolExperiment, zeta: int, direction: str) -> PairSet:
    """The pairs whose scenes differ in at most `zeta` kinds of objects: the positives by labels alone."""
    scenes = experiment.world.scenes
    kinds = sorted({item.kind for scene in scenes for item in scene.objects})
    place = {kind: n for n, kind in enumerate(kinds)}
    labels = np.zeros((len(scenes), len(kinds)), dtype=np.int64)
    for n, scene in enumerate(scenes):
        labels[n, [place[item.kind] for item in scene.objects]] = 1
    labels = labels[canonical_order(experiment.world.collection)[0]]
    distance = labels.sum(axis=1)[:, None] + labels.sum(axis=1) - 2 * labels @ labels.T
    is_similar = (distance <= zeta)[:, experiment.collection.caption_owners()]
    queries = experiment.queries[direction]
    query, item = np.nonzero((is_similar if direction == "i2t" else is_similar.T)[queries])
    return PairSet(queries[query], item)


def compare_with_truth(experiment: PoolExperiment, positives: PairSet, direction: str) -> Overlap:
    query, item = np.nonzero(experiment.true_pairs(direction))
    return overlap(positives, PairSet(experiment.queries[direction][query], item))


def format_mean(values: FloatArray) -> str:
    """The mean in percent with its bootstrap interval."""
    draws = ClusterBootstrap.from_clusters(np.arange(len(values)))
    low, high = percentile_interval(np.concatenate(list(draws)) @ values / len(values))
    return f"{100 * values.mean():.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def precision_table(experiment: PoolExperiment) -> Table:
    """chun2022eccv, Table 2, against the truth."""

    def cells(positives: Mapping[str, PairSet]) -> list[str]:
        values = []
        for direction in DIRECTIONS:
            counts = compare_with_truth(experiment, positives[direction], direction)
            some = ~counts.has_no_prediction
            values += [format_mean(counts.correct[some] / counts.predicted[some]), format_mean(counts.correct / counts.actual)]
        return values

    rows = []
    for source, label in (
        ("links", "original links"),
        *((crowd, f"pool, {SOURCE_LABELS[crowd]}") for crowd in ("usual", "faultless")),
    ):
        positives = {d: PairSet.positives(experiment.judgements(source, d), d) for d in DIRECTIONS}
        rows.append((label, *cells(positives)))
    for zeta in ZETAS:
        rows.append((f"same kinds of objects, ζ = {zeta}", *cells({d: same_kind_pairs(experiment, zeta, d) for d in DIRECTIONS})))
    header = ("", *(f"{direction} {measure}" for direction in DIRECTIONS for measure in ("precision", "recall")))
    return Table("", (header,), tuple(rows), 1)


def cost_table(experiment: PoolExperiment) -> Table:
    """How many of all pairs were judged, and how many of the true pairs were found."""
    rows = []
    for direction, items in zip(DIRECTIONS, experiment.collection.shape[::-1], strict=True):
        true = experiment.true_pairs(direction)
        judgements = experiment.judgements("faultless", direction)
        pairs, judged, true_pairs = len(true) * items, len(judgements.rows), int(true.sum())
        positives = len(PairSet.positives(judgements, direction).query)
        links = len(PairSet.positives(experiment.judgements("links", direction), direction).query)
        rows.append(
            (direction, f"{len(true):,}", f"{pairs:,}", f"{judged:,}", f"{100 * judged / pairs:.2f} %", f"{true_pairs:,}",
             f"{links:,}", f"{positives:,}", f"{100 * positives / true_pairs:.1f} %")
        )  # fmt: skip
    header = ("", "queries", "pairs", "judged or linked", "of all pairs", "true pairs", "links", "true pairs found",
              "of all true pairs")  # fmt: skip
    candidates = read_manifest(experiment.pool)["counts"]["candidates"]
    return Table("", (header,), tuple(rows), 1, (f"{candidates:,} candidates of both directions together.",))


# -- the order of the models


def evaluate_queries(experiment: PoolExperiment) -> dict[tuple[str, str, str], dict[str, FloatArray]]:
    """By direction, source and metric, the value of each query for each model; NaN where the query has no positive."""
    parts = {f"{source}-{direction}": (source, direction) for direction in DIRECTIONS for source in SOURCES}
    data = Retrieval(experiment.collection, {name: experiment.judgements(*part) for name, part in parts.items()})
    task = Benchmark(
        name="diorama/pooled", description="", loader=lambda: data, metrics=METRICS, directions=DIRECTIONS, licence="MIT"
    )  # fmt: skip
    values: dict[tuple[str, str, str], dict[str, FloatArray]] = {}
    for name, model in experiment.models.items():
        result = cm.evaluate(model, task, name=name, samples=2)
        for part_name, (source, direction) in parts.items():
            part = result.parts[f"{direction}/{part_name}"]
            ids = experiment.collection.ids("image" if direction == "i2t" else "caption")[experiment.queries[direction]]
            place = {str(query): n for n, query in enumerate(ids)}
            for metric in METRICS:
                by_query = np.full(len(ids), np.nan)
                by_query[[place[str(query)] for query in part.ids]] = part.values[metric]
                values.setdefault((direction, source, metric), {})[name] = by_query
    return values


def weighted_means(values: Mapping[str, FloatArray], weights: FloatArray) -> FloatArray:
    """The mean over queries for each model, with weights (replicates, queries); shape (replicates, models)."""
    table = np.stack(list(values.values()), axis=1)
    is_known = ~np.isnan(table)
    return np.asarray((weights @ np.where(is_known, table, 0)) / (weights @ is_known), dtype=np.float64)


def order_table(experiment: PoolExperiment, values: QueryValues) -> Table:
    """Kendall's τ-b of each metric with mAP@R by the truth over all queries, and its difference from hit@1 by links."""
    rows = []
    for direction in DIRECTIONS:
        reference = full_truth(experiment, direction)
        draws = np.concatenate(list(ClusterBootstrap.from_clusters(np.arange(len(experiment.queries[direction])))))
        weights = np.vstack([np.ones(draws.shape[1]), draws])  # the sample itself, then its replicates
        taus = {
            (source, metric): np.asarray(
                [kendall_tau_b(row, reference) for row in weighted_means(values[direction, source, metric], weights)]
            )
            for source in SOURCES
            for metric in METRICS
        }
        for (source, metric), tau in taus.items():
            gain = "" if (source, metric) == ("links", "hit@1") else _format_replicates(tau - taus["links", "hit@1"])
            rows.append((direction, SOURCE_LABELS.get(source, source), metric, _format_replicates(tau), gain))
    return Table("", (("", "judged by", "metric", "τ-b with the truth", "minus τ-b of hit@1 by links"),), tuple(rows), 3)


def _format_replicates(values: FloatArray) -> str:
    low, high = percentile_interval(values[1:])
    return f"{values[0]:.2f} [{low:.2f}, {high:.2f}]"


def full_truth(experiment: PoolExperiment, direction: str) -> FloatArray:
    """mAP@R by the truth over all queries of the split, for each model."""
    results = {result.model: result for result in load_results([experiment.folder / "results"]) if result.task == TASK}
    return np.asarray([results[name][f"{direction}/truth/map@r"].value for name in experiment.models])


def models_table(experiment: PoolExperiment, values: QueryValues) -> Table:
    """The models by each measure, the best by the truth first."""
    measures = (("links", "hit@1", "links"), ("usual", "map@r", "pool"), ("truth", "map@r", "truth"))
    columns = [(direction, *measure) for direction in DIRECTIONS for measure in measures]
    rows = []
    for name in sorted(experiment.models, key=lambda name: -float(np.nanmean(values["t2i", "truth", "map@r"][name]))):
        by_column = [values[direction, source, metric][name] for direction, source, metric, _ in columns]
        cells = [format_mean(column[~np.isnan(column)]) for column in by_column]
        rows.append((name, "yes" if name in ANNOTATORS else "", *cells))
    header = ("model", "proposes", *(f"{direction} {metric}, {label}" for direction, _, metric, label in columns))
    return Table("", (header,), tuple(rows), 2)


def section(experiment: PoolExperiment) -> str:
    values = evaluate_queries(experiment)
    images, captions = (len(experiment.queries[direction]) for direction in DIRECTIONS)
    return "\n".join(
        [
            "### ECCV Caption, compared with the truth",
            f"Five models ({', '.join(ANNOTATORS)}) propose their five best items for {images} images and {captions} captions. "
            f"Artificial annotators judge this pool through the annotation service; {100 * ACCURACY['usual']:.0f} % of their answers "
            "are right (usual), or all of them (faultless). Their answers are merged with the links (`build pool`, "
            "`study new eccv-hit`, `study simulate`, `study export --pending`, `build merge`). The result is then compared with the "
            "truth, which was not possible in the paper.\n",
            markdown(precision_table(experiment)),
            "\nPrecision and recall are those of the paper's Table 2, but against all true pairs. A query without any positive has "
            "a recall of 0. `same kinds of objects` calls a pair positive if two scenes differ in at most ζ kinds of objects.\n",
            excerpt(
                cost_table(experiment), "pool-cost",
                columns=("queries", "judged or linked", "of all pairs", "true pairs", "links", "true pairs found", "of all true pairs"),
            ),
            "\nHow each measure orders ten models, five of which proposed no pairs: τ-b with the order by mAP@R, by the truth, over "
            "all queries of the split. Intervals are over queries.\n",
            excerpt(
                order_table(experiment, values), "pool-order",
                rows=lambda row: row[2] == "map@r" or row[1] == "links",
            ),
            "\nThe models, by the links, by the pool with usual annotators, and by the truth:\n",
            markdown(models_table(experiment, values)),
            "",
        ]
    )  # fmt: skip
