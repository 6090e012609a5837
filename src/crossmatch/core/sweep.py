"""One sweep over tiles of the score matrix answers every question about ranks, for all tasks and both directions at once.

Memory is O(tile), never queries x candidates. Tiles are products in float32. A score that rounding could have moved across a
listed one,

    |fl(s) - s| <= (d + 4) · 2⁻²⁴ · |u| · |v|        (d products and sums, in any order, and two roundings of
                                                      the unit vectors; higham2002accuracy, sec. 3.1)

is computed again in float64 in a fixed order (`scores.exact_dot`). The counts are therefore those of the exact scores:
the same for any tile, thread count and order of the items.

Captions against captions, and images against images, are symmetric: only the tiles on and above the diagonal are made, and each
serves the queries of its rows and those of its columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.collection import SIDES
from crossmatch.core.cuts import Asked, Cells, Cuts, cut
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.judgements import Listed
from crossmatch.core.places import cores
from crossmatch.core.progress import track
from crossmatch.core.scores import Embeddings, Matrix
from crossmatch.core.standing import Standing, galleries_of
from crossmatch.core.tiles import (
    WORTH_COMPILING,
    Corner,
    Plane,
    Product,
    Sides,
    blas_threads,
    compiled_loops,
    compiled_loops_needed,
    parts,
    tile_dtype,
)  # fmt: skip

TILE = 63_000_000  # scores in a tile that threads share: 252 MB of float32. Large tiles keep product and threads busy
OWN_TILE = 4_000_000  # scores in a tile of one thread: 16 MB. Smaller ones cost more in calls than the cache gives back

# The matrix that each direction reads: its rows and its columns.
PLANES = {"i2t": ("image", "caption"), "t2i": ("image", "caption"), "t2t": ("caption", "caption"), "i2i": ("image", "image")}


def stand(
    scores: Embeddings | Matrix,
    wanted: Mapping[str, Listed],
    *,
    tile: int | None = None,
    threads: int | None = None,
    compiled: bool | None = None,
) -> dict[str, Standing]:
    """The standing of all listed pairs. Keys of `wanted` begin with the direction: `i2t`, `t2i`, `t2i/truth`, `t2t`, …

    In `t2t` and `i2i` the query itself is not in its gallery. Where a list has folds, the gallery is the query's fold. `compiled`
    chooses numba (the default where it is installed and the work is worth its start) or NumPy.

    >>> said = Matrix(["i"], ["a", "b", "c"], np.array([[0.5, 0.9, 0.5]]))
    >>> both = Listed(np.array([0]), np.array([0, 1]), np.array([2]), np.ones(1))
    >>> there = stand(said, {"i2t": both})["i2t"]
    >>> int(there.above[0]), int(there.size[0])        # one is above, and one other is level with it
    (1, 2)
    """
    return sweep(scores, wanted, {}, tile=tile, threads=threads, compiled=compiled)[0]


def sweep(
    scores: Embeddings | Matrix,
    lists: Mapping[str, Listed],
    cuts: Mapping[str, Asked],
    *,
    tile: int | None = None,
    threads: int | None = None,
    compiled: bool | None = None,
) -> tuple[dict[str, Standing], dict[str, Cuts]]:
    """The standing of listed pairs, and the positives above a cut (`cuts.py`), all from one pass over the scores."""
    if not isinstance(scores, Embeddings | Matrix):
        raise CrossmatchError("a run is ranked against a collection: use crossmatch.core.runs.stand_run")
    workers = threads or cores()
    standings: dict[str, Standing] = {}
    found: dict[str, Cuts] = {}
    with ThreadPoolExecutor(workers) as pool:
        for sides in dict.fromkeys(PLANES[_direction(key)] for key in (*lists, *cuts)):
            here = {key: listed for key, listed in lists.items() if PLANES[_direction(key)] == sides}
            asked = {key: ask for key, ask in cuts.items() if PLANES[_direction(key)] == sides}
            order = _fold_order(here)
            plane = _plane(scores, sides, pool, order, compiled)
            some, above = _sweep(plane, here, asked, order, tile, workers)
            standings |= some
            found |= above
    return {key: standings[key] for key in lists}, found


def _sweep(
    plane: Plane, lists: dict[str, Listed], cuts: dict[str, Asked], order: dict[str, IntArray], tile: int | None, workers: int
) -> tuple[dict[str, Standing], dict[str, Cuts]]:
    """All questions about one plane."""
    merged, jobs = _merged(lists, plane.shape), []
    for direction, union, _ in merged:
        jobs.append(_prepare(plane, direction, union.permuted(*(order.get(side) for side in SIDES[direction]))))
    cells = Cells.over(plane) if cuts else None
    _count(plane, jobs, cells, tile, workers)
    standings: dict[str, Standing] = {}
    for job, (direction, union, members) in zip(jobs, merged, strict=True):
        whole = job.standing().for_list(union, order.get(SIDES[direction][0]))
        standings |= {key: whole.among(lists[key], plane.shape) for key in members}
    found = {}
    for key, ask in cuts.items():
        assert cells is not None
        found[key] = cut(plane, _direction(key), ask, cells, *(order.get(side) for side in SIDES[_direction(key)]))
    return standings, found


def _direction(key: str) -> str:
    return key.split("/")[0]


def exact_scores(scores: Embeddings | Matrix, query: IntArray, item: IntArray, direction: str) -> FloatArray:
    """The exact scores of some pairs, on all cores where there are many."""
    if len(query) * (scores.width if isinstance(scores, Embeddings) else 1) < WORTH_COMPILING or compiled_loops() is None:
        return scores.pairs(query, item, direction)
    with ThreadPoolExecutor(cores()) as pool:
        pairs = Plane(scores, *PLANES[direction], pool, True).pairs(direction)
        some = parts(0, len(query), 4096)
        return np.concatenate(list(pool.map(lambda part: pairs(query[slice(*part)], item[slice(*part)]), some)))


def _plane(
    scores: Embeddings | Matrix, sides: tuple[str, str], pool: ThreadPoolExecutor, order: dict[str, IntArray], compiled: bool | None
) -> Plane:
    if isinstance(scores, Embeddings):
        plane = Plane(scores.permuted(order), *sides, pool, bool(compiled))
    else:
        plane = Plane(scores, *sides, pool, bool(compiled), order)
    if compiled is None:
        plane.compiled = plane.shape[0] * plane.shape[1] > WORTH_COMPILING and compiled_loops() is not None
    return plane


def _merged(lists: Mapping[str, Listed], shape: tuple[int, int]) -> list[tuple[str, Listed, list[str]]]:
    """Lists of one direction with the same galleries become one: tasks share many pairs, and every pair is counted once."""
    groups: dict[tuple[str, tuple[bytes, ...]], list[str]] = {}
    for key, listed in lists.items():
        groups.setdefault((_direction(key), tuple(fold.tobytes() for fold in listed.folds or ())), []).append(key)
    width = max(shape)
    out = []
    for (direction, _), keys in groups.items():
        first = lists[keys[0]]
        if len(keys) > 1:
            pair = np.unique(np.concatenate([lists[key].row * width + lists[key].item for key in keys]))
            query, start = np.unique(pair // width, return_index=True)
            start = np.append(start, len(pair)).astype(np.int64)
            first = Listed(query, start, pair % width, np.ones(len(pair)), first.folds)
        out.append((direction, first, keys))
    return out


def _fold_order(lists: Mapping[str, Listed]) -> dict[str, IntArray]:
    """For each side the order that puts the items of a fold side by side, if a list has folds that do not stand so already."""
    order: dict[str, IntArray] = {}
    for key, listed in lists.items():
        for side, fold in zip(SIDES[_direction(key)], listed.folds or (), strict=False):
            if side not in order and (np.diff(fold) < 0).any():
                order[side] = np.argsort(fold, kind="stable")
    return order


@dataclass(eq=False)
class _Job:
    """One list of pairs in one direction, ordered by query and ascending score, with its running counts."""

    direction: str
    listed: Listed
    order: IntArray
    item: IntArray
    exact: FloatArray
    high: NDArray[np.floating]
    low: NDArray[np.floating]
    above: IntArray
    size: IntArray
    rounded: bool
    sides: Sides
    pairs: Callable[[IntArray, IntArray], FloatArray]
    candidates: int

    @property
    def same_side(self) -> bool:
        return SIDES[self.direction][0] == SIDES[self.direction][1]

    def ways(self, row0: int, column0: int) -> tuple[bool, ...]:
        """How the tile at this corner is read: by rows (True), by columns (False), both ways, or, across folds, not at all."""
        if self.listed.folds is not None:
            rows, columns = self.listed.folds if self.direction != "t2i" else self.listed.folds[::-1]
            if rows[row0] != columns[column0]:
                return ()
        if not self.same_side:
            return (self.direction == "i2t",)
        return (True,) if row0 == column0 else (True, False)

    def standing(self) -> Standing:
        above, size = np.empty_like(self.above), np.empty_like(self.size)
        above[self.order], size[self.order] = self.above, self.size
        if self.same_side:  # the query met itself on the way
            query, exact = self.listed.query, np.empty_like(self.exact)
            exact[self.order] = self.exact
            itself = np.repeat(self.pairs(query, query), self.listed.count)
            above -= itself > exact
            size -= itself == exact
        gallery = galleries_of(self.listed, self.candidates, self.same_side)
        return Standing(self.listed, above, size, gallery.copy(), gallery)

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

    def span(self, rows: bool, row0: int, column0: int, block: NDArray[np.floating]) -> tuple[int, int]:
        """The queries among the rows of this tile, or among its columns."""
        first, length = (row0, block.shape[0]) if rows else (column0, block.shape[1])
        n0, n1 = np.searchsorted(self.listed.query, (first, first + length))
        return int(n0), int(n1)


def _prepare(plane: Plane, direction: str, listed: Listed) -> _Job:
    pairs = plane.pairs(direction)
    query, item = listed.row, listed.item
    exact, order = np.empty(len(item)), np.empty(len(item), dtype=np.int64)

    def ascend(part: tuple[int, int]) -> None:
        """Score the pairs of some queries, and order them by query and score."""
        here = slice(*listed.start[list(part)])
        found = pairs(query[here], item[here])
        ascending = np.lexsort((found, query[here]))
        exact[here], order[here] = found[ascending], ascending + here.start

    list(plane.pool.map(ascend, parts(0, len(listed.query), 512)))
    if plane.rounded:
        margin = plane.margin(SIDES[direction][0])[query]
        high = _round(exact * plane.zoom + margin, up=True)
        low = _round(exact * plane.zoom - margin, up=False)
    else:
        assert isinstance(plane.scores, Matrix)
        high = low = exact.astype(tile_dtype(plane.scores.values.dtype))
    zeros = np.zeros(len(item), dtype=np.int64)
    candidates = plane.shape[0] if direction == "t2i" else plane.shape[1]
    return _Job(
        direction, listed, order, item[order], exact, high, low, zeros, zeros.copy(), plane.rounded, plane.sides(direction), pairs,
        candidates,
    )  # fmt: skip


def _round(values: FloatArray, up: bool) -> NDArray[np.float32]:
    """To float32, but never inwards."""
    near = values.astype(np.float32)
    past = np.nextafter(near, np.float32(np.inf if up else -np.inf))
    inside = near < values if up else near > values
    return np.where(inside, past, near)


def _count(plane: Plane, jobs: list[_Job], cells: Cells | None, tile: int | None, workers: int) -> None:
    """Fill the counters of all jobs, and the cells, from every tile once."""
    cuts = _fold_cuts(plane, jobs)
    blas = blas_threads() if plane.compiled and plane.rounded else None
    if blas is not None:
        with blas.limit(limits=1):
            _count_apart(plane, jobs, cells, plane.corners(tile or OWN_TILE, cuts), workers)
        return
    count = _count_compiled if plane.compiled else _count_numpy
    for row0, column0, block in plane.tiles(plane.corners(tile or TILE, cuts)):
        for job in jobs:
            for rows in job.ways(row0, column0):
                count(job, rows, block, row0, column0, plane.pool, workers)
        if cells is not None:
            cells.fill(block, row0, column0)


def _fold_cuts(plane: Plane, jobs: list[_Job]) -> tuple[IntArray, IntArray]:
    """Where a fold begins, among the rows and among the columns."""
    cuts: list[IntArray] = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
    for job in jobs:
        if job.listed.folds is None:
            continue
        folds = job.listed.folds if job.direction != "t2i" else job.listed.folds[::-1]
        for axis, fold in enumerate(folds):
            begins = np.flatnonzero(np.diff(fold)) + 1
            if len(begins) + 1 > len(np.unique(fold)):
                raise CrossmatchError("two tasks divide the same items into folds in two ways. Evaluate them one after the other.")
            cuts[axis] = np.union1d(cuts[axis], begins)
    return cuts[0], cuts[1]


def _count_apart(plane: Plane, jobs: list[_Job], cells: Cells | None, corners: list[Corner], workers: int) -> None:
    """Each thread multiplies and counts tiles of its own, with counters of its own: none waits for another.

    BLAS must be held to one thread here. Its own threads spin for a while after every product, on the cores that count.
    """
    kernels = compiled_loops_needed()
    desks: SimpleQueue[tuple[Product, list[_Job]]] = SimpleQueue()  # what a thread takes for one tile, and puts back
    for at in range(workers):
        desks.put((plane.product(), jobs if at == 0 else [job.recount() for job in jobs]))

    def work(corner: Corner) -> None:
        product, mine = desk = desks.get()
        try:
            block, at = product(*corner), (corner[0].start, corner[1].start)
            for job in mine:
                for rows in job.ways(*at):
                    tally = kernels.tally_rows if rows else kernels.tally_columns
                    tally(block, *at, *job.span(rows, *at, block), kernels.Lists(*job.lists), kernels.Sides(*job.sides))
            if cells is not None:
                cells.fill(block, *at)
        finally:
            desks.put(desk)

    for _ in zip(track(corners, "ranking"), plane.pool.map(work, corners), strict=True):
        pass
    for _ in range(workers):
        for job, own in zip(jobs, desks.get()[1], strict=True):
            if own is not job:
                job.above += own.above
                job.size += own.size


def _count_compiled(
    job: _Job, rows: bool, block: NDArray[np.floating], row0: int, column0: int, pool: ThreadPoolExecutor, workers: int
) -> None:
    kernels = compiled_loops_needed()
    tally = kernels.tally_rows if rows else kernels.tally_columns
    lists, sides = kernels.Lists(*job.lists), kernels.Sides(*job.sides)
    n0, n1 = job.span(rows, row0, column0, block)
    step = max(16, -(-(n1 - n0) // (4 * workers)))
    list(pool.map(lambda part: tally(block, row0, column0, *part, lists, sides), parts(n0, n1, step)))


def _count_numpy(
    job: _Job, rows: bool, block: NDArray[np.floating], row0: int, column0: int, pool: ThreadPoolExecutor, workers: int
) -> None:
    """The same counts, one query at a time: candidates near any listed score are counted by their exact score."""
    n0, n1 = job.span(rows, row0, column0, block)
    lines, first, offset = (block, row0, column0) if rows else (block.T, column0, row0)
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
