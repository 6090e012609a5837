"""Parsing of edited captions: the edit of a caption's parts that gives the text, if there is one.

Texts are parsed by generation: every edit of the caption is written out, and one that equals the text has its meaning. So a text
is never misread; a text with an unknown word or construction is not parsed at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from crossmatch.data.errors import CrossmatchError
from crossmatch.diorama.caption_meaning import SOME, Phrase
from crossmatch.diorama.caption_writer import noun_choices, word_captions
from crossmatch.diorama.edited_scenes import fit_size, groups_of
from crossmatch.diorama.edits import (
    VALUES,
    Edit,
    Propose,
    has_exact_count,
    move_groups,
    replace_groups,
    single_groups,
    suits_relations,
    swap_attributes,
    swap_objects,
    with_attribute,
)
from crossmatch.diorama.object_kinds import CATEGORIES, KINDS, Category, Kind, ancestors
from crossmatch.diorama.scene_sampling import ZONE_WEIGHTS, SceneGroup
from crossmatch.diorama.scenes import COLOURS, MAX_OBJECTS, Scene
from crossmatch.diorama.wording import (
    ATTRIBUTE_WORDS,
    NUMERALS,
    PLURAL,
    RELATION_OF_WORDS,
    TEXTURE_TAILS,
    VERBS,
    VERBS_ON,
    WordedPhrase,
    Wording,
)

if TYPE_CHECKING:
    from crossmatch.diorama.random_choices import Dice
    from crossmatch.diorama.world import Diorama

PUNCTUATION = str.maketrans("", "", ",;.!?")


def normalise_text(text: str) -> str:
    """A text in lower case, without punctuation and extra white space.

    >>> normalise_text("A dog,  outdoors.") == normalise_text("a dog outdoors")
    True
    """
    return " ".join(text.casefold().translate(PUNCTUATION).split())


def parse_edits(scene: Scene, wording: Wording, text: str, dice: Dice, category: str = "") -> Iterator[Edit]:
    """Edits of a caption that give the text; those of the category, if it is given, come first.

    There may be several: an animal is a dog or a cat. `edits` decides whether the caption is true of a scene.

    >>> from .random_choices import Dice
    >>> from .caption_writer import word_captions
    >>> from .scene_sampling import sample_scene
    >>> scene = sample_scene("docs", 3)
    >>> wording = word_captions(scene, 5)[2]
    >>> wording.text, next(parse_edits(scene, wording, wording.text.replace("table", "bench"), Dice(1))).category
    ('...table...', 'replace/obj')
    """
    normalised = normalise_text(text)
    if not set(normalised.split()) <= vocabulary() | set(normalise_text(wording.text).split()):
        return
    for name in sorted(PROPOSALS, key=lambda name: name != category):
        for edit in PROPOSALS[name](dice, scene, wording):
            if _written(edit) == normalised:
                yield edit


@cache
def vocabulary() -> frozenset[str]:
    """Every word that an edit may add to a caption.

    >>> "polka-dot" in vocabulary(), "zebra" in vocabulary()
    (True, False)
    """
    entries: tuple[Kind | Category, ...] = (*KINDS, *CATEGORIES)
    nouns = (form for entry in entries for noun in entry.words for form in (noun.singular, noun.plural))
    looks = (word for values in ATTRIBUTE_WORDS.values() for word in chain.from_iterable(values.values()))
    verbs = (*VERBS_ON, *PLURAL, *PLURAL.values(), *(verb for _, _, choices in VERBS for verb in choices))
    function_words = "a an and the with along there is are also"
    texts = chain(nouns, looks, chain.from_iterable(TEXTURE_TAILS.values()), RELATION_OF_WORDS, NUMERALS, verbs, [function_words])
    return frozenset(word for text in texts for word in normalise_text(text).split())


def _written(edit: Edit) -> str | None:
    """Text of the edited caption; None if two of its phrases could fit the same object."""
    try:
        return normalise_text(edit.negative.caption.text)
    except CrossmatchError:
        return None


def _wordings_with(spoken: WordedPhrase, attribute: str, value: str) -> list[WordedPhrase]:
    """The phrase with each word for a value, including "with stripes" if it has such a tail or no texture yet."""
    tails = TEXTURE_TAILS.get(value, ()) if attribute == "texture" and (spoken.tail or not spoken.phrase.texture) else ()
    return [spoken.with_attribute(attribute, value, word) for word in (*ATTRIBUTE_WORDS[attribute][value], *tails)]


def _replaced_objects(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    groups = groups_of(scene)
    for place, number in single_groups(scene, wording).items():
        group, spoken = groups[number], wording.spoken[place]
        for kind in dice.shuffled(KINDS):
            zones = sorted(set(kind.places) & set(ZONE_WEIGHTS[scene.setting]), key=lambda zone: zone != group.zone)
            if kind == group.kind or not zones or not suits_relations(wording, place, kind):
                continue
            changed = replace_groups(groups, fit_size(replace(group, kind=kind, zone=zones[0])))
            for name in (kind.name, *ancestors(kind.name)):
                for noun in noun_choices(name):
                    new_phrase = replace(spoken, phrase=replace(spoken.phrase, noun=name), noun=noun)
                    yield Edit("replace/obj", wording, wording.replace_phrases([place], [new_phrase]), changed)


def _replaced_attributes(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    groups = groups_of(scene)
    for place, number in single_groups(scene, wording).items():
        group, spoken = groups[number], wording.spoken[place]
        for attribute in VALUES:
            for value in ATTRIBUTE_WORDS[attribute]:
                if getattr(spoken.phrase, attribute) not in (None, value):
                    changed = replace_groups(groups, with_attribute(group, attribute, value))
                    for new_phrase in _wordings_with(spoken, attribute, value):
                        yield Edit("replace/att", wording, wording.replace_phrases([place], [new_phrase]), changed)
        for count in range(2, MAX_OBJECTS + 1):
            if spoken.phrase.count not in (SOME, count):
                new_phrase = replace(spoken, phrase=replace(spoken.phrase, count=count), number=NUMERALS[count])
                more = replace_groups(groups, fit_size(replace(group, count=count)))
                yield Edit("replace/att", wording, wording.replace_phrases([place], [new_phrase]), more)


def _replaced_relations(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    groups, places = groups_of(scene), single_groups(scene, wording)
    for at, (words, first, second) in enumerate(wording.claims):
        for new in RELATION_OF_WORDS:
            if new != words and first in places and second in places:
                moved = move_groups(scene, groups[places[first]], groups[places[second]], new)
                if moved:
                    yield Edit("replace/rel", wording, wording.replace_relation(at, new), replace_groups(groups, *moved))


def _added_objects(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    yield from _added_to_counted(scene, wording)
    groups, zones = groups_of(scene), ZONE_WEIGHTS[scene.setting]
    present = {item.kind for item in scene.objects}
    for kind in KINDS:
        places = [zone for zone in kind.places if zone in zones]
        if kind.name in present or not places:
            continue
        for noun in noun_choices(kind.name):
            bare = WordedPhrase(Phrase(kind.name), "a", (), noun)
            for colour in (None, *COLOURS):
                new_phrase = bare.with_attribute("colour", colour, colour) if colour else bare
                looks = colour or dice.pick(COLOURS)
                group = fit_size(SceneGroup(len(groups), kind, places[0], looks, "plain", "small", 1, 0, 0))
                yield Edit("add/obj", wording, wording.add_phrase(new_phrase), (*groups, group))


def _added_to_counted(scene: Scene, wording: Wording) -> Iterator[Edit]:
    """One more object of a counted kind: see `edits.add_counted_object`."""
    groups = groups_of(scene)
    for place, number in single_groups(scene, wording).items():
        group, spoken = groups[number], wording.spoken[place]
        added_phrase = WordedPhrase(Phrase(spoken.phrase.noun), "a", (), spoken.noun)
        for attribute in ("colour", "texture"):
            current = getattr(group, attribute)
            if not has_exact_count(wording, place) or getattr(spoken.phrase, attribute) is not None or current == "plain":
                continue
            for distinguished in _wordings_with(spoken, attribute, current):
                for value in VALUES[attribute]:
                    more = replace(with_attribute(group, attribute, value), count=1, number=len(groups))
                    for added in _wordings_with(added_phrase, attribute, value):
                        new_wording = wording.replace_phrases([place], [distinguished]).add_phrase(added)
                        yield Edit("add/obj", wording, new_wording, (*groups, more))


def _added_attributes(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """One more attribute: of all objects, or, if they are counted, in a scene with another object without it."""
    groups = groups_of(scene)
    for place, number in single_groups(scene, wording).items():
        group, spoken = groups[number], wording.spoken[place]
        for attribute, values in VALUES.items():
            for value in values:
                if getattr(spoken.phrase, attribute) is not None or value == getattr(group, attribute):
                    continue
                changed = [replace_groups(groups, with_attribute(group, attribute, value))]
                if has_exact_count(wording, place):
                    more = replace(group, count=1, number=len(groups))
                    changed.insert(0, replace_groups(groups, with_attribute(group, attribute, value), more))
                for new_phrase in _wordings_with(spoken, attribute, value):
                    for new_groups in changed:
                        yield Edit("add/att", wording, wording.replace_phrases([place], [new_phrase]), new_groups)


PROPOSALS: dict[str, Propose] = {
    "replace/obj": _replaced_objects,
    "replace/att": _replaced_attributes,
    "replace/rel": _replaced_relations,
    "swap/obj": swap_objects,
    "swap/att": swap_attributes,
    "add/obj": _added_objects,
    "add/att": _added_attributes,
}


def find_wording(world: Diorama, scene: int, caption: str) -> tuple[Scene, Wording]:
    """A scene of a world, and the wording of the caption with this id.

    >>> from .world import Diorama
    >>> small = Diorama.make(images=2)
    >>> find_wording(small, 1, "test-00001#3")[1].text == small.captions[8].text
    True
    """
    number = int(caption.rpartition("#")[2])
    return world.scenes[scene], word_captions(world.scenes[scene], "diorama", world.seed, world.split, scene)[number]
