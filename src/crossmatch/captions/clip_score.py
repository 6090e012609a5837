"""CLIPScore and RefCLIPScore: how near the candidate is to the picture, and to a reference, for any model that embeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from crossmatch.captions.corpus import Corpus
from crossmatch.captions.pictures import Images, picture, written
from crossmatch.captions.scores import Scores
from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.progress import track

if TYPE_CHECKING:
    from PIL.Image import Image

WEIGHT = 2.5  # w: cosines of CLIP are rarely above 0.4
PREFIX = "A photo depicts"  # before every text, with a blank between
BATCH = 64


class Embedder(Protocol):
    """Puts pictures and texts into one space."""

    def embed_images(self, images: Sequence[Image]) -> ArrayLike: ...

    def embed_texts(self, texts: Sequence[str]) -> ArrayLike: ...


def clip_score(
    corpus: Corpus, *, embedder: Embedder, images: Images, weight: float = WEIGHT, prefix: str = PREFIX, batch: int = BATCH
) -> tuple[Scores]:
    """CLIPScore of each candidate, and the mean. References play no part.

        CLIP-S(c, v) = w · max(cos(c, v), 0)

    c is the candidate's embedding, v the picture's. A zero vector has cosine 0. Each distinct text is embedded once.
    Source: hessel2021clipscore, sec. 3.

    >>> class Turned:                                                   # a picture at 60° to every text
    ...     def embed_images(self, images): return [[1.0, 0.0] for _ in images]
    ...     def embed_texts(self, texts): return [[0.5, 0.75**0.5] for _ in texts]
    >>> corpus = Corpus.of({"7": "a dog"}, {"7": ["the dog"]})
    >>> clip_score(corpus, embedder=Turned(), images={"7": None})[0].value
    1.25
    """
    texts, place = _texts(corpus, corpus.candidate, embedder, prefix, batch)
    return (_scores(_near_picture(corpus, texts[place], embedder, images, weight, batch)),)


def ref_clip_score(
    corpus: Corpus, *, embedder: Embedder, images: Images, weight: float = WEIGHT, prefix: str = PREFIX, batch: int = BATCH
) -> tuple[Scores]:
    """RefCLIPScore of each candidate, and the mean.

        RefCLIP-S(c, R, v) = H-Mean(CLIP-S(c, v), max(max_r cos(c, r), 0))

    The harmonic mean is 0 where either is. Source: hessel2021clipscore, sec. 3.

    >>> class Turned:                                                   # a picture at 60° to every text
    ...     def embed_images(self, images): return [[1.0, 0.0] for _ in images]
    ...     def embed_texts(self, texts): return [[0.5, 0.75**0.5] for _ in texts]
    >>> corpus = Corpus.of({"7": "a dog"}, {"7": ["the dog"]})
    >>> round(ref_clip_score(corpus, embedder=Turned(), images={"7": None})[0].value, 4)   # 1.25 and 1
    1.1111
    """
    texts, place = _texts(corpus, np.arange(len(corpus.image)), embedder, prefix, batch)
    to_picture = _near_picture(corpus, texts[place[corpus.candidate]], embedder, images, weight, batch)
    own = place[corpus.candidate[corpus.image]]
    cosine = np.einsum("nd,nd->n", texts[place], texts[own])
    cosine[corpus.candidate] = 0.0
    to_reference = np.maximum.reduceat(cosine, corpus.candidate)  # the candidate's place is the zero of max(·, 0)
    both = to_picture + to_reference
    return (_scores(2 * to_picture * to_reference / np.where(both > 0, both, 1.0)),)


def _near_picture(
    corpus: Corpus, candidates: FloatArray, embedder: Embedder, images: Images, weight: float, batch: int
) -> FloatArray:
    """CLIP-S of each candidate. Pictures are opened batch by batch."""
    if not (weight > 0 and np.isfinite(weight)):
        raise WrongWords(f"the weight is {weight}; a positive number was expected (CLIPScore has {WEIGHT}).")
    names = [str(name) for name in corpus.ids]
    pictures = _unit(
        _embedded(lambda at: embedder.embed_images([picture(images, n) for n in names[at]]), len(names), batch, "pictures")
    )
    if pictures.shape[1] != candidates.shape[1]:
        raise CrossmatchError(
            f"pictures have {pictures.shape[1]} dimensions and texts {candidates.shape[1]}; one space was expected. Give a "
            "model that embeds both."
        )
    return np.asarray(weight * np.maximum(0.0, np.einsum("nd,nd->n", pictures, candidates)))


def _texts(corpus: Corpus, which: IntArray, embedder: Embedder, prefix: str, batch: int) -> tuple[FloatArray, IntArray]:
    """Unit vectors of the distinct texts among these captions, and of each caption its place among them."""
    captions = written(corpus)
    number: dict[str, int] = {}
    before = f"{prefix.strip()} " if prefix.strip() else ""
    place = np.array([number.setdefault(before + captions[n], len(number)) for n in which.tolist()], dtype=np.int64)
    texts = list(number)
    return _unit(_embedded(lambda at: embedder.embed_texts(texts[at]), len(texts), batch, "texts")), place


def _embedded(embed: Callable[[slice], ArrayLike], count: int, batch: int, what: str) -> FloatArray:
    parts: list[Any] = []
    for first in track(range(0, count, batch), f"embedding {what}"):
        at = slice(first, min(first + batch, count))
        part = np.asarray(embed(at), dtype=np.float64)
        if part.ndim != 2 or len(part) != at.stop - at.start or (parts and part.shape[1] != parts[0].shape[1]):
            raise CrossmatchError(
                f"{at.stop - at.start} {what} gave embeddings of shape {part.shape}; one row for each, as long as "
                "the others, was expected. Mend the model."
            )
        if not np.isfinite(part).all():
            bad = first + int((~np.isfinite(part)).any(axis=1).argmax())
            raise CrossmatchError(f"the embedding of number {bad} of the {what} has NaN or infinity. Mend the model.")
        parts.append(part)
    return np.concatenate(parts)


def _unit(vectors: FloatArray) -> FloatArray:
    """Vectors of length one; zero ones stay zero. No square overflows or underflows."""
    scale = np.abs(vectors).max(axis=1, initial=0.0, keepdims=True)
    scaled = vectors / np.where(scale > 0, scale, 1.0)
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.asarray(scaled / np.where(length > 0, length, 1.0))


def _scores(values: FloatArray) -> Scores:
    return Scores(float(values.mean()), values)
