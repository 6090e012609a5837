"""Count ranks and cutoffs for all tasks and both directions in one pass over tiles of the score matrix.

Memory is O(tile), never queries x candidates. Tiles are float32 products. A score that rounding could have moved across a listed
score,

    |fl(s) - s| <= (d + 4) · 2⁻²⁴ · |u| · |v|        (d products and sums, in any order, and two roundings of
                                                      the unit vectors; higham2002accuracy, sec. 3.1)

is computed again in float64 in a fixed order (`scores.exact_dot`). The counts are therefore those of the exact scores: the same
for any tile size, thread count and order of the items.

The scores of captions with captions, and of images with images, are symmetric: only tiles on and above the diagonal are computed,
and each serves the queries of its rows and those of its columns.

The counting loops are compiled by numba. Without numba, and for small inputs, `counts_without_numba` gives the same counts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.collection import SIDES
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.paths import available_cores
from crossmatch.data.io.progress import track
from crossmatch.data.rank_counts import CandidateLists, CountsAtK, CutoffRequest, RankCounts, RankRequest, gallery_sizes
from crossmatch.data.scores import Embeddings, Matrix
from crossmatch.ranking.counts_at_k import QuantizedScores, count_at_cutoffs
from crossmatch.ranking.counts_without_numba import count_at_cutoffs_in_float64, count_ranks_in_float64
from crossmatch.ranking.tiles import (
    MIN_SCORES_FOR_NUMBA,
    ScoreTiles,
    TileProduct,
    TileSlices,
    VectorArrays,
    blas_thread_controller,
    load_kernels,
    require_kernels,
    split_range,
    tile_dtype,
)  # fmt: skip

SHARED_TILE = 63_000_000  # scores in a tile that threads share: 252 MB of float32. Large tiles keep product and threads busy
THREAD_TILE = 4_000_000  # scores in a tile of one thread: 16 MB. Smaller ones cost more in calls than the cache gives back

# The sides of the rows and columns of the matrix that each direction reads.
MATRIX_SIDES = {
    "i2t": ("image", "caption"), "t2i": ("image", "caption"), "t2t": ("caption", "caption"), "i2i": ("image", "image"),
}  # fmt: skip

Key = TypeVar("Key", bound=Hashable)


def count_ranks(
    scores: Embeddings | Matrix,
    lists: Mapping[str, CandidateLists],
    *,
    tile: int | None = None,
    threads: int | None = None,
    compiled: bool | None = None,
) -> dict[str, RankCounts]:
    """Count ranks for one set of candidate lists in each direction.

    Args:
        scores: Embeddings or a matrix.
        lists: The listed candidates of each direction: `{"i2t": …, "t2i": …}`.
        tile: Scores in a tile; the default fits the machine.
        threads: Number of threads; by default one for each core.
        compiled: True for the loops compiled by numba, False for the float64 path. By default numba is used where it is installed
            and there are enough scores.

    Returns:
        The rank counts of each direction. In `t2t` and `i2i` the query is not in its own gallery. Where lists have folds, the
        gallery is the query's fold.

    >>> scores = Matrix(["i"], ["a", "b", "c"], np.array([[0.5, 0.9, 0.5]]))
    >>> lists = CandidateLists(np.array([0]), np.array([0, 1]), np.array([2]), np.ones(1))
    >>> counts = count_ranks(scores, {"i2t": lists})["i2t"]
    >>> int(counts.above[0]), int(counts.tie_size[0])        # one candidate is above c, and one other is tied with it
    (1, 2)
    """
    requests = {direction: RankRequest(direction, listed) for direction, listed in lists.items()}
    counts = sweep(scores, requests, tile=tile, threads=threads, compiled=compiled)
    return {direction: rank_counts for direction, rank_counts in counts.items() if isinstance(rank_counts, RankCounts)}


def sweep(
    scores: Embeddings | Matrix,
    requests: Mapping[Key, RankRequest | CutoffRequest],
    *,
    tile: int | None = None,
    threads: int | None = None,
    compiled: bool | None = None,
) -> dict[Key, RankCounts | CountsAtK]:
    """Answer all requests from one pass over the scores.

    `requests` may have any keys. See `count_ranks` for `tile`, `threads` and `compiled`.
    """
    if not isinstance(scores, Embeddings | Matrix):
        raise CrossmatchError("A run file is ranked against a collection: use crossmatch.ranking.ranks_in_run.count_ranks_in_run.")
    workers = threads or available_cores()
    counts: dict[Key, RankCounts | CountsAtK] = {}
    with ThreadPoolExecutor(workers) as pool:
        for sides in dict.fromkeys(MATRIX_SIDES[request.direction] for request in requests.values()):
            group = {key: request for key, request in requests.items() if MATRIX_SIDES[request.direction] == sides}
            counts |= _sweep_matrix(ScoreTiles(scores, *sides, pool, False), group, tile, workers, compiled)
    return {key: counts[key] for key in requests}


def score_pairs(scores: Embeddings | Matrix, query: IntArray, item: IntArray, direction: str) -> FloatArray:
    """Exact scores of pairs, on all cores if there are many pairs."""
    work = len(query) * (scores.dimensions if isinstance(scores, Embeddings) else 1)
    if work < MIN_SCORES_FOR_NUMBA or load_kernels() is None:
        return scores.score_pairs(query, item, direction)
    with ThreadPoolExecutor(available_cores()) as pool:
        score = ScoreTiles(scores, *MATRIX_SIDES[direction], pool, True).exact_scorer(direction)
        parts = split_range(0, len(query), 4096)
        return np.concatenate(list(pool.map(lambda part: score(query[slice(*part)], item[slice(*part)]), parts)))


def _sweep_matrix(
    tiles: ScoreTiles,
    requests: Mapping[Key, RankRequest | CutoffRequest],
    tile: int | None,
    workers: int,
    compiled: bool | None,
) -> dict[Key, RankCounts | CountsAtK]:
    """Answer all requests about one matrix."""
    scores = tiles.scores
    unions = _merge({key: request for key, request in requests.items() if isinstance(request, RankRequest)}, max(tiles.shape))
    cutoffs = {key: request for key, request in requests.items() if isinstance(request, CutoffRequest)}
    order = _fold_order(unions)
    ordered = [union.lists.reorder(*(order.get(side) for side in SIDES[union.direction])) for union in unions]
    cuts = _fold_starts([(union.direction, lists) for union, lists in zip(unions, ordered, strict=True)])
    if compiled is None:
        compiled = tiles.shape[0] * tiles.shape[1] > MIN_SCORES_FOR_NUMBA and load_kernels() is not None
    quantized = None
    if not compiled:
        counts = [count_ranks_in_float64(scores, union.direction, union.lists, tile) for union in unions]
    else:
        if isinstance(scores, Embeddings):
            tiles = replace(tiles, scores=scores.reorder(order), compiled=True)
            quantized = QuantizedScores.allocate(tiles) if cutoffs else None
        else:
            tiles = replace(tiles, compiled=True, order=order)
        counters = [_RankCounter.prepare(tiles, union.direction, lists) for union, lists in zip(unions, ordered, strict=True)]
        if counters or quantized is not None:
            _count_tiles(tiles, counters, quantized, cuts, tile, workers)
        counts = [
            counter.counts().reordered_for(union.lists, order.get(SIDES[union.direction][0]))
            for union, counter in zip(unions, counters, strict=True)
        ]
    answers: dict[Key, RankCounts | CountsAtK] = {}
    for union, whole in zip(unions, counts, strict=True):
        answers |= {key: whole.subset(lists, tiles.shape) for key, lists in union.members.items()}
    for key, request in cutoffs.items():
        if quantized is None:
            answers[key] = count_at_cutoffs_in_float64(scores, request, tile)
        else:
            answers[key] = count_at_cutoffs(tiles, request, quantized, *(order.get(side) for side in SIDES[request.direction]))
    return answers


@dataclass(frozen=True, eq=False)
class _MergedLists(Generic[Key]):
    """The union of the lists of several requests, and the lists of each."""

    direction: str
    lists: CandidateLists
    members: Mapping[Key, CandidateLists]


def _merge(requests: Mapping[Key, RankRequest], width: int) -> list[_MergedLists[Key]]:
    """Merge lists of the same direction and folds: tasks share many pairs, and every pair is counted once."""
    groups: dict[tuple[str, tuple[bytes, ...]], dict[Key, CandidateLists]] = {}
    for key, request in requests.items():
        folds = tuple(fold.tobytes() for fold in request.lists.folds or ())
        groups.setdefault((request.direction, folds), {})[key] = request.lists
    merged = []
    for (direction, _), members in groups.items():
        union = next(iter(members.values()))
        if len(members) > 1:
            pair = np.unique(np.concatenate([lists.pair_query * width + lists.item for lists in members.values()]))
            query, start = np.unique(pair // width, return_index=True)
            start = np.append(start, len(pair)).astype(np.int64)
            union = CandidateLists(query, start, pair % width, np.ones(len(pair)), union.folds)
        merged.append(_MergedLists(direction, union, members))
    return merged


def _fold_order(unions: Sequence[_MergedLists[Key]]) -> dict[str, IntArray]:
    """For each side whose folds are scattered, the order that puts the items of a fold next to each other."""
    order: dict[str, IntArray] = {}
    for union in unions:
        for side, fold in zip(SIDES[union.direction], union.lists.folds or (), strict=False):
            if side not in order and (np.diff(fold) < 0).any():
                order[side] = np.argsort(fold, kind="stable")
    return order


def _fold_starts(ordered: Sequence[tuple[str, CandidateLists]]) -> tuple[IntArray, IntArray]:
    """The rows and the columns at which a fold begins."""
    starts: list[IntArray] = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
    for direction, lists in ordered:
        if lists.folds is None:
            continue
        for axis, fold in enumerate(lists.folds if direction != "t2i" else lists.folds[::-1]):
            begins = np.flatnonzero(np.diff(fold)) + 1
            if len(begins) + 1 > len(np.unique(fold)):
                raise CrossmatchError("Two tasks divide the same items into different folds. Evaluate the tasks separately.")
            starts[axis] = np.union1d(starts[axis], begins)
    return starts[0], starts[1]


# The compiled path


@dataclass(eq=False)
class _RankCounter:
    """Running counts for the listed pairs of one direction, ordered by query and ascending score.

    `upper` and `lower` bound the listed score in a tile: a tile value above `upper` is above the exact score, too.
    """

    direction: str
    lists: CandidateLists
    order: IntArray  # position in `lists` of each pair here
    item: IntArray
    exact: FloatArray
    upper: NDArray[np.floating]
    lower: NDArray[np.floating]
    above: IntArray
    tie_size: IntArray
    is_rounded: bool
    vectors: VectorArrays
    score: Callable[[IntArray, IntArray], FloatArray]
    candidates: int

    @classmethod
    def prepare(cls, tiles: ScoreTiles, direction: str, lists: CandidateLists) -> _RankCounter:
        """Score the listed pairs and sort them by query and score."""
        score = tiles.exact_scorer(direction)
        query, item = lists.pair_query, lists.item
        exact, order = np.empty(len(item)), np.empty(len(item), dtype=np.int64)

        def sort_queries(part: tuple[int, int]) -> None:
            pairs = slice(*lists.start[list(part)])
            values = score(query[pairs], item[pairs])
            ascending = np.lexsort((values, query[pairs]))
            exact[pairs], order[pairs] = values[ascending], ascending + pairs.start

        list(tiles.pool.map(sort_queries, split_range(0, len(lists.query), 512)))
        if tiles.is_rounded:
            margin = tiles.rounding_margin(SIDES[direction][0])[query]
            upper = _round_outwards(exact * tiles.scale_factor + margin, up=True)
            lower = _round_outwards(exact * tiles.scale_factor - margin, up=False)
        else:
            assert isinstance(tiles.scores, Matrix)
            upper = lower = exact.astype(tile_dtype(tiles.scores.values.dtype))
        above, tie_size = np.zeros(len(item), dtype=np.int64), np.zeros(len(item), dtype=np.int64)
        candidates = tiles.shape[0] if direction == "t2i" else tiles.shape[1]
        return cls(
            direction, lists, order, item[order], exact, upper, lower, above, tie_size, tiles.is_rounded,
            tiles.kernel_vectors(direction), score, candidates,
        )  # fmt: skip

    def with_zero_counts(self) -> _RankCounter:
        """The same pairs with counters of their own, for another thread."""
        return replace(self, above=np.zeros_like(self.above), tie_size=np.zeros_like(self.tie_size))

    @property
    def same_side(self) -> bool:
        return SIDES[self.direction][0] == SIDES[self.direction][1]

    def count_tile(self, block: NDArray[np.floating], row0: int, column0: int, pool: ThreadPoolExecutor | None, step: int) -> None:
        """Add the candidates of one tile to the counts, in this thread or in those of a pool with `step` queries each."""
        kernels = require_kernels()
        listed, vectors = kernels.ListedScores(*self._kernel_fields), kernels.PairVectors(*self.vectors)
        for by_row in self._reading_axes(row0, column0):
            count = kernels.count_rows if by_row else kernels.count_columns
            first, length = (row0, block.shape[0]) if by_row else (column0, block.shape[1])
            n0, n1 = (int(n) for n in np.searchsorted(self.lists.query, (first, first + length)))
            if pool is None:
                count(block, row0, column0, n0, n1, listed, vectors)
            else:
                parts = split_range(n0, n1, max(16, -(-(n1 - n0) // step)))
                list(pool.map(lambda part, count=count: count(block, row0, column0, *part, listed, vectors), parts))

    def _reading_axes(self, row0: int, column0: int) -> tuple[bool, ...]:
        """Whether the queries of this tile are its rows (True), its columns (False), both, or (in other folds) neither."""
        if self.lists.folds is not None:
            rows, columns = self.lists.folds if self.direction != "t2i" else self.lists.folds[::-1]
            if rows[row0] != columns[column0]:
                return ()
        if not self.same_side:
            return (self.direction == "i2t",)
        return (True,) if row0 == column0 else (True, False)

    def counts(self) -> RankCounts:
        """The final counts, in the order of the lists."""
        above, tie_size = np.empty_like(self.above), np.empty_like(self.tie_size)
        above[self.order], tie_size[self.order] = self.above, self.tie_size
        if self.same_side:  # the query itself was counted as a candidate
            query, exact = self.lists.query, np.empty_like(self.exact)
            exact[self.order] = self.exact
            itself = np.repeat(self.score(query, query), self.lists.count)
            above -= itself > exact
            tie_size -= itself == exact
        gallery = gallery_sizes(self.lists, self.candidates, self.same_side)
        return RankCounts(self.lists, above, tie_size, gallery.copy(), gallery)

    @cached_property
    def _kernel_fields(self) -> tuple[Any, ...]:
        """The fields of `kernels.ListedScores`, with 16-bit cells from each query's lowest listed score to its highest.

        A cell is the integer part of (s - floor) · zoom in float32. Each of these steps is monotonic in s, so a candidate in a
        lower cell than a bound is below the bound, whatever the rounding.
        """
        start, count = self.lists.start, self.lists.count
        # Scores of a matrix are compared directly; their cells are never read, and could overflow.
        bounds = (self.upper, self.lower) if self.is_rounded else (np.zeros_like(self.upper), np.zeros_like(self.lower))
        floor, ceiling = bounds[1][start[:-1]], bounds[0][start[1:] - 1]
        zoom = (65_000 / np.maximum(ceiling.astype(np.float64) - floor, 1e-26)).astype(floor.dtype)
        cells = []
        for bound in bounds:
            cell = np.clip((bound - np.repeat(floor, count)) * np.repeat(zoom, count), -1, 65_534)  # kernels.TOP_CELL
            cells.append((cell.astype(np.int32) - 32_767).astype(np.int16))  # kernels.CELL_OFFSET
        return (
            self.lists.query, start, self.item, self.exact, self.upper, self.lower, *cells, floor, zoom,
            self.above, self.tie_size, self.is_rounded,
        )  # fmt: skip


def _round_outwards(values: FloatArray, up: bool) -> NDArray[np.float32]:
    """Round to float32, never below the value if `up`, else never above it."""
    nearest = values.astype(np.float32)
    further = np.nextafter(nearest, np.float32(np.inf if up else -np.inf))
    is_inside = nearest < values if up else nearest > values
    return np.where(is_inside, further, nearest)


def _count_tiles(
    tiles: ScoreTiles,
    counters: list[_RankCounter],
    quantized: QuantizedScores | None,
    cuts: tuple[IntArray, IntArray],
    tile: int | None,
    workers: int,
) -> None:
    """Fill all counters and the quantized scores, computing every tile once."""
    require_kernels()
    blas = blas_thread_controller() if tiles.is_rounded else None
    if blas is not None:
        with blas.limit(limits=1):
            _count_tiles_by_thread(tiles, counters, quantized, tiles.slices(tile or THREAD_TILE, cuts), workers)
        return
    for row0, column0, block in tiles.tiles(tiles.slices(tile or SHARED_TILE, cuts)):
        for counter in counters:
            counter.count_tile(block, row0, column0, tiles.pool, 4 * workers)
        if quantized is not None:
            quantized.fill(block, row0, column0)


def _count_tiles_by_thread(
    tiles: ScoreTiles, counters: list[_RankCounter], quantized: QuantizedScores | None, slices: list[TileSlices], workers: int
) -> None:
    """Let each thread multiply and count its own tiles with its own counters, so that none waits for another.

    BLAS must be limited to one thread: its own threads spin for a while after every product, on the cores that count.
    """
    idle: SimpleQueue[tuple[TileProduct, list[_RankCounter]]] = SimpleQueue()  # a thread takes one set for a tile, and returns it
    for n in range(workers):
        idle.put((tiles.product(), counters if n == 0 else [counter.with_zero_counts() for counter in counters]))

    def count(rows_and_columns: TileSlices) -> None:
        product, thread_counters = thread_set = idle.get()
        try:
            block, row0, column0 = product(*rows_and_columns), rows_and_columns[0].start, rows_and_columns[1].start
            for counter in thread_counters:
                counter.count_tile(block, row0, column0, None, 1)
            if quantized is not None:
                quantized.fill(block, row0, column0)
        finally:
            idle.put(thread_set)

    for _ in zip(track(slices, "ranking"), tiles.pool.map(count, slices), strict=True):
        pass
    for _ in range(workers):
        for counter, thread_counter in zip(counters, idle.get()[1], strict=True):
            if thread_counter is not counter:
                counter.above += thread_counter.above
                counter.tie_size += thread_counter.tie_size
