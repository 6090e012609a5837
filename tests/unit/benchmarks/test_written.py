"""A collection that is written as a folder comes back as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from crossmatch.benchmarks.folder import load_folder
from crossmatch.benchmarks.formats.written import png_of, write_collection
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError

COLOURS = {"a": (255, 0, 0), "b": (0, 255, 0)}
TEXTS = {"a": ["A cat.", "It sleeps."], "b": ["Ein Hund, größer."]}


def drawn(name: str) -> Image.Image:
    return Image.new("RGB", (4, 4), COLOURS[name])


def written(folder: Path, held: Collection, **how) -> Collection:
    folder.mkdir(exist_ok=True)
    (folder / "captions.json").write_text(write_collection(folder, held, **how), encoding="utf-8")
    return load_folder(folder).collection


def photos(folder: Path) -> Collection:
    """A folder of jpegs, which say more of themselves than their pixels."""
    (folder / "images").mkdir(parents=True)
    about = Image.Exif()
    about[0x010E] = "secret"
    for name in TEXTS:
        drawn(name).save(folder / "images" / f"{name}.jpg", exif=about)
    lines = [f'{name}.jpg,"{text}"' for name, texts in TEXTS.items() for text in texts]
    (folder / "captions.csv").write_text("\n".join(["image,caption", *lines]), encoding="utf-8")
    return load_folder(folder).collection


def same(one: Collection, other: Collection) -> bool:
    alike = one.image_ids.tolist() == other.image_ids.tolist() and one.caption_ids.tolist() == other.caption_ids.tolist()
    return alike and one.captions == other.captions and one.links.tolist() == other.links.tolist()


def test_what_is_written_is_read_again(tmp_path: Path):
    held = Collection.of(TEXTS, drawn)
    found = written(tmp_path / "out", held)
    assert same(found, held)
    assert found.open_image is not None
    assert [png_of(found.open_image(name)) for name in TEXTS] == [png_of(drawn(name)) for name in TEXTS]


def test_files_stay_what_they_are_unless_they_are_encoded_anew(tmp_path: Path):
    held = photos(tmp_path / "in")
    assert same(written(tmp_path / "kept", held), held)
    assert (tmp_path / "kept" / "images" / "000000.jpg").read_bytes() == (tmp_path / "in" / "images" / "a.jpg").read_bytes()
    assert same(written(tmp_path / "anew", held, anew=True), held)
    names = sorted(path.name for path in (tmp_path / "anew" / "images").iterdir())
    assert names == ["000000.png", "000001.png"]
    assert all(b"secret" not in path.read_bytes() for path in (tmp_path / "anew" / "images").iterdir())


def test_pictures_that_the_collection_has_not_are_added_without_a_caption(tmp_path: Path):
    drawn("b").save(tmp_path / "more.png")
    found = written(tmp_path / "out", Collection.of(TEXTS, drawn), more={"b@drawn": tmp_path / "more.png"})
    assert found.image_ids.tolist() == ["a", "b", "b@drawn"]
    assert found.links.tolist() == [[0, 0], [0, 1], [1, 2]]


def test_without_pictures_there_is_the_text_alone(tmp_path: Path):
    told = json.loads(write_collection(tmp_path, Collection.of(TEXTS)))
    assert [one["file_name"] for one in told["images"]] == ["000000.jpg", "000001.jpg"]
    assert not list((tmp_path / "images").iterdir())


def test_a_file_that_is_gone_is_named(tmp_path: Path):
    held = photos(tmp_path / "in")
    (tmp_path / "in" / "images" / "b.jpg").unlink()
    (tmp_path / "out").mkdir()
    with pytest.raises(CrossmatchError, match=r"b\.jpg cannot be read .* Put it back"):
        write_collection(tmp_path / "out", held)
