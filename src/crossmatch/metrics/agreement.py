"""How far two annotations, or two rankings, agree: precision and recall of judgements, and likeness of top-k lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import BoolArray, FloatArray, IntArray, frozen
from crossmatch.core.collection import SIDES
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements, Listed
from crossmatch.metrics.rank_correlation import Masked

EMPTY = ("left out", "zero")
MISSING = ("common", "below")
BLOCK = 512  # queries whose pairs of items are held in memory at a time


# Precision and recall of one set of judgements against another


@dataclass(frozen=True, eq=False)
class PairSet:
    """Which items belong to which query, as two flat arrays; ids of any kind, each pair once.

    >>> PairSet.of({"q": ["a", "b"], "p": []}).item
    array(['a', 'b'], dtype='<U1')
    """

    query: NDArray[Any]
    item: NDArray[Any]

    @classmethod
    def of(cls, said: Positives) -> PairSet:
        """From `{query: items}`, or from all that a `Listed` lists."""
        if isinstance(said, PairSet):
            return said
        if isinstance(said, Listed):
            return cls(said.row, said.item)
        flat = [(query, item) for query, items in said.items() for item in dict.fromkeys(items)]
        return cls(np.asarray([q for q, _ in flat]), np.asarray([i for _, i in flat]))

    @classmethod
    def positives(cls, said: Judgements, direction: str) -> PairSet:
        """The pairs that were judged positive: the paper's t, or r."""
        return cls._chosen(said, direction, said.grades >= said.positive)

    @classmethod
    def judged(cls, said: Judgements, direction: str) -> PairSet | None:
        """The pairs that were judged at all: the paper's h. `None` stands for every pair, where the judgements are complete."""
        return None if said.complete else cls._chosen(said, direction, np.ones(len(said.rows), dtype=bool))

    @classmethod
    def _chosen(cls, said: Judgements, direction: str, chosen: BoolArray) -> PairSet:
        sides = (said.rows[chosen], said.columns[chosen])
        if direction not in said.directions:
            raise WrongWords(f"{said.kind} judgements have no direction {direction!r}; they have {' and '.join(said.directions)}.")
        return cls(*(sides if SIDES[direction] == said.sides else sides[::-1]))


Positives = Mapping[Any, Iterable[Any]] | Listed | PairSet


@dataclass(frozen=True, eq=False)
class Overlap:
    """For each query |r'|, |t| and |r' ∩ t|, from which precision and recall follow."""

    query: NDArray[Any]
    said: IntArray
    true: IntArray
    both: IntArray

    def __post_init__(self) -> None:
        for array in (self.query, self.said, self.true, self.both):
            frozen(array)

    @property
    def empty(self) -> BoolArray:
        """Queries of which nothing that was said could be checked: r' = ∅."""
        return np.equal(self.said, 0)

    def precision(self) -> float:
        """The mean of |r' ∩ t| / |r'| over the queries with r' ≠ ∅; for the others it has no meaning."""
        kept = ~self.empty
        if not kept.any():
            raise CrossmatchError(
                f"none of the {len(self.query):,} queries has a said pair that was verified, so there is no precision. "
                "Check that both sets use the same ids."
            )
        return float(np.mean(self.both[kept] / self.said[kept]))

    def recall(self, empty: str = "left out") -> float:
        """The mean of 1 - |t \\ r'| / |t| over the queries with t ≠ ∅.

        Queries with r' = ∅ are left out as in the paper, which filters them before it defines either number; with `empty="zero"`
        they count as 0, which is what a set of judgements that says nothing of a query finds of its positives.
        """
        if empty not in EMPTY:
            raise WrongWords(f"empty is {empty!r}; one of {', '.join(EMPTY)} was expected.")
        kept = (self.true > 0) & (~self.empty | (empty == "zero"))
        if not kept.any():
            raise CrossmatchError(
                "no query has a true pair and a said one that was verified, so there is no recall. Check the ids."
            )
        return float(np.mean(self.both[kept] / self.true[kept]))


