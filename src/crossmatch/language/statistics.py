"""What a set of captions is made of: lengths, parts of speech, vocabulary (hu2019bison, Table 2 and Figure 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from crossmatch.core.errors import CrossmatchError
from crossmatch.language.tags import tag_all
from crossmatch.language.words import is_word, tokens

AT_ONCE = 1 << 14
PARTS = {
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
PART_OF = {
    tag: part for part, tags in PARTS.items() for tag in tags
}  # everything else is "other": possessives, symbols, foreign words


@dataclass(frozen=True)
class CaptionStatistics:
    """Counts over captions. A word is a token with a letter or a digit: contractions are two words, punctuation is none."""

    captions: int
    unique: int
    words: int
    lengths: Mapping[int, int]  # words of a caption -> how many captions
    parts: Mapping[str, float]  # coarse part of speech -> share of all words
    vocabulary: frozenset[str] = field(repr=False)  # in lower case

    @property
    def mean_length(self) -> float:
        return self.words / self.captions


def caption_statistics(captions: Iterable[str]) -> CaptionStatistics:
    """Lengths, parts of speech and vocabulary; a caption that comes twice counts twice, except in `unique`.

    >>> found = caption_statistics(["A dog sits.", "Two dogs sit on a couch."])
    >>> found.words, found.mean_length, dict(found.lengths), sorted(found.vocabulary)
    (9, 4.5, {3: 1, 6: 1}, ['a', 'couch', 'dog', 'dogs', 'on', 'sit', 'sits', 'two'])
    >>> {part: round(share, 2) for part, share in found.parts.items() if share}
    {'noun': 0.33, 'verb': 0.22, 'preposition': 0.11, 'determiner': 0.22, 'number': 0.11}
    """
    times = Counter(captions)
    if not times:
        raise CrossmatchError("there are no captions to count. Give at least one.")
    lengths: Counter[int] = Counter()
    parts: Counter[str] = Counter()
    vocabulary: set[str] = set()
    texts = list(times)
    for at in range(0, len(texts), AT_ONCE):
        found = [[token.text for token in tokens(text)] for text in texts[at : at + AT_ONCE]]
        for text, words, tags in zip(texts[at : at + AT_ONCE], found, tag_all(found), strict=True):
            kinds = [PART_OF.get(tag, "other") for word, tag in zip(words, tags, strict=True) if is_word(word)]
            lengths[len(kinds)] += times[text]
            vocabulary.update(word.lower() for word in words if is_word(word))
            for kind in kinds:
                parts[kind] += times[text]
    many = parts.total()
    shares = {part: parts[part] / many if many else 0.0 for part in (*PARTS, "other")}
    return CaptionStatistics(times.total(), len(times), many, dict(sorted(lengths.items())), shares, frozenset(vocabulary))


def vocabulary(captions: Iterable[str]) -> frozenset[str]:
    """The unique words in lower case; needs no tagger.

    >>> sorted(vocabulary(["A dog's bed.", "a Dog"]))
    ["'s", 'a', 'bed', 'dog']
    """
    return frozenset(token.text.lower() for text in set(captions) for token in tokens(text) if is_word(token.text))


def vocabulary_overlap(part: frozenset[str], whole: frozenset[str]) -> float:
    """The share of the second vocabulary that the first has, too: |A ∩ B| / |B|.

    Source: hu2019bison, sec. C: COCO-BISON has 58.24 % of the vocabulary of the captions that it was made from.

    >>> vocabulary_overlap(frozenset({"a", "dog"}), frozenset({"a", "cat", "dog", "sits"}))
    0.5
    """
    if not whole:
        raise CrossmatchError("the second vocabulary is empty, so there is nothing to share. Give the captions to compare with.")
    return len(part & whole) / len(whole)
