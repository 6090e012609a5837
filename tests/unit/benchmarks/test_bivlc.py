"""BiVLC from made-up files: Parquet, a folder and published outcomes give the same trials under the same ids."""

import csv
import io
from pathlib import Path

import pytest

from crossmatch.benchmarks import bivlc
from crossmatch.benchmarks.bivlc import CATEGORIES, load
from crossmatch.benchmarks.data_sets import BIVLC, data_sets
from crossmatch.core.benchmark import data_hash
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.files import have, need

COLUMNS = ("image", "caption", "negative_caption", "negative_image", "type", "subtype")
TEXTS = [
    ("A cat.", "A dog.", "replace", "obj"),
    ("A cat.", "A red cat.", "add", "att"),
    ("Tea on a tray.", "A tray on tea.", "swap", "obj"),
    ("Tea on a tray.", "A tray on tea.", "swap", "obj"),  # the same captions, another image
    ("A man sits.", "A man stands.", "Replace", "Relation"),
]
FILES = [f"{n:012d}.jpg" for n in (11, 11, 12, 13, 14)]
MADE_OF = ("filename", "caption", "negative_caption", "type", "subtype", "index")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The loader with files of any size: the real ones are told by theirs."""
    monkeypatch.setenv("CROSSMATCH_DATA", str(tmp_path))
    others = tuple(data_set for data_set in data_sets() if data_set is not BIVLC)
    monkeypatch.setattr(bivlc, "need", lambda path: need(path, others))
    monkeypatch.setattr(bivlc, "have", lambda path: have(path, others))
    (tmp_path / "bivlc" / "results").mkdir(parents=True)
    return tmp_path / "bivlc"


def table(path, head, rows):
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        out = csv.writer(file, quoting=csv.QUOTE_ALL)
        out.writerow(head)
        out.writerows(rows)


def outcomes(folder, texts=TEXTS):
    words = "<PIL.JpegImagePlugin.JpegImageFile image mode=RGB size=500x332 at 0x7F89A4567AF0>"
    rows = [(words, a, b, words, kind, part, *["True"] * 7) for a, b, kind, part in texts]
    table(folder / "results" / "BiVLC_ViT-B-32.csv", (*COLUMNS, *(f"score_{n}" for n in range(7))), rows)


def made_of(folder):
    """As published: SugarCrepe's own writing of the captions, and other rows between them."""
    rows = [
        (f, f"{a.upper()} ", b.rstrip("."), kind.lower(), {"Relation": "rel"}.get(part, part))
        for f, (a, b, kind, part) in zip(FILES, TEXTS, strict=True)
    ]
    table(
        folder / "BiVLC_negative_imgs.csv", MADE_OF, [(*row, n) for n, row in enumerate([("9.jpg", "x", "y", "add", "obj"), *rows])]
    )


def jpeg(n, natural):
    image = pytest.importorskip("PIL.Image")
    held = io.BytesIO()
    image.new("RGB", (8 + n, 8), (200, 0, 0) if natural else (0, 0, 200)).save(held, "PNG")
    return held.getvalue()


def natural(n):
    return jpeg(int(FILES[n][:12]), True)


def parquet(folder, paths, inside="data", texts=TEXTS):
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


def own_table(folder, inside=""):
    for n, name in enumerate(FILES):
        place = Path(folder) / inside
        place.mkdir(exist_ok=True)
        (place / name).write_bytes(natural(n))
        (place / f"{n}_negative.png").write_bytes(jpeg(n, False))
    rows = [(FILES[n], a, b, f"{n}_negative.png", kind, part) for n, (a, b, kind, part) in enumerate(TEXTS)]
    table(folder / "own.csv", COLUMNS, rows)


def test_outcomes_give_the_trials_without_pictures(folder):
    outcomes(folder)
    trials = load()
    assert trials.ids.tolist() == ["0", "1", "2", "3", "4"]
    assert trials.images.tolist() == [[f"{n}+", f"{n}-"] for n in range(5)]
    assert trials.captions.tolist() == [[a, b] for a, b, _, _ in TEXTS]
    assert trials.categories.tolist() == ["replace/obj", "add/att", "swap/obj", "swap/obj", "replace/rel"]
    with pytest.raises(CrossmatchError, match=r"image '0-' cannot be opened.*imirandam/BiVLC.*bivlc/data.*precomputed"):
        trials.open_image("0-")


