"""A folder of one's own: the same collection from every layout, and every mistake named with its file, row and remedy."""

import csv
import hashlib
import io
import json
import os
import pickle
import random
import shutil
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossmatch.benchmarks.folder import LAYOUTS, folder_benchmark, folder_task, load_folder
from crossmatch.benchmarks.formats import arrow as arrow_files
from crossmatch.benchmarks.formats.gathered import decoded
from crossmatch.core.benchmark import data_hash
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.metrics.table import metric
from crossmatch.run import evaluate

Image = pytest.importorskip("PIL.Image")
ROOT = Path(__file__).parents[3]
PHOTOS = next(
    (
        p / "photos"
        for p in (Path(os.environ.get("CROSSMATCH_DATA", "/nowhere")), ROOT.parent / "shared" / "data")
        if (p / "photos").is_dir()
    ),
    None,
)
COLOURS = {"red.png": (200, 0, 0), "green.png": (0, 200, 0), "blue.png": (0, 0, 200)}


@contextmanager
def refused(*words, kind=CrossmatchError):
    """An error of one line that says all of these words."""
    with pytest.raises(kind) as caught:
        yield
    said = str(caught.value)
    assert "\n" not in said
    assert [word for word in words if word not in said] == [], said


def png(colour, size=(4, 3), **options):
    held = io.BytesIO()
    Image.new("RGB", size, colour).save(held, "PNG", **options)
    return held.getvalue()


def rows(*lines):
    return "\n".join(("image,caption", *lines)) + "\n"


@pytest.fixture
def pets(tmp_path):
    """A folder with three images; `pets.write(name, text)` adds files."""
    folder = tmp_path / "pets"
    (folder / "images").mkdir(parents=True)
    for name, colour in COLOURS.items():
        (folder / "images" / name).write_bytes(png(colour))
    return folder


