"""The one evaluation loop: benchmark + model -> scores -> metrics -> result."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from crossmatch.benchmarks import benchmarks
from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.benchmark import Benchmark, Retrieval, data_hash, in_order
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.progress import track
from crossmatch.core.ranks import TIES, Ranks
from crossmatch.core.result import Part, Result, Row
from crossmatch.core.scores import Run, Scores
from crossmatch.core.signature import protocol, system
from crossmatch.core.standing import Standing, stand, stand_run
from crossmatch.core.trials import Trials
from crossmatch.metrics.choice import tied_choices
from crossmatch.metrics.significance import SAMPLES, Draws, interval, replicates
from crossmatch.metrics.table import Metric, metric
from crossmatch.models import make_model
from crossmatch.models.abilities import scores_of, trial_scores_of

UNJUDGED_AT = 10  # how far down the ranking unjudged pairs are counted


def evaluate(
    model: object,
    benchmark: str | Benchmark,
    *,
    name: str | None = None,
    ties: str = "expected",
    samples: int = SAMPLES,
    seed: int = 0,
    data: Retrieval | Trials | None = None,
    metrics: tuple[str, ...] | None = None,
    **options: str,
) -> Result:
    """Evaluate a model on a benchmark.

    `model` is a name (`random`, `precomputed:FILE`, …), an object with `embed_images` and `embed_texts` or with
    `score(images, texts)`, or a callable `score(images, texts)`. `benchmark` is a name or a declaration; `data` saves loading
    it again; other options (`split`, `size`) go to the benchmark.

    >>> result = evaluate("oracle", "diorama/retrieval", size="tiny", samples=100)
    >>> result["t2i/truth/map@r"].value
    100.0
    """
    if ties not in TIES:
        raise WrongWords(f"ties is {ties!r}; one of {', '.join(TIES)} was expected.")
    if samples < 2:
        raise WrongWords(f"{samples} bootstrap samples give no interval; take at least 2 (1000 is usual).")
    declared = benchmarks()[benchmark] if isinstance(benchmark, str) else benchmark
    if seed < 0:
        raise WrongWords(f"the seed is {seed}; it counts from zero.")
    chosen = list({m.name: m for m in map(metric, metrics or declared.metrics)}.values())
    title = name or (model if isinstance(model, str) else type(model).__name__ if not callable(model) else _called(model))
    asked = make_model(model) if isinstance(model, str) else model
    loaded = in_order(declared.loaded(**options) if data is None else data)
    begun = time.perf_counter()
    parts, notes = _retrieval(asked, loaded, declared) if isinstance(loaded, Retrieval) else _trials(asked, loaded)
    scored = time.perf_counter()
    result = Result(
        title, declared.name, system(title, getattr(asked, "signature", None)),
        {key: value for key, value in options.items() if value != declared.options.get(key)}
        | _departures(ties=ties, samples=samples, seed=seed, metrics=",".join(m.name for m in chosen) if metrics else ""),
        (), parts, {"scoring": round(scored - begun, 3)}, samples, seed, ties, notes,
    )  # fmt: skip
    result = summarise(result, chosen, {"data": data_hash(loaded)})
    left = [m.name for m in chosen if m.name not in {row.metric for row in result.rows}]
    if metrics and left:
        raise WrongWords(
            f"{', '.join(left)} cannot be computed on {declared.name}. `crossmatch metrics` says which shape each is for."
        )
    return replace(result, seconds={**result.seconds, "metrics": round(time.perf_counter() - scored, 3)})


def summarise(result: Result, chosen: list[Metric], facts: Mapping[str, object]) -> Result:
    """Every metric of every part from the saved evidence alone, without the model."""
    rows: list[Row] = []
    parts = {}
    for name, part in track(list(result.parts.items()), "metrics and intervals"):
        draws = Draws.of(part.clusters, result.samples, result.seed)
        given = ranks_of(part, result.ties) if isinstance(part.evidence, Standing) else part.evidence
        ranks = given if isinstance(given, Ranks) else None
        shared = {"ties": 100 * float(np.mean(_raw_ties(part))), "unjudged": _unjudged(part)}
        held = dict(part.values)
        for m in chosen:
            if not _applies(m, part):
                continue
            if isinstance(part.evidence, Standing):
                given = ranks = graded_ranks_of(part, result.ties) if m.graded else ranks_of(part, result.ties)
                _check_depth(m, ranks, part)
            held[m.name] = values = m.values(given)
            low, high = interval(replicates(m, values, draws, ranks))
            rows.append(
                Row(
                    part=name,
                    metric=m.name,
                    value=m.scale * m.summarise(given, values),
                    low=m.scale * low,
                    high=m.scale * high,
                    chance=m.scale * m.chance(ranks if ranks is not None else part.evidence.shape[1:]),  # type: ignore[union-attr]
                    unit=m.unit,
                    best=m.scale * m.best,
                    n=len(values),
                    positives=int(ranks.start[-1]) if ranks is not None else len(values),
                    signature=_signature(result, name, part, m, facts),
                    **shared,  # type: ignore[arg-type]
                )
            )
        parts[name] = replace(part, values=held)
    if not rows:
        raise WrongWords(f"none of the metrics {', '.join(m.name for m in chosen)} fits {result.task}.")
    return replace(result, rows=tuple(rows), parts=parts)


def ranks_of(part: Part, ties: str) -> Ranks:
    """The ranks of a part's positives under a tie policy."""
    assert isinstance(part.evidence, Standing)
    return Ranks.from_standing(part.evidence, part.positive).settle(ties)


