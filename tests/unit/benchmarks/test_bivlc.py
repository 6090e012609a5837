"""BiVLC from small files: Parquet, a folder and published outcomes give the same trials."""

import csv
import io
from pathlib import Path

import pytest

from crossmatch.benchmarks import bivlc
from crossmatch.benchmarks.bivlc import CATEGORIES, load
from crossmatch.benchmarks.datasets.dataset_table import BIVLC, list_data_sets
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.io.dataset_files import find_optional, require_file
from crossmatch.data.loaded_data import data_hash

COLUMNS = ("image", "caption", "negative_caption", "negative_image", "type", "subtype")
TEXTS = [
    ("A cat.", "A dog.", "replace", "obj"),
    ("A cat.", "A red cat.", "add", "att"),
    ("Tea on a tray.", "A tray on tea.", "swap", "obj"),
    ("Tea on a tray.", "A tray on tea.", "swap", "obj"),  # the same captions, another image
    ("A man sits.", "A man stands.", "Replace", "Relation"),
]
FILES = [f"{n:012d}.jpg" for n in (11, 11, 12, 13, 14)]
SOURCE_COLUMNS = ("filename", "caption", "negative_caption", "type", "subtype", "index")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The data folder; files of any size are accepted."""
    monkeypatch.setenv("CROSSMATCH_DATA", str(tmp_path))
    others = tuple(data_set for data_set in list_data_sets() if data_set is not BIVLC)
    monkeypatch.setattr(bivlc, "require_data_file", lambda path: require_file(path, others))
    monkeypatch.setattr(bivlc, "find_data_file", lambda path: find_optional(path, others))
    (tmp_path / "bivlc" / "results").mkdir(parents=True)
    return tmp_path / "bivlc"


def write_table(path, head, rows):
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(head)
        writer.writerows(rows)


def write_outcomes(folder, texts=TEXTS):
    image_repr = "<PIL.JpegImagePlugin.JpegImageFile image mode=RGB size=500x332 at 0x7F89A4567AF0>"
    rows = [(image_repr, a, b, image_repr, kind, part, *["True"] * 7) for a, b, kind, part in texts]
    write_table(folder / "results" / "BiVLC_ViT-B-32.csv", (*COLUMNS, *(f"score_{n}" for n in range(7))), rows)


def write_source_captions(folder):
    """As published: the captions in SugarCrepe's spelling, with other rows between them."""
    rows = [
        (f, f"{a.upper()} ", b.rstrip("."), kind.lower(), {"Relation": "rel"}.get(part, part))
        for f, (a, b, kind, part) in zip(FILES, TEXTS, strict=True)
    ]
    write_table(
        folder / "BiVLC_negative_imgs.csv",
        SOURCE_COLUMNS,
        [(*row, n) for n, row in enumerate([("9.jpg", "x", "y", "add", "obj"), *rows])],
    )


def jpeg(n, natural):
    image = pytest.importorskip("PIL.Image")
    buffer = io.BytesIO()
    image.new("RGB", (8 + n, 8), (200, 0, 0) if natural else (0, 0, 200)).save(buffer, "PNG")
    return buffer.getvalue()


def natural(n):
    return jpeg(int(FILES[n][:12]), True)


def write_parquet(folder, paths, inside="data", texts=TEXTS):
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (folder / inside).mkdir(exist_ok=True)
    rows = [
        {
            "image": {"bytes": natural(n), "path": paths[n]}, "caption": a, "negative_caption": b,
            "negative_image": {"bytes": jpeg(n, False), "path": None}, "type": kind, "subtype": part,
        }
        for n, (a, b, kind, part) in enumerate(texts)
    ]  # fmt: skip
    for shard, part in enumerate((rows[:2], rows[2:])):
        files.write_table(arrow.Table.from_pylist(part), folder / inside / f"test-{shard:05d}-of-00002.parquet", row_group_size=1)


def write_image_table(folder, inside=""):
    for n, name in enumerate(FILES):
        image_folder = Path(folder) / inside
        image_folder.mkdir(exist_ok=True)
        (image_folder / name).write_bytes(natural(n))
        (image_folder / f"{n}_negative.png").write_bytes(jpeg(n, False))
    rows = [(FILES[n], a, b, f"{n}_negative.png", kind, part) for n, (a, b, kind, part) in enumerate(TEXTS)]
    write_table(folder / "own.csv", COLUMNS, rows)


def test_outcomes_give_trials_without_images(folder):
    write_outcomes(folder)
    trials = load()
    assert trials.ids.tolist() == ["0", "1", "2", "3", "4"]
    assert trials.images.tolist() == [[f"{n}+", f"{n}-"] for n in range(5)]
    assert trials.captions.tolist() == [[a, b] for a, b, _, _ in TEXTS]
    assert trials.categories.tolist() == ["replace/obj", "add/att", "swap/obj", "swap/obj", "replace/rel"]
    with pytest.raises(CrossmatchError, match=r"image '0-' cannot be opened.*imirandam/BiVLC.*bivlc/data.*precomputed"):
        trials.open_image("0-")


