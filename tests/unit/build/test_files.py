"""The files of a step: a manifest that says the truth, and rows that are the same however often the step was broken off."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from crossmatch.build import files
from crossmatch.build.files import MANIFEST, ROWS, Asked, Output, manifest, read_rows, written
from crossmatch.core.errors import CrossmatchError

ASKED = Asked("test", {"data": "0123"}, {"many": 5})


def squares(made: Output):
    for n in range(5):
        made.count("rows")
        yield {"id": str(n), "square": n * n, "pair": (n, float(n) / 3)}


def broken_after(number: int):
    def rows(made: Output):
        for n, row in enumerate(squares(made)):
            if n == number:
                raise KeyboardInterrupt
            yield row

    return rows


def broken_with(why: str):
    def rows(made: Output):
        raise CrossmatchError(why)
        yield

    return rows


def broken_off(folder: Path, number: int = 3) -> Path:
    with pytest.raises(KeyboardInterrupt):
        written(folder, ASKED, broken_after(number))
    assert not manifest(folder)["finished"]
    return folder


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("torn", [0, 7])
def test_a_step_that_was_broken_off_ends_with_the_same_bytes(tmp_path: Path, number: int, torn: int):
    whole = written(tmp_path / "whole", ASKED, squares)
    part = broken_off(tmp_path / "part", number)
    with (part / ROWS).open("ab") as file:
        file.write(b'{"id": "4", "sq'[:torn])
    assert written(part, ASKED, squares) == whole
    assert (part / ROWS).read_bytes() == (tmp_path / "whole" / ROWS).read_bytes()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "0", "square": 1, "pair": [0, 0.0]}, "row 1 of"),  # changed
        ({"id": "9", "square": 0, "pair": [0, 0.0]}, "row 1 of"),  # another one
    ],
)
def test_rows_that_were_changed_in_the_meantime_are_not_taken_for_those_of_the_step(tmp_path: Path, row, message):
    part = broken_off(tmp_path / "part", 2)
    lines = (part / ROWS).read_text().splitlines()
    (part / ROWS).write_text("\n".join([json.dumps(row), *lines[1:]]) + "\n")
    with pytest.raises(CrossmatchError, match=message):
        written(part, ASKED, squares)
    assert not manifest(part)["finished"]


def test_more_rows_than_come_out_are_none_of_the_step(tmp_path: Path):
    part = broken_off(tmp_path / "part", 4)
    with pytest.raises(CrossmatchError, match=r"row 3 of .* is not what comes out now"):
        written(part, ASKED, lambda made: list(squares(made))[:2])


def test_two_rows_of_one_name_are_refused_and_not_counted_as_two(tmp_path: Path):
    with pytest.raises(CrossmatchError, match=r"two rows of .* are called '3'"):
        written(tmp_path / "out", ASKED, lambda made: [*squares(made), {"id": "3"}])
    assert not manifest(tmp_path / "out")["finished"]


def test_what_another_version_began_is_not_gone_on_with_and_what_it_finished_is_read(tmp_path: Path, monkeypatch):
    part, whole = broken_off(tmp_path / "part"), tmp_path / "whole"
    written(whole, ASKED, squares)
    monkeypatch.setattr(files, "__version__", "99.0")
    with pytest.raises(CrossmatchError, match=r"was begun by crossmatch .*, and this is 99\.0"):
        written(part, ASKED, squares)
    assert len(read_rows(whole)) == 5
    assert written(whole, ASKED, squares)["crossmatch"] != "99.0"  # it is not made again, and the manifest says who made it


def test_a_step_that_came_to_nothing_leaves_its_folder_to_a_better_one(tmp_path: Path):
    with pytest.raises(CrossmatchError, match="leave it out"):
        written(tmp_path / "out", ASKED, broken_with("leave it out"))
    better = Asked("test", {"data": "4567"})
    assert written(tmp_path / "out", better, squares)["inputs"] == {"data": "4567"}
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / ROWS).write_text("mine")
    with pytest.raises(CrossmatchError, match="is no step of a construction"):
        written(tmp_path / "own", ASKED, squares)
    part = broken_off(tmp_path / "part", 1)
    with pytest.raises(CrossmatchError, match="other inputs: data was '0123', and is '4567'"):
        written(part, better, squares)
    written(tmp_path / "none", ASKED, lambda made: [])
    with pytest.raises(CrossmatchError, match="other inputs"):  # no rows came out, and that is finished
        written(tmp_path / "none", better, squares)


def test_the_manifest_tells_the_versions_that_rows_depend_on(tmp_path: Path):
    told = written(tmp_path / "out", ASKED, squares)
    assert told["versions"]["numpy"] == np.__version__
    assert told == json.loads((tmp_path / "out" / MANIFEST).read_text())
