"""Find which phrases of a corpus match each other.

A term is a phrase of one to seven words that occurs in the corpus. A link says that a term of a candidate matches a term of a
reference, and in which stage. Stems, synonyms and paraphrases are looked up once per term.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.meteor.normalisation import is_unchanged, normalise
from crossmatch.captions.meteor.porter_stemmer import stem
from crossmatch.captions.meteor.tables import (
    HASH_FACTOR,
    MAX_PHRASE_WORDS,
    HashArray,
    hash_following,
    hash_words,
    load_lexicon,
    load_paraphrases,
    word_synsets,
)
from crossmatch.data.arrays import BoolArray, IntArray

STAGES = ("exact", "stem", "synonym", "paraphrase")
EXACT, STEM, SYNONYM, PARAPHRASE = range(4)


@dataclass(frozen=True, eq=False)
class MeteorText:
    """The words of all captions as METEOR splits them, as numbers."""

    words: IntArray
    offsets: IntArray  # of each caption: where its words start; the last entry is the total
    vocabulary: tuple[str, ...]

    @cached_property
    def lengths(self) -> IntArray:
        return np.diff(self.offsets)


@dataclass(frozen=True, eq=False)
class TermOccurrences:
    """Occurrences of terms, sorted by caption, then by position."""

    term: IntArray
    caption: IntArray
    position: IntArray  # among the words of all captions
    length: IntArray

    def select(self, index: BoolArray | IntArray) -> TermOccurrences:
        return TermOccurrences(self.term[index], self.caption[index], self.position[index], self.length[index])


@dataclass(frozen=True, eq=False)
class TermLinks:
    """Pairs of a term of a candidate and a term of a reference that match, sorted by the candidate's term."""

    candidate_term: IntArray
    reference_term: IntArray
    stage: IntArray
    direction: IntArray  # of paraphrases: 0 if the table lists the candidate's term under the reference's, otherwise 1
    rank: IntArray  # of paraphrases: their order in the table, short phrases first

    @cached_property
    def term_count(self) -> int:
        return 1 + max(int(self.candidate_term.max(initial=0)), int(self.reference_term.max(initial=0)))

    @cached_property
    def offsets(self) -> IntArray:
        """The first link of each term; the last entry is the total."""
        return np.searchsorted(self.candidate_term, np.arange(self.term_count + 1))


def split_into_words(corpus: CaptionCorpus) -> MeteorText:
    """Split the captions of a corpus into METEOR's words. Most captions do not change.

    >>> text = split_into_words(CaptionCorpus.from_tokens([["a", "t-shirt"]], [[["a", "shirt"]]]))
    >>> [text.vocabulary[w] for w in text.words], text.offsets
    (['a', 't', 'shirt', 'a', 'shirt'], array([0, 3, 5]))
    """
    unchanged = np.array([is_unchanged(word) for word in corpus.vocabulary], dtype=np.bool_)
    changed_before = np.concatenate([[0], np.cumsum(~unchanged[corpus.words])])
    changed_captions = np.flatnonzero(np.diff(changed_before[corpus.offsets]))
    numbers = {word: n for n, word in enumerate(corpus.vocabulary)}
    lengths, pieces, last = corpus.lengths.copy(), [], 0
    for caption in changed_captions:
        first, end = corpus.offsets[caption], corpus.offsets[caption + 1]
        text = " ".join([corpus.vocabulary[word] for word in corpus.words[first:end]])
        # coco-caption removes "|||", because it separates fields of the program's input
        split = normalise(text.replace("|||", ""), load_lexicon().abbreviations)
        pieces += [corpus.words[last:first], np.array([numbers.setdefault(word, len(numbers)) for word in split], dtype=np.int64)]
        lengths[caption], last = len(split), end
    words: IntArray = np.concatenate([*pieces, corpus.words[last:]])
    return MeteorText(words, np.concatenate([[0], np.cumsum(lengths)]), tuple(numbers))


