"""Answers that choose an image, caption or list by its place: `image-0` is the first image of an item."""

from __future__ import annotations

import re
from dataclasses import dataclass

SIDES = ("images", "captions", "lists")
SIDE_NOUNS = {"images": "image", "captions": "caption", "lists": "list"}
PLACE = re.compile("(image|caption|list)-([0-9]+)")


@dataclass(frozen=True)
class Place:
    """The place of an image, caption or list in an item, counted from 0.

    >>> Place("images", 0).value, parse_place("caption-4"), parse_place("both")
    ('image-0', Place(side='captions', n=4), None)
    """

    side: str
    n: int

    @property
    def noun(self) -> str:
        return SIDE_NOUNS[self.side]

    @property
    def value(self) -> str:
        """The place as the value of an answer."""
        return f"{self.noun}-{self.n}"


def parse_place(value: object) -> Place | None:
    """The place that the value of an answer names; None for an option, a slider value or a list of values."""
    match = PLACE.fullmatch(value) if isinstance(value, str) else None
    return Place(f"{match[1]}s", int(match[2])) if match else None
