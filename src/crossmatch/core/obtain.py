"""Bring the files of a data set into the data folder: from a folder at hand, from their official source, or made from other files.

Every file is checked before it gets its name. A file that is already right is left alone; one that is wrong is replaced.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from crossmatch.core.download import Wire, claimed, download, finish, start_over
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.files import DataFile, DataSet, complaint, declared, find, terms


@dataclass(frozen=True)
class Errand:
    """What is asked for: from `source` (a folder at hand; nothing is downloaded then) or, without it, from the network.

    `done` takes what is to be removed when the errand is over: archives and sources that only served to make a file.
    """

    data_set: DataSet
    data_sets: Sequence[DataSet]
    root: Path
    source: Path | None
    link: bool
    wire: Wire
    say: Callable[[str], None]
    done: ExitStack


def get(
    data_set: DataSet,
    data_sets: Sequence[DataSet],
    root: Path,
    *,
    source: Path | None = None,
    link: bool = False,
    optional: bool = False,
    wire: Wire | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Bring every required file of the data set (with `optional`, those too) and say what was done for each.

    What cannot be had from `source` is named in one error at the end; what could be had is there by then.
    """
    say(terms(data_set))
    failed = []
    wanted = data_set.using("required", "optional") if optional else data_set.using("required")
    with ExitStack() as done:
        errand = Errand(data_set, data_sets, root, source, link, wire or Wire(), say, done)
        for file in wanted:
            try:
                obtain(file, errand)
            except CrossmatchError as error:
                failed.append(f"{file.path}: {error}")
                if source is None:
                    break
    if failed:
        what = "is not complete" if source is None else f"lacks {len(failed)} of {len(wanted)} files"
        raise CrossmatchError(f"{data_set.name} {what}: {'; '.join(failed)}. {_ways(data_set, source, optional)}")


def _ways(data_set: DataSet, source: Path | None, optional: bool) -> str:
    words = f"crossmatch data get {data_set.name}" + (" --optional" if optional else "")
    first = "Try again (it continues where it stopped)" if source is None else f"Name another folder, download them with `{words}`"
    at_hand = f", take files at hand with `{words} --from DIR`" if source is None else ""
    install = f", `pip install {data_set.pip}`" if data_set.pip else ""
    return f"{first}{at_hand}{install}" + (f", or see {data_set.source}" if data_set.source else "") + "."


def obtain(file: DataFile, errand: Errand) -> Path:
    """The place of the file, after it has been brought there if it had to be."""
    place = find(file, errand.root)
    if place is not None:
        why = complaint(file, place)
        if not why:
            errand.say(f"{file.path}: here" if place == errand.root / file.path else f"{file.path}: in the installed package")
            return place
        errand.say(f"{place}: {why}; to be replaced")
    refused: list[str] = []
    taken = _taken(file, errand.source, errand, refused) if errand.source else None
    try:
        return taken or _made(file, errand) or _unzipped(file, errand) or _downloaded(file, errand)
    except CrossmatchError as error:
        raise CrossmatchError("; ".join((*refused, str(error)))) from error


def _taken(file: DataFile, folder: Path, errand: Errand, refused: list[str]) -> Path | None:
    """A file at hand that is right: copied or linked into the data folder, or used in its place if it only serves a recipe."""
    for found in _candidates(folder, file):
        why = complaint(file, found)
        if why:
            refused.append(f"{found} has {why}, and was not taken")
            continue
        if file.use == "source":
            errand.say(f"{file.path}: {found} is used")
            return found
        target = errand.root / file.path
        if errand.link:
            with claimed(target, errand.say) as part:
                beside = target.with_name(target.name + ".link")
                beside.unlink(missing_ok=True)
                beside.symlink_to(found.resolve())
                os.replace(beside, target)
                start_over(part)
        else:
            with found.open("rb") as content:
                _put(file, content, errand)
        errand.say(f"{file.path}: {'linked' if errand.link else 'copied'} from {found}")
        return target
    return None


def _candidates(folder: Path, file: DataFile) -> Iterator[Path]:
    """The files in the folder that may be it: in the official layout, under the bare name, and then under that name anywhere."""
    first = [folder / file.path, folder / file.name]
    yield from (path for path in first if path.is_file())
    for parent, folders, names in os.walk(folder):
        folders.sort()
        path = Path(parent) / file.name
        if file.name in names and path not in first:
            yield path


def _downloaded(file: DataFile, errand: Errand) -> Path:
    target = errand.root / file.path
    if errand.source is not None:
        raise CrossmatchError(f"there is no {file.name} in {errand.source} to take")
    if not file.source_url:
        raise CrossmatchError("it has no address to download it from")
    errand.say(f"{file.path}: downloading {file.source_url}")
    download(file, target, errand.wire, errand.say)
    return target


def _unzipped(file: DataFile, errand: Errand) -> Path | None:
    """A member of an archive, which is removed at the end if it was downloaded for this."""
    if not file.member:
        return None
    folder = file.path.rpartition("/")[0]
    archive = DataFile(f"{folder}/{file.source_url.rpartition('/')[2]}", None, None, file.source_url, use="source")
    kept = find(archive, errand.root) is not None
    place = obtain(archive, errand)
    if not kept and place == errand.root / archive.path:
        errand.done.callback(place.unlink, missing_ok=True)
    try:
        with zipfile.ZipFile(place) as opened, opened.open(file.member) as content:
            target = _put(file, content, errand)
    except (zipfile.BadZipFile, zlib.error, KeyError, EOFError) as error:
        raise CrossmatchError(f"{place} has no readable {file.member} ({error})") from error
    if file.use == "source":
        errand.done.callback(target.unlink, missing_ok=True)
    errand.say(f"{file.path}: taken out of {place}")
    return target


def _made(file: DataFile, errand: Errand) -> Path | None:
    """A file that a recipe makes, accepted only if it has a declared sha256."""
    if file.recipe is None:
        return None
    places = [_ingredient(path, errand) for path in file.recipe.needs]
    for rule in file.recipe.rules:
        content = rule(*places).encode()
        seen = hashlib.sha256(content).hexdigest()
        if seen in file.hashes:
            target = _put(file, io.BytesIO(content), errand)
            errand.say(f"{file.path}: made from {', '.join(file.recipe.needs)}")
            return target
    made_from = ", ".join(map(str, places))
    raise CrossmatchError(f"made from {made_from} it has sha256 {seen}, expected {file.sha256}: those are not the official files")


def _ingredient(path: str, errand: Errand) -> Path:
    owner, file = declared(path, errand.data_sets)
    if owner is None or file is None:
        raise CrossmatchError(f"it is made from {path}, which no data set declares")
    if owner != errand.data_set and find(file, errand.root) is None:
        errand.say(terms(owner))
    try:
        return obtain(file, errand)
    except CrossmatchError as error:
        install = f" (`pip install {owner.pip}` has it)" if file.package and owner.pip else ""
        raise CrossmatchError(f"it is made from {path}: {error}{install}") from error


def _put(file: DataFile, content: IO[bytes], errand: Errand) -> Path:
    """Write a file and give it its name in one step, after a last look: nobody ever sees half of it."""
    target = errand.root / file.path
    with claimed(target, errand.say) as part:
        start_over(part)
        try:
            shutil.copyfileobj(content, part, 1 << 20)
            part.flush()
            why = complaint(file, Path(part.name))
            if why:
                raise CrossmatchError(f"it came out with {why}")
        except BaseException:
            start_over(part)
            raise
        finish(part, target)
    return target
