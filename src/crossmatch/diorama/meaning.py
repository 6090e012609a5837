"""What captions mean: a small logic of noun phrases, numbers, relations and settings.

A phrase's *extension* in a scene is the set of things whose kind falls under the noun and that have every named
attribute. A caption is true of a scene if each phrase finds as many things as it says, the setting fits, and there is a
choice of a non-empty set of things for each phrase (one thing for "a dog", the whole extension for "two dogs") such
that every named relation holds between all pairs of the chosen sets. `truth` decides it for every scene and caption.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from crossmatch.core.errors import CrossmatchError

from .kinds import kinds_of
from .scenes import RELATIONS, SETTINGS, Scene, Thing

SOME = 0  # the count of "some dogs", "several dogs": at least two
INDOORS = frozenset({"room"})
OUTDOORS = frozenset(SETTINGS) - INDOORS
SURROUNDINGS = {"indoors": INDOORS, "outdoors": OUTDOORS} | {name: frozenset({name}) for name in SETTINGS}


@dataclass(frozen=True)
class Phrase:
    """A noun phrase: the name of a kind or of a category, attributes, and how many things it is about.

    `count` None is "a dog": at least one thing fits the description. A number n is "n dogs": exactly n things in the
    whole scene fit it. `SOME` is "some dogs": at least two do.

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

    def fits(self, thing: Thing) -> bool:
        """Whether the thing is in the phrase's extension."""
        has = (thing.colour, thing.texture, thing.size)
        named = all(said in (None, is_) for said, is_ in zip(self.attributes, has, strict=True))
        return named and thing.kind in kinds_of(self.noun)


@dataclass(frozen=True)
class Meaning:
    """A caption as logic; see the module's text for when it is true.

    `relations` holds `(relation, subject, object)` with places in `phrases`. They form a forest: each phrase is subject
    at most once, and only after all relations that have it as object. Phrases with `SOME` take no part in relations.
    Two phrases never fit the same thing: their nouns are disjoint, or they name different values of one attribute.

    >>> Meaning((Phrase("dog", "red"), Phrase("dog", "blue")), (("left of", 0, 1),), "beach").setting
    'beach'
    >>> Meaning((Phrase("dog", "red"), Phrase("dog", size="small")))
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: phrases 0 and 1 can fit the same thing. Name other nouns or different...
    """

    phrases: tuple[Phrase, ...]
    relations: tuple[tuple[str, int, int], ...] = ()
    setting: str | None = None

    def __post_init__(self) -> None:
        if not self.phrases and self.setting is None:
            raise CrossmatchError("a meaning without phrases and setting says nothing. Give it one of them.")
        if self.setting is not None and self.setting not in SURROUNDINGS:
            raise CrossmatchError(f"unknown setting {self.setting!r}. Use one of {', '.join(SURROUNDINGS)}.")
        for (i, a), (j, b) in combinations(enumerate(self.phrases), 2):
            if not disjoint(a, b):
                raise CrossmatchError(
                    f"phrases {i} and {j} can fit the same thing. Name other nouns or different values of an attribute."
                )
        used: set[int] = set()
        for name, subject, object_ in self.relations:
            if name not in RELATIONS:
                raise CrossmatchError(f"unknown relation {name!r}. Use one of {', '.join(RELATIONS)}.")
            if subject == object_ or {subject, object_} & used:
                raise CrossmatchError(
                    f"relations {self.relations} are no forest in order. Let each phrase be subject at most once, "
                    "after all relations that have it as object."
                )
            if SOME in (self.phrases[subject].count, self.phrases[object_].count):
                raise CrossmatchError(f"{name!r} relates a phrase with SOME. Give it a number, or no relation.")
            used.add(subject)


@dataclass(frozen=True)
class Caption:
    """A sentence and what it means.

    >>> Caption("A dog outdoors.", Meaning((Phrase("dog"),), (), "outdoors")).text
    'A dog outdoors.'
    """

    text: str
    meaning: Meaning


def disjoint(a: Phrase, b: Phrase) -> bool:
    """Whether no thing can ever fit both phrases.

    >>> red, blue, striped = Phrase("dog", "red"), Phrase("dog", "blue"), Phrase("dog", texture="striped")
    >>> disjoint(red, blue), disjoint(red, striped)
    (True, False)
    """
    apart = any(None not in (x, y) and x != y for x, y in zip(a.attributes, b.attributes, strict=True))
    return apart or kinds_of(a.noun).isdisjoint(kinds_of(b.noun))


def extension(phrase: Phrase, scene: Scene) -> tuple[int, ...]:
    """The places, in `scene.things`, of the things that fit the phrase.

    >>> from .scenes import Box, Scene
    >>> dog = Thing("dog", "red", "plain", "small", Box(0, 700, 150, 850), 0, "ground")
    >>> extension(Phrase("dog", "red"), Scene("beach", (dog,), frozenset(), 100, 0))
    (0,)
    """
    return tuple(i for i, thing in enumerate(scene.things) if phrase.fits(thing))
