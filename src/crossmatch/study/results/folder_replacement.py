"""Replaces the folder of an export atomically, and never deletes files that an export did not write.

`provenance.json` in the folder lists every exported file with its hash. A new export replaces an earlier one; a folder with
anything else in it is refused.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.file_contents import file_sha256

PROVENANCE = "provenance.json"


def hash_files(folder: Path) -> dict[str, str]:
    """The hash of each file below a folder, except `provenance.json`."""
    return {
        path.relative_to(folder).as_posix(): file_sha256(path)
        for path in sorted(folder.rglob("*"))
        if not path.is_dir() and path != folder / PROVENANCE
    }


def require_replaceable(folder: Path) -> None:
    """Raise unless a folder is absent, empty, or holds an unchanged earlier export and nothing else."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file. Choose a folder for the results.")
    exported = _listed_files(folder)
    if exported is None:
        raise UsageError(f"{folder} is not empty and not an export of this version. Choose another folder, or empty it.")
    foreign = next((name for name, file_hash in hash_files(folder).items() if exported.get(name) != file_hash), None)
    if foreign is not None:
        problem = "was changed since the export" if foreign in exported else "does not belong to the export in this folder"
        raise UsageError(f"{folder / foreign} {problem} and would be lost. Move it away, or choose another folder.")


def _listed_files(folder: Path) -> Mapping[str, str] | None:
    """The files of an earlier export with their hashes; None if there is no export."""
    try:
        provenance = json.loads((folder / PROVENANCE).read_bytes())
    except (OSError, ValueError):
        return None
    files = provenance.get("files") if isinstance(provenance, dict) and "study" in provenance else None
    return files if isinstance(files, dict) else None


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder to fill. It replaces `folder` when the block ends, and is deleted if the block fails."""
    folder = Path(os.path.realpath(folder))
    require_replaceable(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    new, old = (folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.{end}") for end in ("part", "old"))
    new.mkdir()
    try:
        yield new
        require_replaceable(folder)
        existed = folder.exists()
        try:
            if existed:
                os.rename(folder, old)
            os.rename(new, folder)
        except OSError as error:
            if existed and old.exists() and not folder.exists():
                os.rename(old, folder)
            raise CrossmatchError(f"Cannot replace {folder} ({error.strerror or error}). Choose another folder.") from None
    except BaseException:
        _delete_files(new, hash_files(new))
        raise
    if existed:
        _delete_files(old, _listed_files(old) or {})


def _delete_files(folder: Path, files: Mapping[str, str]) -> None:
    """Delete these files, and the folders that are empty afterwards."""
    for name in (*files, PROVENANCE):
        (folder / name).unlink(missing_ok=True)
    for place in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        with suppress(OSError):
            place.rmdir()
    with suppress(OSError):
        folder.rmdir()


def write_files(folder: Path, files: Mapping[str, str], provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """Write texts and then `provenance.json`.

    Returns:
        The names of the written files.
    """
    for name, text in files.items():
        with atomic_write(folder / name) as file:
            file.write(text.encode())
    with atomic_write(folder / PROVENANCE) as file:
        file.write(json.dumps({**provenance, "files": hash_files(folder)}, indent=1, ensure_ascii=False).encode())
    return (*files, PROVENANCE)
