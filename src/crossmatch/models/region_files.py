"""Region features that somebody else's detector found, in a file: the regions of each image by its id, read when asked for.

`region_layouts` has the layouts in use. Features are float32; boxes are left, top, right, bottom in fractions of the picture, and 0
where they are not known (a file may have none, or have pixels and not the size of the picture).
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossmatch.core.arrays import BoolArray, IdArray, IntArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.models.proxy import image_number

if TYPE_CHECKING:
    from crossmatch.models.zoo.inputs import Regions

WHOLE = 64 << 20  # bytes up to which a file is known by all of them, else by probes
PROBES, PROBE = 256, 1 << 14  # how many, spread evenly, and how long
SHOWN = 3  # missing ids that an error names
# How readers of npy, npz, h5 and tsv tell that a file is damaged, or is not what it seems.
DAMAGED = (OSError, ValueError, KeyError, EOFError, IndexError, TypeError, AttributeError, RuntimeError, BadZipFile, zlib.error,
           struct.error)  # fmt: skip

Item = tuple[NDArray[Any], NDArray[Any] | None]  # features (K, F), and boxes (K, 4) where there are any


@dataclass(frozen=True, eq=False)
class RegionFile:
    """The regions of images by id. `read(n)` gives those of the n-th, as they are in the file."""

    path: Path
    layout: str
    ids: IdArray
    dimensions: int
    read: Callable[[int], Item] = field(repr=False)
    parts: tuple[Path, ...] = field(repr=False, default=())  # the files that it is made of

    @classmethod
    def open(cls, path: Path) -> RegionFile:
        """The file or folder, by the first layout that it has."""
        from crossmatch.models.region_layouts import LAYOUTS

        if not path.exists():
            raise WrongWords(f"there is no file {path}. Check the path of the region features.")
        layout = next((layout for layout in LAYOUTS if layout.fits(path)), None)
        if layout is None:
            known = "; ".join(layout.about for layout in LAYOUTS)
            raise CrossmatchError(f"{path} has none of the layouts of region features: {known}. Rename or convert it.")
        try:
            found = layout.open(path)
        except CrossmatchError:
            raise
        except DAMAGED as error:
            raise CrossmatchError(
                f"{path} cannot be read as {layout.about} ({said_by(error)}). It is damaged or of another layout: extract or copy "
                "it again."
            ) from None
        ids = np.asarray(found.ids, dtype=np.str_)
        if not len(ids):
            raise CrossmatchError(f"{path} has no images in it. Extract the features again.")
        names, times = np.unique(ids, return_counts=True)
        if len(names) < len(ids):
            raise CrossmatchError(f"{path} has image {str(names[times.argmax()])!r} {times.max()} times. Keep one of them.")
        return cls(path, layout.name, ids, found.dimensions, found.read, found.parts or (path,))

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _places(self) -> tuple[dict[str, int], dict[str, int]]:
        exact = {name: n for n, name in enumerate(self.ids.tolist())}
        return exact, {image_number(name): n for name, n in exact.items()}

    def find(self, ids: ArrayLike) -> IntArray:
        """Where these images are, -1 where they are not. An exact id goes before one that means the same image of COCO."""
        exact, meant = self._places
        names = np.asarray(ids, dtype=np.str_).tolist()
        return np.asarray([exact.get(name, meant.get(image_number(name), -1)) for name in names], dtype=np.int64)

    def where(self, ids: ArrayLike) -> IntArray:
        """Where these images are, all of which must be there."""
        at = self.find(ids)
        if (at < 0).any():
            missing = np.asarray(ids, dtype=np.str_)[at < 0]
            some = ", ".join(map(repr, missing[:SHOWN].tolist())) + (", …" if len(missing) > SHOWN else "")
            raise CrossmatchError(
                f"{self.path} has the regions of {len(at) - len(missing):,} of {len(at):,} images; missing: {some} (its own ids "
                f"are like {str(self.ids[0])!r}). Extract those as well, or name the file of the right split."
            )
        return at

    def take(self, ids: ArrayLike) -> tuple[NDArray[np.float32], BoolArray, NDArray[np.float32]]:
        """Features (N, K, F), which of them are real (N, K), and boxes (N, K, 4) of these images, K being the most of one."""
        return self.at(self.where(ids))

    def at(self, places: IntArray) -> tuple[NDArray[np.float32], BoolArray, NDArray[np.float32]]:
        """The same by the places of the images in the file."""
        items = [self._item(n) for n in places.tolist()]
        most = max((len(features) for features, _ in items), default=1)
        features = np.zeros((len(items), most, self.dimensions), dtype=np.float32)
        real = np.zeros((len(items), most), dtype=bool)
        boxes = np.zeros((len(items), most, 4), dtype=np.float32)
        for n, (seen, framed) in enumerate(items):
            features[n, : len(seen)], real[n, : len(seen)] = seen, True
            if framed is not None:
                boxes[n, : len(seen)] = framed
        return features, real, boxes

    def _item(self, n: int) -> Item:
        """The regions of one image, checked; rows that are 0 throughout are filling, and left out."""
        where = f"{self.path}: image {str(self.ids[n])!r}"
        try:
            given, boxes = self.read(n)
        except CrossmatchError:
            raise
        except DAMAGED as error:
            raise CrossmatchError(
                f"{where} cannot be read ({said_by(error)}). The file is damaged: extract or copy it again."
            ) from None
        if given.dtype.kind not in "fiub":
            raise CrossmatchError(f"{where} has features of type {given.dtype}; real numbers were expected. Extract it again.")
        with np.errstate(over="ignore"):  # a number beyond single precision becomes infinite, and is refused
            features = np.asarray(given, dtype=np.float32)
        if features.ndim != 2 or features.shape[1] != self.dimensions:
            raise CrossmatchError(
                f"{where} has features of shape {features.shape}; (regions, {self.dimensions}) was expected. Extract it again."
            )
        if boxes is not None and boxes.shape != (len(features), 4):
            raise CrossmatchError(f"{where} has boxes of shape {boxes.shape} for {len(features)} regions. Extract it again.")
        if not np.isfinite(features).all():
            raise CrossmatchError(f"{where} has NaN or infinity among its features. Extract it again.")
        real = features.any(axis=1)
        if not real.any():
            raise CrossmatchError(f"{where} has no regions, or features that are all 0. Extract it again.")
        return features[real], None if boxes is None else np.asarray(boxes, dtype=np.float32)[real]

    def as_store(self, ids: ArrayLike) -> RegionStore:
        """These images in this order, for training."""
        return RegionStore(self, self.where(ids))

    @cached_property
    def hash(self) -> str:
        """Twelve hexadecimal digits of ids and content; of large files, of `PROBES` places in them."""
        digest = hashlib.sha256("\n".join(self.ids.tolist()).encode())
        sizes = [part.stat().st_size for part in self.parts]
        for part, size in zip(self.parts, sizes, strict=True):
            digest.update(f"{part.name} {size}".encode())
        few = len(self.parts) <= PROBES and sum(sizes) <= WHOLE
        step = max(1, len(self.parts) // PROBES)
        for part, size in list(zip(self.parts, sizes, strict=True))[:: 1 if few else step]:
            with part.open("rb") as file:
                if few:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
                    continue
                each = max(1, PROBES // len(self.parts))
                for n in range(each):
                    file.seek(max(0, size - PROBE) * n // max(1, each - 1))
                    digest.update(file.read(PROBE))
        return digest.hexdigest()[:12]


@dataclass(frozen=True, eq=False)
class RegionStore:
    """Some images of a file in an order of their own, as a network is given them."""

    file: RegionFile = field(repr=False)
    places: IntArray = field(repr=False)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def dimensions(self) -> int:
        return self.file.dimensions

    def take(self, indices: Sequence[int] | NDArray[Any]) -> Regions:
        """The regions of these images as tensors."""
        import torch

        from crossmatch.models.zoo.inputs import Regions

        features, real, boxes = self.file.at(self.places[np.asarray(indices, dtype=np.int64)])
        return Regions(torch.from_numpy(features), torch.from_numpy(real), torch.from_numpy(boxes))


def said_by(error: BaseException) -> str:
    """The first line of what an exception says."""
    return (str(error).splitlines() or [type(error).__name__])[0][:150]


def fractions(boxes: NDArray[Any], width: float = 0, height: float = 0) -> NDArray[np.float32]:
    """Boxes in fractions of the picture: as they are where none exceeds 1, else divided by its size, else 0 (not known).

    >>> fractions(np.array([[0, 10, 50, 20]]), 100, 20).tolist()
    [[0.0, 0.5, 0.5, 1.0]]
    """
    given: NDArray[np.float32] = np.asarray(boxes, dtype=np.float32)[:, :4]
    size = np.array([width, height] * 2, dtype=np.float32)
    if not (np.isfinite(given).all() and np.isfinite(size).all()):
        raise ValueError("NaN or infinity among its boxes, or in the size of the picture")
    if given.size and given.max() > 1:
        given = np.divide(given, size, dtype=np.float32) if size.all() else np.zeros_like(given)
    return np.clip(given, 0, 1)
