"""Files of precomputed region features: the regions of each image by its id, read on demand.

`file_layouts` has the supported layouts. Features are float32; boxes are left, top, right, bottom in fractions of the image, and 0
if they are unknown (a file may have none, or boxes in pixels without the size of the image).
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

from crossmatch.data.arrays import BoolArray, IdArray, IntArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.models.baselines.caption_proxy import normalise_coco_id

if TYPE_CHECKING:
    from crossmatch.models.zoo.network_inputs import Regions

WHOLE = 64 << 20  # bytes up to which all of a file is hashed; larger files are hashed at some positions
PROBES, PROBE = 256, 1 << 14  # how many positions, spread evenly, and how many bytes
MAX_LISTED_IDS = 3  # missing ids in an error message
# Errors of the readers of npy, npz, h5 and tsv for a damaged or foreign file. KeyError, TypeError, AttributeError and IndexError are
# not here: they are bugs.
DAMAGED = (OSError, ValueError, EOFError, RuntimeError, BadZipFile, zlib.error, struct.error)

Item = tuple[NDArray[Any], NDArray[Any] | None]  # features (K, F), and boxes (K, 4) where there are any


@dataclass(frozen=True, eq=False)
class RegionFile:
    """The regions of images by id. `read(n)` returns those of the n-th image as they are in the file."""

    path: Path
    layout: str
    ids: IdArray
    dimensions: int
    read: Callable[[int], Item] = field(repr=False)
    parts: tuple[Path, ...] = field(repr=False, default=())  # the files that it consists of

    @classmethod
    def open(cls, path: Path) -> RegionFile:
        """Open a file or folder with the first layout that fits."""
        from crossmatch.models.regions.file_layouts import LAYOUTS

        if not path.exists():
            raise UsageError(f"there is no file {path}. Check the path of the region features.")
        layout = next((layout for layout in LAYOUTS if layout.fits(path)), None)
        if layout is None:
            layouts = "; ".join(layout.about for layout in LAYOUTS)
            raise CrossmatchError(f"{path} has none of the layouts of region features: {layouts}. Rename or convert it.")
        try:
            content = layout.open(path)
        except CrossmatchError:
            raise
        except DAMAGED as error:
            raise CrossmatchError(
                f"{path} cannot be read as {layout.about} ({first_line(error)}). It is damaged or has another layout: extract or "
                "copy it again."
            ) from None
        ids = np.asarray(content.ids, dtype=np.str_)
        if not len(ids):
            raise CrossmatchError(f"{path} has no images. Extract the features again.")
        names, times = np.unique(ids, return_counts=True)
        if len(names) < len(ids):
            raise CrossmatchError(f"{path} has image {str(names[times.argmax()])!r} {times.max()} times. Keep one of them.")
        return cls(path, layout.name, ids, content.dimensions, content.read, content.parts or (path,))

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def _row_of_id(self) -> tuple[dict[str, int], dict[str, int]]:
        exact = {image_id: n for n, image_id in enumerate(self.ids.tolist())}
        return exact, {normalise_coco_id(image_id): n for image_id, n in exact.items()}

    def find_rows(self, ids: ArrayLike) -> IntArray:
        """Return the rows of these images, -1 if missing. An exact id has priority over one that means the same COCO image."""
        exact, normalised = self._row_of_id
        names = np.asarray(ids, dtype=np.str_).tolist()
        return np.asarray([exact.get(name, normalised.get(normalise_coco_id(name), -1)) for name in names], dtype=np.int64)

    def require_rows(self, ids: ArrayLike) -> IntArray:
        """Return the rows of these images; raise an error if any is missing."""
        rows = self.find_rows(ids)
        if (rows < 0).any():
            missing = np.asarray(ids, dtype=np.str_)[rows < 0]
            listed = ", ".join(map(repr, missing[:MAX_LISTED_IDS].tolist())) + (", …" if len(missing) > MAX_LISTED_IDS else "")
            raise CrossmatchError(
                f"{self.path} has the regions of {len(rows) - len(missing):,} of {len(rows):,} images; missing: {listed} (ids in "
                f"the file look like {str(self.ids[0])!r}). Extract those too, or name the file of the right split."
            )
        return rows

    def take(self, ids: ArrayLike) -> tuple[NDArray[np.float32], BoolArray, NDArray[np.float32]]:
        """Return features (N, K, F), which of them are not padding (N, K), and boxes (N, K, 4) of images by id."""
        return self.read_rows(self.require_rows(ids))

    def read_rows(self, rows: IntArray) -> tuple[NDArray[np.float32], BoolArray, NDArray[np.float32]]:
        """Return features (N, K, F), which of them are not padding (N, K), and boxes (N, K, 4) of images by row."""
        items = [self._read_image(n) for n in rows.tolist()]
        most = max((len(features) for features, _ in items), default=1)
        features = np.zeros((len(items), most, self.dimensions), dtype=np.float32)
        is_region = np.zeros((len(items), most), dtype=bool)
        boxes = np.zeros((len(items), most, 4), dtype=np.float32)
        for n, (image_features, image_boxes) in enumerate(items):
            count = len(image_features)
            features[n, :count], is_region[n, :count] = image_features, True
            if image_boxes is not None:
                boxes[n, :count] = image_boxes
        return features, is_region, boxes

    def _read_image(self, n: int) -> Item:
        """Read and check the regions of one image, without rows that are all 0, which are padding."""
        where = f"{self.path}: image {str(self.ids[n])!r}"
        try:
            values, boxes = self.read(n)
        except CrossmatchError:
            raise
        except DAMAGED as error:
            raise CrossmatchError(
                f"{where} cannot be read ({first_line(error)}). The file is damaged: extract or copy it again."
            ) from None
        if values.dtype.kind not in "fiub":
            raise CrossmatchError(f"{where}: expected real numbers as features, got dtype {values.dtype}. Extract it again.")
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, which is an error below
            features = np.asarray(values, dtype=np.float32)
        if features.ndim != 2 or features.shape[1] != self.dimensions:
            raise CrossmatchError(
                f"{where}: expected features of shape (regions, {self.dimensions}), got {features.shape}. Extract it again."
            )
        if boxes is not None and boxes.shape != (len(features), 4):
            raise CrossmatchError(f"{where} has boxes of shape {boxes.shape} for {len(features)} regions. Extract it again.")
        if not np.isfinite(features).all():
            raise CrossmatchError(f"{where} has NaN or infinity among its features. Extract it again.")
        is_region = features.any(axis=1)
        if not is_region.any():
            raise CrossmatchError(f"{where} has no regions, or features that are all 0. Extract it again.")
        return features[is_region], None if boxes is None else np.asarray(boxes, dtype=np.float32)[is_region]

    def select(self, ids: ArrayLike) -> FileRegionStore:
        """Return these images in this order, for a network."""
        return FileRegionStore(self, self.require_rows(ids))

    @cached_property
    def hash(self) -> str:
        """Twelve hexadecimal digits of the hash of ids and content; large files are hashed at `PROBES` positions."""
        digest = hashlib.sha256("\n".join(self.ids.tolist()).encode())
        sizes = [part.stat().st_size for part in self.parts]
        for part, size in zip(self.parts, sizes, strict=True):
            digest.update(f"{part.name} {size}".encode())
        is_small = len(self.parts) <= PROBES and sum(sizes) <= WHOLE
        step = max(1, len(self.parts) // PROBES)
        for part, size in list(zip(self.parts, sizes, strict=True))[:: 1 if is_small else step]:
            with part.open("rb") as file:
                if is_small:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
                    continue
                probes = max(1, PROBES // len(self.parts))
                for n in range(probes):
                    file.seek(max(0, size - PROBE) * n // max(1, probes - 1))
                    digest.update(file.read(PROBE))
        return digest.hexdigest()[:12]


@dataclass(frozen=True, eq=False)
class FileRegionStore:
    """Some images of a file in a given order, as tensors for a network."""

    file: RegionFile = field(repr=False)
    rows: IntArray = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def dimensions(self) -> int:
        return self.file.dimensions

    def take(self, indices: Sequence[int] | NDArray[Any]) -> Regions:
        """Return the regions of these images as tensors."""
        import torch

        from crossmatch.models.zoo.network_inputs import Regions

        features, is_region, boxes = self.file.read_rows(self.rows[np.asarray(indices, dtype=np.int64)])
        return Regions(torch.from_numpy(features), torch.from_numpy(is_region), torch.from_numpy(boxes))


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message."""
    return (str(error).splitlines() or [type(error).__name__])[0][:150]


def to_fractions(boxes: NDArray[Any], width: float = 0, height: float = 0) -> NDArray[np.float32]:
    """Convert boxes to fractions of the image: unchanged if none exceeds 1, else divided by its size, else 0 (unknown).

    >>> to_fractions(np.array([[0, 10, 50, 20]]), 100, 20).tolist()
    [[0.0, 0.5, 0.5, 1.0]]
    """
    values: NDArray[np.float32] = np.asarray(boxes, dtype=np.float32)[:, :4]
    size = np.array([width, height] * 2, dtype=np.float32)
    if not (np.isfinite(values).all() and np.isfinite(size).all()):
        raise ValueError("NaN or infinity among its boxes, or in the size of the image")
    if values.size and values.max() > 1:
        values = np.divide(values, size, dtype=np.float32) if size.all() else np.zeros_like(values)
    return np.clip(values, 0, 1)
