"""Cutting pairs of a caption and its negative until what a blind model can go by says nothing: two scores, and the words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, sparse

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, WrongWords

BINS, MOST_BINS = 100, 4096
NODES = 1000  # of the search for the most pairs; real ones need one
SAME_KEY = "two pairs have the same key, so that it cannot be said which of them is kept. Give each its own."


def adversarial_refinement(
    gap1: ArrayLike,
    gap2: ArrayLike,
    bins: int = BINS,
    keys: ArrayLike | None = None,
    *,
    seed: int = 0,
    reach: tuple[float, float] | None = None,
) -> BoolArray:
    """Which pairs to keep so that neither score tells captions from negatives, nor both of them together.

    The plane of the two gaps (the score of the caption minus that of its negative) is cut into K x K cells. A cell and its mirror
    image through the origin, in which the negatives are better by as much, are cut down to the number of the smaller,

        n'(i, j) = n'(-i, -j) = min( n(i, j), n(-i, -j) ),

    so that a model that sees nothing but the scores is right as often as wrong. A gap g belongs to cell sign(g) · ⌈|g| / w⌉, w the
    width of a cell, so that turning all gaps around turns the cells around, to the last bit; 0 belongs to neither side.
    With an odd K the middle cells lie across the axes. `reach` is how far the grid goes on each axis (1, 1 where scores are
    probabilities, as in the authors' program; by default the largest gap); what lies farther counts to the outermost cell.

    Which pairs of a cell stay is drawn by their `keys` (ids, or whole numbers; by default their places) and the seed, so that the
    order of pairs does not matter. Source: hsieh2023sugarcrepe, algorithm 1.

    >>> gap = np.array([0.9, 0.8, -0.85, 0.2, 0.0])
    >>> adversarial_refinement(gap, gap, bins=4).tolist()      # one of the first two, the third, nothing to balance the fourth
    [False, True, True, False, True]
    """
    code, most = _codes(gap1, gap2, bins, reach)
    draw = draws(np.arange(len(code)) if keys is None else np.asarray(keys), len(code), seed)
    return _equal_numbers(code, draw, most) if len(code) else np.zeros(0, dtype=np.bool_)


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
    """The most pairs in which opposite cells hold equal numbers and every word stands as often in captions as in negatives.

        max Σ_i s_i   with  Σ_i s_i x_iw = 0 for every word w,  Σ_{i in c} s_i = Σ_{i in -c} s_i for every cell c,  s_i in {0, 1}

    x_iw (`words`, pairs x words) is how often w stands in the caption of pair i more than in its negative. Then a bag of words has
    nothing to learn from the pairs that are kept: where all weights are nought, the slope of a logistic classifier's loss is
    -1/2 Σ_i s_i x_i, which is nought, too, and the loss is convex, so that no weights are the best ones. A pair in which one word
    replaces another is an arrow between two words, and what is kept are closed walks of such arrows. A word that is only added
    leads nowhere back: whoever counts words finds additions by their length alone, so that they leave, but for those that a shorter
    negative makes good.

    The program is solved by HiGHS, exactly unless a thousand steps of its search do not do; closed walks need one. Which of equally
    good choices is taken, the keys and the seed decide, and not the order of pairs.

    >>> words = np.array([[1, -1], [-1, 1], [1, -1], [0, -1]])     # dog for cat, cat for dog, dog for cat again, a dog added
    >>> word_refinement(np.zeros(4), np.zeros(4), words, keys=["a", "b", "c", "d"]).tolist()
    [False, True, True, False]
    """
    code, _ = _codes(gap1, gap2, bins, reach)
    n = len(code)
    table = sparse.csr_matrix(words, dtype=np.float64)
    if table.shape[0] != n:
        raise CrossmatchError(f"there are the words of {table.shape[0]:,} pairs and the gaps of {n:,}. Give both for each pair.")
    draw = draws(np.arange(n) if keys is None else np.asarray(keys), n, seed)
    order = np.argsort(draw)
    if (np.diff(draw[order]) == 0).any():
        raise CrossmatchError(SAME_KEY)
    cell, sign = np.unique(np.abs(code[order]), return_inverse=True)[1].ravel(), np.sign(code[order])
    cells = sparse.csr_matrix((sign.astype(np.float64), (cell, np.arange(n))), shape=(n, n))
    equal = sparse.vstack([table[order].T, cells], format="csr")
    keep = np.zeros(n, dtype=np.bool_)
    keep[order] = _most(equal[np.flatnonzero(np.diff(equal.indptr))], n)
    return keep


def _most(equal: Any, n: int) -> BoolArray:
    """The most of n pairs for which all rows of a matrix sum to nought; of equally many those that come first."""
    if not equal.shape[0]:
        return np.ones(n, dtype=np.bool_)
    weight = 1 + np.linspace(1.0, 0.0, n) / (n + 1)  # all that is added up is less than one more pair
    found = optimize.milp(
        -weight,
        integrality=np.ones(n, dtype=np.int64),
        bounds=optimize.Bounds(0.0, 1.0),
        constraints=optimize.LinearConstraint(equal, 0.0, 0.0),
        options={"node_limit": NODES, "mip_rel_gap": 0.0},
    )
    if found.x is None:
        raise CrossmatchError(f"no choice of pairs was found ({found.message}). Balance the scores alone.")
    return np.asarray(found.x > 0.5, dtype=np.bool_)


def _codes(gap1: ArrayLike, gap2: ArrayLike, bins: int, reach: tuple[float, float] | None) -> tuple[IntArray, int]:
    """The cell of each pair as one number, of which its mirror image has the other sign; and the largest that there can be."""
    gaps = [_gap(gap, name) for gap, name in ((gap1, "first"), (gap2, "second"))]
    n = len(gaps[0])
    if len(gaps[1]) != n:
        raise CrossmatchError(
            f"there are {n:,} gaps of the first score and {len(gaps[1]):,} of the second. Give one of each per pair."
        )
    if not 1 <= bins <= MOST_BINS:
        raise WrongWords(f"a grid of {bins} x {bins} cells was asked for; 1 to {MOST_BINS} on each side was expected.")
    if not n:
        return np.zeros(0, dtype=np.int64), 0
    ends = reach if reach is not None else tuple(float(np.abs(gap).max()) for gap in gaps)
    first, second = (_cells(gap, bins, end) for gap, end in zip(gaps, ends, strict=True))
    side = bins // 2
    return first * (2 * side + 1) + second, (2 * side + 1) * side + side


def _gap(values: ArrayLike, which: str) -> FloatArray:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1:
        raise CrossmatchError(f"the gaps of the {which} score have shape {found.shape}; one number for each pair was expected.")
    if not np.isfinite(found).all():
        raise CrossmatchError(f"a gap of the {which} score is not finite. Leave its pair out, or mend the scorer.")
    return found


def _cells(gap: FloatArray, bins: int, end: float) -> IntArray:
    """The number of the cell of each gap: 0 in the middle, negative where the negative is better."""
    if end < 0 or not math.isfinite(end):
        raise WrongWords(f"the grid shall reach as far as {end}; a positive number was expected.")
    if not end or bins == 1:
        return np.zeros(len(gap), dtype=np.int64)
    far = np.abs(gap) / (2 * end / bins)
    number = np.ceil(far) if bins % 2 == 0 else np.floor(far + 0.5)
    return np.asarray(np.sign(gap) * np.minimum(number, bins // 2), dtype=np.int64)


def _equal_numbers(code: IntArray, draw: NDArray[np.uint64], most: int) -> BoolArray:
    """Of each cell as many as its mirror image has, those that are drawn first; the cell that is its own image is kept whole."""
    count = np.bincount(code + most, minlength=2 * most + 1)
    allowed = np.minimum(count, count[::-1])
    order = _ordered(code + most, draw)
    start = np.concatenate(([0], np.cumsum(count)[:-1]))
    place = code[order] + most
    keep = np.zeros(len(code), dtype=np.bool_)
    keep[order] = np.arange(len(code)) - start[place] < allowed[place]
    twice = (np.diff(draw[order]) == 0) & (np.diff(place) == 0)
    if twice.any():
        raise CrossmatchError(SAME_KEY)
    return keep


def _ordered(place: IntArray, draw: NDArray[np.uint64]) -> IntArray:
    """The pairs cell by cell, in each as they are drawn: sorted by one number where its 64 bits tell all of them apart."""
    bits = np.uint64(64 - int(place.max()).bit_length())
    one = (place.astype(np.uint64) << bits) | (draw >> (np.uint64(64) - bits))
    order = np.argsort(one)
    level = one[order]
    return np.lexsort((draw, place)) if (level[1:] == level[:-1]).any() else order


def draws(keys: NDArray[Any], n: int, seed: int) -> NDArray[np.uint64]:
    """64 random bits for each key, by the key and the seed alone: a hash over its letters, all keys at a time."""
    if keys.shape != (n,):
        raise CrossmatchError(f"keys have shape {keys.shape} for {n:,} pairs; one for each was expected.")
    if not n:
        return np.zeros(0, dtype=np.uint64)
    mixed = np.full(n, np.uint64(seed & 0xFFFFFFFFFFFFFFFF), dtype=np.uint64)
    if keys.dtype.kind in "iu":
        return _stirred(_stirred(mixed) ^ keys.astype(np.uint64))
    text = keys.astype(np.str_)
    width = text.dtype.itemsize // 4
    even = np.ascontiguousarray(text.astype(f"<U{width + width % 2 or 2}")).view(np.uint64).reshape(n, -1)  # two letters at a time
    for column in even.T:
        there = np.flatnonzero(column)  # ids end where their letters do, whatever the longest of them is
        if len(there) == n:
            mixed = _stirred(mixed ^ column)
        else:
            mixed[there] = _stirred(mixed[there] ^ column[there])
    return _stirred(mixed)


def _stirred(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One step of splitmix64 (steele2014fast)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x
