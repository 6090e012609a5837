"""Which models does a pooled benchmark favour? The bias that comes from the models that proposed what people judged.

People judge only what some models retrieved. Leave models out of the pool and the data become other data, on which every model
scores otherwise; how far from its score on the whole pool is the bias (chun2022eccv, sec. E).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray, as_whole, frozen, require_finite
from crossmatch.core.errors import CrossmatchError, WrongWords

RELEVANCE = {"yes": 1.0, "partially": 0.5, "mostly not": 0.0, "no": 0.0}  # chun2022eccv, eq. E.4: the four answers
METRICS = ("hit@1", "r-precision")
MOST = 16  # models: the subsets double with each
ROOM = 2**24  # numbers held in memory at a time


@dataclass(frozen=True, eq=False)
class Pool:
    """Judged pairs, each with its relevance in [0, 1] and the models that proposed it.

    Pair n is query `query[n]`, counted from zero, and item `item[n]`; `proposed[n, m]` says whether model m proposed it.

    >>> lists = {"a": np.array([[7, 8, 9]]), "b": np.array([[8, 9, 7]])}
    >>> Pool.from_lists(lists, depth=1, said={(0, 7): 1.0, (0, 8): 0.5}).proposed
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
            object.__setattr__(self, name, as_whole(getattr(self, name), f"pool {name}"))
        object.__setattr__(self, "relevance", np.array(self.relevance, dtype=np.float64))
        object.__setattr__(self, "proposed", np.array(self.proposed, dtype=bool))
        pairs, models = len(self.query), len(self.models)
        if not 2 <= models <= MOST:
            raise CrossmatchError(f"{models} models proposed the pairs; from 2 to {MOST} can be taken apart.")
        if self.item.shape != (pairs,) or self.relevance.shape != (pairs,) or self.proposed.shape != (pairs, models):
            raise CrossmatchError(
                f"the pool has {pairs:,} queries, {self.item.shape} items, {self.relevance.shape} answers and "
                f"{self.proposed.shape} proposals; {pairs:,} of each, by {models} models, were expected."
            )
        require_finite(self.relevance, "relevance", "Leave unjudged pairs out.")
        if ((self.relevance < 0) | (self.relevance > 1)).any():
            raise CrossmatchError("relevance lies between 0 and 1: 1 for yes, 0.5 for partially, 0 for no.")
        if not self.proposed.any(axis=1).all():
            lost = int((~self.proposed.any(axis=1)).argmax())
            raise CrossmatchError(
                f"pair (query {self.query[lost]}, item {self.item[lost]}) was proposed by no model. Leave it out."
            )
        if len(np.unique(np.stack([self.query, self.item]), axis=1).T) < pairs:
            raise CrossmatchError("a pair is in the pool twice. Merge its answers first.")
        for array in (self.query, self.item, self.relevance, self.proposed):
            frozen(array)

    @classmethod
    def from_lists(cls, lists: Mapping[str, NDArray[np.int64]], depth: int, said: Mapping[tuple[int, int], float]) -> Pool:
        """The first `depth` items of each model's list, and what people said of them; every proposed pair must be judged."""
        pairs: dict[tuple[int, int], set[int]] = {}
        for m, ranked in enumerate(lists.values()):
            for q, row in enumerate(ranked[:, :depth].tolist()):
                for item in row:
                    pairs.setdefault((q, item), set()).add(m)
        for pair in pairs:
            if pair not in said:
                raise CrossmatchError(
                    f"pair (query {pair[0]}, item {pair[1]}) was proposed but not judged. Judge it, or pool less."
                )
        found = np.asarray(list(pairs), dtype=np.int64).reshape(-1, 2)
        proposed = np.asarray([[m in by for m in range(len(lists))] for by in pairs.values()], dtype=bool)
        return cls(tuple(lists), found[:, 0], found[:, 1], np.asarray([said[p] for p in pairs]), proposed)


@dataclass(frozen=True, eq=False)
class Versions:
    """Every model's score on the data that each subset of the models would have given.

    `members[t, m]`: model m is in subset t; the last subset is all of them. `scores[t, m]`: s_Θ(ϕ), a fraction;
    `samples[b, t, m]` the same for the b-th draw of queries, if any were asked for.
    """

    models: tuple[str, ...]
    members: BoolArray
    scores: FloatArray
    queries: int
    samples: FloatArray | None = None


