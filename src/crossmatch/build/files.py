"""What a step of construction reads and writes: rows of json, one on each line, and a manifest that says how they came about.

    rows.jsonl       one object on each line, each with an `id` of its own
    manifest.json    the step, hashes of what it read, its options and its seed, versions, how many rows, and whether it is finished

A step that was interrupted goes on where it stopped; one that is finished is not done again; one with other inputs or options is
refused, and so is one that another version began. A row is on the disk before it counts, and a line that was cut off is dropped
when the step goes on.
"""

from __future__ import annotations

import errno
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from crossmatch import __version__
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import sha256_of
from crossmatch.core.whole import UNFINISHED, whole_file

ROWS, MANIFEST, FAILED = "rows.jsonl", "manifest.json", "failed.jsonl"
FORMAT = 1
FULL = (errno.ENOSPC, errno.EDQUOT)
# What other libraries the rows of some step depend on; the manifest tells the versions of those that are installed.
LIBRARIES = ("numpy", "scipy", "numba", "pillow", "qtawesome", "wn", "lemminflect", "textblob-aptagger", "faiss-cpu", "torch",
             "transformers", "diffusers")  # fmt: skip
Row = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What a step is to do: two of the same make the same rows."""

    step: str
    inputs: Mapping[str, str]  # what it reads, and the hash of each
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def told(self) -> dict[str, Any]:
        return {"step": self.step, "inputs": dict(self.inputs), "options": dict(self.options), "seed": self.seed}


@dataclass
class Output:
    """The rows of a step while they are written."""

    folder: Path
    done: set[str]  # the ids of rows that are there
    finished: bool
    _file: TextIO | None
    counts: dict[str, int] = field(default_factory=dict)  # what the manifest shall tell beside the number of rows

    def write(self, row: Row) -> None:
        """Add a row; its id must be new."""
        if self._file is None:
            raise CrossmatchError(f"{self.folder} is finished, and takes no more rows. Write into another folder.")
        name = str(row["id"])
        if name in self.done:
            raise CrossmatchError(f"two rows of {self.folder} are called {name!r}. Give each an id of its own.")
        line = json.dumps(row, ensure_ascii=False) + "\n"
        self._file.write(line)
        self._file.flush()
        self.done.add(name)

    def count(self, what: str, n: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + n


@contextmanager
def output(folder: Path, asked: Asked) -> Iterator[Output]:
    """The folder of a step, to be filled. Leaving the block without an exception finishes it.

    Whatever happens in the block, the manifest says the truth: a step that was broken off stays unfinished, with its rows.
    """
    with room(folder):
        done = _taken_up(folder, asked)
        if done is None:
            yield Output(folder, {str(row["id"]) for row in read_rows(folder)}, True, None)
            return
        file = (folder / ROWS).open("a", encoding="utf-8")
        made = Output(folder, done, False, file)
        try:
            yield made
            file.flush()
            os.fsync(file.fileno())
        finally:
            with suppress(OSError):  # what could not be written was told already; a line that was cut off is dropped later
                file.close()
        _write_manifest(folder, asked, rows=len(made.done), counts=made.counts, finished=True)


@contextmanager
def room(folder: Path) -> Iterator[None]:
    """Work that a full disk ends with a plain message: what is written is kept, and the step goes on from there."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise CrossmatchError(
            f"there is no room left on the disk of {folder}. What is written is kept: free some, and run the same command again; "
            "it goes on where it stopped."
        ) from error


