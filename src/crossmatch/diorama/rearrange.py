"""A scene after an edit: the same things with other looks, one thing more, or all of them laid out anew.

Whatever comes out keeps the promises of `layout`: things stand where they could stand and every relation is crisp. What
cannot be had so is not made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .kinds import KIND
from .layout import (
    FOOTING,
    GROUND,
    MARGIN,
    MOST_THINGS,
    SCALE,
    SHORE,
    SKY,
    WATER,
    ZONE_WEIGHTS,
    Group,
    Stage,
    compose,
    crisp,
    extent,
    finished,
    put_freely,
)
from .scenes import SIZES, Box, Scene, Thing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .dice import Dice

LEFT, RIGHT = 20, 980  # where boxes may be


def zone_of(scene: Scene, thing: Thing) -> str:
    """Which of its kind's places the thing is in."""
    return thing.footing if thing.footing in ("air", "water") else ground_of(scene)


def ground_of(scene: Scene) -> str:
    return "indoors" if scene.setting == "room" else "land"


def groups_of(scene: Scene) -> tuple[Group, ...]:
    """The scene's groups, by number.

    >>> from .layout import sample_scene
    >>> [(group.count, group.colour, group.kind.name) for group in groups_of(sample_scene("docs", 3))]
    [(1, 'green', 'table')]
    """
    first = {thing.group: thing for thing in reversed(scene.things)}
    counts = [sum(thing.group == number for thing in scene.things) for number in range(len(first))]
    return tuple(
        Group(
            number,
            KIND[one.kind],
            zone_of(scene, one),
            one.colour,
            one.texture,
            one.size,
            counts[number],
            one.box.x1 - one.box.x0,
            one.box.y1 - one.box.y0,
        )
        for number, one in sorted(first.items())
    )


def fitted(group: Group) -> Group:
    """The group with the width and height that its kind, size and number call for."""
    width, height = extent(group.kind, group.size, sum(SCALE.get(group.count, (94, 106))) // 2)
    return replace(group, width=width, height=height)


def allowed(scene: Scene, groups: Sequence[Group]) -> bool:
    """Whether the setting has a place for each of the groups, and any wording can tell them apart."""
    zones = ZONE_WEIGHTS[scene.setting]
    looks = {(group.kind, group.colour, group.texture) for group in groups}
    placed = all(group.zone in zones and group.zone in group.kind.places for group in groups)
    return placed and len(looks) == len(groups) and sum(group.count for group in groups) <= MOST_THINGS


def versions(scene: Scene, groups: Sequence[Group], dice: Dice, tries: int) -> Iterator[Scene]:
    """Scenes with these groups instead of the scene's own: with as little change as can be first, then laid out anew."""
    if not allowed(scene, groups):
        return
    own = len(groups_of(scene))
    kept = in_place(scene, groups[:own])
    for group in groups[own:]:
        kept = kept and _with(kept, group, dice)
    if kept is not None:
        yield kept
    for n in range(tries):
        stage = compose(dice, scene.setting, groups)
        fits = len(stage.things) == sum(group.count for group in groups)
        if n == 1 and not fits:  # there is hardly room
            return
        if fits:
            yield finished(scene.setting, stage, scene.light, scene.seed)


def _composed(scene: Scene) -> list[tuple[str, int, int]]:
    return sorted((name, i, j) for name, i, j in scene.relations if name in ("on", "behind"))


def in_place(scene: Scene, groups: Sequence[Group]) -> Scene | None:
    """The scene with other looks of its groups, every thing where it was; None if it would not be crisp."""
    composed = _composed(scene)
    things = [_relooked(scene, thing, groups[thing.group]) for thing in scene.things]
    for name, i, j in composed:
        if name == "on":  # what is carried follows the height of what carries it
            things[i] = _lowered(things[i], things[j].box.y0)
            carries = KIND[things[i].kind].perches and KIND[things[j].kind].supports
            if not carries or SIZES.index(things[i].size) >= SIZES.index(things[j].size):
                return None
    named = {(i, j): name for name, i, j in composed}
    for j, other in enumerate(things):
        if not _standing(scene, other):
            return None
        for i in range(j):
            a, b, name = (i, j, named.get((i, j), "")) if (j, i) not in named else (j, i, named[j, i])
            if not crisp(things[a], things[b], name):
                return None
    return finished(scene.setting, Stage(things, composed), scene.light, scene.seed)


def _relooked(scene: Scene, thing: Thing, group: Group) -> Thing:
    """The thing with the looks of the group, standing on the same spot."""
    box = thing.box
    if (group.width, group.height) != (box.x1 - box.x0, box.y1 - box.y0):
        x = min(max(LEFT, (box.x0 + box.x1 - group.width) // 2), RIGHT - group.width)
        box = Box(x, box.y1 - group.height, x + group.width, box.y1)
    return replace(
        thing,
        kind=group.kind.name,
        colour=group.colour,
        texture=group.texture,
        size=group.size,
        box=box,
        footing=thing.footing if group.zone == zone_of(scene, thing) else "",
        mirrored=thing.mirrored and not group.kind.upright,
        tilt=0 if group.kind.supports else thing.tilt,
    )


def _lowered(thing: Thing, bottom: int) -> Thing:
    x0, y0, x1, y1 = thing.box
    return replace(thing, box=Box(x0, y0 + bottom - y1, x1, bottom))


def _standing(scene: Scene, thing: Thing) -> bool:
    """Whether it is in a zone that it was in before, and inside the picture."""
    x0, y0, x1, _ = thing.box
    high_enough = y0 >= (SKY[0] if thing.footing == "air" else 0)
    return bool(thing.footing) and zone_of(scene, thing) in KIND[thing.kind].places and x0 >= LEFT and x1 <= RIGHT and high_enough


def _with(scene: Scene, group: Group, dice: Dice) -> Scene | None:
    """The scene with one more group in a free place; None if there is none."""
    stage, old = Stage(list(scene.things), _composed(scene)), len(scene.things)
    lows = {
        "ground": SHORE.get(scene.setting, GROUND),
        "water": WATER.get(scene.setting, (1, 0)),
        "air": (SKY[0] + group.height, SKY[1]),
    }[FOOTING[group.zone]]
    number = 1 + max(thing.group for thing in scene.things)
    if not put_freely(dice, stage, replace(group, number=number), lows, rows=1):
        return None
    new = stage.things[old:]
    beside = all(_apart(a, b) for a in new for b in scene.things if a.footing == b.footing == "ground")
    return finished(scene.setting, stage, scene.light, scene.seed) if beside else None


def _apart(a: Thing, b: Thing) -> bool:
    """Side by side: of two things on the ground, one in front of the other would seem to be related."""
    return max(a.box.x0, b.box.x0) - min(a.box.x1, b.box.x1) >= MARGIN
