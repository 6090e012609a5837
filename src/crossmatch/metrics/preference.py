"""From pairwise preferences to one scale: the Bradley-Terry model, with the cases in which it has no finite answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray, frozen, require_finite
from crossmatch.core.errors import CrossmatchError

STEPS = 200  # Newton's method needs about ten; more than this means that the counts are out of any reasonable range
CLOSE = 1e-10  # of the comparisons: how far expected and seen wins may be apart


@dataclass(frozen=True, eq=False)
class Preferences:
    """Who was preferred to whom, how often: `wins[i, j]` counts i over j, `ties[i, j]` (symmetric) neither.

    An item compared with itself says nothing, so the diagonal is not looked at.

    >>> said = Preferences.of([("a", "b", 1), ("a", "b", 1), ("b", "a", 1), ("b", "c", 0.5), ("c", "a", 0)])
    >>> said.items
    ('a', 'b', 'c')
    >>> said.wins
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
            given = np.asarray(getattr(self, name))
            if given.shape != (n, n):
                raise CrossmatchError(f"{name} have shape {given.shape}; {n} items need {n} x {n}.")
            require_finite(given.astype(np.float64), name, "Give counts.")
            if (given < 0).any() or (given != np.floor(given)).any():
                raise CrossmatchError(f"{name} hold {given[(given < 0) | (given != np.floor(given))][0]}; counts were expected.")
            whole = given.astype(np.int64)
            np.fill_diagonal(whole, 0)
            object.__setattr__(self, name, whole)
            frozen(whole)
        if (self.ties != self.ties.T).any():
            raise CrossmatchError(
                "ties of i with j and of j with i differ; they are the same comparisons. Give a symmetric matrix."
            )

    @classmethod
    def of(cls, comparisons: Iterable[tuple[str, str, float]]) -> Preferences:
        """From triples (first, second, outcome): 1 the first was preferred, 0 the second, 0.5 neither."""
        said = list(comparisons)
        items = tuple(sorted({str(x) for first, second, _ in said for x in (first, second)}))
        at = {item: n for n, item in enumerate(items)}
        wins, ties = np.zeros((2, len(items), len(items)), dtype=np.int64)
        for first, second, outcome in said:
            a, b = at[str(first)], at[str(second)]
            if outcome not in (0, 0.5, 1):
                raise CrossmatchError(f"the outcome of {first} against {second} is {outcome}; 1, 0.5 or 0 was expected.")
            if outcome == 0.5:
                ties[a, b] += 1
                ties[b, a] += a != b
            else:
                wins[(a, b) if outcome else (b, a)] += 1
        return cls(items, wins, ties)

    @classmethod
    def from_matrix(cls, wins: Sequence[Sequence[int]] | IntArray, items: Sequence[str] | None = None) -> Preferences:
        """From a matrix of counts, row preferred to column."""
        counts = np.asarray(wins)
        names = tuple(items) if items is not None else tuple(str(n) for n in range(len(counts)))
        return cls(names, counts, np.zeros_like(counts))


def bradley_terry(said: Preferences, prior: float = 0.0) -> FloatArray:
    """The strength of each item, all adding up to 1, that makes the preferences most likely.

        P(i > j) = p_i / (p_i + p_j)          at the maximum:  Σ_j w_ij = Σ_j n_ij · p_i / (p_i + p_j)

    w_ij counts i over j, n_ij = w_ij + w_ji. A tie is half a win for each. Newton's method on log p, which is concave; done when
    seen and expected wins differ by no more than 1e-10 of the comparisons. A finite maximum exists if and only if every item is
    connected to every other by a chain of wins (ford1957solution). Where it does not, the limit is given: an item that never
    wins gets 0, and so does every item below a group that never lost to anything outside of it. Groups that were never
    compared, or that neither lost to one another, cannot be put on one scale: an error names them. `prior` adds so many wins
    to either side of every pair, which always gives a finite answer.
    Source: bradley1952rank; hunter2004mm; chun2022eccv, sec. D.1.

    >>> bradley_terry(Preferences.from_matrix([[0, 3], [1, 0]]))
    array([0.75, 0.25])
    >>> bradley_terry(Preferences.from_matrix([[0, 3, 5], [1, 0, 2], [0, 0, 0]]))
    array([0.75, 0.25, 0.  ])
    """
    return np.asarray(_strengths(_with_ties(said, prior)[None], said.items)[0], dtype=np.float64)


