"""Candidate pairs for people to judge: what several models retrieve in both directions (chun2022eccv, sec. 3.2).

Each model contributes its five best items for each query. A pair that several models retrieve, or that is retrieved in both
directions, is one candidate: the paper's (1,261 + 1,333) queries x 5 models x 5 items become 46,424 pairs. Gold pairs check the
attention of annotators. Positive gold pairs are links of the collection. Negative ones are random pairs that no model has among its
25 best in either direction. Rows are a pool for the study `eccv-hit`, which packs 18 candidates with one gold pair of each kind:

    {"id", "image_id", "caption_id", "caption", "kind": candidate | positive | negative,
     "retrieved": {direction: {model: rank}}, "known": the collection links the pair, "first": the pair was given by `first`}

Candidates are shuffled, so that the order reveals neither rank nor model. Pairs given by `first` come first, gold pairs last. Equal
scores at the cut are ordered by id, ascending.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.benchmarks.formats.csv_tables import DELIMITERS
from crossmatch.benchmarks.formats.trial_files import is_jsonl, read_records
from crossmatch.build.nearest_neighbours import find_top_candidates
from crossmatch.build.step_files import Row, StepOutput, StepSpec, write_step
from crossmatch.build.step_inputs import (
    captions_by_image,
    collection_hash,
    load_models,
    model_signature,
    pair_id,
    score_all_pairs,
    sort_by_id,
)
from crossmatch.data.arrays import IntArray, as_ids, find_positions
from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.scores import Embeddings, Matrix, Run, Scores
from crossmatch.diorama.random_choices import Dice
from crossmatch.models.cache import Cache
from crossmatch.ranking.top_lists import iterate_rankings

STEP = "pool"
TOP = 5  # items per model and query
SAFE_DEPTH = 25  # a negative gold pair is outside the best 25 items of every model
CANDIDATES_PER_HIT = 18
DRAWS_PER_NEGATIVE = 50
DIRECTIONS = ("i2t", "t2i")

Pair = tuple[int, int]  # positions of an image and of a caption


@dataclass(frozen=True)
class PoolOptions:
    """Options of a pool, as recorded in the manifest.

    Attributes:
        top: Number of items that each model proposes for a query.
        certain: A negative gold pair is outside the best `certain` items of every model.
        directions: The directions of the search.
        judge_links: Whether retrieved links are candidates too, which shows how many links are right.
        gold: Number of gold pairs of each kind, positive and negative; by default one per HIT of 18 candidates.

    >>> PoolOptions(top=10, gold=0)                         # the first 10 items of each model, without gold pairs
    PoolOptions(top=10, certain=25, directions=('i2t', 't2i'), judge_links=True, gold=0)
    """

    top: int = TOP
    certain: int = SAFE_DEPTH
    directions: tuple[str, ...] = DIRECTIONS
    judge_links: bool = True
    gold: int | None = None

    def __post_init__(self) -> None:
        if not self.directions or any(direction not in DIRECTIONS for direction in self.directions):
            raise UsageError(f"--directions must be i2t, t2i or both (got {', '.join(self.directions) or 'nothing'}).")
        if self.top < 1 or self.certain < 0 or (self.gold or 0) < 0:
            raise UsageError(
                f"--top must be at least 1, --certain and --gold at least 0 (got {self.top}, {self.certain}, {self.gold})."
            )


def build_pool(
    collection: Collection,
    models: Mapping[str, object] | Sequence[str],
    output: Path,
    *,
    options: PoolOptions = PoolOptions(),
    image_queries: Iterable[str] | None = None,
    caption_queries: Iterable[str] | None = None,
    first: Iterable[tuple[str, str]] = (),
    seed: int = 0,
    cache: Cache | None = None,
) -> dict[str, Any]:
    """Write a pool of the pairs that several models retrieve.

    Args:
        collection: Images with captions.
        models: Names of models, or models by name.
        output: Folder of the step.
        options: Depth, directions, gold pairs.
        image_queries: Ids of the images to search with; by default all.
        caption_queries: Ids of the captions to search with; by default all.
        first: Pairs of an image id and a caption id to judge before all others.
        seed: Seed of the order of candidates and of the gold pairs.
        cache: Cache of scores.

    Returns:
        The manifest.

    >>> from crossmatch import Diorama
    >>> from crossmatch.build import PoolOptions, build_pool
    >>> data = Diorama.make("test", size="tiny").collection
    >>> build_pool(data, ["oracle", "random"], folder / "pool", options=PoolOptions(top=3, gold=20))["counts"]
    {'queries i2t': 50, 'queries t2i': 250, 'retrieved': 1800, 'pairs': 1462, 'candidates': 1462, 'positive': 20, 'negative': 20}
    """
    data, models_by_name = sort_by_id(collection), load_models(models)
    if not models_by_name:
        raise UsageError("-m: no model is named. Name at least one model whose results are pooled.")
    data.require_texts()
    query_ids = {"i2t": image_queries, "t2i": caption_queries}
    queries = {direction: _query_positions(data, SIDES[direction][0], query_ids[direction]) for direction in options.directions}
    priority = _pair_positions(data, first)
    inputs = {"collection": collection_hash(data)}
    inputs |= {f"model {name}": model_signature(model) for name, model in models_by_name.items()}
    inputs |= {
        f"queries {direction}": _digest(at) for direction, at in queries.items() if len(at) < len(data.ids(SIDES[direction][0]))
    }
    inputs |= {"first": _digest(np.asarray(priority))} if priority else {}
    recorded = {**asdict(options), "directions": list(options.directions)}

    def make_rows(step: StepOutput) -> list[Row]:
        pairs = _RetrievedPairs(data, options)
        for name, model in models_by_name.items():
            pairs.add(name, score_all_pairs(model, data, cache), queries)
        return _pool_rows(pairs, queries, priority, seed, step)

    return write_step(output, StepSpec(STEP, inputs, recorded, seed), make_rows)


def _query_positions(data: Collection, side: str, ids: Iterable[str] | None) -> IntArray:
    if ids is None:
        return np.arange(len(data.ids(side)))
    return np.sort(find_positions(as_ids(ids, f"{side} query"), data.ids(side), side, "the collection"))


def _pair_positions(data: Collection, pairs: Iterable[tuple[str, str]]) -> list[Pair]:
    unique = list(dict.fromkeys(pairs))
    if not unique:
        return []
    images, captions = (np.asarray(column, dtype=np.str_) for column in zip(*unique, strict=True))
    return list(zip(data.image_positions(images).tolist(), data.caption_positions(captions).tolist(), strict=True))


def read_pair_list(path: Path) -> list[tuple[str, str]]:
    """Read pairs from a jsonl, csv or tsv file with `image_id` and `caption_id`, in the order of the file."""
    if not path.is_file():
        raise UsageError(f"{path} does not exist. Check the path.")
    if path.suffix.lower() not in DELIMITERS and not is_jsonl(path):
        raise UsageError(f"{path}: expected a .jsonl, .csv or .tsv file with pairs, got {path.suffix or 'no suffix'!r}.")
    pairs = []
    for record, where in read_records(path):
        ids = [record.get(key) for key in ("image_id", "caption_id")]
        if any(isinstance(value, bool) or not isinstance(value, str | int) or value == "" for value in ids):
            raise CrossmatchError(f"{where}: expected ids, got image_id {ids[0]!r:.40} and caption_id {ids[1]!r:.40}.")
        pairs.append((str(ids[0]), str(ids[1])))
    return pairs


def _digest(positions: IntArray) -> str:
    return hashlib.sha256(np.ascontiguousarray(positions, dtype=np.int64).tobytes()).hexdigest()[:16]


# -- retrieved pairs


@dataclass(eq=False)
class _RetrievedPairs:
    """The pairs retrieved so far: by which model and at which rank, and all pairs within the safe depth."""

    data: Collection
    options: PoolOptions
    ranks: dict[Pair, dict[str, dict[str, int]]] = field(default_factory=dict)
    near: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))  # image * number of captions + caption, ascending
    total: int = 0

    def add(self, model: str, scores: Scores, queries: Mapping[str, IntArray]) -> None:
        for direction, items in retrieve_top(scores, self.data, queries, max(self.options.top, self.options.certain)).items():
            query = np.repeat(queries[direction], items.shape[1])
            image, caption = (query, items.ravel()) if direction == "i2t" else (items.ravel(), query)
            rank = np.tile(np.arange(1, items.shape[1] + 1), len(items))
            is_top = rank <= self.options.top
            self.total += int(is_top.sum())
            for i, c, r in np.stack([image, caption, rank], axis=1)[is_top].tolist():
                self.ranks.setdefault((i, c), {}).setdefault(direction, {})[model] = r
            self.near = np.union1d(self.near, image * self.data.shape[1] + caption)

    def is_near(self, pair: Pair) -> bool:
        """Whether some model has the pair within the safe depth."""
        key = pair[0] * self.data.shape[1] + pair[1]
        at = int(np.searchsorted(self.near, key))
        return at < len(self.near) and bool(self.near[at] == key)


def retrieve_top(scores: Scores, data: Collection, queries: Mapping[str, IntArray], depth: int) -> dict[str, IntArray]:
    """Positions of the `depth` best items of each query, best first, by direction.

    If all items are queries, one sweep over the scores serves both directions.
    """
    if isinstance(scores, Run):
        return {direction: _top_of_run(scores, data, direction, at, depth) for direction, at in queries.items()}
    if any(direction not in scores.directions for direction in queries):
        raise CrossmatchError(
            f"A model does not compare images with texts, only {' and '.join(scores.directions)}. Leave it out of the pool."
        )
    if all(len(at) == len(data.ids(SIDES[direction][0])) for direction, at in queries.items()):
        return {direction: top.item for direction, top in find_top_candidates(scores, tuple(queries), depth).items()}
    return {
        direction: find_top_candidates(_select(scores, SIDES[direction][0], at), (direction,), depth)[direction].item
        for direction, at in queries.items()
    }


def _select(scores: Embeddings | Matrix, side: str, at: IntArray) -> Embeddings | Matrix:
    """The scores of some images, or of some captions."""
    if isinstance(scores, Embeddings):
        return scores.reorder({side: at})
    if side == "image":
        return Matrix(scores.image_ids[at], scores.caption_ids, scores.values[at])
    return Matrix(scores.image_ids, scores.caption_ids[at], scores.values[:, at])


def _top_of_run(run: Run, data: Collection, direction: str, queries: IntArray, depth: int) -> IntArray:
    """The best items in a run file; ties are ordered by id. The run must be deep enough for every query."""
    depth = min(depth, len(data.ids(SIDES[direction][1])))
    top = {}
    for query, items, scores in iterate_rankings(run, data, direction, depth, queries):
        top[query] = items[np.lexsort((items, -scores))][:depth]  # positions are in the order of the ids
    short = next((query for query in queries.tolist() if len(top.get(query, ())) < depth), None)
    if short is not None:
        query_id = str(data.ids(SIDES[direction][0])[short])
        raise CrossmatchError(
            f"The run lists {len(top.get(short, ()))} items for {query_id!r} in {direction}; {depth} are needed to draw safe "
            "negatives. Write a deeper run, or lower --certain and --top."
        )
    return np.stack([top[query] for query in queries.tolist()])


# -- candidates and gold pairs


def _pool_rows(
    pairs: _RetrievedPairs, queries: Mapping[str, IntArray], priority: Sequence[Pair], seed: int, step: StepOutput
) -> list[Row]:
    rows: list[Row] = []
    data, links = pairs.data, {(int(i), int(c)) for i, c in pairs.data.links}
    for direction, at in queries.items():
        step.count(f"queries {direction}", len(at))
    step.count("retrieved", pairs.total)
    step.count("pairs", len(pairs.ranks))
    pooled = {pair for pair in pairs.ranks if pairs.options.judge_links or pair not in links} - set(priority)
    shuffled = sorted(pooled, key=lambda pair: Dice(seed, "order", *_pair_ids(data, pair)).bits())
    for number, pair in enumerate((*priority, *shuffled)):
        step.count("candidates")
        row = _row(data, pair, "candidate") | {"retrieved": pairs.ranks.get(pair, {})}
        rows.append(row | ({"known": True} if pair in links else {}) | ({"first": True} if number < len(priority) else {}))
    gold_number = pairs.options.gold
    if gold_number is None:
        gold_number = -(-(len(priority) + len(shuffled)) // CANDIDATES_PER_HIT)
    gold = {
        "positive": _draw_positives(data, queries, gold_number, seed),
        "negative": _draw_negatives(pairs, queries, links | set(priority), gold_number, seed),
    }
    for kind, gold_pairs in gold.items():
        step.count(kind, len(gold_pairs))
        for pair in gold_pairs:
            row = _row(data, pair, kind)
            rows.append({**row, "id": f"{kind}/{row['id']}"})  # the same pair may be a candidate
    return rows


def _pair_ids(data: Collection, pair: Pair) -> tuple[str, str]:
    return str(data.image_ids[pair[0]]), str(data.caption_ids[pair[1]])


def _row(data: Collection, pair: Pair, kind: str) -> Row:
    image, caption = _pair_ids(data, pair)
    return {
        "id": pair_id(image, caption), "image_id": image, "caption_id": caption, "caption": data.captions[pair[1]], "kind": kind,
    }  # fmt: skip


def _draw_positives(data: Collection, queries: Mapping[str, IntArray], number: int, seed: int) -> list[Pair]:
    """Random links of the queries."""
    positions = {direction: set(at.tolist()) for direction, at in queries.items()}
    links = [
        (image, caption) for image, caption in sorted((int(i), int(c)) for i, c in data.links)
        if image in positions.get("i2t", ()) or caption in positions.get("t2i", ())
    ]  # fmt: skip
    return Dice(seed, "positive").shuffled(links)[:number]


def _draw_negatives(
    pairs: _RetrievedPairs, queries: Mapping[str, IntArray], excluded: set[Pair], number: int, seed: int
) -> list[Pair]:
    """Random pairs outside the safe depth of every model, whose text is not one of the image's own captions.

    Fewer than `number` are found if the models' best items leave few pairs over.
    """
    data, dice = pairs.data, Dice(seed, "negative")
    images, captions = (queries.get(direction, np.arange(n)).tolist() for direction, n in zip(DIRECTIONS, data.shape, strict=True))
    own_captions, drawn = captions_by_image(data), dict[Pair, None]()
    for _ in range(DRAWS_PER_NEGATIVE * number):
        if len(drawn) == number:
            break
        image, caption = dice.pick(images), dice.pick(captions)
        is_own = data.captions[caption] in data.texts(own_captions[image])
        if not is_own and (image, caption) not in excluded and not pairs.is_near((image, caption)):
            drawn[image, caption] = None
    return list(drawn)
