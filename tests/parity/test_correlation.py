"""Coefficients equal those of SciPy, and the ratings of CxC give the published spread."""

import csv
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy import stats

from crossmatch.metrics.correlation.correlation_with_ratings import (
    bootstrap_spearman,
    correlation,
    estimate_correlation,
    sample_pairs,
)

ROOT = Path(__file__).parents[2]
CXC = Path(os.environ.get("CROSSMATCH_DATA", ROOT.parent / "shared/data")) / "cxc"
DOUBLE = 1e-12  # the same sums in another order
SCIPY = {"spearman": stats.spearmanr, "kendall": stats.kendalltau, "pearson": stats.pearsonr}


@given(st.integers(0, 10**6), st.integers(2, 400), st.sampled_from([2, 5, 40, 10**6]), st.sampled_from([2, 30, 10**6]))
@example(seed=100603, pairs=2, human_levels=2, model_levels=30)  # as fractions, the model's scores differed by rounding only
def test_coefficients_equal_scipy(seed, pairs, human_levels, model_levels):
    """Scores are integers, so that equal ones are equal and others are not almost equal, of which SciPy warns."""
    rng = np.random.default_rng(seed)
    unit = math.lcm(human_levels, model_levels)
    human = rng.integers(0, human_levels, pairs) * float(unit // human_levels)
    model = human * rng.integers(-1, 2) + rng.integers(0, model_levels, pairs) * float(unit // model_levels)
    assume(len(set(human)) > 1)
    assume(len(set(model)) > 1)
    for coefficient, reference in SCIPY.items():
        assert correlation(coefficient, human, model) == pytest.approx(reference(human, model).statistic, abs=DOUBLE)


def ratings(name, query_column):
    path = CXC / f"{name}_test.csv"
    if not path.exists():
        pytest.skip(f"the ratings of CxC are not at {path}; set CROSSMATCH_DATA")
    with path.open(newline="") as f:
        rows = list(csv.reader(f))[1:]
    query, item = (np.unique([r[c] for r in rows], return_inverse=True)[1] for c in (query_column, 1 - query_column))
    return query, item, np.array([float(r[2]) for r in rows])


def noisy(human, noise, seed=0):
    return human + noise * np.random.default_rng(seed).standard_normal(len(human))


@pytest.mark.parametrize("digits", [None, 1], ids=["distinct", "tied"])
@pytest.mark.parametrize(("name", "query_column"), [("sts", 0), ("sis", 0), ("sits", 0), ("sits", 1)])
def test_every_sample_of_cxc_equals_scipy(name, query_column, digits):
    query, item, human = ratings(name, query_column)
    model = noisy(human, 2) if digits is None else np.round(noisy(human, 2), digits)
    order = np.lexsort((item, query))
    coefficients = bootstrap_spearman(query, human, model, samples=40, seed=5, item=item)
    for r, chosen in zip(coefficients, sample_pairs(np.bincount(query), samples=40, seed=5), strict=True):
        rows = order[chosen]
        assert len(np.unique(query[rows])) == len(rows) == len(np.unique(query)) // 2
        assert r == pytest.approx(stats.spearmanr(human[rows], model[rows]).statistic, abs=DOUBLE)


@pytest.mark.parametrize("name", ["sts", "sis", "sits"])
def test_coefficients_over_all_pairs_of_cxc_equal_scipy(name):
    query, _, human = ratings(name, 0)
    model = noisy(human, 1)
    for coefficient, reference in SCIPY.items():
        estimate = estimate_correlation(coefficient, query, human, model, groups=10)
        assert estimate.value == pytest.approx(reference(human, model).statistic, abs=DOUBLE)
        assert estimate.low < estimate.value < estimate.high


@pytest.mark.parametrize(
    ("name", "query_column", "noise", "printed_mean", "printed_spread", "as_printed"),
    [
        ("sts", 0, 1.09, 74.2, 0.4, True),
        ("sis", 0, 1.24, 74.5, 0.9, True),
        ("sits", 1, 1.03, 61.9, 1.3, True),  # images as queries
        ("sits", 0, 0.7, 61.9, 1.3, False),  # captions as queries: five times as many, and half the spread
    ],
)
def test_published_spread_shows_which_side_the_queries_are(name, query_column, noise, printed_mean, printed_spread, as_printed):
    """Table 5 of parekh2021cxc, model DE_T2T+I2T: noise to the printed mean gives the printed spread, for the right queries."""
    query, item, human = ratings(name, query_column)
    percent = 100 * bootstrap_spearman(query, human, noisy(human, noise), samples=400, item=item)
    assert percent.mean() == pytest.approx(printed_mean, abs=0.5)
    # the printed digit, and what another distribution of errors may do
    assert (abs(percent.std(ddof=1) - printed_spread) < 0.05 + 0.15 * printed_spread) == as_printed
