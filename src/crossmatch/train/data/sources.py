"""Sources of training data: the embedded world, a user's collection, or region features in SCAN's layout."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossmatch.benchmarks.user_collection import load_collection_folder
from crossmatch.data.arrays import IntArray
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.file_contents import read_lines
from crossmatch.data.io.progress import track
from crossmatch.diorama.caption_writer import describe
from crossmatch.diorama.scene_sampling import sample_scene
from crossmatch.diorama.world import CAPTIONS_PER_SCENE, SIZES, Diorama
from crossmatch.models.baselines.small_dual_encoder import resize_images
from crossmatch.models.regions.feature_files import RegionFile
from crossmatch.train.data.diorama_images import ScenePart, draw_split, map_scene_parts
from crossmatch.train.data.hard_negatives import add_negatives, append_texts, diorama_negatives, diorama_trials
from crossmatch.train.data.negative_files import NegativeFile, NegativeRow, normalised_words, open_negative_images
from crossmatch.train.data.training_set import (
    ArrayStore,
    ImageStore,
    PixelStore,
    TrainingSet,
    feature_dimensions,
    sample_bytes,
)
from crossmatch.train.recipe import NegativeSettings, TrainingRecipe

CHECKED_IMAGES = 1000  # images that are compared to detect repeated features
PROBED_IMAGES = 4  # images whose features enter the hash of the data
HELD_OUT_SHARE = 0.1  # share of a collection's images that validate, unless there is a separate folder
NegativeFunction = Callable[[TrainingSet, str, int, Mapping[str, Any], NegativeSettings], TrainingSet]


@dataclass(frozen=True, eq=False)
class TrainingSource:
    """Training and validation data, with a hash that is known before they are computed."""

    name: str
    digest: str
    load: Callable[[], tuple[Any, Any]]  # training and validation set
    file: str = ""  # where the regions come from, if they are not computed here


@dataclass(frozen=True)
class DataOptions:
    """Options of the training data, besides their name.

    Attributes:
        images: Largest number of training images; None: that of the recipe.
        size: Size of the embedded world.
        validation: Folder of a separate validation collection.
        regions: File of region features.
        validation_images: Largest number of validation images; `train_recipe` uses that of the recipe.
        hard: Hard negatives; `train_recipe` uses those of the recipe.
        negatives: File of hard negatives, for a collection.

    >>> from crossmatch.train import DataOptions, load_recipe
    >>> options = DataOptions(images=100, size="tiny")      # at most 100 images of the small embedded world
    >>> options.for_recipe(load_recipe("vse0")).validation_images
    300
    """

    images: int | None = None
    size: str = "default"
    validation: str | None = None
    regions: Path | None = None
    validation_images: int = 1000
    hard: NegativeSettings = field(default_factory=NegativeSettings)
    negatives: Path | None = None

    def for_recipe(self, recipe: TrainingRecipe) -> DataOptions:
        """These options with the recipe's number of images and its hard negatives."""
        images = self.images or recipe.train.images or None
        return replace(self, images=images, validation_images=recipe.train.validation, hard=recipe.negatives)


def open_source(data: str, features: Mapping[str, Any], options: DataOptions) -> TrainingSource:
    """Open the data of a name: `diorama`, `collection:FOLDER`, or `precomp:FOLDER` in SCAN's layout."""
    check_data_options(data, options)
    kind, _, folder = data.partition(":")
    return SOURCES[kind](folder, features, options)


def check_data_options(data: str, options: DataOptions) -> None:
    """Refuse unknown data, and options that do not apply to them, before anything is computed."""
    kind, colon, folder = data.partition(":")
    if kind not in SOURCES or bool(colon and folder) != (kind != "diorama"):
        raise UsageError(f"--data {data}: expected diorama, collection:FOLDER, or precomp:FOLDER.")
    if options.regions is not None and kind != "collection":
        raise UsageError(f"--regions applies to --data collection:FOLDER only; {data} has its own regions. Remove it.")
    if options.validation is not None and kind != "collection":
        raise UsageError(f"--validation applies to --data collection:FOLDER only; {data} has its own split. Remove it.")
    _check_negative_options(data, kind, options)
    if options.images is not None and options.images < 2:
        raise UsageError(f"--images (or train.images) must be at least 2 (got {options.images}).")


