"""From items to vectors: while the model computes one batch, other threads open and prepare the next ones.

Items are split into batches by their order alone. Of each batch the model is given the items that are not cached, and of equal
items only the first: in two batches the same image could get vectors that differ in the last bits, and rounding would break a
tie. So neither threads nor cache change a batch, and an interrupted run resumes with exactly the batches that are missing.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.image_loading import UnreadableImageError, hash_image, load_image
from crossmatch.data.io.paths import available_cores
from crossmatch.data.io.progress import track
from crossmatch.models.abilities import ImageEncoder, TextEncoder
from crossmatch.models.cache.embeddings import HASH_SIZE, EmbeddingCache, Row, text_key
from crossmatch.models.model_outputs import as_vectors

MAX_WORKERS = 8
IMAGES_PER_CHECK = 64  # images that one thread opens in one go to check them

T = TypeVar("T")
S = TypeVar("S")


def prefetch(work: Callable[[T], S], items: Sequence[T], workers: int) -> Iterator[S]:
    """Yield `work(item)` for each item in order, computed ahead by threads.

    At most `workers + 1` results wait at a time. An exception is raised at the place of its item. With 0 workers, each result is
    computed when it is requested.

    >>> list(prefetch(lambda n: n * n, [3, 1, 2], workers=2))
    [9, 1, 4]
    """
    if workers < 1:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="crossmatch-prefetch")
    remaining = iter(items)
    waiting: deque[Future[S]] = deque(pool.submit(work, item) for item in islice(remaining, workers + 1))
    try:
        while waiting:
            result = waiting.popleft().result()
            waiting.extend(pool.submit(work, item) for item in islice(remaining, 1))
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def default_workers(opener: object) -> int:
    """Return how many threads open images: 1, or more if the opener sets `concurrent = True` and there are cores."""
    return min(MAX_WORKERS, max(1, available_cores() - 1)) if getattr(opener, "concurrent", False) else 1


@dataclass(frozen=True, eq=False)
class ItemBatch:
    """Some items: their keys, the vectors that are cached, and the model's input for the rest."""

    items: range
    keys: list[bytes]
    cached: dict[bytes, Row]
    missing: list[int]  # positions of the items that the model must embed
    inputs: Any = None


def embed_images_of(
    model: ImageEncoder, collection: Collection, *, batch: int, workers: int | None = None, cache: EmbeddingCache | None = None
) -> NDArray[Any]:
    """Embed the images of a collection, `batch` per call of the model: one row per image. Equal images get equal vectors.

    `workers` threads open and prepare images; by default as many as the machine and the opener allow.

    >>> class Mean:
    ...     def embed_images(self, images):
    ...         print(len(images), "images")
    ...         return [[image.mean(), 1.0] for image in images]
    >>> grey = {"a": np.full((2, 2), 3.0), "b": np.zeros((2, 2)), "c": np.full((2, 2), 3.0)}
    >>> embed_images_of(Mean(), Collection.from_captions({name: [name] for name in grey}, grey.get), batch=8)
    2 images
    array([[3., 1.], [0., 1.], [3., 1.]])
    """
    n, ids = collection.shape[0], collection.image_ids.tolist()
    opener = collection.image_opener()
    prepare, embed = getattr(model, "prepare_images", None), getattr(model, "embed_prepared", None)
    if prepare is None or embed is None:
        prepare, embed = (lambda images: images), model.embed_images
    content = getattr(opener, "content", None)

    def make_batch(items: range) -> ItemBatch:
        images: dict[int, Any] = {}
        keys = []
        for item in items:
            key = _file_key(content, ids[item]) if content else None
            if key is None:
                images[item] = load_image(opener, ids[item])
                digest = hash_image(images[item])
                key = digest and hashlib.sha256(b"pixels\0" + digest).digest()
            keys.append(b"number %d" % item if key is None else key)  # an image that cannot be hashed is embedded by itself
        cached, missing = _find_missing(items, keys, cache)
        opened = [images[item] if item in images else load_image(opener, ids[item]) for item in missing]
        try:
            return ItemBatch(items, keys, cached, missing, prepare(opened) if opened else None)
        except Exception as error:
            error.add_note(f"while preparing the images {ids[missing[0]]!r} to {ids[missing[-1]]!r}")
            raise

    threads = default_workers(opener) if workers is None else workers
    return _embed_batches(
        make_batch, lambda b: embed(b.inputs), n, batch, threads, cache, "images", lambda item: f"image {ids[item]!r}"
    )


def embed_texts_of(model: TextEncoder, texts: Sequence[str], *, batch: int, cache: EmbeddingCache | None = None) -> NDArray[Any]:
    """Embed distinct texts, `batch` per call of the model: one row per text."""

    def make_batch(items: range) -> ItemBatch:
        keys = [text_key(texts[item]) for item in items]
        cached, missing = _find_missing(items, keys, cache)
        return ItemBatch(items, keys, cached, missing, [texts[item] for item in missing])

    def describe(item: int) -> str:
        return f"text {texts[item]!r:.80}"

    return _embed_batches(make_batch, lambda b: model.embed_texts(b.inputs), len(texts), batch, 0, cache, "captions", describe)


