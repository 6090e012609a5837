"""The table of data sets: declarations, real files, and the tables built from COCO's annotations."""

import hashlib
import json
import os
import random
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crossmatch.benchmarks.datasets import coco_tables
from crossmatch.benchmarks.datasets.dataset_table import (
    BUILT_IN,
    COCO,
    ECCV_CAPTION,
    find_data_file,
    find_data_set,
    list_data_sets,
    require_data_file,
)
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.dataset_files import find_file, verify_data_set
from crossmatch.data.io.dataset_install import install_data_set

DATA = Path(os.environ.get("CROSSMATCH_DATA") or Path(__file__).parents[5] / "shared/data")
real = pytest.mark.skipif(not (DATA / "cxc").is_dir(), reason="needs the real data in $CROSSMATCH_DATA or ../shared/data")
IDS = find_file(ECCV_CAPTION.files[0], DATA)
real_coco = pytest.mark.skipif(
    IDS is None or not (DATA / "coco/val2014_labels.tsv").is_file(),
    reason="needs coco and eccv_caption (see `crossmatch list data`)",
)
CAPTIONS, LABELS, CAPTIONS_2014, INSTANCES, CAPTIONS_2017, KARPATHY = COCO.files


# Declarations


def test_paths_and_names_are_unique():
    files = [file.path for data_set in BUILT_IN for file in data_set.files]
    assert len(set(files)) == len(files)
    assert [data_set.name for data_set in list_data_sets()][:3] == ["cxc", "coco", "eccv-caption"]


@pytest.mark.parametrize("data_set", BUILT_IN, ids=lambda data_set: data_set.name)
def test_declarations_are_well_formed(data_set):
    all_paths = {file.path for declared in BUILT_IN for file in declared.files}
    for file in data_set.files:
        assert all(re.fullmatch("[0-9a-f]{64}", value) for value in file.hashes)
        assert (file.sha256 is None) == (file.size is None)
        counted = {path for check in data_set.count_checks for path in check.files}
        assert file.sha256 or file.use != "required" or file.path in counted  # what a benchmark reads must be identified
        assert file.recipe or file.source_url.startswith(("https://", "http://")) or "--from" in data_set.homepage
        assert set(file.recipe.needs if file.recipe else ()) <= all_paths
    assert {path for check in data_set.count_checks for path in check.files} <= all_paths
    assert data_set.licence
    assert data_set.tasks or data_set.name == "judgements"  # which `captions agree` reads
    assert data_set.homepage


def test_a_mistyped_name_has_a_hint():
    with pytest.raises(UsageError, match="Did you mean 'eccv-caption'"):
        find_data_set("eccv_caption")
    with pytest.raises(UsageError, match="Known: cxc, coco, eccv-caption"):
        find_data_set("???")


def test_data_files_are_looked_up_in_the_table(tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSMATCH_DATA", str(tmp_path))
    with pytest.raises(CrossmatchError, match="`crossmatch data get cxc`"):
        require_data_file("cxc/sts_val.csv")
    assert find_data_file("coco/dataset_coco.json") is None


GATED = ("winoground",)  # only people with an account get these


@real
@pytest.mark.parametrize("data_set", [d for d in BUILT_IN if d.name not in GATED], ids=lambda data_set: data_set.name)
def test_real_files_have_the_declared_hashes_and_counts(data_set):
    if any(find_file(file, DATA) is None for file in data_set.files_by_use("required")):
        pytest.skip(f"{data_set.name} is not complete here")
    files, counts = verify_data_set(data_set, BUILT_IN, DATA)
    assert not [file_state for file_state in files if file_state.is_bad]
    assert all(
        file_state.state == ("ok" if file_state.file.hashes else "unknown")
        for file_state in files
        if file_state.file.use == "required"
    )
    present = {file_state.file.path for file_state in files if file_state.path}
    assert {c.check.counted_item: c.count for c in counts} == {
        c.check.counted_item: c.check.expected if set(c.check.files) <= present else None for c in counts
    }


# Tables from small COCO annotations


def official(folder, captions=(), instances=()):
    head = {"info": {"year": 2014}, "licenses": [{"id": 1, "name": "x"}]}
    contents = {
        "captions_val2014.json": {**head, "annotations": [{"image_id": i, "id": n, "caption": c} for n, i, c in captions]},
        "instances_val2014.json": {
            **head,
            "annotations": [
                {"segmentation": [[1.5, 2]], "area": 1.0, "iscrowd": crowd, "image_id": i, "category_id": c, "id": n}
                for n, (i, c, crowd) in enumerate(instances)
            ],
            "categories": [{"supercategory": "x", "id": n, "name": c} for n, c in ((1, "person"), (18, "dog"), (2, "bicycle"))],
        },
    }  # fmt: skip
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content))
    return [folder / name for name in contents]


