"""Splits of the embedded world as training arrays, drawn by several processes. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.io.progress import track
from crossmatch.diorama.caption_writer import describe
from crossmatch.diorama.scene_sampling import sample_scene

if TYPE_CHECKING:
    from crossmatch.diorama.scenes import Scene

SCENES_PER_PART = 250  # scenes that a process draws in one go
T = TypeVar("T")


class ScenePart(NamedTuple):
    """A range of scenes of a split, and how they are drawn. Scene n depends on split and n only."""

    split: str
    numbers: range
    pixels: int


def draw_split(split: str, images: int, pixels: int, workers: int = 2) -> tuple[NDArray[np.uint8], list[str]]:
    """Draw the images (N, pixels, pixels, 3) and captions, five per image, of `Diorama.make(split, images)`.

    >>> pictures, captions = draw_split("val", 2, pixels=16)
    >>> pictures.shape, len(captions)
    ((2, 16, 16, 3), 10)
    """
    parts = map_scene_parts(_draw_part, split, images, pixels, workers)
    return np.concatenate([pictures for pictures, _ in parts]), [text for _, texts in parts for text in texts]


def map_scene_parts(function: Callable[[ScenePart], T], split: str, images: int, pixels: int, workers: int = 2) -> list[T]:
    """Apply a function to parts of the scenes, in order; several processes work if there is more than one part."""
    starts = range(0, images, SCENES_PER_PART)
    parts = [ScenePart(split, range(first, min(first + SCENES_PER_PART, images)), pixels) for first in starts]
    if len(parts) == 1 or workers == 1:
        return [function(part) for part in track(parts, f"drawing the {split} scenes")]
    with get_context("spawn").Pool(workers) as pool:  # a forked process with torch's threads may hang
        return list(track(pool.imap(function, parts), f"drawing the {split} scenes", len(parts)))


def _draw_part(part: ScenePart) -> tuple[NDArray[np.uint8], list[str]]:
    pictures, texts = np.empty((len(part.numbers), part.pixels, part.pixels, 3), np.uint8), []
    for picture, n in zip(pictures, part.numbers, strict=True):
        scene = sample_scene("diorama", 0, part.split, n)
        picture[:] = draw_pixels(scene, "camera", part.pixels)
        texts += [caption.text for caption in describe(scene, "diorama", 0, part.split, n)]
    return pictures, texts


def draw_pixels(scene: Scene, style: str, side: int) -> NDArray[np.uint8]:
    """Draw a scene at twice the size and average, as a larger image is when it is embedded: (side, side, 3)."""
    from PIL.Image import Resampling

    from crossmatch.diorama.drawing import draw

    return np.asarray(draw(scene, style, 2 * side).resize((side, side), Resampling.BOX))
