"""Edits of a scene and one of its captions: replace, swap or add an object, an attribute or a relation.

The seven categories of SugarCrepe (hsieh2023sugarcrepe), applied to what a caption says and to the scene that it is said
of. A negative caption keeps all words of the positive one that the edit leaves alone. An edit is a proposal: whether
its captions are true of its scenes, and of which, is for `truth` to decide (see `confirmed`).

ADD needs care: a caption with something added still implies the caption without it, and then both are true of the
edited scene (miranda2024bivlc, sec. 3.1, step 4). Only exact numbers are not so. "Two dogs" is false where there are
three, but "two red dogs" and "two red dogs and a blue one" are not. `add_counted_object` and `add_counted_attribute`
therefore add to a phrase with a number, in a scene with one more thing of the kind; `add_object` and `add_attribute` are
for benchmarks without the edited picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from crossmatch.core.errors import CrossmatchError

from .grammar import choose_noun
from .kinds import KIND, Kind, ancestors, kinds_of
from .layout import ZONE_WEIGHTS, Group, kinds_in
from .meaning import SOME, SURROUNDINGS, Meaning, Phrase, extension
from .rearrange import fitted, ground_of, groups_of, versions
from .scenes import COLOURS, SIZES, Scene
from .wording import ATTRIBUTE_WORDS, RELATION_WORDS, TEXTURE_TAILS, WORDED, Spoken, Wording

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .dice import Dice

CATEGORIES = ("replace/obj", "replace/att", "replace/rel", "swap/obj", "swap/att", "add/obj", "add/att")
PICKS = 4  # of a new kind for the same phrase
TRIES = 12  # at laying out the same groups
VALUES = {"colour": COLOURS, "texture": ("striped", "dotted"), "size": ("small", "large")}


@dataclass(frozen=True)
class Edit:
    """A caption, the caption after the edit, and the groups of the scene that the latter is meant to be true of."""

    category: str
    positive: Wording
    negative: Wording
    groups: tuple[Group, ...]


Propose = Callable[["Dice", Scene, Wording], Iterator[Edit]]


def single_groups(scene: Scene, wording: Wording) -> dict[int, int]:
    """For each phrase that is about exactly one group of the scene, the number of that group."""
    about = [{scene.things[i].group for i in extension(spoken.phrase, scene)} for spoken in wording.spoken]
    return {place: min(numbers) for place, numbers in enumerate(about) if len(numbers) == 1}


def with_groups(groups: Sequence[Group], *changed: Group) -> tuple[Group, ...]:
    new = {group.number: group for group in changed}
    return tuple(new.pop(group.number, group) for group in groups) + tuple(new.values())


def suits(wording: Wording, place: int, kind: Kind) -> bool:
    """Whether a thing of the kind could carry, or be put on, what the caption says it does."""
    roles = [(s, o) for name, s, o in wording.relations if name == "on"]
    return all((s != place or kind.perches) and (o != place or kind.supports) for s, o in roles)


def _said(dice: Dice, spoken: Spoken, attribute: str, value: str) -> Spoken:
    """The phrase with this value: "with stripes" becomes "with dots", "striped" becomes "dotted"."""
    tail = attribute == "texture" and spoken.tail and value in TEXTURE_TAILS
    words = TEXTURE_TAILS[value] if tail else ATTRIBUTE_WORDS[attribute][value]
    return spoken.saying(attribute, value, dice.pick(words))


def _other_values(group: Group, attribute: str) -> list[str]:
    """What else it could be said to be. Nobody says "plain" or "medium-sized", and a caption that did would give itself away."""
    return [value for value in VALUES[attribute] if value != getattr(group, attribute)]


def looking(group: Group, attribute: str, value: str) -> Group:
    changed = replace(group, **{attribute: value})  # type: ignore[arg-type]  # all three attributes are texts
    return fitted(changed) if attribute == "size" else changed


# -- replace


def replace_object(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """Another kind of thing that could be there: "a dog by a lake", "a horse by a lake"."""
    groups = groups_of(scene)
    for place, number in dice.shuffled(list(single_groups(scene, wording).items())):
        group, spoken = groups[number], wording.spoken[place]
        for _ in range(PICKS):
            kind = dice.pick(kinds_in(group.zone))
            names = [kind.name] if spoken.phrase.noun in KIND else [name for name in ancestors(kind.name) if name != "thing"]
            name = dice.pick(names) if names else "thing"
            strange = kinds_of(name).isdisjoint(thing.kind for thing in scene.things)
            if not strange or not suits(wording, place, kind):
                continue
            noun = choose_noun(dice, name)
            new = wording.replaced([place], [replace(spoken, phrase=replace(spoken.phrase, noun=name), noun=noun)])
            if new.verb == wording.verb:
                yield Edit("replace/obj", wording, new, with_groups(groups, fitted(replace(group, kind=kind))))


def replace_attribute(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """Another colour, texture or size: "a red dog", "a blue dog"."""
    groups = groups_of(scene)
    named = [(p, n, a) for p, n in single_groups(scene, wording).items() for a in VALUES if getattr(wording.spoken[p].phrase, a)]
    for place, number, attribute in dice.shuffled(named):
        group, spoken = groups[number], wording.spoken[place]
        value = dice.pick(_other_values(group, attribute))
        new = wording.replaced([place], [_said(dice, spoken, attribute, value)])
        yield Edit("replace/att", wording, new, with_groups(groups, looking(group, attribute, value)))


def replace_relation(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """Another relation that could hold: "a dog behind a car", "a dog to the left of a car"."""
    groups, places = groups_of(scene), single_groups(scene, wording)
    for at in dice.shuffled(range(len(wording.claims))):
        words, first, second = wording.claims[at]
        if first not in places or second not in places:
            continue
        old, a, b = WORDED[words][0], groups[places[first]], groups[places[second]]
        form = next(i for i, (said, _) in enumerate(RELATION_WORDS[old]) if said == words)
        others = [forms[form][0] for name, forms in RELATION_WORDS.items() if name not in (old, "behind")]
        others += [said for said in ("behind", "in front of") if said != words]
        rare_first = dice.chance(70)  # or most would be about left and right, which any two things can stand to each other
        for new in sorted(dice.shuffled(others), key=lambda said: rare_first and WORDED[said][0] in ("left of", "right of")):
            moved = moved_apart(scene, a, b, new)
            if moved:
                yield Edit("replace/rel", wording, wording.claiming(at, new), with_groups(groups, *moved))


def moved_apart(scene: Scene, a: Group, b: Group, words: str) -> tuple[Group, Group] | None:
    """The two groups in zones where they could stand to each other as `words` say; None if there are none."""
    name, about = WORDED[words]
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
    elif a.zone != b.zone:  # left and right are clear side by side; what is above stays above
        a, b = (replace(group, zone=ground if ground in group.kind.places else group.zone) for group in (a, b))
    known = all(group.zone in group.kind.places and group.zone in ZONE_WEIGHTS[scene.setting] for group in (a, b))
    return (a, b) if known else None


# -- swap


def swap_objects(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """Two nouns change places: "two cats left of a dog", "two dogs left of a cat"."""
    groups, places = groups_of(scene), single_groups(scene, wording)
    for p, q in dice.shuffled(list(combinations(places, 2))):
        a, b = groups[places[p]], groups[places[q]]
        first, second = wording.spoken[p], wording.spoken[q]
        if a.kind == b.kind or not (suits(wording, p, b.kind) and suits(wording, q, a.kind)):
            continue
        named = [replace(first, phrase=replace(first.phrase, noun=second.phrase.noun), noun=second.noun)]
        named += [replace(second, phrase=replace(second.phrase, noun=first.phrase.noun), noun=first.noun)]
        swapped = fitted(replace(a, kind=b.kind, zone=b.zone)), fitted(replace(b, kind=a.kind, zone=a.zone))
        yield Edit("swap/obj", wording, wording.replaced([p, q], named), with_groups(groups, *swapped))


def swap_attributes(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """Two colours, textures or sizes change places: "a red dog and a blue cat", "a blue dog and a red cat"."""
    groups, places = groups_of(scene), single_groups(scene, wording)
    for p, q, attribute in dice.shuffled([(p, q, a) for p, q in combinations(places, 2) for a in VALUES]):
        a, b = groups[places[p]], groups[places[q]]
        first, second = wording.spoken[p], wording.spoken[q]
        one, other = getattr(first.phrase, attribute), getattr(second.phrase, attribute)
        if None in (one, other) or one == other:
            continue
        said = [first.saying(attribute, other, second.word_of(attribute))]
        said += [second.saying(attribute, one, first.word_of(attribute))]
        swapped = looking(a, attribute, other), looking(b, attribute, one)
        yield Edit("swap/att", wording, wording.replaced([p, q], said), with_groups(groups, *swapped))


# -- add


def add_object(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """One thing more: "a dog in a room", "a dog and a green chair in a room"."""
    groups, zones = groups_of(scene), ZONE_WEIGHTS[scene.setting]
    for _ in range(PICKS):
        zone = dice.weighted(tuple(zones), tuple(zones.values()))
        kind, colour = dice.pick(kinds_in(zone)), dice.pick(COLOURS)
        if any(thing.kind == kind.name for thing in scene.things):
            continue
        spoken = Spoken(Phrase(kind.name), "a", (), choose_noun(dice, kind.name))
        if dice.chance(50):
            spoken = spoken.saying("colour", colour, colour)
        group = fitted(Group(len(groups), kind, zone, colour, "plain", "small", 1, 0, 0))
        yield Edit("add/obj", wording, wording.along_with(spoken), (*groups, group))


def add_attribute(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """A colour, texture or size that it does not have: "a dog", "a striped dog"."""
    groups = groups_of(scene)
    for place, number, attribute, value in _unnamed(dice, scene, wording):
        said = _said(dice, wording.spoken[place], attribute, value)
        yield Edit(
            "add/att", wording, wording.replaced([place], [said]), with_groups(groups, looking(groups[number], attribute, value))
        )


def _unnamed(dice: Dice, scene: Scene, wording: Wording) -> Iterator[tuple[int, int, str, str]]:
    """Place, group, an attribute that the caption does not name, and a value of it that the group has not."""
    groups = groups_of(scene)
    for place, number in dice.shuffled(list(single_groups(scene, wording).items())):
        for attribute in dice.shuffled(("colour", "colour", "texture", "size")):
            if getattr(wording.spoken[place].phrase, attribute) is None:
                yield place, number, attribute, dice.pick(_other_values(groups[number], attribute))


def counted(wording: Wording, place: int) -> bool:
    return wording.spoken[place].phrase.count not in (None, SOME)


def add_counted_object(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """One more of a counted kind, which the colour or texture now has to tell from the others.

    "Two dogs by a lake", "two red dogs and a blue dog by a lake": there are three, so that "two dogs" is false.
    """
    groups, places = groups_of(scene), single_groups(scene, wording)
    for place in dice.shuffled([place for place in places if counted(wording, place)]):
        group, spoken = groups[places[place]], wording.spoken[place]
        for attribute in ("colour", "texture"):
            has, value = getattr(group, attribute), dice.pick(_other_values(group, attribute))
            if getattr(spoken.phrase, attribute) is not None or has == "plain":
                continue
            one = Spoken(Phrase(spoken.phrase.noun), "a", (), spoken.noun)
            told = wording.replaced([place], [_said(dice, spoken, attribute, has)])
            more = replace(looking(group, attribute, value), count=1, number=len(groups))
            yield Edit("add/obj", wording, told.along_with(_said(dice, one, attribute, value)), (*groups, more))


def add_counted_attribute(dice: Dice, scene: Scene, wording: Wording) -> Iterator[Edit]:
    """An attribute of a counted phrase, in a scene with one more of the kind that has it not.

    "Two dogs by a lake", "two red dogs by a lake": there is a third one, which is not red, so that "two dogs" is false.
    """
    groups = groups_of(scene)
    for place, number, attribute, value in _unnamed(dice, scene, wording):
        if counted(wording, place):
            group, said = groups[number], _said(dice, wording.spoken[place], attribute, value)
            more = replace(group, count=1, number=len(groups))
            changed = with_groups(groups, looking(group, attribute, value), more)
            yield Edit("add/att", wording, wording.replaced([place], [said]), changed)


CHANGES: dict[str, Propose] = {
    "replace/obj": replace_object,
    "replace/att": replace_attribute,
    "replace/rel": replace_relation,
    "swap/obj": swap_objects,
    "swap/att": swap_attributes,
}
IN_WORDS: dict[str, Propose] = CHANGES | {"add/obj": add_object, "add/att": add_attribute}
IN_PICTURES: dict[str, Propose] = CHANGES | {"add/obj": add_counted_object, "add/att": add_counted_attribute}


# -- what holds


def holds(meaning: Meaning, scene: Scene) -> bool:
    """Whether the caption is true of the scene: one pair of what `truth` decides for all pairs, without its preparations.

    >>> from .layout import sample_scene
    >>> scene = sample_scene("docs", 1)
    >>> holds(Meaning((), (), scene.setting), scene)
    True
    """
    sets = [set(extension(phrase, scene)) for phrase in meaning.phrases]
    if meaning.setting is not None and scene.setting not in SURROUNDINGS[meaning.setting]:
        return False
    for phrase, found in zip(meaning.phrases, sets, strict=True):
        enough = len(found) >= 2 if phrase.count == SOME else len(found) == phrase.count if phrase.count else bool(found)
        if not enough:
            return False
    for name, s, o in meaning.relations:  # from the leaves to the roots: what is left of an object is what has its subject
        among, whole = any if meaning.phrases[s].count is None else all, meaning.phrases[o].count is not None
        if whole:
            sets[s] = {i for i in sets[s] if all((name, i, j) in scene.relations for j in sets[o])}
            left = bool(sets[s]) and (among is any or len(sets[s]) == meaning.phrases[s].count)
        else:
            sets[o] = {j for j in sets[o] if among((name, i, j) in scene.relations for i in sets[s])}
            left = bool(sets[o])
        if not left:
            return False
    return True


def misleading(scene: Scene, edit: Edit) -> bool:
    """Whether the positive caption is true of the scene, and the negative one says something else that is not."""
    try:
        positive, negative = edit.positive.caption, edit.negative.caption
    except CrossmatchError:  # two phrases of the edited caption could be about the same thing
        return False
    return holds(positive.meaning, scene) and not holds(negative.meaning, scene)


def realised(scene: Scene, edit: Edit, dice: Dice, *, unlike: bool = True) -> Scene | None:
    """A scene after the edit of which the negative caption is true and, if `unlike`, the positive one is not; else None."""
    positive, negative = edit.positive.caption.meaning, edit.negative.caption.meaning
    for version in versions(scene, edit.groups, dice, TRIES):
        if holds(negative, version) and not (unlike and holds(positive, version)):
            return version
    return None
