"""What an objective is given at each step: some images, a caption for each, and which of the images are the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from crossmatch.models.zoo.inputs import Regions, Words


@dataclass(frozen=True, eq=False)
class Negatives:
    """The hard negatives of a batch, row by row: a caption that is almost, but not, true of the row's image.

    Where there are images as well, that of a row is one of which its negative caption is said to be true.
    """

    words: Words
    regions: Regions | None = None
    image: Tensor | None = None  # (B,) int64: the number of each negative image, from the same count as the others


@dataclass(frozen=True, eq=False)
class Batch:
    """B pairs of an image and a caption of it; row n of everything belongs together.

    An image may come twice, with two of its captions. A net that reads texts in a way of its own (`read_all`) finds here what it
    made of them instead of `Words`.
    """

    regions: Regions
    words: Words
    image: Tensor  # (B,) int64: the number of each row's image
    others: Words | None = None  # another caption of each row's image; the same one where it has no other
    negatives: Negatives | None = None  # where the data have some
    known: Tensor | None = None  # (images, texts), negatives after the others: pairs that the data say are true

    def __len__(self) -> int:
        return len(self.image)
