"""Which regions of a picture the zoo looks at: things first, the largest before the others, then its background.

The published systems look at the 36 regions of a detector (anderson2018bottomup, sec. 3.1), which are never quite right, and some
of which show nothing in particular. Where a picture carries boxes (`info["regions"]`, see `crossmatch.models.regions`), each is
moved a little, as a detector's would be, and some boxes that nobody asked for are added. All of it follows from the values of the
boxes alone, so that a picture has the same regions whenever it is looked at.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from crossmatch.core.arrays import FloatArray
from crossmatch.models.regions import GRID, regions_of

if TYPE_CHECKING:
    from PIL.Image import Image

MOST = 36  # regions of a picture, as in the papers
STRAYS = 2  # boxes of the background beside the whole picture
INACCURACY = 0.08  # how far each side of a box may move, as a share of the box's width or height
WHOLE = np.array([[0.0, 0.0, 1.0, 1.0]])
WHOLE.flags.writeable = False


def looked_at(image: Image) -> FloatArray:
    """The regions of a picture, shape (K, 4) with K ≤ `MOST`: left, top, right, bottom in fractions of the picture.

    A picture with boxes has its things, as far as there is room, the largest first; then the whole and `STRAYS` more. One
    without boxes has the whole, its quarters and its ninths.

    >>> from PIL import Image
    >>> photo = Image.new("RGB", (40, 30))
    >>> looked_at(photo).shape
    (14, 4)
    >>> photo.info["regions"] = [(0, 0, 1, 1), (0.5, 0.5, 0.6, 0.6), (0.1, 0.2, 0.5, 0.8)]
    >>> looked_at(photo).round(2)
    array([[0.1 , 0.2 , 0.52, 0.82],
           [0.5 , 0.51, 0.6 , 0.61],
           [0.  , 0.  , 1.  , 1.  ],
           [0.1 , 0.19, 0.52, 0.62],
           [0.55, 0.46, 0.94, 0.89]])
    """
    if "regions" not in image.info:
        return GRID
    given = regions_of(image)
    things = given[(given != WHOLE).any(axis=1)]
    area = (things[:, 2:] - things[:, :2]).prod(axis=1)
    order = np.argsort(-area, kind="stable")[: MOST - 1 - STRAYS]
    return np.concatenate([jittered(things[order]), WHOLE, strays(given)])


def jittered(boxes: FloatArray, most: float = INACCURACY) -> FloatArray:
    """Each side moved by at most `most` of the box's width or height, and never out of the picture; equal boxes move alike.

    >>> jittered(np.array([[0.25, 0.25, 0.75, 0.75]])).round(3)
    array([[0.227, 0.263, 0.76 , 0.725]])
    """
    if not len(boxes):
        return np.empty((0, 4))
    extent = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    moved = boxes + extent * most * (2 * np.array([_fractions(box) for box in boxes]) - 1)
    return np.asarray(np.clip(moved, 0.0, 1.0))


def strays(boxes: FloatArray, number: int = STRAYS) -> FloatArray:
    """Boxes of 0.35 to 0.65 of the picture's sides, anywhere in it: what a detector sees where there is nothing in particular."""
    at = np.array([_fractions(boxes, which) for which in range(number)]).reshape(number, 4)
    extent = 0.35 + 0.3 * at[:, 2:]
    corner = at[:, :2] * (1 - extent)
    return np.concatenate([corner, corner + extent], axis=1)


def _fractions(values: FloatArray, which: int = 0) -> FloatArray:
    """Four numbers from 0 to 1 that look random and follow from the values alone."""
    told = np.ascontiguousarray(values, dtype="<f8").tobytes() + which.to_bytes(2, "little")
    return np.frombuffer(blake2b(told, digest_size=16).digest(), "<u4") / np.float64(2**32 - 1)
