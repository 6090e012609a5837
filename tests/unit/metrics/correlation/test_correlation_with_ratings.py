"""Correlation with human ratings: samples against plain loops, draws against their distribution, intervals against theory."""

from functools import partial
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.rated_pairs import RatedPairs
from crossmatch.metrics.correlation.correlation_with_ratings import (
    COEFFICIENTS,
    bootstrap_spearman,
    compare_correlations,
    correlation,
    estimate_correlation,
    jackknife_correlations,
    sample_pairs,
    sampled_spearman_interval,
)

DOUBLE = 1e-12  # the same sums in another order
UNLIKELY = 1e-3  # the seeds are fixed: a test that holds once holds always


def ratings(seed, queries=60, most=5, levels=None, signal=1.0):
    """Rated pairs in random order: query ids with gaps, one to `most` items each; `levels` makes the model's scores tie."""
    rng = np.random.default_rng(seed)
    ids = np.sort(rng.choice(10 * queries, queries, replace=False))
    query = np.repeat(ids, rng.integers(1, most + 1, queries))
    item = np.concatenate([rng.choice(1000, n, replace=False) for n in np.unique(query, return_counts=True)[1]])
    human = np.round(rng.uniform(0, 5, len(query)), 1)
    model = signal * human + 2 * rng.standard_normal(len(query))
    if levels:
        model = np.floor(levels * stats.rankdata(model) / (len(model) + 1))
    shuffle = rng.permutation(len(query))
    return query[shuffle], item[shuffle], human[shuffle], model[shuffle]


def in_a_loop(query, item, human, model, samples, seed):
    """Each sample by itself, pair by pair, with SciPy's coefficient; None where a side is constant."""
    rows = sorted(range(len(query)), key=lambda n: (query[n], item[n]))
    count = [sum(1 for n in rows if query[n] == q) for q in sorted(set(query.tolist()))]
    coefficients = []
    for drawn in sample_pairs(np.array(count), samples, seed):
        pairs = [rows[c] for c in drawn]
        assert len({int(query[n]) for n in pairs}) == len(pairs) == len(count) // 2
        h, m = [human[n] for n in pairs], [model[n] for n in pairs]
        coefficients.append(stats.spearmanr(h, m).statistic if len(set(h)) > 1 < len(set(m)) else None)
    return coefficients


@given(
    st.integers(0, 10**6),
    st.integers(8, 41),
    st.sampled_from([1, 2, 6, 30]),
    st.sampled_from([None, 3, 9]),
    st.sampled_from([-1.0, 0.0, 1.0]),
)
def test_every_sample_equals_a_plain_loop(seed, queries, most, levels, signal):
    query, item, human, model = ratings(seed, queries, most, levels, signal)
    slow = in_a_loop(query, item, human, model, 25, seed)
    if None in slow:
        with pytest.raises(CrossmatchError, match=f"in sample {slow.index(None)} are equal"):
            bootstrap_spearman(query, human, model, samples=25, seed=seed, item=item)
    else:
        coefficients = bootstrap_spearman(query, human, model, samples=25, seed=seed, item=item)
        assert coefficients == pytest.approx(slow, abs=DOUBLE)


def test_order_of_rows_does_not_matter_to_the_last_bit():
    query, item, human, model = ratings(1, levels=20)
    coefficients = bootstrap_spearman(query, human, model, samples=50, item=item)
    for order in (np.arange(len(query))[::-1], np.random.default_rng(2).permutation(len(query))):
        reordered = bootstrap_spearman(query[order], human[order], model[order], samples=50, item=item[order])
        assert np.array_equal(coefficients, reordered)


def test_without_items_pairs_of_a_query_keep_their_order():
    query, item, human, model = ratings(1)
    coefficients = bootstrap_spearman(query, human, model, samples=50, item=item)
    order = np.lexsort((item, query))
    assert np.array_equal(coefficients, bootstrap_spearman(query[order], human[order], model[order], samples=50))
    backwards = np.lexsort((item, -query))  # queries in another order, the pairs of each as before
    assert np.array_equal(coefficients, bootstrap_spearman(query[backwards], human[backwards], model[backwards], samples=50))


