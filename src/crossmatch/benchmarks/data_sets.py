"""The table of data sets: files with size and sha256, official sources, licences, and the counts that must come out.

Sizes and hashes were computed from the files that the golden tests run on. To add a data set, declare it here and list it in
`BUILT_IN`; a package of yours can name a `DataSet` in the entry-point group `crossmatch`.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from crossmatch.benchmarks import coco_tables
from crossmatch.benchmarks.counts import classes, ids, images, json_captions, json_images, keys, lines, rows, unlabelled, values
from crossmatch.benchmarks.judgement_data_sets import JUDGEMENTS
from crossmatch.benchmarks.trial_data_sets import BISON, BIVLC, SUGARCREPE, WINOGROUND
from crossmatch.core import files
from crossmatch.core.errors import WrongWords
from crossmatch.core.files import DataFile, DataFolder, DataSet, Recipe, Tally
from crossmatch.core.plugins import plugged

# The last commit of each repository that holds these very files comes first; its newest state is the second address.
CXC_PINNED = (
    "https://raw.githubusercontent.com/google-research-datasets/Crisscrossed-Captions/7d6634be173a6f6a16ab1e61bebc217de8444513"
)
CXC_NEWEST = "https://raw.githubusercontent.com/google-research-datasets/Crisscrossed-Captions/master"
ECCV_PINNED = "https://raw.githubusercontent.com/naver-ai/eccv-caption/0be8d41a4e2d671ca5be730a32830b79fcfed793"
ECCV_NEWEST = "https://raw.githubusercontent.com/naver-ai/eccv-caption/HEAD"
COCO_2014 = "http://images.cocodataset.org/annotations/annotations_trainval2014.zip"
COCO_2017 = "http://images.cocodataset.org/annotations/annotations_trainval2017.zip"
COCO_IMAGES = "http://images.cocodataset.org/zips/val2014.zip"
KARPATHY = "http://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip"


def _cxc(name: str, sha256: str, size: int) -> DataFile:
    return DataFile(f"cxc/{name}", sha256, size, f"{CXC_PINNED}/data/{name}", (f"{CXC_NEWEST}/data/{name}",))


CXC = DataSet(
    name="cxc",
    about="Crisscrossed Captions: graded similarity of captions and images of the COCO val and test splits",
    licence="free for any purpose; acknowledge Google LLC as the source",
    cite="parekh2021cxc",
    source="https://github.com/google-research-datasets/Crisscrossed-Captions",
    tasks=("cxc", "cxc-sts", "cxc-sis", "cxc-sits"),
    files=(
        _cxc("sts_val.csv", "36d4fbdb88aed1ea90463f95ce40a4c081d25874fb6badd2dfaa62a28b25170b", 3_092_201),
        _cxc("sts_test.csv", "33eea25bf41061c513ef4b39282aaf64bdf9b17ff233e343a6d6ae44d73e0272", 3_096_467),
        _cxc("sis_val.csv", "f31ed6a1369e3799b7ef3411b1d612e2a5639591612d170ce57d2d4b2de44a24", 3_153_935),
        _cxc("sis_test.csv", "01f2ceb349414aff84065c0548837d1630408283601a5c97d86c2f6681cc1571", 3_440_207),
        _cxc("sits_val.csv", "482d996eb91998e0a6fbaf8c70f1e2cb127370a05346720caef1c0bbd3139a0f", 3_333_118),
        _cxc("sits_test.csv", "f92fd6d36329fb52fd5429eb5c2211f0ab3ad86bb737323f415375a144697ce6", 3_339_144),
    ),
    tallies=tuple(
        Tally(f"ratings in {name}", expected, (f"cxc/{name}",), rows)
        for name, expected in (("sts_val.csv", 44_009), ("sts_test.csv", 44_045), ("sis_val.csv", 42_767), ("sis_test.csv", 46_719),
                               ("sits_val.csv", 44_722), ("sits_test.csv", 44_833))
    ),
)  # fmt: skip


def _eccv(name: str, sha256: str, size: int) -> DataFile:
    inside = f"eccv_caption/data/{name}"
    return DataFile(f"eccv_caption/{name}", sha256, size, f"{ECCV_PINNED}/{inside}", (f"{ECCV_NEWEST}/{inside}",), package=inside)


ECCV_CAPTION = DataSet(
    name="eccv-caption",
    about="ECCV Caption: matches of the COCO test split that people verified, with the original and the binary CxC matches",
    licence="MIT",
    cite="chun2022eccv",
    source="https://github.com/naver-ai/eccv-caption",
    pip="eccv_caption==0.1.0",
    tasks=("coco-5k", "coco-1k", "eccv-caption", "pmrp"),
    files=(
        _eccv("coco_test_ids.npy", "edf99145aaed260188fd9384c1329ed287fca0e9b92e4e59de46660667932a15", 200_080),
        _eccv("original_image_to_caption.json", "17e7673206edefd9cd227e8fafb703eba375671e43dd202a33b51567ebd4593e", 225_731),
        _eccv("original_caption_to_image.json", "646c37bf5148480d854a3d135b1f3646cc7fa2bd0f84ed7499e264f09338e0fa", 441_843),
        _eccv("cxc_image_to_caption.json", "e567e46b527901bb87ad9cf6511d005e5ad80620a968db1b3314bce23c917a61", 298_632),
        _eccv("cxc_caption_to_image.json", "95fa65de2171c2d5df8769b46770cb74b9d4e09522d0c255e5d166c56028d125", 513_636),
        _eccv("eccv_image_to_caption.json", "47b822df8932da569a471a557f49e7b45465dac3728c2e2922f7bfbd25399242", 168_731),
        _eccv("eccv_caption_to_image.json", "3f1d209e7fc4100acc4092818125884d1523582ccebf950a4f89ff71babe281a", 91_246),
    ),
    tallies=(
        Tally("test captions", 25_000, ("eccv_caption/coco_test_ids.npy",), ids),
        *(
            Tally(what, expected, (f"eccv_caption/{name}.json",), count)
            for name, what, expected, count in (
                ("original_image_to_caption", "image queries, original", 5_000, keys),
                ("original_image_to_caption", "pairs, original", 25_000, values),
                ("original_caption_to_image", "caption queries, original", 25_000, keys),
                ("cxc_image_to_caption", "image queries, CxC", 5_000, keys),
                ("cxc_caption_to_image", "caption queries, CxC", 24_972, keys),
                ("cxc_caption_to_image", "pairs, CxC", 35_585, values),
                ("eccv_image_to_caption", "image queries, ECCV", 1_261, keys),
                ("eccv_image_to_caption", "positive captions, ECCV", 22_550, values),
                ("eccv_caption_to_image", "caption queries, ECCV", 1_332, keys),
                ("eccv_caption_to_image", "positive images, ECCV", 11_279, values),
            )
        ),
    ),
)

# The archives could not be downloaded where this was written, so the sha256 of what they hold is not known (None). That of the
# tables made of them is, and guards the whole chain.
COCO = DataSet(
    name="coco",
    about="COCO captions of the Karpathy test split, and the instance classes in each image of val2014",
    licence="annotations CC BY 4.0; the images are Flickr users', each under a licence of its own",
    cite="lin2014microsoft",
    source="https://cocodataset.org/#download",
    tasks=("coco-5k", "coco-1k", "cxc", "cxc-sts", "cxc-sis", "cxc-sits", "eccv-caption", "pmrp"),
    files=(
        DataFile(
            "coco/karpathy_test_captions.tsv", "e4aa57eab945a000787cb8b3bcc71d843df905b11092a814883715d641be7553", 1_672_505,
            recipe=Recipe(("eccv_caption/coco_test_ids.npy", "coco/captions_val2014.json"), (coco_tables.captions_table,)),
        ),
        DataFile(
            "coco/val2014_labels.tsv", "c412e4b86a8aacae104bee9c135b4a4e655758328269dc2a75e364e32061b95a", 1_124_515,
            # the same rows with the classes of a row in arbitrary order: the table as it was first written
            also=("5b2ed57e858742477f44fdea8374813cd6f4e1235bc00176abe3aecd632ca7ed",),
            recipe=Recipe(("coco/instances_val2014.json",), (coco_tables.labels_table, coco_tables.labels_table_without_crowds)),
        ),
        DataFile("coco/captions_val2014.json", None, None, COCO_2014, member="annotations/captions_val2014.json", use="optional"),
        DataFile("coco/instances_val2014.json", None, None, COCO_2014, member="annotations/instances_val2014.json", use="source"),
        DataFile(
            "coco/captions_val2017.json", "1018a8760deaf1fc71be2f1b8da1a1348b9c35994af4322ca2fd795a78abb79c", 3_872_493,
            COCO_2017, member="annotations/captions_val2017.json", use="optional",
        ),
        DataFile("coco/dataset_coco.json", None, None, KARPATHY, member="dataset_coco.json", use="optional"),
    ),
    folders=(DataFolder("coco/images/val2014", "40,504 images, 6 GB", COCO_IMAGES),),
    tallies=(
        Tally("test captions", 25_000, ("coco/karpathy_test_captions.tsv",), lines),
        Tally("test images", 5_000, ("coco/karpathy_test_captions.tsv",), images),
        Tally("labelled images", 40_137, ("coco/val2014_labels.tsv",), images),
        Tally("classes", 80, ("coco/val2014_labels.tsv",), classes),
        Tally("test images without an instance", 48, ("coco/karpathy_test_captions.tsv", "coco/val2014_labels.tsv"), unlabelled),
        Tally("images in captions_val2017.json", 5_000, ("coco/captions_val2017.json",), json_images),
        Tally("captions in captions_val2017.json", 25_014, ("coco/captions_val2017.json",), json_captions),
    ),
)  # fmt: skip

BUILT_IN = (CXC, COCO, ECCV_CAPTION, BISON, BIVLC, SUGARCREPE, WINOGROUND, JUDGEMENTS)


def data_sets() -> tuple[DataSet, ...]:
    """All data sets: the built-in ones, and those of installed packages."""
    return BUILT_IN + plugged(DataSet)


def named(name: str) -> DataSet:
    """The data set of this name.

    >>> named("ccx")
    Traceback (most recent call last):
    ...
    crossmatch.core.errors.WrongWords: there is no data set 'ccx'. Did you mean 'cxc'? `crossmatch data list` lists them all.
    """
    known = {data_set.name: data_set for data_set in data_sets()}
    if name in known:
        return known[name]
    close = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(known)}."
    raise WrongWords(f"there is no data set {name!r}. {hint} `crossmatch data list` lists them all.")


def need(path: str, root: Path | None = None) -> Path:
    """The place of a file that must be there; an error says how to get it. See `core.files.need`."""
    return files.need(path, data_sets(), root)


def have(path: str, root: Path | None = None) -> Path | None:
    """The place of an optional file or folder, or None. See `core.files.have`."""
    return files.have(path, data_sets(), root)
