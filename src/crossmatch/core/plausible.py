"""Plausible matches: an image and a caption whose pictures show the same classes of things, told by labels alone."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import BoolArray, IntArray, frozen
from crossmatch.core.collection import SIDES, Collection
from crossmatch.core.errors import CrossmatchError


@dataclass(frozen=True, eq=False)
class Plausible:
    """Two items match if their label sets y ∈ {0, 1}^d differ in at most ζ places (chun2021pcme; chun2022eccv, sec. 2.1).

        match(a, b)  ⇔  |{ n : y_an ≠ y_bn }| <= ζ

    A caption has the labels of the image it was written for. There are millions of such pairs, so they are never listed: `rows`
    and `columns` say which of the distinct `labels` (sets x classes) each image and each caption has. An item without any label
    has the empty set, and matches its like.

    >>> pets = Plausible("pets", [0, 1], [0, 1, 1], np.array([[1, 0], [1, 1]], dtype=bool), zetas=(0, 1))
    >>> pets.positives("i2t")             # (zetas, queries): how many captions match each image
    array([[1, 2],
           [3, 3]])
    """

    source: str
    rows: IntArray
    columns: IntArray
    labels: BoolArray
    zetas: tuple[int, ...] = (0, 1, 2)
    caps: tuple[int, ...] = (50, 0)  # the most candidates to look at; 0 for as many as there are positives

    def __post_init__(self) -> None:
        for name in ("rows", "columns"):
            object.__setattr__(self, name, np.array(getattr(self, name), dtype=np.int64))
        labels = np.array(self.labels, dtype=bool)
        object.__setattr__(self, "labels", labels)
        if labels.ndim != 2 or len(np.unique(labels, axis=0)) < len(labels):
            raise CrossmatchError(
                f"labels of {self.source!r} have shape {labels.shape}; distinct rows (sets x classes) were expected."
            )
        if max(self.rows.max(), self.columns.max()) >= len(labels) or min(self.rows.min(), self.columns.min()) < 0:
            raise CrossmatchError(f"an item of {self.source!r} points outside of its {len(labels):,} sets of labels.")
        for array in (self.rows, self.columns, labels):
            frozen(array)

    @classmethod
    def from_labels(cls, collection: Collection, source: str, of_image: BoolArray) -> Plausible:
        """From the labels of each image (images x classes); every caption must be linked to one image."""
        sets, member = np.unique(of_image, axis=0, return_inverse=True)
        owner = collection.owners()
        if (owner >= len(of_image)).any():
            orphan = str(collection.caption_ids[int((owner >= len(of_image)).argmax())])
            raise CrossmatchError(f"caption {orphan!r} belongs to no image, so it has no labels. Leave it out.")
        return cls(source, member.ravel(), member.ravel()[owner], sets)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    @cached_property
    def level(self) -> NDArray[np.uint8]:
        """For each two label sets the first of the zetas at which they match, as its index; their number where none does."""
        y = self.labels.astype(np.float32)
        apart = y @ (1 - y).T
        apart += apart.T.copy()
        return np.asarray(np.searchsorted(np.asarray(self.zetas), np.rint(apart)), dtype=np.uint8)

    def sets(self, direction: str) -> tuple[IntArray, IntArray]:
        """The label set of each query and of each candidate."""
        return (self.rows, self.columns) if SIDES[direction][0] == "image" else (self.columns, self.rows)

    def positives(self, direction: str) -> IntArray:
        """R, of shape (zetas, queries)."""
        query, item = self.sets(direction)
        many = np.bincount(item, minlength=len(self.labels)).astype(np.float64)  # BLAS multiplies floats; counts are exact in them
        of_set = np.stack([(self.level <= z).astype(np.float64) @ many for z in range(len(self.zetas))])
        return np.rint(of_set[:, query]).astype(np.int64)

    def cut_at(self, positives: IntArray) -> IntArray:
        """K = min(R, cap), of shape (caps, zetas, queries)."""
        return np.stack([np.minimum(positives, cap) if cap else positives for cap in self.caps])

    def reordered(self, rows: IntArray, columns: IntArray) -> Plausible:
        out = copy.copy(self)  # with `level`, if it was made
        for name, kept in (("rows", self.rows[rows]), ("columns", self.columns[columns])):
            frozen(kept)
            object.__setattr__(out, name, kept)
        return out
