"""Where training data come from: the embedded world, a user's own folder, or region features as SCAN's authors lay them out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.benchmarks.folder import load_folder
from crossmatch.core.arrays import IntArray
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.lines import read_lines
from crossmatch.core.progress import track
from crossmatch.diorama.grammar import describe
from crossmatch.diorama.layout import sample_scene
from crossmatch.diorama.world import CAPTIONS_PER_SCENE, SIZES, Diorama
from crossmatch.models.dual import pixels_of
from crossmatch.models.region_files import RegionFile
from crossmatch.train.data import ArrayStore, PixelStore, Store, TrainingSet, dimensions_of, probed
from crossmatch.train.hard import diorama_negatives, diorama_trials, hardened, numbered
from crossmatch.train.hard_files import HardRow, NegativeFile, opener, plain
from crossmatch.train.pictures import Part, draw_split, in_parts
from crossmatch.train.recipe import NegativeSettings

LOOKED_AT = 1000  # images in which repeats are looked for
FIRST = 4  # images through which the encoder is known, before all of them are looked at
Hardened = Callable[[TrainingSet, str, int, Mapping[str, Any], NegativeSettings], TrainingSet]
HELD_OUT = 0.1  # share of the images of a collection that validates, unless it has a folder for that


@dataclass(frozen=True, eq=False)
class Source:
    """Data to train on and to validate with, known by a hash before they are made."""

    name: str
    digest: str
    load: Callable[[], tuple[TrainingSet, TrainingSet]]
    file: str = ""  # where the regions come from, if they are not computed here


@dataclass(frozen=True)
class Asked:
    """What was asked for beside the name of the data."""

    images: int | None = None  # to train on, at most
    size: str = "default"  # of the embedded world
    validation: str | None = None  # a folder of its own
    regions: Path | None = None  # region features that are there
    judged: int = 1000  # images to validate with, at most
    hard: NegativeSettings = field(default_factory=NegativeSettings)  # the hard negatives that the recipe is trained with
    negatives: Path | None = None  # a file of them, for a collection


def source(data: str, features: Mapping[str, Any], asked: Asked) -> Source:
    """The data of this name: `diorama`, `collection:FOLDER`, or `precomp:FOLDER` in SCAN's layout."""
    require_asked(data, asked)
    kind, _, rest = data.partition(":")
    return SOURCES[kind](rest, features, asked)


def require_asked(data: str, asked: Asked) -> None:
    """Refuse words that name no data, or do not go with them, before anything is computed."""
    kind, colon, rest = data.partition(":")
    if kind not in SOURCES or bool(colon and rest) != (kind != "diorama"):
        raise WrongWords(f"there are no data {data!r} to train on. Say diorama, collection:FOLDER, or precomp:FOLDER.")
    if asked.regions is not None and kind != "collection":
        raise WrongWords(f"--regions goes with --data collection:FOLDER; {data} has its own regions. Leave it out.")
    if asked.validation is not None and kind != "collection":
        raise WrongWords(f"--validation goes with --data collection:FOLDER; {data} has a split of its own. Leave it out.")
    _require_negatives(data, kind, asked)
    if asked.images is not None and asked.images < 2:
        raise WrongWords(f"{asked.images} image is too few; it takes 2 images at least. Set --images, or train.images, to more.")


def _require_negatives(data: str, kind: str, asked: Asked) -> None:
    wanted = asked.hard.kind != "none"
    if asked.negatives is not None and kind != "collection":
        raise WrongWords(f"--negatives goes with --data collection:FOLDER, not with {data}. Leave it out.")
    if asked.negatives is not None and not wanted:
        raise WrongWords(
            "the recipe is trained without hard negatives, and --negatives would go unused. Train clip-hard-texts or "
            "clip-hard-pairs, or leave it out."
        )
    if asked.hard.kind == "unused" and kind != "diorama":
        raise WrongWords(f"negatives.kind is unused, which is for diorama; {data} has no edits. Set negatives.kind=none")
    if wanted and kind == "precomp":
        raise WrongWords(f"{data} has no hard negatives. Train on diorama, or on collection:FOLDER with --negatives FILE.")
    if wanted and kind == "collection" and asked.negatives is None:
        raise WrongWords("the recipe is trained with hard negatives, and a collection has none. Name a file: --negatives FILE")


# The embedded world


