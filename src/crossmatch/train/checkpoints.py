"""Checkpoints: the state of a training on disk, from which it resumes exactly.

    FOLDER/checkpoints/000000400.checkpoint   after 400 steps; the two newest are kept

A checkpoint starts with one line of text: the hashes of recipe and data, and a checksum of the rest. It gets its name only after it
has reached the disk. A damaged checkpoint is detected, and the one before it is used.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.atomic_write import TEMPORARY_SUFFIX, atomic_write
from crossmatch.train.output_folder import explain_write_errors

FORMAT = 1  # increase when checkpoints are written differently
HEADER = re.compile(rb"crossmatch checkpoint (\d+) recipe:(\w+) data:(\w+) sha256:(\w{64})")
CHECKPOINTS_KEPT = 2  # the older one is a reserve in case the newer one is damaged
FOLDER_NAME, SUFFIX = "checkpoints", ".checkpoint"
RECIPE_KEY = "recipe"  # where a checkpoint stores its recipe
MAX_DIFFERENCES = 3  # differences that an error message lists


class DifferentTrainingError(CrossmatchError):
    """The folder contains a training with another recipe or other data."""


@dataclass(frozen=True)
class TrainingIdentity:
    """Hashes of recipe and data. Trainings with the same identity end with the same weights, given the same code.

    `description` is the recipe as a table, to explain differences.
    """

    recipe: str
    data: str
    description: Mapping[str, Any] = field(default_factory=dict, compare=False)


def ignore_message(message: str) -> None:
    """Default receiver of progress messages."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one training, in a folder that this process has locked (`output_folder.lock_folder`)."""

    output: Path
    identity: TrainingIdentity
    notify: Callable[[str], object] = ignore_message

    @property
    def folder(self) -> Path:
        return self.output / FOLDER_NAME

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Write the state after `step` steps atomically; then delete all but the two newest checkpoints."""
        buffer = io.BytesIO()
        torch.save(state | {RECIPE_KEY: dict(self.identity.description)}, buffer)
        content = buffer.getvalue()
        with explain_write_errors(f"No checkpoint can be written to {self.folder}", " to resume from the last checkpoint"):
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.folder / f"{step:09d}{SUFFIX}", durable=True) as file:
                file.write(_header(self.identity, content))
                file.write(content)
        for old in self._files()[CHECKPOINTS_KEPT:]:
            old.unlink(missing_ok=True)

    def load_latest(self) -> dict[str, Any] | None:
        """Load the newest undamaged state, or None.

        Raises:
            DifferentTrainingError: The checkpoint belongs to another recipe or other data.
        """
        for leftover in self.folder.glob(f".*{TEMPORARY_SUFFIX}"):  # of a killed process
            leftover.unlink(missing_ok=True)
        for path in self._files():
            state = self._read(path)
            if state is not None:
                return state
            self.notify(f"{path} is damaged. Training resumes from the checkpoint before it, or starts over.")
        return None

    @property
    def exist(self) -> bool:
        return bool(self._files())

    def delete(self) -> None:
        """Delete all checkpoints, and the folder if it is empty then."""
        for path in (*self._files(), *self.folder.glob(f".*{TEMPORARY_SUFFIX}")):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def _files(self) -> list[Path]:
        """All checkpoints, the newest first."""
        return sorted(self.folder.glob(f"*{SUFFIX}"), reverse=True)

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            line, _, content = path.read_bytes().partition(b"\n")
        except OSError:
            return None
        header = HEADER.fullmatch(line)
        if header is None or hashlib.sha256(content).hexdigest().encode() != header[4]:
            return None
        identity = TrainingIdentity(header[2].decode(), header[3].decode())
        if identity != self.identity:
            identity = replace(identity, description=_read_description(content))
            require_same_training(identity, self.identity, self.output, "a checkpoint")
        if int(header[1]) != FORMAT:
            raise CrossmatchError(
                f"{path} has format {int(header[1])}; this version reads format {FORMAT}. Start over with --restart, or choose "
                "another folder with -o."
            )
        state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
        return state


def _header(identity: TrainingIdentity, content: bytes) -> bytes:
    digest = hashlib.sha256(content).hexdigest()
    return f"crossmatch checkpoint {FORMAT} recipe:{identity.recipe} data:{identity.data} sha256:{digest}\n".encode()


def _read_description(content: bytes) -> Mapping[str, Any]:
    """The recipe of a checkpoint, if it can be read."""
    try:
        state = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
        description: Mapping[str, Any] = state.get(RECIPE_KEY, {})
    except Exception:  # written by any other version
        return {}
    return description


def describe_differences(saved: Mapping[str, Any], current: Mapping[str, Any], prefix: str = "") -> list[str]:
    """List the settings in which a saved recipe differs from the current one.

    >>> describe_differences({"train": {"epochs": 3, "seed": 0}, "hash": "a"}, {"train": {"epochs": 4, "seed": 0}})
    ['train.epochs was 3, is now 4']
    """
    differences: list[str] = []
    for name, value in current.items():
        saved_value = saved.get(name)
        if isinstance(value, Mapping) and isinstance(saved_value, Mapping):
            differences += describe_differences(saved_value, dict.fromkeys(saved_value) | dict(value), f"{prefix}{name}.")
        elif saved_value != value:
            differences.append(f"{prefix}{name} was {saved_value}, is now {value}")
    return differences


def require_same_training(saved: TrainingIdentity, current: TrainingIdentity, output: Path, file_label: str) -> None:
    """Refuse to continue with the files of another training; `file_label` names them in the message."""
    labels = {"recipe": "another recipe", "data": "other data"}
    changed = [name for name in labels if getattr(saved, name) != getattr(current, name)]
    if changed:
        differences = []
        if saved.description and changed[0] == "recipe":
            differences = describe_differences(saved.description, current.description)[:MAX_DIFFERENCES]
        hashes = f"hash {getattr(saved, changed[0])}, now {getattr(current, changed[0])}"
        raise DifferentTrainingError(
            f"-o {output}: the folder contains {file_label} of {' and '.join(labels[name] for name in changed)} "
            f"({'; '.join(differences) or hashes}). Choose another folder, or pass --restart to replace it."
        )
