"""Groundings: how much each text refers to each region of its image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, eq=False)
class Grounding:
    """How much each text is grounded in each region of its image, s(V, C) of jiang2019tiger, eq. 5.

    Images may have different numbers of regions; shorter rows are padded with NaN.

    Attributes:
        scores: Scores of shape (texts, regions).
        boxes: Left, top, right and bottom of each region as fractions of width and height, of shape (texts, regions, 4).

    >>> import numpy as np
    >>> Grounding(np.array([[0.9, 0.1], [0.5, np.nan]])).regions
    array([2, 1])
    """

    scores: FloatArray
    boxes: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or (self.boxes is not None and self.boxes.shape != (*self.scores.shape, 4)):
            boxes = "none" if self.boxes is None else self.boxes.shape
            raise CrossmatchError(
                f"Groundings have shape {self.scores.shape} and boxes {boxes}; expected (texts, regions) and (texts, regions, 4). "
                "Pad images with fewer regions with NaN."
            )
        has_score = ~np.isnan(self.scores)
        is_bad = (has_score[:, 1:] & ~has_score[:, :-1]).any(axis=1) | np.isinf(self.scores).any(axis=1)
        if is_bad.any():
            raise CrossmatchError(
                f"Grounding {int(is_bad.argmax())} has an infinite score, or NaN before a score. Use NaN only at the end of a row."
            )

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def regions(self) -> IntArray:
        """The number of regions of each image."""
        counts: IntArray = (~np.isnan(self.scores)).sum(axis=1)
        return counts


@runtime_checkable
class Grounder(Protocol):
    """A model that says in which regions of image n text n is grounded. The same image may occur several times."""

    def ground(self, images: Sequence[Image], texts: Sequence[str]) -> Grounding: ...


def takes_image_ids(model: object) -> bool:
    """Whether a model declares with `inputs = "ids"` that it takes ids in place of images, such as one with precomputed regions.

    >>> takes_image_ids(print)
    False
    """
    return getattr(model, "inputs", "") == "ids"
