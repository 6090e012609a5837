"""Pairs of graded similarity for people to rate: the indirect sampling of Crisscrossed Captions (parekh2021cxc, sec. 2).

Most pairs of a collection have nothing in common. Therefore similarity in one modality selects the pairs of the other, through the
links between images and captions: captions of similar images, and images with similar captions. The ratings of these pairs then
select image-caption pairs, in particular pairs that match although the collection does not link them.

| study | rows, by `sampling_method` |
| :-- | :-- |
| `sts` | `c2c_isim`: one random caption of each of two similar images (S^V); `c2c_cocaption`: as many pairs of one image |
| `sis` | `i2i_csim`: images with similar captions by S^C, the mean over the captions of an image |
| `sits` | `c2i_intrasim`: from the ratings of both, half from each; `c2i_original`: all links |

Each unordered pair occurs once. Random choices depend on the seed and the ids only. docs/decisions/0023 says what the released
files show about the selection for `sits`.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.build.nearest_neighbours import find_neighbours
from crossmatch.build.rating_files import PairRating, mean_ratings
from crossmatch.build.step_files import Row, StepOutput, StepSpec, write_step
from crossmatch.build.step_inputs import (
    captions_by_image,
    collection_hash,
    embed_collection_images,
    load_models,
    mean_caption_embeddings,
    model_signature,
    pair_id,
    sort_by_id,
)
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.scores import Embeddings
from crossmatch.diorama.random_choices import Dice
from crossmatch.models import make_model
from crossmatch.models.cache import Cache

STEP = "sample"
TOP = 5  # similar items per query, as in the paper
NEW_PER_IMAGE = 4  # unlinked image-caption pairs per image, two from each kind of rating, as in the released files
TEXT_MODELS = ("minilm", "bow")  # the paper uses the Universal Sentence Encoder and GloVe

Positions = tuple[int, int]
Ratings = Mapping[Positions, float]
Origin = dict[str, Any]  # the rated pair that led to an image-caption pair


def sample_sts(
    collection: Collection,
    output: Path,
    *,
    image_model: str | object,
    top: int = TOP,
    seed: int = 0,
    cache: Cache | None = None,
) -> dict[str, Any]:
    """Write pairs of captions to rate (STS).

    Args:
        collection: Images with captions.
        output: Folder of the step.
        image_model: A model that embeds images, or its name.
        top: Number of similar images per image, and of caption pairs per image.
        seed: Seed of the random choice of captions.
        cache: Cache of image embeddings.

    Returns:
        The manifest.

    >>> from crossmatch import Diorama
    >>> data = Diorama.make("test", size="tiny").collection
    >>> sample_sts(data, folder / "sts", image_model="random", top=2)["counts"]      # pairs of similar images, and of one image
    {'c2c_isim': 70, 'c2c_cocaption': 100}
    """
    data, model = sort_by_id(collection), make_model(image_model) if isinstance(image_model, str) else image_model
    _check_top(top)
    data.require_texts()
    inputs = {"collection": collection_hash(data), "images": model_signature(model)}

    def make_rows(step: StepOutput) -> list[Row]:
        captions = _captioned_images(data)
        embeddings = embed_collection_images(model, data, cache).reorder({"image": np.asarray(list(captions), dtype=np.int64)})
        similar = _similar_pairs(embeddings, top)
        rows: dict[frozenset[str], Row] = {}  # the first row of each pair
        for row in (*_pairs_of_similar_images(data, captions, similar, seed), *_pairs_of_one_image(data, captions, top, seed)):
            rows.setdefault(frozenset(row["caption_ids"]), row)
        for row in rows.values():
            step.count(row["sampling_method"])
        return list(rows.values())

    return write_step(output, StepSpec(STEP, inputs, {"study": "sts", "top": top}, seed), make_rows)


def sample_sis(
    collection: Collection, output: Path, *, text_models: Mapping[str, object] | Sequence[str] = TEXT_MODELS, top: int = TOP
) -> dict[str, Any]:
    """Write pairs of images to rate (SIS): the `top` images with the most similar captions, by each text model.

    Args:
        collection: Images with captions.
        output: Folder of the step.
        text_models: Names of text models, or models by name.
        top: Number of similar images per image and model.

    Returns:
        The manifest.

    >>> from crossmatch import Diorama
    >>> data = Diorama.make("test", size="tiny").collection
    >>> sample_sis(data, folder / "sis", text_models=["tfidf"], top=2)["counts"]
    {'i2i_csim': 74}
    """
    data, models = sort_by_id(collection), load_models(text_models)
    _check_top(top)
    data.require_texts()
    if not models:
        raise UsageError("--texts: no text model is named. Name at least one, such as bow.")
    inputs = {"collection": collection_hash(data)} | {f"texts {name}": model_signature(model) for name, model in models.items()}

    def make_rows(step: StepOutput) -> list[Row]:
        captions = _captioned_images(data)
        similarities: dict[Positions, dict[str, float]] = {}
        for name, model in models.items():
            for pair, score in _similar_pairs(mean_caption_embeddings(model, data, captions), top).items():
                similarities.setdefault(pair, {})[name] = round(score, 6)
        images, rows = list(captions), []
        for pair, similarity in sorted(similarities.items()):
            ids = [str(data.image_ids[at]) for at in _in_random_order(data, *(images[at] for at in pair))]
            row = {"id": pair_id(*ids), "images": ids, "image_ids": ids, "sampling_method": "i2i_csim", "similarity": similarity}
            rows.append(row)
        if rows:
            step.count("i2i_csim", len(rows))
        return rows

    return write_step(output, StepSpec(STEP, inputs, {"study": "sis", "top": top}), make_rows)


def sample_sits(
    collection: Collection,
    output: Path,
    *,
    caption_ratings: Iterable[PairRating],
    image_ratings: Iterable[PairRating],
    number: int | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Write image-caption pairs to rate (SITS): new pairs selected by ratings, and all links.

    A rated pair of images (i_j, i_k), or of captions of these images, gives a new pair of i_j and a random caption of i_k. In each
    of two passes over the images, every image takes the rated pair that contains it and has the highest rating, rounded to whole
    grades; ties are random, and no rated pair is taken twice in a pass. The passes for captions come first.

    Args:
        collection: Images with captions.
        output: Folder of the step.
        caption_ratings: Rated pairs of captions, in the order in which they were sampled.
        image_ratings: Rated pairs of images, in the order in which they were sampled.
        number: Number of new pairs; by default four per image. It sets the number of passes.
        seed: Seed of the random choices.

    Returns:
        The manifest.

    >>> from crossmatch import Diorama
    >>> data = Diorama.make("test", size="tiny").collection
    >>> captions = [("test-00000#0", "test-00001#0", 4.0)]     # two ids and a rating, as people gave it in the studies
    >>> images = [("test-00002", "test-00003", 4.5)]           # `sts` and `sis`
    >>> sample_sits(data, folder / "sits", caption_ratings=captions, image_ratings=images)["counts"]
    {'from captions': 2, 'from images': 2, 'c2i_original': 250}
    """
    data = sort_by_id(collection)
    data.require_texts()
    of_captions, of_images = mean_ratings(caption_ratings, data, "caption"), mean_ratings(image_ratings, data, "image")
    new_pairs = NEW_PER_IMAGE * data.shape[0] if number is None else number
    if new_pairs < 0:
        raise UsageError(f"--number must be 0 or more (got {new_pairs}).")
    inputs = {"collection": collection_hash(data), "captions": _ratings_hash(of_captions), "images": _ratings_hash(of_images)}
    options = {"study": "sits", "number": new_pairs}

    def make_rows(step: StepOutput) -> list[Row]:
        rows: list[Row] = []
        sources = _image_pairs_of_captions(data, of_captions), _image_pairs(data, of_images)
        for image, caption, origin in _select_new_pairs(data, sources, new_pairs, seed):
            step.count("from captions" if "c2c" in origin else "from images")
            rows.append(_image_caption_row(data, image, caption, "c2i_intrasim") | origin)
        for image, caption in sorted({(int(i), int(c)) for i, c in data.links}):
            step.count("c2i_original")
            rows.append(_image_caption_row(data, image, caption, "c2i_original"))
        return rows

    return write_step(output, StepSpec(STEP, inputs, options, seed), make_rows)


