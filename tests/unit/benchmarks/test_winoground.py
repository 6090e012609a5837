"""Winoground from small files in the layouts of the hub: jsonl with images, or Parquet."""

import io
import json

import pytest

from crossmatch.benchmarks.datasets.dataset_table import WINOGROUND as DATA_SET
from crossmatch.benchmarks.datasets.dataset_table import list_data_sets
from crossmatch.benchmarks.winoground import WINOGROUND, load
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.dataset_files import licence_notice
from crossmatch.data.io.dataset_install import install_data_set
from crossmatch.data.io.http_download import RetryPolicy
from crossmatch.data.loaded_data import data_hash


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
    buffer = io.BytesIO()
    image.new("RGB", (2 + n, 2 + m)).save(buffer, "PNG")
    return buffer.getvalue()


def test_jsonl_with_images(folder):
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


def test_parquet_equals_jsonl(folder):
    write(folder, *EXAMPLES)
    expected = data_hash(load())
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (folder / "examples.jsonl").unlink()
    rows = [e | {f"image_{m}": {"bytes": png(n, m), "path": None} for m in range(2)} for n, e in enumerate(EXAMPLES)]
    (folder / "data").mkdir()
    files.write_table(arrow.Table.from_pylist(rows), folder / "data" / "test-00000-of-00001.parquet")
    assert data_hash(load()) == expected
    assert load().open_image("ex_1_img_0").size == (3, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"caption_1": ""}, "line 4: trial '3' has an empty caption_1"),
        ({"caption_1": "a mug in grass 3"}, "trial '3' has the caption 'a mug in grass 3' twice"),
        ({"image_1": "ex_3_img_0"}, "trial '3' has the image 'ex_3_img_0' twice"),
        ({"id": 1}, "trial '1' has the same id as the trial in .*line 2"),
    ],
)
def test_invalid_trial_is_an_error(folder, change, message):
    write(folder, *EXAMPLES, example(3, "Both") | change)
    with pytest.raises(CrossmatchError, match=message):
        load()


def test_incomplete_data_is_an_error(folder):
    write(folder, *EXAMPLES, example(3, "Neither"))
    with pytest.raises(CrossmatchError, match=r"Trial '3'.*'neither'.*object, relation, both"):
        WINOGROUND.load()
    write(folder, *EXAMPLES)
    with pytest.raises(CrossmatchError, match=r"400.*not the official ones"):
        WINOGROUND.load()
    write(folder, {key: value for key, value in EXAMPLES[0].items() if key != "collapsed_tag"})
    with pytest.raises(CrossmatchError, match="trial 0 has no 'collapsed_tag'"):
        load()


def test_all_400_trials_load(folder):
    write(folder, *(example(n, ("Object", "Relation", "Both")[n % 3]) for n in range(400)))
    assert len(WINOGROUND.load().ids) == 400


def test_gated_data_explains_how_to_get_it(tmp_path, folder):
    assert licence_notice(DATA_SET).startswith("winoground: NON-COMMERCIAL USE ONLY")
    with pytest.raises(CrossmatchError, match="crossmatch data get winoground"):
        load()
    with pytest.raises(CrossmatchError, match=r"lacks 1 of 1.*gated: log in, accept the licence.*--from"):
        install_data_set(
            DATA_SET, list_data_sets(), tmp_path, source=folder / "images", retry=RetryPolicy(tries=1), report=lambda line: None
        )
    (tmp_path / "fetched").mkdir()
    (tmp_path / "fetched" / "examples.jsonl").write_text(json.dumps(EXAMPLES[0]) + "\n")
    install_data_set(DATA_SET, list_data_sets(), tmp_path, source=tmp_path / "fetched", report=lambda line: None)
    assert len(load().ids) == 1
