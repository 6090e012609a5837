"""Where a phrase of a candidate can stand for a phrase of its reference: the links between terms, at every place of every pair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from crossmatch.captions.meteor_terms import EXACT, STAGES, Links, Terms, Text, ranges, starts, terms_and_links
from crossmatch.core.arrays import BoolArray, IntArray

# The n-th place of a term in a caption is matched with its places n - 64 to n + 64 in the other caption; n - 8 to n + 8 if one of
# them has more than 1,000 words. No caption repeats a term so often, but 10,000 equal words would have 100,000,000 matches.
REPEATS, LONG, REPEATS_WHEN_LONG = 64, 1_000, 8
IMAGES = 128  # looked at together


@dataclass(frozen=True, eq=False)
class Matches:
    """Sorted by the reference's word, then in METEOR's order: its search breaks ties by it.

    `own_at` counts from the candidate's first word, `other_at` through the words of all captions.
    """

    other_at: IntArray
    other_length: IntArray
    own_at: IntArray
    own_length: IntArray
    stage: IntArray

    def chosen(self, which: BoolArray) -> Matches:
        return Matches(*(column[which] for column in self._columns))

    @property
    def _columns(self) -> tuple[IntArray, ...]:
        return self.other_at, self.other_length, self.own_at, self.own_length, self.stage

    @classmethod
    def joined(cls, parts: Iterator[Matches]) -> Matches:
        return cls(*(np.concatenate(column) for column in zip(*(part._columns for part in parts), strict=True)))


def matches_of(text: Text, image: IntArray, is_own: BoolArray) -> Matches:
    """All matches. `image` and `is_own` say of each caption where it belongs, and whether it is the candidate.

    A pair of equal captions has exact matches only.

    >>> from crossmatch.captions.meteor_terms import text_of
    >>> from crossmatch.captions.corpus import Corpus
    >>> corpus = Corpus.of({"7": "a couch"}, {"7": ["the sofa"]})
    >>> found = matches_of(text_of(corpus), corpus.image, corpus.is_candidate)
    >>> [STAGES[stage] for stage in found.stage], found.own_at
    (['synonym'], array([1]))
    """
    return Matches.joined(_by_block(text, image, is_own))


def _by_block(text: Text, image: IntArray, is_own: BoolArray) -> Iterator[Matches]:
    terms, links = terms_and_links(text, is_own)
    equal = _equal(text, image, is_own)
    of_image = np.searchsorted(image[terms.caption], np.arange(0, int(image[-1]) + 1 + IMAGES, IMAGES))
    for low, high in pairwise(of_image):
        block = terms.chosen(np.arange(low, high))
        own = is_own[block.caption]
        yield _paired(block.chosen(own), block.chosen(~own), links, text, image, equal)


def _equal(text: Text, image: IntArray, is_own: BoolArray) -> BoolArray:
    """Of each caption: whether it has the words of its image's candidate."""
    own = np.flatnonzero(is_own)[image]
    level = np.flatnonzero(text.lengths == text.lengths[own])
    row, at = ranges(text.begin[level], text.begin[level + 1])
    same = text.words[at] == text.words[at - text.begin[level[row]] + text.begin[own[level[row]]]]
    equal = np.zeros(len(own), dtype=np.bool_)
    equal[level] = np.bincount(row, weights=~same, minlength=len(level)) == 0
    return equal


def _paired(own: Terms, other: Terms, links: Links, text: Text, image: IntArray, equal: BoolArray) -> Matches:
    """The matches of the candidates' terms with those of the references, in one block of images."""
    # A cell is one term in one image, a group one term in one reference: the groups of a cell stand together.
    first = int(image[own.caption[0]]) if len(own.term) else 0
    order = np.lexsort((other.at, other.caption, other.term, image[other.caption]))
    other = other.chosen(order)
    cell = (image[other.caption] - first) * links.terms + other.term
    group = np.flatnonzero(starts(cell, other.caption))
    present = np.zeros(IMAGES * links.terms, dtype=np.bool_)
    present[cell] = True

    # Each term of a candidate, with each link of it that leads to a term of a reference, with each such reference.
    row, link = ranges(links.begin[own.term], links.begin[own.term + 1])
    wanted = (image[own.caption] - first)[row] * links.terms + links.other[link]
    there = np.flatnonzero(present[wanted])
    row, link, wanted = row[there], link[there], wanted[there]
    of, at = ranges(np.searchsorted(cell[group], wanted, "left"), np.searchsorted(cell[group], wanted, "right"))
    row, link = row[of], link[of]

    # The places in that reference.
    low, high = group[at], np.append(group, len(cell))[at + 1]
    longer = np.maximum(text.lengths[own.caption[row]], text.lengths[other.caption[low]])
    reach = np.where(longer > LONG, REPEATS_WHEN_LONG, REPEATS)
    rank = _times_before(own)[row]
    of, place = ranges(np.maximum(low, low + rank - reach), np.minimum(high, low + rank + reach + 1))
    row, link = row[of], link[of]
    fine = ~equal[other.caption[place]] | (links.stage[link] == EXACT)
    row, link, place = row[fine], link[fine], place[fine]

    own_at = own.at[row] - text.begin[own.caption[row]]
    order = _order(other.at[place], own_at, links, link)
    place, row, link = place[order], row[order], link[order]
    return Matches(other.at[place], other.length[place], own_at[order], own.length[row], links.stage[link])


def _order(other_at: IntArray, own_at: IntArray, links: Links, link: IntArray) -> IntArray:
    """By the reference's word and by stage; then by the candidate's word. Of paraphrases those that the table lists under the
    reference's phrase come first, by their rank and then by the candidate's word; the rest by that word, then by their rank."""
    rank, listed = links.rank[link], links.listed[link]
    ranks, words = int(rank.max(initial=0)) + 1, int(own_at.max(initial=0)) + 1
    within = np.where(listed == 1, own_at * ranks + rank, rank * words + own_at)
    return np.lexsort((within, (other_at * len(STAGES) + links.stage[link]) * 2 + listed))


def _times_before(terms: Terms) -> IntArray:
    """Of each term: how often its caption had it before."""
    order = np.lexsort((terms.at, terms.term, terms.caption))
    new = starts(terms.caption[order], terms.term[order])
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    times = np.empty(len(order), dtype=np.int64)
    times[order] = np.arange(len(order)) - first
    return times
