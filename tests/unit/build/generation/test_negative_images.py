"""Images of hard negatives: drawn scenes are true, nothing is lost, and failures are recorded."""

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from crossmatch.build.generation import negative_images as module
from crossmatch.build.generation.generators import DiffusersGenerator, DioramaGenerator, NoImageError, load_generator
from crossmatch.build.generation.negative_images import ITEMS, MAX_ERRORS_IN_A_ROW, generate_images, image_file, image_seed
from crossmatch.build.negatives.by_diorama import changed_words, write_diorama_negatives
from crossmatch.build.negatives.by_rules import normalise_text
from crossmatch.build.step_files import FAILED, MANIFEST, ROWS, StepSpec, read_manifest, read_rows, write_step
from crossmatch.data.errors import CrossmatchError, MissingDependencyError, UsageError
from crossmatch.diorama.caption_meaning import Caption
from crossmatch.diorama.caption_parsing import find_wording, parse_edits
from crossmatch.diorama.random_choices import Dice
from crossmatch.diorama.truth import truth
from crossmatch.diorama.world import Diorama
from crossmatch.study.design.declaration import load_design
from crossmatch.study.design.item_files import read_items
from polling import wait_until


@pytest.fixture(scope="module")
def world():
    return Diorama.make(images=12)


@pytest.fixture(scope="module")
def folder(world, tmp_path_factory):
    position = tmp_path_factory.mktemp("negatives") / "n"
    write_diorama_negatives(world, position, captions=20, seed=3)
    return position


def negatives_of(folder: Path, *texts: str) -> Path:
    """A folder with these negatives."""
    rows = [
        {"id": f"n{n}", "caption_id": f"c{n}", "image_id": "i", "caption": "A cat.", "negative": text, "category": "replace/obj"}
        for n, text in enumerate(texts)
    ]
    write_step(folder, StepSpec("negatives", {}), lambda step: rows)
    return folder


class PlainGenerator:
    """A generator of plain images that rejects some texts and fails for others."""

    def __init__(self, refuses=(), breaks=(), name="painter"):
        self.refuses, self.breaks, self.name, self.calls = refuses, breaks, name, []

    def draw(self, row, number, seed):
        self.calls.append((row["id"], number, seed))
        if row["negative"] in self.refuses:
            raise NoImageError("refused", "by the test")
        if row["negative"] in self.breaks:
            raise RuntimeError("out of memory")
        return Image.new("L", (9, 7), seed % 256), {"text": row["negative"]}


# -- the embedded world


def test_negatives_are_false_of_their_scene_and_true_of_the_drawn_one(world, folder):
    """Compares with the truth of all pairs, which neither the edits nor the renderer use."""
    rows, generator = read_rows(folder), DioramaGenerator(world)
    assert len({row["category"] for row in rows}) >= 5
    for row in rows:
        position = int(row["image_id"][-5:])
        scene, wording = find_wording(world, position, row["caption_id"])
        edit = next(parse_edits(scene, wording, row["negative"], Dice(0), row["category"]))
        captions = [wording.caption, Caption(edit.negative.text, edit.negative.caption.meaning)]
        assert normalise_text(edit.negative.text) == normalise_text(row["negative"])
        assert truth([scene], captions).tolist() == [[True, False]], row
        for number in (0, 1):
            drawn, caption_holds = generator.scene(row, number, image_seed(0, row["id"], number))
            assert truth([drawn], captions).tolist() == [[caption_holds, True]], row
            assert not caption_holds
            assert drawn.setting == scene.setting


def test_first_candidate_is_closest_to_the_original_scene(world, folder):
    """Candidate 0 changes only attributes; in candidate 1 most objects have moved."""
    generator, moved = DioramaGenerator(world), []
    for row in read_rows(folder):
        if row["category"] in ("replace/att", "swap/att"):
            scene = world.scenes[int(row["image_id"][-5:])]
            drawn = [generator.scene(row, number, image_seed(0, row["id"], number))[0] for number in (0, 1)]
            moved.append(
                [sum(a.box[3] != b.box[3] for a, b in zip(scene.objects, version.objects, strict=False)) for version in drawn]
            )
            assert drawn[0] != drawn[1]
    first, second = (sum(column) for column in zip(*moved, strict=True))
    assert len(moved) > 10
    assert first < second / 2