def link_terms(text: MeteorText, is_candidate: BoolArray) -> tuple[TermOccurrences, TermLinks]:
    """Link the terms of candidates with those of references. Returns the occurrences of linked terms, and the links."""
    occurrences, phrases = _find_terms(text)
    words = np.flatnonzero(occurrences.length == 1)
    term_of_word = np.full(len(text.vocabulary), -1, dtype=np.int64)
    term_of_word[text.words[occurrences.position[words]]] = occurrences.term[words]
    used = np.flatnonzero(term_of_word >= 0)
    senses = [sorted(word_synsets(text.vocabulary[word])) for word in used]
    sense_counts = np.array([len(word_senses) for word_senses in senses], dtype=np.int64)
    stems = np.array([stem(text.vocabulary[word]) for word in used], dtype=np.str_)
    pairs = {
        EXACT: np.stack([used, used]),
        STEM: _pairs_sharing_key(used, np.unique(stems, return_inverse=True)[1]),
        SYNONYM: _pairs_sharing_key(np.repeat(used, sense_counts), np.array(list(chain(*senses)), dtype=np.int64)),
    }
    parts = []
    for stage, (candidate_word, reference_word) in pairs.items():
        zeros = np.zeros(len(candidate_word), dtype=np.int64)
        parts.append((term_of_word[candidate_word], term_of_word[reference_word], zeros + stage, zeros, zeros))
    (phrase, paraphrase), entry = _find_paraphrases(phrases)
    length = np.zeros(len(phrases), dtype=np.int64)
    length[occurrences.term] = occurrences.length
    rank = np.empty(len(entry), dtype=np.int64)
    rank[np.lexsort((entry, length[phrase]))] = np.arange(len(entry))
    zeros = np.zeros(len(entry), dtype=np.int64)
    for direction, (candidate_term, reference_term) in enumerate(((paraphrase, phrase), (phrase, paraphrase))):
        parts.append((candidate_term, reference_term, zeros + PARAPHRASE, zeros + direction, rank))
    links = TermLinks(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return _drop_unused(occurrences, links, is_candidate, len(phrases))


def _find_terms(text: MeteorText) -> tuple[TermOccurrences, HashArray]:
    """All phrases of up to seven words, as terms, and their hashes in ascending order; a term is a position among the hashes."""
    word_hash, shift = hash_words(text.vocabulary)
    following = hash_following(word_hash)
    caption = np.repeat(np.arange(len(text.offsets) - 1), text.lengths)
    caption_end = text.offsets[1:][caption]
    at = np.arange(len(text.words))
    phrase_hash, phrase_shift = word_hash[text.words], shift[text.words]
    by_length = []
    for n in range(1, MAX_PHRASE_WORDS + 1):
        by_length.append((phrase_hash, at, np.full(len(at), n)))
        longer = np.flatnonzero(at + n < caption_end[at])
        at, phrase_hash, phrase_shift = at[longer], phrase_hash[longer], phrase_shift[longer]
        next_word = text.words[at + n]
        phrase_hash = phrase_hash + phrase_shift * following[next_word]
        phrase_shift = phrase_shift * shift[next_word] * HASH_FACTOR  # one factor for the space
    hashes, positions, lengths = (np.concatenate(column) for column in zip(*by_length, strict=True))
    unique, term = np.unique(hashes, return_inverse=True)
    order = np.lexsort((lengths, positions))
    return TermOccurrences(term[order], caption[positions[order]], positions[order], lengths[order]), unique


def _pairs_sharing_key(word: IntArray, key: IntArray) -> IntArray:
    """All ordered pairs of different words that share a key.

    >>> _pairs_sharing_key(np.array([3, 4, 5, 3]), np.array([0, 0, 1, 1]))
    array([[3, 3, 4, 5],
           [4, 5, 3, 3]])
    """
    order = np.argsort(key, kind="stable")
    word, key = word[order], key[order]
    first, second = expand_ranges(np.searchsorted(key, key, "left"), np.searchsorted(key, key, "right"))
    size = int(word.max(initial=0)) + 1
    pairs = np.unique(word[first] * size + word[second])  # two words may share several keys
    pairs = pairs[pairs // size != pairs % size]
    return np.stack([pairs // size, pairs % size])


def _find_paraphrases(phrases: HashArray) -> tuple[IntArray, IntArray]:
    """Pairs of terms in the table, as rows phrase and paraphrase, and the position of each pair in the table."""
    table = load_paraphrases()
    nearest = np.minimum(np.searchsorted(table.phrases, phrases), len(table.phrases) - 1)
    term = np.flatnonzero(table.phrases[nearest] == phrases)
    row, entry = expand_ranges(table.starts[nearest[term]], table.ends[nearest[term]])
    paraphrase_hash = table.paraphrases[entry]
    paraphrase = np.searchsorted(phrases, paraphrase_hash)
    occurs = np.flatnonzero(np.append(phrases, np.uint64(0))[paraphrase] == paraphrase_hash)
    return np.stack([term[row[occurs]], paraphrase[occurs]]), entry[occurs]


def _drop_unused(
    occurrences: TermOccurrences, links: TermLinks, is_candidate: BoolArray, terms: int
) -> tuple[TermOccurrences, TermLinks]:
    """Drop links that no pair of captions can use, and terms without a link; renumber the terms."""
    in_candidate = is_candidate[occurrences.caption]
    candidate_has, reference_has = (
        np.bincount(occurrences.term[side], minlength=terms) > 0 for side in (in_candidate, ~in_candidate)
    )
    usable = np.flatnonzero(candidate_has[links.candidate_term] & reference_has[links.reference_term])
    usable = usable[np.argsort(links.candidate_term[usable], kind="stable")]
    is_linked = np.zeros((2, terms), dtype=np.bool_)
    is_linked[0, links.candidate_term[usable]] = True
    is_linked[1, links.reference_term[usable]] = True
    number = np.cumsum(is_linked.any(axis=0)) - 1
    linked = occurrences.select(np.where(in_candidate, is_linked[0, occurrences.term], is_linked[1, occurrences.term]))
    columns = (number[links.candidate_term], number[links.reference_term], links.stage, links.direction, links.rank)
    renumbered = TermOccurrences(number[linked.term], linked.caption, linked.position, linked.length)
    return renumbered, TermLinks(*(column[usable] for column in columns))


def expand_ranges(first: IntArray, last: IntArray) -> tuple[IntArray, IntArray]:
    """The numbers from `first` up to `last` (exclusive) of each row, concatenated. Returns the row of each number, and the number.

    >>> expand_ranges(np.array([3, 7, 7]), np.array([5, 7, 8]))
    (array([0, 0, 2]), array([3, 4, 7]))
    """
    size = np.maximum(last - first, 0)
    row = np.repeat(np.arange(len(size)), size)
    return row, np.arange(len(row)) - (np.cumsum(size) - size)[row] + first[row]


def group_starts(*columns: IntArray) -> BoolArray:
    """Where some column differs from the previous row; the first row always does.

    >>> group_starts(np.array([1, 1, 2]), np.array([5, 5, 5]))
    array([ True, False,  True])
    """
    new = np.ones(len(columns[0]), dtype=np.bool_)
    new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return new
