"""How many people are enough: drawn campaigns agree with what can be computed by hand."""

import numpy as np
import pytest
from scipy import stats

from crossmatch.data.errors import UsageError
from crossmatch.study.simulation.power_analysis import (
    RULES,
    UNDECIDED,
    DrawnCampaign,
    by_agreement,
    by_majority,
    draw_campaign,
    power,
)


def by_rule(found, rule):
    return {outcome.people: outcome for outcome in found if outcome.rule == rule}


@pytest.mark.parametrize("accuracy", [0.6, 0.8, 0.95])
def test_majority_matches_the_binomial_distribution(accuracy):
    estimates = by_rule(power(accuracy, items=400, campaigns=40, rules=["majority"], people=(1, 2, 3, 4, 7)), "majority")
    for n, one in estimates.items():
        right = stats.binom.sf(n // 2, n, accuracy)
        tied = stats.binom.pmf(n // 2, n, accuracy) if n % 2 == 0 else 0.0
        assert one.right == pytest.approx(right, abs=0.02)
        assert one.undecided == pytest.approx(tied, abs=0.02)


def test_all_agree_as_often_as_they_are_all_right_or_all_wrong():
    estimates = by_rule(power(0.9, items=400, campaigns=40, rules=["all agree"], people=(2,)), "all agree")[2]
    assert estimates.right == pytest.approx(0.81, abs=0.02)
    assert estimates.wrong == pytest.approx(0.01, abs=0.005)
    assert estimates.undecided == pytest.approx(0.18, abs=0.02)


def test_shares_of_right_wrong_and_undecided_are_one():
    for estimate in power(0.7, items=50, campaigns=5, people=(1, 2, 5), prior=(0.2, 0.3, 0.5)):
        assert estimate.right + estimate.wrong + estimate.undecided == pytest.approx(1)
        assert estimate.low <= estimate.right <= estimate.high
        assert estimate.answers == 50 * estimate.people


def test_perfect_people_are_right_by_every_rule():
    assert {estimate.right for estimate in power(1.0, items=40, campaigns=3, people=(2, 3), crowd=4)} == {1.0}


def test_dawid_skene_beats_the_majority_with_mixed_people():
    estimates = power([0.95, 0.95, 0.55], items=300, campaigns=8, people=(5,), seed=2)
    assert by_rule(estimates, "dawid-skene")[5].right > by_rule(estimates, "majority")[5].right + 0.01


def test_confusion_matrix_decides_the_errors():
    never_no = [[1.0, 0.0], [1.0, 0.0]]  # always the first value
    estimates = power(never_no, items=200, campaigns=20, people=(3,), prior=(0.3, 0.7), rules=["majority"])[0]
    assert estimates.right == pytest.approx(0.3, abs=0.03)


def test_people_with_different_errors_can_be_mixed():
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


def test_estimate_does_not_depend_on_other_numbers_of_people():
    few = {"items": 30, "campaigns": 3, "rules": ["majority"]}
    assert power(0.8, people=(3,), **few)[0] == power(0.8, people=(1, 2, 3), **few)[2]


def test_each_item_has_different_people_and_everybody_takes_part():
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
    drawn = DrawnCampaign(np.array([0, 0, 1]), np.zeros((3, 2), int), np.array([[0, 1], [0, 0], [2, 1]]))
    assert by_majority(drawn, 3).tolist() == [UNDECIDED, 0, UNDECIDED]
    assert by_agreement(drawn, 3).tolist() == [UNDECIDED, 0, UNDECIDED]


@pytest.mark.parametrize(
    ("errors", "more", "message"),
    [
        (1.2, {}, "between 0 and 1 .got 1.2"),
        ([[0.5, 0.6], [0.5, 0.5]], {}, "sums to 1"),
        ([[1.0]], {}, "expected 2 x 2 shares"),
        ([], {}, "no annotators"),
        (0.8, {"people": (40,)}, "the crowd, 30 .got 40"),
        (0.8, {"people": (0,)}, "between 1 and .* .got 0"),
        (0.8, {"people": ()}, "got None"),
        (0.8, {"prior": (1.0,)}, "prior"),
        (0.8, {"prior": (-1.0, 2.0)}, "prior"),
        (0.8, {"items": 0}, "0 items"),
        (0.8, {"rules": ["dice"]}, "Unknown rule 'dice'"),
    ],
)
def test_invalid_assumptions_are_refused(errors, more, message):
    with pytest.raises(UsageError, match=message):
        power(errors, **more)


def test_every_rule_returns_a_value_for_each_item():
    drawn = draw_campaign(np.random.default_rng(1), np.full((6, 3, 3), 1 / 3), np.full(3, 1 / 3), 40, 3)
    for rule in RULES.values():
        said = rule(drawn, 3)
        assert said.shape == (40,)
        assert set(said.tolist()) <= {UNDECIDED, 0, 1, 2}


def test_dawid_skene_is_skipped_for_one_person_per_item():
    estimates = power(0.8, people=(1, 2), items=50, campaigns=3)
    assert [(outcome.people, outcome.rule) for outcome in estimates if outcome.rule == "dawid-skene"] == [(2, "dawid-skene")]
