"""Split tokens into the words that METEOR 1.5 counts, as its option `-norm` does.

Hyphens are removed (`t-shirt` becomes two words), `'s` becomes `'` and `s`, and every other mark becomes a word. The rules are
those of the program's `Normalizer`, in its order. A character that one replacement has used cannot start the next: of `a-b-c` only
the first hyphen is removed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_ALPHA = "A-Za-zŠŽšžŸ\xc0-\xd6\xd8-\xf6\xf8-\u017e\u0400-\u0527\ua640-\ua66e\ua67e-\ua697\u1d00-\u1d7f"
_PLAIN = re.compile(f"[0-9{_ALPHA}]+")
_DOTS = "\x00"  # placeholder for a full stop in a run of full stops
_SPACE = " \u2000-\u200a\u202f\u205f\u3000\xa0"


def _rule(pattern: str, replacement: str) -> tuple[re.Pattern[str], str]:
    return re.compile(pattern, re.ASCII), replacement


_RULES = (
    _rule(f"([^0-9{_ALPHA}\\s.'`,‘’-])", r" \1 "),
    _rule(r"(?<!\.)(\.\.+)", r" \1 "),
    _rule(r"(?<=\.)\.|\.(?=\.)", _DOTS),
    _rule(r"(\D),(\D)", r"\1 , \2"),
    _rule(r"(\d),(\D)", r"\1 , \2"),
    _rule(r"(\D),(\d)", r"\1 , \2"),
    _rule("[`‘’]", "'"),
    _rule("[“”]|''", ' " '),
    _rule("–|--", "-"),
    _rule(f"([0-9{_ALPHA}.])-([0-9{_ALPHA}])", r"\1 \2"),
    _rule(f"([^{_ALPHA}])'([^{_ALPHA}])", r"\1 ' \2"),
    _rule(f"([^{_ALPHA}0-9])'([{_ALPHA}])", r"\1 ' \2"),
    _rule(f"([{_ALPHA}])'([^{_ALPHA}])", r"\1 ' \2"),
    _rule(f"([{_ALPHA}])'([{_ALPHA}])", r"\1 '\2"),
    _rule(r"(\d)'s", r"\1 's"),
)


def is_unchanged(token: str) -> bool:
    """Whether `normalise` never changes a token, whatever its neighbours are.

    >>> is_unchanged("dog"), is_unchanged("t-shirt"), is_unchanged("Dog")
    (True, False, False)
    """
    return _PLAIN.fullmatch(token) is not None and token == token.lower()


def normalise(text: str, abbreviations: Mapping[str, bool]) -> list[str]:
    """Split a caption into words. `abbreviations` keep their full stop: always (True), or only before a number (False).

    >>> normalise("a man 's t-shirt , isn't it ?", {})
    ['a', 'man', "'", 's', 't', 'shirt', ',', 'isn', "'t", 'it', '?']
    >>> normalise("the u.s. team vs. no. 7 in st.", {"vs": True, "no": False})
    ['the', 'us', 'team', 'vs.', 'no.', '7', 'in', 'st', '.']
    """
    line = f" {text} "
    for pattern, replacement in _RULES:
        line = pattern.sub(replacement, line)
    tokens = re.split(r"[ \t\n\r\f]+", line.strip(" \t\n\r\f"))
    following = [*tokens[1:], ""]
    line = " ".join([_split_full_stop(*pair, abbreviations) for pair in zip(tokens, following, strict=True)])
    return [w for w in re.split(f"[\t\n\r\f{_SPACE}]+", line.replace(_DOTS, ".").lower()) if w]


def _split_full_stop(token: str, next_token: str, abbreviations: Mapping[str, bool]) -> str:
    """Separate the last full stop of a token unless it is part of the word."""
    if len(token) < 2 or not token.endswith("."):
        return token
    word = token[:-1]
    if "." in word and re.search(f"[{_ALPHA}]", word):
        return token.replace(".", "")
    always = abbreviations.get(word)
    if always or re.match("[a-z]", next_token) or (always is False and re.match("[0-9]", next_token)):
        return token
    return f"{word} ."
