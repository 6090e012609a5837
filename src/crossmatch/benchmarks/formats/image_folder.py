"""A folder of image files, and the names that refer to each file."""

from __future__ import annotations

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath, PureWindowsPath
from posixpath import basename, splitext

from crossmatch.data.errors import CrossmatchError

IMAGE_SUFFIXES = (
    ".jpg", ".jpeg", ".jfif", ".jpe", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif", ".jp2", ".ppm", ".pgm",
)  # fmt: skip
SYSTEM_FILES = ("thumbs.db", "desktop.ini", "__macosx")  # created by operating systems


@dataclass(frozen=True)
class ImageFolder:
    """Files below a folder by relative path, with the id of each: the file name if that is unique, else the path.

    `names` maps every name that may refer to a file to its paths: path, file name, file name without suffix.
    """

    root: Path
    files: Mapping[str, Path]
    ids: Mapping[str, str]
    names: Mapping[str, tuple[str, ...]]

    @classmethod
    def scan(cls, root: Path) -> ImageFolder:
        if not root.is_dir():
            near = get_close_matches("images", [p.name for p in root.parent.iterdir() if p.is_dir()], n=1, cutoff=0.5)
            hint = f"Is it {near[0]!r}? Rename it." if near else "Put the images into it."
            raise CrossmatchError(f"the folder {root} does not exist. {hint}")
        files: dict[str, Path] = {}
        for name in walk_files(root):
            if files.setdefault(_normalise(name), root / name) != root / name:
                raise CrossmatchError(f"{root} holds {name!r} twice, with different Unicode encodings of accents. Rename one.")
        bare: dict[str, list[str]] = defaultdict(list)
        stems: dict[str, list[str]] = defaultdict(list)
        for path in files:
            name = basename(path)
            bare[name].append(path)
            if is_image(path):
                stems[splitext(name)[0]].append(path)
        if not any(map(is_image, files)):
            raise CrossmatchError(f"{root} holds no image ({', '.join(IMAGE_SUFFIXES[:6])}, …). Put the images into it.")
        names = {name: tuple(paths) for table in (stems, bare) for name, paths in table.items()} | {path: (path,) for path in files}
        ids = {path: name for name, paths in bare.items() for path in paths if len(paths) == 1}
        return cls(root, files, {path: ids.get(path, path) for path in files}, names)

    def find(self, name: str, where: str) -> str | None:
        """Return the relative path that a name refers to, or None. A name that leads out of the folder is an error."""
        requested = _normalise(name)
        tidy = PurePosixPath(requested.replace("\\", "/")).as_posix()
        for spelling in (requested, tidy, tidy.removeprefix(f"{self.root.name}/")):
            paths = self.names.get(spelling, ())
            if len(paths) > 1:
                raise CrossmatchError(f"{where}: {name!r} can be {paths[0]} or {paths[1]} in {self.root}. Write the path.")
            if paths:
                return paths[0]
        require_inside(name, where, self.root)
        return None

    def missing_image_error(self, name: str, where: str, count: int) -> CrossmatchError:
        """Build the error for a name without a file; `count` is the number of such names."""
        close = get_close_matches(_normalise(name), self.names, n=1, cutoff=0.8)
        total = f" ({count:,} images are missing)" if count > 1 else ""
        similar = f" (the most similar name is {self.names[close[0]][0]!r})" if close else ""
        return CrossmatchError(
            f"{where}: there is no image {name!r} in {self.root}{total}. Put it there, or correct the name{similar}."
        )


def is_image(path: str) -> bool:
    """Check whether the suffix of a file name is that of an image, ignoring case."""
    return splitext(path)[1].lower() in IMAGE_SUFFIXES


def is_visible(name: str) -> bool:
    """Check that a file is neither hidden nor created by an operating system.

    >>> [is_visible(name) for name in ("cat.jpg", ".DS_Store", "._cat.jpg", "Thumbs.db")]
    [True, False, False, False]
    """
    return not name.startswith(".") and name.lower() not in SYSTEM_FILES


def require_inside(name: str, where: str, root: Path) -> None:
    """Raise an error if a name leads out of the folder: `..`, an absolute path, a drive.

    >>> require_inside("../secret.jpg", "captions.csv line 2", Path("pets/images"))
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: captions.csv line 2: '../secret.jpg' leads out of pets/images. Name a file in it.
    """
    windows = PureWindowsPath(name)
    if ".." in windows.parts or windows.root or windows.drive:
        raise CrossmatchError(f"{where}: {name!r} leads out of {root}. Name a file in it.")


def walk_files(root: Path) -> Iterator[str]:
    """Yield the relative path of every visible file below a folder. Links to folders are followed, cycles are not."""
    visited = set()
    for folder, folders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        folders[:] = [] if real in visited else sorted(filter(is_visible, folders))
        if real in visited:
            continue
        visited.add(real)
        inside = "" if folder == str(root) else f"{Path(folder).relative_to(root).as_posix()}/"
        yield from (inside + name for name in sorted(filter(is_visible, files)) if os.path.isfile(os.path.join(folder, name)))


def _normalise(name: str) -> str:
    """Normalise the Unicode encoding of accents, which differs between file systems and spreadsheets."""
    return unicodedata.normalize("NFC", name)
