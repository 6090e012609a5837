"""`crossmatch train detector`: both sides in one command, a folder that answers trials, and the same weights after kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from polling import wait_until

pytest.importorskip("torch")

SRC = Path(__file__).parents[3] / "src"
ENCODER = """
import time
from pathlib import Path

import numpy as np

class Toy:
    signature = "toy|weights:1"

    def embed_images(self, images):
        small = np.stack([np.asarray(image.convert("RGB").resize((8, 8))) for image in images]) / 255
        return small.reshape(len(small), -1) - 0.5

    def embed_texts(self, texts):
        return np.array([[1.0, *(text.count(letter) / 10 for letter in "abcdefghijklmnopqrstuvwxyz ")] for text in texts])
"""
HOLD = """
calls = 0

def hold_in_call(number):
    global calls
    calls += 1
    if calls == number:
        Path("waits").touch()
        while Path("hold").exists():
            time.sleep(0.01)
"""
SMALL = ("--size", "tiny", "--images", "15", "--epochs", "5")


@pytest.fixture
def crossmatch(crossmatch, tmp_path):
    (tmp_path / "toy.py").write_text(ENCODER)
    return crossmatch


def weights(folder):
    path = next(folder.glob("weights-*.pt"))
    return path.name, path.read_bytes()


def test_detector_is_trained_and_answers_trials(crossmatch, tmp_path):
    arguments = ("train", "detector", "--begin", "toy.py:Toy", "-o", "runs/detector", *SMALL)
    code, out, err = crossmatch(*arguments)
    assert code == 0
    assert out.startswith("runs/detector · correct in validation: texts ")
    assert out.endswith("crossmatch run -m runs/detector -t diorama/bivlc,diorama/sugarcrepe --size tiny\n")
    description = json.loads((tmp_path / "runs/detector/model.json").read_text())
    assert (description["family"], description["config"]["embedder"]) == ("detector", "toy.py:Toy")
    code, again, err = crossmatch(*arguments)
    assert (code, again) == (0, out)
    assert "nothing left to train" in err
    code, _, err = crossmatch(*arguments, "--seed", "1")
    assert code == 1
    assert "--restart" in err
    evaluation = ("-t", "diorama/bivlc,diorama/sugarcrepe", "--size", "tiny", "--samples", 20)
    code, out, err = crossmatch("run", "-m", "runs/detector", *evaluation)
    assert code == 0
    assert "image detection: " in out
    assert "text detection: " in out
    code, out, _ = crossmatch(
        "run", "-m", "detector:runs/detector", "-t", "diorama/bivlc", "--size", "tiny", "--samples", 20, "--json"
    )
    assert code == 0
    assert json.loads(out)["diorama/bivlc"]["group"] >= 0


WRONG = [
    (("--begin", "tfidf", "-o", "x"), 2, "fitted to the texts"),
    (("--begin", "random", "-o", "x"), 2, "embeds no texts"),
    (("-o", "x"), 2, "needs a model that embeds texts: --begin MODEL"),
    (("--begin", "toy.py:Toy", "-o", "x", "--data", "diorama/retrieval+size=tiny"), 2, "no trials"),
    (("--begin", "toy.py:Toy", "-o", "x", "--data", "nowhere"), 2, "nowhere"),
    (("--begin", "toy.py:Toy", "-o", "x", "--size", "huge"), 2, "no size 'huge'"),
    (("--begin", "toy.py:Toy", "-o", "x", "--set", "train.learning_rate=0"), 2, "learning_rate"),
    (("--begin", "toy.py:Toy", "-o", "x", "--images", "4"), 2, "--images must be at least 5"),
    (("--begin", "toy.py:Toy", "-o", "x", "--regions", "r.npy"), 2, "--regions has no effect"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), WRONG, ids=[" ".join(w)[:60] for w, _, _ in WRONG])
def test_wrong_usage_exits_with_2_and_one_line(crossmatch, tmp_path, arguments, code, message):
    actual_code, out, err = crossmatch("train", "detector", *arguments)
    assert (actual_code, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_ctrl_c_says_that_the_same_command_resumes(crossmatch, monkeypatch):

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("crossmatch.train.synthetic_detector.train_detector", stop)
    code, _, err = crossmatch("train", "detector", "--begin", "toy.py:Toy", "-o", "x", *SMALL)
    assert (code, err.splitlines()[-1]) == (130, "crossmatch: stopped. Run the same command again to resume.")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no signals")
def test_killed_training_resumes_to_the_same_weights(crossmatch, tmp_path, monkeypatch):
    arguments = ("train", "detector", "--begin", "toy.py:Toy", *SMALL, "--set", "features.batch=4")
    (tmp_path / "toy.py").write_text(ENCODER.replace("        small =", "        hold_in_call(3)\n        small =") + HOLD)
    (tmp_path / "hold").touch()
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    process = subprocess.Popen(
        [sys.executable, "-m", "crossmatch", *arguments, "-o", "killed"],
        cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    saved = Path(os.environ["XDG_CACHE_HOME"]) / "crossmatch/cache/embeddings"
    wait_until(lambda: (tmp_path / "waits").exists() or process.poll() is not None)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    (tmp_path / "hold").unlink()
    assert not (tmp_path / "killed/model.json").exists()
    before = len(list(saved.glob("*/*.block")))
    code, _, err = crossmatch(*arguments, "-o", "killed")
    assert code == 0
    assert "reusing the embeddings of" in err
    assert len(list(saved.glob("*/*.block"))) > before  # it was in the middle of its work
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another cache"))
    assert crossmatch(*arguments, "-o", "whole")[0] == 0
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")


@pytest.mark.parametrize("arguments", [("--set", "train.learning_rate=nan"), ("--set", f"train.batch={2**63}")])
def test_absurd_numbers_are_wrong_usage(crossmatch, tmp_path, arguments):
    code, _, err = crossmatch("train", "detector", "--begin", "toy.py:Toy", "-o", "runs/detector", *SMALL, *arguments)
    assert code == 2
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()
