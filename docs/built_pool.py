"""ECCV Caption's experiment with an answer key, and its Figure E.2 (chun2022eccv, sec. 3 and app. E), in the results pages."""

# ruff: noqa: E501 - prose

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import crossmatch as cm
from crossmatch.benchmarks.folder import load_folder
from crossmatch.build.files import manifest
from crossmatch.build.material import in_order, said_of
from crossmatch.build.pool import pool
from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.benchmark import Benchmark, Retrieval, canonical_order
from crossmatch.core.judgements import Judgements
from crossmatch.core.result import load_all
from crossmatch.core.scores import Scores
from crossmatch.diorama.dice import Dice
from crossmatch.diorama.world import Diorama
from crossmatch.metrics.agreement import Overlap, PairSet, overlap
from crossmatch.metrics.rank_correlation import kendall_tau_b
from crossmatch.metrics.significance import Draws, interval, replicate_means
from crossmatch.models import make_model
from crossmatch.models.cache import ScoreCache, default_folder
from crossmatch.report.tables import Table
from make_results import markdown
from trained import RUN, Job

# Who proposes pairs: by architecture the five of the paper, as far as the zoo has them (scan-t2i for ViLT).
ANNOTATORS = ("pvse-k2", "vsrn", "pcme", "scan-t2i", "clip")
OTHERS = ("convnet-bow", "vse0", "vse++", "vse-infinity", "saf")  # who are evaluated only
SCENES = 2500  # to train with: enough for models that differ
SHARES = {"i2t": 0.25, "t2i": 0.05}  # of the images and captions that are queries, about as in the paper
DIRECTIONS = tuple(SHARES)
CROWDS = {"careful": 1.0, "usual": 0.9}  # the share of right answers
CALLED = {"careful": "faultless crowd", "usual": "usual crowd"}
PEOPLE, SPREAD = 30, 0.05
ZETAS = (0, 1, 2)
KINDS = ("links", *CROWDS, "truth")
TASK = ("diorama/retrieval",)


def jobs() -> list[Job]:
    """Every model that proposes pairs or is evaluated."""
    return [Job(name, name, TASK, (f"train.images={SCENES}",)) for name in (*ANNOTATORS, *OTHERS)]


@dataclass(frozen=True, eq=False)
class Setting:
    """The world, its queries, what each model says of it, and where things are kept."""

    folder: Path

    @cached_property
    def world(self) -> Diorama:
        return Diorama.make("test")

    @cached_property
    def held(self) -> cm.Collection:
        return in_order(self.world.collection)

    @cached_property
    def truth(self) -> NDArray[np.bool_]:
        images, captions = canonical_order(self.world.collection)
        return self.world.truth[np.ix_(images, captions)]

    @cached_property
    def queries(self) -> dict[str, IntArray]:
        sizes = dict(zip(DIRECTIONS, self.held.shape, strict=True))
        drawn = {d: Dice(0, "queries", d).shuffled(range(n))[: round(SHARES[d] * n)] for d, n in sizes.items()}
        return {direction: np.sort(np.asarray(found)) for direction, found in drawn.items()}

    @cached_property
    def models(self) -> dict[str, Any]:
        return {name: make_model(str(self.folder / "models" / name)) for name in (*ANNOTATORS, *OTHERS)}

    @cached_property
    def said(self) -> dict[str, Scores]:
        """What each model says of all pairs; scores of cross encoders are kept on disk."""
        cache = ScoreCache(default_folder())
        return {name: said_of(model, self.held, cache) for name, model in self.models.items()}

    def true(self, direction: str) -> NDArray[np.bool_]:
        """Queries x items."""
        return (self.truth if direction == "i2t" else self.truth.T)[self.queries[direction]]

    @cached_property
    def pooled(self) -> Path:
        """The candidates that the annotator models propose."""
        held, at = self.held, self.queries
        pool(
            held, {name: self.models[name] for name in ANNOTATORS}, self.folder / "pool",
            image_queries=held.image_ids[at["i2t"]], caption_queries=held.caption_ids[at["t2i"]],
        )  # fmt: skip
        return self.folder / "pool"

    def merged(self, crowd: str, direction: str) -> Judgements:
        """What an artificial crowd said of the pool, through the browser's interface, merged with the links."""
        folder = self.folder / "crowds" / crowd
        campaign, judged, merged = (folder / name for name in ("campaign", "judged", "merged"))
        if not (merged / "manifest.json").exists():
            habits = f"--people {PEOPLE} --accuracy {CROWDS[crowd]} --spread {SPREAD if CROWDS[crowd] < 1 else 0.0}"
            call("study new eccv-hit --data diorama --seed 0", "--pool", self.pooled / "rows.jsonl", "-o", campaign)
            call(f"study simulate {habits}", campaign)
            call("study export --pending", campaign, "-o", judged)
            call("build merge --data diorama --as-is", "--answers", judged, "--pool", self.pooled, "-o", merged)
        found = load_folder(merged)
        said = found.judgements[f"merged-{direction}"]
        images, captions = found.collection.image_ids[said.rows], found.collection.caption_ids[said.columns]
        return Judgements.from_ids(self.held, crowd, zip(images, captions, said.grades.tolist(), strict=True))

    def judgements(self, kind: str, direction: str) -> Judgements:
        """Links, a crowd's answers with the links, or the truth, about the queries of a direction alone."""
        said = {"links": lambda: Judgements.from_links(self.held), "truth": lambda: Judgements.from_matrix("truth", self.truth)}
        found = said[kind]() if kind in said else self.merged(kind, direction)
        kept = np.isin(found.rows if direction == "i2t" else found.columns, self.queries[direction])
        rows, columns, grades = found.rows[kept], found.columns[kept], found.grades[kept]
        return Judgements(kind, rows, columns, grades, found.shape, complete=found.complete, only=direction)


