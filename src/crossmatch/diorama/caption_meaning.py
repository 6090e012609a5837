"""The meaning of captions: a small logic of noun phrases, numbers, relations and settings.

The *extension* of a phrase in a scene is the set of objects whose kind belongs to the noun and that have every named attribute.
A caption is true of a scene if each phrase has the stated number of objects, the setting fits, and there is a choice of a
non-empty set of objects for each phrase (one object for "a dog", the whole extension for "two dogs") such that every relation
holds between all pairs of the chosen sets. `truth` decides this for every scene and caption.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from crossmatch.data.errors import CrossmatchError
from crossmatch.diorama.object_kinds import kinds_of
from crossmatch.diorama.scenes import RELATIONS, SETTINGS, Scene, SceneObject

SOME = 0  # the count of "some dogs", "several dogs": at least two
INDOORS = frozenset({"room"})
OUTDOORS = frozenset(SETTINGS) - INDOORS
SURROUNDINGS = {"indoors": INDOORS, "outdoors": OUTDOORS} | {name: frozenset({name}) for name in SETTINGS}


@dataclass(frozen=True)
class Phrase:
    """A noun phrase: a kind or category, attributes, and a count.

    `count` None is "a dog": at least one object fits. A number n is "n dogs": exactly n objects in the scene fit. `SOME` is
    "some dogs": at least two fit.

    >>> Phrase("dog", colour="red", count=2)
    Phrase(noun='dog', colour='red', texture=None, size=None, count=2)
    """

    noun: str
    colour: str | None = None
    texture: str | None = None
    size: str | None = None
    count: int | None = None

    @property
    def attributes(self) -> tuple[str | None, str | None, str | None]:
        return self.colour, self.texture, self.size

    def fits(self, item: SceneObject) -> bool:
        """Whether the object is in the extension of the phrase."""
        actual_values = (item.colour, item.texture, item.size)
        has_attributes = all(named in (None, actual) for named, actual in zip(self.attributes, actual_values, strict=True))
        return has_attributes and item.kind in kinds_of(self.noun)


@dataclass(frozen=True)
class Meaning:
    """A caption as logic; the module docstring says when it is true.

    `relations` holds (relation, subject, object) with indices into `phrases`. They form a forest: each phrase is a subject at
    most once, and only after all relations in which it is the object. Phrases with `SOME` have no relations. No two phrases fit
    the same object: their nouns are disjoint, or they name different values of an attribute.

    >>> Meaning((Phrase("dog", "red"), Phrase("dog", "blue")), (("left of", 0, 1),), "beach").setting
    'beach'
    >>> Meaning((Phrase("dog", "red"), Phrase("dog", size="small")))
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: Phrases 0 and 1 can fit the same object. Use other nouns or different...
    """

    phrases: tuple[Phrase, ...]
    relations: tuple[tuple[str, int, int], ...] = ()
    setting: str | None = None

    def __post_init__(self) -> None:
        if not self.phrases and self.setting is None:
            raise CrossmatchError("A meaning needs a phrase or a setting.")
        if self.setting is not None and self.setting not in SURROUNDINGS:
            raise CrossmatchError(f"Unknown setting {self.setting!r}. Use one of {', '.join(SURROUNDINGS)}.")
        for (i, a), (j, b) in combinations(enumerate(self.phrases), 2):
            if not disjoint(a, b):
                raise CrossmatchError(
                    f"Phrases {i} and {j} can fit the same object. Use other nouns or different values of an attribute."
                )
        used: set[int] = set()
        for name, subject, object_ in self.relations:
            if name not in RELATIONS:
                raise CrossmatchError(f"Unknown relation {name!r}. Use one of {', '.join(RELATIONS)}.")
            if subject == object_ or {subject, object_} & used:
                raise CrossmatchError(
                    f"Relations {self.relations} are not an ordered forest. Let each phrase be a subject at most once, "
                    "after all relations in which it is the object."
                )
            if SOME in (self.phrases[subject].count, self.phrases[object_].count):
                raise CrossmatchError(f"{name!r} relates a phrase with the count SOME. Give it a number, or no relation.")
            used.add(subject)


@dataclass(frozen=True)
class Caption:
    """A sentence and its meaning.

    >>> Caption("A dog outdoors.", Meaning((Phrase("dog"),), (), "outdoors")).text
    'A dog outdoors.'
    """

    text: str
    meaning: Meaning


def disjoint(a: Phrase, b: Phrase) -> bool:
    """Whether no object can fit both phrases.

    >>> red, blue, striped = Phrase("dog", "red"), Phrase("dog", "blue"), Phrase("dog", texture="striped")
    >>> disjoint(red, blue), disjoint(red, striped)
    (True, False)
    """
    differ = any(None not in (x, y) and x != y for x, y in zip(a.attributes, b.attributes, strict=True))
    return differ or kinds_of(a.noun).isdisjoint(kinds_of(b.noun))


def extension(phrase: Phrase, scene: Scene) -> tuple[int, ...]:
    """Indices in `scene.objects` of the objects that fit the phrase.

    >>> from .scenes import Box, Scene
    >>> dog = SceneObject("dog", "red", "plain", "small", Box(0, 700, 150, 850), 0, "ground")
    >>> extension(Phrase("dog", "red"), Scene("beach", (dog,), frozenset(), 100, 0))
    (0,)
    """
    return tuple(i for i, item in enumerate(scene.objects) if phrase.fits(item))
