"""`crossmatch train detector`: both sides in one command, a folder that answers trials, and the same weights after kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

SRC = Path(__file__).parents[3] / "src"
ENCODER = """
import time

import numpy as np

class Toy:
    signature = "toy|weights:1"

    def embed_images(self, images):
        small = np.stack([np.asarray(image.convert("RGB").resize((8, 8))) for image in images]) / 255
        return small.reshape(len(small), -1) - 0.5

    def embed_texts(self, texts):
        return np.array([[1.0, *(text.count(letter) / 10 for letter in "abcdefghijklmnopqrstuvwxyz ")] for text in texts])
"""
SMALL = ("--size", "tiny", "--images", "15", "--epochs", "5", "--cache", "cache")


@pytest.fixture
def crossmatch(crossmatch, tmp_path):
    (tmp_path / "toy.py").write_text(ENCODER)
    return crossmatch


def weights(folder):
    path = next(folder.glob("weights-*.pt"))
    return path.name, path.read_bytes()


def test_a_detector_is_trained_and_answers_trials(crossmatch, tmp_path):
    words = ("train", "detector", "-m", "toy.py:Toy", "-o", "runs/detector", *SMALL)
    code, out, err = crossmatch(*words)
    assert code == 0
    assert out.startswith("runs/detector · right in validation: texts ")
    assert out.endswith("crossmatch run -m runs/detector -t diorama/bivlc,diorama/sugarcrepe --size tiny\n")
    told = json.loads((tmp_path / "runs/detector/model.json").read_text())
    assert (told["family"], told["config"]["embedder"]) == ("detector", "toy.py:Toy")
    code, again, err = crossmatch(*words)
    assert (code, again) == (0, out)
    assert "nothing is left to train" in err
    code, _, err = crossmatch(*words, "--seed", "1")
    assert code == 1
    assert "--restart" in err
    code, out, err = crossmatch(
        "run",
        "-m",
        "runs/detector",
        "-t",
        "diorama/bivlc,diorama/sugarcrepe",
        "--size",
        "tiny",
        "--samples",
        20,
        "--cache",
        "cache",
    )
    assert code == 0
    assert "image detection: " in out
    assert "text detection: " in out
    code, out, _ = crossmatch(
        "run", "-m", "detector:runs/detector", "-t", "diorama/bivlc", "--size", "tiny", "--samples", 20, "--json"
    )
    assert code == 0
    assert json.loads(out)["diorama/bivlc"]["group"] >= 0


WRONG = [
    (("-m", "tfidf", "-o", "x"), 2, "fitted to the texts"),
    (("-m", "random", "-o", "x"), 2, "embeds no texts"),
    (("-o", "x"), 2, "Missing option"),
    (("-m", "toy.py:Toy", "-o", "x", "--data", "diorama/retrieval+size=tiny"), 2, "no trials"),
    (("-m", "toy.py:Toy", "-o", "x", "--data", "nowhere"), 2, "nowhere"),
    (("-m", "toy.py:Toy", "-o", "x", "--size", "huge"), 2, "no size 'huge'"),
    (("-m", "toy.py:Toy", "-o", "x", "--learning-rate", "0"), 2, "--learning-rate"),
    (("-m", "toy.py:Toy", "-o", "x", "--cache", "c", "--no-cache"), 2, "contradict"),
]


@pytest.mark.parametrize(("words", "code", "says"), WRONG, ids=[" ".join(w)[:60] for w, _, _ in WRONG])
def test_wrong_words_end_with_two_and_one_line(crossmatch, tmp_path, words, code, says):
    found, out, err = crossmatch("train", "detector", *words)
    assert (found, out) == (code, "")
    assert says in err
    assert err.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_ctrl_c_says_that_the_same_command_goes_on(crossmatch, monkeypatch):
    from crossmatch.train import detector

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(detector, "train_detector", stop)
    code, _, err = crossmatch("train", "detector", "-m", "toy.py:Toy", "-o", "x", *SMALL)
    assert (code, err.splitlines()[-1]) == (130, "crossmatch: stopped; the same command goes on.")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no signals")
def test_one_that_is_killed_from_outside_ends_with_the_same_weights(crossmatch, tmp_path):
    words = ("train", "detector", "-m", "toy.py:Toy", *SMALL, "--batch", "4")
    slow = (tmp_path / "toy.py").read_text().replace("        small =", "        time.sleep(0.05)\n        small =")
    (tmp_path / "toy.py").write_text(slow)
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    process = subprocess.Popen(
        [sys.executable, "-m", "crossmatch", *words, "-o", "killed"],
        cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    kept = tmp_path / "cache/embeddings"
    while process.poll() is None and len(list(kept.glob("*/*.vectors"))) < 40:  # the texts of both splits fill some 35
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed/model.json").exists()
    before = len(list(kept.glob("*/*.vectors")))
    code, _, err = crossmatch(*words, "-o", "killed")
    assert code == 0
    assert "were embedded before" in err
    assert len(list(kept.glob("*/*.vectors"))) > before  # it was in the middle of its work
    assert crossmatch(*words, "-o", "whole", "--cache", "other")[0] == 0
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")


@pytest.mark.parametrize("words", [("--learning-rate", "nan"), ("--learning-rate", "inf"), ("--train-batch", str(2**63))])
def test_numbers_beyond_all_measure_are_wrong_words(crossmatch, tmp_path, words):
    code, _, err = crossmatch("train", "detector", "-m", "toy.py:Toy", "-o", "runs/detector", *SMALL, *words)
    assert code == 2
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()
