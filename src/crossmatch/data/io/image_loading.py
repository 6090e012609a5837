"""Open images with errors that name the image, and hash their pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UnusableItemError

if TYPE_CHECKING:
    from PIL.Image import Image


class UnreadableImageError(UnusableItemError):
    """An image cannot be opened or decoded. `image` is its id."""

    def __init__(self, image: str, reason: str) -> None:
        self.image = image
        super().__init__(reason if image in reason else f"image {image!r}: {reason}")


def load_image(open_image: Callable[[str], Image], image_id: str) -> Image:
    """Open and decode an image. Decoding at once shows whether a lazily read file is damaged.

    >>> def missing(image_id):
    ...     raise FileNotFoundError(2, "No such file or directory")
    >>> load_image(missing, "cat.jpg")
    Traceback (most recent call last):
    ...
    crossmatch.data.io.image_loading.UnreadableImageError: image 'cat.jpg' cannot be opened (FileNotFoundError: ...). ...
    """
    try:
        image = open_image(image_id)
        load = getattr(image, "load", None)
        if callable(load):
            with ExitStack() as on_failure:
                on_failure.callback(getattr(image, "close", lambda: None))
                load()
                on_failure.pop_all()
    except MissingDependencyError:
        raise
    except CrossmatchError as error:
        raise UnreadableImageError(image_id, str(error)) from error
    except Exception as error:  # a user's function or a decoder may raise anything
        message = (str(error).splitlines() or [""])[0]
        raise UnreadableImageError(
            image_id, f"image {image_id!r} cannot be opened ({type(error).__name__}: {message:.120}). Replace the file."
        ) from error
    return image


def hash_image(image: Any) -> bytes | None:
    """Hash the pixels of an image and the regions it carries; None if it has no pixels.

    Anything that NumPy converts to an array is accepted.

    >>> hash_image(np.zeros((2, 2))) == hash_image(np.zeros((2, 2))), hash_image(object())
    (True, None)
    """
    pixels = np.asarray(image)
    if pixels.dtype == object:
        return None
    palette = getattr(image, "getpalette", lambda: None)()
    header = f"{pixels.dtype.str} {pixels.shape} {getattr(image, 'mode', '')} {palette}"
    if "regions" in getattr(image, "info", {}):  # a grounding model reads them
        header += f" {image.info['regions']}"
    return hashlib.sha256(header.encode() + np.ascontiguousarray(pixels).tobytes()).digest()
