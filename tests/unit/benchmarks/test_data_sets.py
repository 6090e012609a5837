"""The table of data sets: well formed, true of the real files, and the tables that are made of COCO's annotations."""

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

from crossmatch.benchmarks import coco_tables
from crossmatch.benchmarks.data_sets import BUILT_IN, COCO, ECCV_CAPTION, data_sets, have, named, need
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import find, verify
from crossmatch.core.obtain import get

DATA = Path(os.environ.get("CROSSMATCH_DATA") or Path(__file__).parents[4] / "shared/data")
real = pytest.mark.skipif(not (DATA / "cxc").is_dir(), reason="needs the real data in $CROSSMATCH_DATA or ../shared/data")
IDS = find(ECCV_CAPTION.files[0], DATA)
real_coco = pytest.mark.skipif(
    IDS is None or not (DATA / "coco/val2014_labels.tsv").is_file(),
    reason="needs coco and eccv_caption (see `crossmatch data list`)",
)
CAPTIONS, LABELS, OLD, INSTANCES, NEW, KARPATHY = COCO.files


# The declarations


def test_every_path_and_name_is_there_once():
    files = [file.path for data_set in BUILT_IN for file in data_set.files]
    assert len(set(files)) == len(files)
    assert [data_set.name for data_set in data_sets()][:3] == ["cxc", "coco", "eccv-caption"]


@pytest.mark.parametrize("data_set", BUILT_IN, ids=lambda data_set: data_set.name)
def test_declarations_are_well_formed(data_set):
    known = {file.path for other in BUILT_IN for file in other.files}
    for file in data_set.files:
        assert all(re.fullmatch("[0-9a-f]{64}", value) for value in file.hashes)
        assert (file.sha256 is None) == (file.size is None)
        counted = {path for tally in data_set.tallies for path in tally.files}
        assert file.sha256 or file.use != "required" or file.path in counted  # what a benchmark reads must be identified
        assert file.recipe or file.source_url.startswith(("https://", "http://")) or "--from" in data_set.source
        assert set(file.recipe.needs if file.recipe else ()) <= known
    assert {path for tally in data_set.tallies for path in tally.files} <= known
    assert data_set.licence
    assert data_set.tasks or data_set.name == "judgements"  # which `captions agree` reads
    assert data_set.source


def test_a_mistyped_name_has_a_hint():
    with pytest.raises(WrongWords, match="Did you mean 'eccv-caption'"):
        named("eccv_caption")
    with pytest.raises(WrongWords, match="Known: cxc, coco, eccv-caption"):
        named("???")


def test_need_and_have_know_the_table(tmp_path):
    with pytest.raises(CrossmatchError, match="`crossmatch data get cxc`"):
        need("cxc/sts_val.csv", tmp_path)
    assert have("coco/dataset_coco.json", tmp_path) is None


GATED = ("winoground",)  # only people with an account get these


@real
@pytest.mark.parametrize("data_set", [d for d in BUILT_IN if d.name not in GATED], ids=lambda data_set: data_set.name)
def test_the_real_files_have_the_declared_hashes_and_counts(data_set):
    if any(find(file, DATA) is None for file in data_set.using("required")):
        pytest.skip(f"{data_set.name} is not complete here")
    files, counts = verify(data_set, BUILT_IN, DATA)
    assert not [seen for seen in files if seen.bad]
    assert all(seen.state == ("ok" if seen.file.hashes else "unknown") for seen in files if seen.file.use == "required")
    here = {seen.file.path for seen in files if seen.place}
    assert {c.tally.what: c.seen for c in counts} == {
        c.tally.what: c.tally.expected if set(c.tally.files) <= here else None for c in counts
    }


# The tables made of COCO's annotations, on small official json


