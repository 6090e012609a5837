"""Third parties plug in through one entry-point group, `crossmatch`: each entry names a `Benchmark` or a model `Family`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from crossmatch.core.errors import CrossmatchError

T = TypeVar("T")


def plugged(kind: type[T]) -> tuple[T, ...]:
    """Everything of this kind that installed packages offer.

    >>> plugged(bytes)
    ()
    """
    return tuple(thing for entry in entry_points(group="crossmatch") if isinstance(thing := _load(entry), kind))


def _load(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except Exception as error:  # whatever a stranger's module does
        raise CrossmatchError(
            f"the plug-in {entry.name} = {entry.value} cannot be loaded ({type(error).__name__}: {error}). Mend or uninstall it."
        ) from error