def call(words: str, *more: object) -> None:
    """Run a command, as on the command line."""
    subprocess.run([*RUN, *words.split(), *map(str, more)], check=True)


# -- precision and recall (Table 2)


def plausible(setting: Setting, zeta: int, direction: str) -> PairSet:
    """The pairs whose scenes show the same kinds of things but for `zeta`: what labels alone would call positive."""
    kinds = sorted({thing.kind for scene in setting.world.scenes for thing in scene.things})
    place = {kind: n for n, kind in enumerate(kinds)}
    labels = np.zeros((len(setting.world.scenes), len(kinds)), dtype=np.int64)
    for n, scene in enumerate(setting.world.scenes):
        labels[n, [place[thing.kind] for thing in scene.things]] = 1
    labels = labels[canonical_order(setting.world.collection)[0]]
    apart = labels.sum(axis=1)[:, None] + labels.sum(axis=1) - 2 * labels @ labels.T
    alike = (apart <= zeta)[:, setting.held.owners()]
    at = setting.queries[direction]
    query, item = np.nonzero((alike if direction == "i2t" else alike.T)[at])
    return PairSet(at[query], item)


def told_apart(setting: Setting, said: PairSet, direction: str) -> Overlap:
    at = setting.queries[direction]
    query, item = np.nonzero(setting.true(direction))
    return overlap(said, PairSet(at[query], item))


def with_interval(values: FloatArray) -> str:
    draws = Draws.of(np.arange(len(values)))
    low, high = interval(replicate_means([values], draws)[0])
    return f"{100 * values.mean():.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def table_2(setting: Setting) -> Table:
    """chun2022eccv, Table 2, against the truth."""
    sets = {"links": "original links", "usual": "pooled, usual crowd", "careful": "pooled, faultless crowd"}
    rows = []
    for name in (*sets, *ZETAS):
        cells = []
        for direction in DIRECTIONS:
            said = (
                plausible(setting, name, direction)
                if isinstance(name, int)
                else PairSet.positives(setting.judgements(name, direction), direction)
            )
            found = told_apart(setting, said, direction)
            some = ~found.empty
            cells += [with_interval(found.both[some] / found.said[some]), with_interval(found.both / found.true)]
        rows.append((sets[name] if isinstance(name, str) else f"same kinds of things, ζ = {name}", *cells))
    heads = ("", *(f"{direction} {what}" for direction in DIRECTIONS for what in ("precision", "recall")))
    return Table("", (heads,), tuple(rows), 1)


def cost(setting: Setting) -> Table:
    """How many positives were found, and how many of all pairs were judged."""
    rows, told = [], manifest(setting.pooled)["counts"]
    pairs = {d: len(setting.queries[d]) * n for d, n in zip(DIRECTIONS, setting.held.shape[::-1], strict=True)}
    for direction in DIRECTIONS:
        true = setting.true(direction)
        found = setting.judgements("careful", direction)
        judged = len(found.rows)
        positive = PairSet.positives(found, direction)
        links = PairSet.positives(setting.judgements("links", direction), direction)
        rows.append(
            (
                direction, f"{len(true):,}", f"{pairs[direction]:,}", f"{judged:,}", f"{100 * judged / pairs[direction]:.2f} %",
                f"{true.sum():,}", f"{len(links.query):,}", f"{len(positive.query):,}", f"{100 * len(positive.query) / true.sum():.1f} %",
            )
        )  # fmt: skip
    heads = (
        "",
        "queries",
        "pairs",
        "judged or linked",
        "of all pairs",
        "true pairs",
        "links",
        "true pairs found",
        "of all true pairs",
    )
    return Table("", (heads,), tuple(rows), 1, (f"{told['candidates']:,} candidates of both directions together.",))


# -- do the models come in the right order?


