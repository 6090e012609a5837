"""The data that `--data` names: a collection, or the embedded world (diorama). Finds images and captions by id."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossmatch.benchmarks.formats.image_caption_records import FileSlice, ImageOpener
from crossmatch.benchmarks.formats.image_decoding import decode_image
from crossmatch.benchmarks.formats.image_folder import require_inside
from crossmatch.benchmarks.formats.trial_files import find_image_file
from crossmatch.benchmarks.user_collection import parse_collection_task
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UnusableItemError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.settings import suggest_name
from crossmatch.diorama.world import SIZES, SPLITS, Diorama

if TYPE_CHECKING:
    from PIL.Image import Image

COLLECTION, WORLD = "collection", "diorama"
SPLIT = "test"
PIXELS = 512  # side of a drawn image; two of them fit beside each other on a page


@dataclass(frozen=True, eq=False)
class Source:
    """Images and captions by id. `data_name` is the value of --data; it is empty for a source without images and captions."""

    data_name: str = ""
    images: frozenset[str] = frozenset()
    texts: Mapping[str, str] = field(default_factory=dict)  # caption id to text
    ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # text to caption ids
    open_image: Callable[[str], Image] | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, data_name: str, collection: Collection, open_image: Callable[[str], Image] | None, **origin: Any) -> Source:
        ids: dict[str, list[str]] = defaultdict(list)
        texts = dict(zip(collection.caption_ids.tolist(), collection.captions, strict=bool(collection.captions)))
        for caption_id, text in texts.items():
            ids[text].append(caption_id)
        ids_by_text = {text: tuple(caption_ids) for text, caption_ids in ids.items()}
        images = frozenset(collection.image_ids.tolist())
        return cls(data_name, images, texts, ids_by_text, open_image, {"data": data_name, **origin})


def source_of(data_name: str) -> Source:
    """Load the value of `--data`: `collection:FOLDER`, `diorama` or `diorama:SIZE`. An empty value gives an empty source.

    >>> source_of("diorama:tiny").texts["test-00000#4"]
    'Three things outdoors.'
    >>> source_of("dioramma")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: --data dioramma: expected collection:FOLDER or diorama:SIZE. Did you mean 'diorama'?
    """
    if not data_name:
        return Source()
    if is_world(data_name):
        world = world_of(data_name)
        return Source.of(data_name, world.collection, _image_drawer(world), digest=world.digest())
    collection = _load_collection(data_name, skip_bad=True).collection  # without empty captions
    return Source.of(data_name, collection, collection.open_image)


def _load_collection(data_name: str, skip_bad: bool = False) -> Retrieval:
    kind, colon, rest = data_name.partition(":")
    if kind != COLLECTION or not rest:
        hint = suggest_name(kind, (COLLECTION, WORLD)) if not colon or kind != COLLECTION else "Add the folder after the colon."
        raise UsageError(f"--data {data_name}: expected collection:FOLDER or diorama:SIZE. {hint}")
    task, options = parse_collection_task(rest)
    unknown = next((key for key in options if key not in task.options), None)
    if unknown is not None:
        raise UsageError(f"--data {data_name}: a collection has no option {unknown!r}. {suggest_name(unknown, task.options)}")
    retrieval = task.load(skip_bad, **options)
    assert isinstance(retrieval, Retrieval)
    return retrieval


def collection_of(data_name: str) -> Collection:
    """The images and captions of a value of `--data`. An unusable item is an error."""
    try:
        return retrieval_of(data_name).collection
    except UnusableItemError as error:
        raise CrossmatchError(error.reason) from None


def retrieval_of(data_name: str, skip_bad: bool = False) -> Retrieval:
    """The images, captions and links of a value of `--data`; `skip_bad` leaves out empty captions and reports them."""
    if is_world(data_name):
        collection = world_of(data_name).collection
        return Retrieval(collection, {"links": Judgements.from_links(collection)})
    return _load_collection(data_name, skip_bad)


def is_world(data_name: object) -> bool:
    """Whether a value of `--data` names the embedded world."""
    return isinstance(data_name, str) and data_name.partition(":")[0] == WORLD


def world_of(data_name: str) -> Diorama:
    """The embedded world of `diorama`, `diorama:SIZE` or `diorama:SIZE/SPLIT`; the default split is test.

    >>> world_of("diorama:tiny/val").split
    'val'
    """
    size, split = size_and_split(data_name)
    return Diorama.make(split, size=size)


def size_and_split(data_name: str) -> tuple[str, str]:
    """The size and split of a value of `--data` that names the embedded world.

    >>> size_and_split("diorama:tiny/val"), size_and_split("diorama")
    (('tiny', 'val'), ('default', 'test'))
    """
    _, colon, rest = data_name.partition(":")
    size, slash, split = rest.partition("/")
    if (colon or slash) and (size not in SIZES or (slash and split not in SPLITS)):
        part, value, allowed = ("split", split, SPLITS) if size in SIZES else ("size", size, SIZES)
        raise UsageError(f"--data {data_name}: diorama has no {part} {value!r}. {suggest_name(value, allowed)}")
    return size or "default", split or SPLIT


def _image_drawer(world: Diorama) -> Callable[[str], Image]:
    places = {str(name): n for n, name in enumerate(world.collection.image_ids)}
    return lambda name: world.picture(places[name], PIXELS)


# -- the images of a file of items


@dataclass(frozen=True, eq=False)
class ItemImages:
    """Opens an image of the collection, or else a file beside the items."""

    source: Source
    files: ImageOpener

    @property
    def concurrent(self) -> bool:
        return bool(getattr(self.source.open_image, "concurrent", self.source.open_image is None))

    def __call__(self, image: str) -> Image:
        if image not in self.source.images:
            return self.files(image)
        if self.source.open_image is None:
            raise CrossmatchError(f"{self.source.data_name} has no image file of {image!r}. Choose a collection with image files.")
        return self.source.open_image(image)


def find_item_images(where_by_image: Mapping[str, str], folder: Path, source: Source) -> ItemImages:
    """Find the images of a file of items: each is in the collection, or a file in the folder or in its `images/`.

    Args:
        where_by_image: For each image the file, line and item that names it, for error messages.
        folder: The folder of the file.
        source: The collection.
    """
    files: dict[str, FileSlice] = {}
    missing: list[str] = []
    for name, where in where_by_image.items():
        if name in source.images:
            continue
        if not name:
            raise CrossmatchError(f"{where} has an image without a name. Add the name.")
        require_inside(name, where, folder)
        path = find_image_file(name, folder)
        if path is None:
            missing.append(name)
        else:
            files[name] = FileSlice(path)
    if missing:
        name = missing[0]
        places = f"in {folder} or its images/" + (f", nor in {source.data_name}" if source.data_name else "")
        more = f" ({len(missing):,} images are missing)" if len(missing) > 1 else ""
        close = get_close_matches(name, source.images, n=1, cutoff=0.8)
        hint = f"Did you mean {close[0]!r}?" if close else "Add the file, correct the name, or choose another collection (--data)."
        raise CrossmatchError(f"{where_by_image[name]} has the image {name!r:.80}, which is not {places}{more}. {hint}")
    return ItemImages(source, ImageOpener(files, decode_image))
