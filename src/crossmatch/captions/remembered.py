"""Models that remember what they saw: the same picture and text come again with every draw of references, and in every table."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from crossmatch.captions.clip_score import Embedder
from crossmatch.captions.pictures import Images, picture
from crossmatch.captions.table import chosen
from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.grounding import Grounder, Grounding

if TYPE_CHECKING:
    from PIL.Image import Image

KEPT = 1 << 29  # bytes that a memory holds; the oldest go first, and are computed again if need be
BATCH = 64  # pictures that are open at a time


@dataclass(frozen=True, eq=False)
class Pictures:
    """Gives, instead of the picture of an id, its name on this shelf; a model that remembers opens it only to see something new."""

    images: Images

    def __call__(self, name: str) -> Picture:
        return Picture(str(name), self)


@dataclass(frozen=True)
class Picture:
    """A picture that is not yet opened. Equal if of the same id and the same shelf."""

    name: str
    shelf: Pictures

    def open(self) -> Image:
        return picture(self.shelf.images, self.name)


class Memory:
    """Arrays by what they are of, at most so many bytes.

    >>> memory = Memory()
    >>> for asked in (["a", "bb", "a"], ["bb", "a"]):
    ...     print(memory.of(asked, lambda new: print("computes", new) or [np.array([float(len(text))]) for text in new]))
    computes ['a', 'bb']
    [array([1.]), array([2.]), array([1.])]
    [array([2.]), array([1.])]
    """

    def __init__(self, most: int = KEPT) -> None:
        self.most, self.held = most, 0
        self.known: dict[Hashable, FloatArray] = {}

    def of(self, asked: Sequence[Any], compute: Callable[[list[Any]], Sequence[FloatArray]]) -> list[FloatArray]:
        """One array for each; what is not known is computed in one call, each once."""
        new = list(dict.fromkeys(key for key in asked if key not in self.known))
        fresh = dict(zip(new, compute(new), strict=True)) if new else {}
        found = [self.known[key] if key in self.known else fresh[key] for key in asked]
        for key, array in fresh.items():
            self.known[key] = np.array(array)  # a copy: a row would keep its whole batch
            self.held += array.nbytes
        while self.held > self.most:
            self.held -= self.known.pop(next(iter(self.known))).nbytes
        return found


@dataclass(frozen=True, eq=False)
class RememberedEmbedder:
    """An embedder that sees each text, and each picture of `Pictures`, once."""

    model: Embedder
    pictures: Memory = field(default_factory=Memory)
    texts: Memory = field(default_factory=Memory)

    @property
    def signature(self) -> str:
        return _signature(self.model)

    def embed_images(self, images: Sequence[Picture]) -> FloatArray:
        return np.stack(
            self.pictures.of(images, lambda new: _rows(self.model.embed_images([one.open() for one in new]), len(new), "pictures"))
        )

    def embed_texts(self, texts: Sequence[str]) -> FloatArray:
        return np.stack(self.texts.of(texts, lambda new: _rows(self.model.embed_texts(new), len(new), "texts")))


@dataclass(frozen=True, eq=False)
class RememberedGrounder:
    """A grounder that sees each text with each picture of `Pictures` once."""

    model: Grounder
    pairs: Memory = field(default_factory=Memory)

    @property
    def signature(self) -> str:
        return _signature(self.model)

    def ground(self, images: Sequence[Picture], texts: Sequence[str]) -> Grounding:
        found = self.pairs.of(list(zip(images, texts, strict=True)), self._ground)
        most = max((len(one) for one in found), default=0)
        padded = np.stack([np.pad(one, ((0, most - len(one)), (0, 0)), constant_values=np.nan) for one in found])
        return Grounding(padded[..., 0], padded[..., 1:] if padded.shape[2] > 1 else None)

    def _ground(self, new: list[tuple[Picture, str]]) -> list[FloatArray]:
        """Of each pair its regions: the score in the first column, and the box in others where the grounder has them."""
        opened = {one: one.open() for one in dict.fromkeys(one for one, _ in new)}
        said = self.model.ground([opened[one] for one, _ in new], [text for _, text in new])
        if len(said) != len(new):
            raise CrossmatchError(
                f"ground(images, texts) gave {len(said):,} groundings for {len(new):,} captions. Give one for each."
            )
        whole = said.scores[..., None].astype(np.float64)
        whole = whole if said.boxes is None else np.concatenate([whole, said.boxes], axis=2)
        return [row[:regions] for row, regions in zip(whole, said.regions.tolist(), strict=True)]


def remembered(given: Mapping[str, Any]) -> dict[str, Any]:
    """What metrics are given (`images`, `embedder`, `grounder`, …), with models that remember, as long as the result is kept.

    Without pictures, and where it was done before, nothing changes; so one memory can serve several tables of one study.

    >>> class Model:
    ...     def embed_images(self, images): return print("sees", images) or [[1.0]] * len(images)
    ...     def embed_texts(self, texts): return [[1.0]] * len(texts)
    >>> found = remembered({"images": {"7": "a picture"}, "embedder": Model(), "frequencies": None})
    >>> for name in ("7", "7"):
    ...     found["embedder"].embed_images([found["images"](name)])
    sees ['a picture']
    array([[1.]])
    array([[1.]])
    """
    if given.get("images") is None or isinstance(given["images"], Pictures):
        return dict(given)
    wrapped: dict[str, Callable[[Any], Any]] = {
        "images": Pictures, "embedder": RememberedEmbedder, "grounder": RememberedGrounder,
    }  # fmt: skip
    return {key: wrapped[key](value) if key in wrapped and value is not None else value for key, value in given.items()}


def ground_ahead(given: Mapping[str, Any], names: Iterable[str], texts: Callable[[], Mapping[str, Iterable[str]]]) -> None:
    """Ground all texts of each picture together, so that it is opened once, whenever they are asked for later.

    `given` is from `remembered`; nothing happens where none of the metrics of these names grounds, or something is missing.
    """
    needed = any("grounder" in one.metric.needs for one in chosen(names).values())
    if not needed or given.get("images") is None or given.get("grounder") is None:
        return
    said = texts()
    pictures = list(said)
    for at in range(0, len(pictures), BATCH):
        pairs = [(given["images"](name), text) for name in pictures[at : at + BATCH] for text in dict.fromkeys(said[name])]
        given["grounder"].ground(*map(list, zip(*pairs, strict=True)))


def _rows(found: ArrayLike, count: int, what: str) -> list[FloatArray]:
    rows = np.asarray(found, dtype=np.float64)
    if rows.ndim != 2 or len(rows) != count:
        raise CrossmatchError(
            f"{count} {what} gave embeddings of shape {rows.shape}; one row for each, as long as the others, was expected. "
            "Mend the model."
        )
    return list(rows)


def _signature(model: object) -> str:
    return str(getattr(model, "signature", type(model).__name__))
