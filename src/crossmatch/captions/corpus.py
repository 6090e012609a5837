"""Candidate captions and their references, tokenised and counted once for all metrics; and the scores that metrics return."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count, pairwise
from typing import TYPE_CHECKING

import numpy as np

from crossmatch.captions.ptb_tokenizer import tokenise
from crossmatch.data.arrays import BoolArray, FloatArray, IdArray, IntArray, as_ids
from crossmatch.data.errors import CrossmatchError

if TYPE_CHECKING:
    from PIL.Image import Image

ImageSource = Mapping[str, "Image"] | Callable[[str], "Image"]  # gives the image of an id

MAX_ORDER = 4  # n-grams have one to four words in every metric here
REMOVED_CATEGORIES = "PSZC"  # Unicode's punctuation, symbols, separators and control characters; combining marks stay


@dataclass(frozen=True, eq=False)
class CaptionScores:
    """Scores of a caption metric: one value for the corpus and one for each candidate.

    The corpus value is the mean of the candidates' values, unless `combine` computes it from summed `statistics`, as in BLEU.
    """

    value: float
    values: FloatArray
    statistics: FloatArray | None = None  # (candidates, statistics)
    combine: Callable[[FloatArray], FloatArray] | None = None  # summed statistics (…, statistics) to corpus values (…)

    @classmethod
    def from_mean(cls, values: FloatArray) -> CaptionScores:
        return cls(float(values.mean()), values)


@dataclass(frozen=True, eq=False)
class NGrams:
    """All n-grams of one order. An entry is an n-gram in a caption; a block is an n-gram in all captions of one image.

    Entries are sorted by n-gram, then by caption. A block is therefore a range of entries, and the candidate's entry comes first.
    """

    n: int
    caption: IntArray  # of each entry
    count: IntArray  # of each entry: how often the n-gram occurs in the caption
    block: IntArray  # of each entry
    block_start: IntArray  # of each block: its first entry
    block_ngram: IntArray  # of each block: its n-gram
    position: IntArray  # of each n-gram: the position of one occurrence in the words of the corpus


@dataclass(frozen=True, eq=False)
class CaptionCorpus:
    """One candidate and at least one reference for every image id.

    The captions of an id are adjacent, with the candidate first. A caption without tokens is allowed; it matches nothing.

    Attributes:
        ids: The image ids.
        words: The word numbers of all captions, concatenated.
        offsets: Where the words of each caption start; the last entry is the total.
        image_index: The position of the image id of each caption.
        vocabulary: The words by number.
        captions: The original texts; None if the corpus was made from tokens.

    >>> corpus = CaptionCorpus.from_texts({"7": "A dog runs."}, {"7": ["A dog is running.", "The dog runs!"]})
    >>> corpus.lengths, corpus.is_candidate
    (array([3, 4, 3]), array([ True, False, False]))
    """

    ids: IdArray
    words: IntArray
    offsets: IntArray
    image_index: IntArray
    vocabulary: tuple[str, ...]
    captions: tuple[str, ...] | None = None

    @classmethod
    def from_texts(
        cls,
        candidates: Mapping[str, str],
        references: Mapping[str, Sequence[str]],
        tokens: Callable[[str], Sequence[str]] = tokenise,
    ) -> CaptionCorpus:
        """Build a corpus from texts.

        Args:
            candidates: The candidate caption of each image id.
            references: The reference captions of each image id; the ids must be the same.
            tokens: Splits a caption into tokens.

        Raises:
            CrossmatchError: An id has only a candidate or only references, or a caption is not a text.

        >>> CaptionCorpus.from_texts({"7": "A dog."}, {"7": ["A dog."], "8": ["A cat."]})
        Traceback (most recent call last):
        ...
        crossmatch.data.errors.CrossmatchError: Image '8' has references but no candidate ... or remove its references.
        """
        _require_matching_ids(candidates, references)
        tokens_by_text: dict[str, Sequence[str]] = {}  # captions often repeat

        def tokens_of(image_id: str, text: object) -> Sequence[str]:
            if not isinstance(text, str):
                raise CrossmatchError(f"Image {image_id!r}: expected a caption as text, got {text!r:.60}. Correct the file.")
            if text not in tokens_by_text:
                require_unicode(text, image_id)
                tokens_by_text[text] = tokens(text)
            return tokens_by_text[text]

        corpus = cls.from_tokens(
            [tokens_of(i, candidates[i]) for i in references],
            [[tokens_of(i, text) for text in texts] for i, texts in references.items()],
            list(references),
        )
        return replace(corpus, captions=tuple(text for i, texts in references.items() for text in (candidates[i], *texts)))

    @classmethod
    def from_tokens(
        cls,
        candidates: Sequence[Sequence[str]],
        references: Sequence[Sequence[Sequence[str]]],
        ids: Iterable[object] | None = None,
    ) -> CaptionCorpus:
        """Build a corpus from tokens; the references at each position belong to the candidate at that position.

        >>> CaptionCorpus.from_tokens([["a", "dog"]], [[["a", "dog"], ["the", "dog"]]]).words
        array([0, 1, 0, 1, 2, 1])
        """
        if len(candidates) != len(references):
            raise CrossmatchError(
                f"Expected one list of references per candidate, got {len(references):,} lists for {len(candidates):,} candidates."
            )
        image_ids = as_ids(range(len(candidates)) if ids is None else ids, "candidate")
        reference_counts = np.array([len(texts) for texts in references], dtype=np.int64)
        if not reference_counts.all():
            raise CrossmatchError(
                f"Image {str(image_ids[reference_counts.argmin()])!r} has no references. Add at least one, or remove the image."
            )
        word_numbers: defaultdict[str, int] = defaultdict(count().__next__)
        captions = [tokens for candidate, texts in zip(candidates, references, strict=True) for tokens in (candidate, *texts)]
        lengths = np.fromiter(map(len, captions), dtype=np.int64, count=len(captions))
        words = np.fromiter(map(word_numbers.__getitem__, chain.from_iterable(captions)), dtype=np.int64, count=int(lengths.sum()))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        image_index = np.repeat(np.arange(len(image_ids)), reference_counts + 1)
        return cls(image_ids, words, offsets, image_index, tuple(word_numbers))

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        sizes = f"{len(self):,} candidates, {len(self.reference_index):,} references, {len(self.vocabulary):,} words"
        return f"CaptionCorpus({sizes})"

    @cached_property
    def lengths(self) -> IntArray:
        """The number of words of each caption."""
        return np.diff(self.offsets)

    @cached_property
    def candidate_index(self) -> IntArray:
        """The position of each id's candidate among the captions."""
        return np.searchsorted(self.image_index, np.arange(len(self)))

    @cached_property
    def is_candidate(self) -> BoolArray:
        """Whether each caption is a candidate."""
        flags = np.zeros(len(self.image_index), dtype=np.bool_)
        flags[self.candidate_index] = True
        return flags

    @cached_property
    def reference_index(self) -> IntArray:
        """The positions of all references among the captions."""
        return np.flatnonzero(~self.is_candidate)

    @cached_property
    def references_per_image(self) -> IntArray:
        """The number of references of each id."""
        return np.bincount(self.image_index[self.reference_index])

    def sorted_references(self) -> list[tuple[str, ...]]:
        """The words of all references, by image and then alphabetically: equal for corpora that differ only in candidates.

        >>> CaptionCorpus.from_texts({"7": "a dog"}, {"7": ["the dog", "a cat"]}).sorted_references()
        [('a', 'cat'), ('the', 'dog')]
        """
        words = [tuple(self.vocabulary[n] for n in self.words[a:b].tolist()) for a, b in pairwise(self.offsets.tolist())]
        order = sorted(self.reference_index.tolist(), key=lambda n: (self.image_index[n], words[n]))
        return [words[n] for n in order]

    @cached_property
    def ngrams(self) -> tuple[NGrams, ...]:
        """The n-grams of one to `MAX_ORDER` words."""
        return tuple(_count_ngrams(self.words, self.offsets, self.image_index, len(self.vocabulary)))

    def ngram_texts(self, ngrams: NGrams) -> list[str]:
        """Every n-gram as text.

        >>> corpus = CaptionCorpus.from_tokens([["a", "dog"]], [[["the", "dog"]]])
        >>> corpus.ngram_texts(corpus.ngrams[1])
        ['a dog', 'the dog']
        """
        words = self.words[ngrams.position[:, None] + np.arange(ngrams.n)].tolist()
        return [" ".join([self.vocabulary[word] for word in ngram]) for ngram in words]

    def original_captions(self) -> tuple[str, ...]:
        """The captions as they were written, for models that have their own tokeniser.

        >>> CaptionCorpus.from_texts({"7": "A dog."}, {"7": ["The dog!"]}).original_captions()
        ('A dog.', 'The dog!')
        >>> CaptionCorpus.from_tokens([["a", "dog"]], [[["the", "dog"]]]).original_captions()
        Traceback (most recent call last):
        ...
        crossmatch.data.errors.CrossmatchError: This corpus has tokens only, ... CaptionCorpus.from_texts(candidates, references).
        """
        if self.captions is None:
            raise CrossmatchError(
                "This corpus has tokens only, but a model needs the original captions. "
                "Build it with CaptionCorpus.from_texts(candidates, references)."
            )
        return self.captions


