"""Webdataset tars: samples whose files share a key, `000.jpg` with `000.txt` or `000.json`."""

from __future__ import annotations

import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from crossmatch.benchmarks.formats.coco import json_of
from crossmatch.benchmarks.formats.gathered import Caption, Gathered, Span
from crossmatch.benchmarks.formats.images import SUFFIXES, visible
from crossmatch.benchmarks.formats.rows import captions_in
from crossmatch.benchmarks.formats.table import text_of
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.lines import lines_of


@dataclass(frozen=True)
class Sample:
    """The files of one sample by what follows the key's dot."""

    key: str
    tar: Path
    files: Mapping[str, Span]

    @property
    def image(self) -> Span | None:
        found = [name for name in self.files if f".{name}" in SUFFIXES]
        if len(found) > 1:
            raise CrossmatchError(f"{self.tar}: sample {self.key!r} has two images, {' and '.join(found)}. Keep one.")
        return self.files[found[0]] if found else None

    def captions(self, image: str) -> list[Caption]:
        """`.txt` holds one caption per line; without it, `.json` holds a record with captions, or a list of them."""
        if "txt" in self.files:
            file = self.files["txt"]
            lines = [line.strip() for line in lines_of(text_of(file.read(), file.where))]
            return [Caption(image, line, file.where) for line in lines if line] or [Caption(image, "", file.where)]
        if "json" in self.files:
            file = self.files["json"]
            held = json_of(text_of(file.read(), file.where), file.where)
            return captions_in(held if isinstance(held, dict) else {"captions": held}, image, file.where)
        return []


def read_tars(paths: list[Path]) -> Gathered:
    """All samples of all tars. An image's id is its key, without folders where that is unique.

    The tars are read through once for their tables of contents; images stay where they are, and are read by offset.
    """
    samples: dict[str, Sample] = {}
    for path in paths:
        for sample in _samples(path):
            if sample.key in samples:
                raise CrossmatchError(
                    f"{path}: sample {sample.key!r} is also in {samples[sample.key].tar}. Give each sample a key of its own."
                )
            samples[sample.key] = sample
    bare = Counter(PurePosixPath(key).name for key in samples)
    images: dict[str, Span] = {}
    captions: list[Caption] = []
    aliases: dict[str, str] = {}
    for key, sample in samples.items():
        name = PurePosixPath(key).name
        image = name if bare[name] == 1 else key
        said, picture = sample.captions(image), sample.image
        if picture is not None:
            images[image] = picture
            captions += said
            aliases |= {key: image, picture.member: image}
            if bare[name] == 1:
                aliases[PurePosixPath(picture.member).name] = image
        elif said:
            raise CrossmatchError(
                f"{sample.tar}: sample {key!r} has a caption but no image, only {', '.join(sample.files)}. Add {key}.jpg; "
                "note that webdataset ends a key at the first dot."
            )
    if not images:
        raise CrossmatchError(f"{paths[0]} holds no image ({', '.join(SUFFIXES[:6])}, …). Write samples as KEY.jpg and KEY.txt.")
    return Gathered(images, tuple(captions), aliases)


def _samples(path: Path) -> Iterator[Sample]:
    """The samples of one tar in the order of their first files."""
    files: dict[str, dict[str, Span]] = defaultdict(dict)
    for member in _members(path):
        at = PurePosixPath(member.name)
        if not all(map(visible, at.parts)):
            continue
        stem, _, kind = at.name.partition(".")
        key, kind = at.with_name(stem).as_posix().lstrip("/"), kind.lower()
        if not member.isreg() or member.issparse():
            raise CrossmatchError(
                f"{path}: {member.name} is a link, not a file. Write the tar with --dereference --hard-dereference."
            )
        if kind in files[key]:
            raise CrossmatchError(f"{path}: {member.name} stands there twice. Give each sample a key of its own.")
        files[key][kind] = Span(path, member.offset_data, member.size, member.name)
    for key, held in files.items():
        yield Sample(key, path, held)


def _members(path: Path) -> list[tarfile.TarInfo]:
    """The table of contents without folders. `tarfile` takes a damaged header for the end, so what ends the tar is checked."""
    try:
        with tarfile.open(path, "r:") as tar:
            members = [member for member in tar if not member.isdir()]
            end = tar.offset
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        raise CrossmatchError(f"{path} cannot be read as a tar ({error}). Write it again, without compression.") from None
    if any(Span(path, end, tarfile.BLOCKSIZE).read()):
        raise CrossmatchError(f"{path} is damaged at byte {end:,}, behind {len(members):,} files. Write it again.")
    if members and members[-1].offset_data + members[-1].size > path.stat().st_size:
        raise CrossmatchError(f"{path} ends inside of {members[-1].name}. Write it again.")
    return members
