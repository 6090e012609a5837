"""Similarity tasks: pairs with human ratings, and the scores that a model gives to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from crossmatch.data.arrays import BoolArray, FloatArray, IdArray, IntArray, as_integers, make_read_only
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import KINDS, Judgements
from crossmatch.data.settings import suggest_name

# For each kind of pair the possible queries of a correlation, the default first, with their directions.
QUERIES = {
    "caption-caption": {"first": "t2t", "second": "t2t"},
    "image-image": {"first": "i2i", "second": "i2i"},
    "image-caption": {"image": "i2t", "caption": "t2i"},
}


@dataclass(frozen=True, eq=False)
class PairRatings:
    """Pairs that people rated: two captions, two images, or an image and a caption, in the order of the file.

    Attributes:
        source: Name of the ratings, such as `sts`.
        kind: `caption-caption`, `image-image` or `image-caption`.
        first: Positions of the first items; of the images in image-caption pairs.
        second: Positions of the second items.
        grades: Mean rating of each pair.
        deviations: Standard deviation of the ratings of each pair; NaN where it is not known.
        methods: How each pair was sampled, such as `c2c_isim`; empty where it is not known.
        shape: Number of items on the first and on the second side.
        positive: Lowest grade of a positive pair.
        note: What a report must say about the ratings; empty for none.

    >>> ratings = PairRatings("sts", "caption-caption", first=[0, 0], second=[1, 5], grades=[4.2, 0.3], deviations=[0.4, 0.1],
    ...                       methods=["c2c_cocaption", "c2c_isim"], shape=(10, 10), positive=3.0)
    >>> len(ratings), ratings.is_positive
    (2, array([ True, False]))
    """

    source: str
    kind: str
    first: IntArray
    second: IntArray
    grades: FloatArray
    deviations: FloatArray
    methods: IdArray
    shape: tuple[int, int]
    positive: float = 1.0
    note: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise CrossmatchError(f"Ratings {self.source!r}: unknown kind {self.kind!r}. Use one of {', '.join(KINDS)}.")
        for name in ("first", "second", "grades", "deviations", "methods"):
            values = getattr(self, name)
            array = as_integers(values, f"{name} of {self.source!r}") if name in ("first", "second") else np.array(values)
            if array.shape != np.shape(self.first):
                raise CrossmatchError(
                    f"Ratings {self.source!r}: {name} have shape {array.shape}, but there are {len(self.first):,} pairs."
                )
            make_read_only(array)
            object.__setattr__(self, name, array)

    def __len__(self) -> int:
        return len(self.first)

    @property
    def is_positive(self) -> BoolArray:
        """For each pair whether it is positive."""
        return self.grades >= self.positive

    def judgements(self) -> Judgements:
        """The pairs as judgements, in the order and orientation of the rows."""
        return Judgements(
            self.source, self.first, self.second, self.grades, self.shape, self.positive, kind=self.kind, note=self.note
        )

    def similarity(self, collection: Collection, query: str = "") -> Similarity:
        """The pairs as a similarity task.

        `query` says which item of a pair is the query: `first` or `second`, or `image` or `caption`; by default the first.
        """
        queries = QUERIES[self.kind]
        query = query or next(iter(queries))
        if query not in queries:
            raise UsageError(f"query must be one of {', '.join(queries)} for {self.kind} pairs (got {query!r}).")
        swapped = query == "second"
        rows, columns = (self.second, self.first) if swapped else (self.first, self.second)
        judgements = Judgements(self.source, rows, columns, self.grades, self.shape, -np.inf, kind=self.kind, note=self.note)
        return Similarity(collection, judgements, queries[query])


@dataclass(frozen=True, eq=False)
class RatedCollection:
    """A collection and the ratings of its pairs by source."""

    collection: Collection
    ratings: Mapping[str, PairRatings]

    def find(self, source: str, where: str) -> PairRatings:
        """The ratings of a source; `where` names the data in messages."""
        self.require_ratings(where)
        if source not in self.ratings:
            raise UsageError(f"{where} has no ratings {source!r}. {suggest_name(source, self.ratings)}")
        return self.ratings[source]

    def require_ratings(self, where: str) -> None:
        """Raise if there are no ratings at all."""
        if not self.ratings:
            raise UsageError(f"{where} has no ratings. Add judgements.csv, judgements_t2t.csv or judgements_i2i.csv with grades.")


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
