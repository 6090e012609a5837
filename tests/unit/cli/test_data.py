"""`crossmatch data`: what it prints, exit codes, one line for an error."""

import hashlib
import json
import sys
from dataclasses import replace

import pytest

from crossmatch.benchmarks.datasets import dataset_table
from crossmatch.cli import cli, main
from crossmatch.cli.data import data
from crossmatch.data.io.dataset_files import CountCheck, DataFile, DataFolder, DataSet

CATS, DOGS = b"id,grade\n1,5\n2,4\n", b"id,grade\n7,3\n"


def declare(path, content, url="http://127.0.0.1:9/"):
    return DataFile(path, hashlib.sha256(content).hexdigest(), len(content), url + path)


PETS = DataSet(
    "pets", "cats and dogs", "CC BY 4.0", "smith",
    (declare("pets/cats.csv", CATS), declare("pets/dogs.csv", DOGS), DataFile("pets/notes.txt", None, None, use="optional")),
    homepage="https://pets.example", tasks=("pet-search",), folders=(DataFolder("pets/images", "3 images", "https://pets.example/zip"),),
    count_checks=(CountCheck("cats", 2, ("pets/cats.csv",), dataset_table.count_csv_rows),),
)  # fmt: skip
ZOO = DataSet(
    "zoo", "beasts", "CC BY-NC 4.0", "smith", (declare("zoo/lions.csv", CATS),), non_commercial=True, tasks=("zoo-search",)
)


@pytest.fixture
def crossmatch(monkeypatch, capsys, tmp_path):
    """Call the command in this process with two small data sets: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CROSSMATCH_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(dataset_table, "BUILT_IN", (PETS, ZOO))
    monkeypatch.setitem(cli.commands, "data", data)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["crossmatch", *(() if arguments[0] == "list" else ("data",)), *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        assert err.count("\n") == bool(err)
        return end.value.code or 0, out, err

    return call


@pytest.fixture
def hand(tmp_path):
    """A folder with the files of pets."""
    (tmp_path / "hand").mkdir()
    (tmp_path / "hand/cats.csv").write_bytes(CATS)
    (tmp_path / "hand/dogs.csv").write_bytes(DOGS)
    return tmp_path / "hand"


def test_list_data_shows_presence_and_licence(crossmatch, hand, tmp_path):
    code, out, err = crossmatch("list", "data")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"data in {tmp_path}/data"
    assert lines[1].split("  ")[0] == "name"
    assert " ".join(lines[2].split()) == "pets 0 of 2 0.0 MB pet-search CC BY 4.0 cats and dogs"
    assert " ".join(lines[3].split()) == "zoo 0 of 1 0.0 MB zoo-search NON-COMMERCIAL CC BY-NC 4.0 beasts"
    assert "  optional: pets/notes.txt, not present" in lines
    assert "  optional: pets/images, not present" in lines
    crossmatch("get", "pets", "--from", hand)
    (tmp_path / "data/pets/images").mkdir()
    (tmp_path / "data/pets/cats.csv").write_bytes(b"short")
    out = crossmatch("list", "data")[1]
    assert "1 of 2, 1 wrong" in out
    assert "  optional: pets/images, present" in out


def test_list_as_json(crossmatch, hand, tmp_path):
    crossmatch("get", "pets", "--from", hand)
    pets, zoo = json.loads(crossmatch("list", "data", "--json")[1])
    assert (pets["name"], pets["licence"], pets["tasks"], pets["bytes"]) == ("pets", "CC BY 4.0", ["pet-search"], 30)
    assert [(file["path"], file["use"], file["state"]) for file in pets["files"]] == [
        ("pets/cats.csv", "required", "ok"), ("pets/dogs.csv", "required", "ok"), ("pets/notes.txt", "optional", "missing"),
    ]  # fmt: skip
    assert pets["files"][0]["place"] == str(tmp_path / "data/pets/cats.csv")
    assert pets["folders"][0]["present"] is False
    assert zoo["non_commercial"] is True
    assert zoo["files"][0]["place"] is None


def test_unknown_size_is_not_zero(crossmatch, monkeypatch, tmp_path):
    """A file whose size is not declared, such as bison's, has a size as soon as it is present."""
    farm = DataSet("farm", "cows", "CC BY 4.0", "smith", (DataFile("farm/cows.csv", None, None),), tasks=("farm-search",))
    monkeypatch.setattr(dataset_table, "BUILT_IN", (farm,))
    assert "unknown" in crossmatch("list", "data")[1]
    assert json.loads(crossmatch("list", "data", "--json")[1])[0]["bytes"] is None
    (tmp_path / "data/farm").mkdir(parents=True)
    (tmp_path / "data/farm/cows.csv").write_bytes(CATS)
    assert json.loads(crossmatch("list", "data", "--json")[1])[0]["bytes"] == len(CATS)


