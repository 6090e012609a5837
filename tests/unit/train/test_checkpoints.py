"""Checkpoints: whole or noticed, of this training or refused; and a folder is for one process at a time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from crossmatch.core.errors import CrossmatchError
from crossmatch.train.checkpoints import Checkpoints, Identity, alone

SRC = str(Path(__file__).parents[3] / "src")


@pytest.fixture
def kept(tmp_path):
    said = []
    found = Checkpoints(tmp_path, Identity("aaa", "bbb"), said.append)
    return found, said


def save(checkpoints, *steps):
    for step in steps:
        checkpoints.save(step, {"step": step, "weights": torch.full((50,), float(step))})


def files(checkpoints):
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_the_newest_two_are_kept(kept):
    checkpoints, said = kept
    assert checkpoints.latest() is None
    save(checkpoints, 1, 20, 300)
    assert files(checkpoints) == ["000000020.checkpoint", "000000300.checkpoint"]
    found = checkpoints.latest()
    assert found["step"] == 300
    assert torch.equal(found["weights"], torch.full((50,), 300.0))
    assert said == []


def cut(raw):
    return raw[: len(raw) // 2]


def flipped(raw):
    return raw[:-40] + bytes([raw[-40] ^ 1]) + raw[-39:]


def no_head(raw):
    return raw.partition(b"\n")[2]


@pytest.mark.parametrize("damage", [cut, flipped, no_head, lambda raw: b"", lambda raw: raw.partition(b"\n")[0]])
def test_a_damaged_checkpoint_is_noticed_and_the_one_before_it_is_used(kept, damage):
    checkpoints, said = kept
    save(checkpoints, 1, 2)
    newest = checkpoints.folder / "000000002.checkpoint"
    newest.write_bytes(damage(newest.read_bytes()))
    assert checkpoints.latest()["step"] == 1
    assert len(said) == 1
    assert "000000002.checkpoint is damaged" in said[0]
    oldest = checkpoints.folder / "000000001.checkpoint"
    oldest.write_bytes(damage(oldest.read_bytes()))
    assert checkpoints.latest() is None


def test_what_a_killed_process_left_is_swept_up(kept):
    checkpoints, said = kept
    save(checkpoints, 1)
    (checkpoints.folder / ".000000002.checkpoint.x.part").write_bytes(b"half")
    assert checkpoints.latest()["step"] == 1
    assert files(checkpoints) == ["000000001.checkpoint"]
    assert said == []


@pytest.mark.parametrize(("other", "says"), [(("x", "bbb"), "another recipe"), (("aaa", "x"), "another data|other data")])
def test_a_checkpoint_of_another_training_is_refused(kept, other, says):
    checkpoints, _ = kept
    save(checkpoints, 1)
    with pytest.raises(CrossmatchError, match=says) as error:
        Checkpoints(checkpoints.output, Identity(*other)).latest()
    assert "--restart" in str(error.value)
    assert checkpoints.latest()["step"] == 1


def test_a_checkpoint_of_another_format_is_refused(kept, monkeypatch):
    checkpoints, _ = kept
    monkeypatch.setattr("crossmatch.train.checkpoints.FORMAT", 99)
    save(checkpoints, 1)
    monkeypatch.undo()
    with pytest.raises(CrossmatchError, match="has format 99"):
        checkpoints.latest()


HOLD = """
import sys
from pathlib import Path
from crossmatch.train.checkpoints import alone
with alone(Path(sys.argv[1])):
    print("in", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_told_and_a_killed_one_frees_the_folder(tmp_path):
    folder = tmp_path / "runs/a"
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": SRC},
    )  # fmt: skip
    try:
        assert other.stdout.readline() == "in\n"
        with pytest.raises(CrossmatchError, match=r"another process is training in .*runs/a"), alone(folder):
            pass
    finally:
        other.kill()
        other.communicate()
    with alone(folder):
        assert folder.is_dir()


def test_a_folder_in_which_nothing_was_written_is_not_left_behind(tmp_path):
    with pytest.raises(RuntimeError), alone(tmp_path / "runs/deep/a"):
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with alone(tmp_path / "runs/a"):
        (tmp_path / "runs/a/log.csv").write_text("x")
    assert sorted(os.listdir(tmp_path / "runs/a")) == ["lock", "log.csv"]


def test_a_folder_that_cannot_be_is_told(tmp_path):
    (tmp_path / "taken").write_text("x")
    for folder in (tmp_path / "taken", tmp_path / "taken/deeper"):
        with pytest.raises(CrossmatchError, match=r"cannot be written to.*-o"), alone(folder):
            pass
    assert (tmp_path / "taken").read_text() == "x"
