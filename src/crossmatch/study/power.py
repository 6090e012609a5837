"""How many people should judge each item? Campaigns are drawn from what is assumed of people, and decided as a real one would be.

    rule          an item is decided
    majority      if one value got more answers than any other
    all agree     if everybody gave the same value: with two people, the two-of-two of hu2019bison, sec. 3
    dawid-skene   by the model of who errs how, if one value is the likeliest; with two people for each item or more

What is not decided is neither right nor wrong. Everything is a pure function of its arguments and a seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import WrongWords
from crossmatch.metrics.answers import Answers
from crossmatch.metrics.crowd import dawid_skene
from crossmatch.metrics.proportion import wilson

if TYPE_CHECKING:
    from collections.abc import Callable

UNDECIDED = -1
LEVEL = 0.95
ENOUGH = 1e-7  # Dawid and Skene's likelihood, for each answer: what decides an item has settled long before
MOST_ITEMS = 100_000
Errors = float | Sequence[Sequence[float]]  # how often a person is right, or a matrix: of the true value (row), what is answered


@dataclass(frozen=True)
class Power:
    """What comes of so many people for each item, by one rule. Shares are of all items, as the mean over campaigns."""

    people: int
    rule: str
    right: float
    low: float  # between here and `high` the share that is decided right lies in 95 % of campaigns
    high: float
    wrong: float
    undecided: float
    width: float  # of the 95 % interval for the share of the first value among decided items, as it would be published
    answers: int  # that a campaign needs


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
) -> list[Power]:
    """The share of items that would be decided right, for each number of people and each rule.

    `errors` are those of everybody: an accuracy, with all mistakes alike, or a matrix; or a list of them, which the people of the
    `crowd` have in turn. `prior` is how frequent each value is. Each item is judged by different people, drawn from the crowd.

    >>> for found in power(0.8, people=(1, 3), rules=["majority"], items=500):
    ...     print(found.people, round(found.right, 2))
    1 0.8
    3 0.9
    """
    shares, numbers, named = _shares(prior), _numbers(people, crowd), [_rule(rule) for rule in rules]
    confusion = _crowd(errors, len(shares), crowd)
    if not 1 <= items <= MOST_ITEMS or campaigns < 1:
        raise WrongWords(
            f"{items} items in {campaigns} campaigns were asked for; 1 to {MOST_ITEMS:,}, and at least one, were expected."
        )
    out = []
    for n in numbers:
        drawn = [draw_campaign(np.random.default_rng([seed, n, k]), confusion, shares, items, n) for k in range(campaigns)]
        out += [_told(n, rule, drawn, len(shares)) for rule in named if n >= LEAST.get(rule, 1)]
    return out


def needed(found: Iterable[Power], rule: str, right: float) -> int | None:
    """The least number of people with which a rule decides so large a share of items right; none if no number does."""
    return min((one.people for one in found if one.rule == rule and one.right >= right), default=None)


# -- drawing


@dataclass(frozen=True, eq=False)
class Campaign:
    """What was true of each item, and who said what of it: items x people for each."""

    truth: IntArray
    person: IntArray
    value: IntArray


def draw_campaign(rng: np.random.Generator, confusion: FloatArray, prior: FloatArray, items: int, people: int) -> Campaign:
    """Items with true values, and the answers of so many different people of the crowd to each."""
    truth = rng.choice(len(prior), size=items, p=prior).astype(np.int64)
    person = np.argsort(rng.random((items, len(confusion))), axis=1)[:, :people].astype(np.int64)
    odds = np.cumsum(confusion[person, truth[:, None]], axis=2)  # items x people x values
    value = (rng.random((items, people, 1)) * odds[:, :, -1:] >= odds).sum(axis=2)
    return Campaign(truth, person, value.astype(np.int64))


# -- deciding


def by_majority(drawn: Campaign, values: int) -> IntArray:
    """The most frequent value of each item; a tie stays undecided."""
    votes = np.stack([(drawn.value == k).sum(axis=1) for k in range(values)], axis=1)
    tied = (votes == votes.max(axis=1, keepdims=True)).sum(axis=1) > 1
    return np.where(tied, UNDECIDED, votes.argmax(axis=1))


def by_agreement(drawn: Campaign, values: int) -> IntArray:
    """The value that everybody gave."""
    same = (drawn.value == drawn.value[:, :1]).all(axis=1)
    return np.where(same, drawn.value[:, 0], UNDECIDED)


def by_model(drawn: Campaign, values: int) -> IntArray:
    """The likeliest value by Dawid and Skene's model of the people."""
    item = np.repeat(np.arange(len(drawn.truth)), drawn.value.shape[1])
    found = dawid_skene(Answers(item, drawn.person.ravel(), drawn.value.ravel()), tolerance=ENOUGH)
    return np.asarray(found.value.filled(UNDECIDED), dtype=np.int64)


