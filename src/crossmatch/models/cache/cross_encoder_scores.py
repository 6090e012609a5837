"""Score matrices of cross encoders, computed and cached in blocks: an interrupted run resumes, a rerun costs nothing.

A cross encoder scores every image with every caption: 125 million pairs for COCO 5K. They are scored in blocks of some images by
some captions, so that each image is opened once, and every block is written as soon as it is computed. The key of the cache entry
is a hash of everything that the scores depend on: the model's signature, ids, texts, images and the block size (a model may round
differently in another batch). Items are scored in the order of their ids, so that all benchmarks on a collection share its
scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.data.arrays import IntArray
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.image_loading import hash_image, load_image
from crossmatch.data.io.progress import track
from crossmatch.data.scores import Matrix
from crossmatch.models.cache.blocks import content_key
from crossmatch.models.cache.store import Cache, CacheEntry
from crossmatch.models.distinct_items import require_images
from crossmatch.models.model_outputs import as_scores
from crossmatch.ranking.counts_at_k import allocate_array

BATCH = 128
CAPTIONS_PER_IMAGE = 8  # in a block: texts are smaller than images
PROBED_IMAGES = 16  # whose pixels identify a collection
KIND = "scores"


@dataclass(frozen=True)
class ScoreBlock:
    """Some images by some captions: scored in one call and stored in one file."""

    images: range
    captions: range

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.images), len(self.captions)

    @property
    def name(self) -> str:
        return f"{self.images.start:07d}-{self.captions.start:07d}"


def split_into_blocks(shape: tuple[int, int], batch: int) -> list[ScoreBlock]:
    """Split a matrix into blocks, all blocks of the same images one after another.

    >>> [(b.images, b.captions) for b in split_into_blocks((3, 20), batch=2)]
    [(range(0, 2), range(0, 16)), (range(0, 2), range(16, 20)), (range(2, 3), range(0, 16)), (range(2, 3), range(16, 20))]
    """
    steps = (batch, CAPTIONS_PER_IMAGE * batch)
    cuts = ([range(at, min(at + step, n)) for at in range(0, n, step)] for n, step in zip(shape, steps, strict=True))
    return [ScoreBlock(*ranges) for ranges in product(*cuts)]


def score_matrix(
    score: Callable[..., ArrayLike],
    collection: Collection,
    *,
    batch: int = BATCH,
    cache: Cache | None = None,
    system: str | None = None,
) -> Matrix:
    """Score every image with every caption, in float32, or in float64 if any block needs it.

    Args:
        score: `score(images, texts)`, which returns an array of shape (images, texts).
        batch: Images per block; a block has eight times as many captions.
        system: Signature of the model. It must change whenever the scores could: weights, preprocessing, precision. The scores of
            a model without a signature are not cached, because those of a changed model could not be told apart.

    >>> pets = Collection.from_captions({"cat": ["A cat.", "One cat."], "dog": ["A dog."]}, open_image=str)
    >>> def score(images, texts):
    ...     print("scoring")
    ...     return [[float(image in text) for text in texts] for image in images]
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for _ in range(2):
    ...         score_matrix(score, pets, cache=Cache(Path(folder)), system="finds words|v1").values
    scoring
    array([[1., 1., 0.], [0., 0., 1.]])
    array([[1., 1., 0.], [0., 0., 1.]])
    """
    image_order, caption_order = (np.argsort(collection.ids(side), kind="stable") for side in ("image", "caption"))
    ordered = collection.select(image_order, caption_order)  # the order of items changes neither scores nor key
    texts = ordered.texts()
    open_images = lru_cache(maxsize=1)(lambda which: _open_images(ordered, which))  # those of one image block
    blocks = split_into_blocks(collection.shape, batch)
    require_images(collection)
    values: NDArray[Any] | None = None
    with open_score_blocks(cache, system, ordered, batch, len(blocks)) as stored:
        for block in track(blocks, "scoring"):
            scores = stored.get(block) if stored else None
            if scores is None:
                scores = _check_scores(score(open_images(block.images), [texts[n] for n in block.captions]), block, ordered)
                if stored:
                    stored.put(block, scores)
            values = _allocate(values, scores.dtype, collection.shape)
            values[_block_index(image_order[block.images], caption_order[block.captions])] = scores
    assert values is not None  # a collection is never empty
    return Matrix(collection.image_ids, collection.caption_ids, values)


def _open_images(collection: Collection, which: range) -> list[Any]:
    opener = collection.image_opener()
    return [load_image(opener, name) for name in collection.image_ids[which.start : which.stop].tolist()]


def _block_index(images: IntArray, captions: IntArray) -> Any:
    """Return the index of a block in the matrix: slices, which are much faster, where its items are adjacent."""
    if all((np.diff(positions) == 1).all() for positions in (images, captions)):
        return slice(images[0], images[-1] + 1), slice(captions[0], captions[-1] + 1)
    return np.ix_(images, captions)


def _check_scores(values: ArrayLike, block: ScoreBlock, collection: Collection) -> NDArray[Any]:
    """Return the scores of a block as float32 or float64; NaN and infinity are errors."""
    scores = as_scores(values, block.shape, "score(images, texts)")
    with np.errstate(over="ignore"):  # a long double may become infinite, which is an error below
        scores = scores.astype("<f4" if np.can_cast(scores.dtype, np.float32, "safe") else "<f8")
    is_bad = ~np.isfinite(scores)
    if is_bad.any():
        row, column = (int(n) for n in np.argwhere(is_bad)[0])
        image, caption = collection.image_ids[block.images[row]], collection.caption_ids[block.captions[column]]
        raise CrossmatchError(
            f"score(images, texts) returned {scores[row, column]} for image {str(image)!r} with caption {str(caption)!r}; "
            f"{is_bad.sum():,} of {is_bad.size:,} scores in this call are NaN or infinite, and none of them is cached. Look for a "
            "division by zero or an overflow in the model."
        )
    return scores


def _allocate(values: NDArray[Any] | None, dtype: np.dtype[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Return the matrix so far, in at least this dtype."""
    if values is not None and values.dtype.itemsize >= dtype.itemsize:
        return values
    wider = allocate_array(shape, dtype)
    if values is not None:
        wider[:] = values
    return wider


