"""Abilities of models: protocols that say what a model can do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from numpy.typing import ArrayLike

from crossmatch.data.grounding import Grounder
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.rated_pairs import Similarity
from crossmatch.data.scores import Scores
from crossmatch.data.trials import TrialAnswers, Trials
from crossmatch.models.likelihood_scoring import Captioner

if TYPE_CHECKING:
    from PIL.Image import Image


@runtime_checkable
class ImageEncoder(Protocol):
    """Embeds images; vectors are compared by cosine, or by the dot product if `similarity` is "dot".

    A model with `prepare_images(images)` and `embed_prepared(prepared)`, which together do what `embed_images` does, has its next
    batches prepared by other threads while it computes.
    """

    def embed_images(self, images: Sequence[Image]) -> ArrayLike: ...


@runtime_checkable
class TextEncoder(Protocol):
    """Embeds texts. If it needs all texts first, `fitted(texts)` returns the encoder to use."""

    def embed_texts(self, texts: Sequence[str]) -> ArrayLike: ...


@runtime_checkable
class ImageTextEncoder(ImageEncoder, TextEncoder, Protocol):
    """Embeds images and texts into one space."""


@runtime_checkable
class CrossEncoder(Protocol):
    """Scores every image with every text: an array of shape (images, texts)."""

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> ArrayLike: ...


@runtime_checkable
class PairScorer(Protocol):
    """A cross encoder that also scores image n with text n: an array of shape (n,)."""

    def score_pairs(self, images: Sequence[Image], texts: Sequence[str]) -> ArrayLike: ...


@runtime_checkable
class CaptionGenerator(Protocol):
    """Writes a caption for each image. It may take decoding options (see `crossmatch.models.caption_generation`)."""

    def caption(self, images: Sequence[Image], **decoding: Any) -> Sequence[str]: ...


@runtime_checkable
class ScoreSource(Protocol):
    """Has precomputed scores, or computes them from the benchmark itself: score files, the random scorer, the oracle."""

    def scores(self, data: Retrieval | Similarity | Trials) -> Scores | TrialAnswers: ...


def list_abilities(model: object) -> tuple[str, ...]:
    """Return the names of a model's abilities.

    >>> list_abilities(lambda images, texts: 0)
    ('score',)
    """
    images, texts = isinstance(model, ImageEncoder), isinstance(model, TextEncoder)
    abilities = {
        "embed": images and texts,
        "embed images": images and not texts,
        "embed texts": texts and not images,
        "score": isinstance(model, CrossEncoder) or callable(model),
        "log-likelihood": isinstance(model, Captioner),
        "caption": isinstance(model, CaptionGenerator),
        "ground": isinstance(model, Grounder),
        "scores": isinstance(model, ScoreSource),
    }
    return tuple(name for name, has_ability in abilities.items() if has_ability)


def uses_images(model: object) -> bool:
    """Whether the evaluation opens images for a model.

    >>> uses_images(lambda images, texts: 0)
    True
    """
    if isinstance(model, ScoreSource):
        return False
    return isinstance(model, ImageEncoder) or not (isinstance(model, TextEncoder) or ignores_images(model))


def ignores_images(model: object) -> bool:
    """Whether a scorer declares with `inputs` that it needs only texts or ids."""
    return getattr(model, "inputs", "") in ("texts", "ids")


def cache_signature(model: object) -> str | None:
    """Return the signature under which outputs of a model may be cached; None without signature, or with `cached = False`.

    >>> class Mine:
    ...     signature = "mine|weights:9f0c"
    >>> cache_signature(Mine()), cache_signature(print)
    ('mine|weights:9f0c', None)
    """
    system = getattr(model, "signature", None)
    return system if isinstance(system, str) and system.strip() and getattr(model, "cached", True) else None
