"""From several people's answers to one for each item: majorities, unanimity, means, and Dawid and Skene's model of who errs how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray, frozen
from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics.answers import Answers, Values
from crossmatch.metrics.rank_correlation import Masked

SMOOTHING = 0.1  # answers
TOLERANCE = 1e-10  # of the objective, for each answer
STEPS = 5000
LEVEL_WITH = 1e-9  # two probabilities as close are level: what tells them apart is rounding
ROOM = 2**26  # numbers held in memory at a time

MaskedValues = np.ma.MaskedArray[Any, np.dtype[np.int64 | np.float64]]


# Counting


@dataclass(frozen=True, eq=False)
class Votes:
    """How often each item got each value: `votes[i, k]` for item `item[i]` and value `values[k]`, both in ascending order."""

    item: IntArray
    values: Values
    votes: IntArray

    def __post_init__(self) -> None:
        for array in (self.item, self.values, self.votes):
            frozen(array)

    @property
    def answers(self) -> IntArray:
        """The number of answers to each item."""
        return np.asarray(self.votes.sum(axis=1), dtype=np.int64)

    @property
    def most(self) -> BoolArray:
        """Items x values: whether no other value got more votes."""
        return np.asarray(self.votes == self.votes.max(axis=1, keepdims=True), dtype=bool)

    @property
    def tied(self) -> BoolArray:
        """The items with more than one such value."""
        return np.asarray(self.most.sum(axis=1) > 1, dtype=bool)

    @property
    def value(self) -> MaskedValues:
        """The most frequent value of each item; masked where it is tied with another."""
        return np.ma.MaskedArray(self.values[self.votes.argmax(axis=1)], self.tied)

    @property
    def share(self) -> FloatArray:
        """The share of its answers that the most frequent value of each item got."""
        return np.asarray(self.votes.max(axis=1) / self.answers, dtype=np.float64)


def majority(said: Answers) -> Votes:
    """The most frequent value of each item. A tie stays a tie: which values share it is in `most`, and no one is chosen.

    It need not be more than half of the answers: `share` tells how much it is.

    >>> found = majority(Answers.of([(7, 1, 3), (7, 2, 3), (7, 3, 5), (9, 1, 3), (9, 2, 5)]))
    >>> found.value.tolist(), found.tied.tolist(), found.share.tolist()
    ([3, None], [False, True], [0.6666666666666666, 0.5])
    """
    _require_answers(said)
    items, item = np.unique(said.item, return_inverse=True)
    values, code = np.unique(said.value, return_inverse=True)
    _require_names(len(items), len(values))
    votes = np.bincount(item * len(values) + code, minlength=len(items) * len(values)).reshape(len(items), len(values))
    return Votes(items, values, votes.astype(np.int64))


@dataclass(frozen=True, eq=False)
class Verdicts:
    """Of each item: whether it is accepted, rejected, or still waits for answers; exactly one of the three."""

    item: IntArray
    wanted: IntArray  # answers that are the wanted one
    answers: IntArray
    needed: int

    def __post_init__(self) -> None:
        for array in (self.item, self.wanted, self.answers):
            frozen(array)

    @property
    def accepted(self) -> BoolArray:
        return np.asarray((self.wanted == self.answers) & (self.answers >= self.needed), dtype=bool)

    @property
    def rejected(self) -> BoolArray:
        return np.less(self.wanted, self.answers)

    @property
    def waiting(self) -> BoolArray:
        return np.asarray((self.wanted == self.answers) & (self.answers < self.needed), dtype=bool)


def unanimous(said: Answers, wanted: float, needed: int) -> Verdicts:
    """Which items are accepted: those that got at least `needed` answers, all of them the wanted one.

    One other answer rejects an item, however many there are. An item with too few answers, all of them the wanted one, waits.
    Source: hu2019bison, sec. 3, where an example is kept if both people who verified it chose the positive image.

    >>> found = unanimous(Answers.of([(1, 1, 1), (1, 2, 1), (2, 1, 1), (2, 2, 0), (3, 2, 1)]), wanted=1, needed=2)
    >>> found.accepted.tolist(), found.rejected.tolist(), found.waiting.tolist()
    ([True, False, False], [False, True, False], [False, False, True])
    """
    if needed < 1:
        raise CrossmatchError(f"{needed} answers were to accept an item; it needs 1 or more.")
    items, item = np.unique(said.item, return_inverse=True)
    answers = np.bincount(item, minlength=len(items))
    agreed = np.bincount(item[said.value == wanted], minlength=len(items))
    return Verdicts(items, agreed.astype(np.int64), answers.astype(np.int64), needed)


@dataclass(frozen=True, eq=False)
class Spread:
    """The mean and the standard deviation of each item's answers."""

    item: IntArray
    mean: FloatArray
    deviation: Masked  # masked where an item has one answer
    answers: IntArray

    def __post_init__(self) -> None:
        for array in (self.item, self.mean, self.deviation, self.answers):
            frozen(array)


