"""Captions of known quality: the truth confirms every level."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.diorama.caption_writer import word_captions
from crossmatch.diorama.quality_captions import CAPTION_LEVELS, QUALITY, quality_captions, reword, shuffle_words
from crossmatch.diorama.random_choices import Dice
from crossmatch.diorama.truth import truth
from crossmatch.diorama.wording import ATTRIBUTE_WORDS, TEXTURE_TAILS
from crossmatch.diorama.world import Diorama


@pytest.fixture(scope="module")
def world():
    return Diorama.make("test", images=120)


@pytest.fixture(scope="module")
def candidates(world):
    return quality_captions(world)


@pytest.fixture(scope="module")
def levels_by_scene(candidates):
    """The captions of each scene number by level."""
    scenes = {}
    for candidate in candidates:
        scenes.setdefault(int(candidate.image.partition("-")[2]), {})[candidate.level] = candidate
    return scenes


def words(text):
    return re.findall(r"[\w-]+", text.lower())


def test_every_scene_has_one_caption_of_each_level(candidates, levels_by_scene):
    assert sorted(levels_by_scene) == list(range(120))
    assert all(list(levels) == list(QUALITY) for levels in levels_by_scene.values())
    assert all(candidate.quality == QUALITY[candidate.level] for candidate in candidates)


def test_references_are_the_other_captions_of_the_scene(levels_by_scene, world):
    for number, levels in levels_by_scene.items():
        scene_captions = [caption.text for caption in world.captions[5 * number : 5 * number + 5]]
        (references,) = {candidate.references for candidate in levels.values()}
        assert sorted([levels["exact"].caption, *references]) == sorted(scene_captions)
        assert len({*(candidate.caption for candidate in levels.values()), *references}) == 6 + 4


def test_correct_captions_are_true_and_wrong_ones_false(levels_by_scene, world):
    expected = {"exact": True, "paraphrase": True, "wrong attribute": False, "wrong object": False, "another scene": False}
    for number, levels in levels_by_scene.items():
        meanings = {level: candidate.meaning for level, candidate in levels.items() if candidate.meaning is not None}
        is_true = truth([world.scenes[number]], list(meanings.values()))[0].tolist()
        assert dict(zip(meanings, is_true, strict=True)) == expected


def test_paraphrase_is_true_of_the_same_scenes(world):
    for number, scene in enumerate(world.scenes):
        for place in CAPTION_LEVELS:
            wording = word_captions(scene, "diorama", 0, "test", number)[place]
            dice = Dice("test", number, place)
            versions = []
            for _ in range(4):
                try:
                    versions.append(reword(dice, wording).caption)
                except CrossmatchError:
                    continue
            is_true = truth(world.scenes, [wording.caption, *versions])
            assert (is_true == is_true[:, :1]).all()
            assert is_true[number].all()


def test_paraphrase_has_other_words_or_another_order(levels_by_scene):
    same_words = 0
    for levels in levels_by_scene.values():
        exact, paraphrase = (words(levels[level].caption) for level in ("exact", "paraphrase"))
        assert exact != paraphrase
        same_words += set(exact) == set(paraphrase)
    assert same_words < 12


def test_wrong_attribute_changes_one_attribute(levels_by_scene):
    attribute_words = {w for forms in ATTRIBUTE_WORDS.values() for few in forms.values() for text in few for w in words(text)}
    attribute_words |= {w for few in TEXTURE_TAILS.values() for text in few for w in words(text)} | {"a", "an"}
    for levels in levels_by_scene.values():
        phrases = (levels[level].meaning.phrases for level in ("exact", "wrong attribute"))
        (changed,) = [(a.attributes, b.attributes) for a, b in zip(*phrases, strict=True) if a != b]
        assert sum(x != y for x, y in zip(*changed, strict=True)) == 1
        exact, wrong = (words(levels[level].caption) for level in ("exact", "wrong attribute"))
        assert {*exact} ^ {*wrong} <= attribute_words
        assert abs(len(exact) - len(wrong)) <= 1  # "red dotted", "red with stripes"


def test_wrong_object_changes_one_noun_to_an_absent_kind(levels_by_scene, world):
    for number, levels in levels_by_scene.items():
        present = {item.kind for item in world.scenes[number].objects}
        exact, wrong = (levels[level].meaning for level in ("exact", "wrong object"))
        changed = [(a, b) for a, b in zip(exact.phrases, wrong.phrases, strict=True) if a != b]
        assert len(changed) == 1
        assert changed[0][1].noun not in present
        assert replace(changed[0][1], noun=changed[0][0].noun) == changed[0][0]
        assert (exact.relations, exact.setting) == (wrong.relations, wrong.setting)


def test_shuffled_words_are_the_same_words_in_another_order(levels_by_scene):
    for levels in levels_by_scene.values():
        exact, shuffled = (words(levels[level].caption) for level in ("exact", "shuffled words"))
        assert sorted(exact) == sorted(shuffled)
        assert exact != shuffled


def test_text_of_one_word_cannot_be_shuffled():
    assert shuffle_words(Dice(0), "Dogs.") == "Dogs."


def test_caption_of_another_scene_names_no_present_object(levels_by_scene, world):
    captions = {caption.text: caption for caption in world.captions}
    for number, levels in levels_by_scene.items():
        meaning = captions[levels["another scene"].caption].meaning
        assert not any(phrase.fits(item) for phrase in meaning.phrases for item in world.scenes[number].objects)


def test_captions_depend_on_the_seed(world, candidates):
    first = candidates[: 5 * 6]
    assert quality_captions(world, 5) == first
    second_seed = quality_captions(world, 5, seed=1)
    assert {candidate.image for candidate in second_seed} == {candidate.image for candidate in first}
    assert second_seed != first


def test_world_with_another_seed_has_its_own_captions():
    world = Diorama.make("val", images=30, seed=3)
    for candidate in quality_captions(world, 4):
        number = int(candidate.image.partition("-")[2])
        assert set(candidate.references) < {caption.text for caption in world.captions[5 * number : 5 * number + 5]}


def test_too_few_scenes_are_rejected(world):
    with pytest.raises(UsageError, match="must be at least 1"):
        quality_captions(world, 0)
    single_scene = replace(world, scenes=world.scenes[:1], captions=world.captions[:5])
    with pytest.raises(CrossmatchError, match="Only 0 of the 1 scenes have captions of all levels"):
        quality_captions(single_scene, 1)
    assert quality_captions(single_scene) == ()
