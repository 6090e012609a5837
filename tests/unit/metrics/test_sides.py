"""Whether a side is favoured: against tests of a library, and against all ways to choose written out."""

from __future__ import annotations

from itertools import product
from math import factorial, prod

import numpy as np
import pytest
from scipy import stats

from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics.sides import side_bias


@pytest.mark.parametrize(("left", "right"), [(0, 1), (5, 5), (60, 40), (3, 17), (700, 600)])
def test_two_places_are_the_exact_binomial_test(left, right):
    found, slow = side_bias(left, right), stats.binomtest(left, left + right)
    assert found.p == pytest.approx(slow.pvalue, rel=1e-9)
    assert found.choices == left + right
    assert [s.value for s in found.shares] == [left / (left + right), right / (left + right)]
    if left + right > 1:
        wilson = slow.proportion_ci(method="wilson")
        assert (found.shares[0].low, found.shares[0].high) == pytest.approx((wilson.low, wilson.high), abs=1e-12)


@pytest.mark.parametrize("chosen", [(2, 1, 1), (4, 0, 0), (0, 0, 5), (1, 2, 0, 3)])
def test_more_places_are_all_ways_to_choose(chosen):
    n, k = sum(chosen), len(chosen)
    slow = sum(
        factorial(n) / prod(factorial(x) for x in way) / k**n
        for way in product(range(n + 1), repeat=k)
        if sum(way) == n and sum(x * x for x in way) >= sum(x * x for x in chosen)
    )
    found = side_bias(*chosen)
    assert (found.p, found.test) == (pytest.approx(slow), "exact multinomial test")


def test_many_choices_of_more_places_are_the_chi_square_test():
    found = side_bias(300, 340, 310, 290)
    assert found.test == "χ² test"
    assert found.p == pytest.approx(stats.chisquare([300, 340, 310, 290]).pvalue)
    assert side_bias(10_000, 0, 0).p > 0  # no p from a tail is told smaller than 1e-6
    near = side_bias(60, 80, 70)  # counted one by one
    assert near.test == "exact multinomial test"
    assert near.p == pytest.approx(stats.chisquare([60, 80, 70]).pvalue, abs=0.01)


def test_nothing_chosen_is_no_bias_and_no_evenness():
    found = side_bias(0, 0)
    assert (found.p, found.shares, found.reason) == (None, (), "nothing was chosen yet.")


def test_even_choices_are_called_uneven_no_more_often_than_they_may():
    rng = np.random.default_rng(8)
    for places in (2, 3):
        p = [side_bias(*rng.multinomial(40, np.full(places, 1 / places))).p for _ in range(400)]
        assert np.mean(np.array(p) < 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)
        assert np.mean(np.array(p) < 0.05) > 0.01  # and the test can tell something


@pytest.mark.parametrize(("chosen", "says"), [((3,), "two places or more"), ((3, -1), "counts were expected")])
def test_what_cannot_be_counted_is_refused(chosen, says):
    with pytest.raises(CrossmatchError, match=says):
        side_bias(*chosen)
