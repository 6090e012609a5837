"""How far two people agree: Cohen's kappa with its interval, and its mean over pairs of people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special
from scipy.sparse import csr_array

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics.answers import Answers, Values
from crossmatch.metrics.coefficient import BY_CHANCE, ROUNDING, Agreement, all_of, library, number_of, without_spread
from crossmatch.metrics.significance import LEVEL

Z = float(special.ndtri((1 + LEVEL) / 2))


@dataclass(frozen=True)
class PairKappa:
    """Cohen's kappa of two people."""

    first: int
    second: int
    kappa: Agreement


@dataclass(frozen=True)
class PairKappas:
    """Cohen's kappa of each two people who share enough items, by their ids, and the mean; `few` counts pairs who share too few."""

    pairs: tuple[PairKappa, ...]
    mean: Agreement
    few: int


def cohen(said: Answers, first: int, second: int) -> Agreement:
    """Cohen's kappa of two people's answers, as names, to the items that both answered.

        κ = (P_o - P_e) / (1 - P_e),    P_o = Σ_k p_kk,    P_e = Σ_k p_k. p_.k

    P_o is the share of items with equal answers; P_e what it would be if both answered at random, each as often as they did. The
    value is statsmodels', and so is the interval: κ ± 1.96 standard errors (fleiss1969large), cut at -1 and 1. Where that standard
    error is zero (all agree, none do, or one person gave one answer throughout, which makes κ 0 whatever the other said) it would
    claim to be certain; then it is Wilson's interval of the share of unequal answers, over 1 - P_e. A single item tells nothing.
    It is for many items: where a value is rare it holds the truth less often than it says (three times in four where one answer in
    ten is the rarer value and there are 30 items). Source: cohen1960coefficient.

    >>> said = Answers.from_table([[1, 1]] * 20 + [[1, 2]] * 5 + [[2, 1]] * 10 + [[2, 2]] * 15)
    >>> found = cohen(said, 0, 1)
    >>> round(found.value, 3), round(found.low, 3), round(found.high, 3), found.items, found.observed
    (0.4, 0.151, 0.649, 50, 0.7)
    >>> cohen(Answers.from_table([[1, 1], [1, 1]]), 0, 1).reason
    'both people gave all 2 items the value 1, so chance alone would agree as well. Ask about items that divide people.'
    """
    if first == second:
        raise CrossmatchError(f"person {first} was to be compared with themselves. Give two people.")
    one, two = (_Person.of(said, np.flatnonzero(said.person == id_), id_) for id_ in (first, second))
    return _Pair.of(one, two).agreement()


def cohen_pairs(said: Answers, least: int = 10) -> PairKappas:
    """Cohen's kappa of each two people who both answered at least `least` items, and the mean of those that are defined.

        κ̄ = 1/P Σ_p κ_p,    v = Σ_i ( 1/P Σ_p d_pi / n_p )²

    Each pair counts the same, as in miranda2024bivlc, tab. 7. The interval is κ̄ ± 1.96 √v: d_pi is how much answer i, one of the
    n_p of pair p, moves κ_p (the derivative by its weight), so that pairs who share items are not taken as independent. With one
    pair it is the interval of `cohen`. It tells how sure the mean of these people is, had they been asked about other items; not
    what other people would do.

    >>> said = Answers.from_table([[1, 1, 2], [2, 2, 1], [1, 1, 1], [2, 2, 2], [2, 1, 1]])
    >>> found = cohen_pairs(said, least=5)
    >>> [(p.first, p.second, round(p.kappa.value, 2)) for p in found.pairs], round(found.mean.value, 2)
    ([(0, 1, 0.62), (0, 2, -0.15), (1, 2, 0.17)], 0.21)
    """
    if least < 1:
        raise CrossmatchError(f"pairs with at least {least} common items were asked for; give 1 or more.")
    people, size = np.unique(said.person, return_counts=True)
    rows = np.split(np.argsort(said.person, kind="stable"), np.cumsum(size)[:-1]) if len(people) else []
    answered = [_Person.of(said, part, id_) for part, id_ in zip(rows, people.tolist(), strict=True)]
    first, second, common = _shared(said)
    enough = common >= least
    found = [_Pair.of(answered[a], answered[b]) for a, b in zip(first[enough], second[enough], strict=True)]
    pairs = tuple(PairKappa(pair.first, pair.second, pair.agreement()) for pair in found)
    if not pairs:
        most = f"the most that two share is {common.max(initial=0):,}"
        mean = Agreement.undefined(
            f"no two people share {number_of(least, 'item')}; {most}. Ask for less, or for more answers.", 0, 0
        )
    else:
        mean = _mean(found, pairs)
    return PairKappas(pairs, mean, int((~enough).sum()))


def _shared(said: Answers) -> tuple[IntArray, IntArray, IntArray]:
    """Each two people, by their places among all, who share items, and how many."""
    person, item = (np.unique(ids, return_inverse=True)[1] for ids in (said.person, said.item))
    shape = int(person.max(initial=-1)) + 1, int(item.max(initial=-1)) + 1
    answered = csr_array((np.ones(len(said), np.int64), (person, item)), shape=shape)
    shared = (answered @ answered.T).tocoo()
    above = shared.row < shared.col
    order = np.lexsort((shared.col[above], shared.row[above]))
    first, second, common = (part[above][order].astype(np.int64) for part in (shared.row, shared.col, shared.data))
    return first, second, common


