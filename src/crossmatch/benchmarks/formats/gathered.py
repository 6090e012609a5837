"""What a reader of a folder finds, and the one way it becomes a collection."""

from __future__ import annotations

import hashlib
import io
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.skipped import Skipped, Unusable

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 80_000_000  # of one picture: decoded it fills 240 MB, however small its file is
ORIENTATION = 0x0112  # the EXIF tag
MAY_MOVE = (b"GIF8", b"RIFF", b"\x89PNG", b"II*\0", b"MM\0*", b"\0\0\0")  # how files begin that can hold several frames


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

    def begins(self, marks: tuple[bytes, ...]) -> bool:
        """Whether the first bytes are one of these."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read(8).startswith(marks)


@dataclass(frozen=True)
class Gathered:
    """Images by id, captions in the order they came in, and other names that an image goes by (such as its file's)."""

    images: Mapping[str, Stored]
    captions: tuple[Caption, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pictures:
    """Opens an image by its id. Several threads may ask it at once."""

    stored: Mapping[str, Stored]
    decode: Callable[[bytes, str], Image]
    concurrent = True

    def absent(self, images: Iterable[str]) -> list[str]:
        """Those of the images whose file is not there: better known before hours of work than in the midst of them."""
        spans = {name: span for name in images if isinstance(span := self.stored.get(name), Span)}
        folders = {span.path.parent for span in spans.values()}
        there = {folder / entry.name for folder in folders if folder.is_dir() for entry in os.scandir(folder)}
        return [name for name, span in spans.items() if span.path not in there]

    def animated(self, images: Iterable[str]) -> list[str]:
        """Those of the images that are files with several frames, of which the first is taken. Damaged ones are passed over."""
        found = []
        for name in images:
            span = self.stored.get(name)
            with suppress(Exception):  # a decoder may fail in any way, and will say so when the picture is opened
                if isinstance(span, Span) and span.begins(MAY_MOVE) and several_frames(span.read()):
                    found.append(name)
        return found

    def content(self, image: str) -> bytes:
        """The sha256 of the encoded picture: what it is known by, wherever it lies and whatever it is called."""
        return hashlib.sha256(self.read(image)).digest()

    def __call__(self, image: str) -> Image:
        return self.decode(self.read(image), self.stored[image].where)

    def read(self, image: str) -> bytes:
        """The encoded picture, as it is stored."""
        if image not in self.stored:
            raise CrossmatchError(f"there is no image {image!r} in the collection. Name one of its {len(self.stored):,} ids.")
        stored = self.stored[image]
        try:
            return stored.read()
        except OSError as error:
            raise CrossmatchError(f"{stored.where} cannot be read ({error.strerror or error}). Put it back.") from None


def decoded(held: bytes, where: str) -> Image:
    """An image as RGB, turned as its EXIF orientation says; of an animation the first frame.

    What counts is the content, not the ending of the name. Transparency is dropped, CMYK and palettes become RGB. 16-bit greys keep
    their upper eight bits, and greys in floating point are from 0 to 1 (Pillow alone would make them white, or black). A picture is
    turned upright because people saw it so when they described it; the pictures of the public benchmarks are stored upright.

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
        if not held:
            raise ValueError("it has no bytes at all")
        with Image.open(io.BytesIO(held)) as image:
            if image.width * image.height > MOST_PIXELS:
                raise ValueError(f"it has {image.width:,} x {image.height:,} pixels, and at most {MOST_PIXELS:,} are decoded")
            image.load()
            turned = image.getexif().get(ORIENTATION, 1) != 1
            upright = ImageOps.exif_transpose(image) if turned else image  # which copies, even where there is nothing to turn
            if upright.mode[0] in "IF":
                return Image.fromarray(_bytes_of(np.asarray(upright), image.format == "PNG")).convert("RGB")
            if "transparency" in upright.info:  # by way of RGBA, because a palette with transparent entries would warn
                return upright.convert("RGBA").convert("RGB")
            return upright if upright.mode == "RGB" else upright.convert("RGB")
    except Exception as error:  # a damaged image can fail anywhere inside of its decoder
        huge = isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning)
        told = str(error) if not huge else f"it has more than the {MOST_PIXELS:,} pixels that are decoded"
        said = told.splitlines()[0] if told and "BytesIO" not in told else type(error).__name__
        mend = "Scale it down" if huge or "at most" in said else "Replace it, or remove it and its captions"
        raise CrossmatchError(f"{where} cannot be opened as an image ({said}). {mend}.") from None


def _bytes_of(greys: NDArray[Any], png: bool) -> NDArray[np.uint8]:
    """Greys of more than eight bits in eight: the upper ones of sixteen; of fractions, so many 255ths."""
    low, high = (float(greys.min()), float(greys.max())) if greys.size else (0.0, 0.0)
    if greys.dtype.kind == "f":
        if not (low >= 0 and high <= 1):  # NaN is refused as well
            raise ValueError(f"its greys in floating point are from {low:g} to {high:g}, and from 0 to 1 was expected")
        return (greys * 255).round().astype(np.uint8)
    if not (low >= 0 and high < 1 << 16):
        raise ValueError(f"its greys are from {low:g} to {high:g}, and from 0 to 65,535 was expected")
    deep = png or greys.dtype.itemsize == 2 or high > 255  # 32-bit greys of other files may be bytes in wide clothes
    return (greys >> 8 if deep else greys).astype(np.uint8)


def several_frames(held: bytes) -> bool:
    """Whether a file holds an animation, or several pages."""
    from PIL import Image

    with Image.open(io.BytesIO(held)) as image:
        return bool(getattr(image, "is_animated", False))


def usable(found: Gathered) -> tuple[Gathered, tuple[Skipped, ...]]:
    """What was found without its empty captions, and these; the other captions keep the ids that they would have beside them.

    >>> rows = (Caption("a", "", "line 2"), Caption("a", "A cat.", "line 3"))
    >>> kept, left = usable(Gathered({"a": Span(Path("a.jpg"))}, rows))
    >>> kept.captions[0].id, left
    ('a#1', (Skipped(kind='caption', id='a#0', why='line 2: the caption is empty'),))
    """
    named = _named(found.captions)
    left = tuple(Skipped("caption", str(one.id), f"{one.where}: the caption is empty") for one in named if not one.text)
    return replace(found, captions=tuple(one for one in named if one.text)), left


def _named(captions: Iterable[Caption]) -> list[Caption]:
    """The captions, each with an id: its own, or the image's with its number."""
    numbers: Counter[str] = Counter()
    out = []
    for one in captions:
        out.append(one if one.id is not None else replace(one, id=f"{one.image}#{numbers[one.image]}"))
        numbers[one.image] += 1
    return out


def as_collection(found: Gathered) -> Collection:
    """Images, captions and links. A caption without an id of its own becomes `image#0`, `image#1`, …; one id in several places
    is one caption of several images, and then its text must be the same everywhere. An empty caption is an error.

    >>> rows = (Caption("a", "A cat.", "line 2"), Caption("b", "Pets.", "line 3", id="p"), Caption("a", "Pets.", "line 4", id="p"))
    >>> made = as_collection(Gathered({"a": Span(Path("a.jpg")), "b": Span(Path("b.jpg"))}, rows))
    >>> made.caption_ids.tolist(), made.links.tolist()
    (['a#0', 'p'], [[0, 0], [1, 1], [0, 1]])
    """
    place = {image: n for n, image in enumerate(found.images)}
    columns: dict[str, int] = {}
    first: list[Caption] = []
    links: dict[tuple[int, int], str] = {}
    for image, stored in found.images.items():
        _require_unicode(image, stored.where)
    for caption in _named(found.captions):
        _require_unicode(f"{caption.text}{caption.id}", caption.where)
        if not caption.text:
            raise Unusable(
                f"{caption.where}: the caption of image {caption.image!r} is empty. Write one, or remove it (an image without "
                "captions is a distractor)."
            )
        name = str(caption.id)
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
