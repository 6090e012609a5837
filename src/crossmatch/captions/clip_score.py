"""CLIPScore and RefCLIPScore: similarity of the candidate to the image and to the references, with any embedding model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from crossmatch.captions.corpus import CaptionCorpus, CaptionScores, ImageSource, open_image
from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.progress import track

if TYPE_CHECKING:
    from PIL.Image import Image

WEIGHT = 2.5  # w: CLIP's cosines are rarely above 0.4
PREFIX = "A photo depicts"  # put before every text, followed by a space
BATCH = 64


class ImageTextEmbedder(Protocol):
    """Embeds images and texts in one space."""

    def embed_images(self, images: Sequence[Image]) -> ArrayLike: ...

    def embed_texts(self, texts: Sequence[str]) -> ArrayLike: ...


def clip_score(
    corpus: CaptionCorpus,
    *,
    embedder: ImageTextEmbedder,
    images: ImageSource,
    weight: float = WEIGHT,
    prefix: str = PREFIX,
    batch: int = BATCH,
) -> tuple[CaptionScores]:
    """CLIPScore of each candidate, and the mean over candidates. It ignores the references.

        CLIP-S(c, v) = w · max(cos(c, v), 0)

    c is the embedding of the candidate, v that of the image. The cosine with a zero vector is 0. Each distinct text is embedded
    once.
    Source: hessel2021clipscore, sec. 3.

    >>> class Turned:                                                   # an image at 60° to every text
    ...     def embed_images(self, images): return [[1.0, 0.0] for _ in images]
    ...     def embed_texts(self, texts): return [[0.5, 0.75**0.5] for _ in texts]
    >>> corpus = CaptionCorpus.from_texts({"7": "a dog"}, {"7": ["the dog"]})
    >>> clip_score(corpus, embedder=Turned(), images={"7": None})[0].value
    1.25
    """
    vectors, text_index = _embed_texts(corpus, corpus.candidate_index, embedder, prefix, batch)
    return (CaptionScores.from_mean(_clip_scores(corpus, vectors[text_index], embedder, images, weight, batch)),)


def ref_clip_score(
    corpus: CaptionCorpus,
    *,
    embedder: ImageTextEmbedder,
    images: ImageSource,
    weight: float = WEIGHT,
    prefix: str = PREFIX,
    batch: int = BATCH,
) -> tuple[CaptionScores]:
    """RefCLIPScore of each candidate, and the mean over candidates.

        RefCLIP-S(c, R, v) = H-Mean(CLIP-S(c, v), max(max_r cos(c, r), 0))

    The harmonic mean is 0 if either value is 0. Source: hessel2021clipscore, sec. 3.

    >>> class Turned:                                                   # an image at 60° to every text
    ...     def embed_images(self, images): return [[1.0, 0.0] for _ in images]
    ...     def embed_texts(self, texts): return [[0.5, 0.75**0.5] for _ in texts]
    >>> corpus = CaptionCorpus.from_texts({"7": "a dog"}, {"7": ["the dog"]})
    >>> round(ref_clip_score(corpus, embedder=Turned(), images={"7": None})[0].value, 4)   # 1.25 and 1
    1.1111
    """
    vectors, text_index = _embed_texts(corpus, np.arange(len(corpus.image_index)), embedder, prefix, batch)
    image_score = _clip_scores(corpus, vectors[text_index[corpus.candidate_index]], embedder, images, weight, batch)
    candidate_text = text_index[corpus.candidate_index[corpus.image_index]]
    cosine = np.einsum("nd,nd->n", vectors[text_index], vectors[candidate_text])
    cosine[corpus.candidate_index] = 0.0  # the zero of max(·, 0)
    reference_score = np.maximum.reduceat(cosine, corpus.candidate_index)
    total = image_score + reference_score
    return (CaptionScores.from_mean(2 * image_score * reference_score / np.where(total > 0, total, 1.0)),)


def _clip_scores(
    corpus: CaptionCorpus, candidates: FloatArray, embedder: ImageTextEmbedder, images: ImageSource, weight: float, batch: int
) -> FloatArray:
    """CLIP-S of each candidate. Images are opened batch by batch."""
    if not (weight > 0 and np.isfinite(weight)):
        raise UsageError(f"clip-score: weight must be a positive number, got {weight} (the paper uses {WEIGHT}).")
    ids = [str(image_id) for image_id in corpus.ids]
    image_vectors = _unit(
        _embed_batches(lambda part: embedder.embed_images([open_image(images, i) for i in ids[part]]), len(ids), batch, "images")
    )
    if image_vectors.shape[1] != candidates.shape[1]:
        raise CrossmatchError(
            f"The model embeds images in {image_vectors.shape[1]} dimensions and texts in {candidates.shape[1]}. "
            "Use a model that embeds both in one space."
        )
    return np.asarray(weight * np.maximum(0.0, np.einsum("nd,nd->n", image_vectors, candidates)))


def _embed_texts(
    corpus: CaptionCorpus, caption_index: IntArray, embedder: ImageTextEmbedder, prefix: str, batch: int
) -> tuple[FloatArray, IntArray]:
    """Unit vectors of the distinct texts among these captions, and the index of each caption's text."""
    captions = corpus.original_captions()
    numbers: dict[str, int] = {}
    start = f"{prefix.strip()} " if prefix.strip() else ""
    index = np.array([numbers.setdefault(start + captions[n], len(numbers)) for n in caption_index.tolist()], dtype=np.int64)
    texts = list(numbers)
    return _unit(_embed_batches(lambda part: embedder.embed_texts(texts[part]), len(texts), batch, "texts")), index


def _embed_batches(embed: Callable[[slice], ArrayLike], count: int, batch: int, kind: str) -> FloatArray:
    batches: list[Any] = []
    for first in track(range(0, count, batch), f"embedding {kind}"):
        part = slice(first, min(first + batch, count))
        size = part.stop - part.start
        vectors = np.asarray(embed(part), dtype=np.float64)
        if vectors.ndim != 2 or len(vectors) != size or (batches and vectors.shape[1] != batches[0].shape[1]):
            raise CrossmatchError(
                f"Expected embeddings of shape ({size}, d) for {size} {kind}, with the same d in every batch, got {vectors.shape}. "
                "Correct the model."
            )
        if not np.isfinite(vectors).all():
            bad = first + int((~np.isfinite(vectors)).any(axis=1).argmax())
            raise CrossmatchError(f"The embedding of number {bad} of the {kind} has NaN or infinity. Correct the model.")
        batches.append(vectors)
    return np.concatenate(batches)


def _unit(vectors: FloatArray) -> FloatArray:
    """Vectors scaled to length one; zero vectors stay zero. Scaling first avoids overflow and underflow."""
    scale = np.abs(vectors).max(axis=1, initial=0.0, keepdims=True)
    scaled = vectors / np.where(scale > 0, scale, 1.0)
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.asarray(scaled / np.where(length > 0, length, 1.0))
