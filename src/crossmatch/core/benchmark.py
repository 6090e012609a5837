"""A benchmark is a declaration: what to load, which metrics to report, which counts must come out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.core.trials import Trials


@dataclass(frozen=True, eq=False)
class Retrieval:
    """A collection to search and one or more sets of judgements to score by, each under its name."""

    collection: Collection
    judgements: Mapping[str, Judgements]

    def __post_init__(self) -> None:
        if not self.judgements:
            raise CrossmatchError("a retrieval benchmark needs judgements. Give at least Judgements.from_links(collection).")
        for name, said in self.judgements.items():
            if said.shape != self.collection.shape:
                raise CrossmatchError(f"judgements {name!r} are {said.shape}, but the collection is {self.collection.shape}.")

    def in_order(self) -> Retrieval:
        """The same data with images and captions sorted by id, so that nothing can depend on the order they came in."""
        held = self.collection
        image, caption = np.argsort(held.image_ids, kind="stable"), np.argsort(held.caption_ids, kind="stable")
        if (np.diff(image) > 0).all() and (np.diff(caption) > 0).all():
            return self
        row, column = np.argsort(image), np.argsort(caption)
        links = np.stack([row[held.links[:, 0]], column[held.links[:, 1]]], axis=1)
        sorted_ = Collection(
            held.image_ids[image], held.caption_ids[caption], tuple(held.captions[n] for n in caption),
            links[np.lexsort(links.T[::-1])], held.open_image,
        )  # fmt: skip
        judgements = {
            name: replace(said, rows=row[said.rows], columns=column[said.columns]) for name, said in self.judgements.items()
        }
        return Retrieval(sorted_, judgements)


Loaded = Retrieval | Trials


def in_order(data: Loaded) -> Loaded:
    """Data sorted by id: the order of evaluation, and of the hash."""
    if isinstance(data, Retrieval):
        return data.in_order()
    order = np.argsort(data.ids, kind="stable")
    return Trials(data.ids[order], data.images[order], data.captions[order], data.categories[order], data.open_image)


@dataclass(frozen=True)
class Count:
    """What must come out of the data."""

    queries: int
    positives: int


@dataclass(frozen=True)
class Benchmark:
    """A named declaration. `load` gives the data, and takes the options that `options` names with their defaults.

    `expect` maps `direction/judgements` (or `trials`) to the counts that must come out for the default options.
    """

    name: str
    about: str
    load: Callable[..., Loaded]
    metrics: tuple[str, ...]
    directions: tuple[str, ...] = ("i2t", "t2i")
    options: Mapping[str, str] = field(default_factory=dict)
    expect: Mapping[str, Count] = field(default_factory=dict)
    licence: str = ""
    cite: str = ""

    def loaded(self, **options: str) -> Loaded:
        """The data, with the counts checked where the defaults were kept."""
        unknown = set(options) - set(self.options)
        if unknown:
            takes = ", ".join(self.options) or "none"
            raise WrongWords(f"{self.name} has no option {sorted(unknown)[0]!r}; it takes: {takes}.")
        data = self.load(**{**self.options, **options})
        if {**self.options, **options} == dict(self.options):
            for key, count in self.expect.items():
                found = _count(data, key)
                if found != count:
                    raise CrossmatchError(
                        f"{self.name} {key} has {found}, but {count} must come out. The data are not the official ones."
                    )
        return data


def _count(data: Loaded, key: str) -> Count:
    if isinstance(data, Trials):
        return Count(len(data.ids), len(data.ids))
    direction, judged = key.split("/")
    said = data.judgements[judged]
    return Count(len(said.listed(direction).query), said.count)


def data_hash(data: Loaded) -> str:
    """Eight hexadecimal digits that change with any id, caption, link or grade, but not with their order."""
    data = in_order(data)
    digest = hashlib.sha256()
    if isinstance(data, Trials):
        texts = [data.ids, data.images.ravel(), data.captions.ravel(), data.categories]
        arrays: list[np.ndarray] = [np.asarray(data.shape)]
    else:
        held = data.collection
        texts = [held.image_ids, held.caption_ids, np.asarray(held.captions)]
        arrays = [held.links[np.lexsort(held.links.T[::-1])]]
        for name, said in data.judgements.items():
            digest.update(f"{name} {said.positive} {said.complete}".encode())
            order = np.lexsort((said.columns, said.rows))
            arrays += [said.rows[order], said.columns[order], said.grades[order]]
    for text in texts:
        digest.update("\0".join(text.tolist()).encode() + b"\1")
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:8]
