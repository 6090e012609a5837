"""Similarity tasks: pairs with human ratings, and the scores that a model gives to them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crossmatch.data.arrays import FloatArray, IntArray, make_read_only
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import Judgements


@dataclass(frozen=True, eq=False)
class Similarity:
    """Rated pairs to be correlated with a model's scores.

    Attributes:
        collection: The images and captions.
        judgements: The rated pairs; every rating counts, whatever its grade.
        direction: Says which item of a pair is the query: the image in `i2t`, the caption in `t2i`, the row in `t2t` and `i2i`.

    >>> from crossmatch import Diorama, Judgements
    >>> collection = Diorama.make("test", images=2).collection
    >>> ratings = Judgements("people", rows=[0, 0, 1], columns=[0, 5, 5], grades=[5, 1.5, 4], shape=collection.shape)
    >>> data = Similarity(collection, ratings, "i2t")
    >>> data.query, data.item                               # positions of the images and of the captions
    (array([0, 0, 1]), array([0, 5, 5]))
    """

    collection: Collection
    judgements: Judgements
    direction: str

    def __post_init__(self) -> None:
        if self.direction not in self.judgements.directions:
            raise CrossmatchError(f"{self.judgements.kind} pairs have no direction {self.direction!r}.")
        # Every rated pair counts, whatever its grade.
        object.__setattr__(self, "judgements", replace(self.judgements, positive=-np.inf))

    @property
    def query(self) -> IntArray:
        """Positions of the queries."""
        return self.judgements.oriented_pairs(self.direction)[0]

    @property
    def item(self) -> IntArray:
        """Positions of the items."""
        return self.judgements.oriented_pairs(self.direction)[1]

    def select(self, image_positions: IntArray, caption_positions: IntArray, collection: Collection | None = None) -> Similarity:
        """The items at these positions, in this order, and the pairs among them, sorted by query and item.

        `collection` is the selected collection, if it was computed before.
        """
        positions = {"image": image_positions, "caption": caption_positions}
        judgements = self.judgements.select(*(positions[side] for side in self.judgements.sides))
        if judgements is None:
            raise UsageError(f"No pair of {self.judgements.source!r} is left among {len(image_positions)} images. Raise --limit.")
        query, item = judgements.oriented_pairs(self.direction)
        order = np.lexsort((item, query))
        judgements = replace(
            judgements, rows=judgements.rows[order], columns=judgements.columns[order], grades=judgements.grades[order]
        )
        return replace(
            self, collection=collection or self.collection.select(image_positions, caption_positions), judgements=judgements
        )


@dataclass(frozen=True, eq=False)
class RatedPairs:
    """For each pair its query, its human rating and its model score."""

    query: IntArray
    human: FloatArray
    model: FloatArray
    samples: int = 1000  # number of bootstrap samples that draw one pair for each query
    seed: int = 0

    def __post_init__(self) -> None:
        for array in (self.query, self.human, self.model):
            make_read_only(array)

    def __len__(self) -> int:
        return len(self.query)

    @property
    def is_tied(self) -> FloatArray:
        """For each pair 1.0 if the model gives the same score to another pair, else 0.0."""
        _, member, times = np.unique(self.model, return_inverse=True, return_counts=True)
        return (times[member] > 1).astype(np.float64)