def official(folder, captions=(), instances=()):
    head = {"info": {"year": 2014}, "licenses": [{"id": 1, "name": "x"}]}
    made = {
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
    for name, content in made.items():
        (folder / name).write_text(json.dumps(content))
    return [folder / name for name in made]


def ids_file(folder, numbers):
    np.save(folder / "ids.npy", np.array(numbers))
    return folder / "ids.npy"


def test_captions_come_in_the_order_of_the_ids_on_one_line_each(tmp_path):
    captions, _ = official(tmp_path, [(5, 42, " A  dog\n"), (9, 7, "not wanted"), (3, 73, "Two\tmen. ")])
    assert coco_tables.captions_table(ids_file(tmp_path, [3, 5]), captions) == (
        "caption_id\timage_id\tcaption\n3\t73\tTwo men.\n5\t42\tA dog\n"
    )


def test_labels_are_sorted_sets_by_image_number_and_crowds_count(tmp_path):
    _, instances = official(tmp_path, (), [(100, 1, 0), (9, 18, 0), (100, 18, 0), (100, 1, 0), (9, 2, 1), (11, 1, 1)])
    assert coco_tables.labels_table(instances) == "image_id\tlabels\n9\tbicycle,dog\n11\tperson\n100\tdog,person\n"
    assert coco_tables.labels_table_without_crowds(instances) == "image_id\tlabels\n9\tdog\n100\tdog,person\n"


def test_annotations_of_another_split_are_named(tmp_path):
    captions, instances = official(tmp_path, [(5, 42, "A dog")])
    with pytest.raises(
        CrossmatchError, match=r"captions_val2014.json lacks 2 of the 3 test captions; first missing: 6\. Give COCO's"
    ):
        coco_tables.captions_table(ids_file(tmp_path, [5, 6, 7]), captions)
    with pytest.raises(CrossmatchError, match="has no list of annotations with caption, id, image_id"):
        coco_tables.captions_table(ids_file(tmp_path, [5]), official(tmp_path, (), [(1, 1, 0)])[1])
    instances.write_text("[1, 2]")
    with pytest.raises(CrossmatchError, match="has no list of categories"):
        coco_tables.labels_table(instances)
    instances.write_text("{")
    with pytest.raises(CrossmatchError, match="is not a json file"):
        coco_tables.labels_table(instances)


def test_annotations_that_differ_in_one_class_are_refused_and_the_hash_decides_about_crowds(tmp_path):
    right = b"image_id\tlabels\n9\tdog\n100\tdog,person\n"
    file = replace(LABELS, sha256=hashlib.sha256(right).hexdigest(), size=len(right), also=())
    labels = replace(COCO, files=(file, INSTANCES), tallies=())

    def bring(*instances):
        official(tmp_path, (), [(100, 1, 0), (9, 18, 0), (100, 18, 0), *instances])
        get(labels, [labels], tmp_path / "data", source=tmp_path, say=lambda line: None)

    with pytest.raises(CrossmatchError, match=rf"coco/val2014_labels.tsv: made from .*, expected {file.sha256}: those are not"):
        bring((9, 1, 0))
    assert not (tmp_path / "data/coco/val2014_labels.tsv").exists()
    bring((9, 1, 1))  # a crowd: without crowds the table fits
    assert (tmp_path / "data/coco/val2014_labels.tsv").read_bytes() == right


# The same on the real tables


@real_coco
@pytest.mark.skipif(not (DATA / NEW.path).is_file(), reason="needs coco/captions_val2017.json")
def test_the_rule_for_captions_gives_the_real_rows_of_all_images_shared_with_val2017(tmp_path):
    shared = {a["id"] for a in json.loads((DATA / NEW.path).read_text())["annotations"]}
    chosen = [number for number in np.load(IDS).tolist() if number in shared]
    head, *rows = (DATA / CAPTIONS.path).read_text().splitlines(keepends=True)
    expected = [row for row in rows if int(row.split("\t")[0]) in shared]
    assert len(expected) == 2965
    assert coco_tables.captions_table(ids_file(tmp_path, chosen), DATA / NEW.path) == "".join([head, *expected])


@pytest.fixture(scope="module")
def hand(tmp_path_factory):
    """COCO's two json files as they may have been: the real tables in another order, with stray white space, classes repeated."""
    folder, dice = tmp_path_factory.mktemp("hand"), random.Random(0)
    rows = [row.split("\t") for row in (DATA / CAPTIONS.path).read_text().splitlines()[1:]]
    space = [" ", "  ", "\n", " \n"]
    captions = [(int(n), int(i), dice.choice(space) + c.replace(" ", dice.choice(space)) + dice.choice(space)) for n, i, c in rows]
    labelled = [row.split("\t") for row in (DATA / LABELS.path).read_text().splitlines()[1:]]
    classes = sorted({name for _, names in labelled for name in names.split(",")})
    instances = [(int(i), name, 0) for i, names in labelled for name in (*names.split(","), names.split(",")[0])]
    for items in (captions, instances):
        dice.shuffle(items)
    made = (
        {"annotations": [{"id": n, "image_id": i, "caption": c} for n, i, c in captions]},
        {
            "annotations": [{"image_id": i, "category_id": classes.index(name), "iscrowd": crowd} for i, name, crowd in instances],
            "categories": [{"id": n, "name": name} for n, name in enumerate(classes)],
        },
    )
    for file, content in zip((OLD, INSTANCES), made, strict=True):
        (folder / file.name).write_text(json.dumps(content))
    return folder


@real_coco
def test_both_tables_come_out_with_their_hashes_whatever_the_order_of_the_annotations(hand, tmp_path):
    get(COCO, BUILT_IN, tmp_path / "data", source=hand, say=lambda line: None)
    seen = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (tmp_path / "data/coco").iterdir()}
    assert seen[CAPTIONS.name] == CAPTIONS.sha256
    assert seen[LABELS.name] == LABELS.sha256
    assert set(seen) == {CAPTIONS.name, LABELS.name, OLD.name}  # the captions of all of val2014 are kept, the instances are not
    assert (hand / INSTANCES.name).exists()
    files, counts = verify(COCO, BUILT_IN, tmp_path / "data")
    assert not [thing for thing in (*files, *counts) if thing.bad]


