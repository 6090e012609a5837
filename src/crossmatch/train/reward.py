"""What a caption that a network made up is worth: CIDEr-D against references that are known before the training begins.

All that does not depend on the caption is counted once: the n-grams of the references, in how many images they occur, how long
each reference is. A batch then costs a few lookups. The numbers are those of `crossmatch.captions.cider`, of captions whose last
word may be that they end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crossmatch.captions.cider import SIGMA
from crossmatch.captions.corpus import Corpus
from crossmatch.captions.frequencies import telling
from crossmatch.captions.tokenise import tokenise
from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.models.zoo.inputs import END, FIRST_WORD, UNKNOWN, Vocabulary

if TYPE_CHECKING:
    from crossmatch.train.data import TrainingSet

STOP = "the end"  # where it counts as a word; no word of a text has a space in it
RADIX = 2**31  # more than there are words: an n-gram's name is that of its first n - 1 words times this, and its last word


@dataclass(frozen=True, eq=False)
class Order:
    """The n-grams of one length in all references. An entry is one n-gram in one reference, sorted by image, then by n-gram."""

    keys: IntArray  # of each n-gram, ascending: the name of all but its last word, times `RADIX`, and that word
    telling: FloatArray  # of each n-gram: log(|I| / df); one more, at the end, for all that occur nowhere
    key: IntArray  # of each entry: image * n-grams + n-gram
    reference: NDArray[np.int32]  # of each entry
    count: NDArray[np.int16]  # of each entry: how often
    norm: FloatArray  # of each reference: the length of its vector

    def __len__(self) -> int:
        return len(self.keys)

    def named(self, keys: IntArray) -> IntArray:
        """The numbers of n-grams; those that no reference has are numbered on, so that the same ones stay the same."""
        at = np.searchsorted(self.keys, keys)
        new = at == len(self)
        new[~new] = self.keys[at[~new]] != keys[~new]
        at[new] = len(self) + np.unique(keys[new], return_inverse=True)[1].ravel()
        return at


@dataclass(frozen=True, eq=False)
class KnownReferences:
    """The references of all images, ready to be compared with.

    >>> known = KnownReferences.of([["a dog runs fast"], ["the sun is up"]])
    >>> known.cider_d_of(["a dog runs fast", "a dog runs", "a cat"], [0, 0, 1]).round(3)
    array([10.   ,  5.892,  0.   ])

    With `end`, the end of a text is a word like any other, of references and of captions, in all that is counted (see `Reward`).

    >>> known = KnownReferences.of([["a dog runs fast"], ["the sun is up"]], end=True)
    >>> known.cider_d_of(["a dog runs fast", "a dog runs", "a cat"], [0, 0, 1]).round(3)
    array([10.   ,  4.565,  0.   ])
    """

    tokens: dict[str, int]
    orders: tuple[Order, ...]
    begin: IntArray  # of each image: its first reference; and the end
    length: IntArray  # of each reference, in bigrams

    @classmethod
    def of(cls, references: Sequence[Sequence[str]], end: bool = False) -> KnownReferences:
        """Those of each image as texts, one at least; a corpus whose candidates say nothing."""
        last = (STOP,) if end else ()
        corpus = Corpus.of_tokens([()] * len(references), [[(*tokenise(text), *last) for text in texts] for texts in references])
        weights, found = telling(corpus, None), list[Order]()
        for grams, weight in zip(corpus.grams, weights, strict=True):
            found.append(_order(corpus, grams.n, weight, found))
        begin = np.concatenate([[0], np.cumsum(corpus.references_each)])
        length = np.maximum(0, corpus.lengths[corpus.references] - 1)
        return cls({word: n for n, word in enumerate(corpus.vocabulary)}, tuple(found), begin, length)

    def tells(self, spelt: IntArray) -> bool:
        """Whether anything that is said with these tokens can be worth more than 0: an n-gram of them that tells images apart.

        >>> known = KnownReferences.of([["a dog"], ["a cat"]])
        >>> [known.tells(np.array([known.tokens[word]])) for word in ("a", "dog")]
        [False, True]
        """
        sayable: BoolArray = np.ones(1, dtype=bool)  # of the n-grams of one word less, of which there is one without words
        for order in self.orders:
            sayable = sayable[order.keys // RADIX] & np.isin(order.keys % RADIX, spelt)
            if bool((sayable & (order.telling[: len(order)] > 0)).any()):
                return True
        return False

    def cider_d_of(self, captions: Sequence[str], image: Sequence[int] | IntArray) -> FloatArray:
        """CIDEr-D of each text among the references of its image, all document frequencies being those of the references."""
        last = (STOP,) if STOP in self.tokens else ()
        cut = [(*tokenise(text), *last) for text in captions]
        number = dict(self.tokens)
        words = np.asarray([number.setdefault(word, len(number)) for caption in cut for word in caption], dtype=np.int64)
        begin = np.concatenate([[0], np.cumsum([len(caption) for caption in cut])]).astype(np.int64)
        return self.cider_d(words, begin, np.asarray(image, dtype=np.int64))

    def cider_d(self, words: IntArray, begin: IntArray, image: IntArray) -> FloatArray:
        """The same for captions as numbers of tokens: those of caption n are at begin[n] to begin[n + 1]. See `captions.cider`."""
        captions = len(image)
        each, slot = np.diff(self.begin)[image], np.zeros(captions + 1, dtype=np.int64)
        np.cumsum(each, out=slot[1:])
        mine = np.repeat(np.arange(captions), each)  # a slot for each caption with each of its references
        reference = np.arange(slot[-1]) + (self.begin[image] - slot[:-1])[mine]
        length = np.diff(begin)
        owner, place = np.repeat(np.arange(captions), length), np.arange(len(words))
        name = np.zeros(len(words), dtype=np.int64)
        alike = np.zeros(len(mine))
        for n, order in enumerate(self.orders, start=1):
            place = place[place + n <= begin[1:][owner[place]]]
            name[place] = order.named(name[place] * RADIX + words[place + n - 1])
            entry, count = np.unique(name[place] * captions + owner[place], return_counts=True)
            gram, caption = np.divmod(entry, captions)
            weight = count * order.telling[np.minimum(gram, len(order))]
            norm = np.sqrt(np.bincount(caption, weight**2, captions))
            gram, caption, weight = (values[gram < len(order)] for values in (gram, caption, weight))
            first, after = (np.searchsorted(order.key, image[caption] * len(order) + gram, side) for side in ("left", "right"))
            of, at = _runs(first, after)
            theirs = order.count[at] * order.telling[gram[of]]
            where = slot[caption[of]] + order.reference[at] - self.begin[image[caption[of]]]
            product = np.bincount(where, np.minimum(weight[of], theirs) * theirs, len(mine))
            norms = norm[mine] * order.norm[reference]
            alike += np.divide(product, norms, out=np.zeros(len(mine)), where=norms > 0)
        apart = np.maximum(0, length - 1)[mine] - self.length[reference]
        penalty = np.exp(-(apart**2) / (2 * SIGMA**2))
        return np.asarray(np.bincount(mine, 10 * penalty * alike / len(self.orders), captions) / each, dtype=np.float64)


def _order(corpus: Corpus, n: int, weight: FloatArray, shorter: Sequence[Order]) -> Order:
    """The n-grams of a corpus, whose own numbers are in the order of their keys."""
    grams = corpus.grams[n - 1]
    name = np.zeros(len(grams.place), dtype=np.int64)
    for back, order in enumerate(shorter):
        name = order.named(name * RADIX + corpus.words[grams.place + back])
    keys = name * RADIX + corpus.words[grams.place + n - 1]
    gram, image = grams.gram[grams.block], corpus.image[grams.caption]
    reference = grams.caption - image - 1  # before it there are as many candidates as images, and its own
    norm = np.sqrt(np.bincount(reference, (grams.count * weight[gram]) ** 2, len(corpus.references)))
    key = image * len(keys) + gram
    sort = np.argsort(key, kind="stable")
    rarest = np.append(weight, np.log(len(corpus)))
    return Order(keys, rarest, key[sort], reference[sort].astype(np.int32), grams.count[sort].astype(np.int16), norm)


def _runs(first: IntArray, after: IntArray) -> tuple[IntArray, IntArray]:
    """All numbers from each first to before each end, with which run each is of.

    >>> [part.tolist() for part in _runs(np.array([4, 9, 0]), np.array([6, 9, 1]))]
    [[0, 0, 2], [4, 5, 0]]
    """
    many = after - first
    of = np.repeat(np.arange(len(many)), many)
    return of, np.arange(len(of)) + (first - np.cumsum(many) + many)[of]


@dataclass(frozen=True, eq=False)
class Reward:
    """CIDEr-D, 0 to 10, of captions as a network tells them: rows of word numbers, whatever comes after `END`.

    The words are read as metrics read them, and document frequencies are those of the training captions. With `end`, the end of a
    caption is a word as well, as in rennie2017scst, app. E: of the references, of their n-grams' document frequencies and lengths,
    and of a caption that has its `END`; one that was cut has none. So a caption is worth more if it ends where captions end. A
    metric does not see the end, and by it "a dog in the" may be worth more than "a dog", for words that many references have.
    """

    known: KnownReferences
    place: IntArray  # of each image of the training set: its place among those that have captions
    spelt: IntArray  # the tokens of all words, one after the other
    begin: IntArray  # of each word number: where its tokens begin; and the end

    @classmethod
    def of(cls, data: TrainingSet, vocabulary: Vocabulary, end: bool = True) -> Reward:
        """For the images of a training set, with all of their captions; without `end` it is the metric.

        A training set for which no caption of these words is worth anything is refused: nothing could be learned from it.
        """
        linked, start = np.unique(data.links[:, 0], return_index=True)
        if len(linked) < 2:
            raise CrossmatchError(
                f"self-critical training has {len(linked)} image with captions, and its reward, CIDEr-D, takes 2 at least: with "
                "one, no word tells images apart. Train on more images."
            )
        texts = np.split(data.links[:, 1], start[1:])
        known = KnownReferences.of([[data.captions[n] for n in own.tolist()] for own in texts], end)
        place = np.full(len(data.store), -1, dtype=np.int64)
        place[linked] = np.arange(len(linked))
        made = cls(known, place, *_spelt(vocabulary.words, known.tokens))
        if not made.known.tells(made.spelt):
            first = data.captions[int(texts[0][0])]
            raise CrossmatchError(
                f"no caption of the {len(vocabulary.words):,} words that the network knows is worth anything to the "
                f"{len(linked):,} images: none of their captions has words that are known and not in all of them; the first is "
                f"{first!r:.60}. Begin with a model that knows these words, or train on captions that differ."
            )
        return made

    def __call__(self, numbers: IntArray, image: IntArray) -> FloatArray:
        """What each caption, a row of `numbers`, is worth to its image."""
        ends = numbers == END
        told = np.cumsum(ends, axis=1) == ends  # the first end is told, and nothing after it
        word, owner = numbers[told], np.nonzero(told)[0]
        of, at = _runs(self.begin[word], self.begin[word + 1])
        begin = np.concatenate([[0], np.cumsum(np.bincount(owner[of], minlength=len(numbers)))])
        return self.known.cider_d(self.spelt[at], begin, self.place[image])


def _spelt(words: Iterable[str], tokens: dict[str, int]) -> tuple[IntArray, IntArray]:
    """The tokens of each word number, and where they begin. Words are without punctuation, so each is cut by itself.

    A word that means something by its number alone has none, except for the end, where references have it; the unknown word is one
    token, which no reference has.
    """
    number = dict(tokens)
    spelt: list[list[int]] = [[] for _ in range(FIRST_WORD)]
    spelt[END] = [tokens[STOP]] if STOP in tokens else []
    spelt[UNKNOWN] = [number.setdefault("", len(number))]
    spelt += [[number.setdefault(token, len(number)) for token in tokenise(word)] for word in words]
    begin = np.concatenate([[0], np.cumsum([len(each) for each in spelt])]).astype(np.int64)
    return np.asarray([token for each in spelt for token in each], dtype=np.int64), begin
