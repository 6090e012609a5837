"""Bradley-Terry: against the plain fixed-point iteration, in the limit, and where there is no answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core.errors import CrossmatchError
from crossmatch.metrics.preference import Preferences, bradley_terry, bradley_terry_interval

counts = st.integers(2, 5).flatmap(
    lambda n: st.lists(st.lists(st.integers(1, 30), min_size=n, max_size=n), min_size=n, max_size=n).map(np.array)
)  # every item has won against every other, so that there is a finite maximum


def by_iteration(wins, steps=100_000):
    """p_i <- W_i / Σ_j n_ij / (p_i + p_j), until it stands still (hunter2004mm)."""
    n = len(wins)
    p = [1 / n] * n
    for _ in range(steps):
        new = []
        for i in range(n):
            won = sum(wins[i][j] for j in range(n) if j != i)
            new.append(won / sum((wins[i][j] + wins[j][i]) / (p[i] + p[j]) for j in range(n) if j != i))
        new = [x / sum(new) for x in new]
        if max(abs(a - b) for a, b in zip(p, new, strict=True)) < 1e-14:
            break
        p = new
    return p


@settings(deadline=None)
@given(counts)
def test_strengths_are_those_of_the_fixed_point(wins):
    # seen and expected wins agree to 1e-10 of the comparisons, which leaves a strength a few times that
    assert bradley_terry(Preferences.from_matrix(wins)) == pytest.approx(by_iteration(wins.tolist()), abs=1e-8)


@settings(deadline=None)
@given(counts)
def test_expected_wins_are_the_seen_ones(wins):
    p = bradley_terry(Preferences.from_matrix(wins))
    np.fill_diagonal(wins, 0)
    met = wins + wins.T
    expected = (met * p[:, None] / (p[:, None] + p[None, :])).sum(axis=1)
    assert expected == pytest.approx(wins.sum(axis=1), abs=1e-8 * met.sum())
    assert p.sum() == pytest.approx(1)


@settings(deadline=None)
@given(counts, st.randoms())
def test_the_order_of_items_changes_nothing(wins, random):
    order = list(range(len(wins)))
    random.shuffle(order)
    there = bradley_terry(Preferences.from_matrix(wins[np.ix_(order, order)]))
    assert there == pytest.approx(bradley_terry(Preferences.from_matrix(wins))[order], abs=1e-9)


@settings(deadline=None)
@given(counts)
def test_ten_times_the_comparisons_change_nothing(wins):
    assert bradley_terry(Preferences.from_matrix(10 * wins)) == pytest.approx(
        bradley_terry(Preferences.from_matrix(wins)), abs=1e-9
    )


def test_what_generated_the_preferences_is_found_again():
    true = np.array([0.5, 0.3, 0.15, 0.05])
    rng = np.random.default_rng(0)
    wins = np.zeros((4, 4), dtype=int)
    for i in range(4):
        for j in range(i):
            wins[i, j] = rng.binomial(100_000, true[i] / (true[i] + true[j]))
            wins[j, i] = 100_000 - wins[i, j]
    assert bradley_terry(Preferences.from_matrix(wins)) == pytest.approx(true, abs=0.003)


def test_a_tie_is_half_a_win_for_each():
    tied = Preferences.of([("a", "b", 1), ("a", "b", 0.5), ("b", "a", 0.5), ("b", "a", 1)])
    assert bradley_terry(tied) == pytest.approx([0.5, 0.5])
    more = Preferences(("a", "b"), [[0, 4], [1, 0]], [[0, 2], [2, 0]])
    assert bradley_terry(more) == pytest.approx([5 / 7, 2 / 7])


# Where there is no finite maximum


def test_an_item_that_never_wins_gets_zero_in_the_limit():
    wins = np.array([[0, 3, 5], [1, 0, 2], [0, 0, 0]])
    limit = bradley_terry(Preferences.from_matrix(wins))
    assert limit.tolist() == pytest.approx([0.75, 0.25, 0])
    near = bradley_terry(Preferences.from_matrix(wins), prior=1e-7)
    assert near == pytest.approx(limit, abs=1e-4)
    assert near[2] > 0


def test_an_item_that_never_loses_leaves_nothing_to_the_others():
    assert bradley_terry(Preferences.from_matrix([[0, 3, 5], [0, 0, 2], [0, 1, 0]])).tolist() == [1, 0, 0]


def test_a_chain_without_returns_has_one_winner():
    assert bradley_terry(Preferences.from_matrix([[0, 1, 0], [0, 0, 1], [0, 0, 0]])).tolist() == [1, 0, 0]


def test_groups_that_never_met_are_named():
    wins = [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 2], [0, 0, 1, 0]]
    with pytest.raises(CrossmatchError, match=r"2 groups that were never compared with each other: \{a, b\} and \{c, d\}"):
        bradley_terry(Preferences.from_matrix(wins, "abcd"))


def test_groups_that_nothing_tells_apart_are_named_and_a_prior_mends_it():
    both = Preferences.from_matrix([[0, 0, 4], [0, 0, 2], [0, 0, 0]], "abc")
    with pytest.raises(CrossmatchError, match=r"\{a\} and \{b\}. Nothing tells them apart"):
        bradley_terry(both)
    assert bradley_terry(both, prior=0.5)[0] > bradley_terry(both, prior=0.5)[1] > 0


# Intervals


def test_the_interval_is_that_of_drawing_and_fitting_one_by_one():
    said = Preferences(("a", "b", "c"), [[0, 8, 3], [2, 0, 6], [4, 1, 0]], [[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    low, high = bradley_terry_interval(said, samples=60, seed=4)
    rng = np.random.default_rng(4)
    total = np.array([11, 7, 7])
    drawn = rng.multinomial(total, [[8 / 11, 2 / 11, 1 / 11], [3 / 7, 4 / 7, 0], [6 / 7, 1 / 7, 0]], size=(60, 3))
    fits = []
    for counted in drawn:
        wins = np.zeros((3, 3), dtype=int)
        ties = np.zeros((3, 3), dtype=int)
        for (i, j), (first, second, neither) in zip([(0, 1), (0, 2), (1, 2)], counted, strict=True):
            wins[i, j], wins[j, i], ties[i, j], ties[j, i] = first, second, neither, neither
        fits.append(bradley_terry(Preferences(("a", "b", "c"), wins, ties)))
    assert low == pytest.approx(np.quantile(fits, 0.025, axis=0), abs=1e-9)
    assert high == pytest.approx(np.quantile(fits, 0.975, axis=0), abs=1e-9)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    true = np.array([0.5, 0.3, 0.2])
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(120):
        wins = np.zeros((3, 3), dtype=int)
        for i in range(3):
            for j in range(i):
                wins[i, j] = rng.binomial(80, true[i] / (true[i] + true[j]))
                wins[j, i] = 80 - wins[i, j]
        low, high = bradley_terry_interval(Preferences.from_matrix(wins), samples=200)
        covered += low[0] <= true[0] <= high[0]
    assert 0.88 <= covered / 120 <= 1.0  # 95 %, give or take three standard errors of 120 trials


def test_replicates_in_which_somebody_never_wins_are_no_failure():
    low, high = bradley_terry_interval(Preferences.from_matrix([[0, 9], [1, 0]]), samples=200)
    assert high[0] == 1.0  # the one win of the second is missing from a third of the replicates
    assert low[1] == 0.0


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Preferences.from_matrix([[0, 1], [2, 0], [1, 1]]), "2 x 2|3 x 3"),
        (lambda: Preferences.from_matrix([[0, -1], [2, 0]]), "counts were expected"),
        (lambda: Preferences.from_matrix([[0, 0.5], [2, 0]]), "counts were expected"),
        (lambda: Preferences.from_matrix(np.array([[0, np.nan], [2, 0]])), "NaN"),
        (lambda: Preferences(("a", "b"), [[0, 1], [1, 0]], [[0, 1], [2, 0]]), "symmetric"),
        (lambda: Preferences.of([("a", "b", 2)]), "1, 0.5 or 0"),
        (lambda: bradley_terry(Preferences.from_matrix([[3]])), "a preference needs two"),
        (lambda: bradley_terry(Preferences.from_matrix([[0, 1], [1, 0]]), prior=-1), "cannot be below zero"),
        (lambda: bradley_terry_interval(Preferences.from_matrix([[0, 1], [1, 0]]), samples=1), "at least 2"),
    ],
)
def test_what_cannot_be_used_is_refused(call, says):
    with pytest.raises(CrossmatchError, match=says):
        call()
