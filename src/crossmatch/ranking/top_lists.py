"""The first candidates of every ranking, for run files, comparisons and result pages. Metrics do not need them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.scores import Embeddings, Matrix, Run, Scores
from crossmatch.ranking.counts_without_numba import ScoreBlocks

Ranking = tuple[int, IntArray, FloatArray]  # position of the query, positions of its items, their scores
Folds = tuple[IntArray, IntArray]  # fold of each query, and of each candidate


def require_direction(direction: str) -> None:
    if direction not in SIDES:
        raise UsageError(f"Unknown direction {direction!r}. Use one of {', '.join(SIDES)}.")


def iterate_rankings(
    scores: Scores,
    collection: Collection,
    direction: str,
    depth: int | None = None,
    queries: IntArray | None = None,
    folds: Folds | None = None,
) -> Iterator[Ranking]:
    """Rank the candidates of each query and keep the first `depth`, with all candidates that are tied with the last of them.

    A query never retrieves itself, nor a candidate of another fold. Tied candidates come in descending order of their ids, as
    trec_eval orders them. Embeddings are compared by their exact scores (`scores.exact_dot`).

    `scores` are in the order of the collection. By default all candidates are kept, and all queries are ranked. `folds` are those of
    all queries and of all candidates.

    >>> pets = Collection.from_captions({"cat": ["A cat."], "dog": ["A dog.", "It barks."]})
    >>> scores = Matrix(pets.image_ids, pets.caption_ids, np.array([[0.5, 0.25, 0.0], [0.0, 1.0, 0.5]]))
    >>> [(query, items.tolist()) for query, items, _ in iterate_rankings(scores, pets, "i2t", depth=2)]
    [(0, [0, 1]), (1, [1, 2])]
    """
    require_direction(direction)
    if depth is not None and depth < 1:
        raise UsageError(f"The depth must be at least 1 (got {depth}).")
    query_side, item_side = SIDES[direction]
    query_positions = np.arange(len(collection.ids(query_side))) if queries is None else np.asarray(queries, dtype=np.int64)
    tie_order = np.empty(len(collection.ids(item_side)), dtype=np.int64)
    tie_order[np.argsort(collection.ids(item_side), kind="stable")[::-1]] = np.arange(len(tie_order))
    if isinstance(scores, Run):
        candidates = _candidates_in_run(scores, collection, direction, query_positions, folds)
    else:
        candidates = _best_candidates(scores, direction, depth, query_positions, folds)
    for query, items, values in candidates:
        if depth is not None and len(values) > depth:
            is_kept = values >= np.partition(values, len(values) - depth)[len(values) - depth]
            items, values = items[is_kept], values[is_kept]
        order = np.lexsort((tie_order[items], -values))
        yield query, items[order], values[order]


def _candidates_in_run(
    run: Run, collection: Collection, direction: str, queries: IntArray, folds: Folds | None
) -> Iterator[Ranking]:
    """All candidates that the run lists, query by query."""
    query, item, values = run.pairs_in_direction(collection, direction)
    if not len(query):
        raise CrossmatchError(f"The run has no row for {direction}. Check its direction.")
    same_side = SIDES[direction][0] == SIDES[direction][1]
    is_candidate = np.isin(query, queries) & ~(same_side & (query == item))
    if folds is not None:
        is_candidate &= folds[0][query] == folds[1][item]
    order = np.flatnonzero(is_candidate)[np.argsort(query[is_candidate], kind="stable")]
    unique, start = np.unique(query[order], return_index=True)
    for n, rows in zip(unique.tolist(), np.split(order, start[1:]), strict=True):
        yield n, item[rows], values[rows]


def _best_candidates(
    scores: Embeddings | Matrix, direction: str, depth: int | None, queries: IntArray, folds: Folds | None
) -> Iterator[Ranking]:
    """All candidates that may be among the best `depth`, with their exact scores, query by query."""
    if direction not in scores.directions:
        raise CrossmatchError(
            f"The scores have no direction {direction}, only {', '.join(scores.directions)}. Provide embeddings of both sides."
        )
    blocks = ScoreBlocks(scores, direction)
    width = blocks.candidates
    for first in range(0, len(queries), blocks.queries_per_block):
        rows = queries[first : first + blocks.queries_per_block]
        block, margin = blocks.compute(rows)
        is_outside = np.zeros(block.shape, dtype=bool) if folds is None else folds[0][rows][:, None] != folds[1]
        if SIDES[direction][0] == SIDES[direction][1]:
            is_outside[np.arange(len(rows)), rows] = True
        block[is_outside] = -np.inf
        if depth is not None and depth < width:
            last = np.partition(block, width - depth, axis=1)[:, width - depth]
            is_outside |= block < (last - 2 * margin)[:, None]
        row, item = np.nonzero(~is_outside)
        exact = block[row, item] if isinstance(scores, Matrix) else scores.score_pairs(rows[row], item, direction)
        start = np.searchsorted(row, np.arange(1, len(rows)))
        yield from zip(rows.tolist(), np.split(item, start), np.split(exact, start), strict=True)
