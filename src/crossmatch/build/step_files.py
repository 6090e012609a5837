"""The folder of a build step: rows, and a manifest that records how they were made.

    rows.jsonl       one json object per line, each with a unique `id`
    manifest.json    step, hashes of the inputs, options, seed, library versions, number of rows, whether the step is finished

An interrupted step resumes where it stopped. A finished step is not repeated. A folder that was made with other inputs, options or
another version of the package is rejected. Each row is flushed before it counts; an incomplete last line is dropped on resume.
"""

from __future__ import annotations

import errno
import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

from crossmatch import __version__
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.atomic_write import TEMPORARY_SUFFIX, atomic_write
from crossmatch.data.io.file_contents import file_sha256

ROWS, MANIFEST, FAILED = "rows.jsonl", "manifest.json", "failed.jsonl"
FORMAT = 1
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# Libraries that rows may depend on; the manifest records the versions of those that are installed.
LIBRARIES = ("numpy", "scipy", "numba", "pillow", "qtawesome", "wn", "lemminflect", "textblob-aptagger", "faiss-cpu", "torch",
             "transformers", "diffusers")  # fmt: skip
RENAMED_STEPS = {"mine": "lookalikes"}  # folders of earlier versions have the old names
Row = dict[str, Any]


@dataclass(frozen=True)
class StepSpec:
    """Everything that determines the rows of a step; equal specs produce equal rows."""

    step: str
    inputs: Mapping[str, str]  # name of each input, and its hash
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass
class StepOutput:
    """The rows of a step while they are written."""

    folder: Path
    written_ids: set[str]
    is_finished: bool
    _file: TextIO | None
    counts: dict[str, int] = field(default_factory=dict)  # further numbers for the manifest

    def write(self, row: Row) -> None:
        """Append a row. Its id must be new."""
        if self._file is None:
            raise CrossmatchError(f"{self.folder} is finished and accepts no more rows. Write to another folder.")
        row_id = str(row["id"])
        if row_id in self.written_ids:
            raise CrossmatchError(f"{self.folder}: two rows have the id {row_id!r}. Ids must be unique.")
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._file.flush()
        self.written_ids.add(row_id)

    def count(self, name: str, n: int = 1) -> None:
        """Add n to a number of the manifest."""
        self.counts[name] = self.counts.get(name, 0) + n


@contextmanager
def open_step(folder: Path, spec: StepSpec) -> Iterator[StepOutput]:
    """Open the folder of a step for writing; leaving the block without an exception finishes the step.

    After an exception the step stays unfinished and keeps its rows.

    Raises:
        UsageError: If the folder holds something else, or was made with other inputs or options.
    """
    with _explain_full_disk(folder):
        written_ids = _resume(folder, spec)
        if written_ids is None:
            yield StepOutput(folder, {str(row["id"]) for row in read_rows(folder)}, True, None)
            return
        file = (folder / ROWS).open("a", encoding="utf-8")
        output = StepOutput(folder, written_ids, False, file)
        try:
            yield output
            file.flush()
            os.fsync(file.fileno())
        finally:
            with suppress(OSError):  # a failed write was reported already; an incomplete line is dropped on resume
                file.close()
        _write_manifest(folder, spec, rows=len(output.written_ids), counts=output.counts, finished=True)


