"""Images of hard negatives: what is drawn is true, nothing is lost, and what fails is told."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from crossmatch.build import generate as module
from crossmatch.build.files import FAILED, MANIFEST, ROWS, Asked, manifest, read_rows, written
from crossmatch.build.generate import GIVE_UP, ITEMS, file_of, generate, seed_of
from crossmatch.build.generators import NoImage, Pipeline, Renderer, generator
from crossmatch.build.negative_world import changed, world_negatives
from crossmatch.build.negatives import plain
from crossmatch.core.errors import CrossmatchError, MissingDependency, WrongWords
from crossmatch.diorama.dice import Dice
from crossmatch.diorama.meaning import Caption
from crossmatch.diorama.reading import understood, worded
from crossmatch.diorama.truth import truth
from crossmatch.diorama.world import Diorama
from crossmatch.study.design import load_design
from crossmatch.study.items import read_items


@pytest.fixture(scope="module")
def world():
    return Diorama.make(images=12)


@pytest.fixture(scope="module")
def folder(world, tmp_path_factory):
    place = tmp_path_factory.mktemp("negatives") / "n"
    world_negatives(world, place, captions=20, seed=3)
    return place


def negatives_of(folder: Path, *texts: str) -> Path:
    """A folder of negatives that somebody wrote."""
    rows = [
        {"id": f"n{n}", "caption_id": f"c{n}", "image_id": "i", "caption": "A cat.", "negative": text, "category": "replace/obj"}
        for n, text in enumerate(texts)
    ]
    written(folder, Asked("negatives", {}), lambda made: rows)
    return folder


class Painter:
    """Paints one colour; what it cannot do it is told beforehand."""

    def __init__(self, refuses=(), breaks=(), name="painter"):
        self.refuses, self.breaks, self.name, self.asked = refuses, breaks, name, []

    def draw(self, row, number, seed):
        self.asked.append((row["id"], number, seed))
        if row["negative"] in self.refuses:
            raise NoImage("refused", "as it was told")
        if row["negative"] in self.breaks:
            raise RuntimeError("out of memory")
        return Image.new("L", (9, 7), seed % 256), {"said": row["negative"]}


# -- the embedded world


def test_negatives_of_the_world_are_false_of_their_scene_and_true_of_the_one_that_is_drawn(world, folder):
    """The truth of all pairs is asked, which neither the edits nor the renderer use."""
    rows, by = read_rows(folder), Renderer(world)
    assert len({row["category"] for row in rows}) >= 5
    for row in rows:
        place = int(row["image_id"][-5:])
        scene, said = worded(world, place, row["caption_id"])
        edit = next(understood(scene, said, row["negative"], Dice(0), row["category"]))
        both = [said.caption, Caption(edit.negative.text, edit.negative.caption.meaning)]
        assert plain(edit.negative.text) == plain(row["negative"])
        assert truth([scene], both).tolist() == [[True, False]], row
        for number in (0, 1):
            drawn, also = by.scene(row, number, seed_of(0, row["id"], number))
            assert truth([drawn], both).tolist() == [[also, True]], row
            assert not also
            assert drawn.setting == scene.setting


def test_candidates_differ_and_the_first_stays_nearest(world, folder):
    """What only looks another stays where it was; of the second candidate nearly everything has moved."""
    by, moved = Renderer(world), []
    for row in read_rows(folder):
        if row["category"] in ("replace/att", "swap/att"):
            scene = world.scenes[int(row["image_id"][-5:])]
            drawn = [by.scene(row, number, seed_of(0, row["id"], number))[0] for number in (0, 1)]
            moved.append([sum(a.box[3] != b.box[3] for a, b in zip(scene.things, one.things, strict=False)) for one in drawn])
            assert drawn[0] != drawn[1]
    first, second = (sum(column) for column in zip(*moved, strict=True))
    assert len(moved) > 10
    assert first < second / 2


def test_a_text_is_understood_only_if_it_is_one_change_in_words_of_the_world(world):
    scene, said = worded(world, 0, "test-00000#4")
    assert [list(understood(scene, said, text, Dice(0))) for text in ("A zebra.", "", "动物", f"{said.text} {said.text}")] == [
        []
    ] * 4


def test_what_is_written_can_be_read_again_by_another_program(world, tmp_path):
    folder = tmp_path / "n"
    world_negatives(world, folder, captions=6)
    told = generate(folder, tmp_path / "g", by=generator("diorama", world), number=2, seed=1)
    rows = read_rows(tmp_path / "g", "generate")
    assert told["finished"]
    assert told["counts"]["images"] == len(rows) >= 2 * told["counts"]["negatives"] - 2
    by_id = {row["id"]: row for row in read_rows(folder)}
    for row in rows:
        data = (tmp_path / "g" / row["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == row["sha256"]
        with Image.open(tmp_path / "g" / row["file"]) as picture:
            assert (picture.size, picture.mode) == ((row["width"], row["height"]), "RGB")
        assert row["negative"] == by_id[row["negative_id"]]["negative"]
        assert row["generator"].startswith("diorama|style:generator")
    assert len({row["sha256"] for row in rows}) > 0.9 * len(rows)


def test_negatives_of_other_captions_fail_by_their_reason(world, tmp_path):
    source = negatives_of(tmp_path / "n", "A dog.")
    told = generate(source, tmp_path / "g", by=generator("diorama", world))
    assert told["counts"] == {"negatives": 1, "images": 0, "failed: no caption of this world": 1}
    text = world.captions[4].text
    rows = [
        {"id": "x", "caption_id": "test-00000#4", "image_id": "test-00000", "caption": text, "negative": f"{text} Zebras!"},
    ]
    written(tmp_path / "m", Asked("negatives", {}), lambda made: rows)
    told = generate(tmp_path / "m", tmp_path / "h", by=generator("diorama", world))
    assert "failed: words or a change that the world does not have" in told["counts"]


def test_four_images_are_items_of_the_study_that_chooses_among_them(world, folder, tmp_path):
    generate(folder, tmp_path / "g", by=Painter(), number=4)
    found = read_items(tmp_path / "g" / ITEMS, load_design("bivlc-choose", ()))
    assert len(found.items) == len(read_rows(folder))
    assert {len(one.images) for one in found.items} == {4}
    assert found.open_image(found.items[0].images[0]).size == (9, 7)


def test_what_changed_is_told_word_by_word():
    assert changed("A b c.", "A b c.") == ("", "")
    assert changed("A cat and a cat.", "A cat.") == ("cat and a", "")
    assert changed("", "A dog.") == ("", "A dog.")


# -- any generator


def test_refusals_and_breakdowns_are_recorded_and_the_step_goes_on(tmp_path):
    source = negatives_of(tmp_path / "n", "a", "b", "c")
    told = generate(source, tmp_path / "g", by=Painter(refuses=["a"], breaks=["b"]), number=2)
    assert told["counts"] == {"negatives": 3, "images": 2, "failed: refused": 2, "failed: the generator broke": 2}
    failed = [json.loads(line) for line in (tmp_path / "g" / FAILED).read_text().splitlines()]
    assert [(row["id"], row["reason"], row["passing"]) for row in failed] == [
        ("n0~0", "refused", False), ("n0~1", "refused", False),
        ("n1~0", "the generator broke", True), ("n1~1", "the generator broke", True),
    ]  # fmt: skip
    assert "out of memory" in failed[2]["told"]


@pytest.mark.parametrize("what", [None, "text", SimpleNamespace(images=[])])
def test_what_is_no_picture_is_a_failure(tmp_path, what):
    by = SimpleNamespace(name="odd", draw=lambda row, number, seed: (what, {}))
    told = generate(negatives_of(tmp_path / "n", "a"), tmp_path / "g", by=by)
    assert told["counts"]["failed: the generator broke"] == 1


def test_a_generator_that_only_breaks_ends_the_step_which_goes_on_later(tmp_path):
    texts = [f"t{n}" for n in range(GIVE_UP + 10)]
    source = negatives_of(tmp_path / "n", *texts)
    with pytest.raises(CrossmatchError, match=f"broke at {GIVE_UP} images in a row .*out of memory.* goes on from there"):
        generate(source, tmp_path / "g", by=Painter(breaks=texts[2:]))
    assert not manifest(tmp_path / "g")["finished"]
    mended = Painter()
    told = generate(source, tmp_path / "g", by=mended)
    assert told["counts"] == {"negatives": len(texts), "images": len(texts)}
    assert len(mended.asked) == len(texts) - 2  # the first two were there


def test_a_finished_step_asks_nothing_and_another_one_is_refused(tmp_path):
    source = negatives_of(tmp_path / "n", "a")
    generate(source, tmp_path / "g", by=Painter())
    again = Painter()
    generate(source, tmp_path / "g", by=again)
    assert again.asked == []
    with pytest.raises(WrongWords, match="other inputs: generator was 'painter', and is 'another'"):
        generate(source, tmp_path / "g", by=Painter(name="another"))
    with pytest.raises(WrongWords, match="made by generate; a folder with hard negatives was expected"):
        generate(tmp_path / "g", tmp_path / "h", by=again)
    with pytest.raises(WrongWords, match="0 images of each"):
        generate(source, tmp_path / "i", by=again, number=0)


def test_a_full_disk_stops_with_a_remedy_and_nothing_is_lost(tmp_path, monkeypatch):
    source, real, left = negatives_of(tmp_path / "n", "a", "b", "c", "d"), module.whole_file, [2]

    def full(path, **how):
        if path.suffix == ".png":
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, **how)

    monkeypatch.setattr(module, "whole_file", full)
    with pytest.raises(CrossmatchError, match=r"no room left on the disk of .*free some, and run the same command again"):
        generate(source, tmp_path / "g", by=Painter())
    monkeypatch.undo()
    assert not manifest(tmp_path / "g")["finished"]
    assert len((tmp_path / "g" / ROWS).read_text().splitlines()) == 2
    by = Painter()
    assert generate(source, tmp_path / "g", by=by)["counts"] == {"negatives": 4, "images": 4}
    assert len(by.asked) == 2
    assert not list((tmp_path / "g").rglob("*.part"))


SLOW = """
import sys, time
from pathlib import Path
from PIL import Image
from crossmatch.build.generate import generate

