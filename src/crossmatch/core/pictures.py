"""Pictures as an evaluation opens them: what goes wrong has the picture's name, and equal pictures are known to be equal."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.skipped import Unusable

if TYPE_CHECKING:
    from PIL.Image import Image


class BadPicture(Unusable):
    """A picture that cannot be opened: `image` is its id."""

    def __init__(self, image: str, why: str) -> None:
        self.image = image
        super().__init__(why if image in why else f"image {image!r}: {why}")


def opened(open_image: Callable[[str], Image], image: str) -> Image:
    """The picture of this id, decoded: one that is read lazily shows only then that it is damaged.

    >>> def missing(image):
    ...     raise FileNotFoundError(2, "No such file or directory")
    >>> opened(missing, "cat.jpg")
    Traceback (most recent call last):
    ...
    crossmatch.core.pictures.BadPicture: image 'cat.jpg' cannot be opened (FileNotFoundError: ...). Mend it, or leave out ...
    """
    try:
        picture = open_image(image)
        load = getattr(picture, "load", None)
        if callable(load):
            with ExitStack() as failed:
                failed.callback(getattr(picture, "close", lambda: None))
                load()
                failed.pop_all()
    except MissingDependency:
        raise
    except CrossmatchError as error:
        raise BadPicture(image, str(error)) from error
    except Exception as error:  # whatever a user's function or a decoder does
        said = (str(error).splitlines() or [""])[0]
        raise BadPicture(image, f"image {image!r} cannot be opened ({type(error).__name__}: {said:.120}). Mend it.") from error
    return picture


def fingerprint(picture: Any) -> bytes | None:
    """A hash of the pixels and of the regions that a picture carries; nothing where they cannot be read.

    Anything that NumPy makes an array of will do in the place of a picture.

    >>> fingerprint(np.zeros((2, 2))) == fingerprint(np.zeros((2, 2))), fingerprint(object())
    (True, None)
    """
    pixels = np.asarray(picture)
    if pixels.dtype == object:
        return None
    palette = getattr(picture, "getpalette", lambda: None)()
    facts = f"{pixels.dtype.str} {pixels.shape} {getattr(picture, 'mode', '')} {palette}"
    if "regions" in getattr(picture, "info", {}):  # what a grounding model looks at
        facts += f" {picture.info['regions']}"
    return hashlib.sha256(facts.encode() + np.ascontiguousarray(pixels).tobytes()).digest()
