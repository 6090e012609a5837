"""Agreement of two annotators: Cohen's kappa with its interval, and the mean over all pairs of annotators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special
from scipy.sparse import csr_array

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.agreement.answer_arrays import Answers, Values
from crossmatch.metrics.agreement.coefficient import BY_CHANCE, Agreement, format_all, format_count
from crossmatch.metrics.cluster_bootstrap import CONFIDENCE_LEVEL

SMOOTHING = 2.0  # items that the interval adds to those of all pairs


@dataclass(frozen=True)
class PairKappa:
    """Cohen's kappa of two people, given by their ids."""

    first: int
    second: int
    kappa: Agreement


@dataclass(frozen=True)
class PairwiseKappas:
    """Cohen's kappa of every two people with enough shared items, and the mean.

    Attributes:
        pairs: One kappa per pair.
        mean: Mean over the pairs whose kappa is defined.
        skipped_pairs: Number of pairs with too few shared items.
    """

    pairs: tuple[PairKappa, ...]
    mean: Agreement
    skipped_pairs: int


def cohen_kappa(answers: Answers, first: int, second: int) -> Agreement:
    """Cohen's kappa of two people's categorical answers to the items that both answered.

        κ = (P_o - P_e) / (1 - P_e),    P_o = Σ_k p_kk,    P_e = Σ_k p_k. p_.k

    P_o is the share of items with equal answers, P_e its expected value if both answered at random with their own frequencies.

    The interval is that of `pairwise_cohen_kappa` for a single pair. The standard error of fleiss1969large alone is too small for few
    items and rare values: with 30 items and a value that is one answer in ten, its intervals contain the true kappa in about 75 % of
    the cases.

    Source: cohen1960coefficient.

    >>> answers = Answers.from_table([[1, 1]] * 20 + [[1, 2]] * 5 + [[2, 1]] * 10 + [[2, 2]] * 15)
    >>> kappa = cohen_kappa(answers, 0, 1)
    >>> round(kappa.value, 3), round(kappa.low, 3), round(kappa.high, 3), kappa.items, kappa.observed
    (0.4, 0.129, 0.64, 50, 0.7)
    >>> cohen_kappa(Answers.from_table([[1, 1], [1, 1]]), 0, 1).reason[:61]
    'both people gave all 2 items the value 1, so the agreement ex'
    """
    if first == second:
        raise CrossmatchError(f"person {first} cannot be compared with themselves. Give two different people.")
    people = [_PersonAnswers.select(answers, np.flatnonzero(answers.person == id_), id_) for id_ in (first, second)]
    return _SharedItems.of(*people).agreement()


