"""Exact search for nearest neighbours and top candidates, in the memory of a few tiles of the score matrix.

The score matrix is swept in tiles of float32 products (`ranking/tiles.py`). Scores that could be among the best of their query
despite rounding are recomputed in float64 in a fixed order, and equal scores are ordered by id. The result is therefore that of
exact scores, for any tile size, number of threads and order of items.

With numba, one pass over a tile serves the queries of its rows and of its columns, and a symmetric matrix is computed only on and
above the diagonal (`nearest_neighbour_kernels.py`). Without numba, each direction is searched separately, one block of queries at
a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import FloatArray, IdArray, IntArray
from crossmatch.data.collection import SIDES
from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.io.paths import available_cores
from crossmatch.data.io.progress import track
from crossmatch.data.scores import Embeddings, Matrix
from crossmatch.ranking.sweep import MATRIX_SIDES, score_pairs
from crossmatch.ranking.tiles import (
    MIN_SCORES_FOR_NUMBA,
    ScoreTiles,
    TileProduct,
    TileSlices,
    blas_thread_controller,
    load_kernels,
    require_kernels,
    split_range,
    tile_dtype,
)

THREAD_TILE = 4_000_000  # scores in a tile of one thread: 16 MB
TILE = 16_000_000  # scores in a tile if all threads multiply one tile together
WITHIN = {"image": "i2i", "caption": "t2t"}
NO_CUTS = (np.zeros(0, np.int64), np.zeros(0, np.int64))
SPARE_PLACES = 8  # rounded candidates that a query keeps beyond k
PROBES = 32  # cells of the index that FAISS searches
FAISS_SPARE = 16  # candidates requested from FAISS beyond k, because its order is that of rounded scores


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Best candidates of each query, best first: positions and exact scores, both of shape (queries, k)."""

    item: IntArray
    score: FloatArray


def find_neighbours(embeddings: Embeddings, side: str, k: int = 1, **options: Any) -> Neighbours:
    """Find the `k` most similar other images (or captions) of each image (or caption).

    Args:
        embeddings: Vectors of the items.
        side: `image` or `caption`.
        k: Number of neighbours; fewer if there are fewer items.
        **options: Options of `find_top_candidates`.

    >>> three = Embeddings(["a", "b", "c"], [[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]], None, None)
    >>> find_neighbours(three, "image").item[:, 0].tolist()
    [1, 0, 1]
    """
    return find_top_candidates(embeddings, (WITHIN[side],), k, **options)[WITHIN[side]]


def find_top_candidates(
    scores: Embeddings | Matrix,
    directions: Sequence[str],
    k: int,
    *,
    tile: int | None = None,
    threads: int | None = None,
    compiled: bool | None = None,
) -> dict[str, Neighbours]:
    """Find the `k` best candidates of each query, by direction; an item never retrieves itself.

    Equal scores are ordered by id, ascending, also at the cut.

    Args:
        scores: Embeddings or a score matrix.
        directions: Directions to search.
        k: Number of candidates; fewer if there are fewer items.
        tile: Number of scores in a tile.
        threads: Number of threads; by default all cores.
        compiled: Use numba; by default if it is installed and the matrix is large.

    >>> matrix = Matrix(["i", "j"], ["a", "b"], [[0.5, 0.5], [0.25, 1.0]])
    >>> {direction: top.item.tolist() for direction, top in find_top_candidates(matrix, ("i2t", "t2i"), 1).items()}
    {'i2t': [[0], [1]], 't2i': [[0], [1]]}
    """
    _check_request(scores, directions, k)
    workers = threads or available_cores()
    top: dict[str, Neighbours] = {}
    with ThreadPoolExecutor(workers) as pool:
        for sides in dict.fromkeys(MATRIX_SIDES[direction] for direction in directions):
            tiles = ScoreTiles(scores, *sides, pool, bool(compiled))
            if compiled is None:
                tiles.compiled = tiles.shape[0] * tiles.shape[1] > MIN_SCORES_FOR_NUMBA and load_kernels() is not None
            sweep_directions = tuple(direction for direction in dict.fromkeys(directions) if MATRIX_SIDES[direction] == sides)
            if tiles.compiled:
                top |= _search_compiled(tiles, sweep_directions, k, tile, workers)
            else:
                top |= {direction: _search_numpy(tiles, direction, k, tile or TILE) for direction in sweep_directions}
    return {direction: top[direction] for direction in directions}


