"""Expected values by theory, against slow counts, known numbers, and the verdicts that follow."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics import theory as module
from crossmatch.metrics.choice import accuracy, chance, group_choice, i2t_choice, ineg2t, ipos2t, t2i_choice, tneg2i, tpos2i
from crossmatch.metrics.theory import SCORERS, Finding, expected, theory, verdicts

CHOICES = [i2t_choice, t2i_choice, group_choice, ipos2t, tpos2i]
SHAPES = [(1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (1, 5), (5, 1)]


def slowly(scorer: str, choice, shape: tuple[int, int]) -> float:
    """One order at a time, in words of the scorer's own definition."""
    c, i = shape
    values = []
    if scorer == "constant":
        values = [[[0.0] * i] * c]
    elif scorer == "random":
        values = [np.reshape(order, shape) for order in permutations(range(c * i))]
    elif scorer == "text-blind":
        values = [[order] * c for order in permutations(range(i))]
    elif scorer == "image-blind":
        values = [[[score] * i for score in order] for order in permutations(range(c))]
    elif scorer == "position-biased":
        for captions, images in product(permutations(range(c)), permutations(range(i))):
            values.append([[-captions.index(a) - images.index(b) for b in range(i)] for a in range(c)])
    return float(np.mean([choice(np.asarray([one], dtype=float))[0] for one in values]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scorer", SCORERS)
def test_all_orders_are_counted(scorer, shape):
    for choice in CHOICES:
        assert expected(scorer, choice, shape) == pytest.approx(slowly(scorer, choice, shape), abs=1e-12)
        assert theory(scorer, choice, shape).error == 0


def test_random_is_chance_up_to_three_by_three():
    for shape in [*SHAPES, (3, 3)]:
        for name, choice in (("i2t", i2t_choice), ("t2i", t2i_choice), ("group", group_choice)):
            assert theory("random", choice, shape) == module.Expected(pytest.approx(chance(name, shape), abs=1e-12), 0.0)


def test_numbers_that_the_papers_print():
    """25, 25 and 16.67 for two images and two captions; 50 where one side offers two."""
    assert [round(100 * expected("random", choice, (2, 2)), 2) for choice in CHOICES[:3]] == [25.0, 25.0, 16.67]
    assert [100 * expected("random", accuracy, shape) for shape in ((1, 2), (2, 1))] == [50.0, 50.0]


def test_the_blind_win_half_of_one_direction_and_nothing_of_a_group():
    four = (ipos2t, ineg2t, tpos2i, tneg2i)
    assert [expected("text-blind", choice, (2, 2)) for choice in four] == [0, 0, 0.5, 0.5]
    assert [expected("image-blind", choice, (2, 2)) for choice in four] == [0.5, 0.5, 0, 0]
    assert [expected("position-biased", choice, (2, 2)) for choice in four] == [0.5, 0.5, 0.5, 0.5]
    for scorer in ("text-blind", "image-blind", "position-biased", "constant"):
        assert [expected(scorer, choice, (2, 2)) for choice in (i2t_choice, t2i_choice, group_choice)] == [0, 0, 0]


def test_where_one_side_offers_no_choice_it_is_always_right():
    assert expected("constant", t2i_choice, (2, 1)) == 1.0
    assert expected("constant", i2t_choice, (2, 1)) == 0.0


def test_larger_shapes_are_sampled_and_say_how_well():
    """Four captions for one of four images: the random scorer wins all with (1/4)^4, as columns are independent."""
    found = theory("random", i2t_choice, (4, 4))
    assert 0 < found.error < 1.2 * np.sqrt(4**-4 / module.MOST)
    assert abs(found.value - 4**-4) < 4 * found.error
    never = theory("position-biased", i2t_choice, (8, 8))
    assert never == module.Expected(0.0, 1 / module.MOST)


def test_an_unknown_scorer():
    with pytest.raises(CrossmatchError, match="it knows constant, random"):
        expected("clever", i2t_choice, (2, 2))


def finding(value: float, n: float = 1_000, scorer: str = "random", choice=t2i_choice, shape=(1, 2)) -> Finding:
    return Finding(scorer, choice.__name__, choice, shape, value, n)


@pytest.mark.parametrize("checks", [1, 5, 100])
def test_the_interval_holds_the_middle_of_the_binomial(checks):
    verdict = verdicts([finding(0.5)] * checks)[0]
    level = 0.05 / checks
    low, high = (round(end * 1_000) for end in (verdict.low, verdict.high))
    assert (low, high) == tuple(stats.binom.ppf([level / 2, 1 - level / 2], 1_000, 0.5))
    assert 1 - stats.binom.cdf(high, 1_000, 0.5) + stats.binom.cdf(low - 1, 1_000, 0.5) <= level


def test_rare_successes_are_judged_by_their_own_distribution():
    """A random scorer wins one group of 3 x 3 in 60. Three of 60 may well happen, though a normal interval would not have them."""
    shape = (3, 3)
    p = expected("random", group_choice, shape)
    assert p == pytest.approx(1 / 60)
    verdict = verdicts([finding(3 / 60, 60, choice=group_choice, shape=shape)])[0]
    assert (verdict.low, verdict.high, verdict.passed) == (0.0, stats.binom.ppf(0.975, 60, p) / 60, True)
    assert p + 1.96 * np.sqrt(p * (1 - p) / 60) < 3 / 60
    assert not verdicts([finding(4 / 60, 60, choice=group_choice, shape=shape)])[0].passed


def test_fewer_independent_trials_leave_more_room():
    assert not verdicts([finding(0.54)])[0].passed
    assert verdicts([finding(0.54, 300.7)])[0].passed


def test_where_theory_leaves_no_doubt_nothing_else_passes():
    kinds = [("constant", t2i_choice, 0.0), ("constant", i2t_choice, 1.0)]
    for scorer, choice, value in kinds:
        exact = verdicts([finding(value, 50, scorer, choice)])[0]
        assert (exact.low, exact.high, exact.passed) == (value, value, True)
        assert not verdicts([finding(abs(value - 0.001), 50, scorer, choice)])[0].passed


def test_bonferroni_counts_all_checks_of_the_gate():
    """0.464 fails alone, and passes as one of a hundred checks."""
    assert not verdicts([finding(0.464)])[0].passed
    assert all(verdict.passed for verdict in verdicts([finding(0.464)] * 100))
    assert verdicts([]) == ()