def _file_key(content: Callable[[str], bytes], image: str) -> bytes:
    try:
        return hashlib.sha256(b"file\0" + content(image)).digest()  # the prefix tells it from the hash of a text
    except CrossmatchError as error:
        raise UnreadableImageError(image, str(error)) from error


def _find_missing(items: range, keys: list[bytes], cache: EmbeddingCache | None) -> tuple[dict[bytes, Row], list[int]]:
    """Return the cached vectors, and the first item of each key that is not cached."""
    cached = cache.get(dict.fromkeys(keys)) if cache else {}
    first = {key: item for item, key in zip(reversed(items), reversed(keys), strict=True)}
    return cached, sorted(item for key, item in first.items() if key not in cached)


def _embed_batches(
    make_batch: Callable[[range], ItemBatch],
    embed: Callable[[ItemBatch], ArrayLike],
    n: int,
    batch_size: int,
    workers: int,
    cache: EmbeddingCache | None,
    items_name: str,
    describe: Callable[[int], str],
) -> NDArray[Any]:
    """Embed batch after batch; each is cached as soon as it is computed. `items_name` is "images" or "captions"."""
    label = f"embedding {items_name}"
    cuts = [range(start, min(start + batch_size, n)) for start in range(0, n, batch_size)]
    rows: dict[bytes, Row] = {}
    keys: list[bytes] = []
    reused, width = 0, 0
    for batch in track(prefetch(make_batch, cuts, workers), label, len(cuts)):
        computed: dict[bytes, Row] = {}
        if batch.missing:
            missing_keys = [batch.keys[item - batch.items.start] for item in batch.missing]
            computed = dict(zip(missing_keys, _check_vectors(embed(batch), batch.missing, label, describe), strict=True))
        for row in (*batch.cached.values(), *computed.values()):
            width = width or len(row)
            if len(row) != width:
                raise CrossmatchError(
                    f"{label}: one batch has {width} dimensions and another {len(row)}. Return vectors of one length."
                )
        new = {key: row for key, row in computed.items() if key not in rows}  # an earlier batch may have the same item
        cacheable = [key for key in new if len(key) == HASH_SIZE] if cache else []  # others could not be hashed
        if cache and cacheable:
            cache.put(cacheable, np.stack([new[key] for key in cacheable]))
        reused += sum(key in batch.cached for key in batch.keys)
        rows |= {key: row for key, row in batch.cached.items() if key not in rows} | new
        keys += batch.keys
    if cache and reused:
        cache.entry.notify(f"reusing the embeddings of {reused:,} of {n:,} {items_name} in {cache.entry.folder}")
    out = np.empty((n, width), np.result_type(*{row.dtype for row in rows.values()}))
    for item, key in enumerate(keys):
        out[item] = rows[key]
    return out


def _check_vectors(values: ArrayLike, items: list[int], label: str, describe: Callable[[int], str]) -> NDArray[Any]:
    """Return the vectors of some items as finite floating-point numbers; copied, because a model may reuse its array."""
    vectors = np.array(as_vectors(values, len(items), label))
    if vectors.dtype not in (np.float16, np.float32, np.float64):
        with np.errstate(over="ignore"):  # a long double may become infinite, which is an error below
            vectors = vectors.astype(np.float64)
    is_bad = ~np.isfinite(vectors).all(axis=1)
    if is_bad.any():
        raise CrossmatchError(
            f"{label}: the vector of {describe(items[int(is_bad.argmax())])} has NaN or infinite numbers, as have {is_bad.sum():,} "
            f"of the {len(items):,} in this batch; none of them is cached. Look for NaN in the weights, and embed in float32: "
            "float16 overflows above 65,504."
        )
    return vectors


def find_unreadable_images(opener: Callable[[str], Any], images: Sequence[str], workers: int | None = None) -> dict[str, str]:
    """Open all images, and return those that cannot be opened, with the reason.

    >>> list(find_unreadable_images({"a": "an image"}.__getitem__, ["a", "b"]))
    ['b']
    """

    def try_open(names: Sequence[str]) -> dict[str, str]:
        unreadable = {}
        for image in names:
            try:
                load_image(opener, image)
            except UnreadableImageError as error:
                unreadable[image] = error.reason
        return unreadable

    cuts = [images[start : start + IMAGES_PER_CHECK] for start in range(0, len(images), IMAGES_PER_CHECK)]
    threads = default_workers(opener) if workers is None else workers
    batches = prefetch(try_open, cuts, threads)
    return {image: why for batch in track(batches, "checking images", len(cuts)) for image, why in batch.items()}
