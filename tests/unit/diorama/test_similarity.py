"""Graded similarity: bounded, symmetric, and higher for what belongs together."""

from __future__ import annotations

import numpy as np
import pytest

from crossmatch.diorama.grammar import describe
from crossmatch.diorama.layout import sample_scene
from crossmatch.diorama.meaning import SOME, Meaning, Phrase
from crossmatch.diorama.scenes import Box, Scene, Thing
from crossmatch.diorama.similarity import (
    _root_of_weight,
    caption_facts,
    caption_similarity,
    scene_caption_similarity,
    scene_facts,
    scene_similarity,
)
from crossmatch.diorama.truth import truth

SCENES = [sample_scene("similar", i) for i in range(200)]
CAPTIONS = [caption for scene in SCENES for caption in describe(scene)]
OWN = np.eye(200, dtype=bool).repeat(5, axis=1)


def slow_weight(facts: frozenset[tuple[str | int, ...]]) -> float:
    return sum(_root_of_weight(fact) ** 2 for fact in facts)


def test_scenes_symmetric_bounded_and_like_themselves() -> None:
    grades = scene_similarity(SCENES, SCENES)
    assert grades.shape == (200, 200)
    assert grades.dtype == np.float32
    np.testing.assert_array_equal(grades, grades.T)
    np.testing.assert_array_equal(grades.diagonal(), 5)
    assert grades.min() >= 0
    assert grades.max() <= 5
    assert grades[~np.eye(200, dtype=bool)].mean() < 1


def test_captions_symmetric_bounded_and_like_themselves() -> None:
    grades = caption_similarity(CAPTIONS, CAPTIONS)
    np.testing.assert_array_equal(grades, grades.T)
    np.testing.assert_array_equal(grades.diagonal(), 5)
    assert grades.min() >= 0
    assert grades.max() <= 5
    same = np.kron(np.eye(200), np.ones((5, 5))).astype(bool)
    assert grades[same].mean() > 3 * grades[~same].mean()


def test_true_pairs_are_5_and_others_at_most_4() -> None:
    grades, true = scene_caption_similarity(SCENES, CAPTIONS), truth(SCENES, CAPTIONS)
    assert grades.dtype == np.float32
    assert (grades[true] == 5).all()
    assert (grades[~true] <= 4).all()
    assert grades.min() >= 0
    assert (grades[OWN] == 5).all()
    assert grades[~OWN].mean() < 1.5


def test_the_products_are_the_dice_coefficient() -> None:
    a, b = [scene_facts(scene) for scene in SCENES[:12]], [scene_facts(scene) for scene in SCENES[6:30]]
    slow = [[10 * slow_weight(x & y) / (slow_weight(x) + slow_weight(y)) for y in b] for x in a]
    np.testing.assert_allclose(scene_similarity(SCENES[:12], SCENES[6:30]), slow, rtol=1e-6)
    said = [caption_facts(caption) for caption in CAPTIONS[:40]]
    share = [[min(4, 5 * slow_weight(x & y) / slow_weight(y)) for y in said] for x in a]
    expected = np.where(truth(SCENES[:12], CAPTIONS[:40]), 5, share)
    np.testing.assert_allclose(scene_caption_similarity(SCENES[:12], CAPTIONS[:40]), expected, rtol=1e-6)


def thing(kind: str, colour: str, x: int, group: int) -> Thing:
    return Thing(kind, colour, "plain", "small", Box(x, 700, x + 150, 850), group, "ground")


def test_more_in_common_is_more_similar() -> None:
    def scene(setting: str, *things: Thing) -> Scene:
        return Scene(setting, things, frozenset(), 100, 0)

    red_dog = scene("beach", thing("dog", "red", 0, 0))
    others = [
        red_dog,
        scene("lake", thing("dog", "red", 0, 0)),
        scene("lake", thing("dog", "blue", 0, 0)),
        scene("lake", thing("cat", "blue", 0, 0)),
        scene("room", thing("sofa", "blue", 0, 0)),
    ]
    grades = scene_similarity([red_dog], others)[0]
    assert grades[0] == 5
    assert (np.diff(grades) < 0).all()
    assert grades[-1] < 0.5


def test_facts_follow_from_each_other() -> None:
    cup, table = thing("cup", "red", 0, 0), thing("table", "blue", 0, 1)
    facts = scene_facts(Scene("room", (cup, table), frozenset({("on", 0, 1), ("above", 0, 1), ("below", 1, 0)}), 100, 0))
    assert {("cup", "on", "table"), ("kitchen item", "above", "piece of furniture"), ("table", "below", "cup")} <= facts
    assert {("where", "room"), ("where", "indoors"), ("cup", 1), ("thing", 2), ("thing", SOME)} <= facts
    said = caption_facts(Meaning((Phrase("cup"), Phrase("table")), (("on", 0, 1),), "room"))
    assert said <= facts
    assert ("table", "below", "cup") in said
    assert ("cup", 1) not in said


@pytest.mark.parametrize("count", [2, 3, SOME])
def test_numbers_in_captions(count: int) -> None:
    facts = caption_facts(Meaning((Phrase("dog", count=count),)))
    assert ("dog", SOME) in facts
    assert {("dog", count), ("animal", count)} <= facts


def test_even_captions_that_say_little_get_a_grade() -> None:
    sayings = [Meaning((Phrase("thing"),)), Meaning((Phrase("thing", count=SOME),)), Meaning((), (), "outdoors")]
    assert np.isfinite(scene_caption_similarity(SCENES, sayings)).all()
    assert np.isfinite(caption_similarity(sayings, sayings)).all()