def bradley_terry_interval(
    said: Preferences, *, samples: int = 1000, seed: int = 0, level: float = 0.95, prior: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Percentile intervals of the strengths when the comparisons are drawn anew (efron1993introduction, ch. 13).

    A replicate draws, for each two items, as many outcomes as there were, with replacement from those seen: who met whom is the
    design of the study, not chance. Answers of one person are taken as independent; where few people gave many, it is too narrow.

    >>> low, high = bradley_terry_interval(Preferences.from_matrix([[0, 30], [10, 0]]))
    >>> bool(low[0] < 0.75 < high[0])
    True
    """
    if samples < 2:
        raise CrossmatchError(f"{samples} bootstrap samples give no interval; take at least 2 (1000 is usual).")
    n = len(said.items)
    a, b = np.triu_indices(n, 1)
    seen = np.stack([said.wins[a, b], said.wins[b, a], said.ties[a, b]], axis=1)
    total = seen.sum(axis=1)
    share = np.where(total[:, None] > 0, seen / np.maximum(total, 1)[:, None], [1.0, 0.0, 0.0])
    drawn = np.random.default_rng(seed).multinomial(total, share, size=(samples, len(a)))
    wins = np.zeros((samples, n, n))
    wins[:, a, b] = drawn[..., 0] + drawn[..., 2] / 2
    wins[:, b, a] = drawn[..., 1] + drawn[..., 2] / 2
    found = _strengths(_with_prior(wins, prior), said.items)
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def _with_ties(said: Preferences, prior: float) -> FloatArray:
    return _with_prior(said.wins + said.ties / 2, prior)


def _with_prior(wins: FloatArray, prior: float) -> FloatArray:
    if prior < 0:
        raise CrossmatchError(f"the prior is {prior}; it counts wins, so it cannot be below zero.")
    return wins + prior * (1 - np.eye(wins.shape[-1]))


def _strengths(wins: FloatArray, items: Sequence[str]) -> FloatArray:
    """For each matrix of wins the strengths; matrices with the same group on top are fitted together."""
    beats, alike = np.unique(wins > 0, axis=0, return_inverse=True)
    tops = np.stack([_top(b, items) for b in beats])[alike.ravel()]
    out = np.zeros(tops.shape)
    groups, member = np.unique(tops, axis=0, return_inverse=True)
    for g, top in enumerate(groups):
        mine = np.flatnonzero(member.ravel() == g)
        out[np.ix_(mine, np.flatnonzero(top))] = _fit(wins[np.ix_(mine, np.flatnonzero(top), np.flatnonzero(top))])
    return out


def _top(beats: BoolArray, items: Sequence[str]) -> BoolArray:
    """The items connected by wins both ways that never lost to any other: beside their strengths those of the rest vanish."""
    if len(items) < 2:
        raise CrossmatchError(f"{len(items)} item was given; a preference needs two.")
    met, part = connected_components(beats, directed=False)
    if met > 1:
        raise CrossmatchError(
            f"items fall into {met} groups that were never compared with each other: {_named(part, range(met), items)}. "
            "Compare some across, or rank each group by itself."
        )
    count, group = connected_components(beats, directed=True, connection="strong")
    across = beats & (group[:, None] != group[None, :])
    unbeaten = np.setdiff1d(np.arange(count), group[across.any(axis=0)])
    if len(unbeaten) > 1:
        raise CrossmatchError(
            f"{len(unbeaten)} groups of items never lost outside of themselves and never met each other: "
            f"{_named(group, unbeaten, items)}. Nothing tells them apart: compare them, or give a prior above zero."
        )
    return np.asarray(group == unbeaten[0], dtype=bool)


def _named(group: NDArray[np.int32], which: Iterable[int], items: Sequence[str]) -> str:
    return " and ".join("{" + ", ".join(item for item, at in zip(items, group, strict=True) if at == g) + "}" for g in which)


def _fit(wins: FloatArray) -> FloatArray:
    """Newton's method with halved steps, on matrices (many, n, n) whose items are all connected by wins both ways."""
    many, n, _ = wins.shape
    met = wins + wins.transpose(0, 2, 1)
    won, close = wins.sum(axis=2), CLOSE * met.sum(axis=(1, 2))
    theta = np.zeros((many, n))
    for _ in range(STEPS):
        expected = met * _chance(theta)
        slope = won - expected.sum(axis=2)
        if (np.abs(slope).max(axis=1, initial=0.0) <= close).all():
            scaled = np.exp(theta - theta.max(axis=1, keepdims=True))
            return np.asarray(scaled / scaled.sum(axis=1, keepdims=True), dtype=np.float64)
        bend = -expected * _chance(-theta)
        bend[:, range(n), range(n)] = -bend.sum(axis=2) + bend[:, range(n), range(n)]
        scale = np.trace(bend, axis1=1, axis2=2)[:, None, None]
        step = np.linalg.solve(bend + scale / n**2, slope[..., None])[..., 0]  # strengths have no unit: the added part fixes one
        theta = _advance(theta, step, slope, won, met)
    raise CrossmatchError(f"no strengths fit these preferences to {CLOSE:g} within {STEPS} steps. Give a prior above zero.")


def _advance(theta: FloatArray, step: FloatArray, slope: FloatArray, won: FloatArray, met: FloatArray) -> FloatArray:
    """A step that makes the preferences likelier, halved where the whole one does not."""
    before, gain = _likelihood(theta, won, met), (slope * step).sum(axis=1)
    length = np.ones(len(theta))
    for _ in range(50):
        short = _likelihood(theta + length[:, None] * step, won, met) < before + 1e-4 * length * gain - 1e-9 * np.abs(before)
        if not short.any():
            break
        length[short] /= 2
    return theta + length[:, None] * step


def _likelihood(theta: FloatArray, won: FloatArray, met: FloatArray) -> FloatArray:
    pairs = np.logaddexp(theta[:, :, None], theta[:, None, :])
    return np.asarray((won * theta).sum(axis=1) - (met * pairs).sum(axis=(1, 2)) / 2, dtype=np.float64)


def _chance(theta: FloatArray) -> FloatArray:
    """P(i > j) of every two items."""
    return np.asarray(1 / (1 + np.exp(np.clip(theta[:, None, :] - theta[:, :, None], -700, 700))), dtype=np.float64)
