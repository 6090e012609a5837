"""What the choice of annotator models did to a pool, and which model to add (chun2022eccv, app. E).

Every model is scored again by the pairs that each subset of the models proposed. What it loses there, against the whole pool, it
loses because others chose what people saw. A row for each direction, metric and subset:

    {"id", "direction", "metric", "by": models that proposed, "scores": {model: percent}, "bias": B_Θ, "self", "non_self"}

Which model to add next:

- Among the pool's own models, `in_turn` orders them: first the one whose pairs alone have the lowest non-self-bias, then always the
  one whose addition lowers it most. What stands last, the pool could best have done without.
- Of candidates, the one that the pool is expected to wrong most: the share of queries whose first item nobody judged, times the
  share that is right among its first items that were judged. A model that retrieves what is unjudged because it is wrong gains
  nothing by that. What others retrieve too is more often right, so that the number is too high, for all candidates alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.benchmarks.formats.table import DELIMITERS, read_table
from crossmatch.build.files import Asked, Output, Row, hash_of, manifest, read_rows, written
from crossmatch.build.material import collection_hash, in_order, named_models, said_of, signature_of
from crossmatch.build.merge import SIDE_OF
from crossmatch.build.pool import retrieved
from crossmatch.build.rated import rating_of
from crossmatch.build.verdicts import JUDGEMENTS, Pair
from crossmatch.core.arrays import FloatArray, IdArray, IntArray, as_ids, positions
from crossmatch.core.collection import SIDES, Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import sha256_of
from crossmatch.core.progress import track
from crossmatch.core.scores import Scores
from crossmatch.metrics.bias import Bias, Pool, Versions, annotator_bias, bias_of, versions
from crossmatch.models.cache import ScoreCache

STEP = "bias"
SAMPLES = 1000
LEVEL = 0.95
KINDS = ("bias", "self", "non_self")

Rankings = dict[str, NDArray[np.int64]]  # for each model, queries x items, best first


@dataclass(frozen=True, eq=False)
class Proposed:
    """What the models of a pool proposed in one direction, and what people said of it."""

    direction: str
    queries: tuple[str, ...]
    items: tuple[str, ...]
    pool: Pool
    rankings: Rankings
    unjudged: int  # pairs that were proposed and have no answer: nobody's match


def read_answers(path: Path) -> dict[Pair, float]:
    """Relevance of pairs, 0 to 1: a study's export, a folder of `build merge`, or a table with image_id, caption_id and grade."""
    file = path / JUDGEMENTS if path.is_dir() else path
    if not file.is_file() or file.suffix.lower() not in DELIMITERS:
        raise WrongWords(f"{file} is no table of answers. Name a .csv with image_id, caption_id and grade, or the folder of one.")
    said: dict[Pair, float] = {}
    for row in read_table(file, (("image_id",), ("caption_id",), ("grade", "agg_score"))):
        pair, grade = (row.cells["image_id"], row.cells["caption_id"]), rating_of(row)
        if not 0 <= grade <= 1:
            raise CrossmatchError(f"{row.where}: the grade is {grade:g}; relevance from 0 to 1 was expected. Merge ratings first.")
        if said.setdefault(pair, grade) != grade:
            raise CrossmatchError(f"{row.where}: image {pair[0]!r} and caption {pair[1]!r} have two grades. Merge them first.")
    return said


