"""Power analysis: how many people should answer each item? Simulates campaigns and decides them by each rule.

    rule          an item is decided
    majority      if one value got more answers than any other
    all agree     if everybody gave the same value: with two people, the two-of-two of hu2019bison, sec. 3
    dawid-skene   if one value is the most probable in the model of each person's errors; for two or more people per item

An undecided item is neither right nor wrong. All functions are pure; random numbers come from a seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import UsageError
from crossmatch.metrics.agreement.answer_arrays import Answers
from crossmatch.metrics.agreement.vote_aggregation import dawid_skene
from crossmatch.metrics.proportions import wilson_interval

if TYPE_CHECKING:
    from collections.abc import Callable

UNDECIDED = -1
LEVEL = 0.95
TOLERANCE = 1e-7  # of Dawid and Skene's likelihood per answer; decisions settle long before
MAX_ITEMS = 100_000
Errors = float | Sequence[Sequence[float]]  # an accuracy, or a confusion matrix: true value (row) by answer (column)


@dataclass(frozen=True)
class PowerEstimate:
    """The outcome for a number of people per item and a rule. Shares of all items, averaged over campaigns."""

    people: int
    rule: str
    right: float
    low: float  # 95 % of campaigns have a share of right decisions from `low` to `high`
    high: float
    wrong: float
    undecided: float
    width: float  # of the 95 % interval for the share of the first value among decided items
    answers: int  # in one campaign


def power(
    errors: Errors | Sequence[Errors],
    *,
    items: int = 200,
    prior: Sequence[float] = (0.5, 0.5),
    people: Iterable[int] = range(1, 10),
    crowd: int = 30,
    campaigns: int = 100,
    rules: Iterable[str] = ("majority", "all agree", "dawid-skene"),
    seed: int = 0,
) -> list[PowerEstimate]:
    """The share of items that would be decided right, for each number of people and each rule.

    Args:
        errors: An accuracy, with all mistakes equally likely, or a confusion matrix; or a list of these for the people in turn.
        items: The number of items of a campaign.
        prior: The frequency of each value.
        people: The numbers of people per item to compare. They are different people, drawn from the crowd for each item.
        crowd: The number of people who take part.
        campaigns: The number of simulated campaigns.
        rules: The rules to compare.
        seed: Seed of the random numbers.

    >>> for estimate in power(0.8, people=(1, 3), rules=["majority"], items=500):
    ...     print(estimate.people, round(estimate.right, 2))
    1 0.8
    3 0.9
    """
    shares, numbers, rule_names = _shares(prior), _numbers(people, crowd), [_rule(rule) for rule in rules]
    confusion = _crowd(errors, len(shares), crowd)
    if not 1 <= items <= MAX_ITEMS or campaigns < 1:
        raise UsageError(
            f"Expected 1 to {MAX_ITEMS:,} items and at least 1 campaign (got {items} items and {campaigns} campaigns)."
        )
    out = []
    for n in numbers:
        drawn = [draw_campaign(np.random.default_rng([seed, n, k]), confusion, shares, items, n) for k in range(campaigns)]
        out += [_estimate_power(n, rule, drawn, len(shares)) for rule in rule_names if n >= MIN_PEOPLE.get(rule, 1)]
    return out


# -- drawing


@dataclass(frozen=True, eq=False)
class DrawnCampaign:
    """The true value of each item, and the people and values of its answers (items x people)."""

    truth: IntArray
    person: IntArray
    value: IntArray


def draw_campaign(rng: np.random.Generator, confusion: FloatArray, prior: FloatArray, items: int, people: int) -> DrawnCampaign:
    """Draw items with true values, and the answers of `people` different people of the crowd to each."""
    truth = rng.choice(len(prior), size=items, p=prior).astype(np.int64)
    person = np.argsort(rng.random((items, len(confusion))), axis=1)[:, :people].astype(np.int64)
    odds = np.cumsum(confusion[person, truth[:, None]], axis=2)  # items x people x values
    value = (rng.random((items, people, 1)) * odds[:, :, -1:] >= odds).sum(axis=2)
    return DrawnCampaign(truth, person, value.astype(np.int64))


# -- deciding


def by_majority(drawn: DrawnCampaign, values: int) -> IntArray:
    """The most frequent value of each item; a tie stays undecided."""
    votes = np.stack([(drawn.value == k).sum(axis=1) for k in range(values)], axis=1)
    tied = (votes == votes.max(axis=1, keepdims=True)).sum(axis=1) > 1
    return np.where(tied, UNDECIDED, votes.argmax(axis=1))


def by_agreement(drawn: DrawnCampaign, values: int) -> IntArray:
    """The value that everybody gave."""
    same = (drawn.value == drawn.value[:, :1]).all(axis=1)
    return np.where(same, drawn.value[:, 0], UNDECIDED)


def by_model(drawn: DrawnCampaign, values: int) -> IntArray:
    """The likeliest value by Dawid and Skene's model of the people."""
    item = np.repeat(np.arange(len(drawn.truth)), drawn.value.shape[1])
    aggregated = dawid_skene(Answers(item, drawn.person.ravel(), drawn.value.ravel()), tolerance=TOLERANCE)
    return np.asarray(aggregated.value.filled(UNDECIDED), dtype=np.int64)


