"""Count the positives among the first K candidates where there are too many positives to list them.

A query may have thousands of plausible matches, so their ranks are not counted one by one. For a cutoff K it is enough to know,
with t the K-th highest score,

    above = |{ c : s(c) > t }|      tie_size = |{ c : s(c) = t }|      and how many of each are positives.

All candidates above t are among the first K. Of those tied with t, K - above are, each with the same probability.

The sweep stores every score of embeddings in 16 bits (in a temporary file where there are many). A histogram of a query's stored
scores finds the one of t; candidates within the rounding margin of it are compared by their exact scores.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.collection import SIDES
from crossmatch.data.rank_counts import CountsAtK, CutoffRequest

if TYPE_CHECKING:
    from crossmatch.ranking.tiles import ScoreTiles

MAX_BYTES_IN_MEMORY = 1 << 28  # a larger array is a temporary file
QUANTIZATION_STEPS = 65_000  # from the lowest to the highest score
QUERIES_PER_BLOCK = 512


@dataclass(frozen=True, eq=False)
class QuantizedScores:
    """Every score in 16 bits: the integer part of (score / 2 - lowest) · steps_per_unit.

    Scores are halved because the range of two float64 numbers may be twice the largest float64.
    """

    values: NDArray[np.uint16]
    lowest: float
    steps_per_unit: float

    @classmethod
    def allocate(cls, tiles: ScoreTiles) -> QuantizedScores:
        """Room for all scores of a matrix."""
        low, high = tiles.value_bounds
        steps_per_unit = QUANTIZATION_STEPS / max(high / 2 - low / 2, 1e-300)
        return cls(allocate_array(tiles.shape, np.dtype(np.uint16)), low / 2, steps_per_unit)

    def fill(self, tile: NDArray[np.floating], row0: int, column0: int) -> None:
        """Store the scores of one tile."""
        from crossmatch.ranking.counts_at_k_kernels import quantize

        target = self.values[row0 : row0 + tile.shape[0], column0 : column0 + tile.shape[1]]
        quantize(tile, self.lowest, self.steps_per_unit, target)

    def margin_in_steps(self, margin: FloatArray) -> IntArray:
        """The number of steps around that of t within which an exact score may be on the other side of t.

        Rounding moves a score and the K-th highest score by at most the margin each. One step more is for the quantization.
        """
        return (np.ceil(margin * self.steps_per_unit) + 1).astype(np.int64)


def allocate_array(shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Allocate an array in memory, or in a temporary file if it is large."""
    if shape[0] * shape[1] * dtype.itemsize <= MAX_BYTES_IN_MEMORY:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(prefix="crossmatch-") as file:  # the memory map outlives the handle
        return np.memmap(file, dtype=dtype, shape=shape)


def count_at_cutoffs(
    tiles: ScoreTiles,
    request: CutoffRequest,
    quantized: QuantizedScores,
    query_order: IntArray | None = None,
    item_order: IntArray | None = None,
) -> CountsAtK:
    """Count at all cutoffs from the quantized scores, whose queries and items are in the given order."""
    from crossmatch.ranking import counts_at_k_kernels, rank_count_kernels

    ordered = request.reorder(query_order, item_order)
    by_row = request.direction == "i2t"
    queries, candidates = tiles.shape if by_row else tiles.shape[::-1]
    margin = quantized.margin_in_steps(tiles.rounding_margin(SIDES[request.direction][0]))
    vectors = rank_count_kernels.PairVectors(*tiles.kernel_vectors(request.direction))
    counts = np.zeros((4, *request.k.shape), dtype=np.int64)

    def count(part: tuple[int, int]) -> None:
        lines = quantized.values[slice(*part)] if by_row else counts_at_k_kernels.copy_columns(quantized.values, *part)
        counts_at_k_kernels.count_lines(
            lines, part[0], ordered.k, ordered.query_set, ordered.item_set, ordered.first_matching_zeta, margin, vectors, counts
        )  # fmt: skip

    step = min(QUERIES_PER_BLOCK, max(1, (1 << 23) // candidates))
    list(tiles.pool.map(count, [(first, min(first + step, queries)) for first in range(0, queries, step)]))
    positions = request.query if query_order is None else np.argsort(query_order)[request.query]
    return request.counts(counts[..., positions], candidates)