def proposed(pool: Path, direction: str, answers: Mapping[Pair, float]) -> Proposed:
    """One direction of a pool, with the answers to its candidates; those that nobody answered count as no match."""
    side, told = SIDE_OF[direction], manifest(pool)
    rows = [row for row in read_rows(pool, "pool") if row.get("retrieved", {}).get(direction)]
    if not told["options"].get("judge_links", True):
        raise CrossmatchError(f"{pool} leaves out links that models retrieved, so that rankings have gaps. Pool with them.")
    models = tuple(key.removeprefix("model ") for key in told["inputs"] if key.startswith("model "))
    pairs = [(row["image_id"], row["caption_id"]) for row in rows]
    queries, query = _numbered([pair[side] for pair in pairs])
    items, item = _numbered([pair[1 - side] for pair in pairs])
    depth = max((rank for row in rows for rank in row["retrieved"][direction].values()), default=0)
    ranked = np.full((len(models), len(queries), depth), -1)
    for q, i, row in zip(query, item, rows, strict=True):
        for name, rank in row["retrieved"][direction].items():
            ranked[models.index(name), q, rank - 1] = i
    if not rows or (ranked < 0).any():
        raise CrossmatchError(f"{pool} has no whole ranking of every model in {direction}. Make the pool anew.")
    judged = np.asarray([pair in answers for pair in pairs])
    if not judged.any():
        raise CrossmatchError(f"no answer is about a pair that {pool} has in {direction}. Name the answers to this pool.")
    by = np.asarray([[name in row["retrieved"][direction] for name in models] for row in rows])
    grades = np.asarray([answers[pair] for pair in pairs if pair in answers])
    held = Pool(models, query[judged], item[judged], grades, by[judged])
    rankings = {name: ranked[n] for n, name in enumerate(models)}
    return Proposed(direction, queries, items, held, rankings, int((~judged).sum()))


def _numbered(names: Sequence[str]) -> tuple[tuple[str, ...], IntArray]:
    unique, number = np.unique(np.asarray(names, dtype=np.str_), return_inverse=True)
    return tuple(unique.tolist()), np.asarray(number.ravel(), dtype=np.int64)


def ranked_ids(found: Proposed, said: Scores, held: Collection, depth: int) -> IdArray:
    """The best items by a model's scores about the collection in order, for each query of the pool: ids, queries x depth."""
    query_side, item_side = SIDES[found.direction]
    at = positions(as_ids(found.queries, "query"), held.ids(query_side), query_side, "the collection")
    order, ids = np.argsort(at), held.ids(item_side)  # positions are asked for ascending
    best = retrieved(said, held, {found.direction: at[order]}, depth)[found.direction]
    return np.asarray(ids[best[np.argsort(order)]], dtype=np.str_)


def deeper(found: Proposed, said: Mapping[str, Scores], held: Collection, depth: int) -> Rankings:
    """Rankings of so many items in the numbers of the pool; items that are not in it get numbers of their own."""
    number = {name: n for n, name in enumerate(found.items)}
    listed = {name: ranked_ids(found, scores, held, depth) for name, scores in said.items()}
    return {
        name: np.asarray([[number.setdefault(item, len(number)) for item in row] for row in ids.tolist()])
        for name, ids in listed.items()
    }


# -- how large it is


@dataclass(frozen=True, eq=False)
class Measured:
    """The bias of every subset by one metric, and by the number of models its mean with an interval."""

    direction: str
    metric: str
    versions: Versions
    bias: Bias
    low: dict[int, tuple[float, ...]]  # nothing where no samples were drawn
    high: dict[int, tuple[float, ...]]


def measured(
    found: Proposed, metric: str = "hit@1", rankings: Rankings | None = None, samples: int = SAMPLES, seed: int = 0
) -> Measured:
    """Figure E.2: the mean of B_Θ, self-bias and non-self-bias over all subsets of each size, with percentile intervals.

    Each replicate draws as many queries as there are, and computes everything anew from them; without samples, no intervals.
    """
    scored = versions(found.pool, rankings or found.rankings, metric, samples, seed)
    drawn = scored.samples if scored.samples is not None else ()
    again = [annotator_bias(one[:-1], one[-1], scored.members[:-1]).by_size() for one in drawn]
    low, high = (
        {n: tuple(np.quantile([one[n] for one in again], at, axis=0).tolist()) for n in (again[0] if again else ())}
        for at in ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    )
    return Measured(found.direction, metric, scored, bias_of(scored), low, high)


