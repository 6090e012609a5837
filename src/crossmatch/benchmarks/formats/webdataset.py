"""Reads webdataset tars: samples whose files share a key, such as `000.jpg` with `000.txt` or `000.json`."""

from __future__ import annotations

import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from crossmatch.benchmarks.formats.caption_columns import parse_captions
from crossmatch.benchmarks.formats.coco_json import parse_json
from crossmatch.benchmarks.formats.csv_tables import decode_text
from crossmatch.benchmarks.formats.image_caption_records import CaptionRecord, FileSlice, FolderContents
from crossmatch.benchmarks.formats.image_folder import IMAGE_SUFFIXES, is_visible
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.file_contents import split_lines


@dataclass(frozen=True)
class TarSample:
    """The files of one sample by their suffix, without the dot."""

    key: str
    tar: Path
    files: Mapping[str, FileSlice]

    @property
    def image(self) -> FileSlice | None:
        image_kinds = [name for name in self.files if f".{name}" in IMAGE_SUFFIXES]
        if len(image_kinds) > 1:
            raise CrossmatchError(f"{self.tar}: sample {self.key!r} has two images, {' and '.join(image_kinds)}. Keep one.")
        return self.files[image_kinds[0]] if image_kinds else None

    def captions(self, image: str) -> list[CaptionRecord]:
        """Read the captions: one per line of `.txt`, or else the captions in the record or list of `.json`."""
        if "txt" in self.files:
            file = self.files["txt"]
            lines = [line.strip() for line in split_lines(decode_text(file.read(), file.where))]
            return [CaptionRecord(image, line, file.where) for line in lines if line] or [CaptionRecord(image, "", file.where)]
        if "json" in self.files:
            file = self.files["json"]
            content = parse_json(decode_text(file.read(), file.where), file.where)
            return parse_captions(content if isinstance(content, dict) else {"captions": content}, image, file.where)
        return []


def read_webdataset(paths: list[Path]) -> FolderContents:
    """Read all samples of all tars. The id of an image is its key, without folders if that is unique.

    Reads the table of contents of each tar once. Images stay in the tar, and are read by offset.
    """
    samples: dict[str, TarSample] = {}
    for path in paths:
        for sample in _read_samples(path):
            if sample.key in samples:
                raise CrossmatchError(
                    f"{path}: sample {sample.key!r} is also in {samples[sample.key].tar}. Give each sample its own key."
                )
            samples[sample.key] = sample
    name_counts = Counter(PurePosixPath(key).name for key in samples)
    images: dict[str, FileSlice] = {}
    captions: list[CaptionRecord] = []
    aliases: dict[str, str] = {}
    for key, sample in samples.items():
        name = PurePosixPath(key).name
        image = name if name_counts[name] == 1 else key
        sample_captions, image_bytes = sample.captions(image), sample.image
        if image_bytes is not None:
            images[image] = image_bytes
            captions += sample_captions
            aliases |= {key: image, image_bytes.member: image}
            if name_counts[name] == 1:
                aliases[PurePosixPath(image_bytes.member).name] = image
        elif sample_captions:
            raise CrossmatchError(
                f"{sample.tar}: sample {key!r} has a caption but no image, only {', '.join(sample.files)}. Add {key}.jpg; "
                "note that a webdataset key ends at the first dot."
            )
    if not images:
        raise CrossmatchError(
            f"{paths[0]} holds no image ({', '.join(IMAGE_SUFFIXES[:6])}, …). Write samples as KEY.jpg and KEY.txt."
        )
    return FolderContents(images, tuple(captions), aliases)


def _read_samples(path: Path) -> Iterator[TarSample]:
    """Yield the samples of one tar in the order of their first files."""
    files: dict[str, dict[str, FileSlice]] = defaultdict(dict)
    for member in _read_members(path):
        member_path = PurePosixPath(member.name)
        if not all(map(is_visible, member_path.parts)):
            continue
        stem, _, kind = member_path.name.partition(".")
        key, kind = member_path.with_name(stem).as_posix().lstrip("/"), kind.lower()
        if not member.isreg() or member.issparse():
            raise CrossmatchError(
                f"{path}: {member.name} is a link, not a file. Write the tar with --dereference --hard-dereference."
            )
        if kind in files[key]:
            raise CrossmatchError(f"{path}: {member.name} occurs twice. Give each sample its own key.")
        files[key][kind] = FileSlice(path, member.offset_data, member.size, member.name)
    for key, sample_files in files.items():
        yield TarSample(key, path, sample_files)


def _read_members(path: Path) -> list[tarfile.TarInfo]:
    """Return the members of a tar, without folders. `tarfile` treats a damaged header as the end, so check the end."""
    try:
        with tarfile.open(path, "r:") as tar:
            members = [member for member in tar if not member.isdir()]
            end = tar.offset
    except (tarfile.TarError, OSError, ValueError, EOFError) as error:
        raise CrossmatchError(f"{path} cannot be read as a tar ({error}). Create it again, without compression.") from None
    if any(FileSlice(path, end, tarfile.BLOCKSIZE).read()):
        raise CrossmatchError(f"{path} is damaged at byte {end:,}, after {len(members):,} files. Create it again.")
    if members and members[-1].offset_data + members[-1].size > path.stat().st_size:
        raise CrossmatchError(f"{path} ends in the middle of {members[-1].name}. Create it again.")
    return members
