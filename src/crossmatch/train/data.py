"""What a network is trained on: images as regions or pixels, captions, and which belongs to which."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import IntArray
from crossmatch.core.errors import CrossmatchError, MissingDependency

try:
    import torch
    from torch import Tensor
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

if TYPE_CHECKING:
    from crossmatch.models.zoo.inputs import Regions

PROBED = 256  # images that a data set is known by, evenly spread; all captions count
ORDER, OTHER = range(2)  # what a generator is for: no two of them draw alike


class Store(Protocol):
    """The images of a data set as a network is given them."""

    def __len__(self) -> int: ...

    def take(self, indices: IntArray) -> Regions | Tensor:
        """The regions of these images, or their pixels (N, side, side, 3) as bytes."""
        ...


@dataclass(frozen=True, eq=False)
class PixelStore:
    """Pictures (N, side, side, 3) as bytes."""

    pictures: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.pictures)

    def take(self, indices: IntArray) -> Tensor:
        return torch.from_numpy(self.pictures[indices])


@dataclass(frozen=True, eq=False)
class ArrayStore:
    """Region features (N, K, F) as an array, perhaps memory-mapped; a region of zeros is absent. Where it was is not known.

    An image is looked at when it is taken: all numbers finite, and one region at least. `file` names the array in errors, in which
    image n is the row n times `every`.
    """

    features: NDArray[Any]
    file: str = "the array of features"
    every: int = 1

    def __len__(self) -> int:
        return len(self.features)

    @property
    def dimensions(self) -> int:
        return int(self.features.shape[2])

    def take(self, indices: IntArray) -> Regions:
        from crossmatch.models.zoo.inputs import Regions

        with np.errstate(over="ignore"):  # a number beyond single precision becomes infinite, and is refused
            features = torch.from_numpy(np.asarray(self.features[indices], dtype=np.float32))
        real = features.ne(0).any(dim=2)
        self._require(torch.isfinite(features).flatten(1).all(dim=1), indices, "NaN or infinity among its features")
        self._require(real.any(dim=1), indices, "no region: all of its features are 0")
        return Regions(features, real, torch.zeros(*features.shape[:2], 4))

    def _require(self, fine: Tensor, indices: IntArray, what: str) -> None:
        if not bool(fine.all()):
            row = int(np.arange(len(self))[indices][int(fine.logical_not().int().argmax())]) * self.every
            raise CrossmatchError(f"{self.file}: image {row:,}, counted from 0, has {what}. Extract its features again.")


@dataclass(frozen=True, eq=False)
class SomeOf:
    """Some images of a store, in an order of their own."""

    store: Store
    images: IntArray

    def __len__(self) -> int:
        return len(self.images)

    @property
    def dimensions(self) -> int:
        return dimensions_of(self.store)

    def take(self, indices: IntArray) -> Regions | Tensor:
        return self.store.take(self.images[indices])


def dimensions_of(store: Store) -> int:
    """Numbers of a region."""
    return int(getattr(store, "dimensions"))  # noqa: B009 - pixels have none, and are never asked


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a batch: numbers of an image, a caption of it, and another caption of it."""

    image: IntArray
    caption: IntArray
    other: IntArray


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Images, captions, and the links between them.

    >>> pictures = PixelStore(np.zeros((2, 8, 8, 3), np.uint8))
    >>> pets = TrainingSet(pictures, ("a cat", "a dog", "dogs"), np.array([[0, 0], [1, 1], [1, 2]]))
    >>> [rows.caption.tolist() for rows in pets.batches(size=2, seed=0, epoch=0)]
    [[2, 0], [1]]
    """

    store: Store
    captions: tuple[str, ...]
    links: IntArray  # (P, 2): an image and a caption of it

    def __post_init__(self) -> None:
        links = np.asarray(self.links, dtype=np.int64).reshape(-1, 2)
        object.__setattr__(self, "links", links[np.lexsort((links[:, 1], links[:, 0]))])
        shape = len(self.store), len(self.captions)
        if len(links) < 2 or links.min() < 0 or (links.max(axis=0) >= shape).any():
            raise CrossmatchError(
                f"{shape[0]:,} images, {shape[1]:,} captions and {len(links):,} links between them cannot be trained on: two "
                "links at least were expected, each of an image and a caption that are there."
            )

    def batches(self, size: int, seed: int, epoch: int) -> list[Rows]:
        """All links once, in an order that depends on seed and epoch alone; batches of one size, so that none has few negatives."""
        order = np.random.default_rng([seed, epoch, ORDER]).permutation(len(self.links))
        parts = np.array_split(order, self.steps(size))
        others = self.links[self._others(seed, epoch), 1]
        return [Rows(self.links[part, 0], self.links[part, 1], others[part]) for part in parts]

    def steps(self, size: int) -> int:
        """Batches of an epoch."""
        return -(-len(self.links) // size)

    def _others(self, seed: int, epoch: int) -> IntArray:
        """For each link another one of the same image, all with the same probability; itself where there is none."""
        _, start, image, count = np.unique(self.links[:, 0], return_index=True, return_inverse=True, return_counts=True)
        first, many = start[image], count[image]
        ahead = 1 + np.floor(np.random.default_rng([seed, epoch, OTHER]).random(len(image)) * (many - 1)).astype(np.int64)
        return np.asarray(first + (np.arange(len(image)) - first + ahead) % many, dtype=np.int64)

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits of captions and links, and of up to 256 images that are spread over all of them."""
        told = hashlib.sha256("\0".join(self.captions).encode() + self.links.tobytes() + str(len(self.store)).encode())
        seen = self.store.take(np.linspace(0, len(self.store) - 1, min(PROBED, len(self.store))).round().astype(np.int64))
        told.update((seen if isinstance(seen, Tensor) else seen.features).contiguous().numpy().tobytes())
        return told.hexdigest()[:12]

    def first(self, images: int) -> TrainingSet:
        """The first images that have captions, with these."""
        kept = np.unique(self.links[:, 0])[:images]
        return self.only(kept)

    def only(self, images: IntArray) -> TrainingSet:
        """These images with their captions."""
        place = np.full(len(self.store), -1, dtype=np.int64)
        place[images] = np.arange(len(images))
        links = self.links[place[self.links[:, 0]] >= 0]
        captions, caption = np.unique(links[:, 1], return_inverse=True)
        kept = tuple(self.captions[n] for n in captions.tolist())
        return TrainingSet(SomeOf(self.store, images), kept, np.stack([place[links[:, 0]], caption], axis=1))
