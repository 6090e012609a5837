"""Inputs of the build steps: collections sorted by id, hashes, and what models compute for them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.progress import track
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval, canonical_order
from crossmatch.data.scores import Embeddings, Scores
from crossmatch.evaluation.model_scores import score_collection
from crossmatch.models import make_model
from crossmatch.models.abilities import ImageEncoder, ScoreSource, TextEncoder, cache_signature
from crossmatch.models.baselines.text_encoders import embed_unique_texts
from crossmatch.models.cache import Cache
from crossmatch.models.cache.cross_encoder_scores import BATCH
from crossmatch.models.cache.embeddings import open_embeddings
from crossmatch.models.distinct_items import require_images
from crossmatch.models.embedding_pipeline import embed_images_of

PAIR_SEPARATOR = "~"
MAX_PAIR_ID = 280  # characters; with a prefix, the longest item name that a study accepts


def sort_by_id(collection: Collection) -> Collection:
    """Sort images and captions by id, so that no result depends on their order in the data."""
    return collection.select(*canonical_order(collection))


def collection_hash(collection: Collection) -> str:
    """Hash of ids, texts and links of a sorted collection."""
    links = collection.links[np.lexsort(collection.links.T[::-1])]
    return hashlib.sha256(collection.fingerprint + np.ascontiguousarray(links).tobytes()).hexdigest()[:16]


def pictures_hash(collection: Collection) -> str:
    """Hash of the picture files of a collection; empty if its pictures are drawn on demand and have no files."""
    content = getattr(collection.open_image, "content", None)
    if content is None:
        return ""
    digest = hashlib.sha256()
    for image_id in track(sorted(collection.image_ids.tolist()), "reading the pictures"):
        try:
            digest.update(content(image_id))
        except CrossmatchError:  # missing or unreadable; some steps skip such images
            digest.update(b"none")
    return digest.hexdigest()[:16]


def captions_by_image(collection: Collection) -> list[list[int]]:
    """Positions of the captions of each image, ascending.

    >>> captions_by_image(Collection.from_captions({"cat": ["A cat.", "Pets."], "fog": [], "dog": ["A dog."]}))
    [[0, 1], [], [2]]
    """
    captions: list[list[int]] = [[] for _ in range(collection.shape[0])]
    for image, caption in collection.links.tolist():
        captions[image].append(caption)
    return [sorted(positions) for positions in captions]


def pair_id(first: str, second: str) -> str:
    """Id of a pair: both ids joined, or a hash if that would be ambiguous or too long.

    >>> pair_id("cat.jpg", "dog.jpg"), pair_id("a~b", "c"), pair_id("a", "b~c")
    ('cat.jpg~dog.jpg', 'pair-240dd574d53e2200', 'pair-4da428223a148ae5')
    """
    joined = f"{first}{PAIR_SEPARATOR}{second}"
    if PAIR_SEPARATOR not in first + second and len(joined) <= MAX_PAIR_ID:
        return joined
    return "pair-" + hashlib.sha256(f"{len(first)} {joined}".encode()).hexdigest()[:16]


# -- models


def load_models(models: Mapping[str, object] | Sequence[str]) -> dict[str, object]:
    """Load models by name; a mapping of names to loaded models is returned as it is."""
    if isinstance(models, Mapping):
        return dict(models)
    duplicate = next((name for name in models if list(models).count(name) > 1), None)
    if duplicate is not None:
        raise UsageError(f"Model {duplicate} is listed twice. Name each model once.")
    return {name: make_model(name) for name in models}


def model_signature(model: object) -> str:
    """The text that identifies a model in a manifest."""
    signature = getattr(model, "signature", None)
    return signature if isinstance(signature, str) and signature.strip() else type(model).__name__


def score_all_pairs(model: object, collection: Collection, cache: Cache | None = None) -> Scores:
    """Scores of a model for a collection, in its order; precomputed scores may cover more items."""
    return score_collection(
        model, Retrieval(collection, {"links": Judgements.from_links(collection)}), allow_extra=True, cache=cache
    )


def embed_collection_images(model: object, collection: Collection, cache: Cache | None = None) -> Embeddings:
    """Embed the images of a collection, without its captions."""
    if isinstance(model, ScoreSource):
        scores = score_all_pairs(model, collection)
        if isinstance(scores, Embeddings) and scores.has("image"):
            return Embeddings(scores.image_ids, scores.image_vectors, None, None, scores.similarity)
    elif isinstance(model, ImageEncoder):
        require_images(collection)
        with open_embeddings(cache, cache_signature(model)) as cached:
            vectors = embed_images_of(model, collection, batch=BATCH, cache=cached)
        return Embeddings(collection.image_ids, vectors, None, None, getattr(model, "similarity", "cosine"))
    raise CrossmatchError(
        f"{model_signature(model)} does not embed images. Choose a model that does, or a file with image_ids and "
        "image_embeddings: precomputed:FILE.npz"
    )


def embed_captions(model: object, texts: Sequence[str], corpus: Sequence[str]) -> tuple[NDArray[np.floating], str]:
    """Vectors of texts and the name of their similarity; a model with a `fitted` method is fitted on the corpus first."""
    if not isinstance(model, TextEncoder):
        raise CrossmatchError(f"{model_signature(model)} does not embed texts. Choose a model that does, such as bow or minilm.")
    fit = getattr(model, "fitted", None)
    encoder: Any = fit(list(corpus)) if fit is not None else model
    return embed_unique_texts(encoder, texts, "embedding captions"), getattr(model, "similarity", "cosine")


def mean_caption_embeddings(model: object, collection: Collection, captions: Mapping[int, Sequence[int]]) -> Embeddings:
    """Represent each image by the mean of its caption vectors, given the positions of its captions (parekh2021cxc, sec. 2)."""
    texts = collection.texts()
    vectors, similarity = embed_captions(model, texts, texts)
    means = np.stack([vectors[list(rows)].sum(axis=0, dtype=np.float64) / len(rows) for rows in captions.values()])
    return Embeddings(collection.image_ids[list(captions)], means, None, None, similarity)
