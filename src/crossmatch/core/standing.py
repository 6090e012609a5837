"""How every listed candidate stands in its query's gallery, without sorting the gallery.

The rank of a candidate needs two numbers only:

    above = |{ c : s(c) > s }|          size = |{ c : s(c) = s }|   (itself included)

One sweep over tiles of the score matrix counts both for all listed pairs in both directions, so memory is O(tile), never
queries x candidates. Tiles are products in float32. A score that rounding could have moved across a listed one,

    |fl(s) - s| <= (d + 4) · 2⁻²⁴ · |u| · |v|        (d products and sums, in any order, and two roundings of
                                                      the unit vectors; higham2002accuracy, sec. 3.1)

is computed again in float64 in a fixed order (`scores.exact_dot`). The counts are therefore those of the exact scores:
the same for any tile, thread count and order of the items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IntArray, frozen
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.judgements import Listed
from crossmatch.core.places import cores
from crossmatch.core.progress import track
from crossmatch.core.scores import Embeddings, Matrix, Run

ROUNDING = 2.0**-24  # unit roundoff of float32
TILE = 63_000_000  # scores in a tile that threads share: 252 MB of float32. Large tiles keep product and threads busy
OWN_TILE = 4_000_000  # scores in a tile of one thread: 16 MB. Smaller ones cost more in calls than the cache gives back


@dataclass(frozen=True, eq=False)
class Standing:
    """The counts for each pair of `listed`; `depth` is how far down each query's ranking is known, `gallery` its length."""

    listed: Listed
    above: IntArray
    size: IntArray
    depth: IntArray
    gallery: int


def stand(
    scores: Embeddings | Matrix | Run,
    wanted: Mapping[str, Listed],
    *,
    tile: int | None = None,
    threads: int | None = None,
    compiled: bool | None = None,
) -> dict[str, Standing]:
    """The standing of all listed pairs. Keys of `wanted` begin with the direction: `i2t`, `t2i`, `t2i/truth`, …

    `compiled` chooses numba (the default where it is installed and the work is worth its start) or NumPy.

    >>> said = Matrix(["i"], ["a", "b", "c"], np.array([[0.5, 0.9, 0.5]]))
    >>> both = Listed(np.array([0]), np.array([0, 1]), np.array([2]), np.ones(1))
    >>> there = stand(said, {"i2t": both})["i2t"]
    >>> int(there.above[0]), int(there.size[0])        # one is above, and one other is level with it
    (1, 2)
    """
    if isinstance(scores, Run):
        raise CrossmatchError("a run is ranked against a collection: use crossmatch.core.standing.stand_run")
    if compiled is None:
        compiled = scores.shape[0] * scores.shape[1] > 2_000_000 and _kernels() is not None
    workers = threads or cores()
    count = _count_compiled if compiled else _count_numpy
    blas = _blas() if compiled and isinstance(scores, Embeddings) else None
    with ThreadPoolExecutor(workers) as pool:
        jobs = {key: _prepare(scores, key, listed, compiled, pool) for key, listed in wanted.items()}
        if blas is not None and isinstance(scores, Embeddings):
            with blas.limit(limits=1):
                _sweep_apart(scores, list(jobs.values()), tile or OWN_TILE, pool, workers)
        else:
            for row0, column0, block in _tiles(scores, tile or TILE, pool):
                for job in jobs.values():
                    count(job, block, row0, column0, pool, workers)
    return {key: job.standing(scores.shape) for key, job in jobs.items()}


_SIDES = ("image", "caption")
_Vectors = tuple[Any, Any, Any, Any]  # of the queries and their scale, of the candidates and theirs


