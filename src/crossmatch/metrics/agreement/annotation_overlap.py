"""Precision and recall of one set of judgements against another, and similarity of two models' top-k lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.data.collection import SIDES
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.rank_counts import CandidateLists
from crossmatch.metrics.correlation.kendall_tau import MaskedFloats

EMPTY_POLICIES = ("left out", "zero")
MISSING_POLICIES = ("common", "below")
QUERIES_PER_BLOCK = 512  # queries compared at a time


# Precision and recall of one set of judgements against another


@dataclass(frozen=True, eq=False)
class PairSet:
    """Pairs of query and item as two flat arrays; ids of any type, each pair once.

    >>> PairSet.of({"q": ["a", "b"], "p": []}).item
    array(['a', 'b'], dtype='<U1')
    """

    query: NDArray[Any]
    item: NDArray[Any]

    @classmethod
    def of(cls, positives: Positives) -> PairSet:
        """Create pairs from `{query: items}` or from candidate lists."""
        if isinstance(positives, PairSet):
            return positives
        if isinstance(positives, CandidateLists):
            return cls(positives.pair_query, positives.item)
        flat = [(query, item) for query, items in positives.items() for item in dict.fromkeys(items)]
        return cls(np.asarray([q for q, _ in flat]), np.asarray([i for _, i in flat]))

    @classmethod
    def positives(cls, judgements: Judgements, direction: str) -> PairSet:
        """The pairs that were judged positive: t or r in the paper."""
        if direction not in judgements.directions:
            raise UsageError(
                f"{judgements.kind} judgements have no direction {direction!r}. Choose {' or '.join(judgements.directions)}."
            )
        is_positive = judgements.grades >= judgements.positive
        sides = (judgements.rows[is_positive], judgements.columns[is_positive])
        return cls(*(sides if SIDES[direction] == judgements.sides else sides[::-1]))


Positives = Mapping[Any, Iterable[Any]] | CandidateLists | PairSet


@dataclass(frozen=True, eq=False)
class Overlap:
    """Counts |r'|, |t| and |r' ∩ t| of each query, for precision and recall."""

    query: NDArray[Any]
    predicted: IntArray  # verified predictions, r'
    actual: IntArray  # true pairs, t
    correct: IntArray  # both

    @property
    def has_no_prediction(self) -> BoolArray:
        """True for queries without a verified prediction: r' = ∅."""
        return np.equal(self.predicted, 0)

    def precision(self) -> float:
        """Mean of |r' ∩ t| / |r'| over the queries with r' ≠ ∅; undefined for the others."""
        counted = ~self.has_no_prediction
        if not counted.any():
            raise CrossmatchError(
                f"Precision is undefined: none of the {len(self.query):,} queries has a verified prediction. "
                "Check that both sets use the same ids."
            )
        return float(np.mean(self.correct[counted] / self.predicted[counted]))

    def recall(self, empty: str = "left out") -> float:
        """Mean of 1 - |t \\ r'| / |t| over the queries with t ≠ ∅.

        Args:
            empty: What to do with queries with r' = ∅: `left out`, as in the paper, or `zero`, which counts them as 0.
        """
        if empty not in EMPTY_POLICIES:
            raise UsageError(f"empty must be one of {', '.join(EMPTY_POLICIES)} (got {empty!r}).")
        counted = (self.actual > 0) & (~self.has_no_prediction | (empty == "zero"))
        if not counted.any():
            raise CrossmatchError(
                "Recall is undefined: no query has both a true pair and a verified prediction. "
                "Check that both sets use the same ids."
            )
        return float(np.mean(self.correct[counted] / self.actual[counted]))


