"""One value per item from several people's answers: majority, unanimity, mean, and the Dawid-Skene model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.agreement.answer_arrays import Answers, Values
from crossmatch.metrics.correlation.kendall_tau import MaskedFloats

SMOOTHING = 0.1  # pseudo-answers
TOLERANCE = 1e-10  # smallest gain of the objective per answer
MAX_STEPS = 5000
TIE_TOLERANCE = 1e-9  # closer probabilities count as tied
MAX_ELEMENTS = 2**26  # array elements in memory at a time

MaskedValues = np.ma.MaskedArray[Any, np.dtype[np.int64 | np.float64]]


# Counting


@dataclass(frozen=True, eq=False)
class Votes:
    """Votes per item and value: `counts[i, k]` for item `item[i]` and value `values[k]`, both ascending."""

    item: IntArray
    values: Values
    counts: IntArray

    @property
    def answer_counts(self) -> IntArray:
        """Number of answers to each item."""
        return np.asarray(self.counts.sum(axis=1), dtype=np.int64)

    @property
    def is_most_frequent(self) -> BoolArray:
        """Items x values: true if no other value has more votes."""
        return np.asarray(self.counts == self.counts.max(axis=1, keepdims=True), dtype=bool)

    @property
    def is_tied(self) -> BoolArray:
        """True for items with more than one most frequent value."""
        return np.asarray(self.is_most_frequent.sum(axis=1) > 1, dtype=bool)

    @property
    def value(self) -> MaskedValues:
        """Most frequent value of each item; masked if tied."""
        return np.ma.MaskedArray(self.values[self.counts.argmax(axis=1)], self.is_tied)

    @property
    def share(self) -> FloatArray:
        """Share of answers with the most frequent value of each item."""
        return np.asarray(self.counts.max(axis=1) / self.answer_counts, dtype=np.float64)


def majority_vote(answers: Answers) -> Votes:
    """Most frequent value of each item. Ties are not broken: `Votes.is_most_frequent` has all tied values.

    The most frequent value may have less than half of the answers, see `Votes.share`.

    >>> votes = majority_vote(Answers.from_triples([(7, 1, 3), (7, 2, 3), (7, 3, 5), (9, 1, 3), (9, 2, 5)]))
    >>> votes.value.tolist(), votes.is_tied.tolist(), votes.share.tolist()
    ([3, None], [False, True], [0.6666666666666666, 0.5])
    """
    _require_answers(answers)
    items, item = np.unique(answers.item, return_inverse=True)
    values, code = np.unique(answers.value, return_inverse=True)
    _require_few_values(len(items), len(values))
    votes = np.bincount(item * len(values) + code, minlength=len(items) * len(values)).reshape(len(items), len(values))
    return Votes(items, values, votes.astype(np.int64))


@dataclass(frozen=True, eq=False)
class UnanimityDecisions:
    """Decision per item: accepted, rejected, or waiting for more answers."""

    item: IntArray
    accepting: IntArray  # answers with the accepting value
    answer_counts: IntArray
    min_answers: int

    @property
    def accepted(self) -> BoolArray:
        return np.asarray((self.accepting == self.answer_counts) & (self.answer_counts >= self.min_answers), dtype=bool)

    @property
    def rejected(self) -> BoolArray:
        return np.less(self.accepting, self.answer_counts)

    @property
    def waiting(self) -> BoolArray:
        return np.asarray((self.accepting == self.answer_counts) & (self.answer_counts < self.min_answers), dtype=bool)


def decide_unanimously(answers: Answers, accepting_value: float, min_answers: int) -> UnanimityDecisions:
    """Accept items with at least `min_answers` answers, all of them equal to `accepting_value`.

    A single other answer rejects an item. An item with too few answers, all accepting, waits.
    Source: hu2019bison, sec. 3: an example is kept if both annotators chose the positive image.

    >>> answers = Answers.from_triples([(1, 1, 1), (1, 2, 1), (2, 1, 1), (2, 2, 0), (3, 2, 1)])
    >>> decisions = decide_unanimously(answers, accepting_value=1, min_answers=2)
    >>> decisions.accepted.tolist(), decisions.rejected.tolist(), decisions.waiting.tolist()
    ([True, False, False], [False, True, False], [False, False, True])
    """
    if min_answers < 1:
        raise CrossmatchError(f"min_answers must be at least 1 (got {min_answers}).")
    items, item = np.unique(answers.item, return_inverse=True)
    answer_counts = np.bincount(item, minlength=len(items))
    agreed = np.bincount(item[answers.value == accepting_value], minlength=len(items))
    return UnanimityDecisions(items, agreed.astype(np.int64), answer_counts.astype(np.int64), min_answers)


@dataclass(frozen=True, eq=False)
class AnswerMeans:
    """Mean and standard deviation of each item's answers."""

    item: IntArray
    mean: FloatArray
    deviation: MaskedFloats  # masked for items with one answer
    answer_counts: IntArray