@contextmanager
def _explain_full_disk(folder: Path) -> Iterator[None]:
    """Turn the OSError of a full disk into a message that says how to resume."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise CrossmatchError(
            f"{folder}: the disk is full. Rows written so far are kept. Free some space, then run the same command again to resume."
        ) from error


def _resume(folder: Path, spec: StepSpec) -> set[str] | None:
    """Ids of the rows written so far; None if the step is finished."""
    if (folder / MANIFEST).exists() and not _has_no_rows(folder):
        manifest = read_manifest(folder)
        current = json.loads(json.dumps(asdict(spec)))
        previous = {key: manifest.get(key) for key in current}
        if previous != current:
            key = next(key for key in current if previous[key] != current[key])
            raise UsageError(
                f"{folder} was made with other {key}: {_difference(previous[key], current[key])}. "
                "Choose another folder, or delete this one."
            )
        if manifest["finished"]:
            return None
        if manifest.get("crossmatch") != __version__:
            raise CrossmatchError(
                f"{folder} was started by crossmatch {manifest.get('crossmatch')}; this is {__version__}, whose rows may differ. "
                "Choose another folder, or delete this one."
            )
        return _truncate_to_complete_rows(folder / ROWS)
    if folder.exists() and not (folder.is_dir() and _has_no_rows(folder)):
        raise UsageError(f"{folder} exists and is not the folder of a build step. Choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    _write_manifest(folder, spec, rows=0, counts={}, finished=False)
    return set()


def _has_no_rows(folder: Path) -> bool:
    """Whether a folder is empty, or holds only an unfinished manifest, temporary files and no rows."""
    for file in folder.iterdir():
        unfinished = file.name == MANIFEST and not read_manifest(folder)["finished"]
        if not unfinished and not file.name.endswith(TEMPORARY_SUFFIX) and (file.name != ROWS or file.stat().st_size):
            return False
    return True


def _difference(previous: Any, current: Any) -> str:
    if isinstance(previous, dict) and isinstance(current, dict):
        key = next(key for key in {**previous, **current} if previous.get(key) != current.get(key))
        return f"{key} was {previous.get(key)!r:.60}, now {current.get(key)!r:.60}"
    return f"was {previous!r:.60}, now {current!r:.60}"


def _truncate_to_complete_rows(path: Path) -> set[str]:
    """Cut off an incomplete last line; return the ids of the complete ones."""
    content = path.read_bytes() if path.exists() else b""
    if not content.endswith(b"\n"):
        with path.open("ab") as file:
            file.truncate(content.rfind(b"\n") + 1)
    return {str(row["id"]) for row in read_complete_rows(path)}


def read_complete_rows(path: Path) -> Iterator[Row]:
    """Read the rows of a file that may still be growing; an incomplete last line is skipped."""
    if path.exists():
        content = path.read_bytes()
        for line in content[: content.rfind(b"\n") + 1].splitlines():
            if line:
                yield json.loads(line)


@dataclass
class Failures:
    """Rows that could not be made, in a file beside the rows, each with its reason.

    A retryable failure, such as a lost connection, is tried again when the step resumes; a final one is not.
    """

    final: dict[str, str]  # id to reason
    retryable: dict[str, str]
    file: TextIO

    @classmethod
    def resume(cls, path: Path) -> Failures:
        """Load the final failures of an earlier run and drop the retryable ones."""
        rows = [row for row in read_complete_rows(path) if not row.get("passing")]
        with atomic_write(path) as file:
            file.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
        return cls({row["id"]: row["reason"] for row in rows}, {}, path.open("a", encoding="utf-8"))

    def add(self, row: Row, may_retry: bool) -> None:
        """Record a failure with its `id`, its `reason` and any further fields."""
        self.file.write(json.dumps({**row, "passing": may_retry}, ensure_ascii=False) + "\n")
        self.file.flush()
        (self.retryable if may_retry else self.final)[row["id"]] = row["reason"]

    def count_reasons(self, output: StepOutput) -> None:
        """Count each reason in the manifest."""
        for reason in sorted([*self.final.values(), *self.retryable.values()]):
            output.count(f"failed: {reason}")

    def __enter__(self) -> Failures:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.file.close()


def _write_manifest(folder: Path, spec: StepSpec, *, rows: int, counts: Mapping[str, int], finished: bool) -> None:
    manifest = {
        "format": FORMAT, **asdict(spec), "rows": rows, "counts": dict(counts), "finished": finished, "crossmatch": __version__,
        "versions": library_versions(),
    }  # fmt: skip
    if finished:
        manifest["sha256"] = file_sha256(folder / ROWS)
    with atomic_write(folder / MANIFEST, durable=True) as file:
        file.write(json.dumps(manifest, indent=1, ensure_ascii=False).encode())


@cache
def library_versions() -> dict[str, str]:
    """Versions of Python and of the installed libraries that rows may depend on.

    >>> sorted({"numpy", "python"} & set(library_versions()))
    ['numpy', 'python']
    """
    versions = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def read_manifest(folder: Path) -> dict[str, Any]:
    """Read the manifest of a step."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{folder} has no {MANIFEST}, so it is not the folder of a build step. Check the path.") from None
    except (OSError, ValueError) as error:
        raise CrossmatchError(f"{folder / MANIFEST} cannot be read ({error}). Run the step again in a new folder.") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CrossmatchError(f"{folder / MANIFEST} was written by another version of crossmatch. Run the step again.")
    return manifest | {"step": RENAMED_STEPS.get(manifest["step"], manifest["step"])}


def read_rows(folder: Path, *steps: str) -> list[Row]:
    """Read the rows of a finished step.

    Args:
        folder: Folder of the step.
        *steps: Names of the steps that may have made the folder; any if there are none.

    Raises:
        CrossmatchError: If the step is unfinished, or its rows were edited afterwards.
        UsageError: If another step made the folder.
    """
    manifest = read_manifest(folder)
    if steps and manifest["step"] not in steps:
        expected = " or ".join(steps)
        raise UsageError(f"{folder} was made by step {manifest['step']}; expected rows of step {expected}. Check the path.")
    if file_sha256(folder / ROWS) != _finished_hash(folder, manifest):
        raise CrossmatchError(f"{folder / ROWS} was changed after the step. Run the step again, or use a file of your own.")
    with (folder / ROWS).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def rows_hash(folder: Path) -> str:
    """Hash of the rows of a finished step, which identifies them as input of another step."""
    return _finished_hash(folder, read_manifest(folder))[:16]


def _finished_hash(folder: Path, manifest: Mapping[str, Any]) -> str:
    if not manifest["finished"]:
        raise CrossmatchError(f"{folder} is not finished: step {manifest['step']} was interrupted. Run it again to resume.")
    return str(manifest["sha256"])


def write_step(folder: Path, spec: StepSpec, make_rows: Callable[[StepOutput], Iterable[Row]]) -> dict[str, Any]:
    """Run a step whose rows are cheap to recompute, and return its manifest.

    On resume all rows are computed again; those already in the folder must be the first ones. `make_rows` writes further files of
    the folder before it returns the rows. Only a step with too many rows for the memory generates them one by one.
    """
    with open_step(folder, spec) as output:
        if not output.is_finished:
            existing = list(read_complete_rows(folder / ROWS))
            number = 0
            for number, row in enumerate(make_rows(output), 1):
                if number > len(existing):
                    output.write(row)
                elif json.loads(json.dumps(row)) != existing[number - 1]:
                    raise _changed_row_error(folder, number)
            if number < len(existing):
                raise _changed_row_error(folder, number + 1)
    return read_manifest(folder)


def _changed_row_error(folder: Path, number: int) -> CrossmatchError:
    return CrossmatchError(
        f"{folder / ROWS}, row {number:,} differs from what the step computes now: the row or its input was changed. "
        "Delete the folder and run the step again."
    )
