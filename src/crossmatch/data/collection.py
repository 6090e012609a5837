"""Collections: images, captions, and the original links between them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from crossmatch.data.arrays import IdArray, IntArray, as_ids, as_integers, find_positions, make_read_only
from crossmatch.data.errors import CrossmatchError

if TYPE_CHECKING:
    from PIL.Image import Image


# The side of the queries and the side of the candidates in each direction.
SIDES = {"i2t": ("image", "caption"), "t2i": ("caption", "image"), "t2t": ("caption", "caption"), "i2i": ("image", "image")}


@dataclass(frozen=True, eq=False)
class Collection:
    """Images and captions by id, and the original links between them.

    Attributes:
        image_ids: The ids of the images.
        caption_ids: The ids of the captions.
        captions: The texts; may be empty, which is enough for precomputed scores.
        links: Pairs (image position, caption position) of shape (L, 2). A caption may belong to several images, and an image may
            have several captions.
        open_image: Opens the image of an id; images are opened only when needed.

    >>> pets = Collection.from_captions({"cat.jpg": ["A cat."], "dog.jpg": ["A dog.", "A dog runs."]})
    >>> pets
    Collection(2 images, 3 captions, 3 links)
    >>> pets.captions[2]
    'A dog runs.'
    """

    image_ids: IdArray
    caption_ids: IdArray
    captions: tuple[str, ...]
    links: IntArray
    open_image: Callable[[str], Image] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "image_ids", as_ids(self.image_ids, "image"))
        object.__setattr__(self, "caption_ids", as_ids(self.caption_ids, "caption"))
        object.__setattr__(self, "captions", tuple(self.captions))
        links = as_integers(self.links, "links")
        object.__setattr__(self, "links", links)
        if self.captions and len(self.captions) != len(self.caption_ids):
            raise CrossmatchError(
                f"There are {len(self.captions):,} captions and {len(self.caption_ids):,} caption ids. Give one id per caption."
            )
        for caption_id, caption in zip(self.caption_ids, self.captions, strict=False):
            if not isinstance(caption, str) or not caption.strip():
                raise CrossmatchError(f"Caption {str(caption_id)!r} is {caption!r}, expected a text. Correct or remove it.")
        if links.ndim != 2 or links.shape[1] != 2:
            raise CrossmatchError(f"Links have shape {links.shape}; expected pairs (image, caption) of shape (L, 2).")
        shape = (len(self.image_ids), len(self.caption_ids))
        if links.size and (links.min() < 0 or (links.max(axis=0) >= shape).any()):
            raise CrossmatchError(f"A link points outside the {shape[0]:,} images x {shape[1]:,} captions. Check the positions.")
        if len(np.unique(links, axis=0)) < len(links):
            raise CrossmatchError("A link between an image and a caption is listed twice. Remove the repeat.")
        for array in (self.image_ids, self.caption_ids, self.links):
            make_read_only(array)

    @classmethod
    def from_captions(
        cls, captions_by_image: dict[str, Sequence[str]], open_image: Callable[[str], Image] | None = None
    ) -> Collection:
        """From `{image id: its captions}`. Caption ids become `image#0`, `image#1`, …"""
        images = list(captions_by_image)
        not_a_list = next((image for image in images if isinstance(captions_by_image[image], str)), None)
        if not_a_list is not None:
            raise CrossmatchError(f"The captions of image {not_a_list!r} are a bare text. Put it into a list.")
        rows = [(i, f"{image}#{n}", text) for i, image in enumerate(images) for n, text in enumerate(captions_by_image[image])]
        return cls(
            image_ids=as_ids(images, "image"),
            caption_ids=np.asarray([caption_id for _, caption_id, _ in rows], dtype=np.str_),
            captions=tuple(text for _, _, text in rows),
            links=np.asarray([(i, c) for c, (i, _, _) in enumerate(rows)], dtype=np.int64).reshape(-1, 2),
            open_image=open_image,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Number of images and captions."""
        return len(self.image_ids), len(self.caption_ids)

    def ids(self, side: str) -> IdArray:
        """The ids of one side, "image" or "caption"."""
        return self.image_ids if side == "image" else self.caption_ids

    def caption_owners(self) -> IntArray:
        """The first image that each caption is linked to; for a caption without image, a number that no image has."""
        owner = np.arange(self.shape[1], dtype=np.int64) + self.shape[0]
        np.minimum.at(owner, self.links[:, 1], self.links[:, 0])
        return owner

    def image_positions(self, ids: IdArray) -> IntArray:
        return find_positions(ids, self.image_ids, "image", "the collection")

    def caption_positions(self, ids: IdArray) -> IntArray:
        return find_positions(ids, self.caption_ids, "caption", "the collection")

    def texts(self, positions: Sequence[int] | None = None) -> list[str]:
        """The captions at these positions, or all captions."""
        self.require_texts()
        return [self.captions[n] for n in positions] if positions is not None else list(self.captions)

    def require_texts(self) -> None:
        """Raise an error if the collection has only the ids of its captions."""
        if not self.captions:
            raise CrossmatchError(
                "This collection has no texts, only the ids of its captions. Evaluate precomputed embeddings or scores "
                "(-m precomputed:FILE), or get the texts: crossmatch list data"
            )

    def image_opener(self) -> Callable[[str], Image]:
        """The function `open_image`; an error if the collection has only the ids of its images."""
        if self.open_image is None:
            raise CrossmatchError(
                "This collection has no images, only their ids. Evaluate precomputed embeddings or scores: -m precomputed:FILE"
            )
        return self.open_image

    def open_images(self, positions: Sequence[int]) -> list[Image]:
        """Open the images at these positions."""
        opener = self.image_opener()
        return [opener(str(self.image_ids[i])) for i in positions]

    def select(self, image_positions: IntArray, caption_positions: IntArray) -> Collection:
        """The items at these positions, in this order, and the links among them."""
        row, column = (np.full(n, -1, dtype=np.int64) for n in self.shape)
        row[image_positions], column[caption_positions] = np.arange(len(image_positions)), np.arange(len(caption_positions))
        links = np.stack([row[self.links[:, 0]], column[self.links[:, 1]]], axis=1)
        links = links[(links >= 0).all(axis=1)]
        links = links[np.lexsort(links.T[::-1])]
        texts = tuple(self.captions[n] for n in caption_positions.tolist()) if self.captions else ()
        selected = copy.copy(self)  # the items were checked already
        selected.__dict__.pop("fingerprint", None)
        image_ids, caption_ids = self.image_ids[image_positions], self.caption_ids[caption_positions]
        for name, array in (("image_ids", image_ids), ("caption_ids", caption_ids), ("links", links)):
            make_read_only(array)
            object.__setattr__(selected, name, array)
        object.__setattr__(selected, "captions", texts)
        return selected

    @cached_property
    def fingerprint(self) -> bytes:
        """All ids and texts in their order, as input of a hash."""
        texts = (self.image_ids.tolist(), self.caption_ids.tolist(), self.captions)
        return b"".join("\0".join(text).encode() + b"\1" for text in texts)

    def __repr__(self) -> str:
        return f"Collection({self.shape[0]:,} images, {self.shape[1]:,} captions, {len(self.links):,} links)"
