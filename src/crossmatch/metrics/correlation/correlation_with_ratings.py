"""Correlation of model scores with human ratings: the sampled Spearman of CxC, and three coefficients over all pairs.

Pairs that share a query are not independent. The CxC samples contain one pair per query, and the interval of a coefficient over all
pairs comes from a jackknife over whole clusters of pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from crossmatch.data.arrays import FloatArray, IntArray, as_integers, require_finite
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.rated_pairs import RatedPairs
from crossmatch.metrics.cluster_bootstrap import CONFIDENCE_LEVEL
from crossmatch.metrics.jackknife import jackknife_interval
from crossmatch.metrics.paired_tests import Difference

SAMPLES = 1000
GROUPS = 100
SORT_FRACTION = 8  # sort if fewer than one in eight positions is selected; a mask is faster otherwise
MIN_QUERIES = 4  # half of them give two pairs, the fewest with a correlation

Values: TypeAlias = NDArray[Any]  # scores, or integer codes in the same order
Statistic: TypeAlias = Callable[[Values, Values, str], float]  # (human, model, where): a coefficient


def bootstrap_spearman(
    query: IntArray,
    human: FloatArray,
    model: FloatArray,
    samples: int = SAMPLES,
    seed: int = 0,
    *,
    item: IntArray | None = None,
) -> FloatArray:
    """Spearman's r in random samples of half the queries with one rated pair per query.

        r_b = spearman({ (h_qj, m_qj) : q in Q_b, j = J_qb }),    |Q_b| = floor(queries / 2),    J_qb uniform over the pairs of q

    The paper reports mean and standard deviation (ddof=1) over 1,000 samples. The deviation describes the difference between half
    samples; it is neither the standard error of the mean nor that of the model's score on new queries, which
    `sampled_spearman_interval` estimates.

    The draws depend only on the seed and on the number of pairs of each query, in ascending order of queries. So all models get the
    same samples, and the first samples of a longer run are those of a shorter one. Ties get their mean rank. All sums are sums of
    integers, so r is exact up to the final root and division for samples of less than 300,000 pairs.

    Args:
        query: Query of each pair.
        human: Human rating of each pair.
        model: Model score of each pair.
        samples: Number of samples.
        seed: Seed of the draws.
        item: Item of each pair. With it, the order of rows does not matter; without it, pairs of a query are taken in row order.

    Returns:
        One coefficient per sample.

    Raises:
        CrossmatchError: All human or all model scores of a sample are equal.

    Source: parekh2021cxc, sec. 4.

    >>> query = np.repeat(np.arange(200), 3)
    >>> human = np.arange(600.0) % 7
    >>> coefficients = bootstrap_spearman(query, human, human**3, samples=100)
    >>> coefficients.shape, coefficients.mean(), coefficients.std(ddof=1)
    ((100,), np.float64(1.0), np.float64(0.0))
    """
    human, model = _check_scores(human, model)
    order, count = _sort_by_query(query, item, len(human))
    by_model = np.argsort(model, kind="stable")
    position = np.empty_like(order)
    position[by_model] = np.arange(len(order))
    position, human_code, model = position[order], _order_codes(human)[by_model], model[by_model]
    untied = None if (model[1:] == model[:-1]).any() else _ranks_of_ascending(np.arange(len(count) // 2))
    coefficients, mask = np.empty(samples), np.empty(len(order), dtype=bool)
    for sample, pairs in enumerate(sample_pairs(count, samples, seed)):
        ascending = _ascending(position.take(pairs), mask)
        human_ranks = _centred_ranks(human_code.take(ascending))
        model_ranks = _ranks_of_ascending(model.take(ascending)) if untied is None else untied
        coefficients[sample] = _cosine(human_ranks, model_ranks, f" in sample {sample}")
    return coefficients


def sample_pairs(count: IntArray, samples: int = SAMPLES, seed: int = 0) -> Iterator[IntArray]:
    """Draw half of the queries and one pair of each; yields ascending positions among all pairs, once per sample.

    Query n has `count[n]` pairs, and pairs are numbered query by query. Every query gets 32 random bits per sample: one coin that
    selects the query, and 31 bits that select its pair (bias below 2^-31). Coins select only about half of the queries; coins at
    random positions are flipped until it is exactly half. By symmetry every subset is equally likely, as in drawing without
    replacement, but without a shuffle. Only raw generator bits are used, which NumPy keeps stable between versions.

    >>> [pairs.tolist() for pairs in sample_pairs(np.array([2, 1, 3, 1]), samples=3)]
    [[0, 2], [0, 2], [2, 5]]
    """
    if len(count) < MIN_QUERIES:
        raise CrossmatchError(
            f"The sampled correlation needs rated pairs of at least {MIN_QUERIES} queries (got {len(count)}). "
            "Add pairs of more queries."
        )
    if samples < 1:
        raise UsageError(f"samples must be at least 1 (got {samples}); the paper uses {SAMPLES:,}.")
    queries = len(count)
    bits, flips = (np.random.SFC64(s) for s in np.random.SeedSequence(seed).spawn(2))
    start = np.cumsum(count) - count
    for _ in range(samples):
        random_bits = bits.random_raw((queries + 1) // 2).astype("<u8", copy=False).view("<u4")[:queries]
        is_selected = random_bits >= 1 << 31
        _flip_to_count(is_selected, queries // 2, flips)
        selected = np.flatnonzero(is_selected)
        fraction = random_bits.take(selected) & 0x7FFFFFFF  # of 2^31
        yield start.take(selected) + (fraction * count.take(selected) >> 31)


def _flip_to_count(selected: NDArray[np.bool_], target: int, generator: np.random.SFC64) -> None:
    """Flip entries of `selected` in place at random positions until `target` of them are True."""
    while surplus := int(np.count_nonzero(selected)) - target:
        position = generator.random_raw(2 * abs(surplus) + 8) % len(selected)
        position = position[selected[position] == (surplus > 0)]
        selected[position[: abs(surplus)]] = surplus < 0  # repeated positions are made up for in the next round


def correlation(coefficient: str, human: FloatArray, model: FloatArray) -> float:
    """A coefficient over all pairs: `spearman`, `kendall` or `pearson`.

        r     = Σ_i (h_i - h̄)(m_i - m̄) / √(Σ_i (h_i - h̄)² · Σ_i (m_i - m̄)²)
        r_s   = r of the ranks, with mean ranks for ties
        tau_b = (C - D) / √((n₀ - t_h)(n₀ - t_m)),    n₀ = n(n - 1)/2

    C of the n₀ comparisons of two pairs are concordant, D discordant, t_h tied by people and t_m tied by the model. Pearson's r
    measures a linear relation; for models that were not fitted to these ratings prefer ranks.

    Source: parekh2021cxc, sec. 4; spearman1904proof; kendall1945treatment.

    >>> human, model = np.array([0.0, 1.5, 1.5, 5.0]), np.array([0.1, 0.3, 0.2, 0.9])
    >>> [round(correlation(name, human, model), 6) for name in ("spearman", "kendall", "pearson")]
    [0.948683, 0.912871, 0.983739]
    """
    prepare, statistic = _coefficient(coefficient)
    human, model = _check_scores(human, model)
    order = np.lexsort((model, human))
    return statistic(prepare(human[order]), prepare(model[order]), "")


@dataclass(frozen=True)
class CorrelationEstimate:
    """A coefficient over all pairs with its standard error and confidence interval."""

    value: float
    standard_error: float
    low: float
    high: float


def estimate_correlation(
    coefficient: str,
    cluster: IntArray,
    human: FloatArray,
    model: FloatArray,
    groups: int = GROUPS,
    seed: int = 0,
    level: float = CONFIDENCE_LEVEL,
) -> CorrelationEstimate:
    """A coefficient over all pairs with the interval of the delete-a-group jackknife.

        v = (G - 1)/G · Σ_g (r_(g) - r)²,    r ± t(G - 1) · √v, clipped to [-1, 1]

    r_(g) is the coefficient without the clusters of group g, t the quantile of Student's distribution. Clusters are assigned to G
    groups at random; with fewer than G clusters, each is a group. Pairs of a cluster are left out together, so dependence within
    clusters widens the interval. Dependence between clusters is ignored; use coarser clusters if it matters. List each pair
    once, not once from each side.

    Source: kott2001delete.

    >>> rng = np.random.default_rng(0)
    >>> once = rng.standard_normal((2, 300)) + rng.standard_normal(300)
    >>> def show(e): return f"{e.value:.3f} ± {e.standard_error:.3f}, {e.low:.3f} to {e.high:.3f}"
    >>> show(estimate_correlation("pearson", np.arange(300), *once))
    '0.512 ± 0.042, 0.429 to 0.595'
    >>> show(estimate_correlation("pearson", np.repeat(np.arange(300), 9), *np.repeat(once, 9, axis=1)))    # nine copies
    '0.512 ± 0.042, 0.429 to 0.595'
    """
    value, replicates = jackknife_correlations(coefficient, cluster, human, model, groups, seed)
    groups = len(replicates)
    error = float(np.sqrt((groups - 1) / groups * np.square(replicates - value).sum()))
    margin = float(stdtrit(groups - 1, (1 + level) / 2)) * error
    return CorrelationEstimate(value, error, max(-1.0, value - margin), min(1.0, value + margin))


def jackknife_correlations(
    coefficient: str,
    cluster: IntArray,
    human: FloatArray,
    model: FloatArray,
    groups: int = GROUPS,
    seed: int = 0,
    *,
    equal_clusters: bool = False,
) -> tuple[float, FloatArray]:
    """A coefficient over all pairs, and without each group of clusters; all models get the same groups.

    With `equal_clusters`, which Spearman's r supports, every cluster has the same weight, whatever its number of pairs.
    """
    prepare, statistic = _coefficient(coefficient)
    human, model = _check_scores(human, model)
    cluster = _require_integers(cluster, "clusters", len(human))
    group, groups = _assign_groups(cluster, groups, seed)
    member = np.unique(cluster, return_inverse=True)[1].ravel()
    weight = 1 / np.bincount(member)[member]
    # Rows that tie in all keys are interchangeable, so float sums do not depend on the row order.
    order = np.lexsort((weight, model, human) if equal_clusters else (model, human))
    human, model, group = prepare(human[order]), prepare(model[order]), group[order]
    if equal_clusters:
        return _jackknife_weighted_spearman(_order_codes(human), _order_codes(model), weight[order], group, groups)
    value = statistic(human, model, "")
    replicates = [statistic(human[group != g], model[group != g], f" without group {g} of {groups}") for g in range(groups)]
    return value, np.asarray(replicates)


def _jackknife_weighted_spearman(
    human: IntArray, model: IntArray, weight: FloatArray, group: IntArray, groups: int
) -> tuple[float, FloatArray]:
    """Spearman's r of weighted pairs, and without each group: the limit of r of copies in proportion to the weights."""

    def coefficient(selected: NDArray[np.bool_], where: str) -> float:
        w = weight[selected]
        a, b = (_weighted_centred_ranks(code[selected], w) for code in (human, model))
        root = np.sqrt(w)
        return _cosine(root * a, root * b, where)

    value = coefficient(np.ones(len(human), dtype=bool), "")
    return value, np.asarray([coefficient(group != g, f" without group {g} of {groups}") for g in range(groups)])


