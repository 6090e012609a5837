"""How listed pairs stand in a run file, which holds only the top of each ranking."""

from __future__ import annotations

import numpy as np

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.collection import SIDES, Collection
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.judgements import Listed
from crossmatch.core.scores import Run
from crossmatch.core.standing import Standing, galleries_of


def stand_run(run: Run, collection: Collection, direction: str, listed: Listed) -> Standing:
    """The standing of listed pairs in a run file. Unlisted candidates share the last place, below everything listed.

    Where the listed pairs have folds, candidates of other folds are taken out of each ranking.
    """
    query, item, values = run.side(collection, direction)
    query_ids, item_ids = (collection.ids(side) for side in SIDES[direction])
    same = SIDES[direction][0] == SIDES[direction][1]
    if same and (query == item).any():
        kept = query != item  # a query never retrieves itself
        query, item, values = query[kept], item[kept], values[kept]
    galleries = galleries_of(listed, len(item_ids), same)
    if listed.folds is not None:  # the top of a ranking, of which only one fold is kept, is the top of the fold
        inside = listed.folds[0][query] == listed.folds[1][item]
        query, item, values = query[inside], item[inside], values[inside]
    width = len(item_ids)
    depth = np.bincount(query, minlength=len(query_ids))[listed.query]
    if (depth == 0).any():
        missing = listed.query[depth == 0]
        raise CrossmatchError(
            f"the run has no row for {len(missing):,} of {len(listed.query):,} queries; first missing: "
            f"{str(query_ids[missing[0]])!r}. Rank every query, or leave the direction out entirely."
        )
    order = np.lexsort((values, query))
    query, item, values = query[order], item[order], values[order]
    start = np.searchsorted(query, np.arange(len(query_ids) + 1))
    place = {key: at for at, key in enumerate((query * width + item).tolist())}
    above, size = np.empty(len(listed.item), np.int64), np.empty(len(listed.item), np.int64)
    known, gallery = np.diff(start), np.repeat(galleries, listed.count)
    for n, (q, c) in enumerate(zip(listed.row.tolist(), listed.item.tolist(), strict=True)):
        at = place.get(q * width + c)
        if at is None:
            above[n], size[n] = known[q], gallery[n] - known[q]
            continue
        line = values[start[q] : start[q + 1]]
        right = np.searchsorted(line, values[at], "right")
        above[n], size[n] = len(line) - right, right - np.searchsorted(line, values[at], "left")
    return Standing(listed, above, size, depth, galleries)


def pairs_of_run(run: Run, collection: Collection, direction: str, query: IntArray, item: IntArray) -> FloatArray:
    """The scores of some pairs, all of which the run must list."""
    q, c, values = run.side(collection, direction)
    query_ids, item_ids = (collection.ids(side) for side in SIDES[direction])
    key, wanted = q * len(item_ids) + c, query * len(item_ids) + item
    order = np.argsort(key)
    at = order[np.minimum(np.searchsorted(key, wanted, sorter=order), len(key) - 1)]
    missing = key[at] != wanted
    if missing.any():
        n = int(missing.argmax())
        raise CrossmatchError(
            f"the run has no score for {missing.sum():,} of {len(wanted):,} rated pairs; first missing: "
            f"{str(query_ids[query[n]])!r} with {str(item_ids[item[n]])!r}. Give embeddings, or list every rated pair."
        )
    return values[at]
