"""Expected values of gate scorers, against enumeration and published numbers, and the checks."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics import forced_choice_chance as module
from crossmatch.metrics.forced_choice import (
    accuracy,
    closed_form_chance,
    group_choice,
    i2t_choice,
    ineg2t,
    ipos2t,
    t2i_choice,
    tneg2i,
    tpos2i,
)
from crossmatch.metrics.forced_choice_chance import SCORERS, GateResult, check_gate, expected_value

CHOICES = [i2t_choice, t2i_choice, group_choice, ipos2t, tpos2i]
SHAPES = [(1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (1, 5), (5, 1)]


def expected(scorer, choice, shape):
    return expected_value(scorer, choice, shape).value


def expected_by_enumeration(scorer: str, choice, shape: tuple[int, int]) -> float:
    """One order at a time, by the definition of the scorer."""
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
    return float(np.mean([choice(np.asarray([scores], dtype=float))[0] for scores in values]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scorer", SCORERS)
def test_expected_values_equal_enumeration(scorer, shape):
    for choice in CHOICES:
        assert expected(scorer, choice, shape) == pytest.approx(expected_by_enumeration(scorer, choice, shape), abs=1e-12)
        assert expected_value(scorer, choice, shape).error == 0


def test_closed_form_of_chance_equals_the_mean_over_all_orders():
    for shape in [*SHAPES, (3, 3)]:
        scores = SCORERS["random"].scores(*shape, module._all_orders((shape[0] * shape[1],)))
        for choice in (i2t_choice, t2i_choice, group_choice):
            assert closed_form_chance(choice, shape) == pytest.approx(choice(scores).mean(), abs=1e-12)


def test_expected_values_equal_the_papers():
    """25, 25 and 16.67 for two images and two captions; 50 with two candidates on one side."""
    assert [round(100 * expected("random", choice, (2, 2)), 2) for choice in CHOICES[:3]] == [25.0, 25.0, 16.67]
    assert [100 * expected("random", accuracy, shape) for shape in ((1, 2), (2, 1))] == [50.0, 50.0]


def test_blind_scorers_win_half_of_one_direction():
    four = (ipos2t, ineg2t, tpos2i, tneg2i)
    assert [expected("text-blind", choice, (2, 2)) for choice in four] == [0, 0, 0.5, 0.5]
    assert [expected("image-blind", choice, (2, 2)) for choice in four] == [0.5, 0.5, 0, 0]
    assert [expected("position-biased", choice, (2, 2)) for choice in four] == [0.5, 0.5, 0.5, 0.5]
    for scorer in ("text-blind", "image-blind", "position-biased", "constant"):
        assert [expected(scorer, choice, (2, 2)) for choice in (i2t_choice, t2i_choice, group_choice)] == [0, 0, 0]


def test_single_candidate_is_always_right():
    assert expected("constant", t2i_choice, (2, 1)) == 1.0
    assert expected("constant", i2t_choice, (2, 1)) == 0.0


def test_large_shapes_are_sampled_with_an_error():
    """The score of a pair is the highest of the seven in its row and column with 1/7; there is no closed form in the code."""
    sampled = expected_value("random", lambda trials: ipos2t(trials) * tpos2i(trials), (4, 4))
    assert 0 < sampled.error < 1.2 * np.sqrt(1 / 7 / module.MAX_ORDERS)
    assert abs(sampled.value - 1 / 7) < 4 * sampled.error
    never = expected_value("position-biased", i2t_choice, (8, 8))
    assert never == module.ExpectedValue(0.0, 1 / module.MAX_ORDERS)


def test_unknown_scorer_is_refused():
    with pytest.raises(CrossmatchError, match="Choose one of constant, random"):
        expected("clever", i2t_choice, (2, 2))


def finding(value: float, n: float = 1_000, scorer: str = "random", choice=t2i_choice, shape=(1, 2)) -> GateResult:
    return GateResult(scorer, choice.__name__, choice, shape, value, n)


@pytest.mark.parametrize("checks", [1, 5, 100])
def test_interval_is_the_middle_of_the_binomial(checks):
    verdict = check_gate([finding(0.5)] * checks)[0]
    level = 0.05 / checks
    low, high = (round(end * 1_000) for end in (verdict.low, verdict.high))
    assert (low, high) == tuple(stats.binom.ppf([level / 2, 1 - level / 2], 1_000, 0.5))
    assert 1 - stats.binom.cdf(high, 1_000, 0.5) + stats.binom.cdf(low - 1, 1_000, 0.5) <= level


def test_rare_successes_use_the_exact_distribution():
    """A random scorer wins one group of 3 x 3 in 60. Three of 60 are plausible, but outside a normal interval."""
    shape = (3, 3)
    p = expected("random", group_choice, shape)
    assert p == pytest.approx(1 / 60)
    verdict = check_gate([finding(3 / 60, 60, choice=group_choice, shape=shape)])[0]
    assert (verdict.low, verdict.high, verdict.passed) == (0.0, stats.binom.ppf(0.975, 60, p) / 60, True)
    assert p + 1.96 * np.sqrt(p * (1 - p) / 60) < 3 / 60
    assert not check_gate([finding(4 / 60, 60, choice=group_choice, shape=shape)])[0].passed


def test_fewer_effective_trials_widen_the_interval():
    assert not check_gate([finding(0.54)])[0].passed
    assert check_gate([finding(0.54, 300.7)])[0].passed


def test_certain_values_must_be_equal():
    kinds = [("constant", t2i_choice, 0.0), ("constant", i2t_choice, 1.0)]
    for scorer, choice, value in kinds:
        exact = check_gate([finding(value, 50, scorer, choice)])[0]
        assert (exact.low, exact.high, exact.passed) == (value, value, True)
        assert not check_gate([finding(abs(value - 0.001), 50, scorer, choice)])[0].passed


def test_bonferroni_covers_all_checks():
    """0.464 fails alone, and passes as one of a hundred checks."""
    assert not check_gate([finding(0.464)])[0].passed
    assert all(verdict.passed for verdict in check_gate([finding(0.464)] * 100))
    assert check_gate([]) == ()
