"""The one evaluation loop: benchmarks + model -> scores -> metrics -> results."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crossmatch.benchmarks import benchmark_named
from crossmatch.benchmarks.altered import altered
from crossmatch.core.benchmark import Benchmark, Loaded, data_hash, limited
from crossmatch.core.collection import SIDES
from crossmatch.core.errors import WrongWords
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.own_code import own_code
from crossmatch.core.pairs import Similarity
from crossmatch.core.progress import track
from crossmatch.core.ranks import TIES
from crossmatch.core.result import Part, Result, Row
from crossmatch.core.signature import protocol, system
from crossmatch.core.skipped import Skipped
from crossmatch.core.standing import Standing
from crossmatch.core.trials import Trials
from crossmatch.evidence import Asking, Task, evidence_of, groups_of
from crossmatch.inputs import without_bad
from crossmatch.language.alter import ALTERATIONS
from crossmatch.metrics.measure import Measured, applies, measure, shape_of
from crossmatch.metrics.significance import SAMPLES, Draws, interval
from crossmatch.metrics.table import Metric, metric
from crossmatch.models import make_model
from crossmatch.models.abilities import abilities
from crossmatch.models.cache import BATCH, ScoreCache
from crossmatch.models.gate import GATE
from crossmatch.models.likelihood import HOW, ByLikelihood, as_scorer

FEW = 30  # images; with fewer, percentile intervals are known to be too narrow (efron1993introduction)


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
    partial: bool = False,
    likelihood: str | None = None,
    cache: ScoreCache | None = None,
    skip_bad: bool = False,
    batch: int = BATCH,
    workers: int | None = None,
    **options: str,
) -> Result:
    """Evaluate a model on a benchmark.

    `model` is a name (`random`, `precomputed:FILE`, …), an object with `embed_images` and `embed_texts` (or one of them), with
    `score(images, texts)` or with `log_likelihood(images, texts)`, or a callable `score(images, texts)`. `benchmark` is a name or a
    declaration; `data` saves loading it again; `limit` evaluates a random part of it; `partial` allows trials without an answer;
    `likelihood` is how a captioner scores, "per-token" or "plain"; `skip_bad` leaves out pictures that cannot be opened, and says
    so; a model is given `batch` items at a time, and `workers` threads open pictures for it (0: none but the one that computes);
    other options (`split`, `size`) go to the benchmark.

    >>> result = evaluate("oracle", "diorama/retrieval", size="tiny", samples=100)
    >>> result["t2i/truth/map@r"].value
    100.0
    """
    given = None if data is None else [data]
    return evaluate_all(
        model, [benchmark], name=name, ties=ties, samples=samples, seed=seed, data=given, metrics=metrics, limit=limit,
        partial=partial, likelihood=likelihood, cache=cache, skip_bad=skip_bad, batch=batch, workers=workers, **options,
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
    partial: bool = False,
    likelihood: str | None = None,
    cache: ScoreCache | None = None,
    skip_bad: bool = False,
    batch: int = BATCH,
    workers: int | None = None,
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
    if batch < 1 or (workers is not None and workers < 0):
        raise WrongWords(f"a batch of {batch} with {workers} workers is none; take at least one item, and no less than 0 workers.")
    typed = model if isinstance(model, str) else type(model).__name__ if not callable(model) else _called(model)
    title = _printable(name) or typed
    with own_code():
        asked = make_model(model) if isinstance(model, str) else model
    asked = as_scorer(asked, likelihood, others=not set(abilities(asked)) <= {"log-likelihood", "caption"}, name=typed)
    title += f"+likelihood={likelihood}" if name is None and likelihood not in (None, HOW[0]) else ""
    usual = _departures(ties=ties, samples=samples, seed=seed, metrics=",".join(metrics or ()), limit=limit)
    tasks = []
    for n, named in enumerate(benchmarks):
        declared, chosen = benchmark_named(named, options)
        loaded = declared.loaded(skip_bad, **chosen) if data is None else data[n]
        tasks.append(Task(declared, loaded if limit is None else limited(loaded, limit, seed), chosen))
    _require_distinct(tasks)
    skipped: list[tuple[Skipped, ...]] = [()] * len(tasks)
    said: list[tuple[str, ...]] = [()] * len(tasks)
    if skip_bad:
        for n, (kept, left, told) in enumerate(without_bad([task.data for task in tasks], workers)):
            tasks[n], skipped[n], said[n] = replace(tasks[n], data=kept), left, told
    asking = Asking(limit is not None or any(skipped), partial, cache, batch, workers)
    results: dict[int, Result] = {}
    for group in groups_of(asked, tasks):
        begun = time.perf_counter()
        with own_code():
            shared, found = evidence_of(asked, [tasks[n] for n in group], asking)
        spent = round((time.perf_counter() - begun) / len(group), 3)
        for n, task, seen in zip(group, shared, found, strict=True):
            changed = _told(task) | _answered(task, tasks[n]) | ({"skipped": str(len(skipped[n]))} if skipped[n] else {})
            head = title, task.declared.name, _system(title, asked), changed | usual
            cut = (f"partial: {limit:,} of the images or trials, never to be compared with all",) if limit else ()
            notes = cut + said[n] + seen.notes + _few(seen.parts)
            bare = Result(*head, (), seen.parts, {"scoring": spent}, samples, seed, ties, notes, skipped[n], seen.counts)
            results[n] = _summarised(bare, task, metrics, limit)
    return [results[n] for n in range(len(tasks))]


def _printable(name: str | None) -> str | None:
    """A name that can be written into a file."""
    if name is not None and name != name.encode(errors="replace").decode():
        raise WrongWords(f"the name {name!r} cannot be written down. Take another one.")
    return name


def _told(task: Task) -> dict[str, str]:
    """The options that change the data."""
    usual, checks = task.declared.options, task.declared.checks
    return {key: value for key, value in task.options.items() if value != usual.get(key) and key not in checks}


def _require_distinct(tasks: Sequence[Task]) -> None:
    """Refuse two tasks whose results would take the same place."""
    seen: dict[tuple[object, ...], int] = {}
    for n, task in enumerate(tasks):
        key = (task.declared.name, *sorted(_told(task).items()))
        if key in seen:
            raise WrongWords(
                f"{task.declared.name} is asked for twice, so that one result would overwrite the other. Name it once, or "
                "rename one of the files or folders."
            )
        seen[key] = n


def evaluate_gate(benchmarks: Sequence[str | Benchmark], *, data: Sequence[Loaded], **protocol: Any) -> list[Result]:
    """The trust gate on every one of these tasks that has trials: scorers that know nothing, whose values theory gives.

    >>> from crossmatch.benchmarks import load_data
    >>> held = load_data("diorama/sugarcrepe", size="tiny")
    >>> [found.model for found in evaluate_gate(["diorama/sugarcrepe"], data=[held], size="tiny")][:2]
    ['gate:constant', 'gate:random']
    """
    chosen = [(name, held) for name, held in zip(benchmarks, data, strict=True) if isinstance(held, Trials)]
    if not chosen:
        raise WrongWords("the gate is for forced choices, and none of these tasks has any. Leave --gate out.")
    names = [name for name, _ in chosen]
    held = [replace(data, by=("images", "captions")) for _, data in chosen]  # for a blind scorer, equal captions are one draw
    return [
        result
        for scorer in GATE
        for result in evaluate_all(scorer, names, name=f"gate:{scorer.name}", data=held, **protocol)
    ]  # fmt: skip


def with_alterations(name: str, options: Mapping[str, str], skip_bad: bool = False) -> list[tuple[str, Loaded]]:
    """A task with its data, and the same with each alteration of its query; the pictures are those of the first.

    >>> [name for name, _ in with_alterations("diorama/bison", {"size": "tiny"})][:2]
    ['diorama/bison', 'diorama/bison+alter=negation']
    """
    declared, chosen = benchmark_named(name, options)
    if "alter" not in declared.options or "alter" in chosen:
        raise WrongWords(f"{name} has no single query to alter. Alterations are of bison, diorama/bison and trials of one caption.")
    data = declared.loaded(skip_bad, **chosen)
    assert isinstance(data, Trials)
    return [(name, data), *((f"{name}+alter={how}", altered(data, how)) for how in ALTERATIONS)]


def _system(title: str, model: object) -> str:
    """The system line; a captioner without a signature is told at least by how its likelihoods were used."""
    kind = f"|likelihood:{model.kind}" if isinstance(model, ByLikelihood) else ""
    return system(f"{title}{kind}", getattr(model, "signature", None))


def _answered(task: Task, whole: Task) -> dict[str, str]:
    """How many trials were answered, where not all were: part of the file's name, like a limit."""
    if not isinstance(task.data, Trials) or not isinstance(whole.data, Trials) or len(task.data.ids) == len(whole.data.ids):
        return {}
    return {"partial": str(len(task.data.ids))}


