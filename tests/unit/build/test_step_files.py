"""Files of a step: the manifest, and rows that do not depend on interruptions."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest

from crossmatch.build import step_files
from crossmatch.build.lookalikes import find_lookalikes
from crossmatch.build.negatives.by_rules import write_rule_negatives
from crossmatch.build.pooling import build_pool
from crossmatch.build.rated_pair_sampling import sample_sis, sample_sits, sample_sts
from crossmatch.build.step_files import MANIFEST, ROWS, StepOutput, StepSpec, read_manifest, read_rows, write_step
from crossmatch.data.errors import CrossmatchError
from crossmatch.study.design.data_source import collection_of

SPEC = StepSpec("test", {"data": "0123"}, {"many": 5})


def squares(step: StepOutput):
    for n in range(5):
        step.count("rows")
        yield {"id": str(n), "square": n * n, "pair": (n, float(n) / 3)}


def interrupt_after(number: int):
    def rows(step: StepOutput):
        for n, row in enumerate(squares(step)):
            if n == number:
                raise KeyboardInterrupt
            yield row

    return rows


def interrupted_step(folder: Path, number: int = 3) -> Path:
    with pytest.raises(KeyboardInterrupt):
        write_step(folder, SPEC, interrupt_after(number))
    assert not read_manifest(folder)["finished"]
    return folder


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("torn", [0, 7])
def test_interrupted_step_resumes_with_equal_bytes(tmp_path: Path, number: int, torn: int):
    complete = write_step(tmp_path / "whole", SPEC, squares)
    part = interrupted_step(tmp_path / "part", number)
    with (part / ROWS).open("ab") as file:
        file.write(b'{"id": "4", "sq'[:torn])
    assert write_step(part, SPEC, squares) == complete
    assert (part / ROWS).read_bytes() == (tmp_path / "whole" / ROWS).read_bytes()


STEPS = {
    "lookalikes": lambda data, folder: find_lookalikes(data, folder),
    "negatives": lambda data, folder: write_rule_negatives(data, folder, captions=8),
    "pool": lambda data, folder: build_pool(data, ["random:1", "random:2"], folder),
    "sample sts": lambda data, folder: sample_sts(data, folder, image_model="conse"),
    "sample sis": lambda data, folder: sample_sis(data, folder, text_models=["bow"]),
    "sample sits": lambda data, folder: sample_sits(data, folder, caption_ratings=[], image_ratings=[]),
}


@pytest.mark.parametrize("name", STEPS)
def test_every_step_resumes_with_equal_bytes(name: str, tmp_path: Path, monkeypatch):
    data, run_step, write, written = collection_of("diorama:tiny"), STEPS[name], StepOutput.write, []
    complete = run_step(data, tmp_path / "complete")

    def write_until_disk_is_full(output: StepOutput, row: dict) -> None:
        if len(written) == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(row)
        write(output, row)

    monkeypatch.setattr(StepOutput, "write", write_until_disk_is_full)
    with pytest.raises(CrossmatchError, match="the disk is full"):
        run_step(data, tmp_path / "part")
    with pytest.raises(CrossmatchError, match="not finished"):
        read_rows(tmp_path / "part")
    monkeypatch.setattr(StepOutput, "write", write)
    assert run_step(data, tmp_path / "part") == complete
    assert (tmp_path / "part" / ROWS).read_bytes() == (tmp_path / "complete" / ROWS).read_bytes()


def test_changed_rows_are_rejected_on_resume(tmp_path: Path):
    part = interrupted_step(tmp_path / "part", 2)
    lines = (part / ROWS).read_text().splitlines()
    (part / ROWS).write_text("\n".join(['{"id": "0", "square": 1, "pair": [0, 0.0]}', *lines[1:]]) + "\n")
    with pytest.raises(CrossmatchError, match="row 1 differs"):
        write_step(part, SPEC, squares)
    assert not read_manifest(part)["finished"]


def test_surplus_rows_are_rejected_on_resume(tmp_path: Path):
    part = interrupted_step(tmp_path / "part", 4)
    with pytest.raises(CrossmatchError, match=r"row 3 differs from what the step computes now"):
        write_step(part, SPEC, lambda step: list(squares(step))[:2])


def test_duplicate_ids_are_rejected(tmp_path: Path):
    with pytest.raises(CrossmatchError, match=r"two rows have the id '3'"):
        write_step(tmp_path / "out", SPEC, lambda step: [*squares(step), {"id": "3"}])
    assert not read_manifest(tmp_path / "out")["finished"]


def test_only_finished_steps_of_other_versions_are_accepted(tmp_path: Path, monkeypatch):
    part, complete = interrupted_step(tmp_path / "part"), tmp_path / "whole"
    write_step(complete, SPEC, squares)
    monkeypatch.setattr(step_files, "__version__", "99.0")
    with pytest.raises(CrossmatchError, match=r"was started by crossmatch .*; this is 99\.0"):
        write_step(part, SPEC, squares)
    assert len(read_rows(complete)) == 5
    assert write_step(complete, SPEC, squares)["crossmatch"] != "99.0"  # a finished step is not repeated


def test_folder_without_rows_can_be_reused(tmp_path: Path):
    with pytest.raises(KeyboardInterrupt):
        write_step(tmp_path / "out", SPEC, interrupt_after(0))
    changed_spec = StepSpec("test", {"data": "4567"})
    assert write_step(tmp_path / "out", changed_spec, squares)["inputs"] == {"data": "4567"}
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / ROWS).write_text("mine")
    with pytest.raises(CrossmatchError, match="not the folder of a build step"):
        write_step(tmp_path / "own", SPEC, squares)
    part = interrupted_step(tmp_path / "part", 1)
    with pytest.raises(CrossmatchError, match="other inputs: data was '0123', now '4567'"):
        write_step(part, changed_spec, squares)
    write_step(tmp_path / "none", SPEC, lambda step: [])
    with pytest.raises(CrossmatchError, match="other inputs"):  # a step without rows is finished
        write_step(tmp_path / "none", changed_spec, squares)


def test_manifest_records_library_versions(tmp_path: Path):
    manifest = write_step(tmp_path / "out", SPEC, squares)
    assert manifest["versions"]["numpy"] == np.__version__
    assert manifest == json.loads((tmp_path / "out" / MANIFEST).read_text())


def test_folder_of_a_renamed_step_is_read_and_resumed(tmp_path):
    write_step(tmp_path / "a", StepSpec("mine", {"collection": "x"}), lambda step: [{"id": "1"}])
    assert read_rows(tmp_path / "a", "lookalikes") == [{"id": "1"}]
    assert write_step(tmp_path / "a", StepSpec("lookalikes", {"collection": "x"}), lambda step: [{"id": "2"}])["rows"] == 1