RULES: Mapping[str, Callable[[DrawnCampaign, int], IntArray]] = {
    "majority": by_majority,
    "all agree": by_agreement,
    "dawid-skene": by_model,
}

MIN_PEOPLE: Mapping[str, int] = {"dawid-skene": 2}  # people per item that a rule needs


def _estimate_power(people: int, rule: str, campaigns: Sequence[DrawnCampaign], values: int) -> PowerEstimate:
    rows = np.array([_decision_shares(campaign, RULES[rule](campaign, values)) for campaign in campaigns])
    right, wrong, undecided, width = rows.mean(axis=0).tolist()
    low, high = np.quantile(rows[:, 0], [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return PowerEstimate(people, rule, right, low, high, wrong, undecided, width, people * len(campaigns[0].truth))


def _decision_shares(campaign: DrawnCampaign, decisions: IntArray) -> tuple[float, float, float, float]:
    """The shares of items that were decided right, wrong, and not at all; and the width of the first value's interval."""
    decided, right = decisions != UNDECIDED, decisions == campaign.truth
    n = int(decided.sum())
    low, high = wilson_interval(float((decisions[decided] == 0).mean()), n) if n else (0.0, 1.0)
    return float(right.mean()), float((decided & ~right).mean()), float((~decided).mean()), high - low


# -- checking the assumptions


def _crowd(errors: Errors | Sequence[Errors], values: int, crowd: int) -> FloatArray:
    """The confusion matrix of each person of the crowd: people x true x answered."""
    many = [errors] if isinstance(errors, int | float) or _is_matrix(errors) else list(errors)
    if not many or crowd < 1:
        raise UsageError("There are no annotators. Give an accuracy, and a crowd of at least one person.")
    kinds = np.array([_confusion(kind, values) for kind in many])
    return np.asarray(kinds[np.arange(crowd) % len(kinds)], dtype=np.float64)


def _is_matrix(errors: object) -> bool:
    rows = list(errors) if isinstance(errors, Iterable) else []
    return bool(rows) and all(isinstance(row, Iterable) and all(isinstance(v, int | float) for v in row) for row in rows)


def _confusion(errors: object, values: int) -> FloatArray:
    if isinstance(errors, int | float):
        if not 0 <= errors <= 1:
            raise UsageError(f"An accuracy must be between 0 and 1 (got {errors:g}).")
        others = (1 - errors) / (values - 1)
        return np.full((values, values), others) + np.eye(values) * (errors - others)
    try:
        matrix = np.asarray(errors, dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.shape != (values, values) or not (matrix >= 0).all() or not np.allclose(matrix.sum(axis=1), 1, atol=1e-6):
        raise UsageError(
            f"A confusion matrix has shape {matrix.shape}; expected {values} x {values} shares, with a row for each true value "
            "that sums to 1 and a column for each answer."
        )
    return matrix


def _shares(prior: Sequence[float]) -> FloatArray:
    shares = np.asarray(prior, dtype=np.float64)
    if shares.ndim != 1 or len(shares) < 2 or not (shares >= 0).all() or not shares.sum() > 0 or not np.isfinite(shares).all():
        raise UsageError(f"The prior is {list(prior)}; expected the frequencies of two or more values, as in 0.3, 0.7.")
    return np.asarray(shares / shares.sum(), dtype=np.float64)


def _numbers(people: Iterable[int], crowd: int) -> list[int]:
    numbers = sorted(set(people))
    wrong = next((n for n in numbers if not 1 <= n <= crowd), None)
    if wrong is not None or not numbers:
        raise UsageError(f"People per item must be between 1 and the size of the crowd, {crowd} (got {wrong}).")
    return numbers


def _rule(name: str) -> str:
    if name not in RULES:
        raise UsageError(f"Unknown rule {name!r}; expected one of {', '.join(RULES)}.")
    return name
