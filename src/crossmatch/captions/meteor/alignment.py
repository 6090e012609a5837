"""METEOR's beam search for the alignment with the most words, the fewest chunks and the least crossing.

The search goes through the reference word by word and keeps the best 40 partial alignments. It reproduces some mistakes of the
original program, because they decide between alignments that are otherwise equal:

- An exact match counts 1 per word, any other match ½ per word of a phrase, rounded down; a single stem or synonym counts 0.
- The distance of a match is added to the alignments that follow it, not to its own.
- A paraphrase that the table lists in both directions occurs twice, and takes two of the 40 places.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from crossmatch.captions.meteor.matches import PhraseMatches
from crossmatch.captions.meteor.term_links import EXACT
from crossmatch.data.arrays import BoolArray, IntArray

BEAM = 40
NUMBA_THRESHOLD = 60_000  # with fewer matches, loading numba takes longer than it saves


@dataclass(frozen=True, eq=False)
class WordMatches:
    """The matches of each word of the references, and the words whose match is fixed before the search."""

    offsets: IntArray  # of each word of all captions: its first match; the last entry is the total
    gain: IntArray  # of each match
    fixed: BoolArray  # of each word: whether its only match shares no word with another match


def align(matches: PhraseMatches, words: int, first: IntArray, last: IntArray) -> BoolArray:
    """Select the matches of the best alignment of each reference with its candidate.

    `words` is the number of words of all captions; the words of a reference are those from `first` up to `last`.

    >>> ones = np.ones(3, dtype=np.int64)
    >>> matches = PhraseMatches(np.array([2, 3, 3]), ones, np.array([0, 0, 1]), ones, 0 * ones)  # "a a" (words 0, 1), "a a" (2, 3)
    >>> align(matches, 4, np.array([2]), np.array([4]))
    array([ True, False,  True])
    """
    by_word = index_matches(matches, words, first)
    selected = np.zeros(len(matches.stage), dtype=np.bool_)
    selected[by_word.offsets[np.flatnonzero(by_word.fixed)]] = True
    # Only pairs with a word whose match is not fixed need a search.
    open_words = np.concatenate([[0], np.cumsum((np.diff(by_word.offsets) > 0) & ~by_word.fixed)])
    to_search = np.flatnonzero(open_words[last] > open_words[first])
    kernels = _load_kernels(len(selected))
    columns = (matches.reference_length, matches.candidate_start, matches.candidate_length, by_word.gain)
    if kernels is not None:
        size = int((matches.candidate_start + matches.candidate_length).max(initial=0)) // 64 + 1
        pairs = first[to_search], last[to_search]
        kernels.search_alignments(*pairs, by_word.offsets, by_word.fixed, *columns, size, BEAM, selected)
        return selected
    rows = list(zip(range(len(selected)), *(column.tolist() for column in columns), strict=True))
    for low, high in zip(first[to_search].tolist(), last[to_search].tolist(), strict=True):
        offsets = by_word.offsets[low : high + 1].tolist()
        selected[offsets[0] : offsets[-1]] = False
        selected[_search([rows[a:b] for a, b in pairwise(offsets)], by_word.fixed[low:high].tolist())] = True
    return selected


def index_matches(matches: PhraseMatches, words: int, first: IntArray) -> WordMatches:
    """Find the matches of each reference word, their gain, and the words whose match is fixed."""
    offsets = np.searchsorted(matches.reference_start, np.arange(words + 1))
    exact = matches.stage == EXACT
    length = matches.candidate_length + matches.reference_length
    gain = np.where(exact, length, matches.candidate_length // 2 + matches.reference_length // 2)
    pair = np.searchsorted(first, matches.reference_start, "right") - 1
    # Number the candidate's words separately for each of its references.
    reach = np.zeros(len(first), dtype=np.int64)
    np.maximum.at(reach, pair, matches.candidate_start + matches.candidate_length)
    shift = np.concatenate([[0], np.cumsum(reach)])
    candidate_start = shift[pair] + matches.candidate_start
    sides = (
        (candidate_start, matches.candidate_length, _cover_counts(candidate_start, matches.candidate_length, int(shift[-1]))),
        (matches.reference_start, matches.reference_length,
         _cover_counts(matches.reference_start, matches.reference_length, words)),
    )  # fmt: skip
    is_alone = (np.diff(offsets) == 1)[matches.reference_start]
    for k in range(int(length.max(initial=0))):
        for start, size, covered in sides:
            is_alone &= (k >= size) | (covered[np.minimum(start + k, len(covered) - 1)] == 1)
    fixed = np.zeros(words, dtype=np.bool_)
    fixed[matches.reference_start[is_alone]] = True
    return WordMatches(offsets, gain, fixed)


def _cover_counts(start: IntArray, length: IntArray, words: int) -> IntArray:
    """How many matches cover each word."""
    change = np.bincount(start, minlength=words + 1) - np.bincount(start + length, minlength=words + 1)
    return np.asarray(np.cumsum(change)[: max(words, 1)])


def _load_kernels(matches: int) -> Any:
    """The compiled search, or None with few matches or without numba."""
    if matches < NUMBA_THRESHOLD:
        return None
    try:
        from crossmatch.captions.meteor import alignment_kernels
    except ImportError:
        return None
    return alignment_kernels


_SORT_KEY = itemgetter(0, 1, 2)


def _search(matches_by_word: list[list[tuple[int, ...]]], fixed: list[bool]) -> list[int]:
    """The matches of the best alignment of one pair; a simple version of the compiled search.

    A partial alignment is a tuple: minus its gain, its closed chunks, its distance, the next free word of the reference, the end of
    the open chunk in the candidate (-1: none), the used words of the candidate (bits), and its matches as a linked list.
    """
    paths: list[Any] = [(0, 0, 0, 0, -1, 0, None)]
    for word, rows in enumerate(matches_by_word):
        steps = [(m, word + n, at, at + k, ((1 << k) - 1) << at, gain, abs(word - at)) for m, n, at, k, gain in rows]
        is_fixed = fixed[word]
        extended = []
        for path in paths:
            negative_gain, chunks, distance, next_free, chunk_end, used, previous = path
            if word < next_free:
                extended.append(path)
                continue
            for m, follows, at, end, bits, gain, step_distance in steps:
                if not used & bits:
                    new_distance = distance + step_distance if is_fixed else distance
                    new_chunks = chunks + (chunk_end != -1 and at != chunk_end)
                    extended.append((negative_gain - gain, new_chunks, new_distance, follows, end, used | bits, (m, previous)))
                    distance += step_distance
            if not is_fixed:
                extended.append((negative_gain, chunks + (chunk_end != -1), distance, word + 1, -1, used, previous))
        if len(extended) > 1:
            extended.sort(key=_SORT_KEY)
        paths = extended[:BEAM]
    best = min(paths, key=lambda path: (path[0], path[1] + (path[4] != -1), path[2]))
    selected, node = [], best[-1]
    while node is not None:
        m, node = node
        selected.append(m)
    return selected
