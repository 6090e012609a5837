"""Images, captions, and the links between them that a data set came with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from crossmatch.core.arrays import IdArray, IntArray, as_ids, as_whole, frozen, positions
from crossmatch.core.errors import CrossmatchError

if TYPE_CHECKING:
    from PIL.Image import Image


# The side of the queries and the side of the candidates in each direction.
SIDES = {"i2t": ("image", "caption"), "t2i": ("caption", "image"), "t2t": ("caption", "caption"), "i2i": ("image", "image")}


@dataclass(frozen=True, eq=False)
class Collection:
    """Images and captions by id. Images open lazily, through `open_image(id)`.

    `links` are pairs (image index, caption index): a caption may belong to several images and the other way round.
    `captions` may be empty where only the ids are known: enough for precomputed scores, and for nothing else.

    >>> pets = Collection.of({"cat.jpg": ["A cat."], "dog.jpg": ["A dog.", "A dog runs."]})
    >>> pets
    Collection(2 images, 3 captions, 3 links)
    >>> pets.captions[2]
    'A dog runs.'
    """

    image_ids: IdArray
    caption_ids: IdArray
    captions: tuple[str, ...]
    links: IntArray  # shape (L, 2)
    open_image: Callable[[str], Image] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "image_ids", as_ids(self.image_ids, "image"))
        object.__setattr__(self, "caption_ids", as_ids(self.caption_ids, "caption"))
        object.__setattr__(self, "captions", tuple(self.captions))
        links = as_whole(self.links, "links")
        object.__setattr__(self, "links", links)
        if self.captions and len(self.captions) != len(self.caption_ids):
            raise CrossmatchError(
                f"{len(self.captions):,} captions came with {len(self.caption_ids):,} caption ids. Give one id per caption."
            )
        for caption_id, caption in zip(self.caption_ids, self.captions, strict=False):
            if not isinstance(caption, str) or not caption.strip():
                raise CrossmatchError(f"caption {str(caption_id)!r} is {caption!r}; a text was expected. Mend or remove it.")
        if links.ndim != 2 or links.shape[1] != 2:
            raise CrossmatchError(f"links have shape {links.shape}; pairs (image, caption) of shape (L, 2) were expected.")
        shape = (len(self.image_ids), len(self.caption_ids))
        if links.size and (links.min() < 0 or (links.max(axis=0) >= shape).any()):
            raise CrossmatchError(f"a link points outside the {shape[0]:,} images x {shape[1]:,} captions. Check the indices.")
        if len(np.unique(links, axis=0)) < len(links):
            raise CrossmatchError("a link between an image and a caption is listed twice. Remove the repeat.")
        for array in (self.image_ids, self.caption_ids, self.links):
            frozen(array)

    @classmethod
    def of(cls, captions_of: dict[str, Sequence[str]], open_image: Callable[[str], Image] | None = None) -> Collection:
        """From `{image id: its captions}`; caption ids become `image#0`, `image#1`, …"""
        images = list(captions_of)
        bare = next((image for image in images if isinstance(captions_of[image], str)), None)
        if bare is not None:
            raise CrossmatchError(f"image {bare!r} has a bare text for its captions. Put it into a list.")
        rows = [(i, f"{image}#{n}", text) for i, image in enumerate(images) for n, text in enumerate(captions_of[image])]
        return cls(
            image_ids=as_ids(images, "image"),
            caption_ids=np.asarray([r[1] for r in rows], dtype=np.str_),
            captions=tuple(r[2] for r in rows),
            links=np.asarray([(r[0], c) for c, r in enumerate(rows)], dtype=np.int64).reshape(-1, 2),
            open_image=open_image,
        )

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.image_ids), len(self.caption_ids)

    def ids(self, side: str) -> IdArray:
        return self.image_ids if side == "image" else self.caption_ids

    def owners(self) -> IntArray:
        """For each caption the first image it is linked to (itself a cluster of its own if it has none)."""
        owner = np.arange(self.shape[1], dtype=np.int64) + self.shape[0]
        np.minimum.at(owner, self.links[:, 1], self.links[:, 0])
        return owner

    def image_positions(self, ids: IdArray) -> IntArray:
        return positions(ids, self.image_ids, "image", "the collection")

    def caption_positions(self, ids: IdArray) -> IntArray:
        return positions(ids, self.caption_ids, "caption", "the collection")

    def texts(self, which: Sequence[int] | None = None) -> list[str]:
        """The captions at these positions, or all of them."""
        if not self.captions:
            raise CrossmatchError(
                "this collection has no texts, only the ids of its captions. Evaluate precomputed embeddings or scores "
                "(-m precomputed:FILE), or get the texts: crossmatch data list"
            )
        return [self.captions[n] for n in which] if which is not None else list(self.captions)

    def images(self, which: Sequence[int]) -> list[Image]:
        """Open the images at these positions."""
        if self.open_image is None:
            raise CrossmatchError(
                "this collection has no pictures, only ids. Evaluate precomputed embeddings or scores: -m precomputed:FILE"
            )
        return [self.open_image(str(self.image_ids[i])) for i in which]

    def reordered(self, image: IntArray, caption: IntArray) -> Collection:
        """The items at these positions, in this order; links among them are kept."""
        row, column = (np.full(n, -1, dtype=np.int64) for n in self.shape)
        row[image], column[caption] = np.arange(len(image)), np.arange(len(caption))
        links = np.stack([row[self.links[:, 0]], column[self.links[:, 1]]], axis=1)
        links = links[(links >= 0).all(axis=1)]
        links = links[np.lexsort(links.T[::-1])]
        texts = tuple(self.captions[n] for n in caption.tolist()) if self.captions else ()
        out = copy.copy(self)  # nothing about the items needs to be checked again
        out.__dict__.pop("fingerprint", None)
        for name, value in (("image_ids", self.image_ids[image]), ("caption_ids", self.caption_ids[caption]), ("links", links)):
            frozen(value)
            object.__setattr__(out, name, value)
        object.__setattr__(out, "captions", texts)
        return out

    @cached_property
    def fingerprint(self) -> bytes:
        """All ids and texts, in their order, for the hash of a benchmark."""
        texts = (self.image_ids.tolist(), self.caption_ids.tolist(), self.captions)
        return b"".join("\0".join(text).encode() + b"\1" for text in texts)

    def __repr__(self) -> str:
        return f"Collection({self.shape[0]:,} images, {self.shape[1]:,} captions, {len(self.links):,} links)"
