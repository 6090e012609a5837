"""The score matrix of two sides in tiles: tile shapes, rounding margins, and the threads that compute them."""

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

from crossmatch.data.arrays import FloatArray, IntArray, make_read_only
from crossmatch.data.collection import SIDES
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.progress import track
from crossmatch.data.scores import Embeddings, Matrix

FLOAT32_ROUNDOFF = 2.0**-24
MIN_SCORES_FOR_NUMBA = 2_000_000  # with fewer, loading numba costs more time than it saves

VectorArrays = tuple[Any, Any, Any, Any]  # query vectors, their scale, candidate vectors, their scale
TileSlices = tuple[slice, slice]  # rows and columns


@dataclass(eq=False)
class ScoreTiles:
    """The scores of all items of side `rows` with all items of side `columns`, computed tile by tile.

    A tile of embeddings is a float32 product of unit vectors (for the dot product: of vectors divided by a power of two, so that
    none is longer than one). It differs from `scale_factor` times the exact scores by at most `rounding_margin`.
    """

    scores: Embeddings | Matrix
    rows: str  # "image" or "caption"
    columns: str
    pool: ThreadPoolExecutor  # threads that prepare vectors and exact scores
    compiled: bool  # whether exact scores come from the compiled loops
    order: dict[str, IntArray] = field(default_factory=dict)  # of the sides of a matrix that are read in another order

    @property
    def shape(self) -> tuple[int, int]:
        if isinstance(self.scores, Matrix):
            return self.scores.shape
        return len(self.scores.vectors(self.rows)), len(self.scores.vectors(self.columns))

    @property
    def is_symmetric(self) -> bool:
        return self.rows == self.columns

    @property
    def is_rounded(self) -> bool:
        """Tiles of embeddings are rounded to float32; tiles of a matrix are exact."""
        return isinstance(self.scores, Embeddings)

    @cached_property
    def scale_factor(self) -> float:
        return self._power_of_two(self.rows) * self._power_of_two(self.columns) if self.is_rounded else 1.0

    @cached_property
    def value_bounds(self) -> tuple[float, float]:
        """Bounds on the values in all tiles."""
        if isinstance(self.scores, Embeddings):
            return -1.001, 1.001
        return float(self.scores.values.min()), float(self.scores.values.max())

    def rounding_margin(self, side: str) -> FloatArray:
        """For each query of this side the largest rounding error of its scores in a tile."""
        if not isinstance(self.scores, Embeddings):
            return np.zeros(self.shape[0 if side == self.rows else 1])
        n, d = self.scores.vectors(side).shape
        lengths = np.ones(n) if self.scores.similarity == "cosine" else self._lengths(side) * self._power_of_two(side)
        underflow = (d + 4) * float(np.finfo(np.float32).tiny)
        margin: FloatArray = 1.01 * (d + 4) * FLOAT32_ROUNDOFF * lengths + underflow
        return margin

    def kernel_vectors(self, direction: str) -> VectorArrays:
        """Vectors and scales of the queries and candidates of a direction; placeholders of the same type for a matrix."""
        if isinstance(self.scores, Embeddings):
            q, c = SIDES[direction]
            arrays = self.scores.vectors(q), self.scores.scale(q), self.scores.vectors(c), self.scores.scale(c)
        else:
            arrays = np.zeros((1, 1)), np.ones(1), np.zeros((1, 1)), np.ones(1)
        views = tuple(array.view() for array in arrays)
        for view in views:
            make_read_only(view)  # otherwise numba compiles once for each mixture of writable and read-only arrays
        return views  # type: ignore[return-value]

    def exact_scorer(self, direction: str) -> Callable[[IntArray, IntArray], FloatArray]:
        """A function from query and item positions to exact scores."""
        kernels = load_kernels() if self.compiled and self.is_rounded else None
        if kernels is None:
            a, b = (self.order.get(side) for side in SIDES[direction])
            return lambda query, item: self.scores.score_pairs(
                query if a is None else a[query], item if b is None else b[item], direction
            )  # fmt: skip
        vectors = kernels.PairVectors(*self.kernel_vectors(direction))

        def score(query: IntArray, item: IntArray) -> FloatArray:
            out = np.empty(len(query))
            kernels.exact_pairs(vectors, query, item, out)
            return out

        return score

    def slices(self, size: int, cuts: tuple[IntArray, IntArray]) -> list[TileSlices]:
        """The rows and columns of each tile of about `size` scores, about twice as wide as high, cut at the given positions.

        Of a symmetric matrix only square tiles on and above the diagonal are needed.
        """
        n_rows, n_columns = self.shape
        if self.is_symmetric:
            parts = split_at(n_rows, round(size**0.5), np.union1d(*cuts))
            return [(slice(*r), slice(*c)) for n, r in enumerate(parts) for c in parts[n:]]
        height = max(1, min(n_rows, round((size / 2) ** 0.5)))
        columns = split_at(n_columns, size // height, cuts[1])
        rows = split_at(n_rows, size // max(last - first for first, last in columns), cuts[0])
        return [(slice(*r), slice(*c)) for r in rows for c in columns]

    def tiles(self, slices: list[TileSlices]) -> Iterator[tuple[int, int, NDArray[np.floating]]]:
        """Tiles one after another, each with its first row and column. A tile is overwritten by the next one."""
        product = self.product() if self.is_rounded else None
        for rows, columns in track(slices, "ranking"):
            if product is not None:
                yield rows.start, columns.start, product(rows, columns)
            else:
                values = self._matrix_tile(rows, columns)
                yield rows.start, columns.start, np.ascontiguousarray(values, dtype=tile_dtype(values.dtype))

    def _matrix_tile(self, rows: slice, columns: slice) -> NDArray[Any]:
        assert isinstance(self.scores, Matrix)
        if not self.order:
            return self.scores.values[rows, columns]
        orders = (self.order.get(side, np.arange(n)) for side, n in zip((self.rows, self.columns), self.shape, strict=True))
        return self.scores.values[np.ix_(*(order[part] for order, part in zip(orders, (rows, columns), strict=True)))]

    def product(self) -> TileProduct:
        """A tile multiplier with memory of its own, for one thread."""
        return TileProduct(self._scaled[self.rows], self._scaled[self.columns])

    @cached_property
    def _scaled(self) -> dict[str, NDArray[np.float32]]:
        """Unit vectors in float32; for the dot product, vectors scaled by a power of two."""
        assert isinstance(self.scores, Embeddings)
        scaled = {}
        for side in {self.rows, self.columns}:
            vectors = self.scores.vectors(side)
            factor = self.scores.scale(side)[:, None] * self._power_of_two(side)
            out = np.empty(vectors.shape, dtype=np.float32)

            def scale(part: tuple[int, int], vectors: Any = vectors, factor: Any = factor, out: Any = out) -> None:
                rows = slice(*part)
                np.multiply(vectors[rows], factor[rows], out=out[rows], dtype=np.float64, casting="same_kind")

            list(self.pool.map(scale, split_range(0, len(vectors), 1024)))
            scaled[side] = out
        return scaled

    def _power_of_two(self, side: str) -> float:
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


class TileProduct:
    """Float32 matrix products of slices of two arrays. A product is overwritten by the next one."""

    def __init__(self, rows: NDArray[np.float32], columns: NDArray[np.float32]) -> None:
        self._rows, self._columns = rows, columns
        self._memory = np.empty(0, dtype=np.float32)  # reused, because fresh pages take time

    def __call__(self, rows: slice, columns: slice) -> NDArray[np.floating]:
        a, b = self._rows[rows], self._columns[columns]
        if len(self._memory) < len(a) * len(b):
            self._memory = np.empty(len(a) * len(b), dtype=np.float32)
        return np.matmul(a, b.T, out=self._memory[: len(a) * len(b)].reshape(len(a), len(b)))


def split_range(first: int, last: int, step: int) -> list[tuple[int, int]]:
    """Split a range into parts of `step` numbers.

    >>> split_range(0, 5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(start, min(start + step, last)) for start in range(first, last, step)]


def split_at(length: int, longest: int, cuts: IntArray) -> list[tuple[int, int]]:
    """Split 0 … `length` at `cuts`, and each part into about equal parts of at most `longest` numbers.

    >>> split_at(10, 4, np.array([6]))
    [(0, 3), (3, 6), (6, 10)]
    """
    edges = [0, *(int(c) for c in cuts if 0 < c < length), length]
    longest = max(1, longest)
    parts = []
    for first, last in pairwise(edges):
        parts += split_range(first, last, -(-(last - first) // -(-(last - first) // longest)))
    return parts


def tile_dtype(dtype: np.dtype[Any]) -> type[np.floating]:
    """The narrowest float type that represents every value of `dtype` (`Matrix` rejects integers that none represents)."""
    return np.float32 if np.can_cast(dtype, np.float32, "safe") else np.float64


@cache
def load_kernels() -> ModuleType | None:
    """The module `rank_count_kernels`, or None if numba is not installed."""
    try:
        from crossmatch.ranking import rank_count_kernels
    except ImportError:
        return None
    return rank_count_kernels


def require_kernels() -> ModuleType:
    kernels = load_kernels()
    if kernels is None:
        raise CrossmatchError("compiled=True needs numba. Install it with: pip install 'crossmatch[fast]'")
    return kernels


@cache
def blas_thread_controller() -> Any:
    """Controller of the BLAS threads; None without threadpoolctl, or if BLAS is not OpenBLAS with its own threads.

    With OpenMP threads the limit would hold only for the thread that sets it.
    """
    try:
        from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        return None
    openblas = ThreadpoolController().select(internal_api="openblas", threading_layer="pthreads")
    return openblas if len(openblas) else None