def _diorama(_: str, features: Mapping[str, Any], asked: Asked) -> Source:
    if asked.size not in SIZES:
        raise WrongWords(f"the world has no size {asked.size!r}; it comes as {', '.join(SIZES)}.")
    there = SIZES[asked.size]
    train = min(there["train"], asked.images or there["train"])
    val = min(asked.judged, there["val"])
    hard = asked.hard
    probe = _diorama_split("train", FIRST, features, hard).digest
    told = f"diorama {train} {val} {sorted(features.items())} {probe}" + f" {hard}" * (hard.kind != "none")
    return Source(
        "diorama",
        hashlib.sha256(told.encode()).hexdigest()[:12],
        lambda: (_diorama_split("train", train, features, hard), _diorama_split("val", val, features, hard, diorama_trials)),
    )


def _diorama_split(
    split: str, images: int, features: Mapping[str, Any], hard: NegativeSettings, made: Hardened = diorama_negatives
) -> TrainingSet:
    plain = _diorama_plain(split, images, features)
    return plain if hard.kind == "none" else made(plain, split, images, features, hard)


def _diorama_plain(split: str, images: int, features: Mapping[str, Any]) -> TrainingSet:
    given = dict(features)
    if given.get("kind") == "pictures":  # as another library prepares them, drawn whenever they are asked for
        held = Diorama.make(split, images).collection
        return TrainingSet(given["prepare"](held), held.captions, held.links)
    owners = np.repeat(np.arange(images), CAPTIONS_PER_SCENE)
    links = np.stack([owners, np.arange(len(owners))], axis=1)
    if given.pop("kind", "regions") == "pixels":
        pictures, captions = draw_split(split, images, int(given.get("side", 64)))
        return TrainingSet(PixelStore(pictures), tuple(captions), links)
    from crossmatch.models.zoo.features import Extractor
    from crossmatch.train.features import diorama_features

    store = diorama_features(split, images, Extractor(**given))
    captions = [text for part in in_parts(_described, split, images, 0) for text in part]
    return TrainingSet(store, tuple(captions), links)


def _described(part: Part) -> list[str]:
    """The captions of some scenes, five after another."""
    split, numbers, _, seed = part
    return [
        caption.text for n in numbers for caption in describe(sample_scene("diorama", seed, split, n), "diorama", seed, split, n)
    ]


# A user's own folder


def _collection(rest: str, features: Mapping[str, Any], asked: Asked) -> Source:
    held, folders = _read(rest, asked, features), f"collection:{rest}"
    ids = held.collection.image_ids.tolist()
    if asked.validation is None:
        train, val = _held_out(held.collection, asked.judged)
        both = held.only(train, asked.images), held.only(val, asked.judged)
    else:
        own = _read(asked.validation.removeprefix("collection:"), asked, features)
        both = held.only(None, asked.images), own.only(None, asked.judged)
        ids += own.collection.image_ids.tolist()
    told = b"".join(each.told() for each in both)
    file = "" if asked.regions is None else asked.regions.name
    if asked.negatives is None:
        return Source(folders, hashlib.sha256(told).hexdigest()[:12], lambda: (both[0].made(), both[1].made()), file)
    pairs = asked.hard.kind == "pairs"
    negatives = NegativeFile.read(asked.negatives, pairs)
    negatives.require_known(ids)
    parts = [_Negated(each, negatives, pairs, Path(rest).expanduser(), use) for each, use in zip(both, USES, strict=True)]
    told += b"".join(part.told() for part in parts)
    return Source(folders, hashlib.sha256(told).hexdigest()[:12], lambda: (parts[0].made(), parts[1].made()), file)


@dataclass(frozen=True, eq=False)
class _Folder:
    """A collection with where its regions come from; nothing is computed before it is `made`."""

    collection: Collection
    features: Mapping[str, Any]
    regions: Path | None

    def only(self, images: IntArray | None, most: int | None) -> _Folder:
        """These images that have captions, in the order of their ids, at most so many."""
        linked = np.unique(self.collection.links[:, 0])
        chosen = linked if images is None else linked[np.isin(linked, images)]
        chosen = chosen[np.argsort(self.collection.image_ids[chosen], kind="stable")][:most]
        captions = np.unique(self.collection.links[np.isin(self.collection.links[:, 0], chosen), 1])
        return _Folder(self.collection.reordered(chosen, captions), self.features, self.regions)

    def told(self) -> bytes:
        """What the training set depends on: texts, links, the content of the pictures, and what the encoder makes of some."""
        held, few = self.collection, self.only(None, FIRST)
        if self.regions is not None:
            seen = RegionFile.open(self.regions).hash
        else:
            from crossmatch.train.features import identities

            seen = repr(sorted(self.features.items())) + " ".join(identities(held))
        return held.fingerprint + held.links.tobytes() + (seen + few.made().digest).encode()

    def made(self) -> TrainingSet:
        held = self.collection
        if not held.captions:
            held.texts()  # says that there are none
        return TrainingSet(self.store(), held.captions, held.links)

    def store(self) -> Store:
        held, given = self.collection, dict(self.features)
        if self.regions is not None:
            return RegionFile.open(self.regions).as_store(held.image_ids)
        if given.get("kind") == "pictures":  # as another library prepares them
            prepared: Store = given["prepare"](held)
            return prepared
        if given.pop("kind", "regions") == "pixels":
            return PixelStore(_pixels(held, int(given.get("side", 64))))
        from crossmatch.models.zoo.features import Extractor
        from crossmatch.train.features import collection_features

        return collection_features(held, Extractor(**given))


