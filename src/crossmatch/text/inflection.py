"""Lemmas, inflected forms, and possible parts of speech of words."""

from __future__ import annotations

import importlib
from functools import cache, lru_cache
from types import ModuleType

from crossmatch.data.errors import MissingDependencyError
from crossmatch.text import wordnet

NOUN_FORMS, VERB_FORMS, ADJECTIVE_FORMS = ("NN", "NNS"), ("VB", "VBD", "VBG", "VBN", "VBP", "VBZ"), ("JJ", "JJR", "JJS")
OPEN_CLASS_TAGS = frozenset({*NOUN_FORMS, *VERB_FORMS, *ADJECTIVE_FORMS})
LEMMINFLECT_CLASSES = ("NOUN", "VERB", "AUX", "ADJ")
# Plurals whose meaning differs from that of their singular.
SPECIAL_PLURALS = {"people": "person"} | {
    word: word for word in ("bleachers", "eyeglasses", "fries", "shorts", "sprinkles", "stairs", "sunglasses", "woods")
}
# Endings of mass nouns for which the dictionary wrongly has a plural.
MASS_NOUN_ENDINGS = (
    "bedding", "cattle", "cushioning", "cutlery", "equipment", "fencing", "flooring", "gear", "linen", "oxen", "paving",
    "vegetation", "ware", "wear",
)  # fmt: skip
LEMMINFLECT_CLASS = {"n": "NOUN", "v": "VERB", "a": "ADJ", "r": "ADV"}


@cache
def _lemminflect() -> ModuleType:
    try:
        return importlib.import_module("lemminflect")
    except ImportError as error:
        raise MissingDependencyError("lemminflect", "language") from error


@lru_cache(1 << 16)
def possible_tags(word: str) -> frozenset[str]:
    """Tags of nouns, verbs and adjectives that dictionaries allow for a lower-case word; empty for unknown words.

    >>> sorted(possible_tags("sits")), sorted(possible_tags("parked")), sorted(possible_tags("zzz"))
    (['VBZ'], ['JJ', 'VBD', 'VBN'], [])
    """
    if not word.isalpha():
        return frozenset()
    lemmas = _lemminflect().getAllLemmas(word)
    bases = [(base, word_class) for word_class in LEMMINFLECT_CLASSES for base in lemmas.get(word_class, ())]
    tables = [_lemminflect().getAllInflections(*base) for base in bases]
    # A regular verb's participle is not listed beside its past.
    tags_of_word = {
        tag
        for table in tables
        for tag, forms in ({"VBN": table.get("VBD", ())} | table).items()
        if word in forms and tag in OPEN_CLASS_TAGS
    }
    wordnet_classes = [
        pos for pos in ("n", "a") if any(word in synset.lemmas for synset in wordnet.synsets(word, pos))
    ]  # "Sat" is not "sat"
    tags_of_word |= {tag for pos in wordnet_classes for tag in {"n": NOUN_FORMS, "a": ("JJ",)}[pos]}
    return frozenset(tags_of_word | {"JJ"} if tags_of_word & {"VBG", "VBN"} else tags_of_word)  # a parked car, a running engine


@lru_cache(1 << 16)
def impossible_tags(word: str) -> frozenset[str]:
    """Tags that a word cannot have: proper nouns for lower-case words, and tags that dictionaries do not allow.

    >>> sorted(impossible_tags("sits"))          # only VBZ remains
    ['JJ', 'JJR', 'JJS', 'NN', 'NNP', 'NNPS', 'NNS', 'VB', 'VBD', 'VBG', 'VBN', 'VBP']
    """
    if not word.islower():
        return frozenset()
    return frozenset({"NNP", "NNPS"} | (OPEN_CLASS_TAGS - possible_tags(word) if possible_tags(word) else set()))


@lru_cache(1 << 16)
def lemmatise(word: str, pos: str) -> str:
    """The dictionary form of a word; pos is n, v, a or r.

    >>> lemmatise("riding", "v"), lemmatise("Women", "n"), lemmatise("people", "n")
    ('ride', 'woman', 'person')
    """
    word = word.lower()
    if pos == "n" and word in SPECIAL_PLURALS:
        return SPECIAL_PLURALS[word]
    lemmas = _lemminflect().getLemma(word, LEMMINFLECT_CLASS[pos])
    if not lemmas or (word in lemmas and pos != "v"):  # "glasses" is a lemma; but "fell" is a form of "fall"
        return word
    return str(max(lemmas, key=lambda base: wordnet.lemma_frequency(base, pos)))  # "leaves": "leaf" is more frequent than "leave"


@lru_cache(1 << 16)
def is_uncountable(noun: str) -> bool:
    """Whether a noun, by its main word, takes no "a".

    >>> [is_uncountable(noun) for noun in ("furniture", "sports equipment", "chair", "sheep")]
    [True, True, False, False]
    """
    words = noun.split(" ")
    last = words[_head_position(words)]
    plurals = _lemminflect().getAllInflections(last, "NOUN").get("NNS", ())
    return last.endswith(MASS_NOUN_ENDINGS) or (plurals == (last,) and last not in ("sheep", "deer", "aircraft", "series"))


@lru_cache(1 << 16)
def inflect(base: str, tag: str) -> str:
    """A lemma in the form of a tag. A noun of several words changes the word before a preposition, a verb its first word.

    >>> inflect("adult male", "NNS"), inflect("piece of furniture", "NNS"), inflect("sit down", "VBG"), inflect("man", "NN")
    ('adult males', 'pieces of furniture', 'sitting down', 'man')
    """
    words = base.split(" ")
    position = 0 if tag.startswith("V") else _head_position(words)
    is_unchanged = tag == "NNS" and (is_uncountable(base) or is_plural_noun(base))  # furniture; spectacles
    if tag not in ("NN", "NNP", "VB", "VBP") and not is_unchanged:
        forms = _lemminflect().getInflection(words[position], tag)
        words[position] = str(forms[0]) if forms else words[position]
    return " ".join(words)


def is_plural_noun(noun: str) -> bool:
    """Whether a lemma is a plural.

    >>> [noun for noun in ("cows", "glass", "short pants") if is_plural_noun(noun)]
    ['cows', 'short pants']
    """
    words = noun.split(" ")
    last = words[_head_position(words)]
    return last in SPECIAL_PLURALS or lemmatise(last, "n") != last


def _head_position(words: list[str]) -> int:
    """Position of the main word of a noun: the last one before a preposition."""
    return next(
        (n - 1 for n, word in enumerate(words) if n and word in ("of", "in", "on", "at", "for", "to", "with")), len(words) - 1
    )
