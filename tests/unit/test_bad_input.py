"""Pictures that do not decode, captions that are empty or too long: named and refused, or left out and said."""

from __future__ import annotations

import io
import json
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from crossmatch.benchmarks import load_data
from crossmatch.benchmarks.folder import folder_benchmark, load_folder
from crossmatch.benchmarks.formats.gathered import MOST_PIXELS, decoded
from crossmatch.cli import main
from crossmatch.core.benchmark import Benchmark, Retrieval
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.judgements import Judgements
from crossmatch.core.pictures import BadPicture
from crossmatch.core.result import load, save
from crossmatch.core.skipped import Skipped
from crossmatch.core.trials import Trials
from crossmatch.report.compare import compare
from crossmatch.run import evaluate

RED, BLUE = (200, 0, 0), (0, 0, 200)


def encoded(image, kind="PNG", **how):
    held = io.BytesIO()
    image.save(held, kind, **how)
    return held.getvalue()


def picture(colour=RED, size=(40, 30), mode="RGB"):
    return Image.new(mode, size, colour)


def bomb(side):
    """A PNG of so many pixels in each direction, all black, in a few kilobytes or less: the header alone is enough to refuse it."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


def deep():
    return Image.fromarray(np.full((30, 40), 0xC8FF, dtype=np.uint16))


def indexed(transparent):
    held = picture().quantize(4)
    return encoded(held, transparency=0) if transparent else encoded(held)


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
    "zero bytes": (b"", "it has no bytes at all"),
    "100 megapixels": (bomb(10_000), "10,000 x 10,000 pixels, and at most 80,000,000 are decoded"),
    "400 megapixels": (bomb(20_000), "more than the 80,000,000 pixels that are decoded"),
    "a header alone": (encoded(picture())[:40], "cannot be opened as an image"),
}

pytestmark = pytest.mark.filterwarnings("ignore:Image size")  # as the command line does: such pictures are refused in our words


@pytest.mark.parametrize("kind", FINE)
def test_pictures_of_any_kind_become_rgb(kind):
    raw, colour = FINE[kind]
    found = decoded(raw, "a.jpg")
    assert found.mode == "RGB"
    assert found.size == ((30, 40) if kind == "turned" else (40, 30))
    assert np.abs(np.asarray(found, int)[0, 0] - colour).max() <= 3  # JPEG rounds


@pytest.mark.parametrize("kind", BAD)
def test_pictures_that_do_not_decode_are_named_with_a_remedy(kind):
    raw, says = BAD[kind]
    with pytest.raises(CrossmatchError) as caught:
        decoded(raw, "images/a.jpg")
    said = str(caught.value)
    assert said.startswith("images/a.jpg cannot be opened as an image (")
    assert says in said
    assert ("Scale it down." if "megapixels" in kind else "Replace it") in said
    assert "\n" not in said


def test_the_limit_is_below_a_hundred_megapixels_and_above_any_camera_of_most():
    assert 50_000_000 < MOST_PIXELS < 100_000_000


# A folder with all of them


class Colour:
    """The mean colour beside the first letters of a text: enough to be a model."""

    signature = "colour|v1"

    def embed_images(self, images):
        return np.array([np.asarray(image, float).mean(axis=(0, 1)) + np.arange(1, 4) for image in images])

    def embed_texts(self, texts):
        return np.array([[ord(letter) for letter in f"{text}   "[:3]] for text in texts], float)


@pytest.fixture
def pets(tmp_path):
    """Forty good pictures and the bad ones, each with two captions; one caption is shared by a good and a bad picture."""
    folder = tmp_path / "pets"
    (folder / "images").mkdir(parents=True)
    rows = ["image,caption,caption_id"]
    named = {f"good {n:02d}": encoded(picture((n * 5, 90, 200 - n))) for n in range(40)} | {k: raw for k, (raw, _) in BAD.items()}
    for name, raw in named.items():
        (folder / "images" / f"{name}.jpg").write_bytes(raw)
        rows += [f"{name}.jpg,{name} is one,{name}-1", f"{name}.jpg,{name} is two,{name}-2"]
    rows += ["good 00.jpg,A pet.,shared", "truncated.jpg,A pet.,shared"]
    (folder / "captions.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_the_first_bad_picture_stops_the_run_and_is_named(pets):
    with pytest.raises(BadPicture, match=r"100 megapixels\.jpg cannot be opened as an image.*--skip-bad") as caught:
        evaluate(Colour(), folder_benchmark(pets), samples=10)
    assert caught.value.image == "100 megapixels.jpg"
    with pytest.raises(BadPicture, match=r"100 megapixels\.jpg.*--skip-bad"):
        evaluate(lambda images, texts: np.zeros((len(images), len(texts))), folder_benchmark(pets), samples=10)


@pytest.mark.parametrize(
    "model", [Colour(), lambda images, texts: np.ones((len(images), len(texts))), "random"], ids=["embeds", "scores", "sees none"]
)
def test_bad_pictures_are_left_out_with_what_hangs_on_them(pets, model, tmp_path):
    result = evaluate(model, folder_benchmark(pets), samples=10, skip_bad=True)
    assert [one.id for one in result.skipped] == sorted(f"{name}.jpg" for name in BAD)
    assert all(one.kind == "image" and f"{one.id} cannot be opened as an image" in one.why for one in result.skipped)
    assert result.options["skipped"] == str(len(BAD))
    assert result.notes[0] == (
        "skipped: 6 of 46 images cannot be opened, and were left out with 12 captions (100 megapixels.jpg, 400 megapixels.jpg, "
        "a header alone.jpg, …); never to be compared with all"
    )
    assert len(result.parts["i2t"].ids) == 40
    assert set(result.parts["t2i"].ids) == {f"good {n:02d}-{k}" for n in range(40) for k in (1, 2)} | {"shared"}
    path = save(result, tmp_path / "results")
    assert "skipped=6" in path.name
    assert load(path).skipped == result.skipped
    assert [one["id"] for one in json.loads(path.read_text())["skipped"]] == [one.id for one in result.skipped]


def test_the_numbers_are_those_of_a_folder_without_the_bad_ones(pets):
    skipped = evaluate(Colour(), folder_benchmark(pets), samples=10, skip_bad=True)
    kept = [line for line in (pets / "captions.csv").read_text().splitlines() if line.startswith(("image", "good"))]
    (pets / "captions.csv").write_text("\n".join(kept) + "\n")
    for name in BAD:
        (pets / "images" / f"{name}.jpg").unlink()
    plain = evaluate(Colour(), folder_benchmark(pets), samples=10)
    assert skipped.as_json() == plain.as_json()
    assert [row.signature for row in skipped.rows] == [row.signature for row in plain.rows], "the same data have the same hash"
    with pytest.raises(CrossmatchError, match="skipped is 6 against as usual"):
        compare(skipped, plain)


def test_where_nothing_is_bad_the_result_is_the_usual_one(pets):
    for name in BAD:
        (pets / "images" / f"{name}.jpg").write_bytes(encoded(picture()))
    result = evaluate(Colour(), folder_benchmark(pets), samples=10, skip_bad=True)
    assert (result.skipped, "skipped" in result.options, [n for n in result.notes if "skipped" in n]) == ((), False, [])


def test_nothing_left_is_an_error(pets):
    for path in (pets / "images").iterdir():
        path.write_bytes(b"")
    with pytest.raises(CrossmatchError, match=r"none of the 46 pictures can be opened; the first: .*no bytes at all"):
        evaluate(Colour(), folder_benchmark(pets), samples=10, skip_bad=True)


def test_nothing_left_to_be_scored_by_is_an_error():
    def open_image(name):
        if name != "c":
            raise OSError("torn")
        return picture()

    held = Collection(["a", "b", "c"], ["x"], ("A cat.",), [[0, 0]], open_image)
    own = Benchmark("own", "", lambda: Retrieval(held, {"links": Judgements.from_links(held)}), ("hit@1",))
    with pytest.raises(CrossmatchError, match=r"nothing is left to score without the 2 of 3 pictures"):
        evaluate(Colour(), own, samples=10, skip_bad=True)


def test_a_trial_with_a_bad_picture_is_left_out():
    def open_image(name):
        if name == "torn":
            raise OSError("it is torn")
        return picture((int(name), 0, 0))

    trials = Trials(
        [*"abcd"], [["10", "20"], ["torn", "20"], ["30", "torn"], ["30", "40"]], [["cat"], ["dog"], ["cow"], ["hen"]], ["k"] * 4,
        open_image=open_image,
    )  # fmt: skip
    own = Benchmark("own", "", lambda: trials, ("accuracy",))
    with pytest.raises(BadPicture, match="'torn' cannot be opened"):
        evaluate(Colour(), own, samples=10)
    for model in (Colour(), lambda images, texts: np.ones((len(images), len(texts)))):
        result = evaluate(model, own, samples=10, skip_bad=True)
        assert result.parts[""].ids.tolist() == ["a", "d"]
        assert result.skipped == (Skipped("image", "torn", "image 'torn' cannot be opened (OSError: it is torn). Mend it."),)
        assert "1 of 5 images cannot be opened, and were left out with 2 trials (torn)" in result.notes[0]
        assert "partial" not in result.options


def test_tasks_that_share_pictures_try_them_once():
    asked = []

    def open_image(name):
        asked.append(name)
        return picture((int(name), 0, 0))

    held = Collection.of({str(n): [f"caption {n}"] for n in range(5)}, open_image)
    one = Benchmark("one", "", lambda: Retrieval(held, {"links": Judgements.from_links(held)}), ("hit@1",))
    two = Benchmark("two", "", lambda: Retrieval(held, {"links": Judgements.from_links(held)}), ("map@r",))
    from crossmatch.run import evaluate_all

    evaluate_all("random", [one, two], samples=10, skip_bad=True)
    assert sorted(asked) == [str(n) for n in range(5)]


# Empty captions


def test_an_empty_caption_is_named_or_left_out(pets):
    with (pets / "captions.csv").open("a") as file:
        file.write("good 03.jpg, ,hollow\n")
    (pets / "judgements.csv").write_text("image,caption_id,grade\ngood 03.jpg,hollow,1\ngood 03.jpg,good 03-1,1\n")
    with pytest.raises(CrossmatchError, match=r"captions.csv line \d+: the caption of image 'good 03.jpg' is empty.*--skip-bad"):
        load_folder(pets)
    result = evaluate(Colour(), folder_benchmark(pets), samples=10, skip_bad=True)
    assert result.skipped[0].kind == "caption"
    assert result.skipped[0].id == "hollow"
    assert result.options["skipped"] == "7"
    assert result.notes[0].startswith("skipped: 1 captions that are empty (hollow)")
    assert "i2t/judged/hit@1" in [row.key for row in result.rows]


def test_captions_keep_their_ids_when_one_before_them_is_left_out(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.png").write_bytes(encoded(picture()))
    (tmp_path / "captions.csv").write_text('image,caption\na.png,""\na.png,A cat.\n')
    data = load_data(f"collection:{tmp_path}", skip_bad=True)
    assert data.collection.caption_ids.tolist() == ["a.png#1"]
    assert [one.id for one in data.skipped] == ["a.png#0"]


def test_a_trial_with_an_empty_caption_is_left_out(tmp_path):
    for n in range(4):
        (tmp_path / f"{n}.png").write_bytes(encoded(picture((n, 0, 0))))
    (tmp_path / "own.csv").write_text(
        "trial_id,caption_0,image_0,image_1\na,A cat.,0.png,1.png\nb, ,2.png,3.png\nc,A dog.,2.png,3.png\n"
    )
    with pytest.raises(CrossmatchError, match="trial 'b' has an empty caption_0"):
        load_data(f"trials:{tmp_path / 'own.csv'}")
    result = evaluate(Colour(), f"trials:{tmp_path / 'own.csv'}", samples=10, skip_bad=True)
    assert result.parts[""].ids.tolist() == ["a", "c"]
    assert [(one.kind, one.id) for one in result.skipped] == [("trial", "b")]


# What else is said


def test_pictures_with_several_frames_are_said(pets):
    for name in BAD:
        (pets / "images" / f"{name}.jpg").write_bytes(FINE["animated gif"][0])
    result = evaluate(Colour(), folder_benchmark(pets), samples=10)
    assert (
        "6 pictures have several frames, and the first was taken (100 megapixels.jpg, 400 megapixels.jpg, a header alone.jpg, …)"
        in result.notes
    )
    assert not [note for note in evaluate("random", folder_benchmark(pets), samples=10).notes if "frames" in note]


class Short(Colour):
    """Reads the first three words."""

    longest = 3

    def truncated(self, texts):
        return np.array([len(text.split()) > 3 for text in texts])


def test_truncated_captions_are_counted(tmp_path):
    held = Collection.of(
        {"a": ["one two three", "one two three four"], "b": ["one two three four", "a b c d e"]}, lambda name: picture()
    )
    own = Benchmark("own", "", lambda: Retrieval(held, {"links": Judgements.from_links(held)}), ("hit@1",))
    result = evaluate(Short(), own, samples=10)
    note = "3 of 4 captions are longer than the 3 tokens that the model reads; the rest was cut off"
    assert note in result.notes
    assert result.as_json()["truncated-captions"] == 3
    path = save(result, tmp_path)
    assert json.loads(path.read_text())["counts"] == {"truncated-captions": 3}
    assert load(path).as_json() == result.as_json()
    pairs = Trials(["t"], [["a"]], [["a b c d e", "a b"]], ["k"], open_image=lambda name: picture())
    trial = evaluate(Short(), Benchmark("choice", "", lambda: pairs, ("accuracy",)), samples=10)
    assert "1 of 2 captions are longer than the 3 tokens that the model reads; the rest was cut off" in trial.notes


def test_nothing_is_said_where_nothing_is_cut_or_nobody_counts():
    held = Collection.of({"a": ["one two"]}, lambda name: picture())
    own = Benchmark("own", "", lambda: Retrieval(held, {"links": Judgements.from_links(held)}), ("hit@1",))
    for model in (Short(), Colour()):
        result = evaluate(model, own, samples=10)
        assert not [note for note in result.notes if "cut off" in note]
        assert "truncated-captions" not in result.as_json()


def test_truncated_that_is_no_answer_is_refused():
    class Odd(Short):
        def truncated(self, texts):
            return [1.0] * len(texts)

    held = Collection.of({"a": ["one two"]}, lambda name: picture())
    own = Benchmark("own", "", lambda: Retrieval(held, {"links": Judgements.from_links(held)}), ("hit@1",))
    with pytest.raises(CrossmatchError, match=r"truncated\(texts\) gave float64"):
        evaluate(Odd(), own, samples=10)


def test_results_of_before_can_be_read(tmp_path, pets):
    path = save(evaluate("random", folder_benchmark(pets), samples=10), tmp_path)
    head = json.loads(path.read_text())
    del head["skipped"], head["counts"]
    path.write_text(json.dumps(head))
    assert (load(path).skipped, load(path).counts) == ((), {})


# Through the command line


@pytest.fixture
def crossmatch(monkeypatch, capsys, tmp_path):
    def run(*words):
        monkeypatch.setattr(
            "sys.argv", ["crossmatch", "run", "-o", str(tmp_path / "results"), "--samples", "10", "--no-cache", *words]
        )
        with pytest.raises(SystemExit) as stopped:
            main()
        return stopped.value.code, capsys.readouterr()

    return run


def test_the_command_line_skips_and_says_so(crossmatch, pets):
    code, said = crossmatch("-m", "blind:brightness", "-t", f"collection:{pets}", "--metrics", "hit@1")
    assert code == 1
    assert len(said.err.strip().splitlines()) == 1
    assert "100 megapixels.jpg cannot be opened as an image" in said.err
    code, said = crossmatch("-m", "blind:brightness", "-t", f"collection:{pets}", "--metrics", "hit@1", "--skip-bad")
    assert code == 0, said.err
    assert "skipped: 6 of 46 images cannot be opened" in " ".join(said.out.split())
    code, said = crossmatch("-m", "blind:brightness", "-t", f"collection:{pets}", "--metrics", "hit@1", "--skip-bad", "--json")
    assert list(json.loads(said.out)) == ["collection:pets+skipped=6"]


def test_the_gate_and_skipping_do_not_go_together(crossmatch):
    code, said = crossmatch("-m", "random", "-t", "diorama/bison", "--size", "tiny", "--gate", "--skip-bad")
    assert code == 2
    assert "--skip-bad" in said.err
