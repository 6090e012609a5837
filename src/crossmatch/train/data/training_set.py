"""Training sets and batches: images as regions or pixels, captions, links and hard negatives."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crossmatch.data.arrays import IntArray
from crossmatch.data.errors import CrossmatchError

if TYPE_CHECKING:
    from crossmatch.models.zoo.network_inputs import Regions, Words

HASHED_IMAGES = 256  # evenly spread images that enter the hash of a training set; all captions do
ORDER_STREAM, OTHER_CAPTION_STREAM = range(2)  # separate random streams


# -- image stores


class ImageStore(Protocol):
    """The images of a training set, as network inputs."""

    def __len__(self) -> int: ...

    def take(self, indices: IntArray) -> Regions | Tensor:
        """Return the regions of these images, or their pixels (N, side, side, 3) as bytes."""
        ...


@dataclass(frozen=True, eq=False)
class PixelStore:
    """Images as one array: pixels (N, side, side, 3) as bytes, or embeddings (N, D)."""

    pictures: NDArray[Any]

    def __len__(self) -> int:
        return len(self.pictures)

    def take(self, indices: IntArray) -> Tensor:
        return torch.from_numpy(self.pictures[indices])


@dataclass(frozen=True, eq=False)
class ArrayStore:
    """Region features (N, K, F) as an array, perhaps memory-mapped. A region of zeros is padding; boxes are unknown.

    An image is checked when it is taken: all numbers must be finite, and there must be at least one region. `file` names the array
    in errors; image n is its row n times `every`.
    """

    features: NDArray[Any]
    file: str = "the array of features"
    every: int = 1

    def __len__(self) -> int:
        return len(self.features)

    def take(self, indices: IntArray) -> Regions:
        from crossmatch.models.zoo.network_inputs import Regions

        with np.errstate(over="ignore"):  # numbers beyond single precision become infinite and are refused below
            features = torch.from_numpy(np.asarray(self.features[indices], dtype=np.float32))
        mask = features.ne(0).any(dim=2)
        self._require(torch.isfinite(features).flatten(1).all(dim=1), indices, "NaN or infinity among its features")
        self._require(mask.any(dim=1), indices, "no region: all of its features are 0")
        return Regions(features, mask, torch.zeros(*features.shape[:2], 4))

    def _require(self, is_valid: Tensor, indices: IntArray, problem: str) -> None:
        if not bool(is_valid.all()):
            row = int(np.arange(len(self))[indices][int(is_valid.logical_not().int().argmax())]) * self.every
            raise CrossmatchError(f"{self.file}: image {row:,} (counted from 0) has {problem}. Extract its features again.")


@dataclass(frozen=True, eq=False)
class JoinedStore:
    """The images of several stores of the same kind, concatenated.

    >>> joined = JoinedStore((PixelStore(np.zeros((2, 4, 4, 3), np.uint8)), PixelStore(np.ones((1, 4, 4, 3), np.uint8))))
    >>> len(joined), joined.take(np.array([2, 0]))[:, 0, 0, 0].tolist()
    (3, [1, 0])
    """

    stores: tuple[ImageStore, ...]

    def __len__(self) -> int:
        return sum(map(len, self.stores))

    def take(self, indices: IntArray) -> Regions | Tensor:
        ends = np.cumsum([len(store) for store in self.stores])
        numbers = np.arange(len(self))[np.asarray(indices, dtype=np.int64)]  # raises an error for an index out of range
        store_of = np.searchsorted(ends, numbers, side="right")
        rows = [np.flatnonzero(store_of == n) for n in range(len(self.stores))]
        begin = ends - [len(store) for store in self.stores]
        used = [n for n, own_rows in enumerate(rows) if len(own_rows)] or [0]
        parts = [self.stores[n].take(numbers[rows[n]] - begin[n]) for n in used]
        order = torch.from_numpy(np.argsort(np.concatenate([rows[n] for n in used])))
        images: Regions | Tensor = concatenate_images(parts)[order]
        return images


def concatenate_images(parts: list[Regions | Tensor]) -> Any:
    """Concatenate images of the same kind; regions are padded to the largest number of an image."""
    if isinstance(parts[0], Tensor):
        return torch.cat([part for part in parts if isinstance(part, Tensor)])
    from crossmatch.models.zoo.network_inputs import Regions

    regions = [part for part in parts if isinstance(part, Regions)]
    most = max(part.mask.shape[1] for part in regions)

    def concatenate(name: str) -> Tensor:
        return torch.cat([_pad(getattr(part, name), most) for part in regions])

    return Regions(concatenate("features"), concatenate("mask"), concatenate("boxes"))


def _pad(values: Tensor, most: int) -> Tensor:
    """(N, K, …) to (N, most, …), with zeros."""
    return torch.cat([values, values.new_zeros(len(values), most - values.shape[1], *values.shape[2:])], dim=1)


@dataclass(frozen=True, eq=False)
class StoreSubset:
    """Some images of a store, in their own order."""

    store: ImageStore
    images: IntArray

    def __len__(self) -> int:
        return len(self.images)

    def take(self, indices: IntArray) -> Regions | Tensor:
        return self.store.take(self.images[indices])


def sample_bytes(store: ImageStore) -> bytes:
    """The content of up to 256 evenly spread images of a store, for a hash."""
    images = store.take(np.linspace(0, len(store) - 1, min(HASHED_IMAGES, len(store))).round().astype(np.int64))
    return (images if isinstance(images, Tensor) else images.features).contiguous().numpy().tobytes()


def feature_dimensions(store: ImageStore) -> int:
    """Length of a region's feature vector. Not defined for pixels."""
    images = store.take(np.array([0]))
    assert not isinstance(images, Tensor)
    return images.features.shape[2]


