"""How far people agree: Cohen's, Fleiss' and Krippendorff's coefficients with intervals, and whether a side is favoured.

Each coefficient is 1 - D_o / D_e: the disagreement seen over the disagreement by chance. It is 1 where people agree on every item,
0 where they agree as often as chance would have it, and below 0 where less. Where all answers are the same value there is no
disagreement by chance either, and the coefficient is 0 / 0: `Agreement.value` is then None, and `reason` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from scipy import special
from scipy.sparse import csr_array

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray, as_whole
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.metrics.answers import Answers, Kinds, Values
from crossmatch.metrics.proportion import Share, mcnemar, share_of_alike, wilson
from crossmatch.metrics.significance import FARTHEST, LEVEL

SAMPLES = 200
LEVELS = ("nominal", "ordinal", "interval")
ROOM = 2**22  # numbers held in memory at a time
ROUNDING = 1e-9  # a spread as small is none: what is left of it is rounding
Z = float(special.ndtri((1 + LEVEL) / 2))
BY_CHANCE = "so chance alone would agree as well. Ask about items that divide people."


@dataclass(frozen=True)
class Agreement:
    """A coefficient of agreement with its 95 % interval; None, and a reason, where it is undefined.

    `observed` is the share of equal ones among the pairs of answers to one item, chance left in: it is defined where only chance is
    not. `items` and `people` are those that count, `left_out` the items that do not.

    >>> print(Agreement(0.49, 0.31, 0.66, items=100, people=2, observed=0.8))
    0.49 (95 % interval 0.31 to 0.66; 100 items, 2 people)
    >>> print(Agreement.undefined("no item has two answers.", items=0, people=1))
    undefined: no item has two answers.
    """

    value: float | None
    low: float | None
    high: float | None
    items: int
    people: int
    observed: float | None
    left_out: int = 0
    reason: str = ""

    @classmethod
    def undefined(cls, reason: str, items: int, people: int, observed: float | None = None, left_out: int = 0) -> Agreement:
        return cls(None, None, None, items, people, observed, left_out, reason)

    def __str__(self) -> str:
        if self.value is None:
            return f"undefined: {self.reason}"
        value, low, high = (f"{round(x or 0.0, 2) + 0.0:.2f}" for x in (self.value, self.low, self.high))  # no minus before 0.00
        counts = f"{_number(self.items, 'item')}, {_number(self.people, 'person', 'people')}"
        return f"{value} (95 % interval {low} to {high}; {counts})"


# Two people


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
            f"no two people share {_number(least, 'item')}; {most}. Ask for less, or for more answers.", 0, 0
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
            reason = f"both people gave {_all(n, 'item')} the value {self.values[0]:g}, {BY_CHANCE}"
            return Agreement.undefined(reason, n, 2, 1.0, self.alone)
        value = float(_library("statsmodels.stats.inter_rater").cohens_kappa(self.table, return_results=False))
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
        low, high = _without_spread(seen, chance, len(self.items))
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
        reason = f"the kappa of {_all(len(found), 'pair')} is undefined; of the first, {pairs[0].kappa.reason}"
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


def _without_spread(seen: float, chance: float, items: int, most: float = 1.0) -> tuple[float, float]:
    """The interval where every item tells the same: Wilson's of the disagreement, as a share of the most there can be."""
    least, worst = wilson(min(1.0, max(0.0, seen / most)), float(items))
    return max(-1.0, 1 - most * worst / chance), min(1.0, 1 - most * least / chance)


# Any number of people