def pairwise_cohen_kappa(answers: Answers, min_shared: int = 10) -> PairwiseKappas:
    """Cohen's kappa of every two people with at least `min_shared` shared items, and the mean of the defined ones.

        κ̄ = 1/P Σ_p κ_p,    κ̃ ± t(f) √v,    v = Σ_i u_i² + s²,    u_i = 1/P Σ_p d_pi,    f = v² / Σ_i u_i⁴

    All pairs have the same weight, as in miranda2024bivlc, tab. 7. For the interval, two items are added to the items of all pairs
    (as in agresti1998approximate for shares). A pair gets its share of them, 2 if it answered all items, spread evenly over the
    cells of its table. κ̃ is the mean kappa of these tables, and d_pi the derivative of pair p's kappa with respect to item i. Pairs
    that share items are therefore not treated as independent. s is the same for the added items, which are treated as shared by all
    pairs. The fewer items have influence, such as those with a rare value, the fewer are the degrees of freedom f, from 1 to the
    number of items minus 1. The interval is clipped to [-1, 1] and contains κ̄; with a single item it is [-1, 1].

    It says how the mean of these people varies with the items; it says nothing about other people. With 10 to 150 items, 2 to 5
    values and rare values of 5 %, it contains the true mean in at least 92 % of the simulations where it is defined
    (`tests/unit/metrics/agreement/test_kappa_coverage.py`).

    >>> answers = Answers.from_table([[1, 1, 2], [2, 2, 1], [1, 1, 1], [2, 2, 2], [2, 1, 1]])
    >>> kappas = pairwise_cohen_kappa(answers, min_shared=5)
    >>> [(p.first, p.second, round(p.kappa.value, 2)) for p in kappas.pairs], round(kappas.mean.value, 2)
    ([(0, 1, 0.62), (0, 2, -0.15), (1, 2, 0.17)], 0.21)
    """
    if min_shared < 1:
        raise CrossmatchError(f"min_shared must be at least 1 (got {min_shared}).")
    people, size = np.unique(answers.person, return_counts=True)
    rows = np.split(np.argsort(answers.person, kind="stable"), np.cumsum(size)[:-1]) if len(people) else []
    by_person = [_PersonAnswers.select(answers, part, id_) for part, id_ in zip(rows, people.tolist(), strict=True)]
    first, second, shared_counts = _count_shared_items(answers)
    enough = shared_counts >= min_shared
    shared = [_SharedItems.of(by_person[a], by_person[b]) for a, b in zip(first[enough], second[enough], strict=True)]
    pairs = tuple(PairKappa(pair.first, pair.second, pair.agreement()) for pair in shared)
    if pairs:
        mean = _mean_agreement(shared, pairs)
    else:
        largest = f"the largest number is {shared_counts.max(initial=0):,}"
        reason = f"no two people share {format_count(min_shared, 'item')}; {largest}. Lower min_shared, or collect more answers."
        mean = Agreement.undefined(reason, 0, 0)
    return PairwiseKappas(pairs, mean, int((~enough).sum()))


def _count_shared_items(answers: Answers) -> tuple[IntArray, IntArray, IntArray]:
    """Indices of every two people with shared items, and the number of shared items."""
    person, item = (np.unique(ids, return_inverse=True)[1] for ids in (answers.person, answers.item))
    shape = int(person.max(initial=-1)) + 1, int(item.max(initial=-1)) + 1
    has_answered = csr_array((np.ones(len(answers), np.int64), (person, item)), shape=shape)
    shared = (has_answered @ has_answered.T).tocoo()
    upper = shared.row < shared.col
    order = np.lexsort((shared.col[upper], shared.row[upper]))
    first, second, counts = (part[upper][order].astype(np.int64) for part in (shared.row, shared.col, shared.data))
    return first, second, counts


def mean_kappa(values: Iterable[float | None]) -> float | None:
    """Unweighted mean of the defined kappas; None if none is defined.

    >>> mean_kappa([0.5, None, 0.25]), mean_kappa([None])
    (0.375, None)
    """
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else None


@dataclass(frozen=True, eq=False)
class _PersonAnswers:
    id: int
    items: IntArray
    values: Values

    @classmethod
    def select(cls, answers: Answers, rows: IntArray, id_: int) -> _PersonAnswers:
        return cls(id_, answers.item[rows], answers.value[rows])


