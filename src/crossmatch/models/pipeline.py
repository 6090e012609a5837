"""From items to vectors: while the model computes one batch, other threads open and prepare the next ones.

The items are cut into batches by their order alone. Of each batch the model is shown what is not on the shelf (`embedding_cache`),
and of equal items the first: in two batches the same picture could differ in its last bits, and a tie would be broken by rounding.
So neither threads nor cache change what a batch holds, and a run that was stopped goes on with the very batches that it lacks.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.pictures import BadPicture, fingerprint, opened
from crossmatch.core.places import cores
from crossmatch.core.progress import track
from crossmatch.models.cache import as_array
from crossmatch.models.embedding_cache import HASH, EmbeddingShelf, Row, text_key

MOST_WORKERS = 8
FEW = 64  # pictures that are opened in one go where they are only looked at

T = TypeVar("T")
S = TypeVar("S")


def ahead(work: Callable[[T], S], items: Sequence[T], workers: int) -> Iterator[S]:
    """What `work` makes of each item, in their order, made ahead by so many threads: at most one more than there are threads.

    An exception comes out at the place of its item. Without workers everything is made when it is asked for, by who asks.

    >>> list(ahead(lambda n: n * n, [3, 1, 2], workers=2))
    [9, 1, 4]
    """
    if workers < 1:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="crossmatch-ahead")
    rest = iter(items)
    waiting: deque[Future[S]] = deque(pool.submit(work, item) for item in islice(rest, workers + 1))
    try:
        while waiting:
            made = waiting.popleft().result()
            waiting.extend(pool.submit(work, item) for item in islice(rest, 1))
            yield made
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def usual_workers(open_image: object) -> int:
    """How many threads open pictures: one beside the one that computes, or more where the machine and the opener allow it.

    An opener says by `concurrent = True` that several threads may ask it at once.
    """
    return min(MOST_WORKERS, max(1, cores() - 1)) if getattr(open_image, "concurrent", False) else 1


@dataclass(frozen=True, eq=False)
class Batch:
    """Some items: the key of each, the vectors that are known, and what the model is to be given for those that are not."""

    items: range
    keys: list[bytes]
    known: dict[bytes, Row]
    asked: list[int]  # positions of the items that the model is given
    given: Any = None


class Images(Protocol):
    """A model that embeds images. One that has both `prepare_images` and `embed_prepared` prepares its batches ahead."""

    def embed_images(self, images: Sequence[Any]) -> ArrayLike: ...


class Texts(Protocol):
    def embed_texts(self, texts: Sequence[str]) -> ArrayLike: ...


def image_vectors(
    model: Images, collection: Collection, *, batch: int, workers: int | None = None, shelf: EmbeddingShelf | None = None
) -> NDArray[Any]:
    """A vector for each image of the collection, equal ones for equal pictures.

    >>> class Mean:
    ...     def embed_images(self, images):
    ...         print(len(images), "images")
    ...         return [[image.mean(), 1.0] for image in images]
    >>> grey = {"a": np.full((2, 2), 3.0), "b": np.zeros((2, 2)), "c": np.full((2, 2), 3.0)}
    >>> image_vectors(Mean(), Collection.of({name: [name] for name in grey}, grey.get), batch=8)
    2 images
    array([[3., 1.], [0., 1.], [3., 1.]])
    """
    n, ids = collection.shape[0], collection.image_ids.tolist()
    open_image = collection.open_image
    if open_image is None:
        collection.images([0])  # says what is missing
        raise AssertionError
    prepare, embed = getattr(model, "prepare_images", None), getattr(model, "embed_prepared", None)
    if prepare is None or embed is None:
        prepare, embed = (lambda images: images), model.embed_images
    content = getattr(open_image, "content", None)

    def made(items: range) -> Batch:
        pictures: dict[int, Any] = {}
        keys = []
        for at in items:
            key = _content_key(content, ids[at]) if content else None
            if key is None:
                pictures[at] = opened(open_image, ids[at])
                digest = fingerprint(pictures[at])
                key = digest and hashlib.sha256(b"pixels\0" + digest).digest()
            keys.append(b"number %d" % at if key is None else key)
        known, asked = _divided(items, keys, shelf)
        shown = [pictures[at] if at in pictures else opened(open_image, ids[at]) for at in asked]
        try:
            return Batch(items, keys, known, asked, prepare(shown) if shown else None)
        except Exception as error:
            error.add_note(f"while preparing the images {ids[asked[0]]!r} to {ids[asked[-1]]!r}")
            raise

    threads = usual_workers(open_image) if workers is None else workers
    return _vectors(made, lambda b: embed(b.given), n, batch, threads, shelf, "embedding images", lambda at: f"image {ids[at]!r}")


def text_vectors(model: Texts, texts: Sequence[str], *, batch: int, shelf: EmbeddingShelf | None = None) -> NDArray[Any]:
    """A vector for each of these texts, which are all different."""

    def made(items: range) -> Batch:
        keys = [text_key(texts[at]) for at in items]
        known, asked = _divided(items, keys, shelf)
        return Batch(items, keys, known, asked, [texts[at] for at in asked])

    def named(at: int) -> str:
        return f"text {texts[at]!r:.80}"

    return _vectors(made, lambda b: model.embed_texts(b.given), len(texts), batch, 0, shelf, "embedding captions", named)


def _content_key(content: Callable[[str], bytes], image: str) -> bytes:
    try:
        return hashlib.sha256(b"file\0" + content(image)).digest()  # told from the hash of a text
    except CrossmatchError as error:
        raise BadPicture(image, str(error)) from error


def _divided(items: range, keys: list[bytes], shelf: EmbeddingShelf | None) -> tuple[dict[bytes, Row], list[int]]:
    """What the shelf has, and the first item of each key that it has not."""
    known = shelf.find(dict.fromkeys(keys)) if shelf else {}
    first = {key: at for at, key in zip(reversed(items), reversed(keys), strict=True)}
    return known, sorted(at for key, at in first.items() if key not in known)


def _vectors(
    made: Callable[[range], Batch],
    embed: Callable[[Batch], ArrayLike],
    n: int,
    batch: int,
    workers: int,
    shelf: EmbeddingShelf | None,
    label: str,
    named: Callable[[int], str],
) -> NDArray[Any]:
    """Batch after batch through the model, each kept as soon as it is there."""
    cuts = [range(at, min(at + batch, n)) for at in range(0, n, batch)]
    rows: dict[bytes, Row] = {}
    keys: list[bytes] = []
    taken, width = 0, 0
    batches = ahead(made, cuts, workers)
    try:
        for _ in track(cuts, label):
            part = next(batches)
            new: dict[bytes, Row] = {}
            if part.asked:
                own = [part.keys[at - part.items.start] for at in part.asked]
                new = dict(zip(own, _checked(embed(part), part.asked, label, named), strict=True))
            for row in (*part.known.values(), *new.values()):
                width = width or len(row)
                if len(row) != width:
                    raise CrossmatchError(f"{label}: {width} dimensions in one batch and {len(row)} in another. Give all as many.")
            fresh = {key: row for key, row in new.items() if key not in rows}  # the same item may be in an earlier batch
            kept = [key for key in fresh if len(key) == HASH] if shelf else []  # not what could not be hashed
            if shelf and kept:
                shelf.keep(kept, np.stack([fresh[key] for key in kept]))
            taken += sum(key in part.known for key in part.keys)
            rows |= {key: row for key, row in part.known.items() if key not in rows} | fresh
            keys += part.keys
    finally:
        batches.close()  # type: ignore[attr-defined]
    if shelf and taken:
        shelf.tell(f"{taken:,} of {n:,} {label.split()[1]} were embedded before, and are in {shelf.folder}")
    out = np.empty((n, width), np.result_type(*{row.dtype for row in rows.values()}))
    for at, key in enumerate(keys):
        out[at] = rows[key]
    return out


def _checked(given: ArrayLike, asked: list[int], label: str, named: Callable[[int], str]) -> NDArray[Any]:
    """What the model gave for these items in floating point, all finite; a copy, because it may use its array again."""
    part, expected = np.array(as_array(given, label)), len(asked)
    if part.ndim != 2 or len(part) != expected:
        raise CrossmatchError(
            f"{label}: {expected} items gave an array of shape {part.shape}; ({expected}, dimensions) was expected: a row for each "
            "item, in order."
        )
    if part.dtype.kind not in "fiub":
        raise CrossmatchError(f"{label}: the vectors have dtype {part.dtype}; real numbers were expected.")
    if part.dtype not in (np.float16, np.float32, np.float64):
        with np.errstate(over="ignore"):  # a long double may become infinite here, and is refused below
            part = part.astype(np.float64)
    bad = ~np.isfinite(part).all(axis=1)
    if bad.any():
        raise CrossmatchError(
            f"{label}: the vector of {named(asked[int(bad.argmax())])} holds NaN or infinite numbers, as do {bad.sum():,} of the "
            f"{expected:,} in this batch, and none of them is kept. Look for NaN in the weights; embed in float32: fp16 overflows "
            "above 65,504."
        )
    return part


def unusable(open_image: Callable[[str], Any], images: Sequence[str], workers: int | None = None) -> dict[str, str]:
    """Those of the images that cannot be opened, each with the reason. All are tried, in one pass.

    >>> unusable({"a": "a picture"}.__getitem__, ["a", "b"])
    {'b': "image 'b' cannot be opened (KeyError: 'b'). Mend it."}
    """

    def tried(items: Sequence[str]) -> dict[str, str]:
        found = {}
        for image in items:
            try:
                opened(open_image, image)
            except BadPicture as error:
                found[image] = error.why
        return found

    cuts = [images[at : at + FEW] for at in range(0, len(images), FEW)]
    threads = usual_workers(open_image) if workers is None else workers
    batches = ahead(tried, cuts, threads)
    return {image: why for _ in track(cuts, "checking pictures") for image, why in next(batches).items()}
