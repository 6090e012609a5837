"""Winoground from made-up files in the layouts of the hub: a jsonl beside pictures, or Parquet."""

import io
import json

import pytest

from crossmatch.benchmarks.data_sets import WINOGROUND as FILES
from crossmatch.benchmarks.data_sets import data_sets
from crossmatch.benchmarks.winoground import WINOGROUND, load
from crossmatch.core.benchmark import data_hash
from crossmatch.core.download import Wire
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.files import terms
from crossmatch.core.obtain import get


def example(n, tag):
    return {
        "id": n, "image_0": f"ex_{n}_img_0", "image_1": f"ex_{n}_img_1", "caption_0": f"a mug in grass {n}",
        "caption_1": f"grass in a mug {n}", "tag": "Noun", "secondary_tag": "", "num_main_preds": 1, "collapsed_tag": tag,
    }  # fmt: skip


EXAMPLES = [example(0, "Object"), example(1, "Relation"), example(2, "Both")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CROSSMATCH_DATA", str(tmp_path))
    (tmp_path / "winoground" / "images").mkdir(parents=True)
    return tmp_path / "winoground"


def write(folder, *examples):
    (folder / "examples.jsonl").write_text("\n".join(map(json.dumps, examples)) + "\n")


def png(n, m):
    image = pytest.importorskip("PIL.Image")
    held = io.BytesIO()
    image.new("RGB", (2 + n, 2 + m)).save(held, "PNG")
    return held.getvalue()


def test_the_jsonl_and_its_pictures(folder):
    write(folder, *EXAMPLES)
    trials = load()
    assert trials.ids.tolist() == ["0", "1", "2"]
    assert trials.images.tolist() == [[f"ex_{n}_img_0", f"ex_{n}_img_1"] for n in range(3)]
    assert trials.captions[1].tolist() == ["a mug in grass 1", "grass in a mug 1"]
    assert trials.categories.tolist() == ["object", "relation", "both"]
    with pytest.raises(CrossmatchError, match=r"ex_0_img_0.*Accept the licence at https.*facebook/winoground.*images\.zip"):
        trials.open_image("ex_0_img_0")
    for n in range(3):
        for m in range(2):
            (folder / "images" / f"ex_{n}_img_{m}.png").write_bytes(png(n, m))
    assert load().open_image("ex_2_img_1").size == (4, 3)


def test_parquet_gives_the_same(folder):
    write(folder, *EXAMPLES)
    asked = data_hash(load())
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (folder / "examples.jsonl").unlink()
    rows = [e | {f"image_{m}": {"bytes": png(n, m), "path": None} for m in range(2)} for n, e in enumerate(EXAMPLES)]
    (folder / "data").mkdir()
    files.write_table(arrow.Table.from_pylist(rows), folder / "data" / "test-00000-of-00001.parquet")
    assert data_hash(load()) == asked
    assert load().open_image("ex_1_img_0").size == (3, 2)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"caption_1": ""}, "line 4: trial '3' has an empty caption_1"),
        ({"caption_1": "a mug in grass 3"}, "trial '3' offers the caption 'a mug in grass 3' twice"),
        ({"image_1": "ex_3_img_0"}, "trial '3' offers the image 'ex_3_img_0' twice"),
        ({"id": 1}, "trial '1' was in .*line 2 already"),
    ],
)
def test_what_is_wrong_with_a_trial(folder, wrong, said):
    write(folder, *EXAMPLES, example(3, "Both") | wrong)
    with pytest.raises(CrossmatchError, match=said):
        load()


def test_an_unknown_tag_a_missing_field_and_a_part_of_the_data(folder):
    write(folder, *EXAMPLES, example(3, "Neither"))
    with pytest.raises(CrossmatchError, match=r"trial '3'.*'neither'.*object, relation, both"):
        WINOGROUND.loaded()
    write(folder, *EXAMPLES)
    with pytest.raises(CrossmatchError, match=r"400.*not the official ones"):
        WINOGROUND.loaded()
    write(folder, {key: value for key, value in EXAMPLES[0].items() if key != "collapsed_tag"})
    with pytest.raises(CrossmatchError, match="trial 0 has no 'collapsed_tag'"):
        load()


def test_the_whole_is_loaded(folder):
    write(folder, *(example(n, ("Object", "Relation", "Both")[n % 3]) for n in range(400)))
    assert len(WINOGROUND.loaded().ids) == 400


def test_the_data_are_gated_and_get_says_so(tmp_path, folder):
    assert terms(FILES).startswith("winoground: NON-COMMERCIAL USE ONLY")
    with pytest.raises(CrossmatchError, match="crossmatch data get winoground"):
        load()
    with pytest.raises(CrossmatchError, match=r"lacks 1 of 1.*gated: log in and accept the licence there.*--from"):
        get(FILES, data_sets(), tmp_path, source=folder / "images", wire=Wire(tries=1), say=lambda line: None)
    (tmp_path / "fetched").mkdir()
    (tmp_path / "fetched" / "examples.jsonl").write_text(json.dumps(EXAMPLES[0]) + "\n")
    get(FILES, data_sets(), tmp_path, source=tmp_path / "fetched", say=lambda line: None)
    assert len(load().ids) == 1
