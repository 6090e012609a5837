"""The regions of a scene: where its things are in the picture, and the picture as a whole for where it all takes place."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .scenes import Scene

THOUSANDTHS = 1000  # the unit of a thing's box
WHOLE = (0.0, 0.0, 1.0, 1.0)

Region = tuple[float, float, float, float]


def regions(scene: Scene) -> tuple[Region, ...]:
    """The whole picture, which shows the setting, then the box of each thing in the order of drawing.

    A region is left, top, right and bottom in fractions of the picture. A thing's region is the box that it was composed in: one
    that is tilted (by 8 degrees at most) reaches a little beyond it, and one that stands behind another is partly hidden.
    Things of one group have a region each.

    Every drawn picture carries its regions as `picture.info["regions"]`, for models that look at regions. Pillow keeps them when a
    picture is copied, converted or resized, where they stay right; whoever crops, turns or mirrors it has to drop them.

    >>> from .scenes import Box, Scene, Thing
    >>> dog = Thing("dog", "red", "plain", "small", Box(100, 700, 250, 850), 0, "ground")
    >>> regions(Scene("beach", (dog,), frozenset(), 100, seed=4))
    ((0.0, 0.0, 1.0, 1.0), (0.1, 0.7, 0.25, 0.85))
    """
    boxes = ((thing.box.x0, thing.box.y0, thing.box.x1, thing.box.y1) for thing in scene.things)
    things = ((x0 / THOUSANDTHS, y0 / THOUSANDTHS, x1 / THOUSANDTHS, y1 / THOUSANDTHS) for x0, y0, x1, y1 in boxes)
    return (WHOLE, *things)
