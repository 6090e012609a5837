"""Graded similarity, 0 to 5, of scenes and captions, like human ratings of real images (parekh2021cxc).

Both are split into small facts, as in SPICE (anderson2016spice): objects, their colour, texture, size and number, relations, and
the setting. A fact about a dog is also a fact about an animal.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossmatch.diorama.caption_meaning import SOME, SURROUNDINGS, Caption, Meaning
from crossmatch.diorama.object_kinds import ancestors
from crossmatch.diorama.scene_sampling import INVERSE
from crossmatch.diorama.truth import truth

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from crossmatch.diorama.scenes import Scene

Fact: TypeAlias = tuple[str | int, ...]
Facts: TypeAlias = frozenset[Fact]
Matrix: TypeAlias = NDArray[np.float32]

BEST, BEST_IF_FALSE = 5, 4
ROOT_OF_RELATIONS = 0.5  # relation facts weigh 1/4, because the categories of both sides multiply their number
ROOT_OF_ANY_OBJECT = 0.25  # "there is a red thing" is true of most scenes
IMPLIED = {"on": ("on", "above"), "behind": ("behind",)} | {name: (name,) for name in INVERSE}


@cache
def _names(noun: str) -> tuple[str, ...]:
    """The noun and its categories."""
    return (noun, *ancestors(noun))


def _object_facts(noun: str, *values: str | int | None) -> Iterator[Fact]:
    for name in _names(noun):
        yield (name,)
        yield from ((name, value) for value in values if value is not None)


def _relation_facts(subject: str, name: str, object_: str) -> Iterator[Fact]:
    for relation in IMPLIED[name]:
        for a, b in product(_names(subject), _names(object_)):
            yield (a, relation, b)
            if relation in INVERSE:
                yield (b, INVERSE[relation], a)


def _setting_facts(setting: str) -> Iterator[Fact]:
    yield ("where", setting)
    yield from (("where", name) for name in ("indoors", "outdoors") if SURROUNDINGS[setting] <= SURROUNDINGS[name])


def _number_facts(noun: str, count: int) -> Iterator[Fact]:
    """ "two dogs" are some dogs; one dog is just a dog."""
    if count != SOME:
        yield from ((name, count) for name in _names(noun))
    if count != 1:
        yield from ((name, SOME) for name in _names(noun))


def scene_facts(scene: Scene) -> Facts:
    """All facts that hold in the scene. The number of a noun is that of each group and that of all its objects.

    >>> from .scenes import Box, Scene, SceneObject
    >>> dog = SceneObject("dog", "red", "plain", "small", Box(0, 700, 150, 850), 0, "ground")
    >>> facts = scene_facts(Scene("beach", (dog,), frozenset(), 100, 0))
    >>> ("animal", "red") in facts, ("where", "outdoors") in facts, ("dog", "blue") in facts
    (True, True, False)
    """
    facts: set[Fact] = set(_setting_facts(scene.setting))
    for item in scene.objects:
        facts.update(_object_facts(item.kind, item.colour, item.texture, item.size))
        facts.update(_number_facts(item.kind, sum(member.group == item.group for member in scene.objects)))
        for name in _names(item.kind):
            facts.update(_number_facts(name, sum(name in _names(member.kind) for member in scene.objects)))
    for relation, i, j in scene.relations:
        facts.update(_relation_facts(scene.objects[i].kind, relation, scene.objects[j].kind))
    return frozenset(facts)


def caption_facts(caption: Caption | Meaning) -> Facts:
    """All facts that the caption states, and those that follow for categories.

    >>> from .caption_meaning import Phrase
    >>> sorted(caption_facts(Meaning((Phrase("dog", "red"),))))
    [('animal',), ('animal', 'red'), ('dog',), ('dog', 'red'), ('thing',), ('thing', 'red')]
    """
    meaning = caption.meaning if isinstance(caption, Caption) else caption
    facts: set[Fact] = set(_setting_facts(meaning.setting)) if meaning.setting else set()
    for phrase in meaning.phrases:
        facts.update(_object_facts(phrase.noun, *phrase.attributes))
        if phrase.count is not None:
            facts.update(_number_facts(phrase.noun, phrase.count))
    for relation, s, o in meaning.relations:
        facts.update(_relation_facts(meaning.phrases[s].noun, relation, meaning.phrases[o].noun))
    return frozenset(facts)


def _root_of_weight(fact: Fact) -> float:
    """Square root of the weight; powers of two, so that sums are exact in float32."""
    return (ROOT_OF_RELATIONS if len(fact) == 3 else 1) * (ROOT_OF_ANY_OBJECT if "thing" in fact else 1)


def _incidence(sets: Sequence[Facts], vocabulary: dict[Fact, int]) -> sparse.csr_array[np.float32]:
    """Sets x facts of the vocabulary, with the root of the weight of each fact."""
    columns = [[vocabulary[fact] for fact in facts if fact in vocabulary] for facts in sets]
    roots = np.array([_root_of_weight(fact) for fact in vocabulary], np.float32)
    starts = np.cumsum([0, *map(len, columns)])
    indices = np.fromiter((column for row in columns for column in row), np.int64, starts[-1])
    return sparse.csr_array((roots[indices], indices, starts), shape=(len(sets), len(vocabulary)))


def _overlap(a: Sequence[Facts], b: Sequence[Facts]) -> tuple[Matrix, Matrix, Matrix]:
    """Weight of the shared facts of each pair, and of all facts of each member of `a` and `b`."""
    vocabulary = {fact: column for column, fact in enumerate({fact for facts in (*a, *b) for fact in facts})}
    x, y = _incidence(a, vocabulary), _incidence(b, vocabulary)
    shared: Matrix = (x @ y.T).toarray()
    return shared, _weights(x), _weights(y)


def _weights(rows: sparse.csr_array[np.float32]) -> Matrix:
    weights: Matrix = np.asarray(rows.multiply(rows).sum(axis=1), np.float32)
    return weights


def _dice(a: Sequence[Facts], b: Sequence[Facts]) -> Matrix:
    """5 · 2 |A ∩ B| / (|A| + |B|)"""
    shared, size_a, size_b = _overlap(a, b)
    return 2 * BEST * shared / (size_a[:, None] + size_b[None, :])


def scene_similarity(a: Sequence[Scene], b: Sequence[Scene]) -> Matrix:
    """Similarity of scenes, (len(a), len(b)): 5 times the Dice coefficient of their facts.

    >>> from .scene_sampling import sample_scene
    >>> scenes = [sample_scene("docs", 1)]
    >>> scene_similarity(scenes, scenes)
    array([[5.]], dtype=float32)
    """
    return _dice([scene_facts(scene) for scene in a], [scene_facts(scene) for scene in b])


def caption_similarity(a: Sequence[Caption | Meaning], b: Sequence[Caption | Meaning]) -> Matrix:
    """Similarity of the meanings of captions, (len(a), len(b)): 5 times the Dice coefficient of their facts.

    >>> from .caption_meaning import Phrase
    >>> caption_similarity([Meaning((Phrase("dog"),))], [Meaning((Phrase("cat"),)), Meaning((Phrase("dog"),))])
    array([[2.5757575, 5. ]], dtype=float32)
    """
    return _dice([caption_facts(caption) for caption in a], [caption_facts(caption) for caption in b])


def scene_caption_similarity(scenes: Sequence[Scene], captions: Sequence[Caption | Meaning]) -> Matrix:
    """How well captions fit scenes, (len(scenes), len(captions)).

    5 if the caption is true of the scene; else 5 times the share of its facts that hold, at most 4.

    >>> from .scene_sampling import sample_scene
    >>> scene = sample_scene("docs", 1)
    >>> scene_caption_similarity([scene], [Meaning((), (), scene.setting)])
    array([[5.]], dtype=float32)
    """
    shared, _, caption_weights = _overlap([scene_facts(s) for s in scenes], [caption_facts(c) for c in captions])
    share = np.minimum(BEST * shared / caption_weights[None, :], BEST_IF_FALSE)
    return np.where(truth(scenes, captions), np.float32(BEST), share)
