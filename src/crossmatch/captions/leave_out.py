"""Candidates that are themselves references: they are compared with the other references."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence

from crossmatch.core.errors import CrossmatchError

SIGNS = "PSZC"  # Unicode's punctuation, symbols, separators and control characters; marks, such as vowel signs, stay


def plain(text: str) -> str:
    """A caption as its letters and digits: two with the same are one caption, written down twice.

    Tokens are too strict for it: studies took hyphens and apostrophes out of people's captions (61 of Composite's 3,004).

    >>> plain("A boy in a T-shirt .") == plain("a boy in a t shirt"), plain("एक लड़का") == plain("एक लड़की")
    (True, False)
    """
    kept = text.casefold()
    if not (kept.isascii() and kept.isalnum()):
        kept = "".join(sign for sign in kept if unicodedata.category(sign)[0] not in SIGNS)
    return kept or text.strip()


def without(candidate: str, references: Sequence[str]) -> list[str]:
    """The references but for one that is the candidate, wherever it stands; all of them where none is.

    jiang2019tiger's released code leaves out the first reference of every candidate that a person wrote, equal or not.

    >>> without("a dog runs", ["A cat.", "A dog runs.", "A dog runs!"])
    ['A cat.', 'A dog runs!']
    """
    own = plain(candidate)
    at = next((n for n, text in enumerate(references) if plain(text) == own), len(references))
    return [*references[:at], *references[at + 1 :]]


def leave_own_out(candidates: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The references of each image without the one that is its candidate.

    >>> leave_own_out({"7": "a dog"}, {"7": ["A cat.", "A dog."]})
    {'7': ['A cat.']}
    """
    kept = {i: without(candidates[i], texts) if i in candidates else list(texts) for i, texts in references.items()}
    for i, texts in references.items():
        if texts and not kept[i]:
            raise CrossmatchError(
                f"the only reference of {i!r} is its candidate, {texts[0]!r:.60}; without it nothing is left to compare with. "
                "Add a reference, or remove the candidate."
            )
    return kept
