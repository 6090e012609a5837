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
class Joined:
    """The images of several stores of one kind, one store after the other.

    >>> both = Joined((PixelStore(np.zeros((2, 4, 4, 3), np.uint8)), PixelStore(np.ones((1, 4, 4, 3), np.uint8))))
    >>> len(both), both.take(np.array([2, 0]))[:, 0, 0, 0].tolist()
    (3, [1, 0])
    """

    stores: tuple[Store, ...]

    def __len__(self) -> int:
        return sum(map(len, self.stores))

    @property
    def dimensions(self) -> int:
        return dimensions_of(self.stores[0])

    def take(self, indices: IntArray) -> Regions | Tensor:
        ends = np.cumsum([len(store) for store in self.stores])
        asked = np.arange(len(self))[np.asarray(indices, dtype=np.int64)]  # refuses what is not there
        home = np.searchsorted(ends, asked, side="right")
        rows = [np.flatnonzero(home == n) for n in range(len(self.stores))]
        begin = ends - [len(store) for store in self.stores]
        used = [n for n, found in enumerate(rows) if len(found)] or [0]
        parts = [self.stores[n].take(asked[rows[n]] - begin[n]) for n in used]
        found: Regions | Tensor = together(parts)[torch.from_numpy(np.argsort(np.concatenate([rows[n] for n in used])))]
        return found


def together(parts: list[Regions | Tensor]) -> Any:
    """Images of one kind, one part after the other; regions are filled up to the most that an image has."""
    if isinstance(parts[0], Tensor):
        return torch.cat([part for part in parts if isinstance(part, Tensor)])
    from crossmatch.models.zoo.inputs import Regions

    some = [part for part in parts if isinstance(part, Regions)]
    most = max(part.real.shape[1] for part in some)

    def filled(name: str) -> Tensor:
        return torch.cat([_wider(getattr(part, name), most) for part in some])

    return Regions(filled("features"), filled("real"), filled("boxes"))


def _wider(values: Tensor, most: int) -> Tensor:
    """(N, K, …) to (N, most, …), with zeros."""
    return torch.cat([values, values.new_zeros(len(values), most - values.shape[1], *values.shape[2:])], dim=1)


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


def probed(store: Store) -> bytes:
    """Up to 256 images of a store, spread over all of them."""
    seen = store.take(np.linspace(0, len(store) - 1, min(PROBED, len(store))).round().astype(np.int64))
    return (seen if isinstance(seen, Tensor) else seen.features).contiguous().numpy().tobytes()


