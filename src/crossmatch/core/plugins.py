"""Third parties plug in through one entry-point group, `crossmatch`: each entry names a Benchmark, a Metric or a model."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TypeVar

T = TypeVar("T")


def plugged(kind: type[T]) -> tuple[T, ...]:
    """Everything of this kind that installed packages offer.

    >>> plugged(bytes)
    ()
    """
    return tuple(thing for entry in entry_points(group="crossmatch") if isinstance(thing := entry.load(), kind))
