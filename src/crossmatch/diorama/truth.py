"""The truth about every image-caption pair: which captions are true of which scenes, decided exactly (see `caption_meaning`).

A set of objects is one byte, a relation an 8 x 8 matrix in 64 bits. The extensions of a phrase in all scenes are then a few
bytewise operations, and relations are checked only for scenes in which all phrases have matching objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.errors import CrossmatchError
from crossmatch.diorama.caption_meaning import SOME, SURROUNDINGS, Caption, Meaning, Phrase
from crossmatch.diorama.object_kinds import kinds_of
from crossmatch.diorama.scenes import MAX_OBJECTS, RELATIONS, Scene

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

Sets: TypeAlias = NDArray[np.uint8]  # a set of objects per scene: object i is bit i
Matrices: TypeAlias = NDArray[np.uint64]  # a relation per scene: bit 8i + j is set if i is related to j
Bools: TypeAlias = NDArray[np.bool_]

_SIZE = np.array([i.bit_count() for i in range(256)], np.uint8)  # number of objects in a set
_ROWS = np.array([sum(0xFF << 8 * i for i in range(8) if m >> i & 1) for m in range(256)], np.uint64)  # rows of a matrix


class SceneBits:
    """Scenes as bit sets.

    >>> from .scenes import Box, Scene, SceneObject
    >>> box, colours = Box(0, 700, 150, 850), ("red", "blue", "red")
    >>> dogs = tuple(SceneObject("dog", colour, "plain", "small", box, 0, "ground") for colour in colours)
    >>> SceneBits([Scene("beach", dogs, frozenset(), 100, 0)]).extensions(Phrase("dog", "red"))  # 5 = objects 0 and 2
    array([5], dtype=uint8)
    """

    def __init__(self, scenes: Sequence[Scene]) -> None:
        crowded = next((len(scene.objects) for scene in scenes if len(scene.objects) > MAX_OBJECTS), None)
        if crowded:
            raise CrossmatchError(f"A scene has {crowded} objects, but at most {MAX_OBJECTS} are supported. Remove some.")
        self._words = {
            name: np.array([_padded([getattr(item, name) for item in s.objects]) for s in scenes]).reshape(-1, MAX_OBJECTS)
            for name in ("kind", "colour", "texture", "size")
        }
        self._sets: dict[tuple[str, str], Sets] = {}
        self.n = len(scenes)
        settings = np.array([scene.setting for scene in scenes])
        self.settings = {name: np.isin(settings, sorted(members)) for name, members in SURROUNDINGS.items()}
        self.relations = {name: _matrices(scenes, name, inverse=False) for name in RELATIONS}
        self.inverses = {name: _matrices(scenes, name, inverse=True) for name in RELATIONS}

    def _having(self, attribute: str, word: str) -> Sets:
        """Objects with this kind (or a kind of this category), colour, texture or size, in each scene."""
        if (attribute, word) not in self._sets:
            words: Collection[str] = kinds_of(word) if attribute == "kind" else (word,)
            members = np.isin(self._words[attribute], sorted(words))
            self._sets[attribute, word] = np.packbits(members, axis=1, bitorder="little")[:, 0]
        return self._sets[attribute, word]

    def extensions(self, phrase: Phrase) -> Sets:
        """Extension of the phrase in each scene."""
        out = self._having("kind", phrase.noun)
        for attribute, word in zip(("colour", "texture", "size"), phrase.attributes, strict=True):
            if word is not None:
                out = out & self._having(attribute, word)
        return out


def _padded(words: list[str]) -> list[str]:
    return words + [""] * (MAX_OBJECTS - len(words))


def _matrices(scenes: Sequence[Scene], name: str, *, inverse: bool) -> Matrices:
    shifts = (1, 8) if inverse else (8, 1)
    pairs = ([i * shifts[0] + j * shifts[1] for relation, i, j in s.relations if relation == name] for s in scenes)
    return np.array([sum(1 << bit for bit in bits) for bits in pairs], np.uint64)


def _any(sets: Sets, matrices: Matrices) -> Sets:
    """Objects to which some member of `sets` is related: the union of the matrix rows."""
    rows = matrices & _ROWS[sets]
    for shift in (32, 16, 8):
        rows = rows | (rows >> np.uint64(shift))
    return (rows & np.uint64(0xFF)).astype(np.uint8)


def _all(sets: Sets, matrices: Matrices) -> Sets:
    """Objects to which every member of `sets` is related: the intersection of the matrix rows."""
    return ~_any(sets, ~matrices)


def _has_count(phrase: Phrase, sets: Sets) -> Bools:
    """Whether the number of matching objects is the one of the phrase."""
    if phrase.count is None:
        return sets > 0
    return _SIZE[sets] >= 2 if phrase.count == SOME else _SIZE[sets] == phrase.count


def _related(meaning: Meaning, world: SceneBits, where: NDArray[np.intp], sets: list[Sets]) -> Bools:
    """Whether there is a choice for each phrase such that all relations hold, in the scenes `where`.

    `sets` are the candidates of each phrase. From the leaves to the roots, each relation keeps the candidates of its object that
    have a partner among those of its subject (a semi-join); in a forest this is exact. A phrase with a number has only one
    choice, its whole extension.
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


def _true_of(meaning: Meaning, world: SceneBits) -> Bools:
    sets = [world.extensions(phrase) for phrase in meaning.phrases]
    true: Bools = np.ones(world.n, bool) if meaning.setting is None else world.settings[meaning.setting].copy()
    for phrase, matching in zip(meaning.phrases, sets, strict=True):
        true &= _has_count(phrase, matching)
    if meaning.relations:
        where = np.flatnonzero(true)
        true[where] = _related(meaning, world, where, [matching[where] for matching in sets])
    return true


def truth(scenes: Sequence[Scene], captions: Sequence[Caption | Meaning]) -> Bools:
    """Which captions are true of which scenes, exactly: shape (scenes, captions).

    >>> from .scenes import Box, Scene, SceneObject
    >>> dog = SceneObject("dog", "red", "plain", "small", Box(0, 700, 150, 850), 0, "ground")
    >>> scene = Scene("beach", (dog,), frozenset(), 100, 0)
    >>> truth([scene], [Meaning((Phrase("dog"),)), Meaning((Phrase("dog", "blue"),)), Meaning((), (), "outdoors")])
    array([[ True, False,  True]])
    """
    world = SceneBits(scenes)
    out = np.empty((len(captions), len(scenes)), bool)
    for row, caption in zip(out, captions, strict=True):
        row[:] = _true_of(caption.meaning if isinstance(caption, Caption) else caption, world)
    return np.ascontiguousarray(out.T)
