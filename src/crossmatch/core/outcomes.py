"""What came of forced choices: which image took its own caption, which caption its own image, a few bits for each trial.

With M = min(C, I) matched pairs, bit m of a trial's code says that image m scored strictly highest with its own caption, bit M + m
that caption m scored strictly highest with its own image, and bit 2M that a comparison which decides one of them was a tie. Every
metric of a trial is a question to these bits, so nothing else has to be kept to score it, to test it or to compare two models.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError

MOST = 31  # matched pairs: their bits and the one for ties fit 64
MANY = 100_000  # trials from which on the compiled loop is worth loading


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The codes of N trials of `shape` (captions, images); `scores` are kept where they are known, for analyses.

    >>> one = Outcomes.of(np.array([[[0.9, 0.2], [0.1, 0.3]], [[0.5, 0.2], [0.5, 0.3]]]))
    >>> [f"{code:05b}" for code in one.codes]           # from the right: image 0, image 1, caption 0, caption 1, tie
    ['01111', '10110']
    """

    codes: NDArray[Any]
    shape: tuple[int, int]
    scores: FloatArray | None = field(default=None, repr=False)
    ties_known: bool = True

    @classmethod
    def of(cls, scores: NDArray[np.floating]) -> Outcomes:
        """The codes of scores of shape (N, C, I)."""
        shape = int(scores.shape[1]), int(scores.shape[2])
        return cls(_coded(np.asarray(scores), shape), shape, scores)  # type: ignore[arg-type]

    @classmethod
    def from_wins(cls, wins: BoolArray, shape: tuple[int, int], tied: BoolArray | None = None) -> Outcomes:
        """Known wins of shape (N, 2M): first whether each image took its caption, then whether each caption took its image.

        Whether a loss was a tie is not known, unless it is told.

        >>> Outcomes.from_wins(np.array([[True, True, False, True]]), (2, 2)).codes
        array([11], dtype=uint8)
        """
        bits = 2 * matched(shape)
        if wins.ndim != 2 or wins.shape[1] != bits:
            raise CrossmatchError(f"wins have shape {wins.shape}; (trials, {bits}) was expected for trials of {_named(shape)}.")
        codes = np.zeros(len(wins), dtype=_dtype(shape))
        for bit in range(bits):
            codes |= wins[:, bit].astype(codes.dtype) << codes.dtype.type(bit)
        if tied is not None:
            codes |= tied.astype(codes.dtype) << codes.dtype.type(bits)
        return cls(codes, shape, ties_known=tied is not None)

    @property
    def matched(self) -> int:
        return matched(self.shape)

    @property
    def tied(self) -> BoolArray:
        """Where a comparison that decides the trial is a tie."""
        return np.asarray(self.codes >> self.codes.dtype.type(2 * self.matched) != 0)

    def chosen(self, which: IntArray | BoolArray) -> Outcomes:
        """The outcomes of some of the trials."""
        return Outcomes(self.codes[which], self.shape, None if self.scores is None else self.scores[which], self.ties_known)

    def won(self, mask: int) -> BoolArray:
        """Where all bits of the mask are set."""
        asked = self.codes.dtype.type(mask)
        return np.asarray((self.codes & asked) == asked)

    def __len__(self) -> int:
        return len(self.codes)


def matched(shape: tuple[int, int]) -> int:
    """M, the pairs of a trial that belong together."""
    pairs = min(shape)
    if pairs > MOST:
        raise CrossmatchError(
            f"trials of {_named(shape)} have {pairs} matched pairs; at most {MOST} are understood. Split them up."
        )
    return pairs


def tally(outcomes: Outcomes, member: IntArray | None = None, groups: int = 1) -> tuple[IntArray, IntArray]:
    """The codes that occur, and how often each does in each group: shape (groups, codes).

    >>> tally(Outcomes(np.array([3, 1, 3, 3], dtype=np.uint8), (1, 2)), np.array([0, 0, 1, 1]), 2)
    (array([1, 3]), array([[1, 1], [0, 2]]))
    """
    size = 1 << (2 * outcomes.matched + 1)
    if size > 1 << 16:
        patterns, place = np.unique(outcomes.codes, return_inverse=True)
        at = place.ravel() if member is None else place.ravel() + len(patterns) * member
        return patterns.astype(np.int64), np.bincount(at, minlength=groups * len(patterns)).reshape(groups, -1)
    loops = _loops(len(outcomes))
    if loops is not None:
        counts = loops.tally(outcomes.codes, np.zeros(0, np.int64) if member is None else member, groups, size)
    else:
        at = outcomes.codes if member is None else outcomes.codes + size * member
        counts = np.bincount(at, minlength=groups * size).reshape(groups, size)
    there = np.flatnonzero(counts.any(axis=0))
    return there, counts[:, there]


def _coded(scores: NDArray[np.floating], shape: tuple[int, int]) -> NDArray[Any]:
    loops, pairs = _loops(len(scores)), matched(shape)
    if loops is not None:
        return np.asarray(loops.codes(np.ascontiguousarray(scores), np.zeros(len(scores), _dtype(shape)), pairs))
    codes = np.zeros(len(scores), dtype=_dtype(shape))
    tie = np.zeros(len(scores), dtype=bool)
    for m in range(pairs):
        own = scores[:, m, m]
        for bit, line in ((m, scores[:, :, m]), (pairs + m, scores[:, m, :])):
            rivals = [line[:, n] for n in range(line.shape[1]) if n != m]
            best = np.max(rivals, axis=0) if len(rivals) > 1 else rivals[0] if rivals else -np.inf
            codes |= (own > best).astype(codes.dtype) << codes.dtype.type(bit)
            tie |= own == best
    return np.asarray(codes | tie.astype(codes.dtype) << codes.dtype.type(2 * pairs))


def _dtype(shape: tuple[int, int]) -> np.dtype[Any]:
    """The narrowest unsigned type that holds a code."""
    return np.min_scalar_type((1 << (2 * matched(shape) + 1)) - 1)


def _loops(n: int) -> Any:
    """The compiled loops, for many trials and where numba is installed."""
    if n < MANY:
        return None
    try:
        from crossmatch.core import outcome_kernels
    except ImportError:
        return None
    return outcome_kernels


def _named(shape: tuple[int, int]) -> str:
    return f"{shape[1]} images x {shape[0]} captions"
