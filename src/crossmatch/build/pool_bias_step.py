"""How the choice of models biases a pool, and which model to add (chun2022eccv, app. E).

People judge only the pairs that the pool's models proposed. Every model is scored again on the pairs that each subset of these
models proposed; what it loses against the whole pool is the bias. One row for each direction, metric and subset:

    {"id", "direction", "metric", "by": models that proposed, "scores": {model: percent}, "bias": B_Θ, "self", "non_self"}

Which model to add next:

- `order_pool_models` orders the pool's own models: first the one whose pairs alone have the lowest non-self-bias, then always the
  one whose addition lowers it most. The pool needs the last model least.
- For a candidate outside the pool, the expected gain in hit@1 is the share of queries whose first item is unjudged, times the share
  of positives among its judged first items. A model that retrieves unjudged items because it is wrong gains nothing. Judged items
  are more often positive than unjudged ones, so the estimate is too high, for all candidates alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.build.merging.merge import QUERY_POSITION
from crossmatch.build.merging.pair_verdicts import Pair
from crossmatch.build.pooling import retrieve_top
from crossmatch.build.rating_files import judgements_file, read_relevance
from crossmatch.build.step_files import Row, StepOutput, StepSpec, read_manifest, read_rows, rows_hash, write_step
from crossmatch.build.step_inputs import collection_hash, load_models, model_signature, score_all_pairs, sort_by_id
from crossmatch.data.arrays import IdArray, IntArray, as_ids, find_positions
from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.file_contents import file_sha256
from crossmatch.data.io.progress import track
from crossmatch.data.scores import Scores
from crossmatch.metrics.pool_bias import JudgedPool, PoolBias, SubsetScores, pool_bias, score_subsets, subset_bias
from crossmatch.models.cache import Cache

STEP = "bias"
SAMPLES = 1000
LEVEL = 0.95
KINDS = ("bias", "self", "non_self")

Rankings = dict[str, NDArray[np.int64]]  # item numbers of each model, queries x ranks, best first


@dataclass(frozen=True, eq=False)
class PoolDirection:
    """One direction of a pool: its queries and items, the judged pairs, and the rankings of its models."""

    direction: str
    queries: tuple[str, ...]
    items: tuple[str, ...]
    pool: JudgedPool
    rankings: Rankings
    unjudged: int  # proposed pairs without an answer; they count as irrelevant


def load_pool_direction(pool: Path, direction: str, relevance: Mapping[Pair, float]) -> PoolDirection:
    """Load one direction of a pool with the relevance of its pairs; pairs without an answer count as irrelevant."""
    side, manifest = QUERY_POSITION[direction], read_manifest(pool)
    rows = [row for row in read_rows(pool, "pool") if row.get("retrieved", {}).get(direction)]
    if not manifest["options"].get("judge_links", True):
        raise CrossmatchError(f"{pool} leaves out retrieved links, so its rankings have gaps. Pool with --judge-links.")
    models = tuple(key.removeprefix("model ") for key in manifest["inputs"] if key.startswith("model "))
    pairs = [(row["image_id"], row["caption_id"]) for row in rows]
    queries, query = _number([pair[side] for pair in pairs])
    items, item = _number([pair[1 - side] for pair in pairs])
    depth = max((rank for row in rows for rank in row["retrieved"][direction].values()), default=0)
    ranked = np.full((len(models), len(queries), depth), -1)
    for q, i, row in zip(query, item, rows, strict=True):
        for name, rank in row["retrieved"][direction].items():
            ranked[models.index(name), q, rank - 1] = i
    if not rows or (ranked < 0).any():
        raise CrossmatchError(f"{pool} lacks complete rankings of every model in {direction}. Build the pool again.")
    is_judged = np.asarray([pair in relevance for pair in pairs])
    if not is_judged.any():
        raise CrossmatchError(f"--answers: no answer is about a pair of {pool} in {direction}. Pass the answers to this pool.")
    proposed_by = np.asarray([[name in row["retrieved"][direction] for name in models] for row in rows])
    grades = np.asarray([relevance[pair] for pair in pairs if pair in relevance])
    judged = JudgedPool(models, query[is_judged], item[is_judged], grades, proposed_by[is_judged])
    rankings = {name: ranked[n] for n, name in enumerate(models)}
    return PoolDirection(direction, queries, items, judged, rankings, int((~is_judged).sum()))


def _number(names: Sequence[str]) -> tuple[tuple[str, ...], IntArray]:
    """The distinct names, and the number of each name among them."""
    unique, number = np.unique(np.asarray(names, dtype=np.str_), return_inverse=True)
    return tuple(unique.tolist()), np.asarray(number.ravel(), dtype=np.int64)


def rank_item_ids(part: PoolDirection, scores: Scores, data: Collection, depth: int) -> IdArray:
    """Ids of the best items for each query of the pool, queries x depth, by the scores of a model."""
    query_side, item_side = SIDES[part.direction]
    at = find_positions(as_ids(part.queries, "query"), data.ids(query_side), query_side, "the collection")
    order, ids = np.argsort(at), data.ids(item_side)  # `retrieve_top` takes positions in ascending order
    best = retrieve_top(scores, data, {part.direction: at[order]}, depth)[part.direction]
    return np.asarray(ids[best[np.argsort(order)]], dtype=np.str_)


def rank_deeper(part: PoolDirection, scores: Mapping[str, Scores], data: Collection, depth: int) -> Rankings:
    """Rankings of `depth` items in the item numbers of the pool; items outside the pool get new numbers."""
    number = {item_id: n for n, item_id in enumerate(part.items)}
    ids_by_model = {name: rank_item_ids(part, of_model, data, depth) for name, of_model in scores.items()}
    return {
        name: np.asarray([[number.setdefault(item_id, len(number)) for item_id in row] for row in ids.tolist()])
        for name, ids in ids_by_model.items()
    }


# -- size of the bias


@dataclass(frozen=True, eq=False)
class MeasuredBias:
    """The bias of every subset of models by one metric, with intervals of the means over subsets of equal size."""

    direction: str
    metric: str
    subset_scores: SubsetScores
    bias: PoolBias
    low: dict[int, tuple[float, ...]]  # by number of models; empty if no samples were drawn
    high: dict[int, tuple[float, ...]]


def measure_bias(
    part: PoolDirection, metric: str = "hit@1", rankings: Rankings | None = None, samples: int = SAMPLES, seed: int = 0
) -> MeasuredBias:
    """Mean B_Θ, self-bias and non-self-bias over all subsets of each size, with percentile intervals (Figure E.2).

    Each bootstrap replicate resamples the queries and recomputes everything. Without samples there are no intervals.
    """
    scored = score_subsets(part.pool, rankings or part.rankings, metric, samples, seed)
    replicates = [
        subset_bias(scores[:-1], scores[-1], scored.members[:-1]).by_size()
        for scores in (scored.samples if scored.samples is not None else ())
    ]
    low, high = (
        {
            n: tuple(np.quantile([means[n] for means in replicates], at, axis=0).tolist())
            for n in (replicates[0] if replicates else ())
        }
        for at in ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    )
    return MeasuredBias(part.direction, metric, scored, pool_bias(scored), low, high)


def order_pool_models(measured: Sequence[MeasuredBias]) -> list[tuple[str, float]]:
    """Order the pool's models by how much each lowers the non-self-bias when it is added.

    The first model is the one whose pairs alone have the lowest non-self-bias. Values are means over all that was measured; of
    equal models the first in the pool wins.

    Returns:
        Each model with the mean non-self-bias after its addition; 0 for the last.
    """
    models = measured[0].subset_scores.models
    chosen: list[int] = []
    order: list[tuple[str, float]] = []
    while len(chosen) < len(models) - 1:
        left = [m for m in range(len(models)) if m not in chosen]
        values = [float(np.mean([_non_self_bias(part.bias, {*chosen, m}) for part in measured])) for m in left]
        best = int(np.argmin(values))
        chosen.append(left[best])
        order.append((models[left[best]], values[best]))
    last = next(m for m in range(len(models)) if m not in chosen)
    return [*order, (models[last], 0.0)]


def _non_self_bias(bias: PoolBias, models: set[int]) -> float:
    is_member = np.asarray([m in models for m in range(bias.members.shape[1])])
    return float(bias.other_bias[(bias.members == is_member).all(axis=1)][0])


# -- which model to add


@dataclass(frozen=True)
class CandidateModel:
    """A model outside the pool, and how much the pool may disadvantage it."""

    model: str
    pairs: int  # pairs it would add for judging
    unsure: float  # share of queries whose first item is unjudged
    low: float  # hit@1 if none of these is positive
    high: float  # hit@1 if all of these are positive

    @property
    def expected(self) -> float:
        """Gain in hit@1 if unjudged first items were positive as often as judged ones."""
        return self.unsure * self.low / (1 - self.unsure) if self.unsure < 1 else 0.0


def assess_candidate(
    name: str, rankings: Sequence[tuple[PoolDirection, IdArray]], relevance: Mapping[Pair, float]
) -> CandidateModel:
    """Count the unjudged pairs that a model ranks first in each direction of the pool, and bound its hit@1."""
    unjudged: set[Pair] = set()
    scores: list[tuple[float, float]] = []
    for part, ranked in rankings:
        side = QUERY_POSITION[part.direction]
        for query, items in zip(part.queries, ranked.tolist(), strict=True):
            pairs = [(query, item) if side == 0 else (item, query) for item in items]
            unjudged.update(pair for pair in pairs if pair not in relevance)
            first = relevance.get(pairs[0])
            scores.append((first or 0.0, 1.0 if first is None else first))
    low, high = (float(np.mean(values)) for values in zip(*scores, strict=True))
    return CandidateModel(name, len(unjudged), high - low, low, high)


def sort_candidates(candidates: Sequence[CandidateModel]) -> list[CandidateModel]:
    """Sort candidates by expected gain, then by the number of new pairs, then by name.

    >>> sure, blind = CandidateModel("sure", 10, 0.4, 0.3, 0.7), CandidateModel("blind", 90, 0.9, 0.01, 0.91)
    >>> [candidate.model for candidate in sort_candidates([blind, sure])]
    ['sure', 'blind']
    """
    return sorted(candidates, key=lambda candidate: (-round(candidate.expected, 12), -candidate.pairs, candidate.model))


# -- the step


@dataclass(frozen=True, eq=False)
class PoolBiasAnalysis:
    """The bias of a pool in all its directions, the order of its models, and the candidates to add."""

    measured: tuple[MeasuredBias, ...]
    unjudged: dict[str, int]
    order: list[tuple[str, float]]
    candidates: list[CandidateModel]


def analyse_pool(
    pool: Path,
    relevance: Mapping[Pair, float],
    *,
    metrics: Sequence[str] = ("hit@1",),
    collection: Collection | None = None,
    candidates: Mapping[str, object] | Sequence[str] = (),
    samples: int = SAMPLES,
    seed: int = 0,
    cache: Cache | None = None,
) -> PoolBiasAnalysis:
    """Measure the bias of a pool in each direction, and rank the models to add.

    Args:
        pool: Folder of the step `pool`.
        relevance: Relevance of the judged pairs.
        metrics: `hit@1`, `r-precision` or both; r-precision needs rankings deeper than the pool.
        collection: The pool's collection; needed for r-precision and candidates.
        candidates: Models outside the pool.
        samples: Bootstrap samples; 0 for no intervals.
        seed: Seed of the bootstrap.
        cache: Cache of scores.
    """
    manifest = read_manifest(pool)
    data = sort_by_id(collection) if collection is not None else None
    candidate_models = load_models(candidates)
    if data is None and (candidate_models or "r-precision" in metrics):
        raise UsageError("r-precision and candidate models need rankings that the pool does not contain. Pass --data.")
    parts = [load_pool_direction(pool, str(direction), relevance) for direction in manifest["options"]["directions"]]
    pool_models = parts[0].pool.models
    deep = "r-precision" in metrics
    scores = _score_pool_models(manifest, pool_models, data, cache) if deep and data is not None else {}
    measured = []
    for part in parts:
        for metric in metrics:
            depth = int(np.bincount(part.pool.query[part.pool.relevance > 0]).max(initial=1))
            rankings = rank_deeper(part, scores, data, depth) if metric == "r-precision" and data is not None else None
            measured.append(measure_bias(part, metric, rankings, samples, seed))
    assessed = []
    for name, model in candidate_models.items():
        if name in pool_models:
            raise UsageError(f"-m {name}: the model is already in the pool. Name models outside the pool.")
        assert data is not None
        of_model, top = score_all_pairs(model, data, cache), int(manifest["options"]["top"])
        assessed.append(assess_candidate(name, [(part, rank_item_ids(part, of_model, data, top)) for part in parts], relevance))
    unjudged = {part.direction: part.unjudged for part in parts}
    return PoolBiasAnalysis(tuple(measured), unjudged, order_pool_models(measured), sort_candidates(assessed))


def _score_pool_models(
    manifest: Mapping[str, Any], names: Sequence[str], data: Collection, cache: Cache | None
) -> dict[str, Scores]:
    """Score the collection with the pool's models again; their signatures must be those in the manifest."""
    models = load_models(list(names))
    for name, model in models.items():
        if model_signature(model) != manifest["inputs"][f"model {name}"]:
            raise CrossmatchError(f"{name} is not the model that was pooled: its signature differs. Build the pool again.")
    return {name: score_all_pairs(models[name], data, cache) for name in track(list(names), "scoring with the pool's models")}


