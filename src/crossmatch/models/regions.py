"""The regions of a picture that a grounding model looks at.

They are those that the picture carries, as `image.info["regions"]`: left, top, right and bottom of each, in fractions of the
picture (y grows downwards). Pictures of the embedded world do, and whoever has a detector can put its boxes there. Any other
picture gets a fixed grid: the whole, its quarters and its ninths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import CrossmatchError

if TYPE_CHECKING:
    from PIL.Image import Image


def _tiles(number: int) -> list[tuple[float, float, float, float]]:
    at = [n / number for n in range(number + 1)]
    return [(at[x], at[y], at[x + 1], at[y + 1]) for y in range(number) for x in range(number)]


GRID = np.array([tile for number in (1, 2, 3) for tile in _tiles(number)])  # 1 + 4 + 9 regions
GRID.flags.writeable = False


def regions_of(image: Image) -> FloatArray:
    """The regions that a picture carries, shape (K, 4), or those of `GRID`.

    >>> from PIL import Image
    >>> photo = Image.new("RGB", (40, 30))
    >>> regions_of(photo).shape
    (14, 4)
    >>> photo.info["regions"] = [(0.25, 0.5, 0.75, 1.0)]
    >>> regions_of(photo)
    array([[0.25, 0.5 , 0.75, 1.  ]])
    """
    if "regions" not in image.info:
        return GRID
    try:
        boxes = np.asarray(image.info["regions"], dtype=np.float64)
    except (ValueError, TypeError):
        boxes = np.empty(0)
    if boxes.ndim != 2 or boxes.shape[1:] != (4,) or not len(boxes):
        raise CrossmatchError(
            'info["regions"] of a picture is no list of regions. Give (left, top, right, bottom) for each, or none.'
        )
    fine = (boxes >= 0).all(axis=1) & (boxes <= 1).all(axis=1) & (boxes[:, :2] < boxes[:, 2:]).all(axis=1)
    if not fine.all():
        raise CrossmatchError(
            f"a picture has the region {boxes[int((~fine).argmax())].tolist()}; left < right and top < bottom were expected, in "
            "fractions of the picture from 0 to 1."
        )
    return boxes


def crops_of(image: Image, boxes: FloatArray, side: int) -> NDArray[np.uint8]:
    """What is to be seen in each region, stretched to a square: shape (K, side, side, 3)."""
    from PIL import Image

    picture = image.convert("RGB")
    out = np.empty((len(boxes), side, side, 3), dtype=np.uint8)
    for filled, (left, top, right, bottom) in zip(out, (boxes * ([*picture.size] * 2)).tolist(), strict=True):
        filled[:] = np.asarray(picture.resize((side, side), Image.Resampling.BILINEAR, (left, top, right, bottom)))
    return out
