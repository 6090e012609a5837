"""Texts as words: where they are, so that an edit leaves everything around them as it was."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

APOSTROPHE = "'’"
ACCENTS = "\u0300-\u036f"  # combining ones: an e and an accent behind it are one letter
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
    """A word, the end of a contraction or a punctuation mark, and where it stands: `text[start:end]`."""

    text: str
    start: int
    end: int


class Edit(NamedTuple):
    """`text[start:end]` becomes `new`."""

    start: int
    end: int
    new: str


def words(text: str) -> list[str]:
    """The words without punctuation; contractions, possessives and hyphenated words stay whole.

    >>> words("A dog's T-shirt isn't black/white, it's 10:30 p.m.")
    ['A', "dog's", 'T-shirt', "isn't", 'black/white', "it's", '10:30', 'p.m']
    """
    return [match.group() for match in WORD.finditer(text)]


def tokens(text: str) -> list[Token]:
    """Tokens nearly as in the Penn Treebank: contractions and possessives are split, each punctuation mark stands alone.

    Unlike the Treebank's, quotation marks and brackets keep their look, and a missing space after a period ("wall.The") is seen.
    Source: marcus1993building.

    >>> [token.text for token in tokens("The dog's bed isn't here.")]
    ['The', 'dog', "'s", 'bed', 'is', "n't", 'here', '.']
    """
    found = []
    contracted = any(mark in text for mark in APOSTROPHE)
    for match in TOKEN.finditer(text):
        start, end = match.span()
        clitic = CLITIC.search(match.group()) if contracted else None
        if clitic and clitic.start() > 0:
            middle = start + clitic.start()
            found += [Token(text[start:middle], start, middle), Token(text[middle:end], middle, end)]
        else:
            found.append(Token(match.group(), start, end))
    return found


def is_word(token: str) -> bool:
    """Whether there is a letter or a digit in it.

    >>> [is_word(token) for token in ("dog", "'s", "3", "...")]
    [True, True, True, False]
    """
    return any(character.isalnum() for character in token)


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with all the edits made; they must not overlap.

    >>> edited("A dog sits.", [Edit(6, 10, "does not sit")])
    'A dog does not sit.'
    """
    parts, done = [], 0
    for start, end, new in sorted(edits):
        parts += [text[done:start], new]
        done = end
    return "".join([*parts, text[done:]])


def refilled(text: str, new: Sequence[str]) -> str:
    """The text with other words in the places of its words; spaces and punctuation stay.

    >>> refilled("A man, a dog.", ["dog", "a", "man", "a"])
    'dog a, man a.'
    """
    matches = WORD.finditer(text)
    return edited(text, [Edit(*match.span(), word) for match, word in zip(matches, new, strict=True)])


def capitalised(word: str) -> str:
    """The word with a capital first letter.

    >>> capitalised("t-shirt"), capitalised("ßa")          # a letter whose capital is two letters stays
    ('T-shirt', 'ßa')
    """
    return word[0].upper() + word[1:] if word and len(word[0].upper()) == 1 else word


def loud(text: str) -> bool:
    """Whether a text is in capitals throughout, or nearly so.

    >>> loud("A MAN riding A WAVE"), loud("A man and a TV")
    (True, False)
    """
    letters = [letter for letter in text if letter.isalpha()]
    return 2 * sum(letter.isupper() for letter in letters) > len(letters)


def uncapitalised(word: str) -> str:
    """The word without the capital that only the start of a sentence gave it: `I`, acronyms and camel case keep theirs.

    >>> [uncapitalised(word) for word in ("Man", "A", "I", "TV", "iPod", "McDonald")]
    ['man', 'a', 'I', 'TV', 'iPod', 'McDonald']
    """
    plain = word[1:] == word[1:].lower() and re.split(f"[{APOSTROPHE}]", word)[0] != "I" and len(word[:1].lower()) == 1
    return word[0].lower() + word[1:] if word and plain else word


def article(word: str) -> str:
    """`a` or `an`, by the sound that the word begins with.

    >>> [article(word) for word in ("apple", "unicorn", "umbrella", "hour", "horse", "one-way sign", "SUV", "8", "x-ray")]
    ['an', 'a', 'an', 'an', 'a', 'a', 'an', 'an', 'an']
    """
    if re.match(r"(?:8|1[18]\b)", word) or SPELLED_WITH_VOWEL.match(word):
        return "an"
    return "an" if VOWEL_SOUND.match(word.lower()) else "a"


SPELLED_WITH_VOWEL = re.compile(r"[AEFHILMNORSX](?:[A-Z]{1,3}\b|-|$)|[fhlmnrsx]-(?=\w)")  # an SUV, an X-ray, an L
VOWEL_SOUND = re.compile(
    r"(?!(?:uni(?!n|m)|us[aeiu]|ut[ei]|ur[aei]|ub[io]|uk|ufo|u-|eu|ewe|on(?:e|ce)\b))[aeiou]|hou?r\b|hours?\b|honest|hono|heir"
)