# -- pairs of captions, pairs of images


def _check_top(top: int) -> None:
    if top < 1:
        raise UsageError(f"--top must be at least 1 (got {top}).")


def _captioned_images(data: Collection) -> dict[int, list[int]]:
    """Images that have captions, with the positions of these."""
    captions = {image: positions for image, positions in enumerate(captions_by_image(data)) if positions}
    if len(captions) < 2:
        raise CrossmatchError(f"Only {len(captions)} of {data.shape[0]:,} images have captions; a pair needs two. Add captions.")
    return captions


def _similar_pairs(embeddings: Embeddings, top: int) -> dict[Positions, float]:
    """Pairs of each image with its `top` most similar others, each once, lower position first."""
    neighbours = find_neighbours(embeddings, "image", min(top, embeddings.shape[0] - 1))
    pairs = {}
    for query, (items, scores) in enumerate(zip(neighbours.item.tolist(), neighbours.score.tolist(), strict=True)):
        for item, score in zip(items, scores, strict=True):
            pairs[min(query, item), max(query, item)] = score
    return pairs


def _in_random_order(data: Collection, first: int, second: int) -> Positions:
    """Two images in an order that depends on their ids only. It matters for `sits`: the first gets a caption of the second."""
    is_swapped = Dice("order", str(data.image_ids[first]), str(data.image_ids[second])).chance(50)
    return (second, first) if is_swapped else (first, second)


