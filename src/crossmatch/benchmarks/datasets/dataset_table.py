"""Table of data sets: files with size and sha256, official sources, licences, and expected counts.

Sizes and hashes are those of the files that the golden tests use. To add a data set, declare it here and list it in `BUILT_IN`,
or let a package name a `DataSet` in the entry-point group `crossmatch`.
"""

from __future__ import annotations

from pathlib import Path

from crossmatch.benchmarks.datasets.coco_tables import (
    build_captions_table,
    build_labels_table,
    build_labels_table_without_crowds,
)
from crossmatch.benchmarks.datasets.counts import (
    count_classes,
    count_coco_captions,
    count_coco_images,
    count_csv_rows,
    count_distinct_ids,
    count_json_records,
    count_listed_items,
    count_single_ratings,
    count_tsv_images,
    count_tsv_rows,
    count_unlabelled_images,
)
from crossmatch.benchmarks.datasets.forced_choice import BISON, BIVLC, SUGARCREPE, WINOGROUND
from crossmatch.data.io import dataset_files
from crossmatch.data.io.dataset_files import CountCheck, DataFile, DataFolder, DataSet, FileRecipe
from crossmatch.data.io.plugins import load_plugins
from crossmatch.data.name_lookup import Catalog

# The first address names the last commit with exactly these files; the second one names the newest commit.
CXC_PINNED = (
    "https://raw.githubusercontent.com/google-research-datasets/Crisscrossed-Captions/7d6634be173a6f6a16ab1e61bebc217de8444513"
)
CXC_NEWEST = "https://raw.githubusercontent.com/google-research-datasets/Crisscrossed-Captions/master"
ECCV_PINNED = "https://raw.githubusercontent.com/naver-ai/eccv-caption/0be8d41a4e2d671ca5be730a32830b79fcfed793"
ECCV_NEWEST = "https://raw.githubusercontent.com/naver-ai/eccv-caption/HEAD"
COCO_2014 = "http://images.cocodataset.org/annotations/annotations_trainval2014.zip"
COCO_2017 = "http://images.cocodataset.org/annotations/annotations_trainval2017.zip"
COCO_IMAGES = "http://images.cocodataset.org/zips/val2014.zip"
FLICKR8K, COMPOSITE, PASCAL = "judgements/flickr8k.json", "judgements/composite.tsv", "judgements/pascal_50s.json"
KARPATHY = "http://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip"


def _cxc(name: str, sha256: str, size: int) -> DataFile:
    return DataFile(f"cxc/{name}", sha256, size, f"{CXC_PINNED}/data/{name}", (f"{CXC_NEWEST}/data/{name}",))


CXC = DataSet(
    name="cxc",
    description="Crisscrossed Captions: graded similarity of captions and images of the COCO val and test splits",
    licence="free for any purpose; acknowledge Google LLC as the source",
    cite="parekh2021cxc",
    homepage="https://github.com/google-research-datasets/Crisscrossed-Captions",
    tasks=("cxc", "cxc-sts", "cxc-sis", "cxc-sits"),
    files=(
        _cxc("sts_val.csv", "36d4fbdb88aed1ea90463f95ce40a4c081d25874fb6badd2dfaa62a28b25170b", 3_092_201),
        _cxc("sts_test.csv", "33eea25bf41061c513ef4b39282aaf64bdf9b17ff233e343a6d6ae44d73e0272", 3_096_467),
        _cxc("sis_val.csv", "f31ed6a1369e3799b7ef3411b1d612e2a5639591612d170ce57d2d4b2de44a24", 3_153_935),
        _cxc("sis_test.csv", "01f2ceb349414aff84065c0548837d1630408283601a5c97d86c2f6681cc1571", 3_440_207),
        _cxc("sits_val.csv", "482d996eb91998e0a6fbaf8c70f1e2cb127370a05346720caef1c0bbd3139a0f", 3_333_118),
        _cxc("sits_test.csv", "f92fd6d36329fb52fd5429eb5c2211f0ab3ad86bb737323f415375a144697ce6", 3_339_144),
    ),
    count_checks=tuple(
        CountCheck(f"ratings in {name}", expected, (f"cxc/{name}",), count_csv_rows)
        for name, expected in (("sts_val.csv", 44_009), ("sts_test.csv", 44_045), ("sis_val.csv", 42_767), ("sis_test.csv", 46_719),
                               ("sits_val.csv", 44_722), ("sits_test.csv", 44_833))
    ),
)  # fmt: skip


