"""What a scene is: things in boxes, the relations between them, and where it all takes place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white")
TEXTURES = ("plain", "striped", "dotted")
SIZES = ("small", "medium", "large")
SETTINGS = ("beach", "street", "room", "night", "meadow", "desert", "snow", "lake")
RELATIONS = ("left of", "right of", "above", "below", "on", "behind")


class Box(NamedTuple):
    """Left, top, right, bottom in thousandths of the picture's side; y grows downwards."""

    x0: int
    y0: int
    x1: int
    y1: int


@dataclass(frozen=True)
class Thing:
    """One drawn object. Things of one group share kind, colour, texture and size; their number is the group's count."""

    kind: str
    colour: str
    texture: str
    size: str
    box: Box
    group: int
    footing: str  # "ground", "water", "air" or "on" (standing on another thing)
    mirrored: bool = False
    tilt: int = 0  # degrees, counter-clockwise


@dataclass(frozen=True)
class Scene:
    """A setting, its things from back to front (the order of drawing), and every relation that holds.

    `relations` holds `(relation, i, j)`: thing i is left of / right of / above / below / on / behind thing j.
    `light` is the brightness in percent; `seed` feeds the noise of the picture.
    """

    setting: str
    things: tuple[Thing, ...]
    relations: frozenset[tuple[str, int, int]]
    light: int
    seed: int