def _check_negative_options(data: str, kind: str, options: DataOptions) -> None:
    needs_negatives = options.hard.kind != "none"
    if options.negatives is not None and kind != "collection":
        raise UsageError(f"--negatives applies to --data collection:FOLDER only, not to {data}. Remove it.")
    if options.negatives is not None and not needs_negatives:
        raise UsageError(
            "--negatives has no effect, because the recipe trains without hard negatives. Train clip-hard-texts or clip-hard-pairs, "
            "or remove it."
        )
    if options.hard.kind == "unused" and kind != "diorama":
        raise UsageError(f"negatives.kind=unused applies to diorama only; {data} has no edits. Set negatives.kind=none")
    if needs_negatives and kind == "precomp":
        raise UsageError(f"{data} has no hard negatives. Train on diorama, or on collection:FOLDER with --negatives FILE.")
    if needs_negatives and kind == "collection" and options.negatives is None:
        raise UsageError("The recipe needs hard negatives, and a collection has none. Name a file: --negatives FILE")


# -- the embedded world


def world_sizes(size: str) -> Mapping[str, int]:
    """Number of scenes of each split of the embedded world."""
    if size not in SIZES:
        raise UsageError(f"--size: diorama has no size {size!r}; use one of {', '.join(SIZES)}.")
    return SIZES[size]


def split_sizes(options: DataOptions) -> tuple[int, int]:
    """Number of training and validation images of the embedded world."""
    available = world_sizes(options.size)
    return min(options.images or available["train"], available["train"]), min(options.validation_images, available["val"])


def _open_diorama(_: str, features: Mapping[str, Any], options: DataOptions) -> TrainingSource:
    train, val = split_sizes(options)
    hard = options.hard
    probe = _diorama_split("train", PROBED_IMAGES, features, hard).digest
    facts = f"diorama {train} {val} {sorted(features.items())} {probe}" + f" {hard}" * (hard.kind != "none")
    return TrainingSource(
        "diorama",
        hashlib.sha256(facts.encode()).hexdigest()[:12],
        lambda: (_diorama_split("train", train, features, hard), _diorama_split("val", val, features, hard, diorama_trials)),
    )


def _diorama_split(
    split: str,
    images: int,
    features: Mapping[str, Any],
    hard: NegativeSettings,
    add_hard_negatives: NegativeFunction = diorama_negatives,
) -> TrainingSet:
    plain = _plain_diorama_split(split, images, features)
    return plain if hard.kind == "none" else add_hard_negatives(plain, split, images, features, hard)


def _plain_diorama_split(split: str, images: int, features: Mapping[str, Any]) -> TrainingSet:
    options = dict(features)
    if options.get("kind") == "pictures":  # prepared by another library, drawn when they are used
        collection = Diorama.make(split, images).collection
        return TrainingSet(options["prepare"](collection), collection.captions, collection.links)
    image = np.repeat(np.arange(images), CAPTIONS_PER_SCENE)
    links = np.stack([image, np.arange(len(image))], axis=1)
    if options.pop("kind", "regions") == "pixels":
        pictures, captions = draw_split(split, images, int(options.get("side", 64)))
        return TrainingSet(PixelStore(pictures), tuple(captions), links)
    from crossmatch.models.zoo.region_extractors import ExtractorSettings
    from crossmatch.train.data.region_feature_cache import diorama_features

    store = diorama_features(split, images, ExtractorSettings(**options))
    captions = [text for part in map_scene_parts(_caption_part, split, images, 0) for text in part]
    return TrainingSet(store, tuple(captions), links)


def _caption_part(part: ScenePart) -> list[str]:
    """The captions of some scenes, five for each."""
    world = "diorama", 0, part.split
    return [caption.text for n in part.numbers for caption in describe(sample_scene(*world, n), *world, n)]


# -- a user's collection


