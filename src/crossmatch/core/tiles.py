"""The score matrix of two sides, tile by tile, never whole: what a tile holds, how exact it is, and which threads make it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IntArray, frozen
from crossmatch.core.collection import SIDES
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.progress import track
from crossmatch.core.scores import Embeddings, Matrix

ROUNDING = 2.0**-24  # unit roundoff of float32
WORTH_COMPILING = 2_000_000  # scores; below, numba's start costs more than it saves

Sides = tuple[Any, Any, Any, Any]  # vectors of the queries and their scale, of the candidates and theirs
Corner = tuple[slice, slice]


@dataclass(eq=False)
class Plane:
    """The scores of all `rows` ("image" or "caption") with all `columns`, of which only tiles exist.

    A tile of embeddings is a product in float32 of unit vectors (for the dot product: of vectors scaled by a power of two, so
    that none is longer than one). It differs from `zoom` times the exact scores by at most `margin`.
    """

    scores: Embeddings | Matrix
    rows: str
    columns: str
    pool: ThreadPoolExecutor
    compiled: bool
    order: dict[str, IntArray] = field(default_factory=dict)  # of the sides of a matrix that are read in another order

    @property
    def shape(self) -> tuple[int, int]:
        if isinstance(self.scores, Matrix):
            return self.scores.shape
        return len(self.scores.vectors(self.rows)), len(self.scores.vectors(self.columns))

    @property
    def symmetric(self) -> bool:
        return self.rows == self.columns

    @property
    def rounded(self) -> bool:
        """Tiles of embeddings are rounded; those of a matrix are as they were given."""
        return isinstance(self.scores, Embeddings)

    @cached_property
    def zoom(self) -> float:
        return self._longest(self.rows) * self._longest(self.columns) if self.rounded else 1.0

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """No value of a tile is outside."""
        if isinstance(self.scores, Embeddings):
            return -1.001, 1.001
        return float(self.scores.values.min()), float(self.scores.values.max())

    def margin(self, side: str) -> FloatArray:
        """For each query of this side the most that rounding can do to one of its scores in a tile."""
        if not isinstance(self.scores, Embeddings):
            return np.zeros(self.shape[0 if side == self.rows else 1])
        n, d = self.scores.vectors(side).shape
        lengths = np.ones(n) if self.scores.similarity == "cosine" else self._lengths(side) * self._longest(side)
        margin: FloatArray = 1.01 * (d + 4) * ROUNDING * lengths + (d + 4) * float(np.finfo(np.float32).tiny)  # the last: underflow
        return margin

    def sides(self, direction: str) -> Sides:
        """The vectors behind the queries and the candidates of a direction; for a matrix, something of the same type."""
        if isinstance(self.scores, Embeddings):
            q, c = SIDES[direction]
            found = self.scores.vectors(q), self.scores.scale(q), self.scores.vectors(c), self.scores.scale(c)
        else:
            found = np.zeros((1, 1)), np.ones(1), np.zeros((1, 1)), np.ones(1)
        views = tuple(array.view() for array in found)
        for array in views:
            frozen(array)  # all alike, or each mixture of writable and not would be compiled anew
        return views  # type: ignore[return-value]

    def pairs(self, direction: str) -> Callable[[IntArray, IntArray], FloatArray]:
        """The exact scores of queries with items."""
        kernels = compiled_loops() if self.compiled and self.rounded else None
        if kernels is None:
            a, b = (self.order.get(side) for side in SIDES[direction])
            return lambda query, item: self.scores.pairs(
                query if a is None else a[query], item if b is None else b[item], direction
            )  # fmt: skip
        sides = kernels.Sides(*self.sides(direction))

        def exact(query: IntArray, item: IntArray) -> FloatArray:
            out = np.empty(len(query))
            kernels.exact_pairs(sides, query, item, out)
            return out

        return exact

    def corners(self, size: int, cuts: tuple[IntArray, IntArray]) -> list[Corner]:
        """The rows and columns of each tile, about twice as wide as high, cut where folds begin.

        Of a symmetric plane only square tiles on and above the diagonal are needed.
        """
        n_rows, n_columns = self.shape
        if self.symmetric:
            parts = stretches(n_rows, round(size**0.5), np.union1d(*cuts))
            return [(slice(*r), slice(*c)) for n, r in enumerate(parts) for c in parts[n:]]
        height = max(1, min(n_rows, round((size / 2) ** 0.5)))
        columns = stretches(n_columns, size // height, cuts[1])
        rows = stretches(n_rows, size // max(last - first for first, last in columns), cuts[0])
        return [(slice(*r), slice(*c)) for r in rows for c in columns]

    def tiles(self, corners: list[Corner]) -> Iterator[tuple[int, int, NDArray[np.floating]]]:
        """Tiles one after another, each with the position of its corner. A tile lives until the next."""
        product = self.product() if self.rounded else None
        for rows, columns in track(corners, "ranking"):
            if product is not None:
                yield rows.start, columns.start, product(rows, columns)
            else:
                assert isinstance(self.scores, Matrix)
                values = self._of_matrix(rows, columns)
                yield rows.start, columns.start, np.ascontiguousarray(values, dtype=tile_dtype(values.dtype))

    def _of_matrix(self, rows: slice, columns: slice) -> NDArray[Any]:
        assert isinstance(self.scores, Matrix)
        if not self.order:
            return self.scores.values[rows, columns]
        at = (self.order.get(side, np.arange(n)) for side, n in zip((self.rows, self.columns), self.shape, strict=True))
        return self.scores.values[np.ix_(*(order[part] for order, part in zip(at, (rows, columns), strict=True)))]

    def product(self) -> Product:
        rows = self._scaled[self.rows]
        return Product(rows, self._scaled[self.columns])

    @cached_property
    def _scaled(self) -> dict[str, NDArray[np.float32]]:
        """The unit vectors in float32 (the vectors scaled by a power of two, for the dot product)."""
        assert isinstance(self.scores, Embeddings)
        out = {}
        for side in {self.rows, self.columns}:
            vectors = self.scores.vectors(side)
            factor = self.scores.scale(side)[:, None] * self._longest(side)
            made = np.empty(vectors.shape, dtype=np.float32)

            def scale(part: tuple[int, int], vectors: Any = vectors, factor: Any = factor, made: Any = made) -> None:
                here = slice(*part)
                np.multiply(vectors[here], factor[here], out=made[here], dtype=np.float64, casting="same_kind")

            list(self.pool.map(scale, parts(0, len(vectors), 1024)))
            out[side] = made
        return out

    def _longest(self, side: str) -> float:
        """The power of two that brings the longest vector of this side to a length of at most one."""
        assert isinstance(self.scores, Embeddings)
        if self.scores.similarity == "cosine":
            return 1.0
        longest = float(self._lengths(side).max())
        return 1.0 if longest == 0 else float(2.0 ** -np.ceil(np.log2(longest)))

    def _lengths(self, side: str) -> FloatArray:
        assert isinstance(self.scores, Embeddings)
        lengths: FloatArray = np.linalg.norm(self.scores.vectors(side).astype(np.float64), axis=1)
        return lengths


class Product:
    """Products in float32. A tile lives until the next: fresh pages would cost a tenth more."""

    def __init__(self, rows: NDArray[np.float32], columns: NDArray[np.float32]) -> None:
        self._rows, self._columns = rows, columns
        self._memory = np.empty(0, dtype=np.float32)

    def __call__(self, rows: slice, columns: slice) -> NDArray[np.floating]:
        a, b = self._rows[rows], self._columns[columns]
        if len(self._memory) < len(a) * len(b):
            self._memory = np.empty(len(a) * len(b), dtype=np.float32)
        return np.matmul(a, b.T, out=self._memory[: len(a) * len(b)].reshape(len(a), len(b)))


def parts(first: int, last: int, step: int) -> list[tuple[int, int]]:
    """
    >>> parts(0, 5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(at, min(at + step, last)) for at in range(first, last, step)]


