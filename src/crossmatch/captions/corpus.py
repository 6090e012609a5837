"""Candidates and their references as numbers: words, and the n-grams of every caption, counted once for all metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count

import numpy as np

from crossmatch.captions.tokenise import tokenise
from crossmatch.core.arrays import BoolArray, IdArray, IntArray, as_ids
from crossmatch.core.errors import CrossmatchError

ORDERS = 4  # n-grams of one to four words, as in every metric here


@dataclass(frozen=True, eq=False)
class Grams:
    """The n-grams of one order. An entry is one n-gram in one caption; a block is one n-gram in all captions of one image.

    Entries are sorted by n-gram, then by caption, so that a block is a run of entries, and the candidate's is its first.
    """

    n: int
    caption: IntArray  # of each entry
    count: IntArray  # how often the caption has the n-gram
    block: IntArray  # of each entry
    first: IntArray  # of each block: its first entry
    gram: IntArray  # of each block: its n-gram
    place: IntArray  # of each n-gram: where it starts in the corpus' words, at one of its places


@dataclass(frozen=True, eq=False)
class Corpus:
    """One candidate and at least one reference for every id. The captions of an id stand together, the candidate first.

    A caption without tokens is allowed: it matches nothing.

    >>> corpus = Corpus.of({"7": "A dog runs."}, {"7": ["A dog is running.", "The dog runs!"]})
    >>> corpus.lengths, corpus.is_candidate
    (array([3, 4, 3]), array([ True, False, False]))
    """

    ids: IdArray
    words: IntArray  # of all captions, one after the other, as numbers
    begin: IntArray  # of each caption: where its words start; and the end
    image: IntArray  # of each caption: the position of its id
    vocabulary: tuple[str, ...]
    captions: tuple[str, ...] | None = None  # as they were written, where that is known

    @classmethod
    def of(
        cls,
        candidates: Mapping[str, str],
        references: Mapping[str, Sequence[str]],
        tokens: Callable[[str], Sequence[str]] = tokenise,
    ) -> Corpus:
        """From texts by id; both must name the same ids.

        >>> Corpus.of({"7": "A dog."}, {"7": ["A dog."], "8": ["A cat."]})
        Traceback (most recent call last):
        ...
        crossmatch.core.errors.CrossmatchError: image '8' has references but no candidate, ... or remove its references.
        """
        for what, held in (("candidates", candidates), ("references", references)):
            if not isinstance(held, Mapping):
                raise CrossmatchError(
                    f"the {what} are {held!r:.60}; a mapping from ids to captions was expected. A file is read by "
                    "crossmatch.benchmarks.formats.caption_files."
                )
        lone = next((i for i in candidates if i not in references), None)
        if lone is not None:
            raise CrossmatchError(f"candidate {lone!r} has no references; one or more were expected. Add them, or remove it.")
        missing = [i for i in references if i not in candidates]
        if missing:
            raise CrossmatchError(
                f"image {missing[0]!r} has references but no candidate, one of {len(missing):,} such among {len(references):,}. "
                "Add a candidate, or remove its references."
            )
        for i, texts in references.items():
            if isinstance(texts, str) or not isinstance(texts, Sequence):
                raise CrossmatchError(f"the references of {i!r} are {texts!r:.60}; a list of texts was expected. Put it in a list.")
        known: dict[str, Sequence[str]] = {}  # a caption is often scored again, or is its neighbour's reference

        def of_text(i: str, text: object) -> Sequence[str]:
            if not isinstance(text, str):
                raise CrossmatchError(f"a caption of {i!r} is {text!r:.60}; a text was expected. Mend it.")
            if text not in known:
                require_unicode(text, i)
                known[text] = tokens(text)
            return known[text]

        corpus = cls.of_tokens(
            [of_text(i, candidates[i]) for i in references],
            [[of_text(i, text) for text in texts] for i, texts in references.items()],
            list(references),
        )
        return replace(corpus, captions=tuple(text for i, texts in references.items() for text in (candidates[i], *texts)))

    @classmethod
    def of_tokens(
        cls,
        candidates: Sequence[Sequence[str]],
        references: Sequence[Sequence[Sequence[str]]],
        ids: Iterable[object] | None = None,
    ) -> Corpus:
        """From tokens; the references at each position belong to the candidate there.

        >>> Corpus.of_tokens([["a", "dog"]], [[["a", "dog"], ["the", "dog"]]]).words
        array([0, 1, 0, 1, 2, 1])
        """
        if len(candidates) != len(references):
            raise CrossmatchError(
                f"{len(candidates):,} candidates and references for {len(references):,}; one list for each was expected."
            )
        names = as_ids(range(len(candidates)) if ids is None else ids, "candidate")
        sizes = np.array([len(texts) for texts in references], dtype=np.int64)
        if not sizes.all():
            raise CrossmatchError(
                f"{str(names[sizes.argmin()])!r} has no references; one or more were expected. Add them, or remove it."
            )
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        captions = [caption for own, texts in zip(candidates, references, strict=True) for caption in (own, *texts)]
        lengths = np.fromiter(map(len, captions), dtype=np.int64, count=len(captions))
        words = np.fromiter(map(numbers.__getitem__, chain.from_iterable(captions)), dtype=np.int64, count=int(lengths.sum()))
        begin = np.concatenate([[0], np.cumsum(lengths)])
        return cls(names, words, begin, np.repeat(np.arange(len(names)), sizes + 1), tuple(numbers))

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Corpus({len(self):,} candidates, {len(self.references):,} references, {len(self.vocabulary):,} words)"

    @cached_property
    def lengths(self) -> IntArray:
        return np.diff(self.begin)

    @cached_property
    def candidate(self) -> IntArray:
        """Of each id: its candidate among the captions."""
        return np.searchsorted(self.image, np.arange(len(self)))

    @cached_property
    def is_candidate(self) -> BoolArray:
        found = np.zeros(len(self.image), dtype=np.bool_)
        found[self.candidate] = True
        return found

    @cached_property
    def references(self) -> IntArray:
        """All references among the captions."""
        return np.flatnonzero(~self.is_candidate)

    @cached_property
    def references_each(self) -> IntArray:
        """Of each id: the number of its references."""
        return np.bincount(self.image[self.references])

    @cached_property
    def grams(self) -> tuple[Grams, ...]:
        """The n-grams of one to `ORDERS` words."""
        return tuple(_orders(self.words, self.begin, self.image, len(self.vocabulary)))

    def texts(self, grams: Grams) -> list[str]:
        """Every n-gram written out.

        >>> corpus = Corpus.of_tokens([["a", "dog"]], [[["the", "dog"]]])
        >>> corpus.texts(corpus.grams[1])
        ['a dog', 'the dog']
        """
        words = self.words[grams.place[:, None] + np.arange(grams.n)].tolist()
        return [" ".join([self.vocabulary[word] for word in gram]) for gram in words]


def require_unicode(text: str, whose: str) -> None:
    """Refuse half of a surrogate pair, which json can hold, and which no file or model can take."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CrossmatchError(
            f"a caption of {whose!r} has {text[error.start]!a} at place {error.start}, which is no character. Mend it: {text!a:.60}"
        ) from None