def test_models_get_the_same_samples():
    query, item, human, model = ratings(3)
    coefficients = bootstrap_spearman(query, human, model, samples=200, item=item)
    assert np.array_equal(
        coefficients, bootstrap_spearman(query, human, np.exp(model), samples=200, item=item)
    )  # the same order of pairs
    assert np.array_equal(coefficients, -bootstrap_spearman(query, human, -model, samples=200, item=item))
    close = bootstrap_spearman(query, human, model + 0.2 * np.random.default_rng(4).standard_normal(len(model)), 200, item=item)
    reseeded = bootstrap_spearman(query, human, model, samples=200, seed=1, item=item)
    assert (close - coefficients).std() < 0.4 * (reseeded - coefficients).std()  # what pairing is for


def test_shorter_run_is_a_prefix_and_seeds_differ():
    query, item, human, model = ratings(5)
    long = bootstrap_spearman(query, human, model, samples=40, item=item)
    assert np.array_equal(long[:7], bootstrap_spearman(query, human, model, samples=7, item=item))
    assert len(set(long.tolist())) > 35
    assert not np.isin(bootstrap_spearman(query, human, model, samples=40, seed=1, item=item), long).all()


def test_draws_are_stable():
    """Published numbers depend on the draws."""
    drawn = [c.tolist() for c in sample_pairs(np.array([1, 2, 3, 4, 5, 6, 7]), samples=3, seed=7)]
    assert drawn == [[5, 9, 10], [0, 2, 19], [0, 6, 18]]


