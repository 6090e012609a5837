"""Correlations in replicates: against a count of all pairs of the observations that a replicate holds."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.metrics import concordance
from crossmatch.metrics.concordance import COEFFICIENTS, correlations
from crossmatch.metrics.significance import Draws


def by_pairs(human: list[float], model: list[float], m: int) -> tuple[float | None, float | None]:
    """tau-b and tau-c, one pair of observations after the other."""
    alike = level_h = level_m = pairs = 0
    for (h1, m1), (h2, m2) in combinations(zip(human, model, strict=True), 2):
        alike += int(np.sign(h1 - h2) * np.sign(m1 - m2))
        level_h += h1 == h2
        level_m += m1 == m2
        pairs += 1
    below = (pairs - level_h) * (pairs - level_m)
    n = len(human)
    return (alike / below**0.5, 2 * m * alike / (n * n * (m - 1))) if below else (None, None)


def mean_rank(values: list[float], value: float) -> float:
    return sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2


def by_definition(x: list[float], y: list[float]) -> float | None:
    a, b = np.array(x) - np.mean(x), np.array(y) - np.mean(y)
    below = float((a * a).sum() * (b * b).sum())
    return float((a * b).sum()) / below**0.5 if below > 1e-20 else None


observations = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5), st.integers(0, 3)), min_size=2, max_size=14)


@settings(deadline=None)
@given(observations, st.integers(0, 99))
def test_every_replicate_equals_the_slow_count(rows: list[tuple[int, int, int]], seed: int) -> None:
    human, model, cluster = (np.array(column) for column in zip(*rows, strict=True))
    draws = Draws.of(cluster, samples=4, seed=seed)
    values, drawn = correlations(human.astype(float), model / 7, draws)
    m = min(len(set(human.tolist())), len(set(model.tolist())))
    for times, found in zip([np.ones(draws.clusters), *next(iter(draws))], [values, *drawn.T], strict=True):
        taken = np.repeat(np.arange(len(rows)), times[draws.member].astype(int))
        h, s = human[taken].astype(float).tolist(), (model[taken] / 7).tolist()
        slow = [
            *by_pairs(h, s, m),
            by_definition([mean_rank(h, v) for v in h], [mean_rank(s, v) for v in s]),
            by_definition(h, s),
        ]
        for name, fast, expected in zip(COEFFICIENTS, found, slow, strict=True):
            if expected is None:
                assert np.isnan(fast), name
            else:
                assert fast == pytest.approx(expected, abs=1e-9), name


def test_a_smaller_block_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    human, model, draws = rng.integers(1, 5, 300).astype(float), rng.random(300), Draws.of(rng.integers(0, 40, 300), 100, 0)
    values, drawn = correlations(human, model, draws)
    monkeypatch.setattr(concordance, "HELD", 900)
    again, drawn_again = correlations(human, model, draws)
    np.testing.assert_array_equal(values[:3], again[:3])  # sums of whole numbers are exact
    np.testing.assert_array_equal(drawn[:3], drawn_again[:3])
    np.testing.assert_allclose(drawn[3], drawn_again[3], rtol=0, atol=1e-12)


def test_the_order_of_the_observations_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    human, model, cluster = rng.integers(1, 9, 200).astype(float), rng.random(200).round(1), rng.integers(0, 30, 200)
    mixed = rng.permutation(200)
    first, second = (correlations(human[o], model[o], Draws.of(cluster[o], 20, 3)) for o in (np.arange(200), mixed))
    np.testing.assert_allclose(first[0], second[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(first[1], second[1], rtol=0, atol=1e-12)


def test_names_choose_and_order() -> None:
    human, model, draws = np.array([1.0, 2, 2, 4]), np.array([0.1, 0.4, 0.3, 0.2]), Draws.of(np.arange(4), 3, 0)
    every, _ = correlations(human, model, draws)
    some, drawn = correlations(human, model, draws, ("pearson", "tau-c"))
    assert some.tolist() == [every[3], every[1]]
    assert drawn.shape == (2, 3)


def test_large_and_tiny_values() -> None:
    model = np.array([1e300, 2e300, 3e300, 1.5e300])
    values, _ = correlations(np.array([1.0, 2, 3, 1.5]), model, Draws.of(np.arange(4), 2, 0))
    np.testing.assert_allclose(values, 1.0)
    values, _ = correlations(np.array([1.0, 2, 3, 1.5]), 1e-300 * np.array([1.0, 2, 3, 1.5]), Draws.of(np.arange(4), 2, 0))
    np.testing.assert_allclose(values, 1.0)


def test_errors() -> None:
    draws = Draws.of(np.arange(3), 2, 0)
    with pytest.raises(WrongWords, match="no correlation coefficient 'gamma'"):
        correlations(np.arange(3.0), np.arange(3.0), draws, ("gamma",))
    with pytest.raises(CrossmatchError, match="three flat lists"):
        correlations(np.arange(4.0), np.arange(4.0), draws)
    with pytest.raises(CrossmatchError, match="scores: 1 of 3 values are NaN"):
        correlations(np.arange(3.0), np.array([0, np.nan, 1]), draws)
