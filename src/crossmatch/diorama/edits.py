"""Edits of a scene and one of its captions: replace, swap or add an object, an attribute or a relation.

The seven categories of SugarCrepe (hsieh2023sugarcrepe), applied to a caption and to its scene. A negative caption keeps all
words of the positive one that the edit does not change. An edit is a proposal; `is_true_negative` and `realise_edit` check it
against the truth.

ADD needs care: a caption with an addition still implies the caption without it, so both are true of the edited scene
(miranda2024bivlc, sec. 3.1, step 4). Only exact numbers avoid this: "two dogs" is false if there are three, but "two red dogs"
and "two red dogs and a blue one" are true. `add_counted_object` and `add_counted_attribute` therefore add to a phrase with a
number, in a scene with one more object of the kind; `add_object` and `add_attribute` are for benchmarks without the edited picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from crossmatch.data.errors import CrossmatchError
from crossmatch.diorama.caption_meaning import SOME, SURROUNDINGS, Meaning, Phrase, extension
from crossmatch.diorama.caption_writer import choose_noun
from crossmatch.diorama.edited_scenes import edited_scenes, fit_size, ground_of, groups_of
from crossmatch.diorama.object_kinds import KIND, Kind, ancestors, kinds_of
from crossmatch.diorama.scene_sampling import ZONE_WEIGHTS, SceneGroup, kinds_in
from crossmatch.diorama.scenes import COLOURS, SIZES, Scene
from crossmatch.diorama.wording import ATTRIBUTE_WORDS, RELATION_OF_WORDS, RELATION_WORDS, TEXTURE_TAILS, WordedPhrase, Wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crossmatch.diorama.random_choices import Dice

CATEGORIES = ("replace/obj", "replace/att", "replace/rel", "swap/obj", "swap/att", "add/obj", "add/att")
PICKS = 4  # new kinds tried for a phrase
TRIES = 12  # layouts of the same groups
VALUES = {"colour": COLOURS, "texture": ("striped", "dotted"), "size": ("small", "large")}


@dataclass(frozen=True)
class Edit:
    """A caption, the caption after the edit, and the groups of the scene of which the latter should be true."""

    category: str
    positive: Wording
    negative: Wording
    groups: tuple[SceneGroup, ...]


Propose = Callable[["Dice", Scene, Wording], Iterator[Edit]]


def single_groups(scene: Scene, wording: Wording) -> dict[int, int]:
    """For each phrase that is about exactly one group of the scene, the number of that group."""
    about = [{scene.objects[i].group for i in extension(spoken.phrase, scene)} for spoken in wording.spoken]
    return {place: min(numbers) for place, numbers in enumerate(about) if len(numbers) == 1}


def replace_groups(groups: Sequence[SceneGroup], *changed: SceneGroup) -> tuple[SceneGroup, ...]:
    new = {group.number: group for group in changed}
    return tuple(new.pop(group.number, group) for group in groups) + tuple(new.values())


def suits_relations(wording: Wording, place: int, kind: Kind) -> bool:
    """Whether an object of the kind can carry others, or be on others, as the caption says."""
    roles = [(s, o) for name, s, o in wording.relations if name == "on"]
    return all((s != place or kind.perches) and (o != place or kind.supports) for s, o in roles)


def _with_value(dice: Dice, spoken: WordedPhrase, attribute: str, value: str) -> WordedPhrase:
    """The phrase with this value: "with stripes" becomes "with dots", "striped" becomes "dotted"."""
    tail = attribute == "texture" and spoken.tail and value in TEXTURE_TAILS
    words = TEXTURE_TAILS[value] if tail else ATTRIBUTE_WORDS[attribute][value]
    return spoken.with_attribute(attribute, value, dice.pick(words))


def _other_values(group: SceneGroup, attribute: str) -> list[str]:
    """Other values for captions. "plain" and "medium-sized" are excluded: they are unusual and would give the edit away."""
    return [value for value in VALUES[attribute] if value != getattr(group, attribute)]


def with_attribute(group: SceneGroup, attribute: str, value: str) -> SceneGroup:
    changed = replace(group, **{attribute: value})  # type: ignore[arg-type]  # all three attributes are texts
    return fit_size(changed) if attribute == "size" else changed


# -- replace


def replace_object(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """Another kind of object that could be there: "a dog by a lake", "a horse by a lake"."""
    groups = groups_of(scene)
    for place, number in dice.shuffled(list(single_groups(scene, wording).items())):
        group, spoken = groups[number], wording.spoken[place]
        for _ in range(PICKS):
            kind = dice.pick(kinds_in(group.zone))
            names = [kind.name] if spoken.phrase.noun in KIND else [name for name in ancestors(kind.name) if name != "thing"]
            name = dice.pick(names) if names else "thing"
            is_absent = kinds_of(name).isdisjoint(item.kind for item in scene.objects)
            if not is_absent or not suits_relations(wording, place, kind):
                continue
            noun = choose_noun(dice, name)
            new_wording = wording.replace_phrases([place], [replace(spoken, phrase=replace(spoken.phrase, noun=name), noun=noun)])
            if new_wording.verb == wording.verb:
                yield Edit("replace/obj", wording, new_wording, replace_groups(groups, fit_size(replace(group, kind=kind))))


def replace_attribute(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """Another colour, texture or size: "a red dog", "a blue dog"."""
    groups = groups_of(scene)
    named = [(p, n, a) for p, n in single_groups(scene, wording).items() for a in VALUES if getattr(wording.spoken[p].phrase, a)]
    for place, number, attribute in dice.shuffled(named):
        group, spoken = groups[number], wording.spoken[place]
        value = dice.pick(_other_values(group, attribute))
        new = wording.replace_phrases([place], [_with_value(dice, spoken, attribute, value)])
        yield Edit("replace/att", wording, new, replace_groups(groups, with_attribute(group, attribute, value)))


def replace_relation(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """Another relation that could hold: "a dog behind a car", "a dog to the left of a car"."""
    groups, places = groups_of(scene), single_groups(scene, wording)
    for at in dice.shuffled(range(len(wording.claims))):
        words, first, second = wording.claims[at]
        if first not in places or second not in places:
            continue
        old, a, b = RELATION_OF_WORDS[words][0], groups[places[first]], groups[places[second]]
        form = next(i for i, (candidate, _) in enumerate(RELATION_WORDS[old]) if candidate == words)
        others = [forms[form][0] for name, forms in RELATION_WORDS.items() if name not in (old, "behind")]
        others += [candidate for candidate in ("behind", "in front of") if candidate != words]
        rare_first = dice.chance(70)  # or most would be left and right, which are always possible
        for new_words in sorted(
            dice.shuffled(others), key=lambda candidate: rare_first and RELATION_OF_WORDS[candidate][0] in ("left of", "right of")
        ):
            moved_groups = move_groups(scene, a, b, new_words)
            if moved_groups:
                yield Edit("replace/rel", wording, wording.replace_relation(at, new_words), replace_groups(groups, *moved_groups))


def move_groups(scene: Scene, a: SceneGroup, b: SceneGroup, words: str) -> tuple[SceneGroup, SceneGroup] | None:
    """The two groups in zones in which the relation `words` is possible; None if there are no such zones."""
    name, about = RELATION_OF_WORDS[words]
    ground = ground_of(scene)
    if name in ("above", "below"):
        high, low = (a, b) if name == "above" else (b, a)
        high, low = replace(high, zone="air"), replace(low, zone=ground if low.zone == "air" else low.zone)
        a, b = (high, low) if name == "above" else (low, high)
    elif name in ("on", "behind"):
        a, b = replace(a, zone=ground), replace(b, zone=ground)
        subject, object_ = (a, b) if about == "subject" else (b, a)
        smaller = SIZES.index(subject.size) < SIZES.index(object_.size)
        if name == "on" and not (subject.kind.perches and object_.kind.supports and smaller and subject.count < 3):
            return None
        if name == "behind" and (subject.count > 1 or subject.size == "small" or subject.height < object_.height):
            return None
    elif a.zone != b.zone:  # left and right need objects side by side
        a, b = (replace(group, zone=ground if ground in group.kind.places else group.zone) for group in (a, b))
    has_zones = all(group.zone in group.kind.places and group.zone in ZONE_WEIGHTS[scene.setting] for group in (a, b))
    return (a, b) if has_zones else None


# -- swap


def swap_objects(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """Swap two nouns: "two cats left of a dog", "two dogs left of a cat"."""
    groups, places = groups_of(scene), single_groups(scene, wording)
    for p, q in dice.shuffled(list(combinations(places, 2))):
        a, b = groups[places[p]], groups[places[q]]
        first, second = wording.spoken[p], wording.spoken[q]
        if a.kind == b.kind or not (suits_relations(wording, p, b.kind) and suits_relations(wording, q, a.kind)):
            continue
        named = [replace(first, phrase=replace(first.phrase, noun=second.phrase.noun), noun=second.noun)]
        named += [replace(second, phrase=replace(second.phrase, noun=first.phrase.noun), noun=first.noun)]
        swapped = fit_size(replace(a, kind=b.kind, zone=b.zone)), fit_size(replace(b, kind=a.kind, zone=a.zone))
        yield Edit("swap/obj", wording, wording.replace_phrases([p, q], named), replace_groups(groups, *swapped))


def swap_attributes(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """Swap two colours, textures or sizes: "a red dog and a blue cat", "a blue dog and a red cat"."""
    groups, places = groups_of(scene), single_groups(scene, wording)
    for p, q, attribute in dice.shuffled([(p, q, a) for p, q in combinations(places, 2) for a in VALUES]):
        a, b = groups[places[p]], groups[places[q]]
        first, second = wording.spoken[p], wording.spoken[q]
        first_value, second_value = getattr(first.phrase, attribute), getattr(second.phrase, attribute)
        if None in (first_value, second_value) or first_value == second_value:
            continue
        new_phrases = [first.with_attribute(attribute, second_value, second.word_of(attribute))]
        new_phrases += [second.with_attribute(attribute, first_value, first.word_of(attribute))]
        swapped = with_attribute(a, attribute, second_value), with_attribute(b, attribute, first_value)
        yield Edit("swap/att", wording, wording.replace_phrases([p, q], new_phrases), replace_groups(groups, *swapped))


# -- add


def add_object(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """Add an object: "a dog in a room", "a dog and a green chair in a room"."""
    groups, zones = groups_of(scene), ZONE_WEIGHTS[scene.setting]
    for _ in range(PICKS):
        zone = dice.weighted(tuple(zones), tuple(zones.values()))
        kind, colour = dice.pick(kinds_in(zone)), dice.pick(COLOURS)
        if any(item.kind == kind.name for item in scene.objects):
            continue
        spoken = WordedPhrase(Phrase(kind.name), "a", (), choose_noun(dice, kind.name))
        if dice.chance(50):
            spoken = spoken.with_attribute("colour", colour, colour)
        group = fit_size(SceneGroup(len(groups), kind, zone, colour, "plain", "small", 1, 0, 0))
        yield Edit("add/obj", wording, wording.add_phrase(spoken), (*groups, group))


def add_attribute(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """Add a colour, texture or size that the object does not have: "a dog", "a striped dog"."""
    groups = groups_of(scene)
    for place, number, attribute, value in _unnamed(dice, scene, wording):
        new_phrase = _with_value(dice, wording.spoken[place], attribute, value)
        yield Edit(
            "add/att",
            wording,
            wording.replace_phrases([place], [new_phrase]),
            replace_groups(groups, with_attribute(groups[number], attribute, value)),
        )


def _unnamed(dice: Dice, scene: Scene, wording: Wording) -> Iterator[tuple[int, int, str, str]]:
    """Phrase, group, an attribute that the caption does not name, and a value of it that the group does not have."""
    groups = groups_of(scene)
    for place, number in dice.shuffled(list(single_groups(scene, wording).items())):
        for attribute in dice.shuffled(("colour", "colour", "texture", "size")):
            if getattr(wording.spoken[place].phrase, attribute) is None:
                yield place, number, attribute, dice.pick(_other_values(groups[number], attribute))


def has_exact_count(wording: Wording, place: int) -> bool:
    return wording.spoken[place].phrase.count not in (None, SOME)


def add_counted_object(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """Add an object of a counted kind, with colours or textures that distinguish it from the others.

    "Two dogs by a lake", "two red dogs and a blue dog by a lake": there are three, so "two dogs" is false.
    """
    groups, places = groups_of(scene), single_groups(scene, wording)
    for place in dice.shuffled([place for place in places if has_exact_count(wording, place)]):
        group, spoken = groups[places[place]], wording.spoken[place]
        for attribute in ("colour", "texture"):
            current, value = getattr(group, attribute), dice.pick(_other_values(group, attribute))
            if getattr(spoken.phrase, attribute) is not None or current == "plain":
                continue
            added_phrase = WordedPhrase(Phrase(spoken.phrase.noun), "a", (), spoken.noun)
            distinguished = wording.replace_phrases([place], [_with_value(dice, spoken, attribute, current)])
            more = replace(with_attribute(group, attribute, value), count=1, number=len(groups))
            yield Edit(
                "add/obj", wording, distinguished.add_phrase(_with_value(dice, added_phrase, attribute, value)), (*groups, more)
            )


def add_counted_attribute(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """Add an attribute to a counted phrase, in a scene with one more object of the kind without it.

    "Two dogs by a lake", "two red dogs by a lake": there is a third one that is not red, so "two dogs" is false.
    """
    groups = groups_of(scene)
    for place, number, attribute, value in _unnamed(dice, scene, wording):
        if has_exact_count(wording, place):
            group, new_phrase = groups[number], _with_value(dice, wording.spoken[place], attribute, value)
            more = replace(group, count=1, number=len(groups))
            changed = replace_groups(groups, with_attribute(group, attribute, value), more)
            yield Edit("add/att", wording, wording.replace_phrases([place], [new_phrase]), changed)


CHANGES: dict[str, Propose] = {
    "replace/obj": replace_object,
    "replace/att": replace_attribute,
    "replace/rel": replace_relation,
    "swap/obj": swap_objects,
    "swap/att": swap_attributes,
}
CAPTION_EDITS: dict[str, Propose] = CHANGES | {"add/obj": add_object, "add/att": add_attribute}
IMAGE_EDITS: dict[str, Propose] = CHANGES | {"add/obj": add_counted_object, "add/att": add_counted_attribute}


# -- truth


def is_true_of(meaning: Meaning, scene: Scene) -> bool:
    """Whether the caption is true of the scene; like `truth`, but for one pair and without preparation.

    >>> from .scene_sampling import sample_scene
    >>> scene = sample_scene("docs", 1)
    >>> is_true_of(Meaning((), (), scene.setting), scene)
    True
    """
    sets = [set(extension(phrase, scene)) for phrase in meaning.phrases]
    if meaning.setting is not None and scene.setting not in SURROUNDINGS[meaning.setting]:
        return False
    for phrase, matching in zip(meaning.phrases, sets, strict=True):
        enough = len(matching) >= 2 if phrase.count == SOME else len(matching) == phrase.count if phrase.count else bool(matching)
        if not enough:
            return False
    for name, s, o in meaning.relations:  # from the leaves to the roots, keep objects that have a subject
        among, is_counted = any if meaning.phrases[s].count is None else all, meaning.phrases[o].count is not None
        if is_counted:
            sets[s] = {i for i in sets[s] if all((name, i, j) in scene.relations for j in sets[o])}
            has_match = bool(sets[s]) and (among is any or len(sets[s]) == meaning.phrases[s].count)
        else:
            sets[o] = {j for j in sets[o] if among((name, i, j) in scene.relations for i in sets[s])}
            has_match = bool(sets[o])
        if not has_match:
            return False
    return True


def is_true_negative(scene: Scene, edit: Edit) -> bool:
    """Whether the positive caption is true of the scene and the negative one is false."""
    try:
        positive, negative = edit.positive.caption, edit.negative.caption
    except CrossmatchError:  # two phrases of the edited caption could fit the same object
        return False
    return is_true_of(positive.meaning, scene) and not is_true_of(negative.meaning, scene)


def realise_edit(scene: Scene, edit: Edit, dice: Dice, *, unlike: bool = True) -> Scene | None:
    """A scene after the edit of which the negative caption is true and, if `unlike`, the positive one is false; else None."""
    positive, negative = edit.positive.caption.meaning, edit.negative.caption.meaning
    for version in edited_scenes(scene, edit.groups, dice, TRIES):
        if is_true_of(negative, version) and not (unlike and is_true_of(positive, version)):
            return version
    return None
