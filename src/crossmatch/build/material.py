"""What the steps read: a collection in the order of its ids, the captions of each image, and what models say about them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.benchmark import Retrieval, canonical_order
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.core.progress import track
from crossmatch.core.scores import Embeddings, Scores
from crossmatch.models import make_model
from crossmatch.models.abilities import ImageEncoder, Source, TextEncoder, known_by, scores_of
from crossmatch.models.cache import BATCH, ScoreCache, require_pictures
from crossmatch.models.embedding_cache import kept_embeddings
from crossmatch.models.pipeline import image_vectors
from crossmatch.models.text import embed_distinct

BETWEEN = "~"  # the ids of a pair
LONGEST = 280  # signs in the id of a pair: with a word before it, as many as the name of an item in a study may have


def in_order(collection: Collection) -> Collection:
    """The items in the order of their ids, so that nothing depends on the order they came in."""
    return collection.reordered(*canonical_order(collection))


def collection_hash(collection: Collection) -> str:
    """What identifies ids, texts and links of a collection in order, as an input of a step."""
    links = collection.links[np.lexsort(collection.links.T[::-1])]
    return hashlib.sha256(collection.fingerprint + np.ascontiguousarray(links).tobytes()).hexdigest()[:16]


def pictures_hash(collection: Collection) -> str:
    """What identifies the pictures of a collection that has them as files, as an input of a step that looks at them.

    Pictures that are drawn when they are asked for are known by their ids, and nothing is said of them.
    """
    content = getattr(collection.open_image, "content", None)
    if content is None:
        return ""
    held = hashlib.sha256()
    for name in track(sorted(collection.image_ids.tolist()), "reading the pictures"):
        try:
            held.update(content(name))
        except CrossmatchError:  # it is not there, or cannot be read: some steps leave it out
            held.update(b"none")
    return held.hexdigest()[:16]


def groups_of(collection: Collection) -> list[list[int]]:
    """For each image the positions of its captions, ascending.

    >>> groups_of(Collection.of({"cat": ["A cat.", "Pets."], "fog": [], "dog": ["A dog."]}))
    [[0, 1], [], [2]]
    """
    groups: list[list[int]] = [[] for _ in range(collection.shape[0])]
    for image, caption in collection.links.tolist():
        groups[image].append(caption)
    return [sorted(group) for group in groups]


def pair_id(first: str, second: str) -> str:
    """The name of a pair: both ids, unless that would be ambiguous or too long.

    >>> pair_id("cat.jpg", "dog.jpg"), pair_id("a~b", "c"), pair_id("a", "b~c")
    ('cat.jpg~dog.jpg', 'pair-240dd574d53e2200', 'pair-4da428223a148ae5')
    """
    name = f"{first}{BETWEEN}{second}"
    if BETWEEN not in first + second and len(name) <= LONGEST:
        return name
    return "pair-" + hashlib.sha256(f"{len(first)} {name}".encode()).hexdigest()[:16]


# -- models


def named_models(models: Mapping[str, object] | Sequence[str]) -> dict[str, object]:
    """Models under their names; a name alone is made into its model."""
    if isinstance(models, Mapping):
        return dict(models)
    twice = next((name for name in models if list(models).count(name) > 1), None)
    if twice is not None:
        raise WrongWords(f"the model {twice} is named twice. Name each once.")
    return {name: make_model(name) for name in models}


def signature_of(model: object) -> str:
    """What identifies a model in a manifest."""
    found = getattr(model, "signature", None)
    return found if isinstance(found, str) and found.strip() else type(model).__name__


def said_of(model: object, collection: Collection, cache: ScoreCache | None = None) -> Scores:
    """What a model says about a collection, in its order; scores that are there of more items will do."""
    return scores_of(model, Retrieval(collection, {"links": Judgements.from_links(collection)}), partial=True, cache=cache)


def seen_images(model: object, collection: Collection, cache: ScoreCache | None = None) -> Embeddings:
    """The images of a collection as a model sees them: the captions need not be embedded."""
    if isinstance(model, Source):
        said = said_of(model, collection)
        if isinstance(said, Embeddings) and said.has("image"):
            return Embeddings(said.image_ids, said.image_vectors, None, None, said.similarity)
    elif isinstance(model, ImageEncoder):
        require_pictures(collection)
        with kept_embeddings(cache, known_by(model)) as shelf:
            vectors = image_vectors(model, collection, batch=BATCH, shelf=shelf)
        return Embeddings(collection.image_ids, vectors, None, None, getattr(model, "similarity", "cosine"))
    raise CrossmatchError(
        f"{signature_of(model)} does not embed images, so that they cannot be compared. Take a model that does, or a file with "
        "image_ids and image_embeddings: precomputed:FILE.npz"
    )


def read_texts(model: object, texts: Sequence[str], corpus: Sequence[str]) -> tuple[NDArray[np.floating], str]:
    """The vectors of texts, and how they are compared; a model that must see a corpus first is shown it."""
    if not isinstance(model, TextEncoder):
        raise CrossmatchError(f"{signature_of(model)} does not embed texts. Take one that does, such as bow or minilm.")
    fitted = getattr(model, "fitted", None)
    encoder: Any = fitted(list(corpus)) if fitted is not None else model
    return embed_distinct(encoder, texts, "embedding captions"), getattr(model, "similarity", "cosine")


def mean_captions(model: object, collection: Collection, groups: Mapping[int, Sequence[int]]) -> Embeddings:
    """Each image as the mean of the vectors of its captions (parekh2021cxc, sec. 2), for the images of `groups`."""
    texts, which = collection.texts(), list(groups)
    vectors, similarity = read_texts(model, texts, texts)
    means = np.stack([_mean(vectors, np.asarray(groups[image], dtype=np.int64)) for image in which])
    return Embeddings(collection.image_ids[which], means, None, None, similarity)


def _mean(vectors: NDArray[np.floating], rows: IntArray) -> FloatArray:
    return np.asarray(np.add.reduce(vectors[rows], axis=0, dtype=np.float64) / len(rows), dtype=np.float64)
