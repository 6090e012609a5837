"""The result type of agreement coefficients, and helpers that all coefficients share.

Each coefficient is 1 - D_o / D_e: observed disagreement over the disagreement expected by chance. It is 1 for perfect agreement,
0 for agreement at chance level, and negative below chance. If all answers have the same value, D_e is 0 and the coefficient is
undefined: `Agreement.value` is then None, and `Agreement.reason` says why.
"""

from __future__ import annotations

from dataclasses import dataclass

from crossmatch.metrics.proportions import wilson_interval

ROUNDING = 1e-9  # a smaller standard error or difference is rounding
BY_CHANCE = "so the agreement expected by chance is also perfect. Add items with different answers."


@dataclass(frozen=True)
class Agreement:
    """An agreement coefficient with its 95 % confidence interval; None with a reason where it is undefined.

    Attributes:
        value: The coefficient, or None.
        low: Lower end of the interval.
        high: Upper end of the interval.
        items: Number of items that count.
        people: Number of annotators who count.
        observed: Share of equal answers among all pairs of answers to the same item, without correction for chance.
        left_out: Number of items that do not count.
        reason: Why the value is None.

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
        value, low, high = (f"{round(x or 0.0, 2) + 0.0:.2f}" for x in (self.value, self.low, self.high))  # no "-0.00"
        counts = f"{format_count(self.items, 'item')}, {format_count(self.people, 'person', 'people')}"
        return f"{value} (95 % interval {low} to {high}; {counts})"


def interval_without_variance(observed: float, expected: float, items: int, max_disagreement: float = 1.0) -> tuple[float, float]:
    """Interval of 1 - D_o / D_e if the standard error is zero: Wilson's interval of D_o as a share of its maximum."""
    low, high = wilson_interval(min(1.0, max(0.0, observed / max_disagreement)), float(items))
    return max(-1.0, 1 - max_disagreement * high / expected), min(1.0, 1 - max_disagreement * low / expected)


def format_count(n: int, singular: str, plural: str = "") -> str:
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def format_all(n: int, singular: str) -> str:
    return f"the one {singular}" if n == 1 else f"all {format_count(n, singular)}"
