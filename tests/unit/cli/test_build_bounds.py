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

    held = Diorama.make("test", size="tiny").collection
    values = np.random.default_rng(seed).random(held.shape) * scale
    values[tuple(held.links.T)] += 1
    np.savez(path, image_ids=held.image_ids, caption_ids=held.caption_ids, scores=values)


def test_values_bounds_and_what_is_undecided(crossmatch, tmp_path):
    save(tmp_path / "a.npz", 0, 0.5)
    save(tmp_path / "b.npz", 1, 3.0)
    words = ("build", "bounds", "-m", "precomputed:a.npz", "-m", "precomputed:b.npz", "--data", "diorama+size=tiny", "-o")
    code, out, err = crossmatch(*words, "hits", "--metric", "hit@1")
    assert code == 0, err
    assert out.splitlines()[0].startswith("t2i R@1 over 250 queries, ")
    assert "precomputed:a.npz - precomputed:b.npz" in out
    line = next(line for line in out.splitlines() if line.startswith("precomputed:a.npz  "))
    assert line.split()[1:] == ["100.0", "100.0", "100.0"]  # its first is the link: nothing is open
    assert " certain" in out  # b can at best be as good
    assert "saved hits · 0 pairs" in err
    code, out, err = crossmatch(*words, "maps", "--depth", "3")
    assert code == 0, err
    assert " undecided " in out
    rows = [json.loads(line) for line in (tmp_path / "maps" / "rows.jsonl").read_text().splitlines()]
    assert f"saved maps · {len(rows):,} pairs" in err
    assert set(rows[0]) == {"id", "image_id", "caption_id", "caption", "direction", "metric", "moves"}
    assert rows[0]["moves"][0]["by"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--metric", "median-rank"), "no bounds of median-rank"),
        (("--judgements", "people"), "no judgements 'people' for t2i; it has links, truth"),
        (("--data", "diorama/bison+size=tiny"), "has no rankings"),
    ],
)
def test_wrong_words(crossmatch, words, said):
    code, _, err = crossmatch("build", "bounds", "-m", "random", "--data", "diorama+size=tiny", "-o", "out", *words)
    assert code == 2
    assert said in err


def test_the_world_goes_by_the_words_of_all_steps(crossmatch):
    code, out, err = crossmatch("build", "bounds", "-m", "random", "--data", "diorama:tiny", "--metric", "hit@1", "-o", "out")
    assert (code, "over 250 queries" in out) == (0, True), err
    code, _, err = crossmatch("build", "bounds", "-m", "random", "--data", "diorama:huge", "-o", "other")
    assert (code, "no size 'huge'" in err) == (2, True)