def values_of(setting: Setting) -> dict[tuple[str, str, str], dict[str, FloatArray]]:
    """By direction, judgements and metric, for each model the value of each query; missing where it has no positive."""
    names = {f"{kind}-{direction}": (kind, direction) for direction in DIRECTIONS for kind in KINDS}
    data = Retrieval(setting.held, {name: setting.judgements(*both) for name, both in names.items()})
    task = Benchmark(
        name="diorama/pooled", about="", load=lambda: data, metrics=("hit@1", "map@r"), directions=DIRECTIONS, licence="MIT"
    )
    out: dict[tuple[str, str, str], dict[str, FloatArray]] = {}
    for model, made in setting.models.items():
        result = cm.evaluate(made, task, name=model, samples=2)
        for name, (kind, direction) in names.items():
            part = result.parts[f"{direction}/{name}"]
            ids = setting.held.ids("image" if direction == "i2t" else "caption")[setting.queries[direction]]
            place = {str(one): n for n, one in enumerate(ids)}
            for metric in ("hit@1", "map@r"):
                whole = np.full(len(ids), np.nan)
                whole[[place[str(one)] for one in part.ids]] = part.values[metric]
                out.setdefault((direction, kind, metric), {})[model] = whole
    return out


def means(values: Mapping[str, FloatArray], times: FloatArray) -> FloatArray:
    """For each model the mean over the queries that are drawn, shape (replicates, models)."""
    table = np.stack(list(values.values()), axis=1)
    there = ~np.isnan(table)
    return np.asarray((times @ np.where(there, table, 0)) / (times @ there), dtype=np.float64)


def order_of_models(setting: Setting, found: Mapping[tuple[str, str, str], Mapping[str, FloatArray]]) -> Table:
    """Kendall's tau-b between a metric on the benchmark and mAP@R by the truth over all queries, and how much better than hit@1 by links."""
    rows = []
    for direction in DIRECTIONS:
        reference = full_truth(setting, direction)
        times = np.concatenate(list(Draws.of(np.arange(len(setting.queries[direction])))))
        taus = {}
        for kind in KINDS:
            for metric in ("hit@1", "map@r"):
                each = means(found[direction, kind, metric], np.vstack([np.ones(times.shape[1]), times]))
                taus[kind, metric] = np.asarray([kendall_tau_b(row, reference) for row in each])
        usual = taus["links", "hit@1"]
        for (kind, metric), tau in taus.items():
            gain = tau - usual
            cells = [f"{x[0]:.2f} [{interval(x[1:])[0]:.2f}, {interval(x[1:])[1]:.2f}]" for x in (tau, gain)]
            rows.append(
                (direction, CALLED.get(kind, kind), metric, cells[0], "" if (kind, metric) == ("links", "hit@1") else cells[1])
            )
    heads = ("", "judged by", "metric", "τ-b with the truth", "minus τ-b of hit@1 by links")
    return Table("", (heads,), tuple(rows), 3)


def full_truth(setting: Setting, direction: str) -> FloatArray:
    """mAP@R by the truth over all queries of the split, for each model."""
    results = {result.model: result for result in load_all([setting.folder / "results"]) if result.task == TASK[0]}
    return np.asarray([results[name][f"{direction}/truth/map@r"].value for name in setting.models])


def models_table(setting: Setting, found: Mapping[tuple[str, str, str], Mapping[str, FloatArray]]) -> Table:
    """The models by each of the measures, the best by the truth first."""
    columns = [
        (d, kind, metric) for d in DIRECTIONS for kind, metric in (("links", "hit@1"), ("usual", "map@r"), ("truth", "map@r"))
    ]
    best = sorted(setting.models, key=lambda name: -float(np.nanmean(found["t2i", "truth", "map@r"][name])))
    rows = tuple(
        (
            name,
            "proposes" if name in ANNOTATORS else "",
            *(with_interval(values[~np.isnan(values)]) for values in (found[key][name] for key in columns)),
        )
        for name in best
    )
    label = {"links": "links", "usual": "pooled", "truth": "truth"}
    return Table("", (("model", "in the pool", *(f"{d} {metric}, {label[kind]}" for d, kind, metric in columns)),), rows, 2)


# -- the page


def section(setting: Setting) -> str:
    found = values_of(setting)
    return "\n".join(
        [
            "### ECCV Caption with an answer key",
            f"Five models ({', '.join(ANNOTATORS)}) propose their five best items for {len(setting.queries['i2t'])} images and {len(setting.queries['t2i'])} captions. Artificial people judge the pool through the annotation service, {100 * CROWDS['usual']:.0f} % of their answers right (usual) or all of them (faultless); their answers are merged with the links (`build pool`, `study new eccv-hit`, `study simulate`, `study export --pending`, `build merge`). Then everything is compared with the truth, which the paper could not.\n",
            markdown(table_2(setting)),
            "\nPrecision and recall as in the paper's Table 2, but against all true pairs; a query of which nothing was said has a recall of 0.\n",
            markdown(cost(setting)),
            "\nHow each measure orders ten models, five of which had no part in the pool. τ-b with mAP@R by the truth over all queries of the split; intervals over queries.\n",
            markdown(order_of_models(setting, found)),
            "",
            markdown(models_table(setting, found)),
            "",
        ]
    )
