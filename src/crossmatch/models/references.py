"""Caption scores as choosers of images: an image stands for what people wrote about it (hu2019bison, sec. 6).

The query is compared with reference captions of each image by any score that compares a text with texts. No picture is opened: what
comes out is how well such a score can tell two images apart that it knows by the words of people.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from crossmatch.captions.corpus import Corpus
from crossmatch.captions.frequencies import Frequencies
from crossmatch.captions.table import CAPTION_METRICS, score
from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.benchmark import Retrieval
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.pairs import Similarity
from crossmatch.core.presented import uniform
from crossmatch.core.trials import Trials, TrialScores
from crossmatch.language.words import words
from crossmatch.models.text import TEXT_MODELS, TextModel, TfIdf, embed_distinct, text_model

CaptionScore = Callable[[list[str], list[list[str]]], FloatArray]
AT_ONCE = 65_536  # pairs of vectors held in memory at a time


def overlap(candidates: list[str], references: list[list[str]]) -> FloatArray:
    """How many words a caption shares with its references: F1 of the distinct words, the mean over the references.

        overlap(c, R) = 1/|R| · Σ_{r∈R} 2 |W(c) ∩ W(r)| / (|W(c)| + |W(r)|)

    W(t) is the set of the words of t in lower case. Two texts without any word share nothing: 0.

    >>> overlap(["A red cat."], [["A red dog.", "The cat"]])                  # 2·2/6 and 2·1/5
    array([0.53333333])
    """
    many = np.asarray([len(texts) for texts in references], dtype=np.float64)
    return _shared(candidates, references, lambda text: Counter(set(_words(text))), np.add) / many


def rouge_1(candidates: list[str], references: list[list[str]]) -> FloatArray:
    """How many words a caption shares with the reference most like it: F1 of the words with their counts.

        ROUGE-1(c, R) = max_{r∈R} 2 Σ_w min(n_c(w), n_r(w)) / (Σ_w n_c(w) + Σ_w n_r(w))

    Source: lin2004rouge, sec. 2 and 2.1 (the maximum over references, without the jackknife), as F1. Words are not stemmed.

    >>> rouge_1(["the cat and the dog"], [["the dog", "a cat"]])              # 2·2/7, "the" once
    array([0.57142857])
    """
    return _shared(candidates, references, lambda text: Counter(_words(text)), np.maximum)


def _words(text: str) -> list[str]:
    return [word.lower() for word in words(text)]


def _shared(candidates: list[str], references: list[list[str]], read: Callable[[str], Counter[str]], fold: np.ufunc) -> FloatArray:
    """F1 of each candidate with each of its references, each text read once; what comes out is folded for each candidate."""
    held = {text: read(text) for text in {*candidates, *(text for texts in references for text in texts)}}
    found = []
    for candidate, texts in zip(candidates, references, strict=True):
        one = held[candidate]
        for text in sorted(texts):  # so that no order of addition breaks a tie
            other = held[text]
            found.append(2 * (one & other).total() / max(1, one.total() + other.total()))
    return np.asarray(fold.reduceat(found, _starts(references)), dtype=np.float64)


def _starts(references: Sequence[Sequence[str]]) -> IntArray:
    return np.cumsum([0, *(len(texts) for texts in references[:-1])])


@dataclass(frozen=True)
class ByMetric:
    """A caption metric of `captions.table`, by name. Document frequencies count each distinct list of references once.

    >>> ByMetric("rouge-l")(["a cat", "a dog"], [["a cat sleeps"], ["two birds"]]).round(3)
    array([0.772, 0.   ])
    """

    name: str

    def __call__(self, candidates: list[str], references: list[list[str]]) -> FloatArray:
        named = [str(n) for n in range(len(candidates))]
        corpus = Corpus.of(dict(zip(named, candidates, strict=True)), dict(zip(named, references, strict=True)))
        distinct = {str(n): list(texts) for n, texts in enumerate(dict.fromkeys(map(tuple, references)))}
        frequencies = Frequencies.of(Corpus.of(dict.fromkeys(distinct, ""), distinct)) if "cider" in self.name else None
        return score(corpus, [self.name], frequencies)[self.name].scores.values


# A caption score takes candidates and the references of each, and gives a number for each candidate, the higher the more alike.
CAPTION_SCORES: dict[str, CaptionScore] = {
    "overlap": overlap,
    "rouge-1": rouge_1,
    **{name: ByMetric(name) for metric in CAPTION_METRICS if set(metric.needs) <= {"frequencies"} for name in metric.names},
}


@dataclass(frozen=True)
class Cosine:
    """The mean cosine of a caption with its references, by any text encoder: cos(v(c), v(r)), the mean over r.

    An encoder that learns from texts (document frequencies) learns from the candidates and references that it is given, each
    distinct text once.

    >>> Cosine(text_model("tfidf"))(["A red cat.", "A red cat."], [["Two red dogs."], ["One dog."]]).round(3)
    array([0.287, 0.   ])
    """

    model: TextModel

    def __call__(self, candidates: list[str], references: list[list[str]]) -> FloatArray:
        texts = sorted({*candidates, *(text for given in references for text in given)})
        number = {text: n for n, text in enumerate(texts)}
        fit = getattr(self.model, "fitted", None)
        model = self.model if fit is None else fit(texts)
        many = [len(given) for given in references]
        first = np.repeat([number[text] for text in candidates], many)
        second = np.asarray([number[text] for given in references for text in sorted(given)], dtype=np.int64)
        sums = np.add.reduceat(_cosines(model, texts, first, second), _starts(references))
        return np.asarray(sums / np.asarray(many, dtype=np.float64), dtype=np.float64)


def _cosines(model: TextModel, texts: list[str], first: IntArray, second: IntArray) -> FloatArray:
    """The cosine of each pair of texts, block by block; the words of TF-IDF are many, so its vectors stay sparse."""
    out = np.empty(len(first))
    blocks = [slice(at, at + AT_ONCE) for at in range(0, len(first), AT_ONCE)]
    if isinstance(model, TfIdf):
        weights = model.weights(texts)[:, : model.most]
        for at in blocks:
            out[at] = weights[first[at]].multiply(weights[second[at]]).sum(axis=1)
        return out
    vectors = embed_distinct(model, texts, "embedding captions").astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=1)
    vectors /= np.where(lengths > 0, lengths, 1.0)[:, None]
    for at in blocks:
        out[at] = (vectors[first[at]] * vectors[second[at]]).sum(axis=1)
    return out


class Compared(NamedTuple):
    """The trials that can be answered, and for each of their images, in order, the references that the query is compared with."""

    trials: Trials
    references: list[list[str]]


def compared(trials: Trials, seed: int = 0) -> Compared:
    """The references of each image of each trial of one caption; trials that leave an image without any are left out.

    The query is taken out of the positive's references, once, if it is there (white space aside). Every image is then compared by
    equally many: as many as the one with the fewest has left, drawn without replacement. Where images have five captions, that is
    the positive's other four, and four of the negative's five (hu2019bison, sec. 6). A draw depends on the trial's id, the image
    and the seed alone.

    >>> said = {"1": ("a cat", "a  black cat", "cats"), "2": ("a dog", "dogs", "two dogs")}
    >>> found = compared(Trials(["t"], [["1", "2"]], [["a black cat"]], [""], references=said))
    >>> found.references
    [['a cat', 'cats'], ['dogs', 'two dogs']]
    """
    if trials.shape[0] != 1:
        raise CrossmatchError(
            f"these trials have {trials.shape[0]} captions each; references are compared with the one query of a trial. "
            "Name a task such as bison or diorama/bison."
        )
    if not trials.references:
        raise CrossmatchError(
            "no reference captions of these images are known. For bison, get COCO's: crossmatch data get coco --optional; "
            "diorama/bison has its own."
        )
    tidy = {image: [" ".join(text.split()) for text in said] for image, said in trials.references.items()}
    answered: list[int] = []
    chosen: list[list[str]] = []
    for n, (name, images) in enumerate(zip(trials.ids.tolist(), trials.images.tolist(), strict=True)):
        query = " ".join(str((trials.captions if trials.unaltered is None else trials.unaltered)[n, 0]).split())
        said = [_without(tidy.get(images[0], []), query), *(tidy.get(image, []) for image in images[1:])]
        k = min(map(len, said))
        if k:
            answered.append(n)
            chosen += [_drawn(texts, k, f"{name} {image}", seed) for image, texts in zip(images, said, strict=True)]
    return Compared(trials.chosen(np.asarray(answered, dtype=np.int64)) if answered else trials, chosen)


def _without(texts: list[str], query: str) -> list[str]:
    at = texts.index(query) if query in texts else len(texts)
    return texts[:at] + texts[at + 1 :]


def _drawn(texts: list[str], k: int, name: str, seed: int) -> list[str]:
    if len(texts) == k:
        return texts
    order = np.argsort(uniform([name], len(texts), "references", seed)[0], kind="stable")
    return [texts[n] for n in sorted(order[:k].tolist())]


@dataclass(frozen=True)
class References:
    """Chooses the image whose references are most like the query, by a caption score.

    Trials with an image of which no references are known stay unanswered, so that an evaluation needs `partial` for the rest.

    >>> said = {"1": ("A cat.", "A black cat on a mat."), "2": ("A dog.",)}
    >>> trials = Trials(["t"], [["1", "2"]], [["A black cat on a mat."]], [""], references=said)
    >>> references_model("overlap").scores(trials).values.round(3)            # 2·2/7 and 2·1/7
    array([[[0.571, 0.286]]])
    """

    name: str
    score: CaptionScore = field(repr=False)
    about: str = ""  # what the score itself tells of its weights
    seed: int = 0

    @property
    def signature(self) -> str:
        told = f"|{self.about}" if self.about else ""
        return f"references:{self.name}{told}|query:removed|references:equal|seed:{self.seed}"

    @property
    def path(self) -> str:
        """What a complaint about the answers begins with: where they come from."""
        return f"references:{self.name} (it needs captions of the images; for bison: crossmatch data get coco --optional)"

    def scores(self, data: Retrieval | Similarity | Trials) -> TrialScores:
        if not isinstance(data, Trials):
            raise CrossmatchError("references are compared with the query of a trial. Name a task such as bison or diorama/bison.")
        answered, references = compared(data, self.seed)
        if not references:
            raise CrossmatchError(
                f"for none of the {len(data.ids):,} trials references of all images are known; for bison, get COCO's captions: "
                "crossmatch data get coco --optional"
            )
        images = data.shape[1]
        queries = [" ".join(text.split()) for text in answered.captions[:, 0].tolist() for _ in range(images)]
        values = np.asarray(self.score(queries, references), dtype=np.float64)
        return TrialScores(answered.ids, values.reshape(-1, 1, images))


def references_model(name: str, seed: int = 0) -> References:
    """The chooser by this score: one of `CAPTION_SCORES`, or a text encoder such as `tfidf` or `bow:idf`.

    >>> references_model("tfidf").signature
    'references:tfidf|tfidf|corpus:captions|words:4096|idf:smooth|fp32|query:removed|references:equal|seed:0'
    """
    if name in CAPTION_SCORES:
        return References(name, CAPTION_SCORES[name], seed=seed)
    if name.partition(":")[0] in TEXT_MODELS:
        model = text_model(name)
        return References(name, Cosine(model), model.signature, seed)
    known: Mapping[str, object] = {**CAPTION_SCORES, **TEXT_MODELS}
    raise WrongWords(f"references:{name or '(none)'} has no meaning; there are {', '.join(f'references:{n}' for n in known)}.")
