"""Bias of a pooled benchmark towards the models that proposed its pairs.

People judge only pairs that some model retrieved. Without some of the models, the pool and all scores change; the distance to
the scores on the whole pool is the bias (chun2022eccv, sec. E).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray, as_integers, make_read_only, require_finite
from crossmatch.data.errors import CrossmatchError, UsageError

RELEVANCE = {"yes": 1.0, "partially": 0.5, "mostly not": 0.0, "no": 0.0}  # relevance of the four answers: chun2022eccv, eq. E.4
METRICS = ("hit@1", "r-precision")
MAX_MODELS = 16  # the number of subsets doubles with each model
MAX_ELEMENTS = 2**24  # array elements in memory at a time


@dataclass(frozen=True, eq=False)
class JudgedPool:
    """Judged pairs with their relevance in [0, 1] and the models that proposed them.

    Attributes:
        models: Names of the models.
        query: Query of each pair, from 0.
        item: Item of each pair.
        relevance: Relevance of each pair.
        proposed: `proposed[n, m]`, whether model m proposed pair n.

    >>> lists = {"a": np.array([[7, 8, 9]]), "b": np.array([[8, 9, 7]])}
    >>> JudgedPool.from_lists(lists, depth=1, relevance={(0, 7): 1.0, (0, 8): 0.5}).proposed
    array([[ True, False],
           [False,  True]])
    """

    models: tuple[str, ...]
    query: IntArray
    item: IntArray
    relevance: FloatArray
    proposed: BoolArray

    def __post_init__(self) -> None:
        for name in ("query", "item"):
            object.__setattr__(self, name, as_integers(getattr(self, name), f"pool {name}"))
        object.__setattr__(self, "relevance", np.array(self.relevance, dtype=np.float64))
        object.__setattr__(self, "proposed", np.array(self.proposed, dtype=bool))
        pairs, models = len(self.query), len(self.models)
        if not 2 <= models <= MAX_MODELS:
            raise CrossmatchError(f"A pool needs between 2 and {MAX_MODELS} models (got {models}).")
        if self.item.shape != (pairs,) or self.relevance.shape != (pairs,) or self.proposed.shape != (pairs, models):
            raise CrossmatchError(
                f"The pool's arrays do not fit: {pairs:,} queries by {models} models, but shapes {self.item.shape} of item, "
                f"{self.relevance.shape} of relevance and {self.proposed.shape} of proposed."
            )
        require_finite(self.relevance, "relevance", "Leave unjudged pairs out.")
        if ((self.relevance < 0) | (self.relevance > 1)).any():
            raise CrossmatchError("relevance must be between 0 and 1: 1 for yes, 0.5 for partially, 0 for no.")
        if not self.proposed.any(axis=1).all():
            orphan = int((~self.proposed.any(axis=1)).argmax())
            raise CrossmatchError(
                f"Pair (query {self.query[orphan]}, item {self.item[orphan]}) was not proposed by any model. Leave it out."
            )
        if len(np.unique(np.stack([self.query, self.item]), axis=1).T) < pairs:
            raise CrossmatchError("A pair is in the pool twice. Merge its answers first.")
        for array in (self.query, self.item, self.relevance, self.proposed):
            make_read_only(array)

    @classmethod
    def from_lists(
        cls, lists: Mapping[str, NDArray[np.int64]], depth: int, relevance: Mapping[tuple[int, int], float]
    ) -> JudgedPool:
        """Pool the first `depth` items of each model; every pooled pair needs a relevance."""
        pairs: dict[tuple[int, int], set[int]] = {}
        for m, ranked in enumerate(lists.values()):
            for q, row in enumerate(ranked[:, :depth].tolist()):
                for item in row:
                    pairs.setdefault((q, item), set()).add(m)
        for pair in pairs:
            if pair not in relevance:
                raise CrossmatchError(
                    f"Pair (query {pair[0]}, item {pair[1]}) was proposed but not judged. Judge it, or reduce depth."
                )
        pair_array = np.asarray(list(pairs), dtype=np.int64).reshape(-1, 2)
        proposed = np.asarray([[m in proposers for m in range(len(lists))] for proposers in pairs.values()], dtype=bool)
        return cls(tuple(lists), pair_array[:, 0], pair_array[:, 1], np.asarray([relevance[p] for p in pairs]), proposed)


@dataclass(frozen=True, eq=False)
class SubsetScores:
    """Scores of every model on the data pooled by each subset of the models.

    Attributes:
        models: Names of the models.
        members: `members[t, m]`, whether model m is in subset t. The last subset contains all models.
        scores: `scores[t, m]`, s_Θ(ϕ) as a fraction.
        queries: Number of queries.
        samples: `samples[b, t, m]`, the scores in bootstrap sample b of the queries, if requested.
    """

    models: tuple[str, ...]
    members: BoolArray
    scores: FloatArray
    queries: int
    samples: FloatArray | None = None


def score_subsets(
    pool: JudgedPool, retrieved: Mapping[str, NDArray[np.int64]], metric: str = "hit@1", samples: int = 0, seed: int = 0
) -> SubsetScores:
    """Score each model on the data pooled by each subset Θ of the models, with partial relevance.

        m_i(x) = 1 / 0.5 / 0  for yes / partially / otherwise,  0 where no model of Θ proposed the pair
        hit@1 = 1/N Σ_n m_1(x_n)        R-P = 1/N Σ_n 1/R_Θ(x_n) Σ_{i ≤ R_Θ(x_n)} m_i(x_n)

    R_Θ counts the items of a query with relevance above zero that Θ proposed. N are the queries with a positive in the whole
    pool, the same for every Θ; a query without positives under Θ counts as 0.

    Args:
        pool: The judged pool.
        retrieved: Ranking of each model, shape (queries, k), at least as deep as the largest R.
        metric: `hit@1` or `r-precision`.
        samples: Number of bootstrap samples of the queries, the same for every Θ and model.
        seed: Seed of the bootstrap.

    Source: chun2022eccv, eq. E.1 to E.4.

    >>> lists = {"a": np.array([[7, 8, 9]]), "b": np.array([[8, 7, 9]])}
    >>> pool = JudgedPool.from_lists(lists, depth=1, relevance={(0, 7): 1.0, (0, 8): 0.5})
    >>> score_subsets(pool, lists).scores                      # pooled by {a}, by {b}, by both
    array([[1. , 0. ],
           [0. , 0.5],
           [1. , 0.5]])
    """
    if metric not in METRICS:
        raise UsageError(f"Pool bias is measured by {' or '.join(METRICS)} (got {metric!r}).")
    ranked = _rankings(pool, retrieved)
    members = np.asarray([[m in block for m in range(len(pool.models))] for block in subsets(len(pool.models))], dtype=bool)
    positive = pool.relevance > 0
    scored, scored_index = np.unique(pool.query[positive], return_inverse=True)
    if not len(scored):
        raise CrossmatchError("No pair of the pool is relevant, so models cannot be scored. Check the answers.")
    depth = 1 if metric == "hit@1" else int(np.bincount(scored_index).max())
    if depth > ranked.shape[2]:
        raise CrossmatchError(
            f"R-precision needs rankings of depth {depth}, the largest number of positives, but they have depth {ranked.shape[2]}. "
            "Pass deeper rankings."
        )
    bit = np.asarray(1 << np.arange(len(pool.models)), dtype=np.int64)  # a set of models as a bit mask
    proposer_bits, subset_bits = pool.proposed @ bit, members @ bit
    gain, proposers = _look_up(pool, proposer_bits, ranked[:, scored, :depth], scored)
    query_matrix = csr_array(
        (np.ones(len(scored_index)), (np.arange(len(scored_index)), scored_index)), shape=(len(scored_index), len(scored))
    )
    step = max(1, MAX_ELEMENTS // max(gain.size, len(proposer_bits)))
    sample_weights = np.random.default_rng(seed).multinomial(len(scored), np.full(len(scored), 1 / len(scored)), samples) / len(
        scored
    )
    scores, bootstrap_blocks = [], []
    for block in np.split(subset_bits, range(step, len(subset_bits), step)):
        counts = np.asarray((proposer_bits[positive] & block[:, None] != 0).astype(np.float64) @ query_matrix, dtype=np.int64)
        by_query = _score_block(gain, proposers, block, counts, metric)
        scores.append(by_query.mean(axis=2))
        bootstrap_blocks.append(np.moveaxis(by_query @ sample_weights.T, 2, 0))
    bootstrap_scores = np.concatenate(bootstrap_blocks, axis=1) if samples else None
    return SubsetScores(pool.models, members, np.concatenate(scores), len(scored), bootstrap_scores)


def subsets(models: int) -> list[tuple[int, ...]]:
    """All nonempty subsets, smaller ones first.

    >>> subsets(2)
    [(0,), (1,), (0, 1)]
    """
    return [subset for size in range(1, models + 1) for subset in combinations(range(models), size)]


@dataclass(frozen=True, eq=False)
class PoolBias:
    """Distance between scores on the data of each subset and on the whole pool, in the unit of the scores.

    Attributes:
        members: Models of each subset.
        overall: B_Θ, the mean over all models.
        self_bias: Mean over the models of Θ.
        other_bias: Mean over the other models.
    """

    members: BoolArray
    overall: FloatArray
    self_bias: FloatArray
    other_bias: FloatArray

    @property
    def size(self) -> IntArray:
        return np.asarray(self.members.sum(axis=1), dtype=np.int64)

    def by_size(self) -> dict[int, tuple[float, float, float]]:
        """Means of B_Θ, self-bias and non-self-bias over all subsets of each size (chun2022eccv, Figure E.2)."""
        return {
            int(size): (
                float(self.overall[self.size == size].mean()),
                float(self.self_bias[self.size == size].mean()),
                float(self.other_bias[self.size == size].mean()),
            )
            for size in np.unique(self.size)
        }


def subset_bias(scores: FloatArray, full: FloatArray, members: BoolArray) -> PoolBias:
    """Bias of the data pooled by each subset Θ towards the models of Θ.

        B_Θ = 1/M Σ_ϕ |s_Θ(ϕ) - s_All(ϕ)|      self: the mean over ϕ ∈ Θ      non-self: the mean over ϕ ∉ Θ

    `scores` and `members` are subsets x models. Empty and full subsets are not allowed: they have no self or non-self part.

    Source: chun2022eccv, eq. E.5 and E.6.

    >>> pvse = np.array([[76.5, 68.0, 67.7, 59.5, 51.7]])                 # pairs proposed by PVSE: Table E.1a
    >>> full = np.array([76.6, 80.1, 77.4, 72.4, 64.3])
    >>> bias = subset_bias(pvse, full, np.array([[True, False, False, False, False]]))
    >>> [round(float(x[0]), 1) for x in (bias.overall, bias.self_bias, bias.other_bias)]
    [9.5, 0.1, 11.8]
    """
    if scores.ndim != 2 or members.shape != scores.shape or full.shape != scores.shape[1:]:
        raise CrossmatchError(
            "scores and members must be subsets x models, and full must have one score per model "
            f"(got shapes {scores.shape}, {members.shape} and {full.shape})."
        )
    size = members.sum(axis=1)
    if (size == 0).any() or (size == members.shape[1]).any():
        raise CrossmatchError("A subset is empty or contains every model, so its bias cannot be split. Leave it out.")
    distance = np.abs(scores - full)
    self_bias = (distance * members).sum(axis=1) / size
    return PoolBias(members, distance.mean(axis=1), self_bias, (distance * ~members).sum(axis=1) / (members.shape[1] - size))


def pool_bias(subset_scores: SubsetScores) -> PoolBias:
    """Bias of every proper subset of the models.

    >>> lists = {"a": np.array([[7, 8, 9]]), "b": np.array([[8, 7, 9]])}
    >>> pool_bias(score_subsets(JudgedPool.from_lists(lists, 1, {(0, 7): 1.0, (0, 8): 0.5}), lists)).by_size()
    {1: (0.375, 0.0, 0.75)}
    """
    return subset_bias(subset_scores.scores[:-1], subset_scores.scores[-1], subset_scores.members[:-1])


def _rankings(pool: JudgedPool, retrieved: Mapping[str, NDArray[np.int64]]) -> IntArray:
    """Rankings of shape (models, queries, k), in the pool's order of models."""
    if set(retrieved) != set(pool.models):
        raise CrossmatchError(
            f"Rankings are of {', '.join(retrieved)}, but the pool is of {', '.join(pool.models)}. Pass one ranking per model."
        )
    shapes = {np.shape(retrieved[m]) for m in pool.models}
    if len(shapes) > 1 or len(next(iter(shapes))) != 2:
        raise CrossmatchError(f"All rankings must have the same shape, queries x k (got {sorted(shapes)}).")
    ranked = np.stack([as_integers(retrieved[m], f"ranking of {m}") for m in pool.models])
    if len(pool.query) and (pool.query.min() < 0 or pool.query.max() >= ranked.shape[1]):
        raise CrossmatchError(f"The pool contains query {pool.query.max()}, but the rankings have {ranked.shape[1]} queries.")
    ordered = np.sort(ranked, axis=2)
    if (ordered[:, :, 1:] == ordered[:, :, :-1]).any():
        raise CrossmatchError("A ranking contains an item twice for one query. Rank every item once.")
    return ranked


