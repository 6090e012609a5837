"""COCO Captions, Karpathy splits: retrieval by original links (5K, 1K) and by plausible matches (PMRP)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath

import numpy as np

from crossmatch.benchmarks.datasets.dataset_table import find_data_file, require_data_file
from crossmatch.benchmarks.formats.image_caption_records import FileSlice, ImageOpener
from crossmatch.benchmarks.formats.image_decoding import decode_image
from crossmatch.data.benchmark import Benchmark, ExpectedCount
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.file_contents import UndecodableFileError, check_record, decode_json_file
from crossmatch.data.io.paths import data_folder
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.plausible_matches import PlausibleMatches

LICENCE = "annotations CC BY 4.0; images by their Flickr owners"
FOLDS = 5

# Captions that are meaningless or describe another image, and an image that is also in the training set: chun2022eccv, app. C.1.
MEANINGLESS = (607516, 607486, 433639, 248212, 469834, 462530, 469102, 743575, 246706, 61717, 500797, 19273, 630298, 576409,
               390637, 296557, 450553, 44809)  # fmt: skip
WRONG = (610564, 359139, 218995, 609235, 143250, 375316, 712683, 75083, 625605, 620511, 613949, 129825, 605566, 634829)
DUPLICATE = 578492
INVALID_CAPTIONS = frozenset(map(str, MEANINGLESS + WRONG))
INVALID_IMAGES = frozenset({str(DUPLICATE)})


def coco_collection(split: str) -> Collection:
    """Load the images and captions of a split, in the order of the official files.

    The texts of the val split come from COCO's captions_val2014.json; without that file its captions have ids only.
    """
    if split not in ("val", "test"):
        raise UsageError(f"COCO has no split {split!r}. Choose val or test.")
    return _collection(split, data_folder())


@cache
def _collection(split: str, root: Path) -> Collection:
    if split == "test":
        rows = list(read_official_table("coco/karpathy_test_captions.tsv", ("caption_id", "image_id", "caption"), "\t"))
        captions, owners, texts = ([row[n] for row in rows] for n in range(3))
    else:
        rated = read_official_table("cxc/sits_val.csv", ("caption", "image", "agg_score", "sampling_method"))
        pairs = [(parse_caption_id(r[0]), parse_image_id(r[1])) for r in rated if r[3] == "c2i_original"]
        captions, owners = [p[0] for p in pairs], [p[1] for p in pairs]
        texts = _read_texts(captions)
    images, first_caption = np.unique(np.asarray(owners), return_index=True)
    images = images[np.argsort(first_caption)]
    image_row = {image: n for n, image in enumerate(images.tolist())}
    links = np.asarray([(image_row[image], n) for n, image in enumerate(owners)])
    files = {image: f"COCO_val2014_{int(image):012d}.jpg" for image in image_row}
    return Collection(images, np.asarray(captions), tuple(texts), links, coco_image_opener("val2014", files, root))


def _read_texts(captions: list[str]) -> list[str]:
    path = find_data_file("coco/captions_val2014.json")
    if path is None:
        return []
    text_by_id = {str(number): text for _, number, text in read_coco_captions(path)}
    missing = next((caption for caption in captions if caption not in text_by_id), None)
    if missing is not None:
        raise CrossmatchError(
            f"{path} has no caption {missing}: it is not the official file. Get it again: crossmatch data get coco"
        )
    return [text_by_id[caption] for caption in captions]


def read_coco_captions(path: Path) -> list[tuple[str, int, str]]:
    """Read image id, caption id and text of every caption in a caption file of COCO. Runs of white space become one space."""
    try:
        annotations = check_record(decode_json_file(path), "the file", {"annotations": list})["annotations"]
        for n, row in enumerate(annotations):
            check_record(row, f"annotations[{n}]", {"image_id": (int, str), "id": int, "caption": str})
    except UndecodableFileError as error:
        raise CrossmatchError(f"{path} is not COCO's caption file ({error}). Get it again: crossmatch data get coco") from None
    return [(str(row["image_id"]), row["id"], " ".join(row["caption"].split())) for row in annotations]


def coco_image_opener(split: str, files: Mapping[str, str], root: Path | None = None) -> ImageOpener | None:
    """Return an opener for images by id, given their file names; None if the folder of the split does not exist.

    >>> coco_image_opener("val2017", {"285": "000000000285.jpg"}, Path("/nowhere"))
    """
    folder = (root or data_folder()) / "coco" / "images" / split
    if not folder.is_dir():
        return None
    return ImageOpener({name: FileSlice(folder / PurePosixPath(file).name) for name, file in files.items()}, decode_image)


def missing_images_hint(split: str) -> str:
    """Explain how to get the images of a split."""
    return (
        f"the {split} images of COCO are not in {data_folder() / 'coco' / 'images' / split}. Unpack "
        f"http://images.cocodataset.org/zips/{split}.zip there, or evaluate precomputed scores: -m precomputed:FILE"
    )


def parse_caption_id(name: str) -> str:
    """Return the number in CxC's name of a caption.

    >>> parse_caption_id("COCO_val2014:sentid:411553")
    '411553'
    """
    return name.rpartition(":")[2]


def parse_image_id(name: str) -> str:
    """Return the number in COCO's name of an image file.

    >>> parse_image_id("COCO_val2014_000000205866.jpg")
    '205866'
    """
    return name.rpartition("_")[2].removesuffix(".jpg").lstrip("0")


def read_official_table(path: str, expected_header: tuple[str, ...], delimiter: str = ",") -> Iterator[list[str]]:
    """Yield the rows of an official csv or tsv file; every row must have as many cells as the header."""
    file = require_data_file(path)
    remedy = "The file is damaged: check it with `crossmatch data verify`, and get it again."
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CrossmatchError(f"{file} is not UTF-8 text (byte {error.start:,}). {remedy}") from None
    unquoted = delimiter == "\t"  # quotation marks in a tsv are part of the text
    rows = csv.reader(io.StringIO(text), delimiter=delimiter, quoting=csv.QUOTE_NONE if unquoted else csv.QUOTE_MINIMAL)
    header = tuple(next(rows, ()))
    if header != expected_header:
        raise CrossmatchError(f"{file} begins with {', '.join(header)[:80]!r}; expected {', '.join(expected_header)}. {remedy}")
    for number, row in enumerate(rows, 2):
        if len(row) != len(expected_header) or not all(row):
            raise CrossmatchError(
                f"{file}, line {number}: expected {len(expected_header)} cells without an empty one, got {len(row)}. {remedy}"
            )
        yield row


def drop_invalid(collection: Collection, judgements: Judgements, invalid: str) -> Judgements:
    """Keep or drop judgements of the captions and the image that are invalid according to chun2022eccv, app. C.1.

    Invalid items are dropped as queries and as positives. They stay candidates, so that every model ranks the same gallery.
    """
    if invalid not in ("keep", "drop"):
        raise UsageError(f"invalid must be keep or drop (got {invalid!r}).")
    if invalid == "keep":
        return judgements
    invalid_items = {
        "image": np.isin(collection.image_ids, list(INVALID_IMAGES)),
        "caption": np.isin(collection.caption_ids, list(INVALID_CAPTIONS)),
    }
    valid = ~(invalid_items[judgements.sides[0]][judgements.rows] | invalid_items[judgements.sides[1]][judgements.columns])
    return replace(
        judgements, rows=judgements.rows[valid], columns=judgements.columns[valid], grades=judgements.grades[valid]
    )  # fmt: skip


def load_5k(split: str, invalid: str) -> Retrieval:
    collection = coco_collection(split)
    return Retrieval(collection, {"links": drop_invalid(collection, Judgements.from_links(collection), invalid)})


def load_1k(split: str, invalid: str) -> Retrieval:
    """Load the test split as five galleries of 1,000 images and their captions, in the order of the official caption ids."""
    if split != "test":
        raise UsageError("coco-1k has folds for the test split only: the order of other splits is not published. Use --split test.")
    collection = coco_collection(split)
    image_fold = np.arange(collection.shape[0]) * FOLDS // collection.shape[0]
    links = Judgements.from_links(collection)
    folded = replace(links, folds=(image_fold, image_fold[collection.caption_owners()]))
    return Retrieval(collection, {"links": drop_invalid(collection, folded, invalid)})


def load_plausible(split: str) -> Retrieval:
    """Load plausible matches from the instance classes of each image; an image without instances has no class."""
    collection = coco_collection(split)
    labels = {row[0]: row[1].split(",") for row in read_official_table("coco/val2014_labels.tsv", ("image_id", "labels"), "\t")}
    classes = sorted({name for names in labels.values() for name in names})
    column = {name: n for n, name in enumerate(classes)}
    image_labels = np.zeros((collection.shape[0], len(classes)), dtype=bool)
    for row, image in enumerate(collection.image_ids.tolist()):
        image_labels[row, [column[name] for name in labels.get(image, ())]] = True
    return Retrieval(collection, {"plausible": PlausibleMatches.from_labels(collection, "plausible", image_labels)})


COCO_5K = Benchmark(
    name="coco-5k",
    description="COCO: 5,000 images and 25,000 captions, original links",
    loader=load_5k,
    metrics=("hit@1", "hit@5", "hit@10", "median-rank", "mean-rank", "rsum"),
    options={"split": "test", "invalid": "keep"},
    expected_counts={"i2t/links": ExpectedCount(5_000, 25_000), "t2i/links": ExpectedCount(25_000, 25_000)},
    licence=LICENCE,
    cite="lin2014microsoft; karpathy2015deep",
)

COCO_1K = replace(
    COCO_5K,
    name="coco-1k",
    description="COCO: mean over five galleries of 1,000 images and their captions",
    loader=load_1k,
)

PMRP = Benchmark(
    name="pmrp",
    description="COCO, plausible matches: images whose sets of object classes differ in at most zeta classes",
    loader=load_plausible,
    metrics=("pmrp@50", "pmrp"),
    options={"split": "test"},
    licence=LICENCE,
    cite="chun2021pcme; chun2022eccv",
)
