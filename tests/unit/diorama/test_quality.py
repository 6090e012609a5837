"""Captions of known quality are what they are said to be: the truth is asked about each of them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.diorama.dice import Dice
from crossmatch.diorama.grammar import word
from crossmatch.diorama.quality import PLACES, QUALITY, quality_captions, reworded, shuffled
from crossmatch.diorama.truth import truth
from crossmatch.diorama.wording import ATTRIBUTE_WORDS, TEXTURE_TAILS
from crossmatch.diorama.world import Diorama


@pytest.fixture(scope="module")
def world():
    return Diorama.make("test", images=120)


@pytest.fixture(scope="module")
def made(world):
    return quality_captions(world)


def words(text):
    return re.findall(r"[\w-]+", text.lower())


def by_scene(made, world):
    """Number of the scene, and its captions by level."""
    found = {}
    for one in made:
        found.setdefault(int(one.image.partition("-")[2]), {})[one.level] = one
    return found


def test_every_scene_has_one_caption_of_each_level(made, world):
    found = by_scene(made, world)
    assert sorted(found) == list(range(120))
    assert all(list(levels) == list(QUALITY) for levels in found.values())
    assert all(one.quality == QUALITY[one.level] for one in made)


def test_the_references_are_the_other_captions_of_the_scene(made, world):
    for number, levels in by_scene(made, world).items():
        own = [caption.text for caption in world.captions[5 * number : 5 * number + 5]]
        references = {one.references for one in levels.values()}
        assert len(references) == 1  # the same for all levels
        assert sorted([levels["exact"].caption, *references.pop()]) == sorted(own)


def test_no_candidate_is_a_reference_or_comes_twice(made, world):
    for levels in by_scene(made, world).values():
        texts = [one.caption for one in levels.values()]
        assert len({*texts, *levels["exact"].references}) == 6 + 4


def test_right_captions_are_true_and_wrong_ones_false(made, world):
    right = {"exact": True, "paraphrase": True, "wrong attribute": False, "wrong object": False, "another scene": False}
    for number, levels in by_scene(made, world).items():
        meanings = {level: one.meaning for level, one in levels.items() if one.meaning is not None}
        told = truth([world.scenes[number]], list(meanings.values()))[0].tolist()
        assert dict(zip(meanings, told, strict=True)) == right


def test_a_paraphrase_is_true_of_exactly_the_same_scenes(world):
    for number, scene in enumerate(world.scenes):
        for place in PLACES:
            wording = word(scene, "diorama", 0, "test", number)[place]
            dice = Dice("test", number, place)
            versions = []
            for _ in range(4):
                try:
                    versions.append(reworded(dice, wording).caption)
                except CrossmatchError:
                    continue
            asked = truth(world.scenes, [wording.caption, *versions])
            assert (asked == asked[:, :1]).all()
            assert asked[number].all()


def test_a_paraphrase_has_other_words_or_another_order(made, world):
    alike = 0
    for levels in by_scene(made, world).values():
        exact, other = (words(levels[level].caption) for level in ("exact", "paraphrase"))
        assert exact != other
        alike += set(exact) == set(other)
    assert alike < 12  # nearly all have other words as well


def test_a_wrong_attribute_is_one_word_that_is_false(made, world):
    said = {w for forms in ATTRIBUTE_WORDS.values() for few in forms.values() for text in few for w in words(text)}
    said |= {w for few in TEXTURE_TAILS.values() for text in few for w in words(text)} | {"a", "an"}
    for levels in by_scene(made, world).values():
        phrases = (levels[level].meaning.phrases for level in ("exact", "wrong attribute"))
        (changed,) = [(a.attributes, b.attributes) for a, b in zip(*phrases, strict=True) if a != b]
        assert sum(x != y for x, y in zip(*changed, strict=True)) == 1
        exact, wrong = (words(levels[level].caption) for level in ("exact", "wrong attribute"))
        assert {*exact} ^ {*wrong} <= said
        assert abs(len(exact) - len(wrong)) <= 1  # "red dotted", "red with stripes"


def test_a_wrong_object_is_a_kind_that_is_not_there_and_all_else_stays(made, world):
    for number, levels in by_scene(made, world).items():
        there = {thing.kind for thing in world.scenes[number].things}
        exact, wrong = (levels[level].meaning for level in ("exact", "wrong object"))
        changed = [(a, b) for a, b in zip(exact.phrases, wrong.phrases, strict=True) if a != b]
        assert len(changed) == 1
        assert changed[0][1].noun not in there
        assert replace(changed[0][1], noun=changed[0][0].noun) == changed[0][0]
        assert (exact.relations, exact.setting) == (wrong.relations, wrong.setting)


def test_shuffled_words_are_the_same_words_in_another_order(made, world):
    for levels in by_scene(made, world).values():
        exact, mixed = (words(levels[level].caption) for level in ("exact", "shuffled words"))
        assert sorted(exact) == sorted(mixed)
        assert exact != mixed


def test_a_text_of_one_word_cannot_be_shuffled():
    assert shuffled(Dice(0), "Dogs.") == "Dogs."


def test_another_scene_shares_no_thing(made, world):
    others = {caption.text: caption for caption in world.captions}
    for number, levels in by_scene(made, world).items():
        meaning = others[levels["another scene"].caption].meaning
        assert not any(phrase.fits(thing) for phrase in meaning.phrases for thing in world.scenes[number].things)


def test_captions_depend_on_the_scene_the_world_and_the_seed_alone(world, made):
    assert quality_captions(world, 5) == made[: 5 * 6]
    other = quality_captions(world, 5, seed=1)
    assert {one.image for one in other} == {one.image for one in made[: 5 * 6]}
    assert other != made[: 5 * 6]


def test_a_world_of_another_seed_has_its_own_captions():
    world = Diorama.make("val", images=30, seed=3)
    for one in quality_captions(world, 4):
        number = int(one.image.partition("-")[2])
        assert set(one.references) < {caption.text for caption in world.captions[5 * number : 5 * number + 5]}


def test_what_cannot_be_made_is_refused(world):
    with pytest.raises(WrongWords, match="Ask for one at least"):
        quality_captions(world, 0)
    alone = replace(world, scenes=world.scenes[:1], captions=world.captions[:5])
    with pytest.raises(CrossmatchError, match="0 of the 1 scenes have captions of all levels; 1 were wanted"):
        quality_captions(alone, 1)
    assert quality_captions(alone) == ()
