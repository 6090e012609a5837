"""The regions of an image for a grounding model, and their crops.

An image may carry regions in `image.info["regions"]`: left, top, right and bottom of each, in fractions of the image (y grows
downwards). Images of diorama do, and users can store the boxes of a detector there. Any other image gets a fixed grid: the whole
image, its quarters and its ninths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import CrossmatchError

if TYPE_CHECKING:
    from PIL.Image import Image


def _tiles(number: int) -> list[tuple[float, float, float, float]]:
    edges = [n / number for n in range(number + 1)]
    return [(edges[x], edges[y], edges[x + 1], edges[y + 1]) for y in range(number) for x in range(number)]


GRID = np.array([tile for number in (1, 2, 3) for tile in _tiles(number)])  # 1 + 4 + 9 regions
GRID.flags.writeable = False


def get_regions(image: Image) -> FloatArray:
    """Return the regions that an image carries, (K, 4), or those of `GRID`.

    >>> from PIL import Image
    >>> photo = Image.new("RGB", (40, 30))
    >>> get_regions(photo).shape
    (14, 4)
    >>> photo.info["regions"] = [(0.25, 0.5, 0.75, 1.0)]
    >>> get_regions(photo)
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
            'info["regions"] of an image is not a list of regions. Store (left, top, right, bottom) for each, or remove it.'
        )
    is_valid = (boxes >= 0).all(axis=1) & (boxes <= 1).all(axis=1) & (boxes[:, :2] < boxes[:, 2:]).all(axis=1)
    if not is_valid.all():
        raise CrossmatchError(
            f"an image has the region {boxes[int((~is_valid).argmax())].tolist()}; expected left < right and top < bottom, in "
            "fractions of the image from 0 to 1."
        )
    return boxes


def crop_regions(image: Image, boxes: FloatArray, side: int) -> NDArray[np.uint8]:
    """Crop each region and resize it to a square: (K, side, side, 3)."""
    from PIL import Image

    rgb = image.convert("RGB")
    out = np.empty((len(boxes), side, side, 3), dtype=np.uint8)
    for target, (left, top, right, bottom) in zip(out, (boxes * ([*rgb.size] * 2)).tolist(), strict=True):
        target[:] = np.asarray(rgb.resize((side, side), Image.Resampling.BILINEAR, (left, top, right, bottom)))
    return out