def _eccv(name: str, sha256: str, size: int) -> DataFile:
    inside = f"eccv_caption/data/{name}"
    return DataFile(
        f"eccv_caption/{name}", sha256, size, f"{ECCV_PINNED}/{inside}", (f"{ECCV_NEWEST}/{inside}",), package_path=inside
    )


ECCV_CAPTION = DataSet(
    name="eccv-caption",
    description="ECCV Caption: matches of the COCO test split that people verified, with the original and the binary CxC matches",
    licence="MIT",
    cite="chun2022eccv",
    homepage="https://github.com/naver-ai/eccv-caption",
    pip_package="eccv_caption==0.1.0",
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
    count_checks=(
        CountCheck("test captions", 25_000, ("eccv_caption/coco_test_ids.npy",), count_distinct_ids),
        *(
            CountCheck(counted, expected, (f"eccv_caption/{name}.json",), count)
            for name, counted, expected, count in (
                ("original_image_to_caption", "image queries, original", 5_000, count_json_records),
                ("original_image_to_caption", "pairs, original", 25_000, count_listed_items),
                ("original_caption_to_image", "caption queries, original", 25_000, count_json_records),
                ("cxc_image_to_caption", "image queries, CxC", 5_000, count_json_records),
                ("cxc_caption_to_image", "caption queries, CxC", 24_972, count_json_records),
                ("cxc_caption_to_image", "pairs, CxC", 35_585, count_listed_items),
                ("eccv_image_to_caption", "image queries, ECCV", 1_261, count_json_records),
                ("eccv_image_to_caption", "positive captions, ECCV", 22_550, count_listed_items),
                ("eccv_caption_to_image", "caption queries, ECCV", 1_332, count_json_records),
                ("eccv_caption_to_image", "positive images, ECCV", 11_279, count_listed_items),
            )
        ),
    ),
)

# The sha256 of the files in the archives is not known (None). That of the tables built from them is, and checks the whole chain.
COCO = DataSet(
    name="coco",
    description="COCO captions of the Karpathy test split, and the instance classes in each image of val2014",
    licence="annotations CC BY 4.0; the images are Flickr users', each under a licence of its own",
    cite="lin2014microsoft",
    homepage="https://cocodataset.org/#download",
    tasks=("coco-5k", "coco-1k", "cxc", "cxc-sts", "cxc-sis", "cxc-sits", "eccv-caption", "pmrp"),
    files=(
        DataFile(
            "coco/karpathy_test_captions.tsv", "e4aa57eab945a000787cb8b3bcc71d843df905b11092a814883715d641be7553", 1_672_505,
            recipe=FileRecipe(("eccv_caption/coco_test_ids.npy", "coco/captions_val2014.json"), (build_captions_table,)),
        ),
        DataFile(
            "coco/val2014_labels.tsv", "c412e4b86a8aacae104bee9c135b4a4e655758328269dc2a75e364e32061b95a", 1_124_515,
            # an earlier version of the table: equal rows, with the classes of a row in arbitrary order
            other_hashes=("5b2ed57e858742477f44fdea8374813cd6f4e1235bc00176abe3aecd632ca7ed",),
            recipe=FileRecipe(("coco/instances_val2014.json",), (build_labels_table, build_labels_table_without_crowds)),
        ),
        DataFile(
            "coco/captions_val2014.json", None, None, COCO_2014, zip_member="annotations/captions_val2014.json", use="optional",
        ),
        DataFile(
            "coco/instances_val2014.json", None, None, COCO_2014, zip_member="annotations/instances_val2014.json", use="source",
        ),
        DataFile(
            "coco/captions_val2017.json", "1018a8760deaf1fc71be2f1b8da1a1348b9c35994af4322ca2fd795a78abb79c", 3_872_493,
            COCO_2017, zip_member="annotations/captions_val2017.json", use="optional",
        ),
        DataFile("coco/dataset_coco.json", None, None, KARPATHY, zip_member="dataset_coco.json", use="optional"),
    ),
    folders=(DataFolder("coco/images/val2014", "40,504 images, 6 GB", COCO_IMAGES),),
    count_checks=(
        CountCheck("test captions", 25_000, ("coco/karpathy_test_captions.tsv",), count_tsv_rows),
        CountCheck("test images", 5_000, ("coco/karpathy_test_captions.tsv",), count_tsv_images),
        CountCheck("labelled images", 40_137, ("coco/val2014_labels.tsv",), count_tsv_images),
        CountCheck("classes", 80, ("coco/val2014_labels.tsv",), count_classes),
        CountCheck(
            "test images without an instance", 48, ("coco/karpathy_test_captions.tsv", "coco/val2014_labels.tsv"),
            count_unlabelled_images,
        ),
        CountCheck("images in captions_val2017.json", 5_000, ("coco/captions_val2017.json",), count_coco_images),
        CountCheck("captions in captions_val2017.json", 25_014, ("coco/captions_val2017.json",), count_coco_captions),
    ),
)  # fmt: skip

