"""Bradley-Terry strengths from pairwise comparisons, including the cases without a finite maximum likelihood."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray, make_read_only, require_finite
from crossmatch.data.errors import CrossmatchError

MAX_STEPS = 200  # Newton's method usually needs about ten
TOLERANCE = 1e-10  # allowed gap between expected and observed wins, as a share of the comparisons


@dataclass(frozen=True, eq=False)
class ComparisonCounts:
    """Counts of pairwise preferences: `wins[i, j]` counts i preferred to j, `ties[i, j]` (symmetric) counts no preference.

    The diagonal is ignored.

    >>> counts = ComparisonCounts.from_outcomes([("a", "b", 1), ("a", "b", 1), ("b", "a", 1), ("b", "c", 0.5), ("c", "a", 0)])
    >>> counts.items
    ('a', 'b', 'c')
    >>> counts.wins
    array([[0, 2, 1],
           [1, 0, 0],
           [0, 0, 0]])
    """

    items: tuple[str, ...]
    wins: IntArray
    ties: IntArray

    def __post_init__(self) -> None:
        n = len(self.items)
        for name in ("wins", "ties"):
            matrix = np.asarray(getattr(self, name))
            if matrix.shape != (n, n):
                raise CrossmatchError(f"{name} must have shape ({n}, {n}) for {n} items (got {matrix.shape}).")
            require_finite(matrix.astype(np.float64), name, "Give counts.")
            if (matrix < 0).any() or (matrix != np.floor(matrix)).any():
                raise CrossmatchError(f"{name} must be counts (got {matrix[(matrix < 0) | (matrix != np.floor(matrix))][0]}).")
            counts = matrix.astype(np.int64)
            np.fill_diagonal(counts, 0)
            object.__setattr__(self, name, counts)
            make_read_only(counts)
        if (self.ties != self.ties.T).any():
            raise CrossmatchError("ties must be a symmetric matrix: ties[i, j] and ties[j, i] are the same comparisons.")

    @classmethod
    def from_outcomes(cls, comparisons: Iterable[tuple[str, str, float]]) -> ComparisonCounts:
        """Create counts from triples (first, second, outcome); outcome 1: first preferred, 0: second preferred, 0.5: tie."""
        outcomes = list(comparisons)
        items = tuple(sorted({str(x) for first, second, _ in outcomes for x in (first, second)}))
        index = {item: n for n, item in enumerate(items)}
        wins, ties = np.zeros((2, len(items), len(items)), dtype=np.int64)
        for first, second, outcome in outcomes:
            a, b = index[str(first)], index[str(second)]
            if outcome not in (0, 0.5, 1):
                raise CrossmatchError(f"The outcome of {first} against {second} must be 1, 0.5 or 0 (got {outcome}).")
            if outcome == 0.5:
                ties[a, b] += 1
                ties[b, a] += a != b
            else:
                wins[(a, b) if outcome else (b, a)] += 1
        return cls(items, wins, ties)

    @classmethod
    def from_matrix(cls, wins: Sequence[Sequence[int]] | IntArray, items: Sequence[str] | None = None) -> ComparisonCounts:
        """Create counts from a matrix: row preferred to column."""
        counts = np.asarray(wins)
        names = tuple(items) if items is not None else tuple(str(n) for n in range(len(counts)))
        return cls(names, counts, np.zeros_like(counts))


def bradley_terry(comparisons: ComparisonCounts, prior: float = 0.0) -> FloatArray:
    """Maximum likelihood strengths of the items, which sum to 1.

        P(i > j) = p_i / (p_i + p_j)          at the maximum:  Σ_j w_ij = Σ_j n_ij · p_i / (p_i + p_j)

    w_ij counts i over j, n_ij = w_ij + w_ji. A tie is half a win for each. The fit uses Newton's method on log p and stops when
    observed and expected wins differ by at most 1e-10 of the comparisons.

    A finite maximum exists if and only if every item is connected to every other by a chain of wins (ford1957solution). Otherwise
    the limit is returned: items outside the one group that never lost to others get 0.

    Args:
        comparisons: The counts.
        prior: Number of wins added to both sides of every pair; any value above 0 gives a finite maximum.

    Raises:
        CrossmatchError: Groups of items cannot be placed on one scale, because they were never compared or never lost outside.

    Source: bradley1952rank; hunter2004mm; chun2022eccv, sec. D.1.

    >>> bradley_terry(ComparisonCounts.from_matrix([[0, 3], [1, 0]]))
    array([0.75, 0.25])
    >>> bradley_terry(ComparisonCounts.from_matrix([[0, 3, 5], [1, 0, 2], [0, 0, 0]]))
    array([0.75, 0.25, 0.  ])
    """
    return np.asarray(_strengths(_with_ties(comparisons, prior)[None], comparisons.items)[0], dtype=np.float64)


def bradley_terry_interval(
    comparisons: ComparisonCounts, *, samples: int = 1000, seed: int = 0, level: float = 0.95, prior: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Percentile bootstrap intervals of the strengths (efron1993introduction, ch. 13).

    A replicate draws, for every two items, as many outcomes as were observed. Who was compared with whom stays fixed. Answers of
    the same person count as independent, so the interval is too narrow if few people gave many answers.

    >>> low, high = bradley_terry_interval(ComparisonCounts.from_matrix([[0, 30], [10, 0]]))
    >>> bool(low[0] < 0.75 < high[0])
    True
    """
    if samples < 2:
        raise CrossmatchError(f"samples must be at least 2 for a bootstrap interval (got {samples}); 1000 is usual.")
    n = len(comparisons.items)
    a, b = np.triu_indices(n, 1)
    outcome_counts = np.stack([comparisons.wins[a, b], comparisons.wins[b, a], comparisons.ties[a, b]], axis=1)
    total = outcome_counts.sum(axis=1)
    share = np.where(total[:, None] > 0, outcome_counts / np.maximum(total, 1)[:, None], [1.0, 0.0, 0.0])
    drawn = np.random.default_rng(seed).multinomial(total, share, size=(samples, len(a)))
    wins = np.zeros((samples, n, n))
    wins[:, a, b] = drawn[..., 0] + drawn[..., 2] / 2
    wins[:, b, a] = drawn[..., 1] + drawn[..., 2] / 2
    strengths = _strengths(_with_prior(wins, prior), comparisons.items)
    low, high = np.quantile(strengths, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def _with_ties(comparisons: ComparisonCounts, prior: float) -> FloatArray:
    return _with_prior(comparisons.wins + comparisons.ties / 2, prior)


def _with_prior(wins: FloatArray, prior: float) -> FloatArray:
    if prior < 0:
        raise CrossmatchError(f"prior must be 0 or more wins (got {prior}).")
    return wins + prior * (1 - np.eye(wins.shape[-1]))


def _strengths(wins: FloatArray, items: Sequence[str]) -> FloatArray:
    """Strengths for each matrix of wins; matrices with the same unbeaten group are fitted together."""
    beats, pattern = np.unique(wins > 0, axis=0, return_inverse=True)
    tops = np.stack([_unbeaten_items(b, items) for b in beats])[pattern.ravel()]
    out = np.zeros(tops.shape)
    groups, member = np.unique(tops, axis=0, return_inverse=True)
    for g, top in enumerate(groups):
        rows = np.flatnonzero(member.ravel() == g)
        out[np.ix_(rows, np.flatnonzero(top))] = _fit(wins[np.ix_(rows, np.flatnonzero(top), np.flatnonzero(top))])
    return out


def _unbeaten_items(beats: BoolArray, items: Sequence[str]) -> BoolArray:
    """The items of the one strongly connected group that never lost to others; all other strengths are 0."""
    if len(items) < 2:
        raise CrossmatchError(f"Comparisons need at least two items (got {len(items)}).")
    component_count, component = connected_components(beats, directed=False)
    if component_count > 1:
        raise CrossmatchError(
            f"Items fall into {component_count} groups that were never compared with each other: "
            f"{_format_groups(component, range(component_count), items)}. "
            "Add comparisons between the groups, or rank each group separately."
        )
    count, group = connected_components(beats, directed=True, connection="strong")
    across = beats & (group[:, None] != group[None, :])
    unbeaten = np.setdiff1d(np.arange(count), group[across.any(axis=0)])
    if len(unbeaten) > 1:
        raise CrossmatchError(
            f"{len(unbeaten)} groups of items never lost to other groups and were never compared: "
            f"{_format_groups(group, unbeaten, items)}. Compare them, or set prior above 0."
        )
    return np.asarray(group == unbeaten[0], dtype=bool)


def _format_groups(group: NDArray[np.int32], which: Iterable[int], items: Sequence[str]) -> str:
    return " and ".join("{" + ", ".join(item for item, at in zip(items, group, strict=True) if at == g) + "}" for g in which)


def _fit(wins: FloatArray) -> FloatArray:
    """Newton's method with step halving, for matrices (many, n, n) whose items are strongly connected by wins."""
    many, n, _ = wins.shape
    meetings = wins + wins.transpose(0, 2, 1)
    win_totals, tolerance = wins.sum(axis=2), TOLERANCE * meetings.sum(axis=(1, 2))
    theta = np.zeros((many, n))
    for _ in range(MAX_STEPS):
        expected = meetings * _win_probability(theta)
        gradient = win_totals - expected.sum(axis=2)
        if (np.abs(gradient).max(axis=1, initial=0.0) <= tolerance).all():
            scaled = np.exp(theta - theta.max(axis=1, keepdims=True))
            return np.asarray(scaled / scaled.sum(axis=1, keepdims=True), dtype=np.float64)
        hessian = -expected * _win_probability(-theta)
        hessian[:, range(n), range(n)] = -hessian.sum(axis=2) + hessian[:, range(n), range(n)]
        scale = np.trace(hessian, axis1=1, axis2=2)[:, None, None]
        step = np.linalg.solve(hessian + scale / n**2, gradient[..., None])[..., 0]  # the added term fixes the free scale
        theta = _advance(theta, step, gradient, win_totals, meetings)
    raise CrossmatchError(f"The fit did not converge to {TOLERANCE:g} within {MAX_STEPS} steps. Set prior above 0.")


def _advance(theta: FloatArray, step: FloatArray, gradient: FloatArray, win_totals: FloatArray, meetings: FloatArray) -> FloatArray:
    """Take a step that increases the likelihood; halve it where the full step does not."""
    before, gain = _likelihood(theta, win_totals, meetings), (gradient * step).sum(axis=1)
    length = np.ones(len(theta))
    for _ in range(50):
        is_too_long = _likelihood(
            theta + length[:, None] * step, win_totals, meetings
        ) < before + 1e-4 * length * gain - 1e-9 * np.abs(before)
        if not is_too_long.any():
            break
        length[is_too_long] /= 2
    return theta + length[:, None] * step


def _likelihood(theta: FloatArray, win_totals: FloatArray, meetings: FloatArray) -> FloatArray:
    pairs = np.logaddexp(theta[:, :, None], theta[:, None, :])
    return np.asarray((win_totals * theta).sum(axis=1) - (meetings * pairs).sum(axis=(1, 2)) / 2, dtype=np.float64)


def _win_probability(theta: FloatArray) -> FloatArray:
    """P(i > j) for every two items."""
    return np.asarray(1 / (1 + np.exp(np.clip(theta[:, None, :] - theta[:, :, None], -700, 700))), dtype=np.float64)