def write_pool_bias(
    pool: Path,
    answers: Path,
    output: Path,
    *,
    metrics: Sequence[str] = ("hit@1",),
    collection: Collection | None = None,
    candidates: Mapping[str, object] | Sequence[str] = (),
    samples: int = SAMPLES,
    seed: int = 0,
    cache: Cache | None = None,
) -> tuple[PoolBiasAnalysis, dict[str, Any]]:
    """Write the bias of every subset of a pool's models into a folder.

    Args:
        pool: Folder of the step `pool`.
        answers: A study's export, a folder of `build merge`, or a table with image_id, caption_id and grade.
        output: Folder of the step.
        metrics: `hit@1`, `r-precision` or both; r-precision needs rankings deeper than the pool.
        collection: The pool's collection; needed for r-precision and candidates.
        candidates: Models outside the pool, to be ranked by what they would add to it.
        samples: Bootstrap samples; 0 for no intervals.
        seed: Seed of the bootstrap.
        cache: Cache of scores.

    Returns:
        The analysis and the manifest.

    >>> from crossmatch import Diorama
    >>> from crossmatch.build import build_pool, write_merge, write_pool_bias
    >>> data = Diorama.make("test", images=10).collection
    >>> pool = build_pool(data, ["oracle", "random:1", "random:2"], folder / "pool")
    >>> merged = write_merge(data, [], folder / "merged")       # links only; usually with the answers of people
    >>> analysis, manifest = write_pool_bias(folder / "pool", folder / "merged", folder / "bias", samples=0)
    >>> scores = analysis.measured[1].subset_scores             # hit@1 of t2i: oracle loses if only random:1 proposes pairs
    >>> dict(zip(scores.models, scores.scores[1].tolist())), dict(zip(scores.models, scores.scores[-1].tolist()))
    ({'oracle': 0.46, 'random:1': 0.14, 'random:2': 0.02}, {'oracle': 1.0, 'random:1': 0.14, 'random:2': 0.04})
    """
    metrics, candidate_models = tuple(dict.fromkeys(metrics)), load_models(candidates)
    analysis = analyse_pool(
        pool, read_relevance(answers), metrics=metrics, collection=collection, candidates=candidate_models, samples=samples,
        seed=seed, cache=cache,
    )  # fmt: skip
    inputs = {"pool": rows_hash(pool), "answers": file_sha256(judgements_file(answers))[:16]}
    if collection is not None and (candidate_models or "r-precision" in metrics):  # models were run again
        inputs["collection"] = collection_hash(sort_by_id(collection))
    inputs |= {f"candidate {name}": model_signature(candidate_models[name]) for name in sorted(candidate_models)}

    def make_rows(step: StepOutput) -> list[Row]:
        step.counts |= {f"unjudged {direction}": number for direction, number in analysis.unjudged.items()}
        step.counts |= {f"{part.direction} {part.metric} queries": part.subset_scores.queries for part in analysis.measured}
        candidates = [
            {"id": f"candidate/{candidate.model}", "rank": rank, **asdict(candidate), "expected": candidate.expected}
            for rank, candidate in enumerate(analysis.candidates, 1)
        ]
        return [row for part in analysis.measured for row in _bias_rows(part)] + candidates

    spec = StepSpec(STEP, inputs, {"metrics": list(metrics), "samples": samples}, seed)
    return analysis, write_step(output, spec, make_rows)


