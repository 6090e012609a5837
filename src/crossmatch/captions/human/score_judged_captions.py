"""Prepare the captions of a study of ratings or preferences, and score them by caption metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossmatch.captions.caption_metric_table import CaptionResult, compute_metrics, parse_metric_names
from crossmatch.captions.corpus import CaptionCorpus, normalise_caption, remove_own_reference
from crossmatch.captions.document_frequencies import DocumentFrequencies
from crossmatch.captions.human.cached_models import cache_models
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.ratings import Preferences, Ratings

DOCUMENT_UNITS = ("images", "candidates")


@dataclass(frozen=True, eq=False)
class JudgedCaptions:
    """Captions to score: text, references and image of each caption id.

    `excluded` counts captions that were removed because they are references of their own image; `left_out` counts captions that are
    compared only with the other references.
    """

    texts: Mapping[str, str]
    references: Mapping[str, Sequence[str]]
    images: Mapping[str, str]
    references_by_image: Mapping[str, Sequence[str]]  # all references of each image, for document frequencies
    excluded: int = 0
    left_out: int = 0


def prepare_ratings(study: Ratings) -> tuple[Ratings, JudgedCaptions]:
    """Apply the study's rule for candidates that are references of their own image.

    >>> study = Ratings.from_rows("mine", [("7", "A dog.", [4]), ("7", "a cat", [1])], {"7": ["a dog", "the dog"]})
    >>> prepare_ratings(study)[1].references, prepare_ratings(study)[1].left_out
    ({'7#0': ['the dog'], '7#1': ['a dog', 'the dog']}, 1)
    """
    normalised = {
        image: [normalise_caption(text) for text in study.references[image]] for image in dict.fromkeys(study.images.tolist())
    }
    is_reference = np.array(
        [normalise_caption(text) in normalised[image] for image, text in zip(study.images.tolist(), study.captions, strict=True)]
    )
    excluded = left_out = 0
    if study.reference_rule == "exclude":
        excluded = int(is_reference.sum())
        if excluded == len(study):
            raise CrossmatchError(f"{study.name}: all {excluded:,} candidates are references of their image, so none is left.")
        study = study.select(np.flatnonzero(~is_reference)) if excluded else study
    ids, images = study.ids.tolist(), study.images.tolist()
    references = {i: list(study.references[image]) for i, image in zip(ids, images, strict=True)}
    if study.reference_rule == "leave-out":
        left_out = int(is_reference.sum())
        for n in np.flatnonzero(is_reference).tolist():
            remaining = remove_own_reference(study.captions[n], references[ids[n]])
            if not remaining:
                raise CrossmatchError(
                    f"Candidate {ids[n]!r} is the only reference of image {images[n]!r}, so no reference is left. "
                    "Add another reference, or remove the candidate."
                )
            references[ids[n]] = remaining
    references_by_image = {image: study.references[image] for image in dict.fromkeys(images)}
    texts, image_of = dict(zip(ids, study.captions, strict=True)), dict(zip(ids, images, strict=True))
    return study, JudgedCaptions(texts, references, image_of, references_by_image, excluded, left_out)


def prepare_preferences(study: Preferences) -> JudgedCaptions:
    """The two captions of each pair, in order.

    >>> study = Preferences("mine", ["0"], ["7"], [("a dog", "a cat")], [["the dog"]], [0], ["HI"])
    >>> prepare_preferences(study).texts
    {'0/0': 'a dog', '0/1': 'a cat'}
    """
    texts, references, images = {}, {}, {}
    by_image: dict[str, dict[str, None]] = {}
    for i, image, pair, texts_of_pair in zip(
        study.ids.tolist(), study.images.tolist(), study.captions, study.references, strict=True
    ):
        by_image.setdefault(image, {}).update(dict.fromkeys(texts_of_pair))
        for n, text in enumerate(pair):
            texts[f"{i}/{n}"], references[f"{i}/{n}"], images[f"{i}/{n}"] = text, texts_of_pair, image
    return JudgedCaptions(texts, references, images, {image: list(distinct) for image, distinct in by_image.items()})


def score_judged_captions(
    captions: JudgedCaptions,
    names: Iterable[str],
    documents: str = "images",
    images: Callable[[str], Any] | None = None,
    **resources: Any,
) -> dict[str, CaptionResult]:
    """Score the captions of a study by several metrics.

    `documents` says how CIDEr's document frequencies are counted: `images` counts each image once, however many of its captions
    were judged; `candidates` counts an image once per judged caption, as scripts do that pass all candidates to coco-caption.
    The resources are those of `compute_metrics`.
    """
    if documents not in DOCUMENT_UNITS:
        raise UsageError(f"Unknown value {documents!r} for documents. Choose from: {', '.join(DOCUMENT_UNITS)}.")
    names = list(names)
    needs_frequencies = any("frequencies" in request.metric.needs for request in parse_metric_names(names).values())
    if needs_frequencies and documents == "images" and resources.get("frequencies") is None:
        resources["frequencies"] = DocumentFrequencies.from_references(captions.references_by_image)
    resources = cache_models({**resources, "images": images})
    if (load_image := resources["images"]) is not None:
        resources["images"] = lambda i: load_image(captions.images[i])
    corpus = CaptionCorpus.from_texts(captions.texts, captions.references)
    results = compute_metrics(corpus, names, **resources)
    for name, result in results.items():
        is_invalid = ~np.isfinite(result.scores.values)
        if is_invalid.any():
            raise CrossmatchError(
                f"{name} of candidate {str(corpus.ids[is_invalid.argmax()])!r} is not a finite number. Leave the metric out."
            )
    return results
