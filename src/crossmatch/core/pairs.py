"""Rated pairs: what people said about two items, and what a model says."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crossmatch.core.arrays import FloatArray, IntArray, frozen
from crossmatch.core.collection import SIDES, Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements


@dataclass(frozen=True, eq=False)
class Similarity:
    """Graded pairs to be correlated with a model's scores; `direction` says which side of a pair is the query.

    In `i2t` a query is an image, in `t2i` a caption; pairs of one kind, `t2t` and `i2i`, are queried from their rows.
    """

    collection: Collection
    said: Judgements
    direction: str

    def __post_init__(self) -> None:
        if self.direction not in self.said.directions:
            raise CrossmatchError(f"{self.said.kind} pairs have no direction {self.direction!r}.")
        object.__setattr__(self, "said", replace(self.said, positive=-np.inf))  # every rated pair counts, whatever its grade

    @property
    def query(self) -> IntArray:
        return self.said.rows if self._straight else self.said.columns

    @property
    def item(self) -> IntArray:
        return self.said.columns if self._straight else self.said.rows

    @property
    def _straight(self) -> bool:
        return SIDES[self.direction] == self.said.sides

    def reordered(self, image: IntArray, caption: IntArray, collection: Collection | None = None) -> Similarity:
        """The items at these positions, in this order, and the pairs among them, sorted by query and item."""
        at = {"image": image, "caption": caption}
        kept = self.said.reordered(*(at[side] for side in self.said.sides))
        if kept is None:
            raise WrongWords(f"no pair of {self.said.source!r} is left among {len(image)} images. Raise --limit.")
        found = replace(self, collection=collection or self.collection.reordered(image, caption), said=kept)
        order = np.lexsort((found.item, found.query))
        sorted_ = replace(kept, rows=kept.rows[order], columns=kept.columns[order], grades=kept.grades[order])
        return replace(found, said=sorted_)


@dataclass(frozen=True, eq=False)
class Pairs:
    """For each pair its query, what people said, and what the model says; and how many samples to draw from them."""

    query: IntArray
    human: FloatArray
    model: FloatArray
    samples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        for array in (self.query, self.human, self.model):
            frozen(array)

    def __len__(self) -> int:
        return len(self.query)

    @property
    def tied(self) -> FloatArray:
        """1 for each pair to which the model gives the same score as to another."""
        _, member, times = np.unique(self.model, return_inverse=True, return_counts=True)
        return (times[member] > 1).astype(np.float64)