def fleiss(said: Answers, answers: int | None = None, *, samples: int = SAMPLES, seed: int = 0) -> Agreement:
    """Fleiss' kappa of any number of people's answers, as names; every item has as many answers, of whomever.

        κ = (P̄ - P_e) / (1 - P_e),    P̄ = 1/N Σ_i Σ_k n_ik (n_ik - 1) / (m (m - 1)),    P_e = Σ_k (Σ_i n_ik / (N m))²

    n_ik of the m answers to item i are k. Items with other numbers of answers have no place in it, and to leave them out unasked
    would not do: where a third person is asked only when two differ, the items with two answers are those on which they agreed. So
    unequal numbers are an error; `answers` takes the items with exactly so many, and `left_out` counts the rest. The value is
    statsmodels'; the interval is the bootstrap of `krippendorff`. Source: fleiss1971measuring.

    >>> said = Answers.from_table([[1, 1, 1], [2, 2, 2], [1, 1, 2], [2, 2, 2], [1, 2, 2]])
    >>> found = fleiss(said)
    >>> round(found.value, 3), found.items, found.people, round(found.observed, 3)
    (0.444, 5, 3, 0.733)
    """
    _require_samples(samples)
    _, item, times = np.unique(said.item, return_inverse=True, return_counts=True)
    if answers is not None and answers < 2:
        raise CrossmatchError(f"items with {_number(answers, 'answer')} were asked for; agreement needs 2 or more.")
    sizes, many = np.unique(times, return_counts=True)
    if answers is None and len(sizes) > 1:
        held = ", ".join(f"{n:,} with {m}" for m, n in zip(sizes.tolist()[:4], many.tolist(), strict=False))
        raise CrossmatchError(
            f"items have different numbers of answers ({held}{' …' * (len(sizes) > 4)}), and Fleiss' kappa needs as many for each. "
            "Take the items with one number (answers=…), or Krippendorff's alpha, which takes them all."
        )
    size = answers if answers is not None else int(sizes[0]) if len(sizes) else 0
    if answers is not None and len(said) and answers not in sizes:
        reason = f"no item has exactly {answers} answers; they have {', '.join(map(str, sizes.tolist()))}."
        return Agreement.undefined(reason, 0, len(np.unique(said.person)), left_out=len(times))
    return _agreement(said, (times == size)[item], "nominal", samples, seed, fleiss=True)


def krippendorff(said: Answers, level: str = "nominal", *, samples: int = SAMPLES, seed: int = 0) -> Agreement:
    """Krippendorff's alpha of any number of people's answers, of whomever; items may have different numbers of them.

        α = 1 - D_o / D_e,    D_o = 1/N Σ_i Σ_{a≠b of i} δ²(a, b) / (m_i - 1),    D_e = 1/(N (N - 1)) Σ_{a≠b of all} δ²(a, b)

    with N answers in all, m_i of them to item i; items with one answer are left out. δ² is 1 between different values (`nominal`),
    the squared difference (`interval`), or the squared difference of their mean ranks among all answers (`ordinal`). The value is
    that of the `krippendorff` package, or the same in closed form where its table (items x values²) would not fit in memory.

    The interval draws as many items as there are, with replacement, `samples` times, and takes percentiles, a little farther out
    for few items: at Φ(∓ √(n/(n-1)) t(n - 1)) (hesterberg2015what). A replicate in which all answers are the same value could be
    anything: it counts as -1 at the lower end and as 1 at the upper one. Where all replicates are alike (such as when everybody
    always agrees) the interval is that of `cohen`, with the disagreement as a share of the largest δ². The same answers give the
    same interval in any order of items and people. Rare values make it too narrow, as that of `cohen`; and where more people are
    asked because the first ones differ, both D_o and D_e count what is disputed more. Source: krippendorff2004content, ch. 11;
    efron1993introduction, ch. 13.

    >>> said = Answers.from_table([[1, 1, np.nan], [2, 2, 3], [3, 3, 3], [np.nan, 4, 4], [1, 2, 2], [5, np.nan, np.nan]])
    >>> [round(krippendorff(said, level).value, 3) for level in LEVELS]
    [0.613, 0.846, 0.859]
    """
    _require_samples(samples)
    if level not in LEVELS:
        raise WrongWords(f"there is no level {level!r}; there are {', '.join(LEVELS)}.")
    _, item, times = np.unique(said.item, return_inverse=True, return_counts=True)
    return _agreement(said, (times > 1)[item], level, samples, seed, fleiss=False)


def _agreement(all_said: Answers, kept: BoolArray, level: str, samples: int, seed: int, *, fleiss: bool) -> Agreement:
    total, people = (len(np.unique(ids)) for ids in (all_said.item, all_said.person))
    said = all_said.among(kept)
    items = len(np.unique(said.item))
    if len(said) == items:  # one answer each, or none at all
        reason = "nobody answered anything yet." if not people else "no item has answers of two people. Ask more people."
        return Agreement.undefined(reason, 0, people, left_out=total)
    kinds, people, left_out = Kinds.of(said), len(np.unique(said.person)), total - items
    if len(kinds.values) < 2:
        reason = f"{_all(len(said), 'answer')} are the value {kinds.values[0]:g}, {BY_CHANCE}"
        return Agreement.undefined(reason, items, people, 1.0, left_out)
    observed = 1 - _disagreement_of_all(kinds, "nominal", fleiss)[0]
    value = _coefficient(kinds, level, fleiss)
    return Agreement(value, *_interval(kinds, level, fleiss, value, samples, seed), items, people, observed, left_out)


