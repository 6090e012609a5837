"""How well a model's scores of pairs follow people's: the sampled correlation of CxC, and three coefficients over all pairs.

Pairs that share a query are not independent, and no number here pretends that they are: the samples of CxC hold one pair for each
query, and the interval of a coefficient over all pairs comes from leaving out whole clusters of pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from crossmatch.core.arrays import FloatArray, IntArray, as_whole, require_finite
from crossmatch.core.errors import CrossmatchError, WrongWords

SAMPLES = 1000
GROUPS = 100
LEVEL = 0.95
FEW = 8  # one in so many places is marked: sorting them is faster than looking for them (measured on CxC)
FEWEST = 4  # queries: half of them are two pairs, and one pair has no correlation

Values: TypeAlias = NDArray[Any]  # scores, or codes that stand in the same order
Statistic: TypeAlias = Callable[
    [Values, Values, str], float
]  # of people's and the model's values; the text says which, if all equal


def bootstrap_spearman(
    query: IntArray,
    human: FloatArray,
    model: FloatArray,
    samples: int = SAMPLES,
    seed: int = 0,
    *,
    item: IntArray | None = None,
) -> FloatArray:
    """Spearman's r in each of many samples of half the queries, with one rated pair for each of them: shape (samples,).

        r_b = spearman({ (h_qj, m_qj) : q in Q_b, j = J_qb }),    |Q_b| = floor(queries / 2),    J_qb uniform over the pairs of q

    The paper reports mean and standard deviation over 1,000 samples; take std(ddof=1). It tells how much one half sample differs
    from another; it is not the standard error of the mean over all samples, nor that of the model's score on new queries.
    Half of an odd number of queries is rounded down. The draws depend on the seed, on the number of pairs of each query, and on
    nothing else, queries in ascending order: two models get the same samples and can be compared sample by sample, and the first
    samples of a longer run are those of a shorter one. Pairs of one query are taken by ascending `item`, so that the order of the
    rows does not matter; without `item` they are taken as they stand, and only the order of the queries does not matter.
    Ties get the mean of their ranks. All sums are sums of integers: r is exact but for its last root and division, as long as a
    sample has less than 300,000 pairs. A sample in which all human or all model scores are equal has no r, and is an error.
    Source: parekh2021cxc, sec. 4.

    >>> query = np.repeat(np.arange(200), 3)
    >>> human = np.arange(600.0) % 7
    >>> found = bootstrap_spearman(query, human, human**3, samples=100)
    >>> found.shape, found.mean(), found.std(ddof=1)
    ((100,), np.float64(1.0), np.float64(0.0))
    """
    human, model = _scores(human, model)
    order, count = _canonical(query, item, len(human))
    by_model = np.argsort(model, kind="stable")
    place = np.empty_like(order)
    place[by_model] = np.arange(len(order))
    place, human_code, model = place[order], _codes(human)[by_model], model[by_model]
    untied = None if (model[1:] == model[:-1]).any() else _ranks_of_ascending(np.arange(len(count) // 2))
    found, mask = np.empty(samples), np.empty(len(order), dtype=bool)
    for at, chosen in enumerate(sampled_pairs(count, samples, seed)):
        ascending = _ascending(place.take(chosen), mask)
        judged = _centred_ranks(human_code.take(ascending))
        said = _ranks_of_ascending(model.take(ascending)) if untied is None else untied
        found[at] = _cosine(judged, said, f" in sample {at}")
    return found


def sampled_pairs(count: IntArray, samples: int = SAMPLES, seed: int = 0) -> Iterator[IntArray]:
    """For each sample half of the queries, and one pair for each of them, as ascending positions among the pairs.

    Query n has `count[n]` pairs; pairs are numbered query after query. Every query gets 32 random bits per sample: a coin, and
    31 bits that choose among its pairs (with a bias below 2^-31). Coins choose half of the queries only nearly; the surplus or
    the lack, some √queries / 2, is made good by turning coins over at random places. Fair coins give every subset of a size the
    same chance, and turning over keeps it so: this is drawing without replacement, for a fraction of the work of a shuffle.
    Only raw bits of the generator are used, which NumPy keeps stable from version to version.

    >>> [chosen.tolist() for chosen in sampled_pairs(np.array([2, 1, 3, 1]), samples=3)]
    [[0, 2], [0, 2], [2, 5]]
    """
    if len(count) < FEWEST:
        raise CrossmatchError(
            f"{len(count)} queries have rated pairs; half of them must be at least two pairs, so {FEWEST} queries are the fewest. "
            "Give the pairs of more queries."
        )
    if samples < 1:
        raise WrongWords(f"{samples} samples were asked for; at least one is needed. The paper takes {SAMPLES:,}.")
    queries = len(count)
    bits, places = (np.random.SFC64(s) for s in np.random.SeedSequence(seed).spawn(2))
    start = np.cumsum(count) - count
    for _ in range(samples):
        drawn = bits.random_raw((queries + 1) // 2).astype("<u8", copy=False).view("<u4")[:queries]
        chosen = drawn >= 1 << 31
        _turn_over(chosen, queries // 2, places)
        which = np.flatnonzero(chosen)
        fraction = drawn.take(which) & 0x7FFFFFFF  # in units of 2^-31
        yield start.take(which) + (fraction * count.take(which) >> 31)


def _turn_over(chosen: NDArray[np.bool_], wanted: int, places: np.random.SFC64) -> None:
    """Change `chosen`, in place, at random places until `wanted` of them are True."""
    while surplus := int(np.count_nonzero(chosen)) - wanted:
        at = places.random_raw(2 * abs(surplus) + 8) % len(chosen)
        at = at[chosen[at] == (surplus > 0)][: abs(surplus)]  # a place may come twice: then the next round finds another
        chosen[at] = surplus < 0


def spearman(human: FloatArray, model: FloatArray) -> float:
    """Spearman's r over all pairs: Pearson's r of the ranks, ties with the mean of their ranks.

        r_s = Σ_i a_i b_i / √(Σ_i a_i² · Σ_i b_i²),    a_i = rank(h_i) - (n + 1)/2,   b_i = rank(m_i) - (n + 1)/2

    Source: spearman1904proof.

    >>> round(spearman(np.array([0.0, 1.5, 1.5, 5.0]), np.array([0.1, 0.3, 0.2, 0.9])), 6)
    0.948683
    """
    return _value("spearman", human, model)


def kendall(human: FloatArray, model: FloatArray) -> float:
    """Kendall's tau-b over all pairs: of two rated pairs, are people and model of one mind which is the more alike?

        tau_b = (C - D) / √((n₀ - t_h)(n₀ - t_m)),    n₀ = n(n - 1)/2

    with C of the n₀ comparisons in agreement, D in disagreement, t_h tied by people and t_m tied by the model.
    Source: kendall1945treatment.

    >>> round(kendall(np.array([0.0, 1.5, 1.5, 5.0]), np.array([0.1, 0.3, 0.2, 0.9])), 6)
    0.912871
    """
    return _value("kendall", human, model)


def pearson(human: FloatArray, model: FloatArray) -> float:
    """Pearson's r over all pairs: it asks for scores that grow in proportion to people's, not only in the same order.

        r = Σ_i (h_i - h̄)(m_i - m̄) / √(Σ_i (h_i - h̄)² · Σ_i (m_i - m̄)²)

    Models that were not fitted to these ratings should be judged by rank instead. Source: parekh2021cxc, sec. 4.

    >>> round(pearson(np.array([0.0, 1.5, 1.5, 5.0]), np.array([0.1, 0.3, 0.2, 0.9])), 6)
    0.983739
    """
    return _value("pearson", human, model)


@dataclass(frozen=True)
class Estimate:
    """A coefficient over all pairs, its standard error, and its interval."""

    value: float
    error: float
    low: float
    high: float


def estimate(
    coefficient: str,
    cluster: IntArray,
    human: FloatArray,
    model: FloatArray,
    groups: int = GROUPS,
    seed: int = 0,
    level: float = LEVEL,
) -> Estimate:
    """A coefficient (`spearman`, `kendall`, `pearson`) over all pairs with the interval of the delete-a-group jackknife.

        v = (G - 1)/G · Σ_g (r_(g) - r)²,    r ± t(G - 1) · √v, no further than -1 and 1

    with r_(g) the coefficient without the clusters of group g, and t the quantile of Student's distribution. Clusters, in
    ascending order, are dealt to G groups at random, by the seed; with fewer than G clusters each is a group of its own.
    Pairs of one cluster leave together, so their likeness makes the interval wider, as it should; a formula for n independent
    pairs would be too sure. What clusters share (an item that is rated for several queries) is not accounted for: where it
    matters, give a coarser cluster. A pair must be listed once, not once from each side. Source: kott2001delete.

    >>> rng = np.random.default_rng(0)
    >>> once = rng.standard_normal((2, 300)) + rng.standard_normal(300)
    >>> def show(e): return f"{e.value:.3f} ± {e.error:.3f}, {e.low:.3f} to {e.high:.3f}"
    >>> show(estimate("pearson", np.arange(300), *once))
    '0.512 ± 0.042, 0.429 to 0.595'
    >>> show(estimate("pearson", np.repeat(np.arange(300), 9), *np.repeat(once, 9, axis=1)))    # the same, told nine times
    '0.512 ± 0.042, 0.429 to 0.595'
    """
    value, without = left_out(coefficient, cluster, human, model, groups, seed)
    groups = len(without)
    error = float(np.sqrt((groups - 1) / groups * np.square(without - value).sum()))
    reach = float(stdtrit(groups - 1, (1 + level) / 2)) * error
    return Estimate(value, error, max(-1.0, value - reach), min(1.0, value + reach))


def left_out(
    coefficient: str, cluster: IntArray, human: FloatArray, model: FloatArray, groups: int = GROUPS, seed: int = 0
) -> tuple[float, FloatArray]:
    """A coefficient over all pairs, and without each group of clusters in turn; two models get the same groups."""
    prepare, statistic = _coefficient(coefficient)
    human, model = _scores(human, model)
    cluster = _whole(cluster, "clusters", len(human))
    group, groups = _deal(cluster, groups, seed)
    order = np.lexsort((model, human))  # sums of floats depend on their order; this one does not depend on that of the rows
    human, model, group = prepare(human[order]), prepare(model[order]), group[order]
    value = statistic(human, model, "")
    without = [statistic(human[group != g], model[group != g], f" without group {g} of {groups}") for g in range(groups)]
    return value, np.asarray(without)


def _deal(cluster: IntArray, groups: int, seed: int) -> tuple[IntArray, int]:
    """The group of each pair, and the number of groups: clusters in random order, dealt one by one."""
    unique, member = np.unique(cluster, return_inverse=True)
    groups = min(groups, len(unique))
    if groups < 2:
        raise CrossmatchError(
            f"{len(unique):,} clusters in {groups} groups leave nothing to compare; an interval needs at least two of each. "
            "Give the query of each pair as its cluster."
        )
    dealt = np.empty(len(unique), dtype=np.int64)
    dealt[np.argsort(np.random.SFC64(seed).random_raw(len(unique)), kind="stable")] = np.arange(len(unique)) % groups
    return dealt[member], groups


def _value(coefficient: str, human: FloatArray, model: FloatArray) -> float:
    prepare, statistic = _coefficient(coefficient)
    human, model = _scores(human, model)
    order = np.lexsort((model, human))
    return statistic(prepare(human[order]), prepare(model[order]), "")


def _codes(values: FloatArray) -> IntArray:
    """Values as integers of the same order, from 0 on: equal values have equal codes."""
    return np.unique(values, return_inverse=True)[1].astype(np.int64, copy=False)


def _as_they_are(values: FloatArray) -> FloatArray:
    return values


def _rank_correlation(human: IntArray, model: IntArray, which: str) -> float:
    return _cosine(_centred_ranks(human), _centred_ranks(model), which)


def _ascending(places: IntArray, mask: NDArray[np.bool_]) -> IntArray:
    """Different places in order. Many are put in order by marking them in `mask`, whose contents are lost; few are sorted."""
    if FEW * len(places) < len(mask):
        return np.sort(places)
    mask.fill(False)
    mask[places] = True
    return np.flatnonzero(mask)


def _centred_ranks(code: IntArray) -> FloatArray:
    """Twice the rank less the mean of all ranks, ties with their mean: an integer, found by counting instead of sorting.

    Lower codes have the first places; equal codes share the mean of the next ones.

    >>> _centred_ranks(np.array([3, 0, 3, 9]))
    array([ 0., -3.,  0.,  3.])
    """
    count = np.bincount(code)
    return np.asarray(2 * np.cumsum(count) - count - len(code), dtype=np.float64).take(code)


def _ranks_of_ascending(values: Values) -> FloatArray:
    """The same for values that are in order already: each stretch of equal ones is a tie.

    >>> _ranks_of_ascending(np.array([0.1, 0.3, 0.3, 0.9]))
    array([-3.,  0.,  0.,  3.])
    """
    end = np.append(np.flatnonzero(values[1:] != values[:-1]) + 1, len(values))
    start = np.append(0, end[:-1])
    return np.repeat(start + end - float(len(values)), end - start)


def _tau_b(human: IntArray, model: IntArray, which: str) -> float:
    from scipy.stats import kendalltau  # slow to load, and needed here alone

    _require_spread(human, model, which)
    return float(kendalltau(human, model).statistic)


def _product_moment(human: FloatArray, model: FloatArray, which: str) -> float:
    _require_spread(human, model, which)
    return _cosine(_centred(human), _centred(model), which)


def _centred(values: FloatArray) -> FloatArray:
    """Less their mean, after an exact scaling by a power of two that keeps squares from overflow and underflow."""
    scaled = np.ldexp(values, -np.frexp(np.abs(values).max())[1])
    return np.asarray(scaled - scaled.mean(), dtype=np.float64)


def _cosine(a: FloatArray, b: FloatArray, which: str) -> float:
    """Σab / √(Σa² Σb²). Summed by NumPy, not by BLAS, whose threads cost more than these short sums."""
    ab, aa, bb = float((a * b).sum()), float((a * a).sum()), float((b * b).sum())
    if not aa or not bb:
        raise _constant("model" if aa else "human", len(a), which)
    return min(1.0, max(-1.0, ab / math.sqrt(aa * bb)))


def _require_spread(human: Values, model: Values, which: str) -> None:
    for whose, values in (("human", human), ("model", model)):
        if values.min() == values.max():
            raise _constant(whose, len(values), which)


def _constant(whose: str, pairs: int, which: str) -> CrossmatchError:
    return CrossmatchError(
        f"all {pairs:,} {whose} scores{which} are equal; scores that never differ have no correlation with anything. "
        "Check where they come from, or give more pairs."
    )


COEFFICIENTS: Mapping[str, tuple[Callable[[FloatArray], Values], Statistic]] = {
    "spearman": (_codes, _rank_correlation),
    "kendall": (_codes, _tau_b),
    "pearson": (_as_they_are, _product_moment),
}


def _coefficient(name: str) -> tuple[Callable[[FloatArray], Values], Statistic]:
    if name not in COEFFICIENTS:
        raise WrongWords(f"there is no correlation coefficient {name!r}; there are {', '.join(COEFFICIENTS)}.")
    return COEFFICIENTS[name]


def _scores(human: FloatArray, model: FloatArray) -> tuple[FloatArray, FloatArray]:
    human, model = np.asarray(human, dtype=np.float64), np.asarray(model, dtype=np.float64)
    if human.ndim != 1 or human.shape != model.shape:
        raise CrossmatchError(
            f"human scores have shape {human.shape} and model scores {model.shape}; two flat arrays of equal length were expected. "
            "Give one score of each for every pair."
        )
    if len(human) < 2:
        raise CrossmatchError(f"{len(human)} pairs were given; a correlation needs at least two. Give more pairs.")
    require_finite(human, "human scores", "Leave pairs without a rating out.")
    require_finite(model, "model scores", "Check the model's output for these pairs.")
    _require_spread(human, model, "")
    return human, model


def _whole(values: IntArray, what: str, pairs: int) -> IntArray:
    whole = as_whole(values, what)
    if whole.shape != (pairs,):
        raise CrossmatchError(f"{what} have shape {whole.shape}, the scores ({pairs},). Give one of {what} for every pair.")
    return whole


def _canonical(query: IntArray, item: IntArray | None, pairs: int) -> tuple[IntArray, IntArray]:
    """The rows sorted by query and item, and the number of pairs of each query."""
    query = _whole(query, "queries", pairs)
    if item is None:
        order = np.argsort(query, kind="stable")
    else:
        item = _whole(item, "items", pairs)
        order = np.lexsort((item, query))
        twice = np.flatnonzero((np.diff(query[order]) == 0) & (np.diff(item[order]) == 0))
        if len(twice):
            at = order[twice[0]]
            raise CrossmatchError(f"query {query[at]} and item {item[at]} are rated twice. Merge the two ratings first.")
    first = np.flatnonzero(np.diff(query[order], prepend=query[order[0]] - 1))
    return order, np.diff(first, append=len(order))
