"""Look-alike pairs: each image with the image whose captions are most similar (hu2019bison, sec. 3.1, stage 1).

An image is represented by the mean vector of all words of all its captions. The image is the positive, and its nearest neighbour by
cosine is the negative. The paper uses FastText vectors; any text encoder works here, and `bow` needs no download. Rows are items of
the study `bison-select`:

    {"id", "images": [positive, negative], "image_ids", "captions": of the positive, "caption_ids", "positive", "negative",
     "similarity", "neighbour": 1 for the nearest, 2 for the next …}

The paper reports 67,564 pairs of 40,504 images, more than one per image. In the released file most pairs occur in both roles, and
an image may be positive several times. So `roles="both"` follows the release, and `roles="query"` follows section 3.1.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crossmatch.build.nearest_neighbours import Neighbours, find_neighbours, find_neighbours_faiss, neighbour_recall
from crossmatch.build.step_files import Row, StepOutput, StepSpec, read_rows, rows_hash, write_step
from crossmatch.build.step_inputs import (
    captions_by_image,
    collection_hash,
    embed_captions,
    mean_caption_embeddings,
    model_signature,
    pair_id,
    pictures_hash,
    sort_by_id,
)
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.atomic_write import atomic_write
from crossmatch.data.io.image_loading import UnreadableImageError, hash_image, load_image
from crossmatch.data.io.progress import track
from crossmatch.data.scores import Embeddings
from crossmatch.models import make_model
from crossmatch.models.baselines.text_encoders import AveragedWordVectors, TfIdf
from crossmatch.models.embedding_pipeline import IMAGES_PER_CHECK, default_workers, prefetch

STEP = "lookalikes"
SKIPPED_FILE = "skipped.jsonl"
ROLES = {
    "query": "each image is positive once, with its neighbour as the negative",
    "once": "if two images are each other's neighbours, the first by id is the positive, and the pair occurs once",
    "both": "each pair occurs in both roles",
}
SEARCHES = ("exact", "faiss")
SkippedImages = list[tuple[str, str, str]]  # id, category of the reason, reason
BAG_OF_WORDS_MODELS = (TfIdf, AveragedWordVectors)  # all captions of an image can be embedded as one text


@dataclass(frozen=True)
class LookalikeOptions:
    """Options of the search for look-alike pairs, as recorded in the manifest.

    Attributes:
        roles: Which image of a pair is the positive. `query`: each image once, with its neighbour as the negative. `once`: if two
            images are each other's neighbours, only the first by id. `both`: each pair in both roles.
        neighbours: Number of neighbours that may become the negative, in turn, if earlier pairs were refused.
        search: `exact`, or `faiss` for large collections.
        pictures: Whether to open the pictures and skip those that do not open or equal an earlier one.
        captions: Whether to skip images whose captions equal those of an earlier image, because nothing tells the two apart.

    >>> LookalikeOptions(roles="once")                      # two images make at most one pair
    LookalikeOptions(roles='once', neighbours=1, search='exact', pictures=True, captions=True)
    """

    roles: str = "query"
    neighbours: int = 1
    search: str = "exact"
    pictures: bool = True
    captions: bool = True

    def __post_init__(self) -> None:
        if self.roles not in ROLES:
            raise UsageError(f"--roles must be one of {', '.join(ROLES)} (got {self.roles!r}).")
        if self.search not in SEARCHES:
            raise UsageError(f"--search must be one of {', '.join(SEARCHES)} (got {self.search!r}).")
        if self.neighbours < 1:
            raise UsageError(f"--neighbours must be at least 1 (got {self.neighbours}).")


def find_lookalikes(
    collection: Collection,
    output: Path,
    *,
    model: str | object = "bow",
    options: LookalikeOptions = LookalikeOptions(),
    refused: Iterable[str] = (),
    earlier: Sequence[Path] = (),
) -> dict[str, Any]:
    """Write the look-alike pairs of a collection into a folder.

    Args:
        collection: Images with captions.
        output: Folder of the step.
        model: A text encoder, or its name.
        options: Roles, number of neighbours, kind of search, what is skipped.
        refused: Ids of pairs that annotators refused because no caption tells the images apart; the next neighbour replaces them.
        earlier: Folders of earlier runs, whose pairs are not written again.

    Returns:
        The manifest.

    >>> from crossmatch import Diorama
    >>> from crossmatch.build import LookalikeOptions, find_lookalikes
    >>> data = Diorama.make("test", size="tiny").collection
    >>> manifest = find_lookalikes(data, folder / "pairs", model="tfidf", options=LookalikeOptions(roles="once"))
    >>> manifest["counts"], manifest["rows"]                # images in the search, and pairs found
    ({'images': 50}, 40)
    """
    data, encoder, refused_ids = sort_by_id(collection), make_model(model) if isinstance(model, str) else model, frozenset(refused)
    data.require_texts()
    inputs = {"collection": collection_hash(data), "vectors": model_signature(encoder)}
    inputs |= {"pictures": digest} if options.pictures and (digest := pictures_hash(data)) else {}
    inputs |= {f"earlier {n}": rows_hash(folder) for n, folder in enumerate(earlier)}
    inputs |= {"refused": hashlib.sha256("\n".join(sorted(refused_ids)).encode()).hexdigest()[:16]} if refused_ids else {}
    unit = "words of all captions" if isinstance(encoder, BAG_OF_WORDS_MODELS) else "captions"
    spec = StepSpec(STEP, inputs, {**asdict(options), "mean over": unit})
    excluded = refused_ids | {str(row["id"]) for folder in earlier for row in read_rows(folder, STEP)}

    def make_rows(step: StepOutput) -> list[Row]:
        return [row for row in _pair_rows(data, encoder, options, refused_ids, step) if row["id"] not in excluded]

    return write_step(output, spec, make_rows)


def _pair_rows(
    data: Collection, encoder: object, options: LookalikeOptions, refused: frozenset[str], step: StepOutput
) -> list[Row]:
    captions = _usable_images(data, options, step)
    if len(captions) < 2:
        skipped = step.folder / SKIPPED_FILE
        raise CrossmatchError(
            f"Only {len(captions)} of {data.shape[0]:,} images can be paired; at least two are needed. "
            + (f"See {skipped} for the reasons." if skipped.exists() else "Add images with captions.")
        )
    images = list(captions)
    neighbours = _search(embed_images_by_captions(data, encoder, captions), options, step)
    rows: dict[tuple[int, int], Row] = {}
    for n, image in enumerate(images):
        candidates = [
            (images[at], score) for at, score in zip(neighbours.item[n].tolist(), neighbours.score[n].tolist(), strict=True)
        ]
        rank = next(
            (k for k, (candidate, _) in enumerate(candidates) if not _is_refused(data, image, candidate, options, refused)), None
        )
        if rank is None:
            step.count("images without a neighbour left")
            continue
        negative, score = candidates[rank]
        for pair in ((image, negative), (negative, image))[: 1 + (options.roles == "both")]:
            if pair not in rows and not (options.roles == "once" and pair[::-1] in rows):
                rows[pair] = _row(data, pair, captions, score, rank + 1)
    return list(rows.values())


def _is_refused(data: Collection, image: int, candidate: int, options: LookalikeOptions, refused: frozenset[str]) -> bool:
    pairs = ((image, candidate), (candidate, image))[: 1 + (options.roles == "once")]
    return any(pair_id(*(str(data.image_ids[at]) for at in pair)) in refused for pair in pairs)


def _row(data: Collection, pair: tuple[int, int], captions: Mapping[int, Sequence[int]], score: float, rank: int) -> Row:
    images = [str(data.image_ids[at]) for at in pair]
    of_positive = captions[pair[0]]
    return {
        "id": pair_id(*images), "images": images, "image_ids": images, "captions": data.texts(of_positive),
        "caption_ids": [str(data.caption_ids[at]) for at in of_positive], "positive": images[0], "negative": images[1],
        "similarity": round(score, 6), "neighbour": rank,
    }  # fmt: skip


def embed_images_by_captions(data: Collection, encoder: object, captions: Mapping[int, Sequence[int]]) -> Embeddings:
    """Represent each image by the mean word vector of its captions.

        v(i) = 1/|W_i| · Σ_{w∈W_i} e(w),    W_i: all words of all captions of image i, with repetitions

    A model without word vectors embeds whole captions, and the image is their mean.

    >>> pets = Collection.from_captions({"a": ["red cat", "cat"], "b": ["red"], "c": ["dog"]})
    >>> (embed_images_by_captions(pets, TfIdf(), {0: [0, 1], 1: [2]}).image_vectors > 0).astype(int)      # cat, red, dog
    array([[1, 1, 0],
           [0, 1, 0]])
    """
    if not isinstance(encoder, BAG_OF_WORDS_MODELS):
        return mean_caption_embeddings(encoder, data, captions)
    joined = [" ".join(data.texts(positions)) for positions in captions.values()]
    vectors, similarity = embed_captions(encoder, joined, data.texts())
    return Embeddings(data.image_ids[list(captions)], vectors.astype("float32"), None, None, similarity)


def _search(vectors: Embeddings, options: LookalikeOptions, step: StepOutput) -> Neighbours:
    k = min(options.neighbours, vectors.shape[0] - 1)
    if options.search == "exact":
        return find_neighbours(vectors, "image", k)
    neighbours = find_neighbours_faiss(vectors, "image", k)
    step.count("neighbours found of 1,000", round(1000 * neighbour_recall(vectors, "image", neighbours)))
    return neighbours


# -- skipped images


def _usable_images(data: Collection, options: LookalikeOptions, step: StepOutput) -> dict[int, list[int]]:
    """Captions of the images that can be paired; skipped images are counted and listed in a file."""
    skipped: SkippedImages = []
    captions = {image: positions for image, positions in enumerate(captions_by_image(data)) if positions}
    for image in set(range(data.shape[0])) - set(captions):
        skipped.append((str(data.image_ids[image]), "without captions", "it has no captions"))
    if options.pictures and data.open_image is not None:
        captions = _with_distinct_pictures(data, captions, skipped)
    if options.captions:
        captions = _with_distinct_captions(data, captions, skipped)
    for _, category, _ in skipped:
        step.count(f"images {category}")
    step.count("images", len(captions))
    if skipped:
        with atomic_write(step.folder / SKIPPED_FILE) as file:
            for image_id, _, reason in sorted(skipped):
                file.write((json.dumps({"image": image_id, "why": reason}, ensure_ascii=False) + "\n").encode())
    return captions


def _with_distinct_captions(data: Collection, captions: Mapping[int, list[int]], skipped: SkippedImages) -> dict[int, list[int]]:
    """Keep the first of several images with the same captions."""
    distinct, first = {}, dict[tuple[str, ...], str]()
    for image, positions in captions.items():
        texts, image_id = tuple(sorted(data.texts(positions))), str(data.image_ids[image])
        if first.setdefault(texts, image_id) == image_id:
            distinct[image] = positions
        else:
            skipped.append((image_id, "with the captions of another", f"its captions are those of {first[texts]!r}"))
    return distinct


def _with_distinct_pictures(data: Collection, captions: Mapping[int, list[int]], skipped: SkippedImages) -> dict[int, list[int]]:
    """Keep images whose pictures open, and the first of several equal pictures."""
    distinct, first = {}, dict[bytes, str]()
    for image, digest in zip(captions, _fingerprints(data, list(captions)), strict=True):
        image_id = str(data.image_ids[image])
        if isinstance(digest, UnreadableImageError):
            skipped.append((image_id, "that do not open", digest.reason))
        elif digest is None or first.setdefault(digest, image_id) == image_id:
            distinct[image] = captions[image]
        else:
            skipped.append((image_id, "with the picture of another", f"its picture is that of {first[digest]!r}"))
    if captions and not distinct:
        raise CrossmatchError(
            f"None of the {len(captions):,} pictures can be opened. Repair them, or use --no-pictures. Last: {skipped[-1][2]}"
        )
    return distinct


def _fingerprints(data: Collection, images: Sequence[int]) -> Iterator[bytes | UnreadableImageError | None]:
    """Hash of each picture; the error of a picture that does not open; None if its pixels cannot be read."""
    opener = data.image_opener()

    def hash_pictures(batch: Sequence[int]) -> list[bytes | UnreadableImageError | None]:
        digests: list[bytes | UnreadableImageError | None] = []
        for image in batch:
            try:
                digests.append(hash_image(load_image(opener, str(data.image_ids[image]))))
            except UnreadableImageError as error:
                digests.append(error)
        return digests

    batches = [images[at : at + IMAGES_PER_CHECK] for at in range(0, len(images), IMAGES_PER_CHECK)]
    for digests in track(prefetch(hash_pictures, batches, default_workers(opener)), "looking at pictures", len(batches)):
        yield from digests