def mean_answers(answers: Answers) -> AnswerMeans:
    """Mean and sample standard deviation of each item's numeric answers.

        x̄ = 1/m Σ x_j,    s = √( Σ (x_j - x̄)² / (m - 1) )

    The deviation of a single answer is masked, not 0.

    >>> means = mean_answers(Answers.from_triples([(7, 1, 3), (7, 2, 5), (9, 1, 4)]))
    >>> means.mean.tolist(), means.deviation.round(3).tolist()
    ([4.0, 4.0], [1.414, None])
    """
    _require_answers(answers)
    items, item = np.unique(answers.item, return_inverse=True)
    answer_counts = np.bincount(item).astype(np.int64)
    mean = np.bincount(item, weights=answers.value) / answer_counts
    squares = np.bincount(item, weights=(answers.value - mean[item]) ** 2)
    deviation = np.ma.MaskedArray(np.sqrt(squares / np.maximum(1, answer_counts - 1)), answer_counts < 2)
    return AnswerMeans(items, mean, deviation, answer_counts)


# Dawid and Skene's model


@dataclass(frozen=True, eq=False)
class DawidSkeneFit:
    """Dawid and Skene's model fitted to answers. Items, people and values are ascending.

    Attributes:
        item: Item ids.
        person: Person ids.
        values: Possible values.
        posterior: `posterior[i, k]`, the probability that the true value of item i is k.
        confusion: `confusion[p, k, l]`, the probability that person p answers l if k is true.
        prior: `prior[k]`, the frequency of k.
        objective: The objective after each step.
    """

    item: IntArray
    person: IntArray
    values: Values
    posterior: FloatArray
    confusion: FloatArray
    prior: FloatArray
    objective: FloatArray

    @property
    def is_tied(self) -> BoolArray:
        """True for items with more than one most likely value."""
        is_best = self.posterior >= self.posterior.max(axis=1, keepdims=True) - TIE_TOLERANCE
        return np.asarray(is_best.sum(axis=1) > 1, dtype=bool)

    @property
    def value(self) -> MaskedValues:
        """Most likely value of each item; masked if tied."""
        return np.ma.MaskedArray(self.values[self.posterior.argmax(axis=1)], self.is_tied)

    @property
    def accuracy(self) -> FloatArray:
        """Probability that each person's answer is the true value: Σ_k prior_k confusion_pkk."""
        return np.asarray(np.einsum("pkk,k->p", self.confusion, self.prior), dtype=np.float64)