def versions(
    pool: Pool, retrieved: Mapping[str, NDArray[np.int64]], metric: str = "hit@1", samples: int = 0, seed: int = 0
) -> Versions:
    """Score each model on the data pooled by each subset Θ of the models, with relevance in parts.

        m_i(x) = 1 / 0.5 / 0  for yes / partially / otherwise,  0 where no model of Θ proposed the pair
        hit@1 = 1/N Σ_n m_1(x_n)        R-P = 1/N Σ_n 1/R_Θ(x_n) Σ_{i ≤ R_Θ(x_n)} m_i(x_n)

    R_Θ counts the items of a query with relevance above zero that Θ proposed. `retrieved` maps each model of the pool to its
    ranking, an array (queries, k), which must be at least as deep as the largest R. N are the queries that have a positive in
    the whole pool, for every Θ the same ones; where Θ leaves a query without positives, nothing retrieved is a match and the
    query counts 0. With `samples`, so many times as many queries are drawn with replacement, the same ones for every Θ and model.
    Source: chun2022eccv, eq. E.1 to E.4.

    >>> lists = {"a": np.array([[7, 8, 9]]), "b": np.array([[8, 7, 9]])}
    >>> pool = Pool.from_lists(lists, depth=1, said={(0, 7): 1.0, (0, 8): 0.5})
    >>> versions(pool, lists).scores                      # by {a}, by {b}, by both
    array([[1. , 0. ],
           [0. , 0.5],
           [1. , 0.5]])
    """
    if metric not in METRICS:
        raise WrongWords(f"bias is measured by {' or '.join(METRICS)}, not by {metric!r}.")
    ranked = _rankings(pool, retrieved)
    members = np.asarray([[m in chosen for m in range(len(pool.models))] for chosen in subsets(len(pool.models))], dtype=bool)
    positive = pool.relevance > 0
    scored, member = np.unique(pool.query[positive], return_inverse=True)
    if not len(scored):
        raise CrossmatchError("nobody called a pair of the pool relevant, so there is nothing to score by. Check the answers.")
    depth = 1 if metric == "hit@1" else int(np.bincount(member).max())
    if depth > ranked.shape[2]:
        raise CrossmatchError(
            f"a query has {depth} positives, but the rankings are {ranked.shape[2]} deep; R-precision needs {depth}. Rank deeper."
        )
    bit = np.asarray(1 << np.arange(len(pool.models)), dtype=np.int64)  # a set of models as one number
    by, theta = pool.proposed @ bit, members @ bit
    gain, proposers = _looked_up(pool, by, ranked[:, scored, :depth], scored)
    of_query = csr_array((np.ones(len(member)), (np.arange(len(member)), member)), shape=(len(member), len(scored)))
    step = max(1, ROOM // max(gain.size, len(by)))
    drawn = np.random.default_rng(seed).multinomial(len(scored), np.full(len(scored), 1 / len(scored)), samples) / len(scored)
    scores, sampled = [], []
    for chosen in np.split(theta, range(step, len(theta), step)):
        counts = np.asarray((by[positive] & chosen[:, None] != 0).astype(np.float64) @ of_query, dtype=np.int64)
        by_query = _scores(gain, proposers, chosen, counts, metric)
        scores.append(by_query.mean(axis=2))
        sampled.append(np.moveaxis(by_query @ drawn.T, 2, 0))
    again = np.concatenate(sampled, axis=1) if samples else None
    return Versions(pool.models, members, np.concatenate(scores), len(scored), again)


def subsets(models: int) -> list[tuple[int, ...]]:
    """All subsets but the empty one, the small ones first.

    >>> subsets(2)
    [(0,), (1,), (0, 1)]
    """
    return [chosen for size in range(1, models + 1) for chosen in combinations(range(models), size)]


@dataclass(frozen=True, eq=False)
class Bias:
    """How far the scores on a subset's data are from those on the whole pool, in the scores' own unit, one for each subset.

    `whole` is B_Θ, over all models; `own` over the models of Θ; `other` over the rest.
    """

    members: BoolArray
    whole: FloatArray
    own: FloatArray
    other: FloatArray

    @property
    def size(self) -> IntArray:
        return np.asarray(self.members.sum(axis=1), dtype=np.int64)

    def by_size(self) -> dict[int, tuple[float, float, float]]:
        """Means of B_Θ, self-bias and non-self-bias over all subsets of each size (chun2022eccv, Figure E.2)."""
        return {
            int(size): (
                float(self.whole[self.size == size].mean()),
                float(self.own[self.size == size].mean()),
                float(self.other[self.size == size].mean()),
            )
            for size in np.unique(self.size)
        }


def annotator_bias(scores: FloatArray, full: FloatArray, members: BoolArray) -> Bias:
    """The bias of each version of the data towards the models that proposed it.

        B_Θ = 1/M Σ_ϕ |s_Θ(ϕ) - s_All(ϕ)|      self: the mean over ϕ ∈ Θ      non-self: the mean over ϕ ∉ Θ

    `scores` has a row for each Θ and a column for each model, `members` says who is in Θ, `full` are the scores on the whole pool.
    Θ = All is refused: its bias is zero by definition and nobody is outside. Source: chun2022eccv, eq. E.5 and E.6.

    >>> pvse = np.array([[76.5, 68.0, 67.7, 59.5, 51.7]])                 # by the pairs that PVSE proposed: Table E.1a
    >>> every = np.array([76.6, 80.1, 77.4, 72.4, 64.3])
    >>> found = annotator_bias(pvse, every, np.array([[True, False, False, False, False]]))
    >>> [round(float(x[0]), 1) for x in (found.whole, found.own, found.other)]
    [9.5, 0.1, 11.8]
    """
    if scores.ndim != 2 or members.shape != scores.shape or full.shape != scores.shape[1:]:
        raise CrossmatchError(
            f"scores {scores.shape}, members {members.shape} and scores on the whole pool {full.shape} do not fit; "
            "subsets x models twice, and models, were expected."
        )
    size = members.sum(axis=1)
    if (size == 0).any() or (size == members.shape[1]).any():
        raise CrossmatchError("a subset is empty or holds every model, so there is no bias to split. Leave it out.")
    apart = np.abs(scores - full)
    own = (apart * members).sum(axis=1) / size
    return Bias(members, apart.mean(axis=1), own, (apart * ~members).sum(axis=1) / (members.shape[1] - size))


def bias_of(found: Versions) -> Bias:
    """The bias of every proper subset of the models.

    >>> lists = {"a": np.array([[7, 8, 9]]), "b": np.array([[8, 7, 9]])}
    >>> bias_of(versions(Pool.from_lists(lists, 1, {(0, 7): 1.0, (0, 8): 0.5}), lists)).by_size()
    {1: (0.375, 0.0, 0.75)}
    """
    return annotator_bias(found.scores[:-1], found.scores[-1], found.members[:-1])


def _rankings(pool: Pool, retrieved: Mapping[str, NDArray[np.int64]]) -> IntArray:
    """Shape (models, queries, k), in the pool's order of models."""
    if set(retrieved) != set(pool.models):
        raise CrossmatchError(
            f"rankings are of {', '.join(retrieved)}, the pool is of {', '.join(pool.models)}. Give one for each."
        )
    shapes = {np.shape(retrieved[m]) for m in pool.models}
    if len(shapes) > 1 or len(next(iter(shapes))) != 2:
        raise CrossmatchError(f"rankings have shapes {sorted(shapes)}; all must be queries x k alike.")
    ranked = np.stack([as_whole(retrieved[m], f"ranking of {m}") for m in pool.models])
    if len(pool.query) and (pool.query.min() < 0 or pool.query.max() >= ranked.shape[1]):
        raise CrossmatchError(f"the pool names query {pool.query.max()}, but the rankings have {ranked.shape[1]} queries.")
    ordered = np.sort(ranked, axis=2)
    if (ordered[:, :, 1:] == ordered[:, :, :-1]).any():
        raise CrossmatchError("a ranking names an item twice for one query. Rank every item once.")
    return ranked


def _looked_up(pool: Pool, by: IntArray, ranked: IntArray, queries: IntArray) -> tuple[FloatArray, IntArray]:
    """For each retrieved item of these queries its relevance, and who proposed it; both 0 for what was not judged."""
    items = np.unique(pool.item)
    keys = pool.query * len(items) + np.searchsorted(items, pool.item)
    order = np.argsort(keys)
    at = np.minimum(np.searchsorted(items, ranked), len(items) - 1)
    wanted = queries[None, :, None] * len(items) + at
    place = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    judged = (keys[place] == wanted) & (items[at] == ranked)
    return np.where(judged, pool.relevance[place], 0.0), np.where(judged, by[place], 0)


def _scores(gain: FloatArray, proposers: IntArray, theta: IntArray, counts: IntArray, metric: str) -> FloatArray:
    """Shape (subsets, models, queries), for some of the subsets at once."""
    match = np.where(proposers & theta[:, None, None, None], gain, 0.0)
    if metric == "hit@1":
        return np.asarray(match[..., 0], dtype=np.float64)
    reach = np.cumsum(match, axis=3)
    last = np.maximum(counts - 1, 0)[:, None, :, None]
    found = np.take_along_axis(reach, np.broadcast_to(last, (*reach.shape[:3], 1)), axis=3)[..., 0]
    return np.asarray(np.where(counts[:, None] > 0, found / np.maximum(counts, 1)[:, None], 0.0), dtype=np.float64)
