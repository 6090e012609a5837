"""Scenes after an edit: the same objects with other attributes, one more object, or a new layout.

All results keep the rules of `scene_sampling`: plausible places and unambiguous relations.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from crossmatch.diorama.object_kinds import KIND
from crossmatch.diorama.scene_sampling import (
    FOOTING,
    GROUND,
    MARGIN,
    SCALE,
    SHORE,
    SKY,
    WATER,
    ZONE_WEIGHTS,
    SceneComposer,
    SceneGroup,
    compose,
    finish_scene,
    is_unambiguous,
    object_extent,
    place_freely,
)
from crossmatch.diorama.scenes import MAX_OBJECTS, SIZES, Box, Scene, SceneObject

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from crossmatch.diorama.random_choices import Dice

LEFT, RIGHT = 20, 980  # where boxes may be


def zone_of(scene: Scene, item: SceneObject) -> str:
    """The zone that the object is in."""
    return item.footing if item.footing in ("air", "water") else ground_of(scene)


def ground_of(scene: Scene) -> str:
    return "indoors" if scene.setting == "room" else "land"


def groups_of(scene: Scene) -> tuple[SceneGroup, ...]:
    """The groups of the scene, by number.

    >>> from .scene_sampling import sample_scene
    >>> [(group.count, group.colour, group.kind.name) for group in groups_of(sample_scene("docs", 3))]
    [(1, 'green', 'table')]
    """
    first_members = {item.group: item for item in reversed(scene.objects)}
    counts = [sum(item.group == number for item in scene.objects) for number in range(len(first_members))]
    return tuple(
        SceneGroup(
            number,
            KIND[member.kind],
            zone_of(scene, member),
            member.colour,
            member.texture,
            member.size,
            counts[number],
            member.box.x1 - member.box.x0,
            member.box.y1 - member.box.y0,
        )
        for number, member in sorted(first_members.items())
    )


def fit_size(group: SceneGroup) -> SceneGroup:
    """The group with the width and height of its kind, size and count."""
    width, height = object_extent(group.kind, group.size, sum(SCALE.get(group.count, (94, 106))) // 2)
    return replace(group, width=width, height=height)


def is_allowed(scene: Scene, groups: Sequence[SceneGroup]) -> bool:
    """Whether the setting has a zone for each group, and captions can distinguish the groups."""
    zones = ZONE_WEIGHTS[scene.setting]
    looks = {(group.kind, group.colour, group.texture) for group in groups}
    has_zones = all(group.zone in zones and group.zone in group.kind.places for group in groups)
    return has_zones and len(looks) == len(groups) and sum(group.count for group in groups) <= MAX_OBJECTS


def edited_scenes(scene: Scene, groups: Sequence[SceneGroup], dice: Dice, tries: int) -> Iterator[Scene]:
    """Scenes with these groups: first with the smallest change, then with new layouts."""
    if not is_allowed(scene, groups):
        return
    group_count = len(groups_of(scene))
    changed = change_in_place(scene, groups[:group_count])
    for group in groups[group_count:]:
        changed = changed and _add_group(changed, group, dice)
    if changed is not None:
        yield changed
    for n in range(tries):
        stage = compose(dice, scene.setting, groups)
        fits = len(stage.objects) == sum(group.count for group in groups)
        if n == 1 and not fits:  # too little room
            return
        if fits:
            yield finish_scene(scene.setting, stage, scene.light, scene.seed)


def _composed(scene: Scene) -> list[tuple[str, int, int]]:
    return sorted((name, i, j) for name, i, j in scene.relations if name in ("on", "behind"))


def change_in_place(scene: Scene, groups: Sequence[SceneGroup]) -> Scene | None:
    """The scene with changed groups, every object where it was; None if it would be ambiguous."""
    composed = _composed(scene)
    objects = [_change_object(scene, item, groups[item.group]) for item in scene.objects]
    for name, i, j in composed:
        if name == "on":  # carried objects follow the height of their support
            objects[i] = _move_bottom(objects[i], objects[j].box.y0)
            carries = KIND[objects[i].kind].perches and KIND[objects[j].kind].supports
            if not carries or SIZES.index(objects[i].size) >= SIZES.index(objects[j].size):
                return None
    named = {(i, j): name for name, i, j in composed}
    for j, item in enumerate(objects):
        if not _is_in_zone(scene, item):
            return None
        for i in range(j):
            a, b, name = (i, j, named.get((i, j), "")) if (j, i) not in named else (j, i, named[j, i])
            if not is_unambiguous(objects[a], objects[b], name):
                return None
    return finish_scene(scene.setting, SceneComposer(objects, composed), scene.light, scene.seed)


def _change_object(scene: Scene, item: SceneObject, group: SceneGroup) -> SceneObject:
    """The object with the attributes of the group, in the same place."""
    box = item.box
    if (group.width, group.height) != (box.x1 - box.x0, box.y1 - box.y0):
        x = min(max(LEFT, (box.x0 + box.x1 - group.width) // 2), RIGHT - group.width)
        box = Box(x, box.y1 - group.height, x + group.width, box.y1)
    return replace(
        item,
        kind=group.kind.name,
        colour=group.colour,
        texture=group.texture,
        size=group.size,
        box=box,
        footing=item.footing if group.zone == zone_of(scene, item) else "",
        mirrored=item.mirrored and not group.kind.upright,
        tilt=0 if group.kind.supports else item.tilt,
    )


def _move_bottom(item: SceneObject, bottom: int) -> SceneObject:
    x0, y0, x1, y1 = item.box
    return replace(item, box=Box(x0, y0 + bottom - y1, x1, bottom))


def _is_in_zone(scene: Scene, item: SceneObject) -> bool:
    """Whether the object is still in its zone and inside the picture."""
    x0, y0, x1, _ = item.box
    high_enough = y0 >= (SKY[0] if item.footing == "air" else 0)
    return bool(item.footing) and zone_of(scene, item) in KIND[item.kind].places and x0 >= LEFT and x1 <= RIGHT and high_enough


def _add_group(scene: Scene, group: SceneGroup, dice: Dice) -> Scene | None:
    """The scene with one more group in a free place; None if there is no free place."""
    stage, old = SceneComposer(list(scene.objects), _composed(scene)), len(scene.objects)
    lows = {
        "ground": SHORE.get(scene.setting, GROUND),
        "water": WATER.get(scene.setting, (1, 0)),
        "air": (SKY[0] + group.height, SKY[1]),
    }[FOOTING[group.zone]]
    number = 1 + max(item.group for item in scene.objects)
    if not place_freely(dice, stage, replace(group, number=number), lows, rows=1):
        return None
    new = stage.objects[old:]
    beside = all(_are_side_by_side(a, b) for a in new for b in scene.objects if a.footing == b.footing == "ground")
    return finish_scene(scene.setting, stage, scene.light, scene.seed) if beside else None


def _are_side_by_side(a: SceneObject, b: SceneObject) -> bool:
    """Whether two objects are side by side: on the ground, one in front of the other would seem related."""
    return max(a.box.x0, b.box.x0) - min(a.box.x1, b.box.x1) >= MARGIN
