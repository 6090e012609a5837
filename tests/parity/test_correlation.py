"""SciPy gives the same coefficients, and the ratings of CxC the spread that its paper printed."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from crossmatch.metrics.correlation import bootstrap_spearman, estimate, kendall, pearson, sampled_pairs, spearman

ROOT = Path(__file__).parents[2]
CXC = Path(os.environ.get("CROSSMATCH_DATA", ROOT.parent / "shared/data")) / "cxc"
DOUBLE = 1e-12  # the same sums in another order


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 400), st.sampled_from([2, 5, 40, 10**6]), st.sampled_from([2, 30, 10**6]))
def test_scipy_agrees(seed, pairs, human_levels, model_levels):
    rng = np.random.default_rng(seed)
    human = rng.integers(0, human_levels, pairs) / human_levels
    model = human * rng.integers(-1, 2) + rng.integers(0, model_levels, pairs) / model_levels
    assume(len(set(human)) > 1)
    assume(len(set(model)) > 1)
    assert spearman(human, model) == pytest.approx(stats.spearmanr(human, model).statistic, abs=DOUBLE)
    assert kendall(human, model) == pytest.approx(stats.kendalltau(human, model).statistic, abs=DOUBLE)
    assert pearson(human, model) == pytest.approx(stats.pearsonr(human, model).statistic, abs=DOUBLE)


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
def test_on_real_ratings_every_sample_agrees_with_scipy(name, query_column, digits):
    query, item, human = ratings(name, query_column)
    model = noisy(human, 2) if digits is None else np.round(noisy(human, 2), digits)
    order = np.lexsort((item, query))
    found = bootstrap_spearman(query, human, model, samples=40, seed=5, item=item)
    for r, chosen in zip(found, sampled_pairs(np.bincount(query), samples=40, seed=5), strict=True):
        rows = order[chosen]
        assert len(np.unique(query[rows])) == len(rows) == len(np.unique(query)) // 2
        assert r == pytest.approx(stats.spearmanr(human[rows], model[rows]).statistic, abs=DOUBLE)


@pytest.mark.parametrize("name", ["sts", "sis", "sits"])
def test_on_real_ratings_the_coefficients_over_all_pairs_agree_with_scipy(name):
    query, _, human = ratings(name, 0)
    model = noisy(human, 1)
    for coefficient, theirs in (("spearman", stats.spearmanr), ("kendall", stats.kendalltau), ("pearson", stats.pearsonr)):
        found = estimate(coefficient, query, human, model, groups=10)
        assert found.value == pytest.approx(theirs(human, model).statistic, abs=DOUBLE)
        assert found.low < found.value < found.high


@pytest.mark.parametrize(
    ("name", "query_column", "noise", "printed_mean", "printed_spread", "as_printed"),
    [
        ("sts", 0, 1.09, 74.2, 0.4, True),
        ("sis", 0, 1.24, 74.5, 0.9, True),
        ("sits", 1, 1.03, 61.9, 1.3, True),  # images as queries
        ("sits", 0, 0.7, 61.9, 1.3, False),  # captions as queries: five times as many, and half the spread
    ],
)
def test_the_spread_in_the_paper_tells_what_its_queries_were(name, query_column, noise, printed_mean, printed_spread, as_printed):
    """Table 5 of parekh2021cxc, model DE_T2T+I2T: noise to the printed mean gives the printed spread, for the right queries."""
    query, item, human = ratings(name, query_column)
    found = 100 * bootstrap_spearman(query, human, noisy(human, noise), samples=400, item=item)
    assert found.mean() == pytest.approx(printed_mean, abs=0.5)
    # the printed digit, and what another distribution of errors may do
    assert (abs(found.std(ddof=1) - printed_spread) < 0.05 + 0.15 * printed_spread) == as_printed