def _taken_up(folder: Path, asked: Asked) -> set[str] | None:
    """The ids that are there already, or nothing if all of them are; a folder of something else is refused."""
    if (folder / MANIFEST).exists() and not _is_bare(folder):
        told = manifest(folder)
        seen = {key: told.get(key) for key in asked.told()}
        wanted = json.loads(json.dumps(asked.told()))
        if seen != wanted:
            key = next(key for key in wanted if seen[key] != wanted[key])
            raise WrongWords(
                f"{folder} was made with other {key}: {_difference(seen[key], wanted[key])}. Take another folder, or remove it."
            )
        if told["finished"]:
            return None
        if told.get("crossmatch") != __version__:
            raise CrossmatchError(
                f"{folder} was begun by crossmatch {told.get('crossmatch')}, and this is {__version__}, whose rows may be others. "
                "Take another folder, or remove it."
            )
        return _mended(folder / ROWS)
    if folder.exists() and not (folder.is_dir() and _is_bare(folder)):
        raise WrongWords(f"{folder} is there already, and is no step of a construction. Take another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    _write_manifest(folder, asked, rows=0, counts={}, finished=False)
    return set()


def _is_bare(folder: Path) -> bool:
    """Whether nothing is in a folder, or no more than a beginning that came to nothing: whatever it was, it can begin anew."""
    for file in folder.iterdir():
        begun = file.name == MANIFEST and not manifest(folder)["finished"]
        if not begun and not file.name.endswith(UNFINISHED) and (file.name != ROWS or file.stat().st_size):
            return False
    return True


def _difference(seen: Any, wanted: Any) -> str:
    if isinstance(seen, dict) and isinstance(wanted, dict):
        key = next(key for key in {**seen, **wanted} if seen.get(key) != wanted.get(key))
        return f"{key} was {seen.get(key)!r:.60}, and is {wanted.get(key)!r:.60}"
    return f"{seen!r:.60}, and not {wanted!r:.60}"


def _mended(path: Path) -> set[str]:
    """The ids of the whole lines of a file; what follows the last of them is cut off."""
    held = path.read_bytes() if path.exists() else b""
    if not held.endswith(b"\n"):
        with path.open("ab") as file:
            file.truncate(held.rfind(b"\n") + 1)
    return {str(row["id"]) for row in whole_lines(path)}


def whole_lines(path: Path) -> Iterator[Row]:
    """The rows of a file that may be in work: a line that was cut off is passed over."""
    if path.exists():
        held = path.read_bytes()
        for line in held[: held.rfind(b"\n") + 1].splitlines():
            if line:
                yield json.loads(line)


@dataclass
class Failures:
    """What came to nothing, in a file beside the rows, each with its reason: a line is on the disk before it counts.

    `passing` says of a row that another time may be better: it is tried again when the step goes on.
    """

    path: Path
    settled: dict[str, str]  # the reason of each that is not tried again
    passing: dict[str, str]
    file: TextIO

    @classmethod
    def taken_up(cls, path: Path) -> Failures:
        """The failures of an earlier run; those that another time may be better are left out."""
        kept = [row for row in whole_lines(path) if not row.get("passing")]
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept)
        with whole_file(path) as file:
            file.write(text.encode())
        return cls(path, {row["id"]: row["reason"] for row in kept}, {}, path.open("a", encoding="utf-8"))

    def add(self, row: Row, passing: bool) -> None:
        """Record what failed: an `id`, a `reason`, and whatever else tells of it."""
        self.file.write(json.dumps({**row, "passing": passing}, ensure_ascii=False) + "\n")
        self.file.flush()
        (self.passing if passing else self.settled)[row["id"]] = row["reason"]

    def counted(self, made: Output) -> None:
        """Tell the manifest how often each reason stood against it."""
        for reason in sorted([*self.settled.values(), *self.passing.values()]):
            made.count(f"failed: {reason}")

    def __enter__(self) -> Failures:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.file.close()


def _write_manifest(folder: Path, asked: Asked, *, rows: int, counts: Mapping[str, int], finished: bool) -> None:
    told = {"format": FORMAT, **asked.told(), "rows": rows, "counts": dict(counts), "finished": finished, "crossmatch": __version__}
    told["versions"] = versions()
    if finished:
        told["sha256"] = sha256_of(folder / ROWS)
    with whole_file(folder / MANIFEST, durable=True) as file:
        file.write(json.dumps(told, indent=1, ensure_ascii=False).encode())


@cache
def versions() -> dict[str, str]:
    """Of Python, and of the libraries that a row may depend on, as far as they are installed.

    >>> sorted({"numpy", "python"} & set(versions()))
    ['numpy', 'python']
    """
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def manifest(folder: Path) -> dict[str, Any]:
    """What a step says of itself."""
    try:
        told = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise WrongWords(f"{folder} has no {MANIFEST}: it is no step of a construction. Check the path.") from None
    except (OSError, ValueError) as error:
        raise CrossmatchError(f"{folder / MANIFEST} cannot be read ({error}). Make the step anew.") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise CrossmatchError(f"{folder / MANIFEST} is of another version of crossmatch. Make the step anew.")
    return told


def read_rows(folder: Path, step: str = "") -> list[Row]:
    """The rows of a finished step; `step` says which one is expected."""
    told = manifest(folder)
    if not told["finished"]:
        raise CrossmatchError(
            f"{folder} is not finished: {told['step']} was broken off. Run it again; it goes on where it stopped."
        )
    if step and told["step"] != step:
        raise WrongWords(f"{folder} was made by {told['step']}, but rows of {step} were expected. Check the path.")
    if sha256_of(folder / ROWS) != told["sha256"]:
        raise CrossmatchError(f"{folder / ROWS} was changed after it was made. Make the step anew, or use a file of your own.")
    with (folder / ROWS).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def hash_of(folder: Path) -> str:
    """What identifies the rows of a finished step, as an input of another."""
    told = manifest(folder)
    if not told["finished"]:
        raise CrossmatchError(f"{folder} is not finished. Run {told['step']} again; it goes on where it stopped.")
    return str(told["sha256"])[:16]


def written(folder: Path, asked: Asked, rows: Callable[[Output], Iterable[Row]]) -> dict[str, Any]:
    """Do a step whose rows are cheap to make again: those that are there must be the first that come out. Its manifest."""
    with output(folder, asked) as made:
        if not made.finished:
            there = list(whole_lines(folder / ROWS))
            number = 0
            for number, row in enumerate(rows(made), 1):
                if number > len(there):
                    made.write(row)
                elif json.loads(json.dumps(row)) != there[number - 1]:
                    raise _other(folder, number)
            if number < len(there):
                raise _other(folder, number + 1)
    return manifest(folder)


def _other(folder: Path, number: int) -> CrossmatchError:
    return CrossmatchError(
        f"row {number:,} of {folder / ROWS} is not what comes out now: it was changed, or what it was made from was. "
        "Remove the folder, and run the step anew."
    )
