"""`crossmatch build merge`, `bias` and `card`, one after the other on the embedded world."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from crossmatch.build.pooling import PoolOptions, build_pool
from crossmatch.build.step_files import read_rows
from crossmatch.study.design.data_source import world_of

DATA = ("--data", "diorama:tiny")


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """A pool of two noisy models, every candidate of which was judged rightly."""
    world = world_of("diorama:tiny")
    file, rng = world.collection, np.random.default_rng(0)
    for name in ("a", "b", "new"):
        scores = world.truth + 0.6 * rng.normal(size=file.shape)
        np.savez(tmp_path / f"{name}.npz", image_ids=file.image_ids, caption_ids=file.caption_ids, scores=scores)
    models = [f"precomputed:{tmp_path / name}.npz" for name in "ab"]
    build_pool(file, models, tmp_path / "pool", options=PoolOptions(top=2, gold=0), image_queries=file.image_ids[:10].tolist())
    at = [{name: n for n, name in enumerate(ids.tolist())} for ids in (file.image_ids, file.caption_ids)]
    pairs = [(row["image_id"], row["caption_id"]) for row in read_rows(tmp_path / "pool", "pool")]
    lines = [f"{i},{c},{int(world.truth[at[0][i], at[1][c]])}" for i, c in pairs]
    (tmp_path / "answers.csv").write_text("\n".join(["image_id,caption_id,grade", *lines, ""]))
    return tmp_path


def test_answers_become_a_benchmark_with_a_card(crossmatch, judged: Path):
    code, out, err = crossmatch("build", "merge", *DATA, "--answers", "answers.csv", "--pool", "pool", "-o", "merged")
    assert code == 0, err
    counts = json.loads((judged / "merged" / "manifest.json").read_text())["counts"]
    links, merged = counts["i2t positives links"], counts["i2t positives merged"]
    assert f"{merged:,}     ×{merged / links:.2f}" in out
    assert counts["i2t queries"] == 10
    assert "crossmatch run -m MODEL -t collection:merged" in err

    code, out, err = crossmatch("run", "-m", "random", "-t", "collection:merged", "--samples", 20, "--no-cache", "--json")
    assert code == 0, err
    assert any("merged-i2t" in key for key in json.loads(out)["collection:merged"])

    code, out, err = crossmatch(
        "build", "bias", "pool", "--answers", "answers.csv", "-o", "bias", *DATA, "--metric", "hit@1", "--metric", "r-precision",
        "-m", f"precomputed:{judged / 'new.npz'}", "--samples", 20, "--no-cache",
    )  # fmt: skip
    assert code == 0, err
    assert "add precomputed:new.npz" in out
    assert "i2t, r-precision in %" in out
    assert {"bias.svg", "bias.png", "bias.html"} <= {path.name for path in (judged / "bias").iterdir()}

    steps = ("--step", "pool", "--step", "bias")
    code, out, err = crossmatch("build", "card", "merged", "-o", "card", *steps)
    assert code == 0, err
    assert out.startswith("50 images, 250 captions, 250 links")
    assert "No licence was stated" in err
    assert "# merged" in (judged / "card" / "README.md").read_text()


def test_lists_of_removed_items(crossmatch, tmp_path: Path):
    (tmp_path / "wrong.txt").write_text("test-00000#1 # not a street\n")
    (tmp_path / "images.txt").write_text("test-00001\n")
    arguments = ("build", "merge", *DATA, "--wrong", "wrong.txt", "--images", "images.txt")
    code, out, err = crossmatch(*arguments, "-o", "merged")
    assert code == 0, err
    assert "49 images, 244 captions" in out
    assert "removed captions, wrong: 1" in out
    code, out, err = crossmatch(*arguments, "-o", "merged", "--rule", "all")
    assert (code, out) == (2, "")
    assert "was made with other options" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("merge", *DATA, "--no-links", "-o", "x"), 2, "Nothing to merge"),
        (("merge", *DATA, "--answers", "none.csv", "-o", "x"), 2, "none.csv does not exist"),
        (("merge", "--data", "dioramma", "-o", "x"), 2, "Did you mean 'diorama'?"),
        (("bias", "nowhere", "--answers", "none.csv", "-o", "x"), 2, "none.csv does not exist; expected a table of answers"),
        (("card", "nowhere", "-o", "x"), 2, "nowhere does not exist"),
        (("card", "nowhere", "-o", "x", "--released", "soon"), 2, "--released must be a date such as"),
    ],
)
def test_wrong_words(crossmatch, arguments, code, message):
    actual_code, _, err = crossmatch("build", *arguments)
    assert actual_code == code, err
    assert message in err
