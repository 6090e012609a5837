"""Counts and means of the papers from the published annotations, and their lists of invalid items."""

from __future__ import annotations

import json

import numpy as np
import pytest

from crossmatch.benchmarks import list_benchmarks
from crossmatch.benchmarks.coco import INVALID_CAPTIONS, INVALID_IMAGES, MEANINGLESS, WRONG, coco_collection
from crossmatch.benchmarks.cxc import cxc_ratings, read_official_table, read_ratings
from crossmatch.benchmarks.datasets.dataset_table import require_data_file
from crossmatch.data.errors import UsageError
from crossmatch.data.io.paths import data_folder
from crossmatch.data.loaded_data import Retrieval

pytestmark = pytest.mark.usefixtures("real_data")


def loaded(name: str, **options: str) -> Retrieval:
    return list_benchmarks()[name].load(**options)


def official(name: str) -> dict[str, list[int]]:
    return json.loads(require_data_file(f"eccv_caption/{name}.json").read_bytes())


def test_the_test_split_is_karpathys():
    dataset = coco_collection("test")
    assert dataset.shape == (5_000, 25_000)
    assert dataset.caption_ids.tolist() == [str(n) for n in np.load(require_data_file("eccv_caption/coco_test_ids.npy"))]
    links = {(str(dataset.image_ids[i]), int(dataset.caption_ids[c])) for i, c in dataset.links}
    assert links == {(i, c) for i, cs in official("original_image_to_caption").items() for c in cs}


def test_val_split_has_its_ids():
    dataset = coco_collection("val")
    assert dataset.shape == (5_000, 25_000)
    assert not set(dataset.image_ids) & set(coco_collection("test").image_ids)
    assert (np.bincount(dataset.links[:, 0]) == 5).all()


METHODS = {"sts": {"c2c_isim", "c2c_cocaption"}, "sis": {"i2i_csim"}, "sits": {"c2i_intrasim", "c2i_original"}}


@pytest.mark.parametrize(
    ("task", "split", "rows"),
    [("sts", "val", 44_009), ("sts", "test", 44_045), ("sis", "val", 42_767), ("sis", "test", 46_719), ("sits", "val", 44_722),
     ("sits", "test", 44_833)],
)  # fmt: skip
def test_every_rating_is_read(task, split, rows):
    table = read_ratings(task, split, data_folder())
    assert len(table.grades) == rows
    assert set(table.methods) == METHODS[task], "the column sampling_method is kept"


def test_cxc_positives_are_those_of_the_official_package():
    judgements = cxc_ratings(coco_collection("test"), "sits", "test").judgements()
    dataset = coco_collection("test")
    positive = judgements.grades >= judgements.positive
    at = zip(judgements.rows[positive], judgements.columns[positive], strict=True)
    pairs = {(str(dataset.image_ids[i]), int(dataset.caption_ids[c])) for i, c in at}
    assert (len(pairs), len({c for _, c in pairs})) == (35_585, 24_972)
    assert pairs == {(i, c) for i, cs in official("cxc_image_to_caption").items() for c in cs}
    assert pairs == {(str(i), int(c)) for c, images in official("cxc_caption_to_image").items() for i in images}


def mean_of(task: str, method: str) -> float:
    columns = {"sits": ("caption", "image"), "sts": ("caption1", "caption2")}[task]
    rows = read_official_table(f"cxc/{task}_val.csv", (*columns, "agg_score", "sampling_method"))
    return float(np.mean([float(row[2]) for row in rows if row[3] == method]))


def test_means_equal_the_cxc_paper():
    assert round(mean_of("sits", "c2i_original"), 2) == 4.85
    assert round(mean_of("sts", "c2c_cocaption"), 2) == 2.99


