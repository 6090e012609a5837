"""Validation after each epoch: retrieval hits, quality of generated captions, or choices between pairs and hard negatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from crossmatch.captions.cider import cider_d
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.data.arrays import IdArray
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.judgements import Judgements
from crossmatch.data.rank_counts import CandidateLists
from crossmatch.data.scores import Embeddings, Matrix
from crossmatch.metrics.metric_table import metric
from crossmatch.models.zoo.network_inputs import Regions
from crossmatch.ranking.ranks import Ranks
from crossmatch.ranking.sweep import count_ranks
from crossmatch.train.data.training_set import TrainingSet

HIT_METRICS = ("hit@1", "hit@5", "hit@10")
SUM = "sum"  # the value by which the best epoch is chosen, of any metric
LIKELIHOOD = "log-likelihood per word"  # decides between epochs with equal `SUM`, for captioners
DIGITS = 6  # decimals of `SUM` that are compared: captions of equal length differ by 1e-20 in CIDEr-D
CAPTION_BATCH = 128  # captions whose likelihood is computed at once
PAIR_BATCH = 64  # pairs that are compared with their negatives at once


@dataclass(frozen=True)
class ValidationMetric:
    """A way to validate a model, and a label for its `SUM`. The label is stored in model.json."""

    label: str
    measure: Callable[[Any, TrainingSet], dict[str, float]]


def choose_metric(model: Any, validation: TrainingSet) -> ValidationMetric:
    """Choose the metric: trials if there are hard negatives, else captions for a captioner, else retrieval."""
    if getattr(validation, "hard", None) is not None:
        return TRIALS
    return CAPTIONING if hasattr(model, "caption_regions") else RETRIEVAL


def validate(model: Any, validation: TrainingSet) -> dict[str, float]:
    """Measure a model; the values are the columns of log.csv.

    Returns:
        `SUM`, by which the best epoch is chosen, for captioners `LIKELIHOOD`, and the values that they consist of. NaN if the
        model's scores are not finite.
    """
    model.net.eval()
    return choose_metric(model, validation).measure(model, validation)


def require_valid_validation_set(model: Any, validation: TrainingSet) -> None:
    """Refuse, before training, a validation set on which the model cannot be measured."""
    images = len(np.unique(validation.links[:, 0]))
    if choose_metric(model, validation) is CAPTIONING and images < 2:
        raise CrossmatchError(
            f"The validation set has {images} image with captions; a captioner is validated by CIDEr-D, which needs at least 2. Use "
            "more: --validation FOLDER for a collection, dev_ims.npy and dev_caps.txt for precomp."
        )


# -- captions


def measure_captions(model: Any, validation: TrainingSet) -> dict[str, float]:
    """CIDEr-D x 100 of greedy captions (rennie2017scst, sec. 5), share of cut captions in per cent, log-likelihood per word.

    Document frequencies come from the validation captions, and the end of a caption is not a word: this is the published metric,
    independent of the training's reward.
    """
    regions = _all_regions(model, validation)
    image, caption = validation.links.T
    numbers, begin = np.unique(image, return_index=True)
    captions = model.caption_regions(regions[torch.from_numpy(numbers)], decoding="greedy")
    own_captions = zip(numbers, np.split(caption, begin[1:]), strict=True)
    references = {str(n): [validation.captions[c] for c in image_captions] for n, image_captions in own_captions}
    (score,) = cider_d(CaptionCorpus.from_texts(dict(zip(references, captions, strict=True)), references))
    return {
        "CIDEr-D": 100 * score.value,
        "captions cut": 100 * float(model.cut_short(captions).mean()),
        LIKELIHOOD: _likelihood_per_word(model, regions, validation),
        SUM: 100 * score.value,
    }


def _likelihood_per_word(model: Any, regions: Regions, validation: TrainingSet) -> float:
    """Mean log-likelihood over all words of all captions, including their ends."""
    total = words = 0.0
    texts = model.vocabulary.encode(validation.captions)
    for first in range(0, len(validation.links), CAPTION_BATCH):
        image, caption = torch.from_numpy(validation.links[first : first + CAPTION_BATCH]).T
        with torch.inference_mode():
            total += float(model.match.word_log_probabilities(model.match.images(regions[image]), texts[caption]).sum())
        words += int(texts[caption].lengths.sum()) - len(caption)
    return total / words


# -- retrieval


def measure_hits(model: Any, validation: TrainingSet) -> dict[str, float]:
    """hit@1, hit@5 and hit@10 in per cent, in both directions, and their sum (lee2018scan, sec. 4).

    A model of texts alone is measured by retrieving the other captions of a caption's image.
    """
    collection = Collection(_ids(len(validation.store)), _ids(len(validation.captions)), (), validation.links)
    links = Judgements.from_links(collection)
    if hasattr(model, "compare"):
        matrix = model.compare(_all_regions(model, validation), validation.captions)
        if not np.isfinite(matrix).all():
            return {SUM: math.nan}
        scores: Embeddings | Matrix = Matrix(collection.image_ids, collection.caption_ids, matrix)
        positives = {direction: links.candidate_lists(direction) for direction in ("i2t", "t2i")}
    else:
        vectors = model.embed_texts(validation.captions)
        if not np.isfinite(vectors).all():
            return {SUM: math.nan}
        scores = Embeddings(None, None, collection.caption_ids, vectors, similarity=model.similarity)
        positives = {"t2t": _same_image_judgements(collection).candidate_lists("t2t")}
    return sum_hits(scores, positives, HIT_METRICS)


def sum_hits(scores: Embeddings | Matrix, positives: Mapping[str, CandidateLists], names: Sequence[str]) -> dict[str, float]:
    """Hit metrics in per cent, in each direction of `positives`, and their sum."""
    ranks = {direction: Ranks.from_counts(counts) for direction, counts in count_ranks(scores, positives).items()}
    hits = {f"{direction} {name}": 100 * metric(name).summarise(ranks[direction]) for direction in ranks for name in names}
    return hits | {SUM: sum(hits.values())}


def _all_regions(model: Any, validation: TrainingSet) -> Regions:
    images = validation.store.take(np.arange(len(validation.store)))
    with torch.inference_mode():
        regions: Regions = model.as_regions(images)
    return regions


def _ids(n: int) -> IdArray:
    return np.asarray([f"{number:07d}" for number in range(n)])


def _same_image_judgements(collection: Collection) -> Judgements:
    """Captions of the same image as positives of each other."""
    image, caption = collection.links.T  # sorted by image
    groups = np.split(caption, np.flatnonzero(np.diff(image)) + 1)
    pairs = np.asarray(sorted({pair for group in groups for pair in permutations(np.unique(group).tolist(), 2)}), dtype=np.int64)
    query, item = pairs.reshape(-1, 2).T
    return Judgements("links", query, item, np.ones(len(query)), (collection.shape[1],) * 2, kind="caption-caption")


# -- trials


def measure_trials(model: Any, validation: TrainingSet) -> dict[str, float]:
    """Accuracy of the choices between pairs and their hard negatives, in per cent, and the sum of these.

        ipos2t    the image scores higher with its caption than with the negative caption (the only choice without negative images)
        ineg2t    the negative image scores higher with the negative caption
        tpos2i    the caption scores higher with its image than with the negative image
        tneg2i    the negative caption scores higher with the negative image

    On the embedded world every recipe is measured by all four, whatever negatives it is trained with (see `diorama_trials`). A tie
    is an error. Source: miranda2024bivlc, sec. 3.2; app. E.3 for choosing an epoch by the accuracy on held-out pairs.
    """
    assert validation.hard is not None
    model.net.eval()
    has_images = bool((validation.hard[:, 0] >= 0).all())
    wins: list[NDArray[np.bool_]] = []
    for first in range(0, len(validation.links), PAIR_BATCH):
        links, hard = validation.links[first : first + PAIR_BATCH], validation.hard[first : first + PAIR_BATCH]
        images = np.concatenate([links[:, 0], hard[:, 0]]) if has_images else links[:, 0]
        captions = [validation.captions[n] for n in (*links[:, 1].tolist(), *hard[:, 1].tolist())]
        with torch.inference_mode():
            regions = model.as_regions(validation.store.take(images))
        wins.append(_choices(model.compare(regions, captions), len(links)))
    names = ("ipos2t", "ineg2t", "tpos2i", "tneg2i")[: 4 if has_images else 1]
    accuracies = {name: 100 * float(share) for name, share in zip(names, np.concatenate(wins).mean(axis=0), strict=True)}
    return accuracies | {SUM: sum(accuracies.values())}


def _choices(scores: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Whether each choice was right, (count, 1 or 4), from scores of images x texts, negatives last."""
    if not np.isfinite(scores).all():
        raise CrossmatchError("The network's scores are not finite: training has diverged. Lower learning_rate, or set clip.")
    positive_rows = scores[:count]
    positive, image_with_negative_text = np.diagonal(positive_rows[:, :count]), np.diagonal(positive_rows[:, count:])
    if len(scores) == count:
        return np.asarray(positive > image_with_negative_text)[:, None]
    negative_image_with_text, negative = np.diagonal(scores[count:, :count]), np.diagonal(scores[count:, count:])
    return np.stack(
        [
            positive > image_with_negative_text,
            negative > negative_image_with_text,
            positive > negative_image_with_text,
            negative > image_with_negative_text,
        ],
        axis=1,
    )


RETRIEVAL = ValidationMetric("hits in validation add up to", measure_hits)
CAPTIONING = ValidationMetric("CIDEr-D x 100 in validation is", measure_captions)
TRIALS = ValidationMetric("right choices in validation add up to", measure_trials)
