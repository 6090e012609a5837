"""Output folders: files of other programs are not replaced, and no stray folder is created."""

import json
from pathlib import Path

import pytest

from crossmatch.data.errors import UsageError
from crossmatch.train.output_folder import require_writable_folder, trained_family

FOREIGN = {
    "model.json": "hello",
    "weights-mine.pt": "hello",
    "log.csv": "date,event\n",
    "log-text.csv": "date,event\n",
    "checkpoints/mine.pt": "hello",
}
OWN = {
    "model.json": json.dumps({"family": "vse", "recipe": {}}),
    "weights-0123456789ab.pt": "x",
    "log.csv": "epoch,step\n1,2\n",
    "log-text.csv": "",
    "checkpoints/000000400.checkpoint": "damaged, perhaps",
    "checkpoints/.000000400.checkpoint.abc.part": "of a killed process",
    "notes.txt": "mine",
    "begin/model.json": "looked at when that is trained",
}


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_are_refused_without_restart(tmp_path, name):
    write(tmp_path, OWN | {name: FOREIGN[name]})
    with pytest.raises(UsageError, match=f"would replace {name}, which"):
        require_writable_folder(tmp_path)
    require_writable_folder(tmp_path, restart=True)


def test_own_and_unrelated_files_are_accepted(tmp_path):
    write(tmp_path, OWN)
    require_writable_folder(tmp_path)
    require_writable_folder(tmp_path / "new/one")


@pytest.mark.parametrize(
    "content", ["[]", "1", "{}", '{"family": "vse"}', '{"family": "cat", "recipe": {}}', '{"family": [], "recipe": {}}']
)
def test_model_json_of_other_programs_is_recognised(tmp_path, content):
    write(tmp_path, {"model.json": content})
    assert trained_family(tmp_path) is None
    write(tmp_path, OWN)
    assert trained_family(tmp_path) == "vse"


def test_path_through_a_missing_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"readme": "a file", "there/x": ""})
    for path in ("readme/../runs", "nowhere/../runs/a", "there/no/.."):
        with pytest.raises(UsageError, match=r"does not exist"):
            require_writable_folder(Path(path), restart=True)
    for path in ("there/../runs", "../runs", "runs"):
        require_writable_folder(Path(path))
