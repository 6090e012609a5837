"""Alterations of captions that a model should notice, or should not: negation, synonym, hypernym, permutation, reversal.

What comes out depends on the text, the kind of alteration and the seed alone. A text that cannot be altered comes back unchanged.
Source: hu2019bison, sec. 6 and F.1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count

from crossmatch.core.errors import WrongWords
from crossmatch.language.negate import negated
from crossmatch.language.replace import Grounded, hypernym, replaced, synonym
from crossmatch.language.tags import tag_all
from crossmatch.language.words import Token, capitalised, refilled, tokens, uncapitalised, words

AT_ONCE = 1 << 14


def draws(*key: str | int) -> Iterator[int]:
    """64 random bits after 64 random bits, the same for the same key on every machine and with every version of Python.

    >>> next(draws("a dog", 0)) == next(draws("a dog", 0)), next(draws("a dog", 0)) == next(draws("a dog", 1))
    (True, False)
    """
    seed = hashlib.blake2b(digest_size=32)
    for part in key:
        coded = str(part).encode("utf-8", "surrogatepass")
        seed.update(len(coded).to_bytes(8, "big") + coded)
    for number in count():
        turn = seed.copy()
        turn.update(number.to_bytes(8, "big"))
        yield int.from_bytes(turn.digest()[:8], "big")


def permuted(text: str, random: Iterator[int]) -> str:
    """The words in another order, drawn at random; punctuation and spaces stay in place, a capital moves to the new first word.

    So neither the case nor a period in the middle gives the alteration away. Unchanged where all words are the same.

    >>> permuted("A man, a dog.", draws(0))
    'Dog man, a a.'
    """
    old = words(text)
    plain = [uncapitalised(old[0]), *old[1:]] if old else []
    order = [word.casefold() for word in plain]
    if len(set(order)) < 2:
        return text
    new = list(plain)
    while [word.casefold() for word in new] == order:
        for at in range(len(new) - 1, 0, -1):
            other = (next(random) * (at + 1)) >> 64
            new[at], new[other] = new[other], new[at]
    return refilled(text, _begun(old[0], new))


def reversed_words(text: str) -> str:
    """The words from last to first; punctuation and spaces stay in place, a capital moves to the new first word.

    >>> reversed_words("A man, riding a wave.")
    'Wave a, riding man a.'
    """
    old = words(text)
    return refilled(text, _begun(old[0], [*old[:0:-1], uncapitalised(old[0])])) if len(old) > 1 else text


def _begun(first: str, new: Sequence[str]) -> list[str]:
    """The new words with a capital at the start if the old first word had one."""
    return [capitalised(new[0]), *new[1:]] if first[:1].isupper() else list(new)


def alter(text: str, how: str, seed: int = 0) -> str:
    """One caption, altered; unchanged where it cannot be.

    | how | what is done |
    |---|---|
    | negation | "not" at the first verb |
    | synonym | one noun or verb, drawn at random, becomes the commonest other lemma of its WordNet synset |
    | hypernym | one noun or verb, drawn at random, becomes the commonest lemma of the nearest synset above that texts use |
    | permutation | the words in another order, drawn at random |
    | reversal | the words from last to first |

    A word means its most frequent WordNet sense, but for some words that mean another thing in captions (`wordnet.IN_CAPTIONS`).
    Source: hu2019bison, F.1.

    >>> [alter("Two dogs sit on a couch.", how) for how in ("negation", "hypernym", "reversal")]
    ['Two dogs do not sit on a couch.', 'Two dogs sit on a seat.', 'Couch a on sit dogs two.']
    """
    return alter_all([text], how, seed)[0]


def alter_all(texts: Iterable[str], how: str, seed: int = 0) -> list[str]:
    """Many captions, each altered as `alter` does it, in a fraction of the time.

    >>> alter_all(["A dog sits.", "A photo of a dog."], "negation")
    ['A dog does not sit.', 'A photo of a dog.']
    """
    if how not in ALTERATIONS:
        raise WrongWords(f"unknown alteration {how!r}; there are: {', '.join(ALTERATIONS)}")
    texts = list(texts)
    return [new for at in range(0, len(texts), AT_ONCE) for new in _KINDS[how](texts[at : at + AT_ONCE], seed)]


def tagged(texts: Sequence[str]) -> Iterator[tuple[str, list[Token], list[str]]]:
    """Each text with its tokens and their parts of speech.

    >>> [tags for _, _, tags in tagged(["A dog sits."])]
    [['DT', 'NN', 'VBZ', '.']]
    """
    found = [tokens(text) for text in texts]
    return zip(texts, found, tag_all([[token.text for token in text] for text in found]), strict=True)


def _replacement(how: str, instead: Callable[[Grounded], str | None], texts: Sequence[str], seed: int) -> list[str]:
    return [replaced(*each, instead, next(draws(how, seed, each[0]))) for each in tagged(texts)]


_KINDS: Mapping[str, Callable[[Sequence[str], int], list[str]]] = {
    "negation": lambda texts, seed: [negated(*each) for each in tagged(texts)],
    "synonym": partial(_replacement, "synonym", synonym),
    "hypernym": partial(_replacement, "hypernym", hypernym),
    "permutation": lambda texts, seed: [permuted(text, draws("permutation", seed, text)) for text in texts],
    "reversal": lambda texts, seed: [reversed_words(text) for text in texts],
}
ALTERATIONS = tuple(_KINDS)
