"""Hard negative captions by rules: each is its caption with one thing, quality or relation replaced, swapped or added.

    id, caption_id, image_id, caption, negative, category, changed: [before, after]

Every negative is meant to be grammatical and false of the image. For the latter, all captions of the image are asked: what takes
the place of a word means neither the same nor something broader or narrower, and nothing that any of them mentions; a number
becomes a larger one; an added thing fits the scene, and is such that people would have mentioned it.
Sources: hsieh2023sugarcrepe for the seven categories; miranda2024bivlc, sec. 3.1 and 5.1.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossmatch.benchmarks.sugarcrepe import CATEGORIES
from crossmatch.build.files import Asked, Output, Row, written
from crossmatch.build.material import collection_hash, in_order, pair_id
from crossmatch.build.negative_kinds import Mentioned
from crossmatch.build.negative_rules import negative
from crossmatch.build.phrases import Reading, listed, read_all
from crossmatch.core.collection import Collection
from crossmatch.core.declared import nearest
from crossmatch.core.errors import WrongWords
from crossmatch.core.progress import track
from crossmatch.language.alter import draws
from crossmatch.language.words import words

STEP = "negatives"
RULES_VERSION = 1  # changes whenever a rule or a table does: other negatives come out
LONGEST = 100  # words of a caption; what is longer is no caption, and would be read for very long
TOGETHER = 200  # captions whose images are read at once
# Words that tell English from other languages in the same letters, most of which WordNet has as English nouns ("con", "pan", "la").
ENGLISH = listed(
    "a an the of in on at with and is are to for by from next near his her their its two three some over under down up while that"
)
FOREIGN = listed(
    """
    un una el la los las del con y en le les des et une dans sur avec der das und ein eine mit auf im il gli di che een het op och
    av på som og em um uma nos nas ao
    """
)


@dataclass(frozen=True)
class Given:
    """A caption to be made false, its first image, and the other captions of its images."""

    id: str
    image: str
    text: str
    others: tuple[int, ...]  # positions of all captions of its images, its own among them


def negatives(
    collection: Collection,
    output: Path,
    *,
    seed: int = 0,
    categories: Sequence[str] = CATEGORIES,
    captions: int = 0,
) -> dict[str, Any]:
    """Write hard negatives of the captions of a collection into a folder; its manifest.

    For each caption as many categories as apply. `captions` asks for so many captions, drawn by the seed; 0 for all. Neither the
    order of captions nor which others are drawn changes what is made of one. The manifest counts captions that were passed over
    (no words, another script or language, too long), and for each category how many captions none of its rules applies to.
    """
    held, chosen = in_order(collection), named_categories(categories)
    options = {"by": "rules", "rules": RULES_VERSION, "categories": list(chosen), "captions": captions}
    asked = Asked(STEP, {"collection": collection_hash(held)}, options, seed)
    return written(output, asked, lambda made: _rows(made, held, chosen, seed, captions))


def named_categories(categories: Sequence[str]) -> tuple[str, ...]:
    """The categories in the order of the table; an unknown one is refused.

    >>> named_categories(["swap/obj", "add/obj"])
    ('add/obj', 'swap/obj')
    """
    strange = next((name for name in categories if name not in CATEGORIES), None)
    if strange is not None:
        raise WrongWords(f"there is no category {strange!r}. {nearest(str(strange), CATEGORIES)}")
    if not categories:
        raise WrongWords(f"no category was asked for; there are: {', '.join(CATEGORIES)}.")
    return tuple(name for name in CATEGORIES if name in categories)


def given(collection: Collection, seed: int = 0, number: int = 0) -> list[Given]:
    """The captions of a collection in the order of their ids, or so many of them, drawn by the seed and their ids."""
    if number < 0 or number > collection.shape[1]:
        raise WrongWords(
            f"{number:,} captions were asked for; the collection has {collection.shape[1]:,}. Ask for fewer, or for 0: all."
        )
    texts, names = collection.texts(), collection.caption_ids.tolist()
    images_of: dict[int, list[int]] = {}
    captions_of: dict[int, list[int]] = {}
    for image, caption in collection.links.tolist():
        images_of.setdefault(caption, []).append(image)
        captions_of.setdefault(image, []).append(caption)
    order = list(range(len(texts)))
    if number:
        order = sorted(sorted(order, key=lambda n: next(draws("captions", seed, names[n])))[:number])
    found = []
    for n in order:
        images = sorted(images_of.get(n, ()))
        others = tuple(sorted({n, *(other for image in images for other in captions_of[image])}))
        found.append(Given(names[n], str(collection.image_ids[images[0]]) if images else "", texts[n], others))
    return found


def _rows(made: Output, collection: Collection, categories: Sequence[str], seed: int, number: int) -> Iterator[Row]:
    asked = given(collection, seed, number)
    made.count("captions", len(asked))
    for start in track(range(0, len(asked), TOGETHER), "writing negatives"):
        batch = asked[start : start + TOGETHER]
        needed = sorted({other for one in batch for other in one.others})
        texts = [collection.captions[n] for n in needed]
        whole = [unreadable(text) in ("", "another language") for text in texts]
        read = iter(read_all([text for text, fit in zip(texts, whole, strict=True) if fit]))
        readings = {n: next(read) for n, fit in zip(needed, whole, strict=True) if fit}
        for one in batch:
            yield from _negatives_of(made, one, readings, collection, categories, seed)


def _negatives_of(
    made: Output, one: Given, readings: dict[int, Reading], collection: Collection, categories: Sequence[str], seed: int
) -> Iterator[Row]:
    """The rows of one caption; what could not be made is counted by its reason."""
    problem = unreadable(one.text)
    if problem:
        made.count(f"passed over: {problem}")
        return
    own = next(readings[n] for n in one.others if str(collection.caption_ids[n]) == one.id)
    known = Mentioned(tuple(readings[n] for n in one.others if n in readings))
    said = {plain(collection.captions[n]) for n in one.others}
    for category in categories:
        found = negative(category, own, known, seed, one.id)
        if found is None:
            made.count(f"no rule applies: {category}")
        elif plain(found.text) in said:
            made.count(f"same as a caption: {category}")
        else:
            made.count(category)
            yield row_of(one, category, found.text, (found.before, found.after))


def row_of(one: Given, category: str, text: str, changed: tuple[str, str]) -> Row:
    """A row of hard negatives, as all makers of them write it."""
    return {
        "id": pair_id(one.id, category),
        "caption_id": one.id,
        "image_id": one.image,
        "caption": one.text,
        "negative": text,
        "category": category,
        "changed": list(changed),
    }


def plain(text: str) -> str:
    """A text without what does not change its words: capitals, punctuation, white space.

    >>> plain("A  Dog.") == plain("a dog")
    True
    """
    return " ".join(words(unicodedata.normalize("NFKC", text).casefold()))


def unreadable(text: str) -> str:
    """Why no rule can read a caption; nothing where it can.

    >>> [unreadable(text) for text in ("A dog.", "🐕!", "Собака", "dog " * 200, "un perro en la mesa")]
    ['', 'no words', 'another script', 'too long', 'another language']
    """
    if len(text) > 20 * LONGEST:
        return "too long"
    found = [word.lower() for word in words(text)]
    letters = [letter for word in found for letter in word if letter.isalpha()]
    if not letters:
        return "no words"
    if len(found) > LONGEST:
        return "too long"
    if any(unicodedata.name(letter, "").split(" ")[0] != "LATIN" for letter in letters):
        return "another script"
    said = [sum(word in listed for word in found) for listed in (ENGLISH, FOREIGN)]
    return "another language" if said[1] > said[0] else ""