def _pairs_of_similar_images(
    data: Collection, captions: Mapping[int, list[int]], similar: Mapping[Positions, float], seed: int
) -> Iterator[Row]:
    """For each pair of images, one random caption of each; never the same caption twice."""
    images = list(captions)
    for (a, b), score in sorted(similar.items()):
        near, far = _in_random_order(data, images[a], images[b])
        ids = [str(data.image_ids[at]) for at in (near, far)]
        choices = [(c, d) for c in captions[near] for d in captions[far] if c != d]
        if choices:
            pair = Dice(seed, "c2c_isim", *ids).pick(choices)
            yield _caption_pair_row(data, pair, "c2c_isim") | {"of": ids, "similarity": round(score, 6)}


def _pairs_of_one_image(data: Collection, captions: Mapping[int, list[int]], top: int, seed: int) -> Iterator[Row]:
    """For each image, `top` pairs of its captions: neighbours in a random ring, then those two apart, and so on.

    With five captions and five pairs each caption occurs in two pairs, as in the released files.
    """
    for image, positions in captions.items():
        image_id = str(data.image_ids[image])
        ring = Dice(seed, "c2c_cocaption", image_id).shuffled(positions)
        for a, b in ring_pairs(len(ring))[:top]:
            yield _caption_pair_row(data, (ring[a], ring[b]), "c2c_cocaption") | {"of": [image_id, image_id]}


def ring_pairs(n: int) -> list[tuple[int, int]]:
    """All pairs of n positions on a ring, neighbours first.

    >>> ring_pairs(5)
    [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (1, 3), (2, 4), (3, 0), (4, 1)]
    """
    pairs = {frozenset((at, (at + step) % n)): (at, (at + step) % n) for step in range(n - 1, 0, -1) for at in range(n)}
    return sorted(pairs.values(), key=lambda pair: ((pair[1] - pair[0]) % n, pair[0]))


def _caption_pair_row(data: Collection, pair: Sequence[int], method: str) -> Row:
    ids = [str(data.caption_ids[at]) for at in pair]
    return {"id": pair_id(*ids), "captions": data.texts(pair), "caption_ids": ids, "sampling_method": method}


# -- image-caption pairs


def _ratings_hash(ratings: Ratings) -> str:
    return hashlib.sha256(repr(sorted(ratings.items())).encode()).hexdigest()[:16]


