"""CIDEr-D as a reward: generated captions against the references of a training set, indexed once.

Everything that does not depend on the caption is counted once: the n-grams of the references, their document frequencies, and the
lengths of the references. A batch then costs a few lookups. The numbers equal those of `crossmatch.captions.cider`; optionally, the
end of a caption counts as a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crossmatch.captions.cider import SIGMA
from crossmatch.captions.corpus import CaptionCorpus
from crossmatch.captions.document_frequencies import inverse_document_frequencies
from crossmatch.captions.ptb_tokenizer import tokenise
from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError
from crossmatch.models.zoo.network_inputs import END, FIRST_WORD, UNKNOWN, Vocabulary

if TYPE_CHECKING:
    from crossmatch.train.data.training_set import TrainingSet

END_TOKEN = "the end"  # the end of a caption as a word; no word of a text contains a space
RADIX = (
    2**31
)  # more than the number of words: the key of an n-gram is the number of its first n - 1 words times this, plus its last word


@dataclass(frozen=True, eq=False)
class NGramTable:
    """The n-grams of one length in all references. An entry is one n-gram in one reference, sorted by image, then n-gram."""

    keys: IntArray  # of each n-gram, ascending: number of all but its last word, times `RADIX`, plus its last word
    idf: FloatArray  # of each n-gram: log(|I| / df); the last value is for n-grams that do not occur
    entry_key: IntArray  # of each entry: image * n-grams + n-gram
    reference: NDArray[np.int32]  # of each entry
    count: NDArray[np.int16]  # of each entry: occurrences
    norm: FloatArray  # of each reference: length of its vector

    def __len__(self) -> int:
        return len(self.keys)

    def number_ngrams(self, keys: IntArray) -> IntArray:
        """Numbers of n-grams; unknown n-grams get further numbers, equal ones the same."""
        number = np.searchsorted(self.keys, keys)
        is_new = number == len(self)
        is_new[~is_new] = self.keys[number[~is_new]] != keys[~is_new]
        number[is_new] = len(self) + np.unique(keys[is_new], return_inverse=True)[1].ravel()
        return number


@dataclass(frozen=True, eq=False)
class ReferenceIndex:
    """The references of all images, indexed for CIDEr-D.

    >>> index = ReferenceIndex.from_texts([["a dog runs fast"], ["the sun is up"]])
    >>> index.cider_d_of_texts(["a dog runs fast", "a dog runs", "a cat"], [0, 0, 1]).round(3)
    array([10.   ,  5.892,  0.   ])

    With `end`, the end of a text counts as a word, in references and in captions (see `Reward`).

    >>> index = ReferenceIndex.from_texts([["a dog runs fast"], ["the sun is up"]], end=True)
    >>> index.cider_d_of_texts(["a dog runs fast", "a dog runs", "a cat"], [0, 0, 1]).round(3)
    array([10.   ,  4.565,  0.   ])
    """

    tokens: dict[str, int]
    tables: tuple[NGramTable, ...]
    begin: IntArray  # of each image: its first reference; the last entry is their number
    length: IntArray  # of each reference, in bigrams

    @classmethod
    def from_texts(cls, references: Sequence[Sequence[str]], end: bool = False) -> ReferenceIndex:
        """Index the references of each image, at least one each."""
        last = (END_TOKEN,) if end else ()
        tokens = [[(*tokenise(text), *last) for text in texts] for texts in references]
        corpus = CaptionCorpus.from_tokens([()] * len(references), tokens)  # with empty candidates
        tables: list[NGramTable] = []
        for ngrams, idf in zip(corpus.ngrams, inverse_document_frequencies(corpus, None), strict=True):
            tables.append(_make_table(corpus, ngrams.n, idf, tables))
        begin = np.concatenate([[0], np.cumsum(corpus.references_per_image)])
        length = np.maximum(0, corpus.lengths[corpus.reference_index] - 1)
        return cls({word: n for n, word in enumerate(corpus.vocabulary)}, tuple(tables), begin, length)

    def can_reward(self, tokens: IntArray) -> bool:
        """Whether a caption of these tokens can have a CIDEr-D above 0: whether they form an n-gram with a positive idf.

        >>> index = ReferenceIndex.from_texts([["a dog"], ["a cat"]])
        >>> [index.can_reward(np.array([index.tokens[word]])) for word in ("a", "dog")]
        [False, True]
        """
        is_sayable: BoolArray = np.ones(1, dtype=bool)  # of the shorter n-grams; there is one without words
        for table in self.tables:
            is_sayable = is_sayable[table.keys // RADIX] & np.isin(table.keys % RADIX, tokens)
            if bool((is_sayable & (table.idf[: len(table)] > 0)).any()):
                return True
        return False

    def cider_d_of_texts(self, captions: Sequence[str], image: Sequence[int] | IntArray) -> FloatArray:
        """CIDEr-D of each text against the references of its image, with the document frequencies of the references."""
        last = (END_TOKEN,) if END_TOKEN in self.tokens else ()
        tokenised = [(*tokenise(text), *last) for text in captions]
        number = dict(self.tokens)
        words = np.asarray([number.setdefault(word, len(number)) for caption in tokenised for word in caption], dtype=np.int64)
        begin = np.concatenate([[0], np.cumsum([len(caption) for caption in tokenised])]).astype(np.int64)
        return self.cider_d(words, begin, np.asarray(image, dtype=np.int64))

    def cider_d(self, words: IntArray, begin: IntArray, image: IntArray) -> FloatArray:
        """CIDEr-D of captions as token numbers; see `crossmatch.captions.cider`.

        Args:
            words: Token numbers of all captions; those of caption n are words[begin[n]:begin[n + 1]].
            begin: Start of each caption, and the end.
            image: Image of each caption.
        """
        captions = len(image)
        references_each, slot = np.diff(self.begin)[image], np.zeros(captions + 1, dtype=np.int64)
        np.cumsum(references_each, out=slot[1:])
        slot_caption = np.repeat(np.arange(captions), references_each)  # a slot for each caption with each of its references
        slot_reference = np.arange(slot[-1]) + (self.begin[image] - slot[:-1])[slot_caption]
        length = np.diff(begin)
        owner, position = np.repeat(np.arange(captions), length), np.arange(len(words))
        ngram_number = np.zeros(len(words), dtype=np.int64)
        cosine_sum = np.zeros(len(slot_caption))
        for n, table in enumerate(self.tables, start=1):
            position = position[position + n <= begin[1:][owner[position]]]
            ngram_number[position] = table.number_ngrams(ngram_number[position] * RADIX + words[position + n - 1])
            entry, count = np.unique(ngram_number[position] * captions + owner[position], return_counts=True)
            ngram, caption = np.divmod(entry, captions)
            weight = count * table.idf[np.minimum(ngram, len(table))]
            norm = np.sqrt(np.bincount(caption, weight**2, captions))
            ngram, caption, weight = (values[ngram < len(table)] for values in (ngram, caption, weight))
            first, end = (np.searchsorted(table.entry_key, image[caption] * len(table) + ngram, side) for side in ("left", "right"))
            row, entry = _expand_ranges(first, end)
            reference_weight = table.count[entry] * table.idf[ngram[row]]
            target = slot[caption[row]] + table.reference[entry] - self.begin[image[caption[row]]]
            product = np.bincount(target, np.minimum(weight[row], reference_weight) * reference_weight, len(slot_caption))
            norms = norm[slot_caption] * table.norm[slot_reference]
            cosine_sum += np.divide(product, norms, out=np.zeros(len(slot_caption)), where=norms > 0)
        length_difference = np.maximum(0, length - 1)[slot_caption] - self.length[slot_reference]
        penalty = np.exp(-(length_difference**2) / (2 * SIGMA**2))
        total = np.bincount(slot_caption, 10 * penalty * cosine_sum / len(self.tables), captions)
        return np.asarray(total / references_each, dtype=np.float64)


def _make_table(corpus: CaptionCorpus, n: int, idf: FloatArray, shorter: Sequence[NGramTable]) -> NGramTable:
    """The n-grams of a corpus, whose numbers are in the order of their keys."""
    ngrams = corpus.ngrams[n - 1]
    prefix = np.zeros(len(ngrams.position), dtype=np.int64)
    for offset, table in enumerate(shorter):
        prefix = table.number_ngrams(prefix * RADIX + corpus.words[ngrams.position + offset])
    keys = prefix * RADIX + corpus.words[ngrams.position + n - 1]
    ngram, image = ngrams.block_ngram[ngrams.block], corpus.image_index[ngrams.caption]
    reference = ngrams.caption - image - 1  # it comes after the candidates of the images up to its own
    norm = np.sqrt(np.bincount(reference, (ngrams.count * idf[ngram]) ** 2, len(corpus.reference_index)))
    entry_key = image * len(keys) + ngram
    order = np.argsort(entry_key, kind="stable")
    idf_with_unseen = np.append(idf, np.log(len(corpus)))
    return NGramTable(
        keys,
        idf_with_unseen,
        entry_key[order],
        reference[order].astype(np.int32),
        ngrams.count[order].astype(np.int16),
        norm,
    )


def _expand_ranges(first: IntArray, end: IntArray) -> tuple[IntArray, IntArray]:
    """All numbers of the ranges first[i]:end[i], with the number i of each.

    >>> [part.tolist() for part in _expand_ranges(np.array([4, 9, 0]), np.array([6, 9, 1]))]
    [[0, 0, 2], [4, 5, 0]]
    """
    count = end - first
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) + (first - np.cumsum(count) + count)[row]


@dataclass(frozen=True, eq=False)
class Reward:
    """CIDEr-D, 0 to 10, of generated captions: rows of word numbers, of which everything after `END` is ignored.

    Words are tokenised as for the metric, and document frequencies are those of the training captions. With `end`, the end of a
    caption counts as a word, as in rennie2017scst, app. E: in the references, their document frequencies and lengths, and in a
    caption that has its `END` (a cut caption has none). So a caption earns more if it ends where captions end. The metric itself
    ignores the end: by it, "a dog in the" may score higher than "a dog".
    """

    references: ReferenceIndex
    position: IntArray  # of each image of the training set: its position among those with captions
    word_tokens: IntArray  # the tokens of all words, concatenated
    begin: IntArray  # of each word number: the start of its tokens; and the end

    @classmethod
    def from_training_set(cls, data: TrainingSet, vocabulary: Vocabulary, end: bool = True) -> Reward:
        """Make the reward for the images of a training set, with all their captions; without `end` it is the metric.

        Raises:
            CrossmatchError: No caption of the known words can have a reward above 0.
        """
        linked, start = np.unique(data.links[:, 0], return_index=True)
        if len(linked) < 2:
            raise CrossmatchError(
                f"Self-critical training has {len(linked)} image with captions; its reward, CIDEr-D, needs at least 2, because with "
                "one image no word is distinctive. Train on more images."
            )
        captions = np.split(data.links[:, 1], start[1:])
        references = ReferenceIndex.from_texts([[data.captions[n] for n in numbers.tolist()] for numbers in captions], end)
        position = np.full(len(data.store), -1, dtype=np.int64)
        position[linked] = np.arange(len(linked))
        reward = cls(references, position, *_tokenise_words(vocabulary.words, references.tokens))
        if not reward.references.can_reward(reward.word_tokens):
            first = data.captions[int(captions[0][0])]
            raise CrossmatchError(
                f"The reward is 0 for every caption of the {len(vocabulary.words):,} known words: the captions of the "
                f"{len(linked):,} images contain no known word that is not in all of them; the first is {first!r:.60}. Start from a "
                "model that knows these words, or train on captions that differ."
            )
        return reward

    def __call__(self, numbers: IntArray, image: IntArray) -> FloatArray:
        """Reward of each caption, a row of `numbers`, for its image."""
        is_end = numbers == END
        is_counted = np.cumsum(is_end, axis=1) == is_end  # everything up to and including the first end
        word, owner = numbers[is_counted], np.nonzero(is_counted)[0]
        row, token = _expand_ranges(self.begin[word], self.begin[word + 1])
        begin = np.concatenate([[0], np.cumsum(np.bincount(owner[row], minlength=len(numbers)))])
        return self.references.cider_d(self.word_tokens[token], begin, self.position[image])


def _tokenise_words(words: Iterable[str], tokens: dict[str, int]) -> tuple[IntArray, IntArray]:
    """The tokens of each word number, and where they start. Words have no punctuation, so each is tokenised separately.

    Special words have no tokens, except for the end if the references have it; the unknown word is a token of no reference.
    """
    number = dict(tokens)
    word_tokens: list[list[int]] = [[] for _ in range(FIRST_WORD)]
    word_tokens[END] = [tokens[END_TOKEN]] if END_TOKEN in tokens else []
    word_tokens[UNKNOWN] = [number.setdefault("", len(number))]
    word_tokens += [[number.setdefault(token, len(number)) for token in tokenise(word)] for word in words]
    begin = np.concatenate([[0], np.cumsum([len(tokens_of_word) for tokens_of_word in word_tokens])]).astype(np.int64)
    return np.asarray([token for tokens_of_word in word_tokens for token in tokens_of_word], dtype=np.int64), begin
