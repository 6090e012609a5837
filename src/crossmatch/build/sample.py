"""Pairs to be rated, of graded likeness: the indirect sampling of Crisscrossed Captions (parekh2021cxc, sec. 2).

Most pairs of a collection have nothing in common. So what is alike in one modality picks the pairs of the other, over the links
between images and their captions: captions of images that look alike, and images whose captions read alike. People's ratings of
these then pick pairs of an image and a caption, most of all those that fit each other though the collection does not link them.

| study | rows, by their `sampling_method` |
| :-- | :-- |
| `sts` | `c2c_isim`: a caption each, drawn by lot, of the images most alike by S^V; `c2c_cocaption`: as many pairs of one image |
| `sis` | `i2i_csim`: the images whose captions are most alike by S^C, the mean over the captions of an image |
| `sits` | `c2i_intrasim`: from the ratings of both, the highest first, half from each; `c2i_original`: all links |

Each pair is there once, whichever of the two came first. What is drawn by lot depends on the seed and on the ids alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.build.files import Asked, Output, Row, written
from crossmatch.build.material import (
    collection_hash,
    groups_of,
    in_order,
    mean_captions,
    named_models,
    pair_id,
    seen_images,
    signature_of,
)
from crossmatch.build.nearest import nearest
from crossmatch.build.rated import Rated, mean_ratings
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.scores import Embeddings
from crossmatch.diorama.dice import Dice
from crossmatch.models import make_model
from crossmatch.models.cache import ScoreCache

STEP = "sample"
TOP = 5  # the most similar items, as the paper takes them
NEW_FOR_EACH_IMAGE = 4  # pairs of an image and a caption beside the links: about as many as the released files have
TEXT_MODELS = ("minilm", "bow")  # the paper: Universal Sentence Encoder and GloVe


def sample_sts(
    collection: Collection,
    output: Path,
    *,
    images: str | object,
    top: int = TOP,
    seed: int = 0,
    cache: ScoreCache | None = None,
) -> dict[str, Any]:
    """Write pairs of captions to be rated; `images` is a model that embeds images. The manifest."""
    held, model = in_order(collection), make_model(images) if isinstance(images, str) else images
    _require_top(top)
    held.texts()  # says what is missing
    asked = Asked(
        STEP, {"collection": collection_hash(held), "images": signature_of(model)}, {"study": "sts", "top": top}, seed
    )  # fmt: skip

    def rows(made: Output) -> Iterator[Row]:
        groups = _captioned(held)
        alike = _alike(_only(seen_images(model, held, cache), list(groups)), top)
        for row in _once(_other_modality(held, groups, alike, seed), _co_captions(held, groups, top, seed)):
            made.count(row["sampling_method"])
            yield row

    return written(output, asked, rows)


def sample_sis(
    collection: Collection, output: Path, *, texts: Mapping[str, object] | Sequence[str] = TEXT_MODELS, top: int = TOP
) -> dict[str, Any]:
    """Write pairs of images to be rated; each of the text models picks the five most alike for itself. The manifest."""
    held, models = in_order(collection), named_models(texts)
    _require_top(top)
    held.texts()
    if not models:
        raise WrongWords("no text model was named to compare captions with. Name one, such as bow.")
    signatures = {f"texts {name}": signature_of(model) for name, model in models.items()}
    asked = Asked(STEP, {"collection": collection_hash(held), **signatures}, {"study": "sis", "top": top})

    def rows(made: Output) -> Iterator[Row]:
        groups = _captioned(held)
        found: dict[tuple[int, int], dict[str, float]] = {}
        for name, model in models.items():
            for pair, score in _alike(mean_captions(model, held, groups), top).items():
                found.setdefault(pair, {})[name] = round(score, 6)
        places = list(groups)
        for (a, b), similarity in sorted(found.items()):
            names = [str(held.image_ids[places[at]]) for at in (a, b)]
            made.count("i2i_csim")
            yield {
                "id": pair_id(*names), "images": names, "image_ids": names, "sampling_method": "i2i_csim", "similarity": similarity,
            }  # fmt: skip

    return written(output, asked, rows)


def sample_sits(
    collection: Collection,
    output: Path,
    *,
    captions: Iterable[Rated],
    images: Iterable[Rated],
    number: int | None = None,
    drawn: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Write pairs of an image and a caption to be rated: `number` new ones, by default four for each image, and all links.

    `captions` and `images` are the rated pairs of both kinds (`rated.read_rated`). Of a pair of captions each goes with the image
    of the other; `drawn` takes any caption of its image instead, as the released files of the paper do. The manifest.
    """
    held = in_order(collection)
    held.texts()
    rated = mean_ratings(captions, held, "caption"), mean_ratings(images, held, "image")
    wanted = NEW_FOR_EACH_IMAGE * held.shape[0] if number is None else number
    if wanted < 0:
        raise WrongWords(f"{wanted} new pairs were asked for; zero or more was expected.")
    hashes = {name: _hash(said) for name, said in zip(("captions", "images"), rated, strict=True)}
    asked = Asked(
        STEP, {"collection": collection_hash(held), **hashes}, {"study": "sits", "number": wanted, "drawn": drawn}, seed
    )  # fmt: skip

    def rows(made: Output) -> Iterator[Row]:
        links = {(int(i), int(c)) for i, c in held.links}
        for image, caption, because in _selected(held, *rated, wanted, drawn, seed):
            made.count("from captions" if "c2c" in because else "from images")
            yield _fit(held, image, caption, "c2i_intrasim") | because
        for image, caption in sorted(links):
            made.count("c2i_original")
            yield _fit(held, image, caption, "c2i_original")

    return written(output, asked, rows)


