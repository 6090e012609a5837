"""Porter's second stemmer for English words, in the version of METEOR 1.5.

Later releases of Snowball changed the rules (`organization` and `organ` no longer share a stem), which would change scores.
Source: porter2001snowball, "The English (Porter2) stemming algorithm".
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_EXCEPTIONS = {
    "skis": "ski", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "idly": "idl", "gently": "gentl",
    "ugly": "ugli", "early": "earli", "only": "onli", "singly": "singl",
} | {word: word for word in ("sky", "news", "howe", "atlas", "cosmos", "bias", "andes")}  # fmt: skip
_LATER_EXCEPTIONS = frozenset(("inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"))
_VOWELS = "aeiouy"  # a "Y" is a consonant
_SECOND = {
    "tional": "tion", "enci": "ence", "anci": "ance", "abli": "able", "entli": "ent", "izer": "ize", "ization": "ize",
    "ational": "ate", "ation": "ate", "ator": "ate", "alism": "al", "aliti": "al", "alli": "al", "fulness": "ful",
    "ousli": "ous", "ousness": "ous", "iveness": "ive", "iviti": "ive", "biliti": "ble", "bli": "ble", "ogi": "og",
    "fulli": "ful", "lessli": "less", "li": "",
}  # fmt: skip
_THIRD = {
    "tional": "tion", "ational": "ate", "alize": "al", "icate": "ic", "iciti": "ic", "ical": "ic", "ful": "", "ness": "",
    "ative": "",
}  # fmt: skip
_FOURTH = [
    "al",
    "ance",
    "ence",
    "er",
    "ic",
    "able",
    "ible",
    "ant",
    "ement",
    "ment",
    "ent",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
    "ion",
]


def _one_of(suffixes: Iterable[str]) -> re.Pattern[str]:
    """A pattern that finds the longest of these suffixes, because a search starts from the left."""
    return re.compile("(?:" + "|".join(suffixes) + ")$")


_POSSESSIVE = re.compile("(?:'s'|'s|')$")
_PLURAL = re.compile("(?:sses|ied|ies|us|ss|s)$")
_PAST = re.compile("(?:eedly|ingly|edly|eed|ing|ed)$")
_ENDS_2, _ENDS_3, _ENDS_4 = _one_of(_SECOND), _one_of(_THIRD), _one_of(_FOURTH)
_REGION = re.compile(f"[{_VOWELS}][^{_VOWELS}]")
_HARD_Y = re.compile(f"(^|[{_VOWELS}])y")
_HAS_VOWEL = re.compile(f"[{_VOWELS}]")
_DOUBLE = re.compile("(?:bb|dd|ff|gg|mm|nn|pp|rr|tt)$")
_SHORT_SYLLABLE = re.compile(f"(?:[^{_VOWELS}][{_VOWELS}][^{_VOWELS}wxY]|^[{_VOWELS}][^{_VOWELS}])$")


def stem(word: str) -> str:
    """The stem of a lower-case word.

    >>> [stem(word) for word in ("running", "skies", "organization", "happily", "bus")]
    ['run', 'sky', 'organ', 'happili', 'bus']
    """
    if len(word) < 3:
        return word
    if word in _EXCEPTIONS:
        return _EXCEPTIONS[word]
    word = _HARD_Y.sub(r"\1Y", word.removeprefix("'"))
    r1, r2 = _regions(word)
    word = _plural(_POSSESSIVE.sub("", word, count=1))
    if word not in _LATER_EXCEPTIONS:
        word = _past(word, r1)
        if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
            word = word[:-1] + "i"
        word = _derived(word, r1, r2)
    return word.replace("Y", "y")


def _regions(word: str) -> tuple[int, int]:
    """The starts of R1 and R2: after the first consonant that follows a vowel, and the same within R1."""
    prefix = re.match("gener|commun|arsen", word)
    first = prefix or _REGION.search(word)
    r1 = first.end() if first else len(word)
    second = _REGION.search(word, r1)
    return r1, second.end() if second else len(word)


def _plural(word: str) -> str:
    match = _PLURAL.search(word)
    ending, rest = (match[0], word[: match.start()]) if match else ("", word)
    if ending == "sses":
        return rest + "ss"
    if ending in ("ied", "ies"):
        return rest + ("i" if len(rest) > 1 else "ie")
    return rest if ending == "s" and _HAS_VOWEL.search(rest[:-1]) else word


def _past(word: str, r1: int) -> str:
    match = _PAST.search(word)
    if not match:
        return word
    rest = word[: match.start()]
    if match[0].startswith("eed"):
        return rest + "ee" if match.start() >= r1 else word
    if not _HAS_VOWEL.search(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _DOUBLE.search(rest):
        return rest[:-1]
    return rest + "e" if len(rest) == r1 and _SHORT_SYLLABLE.search(rest) else rest


def _derived(word: str, r1: int, r2: int) -> str:
    match = _ENDS_2.search(word)
    if match and match.start() >= r1:
        before = word[: match.start()]
        needed = {"ogi": "l", "li": "cdeghkmnrt"}.get(match[0])
        if needed is None or before.endswith(tuple(needed)):
            word = before + _SECOND[match[0]]
    match = _ENDS_3.search(word)
    if match and match.start() >= (r2 if match[0] == "ative" else r1):
        word = word[: match.start()] + _THIRD[match[0]]
    match = _ENDS_4.search(word)
    if match and match.start() >= r2 and (match[0] != "ion" or word[: match.start()].endswith(("s", "t"))):
        word = word[: match.start()]
    last = len(word) - 1
    if word.endswith("e") and (last >= r2 or (last >= r1 and not _SHORT_SYLLABLE.search(word[:-1]))):
        return word[:-1]
    return word[:-1] if word.endswith("ll") and last >= r2 else word