def _few(parts: Mapping[str, Part]) -> tuple[str, ...]:
    """A word of caution where the bootstrap has little to draw from. (Intervals of trials know how few there are.)"""
    drawn = [len(np.unique(part.clusters)) for part in parts.values() if not isinstance(part.evidence, Outcomes)]
    fewest = min(drawn, default=FEW)
    if fewest >= FEW:
        return ()
    return (f"only {fewest} images to draw from: intervals and tests are too sure of themselves",)


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
        shape = shape_of(part)
        draws = Draws.of(part.clusters[:1] if isinstance(part.evidence, Outcomes) else part.clusters, result.samples, result.seed)
        known = not isinstance(part.evidence, Outcomes) or part.evidence.ties_known
        shared = {"ties": 100 * float(np.mean(shape.tied(part))) if known else None, "unjudged": shape.unjudged(part)}
        held = dict(part.values)
        asked = [m for m in chosen if applies(m, part)]
        needed = {m.name: m for m in (*asked, *members) if applies(m, part)}
        measured[name] = measure(list(needed.values()), part, draws, result.ties)
        for m in asked:
            found = measured[name][m.name]
            if len(found.values):
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
                    **shared,
                )
            )
        parts[name] = replace(part, values=held)
    rows += [row for total in totals for row in _total(result, total, measured, facts)]
    if not rows:
        raise WrongWords(f"none of the metrics {', '.join(m.name for m in chosen)} fits {result.task}.")
    return replace(result, rows=tuple(rows), parts=parts)


