"""`crossmatch train`: recipes as commands, one line for an error, and a training that survives kill -9."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from crossmatch.train.recipe import recipe_names
from polling import wait_until

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


def list_files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def assert_one_line(err, message):
    assert err.startswith("crossmatch: ")
    assert err.count("\n") == 1
    assert message in err
    assert len(err) < 600


def test_recipes_are_listed(crossmatch, tmp_path):
    code, out, err = crossmatch("list", "recipes")
    assert (code, err) == (0, "")
    assert all(any(line.split()[:1] == [name] for line in out.splitlines()) for name in recipe_names())
    assert "faghri2018vse" in out
    assert list_files(tmp_path) == []


def test_help_works_with_and_without_a_recipe(crossmatch):
    for arguments in (("train", "--help"), ("train", "vse++", "--help")):
        code, out, _ = crossmatch(*arguments)
        assert code == 0
        assert "RECIPE" in out
        assert "--restart" in out


def test_model_is_trained_loaded_and_evaluated(crossmatch, tmp_path, data):
    arguments = ("train", "vse0", "--data", data, "-o", "runs/a", "--epochs", "2", *SMALL)
    code, out, err = crossmatch(*arguments)
    assert code == 0
    assert [line.partition(" · ")[0] for line in err.splitlines()] == ["epoch 1 of 2", "epoch 2 of 2"]
    assert re.match(r"runs/a · epoch [12] of 2, hits in validation add up to [\d.]+ of 600 · ", out)
    assert "crossmatch run -m regions:FILE+runs/a -t" in out
    assert {"runs/a/log.csv", "runs/a/model.json"} <= set(list_files(tmp_path))
    weights = next((tmp_path / "runs/a").glob("weights-*.pt"))
    code, again, err = crossmatch(*arguments)
    assert (code, again) == (0, out)
    assert "nothing left to train" in err
    code, _, err = crossmatch(*arguments, "--seed", "1")
    assert code == 1
    assert_one_line(err, "--restart")
    assert weights.is_file()
    assert crossmatch(*arguments, "--seed", "1", "--restart")[0] == 0
    assert not weights.is_file()


def test_own_recipe_file_is_trained(crossmatch, tmp_path, data):
    (tmp_path / "mine.toml").write_text(
        'family = "vse"\nabout = "mine"\npaper = "faghri2018vse"\n[model]\ndimensions = 16\n[objective]\nname = "triplet"\n'
        "[train]\nepochs = 1\nfewest = 1\n"
    )
    code, out, _ = crossmatch("train", "mine.toml", "--data", data, "-o", "runs/mine")
    assert code == 0
    assert "epoch 1 of 1" in out


WRONG = [
    (("train", "vse", "-o", "x"), 2, "no recipe 'vse'. Did you mean 'vse0'?"),
    (("train", "nowhere.toml", "-o", "x"), 2, "nowhere.toml cannot be read"),
    (("train", "vse0"), 2, "Missing option"),
    (("train", "vse0", "-o", "x", "--epochs", "0"), 2, "--epochs"),
    (("train", "vse0", "-o", "x", "--threads", "0"), 2, "--threads"),
    (("train", "vse0", "-o", "x", "--set", "train.epoch=3"), 2, "Did you mean 'epochs'?"),
    (("train", "vse0", "-o", "x", "--set", "model.dimension=3"), 2, "Did you mean 'dimensions'?"),
    (("train", "vse0", "-o", "x", "--set", "train.nonsense=3"), 2, "Known: optimiser, learning_rate, batch, epochs, beta1, "),
    (("train", "vse0", "-o", "x", "--set", "train.nonsense=3"), 2, "validation, threads, seed."),
    (
        ("train", "clip", "-o", "x", "--set", "negatives.noise=0.4"),
        2,
        "--set negatives.noise=0.4: it has no effect",
    ),
    (("train", "clip-hard-texts", "-o", "x", "--set", "negatives.noise=0.4"), 2, "the share of wrong negative images"),
    (
        ("train", "clip-hard-pairs", "-o", "x", "--set", "begin.negatives.each=2"),
        2,
        "--set begin.negatives.each=2: it has no effect",
    ),
    (
        ("train", "clip-hard-pairs", "-o", "x", "--data", "collection:ph", "--set", "negatives.noise=0.4"),
        2,
        "applies to the edits of diorama",
    ),
    (("train", "vse0", "-o", "x", "--data", "dioarma"), 2, "--data dioarma: expected"),
    (("train", "vse0", "-o", "x", "--data", "collection:nowhere"), 2, "nowhere does not exist"),
    (("train", "vse0", "-o", "x", "--data", "precomp:nowhere"), 2, "nowhere does not exist"),
    (("train", "vse0", "-o", "x", "--size", "huge"), 2, "no size 'huge'"),
    (("train", "vse0", "-o", "x", "--regions", "r.npy"), 2, "--regions applies to"),
    # what is refused before the model to begin with is trained
    (("train", "clip-hard-texts", "-o", "x", "--size", "tiny", "--negatives", "foo.csv"), 2, "--negatives applies to --data"),
    (("train", "clip-hard-texts", "-o", "x", "--data", "collection:ph"), 2, "Name a file: --negatives FILE"),
    (("train", "clip-hard-texts", "-o", "x", "--data", "collection:ph", "--negatives", "foo.csv"), 2, "foo.csv does not exist"),
    (("train", "updown-scst", "-o", "x", "--set", "begin.train.epoch=1"), 2, "--set begin.train.epoch=1: [train] has no key"),
    (("train", "updown-scst", "-o", "x", "--set", "begin.model.dimension=1"), 2, "The recipe updown: [model] has no key"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), WRONG, ids=[" ".join(w)[:60] for w, _, _ in WRONG])
def test_wrong_usage_exits_with_2_and_one_line(crossmatch, tmp_path, arguments, code, message):
    actual_code, out, err = crossmatch(*arguments)
    assert (actual_code, out) == (code, "")
    assert_one_line(err, message)
    assert list_files(tmp_path) == []


def test_file_instead_of_folder_and_broken_recipe_are_refused(crossmatch, tmp_path, data):
    (tmp_path / "taken").write_text("x")
    code, _, err = crossmatch("train", "vse0", "--data", data, "-o", "taken")
    assert code == 1
    assert_one_line(err, "-o taken: cannot write there")
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


def test_validation_score_has_its_maximum():
    from crossmatch.cli.train import best_possible
    from crossmatch.train.validation import CAPTIONING, RETRIEVAL, TRIALS

    def at_best(arguments, data="diorama", kind="none", **has):
        return best_possible(SimpleNamespace(recipe={"data": data, "negatives": {"kind": kind}}, **has), arguments)

    assert at_best(RETRIEVAL.label, compare=None) == " of 600"
    assert at_best(RETRIEVAL.label) == " of 300"  # texts alone: three hits of one search
    assert at_best(CAPTIONING.label) == ""
    assert [at_best(TRIALS.label, kind=kind) for kind in ("unused", "texts", "pairs")] == [" of 400"] * 3
    assert [at_best(TRIALS.label, "collection:mine", kind) for kind in ("texts", "pairs")] == [" of 100", " of 400"]


@pytest.mark.parametrize(("more", "which"), [((), ""), (("--restart",), " without --restart")])
def test_ctrl_c_says_that_the_same_command_resumes(crossmatch, monkeypatch, more, which):
    from crossmatch.train import run_recipe

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_recipe, "train_recipe", stop)
    code, _, err = crossmatch("train", "vse0", "-o", "x", *more)
    assert (code, err.splitlines()[-1]) == (130, f"crossmatch: stopped. Run the same command again{which} to resume.")


def outside(*arguments, cwd):
    """Call it as a user does."""
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    return subprocess.Popen([sys.executable, "-m", "crossmatch", *arguments], cwd=cwd, env=environment, stdout=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no signals")
def test_killed_training_resumes_to_the_same_weights(crossmatch, tmp_path, data):
    arguments = ("train", "vse++", "--data", data, "--epochs", "60", *SMALL)
    process = outside(*arguments, "-o", "killed", cwd=tmp_path)
    log = tmp_path / "killed/log.csv"
    wait_until(lambda: log.exists() or process.poll() is not None)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    epochs = len(log.read_text().splitlines()) - 1
    assert 1 <= epochs < 60
    assert not (tmp_path / "killed/model.json").exists()
    code, _, err = crossmatch("run", "-m", "./killed", "-t", "diorama/retrieval", "--size", "tiny")
    assert code == 2
    assert_one_line(err, "is not finished. Run the same command again")
    code, _, err = crossmatch(*arguments, "-o", "killed")
    assert code == 0
    assert "after epoch" in err
    assert "\nepoch 60 of 60 · loss " in err
    assert crossmatch(*arguments, "-o", "whole")[0] == 0
    killed, whole = (next((tmp_path / name).glob("weights-*.pt")) for name in ("killed", "whole"))
    assert killed.name == whole.name
    assert killed.read_bytes() == whole.read_bytes()
    assert [len((tmp_path / name / "log.csv").read_text().splitlines()) for name in ("killed", "whole")] == [61, 61]


def test_empty_folder_name_is_refused_and_spaces_are_quoted(crossmatch, data, tmp_path):
    code, _, err = crossmatch("train", "vse0", "--data", data, "-o", "", *SMALL)
    assert code == 2
    assert_one_line(err, "path is empty. Name a folder")
    code, out, err = crossmatch("train", "vse0", "--data", data, "-o", "my run", "--epochs", 1, *SMALL)
    assert code == 0, err
    assert "crossmatch run -m 'regions:FILE+my run' -t" in out


@pytest.mark.parametrize(
    "arguments", [("vse0",), ("updown",), ("clip-in-batch", "--begin", "hf:x"), ("detector", "--begin", "bow"), ("dual",)]
)
def test_other_files_are_not_replaced(crossmatch, tmp_path, arguments):
    (tmp_path / "notmine").mkdir()
    (tmp_path / "notmine/model.json").write_text("hello\n")
    code, out, err = crossmatch("train", *arguments, "-o", "notmine")
    assert (code, out) == (2, "")
    assert_one_line(err, "would replace model.json, which")
    assert (tmp_path / "notmine/model.json").read_text() == "hello\n"
    assert list_files(tmp_path) == ["notmine/model.json"]
    code, _, err = crossmatch("train", *arguments, "-o", "nowhere/../runs")
    assert code == 2
    assert_one_line(err, "the folder nowhere does not exist")
    assert list_files(tmp_path) == ["notmine/model.json"]
    assert not (tmp_path / "nowhere").exists()


def test_restart_replaces_an_earlier_training(crossmatch, tmp_path, data):
    (tmp_path / "notmine/checkpoints").mkdir(parents=True)
    for name in ("model.json", "checkpoints/mine.pt"):
        (tmp_path / "notmine" / name).write_text("hello\n")
    code, out, _ = crossmatch("train", "vse0", "--data", data, "-o", "notmine", "--epochs", 1, *SMALL, "--restart")
    assert (code, out.partition(" ")[0]) == (0, "notmine")
    assert (tmp_path / "notmine/checkpoints/mine.pt").read_text() == "hello\n"  # no name that a checkpoint has


def test_captioner_without_progress_keeps_the_likeliest_epoch(crossmatch, tmp_path, data):
    arguments = ("train", "show-tell", "--data", data, "-o", "runs/a", "--epochs", "3", *SMALL, "--set", "train.learning_rate=1e-4")
    code, out, _ = crossmatch(*arguments)
    assert code == 0
    log = [row.split(",") for row in (tmp_path / "runs/a/log.csv").read_text().splitlines()]
    table = [dict(zip(log[0], row, strict=True)) for row in log[1:]]
    assert {round(float(row["sum"]), 6) for row in table} == {0.0}
    likely = [float(row["val log-likelihood per word"]) for row in table]
    assert likely[0] < likely[1] < likely[2]
    kept = "the one with the highest likelihood of the true captions are kept"
    assert (
        "epoch 3 of 3, CIDEr-D x 100 in validation is 0.0. "
        f"Validation score did not improve in any epoch; the weights of {kept}" in out
    )


def test_unwritable_result_names_its_path(crossmatch, monkeypatch, tmp_path):
    from crossmatch.data import result

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(result.np, "savez_compressed", full)
    code, _, err = crossmatch("run", "-m", "random", "-t", "diorama/retrieval", "--size", "tiny", "--samples", 10, "-o", "results")
    assert code == 1
    assert_one_line(err, "retrieval")
    assert_one_line(err, "(No space left on device)")


def test_cached_collection_without_blocks_is_listed(crossmatch, tmp_path):
    (tmp_path / "kept/abc").mkdir(parents=True)
    about = '{"key": "abc", "system": "mine", "images": 0, "captions": 0, "blocks": 0}'
    (tmp_path / "kept/abc/about.json").write_text(about)
    code, out, err = crossmatch("cache", "--cache", "kept")
    assert code == 0, err
    assert "mine" in out


def test_printed_command_works_for_a_model_of_region_features(crossmatch, tmp_path):
    """Such a model cannot compute regions from images, so the command names the file."""
    from PIL import Image

    images = [f"{n}.png" for n in range(8)]
    (tmp_path / "pets/images").mkdir(parents=True)
    for name in images:
        Image.new("RGB", (4, 4)).save(tmp_path / "pets/images" / name)
    rows = [f"{name},a {WORDS[n % 6]} and a {WORDS[n // 2]}" for n, name in enumerate(images)]
    (tmp_path / "pets/captions.csv").write_text("\n".join(["image,caption", *rows]) + "\n")
    np.savez(tmp_path / "r.npz", ids=images, features=np.random.default_rng(0).standard_normal((8, 3, 8)).astype(np.float32))
    arguments = ("--data", "collection:pets", "--regions", "r.npz", "--epochs", 1, "-o", "run", *SMALL)
    code, out, err = crossmatch("train", "scan-t2i", *arguments)
    assert code == 0, err
    command = out.strip().split(" · ")[-1].split()
    assert command == ["crossmatch", "run", "-m", "regions:r.npz+run", "-t", "collection:pets"]
    code, out, err = crossmatch(*command[1:])
    assert code == 0, err
    assert "R@1" in out


def test_printed_command_has_a_placeholder_for_features_of_other_images(crossmatch, data):
    code, out, err = crossmatch("train", "vse0", "--data", data, "--epochs", 1, "-o", "run", *SMALL)
    assert code == 0, err
    assert out.strip().endswith("crossmatch run -m regions:FILE+run -t TASK")
