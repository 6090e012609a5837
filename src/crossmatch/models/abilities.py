"""What a model can do, and how each ability becomes scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.core.arrays import FloatArray
from crossmatch.core.benchmark import Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.pairs import Similarity
from crossmatch.core.progress import track
from crossmatch.core.scores import Embeddings, Matrix, Scores
from crossmatch.core.trials import TrialChoices, Trials, TrialScores
from crossmatch.models.cache import BATCH, ScoreCache, as_array, cached_matrix

if TYPE_CHECKING:
    from PIL.Image import Image


@runtime_checkable
class ImageEncoder(Protocol):
    """Puts images into a space, where the cosine (or dot product) compares them."""

    def embed_images(self, images: Sequence[Image]) -> ArrayLike: ...


@runtime_checkable
class TextEncoder(Protocol):
    """Puts texts into a space. If it must see all texts first, `fitted(texts)` gives the encoder to use."""

    def embed_texts(self, texts: Sequence[str]) -> ArrayLike: ...


@runtime_checkable
class DualEncoder(ImageEncoder, TextEncoder, Protocol):
    """Puts images and texts into one space."""


@runtime_checkable
class CrossEncoder(Protocol):
    """Looks at images and texts together: an array of shape (images, texts)."""

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> ArrayLike: ...


@runtime_checkable
class Source(Protocol):
    """Has its scores ready, or makes them from the benchmark itself: precomputed files, the random scorer, the oracle."""

    def scores(self, data: Retrieval | Similarity | Trials) -> Scores | TrialScores | TrialChoices: ...


def abilities(model: object) -> tuple[str, ...]:
    """The names of what a model can do.

    >>> abilities(lambda images, texts: 0)
    ('score',)
    """
    images, texts = isinstance(model, ImageEncoder), isinstance(model, TextEncoder)
    found = {
        "embed": images and texts,
        "embed images": images and not texts,
        "embed texts": texts and not images,
        "score": isinstance(model, CrossEncoder) or callable(model),
        "scores": isinstance(model, Source),
    }
    return tuple(name for name, has in found.items() if has)


def scores_of(
    model: object, data: Retrieval | Similarity, batch: int = BATCH, *, partial: bool = False, cache: ScoreCache | None = None
) -> Scores:
    """What the model says about every image and caption of the collection, in its order."""
    collection = data.collection
    if isinstance(model, Source):
        said = model.scores(data)
        if isinstance(said, TrialScores | TrialChoices):
            raise CrossmatchError(
                "the file holds trial scores, but this is a retrieval benchmark. Give embeddings, a matrix or a run."
            )
        try:
            return said.aligned(collection, partial)
        except CrossmatchError as error:
            path = getattr(model, "path", None)
            raise type(error)(f"{path}: {error}" if path else str(error)) from None
    return _ask(model, collection, batch, cache)


def trial_scores_of(model: object, trials: Trials, batch: int = BATCH, *, cache: ScoreCache | None = None) -> FloatArray:
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
    said = _ask(model, items, batch, cache)
    if "i2t" not in said.directions:
        raise CrossmatchError(f"{type(model).__name__} compares no images with texts, which every trial needs.")
    n, (c, i) = len(trials.ids), trials.shape
    pairs = np.broadcast_arrays(image.reshape(n, 1, i), caption.reshape(n, c, 1))
    return said.pairs(pairs[0].ravel(), pairs[1].ravel()).reshape(n, c, i)


def _ask(model: object, collection: Collection, batch: int, cache: ScoreCache | None) -> Embeddings | Matrix:
    if isinstance(model, ImageEncoder | TextEncoder):
        return _embed(model, collection, batch)
    score = model.score if isinstance(model, CrossEncoder) else model if callable(model) else None
    if score is None:
        raise CrossmatchError(
            f"{type(model).__name__} has none of the abilities of a model. Give it embed_images and embed_texts, "
            "or score(images, texts), or pass a callable."
        )
    system = getattr(model, "signature", None)
    return cached_matrix(cast("Callable[..., ArrayLike]", score), collection, batch=batch, cache=cache, system=system)


def _embed(model: object, collection: Collection, batch: int) -> Embeddings:
    """One pass over the images, if the model embeds images, and one over the captions, if it embeds texts."""
    images = captions = None
    if isinstance(model, ImageEncoder):
        asked = model.embed_images
        images = _batches(lambda at: asked(collection.images(at)), collection.shape[0], batch, "embedding images")
    if isinstance(model, TextEncoder):
        fitted = getattr(model, "fitted", None)
        encoder = fitted(collection.texts()) if fitted is not None else model
        # Each text once: in two batches the same text may differ in its last bits, and a tie would be broken by rounding.
        texts, member = np.unique(np.asarray(collection.texts()), return_inverse=True)
        said = texts.tolist()
        captions = _batches(lambda at: encoder.embed_texts(said[at.start : at.stop]), len(said), batch, "embedding captions")
        captions = captions[member.ravel()]
    similarity = getattr(model, "similarity", "cosine")
    return Embeddings(collection.image_ids, images, collection.caption_ids, captions, similarity)


def _batches(embed: Callable[[range], ArrayLike], n: int, batch: int, label: str) -> NDArray[Any]:
    parts: list[NDArray[Any]] = []
    for at in track(range(0, n, batch), label):
        part = as_array(embed(range(at, min(at + batch, n))), label)
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
