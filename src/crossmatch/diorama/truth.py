"""The truth about every image-caption pair: which captions are true of which scenes, decided exactly (see `meaning`).

A set of things is one byte, a relation an 8 x 8 matrix in 64 bits. A phrase's extensions in all scenes are then a few
bytewise "and"s, and relations are settled only for the scenes in which all phrases find their things.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.errors import CrossmatchError

from .kinds import kinds_of
from .meaning import SOME, SURROUNDINGS, Caption, Meaning, Phrase
from .scenes import RELATIONS, Scene

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

Sets: TypeAlias = NDArray[np.uint8]  # for each scene a set of its things: thing i is bit i
Matrices: TypeAlias = NDArray[np.uint64]  # for each scene a relation: bit 8i + j says that i is so related to j
Bools: TypeAlias = NDArray[np.bool_]

MOST = 8
_SIZE = np.array([i.bit_count() for i in range(256)], np.uint8)  # how many things a set has
_ROWS = np.array([sum(0xFF << 8 * i for i in range(8) if m >> i & 1) for m in range(256)], np.uint64)  # of a matrix


class World:
    """Scenes as bits.

    >>> from .scenes import Box, Scene, Thing
    >>> box, colours = Box(0, 700, 150, 850), ("red", "blue", "red")
    >>> dogs = tuple(Thing("dog", colour, "plain", "small", box, 0, "ground") for colour in colours)
    >>> World([Scene("beach", dogs, frozenset(), 100, 0)]).extensions(Phrase("dog", "red"))  # 5 = things 0 and 2
    array([5], dtype=uint8)
    """

    def __init__(self, scenes: Sequence[Scene]) -> None:
        crowded = next((len(scene.things) for scene in scenes if len(scene.things) > MOST), None)
        if crowded:
            raise CrossmatchError(f"a scene has {crowded} things, but at most {MOST} are understood. Leave some out.")
        self._words = {
            name: np.array([_padded([getattr(thing, name) for thing in s.things]) for s in scenes]).reshape(-1, MOST)
            for name in ("kind", "colour", "texture", "size")
        }
        self._sets: dict[tuple[str, str], Sets] = {}
        self.n = len(scenes)
        settings = np.array([scene.setting for scene in scenes])
        self.settings = {name: np.isin(settings, sorted(members)) for name, members in SURROUNDINGS.items()}
        self.relations = {name: _matrices(scenes, name, inverse=False) for name in RELATIONS}
        self.inverses = {name: _matrices(scenes, name, inverse=True) for name in RELATIONS}

    def _having(self, attribute: str, word: str) -> Sets:
        """The things with this kind (or a kind of this category), colour, texture or size, in each scene."""
        if (attribute, word) not in self._sets:
            words: Collection[str] = kinds_of(word) if attribute == "kind" else (word,)
            members = np.isin(self._words[attribute], sorted(words))
            self._sets[attribute, word] = np.packbits(members, axis=1, bitorder="little")[:, 0]
        return self._sets[attribute, word]

    def extensions(self, phrase: Phrase) -> Sets:
        """The phrase's extension in each scene."""
        out = self._having("kind", phrase.noun)
        for attribute, word in zip(("colour", "texture", "size"), phrase.attributes, strict=True):
            if word is not None:
                out = out & self._having(attribute, word)
        return out


def _padded(words: list[str]) -> list[str]:
    return words + [""] * (MOST - len(words))


def _matrices(scenes: Sequence[Scene], name: str, *, inverse: bool) -> Matrices:
    shifts = (1, 8) if inverse else (8, 1)
    pairs = ([i * shifts[0] + j * shifts[1] for relation, i, j in s.relations if relation == name] for s in scenes)
    return np.array([sum(1 << bit for bit in bits) for bits in pairs], np.uint64)


def _any(sets: Sets, matrices: Matrices) -> Sets:
    """The things to which some member of `sets` is related: the union of the matrix's rows."""
    rows = matrices & _ROWS[sets]
    for shift in (32, 16, 8):
        rows = rows | (rows >> np.uint64(shift))
    return (rows & np.uint64(0xFF)).astype(np.uint8)


def _all(sets: Sets, matrices: Matrices) -> Sets:
    """The things to which every member of `sets` is related: the intersection of the matrix's rows."""
    return ~_any(sets, ~matrices)


def _found(phrase: Phrase, sets: Sets) -> Bools:
    """Whether as many things fit as the phrase says."""
    if phrase.count is None:
        return sets > 0
    return _SIZE[sets] >= 2 if phrase.count == SOME else _SIZE[sets] == phrase.count


def _related(meaning: Meaning, world: World, where: NDArray[np.intp], sets: list[Sets]) -> Bools:
    """Whether there is a choice for each phrase such that all relations hold, in the scenes `where`.

    `sets` are the candidates of each phrase. From the leaves to the roots, each relation keeps those candidates of its
    object that have a partner among the subject's (a semi-join); in a forest that is exact. A phrase with a number has
    one choice only, its extension, which stays whole or leaves the scene false.
    """
    true = np.ones(len(where), bool)
    for name, s, o in meaning.relations:
        subject, matrix, inverse = sets[s], world.relations[name][where], world.inverses[name][where]
        if meaning.phrases[o].count is None:
            partners = _any if meaning.phrases[s].count is None else _all
            sets[o] = sets[o] & partners(subject, matrix)
            true &= sets[o] > 0
        else:
            partners_of_all = subject & _all(sets[o], inverse)
            true &= partners_of_all > 0 if meaning.phrases[s].count is None else partners_of_all == subject
    return true


def _true_of(meaning: Meaning, world: World) -> Bools:
    sets = [world.extensions(phrase) for phrase in meaning.phrases]
    true: Bools = np.ones(world.n, bool) if meaning.setting is None else world.settings[meaning.setting].copy()
    for phrase, found in zip(meaning.phrases, sets, strict=True):
        true &= _found(phrase, found)
    if meaning.relations:
        where = np.flatnonzero(true)
        true[where] = _related(meaning, world, where, [found[where] for found in sets])
    return true


def truth(scenes: Sequence[Scene], captions: Sequence[Caption | Meaning]) -> Bools:
    """Which captions are true of which scenes: (scenes, captions), exact.

    >>> from .scenes import Box, Scene, Thing
    >>> dog = Thing("dog", "red", "plain", "small", Box(0, 700, 150, 850), 0, "ground")
    >>> scene = Scene("beach", (dog,), frozenset(), 100, 0)
    >>> truth([scene], [Meaning((Phrase("dog"),)), Meaning((Phrase("dog", "blue"),)), Meaning((), (), "outdoors")])
    array([[ True, False,  True]])
    """
    world = World(scenes)
    out = np.empty((len(captions), len(scenes)), bool)
    for row, caption in zip(out, captions, strict=True):
        row[:] = _true_of(caption.meaning if isinstance(caption, Caption) else caption, world)
    return np.ascontiguousarray(out.T)
