"""Blocks of scores as files, each of which proves that it is complete and the one that was asked for.

    FOLDER/KEY/about.json                     what these scores are of, for people; written first
    FOLDER/KEY/0000128-0001024.scores         the block whose first image is number 128 and whose first caption is number 1024
    FOLDER/KEY/lock                           held by the process that scores

A block begins with one line of text that says which block of which key it is, in which dtype, with a checksum of line and numbers.
What does not fit to the last bit is computed again, never trusted. A block takes its name only after it has reached the disk, so a
killed process loses the block that it was computing and no other.

One process computes at a time; a second one waits and then finds the blocks of the first. Where the file system has no locks, both
compute, and each block is written twice with the same content.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.errors import CrossmatchError
from crossmatch.core.whole import UNFINISHED, whole_file

try:
    import fcntl
except ImportError:  # Windows: both processes compute
    fcntl = None  # type: ignore[assignment]

FORMAT = 1  # counts up when a block is written in another way
DTYPES = (np.dtype("<f4"), np.dtype("<f8"))


@dataclass(frozen=True)
class Block:
    """Some images by some captions: what is scored in one call and kept in one file."""

    images: range
    captions: range

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.images), len(self.captions)

    @property
    def name(self) -> str:
        return f"{self.images.start:07d}-{self.captions.start:07d}.scores"


def packed(part: NDArray[Any], block: Block, key: str) -> bytes:
    """A block as the bytes of its file: one line of text, then the numbers, row after row.

    >>> packed(np.zeros((1, 2), "<f4"), Block(range(1), range(2)), "9f0c").partition(bytes([10]))[0][:56]
    b'crossmatch scores 1 9f0c images 0:1 captions 0:2 <f4 sha'
    """
    numbers = part.tobytes()
    head = _head(block, key, part.dtype)
    return head + _checksum(head, numbers) + b"\n" + numbers


def unpacked(raw: bytes, block: Block, key: str) -> NDArray[Any] | None:
    """The numbers of a file, or nothing unless it is this very block, complete and undamaged."""
    line, _, numbers = raw.partition(b"\n")
    for dtype in DTYPES:
        head = _head(block, key, dtype)
        if len(numbers) == block.shape[0] * block.shape[1] * dtype.itemsize and line == head + _checksum(head, numbers):
            return np.frombuffer(numbers, dtype).reshape(block.shape)
    return None


def _head(block: Block, key: str, dtype: np.dtype[Any]) -> bytes:
    images, captions = (f"{r.start}:{r.stop}" for r in (block.images, block.captions))
    return f"crossmatch scores {FORMAT} {key} images {images} captions {captions} {dtype.str} sha256:".encode()


def _checksum(head: bytes, numbers: bytes) -> bytes:
    digest = hashlib.sha256(head)
    digest.update(numbers)
    return digest.hexdigest().encode()


@dataclass(eq=False)
class Shelf:
    """The blocks of one key: `find` each, and `keep` those that had to be computed."""

    folder: Path
    key: str
    about: dict[str, object]
    tell: Callable[[str], object]
    lock: int | None = None  # the open lock, once something had to be scored

    def find(self, block: Block) -> NDArray[Any] | None:
        """The scores of a block, or nothing if they must be computed, which then is for this process to do."""
        found = self._read(block)
        if found is None and self.lock is None:
            self._begin()
            found = self._read(block)  # another process may have scored it while this one waited
        if found is None and (self.folder / block.name).exists():
            self.tell(f"{self.folder / block.name} is damaged or of another origin; its scores are computed anew")
        return found

    def keep(self, block: Block, part: NDArray[Any]) -> None:
        with self._writing(), whole_file(self.folder / block.name, durable=True) as file:
            file.write(packed(part, block, self.key))

    def close(self) -> None:
        if self.lock is not None:
            os.close(self.lock)

    def _read(self, block: Block) -> NDArray[Any] | None:
        largest = 1000 + block.shape[0] * block.shape[1] * DTYPES[-1].itemsize  # with room for the line of text
        try:
            with (self.folder / block.name).open("rb") as file:
                return unpacked(file.read(largest), block, self.key)
        except OSError:  # absent, or unreadable, which is as good as absent
            return None

    def _begin(self) -> None:
        """Make the folder, wait for the lock, sweep up after killed processes, and say what the folder holds."""
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            self.lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
            alone = self._alone(self.lock)
            for left in self.folder.glob(f".*{UNFINISHED}") if alone else ():
                left.unlink(missing_ok=True)
            with whole_file(self.folder / "about.json", durable=True) as file:
                file.write((json.dumps(self.about, indent=1) + "\n").encode())
            there = sum(1 for _ in self.folder.glob("*.scores"))
        if there:
            self.tell(f"{there:,} of {self.about['blocks']:,} blocks of scores are in {self.folder}; the others are computed")

    def _alone(self, lock: int) -> bool:
        """Wait until no other process computes. The system frees the lock of a killed process."""
        free = locked(lock)
        if free is False:
            self.tell(f"another process computes the same scores in {self.folder}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        return free is not None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CrossmatchError(
                f"scores cannot be kept in {self.folder} ({error.strerror or error}). Blocks that are there stay valid. Mend that, "
                "or name another folder with --cache DIR, or do without: --no-cache."
            ) from None


@dataclass(frozen=True)
class Held:
    """The scores of one model on one collection, as far as they are there."""

    folder: Path
    system: str
    images: int
    captions: int
    blocks: int
    there: int
    bytes: int


def held(folder: Path) -> list[Held]:
    """What a cache folder holds, by the model's signature. Folders of other origin are left out."""
    found = []
    for path in folder.glob("*/about.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            about = json.loads(path.read_text(encoding="utf-8"))
            if about["key"] == path.parent.name:
                sizes = [block.stat().st_size for block in path.parent.glob("*.scores")]
                images, captions, blocks = (int(about[name]) for name in ("images", "captions", "blocks"))
                found.append(Held(path.parent, str(about["system"]), images, captions, blocks, len(sizes), sum(sizes)))
    return sorted(found, key=lambda h: (h.system, h.folder.name))


def clear(folder: Path, system: str | None = None) -> list[Held]:
    """Remove what a cache folder holds, of one model or of all; gives what was removed. Nothing else is touched."""
    gone = [h for h in held(folder) if system in (None, h.system)]
    for h in gone:
        remove(h.folder)
    return gone


def remove(folder: Path) -> None:
    """Remove a folder of the cache, unless a process is at work in it."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if locked(lock) is False:
            raise CrossmatchError(f"a process is computing in {folder}. Wait for it, or stop it first.")
        shutil.rmtree(folder)
    finally:
        os.close(lock)


def locked(lock: int) -> bool | None:
    """Take the lock: whether it was free, or nothing where there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def share(lock: int) -> None:
    """Hold the lock together with others, in the place of alone; wait for whoever has it alone."""
    fcntl.flock(lock, fcntl.LOCK_SH)