def in_turn(found: Sequence[Measured]) -> list[tuple[str, float]]:
    """The models in the order in which they are best pooled, each with the mean non-self-bias once it is in; none for the last.

    First the one whose pairs alone have the lowest non-self-bias, then always the one that lowers it most; the mean of all that was
    measured, and of equal ones the first in the pool.
    """
    models = found[0].versions.models
    chosen: list[int] = []
    told: list[tuple[str, float]] = []
    while len(chosen) < len(models) - 1:
        left = [m for m in range(len(models)) if m not in chosen]
        values = [float(np.mean([_non_self(one.bias, {*chosen, m}) for one in found])) for m in left]
        best = int(np.argmin(values))
        chosen.append(left[best])
        told.append((models[left[best]], values[best]))
    last = next(m for m in range(len(models)) if m not in chosen)
    return [*told, (models[last], 0.0)]


def _non_self(bias: Bias, chosen: set[int]) -> float:
    wanted = np.asarray([m in chosen for m in range(bias.members.shape[1])])
    return float(bias.other[(bias.members == wanted).all(axis=1)][0])


# -- which model to add


@dataclass(frozen=True)
class Candidate:
    """A model that is not in the pool: by how much the pool may wrong it."""

    model: str
    pairs: int  # that it would add to be judged
    unsure: float  # the share of its queries whose first item nobody judged
    low: float  # its hit@1 if none of these is right, and if all of them are
    high: float

    @property
    def expected(self) -> float:
        """What it would gain in hit@1 if its unjudged first items were right as often as the judged ones."""
        return self.unsure * self.low / (1 - self.unsure) if self.unsure < 1 else 0.0


def candidate(name: str, found: Sequence[tuple[Proposed, IdArray]], answers: Mapping[Pair, float]) -> Candidate:
    """What a model retrieves, by the number of its pairs that nobody judged; `found` has its rankings in each direction."""
    pairs: set[Pair] = set()
    scores: list[tuple[float, float]] = []
    for one, ranked in found:
        side = SIDE_OF[one.direction]
        for query, items in zip(one.queries, ranked.tolist(), strict=True):
            named = [(query, items[n]) if side == 0 else (items[n], query) for n in range(len(items))]
            pairs.update(pair for pair in named if pair not in answers)
            first = answers.get(named[0])
            scores.append((first or 0.0, 1.0 if first is None else first))
    low, high = (float(np.mean(each)) for each in zip(*scores, strict=True))
    return Candidate(name, len(pairs), high - low, low, high)


def ranked_candidates(found: Sequence[Candidate]) -> list[Candidate]:
    """The one to add first; equal ones by the pairs that they add, then by name.

    >>> sure, blind = Candidate("sure", 10, 0.4, 0.3, 0.7), Candidate("blind", 90, 0.9, 0.01, 0.91)
    >>> [one.model for one in ranked_candidates([blind, sure])]
    ['sure', 'blind']
    """
    return sorted(found, key=lambda one: (-round(one.expected, 12), -one.pairs, one.model))


# -- the step


@dataclass(frozen=True, eq=False)
class Found:
    """Everything that the step tells."""

    measured: tuple[Measured, ...]
    unjudged: dict[str, int]
    order: list[tuple[str, float]]
    candidates: list[Candidate]


def analysed(
    pool: Path,
    answers: Mapping[Pair, float],
    *,
    metrics: Sequence[str] = ("hit@1",),
    collection: Collection | None = None,
    candidates: Mapping[str, object] | Sequence[str] = (),
    samples: int = SAMPLES,
    seed: int = 0,
    cache: ScoreCache | None = None,
) -> Found:
    """The bias of a pool in each of its directions, and what to add.

    R-precision needs rankings deeper than the pool, so that its models are asked again about the `collection`; so are candidates.
    """
    told = manifest(pool)
    held = in_order(collection) if collection is not None else None
    more = named_models(candidates)
    if held is None and (more or "r-precision" in metrics):
        raise WrongWords("R-precision and candidates need rankings that the pool does not have. Name its collection: --data")
    directions = [str(one) for one in told["options"]["directions"]]
    parts = [proposed(pool, direction, answers) for direction in directions]
    names = parts[0].pool.models
    deep = "r-precision" in metrics
    said = _asked_again(told, names, held, cache) if deep and held is not None else {}
    out = []
    for one in parts:
        for metric in metrics:
            depth = int(np.bincount(one.pool.query[one.pool.relevance > 0]).max(initial=1))
            again = deeper(one, said, held, depth) if metric == "r-precision" and held is not None else None
            out.append(measured(one, metric, again, samples, seed))
    compared = []
    for name, model in more.items():
        if name in names:
            raise WrongWords(f"{name} is in the pool already. Name models that are not.")
        assert held is not None
        scores, top = said_of(model, held, cache), int(told["options"]["top"])
        compared.append(candidate(name, [(one, ranked_ids(one, scores, held, top)) for one in parts], answers))
    return Found(tuple(out), {one.direction: one.unjudged for one in parts}, in_turn(out), ranked_candidates(compared))


