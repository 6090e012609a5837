"""A benchmark is a declaration: what to load, which metrics to report, which counts must come out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

import numpy as np

from crossmatch.core.arrays import IntArray
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.core.pairs import Similarity
from crossmatch.core.plausible import Plausible
from crossmatch.core.skipped import Skipped
from crossmatch.core.trials import Trials

Judged = Judgements | Plausible


@dataclass(frozen=True, eq=False)
class Retrieval:
    """A collection to search and one or more sets of judgements to score by, each under its name.

    `skipped` are items that were left out on loading, because they cannot be used and that was asked for.
    """

    collection: Collection
    judgements: Mapping[str, Judged]
    skipped: tuple[Skipped, ...] = ()

    def __post_init__(self) -> None:
        if not self.judgements:
            raise CrossmatchError("a retrieval benchmark needs judgements. Give at least Judgements.from_links(collection).")
        for name, said in self.judgements.items():
            expected = tuple(len(self.collection.ids(side)) for side in sides_of(said))
            if said.shape != expected:
                raise CrossmatchError(f"judgements {name!r} are {said.shape}, but the collection is {expected}.")

    def reordered(self, image: IntArray, caption: IntArray, collection: Collection | None = None) -> Retrieval:
        """The items at these positions, in this order, and the judgements among them."""
        at = {"image": image, "caption": caption}
        found = {name: said.reordered(*(at[side] for side in sides_of(said))) for name, said in self.judgements.items()}
        kept = {name: said for name, said in found.items() if said is not None}
        if not kept:
            raise WrongWords(f"no positive is left among {len(image)} images. Raise --limit.")
        return Retrieval(collection or self.collection.reordered(image, caption), kept, self.skipped)


def sides_of(said: Judged) -> tuple[str, str]:
    """What the rows and the columns are."""
    return said.sides if isinstance(said, Judgements) else ("image", "caption")


Loaded = Retrieval | Similarity | Trials


def in_order(data: Loaded) -> Loaded:
    """Data in canonical order: the order of evaluation, and of the hash."""
    if isinstance(data, Trials):
        return data.chosen(np.argsort(data.ids, kind="stable"))
    return data.reordered(*canonical_order(data.collection))


def canonical_order(held: Collection) -> tuple[IntArray, IntArray]:
    """The order in which images and captions are evaluated: by id, so that nothing depends on the order they came in."""
    return np.argsort(held.image_ids, kind="stable"), np.argsort(held.caption_ids, kind="stable")


def limited(data: Loaded, limit: int, seed: int) -> Loaded:
    """A seeded part of the data, for a quick look: so many trials, or images with the captions linked to them."""
    rng = np.random.default_rng([seed, 7])
    size, what = (len(data.ids), "trials") if isinstance(data, Trials) else (data.collection.shape[0], "images")
    if limit >= size:
        raise WrongWords(f"--limit {limit} leaves nothing out of {size:,} {what}. Leave the option away, or take fewer.")
    if isinstance(data, Trials):
        data = data.chosen(np.argsort(data.ids, kind="stable"))
        return data.chosen(np.sort(rng.permutation(len(data.ids))[:limit]))
    held = data.collection
    image = np.argsort(held.image_ids, kind="stable")[rng.permutation(held.shape[0])[:limit]]
    return data.reordered(image, np.unique(held.links[np.isin(held.links[:, 0], image), 1]))


def without_images(data: Loaded, bad: Container[str]) -> Loaded:
    """The data without these images: no trial that shows one of them, no link or judgement of them, no caption of them alone.

    A caption that belongs to no image at all is a distractor, and stays.
    """
    if isinstance(data, Trials):
        good = np.array([not any(name in bad for name in row) for row in data.images.tolist()])
        if not good.any():
            raise CrossmatchError(f"each of the {len(good):,} trials shows a picture that cannot be used. Mend the pictures.")
        return data if good.all() else data.chosen(np.flatnonzero(good))
    held = data.collection
    good = np.array([name not in bad for name in held.image_ids.tolist()])
    if good.all():
        return data
    linked, kept = (np.zeros(held.shape[1], dtype=bool) for _ in range(2))
    linked[held.links[:, 1]] = True
    kept[held.links[good[held.links[:, 0]], 1]] = True
    try:
        return data.reordered(np.flatnonzero(good), np.flatnonzero(kept | ~linked))
    except WrongWords:
        raise CrossmatchError(
            f"nothing is left to score without the {(~good).sum():,} of {len(good):,} pictures that cannot be used. Mend them."
        ) from None


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
    categories: tuple[str, ...] = ()  # of trials, where they are known: any other is a mistake
    checks: tuple[str, ...] = ()  # options that check the data and change nothing
    skips: bool = False  # `load(…, bad="skip")` leaves out captions that are empty

    def loaded(self, skip_bad: bool = False, /, **options: str) -> Loaded:
        """The data, with the counts checked where the defaults were kept. `skip_bad` leaves out empty captions, if it `skips`."""
        unknown = set(options) - set(self.options)
        if unknown:
            takes = ", ".join(self.options) or "none"
            raise WrongWords(f"{self.name} has no option {sorted(unknown)[0]!r}; it takes: {takes}.")
        data = self.load(**{**self.options, **options}, **({"bad": "skip"} if skip_bad and self.skips else {}))
        if self.categories and isinstance(data, Trials):
            _require_known(data, self.categories, self.name)
        if {**self.options, **options} == dict(self.options):
            for key, count in self.expect.items():
                found = _count(data, key)
                if found != count:
                    raise CrossmatchError(
                        f"{self.name} {key} has {found}, but {count} must come out. The data are not the official ones."
                    )
        return data


def _require_known(trials: Trials, categories: tuple[str, ...], name: str) -> None:
    strange = np.flatnonzero(~np.isin(trials.categories, categories))
    if len(strange):
        raise CrossmatchError(
            f"trial {str(trials.ids[strange[0]])!r} of {name} is of the category {str(trials.categories[strange[0]])!r}; known are "
            f"{', '.join(categories)}. Mend it."
        )


def _count(data: Loaded, key: str) -> Count:
    if isinstance(data, Trials):
        return Count(len(data.ids), len(data.ids))
    if isinstance(data, Similarity):
        return Count(len(np.unique(data.query)), len(data.query))
    direction, judged = key.split("/")
    said = data.judgements[judged]
    if isinstance(said, Plausible):
        found = said.positives(direction)
        return Count(found.shape[1], int(found[0].sum()))
    return Count(len(said.listed(direction).query), said.count)


def data_hash(data: Loaded, ordered: bool = False) -> str:
    """Eight hexadecimal digits that change with any id, caption, link or grade, but not with their order.

    `ordered` says that the data are in canonical order already.
    """
    data = data if ordered else in_order(data)
    digest = hashlib.sha256()
    if isinstance(data, Trials):
        told = (data.ids, data.images.ravel(), data.captions.ravel(), data.categories)
        texts = b"".join("\0".join(text.tolist()).encode() + b"\1" for text in told)
        arrays: list[np.ndarray] = [np.asarray(data.shape)]
    else:
        held = data.collection
        texts = held.fingerprint
        arrays = [held.links[np.lexsort(held.links.T[::-1])]]
        judged = data.judgements if isinstance(data, Retrieval) else {data.direction: data.said}
        for name, said in judged.items():
            if isinstance(said, Plausible):
                digest.update(f"{name} {said.zetas} {said.caps}".encode())
                arrays += [said.labels[said.rows], said.labels[said.columns]]
                continue
            unusual = f" {said.kind}" if said.kind != "image-caption" else f" {said.only}" if said.only else ""
            digest.update(f"{name} {said.positive} {said.complete}{unusual}".encode())
            order = np.lexsort((said.columns, said.rows))
            arrays += [said.rows[order], said.columns[order], said.grades[order], *(said.folds or ()), np.sort(said.absent)]
    digest.update(texts)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:8]
