"""BLEU: the share of a candidate's n-grams that occur in a reference."""

from __future__ import annotations

from functools import partial

import numpy as np

from crossmatch.captions.corpus import MAX_ORDER, CaptionCorpus, CaptionScores, NGrams
from crossmatch.data.arrays import FloatArray, IntArray

# coco-caption's guards against 0/0. Because of them a caption without a match scores a little above zero.
TINY, SMALL = 1e-15, 1e-9


def bleu(corpus: CaptionCorpus) -> tuple[CaptionScores, ...]:
    """BLEU-1 to BLEU-4 of the corpus and of each candidate.

        BLEU-n = BP · (Π_{k≤n} p_k)^{1/n},   p_k = Σ clipped matches / Σ candidate k-grams,   BP = min(1, e^{1 - r/c})

    A k-gram matches at most as often as it occurs in the reference that has it most often. c is the candidate's length and r the
    length of the reference closest to it; of two equally close references, r is the shorter. The corpus value is computed from
    counts summed over all candidates; it is not a mean. There is no smoothing except coco-caption's guards: 1e-15 is added to
    numerators, 1e-9 to denominators.
    Source: papineni2002bleu, sec. 2; chen2015microsoft, sec. 3.2.

    >>> scores = bleu(CaptionCorpus.from_texts({"7": "a dog runs fast"}, {"7": ["a dog runs", "the dog runs fast today"]}))
    >>> [round(score.value, 3) for score in scores]
    [1.0, 1.0, 1.0, 0.0]
    """
    matches = np.stack([clipped_matches(corpus, ngrams) for ngrams in corpus.ngrams])
    lengths = corpus.lengths[corpus.candidate_index]
    ngram_counts = np.maximum(0, lengths - np.arange(MAX_ORDER)[:, None])
    closest = closest_reference_lengths(corpus)
    statistics = np.concatenate([matches, ngram_counts, lengths[None], closest[None]]).T
    values, corpus_values = _combine(statistics), _combine(statistics.sum(axis=0))
    return tuple(
        CaptionScores(float(corpus_values[n]), values[:, n], statistics, partial(_combine_order, n)) for n in range(MAX_ORDER)
    )


def clipped_matches(corpus: CaptionCorpus, ngrams: NGrams) -> IntArray:
    """The number of clipped n-gram matches of each candidate.

    >>> corpus = CaptionCorpus.from_texts({"7": "the the the cat"}, {"7": ["the cat on the mat", "a cat"]})
    >>> clipped_matches(corpus, corpus.ngrams[0])
    array([3])
    """
    is_candidate = corpus.is_candidate[ngrams.caption]
    if not len(ngrams.block_start):
        return np.zeros(len(corpus), dtype=np.int64)
    reference_max = np.maximum.reduceat(np.where(is_candidate, 0, ngrams.count), ngrams.block_start)
    candidate_count = np.where(is_candidate[ngrams.block_start], ngrams.count[ngrams.block_start], 0)
    image_index = corpus.image_index[ngrams.caption[ngrams.block_start]]
    return np.bincount(image_index, np.minimum(reference_max, candidate_count), len(corpus)).astype(np.int64)


def closest_reference_lengths(corpus: CaptionCorpus) -> IntArray:
    """The length of the reference closest in length to each candidate; of two equally close, the shorter.

    >>> closest_reference_lengths(CaptionCorpus.from_texts({"7": "a b c"}, {"7": ["a b c d", "a b", "a"]}))
    array([2])
    """
    candidate_length = corpus.lengths[corpus.candidate_index][corpus.image_index]
    base = corpus.lengths.max() + 1
    sort_key = np.abs(corpus.lengths - candidate_length) * base + corpus.lengths  # by distance, then by length
    sort_key[corpus.candidate_index] = np.iinfo(np.int64).max
    closest: IntArray = np.minimum.reduceat(sort_key, corpus.candidate_index) % base
    return closest


def _combine(statistics: IntArray | FloatArray) -> FloatArray:
    """BLEU-1 to BLEU-4 (…, 4) from matches, candidate n-grams, candidate length and closest reference length (…, 10)."""
    matches, ngram_counts, length, closest = np.split(statistics, [MAX_ORDER, 2 * MAX_ORDER, 2 * MAX_ORDER + 1], axis=-1)
    precision = np.cumprod((matches + TINY) / (ngram_counts + SMALL), axis=-1)
    ratio = (length + TINY) / (closest + SMALL)
    penalty = np.exp(np.minimum(0, 1 - 1 / ratio))
    return np.asarray(precision ** (1 / np.arange(1, MAX_ORDER + 1)) * penalty, dtype=np.float64)


def _combine_order(n: int, totals: FloatArray) -> FloatArray:
    return _combine(totals)[..., n]
