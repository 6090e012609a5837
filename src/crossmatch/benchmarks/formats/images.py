"""A folder of image files, and what each of them may be called."""

from __future__ import annotations

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath, PureWindowsPath
from posixpath import basename, splitext

from crossmatch.core.errors import CrossmatchError

SUFFIXES = (".jpg", ".jpeg", ".jfif", ".jpe", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif", ".jp2", ".ppm", ".pgm")
CLUTTER = ("thumbs.db", "desktop.ini", "__macosx")  # what operating systems leave behind


@dataclass(frozen=True)
class ImageFolder:
    """Files below a folder by their relative path, with the id of each: its bare name where that is unique, else the path.

    `names` says what a name may mean: the path, the bare name, and the bare name without its ending.
    """

    root: Path
    files: Mapping[str, Path]
    ids: Mapping[str, str]
    names: Mapping[str, tuple[str, ...]]

    @classmethod
    def at(cls, root: Path) -> ImageFolder:
        if not root.is_dir():
            near = get_close_matches("images", [p.name for p in root.parent.iterdir() if p.is_dir()], n=1, cutoff=0.5)
            hint = f"Is it {near[0]!r}? Rename it." if near else "Put the images into it."
            raise CrossmatchError(f"there is no folder {root}. {hint}")
        files: dict[str, Path] = {}
        for name in walk(root):
            if files.setdefault(_plain(name), root / name) != root / name:
                raise CrossmatchError(f"{root} holds {name!r} twice, with its accents written in two ways. Rename one.")
        bare: dict[str, list[str]] = defaultdict(list)
        stems: dict[str, list[str]] = defaultdict(list)
        for path in files:
            name = basename(path)
            bare[name].append(path)
            if is_image(path):
                stems[splitext(name)[0]].append(path)
        if not any(map(is_image, files)):
            raise CrossmatchError(f"{root} holds no image ({', '.join(SUFFIXES[:6])}, …). Put the images into it.")
        names = {name: tuple(paths) for table in (stems, bare) for name, paths in table.items()} | {path: (path,) for path in files}
        ids = {path: name for name, paths in bare.items() for path in paths if len(paths) == 1}
        return cls(root, files, {path: ids.get(path, path) for path in files}, names)

    def find(self, name: str, where: str) -> str | None:
        """The relative path that a name in a file means, or nothing; never a path outside of the folder."""
        asked = _plain(name)
        tidy = PurePosixPath(asked.replace("\\", "/")).as_posix()
        for spelling in (asked, tidy, tidy.removeprefix(f"{self.root.name}/")):
            meant = self.names.get(spelling, ())
            if len(meant) > 1:
                raise CrossmatchError(f"{where}: {name!r} may be {meant[0]} or {meant[1]} in {self.root}. Write the path.")
            if meant:
                return meant[0]
        refuse_escape(name, where, self.root)
        return None

    def absent(self, name: str, where: str, count: int) -> CrossmatchError:
        """What to say of a name that means no file; `count` is how many there are."""
        close = get_close_matches(_plain(name), self.names, n=1, cutoff=0.8)
        more = f" ({count:,} images are missing)" if count > 1 else ""
        near = f" (the nearest is {self.names[close[0]][0]!r})" if close else ""
        return CrossmatchError(f"{where}: there is no image {name!r} in {self.root}{more}. Put it there, or mend the name{near}.")


def is_image(path: str) -> bool:
    """By the ending of its name, in upper or lower case."""
    return splitext(path)[1].lower() in SUFFIXES


def visible(name: str) -> bool:
    """Neither hidden nor left behind by an operating system.

    >>> [visible(name) for name in ("cat.jpg", ".DS_Store", "._cat.jpg", "Thumbs.db")]
    [True, False, False, False]
    """
    return not name.startswith(".") and name.lower() not in CLUTTER


def refuse_escape(name: str, where: str, root: Path) -> None:
    """A name may not lead out of the folder: no `..`, no absolute path, no drive.

    >>> refuse_escape("../secret.jpg", "captions.csv line 2", Path("pets/images"))
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: captions.csv line 2: '../secret.jpg' leads out of pets/images. Name a file in it.
    """
    windows = PureWindowsPath(name)
    if ".." in windows.parts or windows.root or windows.drive:
        raise CrossmatchError(f"{where}: {name!r} leads out of {root}. Name a file in it.")


def walk(root: Path) -> Iterator[str]:
    """The relative path of every visible file below a folder; links to folders are followed, but never in a circle."""
    seen = set()
    for here, folders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(here)
        folders[:] = [] if real in seen else sorted(filter(visible, folders))
        if real in seen:
            continue
        seen.add(real)
        inside = "" if here == str(root) else f"{Path(here).relative_to(root).as_posix()}/"
        yield from (inside + name for name in sorted(filter(visible, files)) if os.path.isfile(os.path.join(here, name)))


def _plain(name: str) -> str:
    """One spelling of accents, whichever the file system or the spreadsheet chose."""
    return unicodedata.normalize("NFC", name)