def overlap(predicted: Positives, truth: Positives, verified: Positives | None = None) -> Overlap:
    """Overlap of predicted with true positives, query by query.

        r'_i = r_i ∩ h_i      Prec = 1/N Σ_i |r'_i ∩ t_i| / |r'_i|      Recall = 1/N Σ_i (1 - |t_i \\ r'_i| / |t_i|)

    r are the predictions, t the true pairs, h the verified pairs. A pair that was not verified is neither right nor wrong, so it is
    removed from r.

    Args:
        predicted: Predicted positives, r.
        truth: True positives, t. All of them must be verified.
        verified: Verified pairs, h. Without it, every pair counts as verified (r' = r).

    Returns:
        Counts for the queries of `verified`, or else of `truth`. Predictions for other queries are ignored.

    Source: chun2022eccv, sec. 3.3 (the definition before Table 2, and footnote 2).

    >>> result = overlap({1: "ab", 2: "c", 3: "x"}, {1: "acd", 2: "e", 3: "y"}, verified={1: "abcd", 2: "ce", 3: "y"})
    >>> result.precision(), result.recall(), result.recall(empty="zero")     # x was not verified, so query 3 is left out
    (0.25, 0.16666666666666666, 0.1111111111111111)
    """
    r, t = PairSet.of(predicted), PairSet.of(truth)
    h = None if verified is None else PairSet.of(verified)
    queries = _queries(truth, t) if verified is None or h is None else _queries(verified, h)
    _require_same_id_type(r.query, queries, "queries")
    _require_same_id_type(r.item, t.item, "items")
    nonempty = [p.item for p in (r, t, h) if p is not None and len(p.item)]
    if not nonempty:
        raise CrossmatchError(
            "There are no pairs to compare: predictions, truth and verified pairs are all empty. Check the files."
        )
    items = np.unique(np.concatenate(nonempty))
    predicted_keys, true_keys = _keys(r, queries, items), _keys(t, queries, items)
    if h is not None:
        verified_keys = _keys(h, queries, items)
        _require_verified(t, true_keys, verified_keys, queries, len(items))
        predicted_keys = np.intersect1d(predicted_keys, verified_keys, assume_unique=True)
    correct_keys = np.intersect1d(predicted_keys, true_keys, assume_unique=True)
    return Overlap(
        queries, *(np.bincount(keys // len(items), minlength=len(queries)) for keys in (predicted_keys, true_keys, correct_keys))
    )


def _queries(positives: Positives, pairs: PairSet) -> NDArray[Any]:
    """All queries; a mapping may contain queries without items."""
    return np.unique(np.asarray(list(positives)) if isinstance(positives, Mapping) else pairs.query)


def _require_verified(truth: PairSet, true_keys: IntArray, verified_keys: IntArray, queries: NDArray[Any], item_count: int) -> None:
    """Raise an error if a true pair was not verified: r' would lose it."""
    unknown_queries = truth.query[~np.isin(truth.query, queries)]
    unverified_queries = queries[np.setdiff1d(true_keys, verified_keys, assume_unique=True) // item_count]
    for query in (*unknown_queries[:1], *unverified_queries[:1]):
        raise CrossmatchError(
            f"Query {query} has a true pair that is not among the verified pairs. "
            "Check that both use the same ids, or do not pass verified pairs."
        )


def _keys(pairs: PairSet, queries: NDArray[Any], items: NDArray[Any]) -> IntArray:
    """Encode the pairs of these queries as sorted unique integers."""
    mask = np.isin(pairs.query, queries)
    query_index, item_index = np.searchsorted(queries, pairs.query[mask]), np.searchsorted(items, pairs.item[mask])
    return np.unique(query_index.astype(np.int64) * len(items) + item_index)


def _require_same_id_type(first: NDArray[Any], second: NDArray[Any], label: str) -> None:
    """Raise an error if one side has text ids and the other numbers: no id would match."""
    if len(first) and len(second) and (first.dtype.kind in "OUS") != (second.dtype.kind in "OUS"):
        raise CrossmatchError(
            f"{label} are {first.dtype} on one side and {second.dtype} on the other, such as {first[0]!r} and {second[0]!r}. "
            "Use the same id type on both sides."
        )


# Similarity of two models' top-k lists


@dataclass(frozen=True, eq=False)
class RankingSimilarity:
    """Similarity of top-k lists between all models; matrices of shape (models, models), row model against column model.

    Attributes:
        models: Names of the models.
        tau: Mean over queries of Kendall's tau-b; masked if it is undefined for every query.
        mean_rank: Mean rank of the row model's top item in the column model's list.
        shared_items: Mean number of items in both lists.
        absent_share: Share of queries for which the row model's top item is not in the column model's list.
    """

    models: tuple[str, ...]
    tau: MaskedFloats
    mean_rank: MaskedFloats
    shared_items: FloatArray
    absent_share: FloatArray


def compare_rankings(lists: Mapping[str, NDArray[Any]], missing: str = "common") -> RankingSimilarity:
    """Compare the top-k lists of every two models, as in Table A.1 of chun2022eccv (top 25 images per caption, five models).

    >>> similarity = compare_rankings({"a": np.array([[1, 2, 3]]), "b": np.array([[2, 1, 4]])})
    >>> [float(x[0, 1]) for x in (similarity.tau, similarity.mean_rank, similarity.shared_items)]
    [-1.0, 2.0, 2.0]
    """
    names, shape = tuple(lists), (len(lists), len(lists))
    if len(names) < 2:
        raise CrossmatchError(f"Comparing rankings needs the lists of at least two models (got {len(names)}).")
    tau, rank = (np.ma.MaskedArray(np.zeros(shape), np.ones(shape, dtype=bool)) for _ in range(2))
    shared, absent = np.zeros(shape), np.zeros(shape)
    for a, row_list in enumerate(lists.values()):
        for b, column_list in enumerate(lists.values()):
            _check_lists(row_list, column_list)
            ranks = rank_of_top_item(row_list, column_list)
            absent[a, b] = np.mean(np.ma.getmaskarray(ranks))
            rank[a, b] = (ranks if missing == "common" else ranks.filled(column_list.shape[1] + 1)).mean()
            if a <= b:
                shared[a, b] = shared[b, a] = (row_list[:, :, None] == column_list[:, None, :]).any(axis=2).sum(axis=1).mean()
                tau[a, b] = tau[b, a] = top_k_tau(row_list, column_list, missing).mean()
    return RankingSimilarity(names, tau, rank, shared, absent)


def top_k_tau(first: NDArray[Any], second: NDArray[Any], missing: str = "common") -> MaskedFloats:
    """Kendall's tau-b between two ranked lists of each query.

    Two top-k lists contain different items, but tau is defined on the same items. With `missing="common"` it compares the items in
    both lists; a query with fewer than two common items is masked. With `missing="below"` it compares the items in either list, and
    items missing from a list share rank k + 1, so that disjoint lists disagree.

    Lists have shape (queries, k), best first.

    Source: chun2022eccv, sec. A.2, which does not say how missing items count; on real systems `common` gives values like those of
    its Table A.1, and `below` does not (docs/analysis.md). `below`: fagin2003comparing, with tau-b instead of their penalty.

    >>> first, second = np.array([[1, 2, 3, 4]]), np.array([[2, 1, 4, 9]])
    >>> [float(top_k_tau(first, second, missing)[0].round(3)) for missing in ("common", "below")]
    [0.333, 0.4]
    """
    _check_lists(first, second)
    if missing not in MISSING_POLICIES:
        raise UsageError(f"missing must be one of {', '.join(MISSING_POLICIES)} (got {missing!r}).")
    blocks = [
        _list_tau(first[n : n + QUERIES_PER_BLOCK], second[n : n + QUERIES_PER_BLOCK], missing)
        for n in range(0, len(first), QUERIES_PER_BLOCK)
    ]
    tau, undefined = (np.concatenate(part) for part in zip(*blocks, strict=True))
    return np.ma.MaskedArray(tau, undefined)


def rank_of_top_item(first: NDArray[Any], second: NDArray[Any]) -> np.ma.MaskedArray[Any, np.dtype[np.int64]]:
    """Rank, from 1, of the first model's top item in the second model's list; masked where the list does not contain it.

    Source: chun2022eccv, sec. 3.1 and Table A.1b.

    >>> rank_of_top_item(np.array([[7, 8], [5, 6]]), np.array([[8, 7], [1, 2]]))
    masked_array(data=[2, --],
                 mask=[False,  True],
           fill_value=...)
    """
    _check_lists(first, second)
    same = second == first[:, :1]
    return np.ma.MaskedArray(same.argmax(axis=1).astype(np.int64) + 1, ~same.any(axis=1))


def _list_tau(first: NDArray[Any], second: NDArray[Any], missing: str) -> tuple[FloatArray, BoolArray]:
    """Tau of each query, and where it is undefined."""
    k = first.shape[1]
    same = first[:, :, None] == second[:, None, :]
    in_second, in_first = same.any(axis=2), same.any(axis=1)
    x = np.broadcast_to(np.arange(k), first.shape)
    y = np.where(in_second, same.argmax(axis=2), k)
    is_compared = in_second
    if missing == "below":  # add the items that only the second list contains
        x = np.concatenate([x, np.full_like(x, k)], axis=1)
        y = np.concatenate([y, np.broadcast_to(np.arange(k), second.shape)], axis=1)
        is_compared = np.concatenate([np.ones_like(in_second), ~in_first], axis=1)
    a, b = np.triu_indices(x.shape[1], 1)
    is_pair = is_compared[:, a] & is_compared[:, b]
    sx, sy = (np.sign(z[:, a] - z[:, b]) * is_pair for z in (x, y))
    denominator = np.abs(sx).sum(axis=1) * np.abs(sy).sum(axis=1)
    return (sx * sy).sum(axis=1) / np.sqrt(np.maximum(denominator, 1)), denominator == 0


def _check_lists(first: NDArray[Any], second: NDArray[Any]) -> None:
    if first.ndim != 2 or first.shape != second.shape or not first.size:
        raise CrossmatchError(f"Both lists must have the same shape, queries x k (got {first.shape} and {second.shape}).")
    _require_same_id_type(first.ravel(), second.ravel(), "items")
    for ids in (first, second):
        ordered = np.sort(ids, axis=1)
        is_repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if is_repeated.any():
            raise CrossmatchError(f"The list of query {int(is_repeated.argmax())} contains an item twice. Rank every item once.")
