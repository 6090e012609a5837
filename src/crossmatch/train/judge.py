"""How good a network is after an epoch: hit@k on the validation images, by the links that they came with."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossmatch.core.arrays import IdArray, IntArray
from crossmatch.core.collection import Collection
from crossmatch.core.errors import MissingDependency
from crossmatch.core.judgements import Judgements
from crossmatch.core.ranks import Ranks
from crossmatch.core.scores import Embeddings, Matrix
from crossmatch.core.sweep import stand
from crossmatch.metrics.table import metric
from crossmatch.train.data import TrainingSet

try:
    import torch
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

WATCHED = ("hit@1", "hit@5", "hit@10")
SUM = "sum"


def judged(model: Any, held: TrainingSet) -> dict[str, float]:
    """hit@1, hit@5 and hit@10 in per cent, in both directions, and their sum: what an epoch is chosen by (lee2018scan, sec. 4).

    A model of texts alone is judged by how it finds the other captions of a caption's image.
    """
    collection = _collection(held)
    links = Judgements.from_links(collection)
    model.net.eval()
    if hasattr(model, "compare"):
        seen = held.store.take(np.arange(len(held.store)))
        with torch.inference_mode():
            regions = model.look(seen)
        said: Embeddings | Matrix = Matrix(collection.image_ids, collection.caption_ids, model.compare(regions, held.captions))
        wanted = {way: links.listed(way) for way in ("i2t", "t2i")}
    else:
        vectors = model.embed_texts(held.captions)
        said = Embeddings(None, None, collection.caption_ids, vectors, similarity=model.similarity)
        wanted = {"t2t": _together(collection).listed("t2t")}
    ranks = {way: Ranks.from_standing(standing) for way, standing in stand(said, wanted).items()}
    found = {f"{way} {name}": 100 * metric(name).summarise(ranks[way]) for way in ranks for name in WATCHED}
    return found | {SUM: sum(found.values())}


def _collection(held: TrainingSet) -> Collection:
    return Collection(_numbered(len(held.store)), _numbered(len(held.captions)), (), held.links)


def _numbered(n: int) -> IdArray:
    return np.asarray([f"{each:07d}" for each in range(n)])


def _together(collection: Collection) -> Judgements:
    """Captions of one image as positives of each other."""
    image, caption = collection.links.T
    left, right = _pairs(image)
    pairs = np.unique(np.stack([caption[left], caption[right]], axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    shape = (collection.shape[1],) * 2
    return Judgements("links", pairs[:, 0], pairs[:, 1], np.ones(len(pairs)), shape, kind="caption-caption")


def _pairs(group: IntArray) -> tuple[IntArray, IntArray]:
    """All pairs of places of the same group; equal places are neighbours, because links are sorted by image."""
    same = [
        (left, right) for at in np.split(np.arange(len(group)), np.flatnonzero(np.diff(group)) + 1) for left in at for right in at
    ]
    left, right = np.asarray(same, dtype=np.int64).T
    return left, right