def test_the_natural_image_goes_by_its_coco_file_so_that_rows_share_it(folder):
    outcomes(folder)
    made_of(folder)
    assert load().images.tolist() == [[name, f"{n}-"] for n, name in enumerate(FILES)]
    assert load().clusters.tolist() == [0, 0, 1, 2, 3]


@pytest.mark.parametrize("inside", ["", "data"])
def test_pictures_in_parquet(folder, inside):
    parquet(folder, [None] * 5, inside)
    assert [row[0] for row in load().images] == [f"{n}+" for n in range(5)]
    made_of(folder)
    trials = load()
    assert [row[0] for row in trials.images] == FILES
    assert [trials.open_image(name).size[0] for name in FILES] == [19, 19, 20, 21, 22]
    assert trials.open_image("3-").getpixel((0, 0)) == (0, 0, 200)
    assert trials.open_image("3-").size[0] == 11


def test_the_name_beside_the_bytes_serves_where_it_is_coco_s(folder):
    parquet(folder, [FILES[0], f"val2017/{FILES[1]}", "image.jpg", None, ""])
    assert [row[0] for row in load().images] == [FILES[0], FILES[1], "2+", "3+", "4+"]


@pytest.mark.parametrize("inside", ["", "images"])
def test_a_folder_of_one_s_own(folder, inside):
    own_table(folder, inside)
    trials = load()
    assert [row[0] for row in trials.images] == FILES
    assert trials.open_image(FILES[2]).size[0] == 20
    assert trials.open_image("4-").getpixel((0, 0)) == (0, 0, 200)
    table(folder / "other.csv", COLUMNS, [])
    with pytest.raises(CrossmatchError, match=r"other\.csv and own\.csv"):
        load()


def test_one_image_twice_cannot_be_won(folder):
    table(folder / "own.csv", COLUMNS, [("1.png", "A cat.", "A dog.", "1.png", "add", "obj")])
    with pytest.raises(CrossmatchError, match="trial '0' has one image twice"):
        load()


def test_every_source_has_the_same_hash(folder):
    made_of(folder)
    found = []
    for write in (outcomes, own_table, lambda folder: parquet(folder, [None] * 5)):  # each is preferred to those before
        write(folder)
        found.append((data_hash(load()), hasattr(load().open_image, "stored")))
    assert found == [(found[0][0], False), (found[0][0], True), (found[0][0], True)]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("A cat.", "A cat. ", "add", "obj"), "trial '5' offers the caption 'A cat.' twice"),
        (("A cat.", "", "add", "obj"), "trial '5' has an empty caption_1"),
    ],
)
def test_what_is_wrong_with_a_trial(folder, row, said):
    outcomes(folder, [*TEXTS, row])
    with pytest.raises(CrossmatchError, match=said):
        load()


def test_an_unknown_category(folder):
    outcomes(folder, [*TEXTS, ("A cat.", "A dog.", "replace", "colour")])
    with pytest.raises(CrossmatchError, match=r"trial '5'.*'replace/colour'.*replace/obj"):
        bivlc.BIVLC.loaded()
    assert set(load().categories) - set(CATEGORIES) == {"replace/colour"}


def test_a_part_of_the_data_is_not_the_benchmark(folder):
    outcomes(folder)
    with pytest.raises(CrossmatchError, match=r"2933.*not the official ones"):
        bivlc.BIVLC.loaded()


def test_missing_files_and_columns(folder):
    with pytest.raises(CrossmatchError, match=r"BiVLC_ViT-B-32\.csv"):
        load()
    table(folder / "results" / "BiVLC_mine.csv", ("caption", "type", "subtype"), [("a", "b", "c")])
    with pytest.raises(CrossmatchError, match="'negative_caption' is missing"):
        load()
    arrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files.write_table(
        arrow.table({"image": [b"x"], "caption": ["a"], "negative_caption": ["b"], "type": ["add"], "subtype": ["obj"]}),
        folder / "test.parquet",
    )
    with pytest.raises(CrossmatchError, match=r"test\.parquet has the columns.*'negative_image' is missing"):
        load()
    parquet(folder, [None] * 5)
    (folder / "test.parquet").unlink()
    (folder / "data" / "test-00001-of-00002.parquet").unlink()
    with pytest.raises(CrossmatchError, match="1 of 2 files"):
        load()


def test_a_text_that_is_none_in_parquet(folder):
    parquet(folder, [None] * 5, texts=[*TEXTS[:4], ("A man sits.", None, "add", "obj")])
    with pytest.raises(CrossmatchError, match="trial '4' has no text under 'negative_caption'"):
        load()
