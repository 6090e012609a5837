"""ROUGE-L: the longest common subsequence of words of candidate and reference."""

from __future__ import annotations

import numpy as np

from crossmatch.captions.corpus import CaptionCorpus, CaptionScores
from crossmatch.data.arrays import IntArray

BETA = 1.2  # above 1: recall has more weight than precision
MAX_BITS = 63  # candidates up to this length fit into one machine word


def rouge_l(corpus: CaptionCorpus, beta: float = BETA) -> tuple[CaptionScores]:
    """ROUGE-L of each candidate, and the mean over candidates.

        F = (1 + β²) P R / (R + β² P),   P = max_r LCS(c, r) / |c|,   R = max_r LCS(c, r) / |r|

    LCS is the length of the longest common subsequence. As in coco-caption, the best precision and the best recall may come from
    different references. A candidate without tokens scores 0 (in coco-caption 1 if a reference is also empty).
    Source: lin2004rouge, sec. 3; chen2015microsoft, sec. 3.3.

    >>> rouge_l(CaptionCorpus.from_texts({"7": "a dog runs"}, {"7": ["a big dog runs", "the dog"]}))[0].values.round(4)
    array([0.8356])
    """
    common = np.zeros(len(corpus.image_index))
    common[corpus.reference_index] = lcs_lengths(corpus)
    candidate_length = np.maximum(1, corpus.lengths[corpus.candidate_index])
    longest = np.maximum.reduceat(common, corpus.candidate_index)
    precision = longest / candidate_length
    recall = np.maximum.reduceat(common / np.maximum(1, corpus.lengths), corpus.candidate_index)
    denominator = np.where(longest > 0, recall + beta**2 * precision, 1.0)
    values = (1 + beta**2) * precision * recall / denominator
    return (CaptionScores.from_mean(values),)


def lcs_lengths(corpus: CaptionCorpus) -> IntArray:
    """The length of the longest common subsequence of each reference with its candidate.

    Bit-parallel: one bit per word of the candidate, one step per word of the reference, all pairs at once. M marks the positions of
    the reference's word in the candidate, V ← (V + (V ∧ M)) ∨ (V ∧ ¬M), and the number of zeros in V is the length at the end.

    >>> lcs_lengths(CaptionCorpus.from_texts({"7": "a b c d"}, {"7": ["b d", "d c b a", "x"]}))
    array([2, 1, 0])
    """
    candidate = corpus.candidate_index[corpus.image_index[corpus.reference_index]]
    lengths = np.zeros(len(candidate), dtype=np.int64)
    is_short = corpus.lengths[candidate] <= MAX_BITS
    lengths[is_short] = _lcs_in_machine_words(corpus, candidate[is_short], corpus.reference_index[is_short])
    for pair in np.flatnonzero(~is_short):
        captions = (candidate[pair], corpus.reference_index[pair])
        lengths[pair] = _lcs_in_python_integers(
            *(corpus.words[corpus.offsets[c] : corpus.offsets[c + 1]].tolist() for c in captions)
        )
    return lengths


def _lcs_in_machine_words(corpus: CaptionCorpus, candidate: IntArray, reference: IntArray) -> IntArray:
    order = np.argsort(-corpus.lengths[reference], kind="stable")  # longest first: the pairs still running are a prefix
    candidate, reference = candidate[order], reference[order]
    length = corpus.lengths[reference]
    keys, masks = _position_masks(corpus, np.unique(candidate))
    free = np.full(len(candidate), 2**64 - 1, dtype=np.uint64)
    for step in range(int(length[0]) if len(length) else 0):
        running = int(np.searchsorted(-length, -step))  # references longer than `step`
        word = corpus.words[corpus.offsets[reference[:running]] + step]
        target_key = candidate[:running] * len(corpus.vocabulary) + word
        at = np.minimum(np.searchsorted(keys, target_key), len(keys) - 1)
        mask = np.where(keys[at] == target_key, masks[at], np.uint64(0))
        still_free = free[:running]
        matched = still_free & mask
        free[:running] = (still_free + matched) | (still_free - matched)
    lcs = np.empty(len(candidate), dtype=np.int64)
    lcs[order] = np.unpackbits((~free).view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1, dtype=np.int64)
    return lcs


def _position_masks(corpus: CaptionCorpus, captions: IntArray) -> tuple[IntArray, np.ndarray[tuple[int, ...], np.dtype[np.uint64]]]:
    """For each word of each caption, a bit mask of its positions. Keys number the pairs of caption and word, ascending."""
    length = corpus.lengths[captions]
    bit = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    word = corpus.words[np.repeat(corpus.offsets[captions], length) + bit]
    key = np.repeat(captions, length) * len(corpus.vocabulary) + word
    order = np.argsort(key)
    key, first = np.unique(key[order], return_index=True)
    if not len(key):
        return np.array([-1]), np.zeros(1, dtype=np.uint64)
    return key, np.bitwise_or.reduceat(np.uint64(1) << bit[order].astype(np.uint64), first)


def _lcs_in_python_integers(candidate: list[int], reference: list[int]) -> int:
    """The same for one pair of any length, because Python's integers have any number of bits."""
    masks: dict[int, int] = {}
    for bit, word in enumerate(candidate):
        masks[word] = masks.get(word, 0) | 1 << bit
    all_bits = (1 << len(candidate)) - 1
    free = all_bits
    for word in reference:
        matched = free & masks.get(word, 0)
        free = ((free + matched) | (free - matched)) & all_bits
    return len(candidate) - free.bit_count()
