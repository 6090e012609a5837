"""Where pictures and captions are found by their ids: a collection that the user names, or the embedded world."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossmatch.benchmarks.folder import folder_task
from crossmatch.benchmarks.formats.gathered import Pictures, Span, decoded
from crossmatch.benchmarks.formats.images import refuse_escape
from crossmatch.benchmarks.formats.trials import place_of
from crossmatch.core.benchmark import Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.declared import nearest
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.core.skipped import Unusable
from crossmatch.diorama.world import SIZES, SPLITS, Diorama

if TYPE_CHECKING:
    from PIL.Image import Image

COLLECTION, WORLD = "collection", "diorama"
SPLIT = "test"
PIXELS = 512  # of a drawn picture: large enough to see everything, small enough for two beside each other


@dataclass(frozen=True, eq=False)
class Source:
    """Pictures and captions by id. `words` is how the user named it; an empty one knows nothing."""

    words: str = ""
    images: frozenset[str] = frozenset()
    texts: Mapping[str, str] = field(default_factory=dict)  # of each caption id
    ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # of each caption
    open_image: Callable[[str], Image] | None = None
    origin: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, words: str, collection: Collection, open_image: Callable[[str], Image] | None, **origin: Any) -> Source:
        ids: dict[str, list[str]] = defaultdict(list)
        texts = dict(zip(collection.caption_ids.tolist(), collection.captions, strict=bool(collection.captions)))
        for name, text in texts.items():
            ids[text].append(name)
        told = {"data": words, **origin}
        return cls(words, frozenset(collection.image_ids.tolist()), texts, {k: tuple(v) for k, v in ids.items()}, open_image, told)


def source_of(words: str) -> Source:
    """What `--data WORDS` names: `collection:FOLDER`, `diorama`, or `diorama:SIZE`; no words name nothing.

    >>> source_of("diorama:tiny").texts["test-00000#4"]
    'Three things outdoors.'
    >>> source_of("dioramma")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.WrongWords: --data dioramma: collection:FOLDER or diorama:SIZE was expected. Did you mean 'diorama'?
    """
    if not words:
        return Source()
    if is_world(words):
        world = world_of(words)
        return Source.of(words, world.collection, drawn(world), digest=world.digest())
    found = _loaded(words, skip_bad=True).collection  # an empty caption is shown to nobody
    return Source.of(words, found, found.open_image)


def _loaded(words: str, skip_bad: bool = False) -> Retrieval:
    kind, colon, rest = words.partition(":")
    if kind != COLLECTION or not rest:
        hint = nearest(kind, (COLLECTION, WORLD)) if not colon or kind != COLLECTION else "Name the folder behind the colon."
        raise WrongWords(f"--data {words}: collection:FOLDER or diorama:SIZE was expected. {hint}")
    task, options = folder_task(rest)
    strange = next((key for key in options if key not in task.options), None)
    if strange is not None:
        raise WrongWords(f"--data {words}: a collection has no option {strange!r}. {nearest(strange, task.options)}")
    found = task.loaded(skip_bad, **options)
    assert isinstance(found, Retrieval)
    return found


def collection_of(words: str) -> Collection:
    """The images and captions that `--data WORDS` names, for who can leave nothing out."""
    try:
        return retrieval_of(words).collection
    except Unusable as error:
        raise CrossmatchError(error.why) from None


def retrieval_of(words: str, skip_bad: bool = False) -> Retrieval:
    """The same with its links; `skip_bad` leaves out captions that are empty, and tells which."""
    if is_world(words):
        held = world_of(words).collection
        return Retrieval(held, {"links": Judgements.from_links(held)})
    return _loaded(words, skip_bad)


def is_world(words: object) -> bool:
    """Whether these words name the embedded world."""
    return isinstance(words, str) and words.partition(":")[0] == WORLD


def world_of(words: str) -> Diorama:
    """The embedded world by its words: `diorama`, `diorama:SIZE`, or `diorama:SIZE/SPLIT`; the test split, unless another is named.

    >>> world_of("diorama:tiny/val").split
    'val'
    """
    size, split = size_and_split(words)
    return Diorama.make(split, size=size)


def size_and_split(words: str) -> tuple[str, str]:
    """Which part of the embedded world these words name.

    >>> size_and_split("diorama:tiny/val"), size_and_split("diorama")
    (('tiny', 'val'), ('default', 'test'))
    """
    _, colon, rest = words.partition(":")
    size, slash, split = rest.partition("/")
    if (colon or slash) and (size not in SIZES or (slash and split not in SPLITS)):
        wrong, known = (split, SPLITS) if size in SIZES else (size, SIZES)
        raise WrongWords(
            f"--data {words}: the world has no {'split' if size in SIZES else 'size'} {wrong!r}. {nearest(wrong, known)}"
        )
    return size or "default", split or SPLIT


def drawn(world: Diorama) -> Callable[[str], Image]:
    """Draws the picture of an id of the world."""
    places = {str(name): n for n, name in enumerate(world.collection.image_ids)}
    return lambda name: world.picture(places[name], PIXELS)


# -- pictures that a file names


@dataclass(frozen=True, eq=False)
class Either:
    """Opens an image of the collection, or else a file beside the items."""

    source: Source
    files: Pictures

    @property
    def concurrent(self) -> bool:
        return bool(getattr(self.source.open_image, "concurrent", self.source.open_image is None))

    def __call__(self, image: str) -> Image:
        if image not in self.source.images:
            return self.files(image)
        if self.source.open_image is None:
            raise CrossmatchError(
                f"image {image!r} is known to {self.source.words} by name alone. Name a collection with pictures."
            )
        return self.source.open_image(image)


def opener_of(named: Mapping[str, str], folder: Path, source: Source) -> Either:
    """Who opens the images that a file names: each is in the collection, or a file in the folder or in its `images/`.

    `named` says where each of them is named, for messages.
    """
    places: dict[str, Span] = {}
    absent: list[str] = []
    for name, where in named.items():
        if name in source.images:
            continue
        if not name:
            raise CrossmatchError(f"{where} has an image without a name. Name it.")
        refuse_escape(name, where, folder)
        place = place_of(name, folder)
        if place is None:
            absent.append(name)
        else:
            places[name] = Span(place)
    if absent:
        raise _absent(absent[0], named[absent[0]], len(absent), folder, source)
    return Either(source, Pictures(places, decoded))


def _absent(name: str, where: str, number: int, folder: Path, source: Source) -> CrossmatchError:
    beside = f"in {folder} or its images/" + (f", nor in {source.words}" if source.words else "")
    near = get_close_matches(name, source.images, n=1, cutoff=0.8)
    more = f" ({number:,} images are missing)" if number > 1 else ""
    hint = f"Did you mean {near[0]!r}?" if near else "Put it there, mend the name, or name a collection that has it (--data)."
    return CrossmatchError(f"{where} has the image {name!r:.80}, which is not {beside}{more}. {hint}")
