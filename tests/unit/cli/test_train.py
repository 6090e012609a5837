"""`crossmatch train`: recipes as commands, one line for an error, and a training that survives kill -9."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from crossmatch.train.recipe import names

SRC = Path(__file__).parents[3] / "src"
SMALL = [
    word
    for pair in ("model.dimensions=16", "model.word_dimensions=8", "train.fewest=1", "train.batch=20")
    for word in ("--set", pair)
]
WORDS = ("ape", "bee", "cat", "dog", "eel", "fox")


@pytest.fixture
def data(tmp_path):
    """Pictures of two things, in SCAN's layout."""
    folder, rng = tmp_path / "toy", np.random.default_rng(0)
    folder.mkdir()
    codes = rng.standard_normal((len(WORDS), 8)).astype(np.float32)
    for split, images in (("train", 30), ("dev", 10)):
        things = np.stack([rng.permutation(len(WORDS))[:2] for _ in range(images)])
        np.save(folder / f"{split}_ims.npy", codes[things])
        (folder / f"{split}_caps.txt").write_text("".join(f"{WORDS[a]} and {WORDS[b]}\n{WORDS[b]}\n" for a, b in things))
    return "precomp:toy"


def left(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def assert_one_line(err, says):
    assert err.startswith("crossmatch: ")
    assert err.count("\n") == 1
    assert says in err
    assert len(err) < 600


def test_recipes_are_listed(crossmatch, tmp_path):
    code, out, err = crossmatch("train", "--list")
    assert (code, err) == (0, "")
    assert all(any(line.split()[:1] == [name] for line in out.splitlines()) for name in names())
    assert "faghri2018vse" in out
    assert left(tmp_path) == []


def test_help_names_the_place_of_a_recipe(crossmatch):
    code, out, _ = crossmatch("train", "--help")
    assert code == 0
    assert all(word in out for word in ("RECIPE", "dual", "grounded", "--list"))
    for name in ("RECIPE", "vse++"):
        code, out, _ = crossmatch("train", name, "--help")
        assert code == 0
        assert "--restart" in out
        assert f"crossmatch train {name}" in out


def test_a_model_is_trained_loaded_and_evaluated(crossmatch, tmp_path, data):
    words = ("train", "vse0", "--data", data, "-o", "runs/a", "--epochs", "2", *SMALL)
    code, out, err = crossmatch(*words)
    assert code == 0
    assert [line.partition(" · ")[0] for line in err.splitlines()] == ["epoch 1 of 2", "epoch 2 of 2"]
    assert re.match(r"runs/a · epoch [12] of 2, hits in validation add up to [\d.]+ of 600 · ", out)
    assert "crossmatch run -m runs/a -t" in out
    assert {"runs/a/log.csv", "runs/a/model.json"} <= set(left(tmp_path))
    weights = next((tmp_path / "runs/a").glob("weights-*.pt"))
    code, again, err = crossmatch(*words)
    assert (code, again) == (0, out)
    assert "nothing is left to train" in err
    code, _, err = crossmatch(*words, "--seed", "1")
    assert code == 1
    assert_one_line(err, "--restart")
    assert weights.is_file()
    assert crossmatch(*words, "--seed", "1", "--restart")[0] == 0
    assert not weights.is_file()


def test_a_recipe_file_of_ones_own(crossmatch, tmp_path, data):
    (tmp_path / "mine.toml").write_text(
        'family = "vse"\nabout = "mine"\npaper = "faghri2018vse"\n[model]\ndimensions = 16\n[objective]\nname = "triplet"\n'
        "[train]\nepochs = 1\nfewest = 1\n"
    )
    code, out, _ = crossmatch("train", "mine.toml", "--data", data, "-o", "runs/mine")
    assert code == 0
    assert "epoch 1 of 1" in out


WRONG = [
    (("train", "vse"), 2, "no such recipe. Did you mean 'vse0'?"),
    (("train", "nowhere.toml", "-o", "x"), 2, "no recipe file nowhere.toml"),
    (("train", "RECIPE", "-o", "x"), 2, "stands for the name of a recipe"),
    (("train", "vse0"), 2, "Missing option"),
    (("train", "vse0", "-o", "x", "--epochs", "0"), 2, "--epochs"),
    (("train", "vse0", "-o", "x", "--threads", "0"), 2, "--threads"),
    (("train", "vse0", "-o", "x", "--set", "train.epoch=3"), 2, "Did you mean 'epochs'?"),
    (("train", "vse0", "-o", "x", "--set", "model.dimension=3"), 2, "Did you mean 'dimensions'?"),
    (("train", "vse0", "-o", "x", "--set", "train.nonsense=3"), 2, "Known: optimiser, learning_rate, batch, epochs, beta1, "),
    (("train", "vse0", "-o", "x", "--set", "train.nonsense=3"), 2, "validation, threads, seed."),
    (("train", "clip", "-o", "x", "--set", "negatives.noise=0.4"), 2, "--set negatives.noise=0.4: it is for hard negatives, and"),
    (("train", "clip-hard-texts", "-o", "x", "--set", "negatives.noise=0.4"), 2, "the share of wrong negative images"),
    (
        ("train", "clip-hard-pairs", "-o", "x", "--set", "begin.negatives.each=2"),
        2,
        "--set begin.negatives.each=2: it is for hard negatives",
    ),
    (
        ("train", "clip-hard-pairs", "-o", "x", "--data", "collection:ph", "--set", "negatives.noise=0.4"),
        2,
        "for the edits of diorama",
    ),
    (("train", "vse0", "-o", "x", "--data", "dioarma"), 2, "no data 'dioarma'"),
    (("train", "vse0", "-o", "x", "--data", "collection:nowhere"), 2, "nowhere is not there"),
    (("train", "vse0", "-o", "x", "--data", "precomp:nowhere"), 2, "there is no nowhere"),
    (("train", "vse0", "-o", "x", "--size", "huge"), 2, "no size 'huge'"),
    (("train", "vse0", "-o", "x", "--regions", "r.npy"), 2, "--regions goes with"),
    # what is refused before the model to begin with is trained
    (("train", "clip-hard-texts", "-o", "x", "--size", "tiny", "--negatives", "foo.csv"), 2, "--negatives goes with --data"),
    (("train", "clip-hard-texts", "-o", "x", "--data", "collection:ph"), 2, "Name a file: --negatives FILE"),
    (("train", "clip-hard-texts", "-o", "x", "--data", "collection:ph", "--negatives", "foo.csv"), 2, "foo.csv is not there"),
    (("train", "updown-scst", "-o", "x", "--set", "begin.train.epoch=1"), 2, "--set begin.train.epoch=1: [train] has no key"),
    (("train", "updown-scst", "-o", "x", "--set", "begin.model.dimension=1"), 2, "the recipe updown: [model] has no key"),
]


@pytest.mark.parametrize(("words", "code", "says"), WRONG, ids=[" ".join(w)[:60] for w, _, _ in WRONG])
def test_wrong_words_end_with_two_and_one_line(crossmatch, tmp_path, words, code, says):
    found, out, err = crossmatch(*words)
    assert (found, out) == (code, "")
    assert_one_line(err, says)
    assert left(tmp_path) == []


def test_a_file_in_the_place_of_the_folder_and_a_spoilt_recipe(crossmatch, tmp_path, data):
    (tmp_path / "taken").write_text("x")
    code, _, err = crossmatch("train", "vse0", "--data", data, "-o", "taken")
    assert code == 1
    assert_one_line(err, "taken cannot be written to")
    (tmp_path / "bad.toml").write_text("family = \n")
    code, _, err = crossmatch("train", "bad.toml", "--data", data, "-o", "x")
    assert code == 1
    assert_one_line(err, "is not TOML")
    assert not (tmp_path / "x").exists()


def test_without_tensorboard_its_extra_is_named(crossmatch, data, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    code, _, err = crossmatch("train", "vse0", "--data", data, "-o", "x", "--epochs", "1", *SMALL, "--tensorboard")
    assert code == 1
    assert_one_line(err, "crossmatch[tensorboard]")


def test_the_value_of_an_epoch_is_out_of_what_it_could_be():
    from crossmatch.cli.train import out_of
    from crossmatch.train.judge import CHOICES, FOUND, TOLD

    def at_best(words, data="diorama", kind="none", **has):
        return out_of(SimpleNamespace(recipe={"data": data, "negatives": {"kind": kind}}, **has), words)

    assert at_best(FOUND.words, compare=None) == " of 600"
    assert at_best(FOUND.words) == " of 300"  # texts alone: three hits of one search
    assert at_best(TOLD.words) == ""
    assert [at_best(CHOICES, kind=kind) for kind in ("unused", "texts", "pairs")] == [" of 400"] * 3
    assert [at_best(CHOICES, "collection:mine", kind) for kind in ("texts", "pairs")] == [" of 100", " of 400"]


@pytest.mark.parametrize(("more", "which"), [((), ""), (("--restart",), " without --restart")])
def test_ctrl_c_says_that_the_same_command_goes_on(crossmatch, monkeypatch, more, which):
    from crossmatch.train import zoo

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(zoo, "train_zoo", stop)
    code, _, err = crossmatch("train", "vse0", "-o", "x", *more)
    assert (code, err.splitlines()[-1]) == (130, f"crossmatch: stopped; the same command{which} goes on.")


def outside(*words, cwd):
    """Call it as a user does."""
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    return subprocess.Popen([sys.executable, "-m", "crossmatch", *words], cwd=cwd, env=environment, stdout=subprocess.DEVNULL)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no signals")
def test_a_training_that_is_killed_from_outside_ends_with_the_same_weights(crossmatch, tmp_path, data):
    words = ("train", "vse++", "--data", data, "--epochs", "60", *SMALL)
    process = outside(*words, "-o", "killed", cwd=tmp_path)
    log = tmp_path / "killed/log.csv"
    while not log.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    epochs = len(log.read_text().splitlines()) - 1
    assert 1 <= epochs < 60
    assert not (tmp_path / "killed/model.json").exists()
    code, _, err = crossmatch("run", "-m", "./killed", "-t", "diorama/retrieval", "--size", "tiny")
    assert code == 2
    assert_one_line(err, "is not finished. Start it again with the same words")
    code, _, err = crossmatch(*words, "-o", "killed")
    assert code == 0
    assert "goes on after epoch" in err
    assert "\nepoch 60 of 60 · loss " in err
    assert crossmatch(*words, "-o", "whole")[0] == 0
    killed, whole = (next((tmp_path / name).glob("weights-*.pt")) for name in ("killed", "whole"))
    assert killed.name == whole.name
    assert killed.read_bytes() == whole.read_bytes()
    assert [len((tmp_path / name / "log.csv").read_text().splitlines()) for name in ("killed", "whole")] == [61, 61]


def test_a_folder_without_a_name_is_refused_and_one_with_spaces_is_quoted(crossmatch, data, tmp_path):
    code, _, err = crossmatch("train", "vse0", "--data", data, "-o", "", *SMALL)
    assert code == 2
    assert_one_line(err, "it is empty. Name a folder")
    code, out, err = crossmatch("train", "vse0", "--data", data, "-o", "my run", "--epochs", 1, *SMALL)
    assert code == 0, err
    assert "crossmatch run -m 'my run' -t" in out


@pytest.mark.parametrize(
    "words", [("vse0",), ("updown",), ("clip-in-batch", "--begin", "hf:x"), ("detector", "-m", "bow"), ("dual",)]
)
def test_what_others_wrote_is_not_replaced(crossmatch, tmp_path, words):
    (tmp_path / "notmine").mkdir()
    (tmp_path / "notmine/model.json").write_text("hello\n")
    code, out, err = crossmatch("train", *words, "-o", "notmine")
    assert (code, out) == (2, "")
    assert_one_line(err, "notmine holds model.json, which")
    assert (tmp_path / "notmine/model.json").read_text() == "hello\n"
    assert left(tmp_path) == ["notmine/model.json"]
    code, _, err = crossmatch("train", *words, "-o", "nowhere/../runs")
    assert code == 2
    assert_one_line(err, "nowhere is no folder that is there")
    assert left(tmp_path) == ["notmine/model.json"]
    assert not (tmp_path / "nowhere").exists()


def test_it_is_replaced_when_that_is_asked_for(crossmatch, tmp_path, data):
    (tmp_path / "notmine/checkpoints").mkdir(parents=True)
    for name in ("model.json", "checkpoints/mine.pt"):
        (tmp_path / "notmine" / name).write_text("hello\n")
    code, out, _ = crossmatch("train", "vse0", "--data", data, "-o", "notmine", "--epochs", 1, *SMALL, "--restart")
    assert (code, out.partition(" ")[0]) == (0, "notmine")
    assert (tmp_path / "notmine/checkpoints/mine.pt").read_text() == "hello\n"  # no name that a checkpoint has


def test_a_captioner_that_learnt_nothing_says_so_and_the_likelier_epoch_is_kept(crossmatch, tmp_path, data):
    words = ("train", "show-tell", "--data", data, "-o", "runs/a", "--epochs", "3", *SMALL, "--set", "train.learning_rate=1e-4")
    code, out, _ = crossmatch(*words)
    assert code == 0
    log = [row.split(",") for row in (tmp_path / "runs/a/log.csv").read_text().splitlines()]
    table = [dict(zip(log[0], row, strict=True)) for row in log[1:]]
    assert {round(float(row["sum"]), 6) for row in table} == {0.0}
    likely = [float(row["val log-likelihood per word"]) for row in table]
    assert likely[0] < likely[1] < likely[2]
    kept = "the one to which the true captions are likeliest is kept"
    assert f"epoch 3 of 3, CIDEr-D x 100 in validation is 0.0, as in every epoch: {kept}" in out


def test_a_result_that_cannot_be_written_names_its_place(crossmatch, monkeypatch, tmp_path):
    from crossmatch.core import result

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(result.np, "savez_compressed", full)
    code, _, err = crossmatch("run", "-m", "random", "-t", "diorama/retrieval", "--size", "tiny", "--samples", 10, "-o", "results")
    assert code == 1
    assert_one_line(err, "retrieval")
    assert_one_line(err, "(No space left on device). Make room, or name another folder with -o.")


def test_a_kept_collection_without_blocks_is_listed(crossmatch, tmp_path):
    (tmp_path / "kept/abc").mkdir(parents=True)
    about = '{"key": "abc", "system": "mine", "images": 0, "captions": 0, "blocks": 0}'
    (tmp_path / "kept/abc/about.json").write_text(about)
    code, out, err = crossmatch("cache", "list", "--cache", "kept")
    assert code == 0, err
    assert "mine" in out
