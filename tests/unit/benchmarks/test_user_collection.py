"""User folders: every layout gives the same collection, and errors name file, row and remedy."""

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
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossmatch.benchmarks.formats import arrow as arrow_files
from crossmatch.benchmarks.formats.image_decoding import decode_image
from crossmatch.benchmarks.user_collection import (
    LAYOUTS,
    collection_benchmark,
    load_collection_folder,
    load_folder_similarity,
    load_rated_folder,
    parse_collection_task,
)
from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.data.loaded_data import data_hash
from crossmatch.evaluation.evaluate import evaluate
from crossmatch.metrics.metric_table import metric
from error_messages import one_line_error

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


def png(colour, size=(4, 3), **options):
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG", **options)
    return buffer.getvalue()


def rows(*lines):
    return "\n".join(("image,caption", *lines)) + "\n"


@pytest.fixture
def pets(tmp_path):
    """A folder with three images."""
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
    """The links of a collection as image id, caption id and text."""
    collection = data.collection
    return {(str(collection.image_ids[i]), str(collection.caption_ids[c]), collection.captions[c]) for i, c in collection.links}


# --- the photographs in every layout


def linked_images(photos, folder):
    (folder / "images").mkdir(parents=True)
    for photo in photos:
        (folder / photo["file"]).symlink_to(PHOTOS / photo["file"])


def as_csv(photos, folder, suffix=".csv", delimiter=","):
    linked_images(photos, folder)
    with (folder / f"captions{suffix}").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter=delimiter)  # Windows line ends are this writer's default
        writer.writerow(["image", "caption", "caption_id", "image_id"])
        for photo in photos:
            writer.writerows(
                [Path(photo["file"]).name, c["caption"], c["caption_id"], photo["image_id"]] for c in photo["captions"]
            )


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
                add_member(tar, f"{photo['image_id']}.jpg", (PHOTOS / photo["file"]).read_bytes())
                texts = {
                    key: [c[name] for c in photo["captions"]]
                    for key, name in (("captions", "caption"), ("caption_ids", "caption_id"))
                }
                add_member(tar, f"{photo['image_id']}.json", json.dumps(texts).encode())