def test_counts_equal_table_3_of_the_eccv_paper():
    """Positive images of the 1,332 caption queries, and positive captions of the 1,261 image queries."""
    eccv, links, cxc = loaded("eccv-caption"), loaded("coco-5k").judgements["links"], loaded("cxc").judgements["sits"]
    captions, images = (eccv.judgements[d].candidate_lists(d).query for d in ("t2i", "i2t"))
    assert (len(captions), len(images)) == (1_332, 1_261)
    positive = cxc.grades >= cxc.positive
    counts = {
        "original": (np.isin(links.columns, captions).sum(), np.isin(links.rows, images).sum()),
        "cxc": (np.isin(cxc.columns[positive], captions).sum(), np.isin(cxc.rows[positive], images).sum()),
        "eccv": (eccv.judgements["t2i"].positive_count, eccv.judgements["i2t"].positive_count),
    }
    assert counts == {"original": (1_332, 6_305), "cxc": (1_895, 8_906), "eccv": (11_279, 22_550)}


def test_published_positives_contain_all_of_cxc_but_one():
    """The file holds the union of verified and CxC positives, without saying which is which; and all of CxC but one pair."""
    eccv, cxc = loaded("eccv-caption"), loaded("cxc").judgements["sits"]
    positive = cxc.grades >= cxc.positive
    width = eccv.collection.shape[1]
    pairs = {d: set((relevance.rows * width + relevance.columns).tolist()) for d, relevance in eccv.judgements.items()}
    of_cxc = set((cxc.rows * width + cxc.columns)[positive].tolist())
    queries = {d: set(eccv.judgements[d].candidate_lists(d).query.tolist()) for d in ("i2t", "t2i")}
    missing = {
        "i2t": sum(key // width in queries["i2t"] and key not in pairs["i2t"] for key in of_cxc),
        "t2i": sum(key % width in queries["t2i"] and key not in pairs["t2i"] for key in of_cxc),
    }
    assert missing == {"i2t": 1, "t2i": 0}


def test_two_eccv_positives_are_not_in_the_split():
    eccv = loaded("eccv-caption")
    assert len(eccv.judgements["i2t"].absent_positives) == 2
    assert {str(eccv.collection.image_ids[q]) for q in eccv.judgements["i2t"].absent_positives} == {"575916", "421999"}
    assert not eccv.judgements["t2i"].absent_positives


def test_invalid_items_equal_the_paper():
    dataset = coco_collection("test")
    assert (len(MEANINGLESS), len(WRONG)) == (18, 14)
    text = dict(zip(dataset.caption_ids.tolist(), dataset.captions, strict=True))
    assert set(text) >= INVALID_CAPTIONS
    assert text["248212"] == "I am unable to see an image above."
    assert text["75083"] == "A group of birds flying above the beach."
    assert set(dataset.image_ids) >= INVALID_IMAGES


@pytest.mark.parametrize(
    ("name", "kept", "dropped"),
    [("coco-5k", 32 + 5, 0), ("coco-1k", 32 + 5, 0), ("eccv-caption", 5, 0)],
)
def test_invalid_items_are_dropped(name, kept, dropped):
    """Dropped as queries and positives; still candidates, so that every model ranks the same gallery."""

    def occurring(data):
        dataset = data.collection
        image, caption = np.isin(dataset.image_ids, list(INVALID_IMAGES)), np.isin(dataset.caption_ids, list(INVALID_CAPTIONS))
        return sum(int((image[s.rows] | caption[s.columns]).sum()) for s in data.judgements.values())

    assert occurring(loaded(name)) == kept
    assert occurring(loaded(name, invalid="drop")) == dropped
    assert loaded(name, invalid="drop").collection.shape == (5_000, 25_000)


def test_missing_split_is_named():
    for name in ("eccv-caption", "coco-1k"):
        with pytest.raises(UsageError, match="split"):
            loaded(name, split="val")
    with pytest.raises(UsageError, match="train"):
        loaded("coco-5k", split="train")


def test_folds_are_five_of_a_thousand_images():
    relevance = loaded("coco-1k").judgements["links"]
    assert relevance.folds is not None
    assert np.bincount(relevance.folds[0]).tolist() == [1_000] * 5
    assert np.bincount(relevance.folds[1]).tolist() == [5_000] * 5


@pytest.mark.parametrize("split", ["val", "test"])
def test_plausible_matches_equal_a_loop(split):
    """A hundred images by hand: as many matches as label sets that differ in at most zeta of 80 places."""
    data = loaded("pmrp", split=split)
    relevance, dataset = data.judgements["plausible"], data.collection
    rows = read_official_table("coco/val2014_labels.tsv", ("image_id", "labels"), "\t")
    labels = {image: frozenset(names.split(",")) for image, names in rows}
    sets = [labels.get(str(image), frozenset()) for image in dataset.image_ids]
    owners = dataset.caption_owners()
    result = relevance.positive_counts("i2t")
    for i in range(0, 5_000, 50):
        apart = np.array([len(sets[i] ^ labels_of_image) for labels_of_image in sets])[owners]
        assert result[:, i].tolist() == [int((apart <= zeta).sum()) for zeta in (0, 1, 2)]


def test_counts_of_the_unimodal_tasks():
    """16,184 caption pairs are rated 3 or more, none in both orders; image pairs rated in both orders are merged."""
    result = loaded("cxc").judgements
    assert (len(result["sts"].candidate_lists("t2t").query), result["sts"].positive_count) == (20_205, 2 * 16_184)
    table = read_ratings("sis", "test", data_folder())
    merged: dict[frozenset[str], list[float]] = {}
    for a, b, grade in zip(table.first, table.second, table.grades, strict=True):
        merged.setdefault(frozenset((a, b)), []).append(grade)
    assert result["sis"].positive_count == 2 * sum(np.mean(ratings) >= 2.5 for ratings in merged.values())


def test_captions_of_one_image_are_not_all_similar():
    rows = read_official_table("cxc/sts_test.csv", ("caption1", "caption2", "agg_score", "sampling_method"))
    grades = np.array([float(row[2]) for row in rows if row[3] == "c2c_cocaption"])
    assert round(100 * float((grades < 3).mean())) == 38


def test_co_captions_count_on_request():
    """The reading of text-to-text retrieval that fits the paper's Table 3."""
    result = loaded("cxc", cocaptions="all").judgements["sts"]
    dataset = coco_collection("test")
    owner = dataset.caption_owners()
    assert len(result.candidate_lists("t2t").query) == 25_000
    positive = result.grades >= result.positive
    same = owner[result.rows[positive]] == owner[result.columns[positive]]
    assert same.sum() == 25_000 * 4
    rated = loaded("cxc").judgements["sts"]
    is_other = owner[rated.rows] != owner[rated.columns]
    assert (~same).sum() == (rated.grades[is_other] >= rated.positive).sum()


def test_decisions_describe_the_published_files():
    eccv = loaded("eccv-caption")
    width = eccv.collection.shape[1]
    pairs = [set((eccv.judgements[d].rows * width + eccv.judgements[d].columns).tolist()) for d in ("i2t", "t2i")]
    assert len(pairs[0] & pairs[1]) == 6_089
    queries = set(official("eccv_caption_to_image")) | set(official("eccv_image_to_caption"))
    assert not queries & (INVALID_CAPTIONS | INVALID_IMAGES)
    assert not any(int(i) in images for i in INVALID_IMAGES for images in official("eccv_caption_to_image").values())
    wrong = [c for captions in official("eccv_image_to_caption").values() for c in captions if str(c) in INVALID_CAPTIONS]
    assert (len(wrong), len(set(wrong)), set(map(str, wrong)) <= set(map(str, WRONG))) == (5, 3, True)
    table = read_ratings("sis", "test", data_folder())
    rated = set(zip(table.first.tolist(), table.second.tolist(), strict=True))
    assert sum((b, a) in rated for a, b in rated) == 2 * 2_863


def test_few_released_caption_pairs_of_similar_images_are_positive():
    """parekh2021cxc, sec. 3, has 20,587 positive pairs by image similarity; of the released pairs 1,675 are rated 3 or more."""
    rows = [
        row
        for split in ("val", "test")
        for row in read_official_table(f"cxc/sts_{split}.csv", ("caption1", "caption2", "agg_score", "sampling_method"))
    ]
    positive = {method: sum(float(row[2]) >= 3 for row in rows if row[3] == method) for method in ("c2c_isim", "c2c_cocaption")}
    assert positive == {"c2c_isim": 1_092 + 583, "c2c_cocaption": 13_691 + 15_601}
