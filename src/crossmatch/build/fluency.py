"""How plausible and how fluent captions are: two numbers for each, by whatever scores texts.

A scorer takes texts and gives a number for each, more for the better. By default both are word trigrams that are fitted on captions
of other images: fluency over all words, plausibility over those that name things, qualities and deeds, so that one hears how it is
said and the other what. BiVLC takes Vera and a classifier of acceptability (miranda2024bivlc, sec. 5.2); any callable will do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from crossmatch.build.logistic import parts
from crossmatch.build.phrases import listed
from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.models.ngram import NgramModel, tokens

Scores = Callable[[Sequence[str]], FloatArray]
FOLDS = 5
# Words that say how other words hang together, and nothing of their own.
GRAMMAR = listed(
    """
    a about above across after against all along an and another any are around as at be been behind being beside between
    both but by can down during each few for from has have he her him his i in inside into is it its itself just many more
    near next no not of off on one onto or other out outside over several she so some that the their them there these they
    this those through to together top toward towards two under up very was were what when where which while who whose with
    """
)


class Scorer(Protocol):
    """What scores captions and negatives that belong together; `name` identifies it in a manifest."""

    @property
    def name(self) -> str: ...

    def score(self, texts: Sequence[str], groups: Sequence[str], natural: Sequence[bool]) -> FloatArray:
        """A number for each text, more for the better. Texts of one group must not be judged by what was learnt from it."""
        ...


@dataclass(frozen=True)
class Plain:
    """A scorer that has learnt nothing from these texts: any function from texts to numbers.

    >>> Plain("length", lambda texts: np.array([len(text) for text in texts])).score(["ab", "c"], ["", ""], [True, False])
    array([2., 1.])
    """

    name: str
    scores: Scores = field(repr=False)

    def score(self, texts: Sequence[str], groups: Sequence[str], natural: Sequence[bool]) -> FloatArray:
        return checked(self.scores(list(texts)), texts, self.name)


@dataclass(frozen=True)
class HeldOut:
    """Trigrams fitted on the natural texts of other groups: in five parts, each scored by what the other four taught.

        s(t) = log P(t) / n(t),      n(t) the words of t and its end

    A model fitted on a caption itself would know which of the two it has read. Groups go into parts by their names, so that nothing
    depends on the order of texts. Sources: kneser1995improved for the model (`models.ngram`).
    """

    name: str
    words: Callable[[str], str] = field(repr=False)
    folds: int = FOLDS

    def score(self, texts: Sequence[str], groups: Sequence[str], natural: Sequence[bool]) -> FloatArray:
        told = [self.words(text) for text in texts]
        part = parts(groups, self.folds)
        out = np.zeros(len(texts), dtype=np.float64)
        for fold in range(self.folds):
            mine = np.flatnonzero(part == fold)
            if not len(mine):
                continue
            others = [told[n] for n in np.flatnonzero(part != fold).tolist() if natural[n]]
            if not any(tokens(text) for text in others):
                raise CrossmatchError(
                    f"{self.name} has no captions of other images to learn from. Give captions of more images, or name a scorer."
                )
            model = NgramModel.fit(others)
            out[mine] = [model.log_likelihood(told[n]) / model.length(told[n]) for n in mine]
        return checked(out, texts, self.name)


def checked(values: object, texts: Sequence[str], name: str) -> FloatArray:
    """One finite number for each text, or an error that names the scorer."""
    found = np.asarray(values, dtype=np.float64)
    if found.shape != (len(texts),):
        raise CrossmatchError(f"{name} gave numbers of shape {found.shape} for {len(texts):,} texts; one for each was expected.")
    if not np.isfinite(found).all():
        worst = int(np.flatnonzero(~np.isfinite(found))[0])
        raise CrossmatchError(
            f"{name} gave {found[worst]} for {texts[worst]!r:.60}; a finite number was expected. Mend the scorer."
        )
    return found


def said(text: str) -> str:
    """All words of a text."""
    return text


def meant(text: str) -> str:
    """The words of a text that name something.

    >>> meant("A dog is sitting on the couch.")
    'dog sitting couch'
    """
    return " ".join(word for word in tokens(text) if word not in GRAMMAR)


NAMED: dict[str, Scorer] = {
    "plausibility": HeldOut("ngram-plausibility", meant),
    "fluency": HeldOut("ngram-fluency", said),
}


def scorer(words: str) -> Scorer:
    """A scorer by its name: `plausibility`, `fluency`, `lm:FOLDER` for a model of transformers, or `FILE.py:function`.

    >>> scorer("fluency").name
    'ngram-fluency'
    """
    if words in NAMED:
        return NAMED[words]
    if words.startswith("lm:") and len(words) > 3:
        from crossmatch.models.hf.language_model import LanguageModel

        model = LanguageModel.load(words.removeprefix("lm:"))
        return Plain(model.name, model.log_likelihoods)
    file, colon, function = words.rpartition(":")
    if colon and file.endswith(".py"):
        return _own(Path(file), function)
    raise WrongWords(f"there is no scorer {words!r}; {', '.join(NAMED)}, lm:FOLDER or FILE.py:function was expected.")


def as_scorer(given: str | Scorer | Scores) -> Scorer:
    """A scorer by its name, a scorer, or a plain function from texts to numbers.

    >>> as_scorer(lambda texts: [0.0 for _ in texts]).name
    '<lambda>'
    """
    if isinstance(given, str):
        return scorer(given)
    if hasattr(given, "score") and hasattr(given, "name"):
        return given
    if callable(given):
        return Plain(str(getattr(given, "__name__", type(given).__name__)), given)
    raise WrongWords(f"a scorer is {given!r:.60}; a name, or a function from texts to numbers was expected.")


def _own(path: Path, function: str) -> Plain:
    from crossmatch.models.user_module import from_file

    found, source = from_file(path, function, f"Write: def {function}(texts): return a number for each text, more for the better.")
    if not callable(found):
        raise WrongWords(f"{function} in {path} is no function. Name one that takes a list of texts and gives a number for each.")
    return Plain(f"{path.name}:{function}|file:{source}", found)