# -- pairs of one kind


def _require_top(top: int) -> None:
    if top < 1:
        raise WrongWords(f"the {top} most similar were asked for; at least one was expected.")


def _captioned(held: Collection) -> dict[int, list[int]]:
    """The images that have captions, with them."""
    groups = {image: captions for image, captions in enumerate(groups_of(held)) if captions}
    if len(groups) < 2:
        raise CrossmatchError(f"{len(groups)} of {held.shape[0]:,} images have captions; a pair needs two. Add captions.")
    return groups


def _only(said: Embeddings, images: list[int]) -> Embeddings:
    return said.permuted({"image": np.asarray(images, dtype=np.int64)})


def _alike(said: Embeddings, top: int) -> dict[tuple[int, int], float]:
    """The pairs of every image with the `top` most similar others, each pair once, the lower position first."""
    found = nearest(said, "image", min(top, said.shape[0] - 1))
    pairs = {}
    for n, (others, scores) in enumerate(zip(found.item.tolist(), found.score.tolist(), strict=True)):
        for other, score in zip(others, scores, strict=True):
            pairs[min(n, other), max(n, other)] = score
    return pairs


def _other_modality(
    held: Collection, groups: Mapping[int, list[int]], alike: Mapping[tuple[int, int], float], seed: int
) -> Iterator[Row]:
    """For each pair of images a caption of either, drawn by lot, but never one caption twice."""
    places = list(groups)
    for (a, b), score in sorted(alike.items()):
        names = [str(held.image_ids[places[at]]) for at in (a, b)]
        choices = [(c, d) for c in groups[places[a]] for d in groups[places[b]] if c != d]
        if choices:
            pair = Dice(seed, "c2c_isim", *names).pick(choices)
            yield _two(held, pair, "c2c_isim") | {"of": names, "similarity": round(score, 6)}


def _co_captions(held: Collection, groups: Mapping[int, list[int]], top: int, seed: int) -> Iterator[Row]:
    """For each image `top` pairs of its captions: neighbours in a ring in which they stand by lot, then those two apart, …

    With five captions and five pairs each caption is in two of them, as in the released files.
    """
    for image, captions in groups.items():
        name = str(held.image_ids[image])
        ring = Dice(seed, "c2c_cocaption", name).shuffled(captions)
        for pair in ring_pairs(len(ring))[:top]:
            yield _two(held, (ring[pair[0]], ring[pair[1]]), "c2c_cocaption") | {"of": [name, name]}


