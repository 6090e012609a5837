"""Captioners as scorers: the log-likelihood of a caption, given the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.trials import Trials
from crossmatch.models.model_outputs import as_array, as_scores

if TYPE_CHECKING:
    from PIL.Image import Image

NORMALISATIONS = ("per-token", "plain")


@runtime_checkable
class Captioner(Protocol):
    """A model with log P(text | image), in nats, as an array of shape (images, texts).

    If it has `lengths(texts)`, that is the number of tokens that each sum has; if not, words are counted.
    """

    def log_likelihood(self, images: Sequence[Image], texts: Sequence[str]) -> ArrayLike: ...


@dataclass(frozen=True)
class LikelihoodScorer:
    """A captioner as a cross encoder. Long captions are less likely, so by default the sum is divided by the caption's length:

        s(i, t) = log P(t | i) / |t|      (per-token),        s(i, t) = log P(t | i)      (plain)

    Both rank the images of one caption equally, but not the captions of one image. Source: hu2019bison, app. D.2.

    >>> class Coin:
    ...     signature = "coin"
    ...     def log_likelihood(self, images, texts):
    ...         return [[-0.7 * len(text.split()) for text in texts] for _ in images]
    >>> LikelihoodScorer(Coin(), "plain").score([None], ["a dog", "a red dog"]).round(2), LikelihoodScorer(Coin()).signature
    (array([[-1.4, -2.1]]), 'coin|likelihood:per-word')
    """

    model: Captioner
    normalisation: str = NORMALISATIONS[0]

    def __post_init__(self) -> None:
        if self.normalisation not in NORMALISATIONS:
            raise UsageError(f"--likelihood must be one of {', '.join(NORMALISATIONS)} (got {self.normalisation!r}).")

    @property
    def kind(self) -> str:
        """The normalisation as the signature shows it: per token, per word if the model does not count tokens, or plain."""
        is_per_word = self.normalisation == "per-token" and not hasattr(self.model, "lengths")
        return "per-word" if is_per_word else self.normalisation

    @property
    def signature(self) -> str | None:
        """The captioner's signature with the normalisation; None if it has none."""
        signature = getattr(self.model, "signature", None)
        return None if signature is None else f"{signature}|likelihood:{self.kind}"

    def notes_on(self, trials: Trials) -> tuple[str, ...]:
        """Notes that reports show beside its results."""
        notes_on = getattr(self.model, "notes_on", None)
        return (f"scored by log-likelihood, {self.kind}", *(notes_on(trials) if notes_on else ()))

    @property
    def inputs(self) -> str:
        """ "texts" for a model that never opens the image."""
        return str(getattr(self.model, "inputs", ""))

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> NDArray[Any]:
        """Score every image with every text; shape (images, texts)."""
        values = self.model.log_likelihood(images, texts)
        return self._normalise(as_scores(values, (len(images), len(texts)), "log_likelihood(images, texts)"), texts)

    def _normalise(self, values: NDArray[Any], texts: Sequence[str]) -> NDArray[Any]:
        return np.asarray(values / self._lengths(texts) if self.normalisation == "per-token" else values, dtype=np.float64)

    def _lengths(self, texts: Sequence[str]) -> NDArray[Any]:
        count = getattr(self.model, "lengths", None)
        lengths = as_array(count(texts) if count else [len(text.split()) for text in texts], "lengths")
        if lengths.shape != (len(texts),) or lengths.dtype.kind not in "fiu" or not (np.isfinite(lengths) & (lengths > 0)).all():
            raise CrossmatchError(
                f"lengths(texts) returned {lengths!r:.60} for {len(texts)} texts; expected a number above 0 for each."
            )
        return lengths


@dataclass(frozen=True)
class PairLikelihoodScorer(LikelihoodScorer):
    """A likelihood scorer whose captioner also takes image n with text n, for many n at once."""

    def score_pairs(self, images: Sequence[Image], texts: Sequence[str]) -> NDArray[Any]:
        """Score image n with text n."""
        values = as_array(self.model.log_likelihood_of_pairs(images, texts), "log_likelihood_of_pairs")  # type: ignore[attr-defined]
        return self._normalise(values, texts)


def as_scorer(model: object, likelihood: str | None, has_other_abilities: bool, name: str = "") -> object:
    """Return the model itself, or a likelihood scorer if it has no other ability or `likelihood` names a normalisation."""
    if not isinstance(model, Captioner):
        if likelihood is not None:
            raise UsageError(f"{name or type(model).__name__} is not a captioner: it has no log_likelihood. Remove --likelihood.")
        return model
    if likelihood is None and has_other_abilities:
        return model
    scorer = PairLikelihoodScorer if hasattr(model, "log_likelihood_of_pairs") else LikelihoodScorer
    return scorer(model, likelihood or NORMALISATIONS[0])
