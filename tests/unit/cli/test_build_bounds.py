"""`crossmatch build bounds` on the embedded world and on files of scores."""

from __future__ import annotations

import json

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def save(path, seed, scale):
    """Scores of diorama's smallest world: the links, and noise."""
    from crossmatch.diorama.world import Diorama

    file = Diorama.make("test", size="tiny").collection
    values = np.random.default_rng(seed).random(file.shape) * scale
    values[tuple(file.links.T)] += 1
    np.savez(path, image_ids=file.image_ids, caption_ids=file.caption_ids, scores=values)


def test_bounds_prints_values_bounds_and_undecided_pairs(crossmatch, tmp_path):
    save(tmp_path / "a.npz", 0, 0.5)
    save(tmp_path / "b.npz", 1, 3.0)
    arguments = ("build", "bounds", "-m", "precomputed:a.npz", "-m", "precomputed:b.npz", "--data", "diorama+size=tiny", "-o")
    code, out, err = crossmatch(*arguments, "hits", "--metric", "hit@1")
    assert code == 0, err
    assert out.splitlines()[0].startswith("t2i R@1 over 250 queries, ")
    assert "precomputed:a.npz - precomputed:b.npz" in out
    line = next(line for line in out.splitlines() if line.startswith("precomputed:a.npz  "))
    assert line.split()[1:] == ["100.0", "100.0", "100.0"]  # its first is the link: nothing is open
    assert " certain" in out  # b can at best be as good
    assert "saved hits · 0 pairs" in err
    code, out, err = crossmatch(*arguments, "maps", "--depth", "3")
    assert code == 0, err
    assert " undecided " in out
    rows = [json.loads(line) for line in (tmp_path / "maps" / "rows.jsonl").read_text().splitlines()]
    assert f"saved maps · {len(rows):,} pairs" in err
    assert set(rows[0]) == {"id", "image_id", "caption_id", "caption", "direction", "metric", "moves"}
    assert rows[0]["moves"][0]["by"] > 0


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (("--metric", "median-rank"), "Bounds of median-rank are not available"),
        (("--judgements", "people"), "--judgements 'people': diorama+size=tiny has links, truth for t2i"),
    ],
)
def test_wrong_words(crossmatch, arguments, output):
    code, _, err = crossmatch("build", "bounds", "-m", "random", "--data", "diorama+size=tiny", "-o", "out", *arguments)
    assert code == 2
    assert output in err


def test_data_without_rankings_are_refused(crossmatch):
    code, _, err = crossmatch("build", "bounds", "-m", "random", "--data", "diorama/bison+size=tiny", "-o", "out")
    assert code == 2
    assert "is not a retrieval task" in err


def test_diorama_names_work_in_every_step(crossmatch):
    code, out, err = crossmatch("build", "bounds", "-m", "random", "--data", "diorama:tiny", "--metric", "hit@1", "-o", "out")
    assert (code, "over 250 queries" in out) == (0, True), err
    code, _, err = crossmatch("build", "bounds", "-m", "random", "--data", "diorama:huge", "-o", "other")
    assert (code, "no size 'huge'" in err) == (2, True)
