"""Scores of a slow model, kept on disk block by block: a run that was stopped goes on where it stopped, a rerun costs nothing.

A cross encoder looks at every image together with every caption, which for COCO 5K are 125 million pairs. They are scored in
blocks of some images by some captions, image block after image block so that each picture is opened once, and every block is
kept as soon as it is there (`shelf`). Blocks are found again by a key, a hash of all that the numbers depend on: the model's
signature, the ids and texts, the pictures, the blocks themselves (a model may answer differently in another batch) and the format.
Items are scored in the order of their ids, so that neither scores nor key depend on the order in which a benchmark has them, and
all benchmarks on one collection share its scores.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch import __version__
from crossmatch.core.arrays import IntArray
from crossmatch.core.collection import Collection
from crossmatch.core.cuts import room
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.pictures import fingerprint, opened
from crossmatch.core.places import cache_folder
from crossmatch.core.progress import track
from crossmatch.core.scores import Matrix
from crossmatch.models.shelf import DTYPES, FORMAT, Block, Shelf

BATCH = 128
WIDER = 8  # a block has so many captions for each image: texts are smaller than pictures
NARROW = ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2")  # which NumPy does not have
PROBES = 16  # pictures that are looked at to know the collection again


def _silent(line: str) -> None:
    pass


@dataclass(frozen=True)
class ScoreCache:
    """Where scores of cross encoders and embeddings (`embedding_cache`) are kept, and who is told about it, a line at a time."""

    folder: Path
    tell: Callable[[str], object] = field(default=_silent, repr=False)


def default_folder() -> Path:
    """`crossmatch/scores` in the user's cache folder.

    Not beside the results, because scores do not depend on where results go; nor in `$CROSSMATCH_DATA`, which several people may
    share and nobody may write to.
    """
    return cache_folder() / "scores"


def blocks_of(shape: tuple[int, int], batch: int) -> list[Block]:
    """All blocks, image block after image block.

    >>> [(b.images, b.captions) for b in blocks_of((3, 20), batch=2)]
    [(range(0, 2), range(0, 16)), (range(0, 2), range(16, 20)), (range(2, 3), range(0, 16)), (range(2, 3), range(16, 20))]
    """
    steps = (batch, WIDER * batch)
    cuts = ([range(at, min(at + step, n)) for at in range(0, n, step)] for n, step in zip(shape, steps, strict=True))
    return [Block(*parts) for parts in product(*cuts)]


def cached_matrix(
    score: Callable[..., ArrayLike],
    collection: Collection,
    *,
    batch: int = BATCH,
    cache: ScoreCache | None = None,
    system: str | None = None,
) -> Matrix:
    """The score of every image with every caption, in float32, or in float64 where any block needs it.

    With a `cache`, blocks that are already there are not scored, and new ones are kept. `system` is the model's signature, which
    must change whenever its scores could (weights, preprocessing, precision). A model without one is not cached: under a mere
    name, the scores of a changed model would be taken for those of the old one.

    >>> pets = Collection.of({"cat": ["A cat.", "One cat."], "dog": ["A dog."]}, open_image=str)
    >>> def score(images, texts):
    ...     print("scoring")
    ...     return [[float(image in text) for text in texts] for image in images]
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for _ in range(2):
    ...         cached_matrix(score, pets, cache=ScoreCache(Path(folder)), system="finds words|v1").values
    scoring
    array([[1., 1., 0.], [0., 0., 1.]])
    array([[1., 1., 0.], [0., 0., 1.]])
    """
    image_order, caption_order = (np.argsort(collection.ids(side), kind="stable") for side in ("image", "caption"))
    sorted_ = collection.reordered(image_order, caption_order)  # the order of items changes neither scores nor key
    texts = sorted_.texts()
    pictures = lru_cache(maxsize=1)(lambda which: _pictures(sorted_, which))  # those of one image block
    blocks = blocks_of(collection.shape, batch)
    require_pictures(collection)
    values: NDArray[Any] | None = None
    with kept_scores(cache, system, sorted_, (), batch, len(blocks)) as shelf:
        for block in track(blocks, "scoring"):
            part = shelf.find(block) if shelf else None
            if part is None:
                part = _checked(score(pictures(block.images), [texts[n] for n in block.captions]), block, sorted_)
                if shelf:
                    shelf.keep(block, part)
            values = _wide_enough(values, part.dtype, collection.shape)
            values[_place(image_order[block.images], caption_order[block.captions])] = part
    assert values is not None  # a collection is never empty
    return Matrix(collection.image_ids, collection.caption_ids, values)


def _pictures(collection: Collection, which: range) -> list[Any]:
    if collection.open_image is None:
        return collection.images(which)  # says what is missing
    return [opened(collection.open_image, name) for name in collection.image_ids[which.start : which.stop].tolist()]


def require_pictures(collection: Collection) -> None:
    """Refuse to begin where some of the pictures are known not to be there."""
    find = getattr(collection.open_image, "absent", None)
    absent: list[str] = find(collection.image_ids.tolist()) if find else []
    if absent:
        raise CrossmatchError(
            f"{len(absent):,} of {collection.shape[0]:,} pictures are missing; the first is of image {absent[0]!r}. Put them there "
            "(for a public benchmark `crossmatch data list` says how), or give precomputed scores: -m precomputed:FILE"
        )


def _place(images: IntArray, captions: IntArray) -> Any:
    """The index of a block in the matrix: two slices, which are twenty times as fast, where its items stand side by side."""
    if all((np.diff(at) == 1).all() for at in (images, captions)):
        return slice(images[0], images[-1] + 1), slice(captions[0], captions[-1] + 1)
    return np.ix_(images, captions)


def as_array(values: ArrayLike, label: str) -> NDArray[Any]:
    """What a model gave as an array, a tensor of PyTorch too; rows of unequal length are refused."""
    try:
        return np.asarray(_without_graph(values))
    except ValueError:
        raise CrossmatchError(f"{label}: the rows differ in length. Give an array with as many numbers in each.") from None
    except (TypeError, RuntimeError) as error:  # a sparse tensor, say
        said = (str(error).splitlines() or [""])[0]
        raise CrossmatchError(
            f"{label}: a {type(values).__name__} is no array ({said:.120}). Give a NumPy array, or rows of numbers."
        ) from error


def _without_graph(values: Any) -> Any:
    """A tensor, or a list of them, as NumPy takes it: without its gradient, off the GPU, and no narrower than NumPy knows."""
    if isinstance(values, list | tuple) and values and hasattr(values[0], "detach"):
        return [_without_graph(each) for each in values]
    if not hasattr(values, "detach"):
        return values
    plain = values.detach().cpu()
    return plain.float() if str(plain.dtype) in NARROW else plain


def _checked(given: ArrayLike, block: Block, collection: Collection) -> NDArray[Any]:
    """The scores of a block in float32 or float64, all finite."""
    part = as_array(given, "scoring")
    if part.shape != block.shape:
        raise CrossmatchError(f"score(images, texts) gave shape {part.shape}; {block.shape} (images x texts) was expected.")
    if part.dtype.kind not in "fiub":
        raise CrossmatchError(f"score(images, texts) gave {part.dtype}; real numbers were expected.")
    with np.errstate(over="ignore"):  # a long double may become infinite here, and is refused below
        part = part.astype(DTYPES[not np.can_cast(part.dtype, np.float32, "safe")])
    bad = ~np.isfinite(part)
    if bad.any():
        row, column = (int(n) for n in np.argwhere(bad)[0])
        image, caption = collection.image_ids[block.images[row]], collection.caption_ids[block.captions[column]]
        raise CrossmatchError(
            f"score(images, texts) gave {part[row, column]} for image {str(image)!r} with caption {str(caption)!r}; {bad.sum():,} "
            f"of {bad.size:,} scores in this call are NaN or infinite, and none of them is kept. Look for a division by zero or an "
            "overflow in the model."
        )
    return part


def _wide_enough(values: NDArray[Any] | None, dtype: np.dtype[Any], shape: tuple[int, int]) -> NDArray[Any]:
    """Room for the whole matrix in this dtype at least, with what was there."""
    if values is not None and values.dtype.itemsize >= dtype.itemsize:
        return values
    wider = room(shape, dtype)
    if values is not None:
        wider[:] = values
    return wider


# The key


def cache_key(system: str, collection: Collection, batch: int, *more: object) -> str:
    """A name that changes with the model, the ids, the texts, the pictures, the blocks, the format and whatever more is given.

    Pictures are known by `open_image.identity(id)` where the collection's opener has it (a file's size and time, say); else by
    the pixels of `PROBES` of them, spread evenly: another folder of pictures is noticed, one retouched picture may not be.
    """
    facts: tuple[Sequence[object], ...] = (
        ["crossmatch scores", FORMAT, batch, WIDER],
        [system],
        collection.image_ids.tolist(),
        collection.caption_ids.tolist(),
        collection.texts(),
        _identities(collection),
        *((list(more),) if more else ()),
    )
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _identities(collection: Collection) -> list[str]:
    identity = getattr(collection.open_image, "identity", None)
    if identity is not None:
        return [str(identity(name)) for name in collection.image_ids.tolist()]
    n = collection.shape[0]
    return [_fingerprint(collection.images([at])[0]) for at in sorted({step * (n - 1) // (PROBES - 1) for step in range(PROBES)})]


def _fingerprint(picture: Any) -> str:
    """A hash of the pixels, or of whatever the collection opens instead of a picture."""
    found = fingerprint(picture)
    if found is None:
        raise CrossmatchError(
            f"pictures of type {type(picture).__name__} cannot be told apart, so scores of them cannot be kept. Give the "
            "collection's open_image a function identity(id), or do without: --no-cache."
        )
    return found.hex()


@contextmanager
def kept_scores(
    cache: ScoreCache | None, system: str | None, collection: Collection, facts: Iterable[object], batch: int, blocks: int
) -> Iterator[Shelf | None]:
    """The shelf for these scores, or nothing where they are not to be kept. `facts` is what else the scores depend on."""
    if cache is None:
        yield None
        return
    if not isinstance(system, str) or not system.strip():
        cache.tell(
            "scores are not kept: the model has no signature to know it by. Give it one that changes with its weights: "
            'signature = "mine-1"'
        )
        yield None
        return
    key = cache_key(system, collection, batch, *facts)
    images, captions = collection.shape
    about: dict[str, object] = {
        "format": FORMAT, "version": __version__, "key": key, "system": system, "images": images, "captions": captions,
        "batch": batch, "blocks": blocks,
    }  # fmt: skip
    shelf = Shelf(cache.folder / key, key, about, cache.tell)
    try:
        yield shelf
        if shelf.lock is None:
            cache.tell(f"nothing had to be scored: all {blocks:,} blocks of scores are in {shelf.folder}")
    finally:
        shelf.close()
