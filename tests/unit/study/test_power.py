"""How many people are enough: drawn campaigns agree with what can be computed by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from crossmatch.core.errors import WrongWords
from crossmatch.study.power import (
    RULES,
    UNDECIDED,
    Campaign,
    by_agreement,
    by_majority,
    draw_campaign,
    mean_width,
    needed,
    power,
)


def by_rule(found, rule):
    return {one.people: one for one in found if one.rule == rule}


@pytest.mark.parametrize("accuracy", [0.6, 0.8, 0.95])
def test_a_majority_is_right_as_often_as_the_binomial_says(accuracy):
    found = by_rule(power(accuracy, items=400, campaigns=40, rules=["majority"], people=(1, 2, 3, 4, 7)), "majority")
    for n, one in found.items():
        right = stats.binom.sf(n // 2, n, accuracy)
        tied = stats.binom.pmf(n // 2, n, accuracy) if n % 2 == 0 else 0.0
        assert one.right == pytest.approx(right, abs=0.02)
        assert one.undecided == pytest.approx(tied, abs=0.02)


def test_all_agree_as_often_as_they_are_all_right_or_all_wrong():
    one = by_rule(power(0.9, items=400, campaigns=40, rules=["all agree"], people=(2,)), "all agree")[2]
    assert one.right == pytest.approx(0.81, abs=0.02)
    assert one.wrong == pytest.approx(0.01, abs=0.005)
    assert one.undecided == pytest.approx(0.18, abs=0.02)


def test_shares_of_right_wrong_and_undecided_are_one():
    for one in power(0.7, items=50, campaigns=5, people=(1, 2, 5), prior=(0.2, 0.3, 0.5)):
        assert one.right + one.wrong + one.undecided == pytest.approx(1)
        assert one.low <= one.right <= one.high
        assert one.answers == 50 * one.people


def test_perfect_people_are_right_by_every_rule():
    assert {one.right for one in power(1.0, items=40, campaigns=3, people=(2, 3), crowd=4)} == {1.0}


def test_the_model_finds_who_knows():
    found = power([0.95, 0.95, 0.55], items=300, campaigns=8, people=(5,), seed=2)
    assert by_rule(found, "dawid-skene")[5].right > by_rule(found, "majority")[5].right + 0.01


def test_a_confusion_matrix_tells_who_mistakes_what_for_what():
    never_no = [[1.0, 0.0], [1.0, 0.0]]  # always the first value
    one = power(never_no, items=200, campaigns=20, people=(3,), prior=(0.3, 0.7), rules=["majority"])[0]
    assert one.right == pytest.approx(0.3, abs=0.03)


def test_kinds_of_people_may_be_mixed():
    half = power([1.0, [[0.0, 1.0], [1.0, 0.0]]], items=400, campaigns=10, people=(1,), rules=["majority"])[0]
    assert half.right == pytest.approx(0.5, abs=0.03)


def test_more_items_make_the_interval_narrower_and_undecided_ones_wider():
    width = {n: power(0.9, items=n, campaigns=5, people=(3,), rules=["majority"])[0].width for n in (100, 400)}
    assert width[400] == pytest.approx(width[100] / 2, rel=0.05)
    majority, agree = power(0.7, items=100, campaigns=10, people=(5,), rules=["majority", "all agree"])
    assert agree.width > majority.width


def test_the_same_seed_gives_the_same_numbers():
    few = {"items": 30, "campaigns": 3, "people": (2, 3)}
    assert power(0.8, **few, seed=4) == power(0.8, **few, seed=4) != power(0.8, **few, seed=5)


def test_a_number_of_people_does_not_depend_on_the_others_that_are_asked_for():
    few = {"items": 30, "campaigns": 3, "rules": ["majority"]}
    assert power(0.8, people=(3,), **few)[0] == power(0.8, people=(1, 2, 3), **few)[2]


def test_nobody_judges_an_item_twice_and_everybody_judges():
    drawn = draw_campaign(np.random.default_rng(0), np.full((10, 2, 2), 0.5), np.array([0.5, 0.5]), 200, 4)
    assert all(len(set(row)) == 4 for row in drawn.person.tolist())
    assert set(drawn.person.ravel().tolist()) == set(range(10))


def test_answers_are_drawn_as_the_matrix_says():
    matrix = np.array([[[0.1, 0.6, 0.3], [0.0, 1.0, 0.0], [0.5, 0.0, 0.5]]])
    drawn = draw_campaign(np.random.default_rng(0), matrix, np.full(3, 1 / 3), 30_000, 1)
    for true in range(3):
        shares = np.bincount(drawn.value[drawn.truth == true, 0], minlength=3) / (drawn.truth == true).sum()
        assert shares == pytest.approx(matrix[0, true], abs=0.02)


def test_ties_stay_undecided():
    drawn = Campaign(np.array([0, 0, 1]), np.zeros((3, 2), int), np.array([[0, 1], [0, 0], [2, 1]]))
    assert by_majority(drawn, 3).tolist() == [UNDECIDED, 0, UNDECIDED]
    assert by_agreement(drawn, 3).tolist() == [UNDECIDED, 0, UNDECIDED]


def test_the_least_number_that_is_enough():
    found = power(0.8, items=400, campaigns=20, people=(1, 3, 5, 7, 9), rules=["majority"])
    assert needed(found, "majority", 0.93) == 5
    assert needed(found, "majority", 0.999) is None


def test_the_width_of_a_mean_is_what_comes_out_of_many():
    rng = np.random.default_rng(0)
    said = rng.normal(2.5, 0.7, (20_000, 5))
    widths = 2 * stats.t.ppf(0.975, 4) * said.std(axis=1, ddof=1) / math.sqrt(5)
    assert mean_width(0.7, 5) == pytest.approx(widths.mean(), rel=0.01)
    assert mean_width(1.0, 1) == math.inf
    assert mean_width(0.0, 3) == 0.0


@pytest.mark.parametrize(
    ("errors", "more", "says"),
    [
        (1.2, {}, "accuracy is 1.2"),
        ([[0.5, 0.6], [0.5, 0.5]], {}, "sum 1"),
        ([[1.0]], {}, "2 x 2 shares were expected"),
        ([], {}, "nobody is there"),
        (0.8, {"people": (40,)}, "of a crowd of 30"),
        (0.8, {"people": (0,)}, "Ask for 1 to 30"),
        (0.8, {"people": ()}, "were asked for"),
        (0.8, {"prior": (1.0,)}, "prior"),
        (0.8, {"prior": (-1.0, 2.0)}, "prior"),
        (0.8, {"items": 0}, "0 items"),
        (0.8, {"rules": ["dice"]}, "no rule 'dice'"),
    ],
)
def test_what_cannot_be_assumed_is_refused(errors, more, says):
    with pytest.raises(WrongWords, match=says):
        power(errors, **more)


def test_no_one_of_these_people_is_a_negative_number():
    with pytest.raises(WrongWords):
        mean_width(1.0, 0)


def test_every_rule_decides_every_item_or_none():
    drawn = draw_campaign(np.random.default_rng(1), np.full((6, 3, 3), 1 / 3), np.full(3, 1 / 3), 40, 3)
    for rule in RULES.values():
        said = rule(drawn, 3)
        assert said.shape == (40,)
        assert set(said.tolist()) <= {UNDECIDED, 0, 1, 2}


def test_one_person_for_each_item_is_no_matter_for_a_model_of_who_errs():
    found = power(0.8, people=(1, 2), items=50, campaigns=3)
    assert [(one.people, one.rule) for one in found if one.rule == "dawid-skene"] == [(2, "dawid-skene")]
