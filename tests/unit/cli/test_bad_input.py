"""Wrong files for the COCO tasks: one line that names the file, the id and the remedy, and no result left behind."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from crossmatch.benchmarks.coco import coco_collection
from crossmatch.cli import main

TASKS = "coco-1k,coco-5k,cxc,cxc-sts,cxc-sis,cxc-sits,eccv-caption,pmrp"


@pytest.fixture
def fails(capsys, monkeypatch, tmp_path):
    """Run the command line; give its exit code and its one line, and see that nothing was written."""

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["crossmatch", "run", "-o", str(tmp_path / "results"), "--no-cache", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        output = capsys.readouterr()
        assert output.out == ""
        lines = output.err.strip().splitlines()
        assert len(lines) == 1, output.err
        assert not (tmp_path / "results").exists()
        return int(stopped.value.code), lines[0]

    return run


def arrays(split: str = "test", **changed):
    file = coco_collection(split)
    rng = np.random.default_rng(0)
    arrays = {
        "image_ids": file.image_ids.astype(np.int64), "image_embeddings": rng.standard_normal((5_000, 4), dtype=np.float32),
        "caption_ids": file.caption_ids.astype(np.int64), "caption_embeddings": rng.standard_normal((25_000, 4), dtype=np.float32),
    }  # fmt: skip
    return arrays | {key: change(arrays[key]) for key, change in changed.items()}


def with_one(at: int, value):
    def change(array):
        array = array.copy()
        array[at] = value
        return array

    return change


@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"image_ids": with_one(3, 99_999_999)}, "4,999 of the 5,000 image ids.*first missing: '.*Add the missing"),
        ({"image_ids": lambda a: a[:-1], "image_embeddings": lambda a: a[:-1]}, "4,999 of the 5,000 image ids.*first missing"),
        ({"caption_ids": with_one(7, 770337)}, "caption id '770337' occurs 2 times"),
        ({"caption_embeddings": with_one(2, 0)}, "The embedding of caption '772707' is all zeros.*similarity='dot'"),
        ({"image_embeddings": lambda a: (1e6 * a).astype(np.float16)}, "NaN or infinite.*fp16"),
        ({"caption_embeddings": lambda a: a[:, :3]}, "4 dimensions and caption embeddings 3"),
        ({"caption_embeddings": lambda a: a[:100]}, r"caption embeddings have shape \(100, 4\)"),
    ],
)
def test_embeddings_of_wrong_shape_are_refused(fails, tmp_path, changed, message):
    path = tmp_path / "emb.npz"
    with np.errstate(over="ignore"):
        np.savez(path, **arrays(**changed))
    code, line = fails("-m", f"precomputed:{path}", "-t", TASKS)
    assert code == 1
    assert str(path) in line
    assert re.search(message, line), line


@pytest.mark.usefixtures("real_data")
def test_embeddings_of_another_split_are_refused(fails, tmp_path):
    np.savez(tmp_path / "val.npz", **arrays("val"))
    code, line = fails("-m", f"precomputed:{tmp_path / 'val.npz'}", "-t", "coco-5k,pmrp")
    assert code == 1
    assert "0 of the 5,000 image ids" in line
    assert "check the split" in line


@pytest.mark.usefixtures("real_data")
def test_truncated_ranking_is_refused(fails, tmp_path):
    file = coco_collection("test")
    lines = [
        f"{image} i2t {caption} 1 {1 / (n + 1)} tag"
        for i, image in enumerate(file.image_ids)
        for n, caption in enumerate(file.caption_ids[5 * i : 5 * i + 3])
    ]
    (tmp_path / "short.trec").write_text("\n".join(lines))
    code, line = fails("-m", f"precomputed:{tmp_path / 'short.trec'}", "-t", "coco-5k", "--metrics", "hit@5")
    assert (code, "lists 3 candidates for query" in line) == (1, True)
    assert "needs 5 of 25,000. Write deeper rankings" in line


@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize(("content", "message"), [(b"", "is empty"), (b"PK\x03\x04 not a zip", "cannot be read")])
def test_empty_or_broken_file_is_refused(fails, tmp_path, content, message):
    (tmp_path / "emb.npz").write_bytes(content)
    code, line = fails("-m", f"precomputed:{tmp_path / 'emb.npz'}", "-t", "coco-5k")
    assert code == 1
    assert message in line


@pytest.mark.parametrize(
    ("path", "damage", "task", "message"),
    [
        ("cxc/sts_test.csv", lambda data: data[:1000], "cxc-sts", "has 1,000 bytes, expected 3,096,467"),
        ("cxc/sts_test.csv", lambda data: b"", "cxc-sts", "has 0 bytes"),
        (
            "cxc/sts_test.csv",
            lambda data: data.replace(b"agg_score", b"agg-score", 1),
            "cxc-sts",
            "begins with.*expected caption1",
        ),
        ("cxc/sis_test.csv", lambda data: data.replace(b",3.6,", b",3x6,", 1), "cxc-sis", "not a number.*3x6"),
        (
            "cxc/sis_test.csv",
            lambda data: data.replace(b",3.6,", b",3,6,", 1),
            "cxc-sis",
            "line 2: expected 4 cells without an empty one, got 5",
        ),
        ("coco/karpathy_test_captions.tsv", lambda data: data[:-40] + b"\xff" * 40, "coco-5k", "not UTF-8 text"),
        ("cxc/sits_test.csv", None, "cxc-sits", "is not in the data folder.*crossmatch data get cxc"),
    ],
)
def test_damaged_data_are_reported_with_a_fix(fails, real_data, tmp_path, monkeypatch, path, damage, task, message):
    for folder in ("cxc", "coco"):
        shutil.copytree(real_data / folder, tmp_path / "data" / folder)
    target = tmp_path / "data" / path
    content = target.read_bytes()
    target.chmod(0o644)
    target.parent.chmod(0o755)
    if damage is None:
        target.unlink()
    else:
        target.write_bytes(damage(content))
    monkeypatch.setenv("CROSSMATCH_DATA", str(tmp_path / "data"))
    code, line = fails("-m", "random", "-t", task, "--samples", "10")
    assert code == 1
    assert re.search(message, line), line
    assert "crossmatch data" in line
