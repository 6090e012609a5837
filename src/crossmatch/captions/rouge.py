"""ROUGE-L: how long a sequence of words candidate and reference share, in order but with gaps."""

from __future__ import annotations

import numpy as np

from crossmatch.captions.corpus import Corpus
from crossmatch.captions.scores import Scores
from crossmatch.core.arrays import IntArray

BETA = 1.2  # recall weighs more
WORD = 63  # candidates up to this length fit into one machine word


def rouge_l(corpus: Corpus, beta: float = BETA) -> tuple[Scores]:
    """ROUGE-L of each candidate, and the mean over candidates.

        F = (1 + β²) P R / (R + β² P),   P = max_r LCS(c, r) / |c|,   R = max_r LCS(c, r) / |r|

    LCS is the length of the longest common subsequence. As in coco-caption the best precision and the best recall may come from
    different references. A candidate without tokens scores 0 (coco-caption: 1 if a reference has none either).
    Source: lin2004rouge, sec. 3; chen2015microsoft, sec. 3.3.

    >>> rouge_l(Corpus.of({"7": "a dog runs"}, {"7": ["a big dog runs", "the dog"]}))[0].values.round(4)
    array([0.8356])
    """
    common = np.zeros(len(corpus.image))
    common[corpus.references] = longest_common(corpus)
    own = np.maximum(1, corpus.lengths[corpus.candidate])
    longest = np.maximum.reduceat(common, corpus.candidate)
    precision = longest / own
    recall = np.maximum.reduceat(common / np.maximum(1, corpus.lengths), corpus.candidate)
    below = np.where(longest > 0, recall + beta**2 * precision, 1.0)
    values = (1 + beta**2) * precision * recall / below
    return (Scores(float(values.mean()), values),)


def longest_common(corpus: Corpus) -> IntArray:
    """Of each reference: the length of the longest subsequence that it shares with its candidate.

    One bit for each word of the candidate, one step for each word of the reference, all pairs at once: with M the places of the
    reference's word in the candidate, V ← (V + (V ∧ M)) ∨ (V ∧ ¬M); the zeros of V are the length at the end.

    >>> longest_common(Corpus.of({"7": "a b c d"}, {"7": ["b d", "d c b a", "x"]}))
    array([2, 1, 0])
    """
    own = corpus.candidate[corpus.image[corpus.references]]
    found = np.zeros(len(own), dtype=np.int64)
    short = corpus.lengths[own] <= WORD
    found[short] = _in_words(corpus, own[short], corpus.references[short])
    for pair in np.flatnonzero(~short):  # Python's integers have as many bits as it takes
        found[pair] = _in_integers(
            *(corpus.words[corpus.begin[c] : corpus.begin[c + 1]].tolist() for c in (own[pair], corpus.references[pair]))
        )
    return found


def _in_words(corpus: Corpus, own: IntArray, other: IntArray) -> IntArray:
    order = np.argsort(-corpus.lengths[other], kind="stable")  # those that end first stand last
    own, other = own[order], other[order]
    length = corpus.lengths[other]
    places, masks = _masks(corpus, np.unique(own))
    free = np.full(len(own), 2**64 - 1, dtype=np.uint64)
    for step in range(int(length[0]) if len(length) else 0):
        running = int(np.searchsorted(-length, -step))  # longer than step
        word = corpus.words[corpus.begin[other[:running]] + step]
        wanted = own[:running] * len(corpus.vocabulary) + word
        at = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
        mask = np.where(places[at] == wanted, masks[at], np.uint64(0))
        still = free[:running]
        met = still & mask
        free[:running] = (still + met) | (still - met)
    found = np.empty(len(own), dtype=np.int64)
    found[order] = np.unpackbits((~free).view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1, dtype=np.int64)
    return found


def _masks(corpus: Corpus, captions: IntArray) -> tuple[IntArray, np.ndarray[tuple[int, ...], np.dtype[np.uint64]]]:
    """For each word of each of these captions, the bits of its places. A number names a caption and a word; they are sorted."""
    length = corpus.lengths[captions]
    bit = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    word = corpus.words[np.repeat(corpus.begin[captions], length) + bit]
    name = np.repeat(captions, length) * len(corpus.vocabulary) + word
    order = np.argsort(name)
    name, first = np.unique(name[order], return_index=True)
    if not len(name):
        return np.array([-1]), np.zeros(1, dtype=np.uint64)
    return name, np.bitwise_or.reduceat(np.uint64(1) << bit[order].astype(np.uint64), first)


def _in_integers(own: list[int], other: list[int]) -> int:
    masks: dict[int, int] = {}
    for bit, word in enumerate(own):
        masks[word] = masks.get(word, 0) | 1 << bit
    whole = (1 << len(own)) - 1
    free = whole
    for word in other:
        met = free & masks.get(word, 0)
        free = ((free + met) | (free - met)) & whole
    return len(own) - free.bit_count()
