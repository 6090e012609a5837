"""What a model can do, and how each ability becomes scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from crossmatch.core.arrays import FloatArray
from crossmatch.core.benchmark import Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.grounding import Grounder
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.pairs import Similarity
from crossmatch.core.scores import Embeddings, Matrix, Scores
from crossmatch.core.trials import Answers, Trials
from crossmatch.models.cache import BATCH, ScoreCache, cached_matrix, require_pictures
from crossmatch.models.embedding_cache import kept_embeddings
from crossmatch.models.likelihood import Captioner
from crossmatch.models.pair_cache import cached_trials, items_of
from crossmatch.models.pipeline import image_vectors, text_vectors

if TYPE_CHECKING:
    from PIL.Image import Image


@runtime_checkable
class ImageEncoder(Protocol):
    """Puts images into a space, where the cosine (or dot product) compares them.

    If it also has `prepare_images(images)` and `embed_prepared(prepared)`, which together are `embed_images`, other threads prepare
    the next batches while it computes one.
    """

    def embed_images(self, images: Sequence[Image]) -> ArrayLike: ...


@runtime_checkable
class TextEncoder(Protocol):
    """Puts texts into a space. If it must see all texts first, `fitted(texts)` gives the encoder to use."""

    def embed_texts(self, texts: Sequence[str]) -> ArrayLike: ...


@runtime_checkable
class DualEncoder(ImageEncoder, TextEncoder, Protocol):
    """Puts images and texts into one space."""


@runtime_checkable
class CrossEncoder(Protocol):
    """Looks at images and texts together: an array of shape (images, texts)."""

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> ArrayLike: ...


@runtime_checkable
class PairScorer(Protocol):
    """A cross encoder that also takes image n with text n, for many n at once: an array of shape (n,)."""

    def score_pairs(self, images: Sequence[Image], texts: Sequence[str]) -> ArrayLike: ...


@runtime_checkable
class Teller(Protocol):
    """Tells what is in an image: a caption for each. It may take options by name (`crossmatch.models.generation`)."""

    def caption(self, images: Sequence[Image], **how: Any) -> Sequence[str]: ...


@runtime_checkable
class Source(Protocol):
    """Has its scores ready, or makes them from the benchmark itself: precomputed files, the random scorer, the oracle."""

    def scores(self, data: Retrieval | Similarity | Trials) -> Scores | Answers: ...


def abilities(model: object) -> tuple[str, ...]:
    """The names of what a model can do.

    >>> abilities(lambda images, texts: 0)
    ('score',)
    """
    images, texts = isinstance(model, ImageEncoder), isinstance(model, TextEncoder)
    found = {
        "embed": images and texts,
        "embed images": images and not texts,
        "embed texts": texts and not images,
        "score": isinstance(model, CrossEncoder) or callable(model),
        "log-likelihood": isinstance(model, Captioner),
        "caption": isinstance(model, Teller),
        "ground": isinstance(model, Grounder),
        "scores": isinstance(model, Source),
    }
    return tuple(name for name, has in found.items() if has)


def looks(model: object) -> bool:
    """Whether a model is shown pictures, to embed them or to compare them with texts.

    >>> looks(lambda images, texts: 0)
    True
    """
    if isinstance(model, Source):
        return False
    return isinstance(model, ImageEncoder) or not (isinstance(model, TextEncoder) or getattr(model, "sees", "") in ("texts", "ids"))


def scores_of(
    model: object,
    data: Retrieval | Similarity,
    batch: int = BATCH,
    *,
    partial: bool = False,
    cache: ScoreCache | None = None,
    workers: int | None = None,
) -> Scores:
    """What the model says about every image and caption of the collection, in its order.

    `workers` threads open pictures for a model that embeds them; by default as many as the machine has cores to spare.
    """
    collection = data.collection
    if isinstance(model, Source):
        said = model.scores(data)
        if isinstance(said, Answers):
            raise CrossmatchError(
                "the file holds trial scores, but this is a retrieval benchmark. Give embeddings, a matrix or a run."
            )
        try:
            return said.aligned(collection, partial)
        except CrossmatchError as error:
            path = getattr(model, "path", None)
            raise type(error)(f"{path}: {error}" if path else str(error)) from None
    return _ask(model, collection, batch, cache, workers)


def outcomes_of(
    model: object,
    tasks: Sequence[Trials],
    batch: int = BATCH,
    *,
    limited: bool = False,
    partial: bool = False,
    cache: ScoreCache | None = None,
    workers: int | None = None,
) -> list[tuple[Trials, Outcomes]]:
    """What came of the trials of each task, and which they are: those that were answered, where `partial` allows to leave some out.

    `limited` says that there may be answers to more trials than are asked. An encoder sees each image and each text of all tasks
    once; whatever looks at both together is asked trial by trial.
    """
    if isinstance(model, Source):
        settled = getattr(model, "settled", None)  # one that embeds for itself
        model = model if settled is None else settled(batch, cache, workers)
        return [_answers(model, trials, limited, partial) for trials in tasks]
    if isinstance(model, ImageEncoder | TextEncoder):
        return list(zip(tasks, map(Outcomes.of, _embedded_trials(model, tasks, batch, cache, workers)), strict=True))
    score, system = _scorer(model), known_by(model)
    if getattr(model, "sees", "") in ("texts", "ids"):  # it would open pictures for nothing, and may have none
        shown, cache = [replace(trials, open_image=str) for trials in tasks], None  # type: ignore[arg-type]
    else:
        shown = list(tasks)
    pairs = model.score_pairs if isinstance(model, PairScorer) else None
    scored = (cached_trials(score, trials, batch=batch, cache=cache, system=system, pairs=pairs) for trials in shown)
    return list(zip(tasks, map(Outcomes.of, scored), strict=True))


def trial_scores_of(model: object, trials: Trials, batch: int = BATCH, *, cache: ScoreCache | None = None) -> FloatArray:
    """The model's scores of shape (trials, captions, images)."""
    ((_, outcomes),) = outcomes_of(model, [trials], batch, cache=cache)
    if outcomes.scores is None:
        raise CrossmatchError("only what came of the trials is known, not the scores. Give a csv with columns s_c0_i0, s_c0_i1, …")
    return outcomes.scores