def write(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def colour(picture):
    return tuple(int(c) for c in np.asarray(picture)[0, 0])


def pairs(data):
    """What a collection links, by id and text."""
    held = data.collection
    return {(str(held.image_ids[i]), str(held.caption_ids[c]), held.captions[c]) for i, c in held.links}


# --- the photographs in every layout


def linked_images(photos, folder):
    (folder / "images").mkdir(parents=True)
    for photo in photos:
        (folder / photo["file"]).symlink_to(PHOTOS / photo["file"])


def as_csv(photos, folder, suffix=".csv", delimiter=","):
    linked_images(photos, folder)
    with (folder / f"captions{suffix}").open("w", newline="", encoding="utf-8-sig") as file:
        out = csv.writer(file, delimiter=delimiter)  # Windows line ends are this writer's default
        out.writerow(["image", "caption", "caption_id", "image_id"])
        for photo in photos:
            out.writerows([Path(photo["file"]).name, c["caption"], c["caption_id"], photo["image_id"]] for c in photo["captions"])


def as_tsv(photos, folder):
    as_csv(photos, folder, ".tsv", "\t")


def as_coco(photos, folder):
    linked_images(photos, folder)
    annotations = [
        {"image_id": p["image_id"], "id": c["caption_id"], "caption": c["caption"]} for p in photos for c in p["captions"]
    ]
    random.Random(0).shuffle(annotations)
    listed = [{"id": p["image_id"], "file_name": Path(p["file"]).name} for p in photos]
    (folder / "captions_val2017.json").write_text(json.dumps({"info": {}, "images": listed, "annotations": annotations}))


def as_tars(photos, folder):
    folder.mkdir(parents=True)
    for n, shard in enumerate((photos[:100], photos[100:])):
        with tarfile.open(folder / f"{n:05d}.tar", "w") as tar:
            for photo in shard:
                add(tar, f"{photo['image_id']}.jpg", (PHOTOS / photo["file"]).read_bytes())
                texts = {
                    key: [c[name] for c in photo["captions"]]
                    for key, name in (("captions", "caption"), ("caption_ids", "caption_id"))
                }
                add(tar, f"{photo['image_id']}.json", json.dumps(texts).encode())


def add(tar, name, held):
    member = tarfile.TarInfo(name)
    member.size = len(held)
    tar.addfile(member, io.BytesIO(held))


def columns(photos, bytes_too=True):
    return {
        "image": [
            {"bytes": (PHOTOS / p["file"]).read_bytes() if bytes_too else None, "path": Path(p["file"]).name} for p in photos
        ],
        "image_id": [p["image_id"] for p in photos],
        "captions": [[c["caption"] for c in p["captions"]] for p in photos],
        "caption_ids": [[c["caption_id"] for c in p["captions"]] for p in photos],
    }


def as_saved_dataset(photos, folder):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    held = columns(photos, bytes_too=False) | {"image": [str(PHOTOS / p["file"]) for p in photos]}
    made = datasets.Dataset.from_dict(held).cast_column("image", datasets.Image())
    made.save_to_disk(str(folder), num_shards=3)


def as_dataset_dict(photos, folder):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    made = datasets.Dataset.from_dict(columns(photos)).cast_column("image", datasets.Image())
    datasets.DatasetDict({"test": made, "val": made.select(range(5))}).save_to_disk(str(folder))


def as_arrow(photos, folder):
    """The layout of save_to_disk without its package, and with the footer that other writers give."""
    pa = pytest.importorskip("pyarrow")
    folder.mkdir(parents=True)
    table = pa.table(columns(photos))
    with pa.ipc.new_file(folder / "data-00000-of-00001.arrow", table.schema) as out:
        out.write_table(table, max_chunksize=50)
    (folder / "dataset_info.json").write_text("{}")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    (folder / "cache-0123.arrow").write_bytes(b"not a part of the data")


def as_parquet(photos, folder):
    pa = pytest.importorskip("pyarrow")
    (folder / "data").mkdir(parents=True)
    from pyarrow import parquet

    for n, at in enumerate(range(0, len(photos), 90)):
        table = pa.table(columns(photos[at : at + 90]))
        parquet.write_table(table, folder / f"data/test-{n:05d}-of-00002.parquet", row_group_size=32)
    parquet.write_table(pa.table(columns(photos[:3])), folder / "data/train-00000-of-00001-0a1b.parquet")


SPLIT = {as_dataset_dict: "test", as_parquet: "test"}
WRITERS = (as_csv, as_tsv, as_coco, as_tars, as_saved_dataset, as_dataset_dict, as_arrow, as_parquet)


@pytest.fixture(scope="module")
def photos():
    if PHOTOS is None:
        pytest.skip("the photographs are not there: put them into $CROSSMATCH_DATA/photos")
    return json.loads((PHOTOS / "photos.json").read_text())


@pytest.fixture(scope="module", params=WRITERS, ids=lambda w: w.__name__)
def written(request, photos, tmp_path_factory):
    """The folder in one of the layouts, and the options to load it."""
    folder = tmp_path_factory.mktemp(request.param.__name__) / "photos"
    request.param(photos, folder)
    return folder, ({"split": SPLIT[request.param]} if request.param in SPLIT else {})


def test_every_layout_gives_the_same_collection(written, photos):
    data = load_folder(written[0], **written[1])
    expected = {(str(p["image_id"]), str(c["caption_id"]), c["caption"].strip()) for p in photos for c in p["captions"]}
    assert data.collection.shape == (178, 890)
    assert pairs(data) == expected
    assert list(data.judgements) == ["links"]
    assert data.judgements["links"].count == 890


def test_every_layout_opens_the_right_pixels(written, photos):
    held = load_folder(written[0], **written[1]).collection
    order = random.Random(0).sample(photos, 40)
    with ThreadPoolExecutor(8) as threads:
        opened = list(threads.map(held.open_image, [str(p["image_id"]) for p in order]))
    for photo, picture in zip(order, opened, strict=True):
        with Image.open(PHOTOS / photo["file"]) as original:
            assert picture.mode == "RGB"
            assert np.array_equal(np.asarray(picture), np.asarray(original.convert("RGB")))


def test_models_are_evaluated_on_every_layout(written, photos):
    """A scorer that knows each photograph by its pixels finds all captions only if it sees the right ones under the right id."""
    known = {}
    for photo in photos:
        with Image.open(PHOTOS / photo["file"]) as picture:
            known[fingerprint(picture.convert("RGB"))] = {c["caption"].strip() for c in photo["captions"]}

    def by_pixels(images, texts):
        own = [known[fingerprint(image)] for image in images]
        return np.array([[text in captions for text in texts] for captions in own], dtype=float)

    task, options = folder_benchmark(written[0]), written[1]
    assert task.name == "collection:photos"
    perfect = evaluate(by_pixels, task, samples=20, **options)
    oracle = evaluate("oracle", task, samples=20, **options)
    chance = evaluate("random", task, samples=20, **options)
    for direction in ("i2t", "t2i"):
        for name in ("hit@1", "map@r", "r-precision"):
            assert perfect[f"{direction}/{name}"].value == 100
            assert oracle[f"{direction}/{name}"].value == 100
        assert abs(chance[f"{direction}/hit@10"].value - chance[f"{direction}/hit@10"].chance) < 10
    assert perfect["t2i/hit@1"].n == 890
    assert perfect["i2t/recall@10"].positives == 890


def fingerprint(picture):
    return hashlib.sha256(picture.tobytes()).digest()


def test_the_layout_leaves_no_trace_in_hash_and_numbers(photos, tmp_path):
    loaded = {}
    for writer in (as_csv, as_coco, as_tars, as_parquet):
        writer(photos, tmp_path / writer.__name__)
        loaded[writer] = load_folder(tmp_path / writer.__name__, split=SPLIT.get(writer, ""))
    assert len({data_hash(data) for data in loaded.values()}) == 1
    task = folder_benchmark(tmp_path)
    results = [evaluate("random", task, data=data, samples=10) for data in loaded.values()]
    assert len({tuple((row.metric, row.value) for row in result.rows) for result in results}) == 1


def test_names_stand_for_ids_where_none_are_given(photos, tmp_path):
    few = photos[:4]
    linked_images(few, tmp_path / "a")
    (tmp_path / "a/captions.csv").write_text(
        rows(*(f'{Path(p["file"]).stem},"{p["captions"][0]["caption"].strip()}"' for p in few))
    )
    data = load_folder(tmp_path / "a")
    assert data.collection.image_ids.tolist() == [Path(p["file"]).name for p in few]
    assert data.collection.caption_ids[0] == f"{Path(few[0]['file']).name}#0"


# --- what a collection may look like


def test_names_and_texts_that_are_not_unicode(pets):
    write(pets, "captions.json", coco(annotations=[{"id": 7, "image_id": 1, "caption": "half of \ud83d"}]))
    with refused("annotations[0]", "\\ud83d", "not Unicode"):
        load_folder(pets)
    (pets / "captions.json").unlink()
    write(pets, "captions.csv", rows("red.png,A."))
    os.rename(pets / "images/green.png", os.fsencode(pets / "images") + b"/gr\xfcn.png")
    with refused("gr\\udcfcn.png", "not Unicode"):
        load_folder(pets)


def test_accents_written_in_two_ways(pets):
    write(pets, "captions.csv", rows("red.png,A."))
    for name in ("caf\u00e9.png", "cafe\u0301.png"):
        write(pets / "images", name, png((1, 1, 1)))
    with refused("twice", "accents", "Rename one"):
        load_folder(pets)


def test_several_captions_and_several_images(pets):
    write(
        pets, "captions.csv",
        "image,caption,caption_id\nred.png,A red one.,r\ngreen.png,Warm or cold.,w\nred.png,Warm or cold.,w\n"
        "blue.png,A blue one.,b\n",
    )  # fmt: skip
    data = load_folder(pets)
    assert data.collection.caption_ids.tolist() == ["r", "w", "b"]
    assert pairs(data) == {
        ("red.png", "r", "A red one."), ("red.png", "w", "Warm or cold."), ("green.png", "w", "Warm or cold."),
        ("blue.png", "b", "A blue one."),
    }  # fmt: skip
    oracle = evaluate("oracle", folder_benchmark(pets), samples=10)
    assert oracle["t2i/hit@1"].n == 3
    assert oracle["t2i/recall@10"].positives == 4
    assert oracle["t2i/map@r"].value == 100


def test_images_without_captions_are_distractors(pets):
    data = load_folder(write(pets, "captions.csv", rows("red.png,A red one.")))
    assert sorted(data.collection.image_ids.tolist()) == sorted(COLOURS)
    assert data.judgements["links"].count == 1
    listed = json.dumps(
        {"images": [{"id": n, "file_name": f} for n, f in enumerate(COLOURS)], "annotations": [{"image_id": 2, "caption": "Blue."}]}
    )
    (pets / "captions.csv").unlink()
    assert pairs(load_folder(write(pets, "captions.json", listed))) == {("2", "2#0", "Blue.")}
    assert load_folder(pets).collection.shape == (3, 1)


def test_folders_clutter_case_and_accents(pets):
    for name in ("a/dog.JPG", "b/dog.JPG", "b/cat.WebP", ".hidden.png", "Thumbs.db", "a/._dog.JPG", "notes.txt", "scan"):
        write(pets / "images", name, png((9, 9, 9)))
    write(pets / "images", "cafe\u0301.png", png((7, 7, 7)))  # an accent of its own, as some file systems write it
    (pets / "images" / "gone.png").symlink_to("nowhere.png")
    (pets / "images" / "a" / "round").symlink_to(pets / "images")
    write(
        pets, "Captions.CSV",
        "Image , CAPTION,mood\r\na/dog.JPG,\"A dog, \"\"Rex\"\".\",x\r\nb\\dog.JPG,Another.,\r\n./images/cat,\"Two\nlines\",\r\n"
        "\r\ncaf\u00e9.png,Coffee.,\r\nscan,A file without an ending.,\r\n",
    )  # fmt: skip
    data = load_folder(pets)
    assert set(data.collection.image_ids.tolist()) == {*COLOURS, "a/dog.JPG", "b/dog.JPG", "cat.WebP", "caf\u00e9.png", "scan"}
    assert {(image, text) for image, _, text in pairs(data)} == {
        ("a/dog.JPG", 'A dog, "Rex".'), ("b/dog.JPG", "Another."), ("cat.WebP", "Two\nlines"), ("caf\u00e9.png", "Coffee."),
        ("scan", "A file without an ending."),
    }  # fmt: skip
    assert colour(data.collection.open_image("caf\u00e9.png")) == (7, 7, 7)
    assert colour(data.collection.open_image("scan")) == (9, 9, 9)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_that_spreadsheets_write(pets, encoding):
    data = load_folder(write(pets, "captions.csv", rows("red.png,Ein rötliches Bild.", "blue.png,青い絵").encode(encoding)))
    assert data.collection.captions == ("Ein rötliches Bild.", "青い絵")


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20).filter(lambda text: text.strip())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(said=st.lists(st.tuples(st.sampled_from(sorted(COLOURS)), texts), min_size=1, max_size=8))
def test_what_is_written_is_read(pets, said):
    held = io.StringIO()
    csv.writer(held).writerows([("image", "caption"), *said])
    data = load_folder(write(pets, "captions.csv", held.getvalue()))
    assert sorted((image, text) for image, _, text in pairs(data)) == sorted((image, text.strip()) for image, text in said)


