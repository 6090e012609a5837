"""The output folder of a training: which files it may replace, the lock, log.csv and TensorBoard events. Needs no torch."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.io.atomic_write import TEMPORARY_SUFFIX, atomic_write
from crossmatch.data.io.file_contents import read_json_object
from crossmatch.models import families

try:
    import fcntl
except ImportError:  # Windows: a second process is not noticed
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = "lock"
LogRow = Mapping[str, float]  # the same columns in every row; epoch and step first
INTEGER_COLUMNS = ("epoch", "step")


# -- files that may be replaced


def require_writable_folder(folder: Path, restart: bool = False) -> None:
    """Refuse a folder where the training would overwrite files that crossmatch did not write, unless `restart`.

    Also refuses a path through a missing folder: `nowhere/../runs` would create `nowhere`. Files with other names are no problem.
    """
    missing = next((part for part in (folder, *folder.parents) if part.name == ".." and not part.exists()), None)
    if missing is not None:
        raise UsageError(f"-o {folder}: the folder {missing.parent} does not exist. Write the path without it and without '..'.")
    foreign = None if restart else next(_foreign_files(folder), None)
    if foreign is not None:
        raise UsageError(
            f"-o {folder}: training would replace {foreign}, which crossmatch train did not write. Choose another folder, or pass "
            "--restart to replace it."
        )


def _foreign_files(folder: Path) -> Iterator[Path]:
    for pattern, is_own in OUTPUT_FILES.items():
        yield from (path.relative_to(folder) for path in sorted(folder.glob(pattern)) if not is_own(path))


def trained_family(folder: Path) -> str | None:
    """Family of the trained model in a folder; None if there is no model that `crossmatch train` wrote."""
    description = read_json_object(folder / "model.json") or {}
    family = description.get("family")
    is_own = isinstance(family, str) and family in families() and isinstance(description.get("recipe"), dict)
    return family if is_own else None


def _is_log(path: Path) -> bool:
    """Whether the first column is that of a training log; a killed training may leave an empty one."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError:
        return False
    return not head or head.startswith((b"epoch,", b"step,"))


def _name_matches(pattern: str) -> Callable[[Path], bool]:
    return lambda path: re.fullmatch(pattern, path.name) is not None


# Files that a training writes or removes, and whether a file of that name comes from a training.
OUTPUT_FILES: Mapping[str, Callable[[Path], bool]] = {
    "model.json": lambda path: trained_family(path.parent) is not None,
    "weights-*.pt": _name_matches(r"weights-[0-9a-f]{12}\.pt"),
    "log*.csv": _is_log,
    "checkpoints/*": _name_matches(rf"\d{{9,}}\.checkpoint|\..+{re.escape(TEMPORARY_SUFFIX)}"),
}


def remove_outputs(folder: Path, logs: str) -> None:
    """Remove the model and the logs (a pattern) of an earlier training, and nothing else."""
    for pattern in ("model.json", logs, "weights-*.pt"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


@contextmanager
def explain_write_errors(problem: str, consequence: str) -> Iterator[None]:
    """Turn an error of the file system into a message: the problem, its reason, and what running the command again does."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise CrossmatchError(f"{problem} ({reason}). Fix that, then run the same command again{consequence}.") from None


# -- one process per folder


@contextmanager
def lock_folder(output: Path) -> Iterator[None]:
    """Lock a folder for this process. A folder to which nothing was written is removed afterwards.

    The operating system frees the lock of a killed process.
    """
    missing = [part for part in (output, *output.parents) if not part.exists()]
    try:
        output.mkdir(parents=True, exist_ok=True)
        lock = _acquire_lock(output / LOCK_FILE)
    except OSError as error:
        raise CrossmatchError(f"-o {output}: cannot write there ({error.strerror or error}). Choose another folder.") from None
    if lock is None:
        raise CrossmatchError(f"-o {output}: another process is training there. Wait for it, or choose another folder.")
    try:
        yield
    finally:
        if not any(path.name != LOCK_FILE for path in output.iterdir()):
            with suppress(OSError):
                (output / LOCK_FILE).unlink(missing_ok=True)
                for folder in missing:
                    folder.rmdir()
        os.close(lock)


def _acquire_lock(path: Path) -> int | None:
    """Return the locked file, or None if another process holds the lock."""
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
        os.close(lock)  # the previous holder removed the file in between


# -- log


def write_log(path: Path, rows: Sequence[LogRow]) -> None:
    """Write all rows so far to log.csv, atomically, so that an interruption neither loses nor repeats a row."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    if rows:
        writer.writerow(rows[0])
    for row in rows:
        writer.writerow([f"{value:.0f}" if name in INTEGER_COLUMNS else f"{value:.6g}" for name, value in row.items()])
    with explain_write_errors(f"{path} cannot be written", " to resume"), atomic_write(path) as file:
        file.write(text.getvalue().encode())


@contextmanager
def tensorboard_writer(folder: Path, enabled: bool, epochs_done: int = 0) -> Iterator[Callable[[LogRow], None]]:
    """Provide a function that writes log rows to TensorBoard, or does nothing. Earlier events after `epochs_done` are purged."""
    if not enabled:
        yield lambda row: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingDependencyError("TensorBoard", "tensorboard") from None
    with SummaryWriter(str(folder), purge_step=epochs_done + 1) as writer:

        def add_row(row: LogRow) -> None:
            for name, value in row.items():
                if name not in INTEGER_COLUMNS:
                    writer.add_scalar(name.replace(" ", "/"), value, int(row["epoch"]))
            writer.flush()

        yield add_row
