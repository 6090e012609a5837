"""Which phrases match which, among all that the captions of a corpus have.

A term is a phrase that occurs: a word, or up to seven words. A link says that a term of a candidate matches a term of a reference,
and in which stage. Stems, synonyms and paraphrases are looked up once for each term, however often it occurs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crossmatch.captions.corpus import Corpus
from crossmatch.captions.meteor_data import FACTOR, LONGEST, HashArray, hashes, joined, lexicon, paraphrases, synsets
from crossmatch.captions.meteor_stem import stem
from crossmatch.captions.meteor_words import is_plain, normalise
from crossmatch.core.arrays import BoolArray, IntArray

STAGES = ("exact", "stem", "synonym", "paraphrase")
EXACT, STEM, SYNONYM, PARAPHRASE = range(4)


@dataclass(frozen=True, eq=False)
class Text:
    """The words of all captions as METEOR splits them, as numbers."""

    words: IntArray
    begin: IntArray  # of each caption: where its words start; and the end
    vocabulary: tuple[str, ...]

    @cached_property
    def lengths(self) -> IntArray:
        return np.diff(self.begin)


@dataclass(frozen=True, eq=False)
class Terms:
    """Where the terms of the corpus occur: sorted by caption, then by place."""

    term: IntArray
    caption: IntArray
    at: IntArray  # counted through the words of all captions
    length: IntArray

    def chosen(self, which: BoolArray | IntArray) -> Terms:
        return Terms(self.term[which], self.caption[which], self.at[which], self.length[which])


@dataclass(frozen=True, eq=False)
class Links:
    """Term `own` of a candidate matches term `other` of a reference. Sorted by `own`."""

    own: IntArray
    other: IntArray
    stage: IntArray
    listed: IntArray  # of paraphrases: 0 where the table lists the candidate's term under the reference's, else 1
    rank: IntArray  # of paraphrases: in the order of the table, short phrases first

    @cached_property
    def terms(self) -> int:
        return 1 + max(int(self.own.max(initial=0)), int(self.other.max(initial=0)))

    @cached_property
    def begin(self) -> IntArray:
        """Of each term: its first link; and the end."""
        return np.searchsorted(self.own, np.arange(self.terms + 1))


def text_of(corpus: Corpus) -> Text:
    """The corpus in METEOR's words. Most captions stay as they are.

    >>> text = text_of(Corpus.of_tokens([["a", "t-shirt"]], [[["a", "shirt"]]]))
    >>> [text.vocabulary[w] for w in text.words], text.begin
    (['a', 't', 'shirt', 'a', 'shirt'], array([0, 3, 5]))
    """
    plain = np.array([is_plain(word) for word in corpus.vocabulary], dtype=np.bool_)
    broken = np.concatenate([[0], np.cumsum(~plain[corpus.words])])
    changed = np.flatnonzero(np.diff(broken[corpus.begin]))
    numbers = {word: n for n, word in enumerate(corpus.vocabulary)}
    lengths, pieces, last = corpus.lengths.copy(), [], 0
    for caption in changed:
        first, end = corpus.begin[caption], corpus.begin[caption + 1]
        text = " ".join([corpus.vocabulary[word] for word in corpus.words[first:end]])
        # coco-caption takes this out: it divides the program's input
        split = normalise(text.replace("|||", ""), lexicon().abbreviations)
        pieces += [corpus.words[last:first], np.array([numbers.setdefault(word, len(numbers)) for word in split], dtype=np.int64)]
        lengths[caption], last = len(split), end
    words: IntArray = np.concatenate([*pieces, corpus.words[last:]])
    return Text(words, np.concatenate([[0], np.cumsum(lengths)]), tuple(numbers))


def terms_and_links(text: Text, is_own: BoolArray) -> tuple[Terms, Links]:
    """The links between the terms of candidates and those of references, and where the terms occur that have one."""
    found, phrases = _phrases(text)
    words = np.flatnonzero(found.length == 1)
    of_word = np.full(len(text.vocabulary), -1, dtype=np.int64)
    of_word[text.words[found.at[words]]] = found.term[words]
    used = np.flatnonzero(of_word >= 0)
    senses = [sorted(synsets(text.vocabulary[word])) for word in used]
    many = np.array([len(some) for some in senses], dtype=np.int64)
    stems = np.array([stem(text.vocabulary[word]) for word in used], dtype=np.str_)
    pairs = {
        EXACT: np.stack([used, used]),
        STEM: _sharing(used, np.unique(stems, return_inverse=True)[1]),
        SYNONYM: _sharing(np.repeat(used, many), np.array([sense for some in senses for sense in some], dtype=np.int64)),
    }
    parts = []
    for stage, (one, another) in pairs.items():
        stages, none = _filled(len(one), stage, 0)
        parts.append(Links(of_word[one], of_word[another], stages, none, none))
    (phrase, paraphrase), entry = _listed(phrases)
    length = np.zeros(len(phrases), dtype=np.int64)
    length[found.term] = found.length
    rank = np.empty(len(entry), dtype=np.int64)
    rank[np.lexsort((entry, length[phrase]))] = np.arange(len(entry))
    for listed, (own, other) in enumerate(((paraphrase, phrase), (phrase, paraphrase))):
        stages, direction = _filled(len(entry), PARAPHRASE, listed)
        parts.append(Links(own, other, stages, direction, rank))
    columns = zip(*((p.own, p.other, p.stage, p.listed, p.rank) for p in parts), strict=True)
    return _linked(found, Links(*(np.concatenate(column) for column in columns)), is_own, len(phrases))


def _filled(size: int, stage: int, listed: int) -> tuple[IntArray, IntArray]:
    return np.full(size, stage, dtype=np.int64), np.full(size, listed, dtype=np.int64)


def _phrases(text: Text) -> tuple[Terms, HashArray]:
    """All phrases of up to seven words that occur, as terms; and their hashes, ascending: a term is a place among them."""
    word, shift = hashes(text.vocabulary)
    follows = joined(word)
    caption = np.repeat(np.arange(len(text.begin) - 1), text.lengths)
    after = text.begin[1:][caption]
    at = np.arange(len(text.words))
    name, span = word[text.words], shift[text.words]
    found = []
    for n in range(1, LONGEST + 1):
        found.append((name, at, np.full(len(at), n)))
        longer = np.flatnonzero(at + n < after[at])
        at, name, span = at[longer], name[longer], span[longer]
        added = text.words[at + n]
        name = name + span * follows[added]
        span = span * shift[added] * FACTOR  # of a space
    names, places, lengths = (np.concatenate(column) for column in zip(*found, strict=True))
    unique, term = np.unique(names, return_inverse=True)
    order = np.lexsort((lengths, places))
    return Terms(term[order], caption[places[order]], places[order], lengths[order]), unique


def _sharing(word: IntArray, key: IntArray) -> IntArray:
    """All ordered pairs of different words that share a key.

    >>> _sharing(np.array([3, 4, 5, 3]), np.array([0, 0, 1, 1]))
    array([[3, 3, 4, 5],
           [4, 5, 3, 3]])
    """
    order = np.argsort(key, kind="stable")
    word, key = word[order], key[order]
    one, other = ranges(np.searchsorted(key, key, "left"), np.searchsorted(key, key, "right"))
    size = int(word.max(initial=0)) + 1
    pairs = np.unique(word[one] * size + word[other])  # two words may share several
    pairs = pairs[pairs // size != pairs % size]
    return np.stack([pairs // size, pairs % size])


def _listed(phrases: HashArray) -> tuple[IntArray, IntArray]:
    """Pairs of terms that the table lists, as rows phrase and paraphrase; and the place of each in the table."""
    table = paraphrases()
    near = np.minimum(np.searchsorted(table.phrases, phrases), len(table.phrases) - 1)
    known = np.flatnonzero(table.phrases[near] == phrases)
    row, entry = ranges(table.begin[near[known]], table.end[near[known]])
    name = table.paraphrases[entry]
    other = np.searchsorted(phrases, name)
    both = np.flatnonzero(np.append(phrases, np.uint64(0))[other] == name)
    return np.stack([known[row[both]], other[both]]), entry[both]


def _linked(found: Terms, links: Links, is_own: BoolArray, terms: int) -> tuple[Terms, Links]:
    """Without the links that no pair of captions can use and the terms that have none left; terms numbered anew."""
    side = is_own[found.caption]
    has_own, has_other = (np.bincount(found.term[which], minlength=terms) > 0 for which in (side, ~side))
    some = np.flatnonzero(has_own[links.own] & has_other[links.other])
    some = some[np.argsort(links.own[some], kind="stable")]
    used = np.zeros((2, terms), dtype=np.bool_)
    used[0, links.own[some]] = True
    used[1, links.other[some]] = True
    number = np.cumsum(used.any(axis=0)) - 1
    kept = found.chosen(np.where(side, used[0, found.term], used[1, found.term]))
    columns = (number[links.own], number[links.other], links.stage, links.listed, links.rank)
    return Terms(number[kept.term], kept.caption, kept.at, kept.length), Links(*(column[some] for column in columns))


def ranges(first: IntArray, last: IntArray) -> tuple[IntArray, IntArray]:
    """The numbers from `first` up to `last` of each row, one after the other: the row of each, and the number.

    >>> ranges(np.array([3, 7, 7]), np.array([5, 7, 8]))
    (array([0, 0, 2]), array([3, 4, 7]))
    """
    size = np.maximum(last - first, 0)
    row = np.repeat(np.arange(len(size)), size)
    return row, np.arange(len(row)) - (np.cumsum(size) - size)[row] + first[row]


def starts(*columns: IntArray) -> BoolArray:
    """Where some column differs from the row before; the first row does.

    >>> starts(np.array([1, 1, 2]), np.array([5, 5, 5]))
    array([ True, False,  True])
    """
    new = np.ones(len(columns[0]), dtype=np.bool_)
    new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return new
