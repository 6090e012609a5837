"""Williams' test: against another form of the equation, invariances, and its level."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crossmatch.data.errors import CrossmatchError
from crossmatch.metrics.paired_tests import williams_test


def by_determinant(first: float, second: float, between: float, n: int) -> tuple[float, float]:
    """Steiger's form, with the determinant of the correlation matrix and the mean of the two."""
    matrix = np.array([[1, first, second], [first, 1, between], [second, between, 1]])
    mean = (first + second) / 2
    below = 2 * (n - 1) / (n - 3) * np.linalg.det(matrix) + mean**2 * (1 - between) ** 3
    t = (first - second) * np.sqrt((n - 1) * (1 + between) / below)
    return t, 2 * stats.t.sf(abs(t), n - 3)


@given(st.integers(0, 2**32 - 1), st.integers(5, 400))
def test_equals_the_determinant_form(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    r = np.corrcoef(rng.standard_normal((3, 30)) + rng.standard_normal(30))
    result = williams_test(r[0, 1], r[0, 2], r[1, 2], n)
    t, p = by_determinant(r[0, 1], r[0, 2], r[1, 2], n)
    assert result.t == pytest.approx(t, rel=1e-9, abs=1e-9)
    assert result.p == pytest.approx(p, rel=1e-6)
    assert result.degrees_of_freedom == n - 3


def test_value_of_a_published_example() -> None:
    """The example in the manual of R's bruceR package: cor_diff(r1 = .20, r2 = .45, n = 100, rcov = .80) prints t(97) = -4.56."""
    result = williams_test(0.20, 0.45, 0.80, 100)
    assert (round(result.t, 2), result.degrees_of_freedom) == (-4.56, 97)
    assert result.p == pytest.approx(1.5e-5, abs=5e-6)  # it prints 1e-05


def test_order_changes_only_the_sign() -> None:
    first, second = williams_test(0.6, 0.5, 0.8, 50), williams_test(0.5, 0.6, 0.8, 50)
    assert (first.t, first.p) == (-second.t, second.p)
    assert first.t > 0


def test_equal_metrics_do_not_differ() -> None:
    assert williams_test(0.5, 0.5, 1.0, 50).p == 1.0
    for r in (0.5 + 1e-15, 0.5 - 1e-15):  # as the correlations of a metric and ten times the metric come out
        assert (williams_test(0.5, r, 1.0, 50).t, williams_test(0.5, r, 1 - 1e-16, 50).p) == (0.0, 1.0)


def test_difference_without_variance_is_certain() -> None:
    """K = 0 and r₁ + r₂ = 0: the two lists give the third, and the sign of the difference could not have been another."""
    first, second = williams_test(0.6, -0.6, 0.28, 100), williams_test(-0.6, 0.6, 0.28, 100)
    assert (first.t, first.p) == (np.inf, 0.0)
    assert (second.t, second.p) == (-np.inf, 0.0)
    assert williams_test(0.6, -0.59, 0.28, 100).p < 1e-9  # nor does it jump beside


def test_similar_metrics_give_a_smaller_p() -> None:
    result = [williams_test(0.5, 0.45, between, 200).p for between in (0.2, 0.5, 0.8, 0.95)]
    assert result == sorted(result, reverse=True)


def test_level_under_the_null() -> None:
    """Two metrics that are equally good: 5 % of p-values are below 0.05."""
    rng = np.random.default_rng(0)
    trials, n = 2000, 40
    truth = rng.standard_normal((trials, n))
    metrics = truth[:, None] + rng.standard_normal((trials, 2, n)) + rng.standard_normal((trials, 1, n))
    p = []
    for person, scores in zip(truth, metrics, strict=True):
        r = np.corrcoef(np.vstack([person, scores]))
        p.append(williams_test(r[0, 1], r[0, 2], r[1, 2], n).p)
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / trials))  # four standard errors


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ((0.5, 0.4, 0.3, 3), "at least 4 observations .got 3."),
        ((1.5, 0.4, 0.3, 30), "between -1 and 1 .got 1.5."),
        ((0.5, 0.4, 1.0, 30), "No three variables"),
    ],
)
def test_invalid_input_is_refused(given_: tuple[float, float, float, int], message: str) -> None:
    with pytest.raises(CrossmatchError, match=message):
        williams_test(*given_)