@dataclass(frozen=True, eq=False)
class _SharedItems:
    """Two people's answers to their shared items; `table[k, l]` counts value k by the first and l by the second."""

    first: int
    second: int
    items: IntArray
    cell: IntArray  # flat index into the table of each item
    table: FloatArray
    values: Values
    unshared: int  # items that only one of them answered

    @classmethod
    def of(cls, first: _PersonAnswers, second: _PersonAnswers) -> _SharedItems:
        items, in_first, in_second = np.intersect1d(first.items, second.items, assume_unique=True, return_indices=True)
        values, code = np.unique(np.concatenate([first.values[in_first], second.values[in_second]]), return_inverse=True)
        n, k = len(items), len(values)
        cell = code[:n] * k + code[n:]
        table = np.bincount(cell, minlength=k * k).reshape(k, k).astype(np.float64)
        return cls(first.id, second.id, items, cell, table, values, len(first.items) + len(second.items) - 2 * n)

    @property
    def observed_disagreement(self) -> float:
        return _disagreements(self.table)[0]

    def influence(self, items: int) -> tuple[float, FloatArray, float]:
        """Kappa of the smoothed table, its derivative by the weight of each item, and the standard error of the added items.

        `items` is the number of items of all pairs.
        """
        added = SMOOTHING * len(self.items) / items / self.table.size
        table = self.table + added
        n = table.sum()
        observed, expected = _disagreements(table)
        rows, columns = table.sum(axis=1) / n, table.sum(axis=0) / n
        observed_change = np.eye(len(rows)) - (1 - observed)
        expected_change = columns[:, None] + rows[None, :] - 2 * (1 - expected)
        cells = (observed_change * expected - expected_change * observed) / expected**2 / n
        return 1 - observed / expected, cells.ravel()[self.cell], float(np.sqrt(added * np.square(cells).sum()))

    def agreement(self) -> Agreement:
        n = len(self.items)
        if not n:
            reason = f"no item was answered by both person {self.first} and person {self.second}. Ask them about the same items."
            return Agreement.undefined(reason, 0, 2, left_out=self.unshared)
        if len(self.values) < 2:
            reason = f"both people gave {format_all(n, 'item')} the value {self.values[0]:g}, {BY_CHANCE}"
            return Agreement.undefined(reason, n, 2, 1.0, self.unshared)
        observed, expected = _disagreements(self.table)
        value = 1 - observed / expected
        return Agreement(value, *_interval([self], value), n, 2, 1 - observed, self.unshared)


def _disagreements(table: FloatArray) -> tuple[float, float]:
    """Observed and expected disagreement of a table."""
    n = table.sum()
    return float(1 - np.trace(table) / n), float(1 - (table.sum(axis=0) @ table.sum(axis=1)) / n**2)


def _mean_agreement(shared: Sequence[_SharedItems], pairs: Sequence[PairKappa]) -> Agreement:
    """Mean over the pairs whose kappa is defined."""
    defined = [pair for pair in shared if len(pair.values) > 1]
    value = mean_kappa(pair.kappa.value for pair in pairs)
    counted = defined or shared
    items = np.unique(np.concatenate([pair.items for pair in counted]))
    people = len({person for pair in counted for person in (pair.first, pair.second)})
    observed = float(np.mean([1 - pair.observed_disagreement for pair in counted]))
    if value is None:
        reason = f"the kappa of {format_all(len(shared), 'pair')} is undefined. First pair: {pairs[0].kappa.reason}"
        return Agreement.undefined(reason, len(items), people, observed)
    return Agreement(value, *_interval(defined, value), len(items), people, observed)


def _interval(pairs: Sequence[_SharedItems], value: float) -> tuple[float, float]:
    """The interval that `pairwise_cohen_kappa` describes; it contains the mean kappa of these pairs, `value`."""
    items, item = np.unique(np.concatenate([pair.items for pair in pairs]), return_inverse=True)
    if len(items) < 2:
        return -1.0, 1.0
    kappas, influences, added_errors = zip(*(pair.influence(len(items)) for pair in pairs), strict=True)
    squares = np.square(np.bincount(item, weights=np.concatenate(influences)) / len(pairs))
    variance = float(squares.sum()) + float(np.mean(added_errors)) ** 2
    fourth_powers = float(np.square(squares).sum())
    most = len(items) - 1.0
    freedom = min(most, max(1.0, variance**2 / fourth_powers)) if fourth_powers else most
    center, margin = float(np.mean(kappas)), float(special.stdtrit(freedom, (1 + CONFIDENCE_LEVEL) / 2)) * variance**0.5
    return max(-1.0, min(center - margin, value)), min(1.0, max(center + margin, value))