def ids_file(folder, numbers):
    np.save(folder / "ids.npy", np.array(numbers))
    return folder / "ids.npy"


def test_captions_table_follows_the_order_of_ids(tmp_path):
    captions, _ = official(tmp_path, [(5, 42, " A  dog\n"), (9, 7, "not wanted"), (3, 73, "Two\tmen. ")])
    assert coco_tables.build_captions_table(ids_file(tmp_path, [3, 5]), captions) == (
        "caption_id\timage_id\tcaption\n3\t73\tTwo men.\n5\t42\tA dog\n"
    )


def test_labels_table_is_sorted_and_includes_crowds(tmp_path):
    _, instances = official(tmp_path, (), [(100, 1, 0), (9, 18, 0), (100, 18, 0), (100, 1, 0), (9, 2, 1), (11, 1, 1)])
    assert coco_tables.build_labels_table(instances) == "image_id\tlabels\n9\tbicycle,dog\n11\tperson\n100\tdog,person\n"
    assert coco_tables.build_labels_table_without_crowds(instances) == "image_id\tlabels\n9\tdog\n100\tdog,person\n"


def test_annotations_of_another_split_are_an_error(tmp_path):
    captions, instances = official(tmp_path, [(5, 42, "A dog")])
    with pytest.raises(
        CrossmatchError, match=r"captions_val2014.json lacks 2 of 3 test captions; the first missing id is 6\. Give COCO's"
    ):
        coco_tables.build_captions_table(ids_file(tmp_path, [5, 6, 7]), captions)
    with pytest.raises(CrossmatchError, match="has no list of annotations with caption, id, image_id"):
        coco_tables.build_captions_table(ids_file(tmp_path, [5]), official(tmp_path, (), [(1, 1, 0)])[1])
    instances.write_text("[1, 2]")
    with pytest.raises(CrossmatchError, match="has no list of categories"):
        coco_tables.build_labels_table(instances)
    instances.write_text("{")
    with pytest.raises(CrossmatchError, match="is not a JSON file"):
        coco_tables.build_labels_table(instances)


def test_hash_decides_whether_crowds_count(tmp_path):
    right = b"image_id\tlabels\n9\tdog\n100\tdog,person\n"
    file = replace(LABELS, sha256=hashlib.sha256(right).hexdigest(), size=len(right), other_hashes=())
    labels = replace(COCO, files=(file, INSTANCES), count_checks=())

    def install(*instances):
        official(tmp_path, (), [(100, 1, 0), (9, 18, 0), (100, 18, 0), *instances])
        install_data_set(labels, [labels], tmp_path / "data", source=tmp_path, report=lambda line: None)

    with pytest.raises(CrossmatchError, match=rf"coco/val2014_labels.tsv: made from .*, expected {file.sha256}: these are not"):
        install((9, 1, 0))
    assert not (tmp_path / "data/coco/val2014_labels.tsv").exists()
    install((9, 1, 1))  # a crowd: without crowds the table fits
    assert (tmp_path / "data/coco/val2014_labels.tsv").read_bytes() == right


# Tables from the real annotations


@real_coco
@pytest.mark.skipif(not (DATA / CAPTIONS_2017.path).is_file(), reason="needs coco/captions_val2017.json")
def test_captions_table_equals_the_real_rows(tmp_path):
    shared = {a["id"] for a in json.loads((DATA / CAPTIONS_2017.path).read_text())["annotations"]}
    chosen = [number for number in np.load(IDS).tolist() if number in shared]
    head, *rows = (DATA / CAPTIONS.path).read_text().splitlines(keepends=True)
    expected = [row for row in rows if int(row.split("\t")[0]) in shared]
    assert len(expected) == 2965
    assert coco_tables.build_captions_table(ids_file(tmp_path, chosen), DATA / CAPTIONS_2017.path) == "".join([head, *expected])


