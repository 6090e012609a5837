"""Region features of splits and collections, computed once and cached on disk.

    CACHE/crossmatch/features/DIGEST/features.f16     (regions, F) in half precision, image after image
    CACHE/crossmatch/features/DIGEST/regions.npz      the boxes, and the start of each image; written last
    CACHE/crossmatch/features/DIGEST/lock             held by the process that computes
    CACHE/crossmatch/features/namer-DIGEST.pt         weights of a trained namer

DIGEST is a hash of everything that the features depend on: the encoder with its weights, and the images. CACHE is the user's cache
folder ($XDG_CACHE_HOME). A file gets its name only when it is complete; a second process waits for the first.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from crossmatch.data.arrays import IntArray
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.atomic_write import TEMPORARY_SUFFIX, atomic_write
from crossmatch.data.io.image_loading import UnreadableImageError, hash_image, load_image
from crossmatch.data.io.paths import available_cores, features_folder
from crossmatch.data.io.progress import announce, track
from crossmatch.diorama.scene_sampling import sample_scene
from crossmatch.diorama.scenes import Scene
from crossmatch.models.torch_runtime import torch_threads
from crossmatch.models.zoo.network_inputs import Regions
from crossmatch.models.zoo.region_extractors import CropExtractor, ExtractorSettings, make_extractor, pad_regions
from crossmatch.train.data.diorama_images import ScenePart, map_scene_parts
from crossmatch.train.region_classifier import train_region_classifier, training_facts

try:
    import fcntl
except ImportError:  # Windows: both processes compute
    fcntl = None  # type: ignore[assignment]

FORMAT = 1  # increase when features are stored differently
PIXELS = 256  # side of an image of the embedded world, as in evaluation
IMAGE_BATCH = 32
PROBED_IMAGES = 4  # images that identify the current version of the embedded world

PartFeatures = tuple[NDArray[np.float16], NDArray[np.float32], IntArray]  # features, boxes, and number of regions per image
SceneFunction = Callable[[ScenePart], list[Scene]]  # makes the scenes of a part of a split


@dataclass(frozen=True, eq=False)
class RegionStore:
    """The regions of N images, concatenated; those of image n are rows begin[n] to begin[n + 1].

    >>> begin = np.array([0, 1, 3])
    >>> store = RegionStore(np.arange(3, dtype=np.float16)[:, None], np.zeros((3, 4), np.float32), begin)
    >>> len(store), store.take([1, 0]).features.squeeze(2).tolist()
    (2, [[1.0, 2.0], [0.0, 0.0]])
    """

    features: NDArray[np.float16]  # (regions, F), memory-mapped
    boxes: NDArray[np.float32]  # (regions, 4)
    begin: IntArray  # (N + 1,)

    def __len__(self) -> int:
        return len(self.begin) - 1

    def take(self, indices: Sequence[int] | NDArray[Any]) -> Regions:
        """Return the regions of these images, as float32."""
        numbers = np.arange(len(self))[np.asarray(indices, dtype=np.int64)]  # raises an error for an index out of range
        count = np.diff(self.begin)[numbers]
        begin = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        rows = np.repeat(self.begin[numbers] - begin[:-1], count) + np.arange(begin[-1])
        features = torch.from_numpy(np.asarray(self.features[rows], dtype=np.float32))
        return pad_regions(features, torch.from_numpy(self.boxes[rows]), begin)


def load_extractor(settings: ExtractorSettings) -> CropExtractor:
    """Return the extractor of these settings with its weights. A namer is trained once, in about a minute, and cached."""
    extractor = make_extractor(settings)
    if settings.name != "namer":
        return extractor
    assert extractor.net is not None
    facts = ["namer", *training_facts(settings, extractor.side), _world_hash(PROBED_IMAGES)]
    folder = features_folder()
    path = folder / f"namer-{_digest(facts)}.pt"
    with cache_errors(folder), _lock(folder, path.with_suffix(".lock").name):
        if not _load_weights(extractor.net, path):
            announce("Training the region encoder of the embedded world. This happens once; all trainings on diorama use it.")
            net, _ = train_region_classifier(settings, extractor.side)
            extractor.net.load_state_dict(net.state_dict())
            with atomic_write(path) as file:
                torch.save(net.state_dict(), file)
    return extractor


def diorama_features(split: str, images: int, settings: ExtractorSettings, workers: int = 2) -> RegionStore:
    """Region features of the images of `Diorama.make(split, images)`, computed by two processes if there are many."""
    if images < 1:
        raise CrossmatchError(f"diorama_features needs at least 1 image (got {images}).")
    extractor = load_extractor(settings)
    facts = ["diorama", split, images, 0, extractor.signature, _world_hash(PROBED_IMAGES)]
    compute = partial(_draw_and_extract, settings)
    return _cached(facts, extractor.dimensions, lambda: map_scene_parts(compute, split, images, PIXELS, workers))


def scene_features(
    facts: Sequence[object],
    make_scenes: SceneFunction,
    style: str,
    split: str,
    images: int,
    settings: ExtractorSettings,
    workers: int = 2,
) -> RegionStore:
    """Region features of the scenes that `make_scenes` makes of each part of a split; `facts` identify them."""
    extractor = load_extractor(settings)
    all_facts = [*facts, style, extractor.signature, _world_hash(PROBED_IMAGES)]
    compute = partial(_draw_and_extract, settings, make_scenes=make_scenes, style=style)
    return _cached(all_facts, extractor.dimensions, lambda: map_scene_parts(compute, split, images, PIXELS, workers))


def collection_features(collection: Collection, settings: ExtractorSettings) -> RegionStore:
    """Region features of all images of a collection, in its order, computed by one thread per core."""
    if not collection.shape[0]:
        raise CrossmatchError("The collection has no images, so it has no region features. Add images.")
    extractor, ids = load_extractor(settings), collection.image_ids.tolist()
    open_image = collection.image_opener()

    def extract_batch(first: int) -> PartFeatures:
        return _extract_half(extractor, [load_image(open_image, image_id) for image_id in ids[first : first + IMAGE_BATCH]])

    def compute_parts() -> Iterator[PartFeatures]:
        with torch_threads(1), ThreadPoolExecutor(available_cores()) as pool:
            starts = range(0, len(ids), IMAGE_BATCH)
            yield from track(pool.map(extract_batch, starts), "computing region features", len(starts))

    facts = ["collection", ids, hash_images(collection), extractor.signature]
    return _cached(facts, extractor.dimensions, compute_parts)


# -- computing features


def _sample_scenes(part: ScenePart) -> list[Scene]:
    return [sample_scene("diorama", 0, part.split, n) for n in part.numbers]


def _draw_and_extract(
    settings: ExtractorSettings, part: ScenePart, make_scenes: SceneFunction = _sample_scenes, style: str = "camera"
) -> PartFeatures:
    from crossmatch.diorama.drawing import draw

    extractor, scenes = _process_extractor(settings, str(features_folder())), make_scenes(part)
    with torch_threads(1):
        batches = [
            _extract_half(extractor, [draw(scene, style, part.pixels) for scene in scenes[first : first + IMAGE_BATCH]])
            for first in range(0, max(1, len(scenes)), IMAGE_BATCH)  # at least once, for the shape of an empty result
        ]
    features, boxes, counts = zip(*batches, strict=True)
    return np.concatenate(features), np.concatenate(boxes), np.concatenate(counts)


@lru_cache(maxsize=2)
def _process_extractor(settings: ExtractorSettings, _cache_folder: str) -> CropExtractor:
    return load_extractor(settings)


def _extract_half(extractor: CropExtractor, pictures: list[Any]) -> PartFeatures:
    features, boxes, begin = extractor.extract(pictures)
    return features.half().numpy(), boxes.numpy(), np.diff(begin)


def hash_images(collection: Collection) -> list[str]:
    """Hash each image of a collection, in its order."""
    return [_hash_image(collection.open_image, image_id) for image_id in collection.image_ids.tolist()]


def _hash_image(open_image: Any, image_id: str) -> str:
    """Hash of the image file, if it is one, else of pixels and boxes."""
    content = getattr(open_image, "content", None)
    if content is not None:
        try:
            return str(content(image_id).hex())
        except CrossmatchError as error:
            raise UnreadableImageError(image_id, str(error)) from error
    digest = hash_image(load_image(open_image, image_id))
    if digest is None:
        raise CrossmatchError(f"Image {image_id!r}: open_image must return a picture.")
    return digest.hex()


@lru_cache(maxsize=1)
def _world_hash(images: int) -> str:
    """Hash of the first images of the embedded world, which changes with its version."""
    from crossmatch.diorama.drawing import draw

    digests = [hash_image(draw(sample_scene("diorama", 0, "train", n))) or b"" for n in range(images)]
    return hashlib.sha256(b"".join(digests)).hexdigest()


# -- the cache


def _digest(facts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps([FORMAT, *facts]).encode()).hexdigest()[:16]


def _cached(facts: Sequence[object], dimensions: int, compute: Callable[[], Iterable[PartFeatures]]) -> RegionStore:
    folder = features_folder() / _digest(facts)
    store = _read(folder, dimensions)
    if store is not None:
        return store
    with cache_errors(folder), _lock(folder, "lock"):
        store = _read(folder, dimensions)  # another process may have computed it while this one waited
        if store is not None:
            return store
        boxes, counts = [], []
        with atomic_write(folder / "features.f16") as file:
            for part_features, part_boxes, part_counts in compute():
                file.write(np.ascontiguousarray(part_features, dtype="<f2").tobytes())
                boxes.append(part_boxes)
                counts.append(part_counts)
        begin = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
        with atomic_write(folder / "regions.npz") as file:
            np.savez(file, boxes=np.concatenate(boxes).astype(np.float32), begin=begin)
    store = _read(folder, dimensions)
    if store is None:
        raise CrossmatchError(
            f"{folder}: the features cannot be read back. Check the disk, or set another cache folder: XDG_CACHE_HOME=DIR."
        )
    return store


def _read(folder: Path, dimensions: int) -> RegionStore | None:
    """Read the features of a folder; None if they are incomplete."""
    try:
        with (folder / "regions.npz").open("rb") as file, np.load(file) as arrays:
            boxes, begin = arrays["boxes"], arrays["begin"]
        if (folder / "features.f16").stat().st_size != int(begin[-1]) * dimensions * 2 or len(boxes) != begin[-1]:
            return None
        features = np.memmap(folder / "features.f16", "<f2", "r", shape=(int(begin[-1]), dimensions))
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    return RegionStore(features, boxes, begin)


def _load_weights(net: nn.Module, path: Path) -> bool:
    """Load the weights of a file, if it exists and is not damaged; return whether it worked."""
    try:
        net.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
    except Exception:  # torch reports a missing, truncated or foreign file in many ways
        return False
    return all(bool(torch.isfinite(values).all()) for values in net.state_dict().values())


@contextmanager
def _lock(folder: Path, name: str) -> Iterator[None]:
    """Wait until no other process computes the same, and remove the leftovers of killed processes."""
    with (folder / name).open("ab") as lock:
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks: both compute
                fcntl.flock(lock, fcntl.LOCK_EX)
                for leftover in folder.glob(f".*{TEMPORARY_SUFFIX}") if name == "lock" else ():
                    leftover.unlink(missing_ok=True)
        yield


@contextmanager
def cache_errors(folder: Path) -> Iterator[None]:
    """Create a cache folder, and explain errors of writing to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise CrossmatchError(
            f"Features cannot be cached in {folder} ({error.strerror or error}). Make room, or set another cache folder: "
            "XDG_CACHE_HOME=DIR."
        ) from None
