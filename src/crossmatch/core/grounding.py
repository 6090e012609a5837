"""Where in an image a text is grounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True, eq=False)
class Grounding:
    """How much each text is grounded in each region of its image, s(V, C) of jiang2019tiger, eq. 5.

    Images may have different numbers of regions: the last places of a row are NaN then. A box is left, top, right and bottom, in
    fractions of the picture's width and height.

    >>> Grounding(np.array([[0.9, 0.1], [0.5, np.nan]])).regions
    array([2, 1])
    """

    scores: FloatArray  # (texts, regions)
    boxes: FloatArray | None = None  # (texts, regions, 4)

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or (self.boxes is not None and self.boxes.shape != (*self.scores.shape, 4)):
            boxes = "none" if self.boxes is None else self.boxes.shape
            raise CrossmatchError(
                f"groundings of shape {self.scores.shape} with boxes of shape {boxes}; (texts, regions) and (texts, regions, 4) "
                "were expected. Pad images with fewer regions with NaN."
            )
        known = ~np.isnan(self.scores)
        if (known[:, 1:] & ~known[:, :-1]).any() or np.isinf(self.scores).any():
            at = int(np.flatnonzero((known[:, 1:] & ~known[:, :-1]).any(axis=1) | np.isinf(self.scores).any(axis=1))[0])
            raise CrossmatchError(
                f"grounding {at} has an infinite score, or none before a known one. Put NaN at the end of the row only."
            )

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def regions(self) -> IntArray:
        """The number of regions of each image."""
        found: IntArray = (~np.isnan(self.scores)).sum(axis=1)
        return found


@runtime_checkable
class Grounder(Protocol):
    """Says in which regions of image n text n is grounded, for many n at once. The same image may come several times."""

    def ground(self, images: Sequence[Image], texts: Sequence[str]) -> Grounding: ...
