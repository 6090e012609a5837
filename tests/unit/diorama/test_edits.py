"""Edits change one part of a caption and of its scene, and nothing else."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest

from crossmatch.diorama.caption_meaning import Meaning, Phrase
from crossmatch.diorama.caption_writer import describe, word_captions
from crossmatch.diorama.edited_scenes import change_in_place, edited_scenes, groups_of, zone_of
from crossmatch.diorama.edits import CAPTION_EDITS, CATEGORIES, IMAGE_EDITS, Edit, is_true_negative, is_true_of, realise_edit
from crossmatch.diorama.object_kinds import KIND, Noun
from crossmatch.diorama.random_choices import Dice
from crossmatch.diorama.scene_sampling import ZONE_WEIGHTS, all_relations, is_unambiguous, sample_scene
from crossmatch.diorama.scenes import SIZES, Scene
from crossmatch.diorama.truth import truth
from crossmatch.diorama.wording import RELATION_OF_WORDS, RELATION_WORDS, WordedPhrase, Wording, verbs_of
from diorama_checks import assert_is_sentence

SCENES = [sample_scene("edits", i) for i in range(150)]
ATTRIBUTES = ("colour", "texture", "size")


def proposals(category: str, table: dict = CAPTION_EDITS) -> list[tuple[Scene, Edit]]:
    """Every proposed edit of the category, for all captions of `SCENES`, whose negative caption is false."""
    scenes_and_edits = []
    for n, scene in enumerate(SCENES):
        for wording in word_captions(scene):
            edits = table[category](Dice("test", n), scene, wording)
            scenes_and_edits += [(scene, edit) for edit in edits if is_true_negative(scene, edit)]
    return scenes_and_edits


PROPOSED = {category: proposals(category) for category in CATEGORIES}
COUNTED = {category: proposals(category, IMAGE_EDITS) for category in ("add/obj", "add/att")}
ALL = [pair for pairs in (*PROPOSED.values(), *COUNTED.values()) for pair in pairs]


def phrases(wording: Wording) -> tuple[Phrase, ...]:
    return wording.caption.meaning.phrases


def test_truth_of_one_pair_equals_truth_of_all_pairs() -> None:
    captions = [caption for scene in SCENES for caption in describe(scene)]
    expected = truth(SCENES, captions)
    assert expected.mean() < 0.5
    assert [[is_true_of(caption.meaning, scene) for caption in captions] for scene in SCENES] == expected.tolist()


def test_wordings_give_the_captions() -> None:
    for scene in SCENES:
        wordings = word_captions(scene, 3)
        assert tuple(wording.caption for wording in wordings) == describe(scene, 3)
        for wording in wordings:
            assert all(words in wording.text for words, _, _ in wording.claims)
            assert wording.relations == wording.caption.meaning.relations
            assert wording.fit_verb() is wording
    assert len(RELATION_OF_WORDS) == len({words for forms in RELATION_WORDS.values() for words, _ in forms})


def test_every_category_has_edits() -> None:
    assert {category: len(pairs) > 30 for category, pairs in (PROPOSED | COUNTED).items()} == dict.fromkeys(CATEGORIES, True)
    assert all(edit.category == category for category, pairs in PROPOSED.items() for _, edit in pairs)


def test_replaced_object_changes_one_noun_and_one_kind() -> None:
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
def test_exactly_one_attribute_is_replaced_or_added(category: str) -> None:
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


def test_replaced_relation_changes_one_claim() -> None:
    for _, edit in PROPOSED["replace/rel"]:
        assert phrases(edit.positive) == phrases(edit.negative)
        changed = [(a, b) for a, b in zip(edit.positive.claims, edit.negative.claims, strict=True) if a != b]
        assert len(changed) == 1
        assert changed[0][0][1:] == changed[0][1][1:]
    new_claims = [claim for _, edit in PROPOSED["replace/rel"] for claim in set(edit.negative.claims) - set(edit.positive.claims)]
    assert {relation for relation, *_ in new_claims} >= {"left of", "right of", "above", "below", "on", "behind", "in front of"}


def test_swapped_objects_exchange_two_nouns() -> None:
    for _, edit in PROPOSED["swap/obj"]:
        before, after = phrases(edit.positive), phrases(edit.negative)
        assert [replace(phrase, noun="thing") for phrase in before] == [replace(phrase, noun="thing") for phrase in after]
        assert Counter(phrase.noun for phrase in before) == Counter(phrase.noun for phrase in after)
        assert sum(a.noun != b.noun for a, b in zip(before, after, strict=True)) == 2


def words(text: str) -> set[str]:
    """The words of a text, without indefinite articles."""
    return set(re.findall(r"[\w-]+", text.lower())) - {"a", "an"}


def test_swapped_attributes_keep_the_words() -> None:
    for _, edit in PROPOSED["swap/att"]:
        before, after = phrases(edit.positive), phrases(edit.negative)
        for name in ATTRIBUTES:
            assert Counter(getattr(p, name) for p in before) == Counter(getattr(p, name) for p in after)
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 2
        assert words(edit.positive.text) == words(edit.negative.text)


def test_added_object_is_a_new_phrase_and_group() -> None:
    for scene, edit in PROPOSED["add/obj"]:
        assert phrases(edit.negative)[:-1] == phrases(edit.positive)
        assert not any(phrases(edit.negative)[-1].noun == item.kind for item in scene.objects)
        assert len(edit.groups) == len(groups_of(scene)) + 1
    for _, edit in COUNTED["add/obj"]:
        *old, new = phrases(edit.negative)
        changed = [(a, b) for a, b in zip(phrases(edit.positive), old, strict=True) if a != b]
        assert len(changed) == 1
        assert changed[0][0].noun == changed[0][1].noun == new.noun
        assert changed[0][0].count == changed[0][1].count is not None


def test_addition_without_a_number_leaves_the_positive_caption_true() -> None:
    for scene, edit in PROPOSED["add/obj"][:60]:
        edited = realise_edit(scene, edit, Dice(1), unlike=False)
        assert edited is None or is_true_of(edit.positive.caption.meaning, edited)


def test_edited_captions_are_sentences() -> None:
    for _, edit in ALL:
        assert_is_sentence(edit.negative.text)


def test_verb_fits_every_object_of_the_new_subject() -> None:
    for _, edit in ALL:
        new = edit.negative
        if "{verb}" in new.template:
            relation, a, _ = new.claims[0] if new.claims else ("", 0, 0)
            on_verbs = ("is", "sits", "rests")
            assert new.verb in (on_verbs if relation in ("on", "on top of") else verbs_of(new.spoken[a].phrase.noun))


def assert_follows_the_rules(scene: Scene) -> None:
    """The rules of `layout` for every scene."""
    composed = {(i, j): name for name, i, j in scene.relations if name in ("on", "behind")}
    assert scene.relations == all_relations(scene.objects, [(name, i, j) for (i, j), name in composed.items()])
    assert 1 <= len(scene.objects) <= 8
    groups = groups_of(scene)
    assert len({(group.kind, group.colour, group.texture) for group in groups}) == len(groups)
    assert all(group.count == sum(item.group == group.number for item in scene.objects) for group in groups)
    for i, item in enumerate(scene.objects):
        assert zone_of(scene, item) in KIND[item.kind].places
        assert zone_of(scene, item) in ZONE_WEIGHTS[scene.setting]
        assert 20 <= item.box.x0 < item.box.x1 <= 980
        assert 0 <= item.box.y0 < item.box.y1 <= 960
        carried = [j for (a, j), name in composed.items() if a == i and name == "on"]
        assert len(carried) == (item.footing == "on")
        for j in carried:
            support = scene.objects[j]
            assert KIND[item.kind].perches
            assert KIND[support.kind].supports
            assert SIZES.index(item.size) < SIZES.index(support.size)
            assert support.tilt == 0
    for (i, a), (j, b) in permutations(enumerate(scene.objects), 2):
        if (j, i) not in composed:
            assert is_unambiguous(a, b, composed.get((i, j), ""))


def test_edited_scenes_follow_the_rules_of_the_layout() -> None:
    counts = Counter()
    for scene, edit in ALL[::3]:
        for version in edited_scenes(scene, edit.groups, Dice("versions", scene.seed), 2):
            assert_follows_the_rules(version)
            assert (version.setting, version.light, version.seed) == (scene.setting, scene.light, scene.seed)
            looks = Counter((g.kind.name, g.colour, g.texture, g.size, g.count) for g in groups_of(version))
            assert looks == Counter((g.kind.name, g.colour, g.texture, g.size, g.count) for g in edit.groups)
            counts[edit.category] += 1
    assert min(counts[category] for category in CATEGORIES) > 10


def test_unchanged_groups_keep_their_places() -> None:
    for scene in SCENES:
        unchanged = change_in_place(scene, groups_of(scene))
        assert unchanged is not None
        assert [replace(item, group=0) for item in unchanged.objects] == [replace(item, group=0) for item in scene.objects]
        assert unchanged.relations == scene.relations
        recoloured = [replace(group, colour="green", texture="plain") for group in groups_of(scene)]
        edited = change_in_place(scene, recoloured)
        assert edited is not None
        assert Counter(item.box for item in edited.objects) == Counter(item.box for item in scene.objects)


def test_groups_that_do_not_fit_give_no_scene() -> None:
    scene = next(scene for scene in SCENES if scene.setting == "desert")
    groups = groups_of(scene)
    assert not list(edited_scenes(scene, [replace(groups[0], kind=KIND["fish"], zone="water")], Dice(1), 3))
    assert not list(edited_scenes(scene, [*groups, replace(groups[0], number=len(groups))], Dice(1), 3))  # equal groups
    assert not list(edited_scenes(scene, [replace(groups[0], count=9)], Dice(1), 3))


DOG = WordedPhrase(Phrase("dog", "red", "striped", "small"), "a", ("tiny", "red", "striped"), Noun("dog", "dogs"))


@pytest.mark.parametrize(
    ("spoken", "attribute", "value", "word", "text"),
    [
        (DOG, "colour", "orange", "orange", "a tiny orange striped dog"),
        (DOG, "size", "large", "huge", "a huge red striped dog"),
        (DOG, "texture", "plain", "plain", "a tiny plain red dog"),
        (DOG, "texture", "dotted", "with dots", "a tiny red dog with dots"),
        (replace(DOG, adjectives=("tiny", "red"), tail="with stripes"), "texture", "dotted", "spotted", "a tiny red spotted dog"),
        (replace(DOG, adjectives=("tiny", "red"), tail="with stripes"), "colour", "blue", "blue", "a tiny blue dog with stripes"),
        (
            WordedPhrase(Phrase("egg", size="small"), "a", ("little",), Noun("egg", "eggs")),
            "colour",
            "red",
            "red",
            "a little red egg",
        ),
        (WordedPhrase(Phrase("egg", "red"), "a", ("red",), Noun("egg", "eggs")), "size", "large", "big", "a big red egg"),
    ],
)
def test_attribute_replaces_the_old_word(spoken: WordedPhrase, attribute: str, value: str, word: str, text: str) -> None:
    changed = spoken.with_attribute(attribute, value, word)
    assert changed.text == text
    assert changed.word_of(attribute) == word
    assert getattr(changed.phrase, attribute) == value


def test_equal_captions_and_overlapping_phrases_are_no_edit() -> None:
    scene = next(scene for scene in SCENES if len(groups_of(scene)) > 1)
    wording = word_captions(scene)[0]
    overlapping = replace(wording, spoken=(wording.spoken[0], wording.spoken[0]), claims=())
    assert not is_true_negative(scene, Edit("swap/obj", wording, overlapping, groups_of(scene)))
    assert not is_true_negative(scene, Edit("swap/obj", wording, wording, groups_of(scene)))
    assert is_true_of(Meaning(phrases(wording)), scene)