@pytest.mark.parametrize("queries", [4, 5, 6])
def test_every_half_of_the_queries_is_equally_likely(queries):
    halves = dict.fromkeys(combinations(range(queries), queries // 2), 0)
    for drawn in sample_pairs(np.ones(queries, dtype=np.int64), samples=6000, seed=queries):
        halves[tuple(drawn.tolist())] += 1
    assert len(halves) == comb(queries, queries // 2)
    assert stats.chisquare(list(halves.values())).pvalue > UNLIKELY


@pytest.mark.parametrize("queries", [101, 1000])
def test_queries_and_their_pairs_are_drawn_uniformly(queries):
    count = np.random.default_rng(0).integers(1, 8, queries)
    query = np.repeat(np.arange(queries), count)
    samples, times, before, overlap = 4000, np.zeros(count.sum()), None, []
    for drawn in sample_pairs(count, samples, seed=11):
        assert len(drawn) == queries // 2
        assert (np.diff(query[drawn]) > 0).all()
        times[drawn] += 1
        if before is not None:
            overlap.append(np.isin(query[drawn], before).sum())
        before = query[drawn]
    share = (queries // 2) / queries
    of_query = np.bincount(query, weights=times)
    # indicators of a fixed number among n have variance p(1 - p) and covariance -p(1 - p)/(n - 1)
    spread = ((of_query - samples * share) ** 2).sum() / (samples * share * (1 - share)) * (queries - 1) / queries
    assert UNLIKELY < stats.chi2.sf(spread, queries - 1) < 1 - UNLIKELY
    of_pair = ((times - (of_query / count)[query]) ** 2 / (of_query / count)[query]).sum()
    assert UNLIKELY < stats.chi2.sf(of_pair, (count - 1).sum()) < 1 - UNLIKELY
    theory = stats.hypergeom(queries, queries // 2, queries // 2)  # samples are independent
    assert np.mean(overlap) == pytest.approx(theory.mean(), abs=4 * theory.std() / np.sqrt(len(overlap)))
    assert np.std(overlap) == pytest.approx(theory.std(), rel=4 / np.sqrt(2 * len(overlap)))


@pytest.mark.parametrize("items", [1, 4])
def test_spread_is_that_of_half_samples(items):
    """Scores without relation: the variance over samples of m pairs is (1 - f/k)/m, for a share f of the queries and k items each.

    Half of a finite population is drawn, which reduces the variance.
    """
    queries, samples = 4000, 2000
    rng = np.random.default_rng(items)
    query = np.repeat(np.arange(queries), items)
    coefficients = bootstrap_spearman(query, rng.random(len(query)), rng.random(len(query)), samples)
    theory = np.sqrt((1 - 0.5 / items) / (queries // 2))
    # four standard errors of a standard deviation over these samples, and as many of the variance of the data at hand
    assert coefficients.std(ddof=1) == pytest.approx(theory, rel=4 / np.sqrt(2 * samples) + 4 / np.sqrt(2 * queries))


def test_every_query_has_the_same_weight():
    """A query with many pairs does not dominate the others."""
    queries = 400
    query = np.append(np.arange(queries), np.repeat(0, 2000))
    rng = np.random.default_rng(0)
    human = rng.random(len(query))
    model = np.where(np.arange(len(query)) < queries, human, -human)  # right but for the many pairs of query 0
    assert correlation("spearman", human, model) < 0
    assert bootstrap_spearman(query, human, model, samples=100).mean() > 0.95


# errors


def test_constant_scores_are_refused():
    query, item, human, model = ratings(0)
    calls = [partial(correlation, name) for name in COEFFICIENTS]
    for call in (lambda h, m: bootstrap_spearman(query, h, m, item=item), *calls):
        with pytest.raises(CrossmatchError, match=r"All [\d,]+ model scores are equal"):
            call(human, np.full(len(human), 0.5))
        with pytest.raises(CrossmatchError, match=r"All [\d,]+ human scores are equal"):
            call(np.zeros(len(human)), model)


def test_constant_sample_is_named():
    query, model = np.arange(20), np.zeros(20)
    model[3] = 1.0  # the samples without query 3 see zeros alone
    with pytest.raises(CrossmatchError, match=r"All 10 model scores in sample \d+ are equal"):
        bootstrap_spearman(query, np.arange(20.0), model)
    with pytest.raises(CrossmatchError, match=r"All 10 human scores in sample \d+ are equal"):
        bootstrap_spearman(query, model, np.arange(20.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": np.array([1, 1, 2, 2, 3, 3])}, "at least 4 queries .got 3."),
        ({"query": np.array([1, 2, 3])}, r"queries must have one entry per pair: .*got \(3,\)"),
        ({"query": np.array([0.5, 1, 2, 3, 4, 5])}, "not whole"),
        ({"item": np.array([7, 7, 1, 1, 1, 1])}, "Query 1 and item 7 are rated twice"),
        ({"item": np.array([7])}, r"items must have one entry per pair: .*got \(1,\)"),
        ({"human": np.array([1, 2, np.nan, 4, 5, 6])}, "human scores: 1 of 6 values are NaN or infinite"),
        ({"model": np.array([1, 2, np.inf, 4, 5, 6])}, "model scores: 1 of 6 values are NaN or infinite"),
        ({"model": np.arange(5.0)}, r"shapes \(6,\) and \(5,\)"),
        ({"human": np.arange(12.0).reshape(6, 2), "model": np.arange(12.0).reshape(6, 2)}, "must be flat arrays"),
        ({"samples": 0}, "samples must be at least 1"),
    ],
)
def test_invalid_input_is_refused(change, message):
    rising = np.arange(6.0)
    good = {"query": np.array([1, 1, 2, 3, 4, 5]), "human": rising, "model": rising, "samples": 5, "item": np.arange(6)}
    assert bootstrap_spearman(**good) == pytest.approx(np.ones(5))
    with pytest.raises(CrossmatchError, match=message):
        bootstrap_spearman(**good | change)


# over all pairs


def tau_b_by_hand(h, m):
    agree = h_differs = m_differs = 0
    for i, j in combinations(range(len(h)), 2):
        a, b = np.sign(h[i] - h[j]), np.sign(m[i] - m[j])
        agree, h_differs, m_differs = agree + a * b, h_differs + a * a, m_differs + b * b
    return agree / np.sqrt(h_differs * m_differs)


def spearman_by_hand(h, m):
    ranks = [[(np.sum(x < v) + 1 + np.sum(x <= v)) / 2 for v in x] for x in (h, m)]
    return np.corrcoef(*ranks)[0, 1]


BY_HAND = {"spearman": spearman_by_hand, "kendall": tau_b_by_hand, "pearson": lambda h, m: np.corrcoef(h, m)[0, 1]}


@pytest.mark.parametrize("name", COEFFICIENTS)
@pytest.mark.parametrize("levels", [None, 4])
def test_coefficients_equal_the_definition_in_any_order(name, levels):
    query, _, human, model = ratings(9, queries=25, levels=levels)
    by_hand, ours = BY_HAND[name], partial(correlation, name)
    value = ours(human, model)
    assert value == pytest.approx(by_hand(human, model), abs=DOUBLE)
    order = np.random.default_rng(0).permutation(len(human))
    assert ours(human[order], model[order]) == value
    assert ours(model, human) == pytest.approx(value, abs=DOUBLE)
    assert ours(human, human) == pytest.approx(1, abs=DOUBLE)
    assert ours(human, -human) == pytest.approx(-1, abs=DOUBLE)
    assert estimate_correlation(name, query, human, model).value == value


def test_equal_orders_have_exactly_one():
    human = np.random.default_rng(0).integers(0, 50, 3000).astype(float)
    assert correlation("spearman", human, np.exp(human)) == 1.0
    assert correlation("spearman", human, -human) == -1.0


@pytest.mark.parametrize("factor", [1e-300, 1e-160, 1.0, 1e160, 1e307])
def test_pearson_does_not_overflow(factor):
    _, _, human, model = ratings(9)
    assert correlation("pearson", human * factor, model) == pytest.approx(correlation("pearson", human, model), abs=DOUBLE)


# intervals


@pytest.mark.parametrize("name", COEFFICIENTS)
def test_one_group_per_cluster_is_the_plain_jackknife(name):
    query, _, human, model = ratings(12, queries=15)
    estimate = estimate_correlation(name, query, human, model, groups=100)
    without = np.array([correlation(name, human[query != q], model[query != q]) for q in np.unique(query)])
    error = np.sqrt(14 / 15 * ((without - correlation(name, human, model)) ** 2).sum())
    margin = stats.t.ppf(0.975, 14) * error
    assert estimate.standard_error == pytest.approx(error, abs=DOUBLE)
    assert (estimate.low, estimate.high) == pytest.approx(
        (max(-1, estimate.value - margin), min(1, estimate.value + margin)), abs=DOUBLE
    )


def test_interval_does_not_depend_on_the_order_of_rows():
    query, _, human, model = ratings(13, queries=300, levels=40)
    order = np.random.default_rng(0).permutation(len(query))
    for name in COEFFICIENTS:
        assert estimate_correlation(name, query, human, model) == estimate_correlation(
            name, query[order], human[order], model[order]
        )
    assert estimate_correlation("pearson", query, human, model) != estimate_correlation("pearson", query, human, model, seed=1)


def test_standard_error_of_independent_pairs_equals_theory():
    """Normal scores: Pearson's r has the standard error (1 - ρ²)/√n, and Spearman's without relation 1/√n."""
    rng = np.random.default_rng(5)
    n, rho = 20_000, 0.6
    human = rng.standard_normal(n)
    model = rho * human + np.sqrt(1 - rho**2) * rng.standard_normal(n)
    tolerance = 4 / np.sqrt(2 * 99)  # of a variance from 100 groups, as a share of the error
    assert estimate_correlation("pearson", np.arange(n), human, model).standard_error == pytest.approx(
        (1 - rho**2) / np.sqrt(n), rel=tolerance
    )
    assert estimate_correlation("spearman", np.arange(n), human, rng.random(n)).standard_error == pytest.approx(
        1 / np.sqrt(n), rel=tolerance
    )


@pytest.mark.parametrize("name", ["spearman", "pearson"])
def test_repeated_pairs_do_not_narrow_the_interval(name):
    query, _, human, model = ratings(14, queries=200, most=1)
    single = estimate_correlation(name, query, human, model)
    repeated = estimate_correlation(name, np.repeat(query, 7), np.repeat(human, 7), np.repeat(model, 7))
    naive = estimate_correlation(name, np.arange(7 * len(query)), np.repeat(human, 7), np.repeat(model, 7))
    assert repeated.value == pytest.approx(single.value, abs=DOUBLE)
    assert repeated.standard_error == pytest.approx(single.standard_error, rel=1e-9)
    assert naive.standard_error < 0.6 * single.standard_error  # without clusters the error is too small by √7


def test_intervals_have_their_coverage():
    """Clusters of ten pairs that share half of their variance on either side; the truth is ρ = 0.5."""
    rng = np.random.default_rng(6)
    covered, naive, times, clusters, size = 0, 0, 400, 60, 10
    query = np.repeat(np.arange(clusters), size)
    for _ in range(times):
        shared = rng.standard_normal((3, clusters))[:, query] + rng.standard_normal((3, clusters * size))
        human, model = shared[0] + shared[2], shared[1] + shared[2]
        estimate = estimate_correlation("pearson", query, human, model, groups=30)
        covered += estimate.low <= 0.5 <= estimate.high
        naive += abs(estimate.value - 0.5) <= 1.96 * 0.75 / np.sqrt(len(query))
    assert covered / times == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / times))
    assert naive / times < 0.8


def test_perfect_correlation_has_zero_width():
    estimate = estimate_correlation("spearman", np.arange(50), np.arange(50.0), np.arange(50.0) ** 3)
    assert (estimate.value, estimate.standard_error, estimate.low, estimate.high) == (1.0, 0.0, 1.0, 1.0)


def test_intervals_end_at_one():
    rng = np.random.default_rng(0)
    human = rng.standard_normal(12)
    estimate = estimate_correlation("pearson", np.arange(12), human, human + 0.1 * rng.standard_normal(12), groups=2)
    assert estimate.high == 1.0


def test_intervals_need_clusters_and_spread():
    human = np.arange(6.0)
    with pytest.raises(CrossmatchError, match=r"at least two clusters"):
        estimate_correlation("pearson", np.zeros(6, dtype=int), human, human)
    with pytest.raises(CrossmatchError, match=r"clusters must have one entry per pair"):
        estimate_correlation("pearson", np.arange(2), human, human)
    with pytest.raises(CrossmatchError, match=r"All 5 model scores without group \d of 6 are equal"):
        estimate_correlation("kendall", np.arange(6), human, np.array([0, 0, 1.0, 0, 0, 0]))
    with pytest.raises(UsageError, match=r"Unknown correlation coefficient 'spearmann'. Choose one of spearman, kendall, pearson"):
        estimate_correlation("spearmann", np.arange(6), human, human)
    with pytest.raises(CrossmatchError, match="at least two pairs"):
        correlation("pearson", np.ones(1), np.ones(1))


# The interval of the sampled Spearman


def test_equal_clusters_equal_copies_of_pairs():
    """Every query gets 60 copies in all: 60, 30, 20, 15 or 12 of each of its pairs. Plain Spearman then weighs queries equally."""
    query, _, human, model = ratings(0, queries=30, most=5, levels=9)
    count = np.bincount(query)[query]
    copies = np.repeat(np.arange(len(query)), 60 // count)
    value, without = jackknife_correlations("spearman", query, human, model, groups=10, equal_clusters=True)
    slow, slow_without = jackknife_correlations("spearman", query[copies], human[copies], model[copies], groups=10)
    assert value == pytest.approx(slow, abs=1e-12)
    assert without == pytest.approx(slow_without, abs=1e-12)
    assert value == pytest.approx(stats.spearmanr(human[copies], model[copies]).statistic, abs=1e-12)


def test_limit_of_many_samples_is_spearman_with_equal_queries():
    query, item, human, model = ratings(1, queries=2000, most=5)
    value, _ = jackknife_correlations("spearman", query, human, model, equal_clusters=True)
    samples = bootstrap_spearman(query, human, model, samples=400, item=item)
    assert samples.mean() == pytest.approx(value, abs=4 * samples.std() / np.sqrt(400) + 1 / 2000)


def test_interval_of_samples_is_as_wide_as_that_of_all_pairs():
    """One pair per query: the mean of the samples is about r over all pairs, and so is its interval; it is centred at the mean."""
    query, item, human, model = ratings(2, queries=400, most=1)
    pairs = RatedPairs(query, human, model)
    mean = float(bootstrap_spearman(query, human, model, item=item).mean())
    interval, estimate = sampled_spearman_interval(pairs, mean), estimate_correlation("spearman", query, human, model)
    assert interval.value == mean
    assert interval.high - interval.low == pytest.approx(estimate.high - estimate.low)
    assert (interval.high + interval.low) / 2 == pytest.approx(mean)


def test_comparison_of_samples_finds_a_difference_that_is_there():
    query, _, human, model = ratings(3, queries=300, most=4)
    noisy = model + 3 * np.random.default_rng(0).standard_normal(len(model))
    first, second = RatedPairs(query, human, model), RatedPairs(query, human, noisy)
    difference = compare_correlations("bootstrap-spearman", first, second)
    assert difference.high < 0
    assert difference.p < 0.001
    assert compare_correlations("bootstrap-spearman", first, first).p == 1.0
