"""One exception for everything a user can mend. Its text says what was seen, what was expected and what to do."""

from __future__ import annotations


class CrossmatchError(ValueError):
    """Something the user gave cannot be used; the message names the remedy.

    >>> raise CrossmatchError("a.npz has 9 of 10 image ids; first missing: 7. Embed it.")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: a.npz has 9 of 10 image ids; first missing: 7. Embed it.
    """


class WrongWords(CrossmatchError):  # noqa: N818 - the words are wrong, nothing has failed
    """A name, an option or a path that does not exist: on the command line, exit code 2 instead of 1."""


class MissingDependency(CrossmatchError, ImportError):  # noqa: N818 - it names what is missing, not an accident
    """A heavy library of an extra is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"this needs {library}, which is not installed. Install it with: pip install 'crossmatch[{extra}]'")
