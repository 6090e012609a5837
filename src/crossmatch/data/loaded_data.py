"""Data as a benchmark loads it: retrieval data, canonical order, subsets and the data hash."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping
from dataclasses import dataclass

import numpy as np

from crossmatch.data.arrays import IntArray
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, SkippedItem, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.plausible_matches import PlausibleMatches
from crossmatch.data.rated_pairs import Similarity
from crossmatch.data.trials import Trials

Relevance = Judgements | PlausibleMatches


@dataclass(frozen=True, eq=False)
class Retrieval:
    """A collection to search, and one or more named sets of judgements.

    Attributes:
        collection: The images and captions.
        judgements: The sets of judgements by name.
        skipped: Items that were left out on loading because they cannot be used.
        notes: Notes about judgements that were left out.

    >>> from crossmatch import Diorama, Judgements
    >>> collection = Diorama.make("test", size="tiny").collection
    >>> data = Retrieval(collection, {"links": Judgements.from_links(collection)})
    >>> data.collection.shape, data.judgements["links"].positive_count      # 50 images with 5 captions each
    ((50, 250), 250)
    """

    collection: Collection
    judgements: Mapping[str, Relevance]
    skipped: tuple[SkippedItem, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.judgements:
            raise CrossmatchError("A retrieval benchmark needs judgements. Give at least Judgements.from_links(collection).")
        for name, relevance in self.judgements.items():
            expected = tuple(len(self.collection.ids(side)) for side in relevance.sides)
            if relevance.shape != expected:
                raise CrossmatchError(f"Judgements {name!r} have shape {relevance.shape}, but the collection has {expected}.")

    def select(self, image_positions: IntArray, caption_positions: IntArray, collection: Collection | None = None) -> Retrieval:
        """The items at these positions, in this order, and the judgements among them.

        `collection` is the selected collection, if it was computed before.
        """
        positions = {"image": image_positions, "caption": caption_positions}
        judgements: dict[str, Relevance] = {}
        for name, relevance in self.judgements.items():
            selected = relevance.select(*(positions[side] for side in relevance.sides))
            if selected is not None:
                judgements[name] = selected
        if not judgements:
            raise UsageError(f"No positive is left among {len(image_positions)} images. Raise --limit.")
        selected_collection = collection or self.collection.select(image_positions, caption_positions)
        return Retrieval(selected_collection, judgements, self.skipped, self.notes)


LoadedData = Retrieval | Similarity | Trials


def sort_canonically(data: LoadedData) -> LoadedData:
    """Sort the items by id: the order of evaluation and of the data hash."""
    if isinstance(data, Trials):
        return data.select(np.argsort(data.ids, kind="stable"))
    return data.select(*canonical_order(data.collection))


def canonical_order(collection: Collection) -> tuple[IntArray, IntArray]:
    """The orders of images and captions by id, so that no result depends on the order they came in."""
    return np.argsort(collection.image_ids, kind="stable"), np.argsort(collection.caption_ids, kind="stable")


def limit_data(data: LoadedData, limit: int, seed: int) -> LoadedData:
    """Draw `limit` trials, or `limit` images with their linked captions."""
    rng = np.random.default_rng([seed, 7])
    size, unit = (len(data.ids), "trials") if isinstance(data, Trials) else (data.collection.shape[0], "images")
    if limit >= size:
        raise UsageError(f"--limit {limit} must be smaller than the number of {unit}, {size:,}. Leave the option out to use all.")
    if isinstance(data, Trials):
        data = data.select(np.argsort(data.ids, kind="stable"))
        return data.select(np.sort(rng.permutation(len(data.ids))[:limit]))
    collection = data.collection
    images = np.argsort(collection.image_ids, kind="stable")[rng.permutation(collection.shape[0])[:limit]]
    return data.select(images, np.unique(collection.links[np.isin(collection.links[:, 0], images), 1]))


def drop_images(data: LoadedData, image_ids: Container[str]) -> LoadedData:
    """Remove images, the trials that show them, their links and judgements, and the captions linked only to them.

    A caption without any link is a distractor, and stays.
    """
    if isinstance(data, Trials):
        is_good = np.array([not any(name in image_ids for name in row) for row in data.images.tolist()])
        if not is_good.any():
            raise CrossmatchError(f"Each of the {len(is_good):,} trials shows an image that cannot be used. Replace the images.")
        return data if is_good.all() else data.select(np.flatnonzero(is_good))
    collection = data.collection
    is_good = np.array([name not in image_ids for name in collection.image_ids.tolist()])
    if is_good.all():
        return data
    is_linked, is_linked_to_good = (np.zeros(collection.shape[1], dtype=bool) for _ in range(2))
    is_linked[collection.links[:, 1]] = True
    is_linked_to_good[collection.links[is_good[collection.links[:, 0]], 1]] = True
    try:
        return data.select(np.flatnonzero(is_good), np.flatnonzero(is_linked_to_good | ~is_linked))
    except UsageError:
        raise CrossmatchError(
            f"Nothing is left to score: {(~is_good).sum():,} of {len(is_good):,} images cannot be used. Replace them."
        ) from None


def data_hash(data: LoadedData, ordered: bool = False) -> str:
    """Hash data to eight hexadecimal digits that change with any id, caption, link or grade, but not with their order.

    `ordered` says that the data is in canonical order already.
    """
    data = data if ordered else sort_canonically(data)
    digest = hashlib.sha256()
    if isinstance(data, Trials):
        fields = (data.ids, data.images.ravel(), data.captions.ravel(), data.categories)
        texts = b"".join("\0".join(values.tolist()).encode() + b"\1" for values in fields)
        arrays: list[np.ndarray] = [np.asarray(data.shape)]
    else:
        collection = data.collection
        texts = collection.fingerprint
        arrays = [collection.links[np.lexsort(collection.links.T[::-1])]]
        judgements = data.judgements if isinstance(data, Retrieval) else {data.direction: data.judgements}
        for name, relevance in judgements.items():
            text, relevance_arrays = relevance.hash_content()
            digest.update(f"{name} {text}".encode())
            arrays += relevance_arrays
    digest.update(texts)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:8]
