"""Images of a campaign are re-encoded: upright, small enough, without metadata, and stored once."""

import hashlib
import io
import os

import numpy as np
import pytest
from PIL import Image

from crossmatch.benchmarks.formats.image_caption_records import FileSlice, ImageOpener
from crossmatch.benchmarks.formats.image_decoding import decode_image
from crossmatch.data.errors import CrossmatchError
from crossmatch.study.database.verification import verify
from crossmatch.study.design.add_study import create_study
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.image_storage import MAX_SIDE, encode_jpeg, store_picture, store_pictures
from crossmatch.study.design.new_items import NewItem


def a_picture(width=40, height=20, mode="RGB"):
    rng = np.random.default_rng(0)
    return Image.fromarray(rng.integers(0, 255, (height, width, 3), dtype=np.uint8)).convert(mode)


def files_of(folder):
    """Opens the files of a folder as a study does."""
    return ImageOpener({path.name: FileSlice(path) for path in folder.iterdir()}, decode_image)


def stored(tmp_path, name="a.jpg"):
    """The picture of this name after it went into a campaign."""
    (tmp_path / "out").mkdir(exist_ok=True)
    file = store_picture(tmp_path / "out", name, files_of(tmp_path / "in"))
    image = Image.open(io.BytesIO((tmp_path / "out" / file).read_bytes()))
    image.filename = file
    return image


@pytest.fixture
def inbox(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def test_a_picture_is_named_by_the_hash_of_its_bytes(tmp_path):
    name = store_picture(tmp_path, "a", lambda _: a_picture())
    assert name == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() + ".jpg"


def test_equal_pictures_are_stored_once(tmp_path):
    files = store_pictures(tmp_path, ["a", "b", "c", "a"], lambda name: a_picture(30 if name == "c" else 40))
    assert files["a"] == files["b"] != files["c"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({files["a"], files["c"]})


@pytest.mark.parametrize(
    ("size", "stored_size"), [((3000, 1500), (MAX_SIDE, MAX_SIDE // 2)), ((40, 20), (40, 20)), ((5000, 1), (MAX_SIDE, 1))]
)
def test_large_images_are_scaled_down_and_small_ones_keep_their_size(size, stored_size):
    assert Image.open(io.BytesIO(encode_jpeg(a_picture(*size), "a"))).size == stored_size


def test_metadata_of_the_original_is_removed(inbox, tmp_path):
    exif = Image.Exif()
    exif[0x010E] = "secret place"
    a_picture().save(inbox / "a.jpg", exif=exif, comment=b"secret comment", icc_profile=b"secret profile", dpi=(300, 300))
    image = stored(tmp_path)
    assert b"secret" not in (tmp_path / "out" / image.filename).read_bytes()
    assert not image.getexif()
    assert set(image.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}


def test_chroma_is_not_subsampled(inbox, tmp_path):
    a_picture().save(inbox / "a.jpg")
    assert {layer[1:3] for layer in stored(tmp_path).layer} == {(1, 1)}


def test_a_picture_is_turned_upright(inbox, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera lay on its side
    a_picture(40, 20).save(inbox / "a.jpg", exif=exif)
    assert stored(tmp_path).size == (20, 40)


def test_a_picture_that_a_function_opens_is_turned_upright_too():
    picture = a_picture(40, 20)
    picture.getexif()[0x0112] = 6
    assert Image.open(io.BytesIO(encode_jpeg(picture, "a"))).size == (20, 40)


@pytest.mark.parametrize("mode", ["L", "P", "1", "CMYK", "RGBA", "LA", "I;16"])
def test_all_image_modes_become_rgb(mode, inbox, tmp_path):
    grey = a_picture(mode="L")
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    (deep if mode == "I;16" else a_picture(mode=mode)).save(inbox / "a.tif")
    image = stored(tmp_path, "a.tif")
    assert image.mode == "RGB"
    if mode == "I;16":  # its upper bits, not white
        assert abs(np.asarray(image).mean() - np.asarray(grey).mean()) < 2


def test_first_frame_of_an_animation_is_stored(inbox, tmp_path):
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    frames[0].save(inbox / "a.gif", save_all=True, append_images=frames[1:])
    assert stored(tmp_path, "a.gif").getpixel((10, 10))[0] > 200


@pytest.mark.parametrize("mode", ["I", "F"])
def test_unsupported_image_mode_is_refused_by_name(mode, tmp_path):
    with pytest.raises(CrossmatchError, match=rf"^image 'odd' cannot be encoded .*mode is {mode}.*\. Replace it\.$"):
        store_pictures(tmp_path, ["odd"], lambda _: Image.new(mode, (4, 4)))


def test_error_names_the_first_unusable_image_and_counts_all(inbox, tmp_path):
    a_picture().save(inbox / "good.jpg")
    (inbox / "bad.jpg").write_bytes(b"no picture")
    (inbox / "cut.jpg").write_bytes((inbox / "good.jpg").read_bytes()[:300])
    (tmp_path / "out").mkdir()
    with pytest.raises(CrossmatchError, match=r"bad\.jpg cannot be opened as an image .* \(2 of 3 images are unusable\)$") as error:
        store_pictures(tmp_path / "out", ["bad.jpg", "good.jpg", "cut.jpg"], files_of(inbox))
    assert "--skip-bad" not in str(error.value)  # studies do not have this option


def test_a_bomb_is_refused_before_it_is_decoded(inbox, tmp_path):
    Image.new("1", (30_000, 30_000)).save(inbox / "huge.png")
    with pytest.raises(CrossmatchError, match=r"huge\.png.*Scale it down"):
        store_pictures(tmp_path, ["huge.png"], files_of(inbox))


def test_no_unfinished_file_is_left(inbox, tmp_path):
    (tmp_path / "out").mkdir()
    a_picture().save(inbox / "a.jpg")
    store_pictures(tmp_path / "out", ["a.jpg"], files_of(inbox))
    assert all(path.suffix == ".jpg" and not path.name.startswith(".") for path in (tmp_path / "out").iterdir())


def test_no_images_give_no_files(tmp_path):
    assert store_pictures(tmp_path, [], lambda _: a_picture()) == {}


# -- on the disk, and as it was


def test_stored_images_are_synced_to_disk(tmp_path, monkeypatch):
    waited = []
    monkeypatch.setattr(os, "fsync", waited.append)
    store_picture(tmp_path, "red", lambda name: Image.new("RGB", (8, 8), name))
    assert len(waited) == 2  # the file, and its name in the folder


def test_truncated_image_is_written_again(tmp_path):
    name = store_picture(tmp_path, "red", lambda name: Image.new("RGB", (8, 8), name))
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[:100])
    store_picture(tmp_path, "red", lambda name: Image.new("RGB", (8, 8), name))
    assert (tmp_path / name).read_bytes() == whole


def test_verify_detects_missing_and_changed_images(small):
    file = store_picture(small.images_folder, "red", lambda name: Image.new("RGB", (8, 8), name))
    pair = NewItem("a", (file,), ("A red square.",))
    create_study(small, load_design("sits"), [pair])
    assert verify(small)[0].images == 1
    content = (small.images_folder / file).read_bytes()
    (small.images_folder / file).write_bytes(content + b"\0")
    with pytest.raises(CrossmatchError, match="was changed"):
        verify(small)
    (small.images_folder / file).unlink()
    with pytest.raises(CrossmatchError, match="is missing from"):
        verify(small)