def mean_and_deviation(said: Answers) -> Spread:
    """The mean of each item's answers, as numbers, and how far they are apart: the sample's standard deviation.

        x̄ = 1/m Σ x_j,    s = √( Σ (x_j - x̄)² / (m - 1) )

    One answer has no deviation: it is masked, not 0.

    >>> found = mean_and_deviation(Answers.of([(7, 1, 3), (7, 2, 5), (9, 1, 4)]))
    >>> found.mean.tolist(), found.deviation.round(3).tolist()
    ([4.0, 4.0], [1.414, None])
    """
    _require_answers(said)
    items, item = np.unique(said.item, return_inverse=True)
    answers = np.bincount(item).astype(np.int64)
    mean = np.bincount(item, weights=said.value) / answers
    squares = np.bincount(item, weights=(said.value - mean[item]) ** 2)
    deviation = np.ma.MaskedArray(np.sqrt(squares / np.maximum(1, answers - 1)), answers < 2)
    return Spread(items, mean, deviation, answers)


# Who errs how


@dataclass(frozen=True, eq=False)
class Crowd:
    """What Dawid and Skene's model makes of the answers.

    Items, people and values are in ascending order. `posterior[i, k]` is how likely the true value of item i is k, by the model;
    `confusion[p, k, l]` how often person p answers l where k is true; `prior[k]` how frequent k is. `objective` is what each step
    reached.
    """

    item: IntArray
    person: IntArray
    values: Values
    posterior: FloatArray
    confusion: FloatArray
    prior: FloatArray
    objective: FloatArray

    def __post_init__(self) -> None:
        for array in (self.item, self.person, self.values, self.posterior, self.confusion, self.prior, self.objective):
            frozen(array)

    @property
    def tied(self) -> BoolArray:
        """The items of which more than one value is the likeliest."""
        level = self.posterior >= self.posterior.max(axis=1, keepdims=True) - LEVEL_WITH
        return np.asarray(level.sum(axis=1) > 1, dtype=bool)

    @property
    def value(self) -> MaskedValues:
        """The likeliest value of each item; masked where it is tied with another."""
        return np.ma.MaskedArray(self.values[self.posterior.argmax(axis=1)], self.tied)

    @property
    def accuracy(self) -> FloatArray:
        """How often each person's answers are the true value: Σ_k prior_k confusion_pkk."""
        return np.asarray(np.einsum("pkk,k->p", self.confusion, self.prior), dtype=np.float64)


