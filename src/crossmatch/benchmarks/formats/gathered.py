"""What a reader of a folder finds, and the one way it becomes a collection."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, MissingDependency

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Caption:
    """A caption as it stands in a file: the image it is of, its id if it has one, and the place, for messages."""

    image: str
    text: str
    where: str
    id: str | None = None


class Stored(Protocol):
    """The encoded bytes of an image, wherever they are kept; `where` names the place in messages."""

    @property
    def where(self) -> str: ...

    def read(self) -> bytes: ...


@dataclass(frozen=True)
class Span:
    """Some bytes of a file, or all of it. Every reading opens the file anew, so that threads share nothing."""

    path: Path
    offset: int = 0
    size: int = -1
    member: str = ""  # what the bytes are called inside of an archive

    @property
    def where(self) -> str:
        return f"{self.path}: {self.member}" if self.member else str(self.path)

    def read(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.size)


@dataclass(frozen=True)
class Gathered:
    """Images by id, captions in the order they came in, and other names that an image goes by (such as its file's)."""

    images: Mapping[str, Stored]
    captions: tuple[Caption, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pictures:
    """Opens an image by its id."""

    stored: Mapping[str, Stored]
    decode: Callable[[bytes, str], Image]

    def absent(self, images: Iterable[str]) -> list[str]:
        """Those of the images whose file is not there: better known before hours of work than in the midst of them."""
        spans = {name: span for name in images if isinstance(span := self.stored.get(name), Span)}
        folders = {span.path.parent for span in spans.values()}
        there = {folder / entry.name for folder in folders if folder.is_dir() for entry in os.scandir(folder)}
        return [name for name, span in spans.items() if span.path not in there]

    def __call__(self, image: str) -> Image:
        if image not in self.stored:
            raise CrossmatchError(f"there is no image {image!r} in the collection. Name one of its {len(self.stored):,} ids.")
        stored = self.stored[image]
        try:
            held = stored.read()
        except OSError as error:
            raise CrossmatchError(f"{stored.where} cannot be read ({error.strerror or error}). Put it back.") from None
        return self.decode(held, stored.where)


def decoded(held: bytes, where: str) -> Image:
    """An image as RGB, turned as its EXIF orientation says; of an animation the first frame.

    Transparency is dropped, and 16-bit greys keep their upper eight bits (Pillow alone would clip them to white).

    >>> decoded(b"not an image", "images/cat.jpg")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.CrossmatchError: images/cat.jpg cannot be opened as an image (UnidentifiedImageError). Replace ...
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MissingDependency("Pillow", "pictures") from None
    try:
        with Image.open(io.BytesIO(held)) as image:
            upright = ImageOps.exif_transpose(image)
            if upright.mode.startswith("I;16"):
                return Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8)).convert("RGB")
            # by way of RGBA, because a palette with transparent entries would warn
            return (upright.convert("RGBA") if "transparency" in upright.info else upright).convert("RGB")
    except Exception as error:  # a damaged image can fail anywhere inside of its decoder
        said = str(error).splitlines()[0] if str(error) and "BytesIO" not in str(error) else type(error).__name__
        raise CrossmatchError(
            f"{where} cannot be opened as an image ({said}). Replace it, or remove it and its captions."
        ) from None


def as_collection(found: Gathered) -> Collection:
    """Images, captions and links. A caption without an id of its own becomes `image#0`, `image#1`, …; one id in several places
    is one caption of several images, and then its text must be the same everywhere.

    >>> rows = (Caption("a", "A cat.", "line 2"), Caption("b", "Pets.", "line 3", id="p"), Caption("a", "Pets.", "line 4", id="p"))
    >>> made = as_collection(Gathered({"a": Span(Path("a.jpg")), "b": Span(Path("b.jpg"))}, rows))
    >>> made.caption_ids.tolist(), made.links.tolist()
    (['a#0', 'p'], [[0, 0], [1, 1], [0, 1]])
    """
    place = {image: n for n, image in enumerate(found.images)}
    numbers: Counter[str] = Counter()
    columns: dict[str, int] = {}
    first: list[Caption] = []
    links: dict[tuple[int, int], str] = {}
    for image, stored in found.images.items():
        _require_unicode(image, stored.where)
    for caption in found.captions:
        _require_unicode(f"{caption.text}{caption.id}", caption.where)
        if not caption.text:
            raise CrossmatchError(
                f"{caption.where}: the caption of image {caption.image!r} is empty. Write one, or remove it: "
                "an image without captions is a distractor."
            )
        name = caption.id if caption.id is not None else f"{caption.image}#{numbers[caption.image]}"
        numbers[caption.image] += 1
        column = columns.setdefault(name, len(columns))
        if column == len(first):
            first.append(caption)
        elif first[column].text != caption.text:
            raise CrossmatchError(
                f"{caption.where}: caption id {name!r} is the text {caption.text!r:.60}, but {first[column].where} gave it "
                f"{first[column].text!r:.60}. Give each text an id of its own."
            )
        pair = (place[caption.image], column)
        if pair in links:
            raise CrossmatchError(
                f"{caption.where}: caption {name!r} was already given to image {caption.image!r} by {links[pair]}. Remove one."
            )
        links[pair] = caption.where
    return Collection(
        np.asarray(list(found.images), dtype=np.str_),
        np.asarray(list(columns), dtype=np.str_),
        tuple(caption.text for caption in first),
        np.asarray(list(links), dtype=np.int64).reshape(-1, 2),
        Pictures(found.images, decoded),
    )


def _require_unicode(text: str, where: str) -> None:
    """Names on disk and escapes in json can hold half of a character, which no file can be written with."""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise CrossmatchError(f"{where!a}: {text!a:.60} holds a character that is not Unicode. Write or name it as UTF-8.")
