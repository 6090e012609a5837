"""Position bias: against SciPy and against enumeration of all outcomes."""

from __future__ import annotations

from itertools import product
from math import factorial, prod

import numpy as np
import pytest
from scipy import stats

from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.agreement.side_bias import side_bias


@pytest.mark.parametrize(("left", "right"), [(0, 1), (5, 5), (60, 40), (3, 17), (700, 600)])
def test_two_positions_use_the_binomial_test(left, right):
    bias, slow = side_bias(left, right), stats.binomtest(left, left + right)
    assert bias.p == pytest.approx(slow.pvalue, rel=1e-9)
    assert bias.choices == left + right
    assert [s.value for s in bias.proportions] == [left / (left + right), right / (left + right)]
    if left + right > 1:
        wilson = slow.proportion_ci(method="wilson")
        assert (bias.proportions[0].low, bias.proportions[0].high) == pytest.approx((wilson.low, wilson.high), abs=1e-12)


@pytest.mark.parametrize("counts", [(2, 1, 1), (4, 0, 0), (0, 0, 5), (1, 2, 0, 3)])
def test_more_positions_enumerate_all_outcomes(counts):
    n, k = sum(counts), len(counts)
    slow = sum(
        factorial(n) / prod(factorial(x) for x in way) / k**n
        for way in product(range(n + 1), repeat=k)
        if sum(way) == n and sum(x * x for x in way) >= sum(x * x for x in counts)
    )
    bias = side_bias(*counts)
    assert (bias.p, bias.test) == (pytest.approx(slow), "exact multinomial test")


def test_many_choices_use_the_chi_square_test():
    bias = side_bias(300, 340, 310, 290)
    assert bias.test == "χ² test"
    assert bias.p == pytest.approx(stats.chisquare([300, 340, 310, 290]).pvalue)
    assert side_bias(10_000, 0, 0).p > 0  # p is at least 1e-6
    near = side_bias(60, 80, 70)  # enumerated
    assert near.test == "exact multinomial test"
    assert near.p == pytest.approx(stats.chisquare([60, 80, 70]).pvalue, abs=0.01)


def test_no_choices_have_no_p_value():
    bias = side_bias(0, 0)
    assert (bias.p, bias.proportions, bias.reason) == (None, (), "there are no choices yet.")


def test_level_under_the_null():
    rng = np.random.default_rng(8)
    for positions in (2, 3):
        p = [side_bias(*rng.multinomial(40, np.full(positions, 1 / positions))).p for _ in range(400)]
        assert np.mean(np.array(p) < 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)
        assert np.mean(np.array(p) < 0.05) > 0.01  # and the test has power


@pytest.mark.parametrize(("counts", "message"), [((3,), "at least two positions"), ((3, -1), "must not be negative")])
def test_invalid_counts_are_refused(counts, message):
    with pytest.raises(CrossmatchError, match=message):
        side_bias(*counts)
