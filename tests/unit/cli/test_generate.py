"""`crossmatch captions generate`: a caption for each image, in a file that `captions score` reads; one line for an error."""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError
from crossmatch.models.caption_generation import IMAGES_PER_GROUP, generate_captions

TELLERS = '''
import random

class Plain:
    """Says how bright a picture is, and takes no options."""

    def caption(self, images):
        return [f"a picture of\\n brightness {sum(image.convert('L').resize((1, 1)).tobytes())}" for image in images]

class Teller:
    sizes = []

    def caption(self, images, *, decoding="beam", width=5, temperature=1.0, length_penalty=1.0, seed=0):
        Teller.sizes.append(len(images))
        if decoding == "sampled":
            dice = random.Random(seed)
            return [f"a thing number {dice.randrange(10**9)} at {temperature}" for _ in images]
        return [f"two red things by {decoding} of {width} and {length_penalty}" for _ in images]

    def cut_short(self, captions):
        return ["greedy" in text for text in captions]

    def filled(self, captions):
        return ["number" in text for text in captions]

def spoilt():
    class Spoilt:
        def caption(self, images):
            return "one text"
    return Spoilt()
'''


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small only wait for one another."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def crossmatch(crossmatch, tmp_path):
    (tmp_path / "tellers.py").write_text(TELLERS)
    return partial(crossmatch, "captions")


def generate(crossmatch, name, *more, data="diorama"):
    return crossmatch("generate", "-m", f"tellers.py:{name}", "--data", data, "-o", "out/caps.json", *more)


def load_captions(tmp_path):
    rows = json.loads((tmp_path / "out/caps.json").read_text())
    assert all(list(row) == ["image_id", "caption"] for row in rows)
    return {row["image_id"]: row["caption"] for row in rows}


def test_generated_captions_are_scored_on_diorama(crossmatch, tmp_path):
    code, out, err = generate(crossmatch, "Plain", "--size", "tiny", "--split", "val")
    assert (code, err) == (0, "")
    captions = load_captions(tmp_path)
    assert len(captions) == 50
    assert next(iter(captions)) == "val-00000"
    assert all(text.startswith("a picture of brightness ") for text in captions.values())  # one line, single spaces
    assert len(set(captions.values())) > 5  # the pictures were looked at
    advice = out.split(" · ")[-1].split()
    assert advice[:3] == ["crossmatch", "captions", "score"]
    code, out, _ = crossmatch(*advice[2:], "--json")
    assert code == 0
    assert json.loads(out)["caps"]["cider-d"]["value"] >= 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["caps.json"]


def test_references_named_by_diorama(crossmatch, tmp_path):
    assert generate(crossmatch, "Plain", "--limit", 10, data="diorama+size=tiny")[0] == 0
    assert list(load_captions(tmp_path)) == [f"test-{n:05d}" for n in range(10)]
    arguments = ("score", "--candidates", "out/caps.json", "--references", "diorama+size=tiny", "--metrics", "bleu")
    assert crossmatch(*arguments)[0] == 1  # forty images have none
    assert crossmatch(*arguments, "--partial")[0] == 0


def test_own_collection_with_numeric_ids(crossmatch, tmp_path):
    from PIL import Image

    (tmp_path / "mine/images").mkdir(parents=True)
    rows = ["image,caption"]
    for n in range(3):
        Image.new("RGB", (8, 8), (90 * n, 10, 10)).save(tmp_path / f"mine/images/{n + 1}.png")
        rows.append(f"{n + 1}.png,a red square")
    (tmp_path / "mine/captions.csv").write_text("\n".join(rows) + "\n")
    code, out, err = generate(crossmatch, "Plain", data="collection:mine")
    assert (code, err) == (0, "")
    captions = load_captions(tmp_path)
    assert len(captions) == 3 == len(set(captions.values()))
    code, out, _ = crossmatch(*out.split(" · ")[-1].split()[2:], "--metrics", "bleu-1", "--json")
    assert code == 0
    assert 0 < json.loads(out)["caps"]["bleu-1"]["value"] < 1


def test_images_of_trials(crossmatch, tmp_path):
    assert generate(crossmatch, "Plain", "--size", "tiny", data="diorama/bison")[0] == 0
    from crossmatch.benchmarks import load_benchmark_data

    trials = load_benchmark_data("diorama/bison", size="tiny")
    assert sorted(load_captions(tmp_path)) == np.unique(trials.images).tolist()