def _answers(model: Source, trials: Trials, limited: bool, partial: bool) -> tuple[Trials, Outcomes]:
    said = model.scores(trials)
    if not isinstance(said, Answers):
        raise CrossmatchError("the file holds no trial scores. Give a csv with trial_id and columns s_c0_i0, s_c0_i1, …")
    try:
        if partial:
            answered = np.flatnonzero(np.isin(trials.ids, said.ids))
            if not len(answered):
                raise CrossmatchError(
                    f"none of the {len(trials.ids):,} trials is answered; the first would be {str(trials.ids[0])!r}. Check the ids."
                )
            trials = trials.chosen(answered)
        found = (said.among(trials.ids) if limited else said).aligned(trials)
    except CrossmatchError as error:
        path = getattr(model, "path", None)
        raise type(error)(f"{path}: {error}" if path else str(error)) from None
    return trials, found if isinstance(found, Outcomes) else Outcomes.of(found)


def _embedded_trials(
    model: object, tasks: Sequence[Trials], batch: int, cache: ScoreCache | None, workers: int | None
) -> list[FloatArray]:
    items, places = items_of(tasks)
    said = _embed(model, items, batch, cache, workers)
    if "i2t" not in said.directions:
        raise CrossmatchError(f"{type(model).__name__} compares no images with texts, which every trial needs.")
    out = []
    for image, caption in places:
        pairs = np.broadcast_arrays(image[:, None, :], caption[:, :, None])
        out.append(said.pairs(pairs[0].ravel(), pairs[1].ravel()).reshape(pairs[0].shape))
    return out


def _scorer(model: object) -> Callable[..., ArrayLike]:
    score = model.score if isinstance(model, CrossEncoder) else model if callable(model) else None
    if score is None:
        raise CrossmatchError(
            f"{type(model).__name__} has none of the abilities of a model. Give it embed_images and embed_texts, "
            "or score(images, texts), or log_likelihood(images, texts), or pass a callable."
        )
    return cast("Callable[..., ArrayLike]", score)


def _ask(model: object, collection: Collection, batch: int, cache: ScoreCache | None, workers: int | None) -> Embeddings | Matrix:
    if isinstance(model, ImageEncoder | TextEncoder):
        return _embed(model, collection, batch, cache, workers)
    return cached_matrix(_scorer(model), collection, batch=batch, cache=cache, system=known_by(model))


def _embed(model: object, collection: Collection, batch: int, cache: ScoreCache | None, workers: int | None) -> Embeddings:
    """One pass over the images, if the model embeds images, and one over the captions, if it embeds texts."""
    images = captions = None
    with kept_embeddings(None if hasattr(model, "fitted") else cache, known_by(model)) as shelf:
        if isinstance(model, ImageEncoder):
            require_pictures(collection)
            images = image_vectors(model, collection, batch=batch, workers=workers, shelf=shelf)
        if isinstance(model, TextEncoder):
            fitted = getattr(model, "fitted", None)
            encoder = fitted(collection.texts()) if fitted is not None else model
            # Each text once: in two batches the same text may differ in its last bits, and a tie would be broken by rounding.
            distinct = sorted(set(collection.texts()))
            place = {text: n for n, text in enumerate(distinct)}
            member = [place[text] for text in collection.captions]
            captions = text_vectors(encoder, distinct, batch=batch, shelf=shelf)[member]
    similarity = getattr(model, "similarity", "cosine")
    return Embeddings(collection.image_ids, images, collection.caption_ids, captions, similarity)


def known_by(model: object) -> str | None:
    """The signature under which what a model says may be kept; nothing where it has none, or says `cached = False`.

    >>> class Mine:
    ...     signature = "mine|weights:9f0c"
    >>> known_by(Mine()), known_by(print)
    ('mine|weights:9f0c', None)
    """
    system = getattr(model, "signature", None)
    return system if isinstance(system, str) and system.strip() and getattr(model, "cached", True) else None
