"""How many positives are among the first K of a ranking, where there are too many positives to list them.

Plausible matches run into the thousands for each query, so their standing is not counted one by one. For a cut after K it is
enough to know, with t the K-th highest score,

    above = |{ c : s(c) > t }|      level = |{ c : s(c) = t }|      and how many of each are positives:

the candidates above t are all in, and of those level with it K - above are, each with the same probability.

The sweep leaves every score behind as a cell of 16 bits (on disk where the matrix is large). A histogram of a query's cells
finds the cell of t; candidates within the rounding margin of it are settled by their exact scores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IntArray, frozen
from crossmatch.core.collection import SIDES
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.plausible import Plausible

if TYPE_CHECKING:
    from crossmatch.core.tiles import Plane

IN_MEMORY = 1 << 28  # bytes; a larger array lives in a temporary file
CELLS = 65_000  # from the lowest to the highest value of a tile
BLOCK = 512  # queries looked at in one go


@dataclass(frozen=True, eq=False)
class Asked:
    """The cuts of every query: K of shape (caps, zetas, queries), and at which of the zetas each candidate is a positive."""

    k: IntArray
    positives: IntArray  # (zetas, queries)
    query_set: IntArray
    item_set: IntArray
    level: NDArray[np.uint8]  # (sets, sets): the first zeta at which two sets match

    def permuted(self, query: IntArray | None, item: IntArray | None) -> Asked:
        """The same where the items of a side stand in another order."""
        item_set = self.item_set if item is None else self.item_set[item]
        if query is None:
            return replace(self, item_set=item_set)
        return Asked(self.k[..., query], self.positives[:, query], self.query_set[query], item_set, self.level)

    @property
    def query(self) -> IntArray:
        """The queries that have a positive: only those are evaluated."""
        return np.flatnonzero(self.positives[0] > 0)

    @classmethod
    def of(cls, plausible: Plausible, direction: str) -> Asked:
        query, item = plausible.sets(direction)
        found = plausible.positives(direction)
        return cls(plausible.cut_at(found), found, query, item, plausible.level)


@dataclass(frozen=True, eq=False)
class Cuts:
    """What is above and level with each cut, in shape (caps, zetas, queries); `positives` is R, (zetas, queries).

    >>> one = Cuts(*(np.array([[[n]]]) for n in (3, 2, 4, 1, 2)), np.array([[3]]), np.array([9]))
    >>> one.found, one.settle("pessimistic").found      # one of the four level candidates is in, and two of them are positives
    (array([[[1.5]]]), array([[[1.]]]))
    """

    k: IntArray
    above: IntArray
    level: IntArray
    positive_above: IntArray
    positive_level: IntArray
    positives: IntArray
    gallery: IntArray
    caps: tuple[int, ...] = (0,)
    ties: str = "expected"

    def __post_init__(self) -> None:
        for name in ARRAYS:
            frozen(getattr(self, name))

    @property
    def found(self) -> FloatArray:
        """Positives among the first K, under the tie policy."""
        wanted, negative = self.k - self.above, self.level - self.positive_level
        more = {
            "expected": wanted * self.positive_level / self.level,
            "optimistic": np.minimum(wanted, self.positive_level),
            "pessimistic": np.maximum(0, wanted - negative),
        }[self.ties]
        return np.asarray(self.positive_above + more, dtype=np.float64)

    @property
    def tied(self) -> FloatArray:
        """For each query 1 if a cut runs through a tie of positives with others."""
        split = (self.above + self.level > self.k) & (self.positive_level > 0) & (self.positive_level < self.level)
        return np.asarray(split.any(axis=(0, 1)), dtype=np.float64)

    def settle(self, ties: str) -> Cuts:
        return replace(self, ties=ties)

    def chosen(self, zetas: Sequence[int]) -> Cuts:
        """The cuts at some of the zetas alone."""
        at = list(zetas)
        kept = {name: getattr(self, name)[:, at] for name in ARRAYS[:5]}
        return replace(self, **kept, positives=self.positives[at])


ARRAYS = ("k", "above", "level", "positive_above", "positive_level", "positives", "gallery")


@dataclass(frozen=True, eq=False)
class Cells:
    """Every score of a plane as a cell of 16 bits: the whole part of (value / 2 - low) · zoom.

    Halves, because the range of a matrix may be twice the largest float64.
    """

    values: NDArray[np.uint16]
    low: float
    zoom: float
    compiled: Any = None

    @classmethod
    def over(cls, plane: Plane) -> Cells:
        low, high = plane.bounds
        loops: Any = None
        if plane.compiled:
            from crossmatch.core import cut_kernels

            loops = cut_kernels
        return cls(room(plane.shape, np.dtype(np.uint16)), low / 2, CELLS / max(high / 2 - low / 2, 1e-300), loops)

    def fill(self, tile: NDArray[np.floating], row0: int, column0: int) -> None:
        place = self.values[row0 : row0 + tile.shape[0], column0 : column0 + tile.shape[1]]
        if self.compiled is not None:
            self.compiled.fill_cells(tile, self.low, self.zoom, place)
        else:
            place[:] = (0.5 * tile.astype(np.float64) - self.low) * self.zoom

    def reach(self, margin: FloatArray) -> IntArray:
        """How many cells from the cell of t the exact scores may be on the other side of t.

        Rounding moves a score and the K-th highest score by at most the margin each; one cell more is for the rounding of cells.
        """
        return (np.ceil(margin * self.zoom) + 1).astype(np.int64)


def room(shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array in memory, or in a temporary file if it is large."""
    if shape[0] * shape[1] * dtype.itemsize <= IN_MEMORY:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(prefix="crossmatch-") as file:  # the map outlives the handle
        return np.memmap(file, dtype=dtype, shape=shape)


