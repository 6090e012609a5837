"""Expected forced-choice results of scorers without knowledge, and a check of measured results against them.

Each gate scorer is described by the random orders behind its scores. All orders are equally likely, so the expected value of a
metric is its mean over all orders, ties included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from math import factorial, prod, sqrt

import numpy as np
from scipy import special

from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.forced_choice import Choice, closed_form_chance

MAX_ORDERS = 400_000  # orders that are enumerated; of more, this many are drawn (3 captions x 3 images have 362,880)
FALSE_ALARM_RATE = 0.05  # probability that any check of a gate fails although all scorers are correct


@dataclass(frozen=True)
class UninformedScorer:
    """A scorer as a function of random orders: `sizes(C, I)` of the orders, `scores(C, I, orders)` of shape (orders, C, I)."""

    sizes: Callable[[int, int], tuple[int, ...]]
    scores: Callable[[int, int, Sequence[FloatArray]], FloatArray]


SCORERS: Mapping[str, UninformedScorer] = {
    "constant": UninformedScorer(lambda c, i: (), lambda c, i, orders: np.zeros((1, c, i))),
    "random": UninformedScorer(lambda c, i: (c * i,), lambda c, i, orders: orders[0].reshape(-1, c, i)),
    "text-blind": UninformedScorer(lambda c, i: (i,), lambda c, i, orders: orders[0][:, None, :].repeat(c, axis=1)),
    "image-blind": UninformedScorer(lambda c, i: (c,), lambda c, i, orders: orders[0][:, :, None].repeat(i, axis=2)),
    "position-biased": UninformedScorer(lambda c, i: (c, i), lambda c, i, orders: orders[0][:, :, None] + orders[1][:, None, :]),
}


@dataclass(frozen=True)
class ExpectedValue:
    """An expected value and its standard error, which is 0 if all orders were enumerated."""

    value: float
    error: float


@lru_cache(maxsize=1024)
def expected_value(scorer: str, choice: Choice, shape: tuple[int, int]) -> ExpectedValue:
    """Mean of a metric over all equally likely orders behind a scorer, on trials of `shape` (captions, images).

    Exact where a random scorer has a closed form, and for up to 400,000 orders, which covers every scorer up to 3 x 3. Otherwise
    400,000 orders are drawn with a fixed seed; if all give the same value, the error is that of one deviating order.

    >>> from crossmatch.metrics.forced_choice import group_choice, i2t_choice, t2i_choice
    >>> [round(expected_value("random", choice, (2, 2)).value, 4) for choice in (i2t_choice, t2i_choice, group_choice)]
    [0.25, 0.25, 0.1667]
    >>> [expected_value(scorer, t2i_choice, (1, 2)) for scorer in ("text-blind", "constant")]     # two images for one caption
    [ExpectedValue(value=0.5, error=0.0), ExpectedValue(value=0.0, error=0.0)]
    """
    if scorer not in SCORERS:
        raise CrossmatchError(f"Unknown gate scorer {scorer!r}. Choose one of {', '.join(SCORERS)}.")
    closed_form = closed_form_chance(choice, shape) if scorer == "random" else None
    if closed_form is not None:
        return ExpectedValue(closed_form, 0.0)
    random_scorer = SCORERS[scorer]
    sizes = random_scorer.sizes(*shape)
    is_exact = prod(factorial(size) for size in sizes) <= MAX_ORDERS
    orders = _all_orders(sizes) if is_exact else _some_orders(sizes)
    values = choice(random_scorer.scores(*shape, orders))
    value = float(values.mean())
    return ExpectedValue(value, 0.0 if is_exact else max(float(values.std()) / sqrt(len(values)), 1 / len(values)))


def _all_orders(sizes: Sequence[int]) -> list[FloatArray]:
    """Every combination of one order per size, as arrays of shape (combinations, size)."""
    single = [np.asarray(list(permutations(range(size))), dtype=np.float64) for size in sizes]
    rows_of_each = (
        np.indices([len(orders) for orders in single]).reshape(len(single), -1) if single else np.zeros((0, 1), dtype=np.int64)
    )
    return [orders[rows] for orders, rows in zip(single, rows_of_each, strict=True)]


def _some_orders(sizes: Sequence[int]) -> list[FloatArray]:
    rng = np.random.default_rng(0)
    return [rng.random((MAX_ORDERS, size)) for size in sizes]


@dataclass(frozen=True)
class GateResult:
    """A measured result of a gate scorer: the value of a metric from `effective_trials` independent trials.

    Trials that share an image or a caption are not independent; `proportions.proportion` computes the effective number.
    """

    scorer: str
    metric: str
    choice: Choice
    shape: tuple[int, int]
    value: float
    effective_trials: float


@dataclass(frozen=True)
class GateCheck:
    """A measured value, its expected value, and the interval in which it must lie."""

    scorer: str
    metric: str
    value: float
    expected: float
    low: float
    high: float
    passed: bool


def check_gate(results: Iterable[GateResult], level: float = FALSE_ALARM_RATE) -> tuple[GateCheck, ...]:
    """Compare each result with its expected value.

    With K results, the interval of one is the middle 1 - level / K of Binomial(n, p) / n (Bonferroni), where p is the expected
    value and n the effective number of trials; a sampled p widens it by its own error. If p is 0 or 1, the value must be equal
    to it.

    >>> from crossmatch.metrics.forced_choice import t2i_choice
    >>> fine, broken = check_gate(GateResult("random", "t2i", t2i_choice, (1, 2), value, 1_000) for value in (0.49, 0.6))
    >>> fine.passed, broken.passed, fine.expected, (round(fine.low, 3), round(fine.high, 3))
    (True, False, 0.5, (0.465, 0.535))
    """
    all_results = tuple(results)
    return tuple(_check(result, level / len(all_results)) for result in all_results)


def _check(result: GateResult, level: float) -> GateCheck:
    expected = expected_value(result.scorer, result.choice, result.shape)
    n = max(1, int(result.effective_trials))
    margin = float(special.ndtri(1 - level / 2)) * expected.error
    low, high = (_binomial_quantile(q, n, expected.value) / n for q in (level / 2, 1 - level / 2))
    low, high = max(0.0, low - margin), min(1.0, high + margin)
    passed = low <= result.value <= high
    return GateCheck(result.scorer, result.metric, result.value, expected.value, low, high, passed)


def _binomial_quantile(q: float, n: int, p: float) -> float:
    """Smallest k with P(at most k of n successes) >= q; n p if p is 0 or 1."""
    if p in (0.0, 1.0):
        return n * p
    k = float(np.ceil(special.bdtrik(q, n, p)))
    return k - 1 if k > 0 and special.bdtr(k - 1, n, p) >= q else k