@dataclass(frozen=True, eq=False)
class _Negated:
    """The part of a collection that has hard negatives in a file."""

    plain: _Folder
    file: NegativeFile
    pairs: bool
    home: Path  # of the collection
    use: str  # what it is for, in a message

    def __post_init__(self) -> None:
        if len(self.rows) < 2:
            raise CrossmatchError(
                f"{self.file.path} has {len(self.rows)} rows of the {self.plain.collection.shape[0]:,} images to {self.use}; 2 at "
                "least were expected. Add rows, or name a collection to validate with: --validation FOLDER"
            )

        held, true = self.plain.collection, set[tuple[str, str]]()
        for image, caption in held.links.tolist():
            true.add((str(held.image_ids[image]), " ".join(plain(held.captions[caption]))))
        for name, row in self.rows:
            if (name, " ".join(plain(row.negative))) in true:
                raise CrossmatchError(
                    f"{row.where} has {row.negative!r:.80} as negative, which is one of the captions of {name!r}. "
                    "Change it, or remove the row."
                )

    @cached_property
    def rows(self) -> list[tuple[str, HardRow]]:
        return self.file.of(self.plain.collection.image_ids.tolist())

    def told(self) -> bytes:
        """What the negatives depend on: the file, and the first of its images."""
        return f"{self.file.digest}{self.pairs}".encode() + (probed(self._pictured(FIRST).store()) if self.pairs else b"")

    def made(self) -> TrainingSet:
        plain = self.plain.made()
        image = {str(name): n for n, name in enumerate(self.plain.collection.image_ids)}
        captions, caption = numbered(plain.captions, [row.caption for _, row in self.rows])
        links = np.stack([np.asarray([image[name] for name, _ in self.rows]), caption], axis=1)
        whole = TrainingSet(plain.store, captions, links)
        negatives = [row.negative for _, row in self.rows]
        if not self.pairs:
            return hardened(whole, links, negatives)
        shown = self._pictured()
        place = {str(name): n for n, name in enumerate(shown.collection.image_ids)} | self._shared(shown, len(plain.store))
        images = np.asarray([place[row.negative_image] for _, row in self.rows])
        for n in np.flatnonzero(images + len(plain.store) == links[:, 0])[:1].tolist():
            name, row = self.rows[n]
            raise CrossmatchError(
                f"{row.where} has {row.negative_image!r} as negative image, which is {name!r} itself. Name another one."
            )
        return hardened(whole, links, negatives, shown.store(), images)

    def _shared(self, shown: _Folder, count: int) -> dict[str, int]:
        """Negative images that are images of the collection: their numbers, counted back from the first that is none of them."""
        ids = self.plain.collection.image_ids.tolist()
        if self.plain.regions is not None:
            first, theirs = {str(name): n for n, name in enumerate(ids)}, [str(name) for name in shown.collection.image_ids]
        else:
            from crossmatch.train.features import identities

            first = {content: n for n, content in enumerate(identities(self.plain.collection))}
            theirs = identities(shown.collection)
        names = map(str, shown.collection.image_ids)
        return {name: first[content] - count for name, content in zip(names, theirs, strict=True) if content in first}

    def _pictured(self, most: int | None = None) -> _Folder:
        """The negative images, at most so many, each with a caption that is said to be true of it."""
        some = list({row.negative_image: row for _, row in self.rows}.values())[:most]
        pictures = None if self.plain.regions is not None else opener(some, (self.file.path.parent, self.home))
        return replace(self.plain, collection=Collection.of({row.negative_image: [row.negative] for row in some}, pictures))


USES = ("train on", "validate with")


def _read(folder: str, asked: Asked, features: Mapping[str, Any]) -> _Folder:
    return _Folder(load_folder(Path(folder).expanduser()).collection, features, asked.regions)


def _held_out(held: Collection, most: int) -> tuple[IntArray, IntArray]:
    """The images to train on and those to validate with: a share, drawn among the sorted ids."""
    linked = np.unique(held.links[:, 0])
    ordered = linked[np.argsort(held.image_ids[linked], kind="stable")]
    few = min(most, max(2, round(HELD_OUT * len(ordered))))
    if len(ordered) < few + 2:
        raise CrossmatchError(
            f"the collection has {len(ordered)} images with captions; 4 at least were expected, 2 of which validate. "
            "Add some, or name a folder to validate with: --validation FOLDER"
        )
    drawn = np.random.default_rng(7).permutation(len(ordered))
    return ordered[np.sort(drawn[few:])], ordered[np.sort(drawn[:few])]


