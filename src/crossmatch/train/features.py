"""Region features of whole splits and collections: computed once, kept on disk, and read from there as they are needed.

    CACHE/crossmatch/features/DIGEST/features.f16     (regions, F) numbers in half precision, one picture after the other
    CACHE/crossmatch/features/DIGEST/regions.npz      the boxes, and where each picture begins; written last
    CACHE/crossmatch/features/DIGEST/lock             held by the process that computes
    CACHE/crossmatch/features/namer-DIGEST.pt         the weights of a namer

DIGEST is a hash of all that the numbers depend on: the encoder with its weights, and the pictures. CACHE is the user's cache folder
($XDG_CACHE_HOME). A file takes its name only once it is complete, and whoever comes second waits for the first.
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
from numpy.typing import NDArray

from crossmatch.core.arrays import IntArray
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, MissingDependency
from crossmatch.core.pictures import BadPicture, fingerprint, opened
from crossmatch.core.places import cores, features_folder
from crossmatch.core.progress import announce, track
from crossmatch.core.whole import UNFINISHED, whole_file
from crossmatch.diorama.layout import sample_scene
from crossmatch.diorama.scenes import Scene
from crossmatch.models.sentence import threads
from crossmatch.models.zoo.features import Encoded, Extractor, extractor, gathered
from crossmatch.models.zoo.inputs import Regions
from crossmatch.train.namer import namer_facts, train_namer
from crossmatch.train.pictures import Part, in_parts

try:
    import torch
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

try:
    import fcntl
except ImportError:  # Windows: both processes compute
    fcntl = None  # type: ignore[assignment]

FORMAT = 1  # counts up when features are kept in another way
PIXELS = 256  # of a picture of the embedded world, as it is evaluated
AT_ONCE = 32  # pictures
PROBES = 4  # pictures by which the embedded world is known

Seen = tuple[NDArray[np.float16], NDArray[np.float32], IntArray]  # features and boxes of some pictures, and how many each has
Scenes = Callable[[Part], list[Scene]]  # those of a share of a split


@dataclass(frozen=True, eq=False)
class RegionStore:
    """The regions of N pictures, one after the other; those of picture n are at begin[n] to begin[n + 1].

    >>> begin = np.array([0, 1, 3])
    >>> store = RegionStore(np.arange(3, dtype=np.float16)[:, None], np.zeros((3, 4), np.float32), begin)
    >>> len(store), store.dimensions, store.take([1, 0]).features.squeeze(2).tolist()
    (2, 1, [[1.0, 2.0], [0.0, 0.0]])
    """

    features: NDArray[np.float16]  # (regions, F), memory-mapped
    boxes: NDArray[np.float32]  # (regions, 4)
    begin: IntArray  # (N + 1,)

    def __len__(self) -> int:
        return len(self.begin) - 1

    @property
    def dimensions(self) -> int:
        """Numbers of a region."""
        return int(self.features.shape[1])

    def take(self, indices: Sequence[int] | NDArray[Any]) -> Regions:
        """The regions of these pictures, as float32."""
        asked = np.arange(len(self))[np.asarray(indices, dtype=np.int64)]  # refuses what is not there
        count = np.diff(self.begin)[asked]
        begin = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        rows = np.repeat(self.begin[asked] - begin[:-1], count) + np.arange(begin[-1])
        features = torch.from_numpy(np.asarray(self.features[rows], dtype=np.float32))
        return gathered(features, torch.from_numpy(self.boxes[rows]), begin)


def ready(settings: Extractor) -> Encoded:
    """The encoder of these settings with its weights. A namer is trained, which takes about a minute, and kept."""
    if settings.name != "namer":
        return extractor(settings)
    made = extractor(settings)
    assert made.net is not None
    facts = ["namer", *namer_facts(settings, made.side), _world(PROBES)]
    folder = features_folder()
    path = folder / f"namer-{_digest(facts)}.pt"
    with writing(folder), _alone(folder, path.with_suffix(".lock").name):
        if not _loaded(made.net, path):
            announce("learning to name regions of the embedded world, once: the frozen image encoder of all trainings on it")
            net, _ = train_namer(settings, made.side)
            made.net.load_state_dict(net.state_dict())
            with whole_file(path) as file:
                torch.save(net.state_dict(), file)
    return made


def diorama_features(split: str, images: int, settings: Extractor, seed: int = 0, workers: int = 2) -> RegionStore:
    """The regions of the pictures of `Diorama.make(split, images)`, drawn and looked at by two processes if there are many."""
    if images < 1:
        raise CrossmatchError(f"{images} pictures have no regions. Ask for 1 at least.")
    made = ready(settings)
    facts = ["diorama", split, images, seed, made.signature, _world(PROBES)]
    return _kept(facts, made.dimensions, lambda: in_parts(partial(_drawn, settings), split, images, PIXELS, seed, workers))


def drawn_features(facts: Sequence[object], scenes: Scenes, style: str, split: str, images: int, settings: Extractor,
                   workers: int = 2) -> RegionStore:  # fmt: skip
    """The regions of the pictures of what `scenes` makes of each part of a split, in a style; `facts` say what it depends on."""
    made = ready(settings)
    known = [*facts, style, made.signature, _world(PROBES)]
    draw = partial(_drawn, settings, scenes=scenes, style=style)
    return _kept(known, made.dimensions, lambda: in_parts(draw, split, images, PIXELS, 0, workers))


def collection_features(collection: Collection, settings: Extractor) -> RegionStore:
    """The regions of all pictures of a collection, in its order, by a thread for each core."""
    if not collection.shape[0]:
        raise CrossmatchError("the collection has no pictures. Add some.")
    made, ids = ready(settings), collection.image_ids.tolist()
    if collection.open_image is None:
        collection.images([0])  # says what is missing
    open_image: Any = collection.open_image

    def looked(at: int) -> Seen:
        return _halved(made, [opened(open_image, name) for name in ids[at : at + AT_ONCE]])

    def parts() -> Iterator[Seen]:
        with threads(1), ThreadPoolExecutor(cores()) as pool:
            coming = pool.map(looked, range(0, len(ids), AT_ONCE))
            for _ in track(range(0, len(ids), AT_ONCE), "looking at regions"):
                yield next(coming)

    return _kept(["collection", ids, identities(collection), made.signature], made.dimensions, parts)


# How features are made


def _sampled(part: Part) -> list[Scene]:
    """Scene n depends on the seed, the split and n alone, so any process can make its share."""
    split, numbers, _, seed = part
    return [sample_scene("diorama", seed, split, n) for n in numbers]


def _drawn(settings: Extractor, part: Part, scenes: Scenes = _sampled, style: str = "camera") -> Seen:
    from crossmatch.diorama.draw import draw

    made, shown, pixels = _here(settings, str(features_folder())), scenes(part), part[2]
    with threads(1):
        found = [
            _halved(made, [draw(scene, style, pixels) for scene in shown[at : at + AT_ONCE]])
            for at in range(0, max(1, len(shown)), AT_ONCE)  # once at least: none have a shape, too
        ]
    features, boxes, counts = zip(*found, strict=True)
    return np.concatenate(features), np.concatenate(boxes), np.concatenate(counts)


@lru_cache(maxsize=2)
def _here(settings: Extractor, _: str) -> Encoded:
    return ready(settings)


def _halved(made: Encoded, pictures: list[Any]) -> Seen:
    features, boxes, begin = made.seen(pictures)
    return features.half().numpy(), boxes.numpy(), np.diff(begin)


def identities(collection: Collection) -> list[str]:
    """A hash of each picture of a collection, in its order."""
    return [_identity(collection.open_image, name) for name in collection.image_ids.tolist()]


def _identity(open_image: Any, name: str) -> str:
    """A hash of a picture's file, where it is one, or of its pixels and boxes."""
    content = getattr(open_image, "content", None)
    if content is not None:
        try:
            return str(content(name).hex())
        except CrossmatchError as error:
            raise BadPicture(name, str(error)) from error
    found = fingerprint(opened(open_image, name))
    if found is None:
        raise CrossmatchError(f"image {name!r} is no picture. Give a collection whose open_image gives pictures.")
    return found.hex()


