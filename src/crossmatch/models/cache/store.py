"""Content-addressed storage on disk: entries of named blocks, with locks, listing and clearing.

    FOLDER/KIND/KEY/about.json      what the entry contains, for people and for `crossmatch cache`; written first
    FOLDER/KIND/KEY/NAME.block      named arrays with checksums (`blocks`)
    FOLDER/KIND/KEY/lock            locked by the processes that write

KEY is a hash of everything that the numbers depend on. A block gets its name only after it has reached the disk, so a killed
process loses the block that it was computing and no other. A block that is damaged or belongs elsewhere is computed again.

An entry can be locked exclusively (a second process waits, then finds the blocks of the first) or shared (several processes write
at once; each writes complete blocks). On a file system without locks several processes compute the same blocks.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from crossmatch import __version__
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.atomic_write import TEMPORARY_SUFFIX, atomic_write
from crossmatch.data.io.paths import cache_folder
from crossmatch.models.cache.blocks import FORMAT, pack_block, read_block

try:
    import fcntl
except ImportError:  # Windows has no flock: several processes compute the same blocks
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".block"


def default_cache_folder() -> Path:
    """Return `crossmatch/cache` in the user's cache folder; `$CROSSMATCH_DATA` may be shared and read-only."""
    return cache_folder() / "cache"


def _ignore(message: str) -> None: ...


@dataclass(frozen=True)
class EntrySummary:
    """One entry of a cache folder, as `crossmatch cache` shows it."""

    folder: Path
    kind: str
    system: str
    blocks: int
    bytes: int
    about: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def key(self) -> str:
        return self.folder.name


@dataclass(frozen=True)
class Cache:
    """A cache folder. `notify` is called with a line of text about what was reused, recomputed or not cached."""

    folder: Path
    notify: Callable[[str], object] = field(default=_ignore, repr=False)

    def entry(self, kind: str, key: str, system: str, **about: object) -> CacheEntry:
        """Return the entry of this key (`blocks.content_key`); nothing is read or written yet."""
        facts = {"format": FORMAT, "version": __version__, "kind": kind, "key": key, "system": system, **about}
        return CacheEntry(self.folder / kind / key, facts, self.notify)

    def notify_unsigned(self, kind: str) -> None:
        """Report that the outputs of a model without a signature are not cached."""
        self.notify(
            f"{kind} are not cached, because the model has no signature. Give it one that changes with its weights: "
            'signature = "mine-1"'
        )

    def summaries(self) -> list[EntrySummary]:
        """List the entries, sorted by kind, system and key. Folders that are not cache entries are left out.

        Entries of earlier versions have no kind: their kind is "earlier version".
        """
        summaries = []
        for path in (*self.folder.glob("*/about.json"), *self.folder.glob("*/*/about.json")):
            with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
                about = json.loads(path.read_text(encoding="utf-8"))
                if about["key"] == path.parent.name:
                    files = [file.stat().st_size for file in path.parent.iterdir()]
                    blocks = len(list(path.parent.glob(f"*{SUFFIX}")))
                    entry_kind = str(about.get("kind", "earlier version"))
                    summaries.append(EntrySummary(path.parent, entry_kind, str(about["system"]), blocks, sum(files), about))
        return sorted(summaries, key=lambda summary: (summary.kind, summary.system, summary.key))

    def clear(self, system: str | None = None) -> list[EntrySummary]:
        """Remove all entries, or those of one model, given by signature or key; return what was removed."""
        removed = [summary for summary in self.summaries() if system in (None, summary.system, summary.key)]
        for summary in removed:
            _remove_entry(summary.folder)
        return removed


@dataclass(eq=False)
class CacheEntry:
    """The blocks of one key. `close` releases the lock."""

    folder: Path
    about: Mapping[str, object]
    notify: Callable[[str], object] = field(default=_ignore, repr=False)
    _lock: int | None = None  # file descriptor of the lock, once the entry is opened for writing

    @property
    def key(self) -> str:
        return self.folder.name

    @property
    def is_locked(self) -> bool:
        return self._lock is not None

    def path(self, block: str) -> Path:
        return self.folder / f"{block}{SUFFIX}"

    def blocks(self) -> list[str]:
        """Return the names of the blocks that exist, sorted; they may be damaged."""
        return sorted(path.name.removesuffix(SUFFIX) for path in self.folder.glob(f"*{SUFFIX}"))

    def read(self, block: str, only: Iterable[str] | None = None) -> dict[str, NDArray[Any]] | None:
        """Read the arrays of a block; None if it is absent, unreadable or damaged."""
        try:
            with self.path(block).open("rb") as file:
                return read_block(file, self.key, block, only)
        except OSError:  # an unreadable file is as good as absent
            return None

    def write(self, block: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write a block atomically and durably; the entry must be locked."""
        with self.explain_failures(), atomic_write(self.path(block), durable=True) as file:
            file.write(pack_block(self.key, block, arrays))

    def discard(self, block: str) -> None:
        """Remove a damaged block and report it."""
        path = self.path(block)
        if path.exists():  # another process may have cleared the folder
            self.report_damage(block)
        with suppress(OSError):
            path.unlink()

    def report_damage(self, block: str) -> None:
        """Report a block that exists but cannot be used."""
        self.notify(f"{self.path(block)} is damaged or belongs to another entry; it is computed again")

    def lock(self, *, shared: bool = False) -> None:
        """Create the folder, wait for the lock, remove unfinished files of killed processes, and write about.json.

        With a shared lock, several processes may write at the same time.
        """
        with self.explain_failures():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
            was_free = _try_lock(self._lock)
            if was_free is False and not shared:
                self.notify(f"another process is computing the same values in {self.folder}; waiting for it to finish")
                fcntl.flock(self._lock, fcntl.LOCK_EX)  # the system releases the lock of a killed process
                was_free = True
            for unfinished in self.folder.glob(f".*{TEMPORARY_SUFFIX}") if was_free else ():
                unfinished.unlink(missing_ok=True)
            if shared and was_free is not None:
                fcntl.flock(self._lock, fcntl.LOCK_SH)
            with atomic_write(self.folder / "about.json", durable=True) as file:
                file.write((json.dumps(self.about, indent=1) + "\n").encode())

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def explain_failures(self) -> Iterator[None]:
        """Turn an `OSError` while writing into a message that says what to do."""
        try:
            yield
        except OSError as error:
            raise CrossmatchError(
                f"cannot write to the cache in {self.folder} ({error.strerror or error}). Existing blocks stay valid. Free some "
                "space, choose another folder with --cache DIR, or use --no-cache."
            ) from None


def _try_lock(descriptor: int) -> bool | None:
    """Take the lock if it is free; None where the file system has no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def _remove_entry(folder: Path) -> None:
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if _try_lock(descriptor) is False:
            raise CrossmatchError(f"a process is writing to {folder}. Wait until it has finished, or stop it first.")
        shutil.rmtree(folder)
    finally:
        os.close(descriptor)
