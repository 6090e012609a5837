"""The describer: five English captions for a scene, from exhaustive to generic, each with its meaning.

All captions are true of the scene they were written for. Words add nothing to the meaning: "flies", "floats" or "is
parked" are said only of kinds that can do nothing else, so that a text is true wherever its meaning is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from crossmatch.core.errors import CrossmatchError

from .dice import Dice
from .kinds import CATEGORIES, KIND, Noun, ancestors
from .meaning import INDOORS, SOME, Phrase, disjoint, extension
from .wording import (
    NUMERALS,
    RELATION_WORDS,
    SIZE_WORDS,
    TEXTURE_TAILS,
    TEXTURE_WORDS,
    VERBS_ON,
    Relation,
    Spoken,
    Wording,
    verbs_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .meaning import Caption
    from .scenes import Scene, Thing

SETTING_WORDS = {
    "beach": ("at the beach", "at the seaside", "at a beach"),
    "street": ("on the street", "on a street"),
    "room": ("in a room", "in the room"),
    "night": ("at night",),
    "meadow": ("in a meadow", "in a grassy meadow", "in the meadow"),
    "desert": ("in the desert", "in a desert"),
    "snow": ("in the snow", "in a snowy landscape"),
    "lake": ("by a lake", "at a lake", "by the lake"),
    "indoors": ("indoors", "inside"),
    "outdoors": ("outdoors", "outside"),
}
RELATION_WEIGHTS = {"left of": 3, "right of": 3, "above": 4, "below": 3, "on": 30, "behind": 30}
PICTURE = ("a photo of", "a picture of", "an image of")

# Slots: `a`, `b` are the two phrases of the first relation, `rel` its words, `verb` what `a` does; `all` is the list of
# all phrases, `rest` the list without `a` and `b`; `there` is "there is" or "there are", `here` the setting;
# `the_facts` are all relations ("the dog behind the car"), `the_claims` the same as sentences.
LIST = (
    "{all} {here}",
    "{all} can be seen {here}",
    "{there} {all} {here}",
    "{picture} {all} {here}",
    "{here}, {there} {all}",
)
ALONE_WITH_VERB = "{all} {verb} {here}"
ONE = (ALONE_WITH_VERB, *LIST)
LIST_NOWHERE = ("{all}", "{all}", "{there} {all}", "{picture} {all}")
PAIR = (
    "{a} {verb} {rel} {b} {here}",
    "{a} {verb} {rel} {b} {here}",
    "{a} {rel} {b} {here}",
    "{there} {a} {rel} {b} {here}",
    "{picture} {a} {rel} {b} {here}",
    "{here}, {a} {verb} {rel} {b}",
    "{here}, {there} {a} {rel} {b}",
)
PAIR_NOWHERE = ("{a} {verb} {rel} {b}", "{a} {rel} {b}", "{there} {a} {rel} {b}", "{picture} {a} {rel} {b}")
CROWD = (
    "{all} {here}, with {the_facts}",
    "{picture} {all} {here}, with {the_facts}",
    "{there} {all} {here}; {the_claims}",
    "{here}, {there} {all}, with {the_facts}",
    "{picture} {all} {here}, where {the_claims}",
    "{here}, {there} {all}; {the_claims}",
)
CROWD_AROUND_PAIR = (
    "{here}, {a} {verb} {rel} {b}, and {there_also} {rest}",
    "{a} {verb} {rel} {b} {here}, and {there_also} {rest}",
    "{there} {a} {rel} {b} {here}, along with {rest}",
)
MOST_WORDS = 45


# -- what to say


def _named(dice: Dice, thing: Thing, most: int, chance: int) -> Phrase:
    """A phrase for the thing that names each of its attributes with some chance, `most` at most.

    A plain texture is rarely worth a word, a medium size never.
    """
    said: dict[str, str] = {}
    for attribute, value in dice.shuffled((("colour", thing.colour), ("texture", thing.texture), ("size", thing.size))):
        likely = {"plain": 3, "medium": 0}.get(value, chance)
        if len(said) < most and dice.chance(likely):
            said[attribute] = value
    return Phrase(thing.kind, said.get("colour"), said.get("texture"), said.get("size"))


def _in_full(scene: Scene, thing: Thing) -> Phrase:
    """The phrase that says all there is to say; "plain" only to tell it from another one of its kind and colour."""
    alike = [other for other in scene.things if (other.kind, other.colour) == (thing.kind, thing.colour)]
    twins = any(other.texture != thing.texture for other in alike)
    texture = thing.texture if twins or thing.texture != "plain" else None
    return Phrase(thing.kind, thing.colour, texture, None if thing.size == "medium" else thing.size)


def _counted(dice: Dice, scene: Scene, phrase: Phrase, vague: int) -> Phrase:
    """With the number that is true of the scene; `vague` is the chance, in percent, of "some" instead of a number."""
    found = len(extension(phrase, scene))
    if found == 1:
        return replace(phrase, count=1 if vague and dice.chance(3) else None)
    return replace(phrase, count=SOME if dice.chance(vague) else found)


def _relations(scene: Scene, phrases: Sequence[Phrase]) -> list[Relation]:
    """The relations that hold between all things of one phrase and all things of another one."""
    found = [extension(phrase, scene) if phrase.count != SOME else () for phrase in phrases]
    pairs = [(s, o) for s, a in enumerate(found) for o, b in enumerate(found) if s != o and a and b]
    return [
        (name, s, o)
        for s, o in pairs
        for name in RELATION_WEIGHTS
        if all(_worth_saying(scene, name, i, j) for i in found[s] for j in found[o])
    ]


def _worth_saying(scene: Scene, name: str, i: int, j: int) -> bool:
    """Whether it holds and is not an understatement: a cup that stands on a table is above it, but nobody says so."""
    understated = name in ("above", "below") and not {("on", i, j), ("on", j, i)}.isdisjoint(scene.relations)
    return (name, i, j) in scene.relations and not understated


def _choose_relations(dice: Dice, choices: Sequence[Relation], most: int) -> tuple[Relation, ...]:
    """Some of the relations, the telling ones rather, no pair and no subject twice, in the order a meaning needs."""
    chosen: list[Relation] = []
    for _ in range(most):
        left = [(r, s, o) for r, s, o in choices if all(s != t and {s, o} != {t, p} for _, t, p in chosen)]
        if left:
            chosen.append(dice.weighted(left, [RELATION_WEIGHTS[name] for name, _, _ in left]))
    # with two relations it is enough that the one whose subject is the other one's object comes last
    return tuple(sorted(chosen, key=lambda one: any(one[1] == o for _, _, o in chosen)))


def _groups(scene: Scene) -> list[Thing]:
    """One thing of each group."""
    return list({thing.group: thing for thing in scene.things}.values())


# -- how to say it


@cache
def nouns_of(name: str) -> tuple[Noun, ...]:
    return KIND[name].words if name in KIND else next(c.words for c in CATEGORIES if c.name == name)


def _speak(dice: Dice, phrase: Phrase, noun: Noun, tails: bool) -> Spoken:
    size = [dice.pick(SIZE_WORDS[phrase.size])] if phrase.size else []
    colour = [phrase.colour] if phrase.colour else []
    texture, tail = [dice.pick(TEXTURE_WORDS[phrase.texture])] if phrase.texture else [], ""
    if tails and phrase.texture in TEXTURE_TAILS and dice.chance(25):
        texture, tail = [], dice.pick(TEXTURE_TAILS[phrase.texture])
    adjectives = size + (texture + colour if phrase.texture == "plain" or dice.chance(35) else colour + texture)
    return Spoken(phrase, _number(dice, phrase), tuple(adjectives), noun, tail)


def choose_noun(dice: Dice, name: str) -> Noun:
    """A word for it, rather the usual one."""
    return nouns_of(name)[0] if dice.chance(60) else dice.pick(nouns_of(name))


def _number(dice: Dice, phrase: Phrase) -> str:
    if phrase.count is None:
        return "a"
    if phrase.count == SOME:
        return dice.pick(("some", "several"))
    return dice.pick(("a single", "just one")) if phrase.count == 1 else NUMERALS[phrase.count]


def _worded(
    dice: Dice, templates: Sequence[str], phrases: Sequence[Phrase], relations: Sequence[Relation], setting: str | None
) -> Wording:
    """The phrases and relations in words, by one of the templates."""
    idle = verbs_of(phrases[0].noun) == ("is",)  # "a cup is in a room" says no more than "a cup in a room"
    template = dice.pick([t for t in templates if not (idle and t == ALONE_WITH_VERB)])
    nouns = {phrase.noun: choose_noun(dice, phrase.noun) for phrase in phrases}  # one word for one kind within a sentence
    tails = not any(slot in template for slot in ("{rel}", "{the_facts}", "{the_claims}"))
    spoken = [_speak(dice, phrase, nouns[phrase.noun], tails) for phrase in phrases]
    claims = []
    for name, subject, object_ in relations:
        words, about = dice.pick(RELATION_WORDS[name])
        claims.append((words, subject, object_) if about == "subject" else (words, object_, subject))
    rel, a, _ = claims[0] if claims else ("", 0, 0)
    return Wording(
        template,
        tuple(spoken),
        tuple(claims),
        verb=dice.pick(VERBS_ON if rel in ("on", "on top of") else verbs_of(phrases[a].noun)),
        setting=setting,
        here=dice.pick(SETTING_WORDS[setting]) if setting else "",
        picture=dice.pick(PICTURE),
    )


# -- the five captions


def _exhaustive(dice: Dice, scene: Scene) -> Wording:
    """Every group with its attributes and numbers, the setting, one or two relations."""
    best: Wording | None = None
    things = dice.shuffled(_groups(scene))
    phrases = [_counted(dice, scene, _in_full(scene, thing), vague=0) for thing in things]
    choices = _relations(scene, phrases)
    for most in (2, 1, 1, 1, 0, 0, 0, 0):  # fewer relations where the sentence would grow too long
        if len(phrases) < 3:
            caption = _one_or_two(dice, scene, phrases, scene.setting, related=True)
        else:
            relations = _choose_relations(dice, choices, most)
            templates = (LIST, CROWD + CROWD_AROUND_PAIR, CROWD)[len(relations)]
            caption = _worded(dice, templates, phrases, relations, scene.setting)
        if best is None or len(caption.text.split()) < len(best.text.split()):
            best = caption
        if len(best.text.split()) <= MOST_WORDS:
            break
    assert best is not None
    return best


def _pair(dice: Dice, scene: Scene, most: int, chance: int, vague: int) -> list[Phrase]:
    """Phrases for one or two groups that cannot fit the same thing."""
    things = dice.shuffled(_groups(scene))[:2]
    composed = sorted(pair for name, *pair in scene.relations if name in ("on", "behind"))  # sorted: sets have no order
    if composed and dice.chance(60):
        things = [scene.things[i] for i in dice.pick(composed)]
    phrases = [_counted(dice, scene, _named(dice, thing, most, chance), vague) for thing in things]
    if len(phrases) == 2 and not disjoint(*phrases):
        phrases = [_counted(dice, scene, _in_full(scene, thing), vague=0) for thing in things]
    return phrases


def _one_or_two(dice: Dice, scene: Scene, phrases: Sequence[Phrase], setting: str | None, *, related: bool) -> Wording:
    """A sentence about these phrases with the relation between them, if there is one that holds and is wanted."""
    relations = _choose_relations(dice, _relations(scene, phrases) if related else [], 1)
    somewhere, nowhere = (PAIR, PAIR_NOWHERE) if relations else (LIST, LIST_NOWHERE) if len(phrases) > 1 else (ONE, LIST_NOWHERE)
    return _worded(dice, somewhere if setting else nowhere, phrases, relations, setting)


def _detailed(dice: Dice, scene: Scene) -> Wording:
    """Two related groups with attributes, and the setting."""
    return _one_or_two(dice, scene, _pair(dice, scene, most=3, chance=75, vague=0), scene.setting, related=True)


def _plain(dice: Dice, scene: Scene) -> Wording:
    """One or two things with an attribute or a relation."""
    related = dice.chance(60)
    phrases = _pair(dice, scene, most=1, chance=30 if related else 60, vague=0 if related else 30)
    phrases = phrases[: 1 if dice.chance(30) else 2]
    return _one_or_two(dice, scene, phrases, scene.setting if dice.chance(35) else None, related=related)


def _short(dice: Dice, scene: Scene) -> Wording:
    """One thing with at most one attribute."""
    phrase = _counted(dice, scene, _named(dice, dice.pick(_groups(scene)), most=1, chance=35), vague=30)
    return _one_or_two(dice, scene, [phrase], scene.setting if dice.chance(35) else None, related=False)


def _generic(dice: Dice, scene: Scene) -> Wording:
    """Categories instead of kinds: "an animal outdoors"."""
    around = "indoors" if scene.setting in INDOORS else "outdoors"
    setting = dice.weighted((around, scene.setting, None), (50, 30, 20))
    phrases: list[Phrase] = []
    for thing in dice.shuffled(_groups(scene))[: 2 if dice.chance(35) else 1]:
        above = [name for name in ancestors(thing.kind) if name != "thing"]
        phrase = Phrase(dice.pick(above) if above else thing.kind)
        if len(scene.things) > 2 and dice.chance(8 if above else 40):
            phrase = Phrase("thing")
        if all(disjoint(phrase, other) for other in phrases):
            phrases.append(_counted(dice, scene, phrase, vague=60))
    return _one_or_two(dice, scene, phrases, setting, related=False)


LEVELS: tuple[Callable[[Dice, Scene], Wording], ...] = (_exhaustive, _detailed, _plain, _short, _generic)


def describe(scene: Scene, *seed: object) -> tuple[Caption, ...]:
    """Five different captions that are true of the scene: exhaustive, detailed, plain, short, generic.

    Groups of one kind must differ in colour or texture, as in every sampled scene; else no wording tells them apart.

    >>> from .scenes import Box, Scene, Thing
    >>> dog = Thing("dog", "red", "striped", "small", Box(100, 700, 250, 850), 0, "ground")
    >>> for caption in describe(Scene("beach", (dog,), frozenset(), 100, seed=4)):
    ...     print(caption.text)
    A small red dog with stripes at a beach.
    A tiny striped dog can be seen at the beach.
    A striped dog can be seen at the seaside.
    There is a dog.
    An animal can be seen outside.
    """
    return tuple(wording.caption for wording in word(scene, *seed))


def word(scene: Scene, *seed: object) -> tuple[Wording, ...]:
    """The captions of `describe`, as words for their parts.

    >>> from .layout import sample_scene
    >>> scene = sample_scene("docs", 1)
    >>> tuple(wording.caption for wording in word(scene, 5)) == describe(scene, 5)
    True
    """
    if not scene.things:
        raise CrossmatchError("a scene without things has nothing to describe. Put at least one thing into it.")
    dice = Dice("captions", scene.seed, *seed)
    captions: dict[str, Wording] = {}
    for level in LEVELS:
        caption = level(dice, scene)
        while caption.text in captions:
            caption = level(dice, scene)
        captions[caption.text] = caption
    return tuple(captions.values())