def _weighted_centred_ranks(code: IntArray, weight: FloatArray) -> FloatArray:
    """`_centred_ranks` of observations with weights.

    >>> _weighted_centred_ranks(np.array([0, 2]), np.array([3.0, 1.0])), _centred_ranks(np.array([0, 0, 0, 2]))
    (array([-1.,  3.]), array([-1., -1., -1.,  3.]))
    """
    mass = np.bincount(code, weights=weight)
    return np.asarray(2 * np.cumsum(mass) - mass - mass.sum(), dtype=np.float64).take(code)


def _assign_groups(cluster: IntArray, groups: int, seed: int) -> tuple[IntArray, int]:
    """Group of each pair, and the number of groups; clusters are assigned in random order."""
    unique, member = np.unique(cluster, return_inverse=True)
    groups = min(groups, len(unique))
    if groups < 2:
        raise CrossmatchError(
            f"A jackknife interval needs at least two clusters and two groups (got {len(unique):,} and {groups}). "
            "Pass the query of each pair as its cluster."
        )
    group_of_cluster = np.empty(len(unique), dtype=np.int64)
    group_of_cluster[np.argsort(np.random.SFC64(seed).random_raw(len(unique)), kind="stable")] = np.arange(len(unique)) % groups
    return group_of_cluster[member], groups