# -- the cache entry


def score_key(system: str, collection: Collection, batch: int, *facts: object) -> str:
    """Return a key that changes with the model, ids, texts, images, block size and any further facts.

    Images are identified by `open_image.identity(id)` if the collection's opener has that method (a file's size and time, say). If
    not, the pixels of `PROBED_IMAGES` images, spread evenly, identify all: another folder of images is noticed, one retouched image
    may not be.
    """
    ids = collection.image_ids.tolist(), collection.caption_ids.tolist()
    return content_key(KIND, batch, CAPTIONS_PER_IMAGE, system, *ids, collection.texts(), _identify_images(collection), *facts)


def _identify_images(collection: Collection) -> list[str]:
    identity = getattr(collection.open_image, "identity", None)
    if identity is not None:
        return [str(identity(name)) for name in collection.image_ids.tolist()]
    n = collection.shape[0]
    probes = sorted({step * (n - 1) // (PROBED_IMAGES - 1) for step in range(PROBED_IMAGES)})
    hashes = []
    for image in collection.open_images(probes):
        digest = hash_image(image)
        if digest is None:
            raise CrossmatchError(
                f"cannot cache scores: images of type {type(image).__name__} cannot be told apart. Give the collection's open_image "
                "a method identity(id), or use --no-cache."
            )
        hashes.append(digest.hex())
    return hashes


@dataclass(frozen=True)
class CachedScores:
    """The blocks of one score matrix in the cache."""

    entry: CacheEntry
    blocks: int

    def get(self, block: ScoreBlock) -> NDArray[Any] | None:
        """Return the scores of a block; None if this process must compute them. The first miss locks the entry."""
        arrays = self.entry.read(block.name)
        if arrays is None and not self.entry.is_locked:
            self.entry.lock()
            if stored := len(self.entry.blocks()):
                self.entry.notify(f"reusing {stored:,} of {self.blocks:,} blocks of scores in {self.entry.folder}")
            arrays = self.entry.read(block.name)  # another process may have written it while this one waited
        if arrays is None and self.entry.path(block.name).exists():
            self.entry.report_damage(block.name)
        return None if arrays is None else arrays["scores"]

    def put(self, block: ScoreBlock, scores: NDArray[Any]) -> None:
        self.entry.write(block.name, {"scores": scores})


@contextmanager
def open_score_blocks(
    cache: Cache | None, system: str | None, collection: Collection, batch: int, blocks: int, *facts: object
) -> Iterator[CachedScores | None]:
    """Open the cache entry of scores in a number of blocks; None if they are not to be cached. They also depend on `facts`."""
    if cache is None or not isinstance(system, str) or not system.strip():
        if cache is not None:
            cache.notify_unsigned(KIND)
        yield None
        return
    images, captions = collection.shape
    key = score_key(system, collection, batch, *facts)
    entry = cache.entry(KIND, key, system, images=images, captions=captions, batch=batch, blocks=blocks)
    try:
        yield CachedScores(entry, blocks)
        if not entry.is_locked:
            cache.notify(f"reusing all {blocks:,} blocks of scores in {entry.folder}")
    finally:
        entry.close()
