"""Tokens and words of texts with their positions, and edits that leave the rest of the text unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

APOSTROPHE = "'’"
ACCENTS = "\u0300-\u036f"  # combining accents belong to the letter before
WORD = re.compile(
    rf"""
    \d+(?:[.,:/]\d+)+                        # 1.5  1,000  10:30  1/2
    | (?:[^\W\d_]\.)+[^\W\d_](?!\w)(?:\.(?=\s*\S))?   # u.s and p.m, and their last period unless it ends the text
    | \w[\w{ACCENTS}]*(?:[-{APOSTROPHE}/&]\w[\w{ACCENTS}]*)*  # dog  T-shirt  o'clock  isn't  black/white
    """,
    re.VERBOSE,
)
CLITIC = re.compile(rf"(?:n[{APOSTROPHE}]t|[{APOSTROPHE}](?:s|re|ve|ll|d|m))$", re.IGNORECASE)
MARK = re.compile(r"\.\.+|[^\w\s]")
TOKEN = re.compile(f"{WORD.pattern}|{MARK.pattern}", re.VERBOSE)


class Token(NamedTuple):
    """A word, the end of a contraction, or a punctuation mark: `text[start:end]`."""

    text: str
    start: int
    end: int


class TokenEdit(NamedTuple):
    """`text[start:end]` becomes `new`."""

    start: int
    end: int
    new: str


def split_words(text: str) -> list[str]:
    """Words without punctuation; contractions, possessives and hyphenated words stay whole.

    >>> split_words("A dog's T-shirt isn't black/white, it's 10:30 p.m.")
    ['A', "dog's", 'T-shirt', "isn't", 'black/white', "it's", '10:30', 'p.m']
    """
    return [match.group() for match in WORD.finditer(text)]


def tokenise(text: str) -> list[Token]:
    """Tokens nearly as in the Penn Treebank: contractions and possessives are split, punctuation marks are single tokens.

    Unlike in the Treebank, quotation marks and brackets are unchanged, and a missing space after a period ("wall.The") is
    recognised. Source: marcus1993building.

    >>> [token.text for token in tokenise("The dog's bed isn't here.")]
    ['The', 'dog', "'s", 'bed', 'is', "n't", 'here', '.']
    """
    tokens = []
    has_apostrophe = any(mark in text for mark in APOSTROPHE)
    for match in TOKEN.finditer(text):
        start, end = match.span()
        clitic = CLITIC.search(match.group()) if has_apostrophe else None
        if clitic and clitic.start() > 0:
            middle = start + clitic.start()
            tokens += [Token(text[start:middle], start, middle), Token(text[middle:end], middle, end)]
        else:
            tokens.append(Token(match.group(), start, end))
    return tokens


def is_word(token: str) -> bool:
    """Whether a token contains a letter or a digit.

    >>> [is_word(token) for token in ("dog", "'s", "3", "...")]
    [True, True, True, False]
    """
    return any(character.isalnum() for character in token)


def apply_edits(text: str, edits: Iterable[TokenEdit]) -> str:
    """Apply edits to a text; they must not overlap.

    >>> apply_edits("A dog sits.", [TokenEdit(6, 10, "does not sit")])
    'A dog does not sit.'
    """
    parts, position = [], 0
    for start, end, new in sorted(edits):
        parts += [text[position:start], new]
        position = end
    return "".join([*parts, text[position:]])


def replace_words(text: str, new: Sequence[str]) -> str:
    """Replace all words of a text; spaces and punctuation stay.

    >>> replace_words("A man, a dog.", ["dog", "a", "man", "a"])
    'dog a, man a.'
    """
    matches = WORD.finditer(text)
    return apply_edits(text, [TokenEdit(*match.span(), word) for match, word in zip(matches, new, strict=True)])


def capitalise(word: str) -> str:
    """The word with a capital first letter.

    >>> capitalise("t-shirt"), capitalise("ßa")          # a letter whose capital is two letters stays
    ('T-shirt', 'ßa')
    """
    return word[0].upper() + word[1:] if word and len(word[0].upper()) == 1 else word


def is_mostly_upper_case(text: str) -> bool:
    """Whether more than half of the letters are capitals.

    >>> is_mostly_upper_case("A MAN riding A WAVE"), is_mostly_upper_case("A man and a TV")
    (True, False)
    """
    letters = [letter for letter in text if letter.isalpha()]
    return 2 * sum(letter.isupper() for letter in letters) > len(letters)


def uncapitalise(word: str) -> str:
    """Lower-case a first letter that is a capital only at the start of a sentence; "I", acronyms and camel case stay.

    >>> [uncapitalise(word) for word in ("Man", "A", "I", "TV", "iPod", "McDonald")]
    ['man', 'a', 'I', 'TV', 'iPod', 'McDonald']
    """
    is_plain = word[1:] == word[1:].lower() and re.split(f"[{APOSTROPHE}]", word)[0] != "I" and len(word[:1].lower()) == 1
    return word[0].lower() + word[1:] if word and is_plain else word


def indefinite_article(word: str) -> str:
    """ "a" or "an", by the sound at the start of the word.

    >>> [indefinite_article(word) for word in ("apple", "unicorn", "hour", "horse", "one-way sign", "SUV", "8", "x-ray")]
    ['an', 'a', 'an', 'a', 'a', 'an', 'an', 'an']
    """
    if re.match(r"(?:8|1[18]\b)", word) or SPELLED_WITH_VOWEL.match(word):
        return "an"
    return "an" if VOWEL_SOUND.match(word.lower()) else "a"


SPELLED_WITH_VOWEL = re.compile(r"[AEFHILMNORSX](?:[A-Z]{1,3}\b|-|$)|[fhlmnrsx]-(?=\w)")  # an SUV, an X-ray, an L
VOWEL_SOUND = re.compile(
    r"(?!(?:uni(?!n|m)|us[aeiu]|ut[ei]|ur[aei]|ub[io]|uk|ufo|u-|eu|ewe|on(?:e|ce)\b))[aeiou]|hou?r\b|hours?\b|honest|hono|heir"
)
