"""Pictures of a campaign: each opened, turned upright, made small enough for a page, and encoded anew.

Nothing of the original file is handed on, neither its bytes nor what it says about itself (place, camera, comments). A picture is
named by the hash of its own bytes, so that equal pictures are stored once, and a picture that somebody is shown can be told from
all others by what is shown.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.pictures import BadPicture, opened
from crossmatch.core.places import cores
from crossmatch.core.progress import track
from crossmatch.core.whole import whole_file

if TYPE_CHECKING:
    from PIL.Image import Image

LONGEST_SIDE = 1200  # pixels
QUALITY = 92
SUFFIX = ".jpg"
THREADS = 4  # at most: decoding and encoding run beside each other, and a large picture fills a lot of memory


def store_pictures(folder: Path, images: Iterable[str], open_image: Callable[[str], Image]) -> dict[str, str]:
    """Put the pictures of these ids into a folder; the file of each.

    One that cannot be opened is an error that names it, and how many others cannot. What was written before stays, harmless: it
    has the name that it will have the next time.
    """
    wanted = list(dict.fromkeys(images))
    if not wanted:
        return {}
    threads = min(THREADS, cores(), len(wanted)) if getattr(open_image, "concurrent", False) else 1
    with ThreadPoolExecutor(threads) as pool:
        begun: list[tuple[str, Future[str]]] = [(name, pool.submit(store_picture, folder, name, open_image)) for name in wanted]
        found: dict[str, str] = {}
        bad: list[BadPicture] = []
        for name, work in track(begun, "storing pictures"):
            try:
                found[name] = work.result()
            except BadPicture as error:
                bad.append(error)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    if bad:
        more = f" ({len(bad):,} of {len(wanted):,} pictures cannot be shown)" if len(bad) > 1 else ""
        raise CrossmatchError(f"{bad[0].why}{more}")
    return found


def store_picture(folder: Path, image: str, open_image: Callable[[str], Image]) -> str:
    """Put one picture into a folder; its file there."""
    held = encoded(opened(open_image, image), image)
    name = hashlib.sha256(held).hexdigest() + SUFFIX
    if not is_whole(folder / name):
        try:
            with whole_file(folder / name, durable=True) as file:  # a study that is on the disk has its pictures there
                file.write(held)
        except OSError as error:
            raise CrossmatchError(f"{folder / name} cannot be written ({error.strerror or error}). Make room for it.") from None
    return name


def is_whole(path: Path) -> bool:
    """Whether a picture is there, and has the bytes that it is named by."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() + SUFFIX == path.name
    except OSError:
        return False


def encoded(picture: Image, image: str) -> bytes:
    """A picture as a JPEG without chroma subsampling and without metadata, its longest side at most `LONGEST_SIDE`.

    The same picture gives the same bytes with the same version of Pillow.
    """
    try:
        from PIL.Image import Resampling
    except ImportError:
        raise MissingDependency("Pillow", "pictures") from None
    try:
        plain = as_rgb(picture)
        if max(plain.size) > LONGEST_SIDE:
            plain.thumbnail((LONGEST_SIDE, LONGEST_SIDE), Resampling.LANCZOS)
        plain.info.clear()  # or a comment of the original would be written into the new file
        with io.BytesIO() as file:
            plain.save(file, "JPEG", quality=QUALITY, subsampling=0)
            return file.getvalue()
    except CrossmatchError:
        raise
    except Exception as error:  # whatever an encoder does
        raise BadPicture(image, f"image {image!r} cannot be encoded anew ({type(error).__name__}: {error}). Mend it.") from error


def as_rgb(picture: Image) -> Image:
    """An upright copy in RGB. Files that we open ourselves are so already (benchmarks.formats.gathered.decoded)."""
    from PIL import ImageOps

    if picture.mode[0] in "IF":
        raise ValueError(f"its mode is {picture.mode}, and eight bits for each colour were expected")
    upright = ImageOps.exif_transpose(picture)
    if "transparency" in upright.info:
        upright = upright.convert("RGBA")
    return upright.convert("RGB") if upright.mode != "RGB" else upright
