"""Which matches are taken: METEOR's beam search for the alignment with the most words, the fewest chunks, the least crossing.

The search goes through the reference word by word and keeps the best 40 partial alignments. Some of its habits are slips of the
program; they decide between alignments that are otherwise level, so they are kept:

- An exact match counts 1 for each word, any other ½ for each word of a phrase, rounded down: a single stem or synonym counts 0.
- How far a match goes back or forth is added to the alignments that come after it, not to its own.
- A match that the table of paraphrases lists in both directions is there twice, and takes two of the 40 places.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np

from crossmatch.captions.meteor_matches import Matches
from crossmatch.captions.meteor_terms import EXACT
from crossmatch.core.arrays import BoolArray, IntArray

BEAM = 40
MANY = 60_000  # matches; below, numba's start costs more than it saves


@dataclass(frozen=True, eq=False)
class Choices:
    """The matches of every word of the references (`begin` to the next), and those that are settled before the search."""

    begin: IntArray  # of each word of all captions: its first match; and the end
    gain: IntArray
    settled: BoolArray  # of each word: its only match touches no word that another match touches


def align(matches: Matches, words: int, first: IntArray, last: IntArray) -> BoolArray:
    """The matches that the alignments take. `first` and `last` bound the words of each reference.

    >>> one = np.ones(3, dtype=np.int64)
    >>> twice = Matches(np.array([2, 3, 3]), one, np.array([0, 0, 1]), one, 0 * one)  # "a a" (words 0, 1) and "a a" (2, 3)
    >>> align(twice, 4, np.array([2]), np.array([4]))
    array([ True, False,  True])
    """
    choices = choices_of(matches, words, first)
    taken = np.zeros(len(matches.stage), dtype=np.bool_)
    only = np.flatnonzero(choices.settled)
    taken[choices.begin[only]] = True
    # A pair is searched where some word has a match that is not settled.
    open_words = np.concatenate([[0], np.cumsum((np.diff(choices.begin) > 0) & ~choices.settled)])
    some = np.flatnonzero(open_words[last] > open_words[first])
    loops = _loops(len(taken))
    columns = (matches.other_length, matches.own_at, matches.own_length, choices.gain)
    if loops is not None:
        size = int((matches.own_at + matches.own_length).max(initial=0)) // 64 + 1
        loops.search(first[some], last[some], choices.begin, choices.settled, *columns, size, BEAM, taken)
        return taken
    rows = list(zip(range(len(taken)), *(column.tolist() for column in columns), strict=True))
    for low, high in zip(first[some].tolist(), last[some].tolist(), strict=True):
        begin = choices.begin[low : high + 1].tolist()
        taken[begin[0] : begin[-1]] = False
        by_word = [rows[a:b] for a, b in pairwise(begin)]
        taken[_search(by_word, choices.settled[low:high].tolist())] = True
    return taken


def choices_of(matches: Matches, words: int, first: IntArray) -> Choices:
    begin = np.searchsorted(matches.other_at, np.arange(words + 1))
    exact = matches.stage == EXACT
    length = matches.own_length + matches.other_length
    gain = np.where(exact, length, matches.own_length // 2 + matches.other_length // 2)
    pair = np.searchsorted(first, matches.other_at, "right") - 1
    # Words are numbered by pair: a candidate's stand once for each reference.
    shift = np.concatenate([[0], np.cumsum(_longest(matches, pair, len(first)))])
    own = shift[pair] + matches.own_at
    touched = _touched(own, matches.own_length, int(shift[-1])), _touched(matches.other_at, matches.other_length, words)
    alone = (np.diff(begin) == 1)[matches.other_at]
    for k in range(int(length.max(initial=0))):
        for at, size, times in ((own, matches.own_length, touched[0]), (matches.other_at, matches.other_length, touched[1])):
            alone &= (k >= size) | (times[np.minimum(at + k, len(times) - 1)] == 1)
    settled = np.zeros(words, dtype=np.bool_)
    settled[matches.other_at[alone]] = True
    return Choices(begin, gain, settled)


def _longest(matches: Matches, pair: IntArray, pairs: int) -> IntArray:
    """Of each pair: how far its matches reach into the candidate."""
    reach = np.zeros(pairs, dtype=np.int64)
    np.maximum.at(reach, pair, matches.own_at + matches.own_length)
    return reach


def _touched(at: IntArray, length: IntArray, words: int) -> IntArray:
    """Of each word: how many matches cover it."""
    change = np.bincount(at, minlength=words + 1) - np.bincount(at + length, minlength=words + 1)
    return np.asarray(np.cumsum(change)[: max(words, 1)])


def _loops(matches: int) -> Any:
    """The compiled search, for many matches and where numba is installed."""
    if matches < MANY:
        return None
    try:
        from crossmatch.captions import meteor_kernels
    except ImportError:
        return None
    return meteor_kernels


_ORDER = itemgetter(0, 1, 2)


def _search(by_word: list[list[tuple[int, ...]]], settled: list[bool]) -> list[int]:
    """The matches of the best alignment of one pair, from those of each word of the reference.

    A partial alignment is: minus its gain, its chunks that are closed, its distance, the next word of the reference, where the
    open chunk ends in the candidate (-1: none), the candidate's words that are taken (bits), and its matches, the last one first.
    """
    paths: list[Any] = [(0, 0, 0, 0, -1, 0, None)]
    for word, rows in enumerate(by_word):
        ways = [(m, word + n, at, at + k, ((1 << k) - 1) << at, gain, abs(word - at)) for m, n, at, k, gain in rows]
        only = settled[word]
        grown = []
        for path in paths:
            less, chunks, distance, free, end, used, before = path
            if word < free:
                grown.append(path)
                continue
            for m, follows, at, after, bits, gain, away in ways:
                if not used & bits:
                    own = distance + away if only else distance
                    broken = end != -1 and at != end
                    grown.append((less - gain, chunks + broken, own, follows, after, used | bits, (m, before)))
                    distance += away
            if not only:
                grown.append((less, chunks + (end != -1), distance, word + 1, -1, used, before))
        if len(grown) > 1:
            grown.sort(key=_ORDER)
        paths = grown[:BEAM]
    best = min(paths, key=lambda path: (path[0], path[1] + (path[4] != -1), path[2]))
    taken, before = [], best[-1]
    while before is not None:
        m, before = before
        taken.append(m)
    return taken
