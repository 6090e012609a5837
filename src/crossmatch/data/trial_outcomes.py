"""Outcomes of trials: which images and captions a model matched correctly, as a few bits per trial.

With M = min(C, I) matched pairs, bit m of a trial's code says that image m scored strictly highest with its own caption, bit M + m
that caption m scored strictly highest with its own image, and bit 2M that a comparison which decides one of them was a tie. Every
metric of trials is computed from these bits, so nothing else has to be stored to score, test or compare models.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError

MAX_MATCHED_PAIRS = 31  # their bits and the one for ties fit into 64
MIN_TRIALS_FOR_NUMBA = 100_000  # with fewer, loading numba costs more time than it saves


@dataclass(frozen=True, eq=False)
class Outcomes:
    """The outcome codes of N trials.

    >>> outcomes = Outcomes.from_scores(np.array([[[0.9, 0.2], [0.1, 0.3]], [[0.5, 0.2], [0.5, 0.3]]]))
    >>> [f"{code:05b}" for code in outcomes.codes]           # from the right: image 0, image 1, caption 0, caption 1, tie
    ['01111', '10110']
    """

    codes: NDArray[Any]  # one per trial (see the module)
    shape: tuple[int, int]  # number of captions and images of each trial
    scores: FloatArray | None = field(default=None, repr=False)  # where they are known, for analyses
    ties_known: bool = True  # whether the tie bit is known

    @classmethod
    def from_scores(cls, scores: NDArray[np.floating]) -> Outcomes:
        """From scores of shape (N, C, I)."""
        shape = int(scores.shape[1]), int(scores.shape[2])
        return cls(_encode(np.asarray(scores), shape), shape, scores)  # type: ignore[arg-type]

    @classmethod
    def from_wins(cls, wins: BoolArray, shape: tuple[int, int], tied: BoolArray | None = None) -> Outcomes:
        """From known wins.

        `wins` has shape (N, 2M): whether each image chose its caption, then whether each caption chose its image. `tied` says
        which trials were decided by a tie, if that is known.

        >>> Outcomes.from_wins(np.array([[True, True, False, True]]), (2, 2)).codes
        array([11], dtype=uint8)
        """
        bits = 2 * count_matched_pairs(shape)
        if wins.ndim != 2 or wins.shape[1] != bits:
            raise CrossmatchError(f"Wins have shape {wins.shape}, expected (trials, {bits}) for trials of {describe_shape(shape)}.")
        codes = np.zeros(len(wins), dtype=_code_dtype(shape))
        for bit in range(bits):
            codes |= wins[:, bit].astype(codes.dtype) << codes.dtype.type(bit)
        if tied is not None:
            codes |= tied.astype(codes.dtype) << codes.dtype.type(bits)
        return cls(codes, shape, ties_known=tied is not None)

    @property
    def matched_pairs(self) -> int:
        return count_matched_pairs(self.shape)

    @property
    def is_tied(self) -> BoolArray:
        """For each trial whether a comparison that decides it is a tie."""
        return np.asarray(self.codes >> self.codes.dtype.type(2 * self.matched_pairs) != 0)

    def select(self, positions: IntArray | BoolArray) -> Outcomes:
        """The outcomes of some of the trials."""
        scores = None if self.scores is None else self.scores[positions]
        return Outcomes(self.codes[positions], self.shape, scores, self.ties_known)

    def has_wins(self, mask: int) -> BoolArray:
        """For each trial whether all bits of the mask are set."""
        bits = self.codes.dtype.type(mask)
        return np.asarray((self.codes & bits) == bits)

    def __len__(self) -> int:
        return len(self.codes)


def count_matched_pairs(shape: tuple[int, int]) -> int:
    """M, the number of matching image-caption pairs of a trial."""
    pairs = min(shape)
    if pairs > MAX_MATCHED_PAIRS:
        raise CrossmatchError(
            f"Trials of {describe_shape(shape)} have {pairs} matched pairs; the maximum is {MAX_MATCHED_PAIRS}. Split them up."
        )
    return pairs


def count_codes(outcomes: Outcomes, group: IntArray | None = None, groups: int = 1) -> tuple[IntArray, IntArray]:
    """Count how often each code occurs in each group.

    By default all trials are in one group. Returns the codes that occur, and their counts of shape (groups, codes).

    >>> count_codes(Outcomes(np.array([3, 1, 3, 3], dtype=np.uint8), (1, 2)), np.array([0, 0, 1, 1]), 2)
    (array([1, 3]), array([[1, 1], [0, 2]]))
    """
    size = 1 << (2 * outcomes.matched_pairs + 1)
    if size > 1 << 16:
        codes, index = np.unique(outcomes.codes, return_inverse=True)
        cell = index.ravel() if group is None else index.ravel() + len(codes) * group
        return codes.astype(np.int64), np.bincount(cell, minlength=groups * len(codes)).reshape(groups, -1)
    kernels = _load_kernels(len(outcomes))
    if kernels is not None:
        counts = kernels.count_codes(outcomes.codes, np.zeros(0, np.int64) if group is None else group, groups, size)
    else:
        cell = outcomes.codes if group is None else outcomes.codes + size * group
        counts = np.bincount(cell, minlength=groups * size).reshape(groups, size)
    occurring = np.flatnonzero(counts.any(axis=0))
    return occurring, counts[:, occurring]


def _encode(scores: NDArray[np.floating], shape: tuple[int, int]) -> NDArray[Any]:
    kernels, pairs = _load_kernels(len(scores)), count_matched_pairs(shape)
    codes = np.zeros(len(scores), dtype=_code_dtype(shape))
    if kernels is not None:
        return np.asarray(kernels.encode(np.ascontiguousarray(scores), codes, pairs))
    is_tied = np.zeros(len(scores), dtype=bool)
    for m in range(pairs):
        matching = scores[:, m, m]
        for bit, line in ((m, scores[:, :, m]), (pairs + m, scores[:, m, :])):
            distractors = [line[:, n] for n in range(line.shape[1]) if n != m]
            best = np.max(distractors, axis=0) if len(distractors) > 1 else distractors[0] if distractors else -np.inf
            codes |= (matching > best).astype(codes.dtype) << codes.dtype.type(bit)
            is_tied |= matching == best
    return np.asarray(codes | is_tied.astype(codes.dtype) << codes.dtype.type(2 * pairs))


def _code_dtype(shape: tuple[int, int]) -> np.dtype[Any]:
    """The narrowest unsigned type that holds a code."""
    return np.min_scalar_type((1 << (2 * count_matched_pairs(shape) + 1)) - 1)


def _load_kernels(trials: int) -> Any:
    """The compiled loops, for many trials and if numba is installed; else None."""
    if trials < MIN_TRIALS_FOR_NUMBA:
        return None
    try:
        from crossmatch.data import trial_outcome_kernels
    except ImportError:
        return None
    return trial_outcome_kernels


def describe_shape(shape: tuple[int, int]) -> str:
    """Describe (captions, images) in words.

    >>> describe_shape((1, 2))
    '2 images x 1 captions'
    """
    return f"{shape[1]} images x {shape[0]} captions"
