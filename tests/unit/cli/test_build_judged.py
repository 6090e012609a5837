"""`crossmatch build merge`, `bias` and `card`, one after the other on the embedded world."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from crossmatch.build.files import read_rows
from crossmatch.build.pool import Pooling, pool
from crossmatch.study.sources import world_of

DATA = ("--data", "diorama:tiny")


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """A pool of two noisy models, every candidate of which was judged rightly."""
    world = world_of("diorama:tiny")
    held, rng = world.collection, np.random.default_rng(0)
    for name in ("a", "b", "new"):
        scores = world.truth + 0.6 * rng.normal(size=held.shape)
        np.savez(tmp_path / f"{name}.npz", image_ids=held.image_ids, caption_ids=held.caption_ids, scores=scores)
    models = [f"precomputed:{tmp_path / name}.npz" for name in "ab"]
    pool(held, models, tmp_path / "pool", how=Pooling(top=2, gold=0), image_queries=held.image_ids[:10].tolist())
    at = [{name: n for n, name in enumerate(ids.tolist())} for ids in (held.image_ids, held.caption_ids)]
    pairs = [(row["image_id"], row["caption_id"]) for row in read_rows(tmp_path / "pool", "pool")]
    lines = [f"{i},{c},{int(world.truth[at[0][i], at[1][c]])}" for i, c in pairs]
    (tmp_path / "answers.csv").write_text("\n".join(["image_id,caption_id,grade", *lines, ""]))
    return tmp_path


def test_from_answers_to_a_benchmark_with_a_card(crossmatch, judged: Path):
    code, out, err = crossmatch("build", "merge", *DATA, "--answers", "answers.csv", "--pool", "pool", "-o", "merged")
    assert code == 0, err
    told = json.loads((judged / "merged" / "manifest.json").read_text())["counts"]
    links, found = told["i2t positives links"], told["i2t positives merged"]
    assert f"{found:,}     ×{found / links:.2f}" in out
    assert told["i2t queries"] == 10
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
    assert "no licence was stated" in err
    assert "# merged" in (judged / "card" / "README.md").read_text()


def test_lists_of_what_leaves(crossmatch, tmp_path: Path):
    (tmp_path / "wrong.txt").write_text("test-00000#1 # not a street\n")
    (tmp_path / "images.txt").write_text("test-00001\n")
    words = ("build", "merge", *DATA, "--wrong", "wrong.txt", "--images", "images.txt")
    code, out, err = crossmatch(*words, "-o", "merged")
    assert code == 0, err
    assert "49 images, 244 captions" in out
    assert "removed captions, wrong: 1" in out
    code, out, err = crossmatch(*words, "-o", "merged", "--rule", "all")
    assert (code, out) == (2, "")
    assert "was made with other options" in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("merge", *DATA, "--no-links", "-o", "x"), 2, "nothing is to be merged"),
        (("merge", *DATA, "--answers", "none.csv", "-o", "x"), 2, "none.csv is not there"),
        (("merge", "--data", "dioramma", "-o", "x"), 2, "Did you mean 'diorama'?"),
        (("bias", "nowhere", "--answers", "none.csv", "-o", "x"), 2, "none.csv is no table of answers"),
        (("card", "nowhere", "-o", "x"), 2, "nowhere is not there"),
        (("card", "nowhere", "-o", "x", "--released", "soon"), 2, "year-month-day was expected"),
    ],
)
def test_wrong_words(crossmatch, words, code, message):
    found, _, err = crossmatch("build", *words)
    assert found == code, err
    assert message in err