def _open_collection(folder: str, features: Mapping[str, Any], options: DataOptions) -> TrainingSource:
    whole, name = _read_folder(folder, options, features), f"collection:{folder}"
    ids = whole.collection.image_ids.tolist()
    if options.validation is None:
        train, val = _hold_out(whole.collection, options.validation_images)
        splits = whole.only(train, options.images), whole.only(val, options.validation_images)
    else:
        separate = _read_folder(options.validation.removeprefix("collection:"), options, features)
        splits = whole.only(None, options.images), separate.only(None, options.validation_images)
        ids += separate.collection.image_ids.tolist()
    content = b"".join(split.identity() for split in splits)
    file = "" if options.regions is None else options.regions.name
    if options.negatives is None:
        digest = hashlib.sha256(content).hexdigest()[:12]
        return TrainingSource(name, digest, lambda: (splits[0].load(), splits[1].load()), file)
    pairs = options.hard.kind == "pairs"
    negatives = NegativeFile.read(options.negatives, pairs)
    negatives.require_known_images(ids)
    home = Path(folder).expanduser()
    parts = [_CollectionWithNegatives(split, negatives, pairs, home, use) for split, use in zip(splits, USES, strict=True)]
    content += b"".join(part.identity() for part in parts)
    digest = hashlib.sha256(content).hexdigest()[:12]
    return TrainingSource(name, digest, lambda: (parts[0].load(), parts[1].load()), file)


@dataclass(frozen=True, eq=False)
class _CollectionPart:
    """A collection and the source of its regions; nothing is computed before `load`."""

    collection: Collection
    features: Mapping[str, Any]
    regions: Path | None

    def only(self, images: IntArray | None, most: int | None) -> _CollectionPart:
        """Keep the first `most` of these images that have captions, in the order of their ids."""
        linked = np.unique(self.collection.links[:, 0])
        selected = linked if images is None else linked[np.isin(linked, images)]
        selected = selected[np.argsort(self.collection.image_ids[selected], kind="stable")][:most]
        captions = np.unique(self.collection.links[np.isin(self.collection.links[:, 0], selected), 1])
        return _CollectionPart(self.collection.select(selected, captions), self.features, self.regions)

    def identity(self) -> bytes:
        """Everything that the training set depends on: texts, links, images, and the encoder's features of some of them."""
        collection, first_images = self.collection, self.only(None, PROBED_IMAGES)
        if self.regions is not None:
            images = RegionFile.open(self.regions).hash
        else:
            from crossmatch.train.data.region_feature_cache import hash_images

            images = repr(sorted(self.features.items())) + " ".join(hash_images(collection))
        return collection.fingerprint + collection.links.tobytes() + (images + first_images.load().digest).encode()

    def load(self) -> TrainingSet:
        collection = self.collection
        collection.require_texts()
        return TrainingSet(self.store(), collection.captions, collection.links)

    def store(self) -> ImageStore:
        collection, options = self.collection, dict(self.features)
        if self.regions is not None:
            return RegionFile.open(self.regions).select(collection.image_ids)
        if options.get("kind") == "pictures":  # prepared by another library
            prepared: ImageStore = options["prepare"](collection)
            return prepared
        if options.pop("kind", "regions") == "pixels":
            return PixelStore(_read_pixels(collection, int(options.get("side", 64))))
        from crossmatch.models.zoo.region_extractors import ExtractorSettings
        from crossmatch.train.data.region_feature_cache import collection_features

        return collection_features(collection, ExtractorSettings(**options))