def overlap(said: Positives, truth: Positives, verified: Positives | None = None) -> Overlap:
    """What one set of positives (`said`) shares with another (`truth`), query by query.

        r'_i = r_i ∩ h_i      Prec = 1/N Σ_i |r'_i ∩ t_i| / |r'_i|      Recall = 1/N Σ_i (1 - |t_i \\ r'_i| / |t_i|)

    r is what was said, t what is true, h what was verified: a pair that nobody looked at is neither right nor wrong, so it is taken
    out of r. Without `verified` every pair counts as verified (r' = r). Queries are those of `verified`, or of `truth`; what was
    said about others is not looked at. Source: chun2022eccv, sec. 3.3 (the definition before Table 2, and footnote 2).

    >>> found = overlap({1: "ab", 2: "c", 3: "x"}, {1: "acd", 2: "e", 3: "y"}, verified={1: "abcd", 2: "ce", 3: "y"})
    >>> found.precision(), found.recall(), found.recall(empty="zero")     # x was never verified, so query 3 is left out
    (0.25, 0.16666666666666666, 0.1111111111111111)
    """
    r, t = PairSet.of(said), PairSet.of(truth)
    h = None if verified is None else PairSet.of(verified)
    queries = _queries(truth, t) if verified is None or h is None else _queries(verified, h)
    _require_alike(r.query, queries, "queries")
    _require_alike(r.item, t.item, "items")
    held = [p.item for p in (r, t, h) if p is not None and len(p.item)]
    if not held:
        raise CrossmatchError("no pair was said, true or verified, so there is nothing to compare. Check the files.")
    items = np.unique(np.concatenate(held))
    say, true = _keys(r, queries, items), _keys(t, queries, items)
    if h is not None:
        looked_at = _keys(h, queries, items)
        _require_verified(t, true, looked_at, queries, len(items))
        say = np.intersect1d(say, looked_at, assume_unique=True)
    both = np.intersect1d(say, true, assume_unique=True)
    return Overlap(queries, *(np.bincount(keys // len(items), minlength=len(queries)) for keys in (say, true, both)))


def overlap_of(said: Judgements, truth: Judgements, direction: str) -> Overlap:
    """The same of two sets of judgements: t is what `truth` calls positive, h all that it judged, r what `said` calls positive.

    Where the truth lists positives alone, all that it judged is positive, and a precision of 1 says nothing.

    >>> links = Judgements("links", [0, 1], [0, 1], [1, 1], (2, 3))
    >>> people = Judgements("people", [0, 0, 1, 1], [0, 2, 1, 2], [1, 1, 0, 1], (2, 3))
    >>> overlap_of(links, people, "i2t").precision(), overlap_of(links, people, "i2t").recall()
    (0.5, 0.25)
    """
    return overlap(PairSet.positives(said, direction), PairSet.positives(truth, direction), PairSet.judged(truth, direction))


def _queries(given: Positives, pairs: PairSet) -> NDArray[Any]:
    """The queries; a mapping may name some that have no item."""
    return np.unique(np.asarray(list(given)) if isinstance(given, Mapping) else pairs.query)


def _require_verified(truth: PairSet, true: IntArray, looked_at: IntArray, queries: NDArray[Any], items: int) -> None:
    """What is true must have been verified, or r' would lose it."""
    strangers = truth.query[~np.isin(truth.query, queries)]
    unseen = queries[np.setdiff1d(true, looked_at, assume_unique=True) // items]
    for query in (*strangers[:1], *unseen[:1]):
        raise CrossmatchError(
            f"query {query} has a true pair that is not among the verified ones; what is true must have been verified. "
            "Check that both use the same ids, or leave the verified pairs out."
        )


def _keys(pairs: PairSet, queries: NDArray[Any], items: NDArray[Any]) -> IntArray:
    """Each pair about these queries as one number, sorted."""
    kept = np.isin(pairs.query, queries)
    at, what = np.searchsorted(queries, pairs.query[kept]), np.searchsorted(items, pairs.item[kept])
    return np.unique(at.astype(np.int64) * len(items) + what)


def _require_alike(first: NDArray[Any], second: NDArray[Any], what: str) -> None:
    """Numbers and texts are never equal, so ids of one kind on either side, or the answer would be a silent zero."""
    if len(first) and len(second) and (first.dtype.kind in "OUS") != (second.dtype.kind in "OUS"):
        raise CrossmatchError(
            f"{what} are {first.dtype} on one side and {second.dtype} on the other, such as {first[0]!r} and {second[0]!r}. "
            "Write ids the same way on both."
        )


# Likeness of two models' top-k lists


@dataclass(frozen=True, eq=False)
class ListLikeness:
    """How alike the models' lists are, each matrix of shape (models, models); row model against column model.

    `tau` is the mean of Kendall's tau-b over queries, masked where no query has one; `rank` the mean rank of the row's top-1 item
    in the column's list. `shared` is the mean number of items in both lists, `absent` the share of queries whose top-1 item of
    the row is not in the column's list at all: without these two neither number can be read.
    """

    models: tuple[str, ...]
    tau: Masked
    rank: Masked
    shared: FloatArray
    absent: FloatArray


def list_likeness(lists: Mapping[str, NDArray[Any]], missing: str = "common") -> ListLikeness:
    """Every two models' lists compared: Table A.1 of chun2022eccv (there the top 25 images of each caption, five models).

    `lists` maps each model to an array (queries, k) of item ids, best first. The conventions for items that only one of the two
    lists holds are those of `list_tau` and `rank_of_first`.

    >>> likeness = list_likeness({"a": np.array([[1, 2, 3]]), "b": np.array([[2, 1, 4]])})
    >>> [float(x[0, 1]) for x in (likeness.tau, likeness.rank, likeness.shared)]
    [-1.0, 2.0, 2.0]
    """
    names, shape = tuple(lists), (len(lists), len(lists))
    if len(names) < 2:
        raise CrossmatchError(f"{len(names)} list was given; likeness needs two models' lists.")
    tau, rank = (np.ma.MaskedArray(np.zeros(shape), np.ones(shape, dtype=bool)) for _ in range(2))
    shared, absent = np.zeros(shape), np.zeros(shape)
    for a, one in enumerate(lists.values()):
        for b, other in enumerate(lists.values()):
            _check_lists(one, other)
            place = rank_of_first(one, other)
            absent[a, b] = np.mean(np.ma.getmaskarray(place))
            rank[a, b] = (place if missing == "common" else place.filled(other.shape[1] + 1)).mean()
            if a <= b:
                shared[a, b] = shared[b, a] = (one[:, :, None] == other[:, None, :]).any(axis=2).sum(axis=1).mean()
                tau[a, b] = tau[b, a] = list_tau(one, other, missing).mean()
    return ListLikeness(names, tau, rank, shared, absent)


def list_tau(first: NDArray[Any], second: NDArray[Any], missing: str = "common") -> Masked:
    """Kendall's tau-b between two ranked lists of each query, arrays (queries, k) of item ids, best first.

    Two top-k lists do not hold the same items, and tau is defined on the same items only. `missing="common"` compares the items
    that both lists hold; a query with fewer than two of them has no tau and is masked. `missing="below"` takes the items of either
    list and puts those that a list lacks on one shared place below it, k + 1: disjoint lists then disagree.
    Source: chun2022eccv, sec. A.2, which does not say what it did; on real retrieval systems `common` gives values like those of
    its Table A.1 and `below` does not (docs/analysis.md). For `below`: fagin2003comparing, with tau-b in place of their penalty.

    >>> one, other = np.array([[1, 2, 3, 4]]), np.array([[2, 1, 4, 9]])
    >>> [float(list_tau(one, other, missing)[0].round(3)) for missing in ("common", "below")]
    [0.333, 0.4]
    """
    _check_lists(first, second)
    if missing not in MISSING:
        raise WrongWords(f"missing is {missing!r}; one of {', '.join(MISSING)} was expected.")
    blocks = [_list_tau(first[n : n + BLOCK], second[n : n + BLOCK], missing) for n in range(0, len(first), BLOCK)]
    tau, undefined = (np.concatenate(part) for part in zip(*blocks, strict=True))
    return np.ma.MaskedArray(tau, undefined)


def rank_of_first(first: NDArray[Any], second: NDArray[Any]) -> np.ma.MaskedArray[Any, np.dtype[np.int64]]:
    """The rank, from 1, that the second model gives to the first model's top-1 item; masked where its list does not hold it.

    Source: chun2022eccv, sec. 3.1 and Table A.1b.

    >>> rank_of_first(np.array([[7, 8], [5, 6]]), np.array([[8, 7], [1, 2]]))
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
    held, known = same.any(axis=2), same.any(axis=1)  # items of the first that the second holds, and the other way round
    x = np.broadcast_to(np.arange(k), first.shape)
    y = np.where(held, same.argmax(axis=2), k)
    chosen = held
    if missing == "below":  # and the items that only the second list holds
        x = np.concatenate([x, np.full_like(x, k)], axis=1)
        y = np.concatenate([y, np.broadcast_to(np.arange(k), second.shape)], axis=1)
        chosen = np.concatenate([np.ones_like(held), ~known], axis=1)
    a, b = np.triu_indices(x.shape[1], 1)
    pair = chosen[:, a] & chosen[:, b]
    sx, sy = (np.sign(z[:, a] - z[:, b]) * pair for z in (x, y))
    bottom = np.abs(sx).sum(axis=1) * np.abs(sy).sum(axis=1)
    return (sx * sy).sum(axis=1) / np.sqrt(np.maximum(bottom, 1)), bottom == 0


def _check_lists(first: NDArray[Any], second: NDArray[Any]) -> None:
    if first.ndim != 2 or first.shape != second.shape or not first.size:
        raise CrossmatchError(f"lists have shapes {first.shape} and {second.shape}; both must be queries x k, of the same queries.")
    _require_alike(first.ravel(), second.ravel(), "items")
    for ids in (first, second):
        ordered = np.sort(ids, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if twice.any():
            raise CrossmatchError(f"the list of query {int(twice.argmax())} names an item twice. Rank every item once.")
