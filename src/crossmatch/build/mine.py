"""Look-alike images: each with the one whose captions are most like its own (hu2019bison, sec. 3.1, stage 1).

An image is the mean of the vectors of all words of all its captions; its nearest neighbour by cosine becomes the negative, the
image itself the positive. The paper takes FastText's vectors; here any text encoder will do, and `bow` is the bag of words that
comes with a package. Rows are items of the study `bison-select`:

    {"id", "images": [positive, negative], "image_ids", "captions": of the positive, "caption_ids", "positive", "negative",
     "similarity", "neighbour": 1 for the nearest, 2 for the next …}

The paper tells of 67,564 pairs of 40,504 images, more than one for each; in the released file most pairs stand in both roles, and
one image may be positive several times. So `roles="both"` is how the release was made, and `roles="query"` what section 3.1 says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crossmatch.build.files import Asked, Output, Row, hash_of, read_rows, written
from crossmatch.build.material import (
    collection_hash,
    groups_of,
    in_order,
    mean_captions,
    pair_id,
    pictures_hash,
    read_texts,
    signature_of,
)
from crossmatch.build.nearest import Nearest, approximate, nearest, share_found
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.pictures import BadPicture, fingerprint, opened
from crossmatch.core.progress import track
from crossmatch.core.scores import Embeddings
from crossmatch.core.whole import whole_file
from crossmatch.models import make_model
from crossmatch.models.pipeline import FEW, ahead, usual_workers
from crossmatch.models.text import TfIdf, WordVectors

STEP = "mine"
SKIPPED = "skipped.jsonl"
ROLES = {
    "query": "each image is positive once, with its neighbour as the negative",
    "once": "of two images that are each other's neighbours, the first by id is the positive, and the pair is asked once",
    "both": "each pair is asked in both roles",
}
SEARCHES = ("exact", "faiss")
BAGS = (TfIdf, WordVectors)  # for which all captions of an image may be read as one text


@dataclass(frozen=True)
class Mining:
    """How look-alikes are mined: what the manifest keeps as options."""

    roles: str = "query"
    neighbours: int = 1  # that may become the negative, one after another, where pairs were refused
    search: str = "exact"
    pictures: bool = True  # are looked at: one that does not open, or equals an earlier one, is left out
    captions: bool = True  # an image with the very captions of an earlier one is left out: nothing can tell them apart

    def __post_init__(self) -> None:
        if self.roles not in ROLES:
            raise WrongWords(f"the roles are {self.roles!r}; one of {', '.join(ROLES)} was expected.")
        if self.search not in SEARCHES:
            raise WrongWords(f"the search is {self.search!r}; one of {', '.join(SEARCHES)} was expected.")
        if self.neighbours < 1:
            raise WrongWords(f"{self.neighbours} neighbours were asked for; at least one was expected.")


def mine(
    collection: Collection,
    output: Path,
    *,
    model: str | object = "bow",
    how: Mining = Mining(),
    refused: Iterable[str] = (),
    earlier: Sequence[Path] = (),
) -> dict[str, Any]:
    """Write look-alike pairs of a collection into a folder; its manifest.

    `refused` are ids of pairs that people refused, because no caption tells their images apart: those images get their next
    neighbour. Pairs of `earlier` minings are not written again.
    """
    held, encoder, no = in_order(collection), make_model(model) if isinstance(model, str) else model, frozenset(refused)
    held.texts()  # says what is missing
    inputs = {"collection": collection_hash(held), "vectors": signature_of(encoder)}
    inputs |= {"pictures": seen} if how.pictures and (seen := pictures_hash(held)) else {}
    inputs |= {f"earlier {n}": hash_of(folder) for n, folder in enumerate(earlier)}
    inputs |= {"refused": hashlib.sha256("\n".join(sorted(no)).encode()).hexdigest()[:16]} if no else {}
    over = "words of all captions" if isinstance(encoder, BAGS) else "captions"
    asked = Asked(STEP, inputs, {**asdict(how), "mean over": over})
    known = no | {str(row["id"]) for folder in earlier for row in read_rows(folder, STEP)}

    def rows(made: Output) -> Iterator[Row]:
        for row in _pairs(held, encoder, how, no, made):
            if row["id"] not in known:
                yield row

    return written(output, asked, rows)


def _pairs(held: Collection, encoder: object, how: Mining, refused: frozenset[str], made: Output) -> Iterator[Row]:
    groups = _usable(held, how, made)
    if len(groups) < 2:
        left = made.folder / SKIPPED
        raise CrossmatchError(
            f"{len(groups)} of {held.shape[0]:,} images can be paired; two are needed. "
            + (f"{left} says why." if left.exists() else "Add images with captions.")
        )
    vectors, places = described(held, encoder, groups), list(groups)
    found = _search(vectors, how, made)
    taken: set[tuple[int, int]] = set()
    for n, image in enumerate(places):
        near = [(places[at], score) for at, score in zip(found.item[n].tolist(), found.score[n].tolist(), strict=True)]
        place = next((k for k, (other, _) in enumerate(near) if not _is_refused(held, image, other, how, refused)), None)
        if place is None:
            made.count("images without a neighbour left")
            continue
        other, score = near[place]
        for pair in ((image, other), (other, image))[: 1 + (how.roles == "both")]:
            if pair not in taken and not (how.roles == "once" and pair[::-1] in taken):
                taken.add(pair)
                yield _row(held, pair, groups, score, place + 1)


def _is_refused(held: Collection, image: int, other: int, how: Mining, refused: frozenset[str]) -> bool:
    pairs = ((image, other), (other, image))[: 1 + (how.roles == "once")]
    return any(pair_id(*(str(held.image_ids[at]) for at in pair)) in refused for pair in pairs)


def _row(held: Collection, pair: tuple[int, int], groups: Mapping[int, Sequence[int]], score: float, place: int) -> Row:
    images = [str(held.image_ids[at]) for at in pair]
    captions = groups[pair[0]]
    return {
        "id": pair_id(*images), "images": images, "image_ids": images, "captions": held.texts(captions),
        "caption_ids": [str(held.caption_ids[at]) for at in captions], "positive": images[0], "negative": images[1],
        "similarity": round(score, 6), "neighbour": place,
    }  # fmt: skip


def described(held: Collection, encoder: object, groups: Mapping[int, Sequence[int]]) -> Embeddings:
    """Each image as the mean of the word vectors of all its captions; by a model without word vectors, as that of its captions.

        v(i) = 1/|W_i| · Σ_{w∈W_i} e(w),    W_i all words of all captions of image i, each as often as it is there

    >>> pets = Collection.of({"a": ["red cat", "cat"], "b": ["red"], "c": ["dog"]})
    >>> (described(pets, TfIdf(), {0: [0, 1], 1: [2]}).image_vectors > 0).astype(int)      # cat, red, dog
    array([[1, 1, 0],
           [0, 1, 0]])
    """
    if not isinstance(encoder, BAGS):
        return mean_captions(encoder, held, groups)
    joined = [" ".join(held.texts(captions)) for captions in groups.values()]
    vectors, similarity = read_texts(encoder, joined, held.texts())
    return Embeddings(held.image_ids[list(groups)], vectors.astype("float32"), None, None, similarity)


def _search(vectors: Embeddings, how: Mining, made: Output) -> Nearest:
    k = min(how.neighbours, vectors.shape[0] - 1)
    if how.search == "exact":
        return nearest(vectors, "image", k)
    found = approximate(vectors, "image", k)
    made.count("neighbours found of 1,000", round(1000 * share_found(vectors, "image", found)))
    return found


# -- what cannot be used


@dataclass
class _Left:
    """Images that are left out, with the kind of reason and the reason itself."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def out(self, image: str, kind: str, why: str) -> None:
        self.rows.append((image, kind, why))


