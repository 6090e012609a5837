"""What a model can do, and how each ability becomes scores."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.core.arrays import FloatArray
from crossmatch.core.benchmark import Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.progress import track
from crossmatch.core.scores import Embeddings, Matrix, Scores
from crossmatch.core.trials import TrialChoices, Trials, TrialScores

if TYPE_CHECKING:
    from PIL.Image import Image

BATCH = 128
IN_MEMORY = 1 << 28  # a larger score matrix lives in a temporary file


@runtime_checkable
class DualEncoder(Protocol):
    """Puts images and texts into one space, where the cosine (or dot product) compares them."""

    def embed_images(self, images: Sequence[Image]) -> ArrayLike: ...

    def embed_texts(self, texts: Sequence[str]) -> ArrayLike: ...


@runtime_checkable
class CrossEncoder(Protocol):
    """Looks at images and texts together: an array of shape (images, texts)."""

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> ArrayLike: ...


@runtime_checkable
class Source(Protocol):
    """Has its scores ready, or makes them from the benchmark itself: precomputed files, the random scorer, the oracle."""

    def scores(self, data: Retrieval | Trials) -> Scores | TrialScores | TrialChoices: ...


def abilities(model: object) -> tuple[str, ...]:
    """The names of what a model can do.

    >>> abilities(lambda images, texts: 0)
    ('score',)
    """
    found = {"embed": isinstance(model, DualEncoder), "score": isinstance(model, CrossEncoder) or callable(model),
             "scores": isinstance(model, Source)}  # fmt: skip
    return tuple(name for name, has in found.items() if has)


def scores_of(model: object, data: Retrieval, batch: int = BATCH) -> Scores:
    """What the model says about every image and caption of the collection, in its order."""
    collection = data.collection
    if isinstance(model, Source):
        said = model.scores(data)
        if isinstance(said, TrialScores | TrialChoices):
            raise CrossmatchError(
                "the file holds trial scores, but this is a retrieval benchmark. Give embeddings, a matrix or a run."
            )
        return said.aligned(collection)
    return _ask(model, collection, batch)


def trial_scores_of(model: object, trials: Trials, batch: int = BATCH) -> FloatArray:
    """The model's scores of shape (trials, captions, images)."""
    if isinstance(model, Source):
        said = model.scores(trials)
        if not isinstance(said, TrialScores | TrialChoices):
            raise CrossmatchError("the file holds no trial scores. Give a csv with trial_id and columns s_c0_i0, s_c0_i1, …")
        return said.aligned(trials)
    images, image = np.unique(trials.images, return_inverse=True)
    captions, caption = np.unique(trials.captions, return_inverse=True)
    texts = tuple(captions.tolist())
    items = Collection(images, np.arange(len(texts)), texts, np.zeros((0, 2)), trials.open_image)  # type: ignore[arg-type]
    said = _ask(model, items, batch)
    n, (c, i) = len(trials.ids), trials.shape
    pairs = np.broadcast_arrays(image.reshape(n, 1, i), caption.reshape(n, c, 1))
    return said.pairs(pairs[0].ravel(), pairs[1].ravel()).reshape(n, c, i)


def _ask(model: object, collection: Collection, batch: int) -> Embeddings | Matrix:
    if isinstance(model, DualEncoder):
        return Embeddings(
            collection.image_ids,
            _batches(lambda at: model.embed_images(collection.images(at)), collection.shape[0], batch, "embedding images"),
            collection.caption_ids,
            _batches(
                lambda at: model.embed_texts([collection.captions[n] for n in at]),
                collection.shape[1],
                batch,
                "embedding captions",
            ),
            getattr(model, "similarity", "cosine"),
        )
    score = model.score if isinstance(model, CrossEncoder) else model if callable(model) else None
    if score is None:
        raise CrossmatchError(
            f"{type(model).__name__} has none of the abilities of a model. Give it embed_images and embed_texts, "
            "or score(images, texts), or pass a callable."
        )
    return _score_all(cast("Callable[..., ArrayLike]", score), collection, batch)


def _batches(embed: Callable[[range], ArrayLike], n: int, batch: int, label: str) -> NDArray[Any]:
    parts: list[NDArray[Any]] = []
    for at in track(range(0, n, batch), label):
        part = _array(embed(range(at, min(at + batch, n))), label)
        expected = min(batch, n - at)
        if part.ndim != 2 or len(part) != expected:
            raise CrossmatchError(
                f"{label}: {expected} items gave an array of shape {part.shape}; ({expected}, dimensions) was expected."
            )
        if parts and part.shape[1] != parts[0].shape[1]:
            raise CrossmatchError(
                f"{label}: {parts[0].shape[1]} dimensions in one batch and {part.shape[1]} in another. Give all as many."
            )
        parts.append(part)
    return np.concatenate(parts)


def _array(values: ArrayLike, label: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:
        raise CrossmatchError(f"{label}: the rows differ in length. Give an array with as many numbers in each.") from None


def _score_all(score: Callable[..., ArrayLike], collection: Collection, batch: int) -> Matrix:
    """Every image with every caption, image block by image block; a large matrix goes to disk."""
    shape = collection.shape
    values = _room(shape, np.dtype(np.float32))
    texts = list(collection.captions)
    for at in track(range(0, shape[0], batch), "scoring"):
        rows = range(at, min(at + batch, shape[0]))
        images = collection.images(rows)
        for start in range(0, shape[1], 8 * batch):
            part = _array(score(images, texts[start : start + 8 * batch]), "scoring")
            expected = (len(rows), len(texts[start : start + 8 * batch]))
            if part.shape != expected:
                raise CrossmatchError(f"score(images, texts) gave shape {part.shape}; {expected} (images x texts) was expected.")
            if part.dtype.kind not in "fiub":
                raise CrossmatchError(f"score(images, texts) gave {part.dtype}; real numbers were expected.")
            if values.dtype == np.float32 and not np.can_cast(part.dtype, np.float32, "safe"):
                wide = _room(shape, np.dtype(np.float64))
                wide[:] = values
                values = wide
            values[at : at + len(rows), start : start + expected[1]] = part
    return Matrix(collection.image_ids, collection.caption_ids, values)


def _room(shape: tuple[int, int], dtype: np.dtype[Any]) -> NDArray[Any]:
    if shape[0] * shape[1] * dtype.itemsize <= IN_MEMORY:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(prefix="crossmatch-scores-") as file:  # the map outlives the handle
        return np.memmap(file, dtype=dtype, shape=shape)
