"""METEOR: word alignment of a candidate with its references by form, stem, synonym or paraphrase."""

from __future__ import annotations

import numpy as np

from crossmatch.captions.corpus import CaptionCorpus, CaptionScores
from crossmatch.captions.meteor.alignment import BEAM, align
from crossmatch.captions.meteor.matches import PhraseMatches, find_matches
from crossmatch.captions.meteor.tables import VERSION, load_lexicon
from crossmatch.captions.meteor.term_links import STAGES, MeteorText, split_into_words
from crossmatch.data.arrays import BoolArray, FloatArray, IntArray

# The defaults of METEOR 1.5, tuned for ranking English translations.
ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # of the stages

SIGNATURE_FACTS: tuple[tuple[str, object], ...] = (
    ("stages", ",".join(STAGES)), ("data", VERSION), ("norm", "yes"),
    ("alpha", ALPHA), ("beta", BETA), ("gamma", GAMMA), ("delta", DELTA), ("beam", BEAM),
)  # fmt: skip


# The counts of a pair: words, function words; matched content and function words by stage (four of the candidate, then four of the
# reference); chunks, which are runs of matches that are adjacent and in the same order in both captions.
_WORDS, _FUNCTION_WORDS, _MATCHED_CONTENT, _MATCHED_FUNCTION, _CHUNKS = slice(0, 2), slice(2, 4), slice(4, 12), slice(12, 20), 20


def meteor(corpus: CaptionCorpus) -> tuple[CaptionScores]:
    """METEOR 1.5 of each candidate with its best reference, and of the corpus.

        METEOR = (1 - γ (chunks / m)^β) · P R / (α P + (1 - α) R),   P = Σ_i w_i (δ c_i + (1 - δ) f_i) / (δ c + (1 - δ) f)

    P uses the candidate's words and R the reference's: c content words and f function words, of which c_i and f_i are matched in
    stage i; m is the mean number of matched words. Without a match, or without words, the score is 0. The corpus value is not a
    mean: it is the formula applied to the summed counts of each candidate's best reference (the first one if several are best),
    where a pair that matches completely in one chunk adds no chunk. The numbers equal those of the METEOR 1.5 program as
    coco-caption calls it (`-l en -norm`), except for captions that repeat a phrase more than 64 times (`matches.REPEATS`).

    Source: denkowski2014meteor; denkowski2011meteor (function words, normalisation); chen2015microsoft, sec. 3.4.

    >>> references = {"7": ["the dog is running"], "8": ["a sofa", "a couch"]}
    >>> corpus = CaptionCorpus.from_texts({"7": "a dog runs", "8": "a couch"}, references)
    >>> scores = meteor(corpus)[0]
    >>> scores.values.round(4), round(scores.value, 4)
    (array([0.2266, 1.    ]), 0.3565)
    """
    counts = count_alignments(corpus)
    values = np.full(len(corpus.image_index), -1.0)
    values[corpus.reference_index] = score_from_counts(counts)
    best = np.maximum.reduceat(values, corpus.candidate_index)
    _, first = np.unique(np.where(values == best[corpus.image_index], corpus.image_index, -1), return_index=True)
    first = first[-len(corpus) :]
    statistics = counts[np.searchsorted(corpus.reference_index, first)].astype(np.float64)
    statistics[_is_perfect(statistics), _CHUNKS] = 0
    return (CaptionScores(float(score_from_counts(statistics.sum(axis=0))), best, statistics, score_from_counts),)


def count_alignments(corpus: CaptionCorpus) -> IntArray:
    """The counts of each reference's alignment with its candidate, shape (references, 21)."""
    text = split_into_words(corpus)
    candidate, reference = corpus.candidate_index[corpus.image_index[corpus.reference_index]], corpus.reference_index
    matches = find_matches(text, corpus.image_index, corpus.is_candidate)
    is_selected = align(matches, len(text.words), text.offsets[reference], text.offsets[reference + 1])
    return _count(matches.select(is_selected), text, candidate, reference)


def _count(matches: PhraseMatches, text: MeteorText, candidate: IntArray, reference: IntArray) -> IntArray:
    is_function_word = np.array([word in load_lexicon().function_words for word in text.vocabulary], dtype=np.bool_)
    function_words_before = np.concatenate([[0], np.cumsum(is_function_word[text.words])])
    counts = np.zeros((len(candidate), 21), dtype=np.int64)
    captions = np.stack([candidate, reference], axis=1)
    counts[:, _WORDS] = text.lengths[captions]
    counts[:, _FUNCTION_WORDS] = function_words_before[text.offsets[captions + 1]] - function_words_before[text.offsets[captions]]
    pair = np.searchsorted(text.offsets[reference], matches.reference_start, "right") - 1
    sides = (
        (text.offsets[candidate[pair]] + matches.candidate_start, matches.candidate_length),
        (matches.reference_start, matches.reference_length),
    )
    for side, (start, length) in enumerate(sides):
        function_words = function_words_before[start + length] - function_words_before[start]
        column = side * len(STAGES) + matches.stage
        np.add.at(counts, (pair, _MATCHED_CONTENT.start + column), length - function_words)
        np.add.at(counts, (pair, _MATCHED_FUNCTION.start + column), function_words)
    continues = pair[1:] == pair[:-1]
    continues &= matches.reference_start[1:] == (matches.reference_start + matches.reference_length)[:-1]
    continues &= matches.candidate_start[1:] == (matches.candidate_start + matches.candidate_length)[:-1]
    pairs = len(candidate)
    counts[:, _CHUNKS] = np.bincount(pair, minlength=pairs) - np.bincount(pair[1:][continues], minlength=pairs)
    return counts


def score_from_counts(counts: FloatArray | IntArray) -> FloatArray:
    """METEOR from counts of shape (…, 21)."""
    words, function_words = counts[..., _WORDS], counts[..., _FUNCTION_WORDS]
    content, function = _matched_by_stage(counts)
    weights = np.array(WEIGHTS)
    weighted = (content * weights * DELTA).sum(axis=-1) + (function * weights * (1 - DELTA)).sum(axis=-1)
    length = DELTA * (words - function_words) + (1 - DELTA) * function_words
    matched = (content + function).sum(axis=(-1, -2)) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        precision_recall = weighted / length
        mean = 1 / ((1 - ALPHA) / precision_recall[..., 0] + ALPHA / precision_recall[..., 1])
        fragmentation = np.where(_is_perfect(counts), 0.0, counts[..., _CHUNKS] / matched)
        scores = mean * (1 - GAMMA * fragmentation**BETA)
    return np.asarray(np.maximum(np.nan_to_num(scores, nan=0.0), 0.0))


def _matched_by_stage(counts: FloatArray | IntArray) -> tuple[FloatArray | IntArray, FloatArray | IntArray]:
    """Matched content and function words, each of shape (…, 2, stages)."""
    shape = (*counts.shape[:-1], 2, len(STAGES))
    return counts[..., _MATCHED_CONTENT].reshape(shape), counts[..., _MATCHED_FUNCTION].reshape(shape)


def _is_perfect(counts: FloatArray | IntArray) -> BoolArray:
    """Whether all words match in one chunk; then there is no penalty."""
    matched = np.sum(_matched_by_stage(counts), axis=(0, -1))
    return np.asarray((matched == counts[..., _WORDS]).all(axis=-1) & (counts[..., _CHUNKS] == 1))
