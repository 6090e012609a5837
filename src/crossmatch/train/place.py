"""Where a trained model may be written: a folder in which nothing is lost that a training did not write. Needs no torch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from crossmatch.core.errors import WrongWords
from crossmatch.core.whole import UNFINISHED
from crossmatch.models import families


def require_place(folder: Path, restart: bool = False) -> None:
    """Refuse a folder in which somebody else's files have the names of those that would be written, unless `restart`.

    And one whose path goes through what is not there: `nowhere/../runs` would leave `nowhere` behind. What has other names stays
    as it is, and is no hindrance.
    """
    _require_path(folder)
    foreign = None if restart else next(_foreign(folder), None)
    if foreign is not None:
        raise WrongWords(
            f"{folder} holds {foreign}, which no training of crossmatch wrote; it would be replaced. Name another folder with -o, "
            "or begin again whatever it holds: --restart"
        )


def require_place_of(family: str, folder: Path) -> None:
    """The same for a training that can replace models of one family alone, and has no `restart`."""
    _require_path(folder)
    foreign, other = next(_foreign(folder), None), family_in(folder) or family
    if foreign is not None or other != family:
        what = foreign or f"a model of another kind ({other})"
        raise WrongWords(f"{folder} holds {what}, which would be replaced. Name another folder with -o.")


def _require_path(folder: Path) -> None:
    lost = next((each for each in (folder, *folder.parents) if each.name == ".." and not each.exists()), None)
    if lost is not None:
        raise WrongWords(f"-o {folder}: {lost.parent} is no folder that is there, so that .. leads nowhere. Leave both out.")


def _foreign(folder: Path) -> Iterator[Path]:
    """What would be lost, within the folder."""
    for pattern, own in WRITTEN.items():
        yield from (path.relative_to(folder) for path in sorted(folder.glob(pattern)) if not own(path))


def family_in(folder: Path) -> str | None:
    """The family of the model in a folder, or nothing if there is none that was trained here."""
    try:
        told = json.loads((folder / "model.json").read_bytes())
        known = told["family"] in families() and isinstance(told["recipe"], Mapping)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(told["family"]) if known else None


def _is_log(path: Path) -> bool:
    """Whether its first column is one of ours; a training that was killed may leave nothing in it."""
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError:
        return False
    return not head or head.startswith((b"epoch,", b"step,"))


def _named(pattern: str) -> Callable[[Path], bool]:
    return lambda path: re.fullmatch(pattern, path.name) is not None


# What a training writes or removes, and whether a file of that name is of its making.
WRITTEN: Mapping[str, Callable[[Path], bool]] = {
    "model.json": lambda path: family_in(path.parent) is not None,
    "weights-*.pt": _named(r"weights-[0-9a-f]{12}\.pt"),
    "log*.csv": _is_log,
    "checkpoints/*": _named(rf"\d{{9,}}\.checkpoint|\..+{re.escape(UNFINISHED)}"),
}
