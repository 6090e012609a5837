"""Caption metrics as models: an image is represented by its reference captions (hu2019bison, sec. 6).

The query is compared with the reference captions of each image by any metric that compares a text with texts. No image is opened:
the result is how well the metric tells two images apart by what people wrote about them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from crossmatch.captions.caption_metric_table import CAPTION_METRICS, compute_metrics
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.document_frequencies import DocumentFrequencies
from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.hashed_random_numbers import hash_uniform
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.rated_pairs import Similarity
from crossmatch.data.trials import Trials, TrialScores
from crossmatch.models.baselines.text_encoders import TEXT_MODELS, TextModel, TfIdf, embed_unique_texts, make_text_model
from crossmatch.text.tokens_and_edits import split_words

CaptionScore = Callable[[list[str], list[list[str]]], FloatArray]
PAIRS_PER_BLOCK = 65_536  # pairs of vectors in memory at a time


def overlap(candidates: list[str], references: list[list[str]]) -> FloatArray:
    """Overlap of a caption with its references: F1 of the distinct words, averaged over the references.

        overlap(c, R) = 1/|R| · Σ_{r∈R} 2 |W(c) ∩ W(r)| / (|W(c)| + |W(r)|)

    W(t) is the set of the words of t in lower case. Two texts without any word share nothing: 0.

    >>> overlap(["A red cat."], [["A red dog.", "The cat"]])                  # 2·2/6 and 2·1/5
    array([0.53333333])
    """
    reference_counts = np.asarray([len(texts) for texts in references], dtype=np.float64)
    return _reduce_f1(candidates, references, lambda text: Counter(set(_words(text))), np.add) / reference_counts


def rouge_1(candidates: list[str], references: list[list[str]]) -> FloatArray:
    """ROUGE-1 of a caption: F1 of the word counts with the most similar reference.

        ROUGE-1(c, R) = max_{r∈R} 2 Σ_w min(n_c(w), n_r(w)) / (Σ_w n_c(w) + Σ_w n_r(w))

    Source: lin2004rouge, sec. 2 and 2.1 (the maximum over references, without the jackknife), as F1. Words are not stemmed.

    >>> rouge_1(["the cat and the dog"], [["the dog", "a cat"]])              # 2·2/7, "the" once
    array([0.57142857])
    """
    return _reduce_f1(candidates, references, lambda text: Counter(_words(text)), np.maximum)


def _words(text: str) -> list[str]:
    return [word.lower() for word in split_words(text)]


def _reduce_f1(
    candidates: list[str], references: list[list[str]], read: Callable[[str], Counter[str]], fold: np.ufunc
) -> FloatArray:
    """F1 of each candidate with each of its references, reduced by `fold` for each candidate; each text is read once."""
    counts = {text: read(text) for text in {*candidates, *(text for texts in references for text in texts)}}
    f1 = []
    for candidate, texts in zip(candidates, references, strict=True):
        for text in sorted(texts):  # sorted, so that the order of addition does not break a tie
            shared = (counts[candidate] & counts[text]).total()
            f1.append(2 * shared / max(1, counts[candidate].total() + counts[text].total()))
    return np.asarray(fold.reduceat(f1, _starts(references)), dtype=np.float64)


def _starts(references: Sequence[Sequence[str]]) -> IntArray:
    return np.cumsum([0, *(len(texts) for texts in references[:-1])])


@dataclass(frozen=True)
class MetricScore:
    """A metric of `captions.metric_table`, by name. Document frequencies count each distinct list of references once.

    >>> MetricScore("rouge-l")(["a cat", "a dog"], [["a cat sleeps"], ["two birds"]]).round(3)
    array([0.772, 0.   ])
    """

    name: str

    def __call__(self, candidates: list[str], references: list[list[str]]) -> FloatArray:
        keys = [str(n) for n in range(len(candidates))]
        corpus = CaptionCorpus.from_texts(dict(zip(keys, candidates, strict=True)), dict(zip(keys, references, strict=True)))
        distinct = {str(n): list(texts) for n, texts in enumerate(dict.fromkeys(map(tuple, references)))}
        frequencies = (
            DocumentFrequencies.from_corpus(CaptionCorpus.from_texts(dict.fromkeys(distinct, ""), distinct))
            if "cider" in self.name
            else None
        )
        return compute_metrics(corpus, [self.name], frequencies)[self.name].scores.values


# A caption score takes candidates and the references of each, and returns a number for each candidate, higher for more similar.
CAPTION_SCORES: dict[str, CaptionScore] = {
    "overlap": overlap,
    "rouge-1": rouge_1,
    **{name: MetricScore(name) for metric in CAPTION_METRICS if set(metric.needs) <= {"frequencies"} for name in metric.names},
}


@dataclass(frozen=True)
class CosineScore:
    """The mean cosine of a caption with its references by a text encoder: cos(v(c), v(r)), averaged over r.

    An encoder that uses document frequencies counts them over the given candidates and references, each distinct text once.

    >>> CosineScore(make_text_model("tfidf"))(["A red cat.", "A red cat."], [["Two red dogs."], ["One dog."]]).round(3)
    array([0.287, 0.   ])
    """

    model: TextModel

    def __call__(self, candidates: list[str], references: list[list[str]]) -> FloatArray:
        texts = sorted({*candidates, *(text for texts_of_item in references for text in texts_of_item)})
        number = {text: n for n, text in enumerate(texts)}
        fit = getattr(self.model, "fitted", None)
        model = self.model if fit is None else fit(texts)
        counts = [len(texts_of_item) for texts_of_item in references]
        first = np.repeat([number[text] for text in candidates], counts)
        second = np.asarray([number[text] for texts_of_item in references for text in sorted(texts_of_item)], dtype=np.int64)
        sums = np.add.reduceat(_cosines(model, texts, first, second), _starts(references))
        return np.asarray(sums / np.asarray(counts, dtype=np.float64), dtype=np.float64)


def _cosines(model: TextModel, texts: list[str], first: IntArray, second: IntArray) -> FloatArray:
    """Return the cosine of each pair of texts; TF-IDF has many words, so its vectors stay sparse."""
    out = np.empty(len(first))
    blocks = [slice(block, block + PAIRS_PER_BLOCK) for block in range(0, len(first), PAIRS_PER_BLOCK)]
    if isinstance(model, TfIdf):
        weights = model.weights(texts)[:, : model.max_words]
        for block in blocks:
            out[block] = weights[first[block]].multiply(weights[second[block]]).sum(axis=1)
        return out
    vectors = embed_unique_texts(model, texts, "embedding captions").astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=1)
    vectors /= np.where(lengths > 0, lengths, 1.0)[:, None]
    for block in blocks:
        out[block] = (vectors[first[block]] * vectors[second[block]]).sum(axis=1)
    return out


class ComparableTrials(NamedTuple):
    """The trials that can be answered, and the selected references of each of their images, in order."""

    trials: Trials
    references: list[list[str]]


def select_references(trials: Trials, seed: int = 0) -> ComparableTrials:
    """Select the references of each image of each trial; trials with an image without references are left out.

    The query is removed once from the positive's references, ignoring white space. Then every image gets equally many references:
    as many as the image with the fewest has left, drawn without replacement. If images have five captions, these are the
    positive's other four and four of the negative's five (hu2019bison, sec. 6). A draw depends on the trial's id, the image and
    the seed.

    >>> references = {"1": ("a cat", "a  black cat", "cats"), "2": ("a dog", "dogs", "two dogs")}
    >>> select_references(Trials(["t"], [["1", "2"]], [["a black cat"]], [""], references=references)).references
    [['a cat', 'cats'], ['dogs', 'two dogs']]
    """
    if trials.shape[0] != 1:
        raise CrossmatchError(
            f"these trials have {trials.shape[0]} captions each, but references are compared with a single query. Use a task such "
            "as bison or diorama/bison."
        )
    if not trials.references:
        raise CrossmatchError(
            "these images have no reference captions. For bison, get those of COCO: crossmatch data get coco --optional; "
            "diorama/bison includes them."
        )
    references = {image: [" ".join(text.split()) for text in texts] for image, texts in trials.references.items()}
    answered: list[int] = []
    selected: list[list[str]] = []
    for n, (name, images) in enumerate(zip(trials.ids.tolist(), trials.images.tolist(), strict=True)):
        query = " ".join(str((trials.captions if trials.original_captions is None else trials.original_captions)[n, 0]).split())
        available = [_remove_query(references.get(images[0], []), query), *(references.get(image, []) for image in images[1:])]
        k = min(map(len, available))
        if k:
            answered.append(n)
            selected += [_draw(texts, k, f"{name} {image}", seed) for image, texts in zip(images, available, strict=True)]
    return ComparableTrials(trials.select(np.asarray(answered, dtype=np.int64)) if answered else trials, selected)


def _remove_query(texts: list[str], query: str) -> list[str]:
    position = texts.index(query) if query in texts else len(texts)
    return texts[:position] + texts[position + 1 :]


def _draw(texts: list[str], k: int, name: str, seed: int) -> list[str]:
    if len(texts) == k:
        return texts
    order = np.argsort(hash_uniform([name], len(texts), "references", seed)[0], kind="stable")
    return [texts[n] for n in sorted(order[:k].tolist())]


@dataclass(frozen=True)
class ReferenceChooser:
    """Chooses the image whose references are most similar to the query, by a caption score.

    Trials with an image without references stay unanswered; the evaluation needs `partial` then.

    >>> references = {"1": ("A cat.", "A black cat on a mat."), "2": ("A dog.",)}
    >>> trials = Trials(["t"], [["1", "2"]], [["A black cat on a mat."]], [""], references=references)
    >>> make_reference_chooser("overlap").scores(trials).values.round(3)            # 2·2/7 and 2·1/7
    array([[[0.571, 0.286]]])
    """

    name: str
    score: CaptionScore = field(repr=False)
    about: str = ""  # the signature of the score's own model, if it has one
    seed: int = 0

    @property
    def signature(self) -> str:
        about = f"|{self.about}" if self.about else ""
        return f"references:{self.name}{about}|query:removed|references:equal|seed:{self.seed}"

    @property
    def path(self) -> str:
        """Where the answers come from, for error messages."""
        return f"references:{self.name} (it needs captions of the images; for bison: crossmatch data get coco --optional)"

    def scores(self, data: Retrieval | Similarity | Trials) -> TrialScores:
        """Score the images of each trial by their references."""
        if not isinstance(data, Trials):
            raise CrossmatchError("references are compared with the query of a trial. Use a task such as bison or diorama/bison.")
        answered, references = select_references(data, self.seed)
        if not references:
            raise CrossmatchError(
                f"none of the {len(data.ids):,} trials has references for all its images. For bison, get COCO's captions: "
                "crossmatch data get coco --optional"
            )
        images = data.shape[1]
        queries = [" ".join(text.split()) for text in answered.captions[:, 0].tolist() for _ in range(images)]
        values = np.asarray(self.score(queries, references), dtype=np.float64)
        return TrialScores(answered.ids, values.reshape(-1, 1, images))


def make_reference_chooser(name: str, seed: int = 0) -> ReferenceChooser:
    """Make the chooser of a score: one of `CAPTION_SCORES`, or a text encoder such as `tfidf` or `bow:idf`.

    >>> make_reference_chooser("tfidf").signature
    'references:tfidf|tfidf|corpus:captions|words:4096|idf:smooth|fp32|query:removed|references:equal|seed:0'
    """
    if name in CAPTION_SCORES:
        return ReferenceChooser(name, CAPTION_SCORES[name], seed=seed)
    if name.partition(":")[0] in TEXT_MODELS:
        model = make_text_model(name)
        return ReferenceChooser(name, CosineScore(model), model.signature, seed)
    names = ", ".join(f"references:{n}" for n in {**CAPTION_SCORES, **TEXT_MODELS})
    raise UsageError(f"there is no score references:{name or '(none)'}. Use one of {names}.")
