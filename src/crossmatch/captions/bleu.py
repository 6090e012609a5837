"""BLEU: how many of a candidate's n-grams a reference has too."""

from __future__ import annotations

from functools import partial

import numpy as np

from crossmatch.captions.corpus import ORDERS, Corpus, Grams
from crossmatch.captions.scores import Scores
from crossmatch.core.arrays import FloatArray, IntArray

TINY, SMALL = 1e-15, 1e-9  # coco-caption's guards against 0/0; they are why a caption without a match scores a little above zero


def bleu(corpus: Corpus) -> tuple[Scores, ...]:
    """BLEU-1 to BLEU-4 of the corpus and of each candidate.

        BLEU-n = BP · (Π_{k≤n} p_k)^{1/n},   p_k = Σ clipped matches / Σ candidate k-grams,   BP = min(1, e^{1 - r/c})

    A k-gram matches at most as often as the reference that has it most often. r is the length of the reference closest to the
    candidate's, the shorter of two as close. The corpus value takes p_k and BP of the sums over all candidates; it is not a mean.
    There is no smoothing but coco-caption's guards: 1e-15 is added above, 1e-9 below.
    Source: papineni2002bleu, sec. 2; chen2015microsoft, sec. 3.2.

    >>> scores = bleu(Corpus.of({"7": "a dog runs fast"}, {"7": ["a dog runs", "the dog runs fast today"]}))
    >>> [round(score.value, 3) for score in scores]
    [1.0, 1.0, 1.0, 0.0]
    """
    matches = np.stack([matched(corpus, grams) for grams in corpus.grams])
    own = corpus.lengths[corpus.candidate]
    offered = np.maximum(0, own - np.arange(ORDERS)[:, None])
    closest = closest_length(corpus)
    sums = np.concatenate([matches, offered, own[None], closest[None]]).T
    each, whole = _combine(sums), _combine(sums.sum(axis=0))
    return tuple(Scores(float(whole[n]), each[:, n], sums, partial(_order, n)) for n in range(ORDERS))


def matched(corpus: Corpus, grams: Grams) -> IntArray:
    """The clipped matches of each candidate.

    >>> corpus = Corpus.of({"7": "the the the cat"}, {"7": ["the cat on the mat", "a cat"]})
    >>> matched(corpus, corpus.grams[0])
    array([3])
    """
    is_candidate = corpus.is_candidate[grams.caption]
    if not len(grams.first):
        return np.zeros(len(corpus), dtype=np.int64)
    most = np.maximum.reduceat(np.where(is_candidate, 0, grams.count), grams.first)
    own = np.where(is_candidate[grams.first], grams.count[grams.first], 0)
    image = corpus.image[grams.caption[grams.first]]
    return np.bincount(image, np.minimum(most, own), len(corpus)).astype(np.int64)


def closest_length(corpus: Corpus) -> IntArray:
    """Of each candidate: the length of the reference closest in length, the shorter of two as close.

    >>> closest_length(Corpus.of({"7": "a b c"}, {"7": ["a b c d", "a b", "a"]}))
    array([2])
    """
    own = corpus.lengths[corpus.candidate][corpus.image]
    far = np.abs(corpus.lengths - own) * (corpus.lengths.max() + 1) + corpus.lengths  # orders by distance, then by length
    far[corpus.candidate] = np.iinfo(np.int64).max
    closest: IntArray = np.minimum.reduceat(far, corpus.candidate) % (corpus.lengths.max() + 1)
    return closest


def _combine(sums: IntArray | FloatArray) -> FloatArray:
    """BLEU-1 to BLEU-4 (…, 4) of matches, candidate n-grams, candidate length and closest length (…, 10)."""
    matches, offered, own, closest = np.split(sums, [ORDERS, 2 * ORDERS, 2 * ORDERS + 1], axis=-1)
    precision = np.cumprod((matches + TINY) / (offered + SMALL), axis=-1)
    ratio = (own + TINY) / (closest + SMALL)
    penalty = np.exp(np.minimum(0, 1 - 1 / ratio))
    return np.asarray(precision ** (1 / np.arange(1, ORDERS + 1)) * penalty, dtype=np.float64)


def _order(n: int, totals: FloatArray) -> FloatArray:
    return _combine(totals)[..., n]
