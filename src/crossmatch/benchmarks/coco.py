"""COCO Captions, the Karpathy splits: the collection that most benchmarks here share, its original links, and plausible matches."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from crossmatch.benchmarks.coco_images import coco_pictures
from crossmatch.benchmarks.data_sets import have, need
from crossmatch.core.benchmark import Benchmark, Count, Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements
from crossmatch.core.places import data_folder
from crossmatch.core.plausible import Plausible

LICENCE = "annotations CC BY 4.0; images by their Flickr owners"
FOLDS = 5

# Captions that describe no image or the wrong one, and an image that is in the training set too: chun2022eccv, app. C.1.
MEANINGLESS = (607516, 607486, 433639, 248212, 469834, 462530, 469102, 743575, 246706, 61717, 500797, 19273, 630298, 576409,
               390637, 296557, 450553, 44809)  # fmt: skip
WRONG = (610564, 359139, 218995, 609235, 143250, 375316, 712683, 75083, 625605, 620511, 613949, 129825, 605566, 634829)
DUPLICATE = 578492
INVALID_CAPTIONS = frozenset(map(str, MEANINGLESS + WRONG))
INVALID_IMAGES = frozenset({str(DUPLICATE)})


def collection(split: str) -> Collection:
    """The images and captions of a split, in the order of the official files.

    The test split has its texts. Those of the val split are in COCO's captions_val2014.json; without it only the ids are known.
    """
    if split not in ("val", "test"):
        raise WrongWords(f"COCO has no split {split!r} here; take val or test.")
    return _collection(split, data_folder())


@cache
def _collection(split: str, root: Path) -> Collection:
    if split == "test":
        rows = list(table("coco/karpathy_test_captions.tsv", ("caption_id", "image_id", "caption"), "\t"))
        captions, owners, texts = ([row[n] for row in rows] for n in range(3))
    else:
        rated = table("cxc/sits_val.csv", ("caption", "image", "agg_score", "sampling_method"))
        pairs = [(caption_id(r[0]), image_id(r[1])) for r in rated if r[3] == "c2i_original"]
        captions, owners = [p[0] for p in pairs], [p[1] for p in pairs]
        texts = _texts(captions)
    images, place = np.unique(np.asarray(owners), return_index=True)
    images = images[np.argsort(place)]
    at = {image: n for n, image in enumerate(images.tolist())}
    links = np.asarray([(at[image], n) for n, image in enumerate(owners)])
    files = {image: f"COCO_val2014_{int(image):012d}.jpg" for image in at}
    return Collection(images, np.asarray(captions), tuple(texts), links, coco_pictures("val2014", files, root))


def _texts(captions: list[str]) -> list[str]:
    path = have("coco/captions_val2014.json")
    if path is None:
        return []
    try:
        found = {str(row["id"]): " ".join(row["caption"].split()) for row in json.loads(path.read_bytes())["annotations"]}
        return [found[caption] for caption in captions]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CrossmatchError(
            f"{path} is not COCO's captions_val2014.json ({type(error).__name__}: {error}). Get it again: crossmatch data get coco"
        ) from None


def caption_id(name: str) -> str:
    """
    >>> caption_id("COCO_val2014:sentid:411553")
    '411553'
    """
    return name.rpartition(":")[2]


def image_id(name: str) -> str:
    """
    >>> image_id("COCO_val2014_000000205866.jpg")
    '205866'
    """
    return name.rpartition("_")[2].removesuffix(".jpg").lstrip("0")


def table(path: str, head: tuple[str, ...], delimiter: str = ",") -> Iterator[list[str]]:
    """The rows of an official csv or tsv file, each with as many cells as the head."""
    place = need(path)
    remedy = "The file is damaged: look with `crossmatch data verify`, and get it again."
    try:
        text = place.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CrossmatchError(f"{place} is not a text in UTF-8 (byte {error.start:,}). {remedy}") from None
    bare = delimiter == "\t"  # quotation marks in a tsv are part of the text
    rows = csv.reader(io.StringIO(text), delimiter=delimiter, quoting=csv.QUOTE_NONE if bare else csv.QUOTE_MINIMAL)
    found = tuple(next(rows, ()))
    if found != head:
        raise CrossmatchError(f"{place} begins with {', '.join(found)[:80]!r}; expected {', '.join(head)}. {remedy}")
    for number, row in enumerate(rows, 2):
        if len(row) != len(head) or not all(row):
            raise CrossmatchError(f"{place}, line {number}: {len(row)} cells, or an empty one; expected {len(head)}. {remedy}")
        yield row


def without_invalid(held: Collection, said: Judgements, invalid: str) -> Judgements:
    """The judgements as published, or without the captions and the image that app. C.1 of the ECCV paper calls invalid.

    They are dropped as queries and as positives; as candidates they stay, so that every model ranks the same gallery.
    """
    if invalid not in ("keep", "drop"):
        raise WrongWords(f"invalid is {invalid!r}; keep or drop was expected.")
    if invalid == "keep":
        return said
    bad = {"image": np.isin(held.image_ids, list(INVALID_IMAGES)), "caption": np.isin(held.caption_ids, list(INVALID_CAPTIONS))}
    kept = ~(bad[said.sides[0]][said.rows] | bad[said.sides[1]][said.columns])
    return Judgements(
        said.source, said.rows[kept], said.columns[kept], said.grades[kept], said.shape, said.positive, said.complete, said.kind,
        said.folds, said.only, said.absent,
    )  # fmt: skip


def load_5k(split: str, invalid: str) -> Retrieval:
    held = collection(split)
    return Retrieval(held, {"links": without_invalid(held, Judgements.from_links(held), invalid)})


def load_1k(split: str, invalid: str) -> Retrieval:
    """Five galleries of 1,000 images and their captions, in the order of the official list of caption ids."""
    if split != "test":
        raise WrongWords("coco-1k has folds for the test split only: the order of the others is not published. Take --split test.")
    held = collection(split)
    of_image = np.arange(held.shape[0]) * FOLDS // held.shape[0]
    said = Judgements.from_links(held)
    folded = Judgements(said.source, said.rows, said.columns, said.grades, said.shape, folds=(of_image, of_image[held.owners()]))
    return Retrieval(held, {"links": without_invalid(held, folded, invalid)})


def load_plausible(split: str) -> Retrieval:
    """Instance classes of each image; an image in which no instance was marked has none."""
    held = collection(split)
    labels = {row[0]: row[1].split(",") for row in table("coco/val2014_labels.tsv", ("image_id", "labels"), "\t")}
    classes = sorted({name for names in labels.values() for name in names})
    column = {name: n for n, name in enumerate(classes)}
    of_image = np.zeros((held.shape[0], len(classes)), dtype=bool)
    for row, image in enumerate(held.image_ids.tolist()):
        of_image[row, [column[name] for name in labels.get(image, ())]] = True
    return Retrieval(held, {"plausible": Plausible.from_labels(held, "plausible", of_image)})


COCO_5K = Benchmark(
    name="coco-5k",
    about="COCO, 5,000 images and 25,000 captions, by the original links",
    load=load_5k,
    metrics=("hit@1", "hit@5", "hit@10", "median-rank", "mean-rank", "rsum"),
    options={"split": "test", "invalid": "keep"},
    expect={"i2t/links": Count(5_000, 25_000), "t2i/links": Count(25_000, 25_000)},
    licence=LICENCE,
    cite="lin2014microsoft; karpathy2015deep",
)

COCO_1K = Benchmark(
    name="coco-1k",
    about="COCO, the mean over five galleries of 1,000 images and their captions",
    load=load_1k,
    metrics=COCO_5K.metrics,
    options=COCO_5K.options,
    expect=COCO_5K.expect,
    licence=LICENCE,
    cite="lin2014microsoft; karpathy2015deep",
)

PMRP = Benchmark(
    name="pmrp",
    about="COCO by plausible matches: pictures whose classes of things differ in at most zeta places",
    load=load_plausible,
    metrics=("pmrp@50", "pmrp"),
    options={"split": "test"},
    licence=LICENCE,
    cite="chun2021pcme; chun2022eccv",
)
