"""Download a file over HTTP with resume and a check of its hash.

Bytes go to `<file>.part`, which is locked while a process writes to it and continued after a break. A file whose size and sha256
are right is renamed in one step. Only the declared size and sha256 are trusted: servers may send a wrong Content-Length or Range.
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

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.dataset_files import DataFile, describe_mismatch
from crossmatch.data.io.file_contents import file_sha256
from crossmatch.data.io.progress import progress_bar

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows: two processes at once are not kept apart there
    fcntl = None

CHUNK = 1 << 16
MIN_PROGRESS = 1 << 12  # bytes that an attempt must add to count as progress; a server may send one byte at a time
TEMPORARY_ERRORS = frozenset({408, 416, 425, 429, 500, 502, 503, 504})  # status codes that may be different a moment later

AttemptOutcome = Literal["whole", "short", "broken", "refused"]


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait and how often to retry."""

    timeout: float = 30.0  # seconds without a byte after which an attempt ends
    tries: int = 4  # number of attempts without progress
    pause: float = 1.0  # seconds to wait after an attempt without progress; doubled each time
    sleep: Callable[[float], None] = time.sleep


def download(file: DataFile, target: Path, retry: RetryPolicy, report: Callable[[str], None]) -> None:
    """Download a file from the first of its addresses that gives the right bytes, continuing an earlier download."""
    with locked_part_file(target, report) as part:
        if target.is_file() and not describe_mismatch(file, target):
            return None  # another process downloaded it while this one waited
        problems = []
        for url in (file.source_url, *file.mirrors):
            problem = _fetch(url, file, part, retry)
            if not problem:
                return commit_part_file(part, target)
            problems.append(problem)
    raise CrossmatchError("; ".join(problems))


@contextmanager
def locked_part_file(target: Path, report: Callable[[str], None]) -> Iterator[BinaryIO]:
    """Open `<target>.part` for appending and lock it. It is removed at the end if it is empty."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = _lock(target.with_name(target.name + ".part"), report)
    with part:
        try:
            yield part
        finally:
            if not part.closed and not _length(part) and _is_same_file(part, Path(part.name)):
                os.unlink(part.name)


def _lock(path: Path, report: Callable[[str], None]) -> BinaryIO:
    while True:
        part = path.open("a+b")
        if fcntl is not None:
            try:
                fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                report(f"waiting for another crossmatch process that downloads {path.stem}")
                fcntl.flock(part, fcntl.LOCK_EX)
            except OSError:
                pass  # a file system without locks
        if _is_same_file(part, path):
            return part
        part.close()  # the other process has renamed the file that was opened here


def _is_same_file(part: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(part.fileno()), path.stat())
    except FileNotFoundError:  # renamed a moment ago
        return False


def commit_part_file(part: BinaryIO, target: Path) -> None:
    """Give a complete part file its final name."""
    part.flush()
    os.fsync(part.fileno())
    if fcntl is None:
        part.close()  # Windows does not rename an open file
    os.replace(part.name, target)


def clear_part_file(part: BinaryIO) -> None:
    part.flush()
    part.truncate(0)


def _length(part: BinaryIO) -> int:
    part.flush()
    return os.fstat(part.fileno()).st_size


def _fetch(url: str, file: DataFile, part: BinaryIO, retry: RetryPolicy) -> str:
    """Fill the part file from one address until size and sha256 are right. Returns the problem, or "".

    Every attempt continues where the last one stopped. It counts as idle if the part did not grow by at least
    `MIN_PROGRESS` beyond its largest size so far.
    Pieces of two attempts may belong to two versions of the file, so a wrong sha256 is final only after one new start.
    """
    largest, idle, has_restarted = _length(part), 0, False
    while True:
        if file.size is not None and _length(part) > file.size:
            clear_part_file(part)
        start = _length(part)
        outcome, problem = ("whole", "") if start and start == file.size else _attempt(url, file, part, retry)
        if outcome == "whole":
            problem = _describe_wrong_hash(url, file, Path(part.name))
            if not problem:
                return ""
            clear_part_file(part)
            if start == 0 or has_restarted:
                return problem
            largest, idle, has_restarted = 0, 0, True
            continue
        if outcome == "refused":
            return problem
        idle = 0 if _length(part) >= largest + MIN_PROGRESS else idle + 1
        largest = max(largest, _length(part))
        if idle >= retry.tries:
            if outcome == "short":  # the server has no more, and this is not the file
                clear_part_file(part)
            return problem
        retry.sleep(min(retry.pause * 2**idle, 60.0))


def _describe_wrong_hash(url: str, file: DataFile, path: Path) -> str:
    digest = file_sha256(path) if file.hashes else ""
    is_right = not file.hashes or digest in file.hashes
    return "" if is_right else f"{url} gave a file with sha256 {digest}, expected {file.sha256}; the file was removed"


def _attempt(url: str, file: DataFile, part: BinaryIO, retry: RetryPolicy) -> tuple[AttemptOutcome, str]:
    """Send one request. Returns how it ended, and a description for an error message."""
    start = _length(part)
    request = Request(url, headers={"User-Agent": "crossmatch", **({"Range": f"bytes={start}-"} if start else {})})
    try:
        with urlopen(request, timeout=retry.timeout) as response:
            outcome = _receive(response, file, part, start)
    except HTTPError as error:
        error.close()
        if error.code == 416:  # the server has no more than the part file contains
            if file.size is None and error.headers["Content-Range"] == f"bytes */{start}":
                return "whole", ""
            clear_part_file(part)
        return ("broken" if error.code in TEMPORARY_ERRORS else "refused"), f"{url} answered {error.code} {error.reason}"
    except (OSError, HTTPException) as error:
        reason = error.reason if isinstance(error, URLError) else error
        is_offline = isinstance(reason, gaierror)  # the name of the server cannot be resolved
        description = f"{url} broke off or cannot be reached ({str(reason) or type(reason).__name__})"
        return ("refused" if is_offline else "broken"), description
    expected = "" if file.size is None else f" of {file.size:,}"
    return outcome, f"{url} gave {_length(part):,}{expected} bytes"


def _receive(response: HTTPResponse, file: DataFile, part: BinaryIO, start: int) -> AttemptOutcome:
    """Append what the server sends. Says whether the file is whole, shorter than declared, or shorter than promised."""
    if start and not (response.status == 206 and (response.headers["Content-Range"] or "").startswith(f"bytes {start}-")):
        clear_part_file(part)
        if response.status == 206:  # not the requested range
            return "broken"
        start = 0
    promised = None if response.length is None else response.length + start
    end = min((n for n in (file.size, promised) if n is not None), default=sys.maxsize)
    length = start
    with progress_bar(file.size or promised, file.name, length, in_bytes=True) as show:
        while length < end and (chunk := response.read1(min(CHUNK, end - length))):
            _write(part, chunk)
            length += len(chunk)
            show(length, "")
    if length and length == (promised or length if file.size is None else file.size):
        return "whole"
    return "short" if promised in (None, length) else "broken"


def _write(part: BinaryIO, chunk: bytes) -> None:
    try:
        part.write(chunk)
        part.flush()
    except OSError as error:  # not a network error: a retry does not help
        raise CrossmatchError(f"{part.name} cannot be written ({error.strerror}). Make room, and get it again.") from error