def _require_matching_ids(candidates: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> None:
    for name, mapping in (("candidates", candidates), ("references", references)):
        if not isinstance(mapping, Mapping):
            raise CrossmatchError(
                f"{name}: expected a mapping from image ids to captions, got {mapping!r:.60}. "
                "Functions of crossmatch.benchmarks.formats.caption_scoring_files read files."
            )
    without_references = next((i for i in candidates if i not in references), None)
    if without_references is not None:
        raise CrossmatchError(f"Candidate {without_references!r} has no references. Add at least one, or remove the candidate.")
    without_candidate = [i for i in references if i not in candidates]
    if without_candidate:
        raise CrossmatchError(
            f"Image {without_candidate[0]!r} has references but no candidate ({len(without_candidate):,} of {len(references):,} "
            "images). Add a candidate, or remove its references."
        )
    for i, texts in references.items():
        if isinstance(texts, str) or not isinstance(texts, Sequence):
            raise CrossmatchError(f"Image {i!r}: expected a list of references, got {texts!r:.60}. Put the text in a list.")


def require_unicode(text: str, image_id: str) -> None:
    """Refuse a lone surrogate: json can hold one, but no file or model accepts it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CrossmatchError(
            f"Image {image_id!r}: a caption has {text[error.start]!a} at position {error.start}, which is not a valid character. "
            f"Correct the caption: {text!a:.60}"
        ) from None


def open_image(images: ImageSource, image_id: str) -> Image:
    """The image of an id, from a mapping or a function.

    >>> open_image({"7": "the image"}, "8")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: No image for candidate '8' among 1 images. Add it, or remove the candidate.
    """
    if not isinstance(images, Mapping):
        return images(image_id)
    if image_id not in images:
        raise CrossmatchError(f"No image for candidate {image_id!r} among {len(images):,} images. Add it, or remove the candidate.")
    return images[image_id]


def normalise_caption(text: str) -> str:
    """The letters and digits of a caption; captions with the same result count as the same caption.

    Comparing tokens would be too strict: studies removed hyphens and apostrophes from captions (61 of Composite's 3,004).

    >>> normalise_caption("A boy in a T-shirt .") == normalise_caption("a boy in a t shirt")
    True
    >>> normalise_caption("एक लड़का") == normalise_caption("एक लड़की")
    False
    """
    letters = text.casefold()
    if not (letters.isascii() and letters.isalnum()):
        letters = "".join(char for char in letters if unicodedata.category(char)[0] not in REMOVED_CATEGORIES)
    return letters or text.strip()


def find_own_reference(candidate: str, references: Sequence[str]) -> int | None:
    """The position of the first reference that equals the candidate; None if none does.

    >>> find_own_reference("a dog runs", ["A cat.", "A dog runs.", "A dog runs!"])
    1
    """
    normalised = normalise_caption(candidate)
    return next((n for n, text in enumerate(references) if normalise_caption(text) == normalised), None)


def remove_own_reference(candidate: str, references: Sequence[str]) -> list[str]:
    """The references without the first one that equals the candidate; all references if none does.

    The released code of jiang2019tiger removes the first reference of every human candidate, equal or not.

    >>> remove_own_reference("a dog runs", ["A cat.", "A dog runs.", "A dog runs!"])
    ['A cat.', 'A dog runs!']
    """
    removed = find_own_reference(candidate, references)
    return [text for n, text in enumerate(references) if n != removed]


def leave_one_out(candidate_sets: Sequence[Mapping[str, str]], references: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The references of each image without the first one that equals its candidate, for each of the sets.

    All sets get the same references. With fewer references a caption scores lower, so a set that alone lost some could not be
    compared with the others.

    >>> leave_one_out([{"7": "a dog"}], {"7": ["A cat.", "A dog."]})
    {'7': ['A cat.']}
    >>> leave_one_out([{"7": "a dog"}, {"7": "a horse"}], {"7": ["A cat.", "A dog."]})
    {'7': ['A cat.']}
    """
    remaining = {}
    for i, texts in references.items():
        removed = {find_own_reference(candidates[i], texts) for candidates in candidate_sets if i in candidates}
        remaining[i] = [text for n, text in enumerate(texts) if n not in removed]
        if texts and not remaining[i]:
            subject = "its only reference equals the candidate" if len(texts) == 1 else "each of its references equals a candidate"
            raise CrossmatchError(
                f"Image {i!r}: {subject} {texts[0]!r:.60}, so no reference is left. Add a reference, or remove the candidate."
            )
    return remaining


def _count_ngrams(words: IntArray, offsets: IntArray, image_index: IntArray, vocabulary: int) -> Iterator[NGrams]:
    """Count the n-grams of each order with one sort: an n-gram is the pair of an (n-1)-gram and one more word."""
    captions = len(image_index)
    owner = np.repeat(np.arange(captions), np.diff(offsets))
    caption_end = offsets[1:][owner]
    prefix, prefixes = np.zeros(len(words), dtype=np.int64), 1  # the (n-1)-gram that starts at each position
    position = np.arange(len(words))
    for n in range(1, MAX_ORDER + 1):
        position = position[position + n <= caption_end[position]]
        key = prefix[position] * vocabulary + words[position + n - 1]
        if prefixes * vocabulary * captions >= 2**62:  # n-gram and caption do not fit into one number
            key = np.unique(key, return_inverse=True)[1]
        key = key * captions + owner[position]
        order = np.argsort(key)
        key, sorted_position = key[order], position[order]
        entry_start = np.flatnonzero(_changes(key))
        caption = owner[sorted_position[entry_start]]
        is_new_ngram = _changes(key[entry_start] // captions)
        ngram = np.cumsum(is_new_ngram) - 1
        is_new_block = is_new_ngram | _changes(image_index[caption])
        block_start = np.flatnonzero(is_new_block)
        counts = np.diff(np.append(entry_start, len(key)))
        yield NGrams(
            n, caption, counts, np.cumsum(is_new_block) - 1, block_start, ngram[block_start],
            sorted_position[entry_start[is_new_ngram]],
        )  # fmt: skip
        prefix[sorted_position], prefixes = np.repeat(ngram, counts), max(1, int(is_new_ngram.sum()))


def _changes(values: IntArray) -> BoolArray:
    """Where a value differs from the previous one; the first value always does."""
    return np.concatenate([np.ones(min(1, len(values)), dtype=np.bool_), values[1:] != values[:-1]])