def _total(result: Result, total: Metric, measured: Mapping[str, Mapping[str, Measured]], facts: Mapping[str, object]) -> list[Row]:
    """The sum of the members over all directions; nothing where a direction is missing or comes by several judgements."""
    if not all(name in result.parts and isinstance(result.parts[name].evidence, Standing) for name in ("i2t", "t2i")):
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
    elif m.shape == "cuts":
        told["ties"] = result.ties
    elif m.shape == "trials":
        several = {} if part.folds is None else {"categories": np.count_nonzero(np.bincount(part.folds))}
        return protocol(m.name, result.task, name, **told, ties="lose", **several, interval="wilson")
    if part.folds is not None:
        told["folds"] = np.count_nonzero(np.bincount(part.folds))
    if name.split("/")[0] in ("t2t", "i2i"):
        told["self"] = "excluded"
    return protocol(m.name, result.task, name, **told, bootstrap=result.samples, seed=result.seed)


def _departures(**protocol: object) -> dict[str, str]:
    """What differs from the usual protocol: part of the file's name and of the table's title, so that nothing is mixed up."""
    usual = {"ties": "expected", "samples": SAMPLES, "seed": 0, "metrics": "", "limit": None}
    return {key: str(value) for key, value in protocol.items() if value != usual[key]}


def _called(model: object) -> str:
    return getattr(model, "__name__", type(model).__name__)