def add_member(tar, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


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
    data = columns(photos, bytes_too=False) | {"image": [str(PHOTOS / p["file"]) for p in photos]}
    dataset = datasets.Dataset.from_dict(data).cast_column("image", datasets.Image())
    dataset.save_to_disk(str(folder), num_shards=3)


def as_dataset_dict(photos, folder):
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    dataset = datasets.Dataset.from_dict(columns(photos)).cast_column("image", datasets.Image())
    datasets.DatasetDict({"test": dataset, "val": dataset.select(range(5))}).save_to_disk(str(folder))


def as_arrow(photos, folder):
    """The layout of save_to_disk, written without `datasets` and with the footer of other writers."""
    pa = pytest.importorskip("pyarrow")
    folder.mkdir(parents=True)
    table = pa.table(columns(photos))
    with pa.ipc.new_file(folder / "data-00000-of-00001.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=50)
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
def layout_folder(request, photos, tmp_path_factory):
    """The folder in one of the layouts, and the options to load it."""
    folder = tmp_path_factory.mktemp(request.param.__name__) / "photos"
    request.param(photos, folder)
    return folder, ({"split": SPLIT[request.param]} if request.param in SPLIT else {})


def test_every_layout_gives_the_same_collection(layout_folder, photos):
    data = load_collection_folder(layout_folder[0], **layout_folder[1])
    expected = {(str(p["image_id"]), str(c["caption_id"]), c["caption"].strip()) for p in photos for c in p["captions"]}
    assert data.collection.shape == (178, 890)
    assert pairs(data) == expected
    assert list(data.judgements) == ["links"]
    assert data.judgements["links"].positive_count == 890


def test_every_layout_opens_the_right_pixels(layout_folder, photos):
    collection = load_collection_folder(layout_folder[0], **layout_folder[1]).collection
    order = random.Random(0).sample(photos, 40)
    with ThreadPoolExecutor(8) as threads:
        opened = list(threads.map(collection.open_image, [str(p["image_id"]) for p in order]))
    for photo, picture in zip(order, opened, strict=True):
        with Image.open(PHOTOS / photo["file"]) as original:
            assert picture.mode == "RGB"
            assert np.array_equal(np.asarray(picture), np.asarray(original.convert("RGB")))


def test_models_are_evaluated_on_every_layout(layout_folder, photos):
    """A scorer that identifies photographs by their pixels is perfect only if every id has the right image."""
    captions_by_pixels = {}
    for photo in photos:
        with Image.open(PHOTOS / photo["file"]) as picture:
            captions_by_pixels[fingerprint(picture.convert("RGB"))] = {c["caption"].strip() for c in photo["captions"]}

    def by_pixels(images, texts):
        own = [captions_by_pixels[fingerprint(image)] for image in images]
        return np.array([[text in captions for text in texts] for captions in own], dtype=float)

    task, options = collection_benchmark(layout_folder[0]), layout_folder[1]
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


def test_hash_and_numbers_do_not_depend_on_the_layout(photos, tmp_path):
    loaded = {}
    for writer in (as_csv, as_coco, as_tars, as_parquet):
        writer(photos, tmp_path / writer.__name__)
        loaded[writer] = load_collection_folder(tmp_path / writer.__name__, split=SPLIT.get(writer, ""))
    assert len({data_hash(data) for data in loaded.values()}) == 1
    task = collection_benchmark(tmp_path)
    results = [evaluate("random", task, data=data, samples=10) for data in loaded.values()]
    assert len({tuple((row.metric, row.value) for row in result.rows) for result in results}) == 1


def test_file_names_are_the_default_ids(photos, tmp_path):
    few = photos[:4]
    linked_images(few, tmp_path / "a")
    (tmp_path / "a/captions.csv").write_text(
        rows(*(f'{Path(p["file"]).stem},"{p["captions"][0]["caption"].strip()}"' for p in few))
    )
    data = load_collection_folder(tmp_path / "a")
    assert data.collection.image_ids.tolist() == [Path(p["file"]).name for p in few]
    assert data.collection.caption_ids[0] == f"{Path(few[0]['file']).name}#0"


# --- what a collection may look like


def test_invalid_unicode_is_an_error(pets):
    write(pets, "captions.json", coco(annotations=[{"id": 7, "image_id": 1, "caption": "half of \ud83d"}]))
    with one_line_error("annotations[0]", "\\ud83d", "not valid Unicode"):
        load_collection_folder(pets)
    (pets / "captions.json").unlink()
    write(pets, "captions.csv", rows("red.png,A."))
    os.rename(pets / "images/green.png", os.fsencode(pets / "images") + b"/gr\xfcn.png")
    with one_line_error("gr\\udcfcn.png", "not valid Unicode"):
        load_collection_folder(pets)


def test_names_that_differ_only_in_unicode_form_are_an_error(pets):
    write(pets, "captions.csv", rows("red.png,A."))
    for name in ("caf\u00e9.png", "cafe\u0301.png"):
        write(pets / "images", name, png((1, 1, 1)))
    with one_line_error("twice", "accents", "Rename one"):
        load_collection_folder(pets)


def test_caption_may_belong_to_several_images(pets):
    write(
        pets, "captions.csv",
        "image,caption,caption_id\nred.png,A red one.,r\ngreen.png,Warm or cold.,w\nred.png,Warm or cold.,w\n"
        "blue.png,A blue one.,b\n",
    )  # fmt: skip
    data = load_collection_folder(pets)
    assert data.collection.caption_ids.tolist() == ["r", "w", "b"]
    assert pairs(data) == {
        ("red.png", "r", "A red one."), ("red.png", "w", "Warm or cold."), ("green.png", "w", "Warm or cold."),
        ("blue.png", "b", "A blue one."),
    }  # fmt: skip
    oracle = evaluate("oracle", collection_benchmark(pets), samples=10)
    assert oracle["t2i/hit@1"].n == 3
    assert oracle["t2i/recall@10"].positives == 4
    assert oracle["t2i/map@r"].value == 100


def test_images_without_captions_are_distractors(pets):
    data = load_collection_folder(write(pets, "captions.csv", rows("red.png,A red one.")))
    assert sorted(data.collection.image_ids.tolist()) == sorted(COLOURS)
    assert data.judgements["links"].positive_count == 1
    listed = json.dumps(
        {"images": [{"id": n, "file_name": f} for n, f in enumerate(COLOURS)], "annotations": [{"image_id": 2, "caption": "Blue."}]}
    )
    (pets / "captions.csv").unlink()
    assert pairs(load_collection_folder(write(pets, "captions.json", listed))) == {("2", "2#0", "Blue.")}
    assert load_collection_folder(pets).collection.shape == (3, 1)


def test_subfolders_clutter_case_and_accents_in_image_folders(pets):
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
    data = load_collection_folder(pets)
    assert set(data.collection.image_ids.tolist()) == {*COLOURS, "a/dog.JPG", "b/dog.JPG", "cat.WebP", "caf\u00e9.png", "scan"}
    assert {(image, text) for image, _, text in pairs(data)} == {
        ("a/dog.JPG", 'A dog, "Rex".'), ("b/dog.JPG", "Another."), ("cat.WebP", "Two\nlines"), ("caf\u00e9.png", "Coffee."),
        ("scan", "A file without an ending."),
    }  # fmt: skip
    assert colour(data.collection.open_image("caf\u00e9.png")) == (7, 7, 7)
    assert colour(data.collection.open_image("scan")) == (9, 9, 9)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_of_spreadsheets_are_read(pets, encoding):
    data = load_collection_folder(
        write(pets, "captions.csv", rows("red.png,Ein rötliches Bild.", "blue.png,青い絵").encode(encoding))
    )
    assert data.collection.captions == ("Ein rötliches Bild.", "青い絵")


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20).filter(lambda text: text.strip())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(caption_rows=st.lists(st.tuples(st.sampled_from(sorted(COLOURS)), texts), min_size=1, max_size=8))
def test_written_captions_are_read_back(pets, caption_rows):
    buffer = io.StringIO()
    csv.writer(buffer).writerows([("image", "caption"), *caption_rows])
    data = load_collection_folder(write(pets, "captions.csv", buffer.getvalue()))
    assert sorted((image, text) for image, _, text in pairs(data)) == sorted((image, text.strip()) for image, text in caption_rows)


def test_images_are_rotated_by_exif(pets):
    corner = Image.new("RGB", (4, 2), "white")
    corner.putpixel((0, 0), (255, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # the first row is the right side of the image
    corner.save(pets / "images/turned.png", exif=exif)
    collection = load_collection_folder(write(pets, "captions.csv", rows("red.png,A red one."))).collection
    rotated = collection.open_image("turned.png")
    assert rotated.size == (2, 4)
    assert rotated.getpixel((1, 0)) == (255, 0, 0)
    assert colour(pickle.loads(pickle.dumps(collection)).open_image("red.png")) == (200, 0, 0)


@pytest.mark.parametrize(
    ("greys", "expected"),
    [
        (np.float32([[0, 0.5], [0.25, 1]]), [0, 128, 64, 255]),
        (np.int32([[0, 7], [200, 255]]), [0, 7, 200, 255]),
        (np.int32([[0, 256], [0x80FF, 0xFFFF]]), [0, 1, 0x80, 255]),
        (np.float32([[0, 0.5], [0.25, 300]]), "floating-point grey values are from 0 to 300; expected 0 to 1"),
        (np.float32([[0, 0.5], [0.25, np.nan]]), "floating-point grey values"),
        (np.int32([[0, 1], [2, 1 << 20]]), "its grey values are from 0 to 1.04858e\\+06; expected 0 to 65,535"),
        (np.int32([[0, 1], [2, -3]]), "its grey values are from -3"),
    ],
)
def test_deep_grey_values_are_scaled_or_an_error(greys, expected):
    buffer = io.BytesIO()
    Image.fromarray(greys).save(buffer, "TIFF")
    if isinstance(expected, str):
        with pytest.raises(CrossmatchError, match=f"a.tif cannot be opened as an image .*{expected}"):
            decode_image(buffer.getvalue(), "a.tif")
    else:
        assert np.asarray(decode_image(buffer.getvalue(), "a.tif"))[..., 0].ravel().tolist() == expected


def test_tars_with_folders_text_lines_and_clutter(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        folder = tarfile.TarInfo("x")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in {
            "./x/1.PNG": png((1, 0, 0)), "x/1.txt": b"\xef\xbb\xbfOne.\r\nA second line.\r\n\r\n",
            "y/1.png": png((2, 0, 0)), "y/1.json": b'["Two."]',
            "3.webp": png((3, 0, 0)), "3.json": b'{"url": "", "width": 4}', "3.cls": b"0", "._3.webp": b"", "4.png": png((4, 0, 0)),
            "4.json": b'{"caption": "from json"}', "4.txt": b"from txt",
        }.items():  # fmt: skip
            add_member(tar, name, content)
    data = load_collection_folder(tmp_path)
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
    assert load_collection_folder(tmp_path).judgements["judged"].positive_count == 2


def test_long_names_in_tars_are_read_by_offset(tmp_path):
    long = "folder/" * 20 + "é" * 60
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(tmp_path / "a.tar", "w", format=form) as tar:
            add_member(tar, f"{long}.png", png((5, 6, 7)))
            add_member(tar, f"{long}.txt", b"A long name.")
        data = load_collection_folder(tmp_path)
        assert data.collection.image_ids.tolist() == ["é" * 60]
        assert colour(data.collection.open_image("é" * 60)) == (5, 6, 7)


# --- Hugging Face


def parquet(folder, name="0000.parquet", **data):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    folder.mkdir(exist_ok=True)
    files.write_table(pa.table(data), folder / name)
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
def test_caption_columns_of_any_form_are_read(tmp_path, captions, expected):
    collection = load_collection_folder(parquet(tmp_path, picture=PICTURES, **captions)).collection
    assert list(collection.captions) == [text for text, _ in expected]
    assert [i for i in collection.caption_ids.tolist() if "#" not in i] == [i for _, i in expected if i]
    assert collection.image_ids.tolist() == ["0", "1", "2"]


def test_row_numbers_are_zero_padded(tmp_path):
    collection = load_collection_folder(parquet(tmp_path, image=PICTURES * 4, caption=[f"c{n}" for n in range(12)])).collection
    assert collection.image_ids.tolist() == sorted(collection.image_ids.tolist()) == [f"{n:02d}" for n in range(12)]


def test_rows_with_equal_image_ids_are_one_image(tmp_path):
    """Rows that repeat an image id are one image, if they hold the same image."""
    data = {"image": [PICTURES[0], PICTURES[1], PICTURES[0]], "filename": ["r", "g", "r"], "caption": ["a", "b", "c"]}
    assert {(i, t) for i, _, t in pairs(load_collection_folder(parquet(tmp_path, **data)))} == {("r", "a"), ("g", "b"), ("r", "c")}
    with one_line_error("row 2", "'r'", "a different image", "row 0"):
        load_collection_folder(parquet(tmp_path, **data | {"image": PICTURES}))


def test_unique_file_names_are_image_ids(tmp_path):
    images = [{"bytes": encoded, "path": f"dir/{name}"} for name, encoded in zip(COLOURS, PICTURES, strict=True)]
    assert load_collection_folder(parquet(tmp_path, image=images, caption=["a", "b", "c"])).collection.image_ids.tolist() == list(
        COLOURS
    )
    images[1]["path"] = None
    assert load_collection_folder(parquet(tmp_path, image=images, caption=["a", "b", "c"])).collection.image_ids.tolist() == [
        "0",
        "1",
        "2",
    ]


def test_row_group_cache_is_limited(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet as files

    files.write_table(pa.table({"image": [bytes([n]) * 1000 for n in range(10)]}), tmp_path / "a.parquet", row_group_size=2)
    groups = arrow_files.RowGroupCache(max_bytes=4500)
    for group in (0, 1, 2, 1, 4, 0):
        assert groups.column(tmp_path / "a.parquet", group, "image").to_pylist() == [
            bytes([2 * group]) * 1000,
            bytes([2 * group + 1]) * 1000,
        ]
    assert [key[1] for key in groups._columns] == [4, 0]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"image": PICTURES, "label": [1, 2, 3]}, ["'image', 'label'", "'captions' or 'caption'"]),
        ({"caption": ["a"], "url": ["x"]}, ["no image columns", "'caption', 'url'", "'image'"]),
        ({"left": PICTURES, "right": PICTURES, "caption": ["a"] * 3}, ["2 image columns", "'image'"]),
        ({"image": PICTURES, "caption": ["a", None, "c"]}, ["0000.parquet row 1", "None", "must be text"]),
        ({"image": PICTURES, "caption": ["a", "  ", "c"]}, ["0000.parquet row 1", "empty"]),
        (
            {"image": PICTURES, "caption": ["a", "b", "c"], "image_id": ["x", None, "z"]},
            ["row 1", "'image_id' must be a whole number or text (got None)"],
        ),
        ({"image": PICTURES, "captions": [["a"], ["b"], ["c"]], "caption_ids": [[1], [2], []]}, ["row 2", "0 caption_ids for 1"]),
    ],
)
def test_invalid_rows_of_parquet_are_an_error(tmp_path, data, words):
    with one_line_error(*words):
        load_collection_folder(parquet(tmp_path, **data))


def test_missing_splits_and_shards_are_an_error(tmp_path):
    for name in ("train-00000-of-00001.parquet", "test-00000-of-00002.parquet"):
        parquet(tmp_path, name, image=PICTURES, caption=["a", "b", "c"])
    with one_line_error("several splits", "test, train", "--split", kind=UsageError):
        load_collection_folder(tmp_path)
    with one_line_error("no split 'val'", "test, train", kind=UsageError):
        load_collection_folder(tmp_path, split="val")
    with one_line_error("1 of 2 files", "test-00000-of-00002.parquet"):
        load_collection_folder(tmp_path, split="test")
    assert load_collection_folder(tmp_path, split="train").collection.shape == (3, 3)
    other = parquet(tmp_path / "other", "x-00000-of-00002.parquet", image=PICTURES, caption=["a", "b", "c"])
    parquet(other, "x-00001-of-00002.parquet", image=PICTURES, text=["a", "b", "c"])
    with one_line_error("x-00001-of-00002.parquet", "no column 'caption'"):
        load_collection_folder(other)


def test_incomplete_saved_dataset_is_an_error(tmp_path, pets):
    with one_line_error("*.arrow is missing", "save_to_disk"):
        load_collection_folder(write(tmp_path / "a", "dataset_info.json", "{}"))
    write(tmp_path / "a", "state.json", json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
    with one_line_error("data-00000-of-00001.arrow is missing"):
        load_collection_folder(tmp_path / "a")
    with one_line_error("state.json lists no data files"):
        load_collection_folder(write(tmp_path / "a", "state.json", "[]"))
    with one_line_error("several splits", "train, test", kind=UsageError):
        load_collection_folder(write(tmp_path / "b", "dataset_dict.json", '{"splits": ["train", "test"]}'))


def test_image_without_bytes_is_an_error(tmp_path):
    images = [{"bytes": None, "path": "/somewhere/else.png"}, {"bytes": PICTURES[1], "path": "b.png"}]
    collection = load_collection_folder(parquet(tmp_path, image=images, caption=["a", "b"])).collection
    assert colour(collection.open_image("b.png")) == COLOURS["green.png"]
    with one_line_error("0000.parquet row 0", "'image' has no image bytes", "save_to_disk"):
        collection.open_image("else.png")


@pytest.mark.parametrize(
    "damage", [lambda content: content[: len(content) // 2], lambda content: b"\xff" * len(content), lambda content: b""]
)
def test_damaged_arrow_and_parquet_files_are_an_error(tmp_path, damage):
    pa = pytest.importorskip("pyarrow")
    parquet(tmp_path / "p", image=PICTURES, caption=["a", "b", "c"])
    table = pa.table({"image": PICTURES, "caption": ["a", "b", "c"]})
    (tmp_path / "s").mkdir()
    with pa.OSFile(str(tmp_path / "s/x.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert (
        load_collection_folder(tmp_path / "s").collection.shape == load_collection_folder(tmp_path / "p").collection.shape == (3, 3)
    )
    for path in (tmp_path / "p/0000.parquet", tmp_path / "s/x.arrow"):
        path.write_bytes(damage(path.read_bytes()))
        with one_line_error(str(path), "cannot be read", "again"):
            load_collection_folder(path.parent)


def test_invalid_arrow_offset_does_not_crash(tmp_path):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"image": PICTURES, "caption": ["a", "bcd", "efghi"]})
    with pa.OSFile(str(tmp_path / "x.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content = (tmp_path / "x.arrow").read_bytes()
    offsets = np.array([0, 1, 4, 9], "<i4").tobytes()
    assert content.count(offsets) == 1
    write(tmp_path, "x.arrow", content.replace(offsets, np.array([0, 1, 4, 1 << 30], "<i4").tobytes()))
    with one_line_error("x.arrow cannot be read", "again"):
        load_collection_folder(tmp_path)


def test_missing_pyarrow_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with one_line_error("pyarrow", "crossmatch[hf]", kind=MissingDependencyError):
        load_collection_folder(write(tmp_path, "a.parquet", "x"))


def test_missing_pillow_is_an_error(pets, monkeypatch):
    collection = load_collection_folder(write(pets, "captions.csv", rows("red.png,A red one."))).collection
    monkeypatch.setitem(sys.modules, "PIL", None)
    with one_line_error("Pillow", "crossmatch[pictures]", kind=MissingDependencyError):
        collection.open_image("red.png")


# --- judgements


@pytest.fixture
def judged(pets):
    return write(
        pets, "captions.csv",
        "image,caption,caption_id\nred.png,A red one.,r\ngreen.png,A green one.,g\nblue.png,A blue one.,b\n"
        "blue.png,A red one.,r2\n",
    )  # fmt: skip


def test_judgements_are_a_set_beside_the_links(judged):
    write(judged, "judgements.csv", "image,caption_id,grade\nred.png,r,3\nred.png,b,0\nblue,g,1\ngreen.png,g,2.5\n")
    data = load_collection_folder(judged)
    assert list(data.judgements) == ["links", "judged"]
    judgements = data.judgements["judged"]
    ids = data.collection.image_ids, data.collection.caption_ids
    grades = {
        (str(ids[0][i]), str(ids[1][c])): g for i, c, g in zip(judgements.rows, judgements.columns, judgements.grades, strict=True)
    }
    assert grades == {("red.png", "r"): 3, ("red.png", "b"): 0, ("blue.png", "g"): 1, ("green.png", "g"): 2.5}
    assert (judgements.positive, judgements.positive_count, judgements.complete) == (1, 3, False)
    task = collection_benchmark(judged)
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
    data = load_collection_folder(judged)
    assert list(data.judgements) == ["links", "anna", "ben"]
    assert data.judgements["anna"].positive_count == 2, "both captions that read so are meant"
    assert data.judgements["ben"].positive_count == 2
    write(judged, "judgements.csv", "image,caption_id,caption,grade\nblue.png,r2,A red one.,1\n")
    assert load_collection_folder(judged).judgements["judged"].columns.tolist() == [3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image,caption_id,grade\nrot.png,r,1\n", ["judgements.csv line 2", "no image 'rot.png'"]),
        ("image,caption_id,grade\nreds.png,r,1\n", ["line 2", "Did you mean 'red.png'"]),
        ("image_id,caption_id,grade\nred.png,q,1\n", ["line 2", "no caption_id 'q'", "such as 'r'"]),
        ("image,caption,grade\nred.png,A read one.,1\n", ["line 2", "Did you mean 'A red one.'"]),
        ("image,caption_id,caption,grade\nred.png,r,A blue one.,1\n", ["line 2", "refer to different items"]),
        ("image,caption_id,grade\nred.png,r,1\nred.png,r,0\n", ["line 3", "'red.png'", "'r'", "has a grade in", "line 2", "Merge"]),
        ("image,caption,caption_id,grade\n\nred.png,,r,1\n", ["line 3", "no caption ''"]),
        ("image,caption_id,grade\nred.png,r,yes\n", ["line 2", "'yes'", "0 (irrelevant) or more"]),
        ("image,caption_id,grade\nred.png,r,-1\n", ["line 2", "'-1'"]),
        ("image,caption_id,grade\nred.png,r,nan\n", ["line 2", "'nan'"]),
        ("image,caption_id,grade\nred.png,r,0\n", ["'judged' has no positive", "its highest grade is 0", "+positive="]),
        ("image,caption_id,grad\nred.png,r,1\n", ["'grade' is missing", "Is it 'grad'?"]),
        ("image,caption_id,grade,source\nred.png,r,1,links\n", ["line 2", "'links'"]),
        ("image,caption_id,grade,source\nred.png,r,1,a/b\n", ["line 2", "'a/b'"]),
        ("image,caption_id,grade,source\nred.png,r,1,\n", ["line 2", "(got '')"]),
        ("image,caption_id,grade\n", ["no rows"]),
        ("", ["judgements.csv is empty"]),
    ],
)
def test_invalid_judgements_are_an_error(judged, text, words):
    with one_line_error(*words):
        load_collection_folder(write(judged, "judgements.csv", text))


def test_misspelt_judgement_file_is_an_error(judged):
    write(judged, "judgments.csv", "image,caption_id,grade\nred.png,r,1\n")
    with one_line_error("judgments.csv", "Rename it to judgements.csv"):
        load_collection_folder(judged)
    (judged / "judgments.csv").rename(judged / "Judgements.tsv")
    write(judged, "Judgements.tsv", "image\tcaption_id\tgrade\nred.png\tr\t1\n")
    assert load_collection_folder(judged).judgements["judged"].positive_count == 1
    with one_line_error("got '0'", kind=UsageError):
        load_collection_folder(judged, positive="0")
    with one_line_error("got 'many'", kind=UsageError):
        load_collection_folder(judged, positive="many")


# --- bad input


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["captions.csv is empty", "header"]),
        ("image,caption\n", ["no rows"]),
        ("\n \n", ["captions.csv is empty"]),
        (rows("red.png,A.", "rot.png,B.", "rosa.png,C."), ["captions.csv line 3", "'rot.png'", "2 images are missing"]),
        (rows("red.pgn,A."), ["line 2", "'red.pgn'", "the most similar name is 'red.png'"]),
        (rows("red.png,A.", "red.png,"), ["line 3", "'red.png'", "empty", "distractor"]),
        (rows("red.png,A.", ",B."), ["line 3", "'image' is empty"]),
        (rows("red.png,A cat, a dog."), ["line 2", "3 cells", "header has 2", "double quotes"]),
        (rows("red.png"), ["line 2", "1 cells"]),
        (rows('red.png,"A', "green.png,B."), ["line 2", "double quote"]),
        ("image,captoin\nred.png,A.\n", ["'image', 'captoin'", "'caption' is missing", "Is it 'captoin'?"]),
        ("file,caption\nred.png,A.\n", ["'image' or 'image_id' is missing"]),
        ("image;caption\nred.png;A.\n", ["separated by semicolons", "needs commas"]),
        ("red.png,A.\n", ["'image' or 'image_id' is missing", "first line must name the columns"]),
        ("image,caption,captionid\nred.png,A.,1\n", ["'captionid'", "Did you mean 'caption_id'?"]),
        ("image,caption,caption\nred.png,A.,B.\n", ["two columns 'caption'"]),
        ("image,caption,caption_id\nred.png,A.,1\nblue.png,B.,1\n", ["line 3", "'1'", "'B.'", "line 2", "'A.'", "its own id"]),
        ("image,caption,caption_id\nred.png,A.,1\nred.png,A.,1\n", ["line 3", "already linked to image 'red.png'", "line 2"]),
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
def test_invalid_captions_csv_is_an_error(pets, text, words):
    (pets / "secret.png").write_bytes(b"")
    with one_line_error(*words):
        load_collection_folder(write(pets, "captions.csv", text))


def test_ambiguous_image_names_are_an_error(pets):
    write(pets / "images", "a/red.png", png((1, 1, 1)))
    write(pets / "images", "green.jpg", b"")
    assert (
        load_collection_folder(write(pets, "captions.csv", rows("red.png,A."))).collection.image_ids.tolist().count("a/red.png")
        == 1
    )
    with one_line_error("line 2", "'green' can be green.jpg or green.png"):
        load_collection_folder(write(pets, "captions.csv", rows("green,A.")))
    write(pets / "images", "b/blue.png", b"")
    (pets / "images/blue.png").rename(pets / "images/a/blue.png")
    with one_line_error("'blue.png' can be a/blue.png or b/blue.png", "Write the path"):
        load_collection_folder(write(pets, "captions.csv", rows("blue.png,A.")))


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
        (coco(images=[{"file_name": "red.png"}]), ["images[0]", "'id' must be a whole number or text (got None)"]),
        (coco(images=[{"id": 1, "file_name": "red.png"}] * 2), ["images[1]", "image id 1", "twice"]),
        (coco(images=[{"id": n, "file_name": "red.png"} for n in (1, 2)]), ["images[1]", "the id 2", "the id 1"]),
        (coco(images=[1]), ["(got 1)"]),
        (coco(annotations=[{"id": 7, "image_id": 9, "caption": "A."}]), ["annotations[0]", "image_id 9", "'images'"]),
        (
            coco(annotations=[{"id": 7, "image_id": 1, "bbox": [0, 0, 1, 1]}]),
            ["annotations[0]", "'caption' must be text (got None)", "not boxes"],
        ),
        (coco(annotations=[{"id": 7, "image_id": 1, "caption": " "}]), ["annotations[0]", "empty"]),
        (coco(annotations=[{"id": 7, "image_id": 1, "caption": t} for t in "AB"]), ["annotations[1]", "'7'", "annotations[0]"]),
        (coco(annotations=[{"id": 7.5, "image_id": 1, "caption": "A."}]), ["annotations[0]", "7.5", "whole number"]),
    ],
)
def test_invalid_coco_json_is_an_error(pets, text, words):
    with one_line_error(*words):
        load_collection_folder(write(pets, "captions.json", text))


def test_coco_json_is_recognised_by_its_content(pets):
    write(pets, "notes.json", '{"by": "me"}')
    with one_line_error("has no captions", "images/, notes.json", "Expected: captions.csv"):
        load_collection_folder(pets)
    assert load_collection_folder(write(pets, "val.json", coco())).collection.image_ids.tolist() == ["1", "2"]
    with one_line_error("val.json", "val2.json", "captions.json"):
        load_collection_folder(write(pets, "val2.json", coco()))


def tar_with(path, **files):
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            add_member(tar, name.replace("_", "."), content)
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
        ({"a_png": PICTURES[0], "a_json": b'{"caption": 3}'}, ["a.json", "a caption must be text (got 3)"]),
        ({"a_png": PICTURES[0], "a_json": b'{"caption": "A.", "caption_ids": [1, 2]}'}, ["a.json", "2 caption_ids for 1"]),
        ({"a_png": PICTURES[0], "a_json": b'{"width": 1}'}, ["1 images but no caption", "a.tar"]),
    ],
)
def test_invalid_tars_are_an_error(tmp_path, files, words):
    with one_line_error(*words):
        load_collection_folder(tar_with(tmp_path / "a.tar", **files))


