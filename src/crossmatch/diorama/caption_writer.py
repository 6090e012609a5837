"""Caption generator: five English captions for a scene, from exhaustive to generic, each with its meaning.

All captions are true of their scene. Words add nothing to the meaning: "flies", "floats" or "is parked" are used only for kinds
that can do nothing else, so a text is true wherever its meaning is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from crossmatch.data.errors import CrossmatchError
from crossmatch.diorama.caption_meaning import INDOORS, SOME, Phrase, disjoint, extension
from crossmatch.diorama.object_kinds import CATEGORIES, KIND, Noun, ancestors
from crossmatch.diorama.random_choices import Dice
from crossmatch.diorama.wording import (
    NUMERALS,
    RELATION_WORDS,
    SIZE_WORDS,
    TEXTURE_TAILS,
    TEXTURE_WORDS,
    Relation,
    WordedPhrase,
    Wording,
    verbs_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from crossmatch.diorama.caption_meaning import Caption
    from crossmatch.diorama.scenes import Scene, SceneObject

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
MAX_WORDS = 45


# -- content


def _phrase_for(dice: Dice, item: SceneObject, most: int, chance: int) -> Phrase:
    """A phrase for an object that names each attribute with some chance, at most `most` of them.

    A plain texture is rarely named, a medium size never.
    """
    named: dict[str, str] = {}
    for attribute, value in dice.shuffled((("colour", item.colour), ("texture", item.texture), ("size", item.size))):
        probability = {"plain": 3, "medium": 0}.get(value, chance)
        if len(named) < most and dice.chance(probability):
            named[attribute] = value
    return Phrase(item.kind, named.get("colour"), named.get("texture"), named.get("size"))


def _full_phrase(scene: Scene, item: SceneObject) -> Phrase:
    """A phrase with all attributes; "plain" only to distinguish it from another one of its kind and colour."""
    similar = [candidate for candidate in scene.objects if (candidate.kind, candidate.colour) == (item.kind, item.colour)]
    has_twin = any(candidate.texture != item.texture for candidate in similar)
    texture = item.texture if has_twin or item.texture != "plain" else None
    return Phrase(item.kind, item.colour, texture, None if item.size == "medium" else item.size)


def _with_count(dice: Dice, scene: Scene, phrase: Phrase, vague: int) -> Phrase:
    """The phrase with the count that is true of the scene; `vague` is the chance, in percent, of "some" instead of a number."""
    count = len(extension(phrase, scene))
    if count == 1:
        return replace(phrase, count=1 if vague and dice.chance(3) else None)
    return replace(phrase, count=SOME if dice.chance(vague) else count)


def _relations(scene: Scene, phrases: Sequence[Phrase]) -> list[Relation]:
    """Relations that hold between all objects of one phrase and all objects of another."""
    extensions = [extension(phrase, scene) if phrase.count != SOME else () for phrase in phrases]
    pairs = [(s, o) for s, a in enumerate(extensions) for o, b in enumerate(extensions) if s != o and a and b]
    return [
        (name, s, o)
        for s, o in pairs
        for name in RELATION_WEIGHTS
        if all(_worth_saying(scene, name, i, j) for i in extensions[s] for j in extensions[o])
    ]


def _worth_saying(scene: Scene, name: str, i: int, j: int) -> bool:
    """Whether a relation holds and is not an understatement: a cup on a table is above it, but captions say "on"."""
    understated = name in ("above", "below") and not {("on", i, j), ("on", j, i)}.isdisjoint(scene.relations)
    return (name, i, j) in scene.relations and not understated


def _choose_relations(dice: Dice, choices: Sequence[Relation], most: int) -> tuple[Relation, ...]:
    """Choose relations by weight, no pair and no subject twice, in the order that a meaning needs."""
    chosen: list[Relation] = []
    for _ in range(most):
        left = [(r, s, o) for r, s, o in choices if all(s != t and {s, o} != {t, p} for _, t, p in chosen)]
        if left:
            chosen.append(dice.weighted(left, [RELATION_WEIGHTS[name] for name, _, _ in left]))
    # of two relations, the one whose subject is the object of the other comes last
    return tuple(sorted(chosen, key=lambda relation: any(relation[1] == o for _, _, o in chosen)))


def _groups(scene: Scene) -> list[SceneObject]:
    """One object of each group."""
    return list({item.group: item for item in scene.objects}.values())


# -- words


@cache
def noun_choices(name: str) -> tuple[Noun, ...]:
    return KIND[name].words if name in KIND else next(c.words for c in CATEGORIES if c.name == name)


def _word_phrase(dice: Dice, phrase: Phrase, noun: Noun, tails: bool) -> WordedPhrase:
    size = [dice.pick(SIZE_WORDS[phrase.size])] if phrase.size else []
    colour = [phrase.colour] if phrase.colour else []
    texture, tail = [dice.pick(TEXTURE_WORDS[phrase.texture])] if phrase.texture else [], ""
    if tails and phrase.texture in TEXTURE_TAILS and dice.chance(25):
        texture, tail = [], dice.pick(TEXTURE_TAILS[phrase.texture])
    adjectives = size + (texture + colour if phrase.texture == "plain" or dice.chance(35) else colour + texture)
    return WordedPhrase(phrase, _number(dice, phrase), tuple(adjectives), noun, tail)


def choose_noun(dice: Dice, name: str) -> Noun:
    """A random word for a kind or category; the first one is the most likely."""
    return noun_choices(name)[0] if dice.chance(60) else dice.pick(noun_choices(name))


def _number(dice: Dice, phrase: Phrase) -> str:
    if phrase.count is None:
        return "a"
    if phrase.count == SOME:
        return dice.pick(("some", "several"))
    return dice.pick(("a single", "just one")) if phrase.count == 1 else NUMERALS[phrase.count]


def _word_sentence(
    dice: Dice, templates: Sequence[str], phrases: Sequence[Phrase], relations: Sequence[Relation], setting: str | None
) -> Wording:
    """Word the phrases and relations with one of the templates."""
    idle = verbs_of(phrases[0].noun) == ("is",)  # "a cup is in a room" is no better than "a cup in a room"
    template = dice.pick([t for t in templates if not (idle and t == ALONE_WITH_VERB)])
    nouns = {phrase.noun: choose_noun(dice, phrase.noun) for phrase in phrases}  # one word for one kind within a sentence
    tails = not any(slot in template for slot in ("{rel}", "{the_facts}", "{the_claims}"))
    spoken = [_word_phrase(dice, phrase, nouns[phrase.noun], tails) for phrase in phrases]
    claims = []
    for name, subject, object_ in relations:
        words, about = dice.pick(RELATION_WORDS[name])
        claims.append((words, subject, object_) if about == "subject" else (words, object_, subject))
    relation, a, _ = claims[0] if claims else ("", 0, 0)
    return Wording(
        template,
        tuple(spoken),
        tuple(claims),
        verb=dice.pick(verbs_of(phrases[a].noun, relation)),
        setting=setting,
        setting_words=dice.pick(SETTING_WORDS[setting]) if setting else "",
        picture=dice.pick(PICTURE),
    )


# -- the five captions


def _exhaustive(dice: Dice, scene: Scene) -> Wording:
    """Every group with its attributes and numbers, the setting, and one or two relations."""
    best: Wording | None = None
    items = dice.shuffled(_groups(scene))
    phrases = [_with_count(dice, scene, _full_phrase(scene, item), vague=0) for item in items]
    choices = _relations(scene, phrases)
    for most in (2, 1, 1, 1, 0, 0, 0, 0):  # fewer relations where the sentence would grow too long
        if len(phrases) < 3:
            caption = _one_or_two(dice, scene, phrases, scene.setting, related=True)
        else:
            relations = _choose_relations(dice, choices, most)
            templates = (LIST, CROWD + CROWD_AROUND_PAIR, CROWD)[len(relations)]
            caption = _word_sentence(dice, templates, phrases, relations, scene.setting)
        if best is None or len(caption.text.split()) < len(best.text.split()):
            best = caption
        if len(best.text.split()) <= MAX_WORDS:
            break
    assert best is not None
    return best


def _pair(dice: Dice, scene: Scene, most: int, chance: int, vague: int) -> list[Phrase]:
    """Phrases for one or two groups that cannot fit the same object."""
    items = dice.shuffled(_groups(scene))[:2]
    composed = sorted(pair for name, *pair in scene.relations if name in ("on", "behind"))  # sorted: sets have no order
    if composed and dice.chance(60):
        items = [scene.objects[i] for i in dice.pick(composed)]
    phrases = [_with_count(dice, scene, _phrase_for(dice, item, most, chance), vague) for item in items]
    if len(phrases) == 2 and not disjoint(*phrases):
        phrases = [_with_count(dice, scene, _full_phrase(scene, item), vague=0) for item in items]
    return phrases


def _one_or_two(dice: Dice, scene: Scene, phrases: Sequence[Phrase], setting: str | None, *, related: bool) -> Wording:
    """A sentence about these phrases, with the relation between them if `related` and one holds."""
    relations = _choose_relations(dice, _relations(scene, phrases) if related else [], 1)
    somewhere, nowhere = (PAIR, PAIR_NOWHERE) if relations else (LIST, LIST_NOWHERE) if len(phrases) > 1 else (ONE, LIST_NOWHERE)
    return _word_sentence(dice, somewhere if setting else nowhere, phrases, relations, setting)


def _detailed(dice: Dice, scene: Scene) -> Wording:
    """Two related groups with attributes, and the setting."""
    return _one_or_two(dice, scene, _pair(dice, scene, most=3, chance=75, vague=0), scene.setting, related=True)


def _plain(dice: Dice, scene: Scene) -> Wording:
    """One or two objects with an attribute or a relation."""
    related = dice.chance(60)
    phrases = _pair(dice, scene, most=1, chance=30 if related else 60, vague=0 if related else 30)
    phrases = phrases[: 1 if dice.chance(30) else 2]
    return _one_or_two(dice, scene, phrases, scene.setting if dice.chance(35) else None, related=related)


def _short(dice: Dice, scene: Scene) -> Wording:
    """One object with at most one attribute."""
    phrase = _with_count(dice, scene, _phrase_for(dice, dice.pick(_groups(scene)), most=1, chance=35), vague=30)
    return _one_or_two(dice, scene, [phrase], scene.setting if dice.chance(35) else None, related=False)


def _generic(dice: Dice, scene: Scene) -> Wording:
    """Categories instead of kinds: "an animal outdoors"."""
    around = "indoors" if scene.setting in INDOORS else "outdoors"
    setting = dice.weighted((around, scene.setting, None), (50, 30, 20))
    phrases: list[Phrase] = []
    for item in dice.shuffled(_groups(scene))[: 2 if dice.chance(35) else 1]:
        categories = [name for name in ancestors(item.kind) if name != "thing"]
        phrase = Phrase(dice.pick(categories) if categories else item.kind)
        if len(scene.objects) > 2 and dice.chance(8 if categories else 40):
            phrase = Phrase("thing")
        if all(disjoint(phrase, earlier) for earlier in phrases):
            phrases.append(_with_count(dice, scene, phrase, vague=60))
    return _one_or_two(dice, scene, phrases, setting, related=False)


LEVELS: tuple[Callable[[Dice, Scene], Wording], ...] = (_exhaustive, _detailed, _plain, _short, _generic)


def describe(scene: Scene, *seed: object) -> tuple[Caption, ...]:
    """Five different captions that are true of the scene: exhaustive, detailed, plain, short, generic.

    Groups of one kind must differ in colour or texture, as in every sampled scene; otherwise captions cannot distinguish them.

    >>> from .scenes import Box, Scene, SceneObject
    >>> dog = SceneObject("dog", "red", "striped", "small", Box(100, 700, 250, 850), 0, "ground")
    >>> for caption in describe(Scene("beach", (dog,), frozenset(), 100, seed=4)):
    ...     print(caption.text)
    A small red dog with stripes at a beach.
    A tiny striped dog can be seen at the beach.
    A striped dog can be seen at the seaside.
    There is a dog.
    An animal can be seen outside.
    """
    return tuple(wording.caption for wording in word_captions(scene, *seed))


def word_captions(scene: Scene, *seed: object) -> tuple[Wording, ...]:
    """The captions of `describe` as wordings, whose parts can be exchanged.

    >>> from .scene_sampling import sample_scene
    >>> scene = sample_scene("docs", 1)
    >>> tuple(wording.caption for wording in word_captions(scene, 5)) == describe(scene, 5)
    True
    """
    if not scene.objects:
        raise CrossmatchError("A scene without objects cannot be described. Add at least one object.")
    dice = Dice("captions", scene.seed, *seed)
    captions: dict[str, Wording] = {}
    for level in LEVELS:
        caption = level(dice, scene)
        while caption.text in captions:
            caption = level(dice, scene)
        captions[caption.text] = caption
    return tuple(captions.values())