def _pixels(held: Collection, side: int) -> NDArray[np.uint8]:
    out = np.empty((held.shape[0], side, side, 3), dtype=np.uint8)
    for n in track(range(held.shape[0]), "reading the pictures"):
        out[n] = pixels_of(held.images([n]), side)[0]
    return out


# SCAN's folder: train_ims.npy, train_caps.txt, dev_ims.npy, dev_caps.txt


def _precomp(rest: str, features: Mapping[str, Any], asked: Asked) -> Source:
    folder = Path(rest).expanduser()
    both = _precomp_split(folder, "train", asked.images), _precomp_split(folder, "dev", asked.judged)
    train, dev = (dimensions_of(each.store) for each in both)
    if train != dev:
        raise CrossmatchError(
            f"{folder / 'train_ims.npy'} has {train:,} numbers for each region and dev_ims.npy beside it {dev:,}; as many were "
            "expected. Take both from the same release."
        )
    told = hashlib.sha256("".join(each.digest for each in both).encode()).hexdigest()[:12]
    return Source(f"precomp:{rest}", told, lambda: both, file=folder.name)


def _precomp_split(folder: Path, split: str, most: int | None) -> TrainingSet:
    """A split as the released code of VSE++ and SCAN reads it: one caption per line, and equally many of them for each image.

    There are splits in which each image is repeated for each of its captions; it then counts once.
    """
    images, texts = folder / f"{split}_ims.npy", folder / f"{split}_caps.txt"
    missing = next((path for path in (folder, images, texts) if not path.exists()), None)
    if missing is not None:
        raise WrongWords(
            f"there is no {missing}. Expected: train_ims.npy, train_caps.txt, dev_ims.npy and dev_caps.txt in one folder."
        )
    features, captions = _features(images), _captions(texts)
    if len(captions) < 2:
        raise CrossmatchError(f"{texts} has {len(captions)} captions; 2 at least were expected. Get it again.")
    if len(captions) % len(features):
        raise CrossmatchError(
            f"{images} has shape {features.shape} and {texts} has {len(captions):,} captions; equally many captions for each image "
            "were expected. Take both from the same release."
        )
    repeated = _repeats(features) if len(features) == len(captions) else 1
    count = len(captions) // len(features) * repeated
    owners = np.arange(len(captions)) // count
    links = np.stack([owners, np.arange(len(captions))], axis=1)
    whole = TrainingSet(ArrayStore(features[::repeated], str(images), repeated), tuple(captions), links)
    return whole if most is None else whole.first(most)


def _features(path: Path) -> NDArray[Any]:
    """The regions (images, regions, numbers) of a npy, memory-mapped; each image is looked at when it is taken."""
    try:
        found = np.asanyarray(np.load(path, mmap_mode="r"))
    except (OSError, ValueError, EOFError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise CrossmatchError(f"{path} cannot be read as npy ({said:.150}). It is cut off or damaged: get it again.") from None
    if found.dtype.kind not in "fiu":
        raise CrossmatchError(f"{path} holds {found.dtype}; real numbers were expected. Save the features as float32.")
    regions: NDArray[Any] = found[:, None, :] if found.ndim == 2 else found  # or one vector for the whole picture
    if regions.ndim != 3 or not regions.size:
        raise CrossmatchError(
            f"{path} has shape {found.shape}; (images, regions, numbers) was expected, none of them 0. Extract the features again."
        )
    return regions


def _captions(path: Path) -> list[str]:
    """A caption on each line."""
    captions = read_lines(path)
    blank = next((n for n, text in enumerate(captions) if not text.strip()), None)
    if blank is not None:
        raise CrossmatchError(f"line {blank + 1} of {path} is empty; a caption was expected. Mend it.")
    return captions


def _repeats(features: NDArray[Any]) -> int:
    """How often each image is repeated, one copy after another: as often as the first, if all that are looked at agree."""
    times = next((n for n in range(1, len(features)) if not np.array_equal(features[n], features[0])), len(features))
    some = range(0, len(features) - times + 1, times * max(1, len(features) // LOOKED_AT))
    same = all(np.array_equal(features[n], features[n + times - 1]) for n in some)
    return times if same and len(features) % times == 0 else 1


SOURCES: Mapping[str, Callable[[str, Mapping[str, Any], Asked], Source]] = {
    "diorama": _diorama,
    "collection": _collection,
    "precomp": _precomp,
}