def stretches(length: int, most: int, cuts: IntArray) -> list[tuple[int, int]]:
    """0 … `length` in stretches of at most `most`, cut at `cuts`, with no sliver at the end of any.

    >>> stretches(10, 4, np.array([6]))
    [(0, 3), (3, 6), (6, 10)]
    """
    edges = [0, *(int(c) for c in cuts if 0 < c < length), length]
    most = max(1, most)
    out = []
    for first, last in pairwise(edges):
        out += parts(first, last, -(-(last - first) // -(-(last - first) // most)))
    return out


def tile_dtype(dtype: np.dtype[Any]) -> type[np.floating]:
    """The narrowest float that holds every value of `dtype` as it is (`Matrix` refuses integers that none holds)."""
    return np.float32 if np.can_cast(dtype, np.float32, "safe") else np.float64


@cache
def compiled_loops() -> ModuleType | None:
    """`kernels.py`, where numba is installed."""
    try:
        from crossmatch.core import kernels
    except ImportError:
        return None
    return kernels


def compiled_loops_needed() -> ModuleType:
    kernels = compiled_loops()
    if kernels is None:
        raise CrossmatchError("the compiled path needs numba. Install it with: pip install 'crossmatch[fast]'")
    return kernels


@cache
def blas_threads() -> Any:
    """Control over the threads of BLAS, where threadpoolctl is installed and BLAS is the OpenBLAS of NumPy's wheels.

    One built on OpenMP would not do: there the limit holds only for the thread that sets it.
    """
    try:
        from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        return None
    found = ThreadpoolController().select(internal_api="openblas", threading_layer="pthreads")
    return found if len(found) else None