@dataclass(eq=False)
class _Job:
    """One list of pairs in one direction, ordered by query and ascending score, with its running counts."""

    rows: bool  # the queries are the rows of the score matrix (i2t)
    listed: Listed
    order: IntArray
    item: IntArray
    exact: FloatArray
    high: NDArray[np.floating]
    low: NDArray[np.floating]
    above: IntArray
    size: IntArray
    rounded: bool
    vectors: _Vectors
    pairs: Callable[[IntArray, IntArray], FloatArray]

    def standing(self, shape: tuple[int, int]) -> Standing:
        above, size = np.empty_like(self.above), np.empty_like(self.size)
        above[self.order], size[self.order] = self.above, self.size
        gallery = shape[1] if self.rows else shape[0]
        return Standing(self.listed, above, size, np.full(len(self.listed.query), gallery, dtype=np.int64), gallery)

    def recount(self) -> _Job:
        """The same list with counters of its own, from zero."""
        return replace(self, above=np.zeros_like(self.above), size=np.zeros_like(self.size))

    @cached_property
    def lists(self) -> tuple[Any, ...]:
        """The fields of `kernels.Lists`: with cells of 16 bits from each query's lowest listed score to its highest.

        A cell is the whole part of (s - floor) · zoom in float32. Each of these steps is monotonic in s, so a candidate in a
        lower cell than a bound is below the bound, whatever the rounding.
        """
        start, count = self.listed.start, self.listed.count
        # Scores of a matrix are compared as they are; their cells are never read, and could overflow.
        high, low = (self.high, self.low) if self.rounded else (np.zeros_like(self.high), np.zeros_like(self.low))
        floor, ceiling = low[start[:-1]], high[start[1:] - 1]
        zoom = (65_000 / np.maximum(ceiling.astype(np.float64) - floor, 1e-26)).astype(floor.dtype)
        cells = []
        for bound in (high, low):
            at = np.clip((bound - np.repeat(floor, count)) * np.repeat(zoom, count), -1, 65_534)  # kernels.TOP
            cells.append((at.astype(np.int32) - 32_767).astype(np.int16))  # kernels.HALF
        return (
            self.listed.query, start, self.item, self.exact, self.high, self.low, *cells, floor, zoom,
            self.above, self.size, self.rounded,
        )  # fmt: skip

    def span(self, row0: int, column0: int, block: NDArray[np.floating]) -> tuple[int, int]:
        """The queries that this tile crosses."""
        first, length = (row0, block.shape[0]) if self.rows else (column0, block.shape[1])
        n0, n1 = np.searchsorted(self.listed.query, (first, first + length))
        return int(n0), int(n1)


def _prepare(scores: Embeddings | Matrix, key: str, listed: Listed, compiled: bool, pool: ThreadPoolExecutor) -> _Job:
    rows = {"i2t": True, "t2i": False}[key.split("/")[0]]
    vectors: _Vectors = (np.zeros((1, 1)), np.ones(1), np.zeros((1, 1)), np.ones(1))
    if isinstance(scores, Embeddings):
        image = scores.image_vectors, scores.image_scale
        caption = scores.caption_vectors, scores.caption_scale
        vectors = tuple(v.view() for v in ((*image, *caption) if rows else (*caption, *image)))  # type: ignore[assignment, union-attr]
    for array in vectors:
        frozen(array)  # all alike, or each mixture of writable and not would be compiled anew

    def pairs(query: IntArray, item: IntArray) -> FloatArray:
        kernels = _kernels() if compiled and isinstance(scores, Embeddings) else None
        if kernels is None:
            return scores.pairs(query, item) if rows else scores.pairs(item, query)
        out = np.empty(len(query))
        kernels.exact_pairs(kernels.Sides(*vectors), query, item, out)
        return out

    query, item = listed.row, listed.item
    exact, order = np.empty(len(item)), np.empty(len(item), dtype=np.int64)

    def ascend(part: tuple[int, int]) -> None:
        """Score the pairs of some queries, and order them by query and score."""
        here = slice(*listed.start[list(part)])
        found = pairs(query[here], item[here])
        ascending = np.lexsort((found, query[here]))
        exact[here], order[here] = found[ascending], ascending + here.start

    list(pool.map(ascend, _parts(0, len(listed.query), 512)))
    item = item[order]
    if isinstance(scores, Embeddings):
        zoom, margin = _zoom(scores), _margin(scores, rows)[query]
        high = _round(exact * zoom + margin, up=True)
        low = _round(exact * zoom - margin, up=False)
    else:
        high = low = exact.astype(_tile_dtype(scores.values.dtype))
    zeros = np.zeros(len(item), dtype=np.int64)
    rounded = isinstance(scores, Embeddings)
    return _Job(rows, listed, order, item, exact, high, low, zeros, zeros.copy(), rounded, vectors, pairs)


def _parts(first: int, last: int, step: int) -> list[tuple[int, int]]:
    return [(at, min(at + step, last)) for at in range(first, last, step)]


def _sweep_apart(scores: Embeddings, jobs: list[_Job], size: int, pool: ThreadPoolExecutor, workers: int) -> None:
    """Each thread multiplies and counts tiles of its own, with counters of its own: none waits for another.

    BLAS must be held to one thread here. Its own threads spin for a while after every product, on the cores that count.
    """
    kernels = _kernels_needed()
    image, caption = (_scaled(scores, side, pool) for side in _SIDES)
    desks: SimpleQueue[tuple[_Product, list[_Job]]] = SimpleQueue()  # what a thread takes for one tile, and puts back
    for at in range(workers):
        desks.put((_Product(image, caption), jobs if at == 0 else [job.recount() for job in jobs]))

    def sweep(corner: tuple[slice, slice]) -> None:
        product, mine = desk = desks.get()
        try:
            block, at = product(*corner), (corner[0].start, corner[1].start)
            for job in mine:
                tally = kernels.tally_rows if job.rows else kernels.tally_columns
                tally(block, *at, *job.span(*at, block), kernels.Lists(*job.lists), kernels.Sides(*job.vectors))
        finally:
            desks.put(desk)

    corners = _corners(scores.shape, size)
    for _ in zip(track(corners, "ranking"), pool.map(sweep, corners), strict=True):
        pass
    for _ in range(workers):
        for job, own in zip(jobs, desks.get()[1], strict=True):
            if own is not job:
                job.above += own.above
                job.size += own.size