def _disagreement(kinds: Kinds, times: FloatArray, level: str, fleiss: bool) -> tuple[FloatArray, FloatArray]:
    """D_o and D_e where each kind was drawn so many times (replicates x kinds); D_e is 0 where only one value was drawn."""
    n = np.asarray(times @ kinds.counts, dtype=np.float64)
    total = n.sum(axis=1)
    scale = _scale(kinds.values, n, level)
    seen = (times * _unlike(kinds, scale, level)).sum(axis=1) / total
    if level == "nominal":
        chance = total**2 - (n**2).sum(axis=1)
    else:
        chance = 2 * (total * (n * scale**2).sum(axis=1) - (n * scale).sum(axis=1) ** 2)
    told = (n > 0).sum(axis=1) > 1  # not by D_e itself, in which rounding may leave something
    return seen, np.where(told, chance, 0.0) / (total * (total - (not fleiss)))


def _unlike(kinds: Kinds, scale: FloatArray, level: str) -> FloatArray:
    """Σ_{a≠b} δ²(a, b) / (m - 1) of one item of each kind on each of some scales: (scales or 1) x kinds."""
    if level == "nominal":
        found = (kinds.answers**2 - kinds.counts.power(2).sum(axis=1))[None]
    else:
        sums, squares = (kinds.counts @ power.T for power in (scale, scale**2))
        found = 2 * (kinds.answers * squares.T - sums.T**2)
    return np.asarray(found / (kinds.answers - 1), dtype=np.float64)


def _scale(values: Values, n: FloatArray, level: str) -> FloatArray:
    """The values on the scale whose differences count, about 0: (replicates or 1) x values, where n[r, v] answers were drawn."""
    if level == "ordinal":  # the mean ranks
        return np.asarray(np.cumsum(n, axis=1) - n / 2 - n.sum(axis=1, keepdims=True) / 2, dtype=np.float64)
    small = values / np.abs(values).max()  # any unit will do, and in this one no square overflows
    return np.asarray((small - (small[0] + small[-1]) / 2) / (small[-1] - small[0]), dtype=np.float64)[None]


def _coefficient(kinds: Kinds, level: str, fleiss: bool) -> float:
    """By the libraries; in closed form where their tables would not fit in memory."""
    if kinds.times.sum() * len(kinds.values) ** 2 > ROOM:
        seen, chance = _disagreement_of_all(kinds, level, fleiss)
        return 1 - seen / chance
    if fleiss:
        return float(_library("statsmodels.stats.inter_rater").fleiss_kappa(kinds.table()))
    places = np.arange(len(kinds.values))
    scale = _scale(kinds.values, kinds.totals()[None], level)[0] if level == "interval" else places
    return float(_library("krippendorff").alpha(value_counts=kinds.table(), value_domain=scale, level_of_measurement=level))


