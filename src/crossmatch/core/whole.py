"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

UNFINISHED = ".part"  # how the name of a file ends until it is complete


@contextmanager
def whole_file(path: Path, *, durable: bool = False, private: bool = False) -> Iterator[BinaryIO]:
    """A file to fill. It takes its name, and the place of its predecessor, only once it is complete.

    Until then it stands beside its place under a name of its own, so that several processes may write the same file at once and
    the last one wins. An exception leaves nothing behind; a killed process leaves a file that ends in `UNFINISHED`. `durable`
    waits for the disk: the name must never outlive the content when the power fails. What is `private` nobody else may ever read.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(Path(folder) / "a.txt") as file:
    ...         _ = file.write(b"all of it")
    ...     [(p.name, p.read_text()) for p in Path(folder).iterdir()]
    [('a.txt', 'all of it')]
    """
    if path.exists() and not path.is_file():  # a device or a pipe is written to, never replaced
        with path.open("wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path))  # the file that a link leads to, not the link
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(temporary, 0o600 if private else 0o644)  # a temporary file is private
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    if durable and hasattr(os, "O_DIRECTORY"):
        with suppress(OSError):  # not every file system can; then the new name may be lost with the power, but never half the file
            place = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(place)
            finally:
                os.close(place)
