"""Names that the service uses itself. People who join cannot take them, nor names that look the same.

A name is compared by what it looks like: in lower case, without accents, with a hyphen for blanks and punctuation. Letters of other
alphabets that look like a letter of a reserved name are in `LOOKALIKES` (chosen after the confusable characters of Unicode's technical
standard 39). Variants of Latin letters are recognised by their Unicode names.
"""

from __future__ import annotations

import re
import unicodedata

OWNER = "owner"  # name of the first owner, and of the file with their token
ARTIFICIAL_PREFIX = "artificial"  # the names of artificial annotators begin with it
GUEST = "guest"  # the names of people who join without a name begin with it

LOOKALIKES = {
    "a": "аαᎪꓮⲁ",
    "c": "сϲᏟꓚⲥ",
    "e": "еҽ℮єᎬꓰⲉ",
    "f": "ғϝքꓝ",
    "g": "ԍցᏀꓖ",
    "i": "іιӏוןاᎥᏞꓲꓡⲓ",  # and of l
    "n": "пոռηΝꓠⲛ",
    "o": "оοօσסഠჿⲟꓳ○",
    "r": "гᎡꓣⲅ",
    "s": "ѕᏚꓢ",
    "t": "тτᎢꓔⲧ",
    "u": "υսꓴ",
    "w": "ԝѡшաωᎳꓪⲱ",
}
LETTERS = {lookalike: letter for letter, lookalikes in LOOKALIKES.items() for lookalike in lookalikes}
ASCII_LOOKALIKES = {
    "a": "[a4@]",
    "e": "[e3]",
    "i": "[il1|!]",
    "l": "[il1|!]",
    "o": "[o0]",
    "s": "[s5$]",
    "t": "[t7+]",
    "w": "(w|vv)",
}
LATIN_LETTER = re.compile(r".*(?:LATIN|INDICATOR SYMBOL).*LETTER (?:.* )?([A-Z])(?: WITH .*)?")  # ᴏ, 🅞, 🇴, ø
INVISIBLE_LETTERS = "\u115f\u1160\u3164\uffa0"  # Hangul fillers
INVISIBLE_CATEGORIES = ("Mn", "Me", "Cf")  # accents, variation selectors, zero-width characters
PUNCTUATION = re.compile(r"(?:(?![|!$+@])[\W_])+")


def _pattern(name: str) -> str:
    return "".join(ASCII_LOOKALIKES.get(letter, letter) for letter in name)


RESERVED = re.compile(f"{_pattern(OWNER)}|{_pattern(ARTIFICIAL_PREFIX)}([-0-9].*)?|{_pattern(GUEST)}-.*")


def is_reserved(name: str) -> bool:
    """Whether a name is one that the service uses itself, or looks like one.

    >>> [is_reserved(name) for name in ("owner", " OWNER ", "оwnеr", "0wner", "Artificial 0001", "guest-1")]
    [True, True, True, True, True, True]
    >>> [is_reserved(name) for name in ("Owen", "Anna Owner", "artificially", "Guestrin", "guest")]
    [False, False, False, False, False]
    """
    return RESERVED.fullmatch(plain_name(name)) is not None


def plain_name(name: str) -> str:
    """A name in plain letters that look the same.

    >>> plain_name(" Ärtifіcial — 0001")
    'artificial-0001'
    """
    plain = unicodedata.normalize("NFKD", "".join(map(_plain_letter, name)))
    without_accents = "".join(_plain_letter(character) for character in plain if not _is_invisible(character))
    return PUNCTUATION.sub("-", without_accents.casefold()).strip("-")


def _is_invisible(character: str) -> bool:
    """Whether a character is an accent or has no width."""
    return character in INVISIBLE_LETTERS or unicodedata.category(character) in INVISIBLE_CATEGORIES


def _plain_letter(character: str) -> str:
    """The ASCII letter or digit that a character looks like, or the character itself."""
    if character.isascii():
        return character
    latin = LATIN_LETTER.fullmatch(unicodedata.name(character, ""))
    digit = unicodedata.digit(character, None)
    look = LETTERS.get(character) or LETTERS.get(character.casefold()) or (latin and latin[1])
    return look or (character if digit is None else str(digit))