def _asked_again(told: Mapping[str, Any], names: Sequence[str], held: Collection, cache: ScoreCache | None) -> dict[str, Scores]:
    """What the models of a pool say about its collection; others under the same names are refused."""
    models = named_models(list(names))
    for name, model in models.items():
        if signature_of(model) != told["inputs"][f"model {name}"]:
            raise CrossmatchError(f"{name} is another model than the one that was pooled. Pool it anew.")
    return {name: said_of(models[name], held, cache) for name in track(list(names), "asking the models of the pool")}


def bias(
    pool: Path,
    answers: Path,
    output: Path,
    *,
    metrics: Sequence[str] = ("hit@1",),
    collection: Collection | None = None,
    candidates: Mapping[str, object] | Sequence[str] = (),
    samples: int = SAMPLES,
    seed: int = 0,
    cache: ScoreCache | None = None,
) -> tuple[Found, dict[str, Any]]:
    """Write the bias of every subset into a folder; what was found, and the manifest."""
    metrics, more = tuple(dict.fromkeys(metrics)), named_models(candidates)
    said = read_answers(answers)
    found = analysed(pool, said, metrics=metrics, collection=collection, candidates=more, samples=samples, seed=seed, cache=cache)
    file = answers / JUDGEMENTS if answers.is_dir() else answers
    inputs = {"pool": hash_of(pool), "answers": sha256_of(file)[:16]}
    if collection is not None and (more or "r-precision" in metrics):  # what was ranked once more
        inputs["collection"] = collection_hash(in_order(collection))
    inputs |= {f"candidate {name}": signature_of(more[name]) for name in sorted(more)}
    options = {"metrics": list(metrics), "samples": samples}

    def rows(made: Output) -> Iterator[Row]:
        made.counts |= {f"unjudged {direction}": number for direction, number in found.unjudged.items()}
        for one in found.measured:
            made.counts[f"{one.direction} {one.metric} queries"] = one.versions.queries
            yield from _rows(one)
        for rank, each in enumerate(found.candidates, 1):
            yield {"id": f"candidate/{each.model}", "rank": rank, **asdict(each), "expected": each.expected}

    return found, written(output, Asked(STEP, inputs, options, seed), rows)


def _rows(one: Measured) -> Iterator[Row]:
    models = one.versions.models
    head: Row = {"direction": one.direction, "metric": one.metric}
    for n, (member, scores) in enumerate(zip(one.versions.members, one.versions.scores, strict=True)):
        by = [name for name, chosen in zip(models, member.tolist(), strict=True) if chosen]
        row = {"id": f"{one.direction}/{one.metric}/{'+'.join(by)}", **head, "by": by, "scores": _percent(models, scores)}
        whole = n == len(one.versions.members) - 1
        values = (0.0, 0.0, 0.0) if whole else (one.bias.whole[n], one.bias.own[n], one.bias.other[n])
        yield row | {kind: round(100 * float(value), 4) for kind, value in zip(KINDS, values, strict=True)}
    for size, mean in one.bias.by_size().items():
        row = {"id": f"{one.direction}/{one.metric}/{size} models", **head, "models": size}
        for n, kind in enumerate(KINDS):
            row[kind] = [round(100 * value, 4) for value in (mean[n], *(side[size][n] for side in (one.low, one.high) if side))]
        yield row


def _percent(models: Sequence[str], scores: FloatArray) -> dict[str, float]:
    return {name: round(100 * float(value), 4) for name, value in zip(models, scores, strict=True)}