def test_pictures_are_upright_and_rgb(pets):
    corner = Image.new("RGB", (4, 2), "white")
    corner.putpixel((0, 0), (255, 0, 0))
    turned = Image.Exif()
    turned[0x0112] = 6  # the first row is the right side of the picture
    corner.save(pets / "images/turned.png", exif=turned)
    Image.fromarray(np.full((2, 2), 0x80FF, dtype=np.uint16)).save(pets / "images/deep.png")
    Image.new("CMYK", (2, 2)).save(pets / "images/print.jpg")
    indexed = Image.new("P", (2, 2))
    indexed.putpalette([1, 2, 3, 4, 5, 6])
    indexed.save(pets / "images/indexed.png", transparency=b"\x00\xff")
    Image.new("RGB", (2, 2), "blue").save(pets / "images/moves.gif", save_all=True, append_images=[Image.new("RGB", (2, 2), "red")])
    held = load_folder(write(pets, "captions.csv", rows("red.png,A red one."))).collection
    upright = held.open_image("turned.png")
    assert upright.size == (2, 4)
    assert upright.getpixel((1, 0)) == (255, 0, 0)
    shown = {name: held.open_image(name) for name in ("deep.png", "print.jpg", "indexed.png", "moves.gif")}
    assert {picture.mode for picture in shown.values()} == {"RGB"}
    assert colour(shown["deep.png"]) == (0x80, 0x80, 0x80)
    assert colour(shown["indexed.png"]) == (1, 2, 3)
    assert colour(shown["moves.gif"]) == (0, 0, 255)
    assert colour(pickle.loads(pickle.dumps(held)).open_image("red.png")) == (200, 0, 0)


@pytest.mark.parametrize(
    ("greys", "shown"),
    [
        (np.float32([[0, 0.5], [0.25, 1]]), [0, 128, 64, 255]),
        (np.int32([[0, 7], [200, 255]]), [0, 7, 200, 255]),
        (np.int32([[0, 256], [0x80FF, 0xFFFF]]), [0, 1, 0x80, 255]),
        (np.float32([[0, 0.5], [0.25, 300]]), "greys in floating point are from 0 to 300, and from 0 to 1 was expected"),
        (np.float32([[0, 0.5], [0.25, np.nan]]), "greys in floating point"),
        (np.int32([[0, 1], [2, 1 << 20]]), "its greys are from 0 to 1.04858e\\+06, and from 0 to 65,535 was expected"),
        (np.int32([[0, 1], [2, -3]]), "its greys are from -3"),
    ],
)
def test_greys_of_many_bits_are_scaled_or_refused(greys, shown):
    held = io.BytesIO()
    Image.fromarray(greys).save(held, "TIFF")
    if isinstance(shown, str):
        with pytest.raises(CrossmatchError, match=f"a.tif cannot be opened as an image .*{shown}"):
            decoded(held.getvalue(), "a.tif")
    else:
        assert np.asarray(decoded(held.getvalue(), "a.tif"))[..., 0].ravel().tolist() == shown