@dataclass(frozen=True, eq=False)
class _CollectionWithNegatives:
    """The pairs of a collection that have hard negatives in a file."""

    plain: _CollectionPart
    file: NegativeFile
    pairs: bool
    home: Path  # of the collection
    use: str  # for messages

    def __post_init__(self) -> None:
        if len(self.rows) < 2:
            raise CrossmatchError(
                f"{self.file.path} has {len(self.rows)} rows for the {self.plain.collection.shape[0]:,} images to {self.use}; at "
                "least 2 are needed. Add rows, or name a validation collection: --validation FOLDER"
            )
        collection, true_pairs = self.plain.collection, set[tuple[str, str]]()
        for image, caption in collection.links.tolist():
            true_pairs.add((str(collection.image_ids[image]), " ".join(normalised_words(collection.captions[caption]))))
        for image_id, row in self.rows:
            if (image_id, " ".join(normalised_words(row.negative))) in true_pairs:
                raise CrossmatchError(
                    f"{row.where} has the negative caption {row.negative!r:.80}, which is a caption of {image_id!r}. Change it, or "
                    "remove the row."
                )

    @cached_property
    def rows(self) -> list[tuple[str, NegativeRow]]:
        return self.file.rows_of(self.plain.collection.image_ids.tolist())

    def identity(self) -> bytes:
        """Everything that the negatives depend on: the file, and its first images."""
        images = sample_bytes(self._negative_images(PROBED_IMAGES).store()) if self.pairs else b""
        return f"{self.file.digest}{self.pairs}".encode() + images

    def load(self) -> TrainingSet:
        plain = self.plain.load()
        number = {str(image_id): n for n, image_id in enumerate(self.plain.collection.image_ids)}
        captions, caption = append_texts(plain.captions, [row.caption for _, row in self.rows])
        links = np.stack([np.asarray([number[image_id] for image_id, _ in self.rows]), caption], axis=1)
        positives = TrainingSet(plain.store, captions, links)
        negatives = [row.negative for _, row in self.rows]
        if not self.pairs:
            return add_negatives(positives, links, negatives)
        extra = self._negative_images()
        position = {str(image_id): n for n, image_id in enumerate(extra.collection.image_ids)}
        position |= self._shared_images(extra, len(plain.store))
        images = np.asarray([position[row.negative_image] for _, row in self.rows])
        for n in np.flatnonzero(images + len(plain.store) == links[:, 0])[:1].tolist():
            image_id, row = self.rows[n]
            raise CrossmatchError(
                f"{row.where} has the negative image {row.negative_image!r}, which is the image {image_id!r} itself. Use another one."
            )
        return add_negatives(positives, links, negatives, extra.store(), images)

    def _shared_images(self, extra: _CollectionPart, count: int) -> dict[str, int]:
        """Negative images that are also images of the collection: their numbers minus `count`, thus negative."""
        ids = self.plain.collection.image_ids.tolist()
        if self.plain.regions is not None:
            number, identities = {str(image_id): n for n, image_id in enumerate(ids)}, list(map(str, extra.collection.image_ids))
        else:
            from crossmatch.train.data.region_feature_cache import hash_images

            number = {content: n for n, content in enumerate(hash_images(self.plain.collection))}
            identities = hash_images(extra.collection)
        extra_ids = map(str, extra.collection.image_ids)
        return {
            image_id: number[identity] - count
            for image_id, identity in zip(extra_ids, identities, strict=True)
            if identity in number
        }

    def _negative_images(self, most: int | None = None) -> _CollectionPart:
        """The first `most` negative images, each with its negative caption."""
        rows = list({row.negative_image: row for _, row in self.rows}.values())[:most]
        folders = self.file.path.parent, self.home
        open_image = None if self.plain.regions is not None else open_negative_images(rows, folders)
        collection = Collection.from_captions({row.negative_image: [row.negative] for row in rows}, open_image)
        return replace(self.plain, collection=collection)


USES = ("train on", "validate with")


def _read_folder(folder: str, options: DataOptions, features: Mapping[str, Any]) -> _CollectionPart:
    return _CollectionPart(load_collection_folder(Path(folder).expanduser()).collection, features, options.regions)


def _hold_out(collection: Collection, most: int) -> tuple[IntArray, IntArray]:
    """Split the images into training and validation images, at random among the sorted ids."""
    linked = np.unique(collection.links[:, 0])
    ordered = linked[np.argsort(collection.image_ids[linked], kind="stable")]
    count = min(most, max(2, round(HELD_OUT_SHARE * len(ordered))))
    if len(ordered) < count + 2:
        raise CrossmatchError(
            f"The collection has {len(ordered)} images with captions; at least 4 are needed, 2 of which validate. Add some, or name "
            "a validation collection: --validation FOLDER"
        )
    shuffled = np.random.default_rng(7).permutation(len(ordered))
    return ordered[np.sort(shuffled[count:])], ordered[np.sort(shuffled[:count])]


def _read_pixels(collection: Collection, side: int) -> NDArray[np.uint8]:
    out = np.empty((collection.shape[0], side, side, 3), dtype=np.uint8)
    for n in track(range(collection.shape[0]), "reading the images"):
        out[n] = resize_images(collection.open_images([n]), side)[0]
    return out


