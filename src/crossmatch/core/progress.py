"""A progress bar on a terminal, and nothing when piped."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def track(items: Sequence[T], label: str) -> Iterator[T]:
    """Go through `items`, showing a bar on standard error if it is a terminal and rich is there.

    >>> list(track([1, 2], "counting"))
    [1, 2]
    """
    if sys.stderr.isatty() and len(items) > 1:
        try:
            from rich.console import Console
            from rich.progress import track as bar
        except ImportError:
            yield from items
        else:
            yield from bar(items, description=label, console=Console(stderr=True), transient=True)
    else:
        yield from items
