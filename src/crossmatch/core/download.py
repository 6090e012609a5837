"""One file over HTTP, so that nothing wrong ever stands at its final name.

Bytes go to `<file>.part`, which is locked while a process works on it and continued after a break; a file whose size and sha256 are
right is renamed in one step. The only things trusted are the declared size and sha256: servers err about Content-Length and Range.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from socket import gaierror
from types import ModuleType
from typing import BinaryIO, Literal
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from crossmatch.core.errors import CrossmatchError
from crossmatch.core.files import DataFile, complaint, sha256_of

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: two processes at once are not kept apart there
    fcntl = None

CHUNK = 1 << 16
GAIN = 1 << 12  # bytes that an attempt must bring beyond what there was before; without a bound, a server may give one at a time
PASSING = frozenset({408, 416, 425, 429, 500, 502, 503, 504})  # answers that may be better a moment later

Outcome = Literal["whole", "short", "broken", "refused"]


@dataclass(frozen=True)
class Wire:
    """How patient to be: seconds without a byte, attempts that bring nothing new, and the pause after one, doubled each time."""

    timeout: float = 30.0
    tries: int = 4
    pause: float = 1.0
    sleep: Callable[[float], None] = time.sleep


def download(file: DataFile, target: Path, wire: Wire, say: Callable[[str], None]) -> None:
    """Bring `file` to `target` from the first of its addresses that gives the right bytes, continuing a part that is there."""
    with claimed(target, say) as part:
        if target.is_file() and not complaint(file, target):
            return None  # another process brought it while this one waited
        problems = []
        for url in (file.source_url, *file.mirrors):
            problem = _fetch(url, file, part, wire)
            if not problem:
                return finish(part, target)
            problems.append(problem)
    raise CrossmatchError("; ".join(problems))


@contextmanager
def claimed(target: Path, say: Callable[[str], None]) -> Iterator[BinaryIO]:
    """`<target>.part`, open for appending and locked; it stays if there is something in it, for the next time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = _lock(target.with_name(target.name + ".part"), say)
    with part:
        try:
            yield part
        finally:
            if not part.closed and not _length(part) and _is(part, Path(part.name)):
                os.unlink(part.name)


def _lock(path: Path, say: Callable[[str], None]) -> BinaryIO:
    while True:
        part = path.open("a+b")
        if fcntl is not None:
            try:
                fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another crossmatch that is bringing {path.stem}")
                fcntl.flock(part, fcntl.LOCK_EX)
            except OSError:
                pass  # a file system without locks
        if _is(part, path):
            return part
        part.close()  # the other one has finished and renamed what we had opened


def _is(part: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(part.fileno()), path.stat())
    except FileNotFoundError:  # renamed a moment ago
        return False


def finish(part: BinaryIO, target: Path) -> None:
    """Give a complete part its final name."""
    part.flush()
    os.fsync(part.fileno())
    if fcntl is None:
        part.close()  # Windows does not rename an open file
    os.replace(part.name, target)


def start_over(part: BinaryIO) -> None:
    part.flush()
    part.truncate(0)


def _length(part: BinaryIO) -> int:
    part.flush()
    return os.fstat(part.fileno()).st_size


def _fetch(url: str, file: DataFile, part: BinaryIO, wire: Wire) -> str:
    """Fill the part from one address until size and sha256 are right; what went wrong otherwise.

    Every attempt continues where the last one stopped, and counts as idle if the part hardly grew beyond what it has been. Pieces
    of two attempts may belong to two versions of the file, so a wrong sha256 of such a part is final only after one new start.
    """
    furthest, idle, wrong = _length(part), 0, 0
    while True:
        if file.size is not None and _length(part) > file.size:
            start_over(part)
        start = _length(part)
        outcome, problem = ("whole", "") if start and start == file.size else _attempt(url, file, part, wire)
        if outcome == "whole":
            problem = _wrong(url, file, Path(part.name))
            if not problem:
                return ""
            start_over(part)
            if start == 0 or wrong:
                return problem
            furthest, idle, wrong = 0, 0, 1
            continue
        if outcome == "refused":
            return problem
        idle = 0 if _length(part) >= furthest + GAIN else idle + 1
        furthest = max(furthest, _length(part))
        if idle >= wire.tries:
            if outcome == "short":  # all that this server has, and not the file
                start_over(part)
            return problem
        wire.sleep(min(wire.pause * 2**idle, 60.0))


def _wrong(url: str, file: DataFile, path: Path) -> str:
    digest = sha256_of(path) if file.hashes else ""
    right = not file.hashes or digest in file.hashes
    return "" if right else f"{url} gave a file with sha256 {digest}, expected {file.sha256}; the bad part was removed"


def _attempt(url: str, file: DataFile, part: BinaryIO, wire: Wire) -> tuple[Outcome, str]:
    """One request: how it ended, and what to say if it was the last."""
    start = _length(part)
    asked = Request(url, headers={"User-Agent": "crossmatch", **({"Range": f"bytes={start}-"} if start else {})})
    try:
        with urlopen(asked, timeout=wire.timeout) as answer:
            outcome = _receive(answer, file, part, start)
    except HTTPError as error:
        error.close()
        if error.code == 416:  # the server has no more than the part holds
            if file.size is None and error.headers["Content-Range"] == f"bytes */{start}":
                return "whole", ""
            start_over(part)
        return ("broken" if error.code in PASSING else "refused"), f"{url} answered {error.code} {error.reason}"
    except (OSError, HTTPException) as error:
        why = error.reason if isinstance(error, URLError) else error
        offline = isinstance(why, gaierror)  # the name of the server cannot be looked up: there is no network
        return ("refused" if offline else "broken"), f"{url} broke off or cannot be reached ({str(why) or type(why).__name__})"
    expected = "" if file.size is None else f" of {file.size:,}"
    return outcome, f"{url} gave {_length(part):,}{expected} bytes"


def _receive(answer: HTTPResponse, file: DataFile, part: BinaryIO, start: int) -> Outcome:
    """Append what the server sends: the whole file, or all that it promised but too short, or less than it promised."""
    if start and not (answer.status == 206 and (answer.headers["Content-Range"] or "").startswith(f"bytes {start}-")):
        start_over(part)
        if answer.status == 206:  # another range than the one asked for: of no use
            return "broken"
        start = 0
    promised = None if answer.length is None else answer.length + start
    end = min((n for n in (file.size, promised) if n is not None), default=sys.maxsize)
    at = start
    with _bar(file.name, file.size or promised, at) as show:
        while at < end and (chunk := answer.read1(min(CHUNK, end - at))):
            _write(part, chunk)
            at += len(chunk)
            show(at)
    if at and at == (promised or at if file.size is None else file.size):
        return "whole"
    return "short" if promised in (None, at) else "broken"


def _write(part: BinaryIO, chunk: bytes) -> None:
    try:
        part.write(chunk)
        part.flush()
    except OSError as error:  # not the network's fault: no use in trying again
        raise CrossmatchError(f"{part.name} cannot be written ({error.strerror}). Make room, and get it again.") from error


@contextmanager
def _bar(label: str, total: int | None, at: int) -> Iterator[Callable[[int], None]]:
    """A bar of bytes on standard error if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
    except ImportError:
        yield lambda done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, completed=at)
        yield lambda done: bar.update(task, completed=done)