def _library(module: str) -> Any:
    """They are slow to import, and only who measures agreement needs them."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingDependency(module.partition(".")[0], "study") from None


def _interval(kinds: Kinds, level: str, fleiss: bool, value: float, samples: int, seed: int) -> tuple[float, float]:
    """The interval of `krippendorff`; it holds the value."""
    n = int(kinds.times.sum())
    if n < 2:
        return -1.0, 1.0
    seen, chance = _replicates(kinds, level, fleiss, samples, seed)
    told = chance > 0
    found = 1 - seen / np.where(told, chance, 1.0)
    tail = float(special.ndtr(-np.sqrt(n / (n - 1)) * special.stdtrit(n - 1, (1 + LEVEL) / 2)))
    low = float(np.quantile(np.where(told, found, -1.0), tail))
    high = float(np.quantile(np.where(told, found, 1.0), 1 - tail))
    if (np.abs(found[told] - value) <= ROUNDING).all():
        scale = _scale(kinds.values, kinds.totals()[None], level)[0]
        most = 1.0 if level == "nominal" else float(scale[-1] - scale[0]) ** 2
        least, best = _without_spread(*_disagreement_of_all(kinds, level, fleiss), n, most)
        low, high = min(low, least), max(high, best)
    return max(-1.0, min(low, value)), min(1.0, max(high, value))


def _disagreement_of_all(kinds: Kinds, level: str, fleiss: bool) -> tuple[float, float]:
    seen, chance = _disagreement(kinds, kinds.times[None].astype(np.float64), level, fleiss)
    return float(seen[0]), float(chance[0])


def _replicates(kinds: Kinds, level: str, fleiss: bool, samples: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """D_o and D_e of each replicate."""
    rng, n = np.random.default_rng(seed), kinds.times.sum()
    block = max(1, ROOM // (len(kinds.times) + len(kinds.values)))
    parts = [
        _disagreement(kinds, rng.multinomial(n, kinds.times / n, size=min(block, samples - at)).astype(np.float64), level, fleiss)
        for at in range(0, samples, block)
    ]
    seen, chance = (np.concatenate(column) for column in zip(*parts, strict=True))
    return seen, chance


def _require_samples(samples: int) -> None:
    if samples < 2:
        raise CrossmatchError(f"{_number(samples, 'bootstrap sample')} give no interval; take at least 2 ({SAMPLES} is usual).")


# Places


@dataclass(frozen=True)
class SideBias:
    """How the choices fell on the places where things were shown, and the p of all places being as likely.

    `p` is None, and `reason` says why, where nothing was chosen yet.
    """

    shares: tuple[Share, ...]  # of each place, with its interval
    p: float | None
    choices: int
    test: str = ""
    reason: str = ""


def side_bias(*chosen: int) -> SideBias:
    """Whether the first of two places (left, right) is chosen as often as the second; or each of several as often as any other.

        X² = Σ_j (x_j - n/k)² / (n/k)

    x_j of n choices fell on place j of k. With two places, p is that of the exact binomial test with 1/2. With more it is the
    probability of all ways to deal n choices to k places whose X² is as large, one by one; where those are too many to go through,
    it comes from the χ² distribution (pearson1900criterion). Shares have Wilson's intervals, each by itself. Choices are taken as
    independent, and what is shown where as drawn at random: else what was chosen and where it stood cannot be told apart.

    >>> found = side_bias(60, 40)
    >>> found.shares[0].value, round(found.shares[0].low, 3), round(found.shares[0].high, 3), round(found.p, 4)
    (0.6, 0.502, 0.691, 0.0569)
    >>> round(side_bias(30, 30, 45).p, 3), side_bias(0, 0).p
    (0.124, None)
    """
    if len(chosen) < 2:
        raise CrossmatchError(f"{_number(len(chosen), 'place')} was given; count the choices of two places or more.")
    counts = as_whole(chosen, "choices")
    if (counts < 0).any():
        raise CrossmatchError(f"a place was chosen {counts.min()} times; counts were expected.")
    n, k = int(counts.sum()), len(counts)
    if not n:
        return SideBias((), None, 0, reason="nothing was chosen yet.")
    shares = tuple(share_of_alike(int(x), n) for x in counts)
    if k == 2:
        return SideBias(shares, mcnemar(int(counts[0]), int(counts[1])), n, "exact binomial test")
    if comb(n + k - 1, k - 1) * k <= ROOM // 16:
        return SideBias(shares, _even_by_counting(counts), n, "exact multinomial test")
    excess = float(np.square(counts - n / k).sum()) / (n / k)
    return SideBias(shares, max(FARTHEST, float(special.chdtrc(k - 1, excess))), n, "χ² test")


def _even_by_counting(counts: IntArray) -> float:
    """P[ Σ x² >= that of the counts ], which is P[ X² >= its ]: a way to deal n choices is where k - 1 walls stand among them."""
    n, k = int(counts.sum()), len(counts)
    walls = np.array(list(combinations(range(n + k - 1), k - 1)))
    ways = np.diff(walls, axis=1, prepend=-1, append=n + k - 1) - 1
    chance = np.exp(special.gammaln(n + 1) - special.gammaln(ways + 1).sum(axis=1) - n * np.log(k))
    return min(1.0, float(chance[(ways**2).sum(axis=1) >= (counts**2).sum()].sum()))


# Words


def _number(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def _all(n: int, one: str) -> str:
    return f"the one {one}" if n == 1 else f"all {_number(n, one)}"