def dimensions_of(store: Store) -> int:
    """Numbers of a region."""
    return int(getattr(store, "dimensions"))  # noqa: B009 - pixels have none, and are never asked


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a batch: numbers of an image, a caption of it, and another caption of it; and those of its hard negative."""

    image: IntArray
    caption: IntArray
    other: IntArray
    hard: IntArray | None = None


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Images, captions, and the links between them.

    `hard` are the hard negatives of the links, where they have some: for each link the number of an image and of a caption. The
    caption is false of the link's image; the image is one of which that caption is said to be true, or -1 for all links.

    >>> pictures = PixelStore(np.zeros((2, 8, 8, 3), np.uint8))
    >>> pets = TrainingSet(pictures, ("a cat", "a dog", "dogs"), np.array([[0, 0], [1, 1], [1, 2]]))
    >>> [rows.caption.tolist() for rows in pets.batches(size=2, seed=0, epoch=0)]
    [[2, 0, 1]]
    """

    store: Store
    captions: tuple[str, ...]
    links: IntArray  # (P, 2): an image and a caption of it
    hard: IntArray | None = None  # (P, 2)

    def __post_init__(self) -> None:
        links = np.asarray(self.links, dtype=np.int64).reshape(-1, 2)
        order = np.lexsort((links[:, 1], links[:, 0]))
        object.__setattr__(self, "links", links[order])
        if self.hard is not None:
            hard = np.asarray(self.hard, dtype=np.int64).reshape(-1, 2)
            self._require_hard(hard)
            object.__setattr__(self, "hard", hard[order])
        shape = len(self.store), len(self.captions)
        if len(links) < 2 or links.min() < 0 or (links.max(axis=0) >= shape).any():
            raise CrossmatchError(
                f"{shape[0]:,} images, {shape[1]:,} captions and {len(links):,} links between them cannot be trained on: two "
                "links at least were expected, each of an image and a caption that are there."
            )

    def _require_hard(self, hard: IntArray) -> None:
        least, most = hard.min(axis=0, initial=0), hard.max(axis=0, initial=-1)
        there = len(self.store), len(self.captions)
        absent = hard[:, 0] < 0
        if len(hard) != len(self.links) or (most >= there).any() or least[1] < 0 or (absent.any() and not (hard[:, 0] == -1).all()):
            raise CrossmatchError(
                f"{len(hard):,} hard negatives for {len(self.links):,} links cannot be trained on: one for each was expected, of "
                "captions that are there, and of images that are there for all of them or for none."
            )

    def batches(self, size: int, seed: int, epoch: int) -> list[Rows]:
        """All links once, in an order that depends on seed and epoch alone; batches of one size, so that none has few negatives."""
        order = np.random.default_rng([seed, epoch, ORDER]).permutation(len(self.links))
        parts = np.array_split(order, self.steps(size))
        others = self.links[self._others(seed, epoch), 1]
        hard = self.hard
        return [
            Rows(self.links[part, 0], self.links[part, 1], others[part], None if hard is None else hard[part]) for part in parts
        ]

    def steps(self, size: int) -> int:
        """Batches of an epoch; none of a single link, which has no negatives, unless that was asked for."""
        return min(-(-len(self.links) // size), len(self.links) // min(size, 2))

    def _others(self, seed: int, epoch: int) -> IntArray:
        """For each link another one of the same image, all with the same probability; itself where there is none."""
        _, start, image, count = np.unique(self.links[:, 0], return_index=True, return_inverse=True, return_counts=True)
        first, many = start[image], count[image]
        ahead = 1 + np.floor(np.random.default_rng([seed, epoch, OTHER]).random(len(image)) * (many - 1)).astype(np.int64)
        return np.asarray(first + (np.arange(len(image)) - first + ahead) % many, dtype=np.int64)

    def known(self, rows: Rows) -> NDArray[np.bool_]:
        """Which pairs of a batch the data say are true, images x texts, the negatives after the others: an image and a text that
        reads as one of its captions, whatever row of which batch says so.

        >>> pictures = PixelStore(np.zeros((2, 8, 8, 3), np.uint8))
        >>> pets = TrainingSet(pictures, ("a cat", "a dog", "dogs", "a dog"), np.array([[0, 0], [1, 1], [1, 2], [0, 3]]))
        >>> pets.known(Rows(np.array([0, 1]), np.array([0, 1]), np.array([3, 2]))).tolist()     # "a dog" is true of both
        [[True, True], [False, True]]
        """
        image, caption = rows.image, rows.caption
        if rows.hard is not None:
            caption = np.concatenate([caption, rows.hard[:, 1]])
            image = np.concatenate([image, rows.hard[:, 0]]) if (rows.hard[:, 0] >= 0).all() else image
        pairs = image[:, None] * len(self.captions) + self._reads[caption]
        place = np.searchsorted(self._true, pairs)
        return np.asarray(self._true[np.minimum(place, len(self._true) - 1)] == pairs)

    @cached_property
    def _reads(self) -> IntArray:
        """For each caption the first one that reads the same."""
        first: dict[str, int] = {}
        return np.asarray([first.setdefault(text, n) for n, text in enumerate(self.captions)], dtype=np.int64)

    @cached_property
    def _true(self) -> IntArray:
        """All pairs that are linked, or are a negative image and its caption, as sorted numbers."""
        pairs = self.links if self.hard is None else np.concatenate([self.links, self.hard[self.hard[:, 0] >= 0]])
        return np.unique(pairs[:, 0] * len(self.captions) + self._reads[pairs[:, 1]])

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits of captions and links, and of up to 256 images that are spread over all of them."""
        told = hashlib.sha256("\0".join(self.captions).encode() + self.links.tobytes() + str(len(self.store)).encode())
        told.update(b"" if self.hard is None else b"hard" + self.hard.tobytes())
        told.update(probed(self.store))
        return told.hexdigest()[:12]

    def first(self, images: int) -> TrainingSet:
        """The first images that have captions, with these."""
        kept = np.unique(self.links[:, 0])[:images]
        return self.only(kept)

    def only(self, images: IntArray) -> TrainingSet:
        """These images with their captions, and the hard negatives of these."""
        chosen = np.isin(self.links[:, 0], images)
        pairs = self.links[chosen] if self.hard is None else np.concatenate([self.links[chosen], self.hard[chosen]])
        more = np.setdiff1d(pairs[:, 0], [*images, -1])
        stored = np.concatenate([images, more])
        place = np.full(len(self.store) + 1, -1, dtype=np.int64)  # the last one is for -1
        place[stored] = np.arange(len(stored))
        captions, caption = np.unique(pairs[:, 1], return_inverse=True)
        kept = tuple(self.captions[n] for n in captions.tolist())
        found = np.stack([place[pairs[:, 0]], caption.ravel()], axis=1)
        links, hard = found[: chosen.sum()], found[chosen.sum() :]
        return TrainingSet(SomeOf(self.store, stored), kept, links, None if self.hard is None else hard)