def ring_pairs(n: int) -> list[tuple[int, int]]:
    """All pairs of n things in a ring, neighbours first.

    >>> ring_pairs(5)
    [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (1, 3), (2, 4), (3, 0), (4, 1)]
    """
    pairs = {frozenset((at, (at + step) % n)): (at, (at + step) % n) for step in range(n - 1, 0, -1) for at in range(n)}
    return sorted(pairs.values(), key=lambda pair: ((pair[1] - pair[0]) % n, pair[0]))


def _two(held: Collection, pair: Sequence[int], method: str) -> Row:
    ids = [str(held.caption_ids[at]) for at in pair]
    return {"id": pair_id(*ids), "captions": held.texts(pair), "caption_ids": ids, "sampling_method": method}


def _once(*rows: Iterable[Row]) -> Iterator[Row]:
    """Each pair of captions once, whichever stands first."""
    seen: set[frozenset[str]] = set()
    for row in (row for some in rows for row in some):
        pair = frozenset(row["caption_ids"])
        if pair not in seen:
            seen.add(pair)
            yield row


# -- pairs of an image and a caption


def _hash(said: Mapping[tuple[int, int], float]) -> str:
    return hashlib.sha256(repr(sorted(said.items())).encode()).hexdigest()[:16]


def _fit(held: Collection, image: int, caption: int, method: str) -> Row:
    ids = str(held.image_ids[image]), str(held.caption_ids[caption])
    (text,) = held.texts([caption])
    return {"id": pair_id(*ids), "image_id": ids[0], "caption_id": ids[1], "caption": text, "sampling_method": method}


Because = dict[str, Any]


def _selected(
    held: Collection,
    captions: Mapping[tuple[int, int], float],
    images: Mapping[tuple[int, int], float],
    number: int,
    drawn: bool,
    seed: int,
) -> Iterator[tuple[int, int, Because]]:
    """The new pairs: the first half by the ratings of captions, then the rest by those of images; nothing twice, and no link."""
    taken = {(int(i), int(c)) for i, c in held.links}
    half = (number + 1) // 2
    for share, source in ((half, _from_captions(held, captions, drawn, seed)), (number - half, _from_images(held, images, seed))):
        left = share
        for image, caption, because in source:
            if not left:
                break
            if (image, caption) not in taken:
                taken.add((image, caption))
                left -= 1
                yield image, caption, because


def _ranked(rated: Mapping[tuple[int, int], float]) -> list[tuple[tuple[int, int], float]]:
    """The highest rating first; equal ones in the order of the ids."""
    return sorted(rated.items(), key=lambda one: (-one[1], one[0]))


def _from_captions(
    held: Collection, rated: Mapping[tuple[int, int], float], drawn: bool, seed: int
) -> Iterator[tuple[int, int, Because]]:
    """Of two captions of different images each goes with the images of the other."""
    groups = groups_of(held)
    owners: list[list[int]] = [[] for _ in range(held.shape[1])]
    for image, caption in held.links.tolist():
        owners[caption].append(image)
    for pair, rating in _ranked(rated):
        for near, far in (pair, pair[::-1]):  # (c_k, i_j), then (c_j, i_k)
            for image in sorted(owners[near]):
                caption = far
                if drawn and owners[far]:
                    dice = Dice(seed, "c2c", str(held.caption_ids[near]), str(held.caption_ids[far]))
                    caption = dice.pick(groups[dice.pick(sorted(owners[far]))])
                yield image, caption, {"c2c": [str(held.caption_ids[at]) for at in pair], "rating": rating}


def _from_images(held: Collection, rated: Mapping[tuple[int, int], float], seed: int) -> Iterator[tuple[int, int, Because]]:
    """Of two images each goes with a caption of the other, drawn by lot."""
    groups = groups_of(held)
    for pair, rating in _ranked(rated):
        names = [str(held.image_ids[at]) for at in pair]
        for near, far in (pair, pair[::-1]):
            if groups[far]:
                caption = Dice(seed, "i2i", str(held.image_ids[near]), str(held.image_ids[far])).pick(groups[far])
                yield near, caption, {"i2i": names, "rating": rating}
