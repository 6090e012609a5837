"""The folder of an export: whole or not at all, and nothing in it but what was exported.

What a folder must hold stands in its `provenance.json`, file by file with the hash of each. A later export takes the place of an
earlier one; a folder with anything else in it is refused, and nothing that somebody put there is ever removed.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import sha256_of
from crossmatch.core.whole import whole_file

PROVENANCE = "provenance.json"


def files_in(folder: Path) -> dict[str, str]:
    """The hash of each file below a folder, but for the list itself."""
    return {
        path.relative_to(folder).as_posix(): sha256_of(path)
        for path in sorted(folder.rglob("*"))
        if not path.is_dir() and path != folder / PROVENANCE
    }


def require_replaceable(folder: Path) -> None:
    """A folder that is not there, that is empty, or that holds an earlier export and nothing else."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not folder.is_dir():
        raise WrongWords(f"{folder} is a file. Name a folder for the results.")
    told = _listed(folder)
    if told is None:
        raise WrongWords(f"{folder} holds something else than an export of this version. Name another folder, or empty it.")
    held = files_in(folder)
    strange = next((name for name, found in held.items() if told.get(name) != found), None)
    if strange is not None:
        why = "was changed since it was exported" if strange in told else "is no part of the export there"
        raise WrongWords(f"{folder / strange} {why}, and would be lost or misread. Move it away, or name another folder.")


def _listed(folder: Path) -> Mapping[str, str] | None:
    """What an earlier export wrote; nothing where there was none."""
    try:
        told = json.loads((folder / PROVENANCE).read_bytes())
    except (OSError, ValueError):
        return None
    files = told.get("files") if isinstance(told, dict) and "study" in told else None
    return files if isinstance(files, dict) else None


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new folder to fill; it takes its name, and the place of an earlier export, when all is written."""
    folder = Path(os.path.realpath(folder))
    require_replaceable(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    new, old = (folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.{end}") for end in ("part", "old"))
    new.mkdir()
    try:
        yield new
        require_replaceable(folder)
        there = folder.exists()
        try:
            if there:
                os.rename(folder, old)
            os.rename(new, folder)
        except OSError as error:
            if there and old.exists() and not folder.exists():
                os.rename(old, folder)
            raise CrossmatchError(f"{folder} cannot be replaced ({error.strerror or error}). Name another folder.") from None
    except BaseException:
        _remove(new, files_in(new))
        raise
    if there:
        _remove(old, _listed(old) or {})


def _remove(folder: Path, files: Mapping[str, str]) -> None:
    """Remove these files, and the folders that are empty then."""
    for name in (*files, PROVENANCE):
        (folder / name).unlink(missing_ok=True)
    for place in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        with suppress(OSError):
            place.rmdir()
    with suppress(OSError):
        folder.rmdir()


def write(folder: Path, files: Mapping[str, str], provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """Write texts, and then what the folder holds; the names of all files in it."""
    for name, text in files.items():
        with whole_file(folder / name) as file:
            file.write(text.encode())
    held = files_in(folder)
    with whole_file(folder / PROVENANCE) as file:
        file.write(json.dumps({**provenance, "files": held}, indent=1, ensure_ascii=False).encode())
    return (*files, PROVENANCE)
