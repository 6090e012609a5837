"""Forms of words: lemma, inflection, and which parts of speech a word can be."""

from __future__ import annotations

import importlib
from functools import cache, lru_cache
from types import ModuleType

from crossmatch.core.errors import MissingDependency
from crossmatch.language import wordnet

NOUN, VERB, ADJECTIVE = ("NN", "NNS"), ("VB", "VBD", "VBG", "VBN", "VBP", "VBZ"), ("JJ", "JJR", "JJS")
OPEN = frozenset({*NOUN, *VERB, *ADJECTIVE})
KINDS = ("NOUN", "VERB", "AUX", "ADJ")
# Plurals that mean another thing than several of what their singular is.
OTHER_IN_PLURAL = {"people": "person"} | {
    word: word for word in ("bleachers", "eyeglasses", "fries", "shorts", "sprinkles", "stairs", "sunglasses", "woods")
}
# Ends of nouns without "a" and without a plural, for which the dictionary has one.
MASS = (
    "bedding",
    "cattle",
    "cushioning",
    "cutlery",
    "equipment",
    "fencing",
    "flooring",
    "gear",
    "linen",
    "oxen",
    "paving",
    "vegetation",
    "ware",
    "wear",
)
NAMES = {"n": "NOUN", "v": "VERB", "a": "ADJ", "r": "ADV"}


@cache
def _lemminflect() -> ModuleType:
    try:
        return importlib.import_module("lemminflect")
    except ImportError as problem:
        raise MissingDependency("lemminflect", "language") from problem


@lru_cache(1 << 16)
def possible(word: str) -> frozenset[str]:
    """The tags of nouns, verbs and adjectives that the dictionaries give a lower-case word; none where they do not have it.

    >>> sorted(possible("sits")), sorted(possible("parked")), sorted(possible("zzz"))
    (['VBZ'], ['JJ', 'VBD', 'VBN'], [])
    """
    if not word.isalpha():
        return frozenset()
    kinds = _lemminflect().getAllLemmas(word)
    tables = [_lemminflect().getAllInflections(base, kind) for kind in KINDS for base in kinds.get(kind, ())]
    # A regular verb's participle is not listed beside its past.
    found = {
        tag for table in tables for tag, forms in ({"VBN": table.get("VBD", ())} | table).items() if word in forms and tag in OPEN
    }
    listed = [
        pos for pos in ("n", "a") if any(word in synset.lemmas for synset in wordnet.synsets(word, pos))
    ]  # "Sat" is not "sat"
    found |= {tag for pos in listed for tag in {"n": NOUN, "a": ("JJ",)}[pos]}
    return frozenset(found | {"JJ"} if found & {"VBG", "VBN"} else found)  # a parked car, a running engine


@lru_cache(1 << 16)
def impossible(word: str) -> frozenset[str]:
    """The tags that a word cannot have: those of names for a word in lower case, and what the dictionaries do not give it.

    >>> sorted(impossible("sits"))          # VBZ is what remains
    ['JJ', 'JJR', 'JJS', 'NN', 'NNP', 'NNPS', 'NNS', 'VB', 'VBD', 'VBG', 'VBN', 'VBP']
    """
    if not word.islower():
        return frozenset()
    return frozenset({"NNP", "NNPS"} | (OPEN - possible(word) if possible(word) else set()))


@lru_cache(1 << 16)
def lemma(word: str, pos: str) -> str:
    """The form that a dictionary lists; pos is n, v, a or r.

    >>> lemma("riding", "v"), lemma("Women", "n"), lemma("people", "n")
    ('ride', 'woman', 'person')
    """
    word = word.lower()
    if pos == "n" and word in OTHER_IN_PLURAL:
        return OTHER_IN_PLURAL[word]
    found = _lemminflect().getLemma(word, NAMES[pos])
    if not found or (word in found and pos != "v"):  # glasses are glasses, too; but "fell" is of "fall" before it is "to fell"
        return word
    return str(max(found, key=lambda base: wordnet.often(base, pos)))  # leaves are of "leaf" before they are of "leave"


@lru_cache(1 << 16)
def uncounted(noun: str) -> bool:
    """Whether there is no "a" before it, by its main word.

    >>> [uncounted(noun) for noun in ("furniture", "sports equipment", "chair", "sheep")]
    [True, True, False, False]
    """
    words = noun.split(" ")
    last = words[_head(words)]
    many = _lemminflect().getAllInflections(last, "NOUN").get("NNS", ())
    return last.endswith(MASS) or (many == (last,) and last not in ("sheep", "deer", "aircraft", "series"))


@lru_cache(1 << 16)
def inflected(base: str, tag: str) -> str:
    """A lemma in the form of a tag. Of several words, a noun changes the last one before a preposition, a verb the first.

    >>> inflected("adult male", "NNS"), inflected("piece of furniture", "NNS"), inflected("sit down", "VBG"), inflected("man", "NN")
    ('adult males', 'pieces of furniture', 'sitting down', 'man')
    """
    words = base.split(" ")
    at = 0 if tag.startswith("V") else _head(words)
    stays = tag == "NNS" and (uncounted(base) or plural(base))  # furniture; spectacles
    if tag not in ("NN", "NNP", "VB", "VBP") and not stays:
        found = _lemminflect().getInflection(words[at], tag)
        words[at] = str(found[0]) if found else words[at]
    return " ".join(words)


def plural(noun: str) -> bool:
    """Whether a lemma is a plural already.

    >>> [noun for noun in ("cows", "glass", "short pants") if plural(noun)]
    ['cows', 'short pants']
    """
    words = noun.split(" ")
    last = words[_head(words)]
    return last in OTHER_IN_PLURAL or lemma(last, "n") != last


def _head(words: list[str]) -> int:
    """The place of the main word of a noun: the last one before a preposition."""
    return next(
        (n - 1 for n, word in enumerate(words) if n and word in ("of", "in", "on", "at", "for", "to", "with")), len(words) - 1
    )