@real_coco
def test_the_official_archive_at_hand_will_do(hand, tmp_path):
    (tmp_path / "zip").mkdir()
    with zipfile.ZipFile(tmp_path / "zip/annotations_trainval2014.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        for file in (OLD, INSTANCES):
            packed.write(hand / file.name, file.member)
    get(COCO, BUILT_IN, tmp_path / "data", source=tmp_path / "zip", say=lambda line: None)
    assert {p.name for p in (tmp_path / "data/coco").iterdir()} == {CAPTIONS.name, LABELS.name, OLD.name}


@real_coco
def test_the_table_of_labels_as_first_written_is_the_made_one_in_another_order():
    rows = [row.split("\t") for row in (DATA / LABELS.path).read_text().splitlines()]
    sorted_rows = [f"{image}\t{','.join(sorted(names.split(',')))}\n" for image, names in rows]
    assert hashlib.sha256("".join(sorted_rows).encode()).hexdigest() == LABELS.sha256
    assert hashlib.sha256((DATA / LABELS.path).read_bytes()).hexdigest() in LABELS.hashes


def test_without_network_and_files_the_error_says_what_to_do(tmp_path):
    alone = replace(COCO, files=tuple(replace(f, source_url="http://127.0.0.1:9/a.zip") if f.source_url else f for f in COCO.files))
    with pytest.raises(CrossmatchError) as error:
        get(alone, [alone, ECCV_CAPTION], tmp_path, source=tmp_path, say=lambda line: None)
    assert "\n" not in str(error.value)
    assert "coco lacks 2 of 2 files: coco/karpathy_test_captions.tsv: it is made from " in str(error.value)
