"""Checkpoints: whole or noticed, of this training or refused; and a folder is for one process at a time."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from crossmatch.data.errors import CrossmatchError
from crossmatch.train.checkpoints import Checkpoints, TrainingIdentity
from crossmatch.train.output_folder import lock_folder

SRC = str(Path(__file__).parents[3] / "src")


@pytest.fixture
def checkpoints_and_messages(tmp_path):
    messages = []
    checkpoints = Checkpoints(tmp_path, TrainingIdentity("aaa", "bbb"), messages.append)
    return checkpoints, messages


def save(checkpoints, *steps):
    for step in steps:
        checkpoints.save(step, {"step": step, "weights": torch.full((50,), float(step))})


def files(checkpoints):
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_newest_two_checkpoints_are_kept(checkpoints_and_messages):
    checkpoints, messages = checkpoints_and_messages
    assert checkpoints.load_latest() is None
    save(checkpoints, 1, 20, 300)
    assert files(checkpoints) == ["000000020.checkpoint", "000000300.checkpoint"]
    state = checkpoints.load_latest()
    assert state["step"] == 300
    assert torch.equal(state["weights"], torch.full((50,), 300.0))
    assert messages == []


def cut(raw):
    return raw[: len(raw) // 2]


def flipped(raw):
    return raw[:-40] + bytes([raw[-40] ^ 1]) + raw[-39:]


def no_head(raw):
    return raw.partition(b"\n")[2]


@pytest.mark.parametrize("damage", [cut, flipped, no_head, lambda raw: b"", lambda raw: raw.partition(b"\n")[0]])
def test_damaged_checkpoint_falls_back_to_the_one_before(checkpoints_and_messages, damage):
    checkpoints, messages = checkpoints_and_messages
    save(checkpoints, 1, 2)
    newest = checkpoints.folder / "000000002.checkpoint"
    newest.write_bytes(damage(newest.read_bytes()))
    assert checkpoints.load_latest()["step"] == 1
    assert len(messages) == 1
    assert "000000002.checkpoint is damaged" in messages[0]
    oldest = checkpoints.folder / "000000001.checkpoint"
    oldest.write_bytes(damage(oldest.read_bytes()))
    assert checkpoints.load_latest() is None


def test_leftover_of_a_killed_process_is_deleted(checkpoints_and_messages):
    checkpoints, messages = checkpoints_and_messages
    save(checkpoints, 1)
    (checkpoints.folder / ".000000002.checkpoint.x.part").write_bytes(b"half")
    assert checkpoints.load_latest()["step"] == 1
    assert files(checkpoints) == ["000000001.checkpoint"]
    assert messages == []


@pytest.mark.parametrize(("identity", "message"), [(("x", "bbb"), "another recipe"), (("aaa", "x"), "another data|other data")])
def test_checkpoint_of_another_training_is_refused(checkpoints_and_messages, identity, message):
    checkpoints, _ = checkpoints_and_messages
    save(checkpoints, 1)
    with pytest.raises(CrossmatchError, match=message) as error:
        Checkpoints(checkpoints.output, TrainingIdentity(*identity)).load_latest()
    assert "--restart" in str(error.value)
    assert checkpoints.load_latest()["step"] == 1


def test_checkpoint_of_another_format_is_refused(checkpoints_and_messages, monkeypatch):
    checkpoints, _ = checkpoints_and_messages
    monkeypatch.setattr("crossmatch.train.checkpoints.FORMAT", 99)
    save(checkpoints, 1)
    monkeypatch.undo()
    with pytest.raises(CrossmatchError, match="has format 99"):
        checkpoints.load_latest()


HOLD = """
import sys
from pathlib import Path
from crossmatch.train.output_folder import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("in", flush=True)
    sys.stdin.read()
"""


def test_lock_refuses_a_second_process_and_ends_with_the_first(tmp_path):
    folder = tmp_path / "runs/a"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": SRC},
    )  # fmt: skip
    try:
        assert process.stdout.readline() == "in\n"
        with pytest.raises(CrossmatchError, match=r"runs/a: another process is training there"), lock_folder(folder):
            pass
    finally:
        process.kill()
        process.communicate()
    with lock_folder(folder):
        assert folder.is_dir()


def test_unused_folder_is_removed(tmp_path):
    with pytest.raises(RuntimeError), lock_folder(tmp_path / "runs/deep/a"):
        raise RuntimeError
    assert not list(tmp_path.iterdir())
    with lock_folder(tmp_path / "runs/a"):
        (tmp_path / "runs/a/log.csv").write_text("x")
    assert sorted(os.listdir(tmp_path / "runs/a")) == ["lock", "log.csv"]


def test_impossible_folder_is_refused(tmp_path):
    (tmp_path / "taken").write_text("x")
    for folder in (tmp_path / "taken", tmp_path / "taken/deeper"):
        with pytest.raises(CrossmatchError, match=r"cannot write there"), lock_folder(folder):
            pass
    assert (tmp_path / "taken").read_text() == "x"