class Slow:
    name = "painter"
    def draw(self, row, number, seed):
        time.sleep(0.05)
        return Image.new("L", (9, 7), seed % 256), {"said": row["negative"]}

generate(Path(sys.argv[1]), Path(sys.argv[2]), by=Slow())
"""


def test_after_kill_9_the_step_ends_with_the_same_bytes(tmp_path):
    source = negatives_of(tmp_path / "n", *(f"t{n}" for n in range(60)))
    rows = tmp_path / "g" / ROWS
    work = subprocess.Popen([sys.executable, "-c", SLOW, str(source), str(tmp_path / "g")])
    end = time.monotonic() + 60
    while not (rows.exists() and rows.read_bytes().count(b"\n") >= 3) and time.monotonic() < end and work.poll() is None:
        pass
    work.send_signal(signal.SIGKILL)
    work.wait()
    assert 3 <= rows.read_bytes().count(b"\n") < 60
    with rows.open("ab") as file:
        file.write(b'{"id": "cut o')
    generate(source, tmp_path / "g", by=Painter())
    generate(source, tmp_path / "whole", by=Painter())
    for name in (ROWS, ITEMS, *(file_of(f"n{n}~0") for n in range(60))):
        assert (tmp_path / "g" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert json.loads((tmp_path / "g" / MANIFEST).read_text()) == json.loads((tmp_path / "whole" / MANIFEST).read_text())


# -- names


def test_files_are_told_apart_however_odd_the_ids_are():
    odd = ["a/b", "a\\b", "a b", "../a", "日本", "日木", "x" * 300, "x" * 301, ""]
    names = [file_of(name) for name in odd]
    assert len({name.lower() for name in names}) == len(odd)
    assert all(Path(name).parent == Path("images") and len(name) < 120 and name.isascii() for name in names)


def test_generators_are_found_by_name(world):
    assert isinstance(generator("diorama", world), Renderer)
    for words, said in (("diorama", "--data diorama"), ("diorama:x", "diorama alone"), ("diffusers", "behind a colon"),
                        ("dioramma", "Did you mean 'diorama'")):  # fmt: skip
        with pytest.raises(WrongWords, match=said):
            generator(words)
    with pytest.raises(WrongWords, match="knows pixels alone"):
        generator("diorama", world, {"steps": 3})


def test_without_diffusers_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(MissingDependency, match=r"crossmatch\[generate\]"):
        generator("diffusers:some/model")


# -- diffusers


class FakePipeline:
    """What a pipeline of diffusers does, as far as it is used."""

    def __init__(self):
        self.asked = []

    def __call__(self, prompt, generator, **settings):
        self.asked.append((prompt, settings))
        shade = int(generator.initial_seed()) % 256
        return SimpleNamespace(images=[Image.new("RGB", (16, 8), (shade, 0, 0))], nsfw_content_detected=[prompt == "bad"])

    def set_progress_bar_config(self, disable):
        assert disable

    def to(self, where):
        assert where in ("cpu", "cuda")
        return self


def test_a_pipeline_draws_the_negative_by_its_seed(tmp_path):
    pytest.importorskip("torch")
    fake = FakePipeline()
    source = negatives_of(tmp_path / "n", "A dog.", "bad")
    by = Pipeline("diffusers:fake", fake, {"num_inference_steps": 2})
    told = generate(source, tmp_path / "g", by=by, number=2)
    assert told["counts"] == {"negatives": 2, "images": 2, "failed: refused by the model's own filter": 2}
    assert told["options"]["settings"] == {"num_inference_steps": 2}
    assert fake.asked[0] == ("A dog.", {"num_inference_steps": 2})
    for row in read_rows(tmp_path / "g"):
        with Image.open(tmp_path / "g" / row["file"]) as picture:
            assert picture.getpixel((0, 0))[0] == row["seed"] % 256 == seed_of(0, "n0", row["number"]) % 256


def test_a_pipeline_is_loaded_from_this_machine_alone(monkeypatch):
    pytest.importorskip("torch")
    asked = {}

    def load(name, **how):
        asked.update(how, name=name)
        if name == "absent":
            raise OSError("no such model\nat all")
        return FakePipeline()

    fake = SimpleNamespace(AutoPipelineForText2Image=SimpleNamespace(from_pretrained=load))
    monkeypatch.setitem(sys.modules, "diffusers", fake)
    assert generator("diffusers:org/model").name == "diffusers:org/model"
    assert asked == {"local_files_only": True, "name": "org/model"}
    with pytest.raises(CrossmatchError, match=r"diffusers:absent cannot be loaded \(OSError: no such model\)"):
        generator("diffusers:absent")