def test_tars_with_lines_of_text_in_folders_and_with_clutter(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        folder = tarfile.TarInfo("x")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, held in {
            "./x/1.PNG": png((1, 0, 0)), "x/1.txt": b"\xef\xbb\xbfOne.\r\nA second line.\r\n\r\n",
            "y/1.png": png((2, 0, 0)), "y/1.json": b'["Two."]',
            "3.webp": png((3, 0, 0)), "3.json": b'{"url": "", "width": 4}', "3.cls": b"0", "._3.webp": b"", "4.png": png((4, 0, 0)),
            "4.json": b'{"caption": "from json"}', "4.txt": b"from txt",
        }.items():  # fmt: skip
            add(tar, name, held)
    data = load_folder(tmp_path)
    assert pairs(data) == {
        ("x/1", "x/1#0", "One."),
        ("x/1", "x/1#1", "A second line."),
        ("y/1", "y/1#0", "Two."),
        ("4", "4#0", "from txt"),
    }
    assert {str(name): colour(data.collection.open_image(str(name)))[0] for name in data.collection.image_ids} == {
        "x/1": 1,
        "y/1": 2,
        "3": 3,
        "4": 4,
    }
    write(tmp_path, "judgements.csv", "image,caption,grade\ny/1.png,One.,1\n4.png,from txt,1\n")
    assert load_folder(tmp_path).judgements["judged"].count == 2


def test_long_names_in_tars_are_read_by_offset(tmp_path):
    long = "folder/" * 20 + "é" * 60
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(tmp_path / "a.tar", "w", format=form) as tar:
            add(tar, f"{long}.png", png((5, 6, 7)))
            add(tar, f"{long}.txt", b"A long name.")
        data = load_folder(tmp_path)
        assert data.collection.image_ids.tolist() == ["é" * 60]
        assert colour(data.collection.open_image("é" * 60)) == (5, 6, 7)


# --- Hugging Face


def parquet(folder, name="0000.parquet", **held):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    folder.mkdir(exist_ok=True)
    files.write_table(pa.table(held), folder / name)
    return folder


PICTURES = [png(c) for c in COLOURS.values()]


@pytest.mark.parametrize(
    ("captions", "expected"),
    [
        ({"caption": ["R", "G", "B"]}, [("R", None), ("G", None), ("B", None)]),
        ({"text": ["R", "G", "B"], "sentences": [["R"], [], ["B", "C"]]}, [("R", None), ("B", None), ("C", None)]),
        ({"sentences": [[{"raw": "R", "sentid": 1}], [{"raw": "G", "sentid": 2}], []]}, [("R", "1"), ("G", "2")]),
        ({"sentences": [{"raw": ["R", "S"], "sentid": [4, 5]}] * 1 + [{"raw": [], "sentid": []}] * 2}, [("R", "4"), ("S", "5")]),
        ({"caption_1": ["b", "d", "f"], "caption_0": ["a", "c", "e"]}, [(t, None) for t in "abcdef"]),
    ],
)
def test_columns_of_captions(tmp_path, captions, expected):
    held = load_folder(parquet(tmp_path, picture=PICTURES, **captions)).collection
    assert list(held.captions) == [text for text, _ in expected]
    assert [i for i in held.caption_ids.tolist() if "#" not in i] == [i for _, i in expected if i]
    assert held.image_ids.tolist() == ["0", "1", "2"]


def test_rows_are_numbered_so_that_they_sort(tmp_path):
    held = load_folder(parquet(tmp_path, image=PICTURES * 4, caption=[f"c{n}" for n in range(12)])).collection
    assert held.image_ids.tolist() == sorted(held.image_ids.tolist()) == [f"{n:02d}" for n in range(12)]


def test_one_row_for_each_caption(tmp_path):
    """Rows that repeat an image id are one image, if they hold the same image."""
    held = {"image": [PICTURES[0], PICTURES[1], PICTURES[0]], "filename": ["r", "g", "r"], "caption": ["a", "b", "c"]}
    assert {(i, t) for i, _, t in pairs(load_folder(parquet(tmp_path, **held)))} == {("r", "a"), ("g", "b"), ("r", "c")}
    with refused("row 2", "'r'", "another image", "row 0"):
        load_folder(parquet(tmp_path, **held | {"image": PICTURES}))


def test_file_names_of_images_are_ids_where_unique(tmp_path):
    images = [{"bytes": held, "path": f"dir/{name}"} for name, held in zip(COLOURS, PICTURES, strict=True)]
    assert load_folder(parquet(tmp_path, image=images, caption=["a", "b", "c"])).collection.image_ids.tolist() == list(COLOURS)
    images[1]["path"] = None
    assert load_folder(parquet(tmp_path, image=images, caption=["a", "b", "c"])).collection.image_ids.tolist() == ["0", "1", "2"]


def test_row_groups_are_kept_up_to_a_limit(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    files.write_table(pa.table({"image": [bytes([n]) * 1000 for n in range(10)]}), tmp_path / "a.parquet", row_group_size=2)
    groups = arrow_files.RowGroups(keep=4500)
    for group in (0, 1, 2, 1, 4, 0):
        assert groups.column(tmp_path / "a.parquet", group, "image").to_pylist() == [
            bytes([2 * group]) * 1000,
            bytes([2 * group + 1]) * 1000,
        ]
    assert [key[1] for key in groups._held] == [4, 0]


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({"image": PICTURES, "label": [1, 2, 3]}, ["'image', 'label'", "'captions' or 'caption'"]),
        ({"caption": ["a"], "url": ["x"]}, ["no columns of images", "'caption', 'url'", "'image'"]),
        ({"left": PICTURES, "right": PICTURES, "caption": ["a"] * 3}, ["2 columns of images", "'image'"]),
        ({"image": PICTURES, "caption": ["a", None, "c"]}, ["0000.parquet row 1", "None", "a text was expected"]),
        ({"image": PICTURES, "caption": ["a", "  ", "c"]}, ["0000.parquet row 1", "empty"]),
        ({"image": PICTURES, "caption": ["a", "b", "c"], "image_id": ["x", None, "z"]}, ["row 1", "'image_id' is None"]),
        ({"image": PICTURES, "captions": [["a"], ["b"], ["c"]], "caption_ids": [[1], [2], []]}, ["row 2", "0 caption_ids for 1"]),
    ],
)
def test_mistakes_in_rows(tmp_path, held, words):
    with refused(*words):
        load_folder(parquet(tmp_path, **held))


def test_splits_and_missing_shards(tmp_path):
    for name in ("train-00000-of-00001.parquet", "test-00000-of-00002.parquet"):
        parquet(tmp_path, name, image=PICTURES, caption=["a", "b", "c"])
    with refused("several splits", "test, train", "--split", kind=WrongWords):
        load_folder(tmp_path)
    with refused("no split 'val'", "test, train", kind=WrongWords):
        load_folder(tmp_path, split="val")
    with refused("1 of 2 files", "test-00000-of-00002.parquet"):
        load_folder(tmp_path, split="test")
    assert load_folder(tmp_path, split="train").collection.shape == (3, 3)
    other = parquet(tmp_path / "other", "x-00000-of-00002.parquet", image=PICTURES, caption=["a", "b", "c"])
    parquet(other, "x-00001-of-00002.parquet", image=PICTURES, text=["a", "b", "c"])
    with refused("x-00001-of-00002.parquet", "no column 'caption'"):
        load_folder(other)


