"""Undecodable images and empty or long captions: an error, or skipped with a note."""

from __future__ import annotations

import io
import json
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from crossmatch.benchmarks import load_benchmark_data
from crossmatch.benchmarks.formats.image_decoding import MAX_PIXELS, decode_image
from crossmatch.benchmarks.user_collection import collection_benchmark, load_collection_folder
from crossmatch.cli import main
from crossmatch.data.benchmark import Benchmark
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, SkippedItem
from crossmatch.data.io.image_loading import UnreadableImageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.loaded_data import Retrieval
from crossmatch.data.result import load_result, save_result
from crossmatch.data.trials import Trials
from crossmatch.evaluation.evaluate import evaluate, evaluate_all
from crossmatch.report.comparison import compare

RED, BLUE = (200, 0, 0), (0, 0, 200)


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def picture(colour=RED, size=(40, 30), mode="RGB"):
    return Image.new(mode, size, colour)


def bomb(side):
    """A small PNG file whose header declares this many pixels on each side."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


def deep():
    return Image.fromarray(np.full((30, 40), 0xC8FF, dtype=np.uint16))


def indexed(transparent):
    palette_picture = picture().quantize(4)
    return encoded(palette_picture, transparency=0) if transparent else encoded(palette_picture)


def turned():
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(picture(), "JPEG", exif=exif)


FINE = {
    "a png called jpg": (encoded(picture()), RED),
    "jpeg": (encoded(picture(), "JPEG", quality=100, subsampling=0), RED),
    "cmyk": (encoded(picture().convert("CMYK"), "JPEG", quality=100), RED),
    "grey": (encoded(picture(77, mode="L")), (77, 77, 77)),
    "16 bits": (encoded(deep()), (200, 200, 200)),
    "palette": (indexed(False), RED),
    "palette with transparency": (indexed(True), RED),
    "rgba": (encoded(picture((200, 0, 0, 9), mode="RGBA")), RED),
    "one bit": (encoded(picture(1, mode="1")), (255, 255, 255)),
    "animated gif": (encoded(picture(), "GIF", save_all=True, append_images=[picture(BLUE)]), RED),
    "animated webp": (encoded(picture(), "WEBP", save_all=True, append_images=[picture(BLUE)], lossless=True), RED),
    "animated png": (encoded(picture(), "PNG", save_all=True, append_images=[picture(BLUE)]), RED),
    "turned": (turned(), RED),
}

BAD = {
    "truncated": (encoded(Image.effect_noise((90, 90), 50), "JPEG")[:-900], "truncated"),
    "a text called jpg": (b"I am no picture.", "UnidentifiedImageError"),
    "zero bytes": (b"", "the file is empty"),
    "100 megapixels": (bomb(10_000), "10,000 x 10,000 pixels, and at most 80,000,000 are decoded"),
    "400 megapixels": (bomb(20_000), "more than the 80,000,000 pixels that are decoded"),
    "a header alone": (encoded(picture())[:40], "cannot be opened as an image"),
}

pytestmark = pytest.mark.filterwarnings("ignore:Image size")  # as the command line does: such pictures are refused in our words


@pytest.mark.parametrize("kind", FINE)
def test_images_of_any_kind_become_rgb(kind):
    raw, colour = FINE[kind]
    decoded = decode_image(raw, "a.jpg")
    assert decoded.mode == "RGB"
    assert decoded.size == ((30, 40) if kind == "turned" else (40, 30))
    assert np.abs(np.asarray(decoded, int)[0, 0] - colour).max() <= 3  # JPEG rounds


@pytest.mark.parametrize("kind", BAD)
def test_undecodable_images_are_an_error_with_a_remedy(kind):
    raw, reason = BAD[kind]
    with pytest.raises(CrossmatchError) as caught:
        decode_image(raw, "images/a.jpg")
    message = str(caught.value)
    assert message.startswith("images/a.jpg cannot be opened as an image (")
    assert reason in message
    assert ("Scale it down." if "megapixels" in kind else "Replace it") in message
    assert "\n" not in message


def test_pixel_limit_is_between_50_and_100_megapixels():
    assert 50_000_000 < MAX_PIXELS < 100_000_000


def links_benchmark(collection, name="own", metrics=("hit@1",)):
    return Benchmark(name, "", lambda: Retrieval(collection, {"links": Judgements.from_links(collection)}), metrics)


# A folder with good and bad images


class Colour:
    """A minimal model: the mean colour of an image, the first letters of a text."""

    signature = "colour|v1"

    def embed_images(self, images):
        return np.array([np.asarray(image, float).mean(axis=(0, 1)) + np.arange(1, 4) for image in images])

    def embed_texts(self, texts):
        return np.array([[ord(letter) for letter in f"{text}   "[:3]] for text in texts], float)


@pytest.fixture
def pets(tmp_path):
    """Forty good images and the bad ones, each with two captions; a good and a bad image share one caption."""
    folder = tmp_path / "pets"
    (folder / "images").mkdir(parents=True)
    rows = ["image,caption,caption_id"]
    files = {f"good {n:02d}": encoded(picture((n * 5, 90, 200 - n))) for n in range(40)} | {k: raw for k, (raw, _) in BAD.items()}
    for name, raw in files.items():
        (folder / "images" / f"{name}.jpg").write_bytes(raw)
        rows += [f"{name}.jpg,{name} is one,{name}-1", f"{name}.jpg,{name} is two,{name}-2"]
    rows += ["good 00.jpg,A pet.,shared", "truncated.jpg,A pet.,shared"]
    (folder / "captions.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_first_bad_image_stops_the_evaluation(pets):
    with pytest.raises(UnreadableImageError, match=r"100 megapixels\.jpg cannot be opened as an image.*--skip-bad") as caught:
        evaluate(Colour(), collection_benchmark(pets), samples=10)
    assert caught.value.image == "100 megapixels.jpg"
    with pytest.raises(UnreadableImageError, match=r"100 megapixels\.jpg.*--skip-bad"):
        evaluate(lambda images, texts: np.zeros((len(images), len(texts))), collection_benchmark(pets), samples=10)


@pytest.mark.parametrize(
    "model", [Colour(), lambda images, texts: np.ones((len(images), len(texts))), "random"], ids=["embeds", "scores", "sees none"]
)
def test_bad_images_are_skipped_with_their_captions(pets, model, tmp_path):
    result = evaluate(model, collection_benchmark(pets), samples=10, skip_bad=True)
    assert [item.id for item in result.skipped] == sorted(f"{name}.jpg" for name in BAD)
    assert all(item.kind == "image" and f"{item.id} cannot be opened as an image" in item.reason for item in result.skipped)
    assert result.options["skipped"] == str(len(BAD))
    assert result.notes[0] == (
        "skipped: 6 of 46 images cannot be opened, and were left out with 12 captions (100 megapixels.jpg, 400 megapixels.jpg, "
        "a header alone.jpg, …); not comparable with complete results"
    )
    assert len(result.parts["i2t"].ids) == 40
    assert set(result.parts["t2i"].ids) == {f"good {n:02d}-{k}" for n in range(40) for k in (1, 2)} | {"shared"}
    path = save_result(result, tmp_path / "results")
    assert "skipped=6" in path.name
    assert load_result(path).skipped == result.skipped
    assert [item["id"] for item in json.loads(path.read_text())["skipped"]] == [item.id for item in result.skipped]


def test_skipping_equals_removing_the_bad_images(pets):
    skipped = evaluate(Colour(), collection_benchmark(pets), samples=10, skip_bad=True)
    lines = [line for line in (pets / "captions.csv").read_text().splitlines() if line.startswith(("image", "good"))]
    (pets / "captions.csv").write_text("\n".join(lines) + "\n")
    for name in BAD:
        (pets / "images" / f"{name}.jpg").unlink()
    plain = evaluate(Colour(), collection_benchmark(pets), samples=10)
    assert skipped.as_json() == plain.as_json()
    assert [row.signature for row in skipped.rows] == [row.signature for row in plain.rows], "the same data have the same hash"
    with pytest.raises(CrossmatchError, match="skipped is 6 and the default"):
        compare(skipped, plain)


def test_skip_bad_without_bad_images_changes_nothing(pets):
    for name in BAD:
        (pets / "images" / f"{name}.jpg").write_bytes(encoded(picture()))
    result = evaluate(Colour(), collection_benchmark(pets), samples=10, skip_bad=True)
    assert (result.skipped, "skipped" in result.options, [n for n in result.notes if "skipped" in n]) == ((), False, [])


def test_only_bad_images_is_an_error(pets):
    for path in (pets / "images").iterdir():
        path.write_bytes(b"")
    with pytest.raises(CrossmatchError, match=r"none of the 46 images can be opened; the first: .*the file is empty"):
        evaluate(Colour(), collection_benchmark(pets), samples=10, skip_bad=True)


def test_only_images_without_captions_is_an_error():
    def open_image(name):
        if name != "c":
            raise OSError("torn")
        return picture()

    collection = Collection(["a", "b", "c"], ["x"], ("A cat.",), [[0, 0]], open_image)
    benchmark = links_benchmark(collection)
    with pytest.raises(CrossmatchError, match=r"Nothing is left to score: 2 of 3 images"):
        evaluate(Colour(), benchmark, samples=10, skip_bad=True)


def test_trial_with_a_bad_image_is_skipped():
    def open_image(name):
        if name == "torn":
            raise OSError("it is torn")
        return picture((int(name), 0, 0))

    trials = Trials(
        [*"abcd"], [["10", "20"], ["torn", "20"], ["30", "torn"], ["30", "40"]], [["cat"], ["dog"], ["cow"], ["hen"]], ["k"] * 4,
        open_image=open_image,
    )  # fmt: skip
    benchmark = Benchmark("own", "", lambda: trials, ("accuracy",))
    with pytest.raises(UnreadableImageError, match="'torn' cannot be opened"):
        evaluate(Colour(), benchmark, samples=10)
    for model in (Colour(), lambda images, texts: np.ones((len(images), len(texts)))):
        result = evaluate(model, benchmark, samples=10, skip_bad=True)
        assert result.parts[""].ids.tolist() == ["a", "d"]
        assert result.skipped == (
            SkippedItem("image", "torn", "image 'torn' cannot be opened (OSError: it is torn). Replace the file."),
        )
        assert "1 of 5 images cannot be opened, and were left out with 2 trials (torn)" in result.notes[0]
        assert "partial" not in result.options


def test_images_of_several_tasks_are_opened_once():
    opened = []

    def open_image(name):
        opened.append(name)
        return picture((int(name), 0, 0))

    collection = Collection.from_captions({str(n): [f"caption {n}"] for n in range(5)}, open_image)
    tasks = [links_benchmark(collection, "one"), links_benchmark(collection, "two", ("map@r",))]
    evaluate_all("random", tasks, samples=10, skip_bad=True)
    assert sorted(opened) == [str(n) for n in range(5)]


# Empty captions


def test_empty_caption_is_an_error_or_skipped(pets):
    with (pets / "captions.csv").open("a") as file:
        file.write("good 03.jpg, ,hollow\n")
    (pets / "judgements.csv").write_text("image,caption_id,grade\ngood 03.jpg,hollow,1\ngood 03.jpg,good 03-1,1\n")
    with pytest.raises(CrossmatchError, match=r"captions.csv line \d+: the caption of image 'good 03.jpg' is empty.*--skip-bad"):
        load_collection_folder(pets)
    result = evaluate(Colour(), collection_benchmark(pets), samples=10, skip_bad=True)
    assert result.skipped[0].kind == "caption"
    assert result.skipped[0].id == "hollow"
    assert result.options["skipped"] == "7"
    assert result.notes[0].startswith("skipped: 1 captions that are empty (hollow)")
    assert "i2t/judged/hit@1" in [row.key for row in result.rows]


def test_caption_ids_do_not_change_when_another_is_skipped(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.png").write_bytes(encoded(picture()))
    (tmp_path / "captions.csv").write_text('image,caption\na.png,""\na.png,A cat.\n')
    data = load_benchmark_data(f"collection:{tmp_path}", skip_bad=True)
    assert data.collection.caption_ids.tolist() == ["a.png#1"]
    assert [item.id for item in data.skipped] == ["a.png#0"]


def test_trial_with_an_empty_caption_is_skipped(tmp_path):
    for n in range(4):
        (tmp_path / f"{n}.png").write_bytes(encoded(picture((n, 0, 0))))
    (tmp_path / "own.csv").write_text(
        "trial_id,caption_0,image_0,image_1\na,A cat.,0.png,1.png\nb, ,2.png,3.png\nc,A dog.,2.png,3.png\n"
    )
    with pytest.raises(CrossmatchError, match="trial 'b' has an empty caption_0"):
        load_benchmark_data(f"trials:{tmp_path / 'own.csv'}")
    result = evaluate(Colour(), f"trials:{tmp_path / 'own.csv'}", samples=10, skip_bad=True)
    assert result.parts[""].ids.tolist() == ["a", "c"]
    assert [(item.kind, item.id) for item in result.skipped] == [("trial", "b")]


# Notes


def test_animated_images_are_noted(pets):
    for name in BAD:
        (pets / "images" / f"{name}.jpg").write_bytes(FINE["animated gif"][0])
    result = evaluate(Colour(), collection_benchmark(pets), samples=10)
    assert (
        "6 pictures have several frames, and the first was taken (100 megapixels.jpg, 400 megapixels.jpg, a header alone.jpg, …)"
        in result.notes
    )
    assert not [note for note in evaluate("random", collection_benchmark(pets), samples=10).notes if "frames" in note]


class Short(Colour):
    """Reads the first three words."""

    longest = 3

    def truncated(self, texts):
        return np.array([len(text.split()) > 3 for text in texts])


def test_truncated_captions_are_counted(tmp_path):
    collection = Collection.from_captions(
        {"a": ["one two three", "one two three four"], "b": ["one two three four", "a b c d e"]}, lambda name: picture()
    )
    benchmark = links_benchmark(collection)
    result = evaluate(Short(), benchmark, samples=10)
    note = "3 of 4 captions are longer than the 3 tokens that the model reads; the rest was cut off"
    assert note in result.notes
    assert result.as_json()["truncated-captions"] == 3
    path = save_result(result, tmp_path)
    assert json.loads(path.read_text())["counts"] == {"truncated-captions": 3}
    assert load_result(path).as_json() == result.as_json()
    pairs = Trials(["t"], [["a"]], [["a b c d e", "a b"]], ["k"], open_image=lambda name: picture())
    trial = evaluate(Short(), Benchmark("choice", "", lambda: pairs, ("accuracy",)), samples=10)
    assert "1 of 2 captions are longer than the 3 tokens that the model reads; the rest was cut off" in trial.notes


def test_no_note_without_truncation():
    collection = Collection.from_captions({"a": ["one two"]}, lambda name: picture())
    benchmark = links_benchmark(collection)
    for model in (Short(), Colour()):
        result = evaluate(model, benchmark, samples=10)
        assert not [note for note in result.notes if "cut off" in note]
        assert "truncated-captions" not in result.as_json()


def test_invalid_result_of_truncated_is_an_error():
    class Odd(Short):
        def truncated(self, texts):
            return [1.0] * len(texts)

    collection = Collection.from_captions({"a": ["one two"]}, lambda name: picture())
    benchmark = links_benchmark(collection)
    with pytest.raises(CrossmatchError, match=r"truncated\(texts\) must return true or false.*got float64"):
        evaluate(Odd(), benchmark, samples=10)


def test_results_without_skipped_items_and_counts_load(tmp_path, pets):
    path = save_result(evaluate("random", collection_benchmark(pets), samples=10), tmp_path)
    head = json.loads(path.read_text())
    del head["skipped"], head["counts"]
    path.write_text(json.dumps(head))
    assert (load_result(path).skipped, load_result(path).counts) == ((), {})


# Command line


@pytest.fixture
def crossmatch(monkeypatch, capsys, tmp_path):
    def run(*arguments):
        monkeypatch.setattr(
            "sys.argv", ["crossmatch", "run", "-o", str(tmp_path / "results"), "--samples", "10", "--no-cache", *arguments]
        )
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, capsys.readouterr()

    return run


def test_command_line_skips_bad_images(crossmatch, pets):
    code, output = crossmatch("-m", "blind:brightness", "-t", f"collection:{pets}", "--metrics", "hit@1")
    assert code == 1
    assert len(output.err.strip().splitlines()) == 1
    assert "100 megapixels.jpg cannot be opened as an image" in output.err
    code, output = crossmatch("-m", "blind:brightness", "-t", f"collection:{pets}", "--metrics", "hit@1", "--skip-bad")
    assert code == 0, output.err
    assert "skipped: 6 of 46 images cannot be opened" in " ".join(output.out.split())
    code, output = crossmatch("-m", "blind:brightness", "-t", f"collection:{pets}", "--metrics", "hit@1", "--skip-bad", "--json")
    assert list(json.loads(output.out)) == ["collection:pets+skipped=6"]


def test_gate_with_skip_bad_is_an_error(crossmatch):
    code, output = crossmatch("-m", "random", "-t", "diorama/bison", "--size", "tiny", "--gate", "--skip-bad")
    assert code == 2
    assert "--skip-bad" in output.err
