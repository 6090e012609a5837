"""Plug-ins: benchmarks, data sets and model families of other packages, in the entry-point group `crossmatch`."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from crossmatch.data.errors import CrossmatchError

T = TypeVar("T")


def load_plugins(kind: type[T]) -> tuple[T, ...]:
    """Load all plug-ins of this type.

    >>> load_plugins(bytes)
    ()
    """
    return tuple(plugin for entry in entry_points(group="crossmatch") if isinstance(plugin := _load(entry), kind))


def _load(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except Exception as error:  # the plug-in's module may raise anything
        raise CrossmatchError(
            f"The plug-in {entry.name} = {entry.value} cannot be loaded ({type(error).__name__}: {error}). Fix or uninstall it."
        ) from error
