"""Bradley-Terry: against fixed-point iteration, in the limit, and invalid input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.bradley_terry import ComparisonCounts, bradley_terry, bradley_terry_interval

counts = st.integers(2, 5).flatmap(
    lambda n: st.lists(st.lists(st.integers(1, 30), min_size=n, max_size=n), min_size=n, max_size=n).map(np.array)
)  # every item has won against every other, so that there is a finite maximum


def by_iteration(wins, steps=100_000):
    """p_i <- W_i / Σ_j n_ij / (p_i + p_j), until convergence (hunter2004mm)."""
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


@given(counts)
def test_strengths_equal_the_fixed_point(wins):
    # seen and expected wins agree to 1e-10 of the comparisons, which leaves a strength a few times that
    assert bradley_terry(ComparisonCounts.from_matrix(wins)) == pytest.approx(by_iteration(wins.tolist()), abs=1e-8)


@given(counts)
def test_expected_wins_equal_observed_wins(wins):
    p = bradley_terry(ComparisonCounts.from_matrix(wins))
    np.fill_diagonal(wins, 0)
    meetings = wins + wins.T
    expected = (meetings * p[:, None] / (p[:, None] + p[None, :])).sum(axis=1)
    assert expected == pytest.approx(wins.sum(axis=1), abs=1e-8 * meetings.sum())
    assert p.sum() == pytest.approx(1)


@given(counts, st.randoms())
def test_order_of_items_does_not_matter(wins, random):
    order = list(range(len(wins)))
    random.shuffle(order)
    reordered = bradley_terry(ComparisonCounts.from_matrix(wins[np.ix_(order, order)]))
    assert reordered == pytest.approx(bradley_terry(ComparisonCounts.from_matrix(wins))[order], abs=1e-9)


@given(counts)
def test_number_of_comparisons_does_not_matter(wins):
    assert bradley_terry(ComparisonCounts.from_matrix(10 * wins)) == pytest.approx(
        bradley_terry(ComparisonCounts.from_matrix(wins)), abs=1e-9
    )


def test_strengths_are_recovered():
    true = np.array([0.5, 0.3, 0.15, 0.05])
    rng = np.random.default_rng(0)
    wins = np.zeros((4, 4), dtype=int)
    for i in range(4):
        for j in range(i):
            wins[i, j] = rng.binomial(100_000, true[i] / (true[i] + true[j]))
            wins[j, i] = 100_000 - wins[i, j]
    assert bradley_terry(ComparisonCounts.from_matrix(wins)) == pytest.approx(true, abs=0.003)


def test_tie_is_half_a_win_for_each():
    tied = ComparisonCounts.from_outcomes([("a", "b", 1), ("a", "b", 0.5), ("b", "a", 0.5), ("b", "a", 1)])
    assert bradley_terry(tied) == pytest.approx([0.5, 0.5])
    more = ComparisonCounts(("a", "b"), [[0, 4], [1, 0]], [[0, 2], [2, 0]])
    assert bradley_terry(more) == pytest.approx([5 / 7, 2 / 7])


# Where there is no finite maximum


def test_item_without_wins_gets_zero():
    wins = np.array([[0, 3, 5], [1, 0, 2], [0, 0, 0]])
    limit = bradley_terry(ComparisonCounts.from_matrix(wins))
    assert limit.tolist() == pytest.approx([0.75, 0.25, 0])
    near = bradley_terry(ComparisonCounts.from_matrix(wins), prior=1e-7)
    assert near == pytest.approx(limit, abs=1e-4)
    assert near[2] > 0


@pytest.mark.parametrize("wins", [[[0, 3, 5], [0, 0, 2], [0, 1, 0]], [[0, 1, 0], [0, 0, 1], [0, 0, 0]]])
def test_unbeaten_item_gets_one(wins):
    assert bradley_terry(ComparisonCounts.from_matrix(wins)).tolist() == [1, 0, 0]


def test_groups_never_compared_are_named():
    wins = [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 2], [0, 0, 1, 0]]
    with pytest.raises(CrossmatchError, match=r"2 groups that were never compared with each other: \{a, b\} and \{c, d\}"):
        bradley_terry(ComparisonCounts.from_matrix(wins, "abcd"))


def test_several_unbeaten_groups_need_a_prior():
    unbeaten = ComparisonCounts.from_matrix([[0, 0, 4], [0, 0, 2], [0, 0, 0]], "abc")
    with pytest.raises(CrossmatchError, match=r"\{a\} and \{b\}. Compare them"):
        bradley_terry(unbeaten)
    assert bradley_terry(unbeaten, prior=0.5)[0] > bradley_terry(unbeaten, prior=0.5)[1] > 0


# Intervals


def test_interval_equals_a_slow_bootstrap():
    comparisons = ComparisonCounts(("a", "b", "c"), [[0, 8, 3], [2, 0, 6], [4, 1, 0]], [[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    low, high = bradley_terry_interval(comparisons, samples=60, seed=4)
    rng = np.random.default_rng(4)
    total = np.array([11, 7, 7])
    drawn = rng.multinomial(total, [[8 / 11, 2 / 11, 1 / 11], [3 / 7, 4 / 7, 0], [6 / 7, 1 / 7, 0]], size=(60, 3))
    fits = []
    for counted in drawn:
        wins = np.zeros((3, 3), dtype=int)
        ties = np.zeros((3, 3), dtype=int)
        for (i, j), (first, second, neither) in zip([(0, 1), (0, 2), (1, 2)], counted, strict=True):
            wins[i, j], wins[j, i], ties[i, j], ties[j, i] = first, second, neither, neither
        fits.append(bradley_terry(ComparisonCounts(("a", "b", "c"), wins, ties)))
    assert low == pytest.approx(np.quantile(fits, 0.025, axis=0), abs=1e-9)
    assert high == pytest.approx(np.quantile(fits, 0.975, axis=0), abs=1e-9)


def test_interval_has_its_coverage():
    true = np.array([0.5, 0.3, 0.2])
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(120):
        wins = np.zeros((3, 3), dtype=int)
        for i in range(3):
            for j in range(i):
                wins[i, j] = rng.binomial(80, true[i] / (true[i] + true[j]))
                wins[j, i] = 80 - wins[i, j]
        low, high = bradley_terry_interval(ComparisonCounts.from_matrix(wins), samples=200)
        covered += low[0] <= true[0] <= high[0]
    assert 0.88 <= covered / 120 <= 1.0  # 95 %, give or take three standard errors of 120 trials


def test_replicates_without_wins_are_valid():
    low, high = bradley_terry_interval(ComparisonCounts.from_matrix([[0, 9], [1, 0]]), samples=200)
    assert high[0] == 1.0  # the one win of the second is missing from a third of the replicates
    assert low[1] == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ComparisonCounts.from_matrix([[0, 1], [2, 0], [1, 1]]), "must have shape"),
        (lambda: ComparisonCounts.from_matrix([[0, -1], [2, 0]]), "must be counts"),
        (lambda: ComparisonCounts.from_matrix([[0, 0.5], [2, 0]]), "must be counts"),
        (lambda: ComparisonCounts.from_matrix(np.array([[0, np.nan], [2, 0]])), "NaN"),
        (lambda: ComparisonCounts(("a", "b"), [[0, 1], [1, 0]], [[0, 1], [2, 0]]), "symmetric"),
        (lambda: ComparisonCounts.from_outcomes([("a", "b", 2)]), "1, 0.5 or 0"),
        (lambda: bradley_terry(ComparisonCounts.from_matrix([[3]])), "at least two items"),
        (lambda: bradley_terry(ComparisonCounts.from_matrix([[0, 1], [1, 0]]), prior=-1), "prior must be 0 or more"),
        (lambda: bradley_terry_interval(ComparisonCounts.from_matrix([[0, 1], [1, 0]]), samples=1), "at least 2"),
    ],
)
def test_invalid_input_is_refused(call, message):
    with pytest.raises(CrossmatchError, match=message):
        call()
