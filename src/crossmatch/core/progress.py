"""A progress bar on a terminal; when piped, a line for what takes long and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def announce(said: str, tell: Callable[[str], object] = lambda said: print(said, file=sys.stderr)) -> None:
    """What begins, or how far it is, in a line where there is no terminal that shows a bar: to whom it may concern."""
    if not sys.stderr.isatty():
        tell(said)


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


@contextmanager
def steps(total: int, label: str, done: int = 0) -> Iterator[Callable[[int, str], None]]:
    """A bar for work that has more to tell than how far it is: call what it gives with the steps done and a few words.

    >>> with steps(10, "training") as show:
    ...     show(5, "loss 0.3")
    """
    if not sys.stderr.isatty():
        yield lambda done, said: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda done, said: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=total, completed=done, said="")
        yield lambda done, said: shown.update(task, completed=done, said=said)
