"""Candidates for people to judge: what several models retrieve, in both directions (chun2022eccv, sec. 3.2).

Each model gives its five best items for each query. The same pair from several models, or from both directions, is one candidate:
the paper's (1,261 + 1,333) queries x 5 models x 5 items become 46,424 pairs. Gold is there to see who answers carefully: links of
the collection as positives, and as negatives pairs drawn by lot that no model has among its 25 best, in either direction. Rows are
a pool for the study `eccv-hit`, which packs 18 candidates with one gold pair of each kind:

    {"id", "image_id", "caption_id", "caption", "kind": candidate | positive | negative,
     "retrieved": {direction: {model: rank}}, "known": the collection links them, "first": it was asked for by name}

Candidates stand in an order drawn by lot, so that neither rank nor model shows; those asked for by name stand first, and gold last.
Equal scores at the cut are ordered by id, the first in the alphabet first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.benchmarks.formats.table import DELIMITERS
from crossmatch.benchmarks.formats.trials import is_jsonl, read_records
from crossmatch.build.files import Asked, Output, Row, written
from crossmatch.build.material import collection_hash, groups_of, in_order, named_models, pair_id, said_of, signature_of
from crossmatch.build.nearest import best
from crossmatch.core.arrays import IntArray, as_ids, positions
from crossmatch.core.collection import SIDES, Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.rankings import rankings
from crossmatch.core.scores import Embeddings, Matrix, Run, Scores
from crossmatch.diorama.dice import Dice
from crossmatch.models.cache import ScoreCache

STEP = "pool"
TOP = 5  # items that each model gives for a query
CERTAIN = 25  # the best items of each model that no negative may be among
PER_HIT = 18  # candidates that share a positive and a negative
TRIES = 50  # draws for each negative before there is said to be none
DIRECTIONS = ("i2t", "t2i")

Pair = tuple[int, int]  # positions of an image and of a caption


@dataclass(frozen=True)
class Pooling:
    """How candidates are pooled: what the manifest keeps as options."""

    top: int = TOP
    certain: int = CERTAIN
    directions: tuple[str, ...] = DIRECTIONS
    judge_links: bool = True  # links that models retrieve are judged like all else, which tells how many of them are right
    gold: int | None = None  # pairs of each kind; by default one for each HIT of 18

    def __post_init__(self) -> None:
        wrong = next((one for one in self.directions if one not in DIRECTIONS), None)
        if wrong is not None or not self.directions:
            raise WrongWords(f"the pool has the directions {', '.join(self.directions) or 'none'}; i2t, t2i or both were expected.")
        if self.top < 1 or self.certain < 0 or (self.gold or 0) < 0:
            raise WrongWords(f"top is {self.top}, certain {self.certain}, gold {self.gold}; at least 1, 0 and 0 were expected.")


def pool(
    collection: Collection,
    models: Mapping[str, object] | Sequence[str],
    output: Path,
    *,
    how: Pooling = Pooling(),
    image_queries: Iterable[str] | None = None,
    caption_queries: Iterable[str] | None = None,
    first: Iterable[tuple[str, str]] = (),
    seed: int = 0,
    cache: ScoreCache | None = None,
) -> dict[str, Any]:
    """Write what several models retrieve into a folder; its manifest.

    `models` are names, or objects under names. Queries are ids, by default all. `first` are pairs of an image id and a caption id
    that are to be judged before all others (`read_pairs`).
    """
    held, by_name = in_order(collection), named_models(models)
    if not by_name:
        raise WrongWords("no model was named whose retrieval is to be pooled. Name at least one.")
    held.texts()  # says what is missing
    wanted = {"i2t": image_queries, "t2i": caption_queries}
    queries = {direction: _places(held, SIDES[direction][0], wanted[direction]) for direction in how.directions}
    named = _first(held, first)
    inputs = {"collection": collection_hash(held)} | {f"model {name}": signature_of(model) for name, model in by_name.items()}
    inputs |= {f"queries {one}": _digest(at) for one, at in queries.items() if len(at) < len(held.ids(SIDES[one][0]))}
    inputs |= {"first": _digest(np.asarray(named))} if named else {}
    options = {**asdict(how), "directions": list(how.directions)}

    def rows(made: Output) -> Iterator[Row]:
        found = _Pooled(held, how)
        for name, model in by_name.items():
            found.add(name, said_of(model, held, cache), queries)
        yield from _rows(found, queries, named, seed, made)

    return written(output, Asked(STEP, inputs, options, seed), rows)


def _places(held: Collection, side: str, ids: Iterable[str] | None) -> IntArray:
    """Positions of the queries, ascending."""
    if ids is None:
        return np.arange(len(held.ids(side)))
    return np.sort(positions(as_ids(ids, f"{side} query"), held.ids(side), side, "the collection"))


def _first(held: Collection, pairs: Iterable[tuple[str, str]]) -> list[Pair]:
    listed = list(dict.fromkeys(pairs))
    if not listed:
        return []
    images, captions = (np.asarray(column, dtype=np.str_) for column in zip(*listed, strict=True))
    return list(zip(held.image_positions(images).tolist(), held.caption_positions(captions).tolist(), strict=True))


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """The pairs of a jsonl, csv or tsv with `image_id` and `caption_id`, in its order: what is to be judged first."""
    if not path.is_file():
        raise WrongWords(f"{path} is not there. Check the path.")
    if path.suffix.lower() not in DELIMITERS and not is_jsonl(path):
        raise WrongWords(f"{path} ends in {path.suffix or 'nothing'!r}; pairs are read from .jsonl, .csv and .tsv. Save it as one.")
    pairs = []
    for record, where in read_records(path):
        ids = [record.get(key) for key in ("image_id", "caption_id")]
        if any(isinstance(each, bool) or not isinstance(each, str | int) or each == "" for each in ids):
            raise CrossmatchError(f"{where} has image_id {ids[0]!r:.40} and caption_id {ids[1]!r:.40}; two ids were expected.")
        pairs.append((str(ids[0]), str(ids[1])))
    return pairs


def _digest(places: IntArray) -> str:
    return hashlib.sha256(np.ascontiguousarray(places, dtype=np.int64).tobytes()).hexdigest()[:16]


# -- what models retrieve


@dataclass(eq=False)
class _Pooled:
    """What the models have retrieved so far: who has a pair among the best, at which rank, and what is near any query at all."""

    held: Collection
    how: Pooling
    retrieved: dict[Pair, dict[str, dict[str, int]]] = field(default_factory=dict)
    near: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))  # image · captions + caption, ascending
    total: int = 0

    def add(self, name: str, said: Scores, queries: Mapping[str, IntArray]) -> None:
        for direction, items in retrieved(said, self.held, queries, max(self.how.top, self.how.certain)).items():
            query = np.repeat(queries[direction], items.shape[1])
            image, caption = (query, items.ravel()) if direction == "i2t" else (items.ravel(), query)
            rank = np.tile(np.arange(1, items.shape[1] + 1), len(items))
            listed = rank <= self.how.top
            self.total += int(listed.sum())
            for *pair, place in np.stack([image, caption, rank], axis=1)[listed].tolist():
                self.retrieved.setdefault((pair[0], pair[1]), {}).setdefault(direction, {})[name] = place
            self.near = np.union1d(self.near, image * self.held.shape[1] + caption)

    def is_near(self, pair: Pair) -> bool:
        key = pair[0] * self.held.shape[1] + pair[1]
        at = int(np.searchsorted(self.near, key))
        return at < len(self.near) and bool(self.near[at] == key)


def retrieved(said: Scores, held: Collection, queries: Mapping[str, IntArray], depth: int) -> dict[str, IntArray]:
    """For each direction the `depth` best items of each of its queries, best first.

    Where all items are queries, one sweep over the scores serves both directions; else each sweeps over those of its queries.
    """
    if isinstance(said, Run):
        return {direction: _of_run(said, held, direction, at, depth) for direction, at in queries.items()}
    absent = next((direction for direction in queries if direction not in said.directions), None)
    if absent is not None:
        raise CrossmatchError(
            f"a model compares no images with texts, only {' and '.join(said.directions)}. Leave it out of the pool."
        )
    if all(len(at) == len(held.ids(SIDES[direction][0])) for direction, at in queries.items()):
        return {direction: found.item for direction, found in best(said, tuple(queries), depth).items()}
    out = {}
    for direction, at in queries.items():
        out[direction] = best(_only(said, SIDES[direction][0], at), (direction,), depth)[direction].item
    return out


def _only(said: Embeddings | Matrix, side: str, at: IntArray) -> Embeddings | Matrix:
    """The scores of some images, or of some captions."""
    if isinstance(said, Embeddings):
        return said.permuted({side: at})
    if side == "image":
        return Matrix(said.image_ids[at], said.caption_ids, said.values[at])
    return Matrix(said.image_ids, said.caption_ids[at], said.values[:, at])


def _of_run(run: Run, held: Collection, direction: str, at: IntArray, depth: int) -> IntArray:
    """From a run file, which must reach as deep for every query; its ties too are ordered by id, ascending."""
    depth = min(depth, len(held.ids(SIDES[direction][1])))
    found = {}
    for query, items, scores in rankings(run, held, direction, depth, at):
        found[query] = items[np.lexsort((items, -scores))][:depth]  # positions are in the order of the ids
    short = next((query for query in at.tolist() if len(found.get(query, ())) < depth), None)
    if short is not None:
        name = str(held.ids(SIDES[direction][0])[short])
        raise CrossmatchError(
            f"the run has {len(found.get(short, ()))} items for {name!r} in {direction}; {depth} are needed, so that negatives are "
            "certain. Write a deeper run, or ask for fewer: certain, top."
        )
    return np.stack([found[query] for query in at.tolist()])


# -- candidates and gold


def _rows(found: _Pooled, queries: Mapping[str, IntArray], named: Sequence[Pair], seed: int, made: Output) -> Iterator[Row]:
    held, links = found.held, {(int(i), int(c)) for i, c in found.held.links}
    for direction, at in queries.items():
        made.count(f"queries {direction}", len(at))
    made.count("retrieved", found.total)
    made.count("pairs", len(found.retrieved))
    kept = {pair for pair in found.retrieved if found.how.judge_links or pair not in links} - set(named)
    mixed = sorted(kept, key=lambda pair: Dice(seed, "order", *_names(held, pair)).bits())
    for number, pair in enumerate((*named, *mixed)):
        made.count("candidates")
        yield _row(held, pair, "candidate") | _why(found, pair, pair in links, number < len(named))
    number = -(-(len(named) + len(mixed)) // PER_HIT) if found.how.gold is None else found.how.gold
    gold = {
        "positive": _positives(held, queries, number, seed),
        "negative": _negatives(found, queries, links | set(named), number, seed),
    }
    for kind, pairs in gold.items():
        made.count(kind, len(pairs))
        for pair in pairs:
            row = _row(held, pair, kind)
            yield {**row, "id": f"{kind}/{row['id']}"}  # the same pair may be a candidate


def _names(held: Collection, pair: Pair) -> tuple[str, str]:
    return str(held.image_ids[pair[0]]), str(held.caption_ids[pair[1]])


def _row(held: Collection, pair: Pair, kind: str) -> Row:
    image, caption = _names(held, pair)
    return {
        "id": pair_id(image, caption), "image_id": image, "caption_id": caption, "caption": held.captions[pair[1]], "kind": kind,
    }  # fmt: skip


def _why(found: _Pooled, pair: Pair, known: bool, first: bool) -> Row:
    return {"retrieved": found.retrieved.get(pair, {})} | ({"known": True} if known else {}) | ({"first": True} if first else {})


def _positives(held: Collection, queries: Mapping[str, IntArray], number: int, seed: int) -> list[Pair]:
    """Links of the queries, drawn by lot."""
    asked = {direction: set(at.tolist()) for direction, at in queries.items()}
    of_queries = [
        (image, caption) for image, caption in sorted((int(i), int(c)) for i, c in held.links)
        if image in asked.get("i2t", ()) or caption in asked.get("t2i", ())
    ]  # fmt: skip
    return Dice(seed, "positive").shuffled(of_queries)[:number]


def _negatives(found: _Pooled, queries: Mapping[str, IntArray], known: set[Pair], number: int, seed: int) -> list[Pair]:
    """Pairs of queries, drawn by lot, that no model has among its best; nor a text that is one of the image's own captions.

    Where the models' best leave next to nothing over, fewer are found.
    """
    held, dice = found.held, Dice(seed, "negative")
    sides = [queries.get(direction, np.arange(n)).tolist() for direction, n in zip(DIRECTIONS, held.shape, strict=True)]
    groups, drawn = groups_of(held), dict[Pair, None]()
    for _ in range(TRIES * number):
        if len(drawn) == number:
            break
        image, caption = dice.pick(sides[0]), dice.pick(sides[1])
        own = held.captions[caption] in held.texts(groups[image])
        if not own and (image, caption) not in known and not found.is_near((image, caption)):
            drawn[image, caption] = None
    return list(drawn)
