"""Images and captions read from a folder in any format, and their conversion to a collection."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from crossmatch.benchmarks.formats.image_decoding import MULTI_FRAME_PREFIXES, decode_image, has_several_frames
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, SkippedItem, UnusableItemError

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class CaptionRecord:
    """A caption in a file: its image, its id (None if it has none), and its place in the file, for messages."""

    image: str
    text: str
    where: str
    id: str | None = None


class EncodedImage(Protocol):
    """Encoded bytes of an image in some storage; `where` names the place in messages."""

    @property
    def where(self) -> str: ...

    def read(self) -> bytes: ...


@dataclass(frozen=True)
class FileSlice:
    """A slice of a file, or all of it. Every read opens the file again, so threads share nothing."""

    path: Path
    offset: int = 0
    size: int = -1
    member: str = ""  # name of the slice in an archive

    @property
    def where(self) -> str:
        return f"{self.path}: {self.member}" if self.member else str(self.path)

    def read(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)

    def starts_with(self, marks: tuple[bytes, ...]) -> bool:
        """Check whether the slice starts with one of these prefixes."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(8).startswith(marks)


@dataclass(frozen=True)
class FolderContents:
    """Images by id, captions in file order, and other names of images, such as their file names."""

    images: Mapping[str, EncodedImage]
    captions: tuple[CaptionRecord, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ImageOpener:
    """Opens images by id. Several threads can use it at once."""

    encoded: Mapping[str, EncodedImage]
    decode: Callable[[bytes, str], Image]
    concurrent = True

    def absent(self, images: Iterable[str]) -> list[str]:
        """Return the images whose file is missing, so that an evaluation can fail before hours of work."""
        spans = {name: span for name in images if isinstance(span := self.encoded.get(name), FileSlice)}
        folders = {span.path.parent for span in spans.values()}
        existing = {folder / entry.name for folder in folders if folder.is_dir() for entry in os.scandir(folder)}
        return [name for name, span in spans.items() if span.path not in existing]

    def animated(self, images: Iterable[str]) -> list[str]:
        """Return the images with several frames, of which the first is used. Damaged images are ignored here."""
        animated_images = []
        for name in images:
            span = self.encoded.get(name)
            with suppress(Exception):  # a decoder may fail in any way; opening the image will report it
                if isinstance(span, FileSlice) and span.starts_with(MULTI_FRAME_PREFIXES) and has_several_frames(span.read()):
                    animated_images.append(name)
        return animated_images

    def content(self, image: str) -> bytes:
        """Return the sha256 of the encoded image, which identifies it regardless of name and place."""
        return hashlib.sha256(self.read(image)).digest()

    def __call__(self, image: str) -> Image:
        return self.decode(self.read(image), self.encoded[image].where)

    def read(self, image: str) -> bytes:
        """Return the encoded image."""
        if image not in self.encoded:
            raise CrossmatchError(f"there is no image {image!r} in the collection. Use one of its {len(self.encoded):,} ids.")
        image_bytes = self.encoded[image]
        try:
            return image_bytes.read()
        except OSError as error:
            raise CrossmatchError(f"{image_bytes.where} cannot be read ({error.strerror or error}). Restore the file.") from None


def drop_empty_captions(contents: FolderContents) -> tuple[FolderContents, tuple[SkippedItem, ...]]:
    """Remove empty captions, and return them as skipped items. The other captions keep the ids they would have with them.

    >>> rows = (CaptionRecord("a", "", "line 2"), CaptionRecord("a", "A cat.", "line 3"))
    >>> remaining, skipped = drop_empty_captions(FolderContents({"a": FileSlice(Path("a.jpg"))}, rows))
    >>> remaining.captions[0].id, skipped
    ('a#1', (SkippedItem(kind='caption', id='a#0', reason='line 2: the caption is empty'),))
    """
    captions = _number_captions(contents.captions)
    skipped = tuple(
        SkippedItem("caption", str(caption.id), f"{caption.where}: the caption is empty")
        for caption in captions
        if not caption.text
    )
    return replace(contents, captions=tuple(caption for caption in captions if caption.text)), skipped


def _number_captions(captions: Iterable[CaptionRecord]) -> list[CaptionRecord]:
    """Give every caption without an id the id `image#n`."""
    numbers: Counter[str] = Counter()
    numbered = []
    for caption in captions:
        numbered.append(caption if caption.id is not None else replace(caption, id=f"{caption.image}#{numbers[caption.image]}"))
        numbers[caption.image] += 1
    return numbered


def build_collection(contents: FolderContents) -> Collection:
    """Build a collection of images, captions and links. An empty caption is an error.

    Captions without an id get the ids `image#0`, `image#1`, …. One id with several images is one caption of several images, and
    its text must be equal everywhere.

    >>> images = {"a": FileSlice(Path("a.jpg")), "b": FileSlice(Path("b.jpg"))}
    >>> rows = [("a", "A cat.", "line 2"), ("b", "Pets.", "line 3", "p"), ("a", "Pets.", "line 4", "p")]
    >>> collection = build_collection(FolderContents(images, tuple(CaptionRecord(*row) for row in rows)))
    >>> collection.caption_ids.tolist(), collection.links.tolist()
    (['a#0', 'p'], [[0, 0], [1, 1], [0, 1]])
    """
    image_row = {image: n for n, image in enumerate(contents.images)}
    columns: dict[str, int] = {}
    captions: list[CaptionRecord] = []
    links: dict[tuple[int, int], str] = {}
    for image, stored in contents.images.items():
        _require_unicode(image, stored.where)
    for caption in _number_captions(contents.captions):
        _require_unicode(f"{caption.text}{caption.id}", caption.where)
        if not caption.text:
            raise UnusableItemError(
                f"{caption.where}: the caption of image {caption.image!r} is empty. Fill it in, or remove it (an image without "
                "captions is a distractor)."
            )
        name = str(caption.id)
        column = columns.setdefault(name, len(columns))
        if column == len(captions):
            captions.append(caption)
        elif captions[column].text != caption.text:
            raise CrossmatchError(
                f"{caption.where}: caption id {name!r} is the text {caption.text!r:.60}, but {captions[column].where} gave it "
                f"{captions[column].text!r:.60}. Give each text its own id."
            )
        pair = (image_row[caption.image], column)
        if pair in links:
            raise CrossmatchError(
                f"{caption.where}: caption {name!r} is already linked to image {caption.image!r} in {links[pair]}. Remove one."
            )
        links[pair] = caption.where
    return Collection(
        np.asarray(list(contents.images), dtype=np.str_),
        np.asarray(list(columns), dtype=np.str_),
        tuple(caption.text for caption in captions),
        np.asarray(list(links), dtype=np.int64).reshape(-1, 2),
        ImageOpener(contents.images, decode_image),
    )


def _require_unicode(text: str, where: str) -> None:
    """Raise an error for lone surrogates, which file names and json escapes can contain but UTF-8 cannot."""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise CrossmatchError(f"{where!a}: {text!a:.60} has a character that is not valid Unicode. Use UTF-8.")
