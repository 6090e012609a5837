"""How good a network is after an epoch, by the links that the validation images came with: what it finds, or what it tells."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossmatch.captions.cider import cider_d
from crossmatch.captions.corpus import Corpus
from crossmatch.core.arrays import IdArray, IntArray
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.judgements import Judgements
from crossmatch.core.ranks import Ranks
from crossmatch.core.scores import Embeddings, Matrix
from crossmatch.core.sweep import stand
from crossmatch.metrics.table import metric
from crossmatch.models.zoo.inputs import Regions
from crossmatch.train.data import TrainingSet

try:
    import torch
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

WATCHED = ("hit@1", "hit@5", "hit@10")
SUM = "sum"  # what an epoch is chosen by, whatever it is a sum of
LIKELY = "log-likelihood per word"  # and this among epochs that are level in it, where there is such a thing
DIGITS = 6  # after the point: what differs less is level, as CIDEr-D of lengths alone is (1e-20)
CHOICES = "right choices in validation add up to"  # where there are hard negatives
AT_ONCE = 128  # captions whose likelihood is asked for together


@dataclass(frozen=True)
class Judge:
    """A way to judge a model, and how the value by which epochs are chosen is called."""

    words: str
    found: Callable[[Any, TrainingSet], dict[str, float]]


def judge_of(model: Any) -> Judge:
    """The judge of what a model can do: tell captions, or find captions and images."""
    return TOLD if hasattr(model, "caption_regions") else FOUND


def validated_by(model: Any, held: TrainingSet) -> str:
    """How the value by which an epoch was chosen is called: words that end before the number."""
    return CHOICES if getattr(held, "hard", None) is not None else judge_of(model).words


def judged(model: Any, held: TrainingSet) -> dict[str, float]:
    """What is to be seen in the log: `SUM`, which an epoch is chosen by, and of captioners `LIKELY`, which decides between equals.

    NaN where the model gives no numbers any more.
    """
    model.net.eval()
    return judge_of(model).found(model, held)


def require_judgeable(model: Any, held: TrainingSet) -> None:
    """Refuse, before any training, a validation set by which this model cannot be judged."""
    images = len(np.unique(held.links[:, 0]))
    if judge_of(model) is TOLD and images < 2:
        raise CrossmatchError(
            f"there is {images} image with captions to validate with, and a captioner is judged by CIDEr-D, which takes 2 at "
            "least: with one, no word tells images apart. Validate with more: --validation FOLDER for a collection, dev_ims.npy "
            "and dev_caps.txt for precomp."
        )


def told(model: Any, held: TrainingSet) -> dict[str, float]:
    """CIDEr-D x 100 of the greedy captions (rennie2017scst, sec. 5), how many per cent of them did not end and were cut, and the
    log-likelihood of a word of the true ones.

    Document frequencies are those of the validation images' own captions, and the end of a caption is no word: it is the metric as
    it is published, whatever the training rewards.
    """
    regions = _seen(model, held)
    image, caption = held.links.T
    names, begin = np.unique(image, return_index=True)
    said = model.caption_regions(regions[torch.from_numpy(names)], decoding="greedy")
    references = {str(n): [held.captions[c] for c in own] for n, own in zip(names, np.split(caption, begin[1:]), strict=True)}
    (score,) = cider_d(Corpus.of(dict(zip(references, said, strict=True)), references))
    return {
        "CIDEr-D": 100 * score.value,
        "captions cut": 100 * float(model.cut_short(said).mean()),
        LIKELY: _per_word(model, regions, held),
        SUM: 100 * score.value,
    }


def _per_word(model: Any, regions: Regions, held: TrainingSet) -> float:
    """The mean over all words of all captions, their ends included."""
    total = words = 0.0
    texts = model.vocabulary.numbered(held.captions)
    for at in range(0, len(held.links), AT_ONCE):
        image, caption = torch.from_numpy(held.links[at : at + AT_ONCE]).T
        with torch.inference_mode():
            total += float(model.match.told(model.match.images(regions[image]), texts[caption]).sum())
        words += int(texts[caption].lengths.sum()) - len(caption)
    return total / words


def hits(model: Any, held: TrainingSet) -> dict[str, float]:
    """hit@1, hit@5 and hit@10 in per cent, in both directions, and their sum (lee2018scan, sec. 4).

    A model of texts alone is judged by how it finds the other captions of a caption's image.
    """
    collection = _collection(held)
    links = Judgements.from_links(collection)
    if hasattr(model, "compare"):
        compared = model.compare(_seen(model, held), held.captions)
        if not np.isfinite(compared).all():
            return {SUM: math.nan}
        said: Embeddings | Matrix = Matrix(collection.image_ids, collection.caption_ids, compared)
        wanted = {way: links.listed(way) for way in ("i2t", "t2i")}
    else:
        vectors = model.embed_texts(held.captions)
        if not np.isfinite(vectors).all():
            return {SUM: math.nan}
        said = Embeddings(None, None, collection.caption_ids, vectors, similarity=model.similarity)
        wanted = {"t2t": _together(collection).listed("t2t")}
    ranks = {way: Ranks.from_standing(standing) for way, standing in stand(said, wanted).items()}
    found = {f"{way} {name}": 100 * metric(name).summarise(ranks[way]) for way in ranks for name in WATCHED}
    return found | {SUM: sum(found.values())}


FOUND, TOLD = Judge("hits in validation add up to", hits), Judge("CIDEr-D x 100 in validation is", told)


def _seen(model: Any, held: TrainingSet) -> Regions:
    seen = held.store.take(np.arange(len(held.store)))
    with torch.inference_mode():
        found: Regions = model.look(seen)
    return found


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
