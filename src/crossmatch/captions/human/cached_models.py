"""Caches for models: the same images and texts recur in every draw of references and in every table of a study."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from crossmatch.captions.caption_metric_table import parse_metric_names
from crossmatch.captions.clip_score import ImageTextEmbedder
from crossmatch.captions.corpus import ImageSource, open_image
from crossmatch.data.arrays import FloatArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.grounding import Grounder, Grounding, takes_image_ids

if TYPE_CHECKING:
    from PIL.Image import Image

CACHE_BYTES = 1 << 29  # the oldest arrays are dropped first, and computed again if needed
BATCH = 64  # images that are open at a time


@dataclass(frozen=True, eq=False)
class LazyImages:
    """Returns a `LazyImage` for an id instead of opening the image; a cached model opens it only if it is new."""

    images: ImageSource | None  # None if only ids are needed

    def __call__(self, image_id: str) -> LazyImage:
        return LazyImage(str(image_id), self)


@dataclass(frozen=True)
class LazyImage:
    """An image that is not opened yet. Two are equal if they have the same id and the same source."""

    image_id: str
    source: LazyImages

    def open(self) -> Image:
        if self.source.images is None:
            raise UsageError(f"there are no images, and a model needs image {self.image_id!r}. Name their folder: --images FOLDER")
        return open_image(self.source.images, self.image_id)


class ArrayCache:
    """A cache of arrays by key, limited in bytes.

    >>> cache = ArrayCache()
    >>> for keys in (["a", "bb", "a"], ["bb", "a"]):
    ...     print(cache.get(keys, lambda new: print("computes", new) or [np.array([float(len(text))]) for text in new]))
    computes ['a', 'bb']
    [array([1.]), array([2.]), array([1.])]
    [array([2.]), array([1.])]
    """

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self.max_bytes, self.used_bytes = max_bytes, 0
        self.arrays: dict[Hashable, FloatArray] = {}

    def get(self, keys: Sequence[Any], compute: Callable[[list[Any]], Sequence[FloatArray]]) -> list[FloatArray]:
        """The array of each key. Missing ones are computed in one call."""
        missing = list(dict.fromkeys(key for key in keys if key not in self.arrays))
        computed = dict(zip(missing, compute(missing), strict=True)) if missing else {}
        arrays = [self.arrays[key] if key in self.arrays else computed[key] for key in keys]
        for key, array in computed.items():
            self.arrays[key] = np.array(array)  # a copy: a row would keep its whole batch in memory
            self.used_bytes += array.nbytes
        while self.used_bytes > self.max_bytes:
            self.used_bytes -= self.arrays.pop(next(iter(self.arrays))).nbytes
        return arrays


@dataclass(frozen=True, eq=False)
class CachedEmbedder:
    """An embedder that embeds each text and each `LazyImage` once."""

    model: ImageTextEmbedder
    images: ArrayCache = field(default_factory=ArrayCache)
    texts: ArrayCache = field(default_factory=ArrayCache)

    @property
    def signature(self) -> str:
        return _signature(self.model)

    def embed_images(self, images: Sequence[LazyImage]) -> FloatArray:
        def embed(missing: list[LazyImage]) -> list[FloatArray]:
            return _rows(self.model.embed_images([image.open() for image in missing]), len(missing), "images")

        return np.stack(self.images.get(images, embed))

    def embed_texts(self, texts: Sequence[str]) -> FloatArray:
        return np.stack(self.texts.get(texts, lambda missing: _rows(self.model.embed_texts(missing), len(missing), "texts")))


@dataclass(frozen=True, eq=False)
class CachedGrounder:
    """A grounder that grounds each text in each `LazyImage` once. A model that takes ids gets those of the images."""

    model: Grounder
    pairs: ArrayCache = field(default_factory=ArrayCache)

    @property
    def signature(self) -> str:
        return _signature(self.model)

    def ground(self, images: Sequence[LazyImage], texts: Sequence[str]) -> Grounding:
        groundings = self.pairs.get(list(zip(images, texts, strict=True)), self._ground_pairs)
        regions = max((len(rows) for rows in groundings), default=0)
        padded = np.stack([np.pad(rows, ((0, regions - len(rows)), (0, 0)), constant_values=np.nan) for rows in groundings])
        return Grounding(padded[..., 0], padded[..., 1:] if padded.shape[2] > 1 else None)

    def _ground_pairs(self, pairs: list[tuple[LazyImage, str]]) -> list[FloatArray]:
        """The regions of each pair: the score in the first column and, if the grounder gives boxes, the box in the others."""
        by_id = takes_image_ids(self.model)
        opened: dict[LazyImage, Any] = {
            image: image.image_id if by_id else image.open() for image in dict.fromkeys(image for image, _ in pairs)
        }
        grounding = self.model.ground([opened[image] for image, _ in pairs], [text for _, text in pairs])
        if len(grounding) != len(pairs):
            raise CrossmatchError(
                f"ground(images, texts) must return one grounding per caption: got {len(grounding):,} for {len(pairs):,} captions."
            )
        rows = grounding.scores[..., None].astype(np.float64)
        rows = rows if grounding.boxes is None else np.concatenate([rows, grounding.boxes], axis=2)
        return [row[:regions] for row, regions in zip(rows, grounding.regions.tolist(), strict=True)]


def cache_models(resources: Mapping[str, Any]) -> dict[str, Any]:
    """The resources of metrics (`images`, `embedder`, `grounder`, …) with models that cache their results.

    If the models are cached already, nothing changes; so one cache can serve several tables of a study. Nor does it without images,
    unless the grounder takes ids instead.

    >>> class Model:
    ...     def embed_images(self, images): return print("embeds", images) or [[1.0]] * len(images)
    ...     def embed_texts(self, texts): return [[1.0]] * len(texts)
    >>> cached = cache_models({"images": {"7": "an image"}, "embedder": Model(), "frequencies": None})
    >>> for image_id in ("7", "7"):
    ...     cached["embedder"].embed_images([cached["images"](image_id)])
    embeds ['an image']
    array([[1.]])
    array([[1.]])
    """
    resources, images = dict(resources), resources.get("images")
    if isinstance(images, LazyImages) or (images is None and not takes_image_ids(resources.get("grounder"))):
        return resources
    wrappers: dict[str, Callable[[Any], Any]] = {
        "images": LazyImages, "embedder": CachedEmbedder, "grounder": CachedGrounder,
    }  # fmt: skip
    cached = {key: wrappers[key](value) if key in wrappers and value is not None else value for key, value in resources.items()}
    return {**cached, "images": LazyImages(images)}


def ground_in_advance(
    resources: Mapping[str, Any], names: Iterable[str], texts_by_image: Callable[[], Mapping[str, Iterable[str]]]
) -> None:
    """Ground all texts of each image together, so that each image is opened once.

    `resources` come from `cache_models`. Nothing happens if no metric needs a grounder, or if images or grounder are missing.
    """
    needs_grounder = any("grounder" in request.metric.needs for request in parse_metric_names(names).values())
    if not needs_grounder or resources.get("images") is None or resources.get("grounder") is None:
        return
    texts = texts_by_image()
    image_ids = list(texts)
    for start in range(0, len(image_ids), BATCH):
        batch = image_ids[start : start + BATCH]
        pairs = [(resources["images"](image_id), text) for image_id in batch for text in dict.fromkeys(texts[image_id])]
        resources["grounder"].ground(*map(list, zip(*pairs, strict=True)))


def _rows(embeddings: ArrayLike, count: int, kind: str) -> list[FloatArray]:
    rows = np.asarray(embeddings, dtype=np.float64)
    if rows.ndim != 2 or len(rows) != count:
        raise CrossmatchError(f"Expected embeddings of shape ({count}, d) for {count} {kind}, got {rows.shape}. Correct the model.")
    return list(rows)


def _signature(model: object) -> str:
    return str(getattr(model, "signature", type(model).__name__))