# Human caption ratings, for `crossmatch captions agree`.
CAPTION_RATINGS = DataSet(
    name="judgements",
    description="human caption ratings: Flickr8k-Expert, Composite and PASCAL-50S, for `captions agree`",
    licence="research use",
    cite="hodosh2013framing",
    homepage="the authors of the three studies (no address has exactly these files; put them into a folder, and use --from)",
    non_commercial=True,
    files=(
        DataFile(FLICKR8K, "835162c77b014cd2191bea942189272af1a54628e0b6c4693f08a2a8d2691fff", 3_582_523),
        DataFile(COMPOSITE, "e772298889adda94620b887a2fbdcc12d880dde768c0dba6f5269fdd8ada06db", 982_538),
        DataFile(PASCAL, "f6033bbcf74583a22d289cf080fff5b930c04cf6d29e33e0170552e8e0237da9", 1_754_543),
    ),
    count_checks=(
        CountCheck("images of Flickr8k-Expert", 1_000, (FLICKR8K,), count_json_records),
        CountCheck("ratings of Flickr8k-Expert", 16_992, (FLICKR8K,), count_single_ratings),
        CountCheck("captions of Composite", 11_985, (COMPOSITE,), count_tsv_rows),
        CountCheck("pairs of PASCAL-50S", 4_000, (PASCAL,), count_listed_items),
    ),
)

BUILT_IN = (CXC, COCO, ECCV_CAPTION, BISON, BIVLC, SUGARCREPE, WINOGROUND, CAPTION_RATINGS)


def list_data_sets() -> tuple[DataSet, ...]:
    """Return all data sets: built-in ones, and those of installed packages."""
    return BUILT_IN + load_plugins(DataSet)


def find_data_set(name: str) -> DataSet:
    """Return the data set with this name.

    >>> find_data_set("ccx")
    Traceback (most recent call last):
    ...
    crossmatch.data.errors.UsageError: there is no data set 'ccx'. Did you mean 'cxc'? `crossmatch list data` lists them all.
    """
    return Catalog("data set", {data_set.name: data_set for data_set in list_data_sets()})[name]


def require_data_file(path: str) -> Path:
    """Return the path of a required file; if it is missing, raise an error that says how to get it."""
    return dataset_files.require_file(path, list_data_sets())


def find_data_file(path: str) -> Path | None:
    """Return the path of an optional file or folder, or None."""
    return dataset_files.find_optional(path, list_data_sets())