def _orders(words: IntArray, begin: IntArray, image: IntArray, vocabulary: int) -> Iterator[Grams]:
    """An n-gram is an (n-1)-gram and one word more, so that a pair of numbers names it; one sort groups a whole order."""
    captions = len(image)
    owner = np.repeat(np.arange(captions), np.diff(begin))
    after = begin[1:][owner]  # where the caption ends
    name, names = np.zeros(len(words), dtype=np.int64), 1  # of the (n-1)-gram that starts at each place
    place = np.arange(len(words))
    for n in range(1, ORDERS + 1):
        place = place[place + n <= after[place]]
        key = name[place] * vocabulary + words[place + n - 1]
        if names * vocabulary * captions >= 2**62:  # too many to hold the caption in the same number
            key = np.unique(key, return_inverse=True)[1]
        key = key * captions + owner[place]
        order = np.argsort(key)
        key, place_of = key[order], place[order]
        start = np.flatnonzero(_changes(key))
        caption = owner[place_of[start]]
        new_gram = _changes(key[start] // captions)
        gram = np.cumsum(new_gram) - 1
        new_block = new_gram | _changes(image[caption])
        first = np.flatnonzero(new_block)
        size = np.diff(np.append(start, len(key)))
        yield Grams(n, caption, size, np.cumsum(new_block) - 1, first, gram[first], place_of[start[new_gram]])
        name[place_of], names = np.repeat(gram, size), max(1, int(new_gram.sum()))


def _changes(values: IntArray) -> BoolArray:
    """Where a value differs from the one before; the first does."""
    return np.concatenate([np.ones(min(1, len(values)), dtype=np.bool_), values[1:] != values[:-1]])
