"""Selection of caption-negative pairs under which a blind model learns nothing: from two scores, and from words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, sparse

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError, UsageError

BINS, MAX_BINS = 100, 4096
MAX_NODES = 1000  # of the integer program; real data need one
DUPLICATE_KEY = "Two pairs have the same key, so the choice between them is undefined. Give each pair a unique key."


def adversarial_refinement(
    gap1: ArrayLike,
    gap2: ArrayLike,
    bins: int = BINS,
    keys: ArrayLike | None = None,
    *,
    seed: int = 0,
    reach: tuple[float, float] | None = None,
) -> BoolArray:
    """Select pairs so that neither score, nor both together, tells captions from negatives.

    The plane of the two gaps (score of the caption minus score of its negative) is divided into K x K cells. A cell and its mirror
    image through the origin are cut to the size of the smaller one,

        n'(i, j) = n'(-i, -j) = min( n(i, j), n(-i, -j) ),

    so that a model that sees only the scores is right as often as wrong. A gap g belongs to cell sign(g) · ⌈|g| / w⌉, where w is
    the width of a cell; a gap of 0 belongs to neither side. Negating all gaps therefore mirrors the cells exactly. With an odd K
    the middle cells lie across the axes.

    Args:
        gap1: Gaps of the first score.
        gap2: Gaps of the second score.
        bins: K, cells on each side of the grid.
        keys: Ids or integers that decide, with the seed, which pairs of a cell stay; by default the positions. The order of pairs
            does not matter.
        seed: Seed of the choice.
        reach: Extent of the grid on each axis; by default the largest gap. The authors' program uses (1, 1) for probabilities.
            Larger gaps count to the outermost cell.

    Returns:
        Mask of the selected pairs.

    Source: hsieh2023sugarcrepe, algorithm 1.

    >>> gap = np.array([0.9, 0.8, -0.85, 0.2, 0.0])
    >>> adversarial_refinement(gap, gap, bins=4).tolist()      # one of the first two, the third; nothing balances the fourth
    [False, True, True, False, True]
    """
    code, largest = _cell_codes(gap1, gap2, bins, reach)
    bits = hash_keys(np.arange(len(code)) if keys is None else np.asarray(keys), len(code), seed)
    return _balance_cells(code, bits, largest) if len(code) else np.zeros(0, dtype=np.bool_)


def word_refinement(
    gap1: ArrayLike,
    gap2: ArrayLike,
    words: Any,
    bins: int = BINS,
    keys: ArrayLike | None = None,
    *,
    seed: int = 0,
    reach: tuple[float, float] | None = None,
) -> BoolArray:
    """Select the most pairs with balanced cells in which every word occurs as often in captions as in negatives.

        max Σ_i s_i   with  Σ_i s_i x_iw = 0 for every word w,  Σ_{i in c} s_i = Σ_{i in -c} s_i for every cell c,  s_i in {0, 1}

    x_iw is the count of w in caption i minus its count in the negative. A bag of words then learns nothing from the selected pairs:
    at weights 0 the gradient of the logistic loss is -1/2 Σ_i s_i x_i = 0, and the loss is convex, so weights 0 are optimal. A pair
    that replaces one word is an edge between two words, and the selected pairs form closed walks. A word that is only added has no
    way back, so additions are dropped unless a shorter negative compensates for them: word counts would reveal them by length.

    HiGHS solves the program, exactly unless it needs more than a thousand nodes. Keys and seed decide between equally good
    selections. The arguments are those of `adversarial_refinement`; `words` is the matrix x, pairs x words
    (`blind_classifier.word_differences`), and keys must be unique.

    >>> words = np.array([[1, -1], [-1, 1], [1, -1], [0, -1]])     # dog for cat, cat for dog, dog for cat again, a dog added
    >>> word_refinement(np.zeros(4), np.zeros(4), words, keys=["a", "b", "c", "d"]).tolist()
    [False, True, True, False]
    """
    code, _ = _cell_codes(gap1, gap2, bins, reach)
    n = len(code)
    table = sparse.csr_matrix(words, dtype=np.float64)
    if table.shape[0] != n:
        raise CrossmatchError(f"Expected words and gaps of the same pairs, got words of {table.shape[0]:,} and gaps of {n:,}.")
    bits = hash_keys(np.arange(n) if keys is None else np.asarray(keys), n, seed)
    order = np.argsort(bits)
    if (np.diff(bits[order]) == 0).any():
        raise CrossmatchError(DUPLICATE_KEY)
    cell, sign = np.unique(np.abs(code[order]), return_inverse=True)[1].ravel(), np.sign(code[order])
    cells = sparse.csr_matrix((sign.astype(np.float64), (cell, np.arange(n))), shape=(n, n))
    constraints = sparse.vstack([table[order].T, cells], format="csr")
    keep = np.zeros(n, dtype=np.bool_)
    keep[order] = _largest_balanced_subset(constraints[np.flatnonzero(np.diff(constraints.indptr))], n)
    return keep


def _largest_balanced_subset(constraints: Any, n: int) -> BoolArray:
    """The largest subset of n pairs for which all rows of a matrix sum to 0; of equally large ones, the earliest pairs."""
    if not constraints.shape[0]:
        return np.ones(n, dtype=np.bool_)
    weight = 1 + np.linspace(1.0, 0.0, n) / (n + 1)  # all preferences together weigh less than one pair
    solution = optimize.milp(
        -weight,
        integrality=np.ones(n, dtype=np.int64),
        bounds=optimize.Bounds(0.0, 1.0),
        constraints=optimize.LinearConstraint(constraints, 0.0, 0.0),
        options={"node_limit": MAX_NODES, "mip_rel_gap": 0.0},
    )
    if solution.x is None:
        raise CrossmatchError(f"The word balance has no solution ({solution.message}). Run without --words.")
    return np.asarray(solution.x > 0.5, dtype=np.bool_)


def _cell_codes(gap1: ArrayLike, gap2: ArrayLike, bins: int, reach: tuple[float, float] | None) -> tuple[IntArray, int]:
    """Cell of each pair as one number, negated for the mirror cell; and the largest possible number."""
    gaps = [_check_gaps(gap, name) for gap, name in ((gap1, "first"), (gap2, "second"))]
    n = len(gaps[0])
    if len(gaps[1]) != n:
        raise CrossmatchError(f"Expected two gaps per pair, got {n:,} of the first score and {len(gaps[1]):,} of the second.")
    if not 1 <= bins <= MAX_BINS:
        raise UsageError(f"--bins must be from 1 to {MAX_BINS} (got {bins}).")
    if not n:
        return np.zeros(0, dtype=np.int64), 0
    extents = reach if reach is not None else tuple(float(np.abs(gap).max()) for gap in gaps)
    first, second = (_cell_numbers(gap, bins, extent) for gap, extent in zip(gaps, extents, strict=True))
    side = bins // 2
    return first * (2 * side + 1) + second, (2 * side + 1) * side + side


def _check_gaps(values: ArrayLike, name: str) -> FloatArray:
    gaps = np.asarray(values, dtype=np.float64)
    if gaps.ndim != 1:
        raise CrossmatchError(f"Gaps of the {name} score: expected one number per pair, got shape {gaps.shape}.")
    if not np.isfinite(gaps).all():
        raise CrossmatchError(f"Gaps of the {name} score: expected finite numbers. Drop the pair, or fix the scorer.")
    return gaps


def _cell_numbers(gap: FloatArray, bins: int, extent: float) -> IntArray:
    """Number of the cell of each gap on one axis: 0 in the middle, negative if the negative scores higher."""
    if extent < 0 or not math.isfinite(extent):
        raise UsageError(f"The reach of the grid must be a positive number (got {extent}).")
    if not extent or bins == 1:
        return np.zeros(len(gap), dtype=np.int64)
    distance = np.abs(gap) / (2 * extent / bins)
    number = np.ceil(distance) if bins % 2 == 0 else np.floor(distance + 0.5)
    return np.asarray(np.sign(gap) * np.minimum(number, bins // 2), dtype=np.int64)


def _balance_cells(code: IntArray, bits: NDArray[np.uint64], largest: int) -> BoolArray:
    """Keep as many pairs of each cell as its mirror cell has, lowest bits first; the central cell is kept whole."""
    count = np.bincount(code + largest, minlength=2 * largest + 1)
    allowed = np.minimum(count, count[::-1])
    order = _sort_within_cells(code + largest, bits)
    start = np.concatenate(([0], np.cumsum(count)[:-1]))
    cell = code[order] + largest
    keep = np.zeros(len(code), dtype=np.bool_)
    keep[order] = np.arange(len(code)) - start[cell] < allowed[cell]
    if ((np.diff(bits[order]) == 0) & (np.diff(cell) == 0)).any():
        raise CrossmatchError(DUPLICATE_KEY)
    return keep


def _sort_within_cells(cell: IntArray, bits: NDArray[np.uint64]) -> IntArray:
    """Order by cell, then by bits. One sort of a combined number is faster than `np.lexsort`, which decides between equal ones."""
    shift = np.uint64(64 - int(cell.max()).bit_length())
    combined = (cell.astype(np.uint64) << shift) | (bits >> (np.uint64(64) - shift))
    order = np.argsort(combined)
    ordered = combined[order]
    return np.lexsort((bits, cell)) if (ordered[1:] == ordered[:-1]).any() else order


def hash_keys(keys: NDArray[Any], n: int, seed: int) -> NDArray[np.uint64]:
    """Hash each key with the seed to 64 bits, vectorised over all keys."""
    if keys.shape != (n,):
        raise CrossmatchError(f"Expected one key for each of {n:,} pairs, got shape {keys.shape}.")
    if not n:
        return np.zeros(0, dtype=np.uint64)
    bits = np.full(n, np.uint64(seed & 0xFFFFFFFFFFFFFFFF), dtype=np.uint64)
    if keys.dtype.kind in "iu":
        return _splitmix64(_splitmix64(bits) ^ keys.astype(np.uint64))
    text = keys.astype(np.str_)
    width = text.dtype.itemsize // 4
    # two characters per column
    columns = np.ascontiguousarray(text.astype(f"<U{width + width % 2 or 2}")).view(np.uint64).reshape(n, -1)
    for column in columns.T:
        filled = np.flatnonzero(column)  # padding must not count: the hash may not depend on the longest key
        if len(filled) == n:
            bits = _splitmix64(bits ^ column)
        else:
            bits[filled] = _splitmix64(bits[filled] ^ column[filled])
    return _splitmix64(bits)


def _splitmix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One step of splitmix64 (steele2014fast)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x
