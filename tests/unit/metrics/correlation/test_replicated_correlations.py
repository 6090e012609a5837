"""Correlations in replicates, against a loop over all pairs of the drawn observations."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.metrics.cluster_bootstrap import ClusterBootstrap
from crossmatch.metrics.correlation.replicated_correlations import COEFFICIENTS, replicated_correlations


def by_pairs(human: list[float], model: list[float], m: int) -> tuple[float | None, float | None]:
    """tau-b and tau-c by a loop over pairs of observations."""
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
    return sum(reordered < value for reordered in values) + (sum(reordered == value for reordered in values) + 1) / 2


def by_definition(x: list[float], y: list[float]) -> float | None:
    a, b = np.array(x) - np.mean(x), np.array(y) - np.mean(y)
    below = float((a * a).sum() * (b * b).sum())
    return float((a * b).sum()) / below**0.5 if below > 1e-20 else None


observations = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5), st.integers(0, 3)), min_size=2, max_size=14)


@given(observations, st.integers(0, 99))
def test_replicates_equal_a_loop_over_pairs(rows: list[tuple[int, int, int]], seed: int) -> None:
    human, model, cluster = (np.array(column) for column in zip(*rows, strict=True))
    draws = ClusterBootstrap.from_clusters(cluster, samples=4, seed=seed)
    values, drawn = replicated_correlations(human.astype(float), model / 7, draws)
    m = min(len(set(human.tolist())), len(set(model.tolist())))
    for times, result in zip([np.ones(draws.cluster_count), *next(iter(draws))], [values, *drawn.T], strict=True):
        taken = np.repeat(np.arange(len(rows)), times[draws.cluster_index].astype(int))
        h, s = human[taken].astype(float).tolist(), (model[taken] / 7).tolist()
        slow = [
            *by_pairs(h, s, m),
            by_definition([mean_rank(h, v) for v in h], [mean_rank(s, v) for v in s]),
            by_definition(h, s),
        ]
        for name, fast, expected in zip(COEFFICIENTS, result, slow, strict=True):
            if expected is None:
                assert np.isnan(fast), name
            else:
                assert fast == pytest.approx(expected, abs=1e-9), name


def test_block_size_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    human, model, draws = (
        rng.integers(1, 5, 300).astype(float),
        rng.random(300),
        ClusterBootstrap.from_clusters(rng.integers(0, 40, 300), 100, 0),
    )
    values, drawn = replicated_correlations(human, model, draws)
    monkeypatch.setattr("crossmatch.metrics.correlation.replicated_correlations.MAX_ELEMENTS", 900)
    repeated, drawn_again = replicated_correlations(human, model, draws)
    np.testing.assert_array_equal(values[:3], repeated[:3])  # sums of whole numbers are exact
    np.testing.assert_array_equal(drawn[:3], drawn_again[:3])
    np.testing.assert_allclose(drawn[3], drawn_again[3], rtol=0, atol=1e-12)


def test_order_of_observations_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    human, model, cluster = rng.integers(1, 9, 200).astype(float), rng.random(200).round(1), rng.integers(0, 30, 200)
    mixed = rng.permutation(200)
    first, second = (
        replicated_correlations(human[o], model[o], ClusterBootstrap.from_clusters(cluster[o], 20, 3))
        for o in (np.arange(200), mixed)
    )
    np.testing.assert_allclose(first[0], second[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(first[1], second[1], rtol=0, atol=1e-12)


def test_names_select_and_order_coefficients() -> None:
    human, model, draws = (
        np.array([1.0, 2, 2, 4]),
        np.array([0.1, 0.4, 0.3, 0.2]),
        ClusterBootstrap.from_clusters(np.arange(4), 3, 0),
    )
    every, _ = replicated_correlations(human, model, draws)
    some, drawn = replicated_correlations(human, model, draws, ("pearson", "tau-c"))
    assert some.tolist() == [every[3], every[1]]
    assert drawn.shape == (2, 3)


def test_scale_of_values_does_not_matter() -> None:
    model = np.array([1e300, 2e300, 3e300, 1.5e300])
    values, _ = replicated_correlations(np.array([1.0, 2, 3, 1.5]), model, ClusterBootstrap.from_clusters(np.arange(4), 2, 0))
    np.testing.assert_allclose(values, 1.0)
    values, _ = replicated_correlations(
        np.array([1.0, 2, 3, 1.5]), 1e-300 * np.array([1.0, 2, 3, 1.5]), ClusterBootstrap.from_clusters(np.arange(4), 2, 0)
    )
    np.testing.assert_allclose(values, 1.0)


def test_invalid_input_is_refused() -> None:
    draws = ClusterBootstrap.from_clusters(np.arange(3), 2, 0)
    with pytest.raises(UsageError, match="Unknown correlation coefficient 'gamma'"):
        replicated_correlations(np.arange(3.0), np.arange(3.0), draws, ("gamma",))
    with pytest.raises(CrossmatchError, match="flat arrays of equal length"):
        replicated_correlations(np.arange(4.0), np.arange(4.0), draws)
    with pytest.raises(CrossmatchError, match="scores: 1 of 3 values are NaN"):
        replicated_correlations(np.arange(3.0), np.array([0, np.nan, 1]), draws)