def dawid_skene(said: Answers, *, smoothing: float = SMOOTHING, tolerance: float = TOLERANCE, steps: int = STEPS) -> Crowd:
    """The true value of each item and the errors of each person that make the answers most likely, by expectation-maximisation.

        E:  T_ik ∝ π_k Π_{(p, l) of i} θ_pkl
        M:  θ_pkl ∝ α + Σ_{i to which p answered l} T_ik,    π_k ∝ α + Σ_i T_ik

    T starts as the shares of the votes, as in the paper, which is what tells the values apart: where people are wrong more often
    than right, all together, the values come out turned around. α = `smoothing` answers are added to every place of π and of every
    person's θ: the posterior mode under Dirichlet priors. With α = 0 it is the paper's maximum likelihood, in which a person with
    few answers becomes certain; where a person met no item of a value, their row of θ is then uniform. Each step makes

        Σ_i log Σ_k π_k Π_{(p, l) of i} θ_pkl + α Σ log θ + α Σ log π

    larger. Done when a step adds no more than `tolerance` for each answer; if that is not so within `steps`, it is an error. The
    maximum is a local one. Nothing is drawn, and the order of answers, items and people changes nothing but rounding. Values are
    those that somebody gave. People need many answers each: with few of them the majority is right more often. Where no item has
    two answers nobody is compared with anybody, and any errors explain the answers as well: that is an error.
    Source: dawid1979maximum.

    >>> said = Answers.from_table([[1, 1, 2], [2, 2, 2], [1, 1, 2], [2, 2, 1], [1, 1, 2], [2, 2, 1], [1, 2, 2]])
    >>> found = dawid_skene(said)
    >>> found.value.tolist(), found.accuracy.round(2).tolist()      # the third person has it the wrong way around
    ([1, 2, 1, 2, 1, 2, 1], [0.96, 0.84, 0.16])
    """
    _require_answers(said)
    if not (smoothing >= 0 and tolerance > 0 and steps >= 2):
        raise CrossmatchError(
            f"smoothing is {smoothing:g}, tolerance {tolerance:g}, steps {steps}; at least 0, above 0, at least 2 were expected."
        )
    found = majority(said)
    if found.answers.max() < 2:
        raise CrossmatchError(
            f"each of the {len(found.item):,} items has one answer, so that nothing tells who errs how. Ask two or more people "
            "about each item, or take the majority."
        )
    people, person = np.unique(said.person, return_inverse=True)
    k = len(found.values)
    _require_names(len(people) * k, k)
    item, code = np.searchsorted(found.item, said.item), np.searchsorted(found.values, said.value)
    given = csr_array((np.ones(len(said)), (item, person * k + code)), shape=(len(found.item), len(people) * k))
    by_answer = given.T.tocsr()
    posterior = found.votes / found.answers[:, None]
    objective: list[float] = []
    for _ in range(steps):
        confusion, prior = _errors(by_answer, posterior, smoothing)
        posterior, reached = _truth(given, confusion, prior, smoothing)
        objective.append(reached)
        if len(objective) > 1 and objective[-1] - objective[-2] <= tolerance * len(said):
            return Crowd(found.item, people, found.values, posterior, confusion, prior, np.array(objective))
    gain = (objective[-1] - objective[-2]) / len(said)
    raise CrossmatchError(
        f"after {steps} steps the likelihood still grows: its logarithm by {gain:.1e} for each answer, more than {tolerance:g}. "
        "Allow more steps, or a larger tolerance."
    )


def _errors(by_answer: csr_array, posterior: FloatArray, smoothing: float) -> tuple[FloatArray, FloatArray]:
    """The M-step: θ (people x true x answered) and π."""
    k = posterior.shape[1]
    counts = (by_answer @ posterior).reshape(-1, k, k).transpose(0, 2, 1) + smoothing
    met = counts.sum(axis=2, keepdims=True)
    confusion = np.where(met > 0, counts / np.where(met > 0, met, 1.0), 1 / k)
    totals = posterior.sum(axis=0) + smoothing
    return confusion, totals / totals.sum()


def _truth(given: csr_array, confusion: FloatArray, prior: FloatArray, smoothing: float) -> tuple[FloatArray, float]:
    """The E-step: T, and what the last M-step reached."""
    k = len(prior)
    with np.errstate(divide="ignore"):  # without smoothing what never happened has the logarithm -inf, and is ruled out
        log_confusion, log_prior = np.log(confusion), np.log(prior)
    logs = given @ log_confusion.transpose(0, 2, 1).reshape(-1, k) + log_prior
    top = logs.max(axis=1, keepdims=True)
    parts = np.exp(logs - top)
    sums = parts.sum(axis=1, keepdims=True)
    reached = float((top + np.log(sums)).sum())
    if smoothing:
        reached += smoothing * float(log_confusion.sum() + log_prior.sum())
    return parts / sums, reached


def _require_names(rows: int, values: int) -> None:
    if rows * values > ROOM:
        raise CrossmatchError(
            f"there are {values:,} different values, too many to count one by one. Round them, or take `mean_and_deviation`."
        )


def _require_answers(said: Answers) -> None:
    if not len(said):
        raise CrossmatchError("there are no answers yet. Collect some first.")
