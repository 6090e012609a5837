"""Find all matches between phrases of a candidate and phrases of its references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from crossmatch.captions.meteor.term_links import (
    EXACT,
    STAGES,
    MeteorText,
    TermLinks,
    TermOccurrences,
    expand_ranges,
    group_starts,
    link_terms,
)
from crossmatch.data.arrays import BoolArray, IntArray

# The n-th occurrence of a term in a caption is matched with occurrences n - 64 to n + 64 in the other caption; n - 8 to n + 8 if
# one caption has more than 1,000 words. Real captions never repeat a term so often, but 10,000 equal words would have 10⁸ matches.
REPEATS, LONG, REPEATS_WHEN_LONG = 64, 1_000, 8
BLOCK_IMAGES = 128  # images in one block


@dataclass(frozen=True, eq=False)
class PhraseMatches:
    """Matches between phrases, sorted by reference word, then in METEOR's order, which breaks ties in the search.

    `candidate_start` counts from the candidate's first word, `reference_start` from the first word of all captions.
    """

    reference_start: IntArray
    reference_length: IntArray
    candidate_start: IntArray
    candidate_length: IntArray
    stage: IntArray

    def select(self, mask: BoolArray) -> PhraseMatches:
        return PhraseMatches(*(column[mask] for column in self._columns))

    @property
    def _columns(self) -> tuple[IntArray, ...]:
        return self.reference_start, self.reference_length, self.candidate_start, self.candidate_length, self.stage

    @classmethod
    def concatenate(cls, parts: Iterator[PhraseMatches]) -> PhraseMatches:
        return cls(*(np.concatenate(column) for column in zip(*(part._columns for part in parts), strict=True)))


def find_matches(text: MeteorText, image: IntArray, is_candidate: BoolArray) -> PhraseMatches:
    """Find all matches between candidates and their references. A pair of equal captions has exact matches only.

    >>> from crossmatch.captions.meteor.term_links import split_into_words
    >>> from crossmatch.captions.corpus import CaptionCorpus
    >>> corpus = CaptionCorpus.from_texts({"7": "a couch"}, {"7": ["the sofa"]})
    >>> matches = find_matches(split_into_words(corpus), corpus.image_index, corpus.is_candidate)
    >>> [STAGES[stage] for stage in matches.stage], matches.candidate_start
    (['synonym'], array([1]))
    """
    return PhraseMatches.concatenate(_find_by_block(text, image, is_candidate))


def _find_by_block(text: MeteorText, image: IntArray, is_candidate: BoolArray) -> Iterator[PhraseMatches]:
    terms, links = link_terms(text, is_candidate)
    equals_candidate = _equal_captions(text, image, is_candidate)
    block_bounds = np.searchsorted(image[terms.caption], np.arange(0, int(image[-1]) + 1 + BLOCK_IMAGES, BLOCK_IMAGES))
    for low, high in pairwise(block_bounds):
        block = terms.select(np.arange(low, high))
        in_candidate = is_candidate[block.caption]
        yield _match_terms(block.select(in_candidate), block.select(~in_candidate), links, text, image, equals_candidate)


def _equal_captions(text: MeteorText, image: IntArray, is_candidate: BoolArray) -> BoolArray:
    """Whether each caption equals its image's candidate word by word."""
    candidate = np.flatnonzero(is_candidate)[image]
    same_length = np.flatnonzero(text.lengths == text.lengths[candidate])
    row, at = expand_ranges(text.offsets[same_length], text.offsets[same_length + 1])
    caption = same_length[row]
    same_word = text.words[at] == text.words[at - text.offsets[caption] + text.offsets[candidate[caption]]]
    equal = np.zeros(len(candidate), dtype=np.bool_)
    equal[same_length] = np.bincount(row, weights=~same_word, minlength=len(same_length)) == 0
    return equal


def _match_terms(
    candidates: TermOccurrences,
    references: TermOccurrences,
    links: TermLinks,
    text: MeteorText,
    image: IntArray,
    equals_candidate: BoolArray,
) -> PhraseMatches:
    """The matches of the candidates' terms with those of the references, in one block of images."""
    # A cell is one term in one image, a group one term in one reference; the groups of a cell are adjacent.
    first = int(image[candidates.caption[0]]) if len(candidates.term) else 0
    order = np.lexsort((references.position, references.caption, references.term, image[references.caption]))
    references = references.select(order)
    cell = (image[references.caption] - first) * links.term_count + references.term
    group = np.flatnonzero(group_starts(cell, references.caption))
    present = np.zeros(BLOCK_IMAGES * links.term_count, dtype=np.bool_)
    present[cell] = True

    # Each term of a candidate, with each of its links to a term of a reference, with each such reference.
    row, link = expand_ranges(links.offsets[candidates.term], links.offsets[candidates.term + 1])
    target_cell = (image[candidates.caption] - first)[row] * links.term_count + links.reference_term[link]
    present_links = np.flatnonzero(present[target_cell])
    row, link, target_cell = row[present_links], link[present_links], target_cell[present_links]
    parent, at = expand_ranges(
        np.searchsorted(cell[group], target_cell, "left"), np.searchsorted(cell[group], target_cell, "right")
    )
    row, link = row[parent], link[parent]

    # The occurrences in that reference.
    low, high = group[at], np.append(group, len(cell))[at + 1]
    longer = np.maximum(text.lengths[candidates.caption[row]], text.lengths[references.caption[low]])
    reach = np.where(longer > LONG, REPEATS_WHEN_LONG, REPEATS)
    repeat = _repeat_numbers(candidates)[row]
    parent, place = expand_ranges(np.maximum(low, low + repeat - reach), np.minimum(high, low + repeat + reach + 1))
    row, link = row[parent], link[parent]
    allowed = ~equals_candidate[references.caption[place]] | (links.stage[link] == EXACT)
    row, link, place = row[allowed], link[allowed], place[allowed]

    start = candidates.position[row] - text.offsets[candidates.caption[row]]
    order = _meteor_order(references.position[place], start, links, link)
    place, row, link = place[order], row[order], link[order]
    return PhraseMatches(
        references.position[place], references.length[place], start[order], candidates.length[row], links.stage[link]
    )


def _meteor_order(reference_start: IntArray, candidate_start: IntArray, links: TermLinks, link: IntArray) -> IntArray:
    """Sort by reference word, stage and candidate word.

    Paraphrases that the table lists under the reference's phrase come first, by rank and then by candidate word; the others follow,
    by candidate word and then by rank.
    """
    rank, direction = links.rank[link], links.direction[link]
    ranks, words = int(rank.max(initial=0)) + 1, int(candidate_start.max(initial=0)) + 1
    within = np.where(direction == 1, candidate_start * ranks + rank, rank * words + candidate_start)
    return np.lexsort((within, (reference_start * len(STAGES) + links.stage[link]) * 2 + direction))


def _repeat_numbers(terms: TermOccurrences) -> IntArray:
    """How often each term has occurred before in its caption."""
    order = np.lexsort((terms.position, terms.term, terms.caption))
    new = group_starts(terms.caption[order], terms.term[order])
    first = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    repeats = np.empty(len(order), dtype=np.int64)
    repeats[order] = np.arange(len(order)) - first
    return repeats