def test_a_saved_dataset_that_is_incomplete(tmp_path, pets):
    with refused("*.arrow is missing", "save_to_disk"):
        load_folder(write(tmp_path / "a", "dataset_info.json", "{}"))
    write(tmp_path / "a", "state.json", json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    with refused("data-00000-of-00001.arrow is missing"):
        load_folder(tmp_path / "a")
    with refused("state.json lists no data files"):
        load_folder(write(tmp_path / "a", "state.json", "[]"))
    with refused("several splits", "train, test", kind=WrongWords):
        load_folder(write(tmp_path / "b", "dataset_dict.json", '{"splits": ["train", "test"]}'))


def test_images_without_bytes(tmp_path):
    images = [{"bytes": None, "path": "/somewhere/else.png"}, {"bytes": PICTURES[1], "path": "b.png"}]
    held = load_folder(parquet(tmp_path, image=images, caption=["a", "b"])).collection
    assert colour(held.open_image("b.png")) == COLOURS["green.png"]
    with refused("0000.parquet row 0", "'image' holds no bytes", "save_to_disk"):
        held.open_image("else.png")


@pytest.mark.parametrize("damage", [lambda held: held[: len(held) // 2], lambda held: b"\xff" * len(held), lambda held: b""])
def test_damaged_arrow_and_parquet(tmp_path, damage):
    pa = pytest.importorskip("pyarrow")
    parquet(tmp_path / "p", image=PICTURES, caption=["a", "b", "c"])
    table = pa.table({"image": PICTURES, "caption": ["a", "b", "c"]})
    (tmp_path / "s").mkdir()
    with pa.OSFile(str(tmp_path / "s/x.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    assert load_folder(tmp_path / "s").collection.shape == load_folder(tmp_path / "p").collection.shape == (3, 3)
    for path in (tmp_path / "p/0000.parquet", tmp_path / "s/x.arrow"):
        path.write_bytes(damage(path.read_bytes()))
        with refused(str(path), "cannot be read", "again"):
            load_folder(path.parent)


def test_an_arrow_offset_beyond_the_file_does_not_end_the_process(tmp_path):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"image": PICTURES, "caption": ["a", "bcd", "efghi"]})
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    held = (tmp_path / "x.arrow").read_bytes()
    offsets = np.array([0, 1, 4, 9], "<i4").tobytes()
    assert held.count(offsets) == 1
    write(tmp_path, "x.arrow", held.replace(offsets, np.array([0, 1, 4, 1 << 30], "<i4").tobytes()))
    with refused("x.arrow cannot be read", "again"):
        load_folder(tmp_path)


def test_pyarrow_is_asked_for_when_it_is_needed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with refused("pyarrow", "crossmatch[hf]", kind=MissingDependency):
        load_folder(write(tmp_path, "a.parquet", "x"))


def test_pillow_is_asked_for_when_it_is_needed(pets, monkeypatch):
    held = load_folder(write(pets, "captions.csv", rows("red.png,A red one."))).collection
    monkeypatch.setitem(sys.modules, "PIL", None)
    with refused("Pillow", "crossmatch[pictures]", kind=MissingDependency):
        held.open_image("red.png")


# --- judgements


@pytest.fixture
def judged(pets):
    return write(
        pets, "captions.csv",
        "image,caption,caption_id\nred.png,A red one.,r\ngreen.png,A green one.,g\nblue.png,A blue one.,b\n"
        "blue.png,A red one.,r2\n",
    )  # fmt: skip


def test_judgements_stand_beside_the_links(judged):
    write(judged, "judgements.csv", "image,caption_id,grade\nred.png,r,3\nred.png,b,0\nblue,g,1\ngreen.png,g,2.5\n")
    data = load_folder(judged)
    assert list(data.judgements) == ["links", "judged"]
    said = data.judgements["judged"]
    ids = data.collection.image_ids, data.collection.caption_ids
    found = {(str(ids[0][i]), str(ids[1][c])): g for i, c, g in zip(said.rows, said.columns, said.grades, strict=True)}
    assert found == {("red.png", "r"): 3, ("red.png", "b"): 0, ("blue.png", "g"): 1, ("green.png", "g"): 2.5}
    assert (said.positive, said.count, said.complete) == (1, 3, False)
    task = folder_benchmark(judged)
    assert evaluate("random", task, samples=10, positive="2.5")["t2i/judged/hit@1"].positives == 2
    result = evaluate("random", task, samples=10)
    assert result["t2i/judged/hit@1"].positives == 3
    assert result["t2i/links/hit@1"].positives == 4


def test_several_sources_and_captions_by_text(judged):
    write(
        judged,
        "judgements.csv",
        "image,caption,grade,source\nblue.png,A red one.,1,anna\nblue.png,A red one.,0,ben\nred.png,A red one.,1,ben\n",
    )
    data = load_folder(judged)
    assert list(data.judgements) == ["links", "anna", "ben"]
    assert data.judgements["anna"].count == 2, "both captions that read so are meant"
    assert data.judgements["ben"].count == 2
    write(judged, "judgements.csv", "image,caption_id,caption,grade\nblue.png,r2,A red one.,1\n")
    assert load_folder(judged).judgements["judged"].columns.tolist() == [3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image,caption_id,grade\nrot.png,r,1\n", ["judgements.csv line 2", "no image 'rot.png'"]),
        ("image,caption_id,grade\nreds.png,r,1\n", ["line 2", "Did you mean 'red.png'"]),
        ("image_id,caption_id,grade\nred.png,q,1\n", ["line 2", "no caption_id 'q'", "such as 'r'"]),
        ("image,caption,grade\nred.png,A read one.,1\n", ["line 2", "Did you mean 'A red one.'"]),
        ("image,caption_id,caption,grade\nred.png,r,A blue one.,1\n", ["line 2", "are not the same"]),
        (
            "image,caption_id,grade\nred.png,r,1\nred.png,r,0\n",
            ["line 3", "'red.png'", "'r'", "already judged by", "line 2", "Merge"],
        ),
        ("image,caption,caption_id,grade\n\nred.png,,r,1\n", ["line 3", "no caption ''"]),
        ("image,caption_id,grade\nred.png,r,yes\n", ["line 2", "'yes'", "from 0"]),
        ("image,caption_id,grade\nred.png,r,-1\n", ["line 2", "'-1'"]),
        ("image,caption_id,grade\nred.png,r,nan\n", ["line 2", "'nan'"]),
        ("image,caption_id,grade\nred.png,r,0\n", ["no grade of 'judged' reaches 1", "the highest is 0", "+positive="]),
        ("image,caption_id,grad\nred.png,r,1\n", ["'grade' is missing", "Is it 'grad'?"]),
        ("image,caption_id,grade,source\nred.png,r,1,links\n", ["line 2", "'links'"]),
        ("image,caption_id,grade,source\nred.png,r,1,a/b\n", ["line 2", "'a/b'"]),
        ("image,caption_id,grade,source\nred.png,r,1,\n", ["line 2", "the source is ''"]),
        ("image,caption_id,grade\n", ["no rows"]),
        ("", ["judgements.csv is empty"]),
    ],
)
def test_mistakes_in_judgements(judged, text, words):
    with refused(*words):
        load_folder(write(judged, "judgements.csv", text))


def test_a_name_that_is_almost_right_is_not_overlooked(judged):
    write(judged, "judgments.csv", "image,caption_id,grade\nred.png,r,1\n")
    with refused("judgments.csv", "Rename it to judgements.csv"):
        load_folder(judged)
    (judged / "judgments.csv").rename(judged / "Judgements.tsv")
    write(judged, "Judgements.tsv", "image\tcaption_id\tgrade\nred.png\tr\t1\n")
    assert load_folder(judged).judgements["judged"].count == 1
    with refused("positive is '0'", kind=WrongWords):
        load_folder(judged, positive="0")
    with refused("positive is 'many'", kind=WrongWords):
        load_folder(judged, positive="many")


# --- bad input


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["captions.csv is empty", "header"]),
        ("image,caption\n", ["no rows"]),
        ("\n \n", ["captions.csv is empty"]),
        (rows("red.png,A.", "rot.png,B.", "rosa.png,C."), ["captions.csv line 3", "'rot.png'", "2 images are missing"]),
        (rows("red.pgn,A."), ["line 2", "'red.pgn'", "the nearest is 'red.png'"]),
        (rows("red.png,A.", "red.png,"), ["line 3", "'red.png'", "empty", "distractor"]),
        (rows("red.png,A.", ",B."), ["line 3", "'image' is empty"]),
        (rows("red.png,A cat, a dog."), ["line 2", "3 cells", "header has 2", "double quotes"]),
        (rows("red.png"), ["line 2", "1 cells"]),
        (rows('red.png,"A', "green.png,B."), ["line 2", "double quote"]),
        ("image,captoin\nred.png,A.\n", ["'image', 'captoin'", "'caption' is missing", "Is it 'captoin'?"]),
        ("file,caption\nred.png,A.\n", ["'image' or 'image_id' is missing"]),
        ("image;caption\nred.png;A.\n", ["separated by semicolons", "has commas"]),
        ("red.png,A.\n", ["'image' or 'image_id' is missing", "first line must name the columns"]),
        ("image,caption,captionid\nred.png,A.,1\n", ["'captionid'", "Did you mean 'caption_id'?"]),
        ("image,caption,caption\nred.png,A.,B.\n", ["two columns 'caption'"]),
        ("image,caption,caption_id\nred.png,A.,1\nblue.png,B.,1\n", ["line 3", "'1'", "'B.'", "line 2", "'A.'", "id of its own"]),
        ("image,caption,caption_id\nred.png,A.,1\nred.png,A.,1\n", ["line 3", "already given to image 'red.png'", "line 2"]),
        ("image,caption,caption_id\nred.png,A.,\n", ["line 2", "'caption_id' is empty"]),
        ("image,caption,image_id\nred.png,A.,1\nred.png,B.,2\n", ["line 3", "'red.png'", "'2'", "'1'"]),
        ("image,caption,image_id\nred.png,A.,1\nblue.png,B.,1\n", ["line 3", "'1'", "'blue.png'", "'red.png'"]),
        ("image,caption,image_id\nred.png,A.,blue.png\n", ["'blue.png'", "'red.png'", "another image"]),
        (rows("../secret.png,A."), ["line 2", "'../secret.png'", "leads out of"]),
        (rows("a/../../secret.png,A."), ["line 2", "leads out of"]),
        (rows("..\\secret.png,A."), ["line 2", "leads out of"]),
        (rows("/etc/passwd,A."), ["line 2", "leads out of"]),
        (rows("C:\\secret.png,A."), ["line 2", "leads out of"]),
        (b"image,caption\nred.png,A caf\xe9.\n", ["captions.csv line 2", "0xe9", "byte 27", "UTF-8"]),
        (b"\xef\xbb\xbfimage,caption\nred.png,A caf\xe9.\n", ["line 2", "0xe9", "byte 30"]),
        (b"image,caption\nred.png,A\x00B\n", ["line 2", "NUL"]),
    ],
)
def test_mistakes_in_captions(pets, text, words):
    (pets / "secret.png").write_bytes(b"")
    with refused(*words):
        load_folder(write(pets, "captions.csv", text))