def test_get_copies_local_files(crossmatch, hand, tmp_path):
    code, out, err = crossmatch("get", "pets", "--from", hand, "--link")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "pets: CC BY 4.0 · https://pets.example",
        f"pets/cats.csv: linked from {hand}/cats.csv",
        f"pets/dogs.csv: linked from {hand}/dogs.csv",
    ]
    assert (tmp_path / "data/pets/cats.csv").is_symlink()


def test_get_of_several_names_missing_files(crossmatch, hand):
    code, out, err = crossmatch("get", "pets", "zoo", "--from", hand)
    assert code == 1
    assert "zoo: NON-COMMERCIAL USE ONLY, CC BY-NC 4.0" in out
    assert err == (
        f"crossmatch: zoo lacks 1 of 1 files: zoo/lions.csv: {hand} contains no lions.csv. "
        "Use another folder, download them with `crossmatch data get zoo`.\n"
    )


def test_get_without_a_network_is_one_line(crossmatch, tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("crossmatch.data.io.http_download.RetryPolicy.__init__.__defaults__", (0.5, 2, 0.0, lambda seconds: None))
    code, out, err = crossmatch("get", "zoo")
    assert code == 1
    assert out.splitlines()[0] == "zoo: NON-COMMERCIAL USE ONLY, CC BY-NC 4.0"  # before anything is asked of a server
    assert err.startswith(
        "crossmatch: zoo is not complete: zoo/lions.csv: http://127.0.0.1:9/zoo/lions.csv broke off or cannot be reached"
    )
    assert "--from DIR" in err
    assert not list((tmp_path / "data").rglob("*.csv*"))


def test_wrong_words(crossmatch, hand):
    assert crossmatch("get", "petz")[::2] == (
        2, "crossmatch: there is no data set 'petz'. Did you mean 'pets'? `crossmatch list data` lists them all.\n",
    )  # fmt: skip
    assert crossmatch("get", "pets", "petz", "--from", hand)[0] == 2
    assert not (hand.parent / "data").exists()  # all names are read before anything is done
    assert crossmatch("verify", "petz")[0] == 2
    assert crossmatch("get")[0] == 2
    code, _, err = crossmatch("get", "pets", "--link")
    assert code == 2
    assert "--link needs --from DIR" in err
    code, _, err = crossmatch("get", "pets", "--from", "nowhere")
    assert code == 2
    assert "nowhere is not a folder" in err


def test_verify_accepts_correct_files(crossmatch, hand):
    crossmatch("get", "pets", "--from", hand)
    code, out, err = crossmatch("verify")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines == [["pets"], ["item", "state"], ["pets/cats.csv", "ok"], ["pets/dogs.csv", "ok"], ["cats", "2"]]
    assert crossmatch("verify", "pets")[0] == 0


def test_verify_without_data_says_so_and_requires_named_sets(crossmatch, tmp_path):
    assert crossmatch("verify") == (0, f"{tmp_path}/data contains no data sets.\n", "")
    assert json.loads(crossmatch("verify", "--json")[1]) == {}
    code, _, err = crossmatch("verify", "zoo")
    assert code == 1
    assert err == (
        "crossmatch: zoo/lions.csv: missing. Get the files again: crossmatch data get zoo\n"
    )  # fmt: skip


@pytest.mark.parametrize("content", [CATS.replace(b"5", b"4"), CATS[:-2], b""])
def test_verify_fails_on_a_wrong_file_and_names_it(crossmatch, hand, tmp_path, content):
    crossmatch("get", "pets", "--from", hand)
    (tmp_path / "data/pets/cats.csv").write_bytes(content)
    code, out, err = crossmatch("verify")
    assert code == 1
    assert "WRONG" in out
    assert "not counted: a file is missing or wrong" in out
    assert f"{tmp_path}/data/pets/cats.csv: " in err
    assert "expected" in err
    assert "crossmatch data get pets" in err
    code, out, _ = crossmatch("verify", "--json")
    assert code == 1
    parsed = json.loads(out)["pets"]
    assert parsed["ok"] is False
    assert [file["state"] for file in parsed["files"]] == ["wrong", "ok", "missing"]
    assert parsed["counts"] == [{"what": "cats", "expected": 2, "seen": None, "ok": None, "why": ""}]


def test_verify_fails_on_a_count(crossmatch, hand, monkeypatch):
    crossmatch("get", "pets", "--from", hand)
    monkeypatch.setattr(dataset_table, "BUILT_IN", (replace(PETS, count_checks=(replace(PETS.count_checks[0], expected=1_200),)),))
    code, out, err = crossmatch("verify", "pets")
    assert code == 1
    assert "2 WRONG: expected 1,200" in out
    assert "cats: 2 WRONG: expected 1,200" in err
    assert json.loads(crossmatch("verify", "--json")[1])["pets"]["counts"][0]["ok"] is False
