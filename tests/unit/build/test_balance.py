"""Every word as often in captions as in negatives: against all subsets of small cases, and a classifier that learns nothing."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crossmatch.build.balance import word_refinement
from crossmatch.build.blind import word_differences
from crossmatch.build.files import Asked, manifest, read_rows, written
from crossmatch.build.logistic import parts, weights
from crossmatch.build.refine import BLIND, refine
from crossmatch.core.errors import CrossmatchError, WrongWords

KINDS = ("dog", "cat", "cow", "horse", "kite")
SMALL = st.integers(1, 9).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float64, n, elements=st.sampled_from([-1.0, 0.0, 1.0])),
        hnp.arrays(np.int64, (n, 3), elements=st.sampled_from([-1, 0, 0, 1])),
    )
)


def most_by_trying(gap: np.ndarray, words: np.ndarray) -> int:
    """The size of the largest subset in which gaps of either sign are equally many and all words sum to nought."""
    best = 0
    for chosen in itertools.product([False, True], repeat=len(gap)):
        at = np.array(chosen)
        if at.sum() > best and not words[at].sum(axis=0).any() and (gap[at] > 0).sum() == (gap[at] < 0).sum():
            best = int(at.sum())
    return best


@settings(max_examples=150, deadline=None)
@given(SMALL)
def test_nothing_is_left_to_learn_and_no_more_could_be_kept(case: tuple[np.ndarray, np.ndarray]) -> None:
    gap, words = case
    keep = word_refinement(gap, np.zeros(len(gap)), words, bins=2)
    assert not words[keep].sum(axis=0).any()
    assert (gap[keep] > 0).sum() == (gap[keep] < 0).sum()
    assert keep.sum() == most_by_trying(gap, words)


@settings(max_examples=60, deadline=None)
@given(SMALL, st.randoms())
def test_the_order_of_pairs_does_not_matter(case: tuple[np.ndarray, np.ndarray], random) -> None:
    gap, words = case
    ids = np.array([f"id {n}" for n in range(len(gap))])
    order = np.array(random.sample(range(len(ids)), len(ids)))
    keep, again = word_refinement(gap, gap, words, 4, ids), word_refinement(gap[order], gap[order], words[order], 4, ids[order])
    assert set(ids[keep]) == set(ids[order][again])


def replaced(n: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Captions in which one kind of thing is replaced by another, the first far more often than the others."""
    random = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        gone, new = random.choice(5, 2, replace=False, p=[0.4, 0.3, 0.15, 0.1, 0.05])
        out.append((f"A {KINDS[gone]} on a hill.", f"A {KINDS[new]} on a hill."))
    captions, negatives = zip(*out, strict=True)
    return list(captions), list(negatives)


def test_a_classifier_learns_nothing_from_balanced_words() -> None:
    captions, negatives = replaced(400)
    negatives[:100] = [text.replace("A ", "A small ") for text in negatives[:100]]
    words, nothing = word_differences(captions, negatives), np.zeros(400)
    assert np.abs(weights(words)).max() > 0.1
    keep = word_refinement(nothing, nothing, words)
    assert keep[100:].sum() > 200
    assert not keep[:100].any()  # additions are found by their length
    assert np.abs(weights(words[np.flatnonzero(keep)])).max() < 1e-4


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(CrossmatchError, match="words of 2 pairs and the gaps of 3"):
        word_refinement(np.zeros(3), np.zeros(3), np.zeros((2, 4)))
    with pytest.raises(CrossmatchError, match="same key"):
        word_refinement(np.zeros(2), np.zeros(2), np.zeros((2, 1)), keys=["a", "a"])
    assert word_refinement(np.zeros(0), np.zeros(0), np.zeros((0, 1))).tolist() == []
    assert word_refinement(np.zeros(2), np.zeros(2), np.zeros((2, 1))).all()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    captions, negatives = replaced(900, seed=1)
    texts = [tuple(f"{text[:-1]} {n}." for text in pair) for n, pair in enumerate(zip(captions, negatives, strict=True))]
    rows = [
        {"id": f"n{n}", "image_id": f"i{n // 3}", "caption_id": f"c{n}", "caption": caption, "negative": negative}
        for n, (caption, negative) in enumerate(texts)
    ]
    written(tmp_path / "source", Asked("negatives", {}, {}, 0), lambda _: rows)
    return tmp_path / "source"


@pytest.mark.parametrize("number", [1, 2])
def test_the_step_balances_words_part_by_part(source: Path, tmp_path: Path, number: int) -> None:
    told = refine(source, tmp_path / "out", share=1.0, bins=4, words=True, parts=number)
    rows = read_rows(tmp_path / "out")
    member = parts([row["image_id"] for row in rows], number)
    assert len(rows) > 300
    for part in range(number):
        some = [row for row, at in zip(rows, member, strict=True) if at == part]
        assert not word_differences([row["caption"] for row in some], [row["negative"] for row in some]).sum(axis=0).any()
    assert told["counts"]["dropped: to balance the grid and all words"] == 900 - len(rows)
    blind = json.loads((tmp_path / "out" / BLIND).read_text())
    assert blind["read"]["with words"]["low"] > 0.5
    assert blind["kept"]["with words"]["low"] <= 0.5 <= blind["kept"]["with words"]["high"]
    assert [row.get("part") for row in rows] == (member.tolist() if number > 1 else [None] * len(rows))
    assert ("kept in part 1" in told["counts"]) == (number > 1)
    if number > 1:  # what one part teaches is of no use on the other
        itself = blind["kept, taught by itself"]["with words"]
        assert itself["low"] <= 0.5 <= itself["high"]


@pytest.mark.parametrize("words", [False, True])
def test_parts_without_a_pair_are_no_hindrance(source: Path, tmp_path: Path, words: bool) -> None:
    told = refine(source, tmp_path / "out", share=0.02, bins=2, words=words, parts=50)
    counts = [told["counts"].get(f"kept in part {part}", 0) for part in range(50)]
    assert 0 in counts
    assert sum(counts) == told["rows"] == told["counts"]["kept"]


def test_what_has_no_negatives_is_refused(tmp_path: Path) -> None:
    rows = [{"id": "a", "image_id": "i", "caption_id": "c", "caption": "A dog."}]
    written(tmp_path / "captions", Asked("format", {}, {}, 0), lambda _: rows)
    with pytest.raises(WrongWords, match=r"row a of .* has no negative; captions with hard negatives were expected"):
        refine(tmp_path / "captions", tmp_path / "out")


def test_words_stand_in_the_manifest_and_parts_must_be_some(source: Path, tmp_path: Path) -> None:
    refine(source, tmp_path / "out", share=1.0, bins=4, words=True)
    assert manifest(tmp_path / "out")["options"]["words"] is True
    with pytest.raises(WrongWords, match="0 parts"):
        refine(source, tmp_path / "other", parts=0)
    with pytest.raises(WrongWords, match="one cell balances nothing"):
        refine(source, tmp_path / "other", bins=1)
    assert not (tmp_path / "other").exists()
