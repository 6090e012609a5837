"""Sampled scenes: objects are in plausible places, and every relation is unambiguous."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest

from crossmatch.diorama.object_kinds import KIND
from crossmatch.diorama.scene_sampling import COMMON, SIDE, ZONE_WEIGHTS, sample_scene
from crossmatch.diorama.scenes import COLOURS, RELATIONS, SETTINGS, SIZES, TEXTURES, Scene, SceneObject
from diorama_checks import assert_same_output_for_every_hash_seed

SCENES = [sample_scene("layout", i) for i in range(1500)]
BOTTOMS = {  # of objects on the ground or in the water, by setting; objects behind others are farther back
    "ground": dict.fromkeys(SETTINGS, (780, 940)) | {"lake": (880, 960)},
    "water": {"beach": (560, 640), "lake": (580, 800)},
}


def width(item: SceneObject) -> int:
    return item.box.x1 - item.box.x0


def height(item: SceneObject) -> int:
    return item.box.y1 - item.box.y0


def pairs(scene: Scene) -> list[tuple[int, int, SceneObject, SceneObject]]:
    return [(i, j, a, b) for (i, a), (j, b) in permutations(enumerate(scene.objects), 2)]


def overlap(a: SceneObject, b: SceneObject) -> int:
    wide = min(a.box.x1, b.box.x1) - max(a.box.x0, b.box.x0)
    high = min(a.box.y1, b.box.y1) - max(a.box.y0, b.box.y0)
    return max(0, wide) * max(0, high)


def relations_by_definition(a: SceneObject, b: SceneObject) -> set[str]:
    """The definitions in floating point."""
    gap = (b.box.x0 + b.box.x1) / 2 - (a.box.x0 + a.box.x1) / 2
    apart = (width(a) + width(b)) / 3
    relations = {"left of"} if gap >= apart else {"right of"} if gap <= -apart else set()
    relations |= {"above"} if a.footing in ("air", "on") and a.box.y1 <= b.box.y0 else set()
    return relations | ({"below"} if b.footing in ("air", "on") and b.box.y1 <= a.box.y0 else set())


def test_relations_equal_the_definitions() -> None:
    for scene in SCENES:
        for i, j, a, b in pairs(scene):
            names = {name for name, s, o in scene.relations if (s, o) == (i, j)}
            assert names - {"on", "behind"} == relations_by_definition(a, b)


def test_left_and_right_are_never_ambiguous() -> None:
    for scene in SCENES:
        for _, _, a, b in pairs(scene):
            gap, widths = abs(sum(a.box[::2]) - sum(b.box[::2])) / 2, width(a) + width(b)
            assert gap <= widths / 6 or gap >= widths / 3


def test_above_and_below_are_never_ambiguous() -> None:
    for scene in SCENES:
        for _, _, a, b in pairs(scene):
            high = min(a.box.y1, b.box.y1) - max(a.box.y0, b.box.y0)
            if a.footing in ("air", "on"):
                assert high <= 0 or high > 0.3 * min(height(a), height(b))


def test_carried_objects_are_on_a_bigger_support() -> None:
    for scene in SCENES:
        on = {i: j for name, i, j in scene.relations if name == "on"}
        assert set(on) == {i for i, item in enumerate(scene.objects) if item.footing == "on"}
        for i, j in on.items():
            a, b = scene.objects[i], scene.objects[j]
            assert ("above", i, j) in scene.relations
            assert KIND[a.kind].perches
            assert KIND[b.kind].supports
            assert SIZES.index(a.size) < SIZES.index(b.size)
            assert a.box.y1 == b.box.y0
            assert b.box.x0 <= a.box.x0 < a.box.x1 <= b.box.x1
            assert b.tilt == 0


def test_objects_behind_others_are_partly_hidden_and_nothing_else_overlaps() -> None:
    for scene in SCENES:
        behind = {(i, j) for name, i, j in scene.relations if name == "behind"}
        for i, j, a, b in pairs(scene):
            if (i, j) in behind:
                assert i < j, "the object behind is drawn first"
                assert 0.15 <= overlap(a, b) / (width(a) * height(a)) <= 0.40
                assert height(a) >= height(b)
                assert min(a.box.x1, b.box.x1) - max(a.box.x0, b.box.x0) <= 0.6 * width(a), "its base is visible"
            elif (j, i) not in behind:
                assert overlap(a, b) == 0


def test_objects_are_in_their_zones() -> None:
    place = {"ground": "land", "water": "water", "air": "air"}
    for scene in SCENES:
        behind = {i for name, i, _ in scene.relations if name == "behind"}
        for i, item in enumerate(scene.objects):
            assert 0 <= item.box.x0 < item.box.x1 <= 1000
            assert 0 <= item.box.y0 < item.box.y1 <= 1000
            ground = "indoors" if scene.setting == "room" else "land"
            zone = ground if item.footing in ("ground", "on") else place[item.footing]
            assert zone in KIND[item.kind].places
            assert zone in ZONE_WEIGHTS[scene.setting]
            if item.footing == "air":
                assert 40 <= item.box.y0 < item.box.y1 <= 430
            elif item.footing in BOTTOMS:
                low, high = (690, 750) if i in behind else BOTTOMS[item.footing][scene.setting]
                assert low <= item.box.y1 <= high


def test_sizes_are_absolute_and_aspects_those_of_the_kind() -> None:
    for scene in SCENES:
        for item in scene.objects:
            aspect, side = KIND[item.kind].aspect, SIDE[item.size]
            assert width(item) / height(item) == pytest.approx(aspect, rel=0.05)
            assert max(width(item), height(item)) <= 1.31 * side
            slim = min(1.0, 1.3 * min(aspect, 1 / aspect) ** 0.5)  # long objects are limited by their longer side
            assert 0.8 * slim <= (width(item) * height(item)) ** 0.5 / side <= 1.07


def test_groups_share_their_attributes_and_differ_from_each_other() -> None:
    for scene in SCENES:
        assert 1 <= len(scene.objects) <= 8
        looks = {(t.group, t.kind, t.colour, t.texture, t.size) for t in scene.objects}
        groups = {t.group for t in scene.objects}
        assert groups == set(range(len(looks)))
        assert len({(kind, colour, texture) for _, kind, colour, texture, _ in looks}) == len(groups)


def test_scenes_are_varied() -> None:
    counts = Counter(n for s in SCENES for n in Counter(t.group for t in s.objects).values())
    groups = Counter(len({t.group for t in s.objects}) for s in SCENES)
    assert set(counts) == set(groups) == set(range(1, 7))
    assert min(counts.values()) >= 0.02 * len(SCENES)
    assert min(groups.values()) >= 0.01 * len(SCENES)
    assert counts[1] > sum(counts.values()) / 2
    items = [item for scene in SCENES for item in scene.objects]
    assert {t.colour for t in items} == set(COLOURS)
    assert {t.texture for t in items} == set(TEXTURES)
    assert {t.size for t in items} == set(SIZES)
    assert {s.setting for s in SCENES} == set(SETTINGS)
    shares = {name: sum(any(r == name for r, _, _ in s.relations) for s in SCENES) / len(SCENES) for name in RELATIONS}
    assert all(share > 0.05 for share in shares.values()), shares


def test_light_seed_tilt_and_mirroring_are_in_range() -> None:
    for scene in SCENES:
        assert 75 <= scene.light <= 115
        assert 0 <= scene.seed < 1 << 63
        assert all(-8 <= item.tilt <= 8 for item in scene.objects)
        assert not any(item.mirrored for item in scene.objects if KIND[item.kind].upright)
        assert not any(item.tilt for item in scene.objects if KIND[item.kind].supports)


def test_common_kinds_are_kinds() -> None:
    assert set(KIND) >= COMMON


def test_scenes_and_captions_do_not_depend_on_the_hash_seed() -> None:
    assert_same_output_for_every_hash_seed(
        "from crossmatch.diorama.scene_sampling import sample_scene as s\n"
        "from crossmatch.diorama.caption_writer import describe as d\n"
        "for i in range(60): print(s('p', i).objects, sorted(s('p', i).relations), d(s('p', i)))"
    )