def test_keys_must_be_unique(tmp_path):
    for name in ("a.tar", "b.tar"):
        tar_with(tmp_path / name, k_png=PICTURES[0], k_txt=b"A.")
    with one_line_error("b.tar: sample 'k' is also in", "a.tar"):
        load_collection_folder(tmp_path)
    (tmp_path / "b.tar").unlink()
    with tarfile.open(tmp_path / "a.tar", "a") as tar:
        add_member(tar, "k.txt", b"B.")
    with one_line_error("a.tar: k.txt occurs twice"):
        load_collection_folder(tmp_path)


def test_damaged_tars_are_an_error(tmp_path):
    tar_with(tmp_path / "a.tar", k_png=PICTURES[0], k_txt=b"A.", l_png=PICTURES[1], l_txt=b"B.")
    whole = (tmp_path / "a.tar").read_bytes()
    third = whole.index(b"l.png")
    for content, words in (
        (b"", ["cannot be read as a tar"]),
        (b"junk" * 1000, ["cannot be read as a tar"]),
        (whole[: third + 520], ["cannot be read as a tar"]),  # ends inside of an image
        (whole[: third + 100], [f"damaged at byte {third:,}", "2 files"]),  # ends inside of a header
        (whole[:third] + b"\xff" * 512 + whole[third + 512 :], [f"damaged at byte {third:,}", "Create it again"]),
    ):
        with one_line_error("a.tar", *words):
            load_collection_folder(write(tmp_path, "a.tar", content))
    (tmp_path / "a.tar").unlink()
    with one_line_error("a.tar.gz", "Decompress a.tar.gz"):
        load_collection_folder(write(tmp_path, "a.tar.gz", whole))