def cut(
    plane: Plane, direction: str, asked: Asked, cells: Cells, query: IntArray | None = None, item: IntArray | None = None
) -> Cuts:
    """The cuts of all queries from the cells that the sweep left, with queries and items in the order that is given."""
    kept, back = asked.query, None if query is None else np.argsort(query)
    asked = asked.permuted(query, item)
    rows = direction == "i2t"
    queries, candidates = plane.shape if rows else plane.shape[::-1]
    if asked.k.max() > candidates:
        raise CrossmatchError(f"a cut after {asked.k.max():,} was asked of {candidates:,} candidates.")
    reach = cells.reach(plane.margin(SIDES[direction][0]))
    out = np.zeros((4, *asked.k.shape), dtype=np.int64)  # above, level, and the positives among both

    def work(part: tuple[int, int]) -> None:
        if rows:
            lines = cells.values[slice(*part)]
        elif cells.compiled is not None:
            lines = cells.compiled.columns(cells.values, *part)
        else:
            lines = np.ascontiguousarray(cells.values[:, slice(*part)].T)
        if cells.compiled is not None and plane.rounded:
            from crossmatch.core.kernels import Sides

            sets = asked.query_set, asked.item_set, asked.level
            cells.compiled.cut_lines(lines, part[0], asked.k, *sets, reach, Sides(*plane.sides(direction)), out)
        else:
            _cut_lines(plane, direction, lines, part[0], asked, reach, out)

    step = min(BLOCK, max(1, (1 << 23) // candidates))
    list(plane.pool.map(work, [(at, min(at + step, queries)) for at in range(0, queries, step)]))
    if not len(kept):
        raise CrossmatchError("no query has a positive, so there is nothing to rank. Check the labels.")
    at = kept if back is None else back[kept]
    above, level, positive_above, positive_level = out[..., at]
    gallery = np.full(len(kept), candidates, dtype=np.int64)
    return Cuts(asked.k[..., at], above, level, positive_above, positive_level, asked.positives[:, at], gallery)


def _cut_lines(
    plane: Plane, direction: str, lines: NDArray[np.uint16], first: int, asked: Asked, reach: IntArray, out: IntArray
) -> None:
    """The same as `kernels.cut_lines`, one cut at a time."""
    pairs, n = plane.pairs(direction), lines.shape[1]
    caps, zetas, _ = asked.k.shape
    for q, line in enumerate(lines.astype(np.int64), first):
        match = asked.level[asked.query_set[q]][asked.item_set]
        for cap, zeta in np.ndindex(caps, zetas):
            k = int(asked.k[cap, zeta, q])
            if not k:
                continue
            cell = np.partition(line, n - k)[n - k]
            clear, near = line > cell + reach[q], np.flatnonzero(np.abs(line - cell) <= reach[q])
            exact = pairs(np.full(len(near), q), near)
            t = np.sort(exact)[::-1][k - int(clear.sum()) - 1]
            positive = match <= zeta
            out[:, cap, zeta, q] = (
                clear.sum() + (exact > t).sum(), (exact == t).sum(),
                positive[clear].sum() + positive[near[exact > t]].sum(), positive[near[exact == t]].sum(),
            )  # fmt: skip
