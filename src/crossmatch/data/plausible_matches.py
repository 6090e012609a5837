"""Plausible matches: images and captions that match by their object labels alone."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import BoolArray, IntArray, make_read_only
from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.rank_counts import CountsAtK, CutoffRequest


@dataclass(frozen=True, eq=False)
class PlausibleMatches:
    """Two items match if their label sets y ∈ {0, 1}^d differ in at most ζ places (chun2021pcme; chun2022eccv, sec. 2.1).

        match(a, b)  ⇔  |{ n : y_an ≠ y_bn }| <= ζ

    A caption has the labels of the image it was written for. An item without any label has the empty set, and matches other items
    without labels. There are millions of matching pairs, so they are never listed.

    >>> pets = PlausibleMatches("pets", [0, 1], [0, 1, 1], np.array([[1, 0], [1, 1]], dtype=bool), zetas=(0, 1))
    >>> pets.positive_counts("i2t")             # (zetas, queries): how many captions match each image
    array([[1, 2],
           [3, 3]])
    """

    source: str
    rows: IntArray  # the label set of each image, as a row of `labels`
    columns: IntArray  # the label set of each caption
    labels: BoolArray  # the distinct label sets, of shape (sets, classes)
    zetas: tuple[int, ...] = (0, 1, 2)  # ascending
    caps: tuple[int, ...] = (50, 0)  # the largest cutoffs K; 0 means the number of positives

    sides = ("image", "caption")
    directions = ("i2t", "t2i")
    positive = 1.0
    complete = True

    def __post_init__(self) -> None:
        for name in ("rows", "columns"):
            object.__setattr__(self, name, np.array(getattr(self, name), dtype=np.int64))
        labels = np.array(self.labels, dtype=bool)
        object.__setattr__(self, "labels", labels)
        if labels.ndim != 2 or len(np.unique(labels, axis=0)) < len(labels):
            raise CrossmatchError(
                f"Labels of {self.source!r} have shape {labels.shape}; expected distinct rows of shape (sets, classes)."
            )
        if max(self.rows.max(), self.columns.max()) >= len(labels) or min(self.rows.min(), self.columns.min()) < 0:
            raise CrossmatchError(f"An item of {self.source!r} refers to a label set outside the {len(labels):,} sets.")
        for array in (self.rows, self.columns, labels):
            make_read_only(array)

    @classmethod
    def from_labels(cls, collection: Collection, source: str, image_labels: BoolArray) -> PlausibleMatches:
        """From the labels of each image (images x classes). Every caption must be linked to an image."""
        sets, image_set = np.unique(image_labels, axis=0, return_inverse=True)
        owner = collection.caption_owners()
        if (owner >= len(image_labels)).any():
            orphan = str(collection.caption_ids[int((owner >= len(image_labels)).argmax())])
            raise CrossmatchError(f"Caption {orphan!r} is linked to no image, so it has no labels. Leave it out.")
        return cls(source, image_set.ravel(), image_set.ravel()[owner], sets)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    @cached_property
    def first_matching_zeta(self) -> NDArray[np.uint8]:
        """For two label sets the index of the first zeta at which they match, or the number of zetas if none does."""
        y = self.labels.astype(np.float32)
        distance = y @ (1 - y).T
        distance += distance.T.copy()
        return np.asarray(np.searchsorted(np.asarray(self.zetas), np.rint(distance)), dtype=np.uint8)

    def label_sets(self, direction: str) -> tuple[IntArray, IntArray]:
        """The label set of each query and of each candidate."""
        return (self.rows, self.columns) if SIDES[direction][0] == "image" else (self.columns, self.rows)

    def positive_counts(self, direction: str) -> IntArray:
        """R, of shape (zetas, queries)."""
        query, item = self.label_sets(direction)
        items_per_set = np.bincount(item, minlength=len(self.labels)).astype(np.float64)  # BLAS multiplies floats, exactly here
        of_set = np.stack([(self.first_matching_zeta <= z).astype(np.float64) @ items_per_set for z in range(len(self.zetas))])
        return np.rint(of_set[:, query]).astype(np.int64)

    def cutoffs(self, positive_counts: IntArray) -> IntArray:
        """K = min(R, cap), of shape (caps, zetas, queries)."""
        return np.stack([np.minimum(positive_counts, cap) if cap else positive_counts for cap in self.caps])

    def request(self, direction: str) -> CutoffRequest:
        """Ask for the counts at the cutoffs."""
        positives = self.positive_counts(direction)
        sets = self.label_sets(direction)
        return CutoffRequest(direction, self.caps, self.cutoffs(positives), positives, *sets, self.first_matching_zeta)

    def evidence(self, counts: CountsAtK) -> dict[str, CountsAtK]:
        """The evidence by part: one for each zeta, and one for their mean."""
        return {f"zeta={zeta}": counts.select_zetas([n]) for n, zeta in enumerate(self.zetas)} | {"mean": counts}

    def count_queries_and_positives(self, direction: str) -> tuple[int, int]:
        positive_counts = self.positive_counts(direction)
        return positive_counts.shape[1], int(positive_counts[0].sum())

    def hash_content(self) -> tuple[str, list[np.ndarray]]:
        """The text and the arrays that the data hash covers."""
        return f"{self.zetas} {self.caps}", [self.labels[self.rows], self.labels[self.columns]]

    def select(self, rows: IntArray, columns: IntArray) -> PlausibleMatches:
        """The images and captions at these positions, in this order."""
        selected = copy.copy(self)  # keeps `first_matching_zeta` if it was computed
        for name, sets in (("rows", self.rows[rows]), ("columns", self.columns[columns])):
            make_read_only(sets)
            object.__setattr__(selected, name, sets)
        return selected
