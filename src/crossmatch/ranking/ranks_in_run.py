"""Rank counts and scores from a run, which lists only the top of each ranking."""

from __future__ import annotations

import numpy as np

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.rank_counts import CandidateLists, RankCounts, gallery_sizes
from crossmatch.data.scores import Run


def count_ranks_in_run(run: Run, collection: Collection, direction: str, lists: CandidateLists) -> RankCounts:
    """Count ranks in a run. Candidates that the run does not list are tied for the last place.

    Where `lists` have folds, candidates of other folds are removed from each ranking.

    A query without any row is an error.
    """
    query, item, values = run.pairs_in_direction(collection, direction)
    query_ids, item_ids = (collection.ids(side) for side in SIDES[direction])
    same_side = SIDES[direction][0] == SIDES[direction][1]
    is_candidate = np.ones(len(query), dtype=bool)
    if same_side:
        is_candidate &= query != item  # a query never retrieves itself
    if lists.folds is not None:
        is_candidate &= lists.folds[0][query] == lists.folds[1][item]
    query, item, values = query[is_candidate], item[is_candidate], values[is_candidate]
    width = len(item_ids)
    depth = np.bincount(query, minlength=len(query_ids))
    missing = lists.query[depth[lists.query] == 0]
    if len(missing):
        raise CrossmatchError(
            f"The run has no row for {len(missing):,} of {len(lists.query):,} queries; first missing: "
            f"{str(query_ids[missing[0]])!r}. Rank every query, or leave this direction out."
        )
    order = np.lexsort((values, query))
    query, item, values = query[order], item[order], values[order]
    start = np.searchsorted(query, np.arange(len(query_ids) + 1))
    row_of_pair = {pair: row for row, pair in enumerate((query * width + item).tolist())}
    above, tie_size = np.empty(len(lists.item), np.int64), np.empty(len(lists.item), np.int64)
    galleries = gallery_sizes(lists, width, same_side)
    gallery_of_pair = np.repeat(galleries, lists.count)
    for n, (q, c) in enumerate(zip(lists.pair_query.tolist(), lists.item.tolist(), strict=True)):
        row = row_of_pair.get(q * width + c)
        if row is None:
            above[n], tie_size[n] = depth[q], gallery_of_pair[n] - depth[q]
            continue
        line = values[start[q] : start[q + 1]]
        right = np.searchsorted(line, values[row], "right")
        above[n], tie_size[n] = len(line) - right, right - np.searchsorted(line, values[row], "left")
    return RankCounts(lists, above, tie_size, depth[lists.query], galleries)


def look_up_run_scores(run: Run, collection: Collection, direction: str, query: IntArray, item: IntArray) -> FloatArray:
    """Look up the scores of pairs of queries and items.

    A pair that the run does not list is an error.
    """
    run_query, run_item, values = run.pairs_in_direction(collection, direction)
    query_ids, item_ids = (collection.ids(side) for side in SIDES[direction])
    run_pair, pair = run_query * len(item_ids) + run_item, query * len(item_ids) + item
    order = np.argsort(run_pair)
    row = order[np.minimum(np.searchsorted(run_pair, pair, sorter=order), len(run_pair) - 1)]
    missing = run_pair[row] != pair
    if missing.any():
        n = int(missing.argmax())
        raise CrossmatchError(
            f"The run has no score for {missing.sum():,} of {len(pair):,} rated pairs; first missing: "
            f"{str(query_ids[query[n]])!r} with {str(item_ids[item[n]])!r}. Provide embeddings, or list every rated pair."
        )
    return values[row]
