"""Scenes of diorama: objects in boxes, relations between them, a setting, and the regions of the picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white")
TEXTURES = ("plain", "striped", "dotted")
SIZES = ("small", "medium", "large")
SETTINGS = ("beach", "street", "room", "night", "meadow", "desert", "snow", "lake")
RELATIONS = ("left of", "right of", "above", "below", "on", "behind")
MAX_OBJECTS = 8  # of a scene: a set of objects is one byte in `truth`
THOUSANDTHS = 1000  # the unit of boxes
WHOLE = (0.0, 0.0, 1.0, 1.0)

Region = tuple[float, float, float, float]


class Box(NamedTuple):
    """Left, top, right and bottom in thousandths of the picture's side; y grows downwards."""

    x0: int
    y0: int
    x1: int
    y1: int


@dataclass(frozen=True)
class SceneObject:
    """One drawn object. Objects of a group share kind, colour, texture and size; their number is the count of the group."""

    kind: str
    colour: str
    texture: str
    size: str
    box: Box
    group: int
    footing: str  # "ground", "water", "air" or "on" (another object)
    mirrored: bool = False
    tilt: int = 0  # degrees, counter-clockwise


@dataclass(frozen=True)
class Scene:
    """A setting, its objects from back to front (the drawing order), and every relation that holds.

    Attributes:
        setting: One of `SETTINGS`.
        objects: The objects.
        relations: Triples (relation, i, j): object i is left of / right of / above / below / on / behind object j.
        light: Brightness in percent.
        seed: Seed of the picture's noise.
    """

    setting: str
    objects: tuple[SceneObject, ...]
    relations: frozenset[tuple[str, int, int]]
    light: int
    seed: int


def regions(scene: Scene) -> tuple[Region, ...]:
    """The whole picture, which shows the setting, then the box of each object in drawing order.

    A region is left, top, right and bottom in fractions of the picture. A tilted object (by at most 8 degrees) reaches slightly
    beyond its box, and an object behind another is partly hidden. Each object of a group has its own region.

    Every drawn picture has its regions in `picture.info["regions"]`, for models that use regions. Pillow keeps them when a
    picture is copied, converted or resized, where they stay valid; drop them after cropping, rotating or mirroring.

    >>> dog = SceneObject("dog", "red", "plain", "small", Box(100, 700, 250, 850), 0, "ground")
    >>> regions(Scene("beach", (dog,), frozenset(), 100, seed=4))
    ((0.0, 0.0, 1.0, 1.0), (0.1, 0.7, 0.25, 0.85))
    """
    boxes = (item.box for item in scene.objects)
    return (WHOLE, *((x0 / THOUSANDTHS, y0 / THOUSANDTHS, x1 / THOUSANDTHS, y1 / THOUSANDTHS) for x0, y0, x1, y1 in boxes))
