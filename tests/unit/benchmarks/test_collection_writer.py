"""Writing a collection as a folder, and reading it back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from crossmatch.benchmarks.formats.collection_writer import encode_png, write_collection
from crossmatch.benchmarks.user_collection import load_collection_folder
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError

COLOURS = {"a": (255, 0, 0), "b": (0, 255, 0)}
TEXTS = {"a": ["A cat.", "It sleeps."], "b": ["Ein Hund, größer."]}


def draw(name: str) -> Image.Image:
    return Image.new("RGB", (4, 4), COLOURS[name])


def write_and_load(folder: Path, collection: Collection, **options) -> Collection:
    folder.mkdir(exist_ok=True)
    (folder / "captions.json").write_text(write_collection(folder, collection, **options), encoding="utf-8")
    return load_collection_folder(folder).collection


def photos(folder: Path) -> Collection:
    """A folder of JPEG files with EXIF metadata."""
    (folder / "images").mkdir(parents=True)
    exif = Image.Exif()
    exif[0x010E] = "secret"
    for name in TEXTS:
        draw(name).save(folder / "images" / f"{name}.jpg", exif=exif)
    lines = [f'{name}.jpg,"{text}"' for name, texts in TEXTS.items() for text in texts]
    (folder / "captions.csv").write_text("\n".join(["image,caption", *lines]), encoding="utf-8")
    return load_collection_folder(folder).collection


def is_same(first: Collection, second: Collection) -> bool:
    same_ids = first.image_ids.tolist() == second.image_ids.tolist() and first.caption_ids.tolist() == second.caption_ids.tolist()
    return same_ids and first.captions == second.captions and first.links.tolist() == second.links.tolist()


def test_written_collection_is_read_back(tmp_path: Path):
    collection = Collection.from_captions(TEXTS, draw)
    restored = write_and_load(tmp_path / "out", collection)
    assert is_same(restored, collection)
    assert restored.open_image is not None
    assert [encode_png(restored.open_image(name)) for name in TEXTS] == [encode_png(draw(name)) for name in TEXTS]


def test_files_are_copied_unless_reencoded(tmp_path: Path):
    collection = photos(tmp_path / "in")
    assert is_same(write_and_load(tmp_path / "kept", collection), collection)
    assert (tmp_path / "kept" / "images" / "000000.jpg").read_bytes() == (tmp_path / "in" / "images" / "a.jpg").read_bytes()
    assert is_same(write_and_load(tmp_path / "anew", collection, reencode=True), collection)
    names = sorted(path.name for path in (tmp_path / "anew" / "images").iterdir())
    assert names == ["000000.png", "000001.png"]
    assert all(b"secret" not in path.read_bytes() for path in (tmp_path / "anew" / "images").iterdir())


def test_extra_images_have_no_captions(tmp_path: Path):
    draw("b").save(tmp_path / "more.png")
    restored = write_and_load(
        tmp_path / "out", Collection.from_captions(TEXTS, draw), extra_images={"b@drawn": tmp_path / "more.png"}
    )
    assert restored.image_ids.tolist() == ["a", "b", "b@drawn"]
    assert restored.links.tolist() == [[0, 0], [0, 1], [1, 2]]


def test_collection_without_images_writes_only_json(tmp_path: Path):
    content = json.loads(write_collection(tmp_path, Collection.from_captions(TEXTS)))
    assert [image["file_name"] for image in content["images"]] == ["000000.jpg", "000001.jpg"]
    assert not list((tmp_path / "images").iterdir())


def test_missing_image_file_is_an_error(tmp_path: Path):
    collection = photos(tmp_path / "in")
    (tmp_path / "in" / "images" / "b.jpg").unlink()
    (tmp_path / "out").mkdir()
    with pytest.raises(CrossmatchError, match=r"b\.jpg cannot be read .* Restore the file"):
        write_collection(tmp_path / "out", collection)
