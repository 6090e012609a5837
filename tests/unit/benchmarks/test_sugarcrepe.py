"""SugarCrepe from small files: the csv and the json of each subset give the same trials."""

import csv
import json

import pytest

from crossmatch.benchmarks import sugarcrepe
from crossmatch.benchmarks.datasets.dataset_table import SUGARCREPE, list_data_sets
from crossmatch.benchmarks.sugarcrepe import SUBSETS, load
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.io.dataset_files import find_optional, require_file
from crossmatch.data.loaded_data import data_hash

FIELDS = ("filename", "caption", "negative_caption", "type", "subtype")
ROWS = [
    (f"{n:012d}.jpg", f"A {subset} {n}. \n", f"Not a {subset} {n}.", *subset.split("_")) for subset in SUBSETS for n in range(3)
]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The data folder; files of any size are accepted."""
    monkeypatch.setenv("CROSSMATCH_DATA", str(tmp_path))
    others = tuple(data_set for data_set in list_data_sets() if data_set is not SUGARCREPE)
    monkeypatch.setattr(sugarcrepe, "require_data_file", lambda path: require_file(path, others))
    monkeypatch.setattr(sugarcrepe, "find_data_file", lambda path: find_optional(path, others))
    folder = tmp_path / "sugarcrepe"
    folder.mkdir()

    def write(rows=ROWS, source="csv"):
        if source == "csv":
            with (folder / "test_SugarCrepe.csv").open("w", newline="") as file:
                writer = csv.writer(file, quoting=csv.QUOTE_ALL)
                writer.writerow(FIELDS)
                writer.writerows(rows)
            return folder
        for subset in SUBSETS:
            subset_rows = [row for row in rows if row[3:] == tuple(subset.split("_"))]
            records = {str(n): dict(zip(FIELDS[:3], row[:3], strict=True)) for n, row in enumerate(subset_rows)}
            (folder / f"{subset}.json").write_text(json.dumps(records))
        return folder

    return write


def test_both_sources_give_the_same_trials(data):
    data()
    data(source="json")
    table, texts = load("csv"), load("json")
    assert data_hash(table) == data_hash(texts)
    assert table.ids.tolist() == texts.ids.tolist()
    assert table.shape == (2, 1)
    assert table.ids.tolist()[:4] == ["add_obj/0", "add_obj/1", "add_obj/2", "add_att/0"]
    assert table.captions[0].tolist() == ["A add_obj 0.", "Not a add_obj 0."]
    assert table.categories.tolist()[::3] == [subset.replace("_", "/") for subset in SUBSETS]


def test_ids_follow_from_the_order_of_rows_in_each_subset(data):
    data(sorted(ROWS))  # subsets mixed
    assert sorted(load("csv").ids) == sorted(f"{subset}/{n}" for subset in SUBSETS for n in range(3))


def test_missing_json_record_does_not_change_other_ids(data):
    folder = data(source="json")
    records = json.loads((folder / "swap_obj.json").read_text())
    del records["1"]
    (folder / "swap_obj.json").write_text(json.dumps(records))
    assert [name for name in load("json").ids if name.startswith("swap_obj")] == ["swap_obj/0", "swap_obj/2"]
    assert load("json").file_rows.tolist() == [n for n in range(21) if n != 3 * SUBSETS.index("swap_obj") + 1]


def test_missing_csv_suggests_the_json_files(data):
    data(source="json")
    with pytest.raises(CrossmatchError, match=r"lack one record: -t sugarcrepe\+source=json"):
        load("csv")
    with pytest.raises(UsageError, match="csv or json .got 'xml'"):
        load("xml")


def test_images_are_those_of_coco_2017(data, tmp_path):
    image = pytest.importorskip("PIL.Image")
    data()
    with pytest.raises(CrossmatchError, match=r"val2017\.zip"):
        load("csv").open_image(ROWS[0][0])
    (tmp_path / "coco/images/val2017").mkdir(parents=True)
    image.new("RGB", (2, 3)).save(tmp_path / "coco/images/val2017" / ROWS[0][0])
    assert load("csv").open_image(ROWS[0][0]).size == (2, 3)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("1.jpg", "A cat.", "A  cat. ", "swap", "obj"), "trial 'swap_obj/3' has the caption 'A cat.' twice"),
        (("1.jpg", " ", "A cat.", "swap", "obj"), "trial 'swap_obj/3' has an empty caption_0"),
        (("", "A dog.", "A cat.", "swap", "obj"), "trial 'swap_obj/3'.*filename"),
    ],
)
def test_invalid_trial_is_an_error(data, row, message):
    data([*ROWS, row])
    with pytest.raises(CrossmatchError, match=message):
        load("csv")


def test_unknown_subset_is_an_error(data):
    data([*ROWS, ("1.jpg", "A dog.", "A cat.", "turn", "obj")])
    with pytest.raises(CrossmatchError, match=r"Trial 'turn_obj/0'.*'turn/obj'.*add/obj"):
        sugarcrepe.SUGARCREPE.load(source="csv")


def test_invalid_csv_and_json_are_an_error(data):
    folder = data()
    (folder / "test_SugarCrepe.csv").write_text("filename,caption,type,subtype\na,b,c,d\n")
    with pytest.raises(CrossmatchError, match="'negative_caption' is missing"):
        load("csv")
    data(source="json")
    for text, message in (
        ("[1]", "is not a json object"),
        ("{", "not a JSON file"),
        ('{"5": {"caption": "x"}}', "'add_obj/5' has no text"),
    ):
        (folder / "add_obj.json").write_text(text)
        with pytest.raises(CrossmatchError, match=message):
            load("json")