# -- batches


@dataclass(frozen=True, eq=False)
class HardNegatives:
    """The hard negatives of a batch, row by row: a caption that is almost true of the row's image, but false.

    If there are negative images, that of a row is an image of its negative caption.
    """

    words: Words
    regions: Regions | None = None
    image: Tensor | None = None  # (B,) int64: numbers of the negative images, counted like the other images


@dataclass(frozen=True, eq=False)
class TrainingBatch:
    """B pairs of an image and its caption; row n of all fields belongs together.

    An image may occur twice, with two of its captions. For a network with its own `read_all`, `words` contains its result instead
    of `Words`.
    """

    regions: Regions
    words: Words
    image: Tensor  # (B,) int64: number of each row's image
    others: Words | None = None  # another caption of each row's image; the same caption if there is no other
    negatives: HardNegatives | None = None
    true_pairs: Tensor | None = None  # (images, texts), negatives last: pairs that the data say are true

    def __len__(self) -> int:
        return len(self.image)


@dataclass(frozen=True, eq=False)
class BatchRows:
    """Numbers of the images, captions and other captions of a batch, and of its hard negatives (image and caption)."""

    image: IntArray
    caption: IntArray
    other: IntArray
    hard: IntArray | None = None


# -- the training set


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Images, captions, and the links between them.

    `hard` (P, 2) contains the hard negative of each link: the number of an image and of a caption. The caption is false of the
    link's image; the image is one of which that caption is true, or -1 for all links.

    >>> pictures = PixelStore(np.zeros((2, 8, 8, 3), np.uint8))
    >>> pets = TrainingSet(pictures, ("a cat", "a dog", "dogs"), np.array([[0, 0], [1, 1], [1, 2]]))
    >>> [rows.caption.tolist() for rows in pets.batches(size=2, seed=0, epoch=0)]
    [[2, 0, 1]]
    """

    store: ImageStore
    captions: tuple[str, ...]
    links: IntArray  # (P, 2): an image and its caption
    hard: IntArray | None = None  # (P, 2)

    def __post_init__(self) -> None:
        links = np.asarray(self.links, dtype=np.int64).reshape(-1, 2)
        order = np.lexsort((links[:, 1], links[:, 0]))
        object.__setattr__(self, "links", links[order])
        if self.hard is not None:
            hard = np.asarray(self.hard, dtype=np.int64).reshape(-1, 2)
            self._require_valid_negatives(hard)
            object.__setattr__(self, "hard", hard[order])
        shape = len(self.store), len(self.captions)
        if len(links) < 2 or links.min() < 0 or (links.max(axis=0) >= shape).any():
            raise CrossmatchError(
                f"Cannot train on {shape[0]:,} images, {shape[1]:,} captions and {len(links):,} links: there must be at least two "
                "links, each between an existing image and an existing caption."
            )

    def _require_valid_negatives(self, hard: IntArray) -> None:
        least, most = hard.min(axis=0, initial=0), hard.max(axis=0, initial=-1)
        shape = len(self.store), len(self.captions)
        is_absent = hard[:, 0] < 0
        has_partial_images = is_absent.any() and not (hard[:, 0] == -1).all()
        if len(hard) != len(self.links) or (most >= shape).any() or least[1] < 0 or has_partial_images:
            raise CrossmatchError(
                f"Cannot train with {len(hard):,} hard negatives for {len(self.links):,} links: each link needs one, with an "
                "existing caption, and with an existing image for all links or for none."
            )

    def batches(self, size: int, seed: int, epoch: int) -> list[BatchRows]:
        """Shuffle the links by seed and epoch and split them into batches of (almost) equal size."""
        order = np.random.default_rng([seed, epoch, ORDER_STREAM]).permutation(len(self.links))
        parts = np.array_split(order, self.steps(size))
        others = self.links[self._other_captions(seed, epoch), 1]
        hard = self.hard
        return [
            BatchRows(self.links[part, 0], self.links[part, 1], others[part], None if hard is None else hard[part])
            for part in parts
        ]

    def steps(self, size: int) -> int:
        """Batches per epoch. No batch has a single link, which would have no negatives, unless `size` is 1."""
        return min(-(-len(self.links) // size), len(self.links) // min(size, 2))

    def _other_captions(self, seed: int, epoch: int) -> IntArray:
        """For each link a random other link of the same image; the link itself without another one."""
        _, start, image, count = np.unique(self.links[:, 0], return_index=True, return_inverse=True, return_counts=True)
        first, captions = start[image], count[image]
        random = np.random.default_rng([seed, epoch, OTHER_CAPTION_STREAM]).random(len(image))
        offset = 1 + np.floor(random * (captions - 1)).astype(np.int64)
        return np.asarray(first + (np.arange(len(image)) - first + offset) % captions, dtype=np.int64)

    def find_true_pairs(self, rows: BatchRows) -> NDArray[np.bool_]:
        """Which pairs of a batch are true according to the data: (images, texts), negatives last.

        A pair is true if the text equals one of the image's captions in the whole training set.

        >>> pictures = PixelStore(np.zeros((2, 8, 8, 3), np.uint8))
        >>> pets = TrainingSet(pictures, ("a cat", "a dog", "dogs", "a dog"), np.array([[0, 0], [1, 1], [1, 2], [0, 3]]))
        >>> pets.find_true_pairs(BatchRows(np.array([0, 1]), np.array([0, 1]), np.array([3, 2]))).tolist()     # "a dog" is true of both
        [[True, True], [False, True]]
        """
        image, caption = rows.image, rows.caption
        if rows.hard is not None:
            caption = np.concatenate([caption, rows.hard[:, 1]])
            image = np.concatenate([image, rows.hard[:, 0]]) if (rows.hard[:, 0] >= 0).all() else image
        pairs = image[:, None] * len(self.captions) + self._first_equal_caption[caption]
        position = np.searchsorted(self._true_pairs, pairs)
        return np.asarray(self._true_pairs[np.minimum(position, len(self._true_pairs) - 1)] == pairs)

    @cached_property
    def _first_equal_caption(self) -> IntArray:
        """For each caption the number of the first caption with the same text."""
        first: dict[str, int] = {}
        return np.asarray([first.setdefault(text, n) for n, text in enumerate(self.captions)], dtype=np.int64)

    @cached_property
    def _true_pairs(self) -> IntArray:
        """All links and all negative images with their captions, as sorted numbers."""
        pairs = self.links if self.hard is None else np.concatenate([self.links, self.hard[self.hard[:, 0] >= 0]])
        return np.unique(pairs[:, 0] * len(self.captions) + self._first_equal_caption[pairs[:, 1]])

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits of captions, links, and up to 256 evenly spread images."""
        digest = hashlib.sha256("\0".join(self.captions).encode() + self.links.tobytes() + str(len(self.store)).encode())
        digest.update(b"" if self.hard is None else b"hard" + self.hard.tobytes())
        digest.update(sample_bytes(self.store))
        return digest.hexdigest()[:12]

    def only(self, images: IntArray) -> TrainingSet:
        """These images with their captions and hard negatives."""
        is_selected = np.isin(self.links[:, 0], images)
        pairs = self.links[is_selected]
        if self.hard is not None:
            pairs = np.concatenate([pairs, self.hard[is_selected]])
        stored = np.concatenate([images, np.setdiff1d(pairs[:, 0], [*images, -1])])
        position = np.full(len(self.store) + 1, -1, dtype=np.int64)  # the last entry is for -1
        position[stored] = np.arange(len(stored))
        captions, caption = np.unique(pairs[:, 1], return_inverse=True)
        texts = tuple(self.captions[n] for n in captions.tolist())
        renumbered = np.stack([position[pairs[:, 0]], caption.ravel()], axis=1)
        links, hard = renumbered[: is_selected.sum()], renumbered[is_selected.sum() :]
        return TrainingSet(StoreSubset(self.store, stored), texts, links, None if self.hard is None else hard)
