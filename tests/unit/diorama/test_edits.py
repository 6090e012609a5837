"""Edits change what they say they change, in the words and in the scene, and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest

from crossmatch.diorama.dice import Dice
from crossmatch.diorama.edits import CATEGORIES, IN_PICTURES, IN_WORDS, Edit, holds, misleading, realised
from crossmatch.diorama.grammar import describe, word
from crossmatch.diorama.kinds import KIND, Noun
from crossmatch.diorama.layout import ZONE_WEIGHTS, all_relations, crisp, sample_scene
from crossmatch.diorama.meaning import Meaning, Phrase
from crossmatch.diorama.rearrange import groups_of, in_place, versions, zone_of
from crossmatch.diorama.scenes import SIZES, Scene
from crossmatch.diorama.truth import truth
from crossmatch.diorama.wording import RELATION_WORDS, WORDED, Spoken, Wording, article, verbs_of

SCENES = [sample_scene("edits", i) for i in range(150)]
ATTRIBUTES = ("colour", "texture", "size")


def proposals(category: str, table: dict = IN_WORDS) -> list[tuple[Scene, Edit]]:
    """Every edit of the category that is proposed for the captions of some scenes and that the truth allows."""
    found = []
    for n, scene in enumerate(SCENES):
        for wording in word(scene):
            edits = table[category](Dice("test", n), scene, wording)
            found += [(scene, edit) for edit in edits if misleading(scene, edit)]
    return found


PROPOSED = {category: proposals(category) for category in CATEGORIES}
COUNTED = {category: proposals(category, IN_PICTURES) for category in ("add/obj", "add/att")}
ALL = [pair for pairs in (*PROPOSED.values(), *COUNTED.values()) for pair in pairs]


def phrases(wording: Wording) -> tuple[Phrase, ...]:
    return wording.caption.meaning.phrases


def test_one_pair_is_decided_like_all_pairs() -> None:
    captions = [caption for scene in SCENES for caption in describe(scene)]
    said = truth(SCENES, captions)
    assert said.mean() < 0.5
    assert [[holds(caption.meaning, scene) for caption in captions] for scene in SCENES] == said.tolist()


def test_wordings_are_the_captions() -> None:
    for scene in SCENES:
        wordings = word(scene, 3)
        assert tuple(wording.caption for wording in wordings) == describe(scene, 3)
        for wording in wordings:
            assert all(words in wording.text for words, _, _ in wording.claims)
            assert wording.relations == wording.caption.meaning.relations
            assert wording.suited() is wording
    assert len(WORDED) == len({words for forms in RELATION_WORDS.values() for words, _ in forms})


def test_every_category_has_edits() -> None:
    assert {category: len(pairs) > 30 for category, pairs in (PROPOSED | COUNTED).items()} == dict.fromkeys(CATEGORIES, True)
    assert all(edit.category == category for category, pairs in PROPOSED.items() for _, edit in pairs)


def test_replaced_objects() -> None:
    for scene, edit in PROPOSED["replace/obj"]:
        pairs = list(zip(phrases(edit.positive), phrases(edit.negative), strict=True))
        changed = [(a, b) for a, b in pairs if a != b]
        assert [replace(a, noun=b.noun) for a, b in changed] == [changed[0][1]]
        assert edit.positive.relations == edit.negative.relations
        assert edit.positive.verb == edit.negative.verb
        assert len(words(edit.negative.text) - words(edit.positive.text)) <= 3  # "pair of scissors"
        kinds = [(a.kind, b.kind) for a, b in zip(groups_of(scene), edit.groups, strict=True) if a.kind != b.kind]
        assert len(kinds) == 1


@pytest.mark.parametrize("category", ["replace/att", "add/att"])
def test_one_attribute_is_replaced_or_added(category: str) -> None:
    for _, edit in PROPOSED[category] + COUNTED.get(category, []):
        pairs = zip(phrases(edit.positive), phrases(edit.negative), strict=True)
        values = [(getattr(a, name), getattr(b, name)) for a, b in pairs for name in ATTRIBUTES]
        changed = [(old, new) for old, new in values if old != new]
        assert len(changed) == 1
        assert (changed[0][0] is None) == (category == "add/att")
        assert changed[0][1] is not None
        assert [replace(p, colour=None, texture=None, size=None) for p in phrases(edit.positive)] == [
            replace(p, colour=None, texture=None, size=None) for p in phrases(edit.negative)
        ]
        assert len(words(edit.negative.text) - words(edit.positive.text)) <= 2  # "with stripes"


def test_replaced_relations() -> None:
    for _, edit in PROPOSED["replace/rel"]:
        assert phrases(edit.positive) == phrases(edit.negative)
        changed = [(a, b) for a, b in zip(edit.positive.claims, edit.negative.claims, strict=True) if a != b]
        assert len(changed) == 1
        assert changed[0][0][1:] == changed[0][1][1:]
    said = {words for _, edit in PROPOSED["replace/rel"] for words, *_ in set(edit.negative.claims) - set(edit.positive.claims)}
    assert said >= {"left of", "right of", "above", "below", "on", "behind", "in front of"}


def test_swapped_objects() -> None:
    for _, edit in PROPOSED["swap/obj"]:
        before, after = phrases(edit.positive), phrases(edit.negative)
        assert [replace(phrase, noun="thing") for phrase in before] == [replace(phrase, noun="thing") for phrase in after]
        assert Counter(phrase.noun for phrase in before) == Counter(phrase.noun for phrase in after)
        assert sum(a.noun != b.noun for a, b in zip(before, after, strict=True)) == 2


def words(text: str) -> set[str]:
    """Which words are said: "the dog" says no other words than "a red dog" before it did."""
    return set(re.findall(r"[\w-]+", text.lower())) - {"a", "an"}


def test_swapped_attributes_are_the_same_words() -> None:
    for _, edit in PROPOSED["swap/att"]:
        before, after = phrases(edit.positive), phrases(edit.negative)
        for name in ATTRIBUTES:
            assert Counter(getattr(p, name) for p in before) == Counter(getattr(p, name) for p in after)
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 2
        assert words(edit.positive.text) == words(edit.negative.text)


def test_added_objects() -> None:
    for scene, edit in PROPOSED["add/obj"]:
        assert phrases(edit.negative)[:-1] == phrases(edit.positive)
        assert not any(phrases(edit.negative)[-1].noun == thing.kind for thing in scene.things)
        assert len(edit.groups) == len(groups_of(scene)) + 1
    for _, edit in COUNTED["add/obj"]:
        *others, new = phrases(edit.negative)
        changed = [(a, b) for a, b in zip(phrases(edit.positive), others, strict=True) if a != b]
        assert len(changed) == 1
        assert changed[0][0].noun == changed[0][1].noun == new.noun
        assert changed[0][0].count == changed[0][1].count is not None


def test_a_plain_addition_never_contradicts() -> None:
    """Why `add/obj` needs a number: what is only added to leaves the positive caption true."""
    for scene, edit in PROPOSED["add/obj"][:60]:
        edited = realised(scene, edit, Dice(1), unlike=False)
        assert edited is None or holds(edit.positive.caption.meaning, edited)


def test_edited_captions_look_like_sentences() -> None:
    for _, edit in ALL:
        text = edit.negative.text
        assert re.fullmatch(r"[A-Z][A-Za-z ,;-]*[a-zVA-Z]\.", text), text
        assert "  " not in text
        assert " ," not in text
        assert not re.search(r"\b(\w+) \1\b", text), text
        assert all(said.lower() == article(noun) for said, noun in re.findall(r"\b([Aa]n?) (\w[\w-]*)", text)), text


def test_verbs_say_nothing_that_the_meaning_does_not() -> None:
    for _, edit in ALL:
        new = edit.negative
        if "{verb}" in new.template:
            rel, a, _ = new.claims[0] if new.claims else ("", 0, 0)
            assert new.verb in (("is", "sits", "rests") if rel in ("on", "on top of") else verbs_of(new.spoken[a].phrase.noun))


def looks_right(scene: Scene) -> None:
    """What `layout` promises of every scene."""
    composed = {(i, j): name for name, i, j in scene.relations if name in ("on", "behind")}
    assert scene.relations == all_relations(scene.things, [(name, i, j) for (i, j), name in composed.items()])
    assert 1 <= len(scene.things) <= 8
    groups = groups_of(scene)
    assert len({(group.kind, group.colour, group.texture) for group in groups}) == len(groups)
    assert all(group.count == sum(thing.group == group.number for thing in scene.things) for group in groups)
    for i, thing in enumerate(scene.things):
        assert zone_of(scene, thing) in KIND[thing.kind].places
        assert zone_of(scene, thing) in ZONE_WEIGHTS[scene.setting]
        assert 20 <= thing.box.x0 < thing.box.x1 <= 980
        assert 0 <= thing.box.y0 < thing.box.y1 <= 960
        carried = [j for (a, j), name in composed.items() if a == i and name == "on"]
        assert len(carried) == (thing.footing == "on")
        for j in carried:
            support = scene.things[j]
            assert KIND[thing.kind].perches
            assert KIND[support.kind].supports
            assert SIZES.index(thing.size) < SIZES.index(support.size)
            assert support.tilt == 0
    for (i, a), (j, b) in permutations(enumerate(scene.things), 2):
        if (j, i) not in composed:
            assert crisp(a, b, composed.get((i, j), ""))


def test_edited_scenes_are_as_crisp_as_the_others() -> None:
    made = Counter()
    for scene, edit in ALL[::3]:
        for version in versions(scene, edit.groups, Dice("versions", scene.seed), 2):
            looks_right(version)
            assert (version.setting, version.light, version.seed) == (scene.setting, scene.light, scene.seed)
            looks = Counter((g.kind.name, g.colour, g.texture, g.size, g.count) for g in groups_of(version))
            assert looks == Counter((g.kind.name, g.colour, g.texture, g.size, g.count) for g in edit.groups)
            made[edit.category] += 1
    assert min(made[category] for category in CATEGORIES) > 10


def test_unchanged_groups_stay_where_they_are() -> None:
    for scene in SCENES:
        kept = in_place(scene, groups_of(scene))
        assert kept is not None
        assert [replace(thing, group=0) for thing in kept.things] == [replace(thing, group=0) for thing in scene.things]
        assert kept.relations == scene.relations
        recoloured = [replace(group, colour="green", texture="plain") for group in groups_of(scene)]
        edited = in_place(scene, recoloured)
        assert edited is not None
        assert Counter(thing.box for thing in edited.things) == Counter(thing.box for thing in scene.things)


def test_things_that_do_not_fit_are_refused() -> None:
    scene = next(scene for scene in SCENES if scene.setting == "desert")
    groups = groups_of(scene)
    assert not list(versions(scene, [replace(groups[0], kind=KIND["fish"], zone="water")], Dice(1), 3))
    assert not list(versions(scene, [*groups, replace(groups[0], number=len(groups))], Dice(1), 3))  # cannot be told apart
    assert not list(versions(scene, [replace(groups[0], count=9)], Dice(1), 3))


DOG = Spoken(Phrase("dog", "red", "striped", "small"), "a", ("tiny", "red", "striped"), Noun("dog", "dogs"))


@pytest.mark.parametrize(
    ("spoken", "attribute", "value", "said", "text"),
    [
        (DOG, "colour", "orange", "orange", "a tiny orange striped dog"),
        (DOG, "size", "large", "huge", "a huge red striped dog"),
        (DOG, "texture", "plain", "plain", "a tiny plain red dog"),
        (DOG, "texture", "dotted", "with dots", "a tiny red dog with dots"),
        (replace(DOG, adjectives=("tiny", "red"), tail="with stripes"), "texture", "dotted", "spotted", "a tiny red spotted dog"),
        (replace(DOG, adjectives=("tiny", "red"), tail="with stripes"), "colour", "blue", "blue", "a tiny blue dog with stripes"),
        (Spoken(Phrase("egg", size="small"), "a", ("little",), Noun("egg", "eggs")), "colour", "red", "red", "a little red egg"),
        (Spoken(Phrase("egg", "red"), "a", ("red",), Noun("egg", "eggs")), "size", "large", "big", "a big red egg"),
    ],
)
def test_attributes_in_words(spoken: Spoken, attribute: str, value: str, said: str, text: str) -> None:
    changed = spoken.saying(attribute, value, said)
    assert changed.text == text
    assert changed.word_of(attribute) == said
    assert getattr(changed.phrase, attribute) == value


def test_a_caption_that_could_mean_one_thing_twice_is_no_edit() -> None:
    scene = next(scene for scene in SCENES if len(groups_of(scene)) > 1)
    wording = word(scene)[0]
    twice = replace(wording, spoken=(wording.spoken[0], wording.spoken[0]), claims=())
    assert not misleading(scene, Edit("swap/obj", wording, twice, groups_of(scene)))
    assert not misleading(scene, Edit("swap/obj", wording, wording, groups_of(scene)))
    assert holds(Meaning(phrases(wording)), scene)