def test_options_reach_the_model(crossmatch, tmp_path):
    assert generate(crossmatch, "Teller", "--size", "tiny", "--limit", 2)[0] == 0
    assert load_captions(tmp_path)["test-00000"] == "two red things by beam of 5 and 1.0"
    assert generate(crossmatch, "Teller", "--size", "tiny", "--limit", 2, "--width", 3, "--length-penalty", 0.7)[0] == 0
    assert load_captions(tmp_path)["test-00001"] == "two red things by beam of 3 and 0.7"
    code, out, _ = generate(crossmatch, "Teller", "--size", "tiny", "--limit", 2, "--length-penalty", 0.7)
    assert (code, load_captions(tmp_path)["test-00001"]) == (0, "two red things by beam of 5 and 0.7")
    assert "cut" not in out
    code, out, _ = generate(crossmatch, "Teller", "--size", "tiny", "--limit", 2, "--decoding", "greedy")
    assert code == 0
    assert (
        " · 2 captions by greedy decoding · 2 of them (100.0%) reached no end and were truncated · crossmatch captions score" in out
    )
    assert load_captions(tmp_path)["test-00001"].startswith("two red things by greedy")
    code, out, _ = generate(crossmatch, "Teller", "--size", "tiny", "--limit", 2, "--temperature", 0.5)
    assert code == 0
    assert " · 2 of them (100.0%) ended exactly at the length limit · crossmatch captions score" in out
    assert load_captions(tmp_path)["test-00001"].endswith(" at 0.5")


def test_last_line_names_the_decoding(crossmatch, tmp_path):
    def line(name, *more):
        return generate(crossmatch, name, "--size", "tiny", "--limit", 2, *more)[1]

    assert " · 2 captions by the model's own decoding · " in line("Plain")
    assert " · 2 captions by beam search (width 3) · " in line("Teller", "--width", 3)
    assert " · 2 captions by sampling (temperature 0.5) · " in line("Teller", "--temperature", 0.5)


def test_help_shows_defaults_and_ranges(crossmatch):
    _, out, _ = crossmatch("generate", "--help")
    parsed = " ".join(out.split())
    assert "rarely gives better captions. [default: 5] [1<=x<=100]" in parsed
    assert "[default: 1] [0<=x<=10]" in parsed
    assert "implies --decoding sample. Below 1, likely words become likelier. [default: 1]" in parsed


def test_references_use_the_given_size_and_split(crossmatch, tmp_path):
    small = ("--size", "tiny", "--split", "val")
    assert generate(crossmatch, "Plain", *small)[0] == 0
    arguments = ("score", "--candidates", "out/caps.json", "--metrics", "bleu")
    assert crossmatch(*arguments, "--references", "diorama", *small)[0] == 0
    (tmp_path / "refs.csv").write_text("image_id,caption\nval-00000,a thing\n")
    code, out, err = crossmatch(*arguments, "--references", "refs.csv", "--size", "tiny")
    assert (code, out) == (2, "")
    assert "--size works only when references are a task; refs.csv is a file. Omit it." in err


def test_samples_depend_on_the_seed_and_not_on_batches():
    def collection(n):
        return Collection.from_captions({f"{i:04d}": ["a thing"] for i in range(n)}, str)

    namespace: dict = {}
    exec(TELLERS, namespace)
    model, many = namespace["Teller"](), 2 * IMAGES_PER_GROUP + 5
    whole = generate_captions(model, collection(many), decoding="sampled", seed=3, workers=0)
    assert len(set(whole.values())) == many  # no group of images repeats another
    assert generate_captions(model, collection(many), batch=7, decoding="sampled", seed=3, workers=2) == whole
    part = generate_captions(model, collection(IMAGES_PER_GROUP + 9), decoding="sampled", seed=3, workers=0)
    assert list(part.items())[:IMAGES_PER_GROUP] == list(whole.items())[:IMAGES_PER_GROUP]
    assert generate_captions(model, collection(many), decoding="sampled", seed=4, workers=0) != whole
    model.sizes.clear()
    generate_captions(model, collection(many), batch=50, decoding="greedy", workers=0)
    assert model.sizes == [50, 50, many - 100]


def test_progress_is_shown_on_a_terminal_and_in_lines_elsewhere(crossmatch, monkeypatch):
    from crossmatch.models import caption_generation

    arguments = ("Plain", "--size", "tiny", "--batch", 20)
    assert generate(crossmatch, *arguments)[2] == ""  # it takes no time
    monkeypatch.setattr(caption_generation, "PROGRESS_INTERVAL", 0.0)
    assert generate(crossmatch, *arguments)[2] == "captioned 20 of 50 images\ncaptioned 40 of 50 images\n"
    shown = []

    @contextmanager
    def steps(total, label):
        shown.append((total, label))
        yield lambda process, output: shown.append(process)

    monkeypatch.setattr(caption_generation, "progress_bar", steps)
    generate(crossmatch, *arguments)
    assert shown == [(50, "captioning"), 20, 40, 50]


