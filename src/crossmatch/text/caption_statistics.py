"""Statistics of captions: lengths, parts of speech and vocabulary (hu2019bison, Table 2 and Figure 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from crossmatch.data.errors import CrossmatchError
from crossmatch.text.part_of_speech import tag_texts
from crossmatch.text.tokens_and_edits import is_word, tokenise

TAGS_OF_PART = {
    "noun": ("NN", "NNS", "NNP", "NNPS"),
    "verb": ("VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "MD"),
    "adjective": ("JJ", "JJR", "JJS"),
    "adverb": ("RB", "RBR", "RBS", "WRB"),
    "preposition": ("IN", "TO", "RP"),
    "determiner": ("DT", "PDT", "WDT"),
    "pronoun": ("PRP", "PRP$", "WP", "WP$", "EX"),
    "number": ("CD",),
    "conjunction": ("CC",),
}
# All other tags are "other": possessives, symbols, foreign words.
PART_OF_TAG = {tag: part for part, tags in TAGS_OF_PART.items() for tag in tags}


@dataclass(frozen=True)
class CaptionStatistics:
    """Counts over captions. A word is a token with a letter or digit: contractions are two words, punctuation is not a word.

    Attributes:
        captions: Number of captions.
        unique: Number of different captions.
        words: Number of words.
        lengths: Number of captions of each length in words.
        parts: Share of all words of each coarse part of speech.
        vocabulary: Different words in lower case.
    """

    captions: int
    unique: int
    words: int
    lengths: Mapping[int, int]
    parts: Mapping[str, float]
    vocabulary: frozenset[str] = field(repr=False)

    @property
    def mean_length(self) -> float:
        return self.words / self.captions


def caption_statistics(captions: Iterable[str]) -> CaptionStatistics:
    """Count lengths, parts of speech and vocabulary; repeated captions count each time, except in `unique`.

    >>> statistics = caption_statistics(["A dog sits.", "Two dogs sit on a couch."])
    >>> statistics.words, statistics.mean_length, dict(statistics.lengths), sorted(statistics.vocabulary)
    (9, 4.5, {3: 1, 6: 1}, ['a', 'couch', 'dog', 'dogs', 'on', 'sit', 'sits', 'two'])
    >>> {part: round(share, 2) for part, share in statistics.parts.items() if share}
    {'noun': 0.33, 'verb': 0.22, 'preposition': 0.11, 'determiner': 0.22, 'number': 0.11}
    """
    times = Counter(captions)
    if not times:
        raise CrossmatchError("Caption statistics need at least one caption.")
    lengths: Counter[int] = Counter()
    parts: Counter[str] = Counter()
    vocabulary: set[str] = set()
    for text, tokens, tags in tag_texts(list(times)):
        words = [(token.text, tag) for token, tag in zip(tokens, tags, strict=True) if is_word(token.text)]
        lengths[len(words)] += times[text]
        vocabulary.update(word.lower() for word, _ in words)
        for _, tag in words:
            parts[PART_OF_TAG.get(tag, "other")] += times[text]
    word_count = parts.total()
    shares = {part: parts[part] / word_count if word_count else 0.0 for part in (*TAGS_OF_PART, "other")}
    return CaptionStatistics(times.total(), len(times), word_count, dict(sorted(lengths.items())), shares, frozenset(vocabulary))


def vocabulary(captions: Iterable[str]) -> frozenset[str]:
    """Different words in lower case, without tagging.

    >>> sorted(vocabulary(["A dog's bed.", "a Dog"]))
    ["'s", 'a', 'bed', 'dog']
    """
    return frozenset(token.text.lower() for text in set(captions) for token in tokenise(text) if is_word(token.text))


def vocabulary_overlap(part: frozenset[str], whole: frozenset[str]) -> float:
    """Share of the second vocabulary that is also in the first: |A ∩ B| / |B|.

    Source: hu2019bison, sec. C: COCO-BISON has 58.24 % of the vocabulary of its source captions.

    >>> vocabulary_overlap(frozenset({"a", "dog"}), frozenset({"a", "cat", "dog", "sits"}))
    0.5
    """
    if not whole:
        raise CrossmatchError("The second vocabulary is empty. Pass the captions to compare with.")
    return len(part & whole) / len(whole)