def dawid_skene(
    answers: Answers, *, smoothing: float = SMOOTHING, tolerance: float = TOLERANCE, max_steps: int = MAX_STEPS
) -> DawidSkeneFit:
    """Fit Dawid and Skene's model of true values and annotator errors by expectation maximisation.

        E:  T_ik ∝ π_k Π_{(p, l) of i} θ_pkl
        M:  θ_pkl ∝ α + Σ_{i to which p answered l} T_ik,    π_k ∝ α + Σ_i T_ik

    T starts as the vote shares, as in the paper. If people are wrong more often than right, the values come out swapped. α is
    `smoothing`, which gives the posterior mode under Dirichlet priors; α = 0 gives the paper's maximum likelihood, in which people
    with few answers become certain. If a person answered no item with true value k, their row of θ is uniform. Each step increases

        Σ_i log Σ_k π_k Π_{(p, l) of i} θ_pkl + α Σ log θ + α Σ log π.

    The maximum is local. The fit is deterministic and does not depend on the order of answers, up to rounding. With few answers per
    person, the majority is usually more accurate.

    Args:
        answers: The answers; at least one item needs two.
        smoothing: α.
        tolerance: Stop when a step gains at most this much per answer.
        max_steps: Largest number of steps.

    Raises:
        CrossmatchError: No item has two answers, or the fit did not converge.

    Source: dawid1979maximum.

    >>> answers = Answers.from_table([[1, 1, 2], [2, 2, 2], [1, 1, 2], [2, 2, 1], [1, 1, 2], [2, 2, 1], [1, 2, 2]])
    >>> fit = dawid_skene(answers)
    >>> fit.value.tolist(), fit.accuracy.round(2).tolist()      # the third person swaps the two values
    ([1, 2, 1, 2, 1, 2, 1], [0.96, 0.84, 0.16])
    """
    _require_answers(answers)
    if not (smoothing >= 0 and tolerance > 0 and max_steps >= 2):
        raise CrossmatchError(
            f"dawid_skene needs smoothing >= 0, tolerance > 0 and max_steps >= 2 "
            f"(got {smoothing:g}, {tolerance:g} and {max_steps})."
        )
    votes = majority_vote(answers)
    if votes.answer_counts.max() < 2:
        raise CrossmatchError(
            f"Each of the {len(votes.item):,} items has one answer, so errors cannot be estimated. "
            "Collect at least two answers per item, or use the majority."
        )
    people, person = np.unique(answers.person, return_inverse=True)
    k = len(votes.values)
    _require_few_values(len(people) * k, k)
    item, code = np.searchsorted(votes.item, answers.item), np.searchsorted(votes.values, answers.value)
    answer_matrix = csr_array((np.ones(len(answers)), (item, person * k + code)), shape=(len(votes.item), len(people) * k))
    items_by_answer = answer_matrix.T.tocsr()
    posterior = votes.counts / votes.answer_counts[:, None]
    objective: list[float] = []
    for _ in range(max_steps):
        confusion, prior = _estimate_errors(items_by_answer, posterior, smoothing)
        posterior, value = _estimate_truth(answer_matrix, confusion, prior, smoothing)
        objective.append(value)
        if len(objective) > 1 and objective[-1] - objective[-2] <= tolerance * len(answers):
            return DawidSkeneFit(votes.item, people, votes.values, posterior, confusion, prior, np.array(objective))
    gain = (objective[-1] - objective[-2]) / len(answers)
    raise CrossmatchError(
        f"dawid_skene did not converge in {max_steps} steps: the log likelihood still grows by {gain:.1e} per answer, "
        f"more than {tolerance:g}. Increase max_steps or tolerance."
    )


def _estimate_errors(items_by_answer: csr_array, posterior: FloatArray, smoothing: float) -> tuple[FloatArray, FloatArray]:
    """M-step: θ (people x true value x answer) and π."""
    k = posterior.shape[1]
    counts = (items_by_answer @ posterior).reshape(-1, k, k).transpose(0, 2, 1) + smoothing
    row_totals = counts.sum(axis=2, keepdims=True)
    confusion = np.where(row_totals > 0, counts / np.where(row_totals > 0, row_totals, 1.0), 1 / k)
    totals = posterior.sum(axis=0) + smoothing
    return confusion, totals / totals.sum()


def _estimate_truth(
    answer_matrix: csr_array, confusion: FloatArray, prior: FloatArray, smoothing: float
) -> tuple[FloatArray, float]:
    """E-step: T, and the objective after the last M-step."""
    k = len(prior)
    with np.errstate(divide="ignore"):  # without smoothing, log 0 = -inf rules a value out
        log_confusion, log_prior = np.log(confusion), np.log(prior)
    logs = answer_matrix @ log_confusion.transpose(0, 2, 1).reshape(-1, k) + log_prior
    largest = logs.max(axis=1, keepdims=True)
    likelihoods = np.exp(logs - largest)
    sums = likelihoods.sum(axis=1, keepdims=True)
    objective = float((largest + np.log(sums)).sum())
    if smoothing:
        objective += smoothing * float(log_confusion.sum() + log_prior.sum())
    return likelihoods / sums, objective


def _require_few_values(rows: int, values: int) -> None:
    if rows * values > MAX_ELEMENTS:
        raise CrossmatchError(f"Too many different values to count votes ({values:,}). Round the values, or use `mean_answers`.")


def _require_answers(answers: Answers) -> None:
    if not len(answers):
        raise CrossmatchError("There are no answers to aggregate. Collect answers first.")