def mean_kappa(values: Iterable[float | None]) -> float | None:
    """The mean of kappas, each counting the same; undefined ones are left out, and of none at all it is None.

    >>> mean_kappa([0.5, None, 0.25]), mean_kappa([None])
    (0.375, None)
    """
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else None


@dataclass(frozen=True, eq=False)
class _Person:
    """What one person answered."""

    id: int
    items: IntArray
    values: Values

    @classmethod
    def of(cls, said: Answers, rows: IntArray, id_: int) -> _Person:
        return cls(id_, said.item[rows], said.value[rows])


@dataclass(frozen=True, eq=False)
class _Pair:
    """Two people's answers to the items they share: `table[k, l]` counts those with value k by the first and l by the second."""

    first: int
    second: int
    items: IntArray
    cell: IntArray  # of each item: its place in the table
    table: FloatArray
    values: Values
    alone: int  # items that only one of them answered

    @classmethod
    def of(cls, one: _Person, two: _Person) -> _Pair:
        items, at, there = np.intersect1d(one.items, two.items, assume_unique=True, return_indices=True)
        values, code = np.unique(np.concatenate([one.values[at], two.values[there]]), return_inverse=True)
        n, k = len(items), len(values)
        cell = code[:n] * k + code[n:]
        table = np.bincount(cell, minlength=k * k).reshape(k, k).astype(np.float64)
        return cls(one.id, two.id, items, cell, table, values, len(one.items) + len(two.items) - 2 * n)

    @property
    def unlike(self) -> float:
        """D_o: the share of unequal answers."""
        return float(1 - np.trace(self.table) / self.table.sum())

    @property
    def unlike_by_chance(self) -> float:
        """D_e."""
        return float(1 - (self.table.sum(axis=0) @ self.table.sum(axis=1)) / self.table.sum() ** 2)

    def moves(self) -> FloatArray:
        """Of each item: how much it moves kappa, the derivative by its weight over the number of items."""
        n, seen, chance = self.table.sum(), self.unlike, self.unlike_by_chance
        rows, columns = self.table.sum(axis=1) / n, self.table.sum(axis=0) / n
        alike = np.eye(len(rows)) - (1 - seen)
        alike_by_chance = columns[:, None] + rows[None, :] - 2 * (1 - chance)
        cells = (alike * chance - alike_by_chance * seen) / chance**2
        return np.asarray(cells.ravel()[self.cell] / n, dtype=np.float64)

    def agreement(self) -> Agreement:
        n = len(self.items)
        if not n:
            reason = f"no item was answered by both person {self.first} and person {self.second}. Ask them about the same items."
            return Agreement.undefined(reason, 0, 2, left_out=self.alone)
        if len(self.values) < 2:
            reason = f"both people gave {all_of(n, 'item')} the value {self.values[0]:g}, {BY_CHANCE}"
            return Agreement.undefined(reason, n, 2, 1.0, self.alone)
        value = float(library("statsmodels.stats.inter_rater").cohens_kappa(self.table, return_results=False))
        below, above = self.reach().tolist()
        return Agreement(value, max(-1.0, value - below), min(1.0, value + above), n, 2, 1 - self.unlike, self.alone)

    def reach(self) -> FloatArray:
        """How far below and above kappa its interval reaches, as `cohen` says."""
        seen, chance, error = self.unlike, self.unlike_by_chance, _error(self.moves())
        kappa = 1 - seen / chance
        if len(self.items) < 2:
            return np.array([kappa + 1, 1 - kappa])
        if error > ROUNDING:
            return np.minimum(Z * error, [kappa + 1, 1 - kappa])
        low, high = without_spread(seen, chance, len(self.items))
        return np.array([kappa - low, high - kappa])


def _mean(found: Sequence[_Pair], pairs: Sequence[PairKappa]) -> Agreement:
    """The mean over the pairs whose kappa is defined."""
    told = [pair for pair in found if len(pair.values) > 1]
    value = mean_kappa(pair.kappa.value for pair in pairs)
    of = told or found
    items, item = np.unique(np.concatenate([pair.items for pair in of]), return_inverse=True)
    people = len({person for pair in of for person in (pair.first, pair.second)})
    observed = float(np.mean([1 - pair.unlike for pair in of]))
    if value is None:
        reason = f"the kappa of {all_of(len(found), 'pair')} is undefined; of the first, {pairs[0].kappa.reason}"
        return Agreement.undefined(reason, len(items), people, observed)
    moves = [pair.moves() for pair in told]
    reach = Z * _error(np.bincount(item, weights=np.concatenate(moves)) / len(told))
    # pairs without a standard error have an interval all the same; what they lack may be alike, so it adds up
    without = [pair for pair, moved in zip(told, moves, strict=True) if _error(moved) <= ROUNDING]
    rest = sum((pair.reach() for pair in without), np.zeros(2)) / len(told)
    low, high = value - np.hypot(reach, rest[0]), value + np.hypot(reach, rest[1])
    return Agreement(value, max(-1.0, float(low)), min(1.0, float(high)), len(items), people, observed)


def _error(moves: FloatArray) -> float:
    return float(np.sqrt(np.square(moves).sum()))
