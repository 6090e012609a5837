"""From a model to scores: embeds or scores the items of collections and trials, according to the abilities of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from crossmatch.data.arrays import FloatArray
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.rated_pairs import Similarity
from crossmatch.data.scores import Embeddings, Scores
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.data.trials import TrialAnswers, Trials
from crossmatch.models.abilities import (
    CrossEncoder,
    ImageEncoder,
    PairScorer,
    ScoreSource,
    TextEncoder,
    cache_signature,
    ignores_images,
)
from crossmatch.models.cache import Cache
from crossmatch.models.cache.cross_encoder_scores import BATCH, score_matrix
from crossmatch.models.cache.embeddings import open_embeddings
from crossmatch.models.distinct_items import collect_items, require_images
from crossmatch.models.embedding_pipeline import embed_images_of, embed_texts_of
from crossmatch.models.trial_scoring import compute_trial_scores


def score_collection(
    model: object,
    data: Retrieval | Similarity,
    batch: int = BATCH,
    *,
    allow_extra: bool = False,
    cache: Cache | None = None,
    workers: int | None = None,
) -> Scores:
    """Score every image and caption of a collection, in its order.

    `model` is an encoder, a cross encoder, a callable, or a source of scores. `allow_extra` accepts precomputed scores of more items.
    """
    collection = data.collection
    if isinstance(model, ScoreSource):
        scores = model.scores(data)
        if isinstance(scores, TrialAnswers):
            raise CrossmatchError(
                "the file holds trial scores, but this is a retrieval benchmark. Give embeddings, a matrix or a run."
            )
        with _name_file_in_errors(model):
            return scores.align_to(collection, allow_extra)
    if isinstance(model, ImageEncoder | TextEncoder):
        return _embed(model, collection, batch, cache, workers)
    return score_matrix(_score_function(model), collection, batch=batch, cache=cache, system=cache_signature(model))


def score_trials(
    model: object,
    tasks: Sequence[Trials],
    batch: int = BATCH,
    *,
    allow_extra: bool = False,
    allow_missing: bool = False,
    cache: Cache | None = None,
    workers: int | None = None,
) -> list[tuple[Trials, Outcomes]]:
    """Compute the outcomes of the trials of each task.

    An encoder embeds each image and each text of all tasks once. A cross encoder scores trial by trial.

    `allow_extra` accepts precomputed answers to more trials, `allow_missing` to a part of them. Returns for each task the trials
    with an answer, and their outcomes.
    """
    if isinstance(model, ScoreSource):
        with_settings = getattr(model, "settled", None)  # a source that embeds items itself
        source = model if with_settings is None else with_settings(batch, cache, workers)
        return [_read_answers(source, trials, allow_extra, allow_missing) for trials in tasks]
    if isinstance(model, ImageEncoder | TextEncoder):
        score_arrays = _embed_trials(model, tasks, batch, cache, workers)
        return [(trials, Outcomes.from_scores(scores)) for trials, scores in zip(tasks, score_arrays, strict=True)]
    score, system = _score_function(model), cache_signature(model)
    pairs = model.score_pairs if isinstance(model, PairScorer) else None
    outcomes = []
    for trials in tasks:
        presented = trials
        if ignores_images(model):  # there may be no image files, and opening them would be wasted work
            presented, cache = replace(trials, open_image=str), None  # type: ignore[arg-type]
        scores = compute_trial_scores(score, presented, batch=batch, cache=cache, system=system, pairs=pairs)
        outcomes.append((trials, Outcomes.from_scores(scores)))
    return outcomes


def get_trial_scores(model: object, trials: Trials, batch: int = BATCH, *, cache: Cache | None = None) -> FloatArray:
    """Compute the scores of a model, of shape (trials, captions, images)."""
    ((_, outcomes),) = score_trials(model, [trials], batch, cache=cache)
    if outcomes.scores is None:
        raise CrossmatchError("the file holds outcomes of trials, not scores. Give a csv with columns s_c0_i0, s_c0_i1, …")
    return outcomes.scores


def _read_answers(source: ScoreSource, trials: Trials, allow_extra: bool, allow_missing: bool) -> tuple[Trials, Outcomes]:
    answers = source.scores(trials)
    if not isinstance(answers, TrialAnswers):
        raise CrossmatchError("the file holds no trial scores. Give a csv with trial_id and columns s_c0_i0, s_c0_i1, …")
    with _name_file_in_errors(source):
        if allow_missing:
            answered = np.flatnonzero(np.isin(trials.ids, answers.ids))
            if not len(answered):
                raise CrossmatchError(
                    f"there is no answer to any of the {len(trials.ids):,} trials, such as {str(trials.ids[0])!r}. Check the ids."
                )
            trials = trials.select(answered)
        aligned = (answers.select_ids(trials.ids) if allow_extra else answers).align_to(trials)
    return trials, aligned if isinstance(aligned, Outcomes) else Outcomes.from_scores(aligned)


@contextmanager
def _name_file_in_errors(source: ScoreSource) -> Iterator[None]:
    """Add the path of the file that the scores come from to error messages."""
    try:
        yield
    except CrossmatchError as error:
        path = getattr(source, "path", None)
        raise type(error)(f"{path}: {error}" if path else str(error)) from None


def _embed_trials(model: object, tasks: Sequence[Trials], batch: int, cache: Cache | None, workers: int | None) -> list[FloatArray]:
    """Embed the items of all trials once, and return the scores of each task."""
    items, positions = collect_items(tasks)
    embeddings = _embed(model, items, batch, cache, workers)
    if "i2t" not in embeddings.directions:
        raise CrossmatchError(f"{type(model).__name__} does not compare images with texts, which every trial needs.")
    score_arrays = []
    for image, caption in positions:
        images, captions = np.broadcast_arrays(image[:, None, :], caption[:, :, None])
        score_arrays.append(embeddings.score_pairs(images.ravel(), captions.ravel()).reshape(images.shape))
    return score_arrays


def _score_function(model: object) -> Callable[..., ArrayLike]:
    score = model.score if isinstance(model, CrossEncoder) else model if callable(model) else None
    if score is None:
        raise CrossmatchError(
            f"{type(model).__name__} has none of the abilities of a model. Give it embed_images and embed_texts, "
            "or score(images, texts), or log_likelihood(images, texts), or pass a callable."
        )
    return cast("Callable[..., ArrayLike]", score)


def _embed(model: object, collection: Collection, batch: int, cache: Cache | None, workers: int | None) -> Embeddings:
    """Embed the images and the captions of a collection, as far as the model can."""
    images = captions = None
    with open_embeddings(None if hasattr(model, "fitted") else cache, cache_signature(model)) as cached:
        if isinstance(model, ImageEncoder):
            require_images(collection)
            images = embed_images_of(model, collection, batch=batch, workers=workers, cache=cached)
        if isinstance(model, TextEncoder):
            fitted = getattr(model, "fitted", None)
            encoder = fitted(collection.texts()) if fitted is not None else model
            # Each text once: in two batches the same text may differ in its last bits, and rounding would break a tie.
            distinct = sorted(set(collection.texts()))
            position = {text: n for n, text in enumerate(distinct)}
            rows = [position[text] for text in collection.captions]
            captions = embed_texts_of(encoder, distinct, batch=batch, cache=cached)[rows]
    similarity = getattr(model, "similarity", "cosine")
    return Embeddings(collection.image_ids, images, collection.caption_ids, captions, similarity)
