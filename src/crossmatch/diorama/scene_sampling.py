"""Layout of scenes: which objects there are, where they are, and which relations hold between them.

Every relation is unambiguous: a viewer of the picture would agree with it. Left and right are used only for objects whose
centres are clearly apart, and no pair is in between; "above" for objects that are entirely higher and fly or are on something;
"on" and "behind" only for pairs that were placed that way.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from math import isqrt
from typing import TYPE_CHECKING

from crossmatch.diorama.object_kinds import KIND, KINDS, Kind
from crossmatch.diorama.random_choices import Dice
from crossmatch.diorama.scenes import COLOURS, MAX_OBJECTS, SETTINGS, SIZES, Box, Scene, SceneObject

if TYPE_CHECKING:
    from collections.abc import Sequence

TRIES = 4  # layouts of the same groups
MARGIN = 12  # free space between unrelated objects
CLEARANCE = 40  # vertical free space, so that flying objects do not seem to be on others

Relation = tuple[str, int, int]

SIDE = {"small": 150, "medium": 230, "large": 350}  # √(width · height)
LARGEST_SIDE = 130  # percent of SIDE
TEXTURE_WEIGHTS = {"plain": 55, "striped": 23, "dotted": 22}
GROUP_WEIGHTS = (12, 25, 25, 18, 11, 9)  # of 1 .. 6 groups
COUNT_WEIGHTS = (58, 16, 9, 7, 5, 5)  # of 1 .. 6 objects in a group
SIZE_WEIGHTS = {1: (26, 40, 34), 2: (46, 44, 10), 3: (75, 25, 0)}  # by the group's count; four and more are small
CROWDED_COUNTS, CROWDED_SIZES, SUPPORT_SIZES = (84, 10, 6, 0, 0, 0), (60, 34, 6), (5, 40, 55)
SCALE = {5: (88, 94), 6: (84, 90)}  # percent of SIDE, by count: five or six fit in a row only if they are a bit smaller
INVERSE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}

LAND_AND_SKY = {"land": 78, "air": 22}
ZONE_WEIGHTS = {
    "beach": {"land": 58, "water": 25, "air": 17},
    "street": LAND_AND_SKY,
    "room": {"indoors": 100},
    "night": LAND_AND_SKY,
    "meadow": LAND_AND_SKY,
    "desert": LAND_AND_SKY,
    "snow": LAND_AND_SKY,
    "lake": {"land": 48, "water": 35, "air": 17},
}
_IN_COCO = (
    "dog|cat|horse|elephant|duck|fish|car|bus|truck|train|motorcycle|bicycle|plane|sailboat|sofa|chair|bed|table|bench|"
    "apple|carrot|pizza|hot dog|cake|cup|wine glass|bottle|bowl|spoon|fridge|pair of scissors|laptop|phone|television|"
    "keyboard|skateboard|kite|balloon|teddy bear|tie|suitcase|handbag|umbrella|clock|book|toilet|house|"
    "pine tree|flower|traffic light|fire hydrant"
)
COMMON = frozenset(_IN_COCO.split("|"))
FOOTING = {"land": "ground", "indoors": "ground", "water": "water", "air": "air"}
GROUND, BACK, SKY = (780, 940), (690, 750), (40, 430)  # where bottoms may be; for the sky, where boxes may be
SHORE = {"lake": (880, 960)}  # the ground of these settings is narrower
WATER = {"beach": (560, 640), "lake": (580, 800)}


@dataclass(frozen=True)
class SceneGroup:
    """Common properties of the objects of a group, before they are placed."""

    number: int
    kind: Kind
    zone: str
    colour: str
    texture: str
    size: str
    count: int
    width: int
    height: int


@dataclass
class SceneComposer:
    """Objects placed so far, in order, with the relations for which they were placed."""

    objects: list[SceneObject] = field(default_factory=list)
    composed: list[Relation] = field(default_factory=list)

    def place(self, items: Sequence[SceneObject], relation: str = "", other: int = -1) -> bool:
        """Place all objects, each in `relation` to object number `other`, if every pair stays unambiguous."""
        for number, item in enumerate(items):
            for i, placed in enumerate([*self.objects, *items[:number]]):
                if not is_unambiguous(item, placed, relation if i == other else ""):
                    return False
        self.composed += [(relation, len(self.objects) + i, other) for i in range(len(items)) if relation]
        self.objects += items
        return True


# -- the geometry of relations


def is_unambiguous(a: SceneObject, b: SceneObject, relation: str = "") -> bool:
    """Whether a viewer sees at once how `a` and `b` are related; `relation` is the one for which they were placed.

    With g the distance of the centres and W the sum of the widths, g ≤ W/6 is neither left nor right, g ≥ W/3 is left or right,
    and values between are ambiguous. If one of them flies or is on something, it must be entirely above or below the other, or
    overlap it vertically by more than 30 % of the smaller height.

    >>> boxes = [Box(x, 700, x + 200, 900) for x in (0, 50, 250)]
    >>> dog, *dogs = (SceneObject("dog", "red", "plain", "medium", box, 0, "ground") for box in boxes)
    >>> [is_unambiguous(dog, other) for other in dogs]
    [False, True]
    """
    p, q = a.box, b.box
    gap, widths = 3 * abs(p.x0 + p.x1 - q.x0 - q.x1), (p.x1 - p.x0) + (q.x1 - q.x0)
    if widths < gap < 2 * widths:
        return False
    overlap_x = min(p.x1, q.x1) - max(p.x0, q.x0)
    overlap_y = min(p.y1, q.y1) - max(p.y0, q.y0)
    if overlap_y > 0 and (_elevated(a) or _elevated(b)) and 10 * overlap_y <= 3 * min(p.y1 - p.y0, q.y1 - q.y0):
        return False
    if relation == "on":
        return overlap_y == 0 and q.x0 <= p.x0 and p.x1 <= q.x1
    if relation == "behind":
        width, height, hidden = p.x1 - p.x0, p.y1 - p.y0, 100 * overlap_x * overlap_y
        # with a hidden base, `a` may seem to be on the object in front
        has_visible_base = overlap_x > 0 and overlap_y > 0 and 10 * overlap_x <= 6 * width
        return has_visible_base and 15 * width * height <= hidden <= 40 * width * height and height >= q.y1 - q.y0
    return overlap_x <= -MARGIN or (overlap_x <= 0 and overlap_y <= -MARGIN) or overlap_y <= -CLEARANCE


def _elevated(item: SceneObject) -> bool:
    return item.footing in ("air", "on")


def relations_between(a: SceneObject, b: SceneObject) -> tuple[str, ...]:
    """Relations of `a` to `b` that follow from their boxes: left of, right of, above, below.

    >>> low = SceneObject("dog", "red", "plain", "small", Box(100, 700, 250, 850), 0, "ground")
    >>> relations_between(low, SceneObject("bird", "red", "plain", "small", Box(400, 100, 550, 250), 1, "air"))
    ('left of', 'below')
    """
    p, q = a.box, b.box
    gap, widths = 3 * (q.x0 + q.x1 - p.x0 - p.x1), (p.x1 - p.x0) + (q.x1 - q.x0)
    conditions = (
        ("left of", gap >= 2 * widths),
        ("right of", -gap >= 2 * widths),
        ("above", _elevated(a) and p.y1 <= q.y0),
        ("below", _elevated(b) and q.y1 <= p.y0),
    )
    return tuple(name for name, true in conditions if true)


def all_relations(objects: Sequence[SceneObject], composed: Sequence[Relation] = ()) -> frozenset[Relation]:
    """Every relation over all ordered pairs: those that follow from the boxes, and the `composed` ones."""
    pairs = [(i, j) for i in range(len(objects)) for j in range(len(objects)) if i != j]
    return frozenset([*composed, *((r, i, j) for i, j in pairs for r in relations_between(objects[i], objects[j]))])


# -- groups


@cache
def kinds_in(zone: str) -> tuple[Kind, ...]:
    """Kinds of a zone; frequently photographed kinds, and kinds that can carry others, are repeated."""
    return tuple(k for k in KINDS if zone in k.places for _ in range((1 + 3 * (k.name in COMMON)) * (1 + k.supports)))


@cache
def _perching_in(zone: str) -> tuple[Kind, ...]:
    return tuple(kind for kind in kinds_in(zone) if kind.perches)


def object_extent(kind: Kind, size: str, percent: int) -> tuple[int, int]:
    """Width and height of an object of this size, scaled by `percent`."""
    side = SIDE[size] * percent  # in hundredths of a thousandth
    root = isqrt(round(kind.aspect * 1_000_000))  # 1000 · √(width / height)
    longest = SIDE[size] * LARGEST_SIDE  # also in hundredths
    side = min(side, longest * 1000 // root, longest * root // 1000)
    return side * root // 100_000, side * 10 // root


def _sample_group(dice: Dice, number: int, zone: str, kind: Kind, crowd: int, most: int) -> SceneGroup:
    """A group of this kind; if there are many groups, they are smaller and most have one object."""
    count = min(most, dice.weighted(range(1, 7), COUNT_WEIGHTS if crowd < 5 else CROWDED_COUNTS))
    weights = CROWDED_SIZES if count == 1 and crowd > 3 else SIZE_WEIGHTS.get(count, (1, 0, 0))
    if kind.supports and count == 1:
        weights = SUPPORT_SIZES
    size = dice.weighted(SIZES, weights)
    width, height = object_extent(kind, size, dice.between(*SCALE.get(count, (94, 106))))
    colour, texture = dice.pick(COLOURS), dice.weighted(tuple(TEXTURE_WEIGHTS), tuple(TEXTURE_WEIGHTS.values()))
    return SceneGroup(number, kind, zone, colour, texture, size, count, width, height)


def _sample_groups(dice: Dice, setting: str) -> list[SceneGroup]:
    """Groups that captions can distinguish: two of one kind differ in colour or texture."""
    zones, crowd = ZONE_WEIGHTS[setting], dice.weighted(range(1, 7), GROUP_WEIGHTS)
    groups: list[SceneGroup] = []
    for _ in range(3 * crowd):
        free = MAX_OBJECTS - sum(group.count for group in groups)
        if len(groups) == crowd or not free:
            break
        zone = dice.weighted(tuple(zones), tuple(zones.values()))
        kind = dice.pick(kinds_in(zone))
        if groups and groups[-1].kind.supports and dice.chance(70):  # put something on it
            zone = groups[-1].zone
            kind, free = dice.pick(_perching_in(zone)), min(free, 2)
        elif groups and dice.chance(18):  # same kind, distinguished only by attributes
            zone, kind = groups[-1].zone, groups[-1].kind
        group = _sample_group(dice, len(groups), zone, kind, crowd, free)
        if all((group.kind, group.colour, group.texture) != (g.kind, g.colour, g.texture) for g in groups):
            groups.append(group)
    return groups


# -- placement


def _bigger(size: str, than: str) -> bool:
    return SIZES.index(size) > SIZES.index(than)


def _make_object(dice: Dice, group: SceneGroup, x: int, bottom: int, footing: str) -> SceneObject:
    return SceneObject(
        group.kind.name,
        group.colour,
        group.texture,
        group.size,
        Box(x, bottom - group.height, x + group.width, bottom),
        group.number,
        footing,
        mirrored=not group.kind.upright and dice.chance(50),
        tilt=0 if group.kind.supports or footing == "on" else dice.between(-8, 8),  # supports and carried objects are level
    )


def _ground_row(dice: Dice, stage: SceneComposer, groups: Sequence[SceneGroup], bottoms: tuple[int, int]) -> None:
    """Place groups side by side in random order with random gaps; drop the last ones if they do not fit."""
    row = dice.shuffled(groups)
    while (spare := 960 - sum(g.count * (g.width + MARGIN) for g in row)) < 0:
        row.pop()
    members = [(group, i) for group in row for i in range(group.count)]
    gaps = [dice.between(1, 100 if i == 0 else 25) for _, i in members] + [dice.between(1, 100)]
    x, depth = 20, 0
    for (group, i), gap in zip(members, gaps, strict=False):
        depth = dice.between(*bottoms) if i == 0 else max(bottoms[0], min(bottoms[1], depth + dice.between(-20, 20)))
        x += spare * gap // sum(gaps)
        stage.objects.append(_make_object(dice, group, x, depth, "ground"))
        x += group.width + MARGIN


def _put_on(dice: Dice, stage: SceneComposer, group: SceneGroup) -> bool:
    """Place one or two objects on a bigger object that carries nothing yet."""
    taken = {j for relation, _, j in stage.composed if relation == "on"}
    for j in dice.shuffled(range(len(stage.objects))):
        support = stage.objects[j]
        left, top, right, _ = support.box
        room = right - left - group.count * group.width
        if (
            j in taken
            or room < 0
            or not _bigger(support.size, group.size)
            or not KIND[support.kind].supports
            or support.footing == "on"
        ):
            continue
        step = group.width + min(MARGIN + dice.below(20), room)
        for _ in range(4):
            slack = room - (group.count - 1) * (step - group.width)
            x = left + (slack // 4 + dice.below(slack // 2 + 1) if slack > 0 else 0)
            if stage.place([_make_object(dice, group, x + i * step, top, "on") for i in range(group.count)], "on", j):
                return True
    return False


def _put_behind(dice: Dice, stage: SceneComposer, group: SceneGroup) -> bool:
    """Place a single object behind one of the ground row, partly hidden only by it."""
    hidden = {i for relation, i, _ in stage.composed if relation == "behind"}
    row = [j for j, item in enumerate(stage.objects) if item.footing == "ground" and j not in hidden]
    for j in dice.shuffled(row):
        left, top, right, low = stage.objects[j].box
        for _ in range(8 if group.height >= low - top else 0):
            bottom = dice.between(*BACK)
            area, high = group.width * group.height, max(1, bottom - top)
            least, most = -(-15 * area // (100 * high)), min(40 * area // (100 * high), group.width * 6 // 10)
            if least > min(most, right - left):
                continue
            wide = dice.between(least, min(most, right - left))
            x = dice.pick((left - group.width + wide, right - wide))
            if right - left <= most and dice.chance(50):  # the front object is within the width of the other
                x = dice.between(right - group.width, left)
            item = _make_object(dice, group, x, bottom, "ground")
            if 20 <= x <= 980 - group.width and stage.place([item], "behind", j):
                return True
    return False


def place_freely(dice: Dice, stage: SceneComposer, group: SceneGroup, lows: tuple[int, int], rows: int) -> bool:
    """Place a group in rows in the sky or on the water; `lows` bounds the bottom of the lowest row."""
    columns = -(-group.count // rows)
    step_x, step_y = group.width + MARGIN + dice.below(group.width // 3), group.height + CLEARANCE + 4
    slack = 960 - (columns - 1) * step_x - group.width
    if slack < 0 or lows[0] > lows[1]:
        return False
    for _ in range(16):
        x, bottom = 20 + dice.below(slack + 1), dice.between(*lows)
        cells = [(x + i % columns * step_x, bottom - i // columns * step_y) for i in range(group.count)]
        if stage.place([_make_object(dice, group, *cell, FOOTING[group.zone]) for cell in cells]):
            return True
    return False


def _put_in_sky(dice: Dice, stage: SceneComposer, group: SceneGroup) -> bool:
    rows = 2 if group.count > 3 else 1
    top, bottom = SKY
    return place_freely(dice, stage, group, (top + rows * group.height + (rows - 1) * (CLEARANCE + 4), bottom), rows)


def _plan(dice: Dice, groups: Sequence[SceneGroup]) -> dict[str, list[SceneGroup]]:
    """Assign groups to the ground row, on something, behind something, the water, and the sky.

    Only feasible places are chosen: a bigger object to be on, an object that is not taller to be behind.
    """
    places: dict[str, list[SceneGroup]] = {"row": [], "on": [], "behind": [], "water": [], "air": []}
    grounded = [g for g in groups if FOOTING[g.zone] == "ground"]
    supports = [g for g in grounded if g.kind.supports]
    for g in groups:
        carried = g.kind.perches and g.count < 3 and any(_bigger(s.size, g.size) for s in supports if s is not g)
        hidden = (
            g.count == 1
            and g.size != "small"
            and any(o.height <= g.height for o in grounded if o is not g and o not in places["behind"])
        )
        if g not in grounded:
            places[g.zone].append(g)
        elif carried and dice.chance(80):
            places["on"].append(g)
        elif hidden and dice.chance(30 if g.kind.supports else 65):
            places["behind"].append(g)
        else:
            places["row"].append(g)
    return places


def compose(dice: Dice, setting: str, groups: Sequence[SceneGroup]) -> SceneComposer:
    """Place the ground row, then objects on it and behind it, then water and sky; drop groups without a free place."""
    plan, stage = _plan(dice, groups), SceneComposer()
    _ground_row(dice, stage, plan["row"], SHORE.get(setting, GROUND))
    for group in plan["on"]:
        _put_on(dice, stage, group)
    for group in plan["behind"]:
        _put_behind(dice, stage, group)
    for group in plan["water"]:
        place_freely(dice, stage, group, WATER[setting], rows=1)
    for group in plan["air"]:
        _put_in_sky(dice, stage, group)
    return stage


def _best(dice: Dice, setting: str, groups: Sequence[SceneGroup]) -> SceneComposer:
    """The first of a few layouts in which every group has a place, or the one with the most objects."""
    best = SceneComposer()
    for _ in range(TRIES):
        stage = compose(dice, setting, groups)
        if len(stage.objects) > len(best.objects):
            best = stage
        if len(best.objects) == sum(group.count for group in groups):
            break
    return best


def _depth(stage: SceneComposer, i: int) -> tuple[int, int]:
    """Drawing order, back to front: sky, water, hidden objects, the ground row by its bottoms, carried objects."""
    item = stage.objects[i]
    hidden = any(relation == "behind" and i == a for relation, a, _ in stage.composed)
    return (1 if hidden else {"air": 0, "water": 0, "ground": 2, "on": 3}[item.footing], item.box.y1)


def sample_scene(*seed: object) -> Scene:
    """A random scene: 1 to 6 groups, at most 8 objects in plausible places, with unambiguous relations.

    The same seed gives the same scene on every machine.

    >>> scene = sample_scene("docs", 1)
    >>> scene == sample_scene("docs", 1), scene == sample_scene("docs", 2)
    (True, False)
    """
    dice = Dice("scene", *seed)
    setting = dice.pick(SETTINGS)
    stage = _best(dice, setting, _sample_groups(dice, setting))
    while not stage.objects:
        stage = _best(dice, setting, _sample_groups(dice, setting))
    return finish_scene(setting, stage, dice.between(75, 115), dice.bits() >> 1)


def finish_scene(setting: str, stage: SceneComposer, light: int, seed: int) -> Scene:
    """The scene of the placed objects, from back to front, with all their relations."""
    order = sorted(range(len(stage.objects)), key=lambda i: (*_depth(stage, i), i))
    new = {old: i for i, old in enumerate(order)}
    numbers = {g: n for n, g in enumerate(dict.fromkeys(item.group for item in stage.objects))}  # no gaps
    objects = tuple(replace(stage.objects[i], group=numbers[stage.objects[i].group]) for i in order)
    composed = [(relation, new[i], new[j]) for relation, i, j in stage.composed]
    return Scene(setting, objects, all_relations(objects, composed), light, seed)