def _corners(shape: tuple[int, int], size: int) -> list[tuple[slice, slice]]:
    """The rows and columns of each tile: about twice as wide as high."""
    n_rows, n_columns = shape
    height = max(1, min(n_rows, round((size / 2) ** 0.5)))
    width = _even(n_columns, size // height)
    height = _even(n_rows, size // width)
    rows, columns = _parts(0, n_rows, height), _parts(0, n_columns, width)
    return [(slice(*r), slice(*c)) for r in rows for c in columns]


def _tiles(scores: Embeddings | Matrix, size: int, pool: ThreadPoolExecutor) -> Iterator[tuple[int, int, NDArray[np.floating]]]:
    """Tiles of the matrix, each with the position of its corner. A tile lives until the next."""
    product = _Product(*(_scaled(scores, side, pool) for side in _SIDES)) if isinstance(scores, Embeddings) else None
    for rows, columns in track(_corners(scores.shape, size), "ranking"):
        if product is not None:
            yield rows.start, columns.start, product(rows, columns)
        else:
            assert isinstance(scores, Matrix)
            values = scores.values[rows, columns]
            yield rows.start, columns.start, np.ascontiguousarray(values, dtype=_tile_dtype(values.dtype))


def _even(length: int, most: int) -> int:
    """The step of at most `most` that leaves no sliver at the end of `length`."""
    most = max(1, most)
    return -(-length // -(-length // most))


class _Product:
    """Products in float32 of the vectors that `_scaled` made. A tile lives until the next: fresh pages would cost a tenth more."""

    def __init__(self, image: NDArray[np.float32], caption: NDArray[np.float32]) -> None:
        self._image, self._caption = image, caption
        self._memory = np.empty(0, dtype=np.float32)

    def __call__(self, rows: slice, columns: slice) -> NDArray[np.floating]:
        a, b = self._image[rows], self._caption[columns]
        if len(self._memory) < len(a) * len(b):
            self._memory = np.empty(len(a) * len(b), dtype=np.float32)
        return np.matmul(a, b.T, out=self._memory[: len(a) * len(b)].reshape(len(a), len(b)))


def _scaled(scores: Embeddings, side: str, pool: ThreadPoolExecutor) -> NDArray[np.float32]:
    """The unit vectors in float32 (the vectors scaled by a power of two, for the dot product)."""
    vectors: NDArray[np.floating] = getattr(scores, f"{side}_vectors")
    factor = getattr(scores, f"{side}_scale")[:, None] * _longest(scores, side)
    out = np.empty(vectors.shape, dtype=np.float32)

    def scale(part: tuple[int, int]) -> None:
        here = slice(*part)
        np.multiply(vectors[here], factor[here], out=out[here], dtype=np.float64, casting="same_kind")

    list(pool.map(scale, _parts(0, len(vectors), 1024)))
    return out


def _longest(scores: Embeddings, side: str) -> float:
    """The power of two that brings the longest vector of this side to a length of at most one."""
    if scores.similarity == "cosine":
        return 1.0
    longest = float(_lengths(scores, side).max())
    return 1.0 if longest == 0 else float(2.0 ** -np.ceil(np.log2(longest)))


def _lengths(scores: Embeddings, side: str) -> FloatArray:
    lengths: FloatArray = np.linalg.norm(getattr(scores, f"{side}_vectors").astype(np.float64), axis=1)
    return lengths


def _zoom(scores: Embeddings) -> float:
    return _longest(scores, "image") * _longest(scores, "caption")


def _margin(scores: Embeddings, rows: bool) -> FloatArray:
    """For each query the most that rounding can do to one of its scores in a tile."""
    side = "image" if rows else "caption"
    lengths = np.ones(scores.shape[not rows]) if scores.similarity == "cosine" else _lengths(scores, side) * _longest(scores, side)
    d = scores.image_vectors.shape[1] + 4
    margin: FloatArray = 1.01 * d * ROUNDING * lengths + d * float(np.finfo(np.float32).tiny)  # the last: underflow
    return margin


def _round(values: FloatArray, up: bool) -> NDArray[np.float32]:
    """To float32, but never inwards."""
    near = values.astype(np.float32)
    past = np.nextafter(near, np.float32(np.inf if up else -np.inf))
    inside = near < values if up else near > values
    return np.where(inside, past, near)


def _tile_dtype(dtype: np.dtype[Any]) -> type[np.floating]:
    """The narrowest float that holds every value of `dtype` as it is."""
    return np.float32 if np.can_cast(dtype, np.float32, "safe") else np.float64


@cache
def _kernels() -> ModuleType | None:
    try:
        from crossmatch.core import kernels
    except ImportError:
        return None
    return kernels


def _kernels_needed() -> ModuleType:
    kernels = _kernels()
    if kernels is None:
        raise CrossmatchError("the compiled path needs numba. Install it with: pip install 'crossmatch[fast]'")
    return kernels


@cache
def _blas() -> Any:
    """Control over the threads of BLAS, where threadpoolctl is installed and BLAS is the OpenBLAS of NumPy's wheels.

    One built on OpenMP would not do: there the limit holds only for the thread that sets it.
    """
    try:
        from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        return None
    found = ThreadpoolController().select(internal_api="openblas", threading_layer="pthreads")
    return found if len(found) else None


def _count_compiled(
    job: _Job, block: NDArray[np.floating], row0: int, column0: int, pool: ThreadPoolExecutor, workers: int
) -> None:
    kernels = _kernels_needed()
    tally = kernels.tally_rows if job.rows else kernels.tally_columns
    lists, sides = kernels.Lists(*job.lists), kernels.Sides(*job.vectors)
    n0, n1 = job.span(row0, column0, block)
    step = max(16, -(-(n1 - n0) // (4 * workers)))
    list(pool.map(lambda part: tally(block, row0, column0, *part, lists, sides), _parts(n0, n1, step)))


def _count_numpy(job: _Job, block: NDArray[np.floating], row0: int, column0: int, pool: ThreadPoolExecutor, workers: int) -> None:
    """The same counts, one query at a time: candidates near any listed score are counted by their exact score."""
    n0, n1 = job.span(row0, column0, block)
    lines, first, offset = (block, row0, column0) if job.rows else (block.T, column0, row0)
    for n in range(n0, n1):
        span = slice(int(job.listed.start[n]), int(job.listed.start[n + 1]))
        exact, high, low = job.exact[span], job.high[span], job.low[span]
        q = int(job.listed.query[n])
        line = lines[q - first]
        line_kept = np.flatnonzero(line >= low[0])  # `low` ascends: nothing below the first can count
        x = line[line_kept]
        clear = np.searchsorted(high, x, "left")  # listed scores that lie clearly below this candidate
        near = clear < np.searchsorted(low, x, "right")
        over = np.bincount(clear[~near], minlength=len(exact) + 1)
        job.above[span] += over[::-1].cumsum()[::-1][1:]
        if near.any():
            items = line_kept[near] + offset
            settled = np.sort(job.pairs(np.full(len(items), q), items)) if job.rounded else np.sort(x[near].astype(np.float64))
            right = np.searchsorted(settled, exact, "right")
            job.above[span] += len(settled) - right
            job.size[span] += right - np.searchsorted(settled, exact, "left")


def stand_run(run: Run, query_ids: Any, item_ids: Any, listed: Listed) -> Standing:
    """The standing of listed pairs in a run file. Unlisted candidates share the last place, below everything listed."""
    query, item, values = run.side(query_ids, item_ids)
    gallery = len(item_ids)
    depth = np.bincount(query, minlength=len(query_ids))[listed.query]
    if (depth == 0).any():
        missing = listed.query[depth == 0]
        raise CrossmatchError(
            f"the run has no row for {len(missing):,} of {len(listed.query):,} queries; first missing: "
            f"{str(query_ids[missing[0]])!r}. Rank every query, or leave the direction out entirely."
        )
    order = np.lexsort((values, query))
    query, item, values = query[order], item[order], values[order]
    start = np.searchsorted(query, np.arange(len(query_ids) + 1))
    place = {key: at for at, key in enumerate((query * gallery + item).tolist())}
    above, size = np.empty(len(listed.item), np.int64), np.empty(len(listed.item), np.int64)
    known = np.diff(start)
    for n, (q, c) in enumerate(zip(listed.row.tolist(), listed.item.tolist(), strict=True)):
        at = place.get(q * gallery + c)
        if at is None:
            above[n], size[n] = known[q], gallery - known[q]
            continue
        line = values[start[q] : start[q + 1]]
        right = np.searchsorted(line, values[at], "right")
        above[n], size[n] = len(line) - right, right - np.searchsorted(line, values[at], "left")
    return Standing(listed, above, size, depth, gallery)