def _look_up(pool: JudgedPool, proposer_bits: IntArray, ranked: IntArray, queries: IntArray) -> tuple[FloatArray, IntArray]:
    """Relevance and proposers of each retrieved item of these queries; both 0 for unjudged items."""
    items = np.unique(pool.item)
    keys = pool.query * len(items) + np.searchsorted(items, pool.item)
    order = np.argsort(keys)
    item_index = np.minimum(np.searchsorted(items, ranked), len(items) - 1)
    wanted_keys = queries[None, :, None] * len(items) + item_index
    pair = order[np.minimum(np.searchsorted(keys, wanted_keys, sorter=order), len(keys) - 1)]
    is_judged = (keys[pair] == wanted_keys) & (items[item_index] == ranked)
    return np.where(is_judged, pool.relevance[pair], 0.0), np.where(is_judged, proposer_bits[pair], 0)


def _score_block(gain: FloatArray, proposers: IntArray, subset_bits: IntArray, counts: IntArray, metric: str) -> FloatArray:
    """Scores of shape (subsets, models, queries)."""
    gains = np.where(proposers & subset_bits[:, None, None, None], gain, 0.0)
    if metric == "hit@1":
        return np.asarray(gains[..., 0], dtype=np.float64)
    cumulative = np.cumsum(gains, axis=3)
    last = np.maximum(counts - 1, 0)[:, None, :, None]
    gain_at_r = np.take_along_axis(cumulative, np.broadcast_to(last, (*cumulative.shape[:3], 1)), axis=3)[..., 0]
    return np.asarray(np.where(counts[:, None] > 0, gain_at_r / np.maximum(counts, 1)[:, None], 0.0), dtype=np.float64)