def test_links_in_tars_are_an_error(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        link = tarfile.TarInfo("a.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with one_line_error("a.tar: a.jpg is a link", "--dereference"):
        load_collection_folder(tmp_path)


def test_unreadable_images_are_an_error(pets):
    write(pets / "images", "broken.jpg", b"\xff\xd8\xff\xe0 not much of a jpeg")
    write(pets / "images", "cut.png", png((1, 2, 3), (50, 50))[:100])
    collection = load_collection_folder(write(pets, "captions.csv", rows("red.png,A."))).collection
    for name in ("broken.jpg", "cut.png"):
        with one_line_error(f"images/{name} cannot be opened as an image", "Replace it"):
            collection.open_image(name)
    (pets / "images/red.png").unlink()
    with one_line_error("images/red.png cannot be read", "No such file"):
        collection.open_image("red.png")
    with one_line_error("no image 'pink.png'"):
        collection.open_image("pink.png")
    write(pets, "captions.csv", rows("blue.png,A."))
    with one_line_error("cannot be opened as an image"):
        evaluate(lambda images, texts: np.zeros((len(images), len(texts))), collection_benchmark(pets), samples=10)


def test_folders_without_a_collection_are_an_error(pets):
    with one_line_error("elsewhere does not exist", kind=UsageError):
        load_collection_folder(pets / "elsewhere")
    with one_line_error("is a file", kind=UsageError):
        load_collection_folder(pets / "images/red.png")
    with one_line_error("has no captions", "it holds images/", "Expected: captions.csv beside images/"):
        load_collection_folder(pets)
    with one_line_error("caption.csv", "Rename"):
        load_collection_folder(write(pets, "caption.csv", rows("red.png,A.")))
    write(pets, "captions.csv", rows("red.png,A."))
    with one_line_error("captions.csv and captions.json", "Keep one"):
        load_collection_folder(write(pets, "captions.json", coco()))
    (pets / "captions.json").unlink()
    with one_line_error("captions.csv and captions.tsv", "Keep one"):
        load_collection_folder(write(pets, "captions.tsv", ""))
    (pets / "captions.tsv").unlink()
    (pets / "images").rename(pets / "Image")
    with one_line_error("does not exist", "images", "Is it 'Image'?"):
        load_collection_folder(pets)
    shutil.rmtree(pets / "Image")
    with one_line_error("does not exist", "Put the images into it"):
        load_collection_folder(pets)
    (pets / "images").mkdir()
    with one_line_error("images holds no image", ".jpg"):
        load_collection_folder(pets)


def test_split_may_be_a_subfolder(pets):
    write(pets, "captions.csv", rows("red.png,A."))
    assert load_collection_folder(pets.parent, split="pets").collection.shape == (3, 1)
    task = collection_benchmark(pets.parent)
    assert evaluate("oracle", task, split="pets", samples=10)["t2i/hit@1"].value == 100
    with one_line_error("no split 'dogs'", "Omit --split", kind=UsageError):
        load_collection_folder(pets, split="dogs")
    with one_line_error("no split '..'", kind=UsageError):
        load_collection_folder(pets, split="..")


def test_options_follow_the_folder_name(pets):
    task, options = parse_collection_task(f"{pets}+split=a+positive=2")
    assert (task.name, options) == ("collection:pets", {"split": "a", "positive": "2"})
    odd_folder = pets.rename(pets.parent / "a+b=c")
    assert parse_collection_task(str(odd_folder))[1] == {}
    assert parse_collection_task(f"{odd_folder}+positive=2")[0].name == "collection:a+b=c"
    write(odd_folder, "captions.csv", rows("red.png,A."))
    task, options = parse_collection_task(f"{odd_folder}+postive=2")
    with one_line_error("no option 'postive'", "positive, split", kind=UsageError):
        task.load(**options)


def test_missing_permission_is_an_error(pets, monkeypatch):
    def forbidden(path):
        raise PermissionError(13, "Permission denied", str(path))

    write(pets, "captions.csv", rows("red.png,A."))
    monkeypatch.setattr(Path, "read_bytes", forbidden)
    with one_line_error("captions.csv cannot be read", "Permission denied"):
        load_collection_folder(pets)


def test_benchmark_of_a_collection(pets, monkeypatch):
    task = collection_benchmark(pets)
    assert (task.name, task.directions) == ("collection:pets", ("i2t", "t2i", "t2t", "i2i"))
    assert dict(task.options) == {"positive": "", "split": ""}
    assert {"hit@1", "hit@5", "hit@10", "median-rank", "map@r", "r-precision", "recall@10"} <= set(task.metrics)
    assert [metric(name).shape for name in task.metrics] == ["retrieval"] * len(task.metrics)
    monkeypatch.chdir(pets)
    assert collection_benchmark(".").name == collection_benchmark("../pets/").name == "collection:pets"
    page = (ROOT / "docs/collections.md").read_text()
    assert [
        mark for group in LAYOUTS for layout in group for mark in layout.file_patterns if mark not in page and mark != "state.json"
    ] == []


# -- judgements of two captions, and of two images

THREE = "image,caption\nred.png,A cat.\nred.png,A sleeping cat.\nblue.png,A dog.\n"


def test_judgements_within_one_side_have_their_own_direction(pets):
    write(pets, "captions.csv", THREE)
    (pets / "judgements_t2t.csv").write_text("caption_id,other_caption_id,grade\nred.png#0,blue.png#0,2\nred.png#0,red.png#1,5\n")
    (pets / "judgements_i2i.csv").write_text("image,other_image,grade\nred.png,blue.png,3\n")
    loaded = load_collection_folder(pets, positive=3)
    judgements, ids = loaded.judgements, loaded.collection.image_ids.tolist()
    red, blue = ids.index("red.png"), ids.index("blue.png")
    assert judgements["captions"].kind == "caption-caption"
    assert judgements["images"].directions == ("i2i",)
    assert sorted(zip(judgements["images"].rows.tolist(), judgements["images"].columns.tolist(), strict=True)) == sorted(
        [(red, blue), (blue, red)]
    )
    assert judgements["captions"].positive_count == 2  # either way round

    class Embeds:
        def embed_images(self, images):
            return np.stack([np.asarray(image.resize((1, 1)), dtype=np.float32).ravel() for image in images])

        def embed_texts(self, texts):
            return np.asarray([[len(text), text.count("e"), 1] for text in texts], dtype=np.float32)

    result = evaluate(Embeds(), collection_benchmark(pets), positive="3")
    assert {row.part for row in result.rows} == {"i2t", "t2i", "t2t", "i2i"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("judgements_t2t", "caption_id,other_caption_id,grade\nred.png#0,red.png#0,2\n", "paired with itself"),
        ("judgements_i2i", "image,other_image,grade\nred.png,blue.png,3\nblue.png,red.png,3\n", "has a grade in .* already"),
        ("judgements_i2i", "image,caption_id,grade\nred.png,red.png#0,3\n", "other_image"),
        ("judgements_i2i", "image,other_image,grade,source\nred.png,blue.png,3,links\n", "not be 'links'"),
    ],
)
def test_invalid_judgements_within_one_side_are_an_error(pets, name, text, message):
    write(pets, "captions.csv", THREE)
    (pets / f"{name}.csv").write_text(text)
    with pytest.raises(CrossmatchError, match=message):
        load_collection_folder(pets)


# -- ratings of pairs

RATED = (
    "image,other_image,grade,source,positive_from,sampling_method,deviation,by\n"
    "red.png,blue.png,2.6,sis,{0},i2i_csim,0.4,people\n"
    "green.png,red.png,1,sis,{0},,,people\n"
)


def rated_folder(pets, positive_from: str = "2.5"):
    write(pets, "captions.csv", THREE)
    return write(pets, "judgements_i2i.csv", RATED.format(positive_from))


def test_positive_from_is_the_threshold_of_its_source(pets):
    rated_folder(pets)
    write(pets, "judgements.csv", "image,caption_id,grade\nred.png,blue.png#0,1\n")
    judgements = load_collection_folder(pets).judgements
    assert {name: (j.positive, j.positive_count) for name, j in judgements.items()} == {
        "links": (1.0, 3), "judged": (1.0, 1), "sis": (2.5, 2),
    }  # fmt: skip
    assert load_collection_folder(pets, positive="1").judgements["sis"].positive_count == 4, "the user's threshold comes first"


def test_declared_source_without_a_positive_is_left_out_with_a_note(pets):
    rated_folder(pets, "3")
    data = load_collection_folder(pets)
    assert list(data.judgements) == ["links"]
    assert data.notes == ("sis: no retrieval in i2i, because no pair has a grade of 3 or more (highest: 2.6)",)
    assert evaluate("random", collection_benchmark(pets)).notes[0].startswith("sis: no retrieval in i2i")
    with one_line_error("'sis' has no positive", "+positive="):
        load_collection_folder(pets, positive="3")


def test_ratings_are_read_as_they_are_without_links(pets):
    rated_folder(pets)
    lines = "red.png,red.png#0,5,links\nred.png,blue.png#0,2,people\nblue.png,red.png#0,1,\n"
    write(pets, "judgements.csv", f"image,caption_id,grade,by\n{lines}")
    rated = load_rated_folder(pets)
    sis, judged = rated.ratings["sis"], rated.ratings["judged"]
    images, captions = rated.collection.image_ids, rated.collection.caption_ids
    assert [(images[a], images[b]) for a, b in zip(sis.first, sis.second, strict=True)] == [
        ("red.png", "blue.png"), ("green.png", "red.png"),
    ]  # fmt: skip
    assert (sis.grades.tolist(), sis.methods.tolist(), sis.positive) == ([2.6, 1.0], ["i2i_csim", ""], 2.5)
    assert sis.deviations[0] == 0.4
    assert np.isnan(sis.deviations[1])
    assert [(images[i], captions[c]) for i, c in zip(judged.first, judged.second, strict=True)] == [
        ("red.png", "blue.png#0"), ("blue.png", "red.png#0"),
    ]  # fmt: skip


@pytest.mark.parametrize(("query", "direction"), [("", "i2i"), ("first", "i2i"), ("second", "i2i")])
def test_ratings_of_a_folder_are_a_similarity_task(pets, query, direction):
    rated_folder(pets)
    benchmark, options = parse_collection_task(f"{pets}+ratings=sis" + f"+query={query}" * bool(query))
    data = benchmark.load(**options)
    ids = data.collection.image_ids
    pairs = [(ids[q], ids[i]) for q, i in zip(data.query, data.item, strict=True)]
    expected = [("red.png", "blue.png"), ("green.png", "red.png")]
    assert data.direction == direction
    assert pairs == ([pair[::-1] for pair in expected] if query == "second" else expected)
    assert data.judgements.grades.tolist() == [2.6, 1.0], "every rating counts, whatever its grade"


def test_spearman_of_a_folder_is_that_of_the_rows(tmp_path):
    """The correlation of a folder equals the one computed from its rows."""
    from crossmatch.metrics.correlation.correlation_with_ratings import bootstrap_spearman

    for n in range(8):
        (tmp_path / "images").mkdir(exist_ok=True)
        Image.new("RGB", (4, 4), (30 * n, 0, 0)).save(tmp_path / "images" / f"{n}.png")
    write(tmp_path, "captions.csv", rows(*(f"{n}.png,Caption {n}." for n in range(8))))
    pairs = [(a, b, round((a * 7 + b * 3) % 5 + 0.1 * a, 2)) for a in range(8) for b in range(8) if a != b and (a + b) % 3]
    lines = "".join(f"{a}.png#0,{b}.png#0,{grade}\n" for a, b, grade in pairs)
    write(tmp_path, "judgements_t2t.csv", f"caption_id,other_caption_id,grade\n{lines}")

    class Lengths:
        def embed_texts(self, texts):
            return np.asarray([[1.0, float(text[8]), float(text[8]) ** 2] for text in texts])

    result = evaluate(Lengths(), f"collection:{tmp_path}+ratings=captions", samples=50)
    vectors = np.asarray(Lengths().embed_texts([f"Caption {n}." for n in range(8)]))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    query, item, grades = (np.asarray(column) for column in zip(*sorted(pairs), strict=True))
    scores = np.sum(unit[query] * unit[item], axis=1)
    expected = bootstrap_spearman(query, grades.astype(float), scores, samples=50).mean()
    assert result["bootstrap-spearman"].value == pytest.approx(100 * expected, abs=1e-4)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("positive_from", "0", ["line 2", "positive_from must be a grade above zero", "'0'"]),
        ("positive_from", "high", ["line 2", "'high'"]),
        ("deviation", "-1", ["line 2", "deviation must be a number", "'-1'"]),
        ("positive_form", "3", ["Did you mean 'positive_from'"]),
    ],
)
def test_invalid_columns_of_ratings_are_an_error(pets, column, value, words):
    write(pets, "captions.csv", THREE)
    write(pets, "judgements_i2i.csv", f"image,other_image,grade,{column}\nred.png,blue.png,3,{value}\n")
    with one_line_error(*words):
        load_rated_folder(pets)


def test_two_thresholds_and_unknown_ratings_are_an_error(pets):
    rated_folder(pets)
    with one_line_error("no ratings 'sts'", "sis", kind=UsageError):
        load_folder_similarity(pets, "sts")
    with one_line_error("query must be one of first, second", kind=UsageError):
        load_folder_similarity(pets, "sis", query="image")
    write(pets, "judgements_i2i.csv", RATED.format("2.5").replace("1,sis,2.5", "1,sis,3"))
    with one_line_error("line 3", "positive_from is 3, but 2.5 in an earlier row"):
        load_collection_folder(pets)
    (pets / "judgements_i2i.csv").unlink()
    with one_line_error("has no ratings", "judgements.csv", kind=UsageError):
        load_folder_similarity(pets, "sis")
