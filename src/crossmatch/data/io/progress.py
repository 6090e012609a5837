"""Progress bars on a terminal, and lines of progress when the output is piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def announce(message: str, write: Callable[[str], object] = lambda message: print(message, file=sys.stderr)) -> None:
    """Write a line of progress if there is no terminal that shows a bar."""
    if not sys.stderr.isatty():
        write(message)


def track(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """Iterate over items with a bar on standard error, if it is a terminal.

    `total` is their number; it is needed if they have no length.

    >>> list(track([1, 2], "counting"))
    [1, 2]
    """
    count = len(items) if isinstance(items, Sized) else total
    if sys.stderr.isatty() and (count is None or count > 1):
        from rich.console import Console
        from rich.progress import track as track_with_bar

        items = track_with_bar(items, description=label, total=count, console=Console(stderr=True), transient=True)
    yield from items


@contextmanager
def progress_bar(total: int | None, label: str, completed: int = 0, in_bytes: bool = False) -> Iterator[Callable[[int, str], None]]:
    """A bar with a status text. The function that it gives takes the number of completed steps (or bytes) and the text.

    >>> with progress_bar(10, "training") as show:
    ...     show(5, "loss 0.3")
    """
    if not sys.stderr.isatty():
        yield lambda completed, status: None
        return
    from rich import progress
    from rich.console import Console

    steps = (progress.MofNCompleteColumn(), progress.TimeRemainingColumn())
    sizes = (progress.DownloadColumn(), progress.TransferSpeedColumn())
    label_column, status_column = (progress.TextColumn(text) for text in ("{task.description}", "{task.fields[status]}"))
    columns = (label_column, progress.BarColumn(), *(sizes if in_bytes else steps), status_column)
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, completed=completed, status="")
        yield lambda completed, status: bar.update(task, completed=completed, status=status)
