"""Names and what they stand for, with a hint when a name is mistyped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Generic, TypeVar

from crossmatch.core.errors import WrongWords

T = TypeVar("T")
LISTED = ("task", "model", "metric")  # what has a command that lists it


class Catalog(Mapping[str, T], Generic[T]):
    """A read-only mapping that answers an unknown name with the nearest known one.

    >>> Catalog("task", {"diorama/retrieval": 1})["diorama/retreival"]
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.WrongWords: there is no task 'diorama/retreival'. Did you mean 'diorama/retrieval'? ...
    """

    def __init__(self, what: str, entries: Mapping[str, T]) -> None:
        self.what = what
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> T:
        if name in self:
            return self._entries[name]
        close = get_close_matches(str(name).lower(), self._entries, n=1, cutoff=0.5)
        hint = f"Did you mean {close[0]!r}? " if close else f"Known: {', '.join(list(self._entries)[:6])}. "
        where = f"`crossmatch {self.what}s` lists them all." if self.what in LISTED else ""
        raise WrongWords(f"there is no {self.what} {name!r}. {hint}{where}".rstrip())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