def _order_codes(values: FloatArray) -> IntArray:
    """Values as integers from 0 in the same order; equal values get equal codes."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64, copy=False)


def _identity(values: FloatArray) -> FloatArray:
    return values


def _rank_correlation(human: IntArray, model: IntArray, where: str) -> float:
    return _cosine(_centred_ranks(human), _centred_ranks(model), where)


def _ascending(positions: IntArray, mask: NDArray[np.bool_]) -> IntArray:
    """Sort distinct positions; many are sorted by marking them in `mask`, whose content is lost."""
    if SORT_FRACTION * len(positions) < len(mask):
        return np.sort(positions)
    mask.fill(False)
    mask[positions] = True
    return np.flatnonzero(mask)


def _centred_ranks(code: IntArray) -> FloatArray:
    """Twice the difference of rank and mean rank, with mean ranks for ties: integers, found by counting.

    >>> _centred_ranks(np.array([3, 0, 3, 9]))
    array([ 0., -3.,  0.,  3.])
    """
    count = np.bincount(code)
    return np.asarray(2 * np.cumsum(count) - count - len(code), dtype=np.float64).take(code)


def _ranks_of_ascending(values: Values) -> FloatArray:
    """`_centred_ranks` of values that are sorted already.

    >>> _ranks_of_ascending(np.array([0.1, 0.3, 0.3, 0.9]))
    array([-3.,  0.,  0.,  3.])
    """
    end = np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, len(values))
    start = np.append(0, end[:-1])
    return np.repeat(start + end - float(len(values)), end - start)


def _tau_b(human: IntArray, model: IntArray, where: str) -> float:
    from scipy.stats import kendalltau  # slow to import

    _require_variation(human, model, where)
    return float(kendalltau(human, model).statistic)


def _product_moment(human: FloatArray, model: FloatArray, where: str) -> float:
    _require_variation(human, model, where)
    return _cosine(_centred(human), _centred(model), where)


def _centred(values: FloatArray) -> FloatArray:
    """Values minus their mean, after exact scaling by a power of two that prevents overflow and underflow."""
    scaled = np.ldexp(values, -np.frexp(np.abs(values).max())[1])
    return np.asarray(scaled - scaled.mean(), dtype=np.float64)


def _cosine(a: FloatArray, b: FloatArray, where: str) -> float:
    """Σab / √(Σa² Σb²), summed by NumPy because BLAS threads cost more on short arrays."""
    ab, aa, bb = float((a * b).sum()), float((a * a).sum()), float((b * b).sum())
    if not aa or not bb:
        raise _constant_scores_error("model" if aa else "human", len(a), where)
    return min(1.0, max(-1.0, ab / math.sqrt(aa * bb)))


def _require_variation(human: Values, model: Values, where: str) -> None:
    for source, values in (("human", human), ("model", model)):
        if values.min() == values.max():
            raise _constant_scores_error(source, len(values), where)


def _constant_scores_error(source: str, pairs: int, where: str) -> CrossmatchError:
    return CrossmatchError(
        f"All {pairs:,} {source} scores{where} are equal, so the correlation is undefined. Check the scores, or add pairs."
    )


COEFFICIENTS: Mapping[str, tuple[Callable[[FloatArray], Values], Statistic]] = {
    "spearman": (_order_codes, _rank_correlation),
    "kendall": (_order_codes, _tau_b),
    "pearson": (_identity, _product_moment),
}


def _coefficient(name: str) -> tuple[Callable[[FloatArray], Values], Statistic]:
    if name not in COEFFICIENTS:
        raise UsageError(f"Unknown correlation coefficient {name!r}. Choose one of {', '.join(COEFFICIENTS)}.")
    return COEFFICIENTS[name]


def _check_scores(human: FloatArray, model: FloatArray) -> tuple[FloatArray, FloatArray]:
    human, model = np.asarray(human, dtype=np.float64), np.asarray(model, dtype=np.float64)
    if human.ndim != 1 or human.shape != model.shape:
        raise CrossmatchError(
            f"Human and model scores must be flat arrays of equal length (got shapes {human.shape} and {model.shape})."
        )
    if len(human) < 2:
        raise CrossmatchError(f"A correlation needs at least two pairs (got {len(human)}).")
    require_finite(human, "human scores", "Leave out pairs without a rating.")
    require_finite(model, "model scores", "Check the model's output for these pairs.")
    _require_variation(human, model, "")
    return human, model


def _require_integers(values: IntArray, label: str, pairs: int) -> IntArray:
    integers = as_integers(values, label)
    if integers.shape != (pairs,):
        raise CrossmatchError(f"{label} must have one entry per pair: shape ({pairs},), got {integers.shape}.")
    return integers


def _sort_by_query(query: IntArray, item: IntArray | None, pairs: int) -> tuple[IntArray, IntArray]:
    """Rows sorted by query and item, and the number of pairs of each query."""
    query = _require_integers(query, "queries", pairs)
    if item is None:
        order = np.argsort(query, kind="stable")
    else:
        item = _require_integers(item, "items", pairs)
        order = np.lexsort((item, query))
        repeated = np.flatnonzero((np.diff(query[order]) == 0) & (np.diff(item[order]) == 0))
        if len(repeated):
            row = order[repeated[0]]
            raise CrossmatchError(f"Query {query[row]} and item {item[row]} are rated twice. Merge the two ratings first.")
    first = np.flatnonzero(np.diff(query[order], prepend=query[order[0]] - 1))
    return order, np.diff(first, append=len(order))


# Rated pairs: what the metric table and comparisons call


def sampled_spearman(pairs: RatedPairs) -> FloatArray:
    """Spearman's r in each random sample of half the queries, as in CxC."""
    return bootstrap_spearman(pairs.query, pairs.human, pairs.model, pairs.samples, pairs.seed)


