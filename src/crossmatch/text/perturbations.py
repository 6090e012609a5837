"""Alterations of captions to test models: negation, synonym, hypernym, permutation and reversal.

The result depends only on the text, the alteration and the seed. A text that cannot be altered is returned unchanged.
Source: hu2019bison, sec. 6 and F.1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count

from crossmatch.data.errors import UsageError
from crossmatch.text.negation import negate
from crossmatch.text.part_of_speech import tag_texts
from crossmatch.text.synonyms_and_hypernyms import WordSense, hypernym, replace_one_word, synonym
from crossmatch.text.tokens_and_edits import capitalise, replace_words, split_words, uncapitalise


def random_bits(*key: str | int) -> Iterator[int]:
    """Yield 64-bit random numbers that depend only on the key, on every machine and Python version.

    >>> first, same, other = (next(random_bits("a dog", seed)) for seed in (0, 0, 1))
    >>> first == same, first == other
    (True, False)
    """
    seed = hashlib.blake2b(digest_size=32)
    for part in key:
        encoded = str(part).encode("utf-8", "surrogatepass")
        seed.update(len(encoded).to_bytes(8, "big") + encoded)
    for number in count():
        digest = seed.copy()
        digest.update(number.to_bytes(8, "big"))
        yield int.from_bytes(digest.digest()[:8], "big")


def permute_words(text: str, random: Iterator[int]) -> str:
    """Put the words in a random order; punctuation and spaces stay, and a capital moves to the new first word.

    Unchanged if all words are equal.

    >>> permute_words("A man, a dog.", random_bits(0))
    'Dog man, a a.'
    """
    original = split_words(text)
    plain = [uncapitalise(original[0]), *original[1:]] if original else []
    original_folded = [word.casefold() for word in plain]
    if len(set(original_folded)) < 2:
        return text
    permuted = list(plain)
    while [word.casefold() for word in permuted] == original_folded:
        for at in range(len(permuted) - 1, 0, -1):
            swap = (next(random) * (at + 1)) >> 64
            permuted[at], permuted[swap] = permuted[swap], permuted[at]
    return replace_words(text, _copy_capital(original[0], permuted))


def reverse_words(text: str) -> str:
    """Put the words in reverse order; punctuation and spaces stay, and a capital moves to the new first word.

    >>> reverse_words("A man, riding a wave.")
    'Wave a, riding man a.'
    """
    original = split_words(text)
    return (
        replace_words(text, _copy_capital(original[0], [*original[:0:-1], uncapitalise(original[0])]))
        if len(original) > 1
        else text
    )


def _copy_capital(first: str, new: Sequence[str]) -> list[str]:
    """Capitalise the first new word if the old first word was capitalised."""
    return [capitalise(new[0]), *new[1:]] if first[:1].isupper() else list(new)


def alter(text: str, alteration: str, seed: int = 0) -> str:
    """Alter one caption; unchanged if it cannot be altered.

    | alteration | change |
    |---|---|
    | negation | "not" at the first verb |
    | synonym | a random noun or verb becomes the most frequent other lemma of its WordNet synset |
    | hypernym | a random noun or verb becomes the most frequent lemma of the nearest broader synset in use |
    | permutation | words in random order |
    | reversal | words in reverse order |

    The sense of a word is its most frequent WordNet sense, except for words with a different sense in captions
    (`wordnet.CAPTION_SENSES`). Source: hu2019bison, F.1.

    >>> [alter("Two dogs sit on a couch.", alteration) for alteration in ("negation", "hypernym", "reversal")]
    ['Two dogs do not sit on a couch.', 'Two dogs sit on a seat.', 'Couch a on sit dogs two.']
    """
    return alter_all([text], alteration, seed)[0]


def alter_all(texts: Iterable[str], alteration: str, seed: int = 0) -> list[str]:
    """Alter many captions like `alter`, but much faster.

    >>> alter_all(["A dog sits.", "A photo of a dog."], "negation")
    ['A dog does not sit.', 'A photo of a dog.']
    """
    if alteration not in ALTERATIONS:
        raise UsageError(f"Unknown alteration {alteration!r}. Choose one of {', '.join(ALTERATIONS)}.")
    return _ALTER[alteration](list(texts), seed)


def _replacement(alteration: str, substitute: Callable[[WordSense], str | None], texts: Sequence[str], seed: int) -> list[str]:
    return [replace_one_word(*tagged, substitute, next(random_bits(alteration, seed, tagged[0]))) for tagged in tag_texts(texts)]


_ALTER: Mapping[str, Callable[[Sequence[str], int], list[str]]] = {
    "negation": lambda texts, seed: [negate(*tagged) for tagged in tag_texts(texts)],
    "synonym": partial(_replacement, "synonym", synonym),
    "hypernym": partial(_replacement, "hypernym", hypernym),
    "permutation": lambda texts, seed: [permute_words(text, random_bits("permutation", seed, text)) for text in texts],
    "reversal": lambda texts, seed: [reverse_words(text) for text in texts],
}
ALTERATIONS = tuple(_ALTER)