def test_only_single_edits_in_words_of_the_world_are_parsed(world):
    scene, wording = find_wording(world, 0, "test-00000#4")
    for text in ("A zebra.", "", "动物", f"{wording.text} {wording.text}"):
        assert not list(parse_edits(scene, wording, text, Dice(0)))


def test_image_files_match_their_rows(world, tmp_path):
    folder = tmp_path / "n"
    write_diorama_negatives(world, folder, captions=6)
    manifest = generate_images(folder, tmp_path / "g", generator=load_generator("diorama", world), number=2, seed=1)
    rows = read_rows(tmp_path / "g", "generate")
    assert manifest["finished"]
    assert manifest["counts"]["images"] == len(rows) >= 2 * manifest["counts"]["negatives"] - 2
    by_id = {row["id"]: row for row in read_rows(folder)}
    for row in rows:
        data = (tmp_path / "g" / row["file"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == row["sha256"]
        with Image.open(tmp_path / "g" / row["file"]) as picture:
            assert (picture.size, picture.mode) == ((row["width"], row["height"]), "RGB")
        assert row["negative"] == by_id[row["negative_id"]]["negative"]
        assert row["generator"].startswith("diorama|style:generator")
    assert len({row["sha256"] for row in rows}) > 0.9 * len(rows)


def test_negatives_of_other_captions_fail_with_a_reason(world, tmp_path):
    source = negatives_of(tmp_path / "n", "A dog.")
    manifest = generate_images(source, tmp_path / "g", generator=load_generator("diorama", world))
    assert manifest["counts"] == {"negatives": 1, "images": 0, "failed: no caption of this world": 1}
    text = world.captions[4].text
    row = {"id": "x", "caption_id": "test-00000#4", "image_id": "test-00000", "caption": text, "negative": f"{text} Zebras!"}
    write_step(tmp_path / "m", StepSpec("negatives", {}), lambda step: [row])
    manifest = generate_images(tmp_path / "m", tmp_path / "h", generator=load_generator("diorama", world))
    assert "failed: words or a change that the world does not have" in manifest["counts"]


def test_four_images_are_items_of_the_study_bivlc_choose(world, folder, tmp_path):
    generate_images(folder, tmp_path / "g", generator=PlainGenerator(), number=4)
    study_items = read_items(tmp_path / "g" / ITEMS, load_design("bivlc-choose", ()))
    assert len(study_items.items) == len(read_rows(folder))
    assert {len(item.images) for item in study_items.items} == {4}
    assert study_items.open_image(study_items.items[0].images[0]).size == (9, 7)


def test_changed_words():
    assert changed_words("A b c.", "A b c.") == ("", "")
    assert changed_words("A cat and a cat.", "A cat.") == ("cat and a", "")
    assert changed_words("", "A dog.") == ("", "A dog.")


# -- any generator


def test_failures_are_recorded_and_the_step_continues(tmp_path):
    source = negatives_of(tmp_path / "n", "a", "b", "c")
    manifest = generate_images(source, tmp_path / "g", generator=PlainGenerator(refuses=["a"], breaks=["b"]), number=2)
    assert manifest["counts"] == {"negatives": 3, "images": 2, "failed: refused": 2, "failed: the generator broke": 2}
    failed = [json.loads(line) for line in (tmp_path / "g" / FAILED).read_text().splitlines()]
    assert [(row["id"], row["reason"], row["passing"]) for row in failed] == [
        ("n0~0", "refused", False), ("n0~1", "refused", False),
        ("n1~0", "the generator broke", True), ("n1~1", "the generator broke", True),
    ]  # fmt: skip
    assert "out of memory" in failed[2]["told"]


@pytest.mark.parametrize("picture", [None, "text", SimpleNamespace(images=[])])
def test_output_that_is_no_picture_is_a_failure(tmp_path, picture):
    generator = SimpleNamespace(name="odd", draw=lambda row, number, seed: (picture, {}))
    manifest = generate_images(negatives_of(tmp_path / "n", "a"), tmp_path / "g", generator=generator)
    assert manifest["counts"]["failed: the generator broke"] == 1


def test_failing_generator_ends_the_step_and_can_be_resumed(tmp_path):
    texts = [f"t{n}" for n in range(MAX_ERRORS_IN_A_ROW + 10)]
    source = negatives_of(tmp_path / "n", *texts)
    with pytest.raises(CrossmatchError, match=f"failed for {MAX_ERRORS_IN_A_ROW} images in a row .*out of memory.* to resume"):
        generate_images(source, tmp_path / "g", generator=PlainGenerator(breaks=texts[2:]))
    assert not read_manifest(tmp_path / "g")["finished"]
    repaired = PlainGenerator()
    manifest = generate_images(source, tmp_path / "g", generator=repaired)
    assert manifest["counts"] == {"negatives": len(texts), "images": len(texts)}
    assert len(repaired.calls) == len(texts) - 2  # two images exist already


def test_finished_step_is_not_repeated_and_other_inputs_are_rejected(tmp_path):
    source = negatives_of(tmp_path / "n", "a")
    generate_images(source, tmp_path / "g", generator=PlainGenerator())
    unused = PlainGenerator()
    generate_images(source, tmp_path / "g", generator=unused)
    assert unused.calls == []
    with pytest.raises(UsageError, match="other inputs: generator was 'painter', now 'another'"):
        generate_images(source, tmp_path / "g", generator=PlainGenerator(name="another"))
    with pytest.raises(UsageError, match="made by step generate; expected rows of step negatives or format or refine"):
        generate_images(tmp_path / "g", tmp_path / "h", generator=unused)
    with pytest.raises(UsageError, match=r"--number must be from 1 to 64 \(got 0\)"):
        generate_images(source, tmp_path / "i", generator=unused, number=0)


def test_full_disk_keeps_all_images(tmp_path, monkeypatch):
    source, write_file, free_space = negatives_of(tmp_path / "n", "a", "b", "c", "d"), module.atomic_write, [2]

    def fail_on_third_image(path, **options):
        if path.suffix == ".png":
            free_space[0] -= 1
            if free_space[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_file(path, **options)

    monkeypatch.setattr(module, "atomic_write", fail_on_third_image)
    with pytest.raises(CrossmatchError, match=r"the disk is full.* run the same command again"):
        generate_images(source, tmp_path / "g", generator=PlainGenerator())
    monkeypatch.undo()
    assert not read_manifest(tmp_path / "g")["finished"]
    assert len((tmp_path / "g" / ROWS).read_text().splitlines()) == 2
    generator = PlainGenerator()
    assert generate_images(source, tmp_path / "g", generator=generator)["counts"] == {"negatives": 4, "images": 4}
    assert len(generator.calls) == 2
    assert not list((tmp_path / "g").rglob("*.part"))


STUCK_AFTER_THREE = """
import sys, threading
from pathlib import Path
from PIL import Image
from crossmatch.build.generation.negative_images import generate_images

class Stuck:
    name = "painter"
    calls = 0
    def draw(self, row, number, seed):
        self.calls += 1
        if self.calls > 3:
            threading.Event().wait()  # until the process is killed
        return Image.new("L", (9, 7), seed % 256), {"text": row["negative"]}

generate_images(Path(sys.argv[1]), Path(sys.argv[2]), generator=Stuck())
"""


def test_killed_step_resumes_with_equal_bytes(tmp_path):
    source = negatives_of(tmp_path / "n", *(f"t{n}" for n in range(60)))
    rows = tmp_path / "g" / ROWS
    process = subprocess.Popen([sys.executable, "-c", STUCK_AFTER_THREE, str(source), str(tmp_path / "g")])
    wait_until(lambda: process.poll() is not None or (rows.exists() and rows.read_bytes().count(b"\n") >= 3))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert rows.read_bytes().count(b"\n") == 3
    with rows.open("ab") as file:
        file.write(b'{"id": "cut o')
    generate_images(source, tmp_path / "g", generator=PlainGenerator())
    generate_images(source, tmp_path / "whole", generator=PlainGenerator())
    for name in (ROWS, ITEMS, *(image_file(f"n{n}~0") for n in range(60))):
        assert (tmp_path / "g" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    assert json.loads((tmp_path / "g" / MANIFEST).read_text()) == json.loads((tmp_path / "whole" / MANIFEST).read_text())


# -- names


def test_file_names_are_unique_and_portable():
    ids = ["a/b", "a\\b", "a b", "../a", "日本", "日木", "x" * 300, "x" * 301, ""]
    names = [image_file(name) for name in ids]
    assert len({name.lower() for name in names}) == len(ids)
    assert all(Path(name).parent == Path("images") and len(name) < 120 and name.isascii() for name in names)


def test_generators_are_loaded_by_name(world):
    assert isinstance(load_generator("diorama", world), DioramaGenerator)
    messages = {"diorama": "--data diorama", "diorama:x": "diorama alone", "diffusers": "after a colon", "dioramma": "Did you mean"}
    for name, message in messages.items():
        with pytest.raises(UsageError, match=message):
            load_generator(name)
    with pytest.raises(UsageError, match="accepts only pixels"):
        load_generator("diorama", world, {"steps": 3})


def test_missing_diffusers_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(MissingDependencyError, match=r"crossmatch\[generate\]"):
        load_generator("diffusers:some/model")


# -- diffusers


class FakePipeline:
    """The part of a diffusers pipeline that is used."""

    def __init__(self):
        self.calls = []

    def __call__(self, prompt, generator, **settings):
        self.calls.append((prompt, settings))
        shade = int(generator.initial_seed()) % 256
        return SimpleNamespace(images=[Image.new("RGB", (16, 8), (shade, 0, 0))], nsfw_content_detected=[prompt == "bad"])

    def set_progress_bar_config(self, disable):
        assert disable

    def to(self, device):
        assert device in ("cpu", "cuda")
        return self


def test_pipeline_draws_the_negative_by_its_seed(tmp_path):
    pytest.importorskip("torch")
    pipeline = FakePipeline()
    source = negatives_of(tmp_path / "n", "A dog.", "bad")
    generator = DiffusersGenerator("diffusers:fake", pipeline, {"num_inference_steps": 2})
    manifest = generate_images(source, tmp_path / "g", generator=generator, number=2)
    assert manifest["counts"] == {"negatives": 2, "images": 2, "failed: refused by the model's own filter": 2}
    assert manifest["options"]["settings"] == {"num_inference_steps": 2}
    assert pipeline.calls[0] == ("A dog.", {"num_inference_steps": 2})
    for row in read_rows(tmp_path / "g"):
        with Image.open(tmp_path / "g" / row["file"]) as picture:
            assert picture.getpixel((0, 0))[0] == row["seed"] % 256 == image_seed(0, "n0", row["number"]) % 256


def test_pipeline_is_loaded_from_local_files_only(monkeypatch):
    pytest.importorskip("torch")
    calls = {}

    def load(name, **options):
        calls.update(options, name=name)
        if name == "absent":
            raise OSError("no such model\nat all")
        return FakePipeline()

    pipeline = SimpleNamespace(AutoPipelineForText2Image=SimpleNamespace(from_pretrained=load))
    monkeypatch.setitem(sys.modules, "diffusers", pipeline)
    assert load_generator("diffusers:org/model").name == "diffusers:org/model"
    assert calls == {"local_files_only": True, "name": "org/model"}
    with pytest.raises(CrossmatchError, match=r"diffusers:absent cannot be loaded \(OSError: no such model\)"):
        load_generator("diffusers:absent")