def _image_caption_row(data: Collection, image: int, caption: int, method: str) -> Row:
    ids = str(data.image_ids[image]), str(data.caption_ids[caption])
    (text,) = data.texts([caption])
    return {"id": pair_id(*ids), "image_id": ids[0], "caption_id": ids[1], "caption": text, "sampling_method": method}


@dataclass(frozen=True)
class RatedImages:
    """Two images whose similarity people rated, directly or by two captions: the first gets a caption of the second."""

    near: int
    far: int
    rating: float
    origin: Origin

    @property
    def whole_grade(self) -> int:
        """The rating, rounded to a whole grade, half up."""
        return math.floor(self.rating + 0.5)


def _image_pairs(data: Collection, ratings: Ratings) -> list[RatedImages]:
    ids = data.image_ids.tolist()
    return [RatedImages(a, b, rating, {"i2i": [ids[a], ids[b]], "rating": rating}) for (a, b), rating in ratings.items()]


def _image_pairs_of_captions(data: Collection, ratings: Ratings) -> list[RatedImages]:
    """The images of rated captions; of several pairs of captions of the same images, the highest rated one counts."""
    ids = data.caption_ids.tolist()
    images_of: list[list[int]] = [[] for _ in range(data.shape[1])]
    for image, caption in data.links.tolist():
        images_of[caption].append(image)
    pairs: dict[Positions, RatedImages] = {}
    for (a, b), rating in ratings.items():
        for near, far in ((i, k) for i in images_of[a] for k in images_of[b] if i != k):
            if (near, far) not in pairs or rating > pairs[near, far].rating:
                pairs[near, far] = RatedImages(near, far, rating, {"c2c": [ids[a], ids[b]], "rating": rating})
    return list(pairs.values())


def _select_new_pairs(
    data: Collection, sources: Sequence[Sequence[RatedImages]], number: int, seed: int
) -> Iterator[tuple[int, int, Origin]]:
    """Half of the pairs from the first source, the rest from the second; no pair twice, and no link."""
    taken = {(int(i), int(c)) for i, c in data.links}
    half = (number + 1) // 2
    for source, (quota, rated) in enumerate(zip((half, number - half), sources, strict=True)):
        passes = math.ceil(quota / data.shape[0])
        remaining = quota
        for pass_number in range(passes):
            in_pass = list(_take_one_per_image(data, rated, taken, (seed, source, pass_number)))[:remaining]
            taken |= {(pair.near, caption) for pair, caption in in_pass}
            remaining -= len(in_pass)
            yield from ((pair.near, caption, pair.origin) for pair, caption in in_pass)


def _take_one_per_image(
    data: Collection, rated: Sequence[RatedImages], taken: AbstractSet[Positions], seed: tuple[int, ...]
) -> Iterator[tuple[RatedImages, int]]:
    """One pass: each image, in random order, takes its best rated pair that is still free and whose drawn caption is new to it."""
    captions, ids = captions_by_image(data), data.image_ids.tolist()
    pairs_of: dict[int, list[tuple[RatedImages, int]]] = defaultdict(list)
    for pair in rated:
        if captions[pair.far]:
            drawn = Dice(*seed, "caption", ids[pair.near], ids[pair.far]).pick(captions[pair.far])
            pairs_of[pair.near].append((pair, drawn))
            pairs_of[pair.far].append((pair, drawn))
    used: set[Positions] = set()  # rated pairs
    chosen: set[Positions] = set()  # pairs of an image and a caption
    for image in Dice(*seed, "order").shuffled(sorted(pairs_of)):
        free = [
            (pair, caption)
            for pair, caption in Dice(*seed, "ties", ids[image]).shuffled(pairs_of[image])
            if (pair.near, pair.far) not in used and (pair.near, caption) not in taken and (pair.near, caption) not in chosen
        ]
        if free:
            pair, caption = max(free, key=lambda entry: entry[0].whole_grade)
            used.add((pair.near, pair.far))
            chosen.add((pair.near, caption))
            yield pair, caption
