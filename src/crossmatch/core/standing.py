"""How every listed candidate stands in its query's gallery, without sorting the gallery.

The rank of a candidate needs two numbers only:

    above = |{ c : s(c) > s }|          size = |{ c : s(c) = s }|   (itself included)

`sweep.py` counts both for all listed pairs of all tasks in one pass over the scores, and `runs.py` reads them off a run file.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossmatch.core.arrays import IntArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.judgements import Listed


@dataclass(frozen=True, eq=False)
class Standing:
    """The counts for each pair of `listed`; for each query `depth` is how far down its ranking is known, `gallery` its length."""

    listed: Listed
    above: IntArray
    size: IntArray
    depth: IntArray
    gallery: IntArray

    def among(self, listed: Listed, shape: tuple[int, int]) -> Standing:
        """The counts for some of the pairs."""
        if listed is self.listed:
            return self
        width = max(shape)
        at = np.searchsorted(self.listed.row * width + self.listed.item, listed.row * width + listed.item)
        query = np.searchsorted(self.listed.query, listed.query)
        return Standing(listed, self.above[at], self.size[at], self.depth[query], self.gallery[query])

    def for_list(self, listed: Listed, order: IntArray | None) -> Standing:
        """The same counts for `listed`, of which this has the queries in another order (`Listed.permuted`)."""
        if listed is self.listed:
            return self
        query = listed.query if order is None else np.argsort(order)[listed.query]
        place = np.argsort(query, kind="stable")  # where each query here is over there
        count, start = listed.count[place], self.listed.start[:-1]
        at = np.empty(len(listed.item), dtype=np.int64)
        at[np.repeat(listed.start[:-1][place] - start, count) + np.arange(len(at))] = np.arange(len(at))
        back = np.empty_like(place)
        back[place] = np.arange(len(place))
        return Standing(listed, self.above[at], self.size[at], self.depth[back], self.gallery[back])


def galleries_of(listed: Listed, candidates: int, same_side: bool) -> IntArray:
    """How many candidates each query has: all, or those of its fold, and never itself."""
    if listed.folds is None:
        sizes = np.full(len(listed.query), candidates, dtype=np.int64)
    else:
        query_fold, item_fold = listed.folds
        sizes = np.bincount(item_fold, minlength=int(query_fold.max()) + 1)[query_fold[listed.query]].astype(np.int64)
    return sizes - 1 if same_side else sizes


def with_absent(standing: Standing, absent: tuple[int, ...]) -> Standing:
    """Positives that no ranking can hold, one for each query named, as candidates behind the end of its gallery."""
    if not absent:
        return standing
    listed = standing.listed
    n = np.searchsorted(listed.query, np.asarray(absent))
    if (listed.query[np.minimum(n, len(listed.query) - 1)] != absent).any():
        raise CrossmatchError("a query has positives outside of its gallery and none inside. Leave it out.")
    more = np.bincount(n, minlength=len(listed.query))
    number = np.concatenate([np.arange(m) for m in more])  # 0, 1, … among the absent of a query
    last, owner = np.repeat(listed.start[1:], more), np.repeat(np.arange(len(more)), more)
    behind = standing.gallery[owner] + number
    start = listed.start + np.concatenate([[0], np.cumsum(more)])
    longer = Listed(
        listed.query, start, np.insert(listed.item, last, behind), np.insert(listed.grade, last, 1.0), listed.folds
    )  # fmt: skip
    # A ranking that was known to its end still is; one that was cut short does not reach deeper for what it cannot hold.
    depth = np.where(standing.depth == standing.gallery, standing.depth + more, standing.depth)
    above, size = np.insert(standing.above, last, behind), np.insert(standing.size, last, 1)
    return Standing(longer, above, size, depth, standing.gallery + more)
