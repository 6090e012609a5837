"""Scorers of captions for refinement: plausibility and fluency.

A scorer returns one number per text; higher is better. The two built-in scorers are word trigram models fitted on captions of other
images: fluency uses all words, plausibility only words that name objects, attributes and actions. BiVLC uses Vera and an
acceptability classifier (miranda2024bivlc, sec. 5.2); any callable can replace them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from crossmatch.build.refinement.blind_classifier import assign_folds
from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.baselines.ngram_language_model import NgramModel, tokenize
from crossmatch.text.noun_phrases import word_set

ScoreFunction = Callable[[Sequence[str]], FloatArray]
FOLDS = 5
# Function words: they connect other words and name nothing.
FUNCTION_WORDS = word_set(
    """
    a about above across after against all along an and another any are around as at be been behind being beside between
    both but by can down during each few for from has have he her him his i in inside into is it its itself just many more
    near next no not of off on one onto or other out outside over several she so some that the their them there these they
    this those through to together top toward towards two under up very was were what when where which while who whose with
    """
)


class TextScorer(Protocol):
    """Scores captions together with their negatives; `name` identifies it in a manifest."""

    @property
    def name(self) -> str: ...

    def score(self, texts: Sequence[str], groups: Sequence[str], natural: Sequence[bool]) -> FloatArray:
        """Score texts; higher is better. A text must not be scored by a model that was fitted on its own group.

        `groups` names the image of each text, and `natural` says whether it is a caption and not a negative.
        """
        ...


@dataclass(frozen=True)
class FunctionScorer:
    """A scorer that is not fitted on the texts: any function from texts to numbers.

    >>> FunctionScorer("length", lambda texts: np.array([len(text) for text in texts])).score(["ab", "c"], ["", ""], [True, False])
    array([2., 1.])
    """

    name: str
    scores: ScoreFunction = field(repr=False)

    def score(self, texts: Sequence[str], groups: Sequence[str], natural: Sequence[bool]) -> FloatArray:
        return check_scores(self.scores(list(texts)), texts, self.name)


@dataclass(frozen=True)
class HeldOutNgrams:
    """Trigram models fitted on the captions of other groups: each of five folds is scored by a model of the other four.

        s(t) = log P(t) / n(t),      n(t): number of words of t, plus one for its end

    A model fitted on a caption itself would recognise it. Groups are assigned to folds by name, so that nothing depends on the
    order of texts. Source of the model: kneser1995improved (`models/baselines/ngram_language_model.py`).
    """

    name: str
    words: Callable[[str], str] = field(repr=False)
    folds: int = FOLDS

    def score(self, texts: Sequence[str], groups: Sequence[str], natural: Sequence[bool]) -> FloatArray:
        reduced = [self.words(text) for text in texts]
        fold_of = assign_folds(groups, self.folds)
        scores = np.zeros(len(texts), dtype=np.float64)
        for fold in range(self.folds):
            scored = np.flatnonzero(fold_of == fold)
            if not len(scored):
                continue
            training = [reduced[n] for n in np.flatnonzero(fold_of != fold).tolist() if natural[n]]
            if not any(tokenize(text) for text in training):
                raise CrossmatchError(
                    f"{self.name} has no captions of other images to train on. Add captions of more images, or pass --scorers."
                )
            model = NgramModel.fit(training)
            scores[scored] = [model.log_likelihood(reduced[n]) / model.length(reduced[n]) for n in scored]
        return check_scores(scores, texts, self.name)


def check_scores(values: object, texts: Sequence[str], name: str) -> FloatArray:
    """Require one finite number per text; the error names the scorer."""
    scores = np.asarray(values, dtype=np.float64)
    if scores.shape != (len(texts),):
        raise CrossmatchError(f"Scorer {name} returned shape {scores.shape}; expected one number for each of {len(texts):,} texts.")
    if not np.isfinite(scores).all():
        worst = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise CrossmatchError(f"Scorer {name} returned {scores[worst]} for {texts[worst]!r:.60}; expected a finite number.")
    return scores


def content_words(text: str) -> str:
    """The text without function words.

    >>> content_words("A dog is sitting on the couch.")
    'dog sitting couch'
    """
    return " ".join(word for word in tokenize(text) if word not in FUNCTION_WORDS)


BUILTIN_SCORERS: dict[str, TextScorer] = {
    "plausibility": HeldOutNgrams("ngram-plausibility", content_words),
    "fluency": HeldOutNgrams("ngram-fluency", str),
}


def load_scorer(name: str) -> TextScorer:
    """Load a scorer by name: `plausibility`, `fluency`, `lm:FOLDER` (a transformers model) or `FILE.py:function`.

    >>> load_scorer("fluency").name
    'ngram-fluency'
    """
    if name in BUILTIN_SCORERS:
        return BUILTIN_SCORERS[name]
    if name.startswith("lm:") and len(name) > 3:
        from crossmatch.models.adapters.transformers.language_model import LanguageModel

        model = LanguageModel.load(name.removeprefix("lm:"))
        return FunctionScorer(model.name, model.log_likelihoods)
    file, colon, function = name.rpartition(":")
    if colon and file.endswith(".py"):
        return _load_function(Path(file), function)
    raise UsageError(f"Unknown scorer {name!r}. Expected {', '.join(BUILTIN_SCORERS)}, lm:FOLDER or FILE.py:function.")


def as_scorer(scorer: str | TextScorer | ScoreFunction) -> TextScorer:
    """Turn a name, a scorer, or a function from texts to numbers into a scorer.

    >>> as_scorer(lambda texts: [0.0 for _ in texts]).name
    '<lambda>'
    """
    if isinstance(scorer, str):
        return load_scorer(scorer)
    if hasattr(scorer, "score") and hasattr(scorer, "name"):
        return scorer
    if callable(scorer):
        return FunctionScorer(str(getattr(scorer, "__name__", type(scorer).__name__)), scorer)
    raise UsageError(f"Expected a scorer name or a function from texts to numbers, got {scorer!r:.60}.")


def _load_function(path: Path, function: str) -> FunctionScorer:
    from crossmatch.models.adapters.user_file import load_object

    hint = f"Write: def {function}(texts): return one number per text, higher for better texts."
    score, source_hash = load_object(path, function, hint)
    if not callable(score):
        raise UsageError(f"{path}: {function} is not a function. Name one that takes a list of texts and returns one number each.")
    return FunctionScorer(f"{path.name}:{function}|file:{source_hash}", score)
