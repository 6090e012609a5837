"""Graded similarity is bounded, symmetric, and higher for pairs with more in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crossmatch.diorama.caption_meaning import SOME, Meaning, Phrase
from crossmatch.diorama.caption_writer import describe
from crossmatch.diorama.graded_similarity import (
    _root_of_weight,
    caption_facts,
    caption_similarity,
    scene_caption_similarity,
    scene_facts,
    scene_similarity,
)
from crossmatch.diorama.scene_sampling import sample_scene
from crossmatch.diorama.scenes import Box, Scene, SceneObject
from crossmatch.diorama.truth import truth

SCENES = [sample_scene("similar", i) for i in range(200)]
CAPTIONS = [caption for scene in SCENES for caption in describe(scene)]
OWN = np.eye(200, dtype=bool).repeat(5, axis=1)


def total_weight(facts: frozenset[tuple[str | int, ...]]) -> float:
    return sum(_root_of_weight(fact) ** 2 for fact in facts)


@pytest.mark.parametrize(("similarity", "items"), [(scene_similarity, SCENES), (caption_similarity, CAPTIONS)])
def test_similarity_is_symmetric_bounded_and_highest_for_equal_items(similarity: Callable[..., Any], items: list[Any]) -> None:
    grades = similarity(items, items)
    assert grades.dtype == np.float32
    np.testing.assert_array_equal(grades, grades.T)
    np.testing.assert_array_equal(grades.diagonal(), 5)
    assert grades.min() >= 0
    assert grades.max() <= 5


def test_different_scenes_have_low_grades_and_captions_of_one_scene_high_ones() -> None:
    assert scene_similarity(SCENES, SCENES)[~np.eye(200, dtype=bool)].mean() < 1
    grades, same_scene = caption_similarity(CAPTIONS, CAPTIONS), np.kron(np.eye(200), np.ones((5, 5))).astype(bool)
    assert grades[same_scene].mean() > 3 * grades[~same_scene].mean()


def test_true_pairs_have_grade_5_and_others_at_most_4() -> None:
    grades, true = scene_caption_similarity(SCENES, CAPTIONS), truth(SCENES, CAPTIONS)
    assert grades.dtype == np.float32
    assert (grades[true] == 5).all()
    assert (grades[~true] <= 4).all()
    assert grades.min() >= 0
    assert (grades[OWN] == 5).all()
    assert grades[~OWN].mean() < 1.5


def test_similarity_is_the_dice_coefficient() -> None:
    a, b = [scene_facts(scene) for scene in SCENES[:12]], [scene_facts(scene) for scene in SCENES[6:30]]
    expected = [[10 * total_weight(x & y) / (total_weight(x) + total_weight(y)) for y in b] for x in a]
    np.testing.assert_allclose(scene_similarity(SCENES[:12], SCENES[6:30]), expected, rtol=1e-6)
    caption_sets = [caption_facts(caption) for caption in CAPTIONS[:40]]
    share = [[min(4, 5 * total_weight(x & y) / total_weight(y)) for y in caption_sets] for x in a]
    expected = np.where(truth(SCENES[:12], CAPTIONS[:40]), 5, share)
    np.testing.assert_allclose(scene_caption_similarity(SCENES[:12], CAPTIONS[:40]), expected, rtol=1e-6)


def make_object(kind: str, colour: str, x: int, group: int) -> SceneObject:
    return SceneObject(kind, colour, "plain", "small", Box(x, 700, x + 150, 850), group, "ground")


def test_scenes_with_more_in_common_are_more_similar() -> None:
    def scene(setting: str, *objects: SceneObject) -> Scene:
        return Scene(setting, objects, frozenset(), 100, 0)

    red_dog = scene("beach", make_object("dog", "red", 0, 0))
    less_and_less_similar = [
        red_dog,
        scene("lake", make_object("dog", "red", 0, 0)),
        scene("lake", make_object("dog", "blue", 0, 0)),
        scene("lake", make_object("cat", "blue", 0, 0)),
        scene("room", make_object("sofa", "blue", 0, 0)),
    ]
    grades = scene_similarity([red_dog], less_and_less_similar)[0]
    assert grades[0] == 5
    assert (np.diff(grades) < 0).all()
    assert grades[-1] < 0.5


def test_facts_imply_facts_about_categories_and_inverse_relations() -> None:
    cup, table = make_object("cup", "red", 0, 0), make_object("table", "blue", 0, 1)
    facts = scene_facts(Scene("room", (cup, table), frozenset({("on", 0, 1), ("above", 0, 1), ("below", 1, 0)}), 100, 0))
    assert {("cup", "on", "table"), ("kitchen item", "above", "piece of furniture"), ("table", "below", "cup")} <= facts
    assert {("where", "room"), ("where", "indoors"), ("cup", 1), ("thing", 2), ("thing", SOME)} <= facts
    stated = caption_facts(Meaning((Phrase("cup"), Phrase("table")), (("on", 0, 1),), "room"))
    assert stated <= facts
    assert ("table", "below", "cup") in stated
    assert ("cup", 1) not in stated


@pytest.mark.parametrize("count", [2, 3, SOME])
def test_number_facts_include_some(count: int) -> None:
    facts = caption_facts(Meaning((Phrase("dog", count=count),)))
    assert ("dog", SOME) in facts
    assert {("dog", count), ("animal", count)} <= facts


def test_captions_with_few_facts_have_a_finite_grade() -> None:
    meanings = [Meaning((Phrase("thing"),)), Meaning((Phrase("thing", count=SOME),)), Meaning((), (), "outdoors")]
    assert np.isfinite(scene_caption_similarity(SCENES, meanings)).all()
    assert np.isfinite(caption_similarity(meanings, meanings)).all()