@pytest.fixture(scope="module")
def local_folder(tmp_path_factory):
    """COCO's two json files, reconstructed from the real tables in random order with extra white space and classes."""
    folder, rng = tmp_path_factory.mktemp("hand"), random.Random(0)
    rows = [row.split("\t") for row in (DATA / CAPTIONS.path).read_text().splitlines()[1:]]
    space = [" ", "  ", "\n", " \n"]
    captions = [(int(n), int(i), rng.choice(space) + c.replace(" ", rng.choice(space)) + rng.choice(space)) for n, i, c in rows]
    labelled = [row.split("\t") for row in (DATA / LABELS.path).read_text().splitlines()[1:]]
    classes = sorted({name for _, names in labelled for name in names.split(",")})
    instances = [(int(i), name, 0) for i, names in labelled for name in (*names.split(","), names.split(",")[0])]
    for items in (captions, instances):
        rng.shuffle(items)
    contents = (
        {"annotations": [{"id": n, "image_id": i, "caption": c} for n, i, c in captions]},
        {
            "annotations": [{"image_id": i, "category_id": classes.index(name), "iscrowd": crowd} for i, name, crowd in instances],
            "categories": [{"id": n, "name": name} for n, name in enumerate(classes)],
        },
    )
    for file, content in zip((CAPTIONS_2014, INSTANCES), contents, strict=True):
        (folder / file.name).write_text(json.dumps(content))
    return folder


@real_coco
def test_tables_do_not_depend_on_the_order_of_annotations(local_folder, tmp_path):
    install_data_set(COCO, BUILT_IN, tmp_path / "data", source=local_folder, report=lambda line: None)
    hashes = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (tmp_path / "data/coco").iterdir()}
    assert hashes[CAPTIONS.name] == CAPTIONS.sha256
    assert hashes[LABELS.name] == LABELS.sha256
    assert set(hashes) == {
        CAPTIONS.name,
        LABELS.name,
        CAPTIONS_2014.name,
    }  # the captions of all of val2014 are kept, the instances are not
    assert (local_folder / INSTANCES.name).exists()
    files, counts = verify_data_set(COCO, BUILT_IN, tmp_path / "data")
    assert not [check for check in (*files, *counts) if check.is_bad]


@real_coco
def test_tables_are_built_from_a_local_archive(local_folder, tmp_path):
    (tmp_path / "zip").mkdir()
    with zipfile.ZipFile(tmp_path / "zip/annotations_trainval2014.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for file in (CAPTIONS_2014, INSTANCES):
            archive.write(local_folder / file.name, file.zip_member)
    install_data_set(COCO, BUILT_IN, tmp_path / "data", source=tmp_path / "zip", report=lambda line: None)
    assert {p.name for p in (tmp_path / "data/coco").iterdir()} == {CAPTIONS.name, LABELS.name, CAPTIONS_2014.name}


@real_coco
def test_earlier_labels_table_differs_only_in_order():
    rows = [row.split("\t") for row in (DATA / LABELS.path).read_text().splitlines()]
    sorted_rows = [f"{image}\t{','.join(sorted(names.split(',')))}\n" for image, names in rows]
    assert hashlib.sha256("".join(sorted_rows).encode()).hexdigest() == LABELS.sha256
    assert hashlib.sha256((DATA / LABELS.path).read_bytes()).hexdigest() in LABELS.hashes


def test_failed_install_says_what_is_missing(tmp_path):
    offline = replace(
        COCO, files=tuple(replace(f, source_url="http://127.0.0.1:9/a.zip") if f.source_url else f for f in COCO.files)
    )
    with pytest.raises(CrossmatchError) as error:
        install_data_set(offline, [offline, ECCV_CAPTION], tmp_path, source=tmp_path, report=lambda line: None)
    assert "\n" not in str(error.value)
    assert "coco lacks 2 of 2 files: coco/karpathy_test_captions.tsv: it is made from " in str(error.value)