@lru_cache(maxsize=1)
def _world(pictures: int) -> str:
    """What the embedded world looks like today."""
    from crossmatch.diorama.draw import draw

    seen = [fingerprint(draw(sample_scene("diorama", 0, "train", n))) or b"" for n in range(pictures)]
    return hashlib.sha256(b"".join(seen)).hexdigest()


# How they are kept


def _digest(facts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps([FORMAT, *facts]).encode()).hexdigest()[:16]


def _kept(facts: Sequence[object], dimensions: int, make: Callable[[], Iterable[Seen]]) -> RegionStore:
    folder = features_folder() / _digest(facts)
    found = _read(folder, dimensions)
    if found is not None:
        return found
    with writing(folder), _alone(folder, "lock"):
        found = _read(folder, dimensions)  # another process may have made it while this one waited
        if found is not None:
            return found
        boxes, counts = [], []
        with whole_file(folder / "features.f16") as file:
            for features, where, count in make():
                file.write(np.ascontiguousarray(features, dtype="<f2").tobytes())
                boxes.append(where)
                counts.append(count)
        begin = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int64)
        with whole_file(folder / "regions.npz") as file:
            np.savez(file, boxes=np.concatenate(boxes).astype(np.float32), begin=begin)
    found = _read(folder, dimensions)
    if found is None:
        raise CrossmatchError(f"the features in {folder} cannot be read back. Check the disk, or name another: XDG_CACHE_HOME=DIR.")
    return found


def _read(folder: Path, dimensions: int) -> RegionStore | None:
    """The features of a folder, or nothing unless they are all there."""
    try:
        with (folder / "regions.npz").open("rb") as file, np.load(file) as held:
            boxes, begin = held["boxes"], held["begin"]
        if (folder / "features.f16").stat().st_size != int(begin[-1]) * dimensions * 2 or len(boxes) != begin[-1]:
            return None
        features = np.memmap(folder / "features.f16", "<f2", "r", shape=(int(begin[-1]), dimensions))
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    return RegionStore(features, boxes, begin)


def _loaded(net: torch.nn.Module, path: Path) -> bool:
    """Whether the weights in a file could be put in place; a damaged one is as good as none."""
    try:
        net.load_state_dict(torch.load(path, weights_only=True, map_location="cpu"))
    except Exception:  # absent, cut off, or of another origin: torch tells in many ways
        return False
    return all(bool(torch.isfinite(values).all()) for values in net.state_dict().values())


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """Wait until no other process does the same, and sweep up what killed ones left. The system frees the lock of a killed one."""
    with (folder / name).open("ab") as lock:
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks: both compute
                fcntl.flock(lock, fcntl.LOCK_EX)
                for left in folder.glob(f".*{UNFINISHED}") if name == "lock" else ():
                    left.unlink(missing_ok=True)
        yield


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise CrossmatchError(
            f"features cannot be kept in {folder} ({error.strerror or error}). Make room, or name another cache folder: "
            "XDG_CACHE_HOME=DIR."
        ) from None
