"""The top of every ranking, for those who want to see it: files for other tools, lists to compare, pictures to look at.

Metrics need none of this (`standing` counts without sorting).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.collection import SIDES, Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.scores import Embeddings, Matrix, Run, Scores

BLOCK = 1 << 22  # scores looked at together: 32 MB

Ranking = tuple[int, IntArray, FloatArray]  # position of the query, of its items, and their scores
Folds = tuple[IntArray, IntArray]  # of the queries, and of the candidates


def rankings(
    scores: Scores,
    collection: Collection,
    direction: str,
    depth: int | None = None,
    queries: IntArray | None = None,
    folds: Folds | None = None,
) -> Iterator[Ranking]:
    """For each query its `depth` best candidates, best first, and whatever is level with the last of them.

    `scores` are in the collection's order. `queries` are positions on their side of the collection, by default all of them.
    A query never retrieves itself, nor a candidate of another fold. With embeddings, candidates come from a product in float64
    and are settled by the exact score (`scores.exact_dot`); no candidate is lost to rounding, because for any order of summation

        |fl(s) - s| <= (2d + 16) · 2⁻⁵³ · |u| · |v|        (higham2002accuracy, sec. 3.1, for the product and for the exact score)

    >>> pets = Collection.of({"cat": ["A cat."], "dog": ["A dog.", "It barks."]})
    >>> said = Matrix(pets.image_ids, pets.caption_ids, np.array([[0.5, 0.25, 0.0], [0.0, 1.0, 0.5]]))
    >>> [(query, items.tolist()) for query, items, _ in rankings(said, pets, "i2t", depth=2)]
    [(0, [0, 1]), (1, [1, 2])]
    """
    if direction not in SIDES:
        raise WrongWords(f"there is no direction {direction!r}; one of {', '.join(SIDES)} was expected.")
    if depth is not None and depth < 1:
        raise WrongWords(f"the depth is {depth}; a ranking has at least one place.")
    query_side, item_side = SIDES[direction]
    asked = np.arange(len(collection.ids(query_side))) if queries is None else np.asarray(queries, dtype=np.int64)
    last_first = np.empty(len(collection.ids(item_side)), dtype=np.int64)
    last_first[np.argsort(collection.ids(item_side), kind="stable")[::-1]] = np.arange(len(last_first))
    if isinstance(scores, Run):
        found = _of_run(scores, collection, direction, asked, folds)
    else:
        found = _of_all(scores, collection, direction, depth, asked, folds)
    for query, items, values in found:
        if depth is not None and len(values) > depth:
            kept = values >= np.partition(values, len(values) - depth)[len(values) - depth]
            items, values = items[kept], values[kept]
        order = np.lexsort((last_first[items], -values))
        yield query, items[order], values[order]


def _of_run(run: Run, collection: Collection, direction: str, asked: IntArray, folds: Folds | None) -> Iterator[Ranking]:
    """All that the run lists."""
    query, item, values = run.side(collection, direction)
    if not len(query):
        raise CrossmatchError(f"the run has no row for {direction}. Check its direction.")
    same = SIDES[direction][0] == SIDES[direction][1]
    kept = np.isin(query, asked) & ~(same & (query == item))
    if folds is not None:
        kept &= folds[0][query] == folds[1][item]
    order = np.flatnonzero(kept)[np.argsort(query[kept], kind="stable")]
    unique, start = np.unique(query[order], return_index=True)
    for n, part in zip(unique.tolist(), np.split(order, start[1:]), strict=True):
        yield n, item[part], values[part]


def _of_all(
    scores: Embeddings | Matrix, collection: Collection, direction: str, depth: int | None, asked: IntArray, folds: Folds | None
) -> Iterator[Ranking]:
    """All that may be among the best `depth`, with their exact scores, query after query."""
    if direction not in scores.directions:
        raise CrossmatchError(
            f"these scores have no direction {direction}; they have {', '.join(scores.directions)}. Give embeddings of both sides."
        )
    width = len(collection.ids(SIDES[direction][1]))
    near = _Near(scores, direction)
    for at in range(0, len(asked), max(1, BLOCK // width)):
        rows = asked[at : at + max(1, BLOCK // width)]
        block, margin = near(rows)
        outside = np.zeros(block.shape, dtype=bool) if folds is None else folds[0][rows][:, None] != folds[1]
        if SIDES[direction][0] == SIDES[direction][1]:
            outside[np.arange(len(rows)), rows] = True
        block[outside] = -np.inf
        if depth is not None and depth < width:
            last = np.partition(block, width - depth, axis=1)[:, width - depth]
            outside |= block < (last - 2 * margin)[:, None]
        row, item = np.nonzero(~outside)
        exact = block[row, item] if isinstance(scores, Matrix) else scores.pairs(rows[row], item, direction)
        start = np.searchsorted(row, np.arange(1, len(rows)))
        yield from zip(rows.tolist(), np.split(item, start), np.split(exact, start), strict=True)


class _Near:
    """Blocks of scores, queries x candidates, in float64, and for each query how far they may be from the exact ones."""

    def __init__(self, scores: Embeddings | Matrix, direction: str) -> None:
        self.scores, self.direction = scores, direction
        if isinstance(scores, Embeddings):
            self.queries, self.items = (scores.vectors(side) for side in SIDES[direction])
            self.query_scale, item_scale = (scores.scale(side) for side in SIDES[direction])
            self.items = self.items * item_scale[:, None]
            self.longest = float(np.linalg.norm(self.items, axis=1).max())

    def __call__(self, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        if isinstance(self.scores, Matrix):
            values: NDArray[np.generic] = self.scores.values
            block = values[rows] if self.direction == "i2t" else values[:, rows].T
            return np.array(block, dtype=np.float64), np.zeros(len(rows))
        queries = self.queries[rows] * self.query_scale[rows, None]
        rounding = (2 * queries.shape[1] + 16) * 2.0**-53
        return queries @ self.items.T, rounding * self.longest * np.linalg.norm(queries, axis=1)