def test_natural_image_is_named_by_its_coco_file(folder):
    write_outcomes(folder)
    write_source_captions(folder)
    assert load().images.tolist() == [[name, f"{n}-"] for n, name in enumerate(FILES)]
    assert load().clusters.tolist() == [0, 0, 1, 2, 3]


@pytest.mark.parametrize("inside", ["", "data"])
def test_images_are_read_from_parquet(folder, inside):
    write_parquet(folder, [None] * 5, inside)
    assert [row[0] for row in load().images] == [f"{n}+" for n in range(5)]
    write_source_captions(folder)
    trials = load()
    assert [row[0] for row in trials.images] == FILES
    assert [trials.open_image(name).size[0] for name in FILES] == [19, 19, 20, 21, 22]
    assert trials.open_image("3-").getpixel((0, 0)) == (0, 0, 200)
    assert trials.open_image("3-").size[0] == 11


def test_coco_file_names_in_parquet_are_used(folder):
    write_parquet(folder, [FILES[0], f"val2017/{FILES[1]}", "image.jpg", None, ""])
    assert [row[0] for row in load().images] == [FILES[0], FILES[1], "2+", "3+", "4+"]


@pytest.mark.parametrize("inside", ["", "images"])
def test_csv_with_images_in_a_folder(folder, inside):
    write_image_table(folder, inside)
    trials = load()
    assert [row[0] for row in trials.images] == FILES
    assert trials.open_image(FILES[2]).size[0] == 20
    assert trials.open_image("4-").getpixel((0, 0)) == (0, 0, 200)
    write_table(folder / "other.csv", COLUMNS, [])
    with pytest.raises(CrossmatchError, match=r"other\.csv and own\.csv"):
        load()


def test_trial_with_one_image_twice_is_an_error(folder):
    write_table(folder / "own.csv", COLUMNS, [("1.png", "A cat.", "A dog.", "1.png", "add", "obj")])
    with pytest.raises(CrossmatchError, match="trial '0' has the same image twice"):
        load()


def test_every_source_has_the_same_hash(folder):
    write_source_captions(folder)
    hashes = []
    for write in (
        write_outcomes,
        write_image_table,
        lambda folder: write_parquet(folder, [None] * 5),
    ):  # each is preferred to those before
        write(folder)
        hashes.append((data_hash(load()), hasattr(load().open_image, "encoded")))
    assert hashes == [(hashes[0][0], False), (hashes[0][0], True), (hashes[0][0], True)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("A cat.", "A cat. ", "add", "obj"), "trial '5' has the caption 'A cat.' twice"),
        (("A cat.", "", "add", "obj"), "trial '5' has an empty caption_1"),
    ],
)
def test_invalid_trial_is_an_error(folder, row, message):
    write_outcomes(folder, [*TEXTS, row])
    with pytest.raises(CrossmatchError, match=message):
        load()


def test_unknown_category_is_an_error(folder):
    write_outcomes(folder, [*TEXTS, ("A cat.", "A dog.", "replace", "colour")])
    with pytest.raises(CrossmatchError, match=r"Trial '5'.*'replace/colour'.*replace/obj"):
        bivlc.BIVLC.load()
    assert set(load().categories) - set(CATEGORIES) == {"replace/colour"}


def test_incomplete_benchmark_is_an_error(folder):
    write_outcomes(folder)
    with pytest.raises(CrossmatchError, match=r"2933.*not the official ones"):
        bivlc.BIVLC.load()


def test_missing_files_and_columns_are_an_error(folder):
    with pytest.raises(CrossmatchError, match=r"BiVLC_ViT-B-32\.csv"):
        load()
    write_table(folder / "results" / "BiVLC_mine.csv", ("caption", "type", "subtype"), [("a", "b", "c")])
    with pytest.raises(CrossmatchError, match="'negative_caption' is missing"):
        load()
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files.write_table(
        arrow.table({"image": [b"x"], "caption": ["a"], "negative_caption": ["b"], "type": ["add"], "subtype": ["obj"]}),
        folder / "test.parquet",
    )
    with pytest.raises(CrossmatchError, match=r"test\.parquet has the columns.*'negative_image' is missing"):
        load()
    write_parquet(folder, [None] * 5)
    (folder / "test.parquet").unlink()
    (folder / "data" / "test-00001-of-00002.parquet").unlink()
    with pytest.raises(CrossmatchError, match="1 of 2 files"):
        load()


def test_missing_text_in_parquet_is_an_error(folder):
    write_parquet(folder, [None] * 5, texts=[*TEXTS[:4], ("A man sits.", None, "add", "obj")])
    with pytest.raises(CrossmatchError, match="trial '4' has no text in column 'negative_caption'"):
        load()