RULES: Mapping[str, Callable[[Campaign, int], IntArray]] = {
    "majority": by_majority,
    "all agree": by_agreement,
    "dawid-skene": by_model,
}

LEAST: Mapping[str, int] = {"dawid-skene": 2}  # people for each item without whom a rule decides nothing


def _told(people: int, rule: str, drawn: Sequence[Campaign], values: int) -> Power:
    rows = np.array([_shares_of(one, RULES[rule](one, values)) for one in drawn])
    right, wrong, undecided, width = rows.mean(axis=0).tolist()
    low, high = np.quantile(rows[:, 0], [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return Power(people, rule, right, low, high, wrong, undecided, width, people * len(drawn[0].truth))


def _shares_of(one: Campaign, said: IntArray) -> tuple[float, float, float, float]:
    """The shares of items that were decided right, wrong, and not at all; and the width of the first value's interval."""
    decided, right = said != UNDECIDED, said == one.truth
    n = int(decided.sum())
    low, high = wilson(float((said[decided] == 0).mean()), n) if n else (0.0, 1.0)
    return float(right.mean()), float((decided & ~right).mean()), float((~decided).mean()), high - low


# -- sliders


def mean_width(deviation: float, people: int) -> float:
    """The expected width of the 95 % interval around an item's mean, where people's answers spread by this standard deviation.

        2 t E[s] / √n,    E[s] = σ √(2 / (n - 1)) Γ(n / 2) / Γ((n - 1) / 2)

    One answer tells nothing of how far others would be apart: its interval has no end.

    >>> [round(mean_width(1.0, n), 2) for n in (2, 5, 9)]
    [14.34, 2.33, 1.49]
    """
    if people < 1 or deviation < 0:
        raise WrongWords(f"{people} people with a deviation of {deviation:g} cannot be; at least 1 and 0 were expected.")
    if people == 1:
        return math.inf
    unbiased = math.sqrt(2 / (people - 1)) * math.exp(math.lgamma(people / 2) - math.lgamma((people - 1) / 2))
    return float(2 * stats.t.ppf((1 + LEVEL) / 2, people - 1) * deviation * unbiased / math.sqrt(people))


# -- what is assumed


def _crowd(errors: Errors | Sequence[Errors], values: int, crowd: int) -> FloatArray:
    """The confusion matrix of each person of the crowd: people x true x answered."""
    many = [errors] if isinstance(errors, int | float) or _is_matrix(errors) else list(errors)
    if not many or crowd < 1:
        raise WrongWords("nobody is there to judge. Give an accuracy, and a crowd of one person at least.")
    kinds = np.array([_confusion(one, values) for one in many])
    return np.asarray(kinds[np.arange(crowd) % len(kinds)], dtype=np.float64)


def _is_matrix(given: object) -> bool:
    rows = list(given) if isinstance(given, Iterable) else []
    return bool(rows) and all(isinstance(row, Iterable) and all(isinstance(v, int | float) for v in row) for row in rows)


def _confusion(one: object, values: int) -> FloatArray:
    if isinstance(one, int | float):
        if not 0 <= one <= 1:
            raise WrongWords(f"an accuracy is {one:g}; a share from 0 to 1 was expected.")
        others = (1 - one) / (values - 1)
        return np.full((values, values), others) + np.eye(values) * (one - others)
    try:
        matrix = np.asarray(one, dtype=np.float64)
    except (TypeError, ValueError):
        matrix = np.empty(0)
    if matrix.shape != (values, values) or not (matrix >= 0).all() or not np.allclose(matrix.sum(axis=1), 1, atol=1e-6):
        raise WrongWords(
            f"a confusion matrix has shape {matrix.shape}; {values} x {values} shares were expected: for each true value a row "
            "with the sum 1, a column for each answer."
        )
    return matrix


def _shares(prior: Sequence[float]) -> FloatArray:
    shares = np.asarray(prior, dtype=np.float64)
    if shares.ndim != 1 or len(shares) < 2 or not (shares >= 0).all() or not shares.sum() > 0 or not np.isfinite(shares).all():
        raise WrongWords(f"the prior is {list(prior)}; how frequent each of two or more values is was expected, as in 0.3, 0.7.")
    return np.asarray(shares / shares.sum(), dtype=np.float64)


def _numbers(people: Iterable[int], crowd: int) -> list[int]:
    numbers = sorted(set(people))
    wrong = next((n for n in numbers if not 1 <= n <= crowd), None)
    if wrong is not None or not numbers:
        raise WrongWords(f"{wrong} people for each item were asked for, of a crowd of {crowd}. Ask for 1 to {crowd}.")
    return numbers


def _rule(name: str) -> str:
    if name not in RULES:
        raise WrongWords(f"there is no rule {name!r}; one of {', '.join(RULES)} was expected.")
    return name
