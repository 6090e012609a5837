"""Where a model may be written: what others wrote is not lost, and no folder is made on the way to another."""

import json
from pathlib import Path

import pytest

from crossmatch.core.errors import WrongWords
from crossmatch.train.place import family_in, require_place, require_place_of

FOREIGN = {
    "model.json": "hello",
    "weights-mine.pt": "hello",
    "log.csv": "when,what\n",
    "log-text.csv": "when,what\n",
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
def test_what_others_wrote_is_refused_unless_it_begins_again(tmp_path, name):
    write(tmp_path, OWN | {name: FOREIGN[name]})
    for call in (require_place, lambda folder: require_place_of("vse", folder)):
        with pytest.raises(WrongWords, match=f"holds {name}, which"):
            call(tmp_path)
    require_place(tmp_path, restart=True)


def test_what_a_training_left_and_files_of_other_names_are_no_hindrance(tmp_path):
    write(tmp_path, OWN)
    require_place(tmp_path)
    require_place(tmp_path / "new/one")
    require_place_of("vse", tmp_path)
    with pytest.raises(WrongWords, match=r"a model of another kind \(vse\)"):
        require_place_of("dual", tmp_path)


@pytest.mark.parametrize(
    "told", ["[]", "1", "{}", '{"family": "vse"}', '{"family": "cat", "recipe": {}}', '{"family": [], "recipe": {}}']
)
def test_which_model_json_is_ours(tmp_path, told):
    write(tmp_path, {"model.json": told})
    assert family_in(tmp_path) is None
    write(tmp_path, OWN)
    assert family_in(tmp_path) == "vse"


def test_a_path_through_what_is_not_there_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"readme": "a file", "there/x": ""})
    for path in ("readme/../runs", "nowhere/../runs/a", "there/no/.."):
        with pytest.raises(WrongWords, match=r"so that \.\. leads nowhere"):
            require_place(Path(path), restart=True)
    for path in ("there/../runs", "../runs", "runs"):
        require_place(Path(path))
