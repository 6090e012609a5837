"""What an edited caption of the world says: the edit of the caption's parts whose words are the text, if there is one.

A text is understood by writing: every edit of the caption is put into words, and one that reads as the text has its meaning. So
nothing is ever misread; a text with a word or a construction that the world does not have is not understood at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from crossmatch.core.errors import CrossmatchError

from .edits import VALUES, Edit, counted, looking, moved_apart, single_groups, suits, swap_attributes, swap_objects, with_groups
from .grammar import nouns_of, word
from .kinds import CATEGORIES, KINDS, Category, Kind, ancestors
from .layout import MOST_THINGS, ZONE_WEIGHTS, Group
from .meaning import SOME, Phrase
from .rearrange import fitted, groups_of
from .scenes import COLOURS, Scene
from .wording import ATTRIBUTE_WORDS, NUMERALS, PLURAL, TEXTURE_TAILS, VERBS, VERBS_ON, WORDED, Spoken, Wording

if TYPE_CHECKING:
    from .dice import Dice
    from .world import Diorama

MARKS = str.maketrans("", "", ",;.!?")
Read = Callable[["Dice", Scene, Wording], Iterator[Edit]]


def words_of(text: str) -> str:
    """A text without capitals, punctuation and spare white space.

    >>> words_of("A dog,  outdoors.") == words_of("a dog outdoors")
    True
    """
    return " ".join(text.casefold().translate(MARKS).split())


def understood(scene: Scene, wording: Wording, text: str, dice: Dice, category: str = "") -> Iterator[Edit]:
    """The edits of a caption that read as the text; those of the category, where it is known, before the others.

    There may be several: an animal is a dog or a cat. Whether the caption is then true of a scene is for `edits` to say.

    >>> from .dice import Dice
    >>> from .grammar import word
    >>> from .layout import sample_scene
    >>> scene = sample_scene("docs", 3)
    >>> said = word(scene, 5)[2]
    >>> said.text, next(understood(scene, said, said.text.replace("table", "bench"), Dice(1))).category
    ('...table...', 'replace/obj')
    """
    wanted = words_of(text)
    if not set(wanted.split()) <= vocabulary() | set(words_of(wording.text).split()):
        return
    for name in sorted(READINGS, key=lambda name: name != category):
        for edit in READINGS[name](dice, scene, wording):
            if _written(edit) == wanted:
                yield edit


@cache
def vocabulary() -> frozenset[str]:
    """Every word that an edit may bring into a caption.

    >>> "polka-dot" in vocabulary(), "zebra" in vocabulary()
    (True, False)
    """
    entries: tuple[Kind | Category, ...] = (*KINDS, *CATEGORIES)
    nouns = (form for entry in entries for noun in entry.words for form in (noun.singular, noun.plural))
    looks = (said for values in ATTRIBUTE_WORDS.values() for said in chain.from_iterable(values.values()))
    verbs = (*VERBS_ON, *PLURAL, *PLURAL.values(), *(verb for _, _, some in VERBS for verb in some))
    joints = "a an and the with along there is are also"
    said = chain(nouns, looks, chain.from_iterable(TEXTURE_TAILS.values()), WORDED, NUMERALS, verbs, [joints])
    return frozenset(word for text in said for word in words_of(text).split())


def _written(edit: Edit) -> str | None:
    """What an edit makes of the caption; None where its phrases could be about the same thing."""
    try:
        return words_of(edit.negative.caption.text)
    except CrossmatchError:
        return None


def _words_for(spoken: Spoken, attribute: str, value: str) -> tuple[str, ...]:
    """All words for a value: "with stripes" where the phrase has such a tail, or has no texture yet."""
    tails = TEXTURE_TAILS.get(value, ()) if attribute == "texture" and (spoken.tail or not spoken.phrase.texture) else ()
    return (*ATTRIBUTE_WORDS[attribute][value], *tails)


def _sayings(spoken: Spoken, attribute: str, value: str) -> Iterator[Spoken]:
    for said in _words_for(spoken, attribute, value):
        yield spoken.saying(attribute, value, said)


def _replaced_objects(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    groups = groups_of(scene)
    for place, number in single_groups(scene, wording).items():
        group, spoken = groups[number], wording.spoken[place]
        for kind in dice.shuffled(KINDS):
            zones = sorted(set(kind.places) & set(ZONE_WEIGHTS[scene.setting]), key=lambda zone: zone != group.zone)
            if kind == group.kind or not zones or not suits(wording, place, kind):
                continue
            changed = with_groups(groups, fitted(replace(group, kind=kind, zone=zones[0])))
            for name in (kind.name, *ancestors(kind.name)):
                for noun in nouns_of(name):
                    said = replace(spoken, phrase=replace(spoken.phrase, noun=name), noun=noun)
                    yield Edit("replace/obj", wording, wording.replaced([place], [said]), changed)


def _replaced_attributes(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    groups = groups_of(scene)
    for place, number in single_groups(scene, wording).items():
        group, spoken = groups[number], wording.spoken[place]
        for attribute in VALUES:
            for value in ATTRIBUTE_WORDS[attribute]:
                if getattr(spoken.phrase, attribute) not in (None, value):
                    changed = with_groups(groups, looking(group, attribute, value))
                    for said in _sayings(spoken, attribute, value):
                        yield Edit("replace/att", wording, wording.replaced([place], [said]), changed)
        for count in range(2, MOST_THINGS + 1):
            if spoken.phrase.count not in (SOME, count):
                said = replace(spoken, phrase=replace(spoken.phrase, count=count), number=NUMERALS[count])
                more = with_groups(groups, fitted(replace(group, count=count)))
                yield Edit("replace/att", wording, wording.replaced([place], [said]), more)


def _replaced_relations(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    groups, places = groups_of(scene), single_groups(scene, wording)
    for at, (words, first, second) in enumerate(wording.claims):
        for new in WORDED:
            if new != words and first in places and second in places:
                moved = moved_apart(scene, groups[places[first]], groups[places[second]], new)
                if moved:
                    yield Edit("replace/rel", wording, wording.claiming(at, new), with_groups(groups, *moved))


def _added_objects(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    yield from _added_to_counted(scene, wording)
    groups, zones = groups_of(scene), ZONE_WEIGHTS[scene.setting]
    there = {thing.kind for thing in scene.things}
    for kind in KINDS:
        places = [zone for zone in kind.places if zone in zones]
        if kind.name in there or not places:
            continue
        for noun in nouns_of(kind.name):
            bare = Spoken(Phrase(kind.name), "a", (), noun)
            for colour in (None, *COLOURS):
                said = bare.saying("colour", colour, colour) if colour else bare
                looks = colour or dice.pick(COLOURS)
                group = fitted(Group(len(groups), kind, places[0], looks, "plain", "small", 1, 0, 0))
                yield Edit("add/obj", wording, wording.along_with(said), (*groups, group))


def _added_to_counted(scene: Scene, wording: Wording) -> Iterator[Edit]:
    """One more of a counted kind: see `edits.add_counted_object`."""
    groups = groups_of(scene)
    for place, number in single_groups(scene, wording).items():
        group, spoken = groups[number], wording.spoken[place]
        one = Spoken(Phrase(spoken.phrase.noun), "a", (), spoken.noun)
        for attribute in ("colour", "texture"):
            has = getattr(group, attribute)
            if not counted(wording, place) or getattr(spoken.phrase, attribute) is not None or has == "plain":
                continue
            for told in _sayings(spoken, attribute, has):
                for value in VALUES[attribute]:
                    more = replace(looking(group, attribute, value), count=1, number=len(groups))
                    for added in _sayings(one, attribute, value):
                        said = wording.replaced([place], [told]).along_with(added)
                        yield Edit("add/obj", wording, said, (*groups, more))


def _added_attributes(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """An attribute more: of all there are, or, where they are counted, in a scene with one more of the kind that has it not."""
    groups = groups_of(scene)
    for place, number in single_groups(scene, wording).items():
        group, spoken = groups[number], wording.spoken[place]
        for attribute, values in VALUES.items():
            for value in values:
                if getattr(spoken.phrase, attribute) is not None or value == getattr(group, attribute):
                    continue
                changed = [with_groups(groups, looking(group, attribute, value))]
                if counted(wording, place):
                    more = replace(group, count=1, number=len(groups))
                    changed.insert(0, with_groups(groups, looking(group, attribute, value), more))
                for said in _sayings(spoken, attribute, value):
                    for which in changed:
                        yield Edit("add/att", wording, wording.replaced([place], [said]), which)


READINGS: dict[str, Read] = {
    "replace/obj": _replaced_objects,
    "replace/att": _replaced_attributes,
    "replace/rel": _replaced_relations,
    "swap/obj": swap_objects,
    "swap/att": swap_attributes,
    "add/obj": _added_objects,
    "add/att": _added_attributes,
}


def worded(world: Diorama, scene: int, caption: str) -> tuple[Scene, Wording]:
    """A scene of a world, and the caption of this id as words for its parts.

    >>> from .world import Diorama
    >>> small = Diorama.make(images=2)
    >>> worded(small, 1, "test-00001#3")[1].text == small.captions[8].text
    True
    """
    number = int(caption.rpartition("#")[2])
    return world.scenes[scene], word(world.scenes[scene], "diorama", world.seed, world.split, scene)[number]
