"""The one evaluation loop: benchmarks + model -> scores -> metrics -> results."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from crossmatch.benchmarks import benchmark_named
from crossmatch.core.benchmark import Benchmark, Loaded, data_hash, limited
from crossmatch.core.collection import SIDES
from crossmatch.core.errors import WrongWords
from crossmatch.core.pairs import Similarity
from crossmatch.core.progress import track
from crossmatch.core.ranks import TIES
from crossmatch.core.result import Part, Result, Row
from crossmatch.core.signature import protocol, system
from crossmatch.core.standing import Standing
from crossmatch.evidence import Task, evidence_of, groups_of
from crossmatch.metrics.measure import Measured, applies, measure, shape_of
from crossmatch.metrics.significance import SAMPLES, Draws, interval
from crossmatch.metrics.table import Metric, metric
from crossmatch.models import make_model
from crossmatch.models.cache import ScoreCache

FEW = 30  # images or trials; with fewer, percentile intervals are known to be too narrow (efron1993introduction)


def evaluate(
    model: object,
    benchmark: str | Benchmark,
    *,
    name: str | None = None,
    ties: str = "expected",
    samples: int = SAMPLES,
    seed: int = 0,
    data: Loaded | None = None,
    metrics: tuple[str, ...] | None = None,
    limit: int | None = None,
    cache: ScoreCache | None = None,
    **options: str,
) -> Result:
    """Evaluate a model on a benchmark.

    `model` is a name (`random`, `precomputed:FILE`, …), an object with `embed_images` and `embed_texts` (or one of them) or with
    `score(images, texts)`, or a callable `score(images, texts)`. `benchmark` is a name or a declaration; `data` saves loading
    it again; `limit` evaluates a random part of it; other options (`split`, `size`) go to the benchmark.

    >>> result = evaluate("oracle", "diorama/retrieval", size="tiny", samples=100)
    >>> result["t2i/truth/map@r"].value
    100.0
    """
    given = None if data is None else [data]
    return evaluate_all(
        model, [benchmark], name=name, ties=ties, samples=samples, seed=seed, data=given, metrics=metrics, limit=limit, cache=cache,
        **options,
    )[0]  # fmt: skip


def evaluate_all(
    model: object,
    benchmarks: Sequence[str | Benchmark],
    *,
    name: str | None = None,
    ties: str = "expected",
    samples: int = SAMPLES,
    seed: int = 0,
    data: Sequence[Loaded] | None = None,
    metrics: tuple[str, ...] | None = None,
    limit: int | None = None,
    cache: ScoreCache | None = None,
    **options: str,
) -> list[Result]:
    """Evaluate a model on several benchmarks. Those on one collection share one embedding pass and one sweep over its scores."""
    if ties not in TIES:
        raise WrongWords(f"ties is {ties!r}; one of {', '.join(TIES)} was expected.")
    if samples < 2:
        raise WrongWords(f"{samples} bootstrap samples give no interval; take at least 2 (1000 is usual).")
    if seed < 0:
        raise WrongWords(f"the seed is {seed}; it counts from zero.")
    if limit is not None and limit < 1:
        raise WrongWords(f"a limit of {limit} leaves nothing to evaluate; take at least 1.")
    title = name or (model if isinstance(model, str) else type(model).__name__ if not callable(model) else _called(model))
    asked = make_model(model) if isinstance(model, str) else model
    usual = _departures(ties=ties, samples=samples, seed=seed, metrics=",".join(metrics or ()), limit=limit)
    tasks = []
    for n, named in enumerate(benchmarks):
        declared, chosen = benchmark_named(named, options)
        loaded = declared.loaded(**chosen) if data is None else data[n]
        tasks.append(Task(declared, loaded if limit is None else limited(loaded, limit, seed), chosen))
    results: dict[int, Result] = {}
    for group in groups_of(asked, tasks):
        begun = time.perf_counter()
        shared, parts = evidence_of(asked, [tasks[n] for n in group], limit is not None, cache)
        spent = round((time.perf_counter() - begun) / len(group), 3)
        for n, task, (found, notes) in zip(group, shared, parts, strict=True):
            told = {key: value for key, value in task.options.items() if value != task.declared.options.get(key)}
            head = title, task.declared.name, system(title, getattr(asked, "signature", None)), told | usual
            partial = (f"partial: {limit:,} of the images or trials, never to be compared with all",) if limit else ()
            bare = Result(*head, (), found, {"scoring": spent}, samples, seed, ties, partial + notes + _few(found))
            results[n] = _summarised(bare, task, metrics, limit)
    return [results[n] for n in range(len(tasks))]


def _few(parts: Mapping[str, Part]) -> tuple[str, ...]:
    """A word of caution where the bootstrap has little to draw from."""
    fewest = min(len(np.unique(part.clusters)) for part in parts.values())
    if fewest >= FEW:
        return ()
    return (f"only {fewest} images or trials to draw from: intervals and tests are too sure of themselves",)


def _summarised(bare: Result, task: Task, metrics: tuple[str, ...] | None, limit: int | None) -> Result:
    begun = time.perf_counter()
    chosen = list({m.name: m for m in map(metric, metrics or task.declared.metrics)}.values())
    facts = {"data": data_hash(task.data, ordered=True)} | ({"limit": limit} if limit else {})
    if isinstance(task.data, Similarity):
        facts["query"] = SIDES[task.data.direction][0]
    result = summarise(bare, chosen, facts)
    left = [m.name for m in chosen if m.name not in {row.metric for row in result.rows}]
    if metrics and left:
        raise WrongWords(f"{', '.join(left)} cannot be computed on {bare.task}. `crossmatch metrics` says which shape each is for.")
    return replace(result, seconds={**result.seconds, "metrics": round(time.perf_counter() - begun, 3)})


def summarise(result: Result, chosen: list[Metric], facts: Mapping[str, object]) -> Result:
    """Every metric of every part from the saved evidence alone, without the model."""
    rows: list[Row] = []
    parts = {}
    totals = [m for m in chosen if m.shape == "total"]
    members = [metric(name) for total in totals for name in total.members]
    measured: dict[str, dict[str, Measured]] = {}
    for name, part in track(list(result.parts.items()), "metrics and intervals"):
        draws = Draws.of(part.clusters, result.samples, result.seed)
        shape = shape_of(part)
        shared = {"ties": 100 * float(np.mean(shape.tied(part))), "unjudged": shape.unjudged(part)}
        held = dict(part.values)
        asked = [m for m in chosen if applies(m, part)]
        needed = {m.name: m for m in (*asked, *members) if applies(m, part)}
        measured[name] = measure(list(needed.values()), part, draws, result.ties)
        for m in asked:
            found = measured[name][m.name]
            held[m.name] = found.values
            rows.append(
                Row(
                    part=name,
                    metric=m.name,
                    value=m.scale * found.value,
                    low=m.scale * found.low,
                    high=m.scale * found.high,
                    chance=m.scale * found.chance,
                    unit=m.unit,
                    best=m.scale * m.best,
                    n=found.n,
                    positives=found.positives,
                    signature=_signature(result, name, part, m, facts),
                    std=None if found.std is None else m.scale * found.std,
                    **shared,  # type: ignore[arg-type]
                )
            )
        parts[name] = replace(part, values=held)
    rows += [row for total in totals for row in _total(result, total, measured, facts)]
    if not rows:
        raise WrongWords(f"none of the metrics {', '.join(m.name for m in chosen)} fits {result.task}.")
    return replace(result, rows=tuple(rows), parts=parts)


def _total(result: Result, total: Metric, measured: Mapping[str, Mapping[str, Measured]], facts: Mapping[str, object]) -> list[Row]:
    """The sum of the members over all directions; nothing where a direction is missing or comes by several judgements."""
    if not {"i2t", "t2i"} <= result.parts.keys():
        return []
    found = [measured[name][m] for name in ("i2t", "t2i") for m in total.members]
    once = found[:: len(total.members)]  # all members of a direction rest on the same queries
    low, high = interval(np.sum([one.replicates for one in found], axis=0))
    value, chance = (float(sum(getattr(one, which) for one in found)) for which in ("value", "chance"))
    ties = max(100 * float(np.mean(shape_of(part).tied(part))) for part in (result.parts[name] for name in ("i2t", "t2i")))
    return [
        Row(
            "", total.name, 100 * value, 100 * low, 100 * high, 100 * chance, total.unit, 100 * total.best, sum(f.n for f in once),
            sum(f.positives for f in once), ties, None, _signature(result, "", result.parts["i2t"], total, facts),
        )
    ]  # fmt: skip


def _signature(result: Result, name: str, part: Part, m: Metric, facts: Mapping[str, object]) -> str:
    told = dict(facts)
    if isinstance(part.evidence, Standing):
        told |= {"ties": result.ties, "unjudged": "none" if part.complete else "irrelevant"}
    elif m.shape in ("cuts", "trials"):
        told |= {"ties": result.ties if m.shape == "cuts" else "lose"}
    if part.folds is not None:
        told["folds"] = len(np.unique(part.folds))
    if name.split("/")[0] in ("t2t", "i2i"):
        told["self"] = "excluded"
    return protocol(m.name, result.task, name, **told, bootstrap=result.samples, seed=result.seed)


def _departures(**protocol: object) -> dict[str, str]:
    """What differs from the usual protocol: part of the file's name and of the table's title, so that nothing is mixed up."""
    usual = {"ties": "expected", "samples": SAMPLES, "seed": 0, "metrics": "", "limit": None}
    return {key: str(value) for key, value in protocol.items() if value != usual[key]}


def _called(model: object) -> str:
    return getattr(model, "__name__", type(model).__name__)
