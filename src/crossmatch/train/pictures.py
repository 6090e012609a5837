"""A split of the embedded world as arrays to train on, imagined and drawn by two processes. Needs no torch."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.progress import track
from crossmatch.diorama.grammar import describe
from crossmatch.diorama.layout import sample_scene

PART = 250  # scenes that a process draws in one go
Drawn = tuple[NDArray[np.uint8], list[str]]
Part = tuple[str, range, int, int]  # the split, the numbers of its scenes, pixels and seed
T = TypeVar("T")


def draw_split(split: str, images: int, pixels: int, seed: int = 0, workers: int = 2) -> Drawn:
    """Pictures (images, pixels, pixels, 3) and their captions, five after another, as `Diorama.make(split, images)` has them.

    Drawn at twice the size and averaged, as a larger picture is when it is embedded. Few pictures need no second process.

    >>> pictures, captions = draw_split("val", 2, pixels=16)
    >>> pictures.shape, len(captions)
    ((2, 16, 16, 3), 10)
    """
    drawn = in_parts(_draw, split, images, pixels, seed, workers)
    return np.concatenate([pictures for pictures, _ in drawn]), [text for _, texts in drawn for text in texts]


def in_parts(draw: Callable[[Part], T], split: str, images: int, pixels: int, seed: int = 0, workers: int = 2) -> list[T]:
    """What `draw` makes of each share of the scenes, in order, by so many processes if there are many scenes."""
    parts = [(split, range(at, min(at + PART, images)), pixels, seed) for at in range(0, images, PART)]
    if len(parts) == 1 or workers == 1:
        return [draw(part) for part in track(parts, f"drawing the {split} scenes")]
    with get_context("spawn").Pool(workers) as pool:  # spawn: a fork of a process with torch's threads may hang
        coming = pool.imap(draw, parts)
        return [next(coming) for _ in track(parts, f"drawing the {split} scenes")]


def _draw(part: Part) -> Drawn:
    """Scene n depends on the seed, the split and n alone, so any process can make its share."""
    from PIL.Image import Resampling

    from crossmatch.diorama.draw import draw

    split, numbers, pixels, seed = part
    pictures, texts = np.empty((len(numbers), pixels, pixels, 3), np.uint8), []
    for picture, n in zip(pictures, numbers, strict=True):
        scene = sample_scene("diorama", seed, split, n)
        picture[:] = np.asarray(draw(scene, "camera", 2 * pixels).resize((pixels, pixels), Resampling.BOX))
        texts += [caption.text for caption in describe(scene, "diorama", seed, split, n)]
    return pictures, texts