# -- SCAN's folder: train_ims.npy, train_caps.txt, dev_ims.npy, dev_caps.txt


def _open_precomp(name: str, features: Mapping[str, Any], options: DataOptions) -> TrainingSource:
    folder = Path(name).expanduser()
    splits = _precomp_split(folder, "train", options.images), _precomp_split(folder, "dev", options.validation_images)
    train, dev = (feature_dimensions(split.store) for split in splits)
    if train != dev:
        raise CrossmatchError(
            f"{folder / 'train_ims.npy'} has {train:,} numbers per region, dev_ims.npy has {dev:,}; they must be equal. Take both "
            "from the same release."
        )
    digest = hashlib.sha256("".join(split.digest for split in splits).encode()).hexdigest()[:12]
    return TrainingSource(f"precomp:{name}", digest, lambda: splits, file=folder.name)


def _precomp_split(folder: Path, split: str, most: int | None) -> TrainingSet:
    """Read a split as the released code of VSE++ and SCAN does: one caption per line, equally many for each image.

    In some splits each image is repeated for each of its captions; such an image counts once.
    """
    images, texts = folder / f"{split}_ims.npy", folder / f"{split}_caps.txt"
    missing = next((path for path in (folder, images, texts) if not path.exists()), None)
    if missing is not None:
        raise UsageError(
            f"{missing} does not exist. Expected train_ims.npy, train_caps.txt, dev_ims.npy and dev_caps.txt in one folder."
        )
    features, captions = _read_features(images), _read_captions(texts)
    if len(captions) < 2:
        raise CrossmatchError(f"{texts} has {len(captions)} captions; expected at least 2. Get it again.")
    if len(captions) % len(features):
        raise CrossmatchError(
            f"{images} has shape {features.shape} and {texts} has {len(captions):,} captions; expected equally many captions for "
            "each image. Take both from the same release."
        )
    repeats = _count_repeats(features) if len(features) == len(captions) else 1
    count = len(captions) // len(features) * repeats
    links = np.stack([np.arange(len(captions)) // count, np.arange(len(captions))], axis=1)
    whole = TrainingSet(ArrayStore(features[::repeats], str(images), repeats), tuple(captions), links)
    return whole if most is None else whole.only(np.arange(len(whole.store))[:most])


def _read_features(path: Path) -> NDArray[Any]:
    """Region features (images, regions, numbers) of a npy file, memory-mapped; images are checked when they are taken."""
    try:
        array = np.asanyarray(np.load(path, mmap_mode="r"))
    except (OSError, ValueError, EOFError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CrossmatchError(f"{path} cannot be read as npy ({reason:.150}). It is truncated or damaged: get it again.") from None
    if array.dtype.kind not in "fiu":
        raise CrossmatchError(f"{path} has dtype {array.dtype}; expected real numbers. Save the features as float32.")
    regions: NDArray[Any] = array[:, None, :] if array.ndim == 2 else array  # two axes: one vector per image
    if regions.ndim != 3 or not regions.size:
        raise CrossmatchError(
            f"{path} has shape {array.shape}; expected (images, regions, numbers), none of them 0. Extract the features again."
        )
    return regions


def _read_captions(path: Path) -> list[str]:
    """One caption per line."""
    captions = read_lines(path)
    blank = next((n for n, text in enumerate(captions) if not text.strip()), None)
    if blank is not None:
        raise CrossmatchError(
            f"{path}, line {blank + 1}: expected a caption, got an empty line. Take both files from the same release."
        )
    return captions


def _count_repeats(features: NDArray[Any]) -> int:
    """How often each image is repeated consecutively: as often as the first, if all checked images agree; else 1."""
    times = next((n for n in range(1, len(features)) if not np.array_equal(features[n], features[0])), len(features))
    checked = range(0, len(features) - times + 1, times * max(1, len(features) // CHECKED_IMAGES))
    is_repeated = all(np.array_equal(features[n], features[n + times - 1]) for n in checked)
    return times if is_repeated and len(features) % times == 0 else 1


SOURCES: Mapping[str, Callable[[str, Mapping[str, Any], DataOptions], TrainingSource]] = {
    "diorama": _open_diorama,
    "collection": _open_collection,
    "precomp": _open_precomp,
}
