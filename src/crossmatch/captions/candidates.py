"""The captions that people judged as a corpus, scored by the metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossmatch.captions.corpus import Corpus
from crossmatch.captions.frequencies import Frequencies
from crossmatch.captions.leave_out import plain, without
from crossmatch.captions.table import CaptionResult, chosen, score
from crossmatch.core.arrays import BoolArray, FloatArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.ratings import Preferences, Ratings

DOCUMENTS = ("images", "candidates")
# Of the larger score. Sums in another order differ by less than 1e-14; BLEU's guards, by which coco-caption puts captions in order
# that are level but for their length, by more than 1e-12 (measured on the three studies).
SAME = 1e-13


@dataclass(frozen=True, eq=False)
class Candidates:
    """Captions to be scored: text, references and image of each id; and what became of those that are references themselves."""

    texts: Mapping[str, str]
    references: Mapping[str, Sequence[str]]
    images: Mapping[str, str]
    documents: Mapping[str, Sequence[str]]  # all references of each image, for document frequencies
    excluded: int = 0
    left_out: int = 0


def same(first: FloatArray, second: FloatArray) -> BoolArray:
    """Which scores are equal but for rounding.

    >>> same(np.array([0.1 + 0.2, 0.3]), np.array([0.3, 0.3 + 1e-10]))
    array([ True, False])
    """
    return np.asarray(np.abs(first - second) <= SAME * np.maximum(np.abs(first), np.abs(second)), dtype=np.bool_)


def rated(said: Ratings) -> tuple[Ratings, Candidates]:
    """The candidates of a study of ratings, after its rule for those that are references of their own image.

    >>> said = Ratings.gathered("mine", [("7", "A dog.", [4]), ("7", "a cat", [1])], {"7": ["a dog", "the dog"]})
    >>> rated(said)[1].references, rated(said)[1].left_out
    ({'7#0': ['the dog'], '7#1': ['a dog', 'the dog']}, 1)
    """
    known = {image: [plain(text) for text in said.references[image]] for image in dict.fromkeys(said.images.tolist())}
    is_reference = np.array([plain(text) in known[image] for image, text in zip(said.images.tolist(), said.captions, strict=True)])
    excluded = left_out = 0
    if said.equal == "exclude":
        excluded = int(is_reference.sum())
        if excluded == len(said):
            raise CrossmatchError(f"all {excluded:,} candidates of {said.name} are references of their image; none is left.")
        said = said.among(np.flatnonzero(~is_reference)) if excluded else said
    ids, images = said.ids.tolist(), said.images.tolist()
    references = {i: list(said.references[image]) for i, image in zip(ids, images, strict=True)}
    if said.equal == "leave-out":
        left_out = int(is_reference.sum())
        for n in np.flatnonzero(is_reference).tolist():
            others = without(said.captions[n], references[ids[n]])
            if not others:
                raise CrossmatchError(
                    f"candidate {ids[n]!r} is the only reference of image {images[n]!r}; nothing is left to compare it with. "
                    "Add another reference, or remove the candidate."
                )
            references[ids[n]] = others
    documents = {image: said.references[image] for image in dict.fromkeys(images)}
    return said, Candidates(
        dict(zip(ids, said.captions, strict=True)), references, dict(zip(ids, images, strict=True)), documents, excluded, left_out
    )


def preferred(said: Preferences) -> Candidates:
    """The candidates of a study of preferences: two for each pair, the first one first.

    >>> said = Preferences("mine", ["0"], ["7"], [("a dog", "a cat")], [["the dog"]], [0], ["HI"])
    >>> preferred(said).texts
    {'0/0': 'a dog', '0/1': 'a cat'}
    """
    texts, references, images = {}, {}, {}
    documents: dict[str, dict[str, None]] = {}
    for i, image, pair, known in zip(said.ids.tolist(), said.images.tolist(), said.captions, said.references, strict=True):
        documents.setdefault(image, {}).update(dict.fromkeys(known))
        for which, text in enumerate(pair):
            texts[f"{i}/{which}"], references[f"{i}/{which}"], images[f"{i}/{which}"] = text, known, image
    return Candidates(texts, references, images, {image: list(known) for image, known in documents.items()})


def scored(
    found: Candidates,
    names: Iterable[str],
    documents: str = "images",
    images: Callable[[str], Any] | None = None,
    **given: Any,
) -> dict[str, CaptionResult]:
    """Every metric of these names on the candidates, in their order.

    CIDEr's document frequencies count each image once (`images`), however many of its captions were judged. Scripts that hand all
    candidates to coco-caption count the references of an image once for every candidate of it; `candidates` does so too.
    `images` opens the picture of an image's id; what else the metrics need is `given` as to `table.score`.
    """
    if documents not in DOCUMENTS:
        raise WrongWords(f"documents are {documents!r}; there are {' and '.join(DOCUMENTS)}. Choose one.")
    names = list(names)
    weighs = any("frequencies" in one.metric.needs for one in chosen(names).values())
    if weighs and documents == "images" and given.get("frequencies") is None:
        given["frequencies"] = Frequencies.of(Corpus.of(dict.fromkeys(found.documents, ""), found.documents))
    if images is not None:
        opened = images
        given["images"] = lambda i: opened(found.images[i])
    corpus = Corpus.of(found.texts, found.references)
    results = score(corpus, names, **given)
    for name, result in results.items():
        wrong = ~np.isfinite(result.scores.values)
        if wrong.any():
            raise CrossmatchError(f"{name} of candidate {str(corpus.ids[wrong.argmax()])!r} is not a number. Leave the metric out.")
    return results
