"""Decode JSON and npz files, read lines of text, check records, and hash files.

A reader that catches everything calls its own bugs damaged files. The functions here raise `UndecodableFileError` for damaged content
and for nothing else, so that readers catch this class alone.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from crossmatch.data.errors import CrossmatchError

Types = type | tuple[type, ...]


class UndecodableFileError(Exception):
    """The content of a file is not what its format requires. The message is the reason, in a few words."""


def decode_json(content: bytes) -> object:
    """Decode JSON.

    >>> decode_json(b'{"a"')
    Traceback (most recent call last):
    ...
    crossmatch.data.io.file_contents.UndecodableFileError: Expecting ':' delimiter: line 1 column 5 (char 4)
    """
    if not isinstance(content, bytes):
        raise TypeError(f"expected the bytes of a JSON file, got {type(content).__name__}")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UndecodableFileError(str(error)) from None


def decode_json_file(path: str | PathLike[str]) -> object:
    """Decode a JSON file. A file that cannot be opened counts as undecodable, too."""
    return decode_json(read_bytes(path))


def read_bytes(path: str | PathLike[str]) -> bytes:
    """The bytes of a file that a reader needs."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UndecodableFileError(f"{Path(path).name}: {error.strerror or error}") from None


def decode_npz(content: bytes | BinaryIO) -> dict[str, np.ndarray[Any, Any]]:
    """Decode the arrays of an npz file.

    >>> decode_npz(b"PK")
    Traceback (most recent call last):
    ...
    crossmatch.data.io.file_contents.UndecodableFileError: not an npz file
    """
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    if not hasattr(file, "read"):
        raise TypeError(f"expected the bytes of an npz file or an open file, got {type(content).__name__}")
    try:
        with np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # only NumPy, zipfile and zlib run here, and damaged bytes can fail anywhere in them
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if "allow_pickle" in reason:
            reason = "an array contains Python objects"
        raise UndecodableFileError("not an npz file" if "not a zip file" in reason else reason) from None


def read_json_object(path: str | PathLike[str]) -> dict[str, Any] | None:
    """The object in a JSON file; None if there is no such file, or something else in it."""
    try:
        return check_record(decode_json_file(path), "the file", {})
    except UndecodableFileError:
        return None


def check_record(record: object, where: str, types: Mapping[str, Types]) -> dict[str, Any]:
    """The record, if it is a JSON object with values of these types.

    >>> check_record({"id": "7"}, "rows[3]", {"id": int})
    Traceback (most recent call last):
    ...
    crossmatch.data.io.file_contents.UndecodableFileError: rows[3] has '7' as id, expected int
    """
    if not isinstance(record, dict):
        raise UndecodableFileError(f"{where} is {record!r:.40}, expected an object")
    for key, expected in types.items():
        if key not in record:
            raise UndecodableFileError(f"{where} has no {key}")
        if not isinstance(record[key], expected):
            names = " or ".join(kind.__name__ for kind in (expected if isinstance(expected, tuple) else (expected,)))
            raise UndecodableFileError(f"{where} has {record[key]!r:.40} as {key}, expected {names}")
    return record


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
    except (ValueError, RecursionError) as error:
        raise CrossmatchError(f"{path} is not a JSON file ({error}). Get it again.") from error


def file_sha256(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
