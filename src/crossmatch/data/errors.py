"""Errors that a user can fix. Their messages say where, what was wrong, and how to fix it."""

from __future__ import annotations

from dataclasses import dataclass


class CrossmatchError(ValueError):
    """The input cannot be used. The message says how to fix it.

    >>> raise CrossmatchError("a.npz has 9 of 10 image ids; first missing: 7. Embed it.")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: a.npz has 9 of 10 image ids; first missing: 7. Embed it.
    """


class UsageError(CrossmatchError):
    """A name, option or path does not exist. On the command line the exit code is 2 instead of 1.

    >>> from crossmatch import UsageError, evaluate
    >>> try:
    ...     evaluate("random", "diorama/retrieval", size="huge")
    ... except UsageError as error:
    ...     print(error)
    Unknown diorama size 'huge'. Choose one of default, coco, tiny.
    """


class UnusableItemError(CrossmatchError):
    """An item cannot be used. `reason` ends with how to fix it; the message adds that `--skip-bad` skips such items."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"{reason.removesuffix('.')}, or skip all items that cannot be used: --skip-bad" if reason.endswith(".") else reason
        )


@dataclass(frozen=True)
class SkippedItem:
    """An image, caption or trial that was skipped, and the reason."""

    kind: str
    id: str
    reason: str


class MissingDependencyError(CrossmatchError, ImportError):
    """An optional library is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(f"This needs {library}, which is not installed. Install it with: pip install 'crossmatch[{extra}]'")


# The extra of each optional library, by the name that is imported.
EXTRAS = {
    "PIL": "pictures",
    "itsdangerous": "study",
    "jinja2": "report",
    "matplotlib": "report",
    "psycopg": "study",
    "pyarrow": "hf",
    "qtawesome": "diorama",
    "sqlalchemy": "study",
    "starlette": "study",
    "torch": "models",
    "transformers": "text",
    "uvicorn": "study",
}


def explain_missing_library(error: ModuleNotFoundError) -> ModuleNotFoundError | MissingDependencyError:
    """The error itself, or one that names the extra to install if an optional library is missing.

    >>> explain_missing_library(ModuleNotFoundError(name="sqlalchemy.orm"))
    MissingDependencyError("This needs sqlalchemy, which is not installed. Install it with: pip install 'crossmatch[study]'")
    """
    library = (error.name or "").partition(".")[0]
    return MissingDependencyError(library, EXTRAS[library]) if library in EXTRAS else error
