"""Decodes image files as people see them: orientation, 16-bit greys, transparency, several frames."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.data.errors import CrossmatchError, MissingDependencyError

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_PIXELS = 80_000_000  # a decoded image of this size takes 240 MB, however small its file is
EXIF_ORIENTATION = 0x0112  # the EXIF tag
MULTI_FRAME_PREFIXES = (b"GIF8", b"RIFF", b"\x89PNG", b"II*\0", b"MM\0*", b"\0\0\0")  # first bytes of formats with several frames


def decode_image(encoded: bytes, where: str) -> Image:
    """Decode an image as RGB, rotated according to its EXIF orientation; of an animation, the first frame.

    The format is detected from the content. Transparency is dropped, CMYK and palettes become RGB. 16-bit grey values keep their
    upper eight bits, and floating-point grey values must be from 0 to 1 (Pillow alone would make them white or black). Images are
    rotated because people saw them upright when they wrote the captions; the images of public benchmarks are stored upright.

    >>> decode_image(b"not an image", "images/cat.jpg")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.CrossmatchError: images/cat.jpg cannot be opened as an image (UnidentifiedImageError). Replace ...
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MissingDependencyError("Pillow", "pictures") from None
    content = io.BytesIO(memoryview(encoded))  # a TypeError for anything but bytes
    try:
        if not encoded:
            raise ValueError("the file is empty")
        with Image.open(content) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"it has {image.width:,} x {image.height:,} pixels, and at most {MAX_PIXELS:,} are decoded")
            image.load()
            is_rotated = image.getexif().get(EXIF_ORIENTATION, 1) != 1
            upright = ImageOps.exif_transpose(image) if is_rotated else image  # exif_transpose always copies
            is_png = image.format == "PNG"
            if upright.mode[0] not in "IF":
                if "transparency" in upright.info:  # via RGBA: a direct conversion of a palette with transparency warns
                    return upright.convert("RGBA").convert("RGB")
                return upright if upright.mode == "RGB" else upright.convert("RGB")
            greys = np.asarray(upright)
        _require_greys(greys)
    except Exception as error:  # only Pillow runs here, and damaged images can fail anywhere in its decoders
        huge = isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning)
        message = str(error) if not huge else f"it has more than the {MAX_PIXELS:,} pixels that are decoded"
        reason = message.splitlines()[0] if message and "BytesIO" not in message else type(error).__name__
        fix = "Scale it down" if huge or "at most" in reason else "Replace it, or remove it and its captions"
        raise CrossmatchError(f"{where} cannot be opened as an image ({reason}). {fix}.") from None
    return Image.fromarray(_to_eight_bits(greys, is_png)).convert("RGB")


def _require_greys(greys: NDArray[Any]) -> None:
    low, high = (float(greys.min()), float(greys.max())) if greys.size else (0.0, 0.0)
    if greys.dtype.kind == "f" and not (low >= 0 and high <= 1):  # written so that NaN fails too
        raise ValueError(f"its floating-point grey values are from {low:g} to {high:g}; expected 0 to 1")
    if not (low >= 0 and high < 1 << 16):
        raise ValueError(f"its grey values are from {low:g} to {high:g}; expected 0 to 65,535")


def _to_eight_bits(greys: NDArray[Any], png: bool) -> NDArray[np.uint8]:
    """Convert grey values to eight bits: the upper eight of sixteen, or 255 times a fraction."""
    if greys.dtype.kind == "f":
        return (greys * 255).round().astype(np.uint8)
    deep = png or greys.dtype.itemsize == 2 or greys.max(initial=0) > 255  # 32-bit values of other formats may be bytes
    return (greys >> 8 if deep else greys).astype(np.uint8)


def has_several_frames(encoded: bytes) -> bool:
    """Check whether an image file has several frames or pages."""
    from PIL import Image

    with Image.open(io.BytesIO(encoded)) as image:
        return bool(getattr(image, "is_animated", False))
