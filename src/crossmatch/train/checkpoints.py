"""How far a training has come, as files from which it goes on as if it had never stopped.

    FOLDER/lock                               held by the process that trains
    FOLDER/checkpoints/000000400.checkpoint   after 400 steps; the two newest are kept

A checkpoint begins with one line of text that says of which recipe and which data it is, with a checksum of all that follows. It
takes its name only after it has reached the disk. One that does not fit to the last bit is noticed, and the one before it is used.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.whole import UNFINISHED, whole_file

try:
    import torch
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

try:
    import fcntl
except ImportError:  # Windows: nobody is told of a second process
    fcntl = None  # type: ignore[assignment]

FORMAT = 1  # counts up when a checkpoint is written in another way
HEAD = re.compile(rb"crossmatch checkpoint (\d+) recipe:(\w+) data:(\w+) sha256:(\w{64})")
KEPT = 2  # of which the older one is there in case that the newer one is damaged
LOCK, FOLDER, SUFFIX = "lock", "checkpoints", ".checkpoint"
TOLD, MOST = "recipe", 3  # where a checkpoint has its recipe; differences that are told


@dataclass(frozen=True)
class Identity:
    """What a training is of: two that have this in common end with the same weights, by the same versions of all code."""

    recipe: str
    data: str
    told: Mapping[str, Any] = field(default_factory=dict, compare=False)  # the recipe in words, to say what differs


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one training, in a folder that is for this process alone (see `alone`)."""

    output: Path
    identity: Identity
    tell: Callable[[str], object] = lambda said: None

    @property
    def folder(self) -> Path:
        return self.output / FOLDER

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write the state after so many steps, at once; then drop all but the newest two."""
        buffer = io.BytesIO()
        torch.save(state | {TOLD: dict(self.identity.told)}, buffer)
        content = buffer.getvalue()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with whole_file(self.folder / f"{step:09d}{SUFFIX}", durable=True) as file:
                file.write(_head(self.identity, content))
                file.write(content)
        except OSError as error:
            raise CrossmatchError(
                f"no checkpoint can be written to {self.folder} ({error.strerror or error}). Earlier ones stay valid. Mend that, "
                "and start again with the same words: the training goes on from there."
            ) from None
        for old in self._files()[KEPT:]:
            old.unlink(missing_ok=True)

    def latest(self) -> dict[str, Any] | None:
        """The newest state that is whole, or nothing; a checkpoint of another recipe or other data is refused."""
        for left in self.folder.glob(f".*{UNFINISHED}"):  # of a killed process
            left.unlink(missing_ok=True)
        for path in self._files():
            found = self._read(path)
            if found is not None:
                return found
            self.tell(f"{path} is damaged; the training goes on from the checkpoint before it, or from its beginning")
        return None

    @property
    def there(self) -> bool:
        """Whether there is one."""
        return bool(self._files())

    def drop(self) -> None:
        """Remove all checkpoints, and the folder if nothing else is in it."""
        for path in (*self._files(), *self.folder.glob(f".*{UNFINISHED}")):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def _files(self) -> list[Path]:
        """Those that are there, the newest first."""
        return sorted(self.folder.glob(f"*{SUFFIX}"), reverse=True)

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            line, _, content = path.read_bytes().partition(b"\n")
        except OSError:
            return None
        seen = HEAD.fullmatch(line)
        if seen is None or hashlib.sha256(content).hexdigest().encode() != seen[4]:
            return None
        found = Identity(seen[2].decode(), seen[3].decode())
        if found != self.identity:
            require_same(replace(found, told=_told(content)), self.identity, self.output, "a checkpoint")
        if int(seen[1]) != FORMAT:
            raise CrossmatchError(
                f"{path} has format {int(seen[1])}; this version reads format {FORMAT}. Begin again with --restart, or name "
                "another folder."
            )
        state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
        return state


def _head(identity: Identity, content: bytes) -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    return f"crossmatch checkpoint {FORMAT} recipe:{identity.recipe} data:{identity.data} sha256:{digest}\n".encode()


def _told(content: bytes) -> Mapping[str, Any]:
    """The recipe of a checkpoint, where it can be read."""
    try:
        told: Mapping[str, Any] = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu").get(TOLD, {})
    except Exception:  # of another version, in any way
        return {}
    return told


def differing(found: Mapping[str, Any], wanted: Mapping[str, Any], above: str = "") -> list[str]:
    """What one recipe says that the other does not, in words.

    >>> differing({"train": {"epochs": 3, "seed": 0}, "hash": "a"}, {"train": {"epochs": 4, "seed": 0}})
    ['train.epochs is 3 there and 4 here']
    """
    said: list[str] = []
    for name, value in wanted.items():
        other = found.get(name)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            said += differing(other, dict.fromkeys(other) | dict(value), f"{above}{name}.")
        elif other != value:
            said.append(f"{above}{name} is {other} there and {value} here")
    return said


def require_same(found: Identity, wanted: Identity, output: Path, what: str) -> None:
    """Refuse to go on with what another training left: neither its weights nor its log would mean anything."""
    other = [name for name in ("recipe", "data") if getattr(found, name) != getattr(wanted, name)]
    if other:
        was, now = (getattr(each, other[0]) for each in (found, wanted))
        apart = differing(found.told, wanted.told)[:MOST] if found.told and other[0] == "recipe" else []
        raise CrossmatchError(
            f"{output} holds {what} of {' and '.join({'recipe': 'another recipe', 'data': 'other data'}[name] for name in other)} "
            f"({'; '.join(apart) or f'{was}, not {now}'}). Name another folder with -o, or replace it: --restart"
        )


@contextmanager
def alone(output: Path) -> Iterator[None]:
    """The folder for this process alone; a second one is told. A folder in which nothing was written is not left behind.

    The system frees the lock of a killed process.
    """
    missing = [each for each in (output, *output.parents) if not each.exists()]
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock = _locked(output / LOCK)
    except OSError as error:
        raise CrossmatchError(f"{output} cannot be written to ({error.strerror or error}). Name another folder with -o.") from None
    if lock is None:
        raise CrossmatchError(
            f"another process is training in {output}. Wait for it, or name another folder with -o: the one that is there goes on."
        )
    try:
        yield
    finally:
        if not any(path.name != LOCK for path in output.iterdir()):
            with suppress(OSError):
                (output / LOCK).unlink(missing_ok=True)
                for each in missing:
                    each.rmdir()
        os.close(lock)


def _locked(path: Path) -> int | None:
    """The open lock, or nothing if another process holds it."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if fcntl is not None:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        except OSError:  # a file system without locks
            return lock
        with suppress(FileNotFoundError):
            if os.fstat(lock).st_ino == os.stat(path).st_ino:
                return lock
        os.close(lock)  # its holder removed it in between
