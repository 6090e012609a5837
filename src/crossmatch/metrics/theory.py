"""What a scorer that knows nothing must get in forced choices, and whether it did.

The values are derived: each scorer of the trust gate is told by the random orders behind its scores. All of them are equally
likely, so the mean of a metric over all of them is its expected value, ties and all. Nothing here is typed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from math import factorial, prod, sqrt

import numpy as np
from scipy import special

from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics.choice import ASKED, chance

Choice = Callable[[FloatArray], FloatArray]
MOST = 400_000  # orders that are gone through; of more, so many are drawn (all of 3 captions x 3 images are 362,880)
LEVEL = 0.05  # the chance that any check of a whole gate fails although all scorers are what they claim


@dataclass(frozen=True)
class Ignorance:
    """A scorer by its random orders: `sizes(c, i)` items are ordered apart, `scores(c, i, orders)` has shape (orders, C, I)."""

    sizes: Callable[[int, int], tuple[int, ...]]
    scores: Callable[[int, int, Sequence[FloatArray]], FloatArray]


SCORERS: Mapping[str, Ignorance] = {
    "constant": Ignorance(lambda c, i: (), lambda c, i, orders: np.zeros((1, c, i))),
    "random": Ignorance(lambda c, i: (c * i,), lambda c, i, orders: orders[0].reshape(-1, c, i)),
    "text-blind": Ignorance(lambda c, i: (i,), lambda c, i, orders: orders[0][:, None, :].repeat(c, axis=1)),
    "image-blind": Ignorance(lambda c, i: (c,), lambda c, i, orders: orders[0][:, :, None].repeat(i, axis=2)),
    "position-biased": Ignorance(lambda c, i: (c, i), lambda c, i, orders: orders[0][:, :, None] + orders[1][:, None, :]),
}


@dataclass(frozen=True)
class Expected:
    """A value by theory, and its standard error: 0 where all orders were gone through."""

    value: float
    error: float


@lru_cache(maxsize=1024)
def theory(scorer: str, choice: Choice, shape: tuple[int, int]) -> Expected:
    """The mean of a metric over all equally likely orders behind a scorer, on trials of `shape` (captions, images).

    Exact up to 400,000 orders, which is every scorer up to 3 x 3. Of more, 400,000 are drawn with a fixed seed; if they all agree,
    the error is that of a single one that does not.

    >>> from crossmatch.metrics.choice import group_choice, i2t_choice, t2i_choice
    >>> [round(theory("random", choice, (2, 2)).value, 4) for choice in (i2t_choice, t2i_choice, group_choice)]
    [0.25, 0.25, 0.1667]
    >>> theory("text-blind", t2i_choice, (1, 2)), theory("constant", t2i_choice, (1, 2))     # two images for one caption
    (Expected(value=0.5, error=0.0), Expected(value=0.0, error=0.0))
    """
    if scorer not in SCORERS:
        raise CrossmatchError(f"theory knows no scorer {scorer!r}; it knows {', '.join(SCORERS)}.")
    behind = SCORERS[scorer]
    sizes = behind.sizes(*shape)
    exact = prod(factorial(size) for size in sizes) <= MOST
    orders = _all_orders(sizes) if exact else _some_orders(sizes)
    values = choice(behind.scores(*shape, orders))
    value = float(values.mean())
    return Expected(value, 0.0 if exact else max(float(values.std()) / sqrt(len(values)), 1 / len(values)))


def expected(scorer: str, choice: Choice, shape: tuple[int, int]) -> float:
    """The value of `theory`.

    >>> from crossmatch.metrics.choice import i2t_choice
    >>> expected("position-biased", i2t_choice, (2, 2))         # both images take the caption shown first: one of them is wrong
    0.0
    """
    return theory(scorer, choice, shape).value


def _all_orders(sizes: Sequence[int]) -> list[FloatArray]:
    """Every combination of an order of each size, shape (combinations, size) each."""
    single = [np.asarray(list(permutations(range(size))), dtype=np.float64) for size in sizes]
    at = np.indices([len(orders) for orders in single]).reshape(len(single), -1) if single else np.zeros((0, 1), dtype=np.int64)
    return [orders[rows] for orders, rows in zip(single, at, strict=True)]


def _some_orders(sizes: Sequence[int]) -> list[FloatArray]:
    dice = np.random.default_rng(0)
    return [dice.random((MOST, size)) for size in sizes]


@dataclass(frozen=True)
class Finding:
    """What a scorer of the gate got: `value` of a metric, from as much as `effective` independent trials.

    Trials that share an image or a caption are not independent for scorers that go by one of them; `proportion.share` says how many
    independent trials n they are worth, by their clusters.
    """

    scorer: str
    metric: str
    choice: Choice
    shape: tuple[int, int]
    value: float
    effective: float


@dataclass(frozen=True)
class Verdict:
    """What was found, what theory says, and the interval around theory in which the finding had to be."""

    scorer: str
    metric: str
    found: float
    theory: float
    low: float
    high: float
    passed: bool


def verdicts(findings: Iterable[Finding], level: float = LEVEL) -> tuple[Verdict, ...]:
    """Each finding against theory. All of them together fail by accident with a probability of at most `level` (Bonferroni).

    With K findings, the interval of one holds the middle 1 - level / K of Binomial(n, p) / n, where p is the value by theory and n
    the effective number of trials; a sampled p widens it by its own error. Where p is 0 or 1, the finding must be just that.

    >>> from crossmatch.metrics.choice import t2i_choice
    >>> fine, broken = verdicts(Finding("random", "t2i", t2i_choice, (1, 2), value, 1_000) for value in (0.49, 0.6))
    >>> fine.passed, broken.passed, fine.theory, (round(fine.low, 3), round(fine.high, 3))
    (True, False, 0.5, (0.465, 0.535))
    """
    asked = tuple(findings)
    return tuple(_verdict(finding, level / len(asked)) for finding in asked)


def _verdict(finding: Finding, level: float) -> Verdict:
    if finding.scorer == "random" and finding.metric in ASKED:
        said = Expected(chance(finding.metric, finding.shape), 0.0)  # known for every shape
    else:
        said = theory(finding.scorer, finding.choice, finding.shape)
    n = max(1, int(finding.effective))
    reach = float(special.ndtri(1 - level / 2)) * said.error
    low, high = (_quantile(q, n, said.value) / n for q in (level / 2, 1 - level / 2))
    low, high = max(0.0, low - reach), min(1.0, high + reach)
    passed = low <= finding.value <= high
    return Verdict(finding.scorer, finding.metric, finding.value, said.value, low, high, passed)


def _quantile(q: float, n: int, p: float) -> float:
    """The smallest k for which at most k of n successes have at least probability q; n p where nothing can vary."""
    if p in (0.0, 1.0):
        return n * p
    least = float(np.ceil(special.bdtrik(q, n, p)))
    return least - 1 if least > 0 and special.bdtr(least - 1, n, p) >= q else least
