"""The words that METEOR 1.5 counts: its option `-norm` splits the tokens of coco-caption once more.

Hyphens go (`t-shirt` is two words), `'s` becomes `'` and `s`, every other mark stands alone. The rules are those of the program's
`Normalizer`, in its order, since a character that one replacement has used cannot start the next: of
`a-b-c` only the first hyphen goes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_ALPHA = "A-Za-zŠŽšžŸ\xc0-\xd6\xd8-\xf6\xf8-\u017e\u0400-\u0527\ua640-\ua66e\ua67e-\ua697\u1d00-\u1d7f"
_PLAIN = re.compile(f"[0-9{_ALPHA}]+")
_DOTS = "\x00"  # holds the place of a full stop in a run of them
_SPACE = " \u2000-\u200a\u202f\u205f\u3000\xa0"


def _rule(pattern: str, by: str) -> tuple[re.Pattern[str], str]:
    return re.compile(pattern, re.ASCII), by


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


def is_plain(token: str) -> bool:
    """Whether a token stays as it is, whatever stands beside it.

    >>> is_plain("dog"), is_plain("t-shirt"), is_plain("Dog")
    (True, False, False)
    """
    return _PLAIN.fullmatch(token) is not None and token == token.lower()


def normalise(text: str, abbreviations: Mapping[str, bool]) -> list[str]:
    """The words of a caption. `abbreviations` keep their full stop: always, or (False) before a number.

    >>> normalise("a man 's t-shirt , isn't it ?", {})
    ['a', 'man', "'", 's', 't', 'shirt', ',', 'isn', "'t", 'it', '?']
    >>> normalise("the u.s. team vs. no. 7 in st.", {"vs": True, "no": False})
    ['the', 'us', 'team', 'vs.', 'no.', '7', 'in', 'st', '.']
    """
    line = f" {text} "
    for pattern, by in _RULES:
        line = pattern.sub(by, line)
    tokens = re.split(r"[ \t\n\r\f]+", line.strip(" \t\n\r\f"))
    after = [*tokens[1:], ""]
    line = " ".join([_full_stop(token, follows, abbreviations) for token, follows in zip(tokens, after, strict=True)])
    return [w for w in re.split(f"[\t\n\r\f{_SPACE}]+", line.replace(_DOTS, ".").lower()) if w]


def _full_stop(token: str, follows: str, abbreviations: Mapping[str, bool]) -> str:
    """A token's last full stop, taken off unless it is part of the word."""
    if len(token) < 2 or not token.endswith("."):
        return token
    word = token[:-1]
    if "." in word and re.search(f"[{_ALPHA}]", word):
        return token.replace(".", "")
    kept = abbreviations.get(word)
    if kept or re.match("[a-z]", follows) or (kept is False and re.match("[0-9]", follows)):
        return token
    return f"{word} ."