def graded_ranks_of(part: Part, ties: str) -> Ranks:
    """The ranks of everything that gains something, also below the grade of a positive: what nDCG needs."""
    assert isinstance(part.evidence, Standing)
    return Ranks.from_standing(part.evidence, min(part.positive, np.nextafter(0.0, 1.0))).settle(ties)


def _signature(result: Result, name: str, part: Part, m: Metric, facts: Mapping[str, object]) -> str:
    told = {**facts, "ties": result.ties if m.shape == "retrieval" else "lose"}
    if m.shape == "retrieval":
        told["unjudged"] = "none" if part.complete else "irrelevant"
    return protocol(m.name, result.task, name, **told, bootstrap=result.samples, seed=result.seed)


def _raw_ties(part: Part) -> FloatArray:
    """Ties before any policy broke them."""
    return ranks_of(part, "expected").tied if isinstance(part.evidence, Standing) else tied_choices(part.evidence)


def _unjudged(part: Part) -> float | None:
    """Percent of the first `UNJUDGED_AT` retrieved that nobody judged; nothing where there is no ranking so deep."""
    if not isinstance(part.evidence, Standing):
        return None
    if part.complete:
        return 0.0
    judged = Ranks.from_standing(part.evidence, positive=-np.inf)
    seen = np.minimum(UNJUDGED_AT, judged.gallery)
    if (judged.depth < seen).any():
        return None
    return 100 * float(1 - np.mean(judged.total(judged.within(seen)) / seen))


def _applies(m: Metric, part: Part) -> bool:
    if isinstance(part.evidence, Standing):
        return m.shape == "retrieval"
    offered = {"captions": part.evidence.shape[1] > 1, "images": part.evidence.shape[2] > 1}
    return m.shape == "trials" and all(offered[what] for what in m.needs.split())


def _check_depth(m: Metric, ranks: Ranks, part: Part) -> None:
    if m.depth is None:
        return
    short = ranks.depth < np.minimum(m.depth(ranks), ranks.gallery)
    if short.any():
        worst = int(np.where(short, m.depth(ranks), 0).argmax())
        raise CrossmatchError(
            f"the run lists {ranks.depth[worst]} candidates for query {str(part.ids[worst])!r}, but {m.name} needs "
            f"{m.depth(ranks)[worst]:,} of {ranks.gallery[worst]:,}. Write deeper rankings, or leave {m.name} out with --metrics."
        )


def _departures(**protocol: object) -> dict[str, str]:
    """What differs from the usual protocol: part of the file's name and of the table's title, so that nothing is mixed up."""
    usual = {"ties": "expected", "samples": SAMPLES, "seed": 0, "metrics": ""}
    return {key: str(value) for key, value in protocol.items() if value != usual[key]}


Evaluated = tuple[dict[str, Part], tuple[str, ...]]


def _retrieval(model: object, data: Retrieval, benchmark: Benchmark) -> Evaluated:
    said = scores_of(model, data)
    held = data.collection
    wanted = {
        f"{direction}/{name}" if len(data.judgements) > 1 else direction: (direction, judged)
        for direction in benchmark.directions
        for name, judged in data.judgements.items()
    }
    standings = _stand(said, data, {key: (d, judged.listed(d)) for key, (d, judged) in wanted.items()})
    ids = {"i2t": held.image_ids, "t2i": held.caption_ids}
    clusters: dict[str, IntArray] = {"i2t": np.arange(held.shape[0]), "t2i": held.owners()}
    parts = {}
    for key, standing in standings.items():
        direction, judged = wanted[key]
        queries = standing.listed.query
        parts[key] = Part(ids[direction][queries], clusters[direction][queries], standing, judged.positive, judged.complete)
    left = [key for key in wanted if key not in standings]
    if not standings:
        raise CrossmatchError(
            f"the run file has no row for {' or '.join(left)}, which is all this task asks for. Check its direction."
        )
    notes = (f"not in the run file, so not evaluated: {', '.join(left)}",) if left else ()
    return parts, notes + _coverage(data)


def _stand(said: Scores, data: Retrieval, wanted: Mapping[str, tuple[str, object]]) -> dict[str, Standing]:
    if not isinstance(said, Run):
        return stand(said, {key: listed for key, (_, listed) in wanted.items()})  # type: ignore[misc]
    held = data.collection
    sides = {"i2t": (held.image_ids, held.caption_ids), "t2i": (held.caption_ids, held.image_ids)}
    there = {d for d, (queries, items) in sides.items() if len(said.side(queries, items)[0])}
    return {key: stand_run(said, *sides[d], listed) for key, (d, listed) in wanted.items() if d in there}  # type: ignore[arg-type]


def _coverage(data: Retrieval) -> tuple[str, ...]:
    """How much of a complete set of judgements another one misses."""
    full = next((n for n, j in data.judgements.items() if j.complete), None)
    return tuple(
        f"{name} hold {judged.count:,} of the {data.judgements[full].count:,} pairs that are true: "
        f"{100 * (1 - judged.count / data.judgements[full].count):.1f} % of the positives are missing from them"
        for name, judged in data.judgements.items()
        if full is not None and not judged.complete
    )


def _trials(model: object, trials: Trials) -> Evaluated:
    values = trial_scores_of(model, trials)
    parts = {"": Part(trials.ids, np.arange(len(trials.ids)), values)}
    kinds = np.unique(trials.categories)
    for category in kinds if len(kinds) > 1 else ():
        chosen = trials.categories == category
        parts[str(category) or "(none)"] = Part(trials.ids[chosen], np.flatnonzero(chosen), values[chosen])
    return parts, ()


def _called(model: object) -> str:
    return getattr(model, "__name__", type(model).__name__)