def test_names_that_mean_two_files(pets):
    write(pets / "images", "a/red.png", png((1, 1, 1)))
    write(pets / "images", "green.jpg", b"")
    assert load_folder(write(pets, "captions.csv", rows("red.png,A."))).collection.image_ids.tolist().count("a/red.png") == 1
    with refused("line 2", "'green' may be green.jpg or green.png"):
        load_folder(write(pets, "captions.csv", rows("green,A.")))
    write(pets / "images", "b/blue.png", b"")
    (pets / "images/blue.png").rename(pets / "images/a/blue.png")
    with refused("'blue.png' may be a/blue.png or b/blue.png", "Write the path"):
        load_folder(write(pets, "captions.csv", rows("blue.png,A.")))


def coco(images=None, annotations=None):
    return json.dumps(
        {
            "images": [{"id": 1, "file_name": "red.png"}, {"id": 2, "file_name": "blue.png"}] if images is None else images,
            "annotations": [{"id": 7, "image_id": 1, "caption": "A."}] if annotations is None else annotations,
        }
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"images": [', ["captions.json is not json", "line 1, column 13"]),
        ("[" * 100_000, ["captions.json is nested too deeply"]),
        ("", ["captions.json is not json"]),
        ("[]", ["a list", "'images' and 'annotations'"]),
        ('{"red.png": ["A."]}', ["'red.png'", "'images' and 'annotations'"]),
        (b'{"\xff', ["line 1", "0xff"]),
        (coco(annotations=[]), ["2 images but no caption", "captions.json"]),
        (coco(images=[{"id": 1, "file_name": "rot.png"}]), ["images[0]", "'rot.png'"]),
        (coco(images=[{"id": 1, "file_name": "../secret.png"}]), ["images[0]", "leads out of"]),
        (coco(images=[{"id": 1}]), ["images[0] (id 1)", "no 'file_name'"]),
        (coco(images=[{"file_name": "red.png"}]), ["images[0]", "'id' is None"]),
        (coco(images=[{"id": 1, "file_name": "red.png"}] * 2), ["images[1]", "image id 1", "twice"]),
        (coco(images=[{"id": n, "file_name": "red.png"} for n in (1, 2)]), ["images[1]", "image 2", "image 1"]),
        (coco(images=[1]), ["images[0] is 1"]),
        (coco(annotations=[{"id": 7, "image_id": 9, "caption": "A."}]), ["annotations[0]", "image_id 9", "'images'"]),
        (coco(annotations=[{"id": 7, "image_id": 1, "bbox": [0, 0, 1, 1]}]), ["annotations[0]", "'caption' is None", "not boxes"]),
        (coco(annotations=[{"id": 7, "image_id": 1, "caption": " "}]), ["annotations[0]", "empty"]),
        (coco(annotations=[{"id": 7, "image_id": 1, "caption": t} for t in "AB"]), ["annotations[1]", "'7'", "annotations[0]"]),
        (coco(annotations=[{"id": 7.5, "image_id": 1, "caption": "A."}]), ["annotations[0]", "7.5", "whole number"]),
    ],
)
def test_mistakes_in_coco_json(pets, text, words):
    with refused(*words):
        load_folder(write(pets, "captions.json", text))


