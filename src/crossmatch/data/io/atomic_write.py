"""Atomic writes: a file is complete, or it is not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

TEMPORARY_SUFFIX = ".part"  # of a file that is not complete


@contextmanager
def atomic_write(path: Path, *, durable: bool = False, private: bool = False) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces `path` only when it is complete.

    Until then it is a temporary file in the same folder, so several processes may write the same file, and the last one wins. An
    exception leaves nothing behind; a killed process leaves a file that ends in `TEMPORARY_SUFFIX`.

    With `durable` the file survives a power failure; with `private` only the owner may read it.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_write(Path(folder) / "a.txt") as file:
    ...         _ = file.write(b"all of it")
    ...     [(p.name, p.read_text()) for p in Path(folder).iterdir()]
    [('a.txt', 'all of it')]
    """
    if path.exists() and not path.is_file():  # a device or a pipe is written to, never replaced
        with path.open("wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path))  # the target of a link, not the link
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=TEMPORARY_SUFFIX)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(temporary, 0o600 if private else 0o644)  # temporary files are private
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    if durable and hasattr(os, "O_DIRECTORY"):
        with suppress(OSError):  # some file systems cannot; then a power failure may lose the new name, but never half the file
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