def _check_request(scores: Embeddings | Matrix, directions: Sequence[str], k: int) -> None:
    unknown = next((direction for direction in directions if direction not in SIDES), None)
    if unknown is not None:
        raise UsageError(f"Unknown direction {unknown!r}. Expected one of {', '.join(SIDES)}.")
    if k < 1:
        raise UsageError(f"k must be at least 1 (got {k}).")
    missing = next((direction for direction in directions if direction not in scores.directions), None)
    if missing is not None:
        raise CrossmatchError(
            f"These scores have no direction {missing}, only {', '.join(scores.directions)}. Pass embeddings of all sides."
        )


def _ids(scores: Embeddings | Matrix, side: str) -> IdArray:
    ids = scores.image_ids if side == "image" else scores.caption_ids
    assert ids is not None
    return ids


def _id_ranks(scores: Embeddings | Matrix, side: str) -> IntArray:
    """Rank of each item in the order of the ids."""
    ids = _ids(scores, side)
    rank = np.empty(len(ids), dtype=np.int64)
    rank[np.argsort(ids, kind="stable")] = np.arange(len(ids))
    return rank


# -- without numba


def _search_numpy(tiles: ScoreTiles, direction: str, k: int, size: int) -> Neighbours:
    """Search one direction in blocks of queries with all candidates."""
    query_side, item_side = SIDES[direction]
    is_transposed = direction == "t2i"
    queries, items = tiles.shape[::-1] if is_transposed else tiles.shape
    margin, rank = tiles.rounding_margin(query_side), _id_ranks(tiles.scores, item_side)
    k = min(k, items - tiles.is_symmetric)
    top = Neighbours(np.full((queries, k), -1, dtype=np.int64), np.full((queries, k), -np.inf))
    exact_scores = tiles.exact_scorer(direction)
    blocks = [slice(*part) for part in split_range(0, queries, max(1, size // max(1, items)))] if k else []
    every_item = slice(0, items)
    for row, column, tile in tiles.tiles([(every_item, block) if is_transposed else (block, every_item) for block in blocks]):
        first, block = (column, tile.T) if is_transposed else (row, tile)
        if tiles.is_symmetric:
            block[np.arange(len(block)), first + np.arange(len(block))] = -np.inf
        threshold = np.full(len(block), -np.inf)
        if k < items:
            threshold = np.partition(block, items - k, axis=1)[:, items - k] - 2 * margin[first : first + len(block)]
        query, item = np.nonzero((block >= threshold[:, None]) & (block > -np.inf))
        score = exact_scores(query + first, item) if tiles.is_rounded else block[query, item].astype(np.float64)
        _fill_top(top, query + first, item, score, rank)
    return top


def _fill_top(top: Neighbours, query: IntArray, item: IntArray, score: FloatArray, id_rank: IntArray) -> None:
    """Sort all candidates of some queries and store the best."""
    order = np.lexsort((id_rank[item], -score, query))
    query, item, score = query[order], item[order], score[order]
    place = np.arange(len(query)) - np.searchsorted(query, query)
    is_top = place < top.item.shape[1]
    top.item[query[is_top], place[is_top]], top.score[query[is_top], place[is_top]] = item[is_top], score[is_top]


# -- with numba


class _TopCandidates(NamedTuple):
    """The best candidates of each query so far, best first; free places hold -1 and minus infinity.

    Until a query is exact, it holds up to `SPARE_PLACES` more than `k` candidates with rounded scores.
    """

    score: FloatArray
    item: IntArray
    threshold: NDArray[np.floating]  # per query: the lowest score in a tile that may still be among the best
    id_rank: IntArray  # per candidate: its rank in the order of the ids
    margin: FloatArray  # per query: the largest rounding error of a score in a tile
    scale: float
    k: int
    filled_places: NDArray[np.int32]  # per query
    is_exact: NDArray[np.uint8]  # per query: whether it holds exact scores
    is_transposed: bool  # whether the queries are the columns of tiles

    @classmethod
    def empty(cls, tiles: ScoreTiles, direction: str, k: int) -> _TopCandidates:
        query_side, item_side = SIDES[direction]
        id_rank, margin = _id_ranks(tiles.scores, item_side), tiles.rounding_margin(query_side)
        n, k = len(margin), min(k, len(id_rank) - (query_side == item_side))
        dtype = np.float32 if tiles.is_rounded else tile_dtype(tiles.scores.values.dtype)  # type: ignore[union-attr]
        return cls(
            np.full((n, k + SPARE_PLACES), -np.inf), np.full((n, k + SPARE_PLACES), -1, dtype=np.int64),
            np.full(n, -np.inf, dtype=dtype), id_rank, margin, tiles.scale_factor, k,
            np.zeros(n, np.int32), np.full(n, not tiles.is_rounded, np.uint8), direction == "t2i",
        )  # fmt: skip

    def new_empty(self) -> _TopCandidates:
        """Empty places for another thread."""
        return self._replace(
            score=np.full_like(self.score, -np.inf), item=np.full_like(self.item, -1),
            threshold=np.full_like(self.threshold, -np.inf), filled_places=np.zeros_like(self.filled_places),
            is_exact=self.is_exact.copy(),
        )  # fmt: skip


TopByDirection = dict[str, _TopCandidates]


def _search_compiled(tiles: ScoreTiles, directions: Sequence[str], k: int, tile: int | None, workers: int) -> dict[str, Neighbours]:
    """Search all directions of a matrix in one sweep.

    Each thread multiplies and scans tiles with places of its own, which are merged at the end. BLAS is limited to one thread,
    because its threads keep spinning after a product and block the cores that scan.
    """
    top = {direction: _TopCandidates.empty(tiles, direction, k) for direction in directions}
    if all(of_direction.k for of_direction in top.values()):
        vectors = require_kernels().PairVectors(*tiles.kernel_vectors(WITHIN[tiles.rows] if tiles.is_symmetric else "i2t"))
        blas = blas_thread_controller() if tiles.is_rounded else None
        of_other_threads: list[TopByDirection] = []
        if blas is None:
            for row, column, block in tiles.tiles(tiles.slices(tile or TILE, NO_CUTS)):
                _scan_tile(tiles, top, block, row, column, vectors)
        else:
            with blas.limit(limits=1):
                of_other_threads = _scan_in_threads(tiles, top, tiles.slices(tile or THREAD_TILE, NO_CUTS), workers, vectors)
        _merge_threads(tiles, top, of_other_threads, vectors)
    return {
        direction: Neighbours(of_direction.item[:, : of_direction.k].copy(), of_direction.score[:, : of_direction.k].copy())
        for direction, of_direction in top.items()
    }


def _scan_in_threads(
    tiles: ScoreTiles, top: TopByDirection, slices: list[TileSlices], workers: int, vectors: Any
) -> list[TopByDirection]:
    """Scan all tiles in threads; return the candidates that the other threads hold at the end."""
    others = [{direction: of_direction.new_empty() for direction, of_direction in top.items()} for _ in range(workers - 1)]
    workspaces: SimpleQueue[tuple[TileProduct, TopByDirection]] = SimpleQueue()
    for candidates in (top, *others):
        workspaces.put((tiles.product(), candidates))

    def scan(tile_slices: TileSlices) -> None:
        product, candidates = workspace = workspaces.get()
        try:
            rows, columns = tile_slices
            _scan_tile(tiles, candidates, product(rows, columns), rows.start, columns.start, vectors)
        finally:
            workspaces.put(workspace)

    for _ in zip(track(slices, "searching"), tiles.pool.map(scan, slices), strict=True):
        pass
    return others


def _merge_threads(tiles: ScoreTiles, top: TopByDirection, others: list[TopByDirection], vectors: Any) -> None:
    """Merge the candidates of all threads, and make all scores exact."""
    from crossmatch.build import nearest_neighbour_kernels as kernels

    def merge(task: tuple[str, tuple[int, int]]) -> None:
        direction, part = task
        for of_thread in others:
            kernels.merge(top[direction], of_thread[direction], *part, vectors)
        kernels.make_exact(top[direction], *part, vectors)

    tasks = [(direction, part) for direction, of_direction in top.items() for part in split_range(0, len(of_direction.item), 1024)]
    list(tiles.pool.map(merge, tasks))


def _scan_tile(tiles: ScoreTiles, top: TopByDirection, block: NDArray[np.floating], row: int, column: int, vectors: Any) -> None:
    """Offer the scores of a tile to the queries of its rows and columns."""
    from crossmatch.build import nearest_neighbour_kernels as kernels

    is_diagonal = tiles.is_symmetric and row == column
    if tiles.is_symmetric:
        (of_rows,) = top.values()
        of_columns = None if is_diagonal else of_rows  # a diagonal tile is complete in its rows
    else:
        of_rows, of_columns = top.get("i2t"), top.get("t2i")  # type: ignore[assignment]
    either = of_rows or of_columns
    assert either is not None
    by_row, by_column = of_rows is not None, of_columns is not None
    kernels.offer_tile(block, row, column, by_row, by_column, of_rows or either, of_columns or either, is_diagonal, vectors)


# -- approximate search


def find_neighbours_faiss(embeddings: Embeddings, side: str, k: int = 1, *, probes: int = PROBES) -> Neighbours:
    """Find neighbours with an inverted file index of FAISS, which searches only the cells around each query.

    Candidates are rescored exactly, so scores and order are those of `find_neighbours`, but neighbours in other cells are missed;
    `neighbour_recall` estimates how many. Source: johnson2019billion.
    """
    try:
        import faiss  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as absent:
        raise MissingDependencyError("faiss-cpu", "faiss") from absent
    direction = WITHIN[side]
    _check_request(embeddings, (direction,), k)
    order = np.argsort(_ids(embeddings, side), kind="stable")
    ordered = embeddings.reorder({side: order})
    vectors = (ordered.vectors(side) * ordered.scale(side)[:, None]).astype(np.float32)
    n, width = vectors.shape
    cells = max(1, min(round(4 * n**0.5), n // 39))  # FAISS needs 39 vectors to train a cell
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, cells, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    index.nprobe = min(probes, cells)
    candidates = np.asarray(index.search(vectors, min(k + 1 + FAISS_SPARE, n))[1], dtype=np.int64)
    query, item = np.repeat(np.arange(n), candidates.shape[1]), candidates.ravel()
    is_valid = (item >= 0) & (item != query)  # FAISS pads with -1
    query, item = query[is_valid], item[is_valid]
    k = min(k, n - 1)
    top = Neighbours(np.full((n, k), -1, dtype=np.int64), np.full((n, k), -np.inf))
    _fill_top(top, query, item, score_pairs(ordered, query, item, direction), _id_ranks(ordered, side))
    if (top.item < 0).any():
        raise CrossmatchError(f"FAISS found fewer than {k} neighbours of some items. Use --search exact.")
    back = np.argsort(order, kind="stable")
    return Neighbours(order[top.item][back], top.score[back])


def neighbour_recall(embeddings: Embeddings, side: str, neighbours: Neighbours, sample: int = 256, seed: int = 0) -> float:
    """The share of exact neighbours that an approximate search found, estimated on a random sample of items."""
    (n, k), ids, vectors = neighbours.item.shape, _ids(embeddings, side), embeddings.vectors(side)
    sampled = np.sort(np.argsort(ids, kind="stable")[np.random.default_rng([seed, 11]).permutation(n)[:sample]])
    queries_and_items = Embeddings(ids[sampled], vectors[sampled], ids, vectors, embeddings.similarity)
    exact = find_top_candidates(queries_and_items, ("i2t",), k + 1)["i2t"].item.tolist()  # one more, because a query finds itself
    hits = 0
    for query, items in zip(sampled.tolist(), exact, strict=True):
        hits += len(set([item for item in items if item != query][:k]) & set(neighbours.item[query].tolist()))
    return float(hits / max(1, len(sampled) * k))
