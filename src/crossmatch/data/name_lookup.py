"""A mapping from names to entries that suggests the nearest name when one is mistyped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from crossmatch.data.errors import UsageError
from crossmatch.data.settings import suggest_name

T = TypeVar("T")
LIST_COMMANDS = {"task": "tasks", "model": "models", "metric": "metrics", "data set": "data"}  # `crossmatch list NAME`


class Catalog(Mapping[str, T], Generic[T]):
    """A read-only mapping. An unknown name raises `UsageError` with a suggestion; `kind` says what the entries are.

    >>> Catalog("task", {"diorama/retrieval": 1})["diorama/retreival"]
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: there is no task 'diorama/retreival'. Did you mean 'diorama/retrieval'? ...
    """

    def __init__(self, kind: str, entries: Mapping[str, T]) -> None:
        self.kind = kind
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> T:
        if name in self:
            return self._entries[name]
        hint = suggest_name(str(name), self._entries, limit=6)
        list_command = f"`crossmatch list {LIST_COMMANDS[self.kind]}` lists them all." if self.kind in LIST_COMMANDS else ""
        raise UsageError(f"there is no {self.kind} {name!r}. {hint} {list_command}".rstrip())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
