"""Scenes are what they promise: things stand where they could stand, and every relation is plain to see."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from itertools import permutations

import pytest

from crossmatch.diorama.kinds import KIND
from crossmatch.diorama.layout import COMMON, SIDE, ZONE_WEIGHTS, sample_scene
from crossmatch.diorama.scenes import COLOURS, RELATIONS, SETTINGS, SIZES, TEXTURES, Scene, Thing

SCENES = [sample_scene("layout", i) for i in range(1500)]
BOTTOMS = {  # of things that stand on the ground or in the water, by setting; what is behind stands farther back
    "ground": dict.fromkeys(SETTINGS, (780, 940)) | {"lake": (880, 960)},
    "water": {"beach": (560, 640), "lake": (580, 800)},
}


def width(thing: Thing) -> int:
    return thing.box.x1 - thing.box.x0


def height(thing: Thing) -> int:
    return thing.box.y1 - thing.box.y0


def pairs(scene: Scene) -> list[tuple[int, int, Thing, Thing]]:
    return [(i, j, a, b) for (i, a), (j, b) in permutations(enumerate(scene.things), 2)]


def overlap(a: Thing, b: Thing) -> int:
    wide = min(a.box.x1, b.box.x1) - max(a.box.x0, b.box.x0)
    high = min(a.box.y1, b.box.y1) - max(a.box.y0, b.box.y0)
    return max(0, wide) * max(0, high)


def slow_relations(a: Thing, b: Thing) -> set[str]:
    """The definitions, word by word, in floating point."""
    gap = (b.box.x0 + b.box.x1) / 2 - (a.box.x0 + a.box.x1) / 2
    apart = (width(a) + width(b)) / 3
    found = {"left of"} if gap >= apart else {"right of"} if gap <= -apart else set()
    found |= {"above"} if a.footing in ("air", "on") and a.box.y1 <= b.box.y0 else set()
    return found | ({"below"} if b.footing in ("air", "on") and b.box.y1 <= a.box.y0 else set())


def test_relations_are_exactly_those_of_the_definitions() -> None:
    for scene in SCENES:
        for i, j, a, b in pairs(scene):
            said = {name for name, s, o in scene.relations if (s, o) == (i, j)}
            assert said - {"on", "behind"} == slow_relations(a, b)


def test_no_pair_is_half_apart() -> None:
    for scene in SCENES:
        for _, _, a, b in pairs(scene):
            gap, widths = abs(sum(a.box[::2]) - sum(b.box[::2])) / 2, width(a) + width(b)
            assert gap <= widths / 6 or gap >= widths / 3


def test_what_flies_or_stands_on_something_is_clearly_above_below_or_beside() -> None:
    for scene in SCENES:
        for _, _, a, b in pairs(scene):
            high = min(a.box.y1, b.box.y1) - max(a.box.y0, b.box.y0)
            if a.footing in ("air", "on"):
                assert high <= 0 or high > 0.3 * min(height(a), height(b))


def test_things_on_things_rest_on_a_bigger_support() -> None:
    for scene in SCENES:
        on = {i: j for name, i, j in scene.relations if name == "on"}
        assert set(on) == {i for i, thing in enumerate(scene.things) if thing.footing == "on"}
        for i, j in on.items():
            a, b = scene.things[i], scene.things[j]
            assert ("above", i, j) in scene.relations
            assert KIND[a.kind].perches
            assert KIND[b.kind].supports
            assert SIZES.index(a.size) < SIZES.index(b.size)
            assert a.box.y1 == b.box.y0
            assert b.box.x0 <= a.box.x0 < a.box.x1 <= b.box.x1
            assert b.tilt == 0


def test_things_behind_things_are_partly_hidden_and_nothing_else_overlaps() -> None:
    for scene in SCENES:
        behind = {(i, j) for name, i, j in scene.relations if name == "behind"}
        for i, j, a, b in pairs(scene):
            if (i, j) in behind:
                assert i < j, "what is behind is drawn first"
                assert 0.15 <= overlap(a, b) / (width(a) * height(a)) <= 0.40
                assert height(a) >= height(b)
                assert min(a.box.x1, b.box.x1) - max(a.box.x0, b.box.x0) <= 0.6 * width(a), "one sees where it stands"
            elif (j, i) not in behind:
                assert overlap(a, b) == 0


def test_things_stand_where_they_could_stand() -> None:
    place = {"ground": "land", "water": "water", "air": "air"}
    for scene in SCENES:
        behind = {i for name, i, _ in scene.relations if name == "behind"}
        for i, thing in enumerate(scene.things):
            assert 0 <= thing.box.x0 < thing.box.x1 <= 1000
            assert 0 <= thing.box.y0 < thing.box.y1 <= 1000
            ground = "indoors" if scene.setting == "room" else "land"
            zone = ground if thing.footing in ("ground", "on") else place[thing.footing]
            assert zone in KIND[thing.kind].places
            assert zone in ZONE_WEIGHTS[scene.setting]
            if thing.footing == "air":
                assert 40 <= thing.box.y0 < thing.box.y1 <= 430
            elif thing.footing in BOTTOMS:
                low, high = (690, 750) if i in behind else BOTTOMS[thing.footing][scene.setting]
                assert low <= thing.box.y1 <= high


def test_sizes_are_absolute_and_shapes_those_of_the_kind() -> None:
    for scene in SCENES:
        for thing in scene.things:
            aspect, side = KIND[thing.kind].aspect, SIDE[thing.size]
            assert width(thing) / height(thing) == pytest.approx(aspect, rel=0.05)
            assert max(width(thing), height(thing)) <= 1.31 * side
            slim = min(1.0, 1.3 * min(aspect, 1 / aspect) ** 0.5)  # very long things are limited by their longest side
            assert 0.8 * slim <= (width(thing) * height(thing)) ** 0.5 / side <= 1.07


def test_groups_share_their_looks_and_any_wording_can_tell_them_apart() -> None:
    for scene in SCENES:
        assert 1 <= len(scene.things) <= 8
        looks = {(t.group, t.kind, t.colour, t.texture, t.size) for t in scene.things}
        groups = {t.group for t in scene.things}
        assert groups == set(range(len(looks)))
        assert len({(kind, colour, texture) for _, kind, colour, texture, _ in looks}) == len(groups)


def test_the_world_is_varied() -> None:
    counts = Counter(n for s in SCENES for n in Counter(t.group for t in s.things).values())
    groups = Counter(len({t.group for t in s.things}) for s in SCENES)
    assert set(counts) == set(groups) == set(range(1, 7))
    assert min(counts.values()) >= 0.02 * len(SCENES)
    assert min(groups.values()) >= 0.01 * len(SCENES)
    assert counts[1] > sum(counts.values()) / 2
    things = [thing for scene in SCENES for thing in scene.things]
    assert {t.colour for t in things} == set(COLOURS)
    assert {t.texture for t in things} == set(TEXTURES)
    assert {t.size for t in things} == set(SIZES)
    assert {s.setting for s in SCENES} == set(SETTINGS)
    shares = {name: sum(any(r == name for r, _, _ in s.relations) for s in SCENES) / len(SCENES) for name in RELATIONS}
    assert all(share > 0.05 for share in shares.values()), shares


def test_ranges_of_the_small_things() -> None:
    for scene in SCENES:
        assert 75 <= scene.light <= 115
        assert 0 <= scene.seed < 1 << 63
        assert all(-8 <= thing.tilt <= 8 for thing in scene.things)
        assert not any(thing.mirrored for thing in scene.things if KIND[thing.kind].upright)
        assert not any(thing.tilt for thing in scene.things if KIND[thing.kind].supports)


def test_common_kinds_are_kinds() -> None:
    assert set(KIND) >= COMMON


def test_the_same_seed_gives_the_same_scene_and_captions_whatever_the_hash_seed() -> None:
    program = (
        "from crossmatch.diorama.layout import sample_scene as s\n"
        "from crossmatch.diorama.grammar import describe as d\n"
        "for i in range(60): print(s('p', i).things, sorted(s('p', i).relations), d(s('p', i)))"
    )
    digests = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        out = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
        digests.add(hashlib.sha256(out.stdout).hexdigest())
    assert len(digests) == 1