def test_a_json_is_known_by_what_it_holds(pets):
    write(pets, "notes.json", '{"by": "me"}')
    with refused("has no captions", "images/, notes.json", "Expected: captions.csv"):
        load_folder(pets)
    assert load_folder(write(pets, "val.json", coco())).collection.image_ids.tolist() == ["1", "2"]
    with refused("val.json", "val2.json", "captions.json"):
        load_folder(write(pets, "val2.json", coco()))


def tar_with(path, **files):
    with tarfile.open(path, "w") as tar:
        for name, held in files.items():
            add(tar, name.replace("_", "."), held)
    return path.parent


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, ["a.tar holds no image"]),
        ({"a_txt": b"A.", "b_png": PICTURES[0]}, ["a.tar", "sample 'a'", "caption but no image", "a.jpg"]),
        ({"a_v1_jpg": PICTURES[0], "a_txt": b"A."}, ["sample 'a'", "v1.jpg", "first dot"]),
        ({"a_png": PICTURES[0], "a_jpg": b"", "a_txt": b"A."}, ["sample 'a'", "two images", "png and jpg"]),
        ({"a_png": PICTURES[0], "a_txt": b" \n"}, ["a.txt", "empty"]),
        ({"a_png": PICTURES[0], "a_txt": b"A.\n\xff"}, ["a.tar: a.txt line 2", "0xff"]),
        ({"a_png": PICTURES[0], "a_json": b"{"}, ["a.tar: a.json is not json"]),
        ({"a_png": PICTURES[0], "a_json": b'{"caption": 3}'}, ["a.json", "a caption is 3"]),
        ({"a_png": PICTURES[0], "a_json": b'{"caption": "A.", "caption_ids": [1, 2]}'}, ["a.json", "2 caption_ids for 1"]),
        ({"a_png": PICTURES[0], "a_json": b'{"width": 1}'}, ["1 images but no caption", "a.tar"]),
    ],
)
def test_mistakes_in_tars(tmp_path, files, words):
    with refused(*words):
        load_folder(tar_with(tmp_path / "a.tar", **files))


def test_keys_must_be_unique(tmp_path):
    for name in ("a.tar", "b.tar"):
        tar_with(tmp_path / name, k_png=PICTURES[0], k_txt=b"A.")
    with refused("b.tar: sample 'k' is also in", "a.tar"):
        load_folder(tmp_path)
    (tmp_path / "b.tar").unlink()
    with tarfile.open(tmp_path / "a.tar", "a") as tar:
        add(tar, "k.txt", b"B.")
    with refused("a.tar: k.txt stands there twice"):
        load_folder(tmp_path)


def test_damaged_tars(tmp_path):
    tar_with(tmp_path / "a.tar", k_png=PICTURES[0], k_txt=b"A.", l_png=PICTURES[1], l_txt=b"B.")
    whole = (tmp_path / "a.tar").read_bytes()
    third = whole.index(b"l.png")
    for held, words in (
        (b"", ["cannot be read as a tar"]),
        (b"junk" * 1000, ["cannot be read as a tar"]),
        (whole[: third + 520], ["cannot be read as a tar"]),  # ends inside of an image
        (whole[: third + 100], [f"damaged at byte {third:,}", "2 files"]),  # ends inside of a header
        (whole[:third] + b"\xff" * 512 + whole[third + 512 :], [f"damaged at byte {third:,}", "Write it again"]),
    ):
        with refused("a.tar", *words):
            load_folder(write(tmp_path, "a.tar", held))
    (tmp_path / "a.tar").unlink()
    with refused("a.tar.gz", "Unpack the compression"):
        load_folder(write(tmp_path, "a.tar.gz", whole))


