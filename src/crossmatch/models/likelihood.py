"""Captioners as scorers: how likely a caption is, given the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.trials import Trials
from crossmatch.models.cache import as_array

if TYPE_CHECKING:
    from PIL.Image import Image

HOW = ("per-token", "plain")


@runtime_checkable
class Captioner(Protocol):
    """Knows how likely a caption is: log P(text | image), in nats, as an array of shape (images, texts).

    If it has `lengths(texts)`, that is the number of tokens which each sum runs over; else words are counted.
    """

    def log_likelihood(self, images: Sequence[Image], texts: Sequence[str]) -> ArrayLike: ...


@dataclass(frozen=True)
class ByLikelihood:
    """A captioner as a cross encoder. Longer captions are less likely, so by default the sum is divided by the caption's length:

        s(i, t) = log P(t | i) / |t|      (per-token),        s(i, t) = log P(t | i)      (plain)

    Source: hu2019bison, app. D.2. Among images for one caption the two agree; among captions for one image they do not.

    >>> class Coin:
    ...     signature = "coin"
    ...     def log_likelihood(self, images, texts):
    ...         return [[-0.7 * len(text.split()) for text in texts] for _ in images]
    >>> ByLikelihood(Coin(), "plain").score([None], ["a dog", "a red dog"]).round(2), ByLikelihood(Coin()).signature
    (array([[-1.4, -2.1]]), 'coin|likelihood:per-word')
    """

    model: Captioner
    how: str = HOW[0]

    def __post_init__(self) -> None:
        if self.how not in HOW:
            raise WrongWords(f"likelihood is {self.how!r}; one of {', '.join(HOW)} was expected.")

    @property
    def kind(self) -> str:
        """What the sum is divided by, for the signature: the model's own tokens, words where it does not count them, or nothing."""
        return "per-word" if self.how == "per-token" and not hasattr(self.model, "lengths") else self.how

    @property
    def signature(self) -> str | None:
        own = getattr(self.model, "signature", None)
        return None if own is None else f"{own}|likelihood:{self.kind}"

    def notes_on(self, trials: Trials) -> tuple[str, ...]:
        """What must be said beside its results."""
        own = getattr(self.model, "notes_on", None)
        return (f"scored by log-likelihood, {self.kind}", *(own(trials) if own else ()))

    @property
    def sees(self) -> str:
        """ "texts" for a model that never looks at the image."""
        return str(getattr(self.model, "sees", ""))

    def score(self, images: Sequence[Image], texts: Sequence[str]) -> NDArray[Any]:
        found = as_array(self.model.log_likelihood(images, texts), "log_likelihood")
        if found.shape != (len(images), len(texts)):
            raise CrossmatchError(
                f"log_likelihood(images, texts) gave shape {found.shape}; {(len(images), len(texts))} (images x texts) was "
                "expected."
            )
        if found.dtype.kind not in "fiu":
            raise CrossmatchError(f"log_likelihood(images, texts) gave {found.dtype}; real numbers were expected.")
        return np.asarray(found / self._lengths(texts) if self.how == "per-token" else found, dtype=np.float64)

    def _lengths(self, texts: Sequence[str]) -> NDArray[Any]:
        count = getattr(self.model, "lengths", None)
        found = as_array(count(texts) if count else [len(text.split()) for text in texts], "lengths")
        if found.shape != (len(texts),) or found.dtype.kind not in "fiu" or not (np.isfinite(found) & (found > 0)).all():
            raise CrossmatchError(
                f"lengths(texts) gave {found!r:.60} for {len(texts)} texts; a number above zero was expected for each."
            )
        return found


@dataclass(frozen=True)
class PairsByLikelihood(ByLikelihood):
    """The same of a captioner that also takes image n with text n, for many n at once."""

    def score_pairs(self, images: Sequence[Image], texts: Sequence[str]) -> NDArray[Any]:
        found = as_array(self.model.log_likelihood_of_pairs(images, texts), "log_likelihood_of_pairs")  # type: ignore[attr-defined]
        return np.asarray(found / self._lengths(texts) if self.how == "per-token" else found, dtype=np.float64)


def as_scorer(model: object, likelihood: str | None, others: bool, name: str = "") -> object:
    """The model itself, or its likelihoods where it has no other ability or they are asked for. An error calls it by `name`."""
    if not isinstance(model, Captioner):
        if likelihood is not None:
            raise WrongWords(f"{name or type(model).__name__} is no captioner: it has no log_likelihood. Leave --likelihood out.")
        return model
    if likelihood is None and others:
        return model
    return (PairsByLikelihood if hasattr(model, "log_likelihood_of_pairs") else ByLikelihood)(model, likelihood or HOW[0])