def _bias_rows(measured: MeasuredBias) -> Iterator[Row]:
    """One row per subset of models, then one per number of models."""
    scored, bias = measured.subset_scores, measured.bias
    prefix = f"{measured.direction}/{measured.metric}"
    head: Row = {"direction": measured.direction, "metric": measured.metric}
    for n, (is_member, scores) in enumerate(zip(scored.members, scored.scores, strict=True)):
        by = [name for name, member in zip(scored.models, is_member.tolist(), strict=True) if member]
        percentages = {name: round(100 * float(value), 4) for name, value in zip(scored.models, scores, strict=True)}
        row = {"id": f"{prefix}/{'+'.join(by)}", **head, "by": by, "scores": percentages}
        is_whole_pool = n == len(scored.members) - 1
        values = (0.0, 0.0, 0.0) if is_whole_pool else (bias.overall[n], bias.self_bias[n], bias.other_bias[n])
        yield row | {kind: round(100 * float(value), 4) for kind, value in zip(KINDS, values, strict=True)}
    for size, mean in bias.by_size().items():
        row = {"id": f"{prefix}/{size} models", **head, "models": size}
        limits = [side[size] for side in (measured.low, measured.high) if side]
        for n, kind in enumerate(KINDS):
            row[kind] = [round(100 * value, 4) for value in (mean[n], *(limit[n] for limit in limits))]
        yield row
