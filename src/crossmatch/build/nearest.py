"""The nearest of everything to everything: for each item its best candidates by cosine, exactly, in memory for a few tiles.

The score matrix is swept in tiles of float32 products (`core/tiles.py`). Among items of one side it is symmetric: only the tiles on
and above the diagonal are made, and one pass over a tile serves the queries of its rows and those of its columns. A score that
could be among the best of its query in spite of rounding is computed again in float64 in a fixed order (`scores.exact_dot`); equal
scores are ordered by id. So the result is that of the exact scores: the same for any tile, thread count and order of the items.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IdArray, IntArray
from crossmatch.core.collection import SIDES
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.core.places import cores
from crossmatch.core.progress import track
from crossmatch.core.scores import Embeddings, Matrix
from crossmatch.core.sweep import PLANES, exact_scores
from crossmatch.core.tiles import WORTH_COMPILING, Corner, Plane, Product, blas_threads, compiled_loops_needed, parts, tile_dtype

OWN_TILE = 4_000_000  # scores in a tile of one thread: 16 MB
TILE = 16_000_000  # scores in a tile where one thread looks at what all threads multiply, and in the NumPy path
WITHIN = {"image": "i2i", "caption": "t2t"}
NO_CUTS = (np.zeros(0, np.int64), np.zeros(0, np.int64))
ASIDE = 8  # candidates that a query keeps beyond those it wants, until rounded scores are settled
PROBES = 32  # cells of its index that FAISS looks into
SPARE = 16  # candidates that FAISS is asked for beyond those wanted, because its order is that of rounded scores


@dataclass(frozen=True, eq=False)
class Nearest:
    """For each query its best candidates, best first: their positions and their exact scores, both of shape (queries, k)."""

    item: IntArray
    score: FloatArray


def nearest(said: Embeddings, side: str, k: int = 1, **how: Any) -> Nearest:
    """For each image (or caption) the `k` most similar others, fewer where there are fewer. Never itself.

    Options are those of `best`. Items with equal vectors tie; each tie costs a score in float64.

    >>> three = Embeddings(["a", "b", "c"], [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], None, None)
    >>> nearest(three, "image").item[:, 0].tolist()
    [1, 0, 1]
    """
    return best(said, (WITHIN[side],), k, **how)[WITHIN[side]]


def best(
    scores: Embeddings | Matrix,
    directions: Sequence[str],
    k: int,
    *,
    tile: int | None = None,
    threads: int | None = None,
    compiled: bool | None = None,
) -> dict[str, Nearest]:
    """For each query of each direction its `k` best candidates, from one sweep: `i2t` and `t2i` share one, `i2i` is one, `t2t` one.

    Equal scores are ordered by id, the first in the alphabet first, also at the cut. `compiled` chooses numba (the default where it
    is installed and the work is worth its start) or NumPy.

    >>> said = Matrix(["i", "j"], ["a", "b"], [[0.5, 0.5], [0.25, 1.0]])
    >>> {direction: found.item.tolist() for direction, found in best(said, ("i2t", "t2i"), 1).items()}
    {'i2t': [[0], [1]], 't2i': [[0], [1]]}
    """
    _require(scores, directions, k)
    out: dict[str, Nearest] = {}
    with ThreadPoolExecutor(threads or cores()) as pool:
        for sides in dict.fromkeys(PLANES[direction] for direction in directions):
            plane = Plane(scores, *sides, pool, bool(compiled))
            if compiled is None:
                plane.compiled = plane.shape[0] * plane.shape[1] > WORTH_COMPILING and kernels() is not None
            here = tuple(direction for direction in dict.fromkeys(directions) if PLANES[direction] == sides)
            out |= _swept(plane, here, k, tile, threads or cores())
    return {direction: out[direction] for direction in directions}


def _require(scores: Embeddings | Matrix, directions: Sequence[str], k: int) -> None:
    wrong = next((direction for direction in directions if direction not in SIDES), None)
    if wrong is not None:
        raise WrongWords(f"there is no direction {wrong!r}; one of {', '.join(SIDES)} was expected.")
    if k < 1:
        raise WrongWords(f"the {k} best were asked for; at least one was expected.")
    absent = next((direction for direction in directions if direction not in scores.directions), None)
    if absent is not None:
        raise CrossmatchError(
            f"these scores have no direction {absent}; they have {', '.join(scores.directions)}. Give embeddings of all sides."
        )


@cache
def kernels() -> ModuleType | None:
    """`nearest_kernels.py`, where numba is installed."""
    try:
        from crossmatch.build import nearest_kernels
    except ImportError:
        return None
    return nearest_kernels


# -- what is held during a sweep


@dataclass(eq=False)
class _Held:
    """The best candidates of each query so far, best first; places that are still free hold -1 and minus infinity.

    The compiled loops keep more than `k` of a query by their scores in tiles until it is settled.
    """

    score: FloatArray
    item: IntArray
    low: NDArray[np.floating]  # for each query the lowest score in a tile that can still be among its best
    rank: IntArray  # of each candidate, in the order of the ids
    margin: FloatArray  # for each query the most that rounding can do to a score in a tile
    zoom: float
    k: int
    filled: NDArray[np.int32]  # for each query how many it holds
    settled: NDArray[np.uint8]  # for each query whether it holds exact scores
    turned: bool  # the queries are the columns of tiles

    @classmethod
    def empty(cls, plane: Plane, direction: str, k: int, spare: int = 0) -> _Held:
        query_side, item_side = SIDES[direction]
        ids = _ids(plane.scores, item_side)
        rank = np.empty(len(ids), dtype=np.int64)
        rank[np.argsort(ids, kind="stable")] = np.arange(len(ids))
        margin = plane.margin(query_side)
        n, k = len(margin), min(k, len(ids) - (query_side == item_side))
        dtype = np.float32 if plane.rounded else tile_dtype(plane.scores.values.dtype)  # type: ignore[union-attr]
        score, item = np.full((n, k + spare), -np.inf), np.full((n, k + spare), -1, dtype=np.int64)
        filled, settled = np.zeros(n, np.int32), np.full(n, not plane.rounded, np.uint8)
        return cls(
            score, item, np.full(n, -np.inf, dtype=dtype), rank, margin, plane.zoom, k, filled, settled, direction == "t2i"
        )  # fmt: skip

    def again(self) -> _Held:
        """One of the same kind with places of its own, all free."""
        return replace(
            self, score=np.full_like(self.score, -np.inf), item=np.full_like(self.item, -1), low=np.full_like(self.low, -np.inf),
            filled=np.zeros_like(self.filled), settled=self.settled.copy(),
        )  # fmt: skip

    def found(self) -> Nearest:
        return Nearest(self.item[:, : self.k].copy(), self.score[:, : self.k].copy())

    def put(self, query: IntArray, item: IntArray, score: FloatArray) -> None:
        """Take in candidates of these queries, which none of them holds yet."""
        here = np.unique(query)
        held = self.item[here] >= 0
        query = np.concatenate([np.repeat(here, held.sum(axis=1)), query])
        item = np.concatenate([self.item[here][held], item])
        score = np.concatenate([self.score[here][held], score])
        order = np.lexsort((self.rank[item], -score, query))
        query, item, score = query[order], item[order], score[order]
        place = np.arange(len(query)) - np.searchsorted(query, query)
        kept = place < self.k
        self.item[query[kept], place[kept]], self.score[query[kept], place[kept]] = item[kept], score[kept]
        last = self.score[here, self.k - 1] * self.zoom - self.margin[here]
        near = last.astype(self.low.dtype)
        self.low[here] = np.where(near > last, np.nextafter(near, self.low.dtype.type(-np.inf)), near)


def _swept(plane: Plane, directions: Sequence[str], k: int, tile: int | None, workers: int) -> dict[str, Nearest]:
    held = {direction: _Held.empty(plane, direction, k, ASIDE if plane.compiled else 0) for direction in directions}
    if all(one.k for one in held.values()):
        sweep = _sweep_compiled if plane.compiled else _sweep_numpy
        sweep(plane, held, tile, workers)
    return {direction: one.found() for direction, one in held.items()}


def _sweep_numpy(plane: Plane, held: dict[str, _Held], tile: int | None, workers: int) -> None:
    for row0, column0, block in plane.tiles(plane.corners(tile or TILE, NO_CUTS)):
        _offer_numpy(plane, held, block, row0, column0)


def _sweep_compiled(plane: Plane, held: dict[str, _Held], tile: int | None, workers: int) -> None:
    """Threads multiply tiles and look at them, each with places of its own; in the end they are put together and settled.

    BLAS must be held to one thread for that. Its own threads spin for a while after every product, on the cores that look.
    """
    sides = compiled_loops_needed().Sides(*plane.sides(WITHIN[plane.rows] if plane.symmetric else "i2t"))
    loops, blas = kernels(), blas_threads() if plane.rounded else None
    assert loops is not None
    others: list[dict[str, _Held]] = []
    if blas is None:
        for row0, column0, block in plane.tiles(plane.corners(tile or TILE, NO_CUTS)):
            _offer_compiled(plane, held, block, row0, column0, sides)
    else:
        with blas.limit(limits=1):
            others = _swept_apart(plane, held, plane.corners(tile or OWN_TILE, NO_CUTS), workers, sides)

    def settle(task: tuple[str, tuple[int, int]]) -> None:
        direction, part = task
        for other in others:
            loops.join(_best(held[direction]), _best(other[direction]), *part, sides)
        loops.settle(_best(held[direction]), *part, sides)

    list(plane.pool.map(settle, [(name, part) for name, one in held.items() for part in parts(0, len(one.item), 1024)]))


def _swept_apart(plane: Plane, held: dict[str, _Held], corners: list[Corner], workers: int, sides: Any) -> list[dict[str, _Held]]:
    """Offer all tiles; what the other threads hold in the end."""
    others = [{direction: one.again() for direction, one in held.items()} for _ in range(workers - 1)]
    desks: SimpleQueue[tuple[Product, dict[str, _Held]]] = SimpleQueue()  # what a thread takes for one tile, and puts back
    for mine in (held, *others):
        desks.put((plane.product(), mine))

    def work(corner: Corner) -> None:
        product, mine = desk = desks.get()
        try:
            _offer_compiled(plane, mine, product(*corner), corner[0].start, corner[1].start, sides)
        finally:
            desks.put(desk)

    for _ in zip(track(corners, "searching"), plane.pool.map(work, corners), strict=True):
        pass
    return others


def _best(held: _Held) -> Any:
    """What the compiled loops take."""
    loops = kernels()
    assert loops is not None
    return loops.Best(*(getattr(held, name) for name in loops.Best._fields))


def _ways(plane: Plane, held: dict[str, _Held], row0: int, column0: int) -> tuple[_Held | None, _Held | None]:
    """Whose queries the rows of this tile are, and whose its columns; of a tile on the diagonal the rows have it all."""
    if plane.symmetric:
        (one,) = held.values()
        return one, None if row0 == column0 else one
    return held.get("i2t"), held.get("t2i")


def _offer_compiled(plane: Plane, held: dict[str, _Held], block: NDArray[np.floating], row0: int, column0: int, sides: Any) -> None:
    loops = kernels()
    rows, columns = _ways(plane, held, row0, column0)
    some = rows or columns
    assert some is not None
    assert loops is not None
    alike = plane.symmetric and row0 == column0
    by_row, by_column = _best(rows or some), _best(columns or some)
    loops.offer_tile(block, row0, column0, rows is not None, columns is not None, by_row, by_column, alike, sides)


def _offer_numpy(plane: Plane, held: dict[str, _Held], block: NDArray[np.floating], row0: int, column0: int) -> None:
    """The same, row by row and then column by column: what may be among the best of the tile, in spite of rounding, is scored."""
    rows, columns = _ways(plane, held, row0, column0)
    if plane.symmetric and row0 == column0:
        np.fill_diagonal(block, -np.inf)
    directions = {id(one): direction for direction, one in held.items()}
    for one, lines, query0, item0 in ((rows, block, row0, column0), (columns, block.T, column0, row0)):
        if one is None:
            continue
        here, k, width = slice(query0, query0 + len(lines)), one.k, lines.shape[1]
        low = one.low[here].astype(np.float64)
        if k < width:
            low = np.maximum(low, np.partition(lines, width - k, axis=1)[:, width - k] - 2 * one.margin[here])
        query, item = np.nonzero((lines >= low[:, None]) & (lines > -np.inf))
        if len(query):
            exact = plane.pairs(directions[id(one)])(query + query0, item + item0) if plane.rounded else lines[query, item]
            one.put(query + query0, item + item0, exact.astype(np.float64))


# -- large sets, roughly


def approximate(said: Embeddings, side: str, k: int = 1, *, probes: int = PROBES) -> Nearest:
    """Like `nearest`, by an inverted file of FAISS: of each query only the cells around it are looked into.

    What FAISS finds is scored again exactly, so that scores and order are those of `nearest`; but a neighbour in a cell that was
    not looked into is missed. `share_found` says how often. Source: johnson2019billion.
    """
    try:
        import faiss  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as absent:
        raise MissingDependency("faiss-cpu", "faiss") from absent
    direction = WITHIN[side]
    _require(said, (direction,), k)
    order = np.argsort(_ids(said, side), kind="stable")
    ordered = said.permuted({side: order})
    vectors = (ordered.vectors(side) * ordered.scale(side)[:, None]).astype(np.float32)
    n, width = vectors.shape
    cells = max(1, min(round(4 * n**0.5), n // 39))  # FAISS wants 39 vectors to learn a cell from
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, cells, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    index.nprobe = min(probes, cells)
    found = np.asarray(index.search(vectors, min(k + 1 + SPARE, n))[1], dtype=np.int64)
    query, item = np.repeat(np.arange(n), found.shape[1]), found.ravel()
    kept = (item >= 0) & (item != query)  # FAISS fills up with -1
    with ThreadPoolExecutor(1) as pool:
        held = _Held.empty(Plane(ordered, side, side, pool, False), direction, k)
    held.put(query[kept], item[kept], exact_scores(ordered, query[kept], item[kept], direction))
    if (held.item < 0).any():
        raise CrossmatchError(f"FAISS found fewer than {k} neighbours of some items. Look into more cells, or search exactly.")
    back = np.argsort(order, kind="stable")
    return Nearest(order[held.item][back], held.score[back])


def share_found(said: Embeddings, side: str, found: Nearest, sample: int = 256, seed: int = 0) -> float:
    """The share of the exact neighbours of some items, drawn by lot, that are among those found."""
    (n, k), ids, vectors = found.item.shape, _ids(said, side), said.vectors(side)
    drawn = np.sort(np.argsort(ids, kind="stable")[np.random.default_rng([seed, 11]).permutation(n)[:sample]])
    across = Embeddings(ids[drawn], vectors[drawn], ids, vectors, said.similarity)  # two sides, so that some can search for all
    exact = best(across, ("i2t",), k + 1)["i2t"].item.tolist()  # one more than wanted: it meets itself
    there = zip(drawn.tolist(), exact, strict=True)
    right = sum(len(set([at for at in row if at != query][:k]) & set(found.item[query].tolist())) for query, row in there)
    return float(right / max(1, len(drawn) * k))


def _ids(said: Embeddings | Matrix, side: str) -> IdArray:
    ids = said.image_ids if side == "image" else said.caption_ids
    assert ids is not None
    return ids
