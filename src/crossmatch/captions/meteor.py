"""METEOR: how well a candidate can be aligned with a reference, word by word, by form, stem, synonym or paraphrase."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossmatch.captions.corpus import Corpus
from crossmatch.captions.meteor_align import BEAM, align
from crossmatch.captions.meteor_data import PARAPHRASES, PROGRAM, VERSION, lexicon
from crossmatch.captions.meteor_matches import Matches, matches_of
from crossmatch.captions.meteor_terms import STAGES, Text, text_of
from crossmatch.captions.scores import Scores
from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.core.files import DataFile

# As tuned for the ranking of English translations, METEOR 1.5's default.
ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # of the stages

FACTS: tuple[tuple[str, object], ...] = (
    ("stages", ",".join(STAGES)), ("data", VERSION), ("norm", "yes"),
    ("alpha", ALPHA), ("beta", BETA), ("gamma", GAMMA), ("delta", DELTA), ("beam", BEAM),
)  # fmt: skip


# What is counted in a pair: words, function words; matched content and function words by stage (the candidate's four, then the
# reference's); chunks, which are runs of matches that are neighbours, in the same order, on both sides.
_WORDS, _FUNCTIONS, _CONTENT, _MATCHED_FUNCTIONS, _CHUNKS = slice(0, 2), slice(2, 4), slice(4, 12), slice(12, 20), 20


def meteor(corpus: Corpus) -> tuple[Scores]:
    """METEOR 1.5 of each candidate with its best reference, and of the corpus.

        METEOR = (1 - γ (chunks / m)^β) · P R / (α P + (1 - α) R),   P = Σ_i w_i (δ c_i + (1 - δ) f_i) / (δ c + (1 - δ) f)

    P is over the candidate's words, R the same over the reference's: c content and f function words, c_i and f_i of them matched in
    stage i; m is the mean number of matched words. Without a match, or without words, it is 0. The corpus value is not the
    mean: it is the same formula over the summed counts of each candidate's best reference (the first of equals), where a pair
    that matches in one whole chunk adds none. The numbers are those of the METEOR 1.5 program as coco-caption calls it (`-l en
    -norm`), up to captions that repeat a phrase more than 64 times (`meteor_matches.REPEATS`).
    Source: denkowski2014meteor; denkowski2011meteor (function words, words split anew); chen2015microsoft, sec. 3.4.

    >>> corpus = Corpus.of({"7": "a dog runs", "8": "a couch"}, {"7": ["the dog is running"], "8": ["a sofa", "a couch"]})
    >>> scores = meteor(corpus)[0]
    >>> scores.values.round(4), round(scores.value, 4)
    (array([0.2266, 1.    ]), 0.3565)
    """
    counted = counts(corpus)
    values = np.full(len(corpus.image), -1.0)
    values[corpus.references] = score(counted)
    best = np.maximum.reduceat(values, corpus.candidate)
    _, first = np.unique(np.where(values == best[corpus.image], corpus.image, -1), return_index=True)
    first = first[-len(corpus) :]
    sums = counted[np.searchsorted(corpus.references, first)].astype(np.float64)
    sums[_perfect(sums), _CHUNKS] = 0
    return (Scores(float(score(sums.sum(axis=0))), best, sums, score),)


def counts(corpus: Corpus) -> IntArray:
    """What is counted in each reference's alignment with its candidate: (references, 21)."""
    text = text_of(corpus)
    own, other = corpus.candidate[corpus.image[corpus.references]], corpus.references
    matches = matches_of(text, corpus.image, corpus.is_candidate)
    taken = matches.chosen(align(matches, len(text.words), text.begin[other], text.begin[other + 1]))
    return _counted(taken, text, own, other)


def _counted(taken: Matches, text: Text, own: IntArray, other: IntArray) -> IntArray:
    known = np.array([word in lexicon().function_words for word in text.vocabulary], dtype=np.bool_)
    before = np.concatenate([[0], np.cumsum(known[text.words])])  # function words before each word
    found = np.zeros((len(own), 21), dtype=np.int64)
    captions = np.stack([own, other], axis=1)
    found[:, _WORDS] = text.lengths[captions]
    found[:, _FUNCTIONS] = before[text.begin[captions + 1]] - before[text.begin[captions]]
    pair = np.searchsorted(text.begin[other], taken.other_at, "right") - 1
    places = ((text.begin[own[pair]] + taken.own_at, taken.own_length), (taken.other_at, taken.other_length))
    for side, (at, length) in enumerate(places):
        functions = before[at + length] - before[at]
        column = side * len(STAGES) + taken.stage
        np.add.at(found, (pair, _CONTENT.start + column), length - functions)
        np.add.at(found, (pair, _MATCHED_FUNCTIONS.start + column), functions)
    goes_on = (pair[1:] == pair[:-1]) & (taken.other_at[1:] == (taken.other_at + taken.other_length)[:-1])
    goes_on &= taken.own_at[1:] == (taken.own_at + taken.own_length)[:-1]
    found[:, _CHUNKS] = np.bincount(pair, minlength=len(own)) - np.bincount(pair[1:][goes_on], minlength=len(own))
    return found


def score(counted: FloatArray | IntArray) -> FloatArray:
    """METEOR from counts (…, 21)."""
    words, functions = counted[..., _WORDS], counted[..., _FUNCTIONS]
    content, of_functions = _by_stage(counted)
    weights = np.array(WEIGHTS)
    weighed = (content * weights * DELTA).sum(axis=-1) + (of_functions * weights * (1 - DELTA)).sum(axis=-1)
    length = DELTA * (words - functions) + (1 - DELTA) * functions
    matched = (content + of_functions).sum(axis=(-1, -2)) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        share = weighed / length
        mean = 1 / ((1 - ALPHA) / share[..., 0] + ALPHA / share[..., 1])
        broken = np.where(_perfect(counted), 0.0, counted[..., _CHUNKS] / matched)
        found = mean * (1 - GAMMA * broken**BETA)
    return np.asarray(np.maximum(np.nan_to_num(found, nan=0.0), 0.0))


def _by_stage(counted: FloatArray | IntArray) -> tuple[FloatArray | IntArray, FloatArray | IntArray]:
    """Matched content and function words, each (…, 2, stages)."""
    shape = (*counted.shape[:-1], 2, len(STAGES))
    return counted[..., _CONTENT].reshape(shape), counted[..., _MATCHED_FUNCTIONS].reshape(shape)


def _perfect(counted: FloatArray | IntArray) -> BoolArray:
    """All words match, in one chunk: no penalty."""
    matched = np.sum(_by_stage(counted), axis=(0, -1))
    return np.asarray((matched == counted[..., _WORDS]).all(axis=-1) & (counted[..., _CHUNKS] == 1))


@dataclass(frozen=True)
class Stage:
    """How words are matched in one stage, and from which data."""

    name: str
    weight: float
    data: str


def stages() -> tuple[Stage, ...]:
    """The stages that run, with their weights and their data.

    >>> [(stage.name, stage.weight) for stage in stages()]
    [('exact', 1.0), ('stem', 0.6), ('synonym', 0.8), ('paraphrase', 0.6)]
    """
    sources = (
        "the words themselves", "Snowball's English stemmer before its release 3", f"WordNet 3 in {_named(PROGRAM)}",
        _named(PARAPHRASES),
    )  # fmt: skip
    return tuple(Stage(*row) for row in zip(STAGES, WEIGHTS, sources, strict=True))


def _named(file: DataFile) -> str:
    return f"{file.name} ({str(file.sha256)[:8]})"