def test_links_in_tars(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        link = tarfile.TarInfo("a.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with refused("a.tar: a.jpg is a link", "--dereference"):
        load_folder(tmp_path)


def test_pictures_that_cannot_be_opened(pets):
    write(pets / "images", "broken.jpg", b"\xff\xd8\xff\xe0 not much of a jpeg")
    write(pets / "images", "cut.png", png((1, 2, 3), (50, 50))[:100])
    held = load_folder(write(pets, "captions.csv", rows("red.png,A."))).collection
    for name in ("broken.jpg", "cut.png"):
        with refused(f"images/{name} cannot be opened as an image", "Replace it"):
            held.open_image(name)
    (pets / "images/red.png").unlink()
    with refused("images/red.png cannot be read", "No such file"):
        held.open_image("red.png")
    with refused("no image 'pink.png'"):
        held.open_image("pink.png")
    write(pets, "captions.csv", rows("blue.png,A."))
    with refused("cannot be opened as an image"):
        evaluate(lambda images, texts: np.zeros((len(images), len(texts))), folder_benchmark(pets), samples=10)


def test_folders_that_are_no_collection(pets):
    with refused("elsewhere is not there", kind=WrongWords):
        load_folder(pets / "elsewhere")
    with refused("is a file", kind=WrongWords):
        load_folder(pets / "images/red.png")
    with refused("has no captions", "it holds images/", "Expected: captions.csv beside images/"):
        load_folder(pets)
    with refused("caption.csv", "Rename"):
        load_folder(write(pets, "caption.csv", rows("red.png,A.")))
    write(pets, "captions.csv", rows("red.png,A."))
    with refused("captions.csv and captions.json", "Keep one"):
        load_folder(write(pets, "captions.json", coco()))
    (pets / "captions.json").unlink()
    with refused("captions.csv and captions.tsv", "Keep one"):
        load_folder(write(pets, "captions.tsv", ""))
    (pets / "captions.tsv").unlink()
    (pets / "images").rename(pets / "Image")
    with refused("no folder", "images", "Is it 'Image'?"):
        load_folder(pets)
    shutil.rmtree(pets / "Image")
    with refused("no folder", "Put the images into it"):
        load_folder(pets)
    (pets / "images").mkdir()
    with refused("images holds no image", ".jpg"):
        load_folder(pets)


def test_a_split_is_a_folder_in_the_folder(pets):
    write(pets, "captions.csv", rows("red.png,A."))
    assert load_folder(pets.parent, split="pets").collection.shape == (3, 1)
    task = folder_benchmark(pets.parent)
    assert evaluate("oracle", task, split="pets", samples=10)["t2i/hit@1"].value == 100
    with refused("no split 'dogs'", "Leave --split out", kind=WrongWords):
        load_folder(pets, split="dogs")
    with refused("no split '..'", kind=WrongWords):
        load_folder(pets, split="..")


def test_options_behind_the_name(pets):
    task, options = folder_task(f"{pets}+split=a+positive=2")
    assert (task.name, options) == ("collection:pets", {"split": "a", "positive": "2"})
    odd = pets.rename(pets.parent / "a+b=c")
    assert folder_task(str(odd))[1] == {}
    assert folder_task(f"{odd}+positive=2")[0].name == "collection:a+b=c"
    write(odd, "captions.csv", rows("red.png,A."))
    task, options = folder_task(f"{odd}+postive=2")
    with refused("no option 'postive'", "positive, split", kind=WrongWords):
        task.loaded(**options)


def test_what_may_not_be_read(pets, monkeypatch):
    def forbidden(path):
        raise PermissionError(13, "Permission denied", str(path))

    write(pets, "captions.csv", rows("red.png,A."))
    monkeypatch.setattr(Path, "read_bytes", forbidden)
    with refused("captions.csv cannot be read", "Permission denied"):
        load_folder(pets)


def test_the_declaration(pets, monkeypatch):
    task = folder_benchmark(pets)
    assert (task.name, task.directions) == ("collection:pets", ("i2t", "t2i", "t2t", "i2i"))
    assert dict(task.options) == {"positive": "1", "split": ""}
    assert {"hit@1", "hit@5", "hit@10", "median-rank", "map@r", "r-precision", "recall@10"} <= set(task.metrics)
    assert [metric(name).shape for name in task.metrics] == ["retrieval"] * len(task.metrics)
    monkeypatch.chdir(pets)
    assert folder_benchmark(".").name == folder_benchmark("../pets/").name == "collection:pets"
    page = (ROOT / "docs/collections.md").read_text()
    assert [
        mark for group in LAYOUTS for layout in group for mark in layout.marks if mark not in page and mark != "state.json"
    ] == []


# -- judgements of two captions, and of two images

THREE = "image,caption\nred.png,A cat.\nred.png,A sleeping cat.\nblue.png,A dog.\n"


def test_judgements_of_two_captions_and_of_two_images_give_their_own_directions(pets):
    write(pets, "captions.csv", THREE)
    (pets / "judgements_t2t.csv").write_text("caption_id,other_caption_id,grade\nred.png#0,blue.png#0,2\nred.png#0,red.png#1,5\n")
    (pets / "judgements_i2i.csv").write_text("image,other_image,grade\nred.png,blue.png,3\n")
    loaded = load_folder(pets, positive=3)
    found, ids = loaded.judgements, loaded.collection.image_ids.tolist()
    red, blue = ids.index("red.png"), ids.index("blue.png")
    assert found["captions"].kind == "caption-caption"
    assert found["images"].directions == ("i2i",)
    assert sorted(zip(found["images"].rows.tolist(), found["images"].columns.tolist(), strict=True)) == sorted(
        [(red, blue), (blue, red)]
    )
    assert found["captions"].count == 2  # either way round

    class Embeds:
        def embed_images(self, images):
            return np.stack([np.asarray(image.resize((1, 1)), dtype=np.float32).ravel() for image in images])

        def embed_texts(self, texts):
            return np.asarray([[len(text), text.count("e"), 1] for text in texts], dtype=np.float32)

    result = evaluate(Embeds(), folder_benchmark(pets), positive="3")
    assert {row.part for row in result.rows} == {"i2t", "t2i", "t2t", "i2i"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("judgements_t2t", "caption_id,other_caption_id,grade\nred.png#0,red.png#0,2\n", "compared with itself"),
        ("judgements_i2i", "image,other_image,grade\nred.png,blue.png,3\nblue.png,red.png,3\n", "already judged"),
        ("judgements_i2i", "image,caption_id,grade\nred.png,red.png#0,3\n", "other_image"),
        ("judgements_i2i", "image,other_image,grade,source\nred.png,blue.png,3,links\n", "not 'links'"),
    ],
)
def test_wrong_judgements_of_one_side_are_refused(pets, name, text, said):
    write(pets, "captions.csv", THREE)
    (pets / f"{name}.csv").write_text(text)
    with pytest.raises(CrossmatchError, match=said):
        load_folder(pets)