def overall_correlation(pairs: RatedPairs, coefficient: str) -> CorrelationEstimate:
    """A coefficient over all pairs; the pairs of a query are a cluster."""
    return estimate_correlation(coefficient, pairs.query, pairs.human, pairs.model, seed=pairs.seed)


def compare_correlations(coefficient: str, first: RatedPairs, second: RatedPairs, value: float | None = None) -> Difference:
    """Compare two models on the same pairs: second minus first, by a paired delete-a-group jackknife over queries.

    `value` is the difference, by default that of the coefficients over all pairs. For `bootstrap-spearman`, whose limit is left out
    group by group (`sampled_spearman_interval`), it is the difference of the means over samples.

    >>> rng = np.random.default_rng(0)
    >>> query, human = np.arange(500), rng.random(500)
    >>> noisy, noisier = (RatedPairs(query, human, human + s * rng.random(500)) for s in (0.5, 3))
    >>> compare_correlations("spearman", noisy, noisier).p < 0.001, compare_correlations("spearman", noisy, noisy).p
    (True, 1.0)
    """
    (a, without_a), (b, without_b) = (_jackknife_pairs(coefficient, pairs) for pairs in (first, second))
    limit = b - a
    value = limit if value is None else value
    return jackknife_interval(value, without_b - without_a + (value - limit), max_abs=2.0)


def sampled_spearman_interval(pairs: RatedPairs, mean: float) -> Difference:
    """Jackknife interval of the mean of `bootstrap_spearman`.

    The samples draw one pair per query. With many samples and queries their mean approaches Spearman's r over all pairs in which
    a pair of a query with n pairs has the weight 1/n. The jackknife over queries of this limit gives the interval around the mean.
    """
    value, without = _jackknife_pairs("bootstrap-spearman", pairs)
    return jackknife_interval(mean, without + (mean - value))


def _jackknife_pairs(coefficient: str, pairs: RatedPairs) -> tuple[float, FloatArray]:
    """A coefficient over all pairs, and without each group of queries."""
    is_sampled = coefficient == "bootstrap-spearman"
    name = "spearman" if is_sampled else coefficient
    return jackknife_correlations(name, pairs.query, pairs.human, pairs.model, seed=pairs.seed, equal_clusters=is_sampled)