def test_a_trained_captioner(crossmatch, tmp_path):
    captioning = pytest.importorskip("crossmatch.models.zoo.captioning_model")
    from crossmatch.models.zoo.trained_model import ZooConfig, build_model

    sizes = {"dimensions": 8, "word_dimensions": 8}
    model = build_model(ZooConfig("show-tell", sizes, ("a", "red", "blue", "cup", "dog"), {"kind": "pixels", "side": 32}))
    assert isinstance(model, captioning.CaptioningModel)
    model.save(tmp_path / "runs/told")
    output = {
        "greedy": "greedy decoding",
        "sample": "sampling (temperature 1.0, seed 0)",
        "beam": "beam search (width 5, length penalty 1.0)",
    }
    for decoding, how in output.items():
        arguments = ("generate", "-m", "runs/told", "--size", "tiny", "-o", "out/caps.json", "--decoding", decoding, "--limit", 5)
        code, out, err = crossmatch(*arguments)
        assert (code, err) == (0, "")
        assert f" · 5 captions by {how} · " in out
        first = load_captions(tmp_path)
        assert len(first) == 5
        crossmatch(*arguments)
        assert load_captions(tmp_path) == first
    assert crossmatch(*out.split(" · ")[-1].split()[2:], "--metrics", "bleu")[0] == 0


WRONG = [
    (("-m", "random"), 2, "random generates no captions: it has no caption(images), only: scores."),
    (("-m", "runs/nowhere"), 2, "Train one: crossmatch train updown -o runs/nowhere"),
    (("-m", "tellers.py:Plain", "-o", "caps.csv"), 2, "caps.csv should end in .json"),
    (("-m", "tellers.py:Plain", "--width", "3"), 2, "Plain does not support the option width"),
    (("-m", "tellers.py:Plain", "--length-penalty", "2"), 2, "Remove --length-penalty."),
    (("-m", "tellers.py:Teller", "--decoding", "greedy", "--width", "3"), 2, "width is an option of beam decoding"),
    (("-m", "tellers.py:Teller", "--decoding", "beam", "--temperature", "2"), 2, "temperature is an option of sample decoding"),
    (("-m", "tellers.py:Teller", "--width", "3", "--seed", "1"), 2, "seed is an option of sample decoding"),
    (("-m", "tellers.py:Teller", "--data", "dioarma"), 2, "dioarma"),
    (("-m", "tellers.py:Teller", "--split", "night"), 2, "Unknown diorama split 'night'"),
    (("-m", "tellers.py:Teller", "--temperature", "0"), 2, "'--temperature': 0.0 is not in the range x>0"),
    (("-m", "tellers.py:Teller", "--temperature", "inf"), 2, "'--temperature': expected a finite number, got inf"),
    (("-m", "tellers.py:Teller", "--temperature", "nan"), 2, "'--temperature': expected a finite number, got nan"),
    (("-m", "tellers.py:Teller", "--length-penalty", "-5"), 2, "'--length-penalty': -5.0 is not in the range 0<=x<=10"),
    (("-m", "tellers.py:Teller", "--length-penalty", "11"), 2, "'--length-penalty': 11.0 is not in the range 0<=x<=10"),
    (("-m", "tellers.py:Teller", "--width", "1000"), 2, "'--width': 1000 is not in the range 1<=x<=100"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), WRONG, ids=[" ".join(w)[:60] for w, _, _ in WRONG])
def test_errors_are_one_line(crossmatch, tmp_path, arguments, code, message):
    output = () if "-o" in arguments else ("-o", "out/caps.json")
    actual_code, out, err = crossmatch("generate", *arguments, "--size", "tiny", *output)
    assert (actual_code, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_model_that_returns_no_list_of_texts_is_refused(crossmatch, tmp_path):
    code, _, err = generate(crossmatch, "spoilt", "--size", "tiny")
    assert code == 1
    assert "returned a str for 50 images; expected a list with one text per image" in err
    assert not (tmp_path / "out").exists()

    class Numbers:
        def caption(self, images):
            return [7 for _ in images]

    with pytest.raises(CrossmatchError, match="returned 7 for image 'a'"):
        generate_captions(Numbers(), Collection.from_captions({"a": ["x"]}, str))