def _usable(held: Collection, how: Mining, made: Output) -> dict[int, list[int]]:
    """The images that may be paired, with their captions; those left out are counted, and listed in a file with the reason."""
    left = _Left()
    groups = {image: captions for image, captions in enumerate(groups_of(held)) if captions}
    for image in set(range(held.shape[0])) - set(groups):
        left.out(str(held.image_ids[image]), "without captions", "it has no captions")
    if how.pictures and held.open_image is not None:
        groups = _unlike(held, groups, left)
    if how.captions:
        groups = _told_apart(held, groups, left)
    for _, kind, _ in left.rows:
        made.count(f"images {kind}")
    made.count("images", len(groups))
    if left.rows:
        with whole_file(made.folder / SKIPPED) as file:
            rows = (json.dumps({"image": image, "why": why}, ensure_ascii=False) for image, _, why in sorted(left.rows))
            file.write("".join(f"{row}\n" for row in rows).encode())
    return groups


def _told_apart(held: Collection, groups: Mapping[int, list[int]], left: _Left) -> dict[int, list[int]]:
    """Of images with the same captions the first."""
    out, first = {}, dict[tuple[str, ...], str]()
    for image, captions in groups.items():
        texts, name = tuple(sorted(held.texts(captions))), str(held.image_ids[image])
        if first.setdefault(texts, name) == name:
            out[image] = captions
        else:
            left.out(name, "with the captions of another", f"its captions are those of {first[texts]!r}")
    return out


def _unlike(held: Collection, groups: Mapping[int, list[int]], left: _Left) -> dict[int, list[int]]:
    """Those whose pictures open, and of equal pictures the first."""
    out, first = {}, dict[bytes, str]()
    for image, seen in zip(groups, _fingerprints(held, list(groups)), strict=True):
        name = str(held.image_ids[image])
        if isinstance(seen, BadPicture):
            left.out(name, "that do not open", seen.why)
        elif seen is None or first.setdefault(seen, name) == name:
            out[image] = groups[image]
        else:
            left.out(name, "with the picture of another", f"its picture is that of {first[seen]!r}")
    if groups and not out:
        raise CrossmatchError(
            f"none of the {len(groups):,} pictures opens. Mend them, or do not look at them. The last: {left.rows[-1][2]}"
        )
    return out


def _fingerprints(held: Collection, images: Sequence[int]) -> Iterator[bytes | BadPicture | None]:
    """A hash of each picture; what is wrong with one that does not open; nothing for one whose pixels cannot be read."""
    open_image = held.open_image
    assert open_image is not None

    def looked(some: Sequence[int]) -> list[bytes | BadPicture | None]:
        found: list[bytes | BadPicture | None] = []
        for image in some:
            try:
                found.append(fingerprint(opened(open_image, str(held.image_ids[image]))))
            except BadPicture as error:
                found.append(error)
        return found

    parts = [images[at : at + FEW] for at in range(0, len(images), FEW)]
    prints = ahead(looked, parts, usual_workers(open_image))
    for _ in track(parts, "looking at pictures"):
        yield from next(prints)
