"""A coefficient of agreement with its interval, and what the measures of it share.

Each coefficient is 1 - D_o / D_e: the disagreement seen over the disagreement by chance. It is 1 where people agree on every item,
0 where they agree as often as chance would have it, and below 0 where less. Where all answers are the same value there is no
disagreement by chance either, and the coefficient is 0 / 0: `Agreement.value` is then None, and `reason` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from crossmatch.core.errors import MissingDependency
from crossmatch.metrics.proportion import wilson

ROUNDING = 1e-9  # a spread as small is none: what is left of it is rounding
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
        counts = f"{number_of(self.items, 'item')}, {number_of(self.people, 'person', 'people')}"
        return f"{value} (95 % interval {low} to {high}; {counts})"


def without_spread(seen: float, chance: float, items: int, most: float = 1.0) -> tuple[float, float]:
    """The interval where every item tells the same: Wilson's of the disagreement, as a share of the most there can be."""
    least, worst = wilson(min(1.0, max(0.0, seen / most)), float(items))
    return max(-1.0, 1 - most * worst / chance), min(1.0, 1 - most * least / chance)


def library(module: str) -> Any:
    """They are slow to import, and only who measures agreement needs them."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingDependency(module.partition(".")[0], "study") from None


def number_of(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def all_of(n: int, one: str) -> str:
    return f"the one {one}" if n == 1 else f"all {number_of(n, one)}"
