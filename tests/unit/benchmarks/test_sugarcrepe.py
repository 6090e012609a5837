"""SugarCrepe from made-up files: the csv and the json of each subset give the same trials."""

import csv
import json

import pytest

from crossmatch.benchmarks import sugarcrepe
from crossmatch.benchmarks.data_sets import SUGARCREPE, data_sets
from crossmatch.benchmarks.sugarcrepe import SUBSETS, load
from crossmatch.core.benchmark import data_hash
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.files import have, need

FIELDS = ("filename", "caption", "negative_caption", "type", "subtype")
ROWS = [
    (f"{n:012d}.jpg", f"A {subset} {n}. \n", f"Not a {subset} {n}.", *subset.split("_")) for subset in SUBSETS for n in range(3)
]


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The loader with files of any size: the real ones are told by theirs."""
    monkeypatch.setenv("CROSSMATCH_DATA", str(tmp_path))
    others = tuple(data_set for data_set in data_sets() if data_set is not SUGARCREPE)
    monkeypatch.setattr(sugarcrepe, "need", lambda path: need(path, others))
    monkeypatch.setattr(sugarcrepe, "have", lambda path: have(path, others))
    folder = tmp_path / "sugarcrepe"
    folder.mkdir()

    def write(rows=ROWS, source="csv"):
        if source == "csv":
            with (folder / "test_SugarCrepe.csv").open("w", newline="") as file:
                out = csv.writer(file, quoting=csv.QUOTE_ALL)
                out.writerow(FIELDS)
                out.writerows(rows)
            return folder
        for subset in SUBSETS:
            kept = [row for row in rows if row[3:] == tuple(subset.split("_"))]
            held = {str(n): dict(zip(FIELDS[:3], row[:3], strict=True)) for n, row in enumerate(kept)}
            (folder / f"{subset}.json").write_text(json.dumps(held))
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


def test_a_record_that_the_json_lacks_leaves_the_other_ids_alone(data):
    folder = data(source="json")
    held = json.loads((folder / "swap_obj.json").read_text())
    del held["1"]
    (folder / "swap_obj.json").write_text(json.dumps(held))
    assert [name for name in load("json").ids if name.startswith("swap_obj")] == ["swap_obj/0", "swap_obj/2"]
    assert load("json").rows.tolist() == [n for n in range(21) if n != 3 * SUBSETS.index("swap_obj") + 1]


def test_the_csv_is_asked_for_and_the_json_offered(data):
    data(source="json")
    with pytest.raises(CrossmatchError, match=r"lack one record: -t sugarcrepe\+source=json"):
        load("csv")
    with pytest.raises(WrongWords, match="'xml'; csv or json"):
        load("xml")


def test_pictures_are_those_of_coco_2017(data, tmp_path):
    image = pytest.importorskip("PIL.Image")
    data()
    with pytest.raises(CrossmatchError, match=r"val2017\.zip"):
        load("csv").open_image(ROWS[0][0])
    (tmp_path / "coco/images/val2017").mkdir(parents=True)
    image.new("RGB", (2, 3)).save(tmp_path / "coco/images/val2017" / ROWS[0][0])
    assert load("csv").open_image(ROWS[0][0]).size == (2, 3)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("1.jpg", "A cat.", "A  cat. ", "swap", "obj"), "trial 'swap_obj/3' offers the caption 'A cat.' twice"),
        (("1.jpg", " ", "A cat.", "swap", "obj"), "trial 'swap_obj/3' has an empty caption_0"),
        (("", "A dog.", "A cat.", "swap", "obj"), "trial 'swap_obj/3'.*filename"),
    ],
)
def test_what_is_wrong_with_a_trial(data, row, said):
    data([*ROWS, row])
    with pytest.raises(CrossmatchError, match=said):
        load("csv")


def test_an_unknown_subset(data):
    data([*ROWS, ("1.jpg", "A dog.", "A cat.", "turn", "obj")])
    with pytest.raises(CrossmatchError, match=r"trial 'turn_obj/0'.*'turn/obj'.*add/obj"):
        sugarcrepe.SUGARCREPE.loaded(source="csv")


def test_missing_columns_and_broken_json(data):
    folder = data()
    (folder / "test_SugarCrepe.csv").write_text("filename,caption,type,subtype\na,b,c,d\n")
    with pytest.raises(CrossmatchError, match="'negative_caption' is missing"):
        load("csv")
    data(source="json")
    for text, said in (
        ("[1]", "holds no json object"),
        ("{", "not a json file"),
        ('{"5": {"caption": "x"}}', "'add_obj/5' has no text"),
    ):
        (folder / "add_obj.json").write_text(text)
        with pytest.raises(CrossmatchError, match=said):
            load("json")
