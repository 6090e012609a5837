"""Stores the images of a campaign: upright, small enough for a page, and re-encoded without metadata.

Annotators get neither the bytes nor the metadata (location, camera, comments) of the original file. A stored image is named by the
hash of its bytes, so that equal images are stored once, and `study verify` can check every image.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from crossmatch.data.errors import CrossmatchError, MissingDependencyError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.image_loading import UnreadableImageError, load_image
from crossmatch.data.io.paths import available_cores
from crossmatch.data.io.progress import track

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_SIDE = 1200  # pixels
QUALITY = 92
SUFFIX = ".jpg"
MAX_THREADS = 4  # because large images need a lot of memory


def store_pictures(folder: Path, images: Iterable[str], open_image: Callable[[str], Image]) -> dict[str, str]:
    """Store these images in a folder.

    Returns:
        The file name of each image.

    Raises:
        CrossmatchError: An image cannot be opened. Images that were stored before stay; the next attempt reuses them.
    """
    names = list(dict.fromkeys(images))
    if not names:
        return {}
    threads = min(MAX_THREADS, available_cores(), len(names)) if getattr(open_image, "concurrent", False) else 1
    with ThreadPoolExecutor(threads) as pool:
        jobs: list[tuple[str, Future[str]]] = [(name, pool.submit(store_picture, folder, name, open_image)) for name in names]
        stored_files: dict[str, str] = {}
        bad: list[UnreadableImageError] = []
        for name, work in track(jobs, "storing images"):
            try:
                stored_files[name] = work.result()
            except UnreadableImageError as error:
                bad.append(error)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    if bad:
        more = f" ({len(bad):,} of {len(names):,} images are unusable)" if len(bad) > 1 else ""
        raise CrossmatchError(f"{bad[0].reason}{more}")
    return stored_files


def store_picture(folder: Path, image: str, open_image: Callable[[str], Image]) -> str:
    """Store one image in a folder; returns its file name."""
    jpeg = encode_jpeg(load_image(open_image, image), image)
    name = hashlib.sha256(jpeg).hexdigest() + SUFFIX
    if not is_intact(folder / name):
        try:
            with atomic_write(folder / name, durable=True) as file:  # before the study is written
                file.write(jpeg)
        except OSError as error:
            raise CrossmatchError(f"Cannot write {folder / name} ({error.strerror or error}). Free some disk space.") from None
    return name


def is_intact(path: Path) -> bool:
    """Whether a stored image exists and has the hash in its name."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() + SUFFIX == path.name
    except OSError:
        return False


def encode_jpeg(picture: Image, image: str) -> bytes:
    """Encode an image as JPEG without chroma subsampling and metadata, its longest side at most `MAX_SIDE`.

    The same image gives the same bytes with the same version of Pillow.
    """
    try:
        from PIL.Image import Resampling
    except ImportError:
        raise MissingDependencyError("Pillow", "pictures") from None
    try:
        rgb = as_rgb(picture)
        if max(rgb.size) > MAX_SIDE:
            rgb.thumbnail((MAX_SIDE, MAX_SIDE), Resampling.LANCZOS)
        rgb.info.clear()  # otherwise Pillow writes the comment of the original
        with io.BytesIO() as file:
            rgb.save(file, "JPEG", quality=QUALITY, subsampling=0)
            return file.getvalue()
    except CrossmatchError:
        raise
    except Exception as error:  # encoders raise many types
        reason = f"image {image!r} cannot be encoded ({type(error).__name__}: {error}). Replace it."
        raise UnreadableImageError(image, reason) from error


def as_rgb(picture: Image) -> Image:
    """An upright copy in RGB."""
    from PIL import ImageOps

    if picture.mode[0] in "IF":
        raise ValueError(f"its mode is {picture.mode}; expected eight bits for each colour")
    upright = ImageOps.exif_transpose(picture)
    if "transparency" in upright.info:
        upright = upright.convert("RGBA")
    return upright.convert("RGB") if upright.mode != "RGB" else upright
