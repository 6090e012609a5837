"""Kendall's tau-b between metrics: against counting pairs, and against SciPy."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.correlation.kendall_tau import kendall_tau_b, tau_b, tau_b_interval, tau_b_p_values

few_values = st.lists(st.integers(0, 4), min_size=3, max_size=9)  # few values, so that many are level
boards = st.integers(3, 7).flatmap(
    lambda n: st.lists(
        st.lists(st.one_of(st.none(), st.integers(0, 4)), min_size=n, max_size=n), min_size=2, max_size=4
    ).map(lambda columns: list(zip(*columns, strict=True)))
)  # fmt: skip


def tau_by_counting(x, y):
    """The definition as a loop over pairs; None if undefined."""
    alike = unlike = level_x = level_y = 0
    for (a, c), (b, d) in itertools.combinations(zip(x, y, strict=True), 2):
        if a == b and c == d:
            continue
        if a == b:
            level_x += 1
        elif c == d:
            level_y += 1
        elif (a < b) == (c < d):
            alike += 1
        else:
            unlike += 1
    under = (alike + unlike + level_x) * (alike + unlike + level_y)
    return (alike - unlike) / math.sqrt(under) if under else None


def as_arrays(board):
    present = np.array([[cell is not None for cell in row] for row in board])
    return np.array([[0.0 if cell is None else float(cell) for cell in row] for row in board]), present


@given(boards)
def test_tau_equals_counting_over_common_models(board):
    values, present = as_arrays(board)
    result = tau_b(values, present)
    for a, b in itertools.product(range(values.shape[1]), repeat=2):
        common = [(row[a], row[b]) for row in board if row[a] is not None and row[b] is not None]
        assert result.model_counts[a, b] == len(common)
        slow = tau_by_counting(*zip(*common, strict=True)) if len(common) >= 3 else None
        if slow is None:
            assert np.ma.getmaskarray(result.tau)[a, b]
        else:
            assert result.tau[a, b] == pytest.approx(slow, abs=1e-12)


@given(few_values, st.randoms())
def test_tau_of_two_lists_equals_scipy(x, random):
    y = x[:]
    random.shuffle(y)
    if len(set(x)) == 1:
        with pytest.raises(CrossmatchError, match="constant"):
            kendall_tau_b(np.array(x, float), np.array(y, float))
    else:
        assert kendall_tau_b(np.array(x, float), np.array(y, float)) == pytest.approx(kendalltau(x, y).statistic, abs=1e-12)


@given(boards)
def test_monotone_maps_and_order_do_not_matter(board):
    values, present = as_arrays(board)
    before = tau_b(values, present).tau.filled(9)
    assert np.array_equal(tau_b(np.exp(values), present).tau.filled(9), before)
    assert np.allclose(tau_b(values[::-1], present[::-1]).tau.filled(9), before, atol=1e-12)
    turned = tau_b(-values, present).tau.filled(9)
    assert np.allclose(turned, before, atol=1e-12)  # both sides turned round


def test_tau_is_never_nan():
    values = np.array([[1.0, 5, 2], [2, 5, 9], [3, 5, 4], [4, 5, 7]])
    present = np.array([[True, True, False], [True, True, False], [True, True, True], [True, True, True]])
    tau = tau_b(values, present).tau
    assert np.isfinite(tau.data).all()
    assert np.ma.getmaskarray(tau).tolist() == [[False, True, True], [True, True, True], [True, True, True]]


def test_interval_equals_a_slow_bootstrap():
    rng = np.random.default_rng(3)
    values = rng.integers(0, 5, (8, 3)).astype(float)
    low, high = tau_b_interval(values, samples=600, seed=11)
    repeated = np.random.default_rng(11)
    times = np.concatenate([repeated.multinomial(8, np.full(8, 1 / 8), size=n) for n in (256, 256, 88)])
    drawn = []
    for t in times:
        chosen = np.repeat(values, t, axis=0)
        tau = tau_by_counting(chosen[:, 0], chosen[:, 1])
        if tau is not None:
            drawn.append(tau)
    assert (low[0, 1], high[0, 1]) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=1e-12)


def test_mostly_undefined_replicates_mask_the_interval():
    values = np.array([[1.0, 1], [1, 2], [1, 3], [1, 4], [1, 5], [2, 0]])  # all level but one model, which e^-1 of the draws miss
    low, _ = tau_b_interval(np.hstack([values, np.ones((6, 1))]), samples=300)
    masked = np.ma.getmaskarray(low)
    assert not masked[0, 1]
    assert masked[2].all()


def test_interval_depends_on_the_seed():
    values = np.random.default_rng(0).random((10, 3))
    single, repeated, reseeded = (tau_b_interval(values, samples=50, seed=s)[0].filled(9) for s in (1, 1, 2))
    assert np.array_equal(single, repeated)
    assert not np.array_equal(single, reseeded)


def test_p_is_the_share_of_extreme_orders():
    x, y = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 3, 4, 5])
    taus = abs(tau_by_counting(x, y))
    extreme = [abs(tau_by_counting(x, order)) >= taus - 1e-12 for order in itertools.permutations(y)]
    p = tau_b_p_values(np.stack([x, y, np.ones(5)], axis=1))
    assert p[0, 1] == p[1, 0] == pytest.approx(np.mean(extreme))
    assert np.ma.getmaskarray(p)[2].all()


@settings(max_examples=20)
@given(boards)
def test_inputs_are_not_modified(board):
    values, present = as_arrays(board)
    covered = values.copy(), present.copy()
    tau_b(values, present)
    tau_b_interval(values, present, samples=5)
    assert np.array_equal(values, covered[0])
    assert np.array_equal(present, covered[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kendall_tau_b(np.ones(3), np.ones(4)), "two flat arrays of equal length"),
        (lambda: kendall_tau_b(np.ones(1), np.ones(1)), "at least 2"),
        (lambda: tau_b(np.ones((3, 2)), np.ones((2, 2), dtype=bool)), "models x metrics"),
        (lambda: tau_b(np.array([[1, np.nan], [2, 3], [4, 5]])), "NaN"),
        (lambda: tau_b_interval(np.ones((3, 2)), samples=1), "at least 2"),
    ],
)
def test_invalid_input_is_refused(call, message):
    with pytest.raises(CrossmatchError, match=message):
        call()
