"""Read JSON files and lines of text with errors that name the file, and hash files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from crossmatch.data.errors import CrossmatchError


def split_lines(text: str) -> list[str]:
    r"""Split a text at line feeds only: the other line separators of Unicode may be part of a caption.

    >>> split_lines("a cat\x0basleep\r\ntwo dogs\n")
    ['a cat\x0basleep', 'two dogs']
    """
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def read_lines(path: Path) -> list[str]:
    """Read the lines of a UTF-8 file."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return split_lines(file.read())
    except OSError as error:
        raise CrossmatchError(f"{path} cannot be read ({error.strerror or error}). Get it again.") from None
    except UnicodeDecodeError as error:
        raise CrossmatchError(f"{path} is not UTF-8 ({error}). Get it again, or convert it to UTF-8.") from None


def read_json(path: Path, keep: Iterable[str] | None = None) -> object:
    """Read a JSON file.

    With `keep`, all other keys of objects are dropped while reading, which saves memory.
    """
    keys = None if keep is None else frozenset(keep)
    try:
        with path.open(encoding="utf-8") as file:
            return json.load(file, object_hook=None if keys is None else lambda d: {key: d[key] for key in keys & d.keys()})
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CrossmatchError(f"{path} is not a JSON file ({error}). Get it again.") from error


def file_sha256(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
