"""Balance of words: against all subsets of small cases, and with a classifier that learns nothing."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crossmatch.build.refinement.adversarial_refinement import word_refinement
from crossmatch.build.refinement.blind_classifier import assign_folds, fit_logistic, word_differences
from crossmatch.build.refinement.refinement_step import BLIND_FILE, refine_negatives
from crossmatch.build.step_files import StepSpec, read_manifest, read_rows, write_step
from crossmatch.data.errors import CrossmatchError, UsageError

KINDS = ("dog", "cat", "cow", "horse", "kite")
SMALL = st.integers(1, 9).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.float64, n, elements=st.sampled_from([-1.0, 0.0, 1.0])),
        hnp.arrays(np.int64, (n, 3), elements=st.sampled_from([-1, 0, 0, 1])),
    )
)


def largest_subset_size(gap: np.ndarray, words: np.ndarray) -> int:
    """Size of the largest subset with equally many gaps of either sign, and with word sums of 0."""
    best = 0
    for chosen in itertools.product([False, True], repeat=len(gap)):
        is_chosen = np.array(chosen)
        if (
            is_chosen.sum() > best
            and not words[is_chosen].sum(axis=0).any()
            and (gap[is_chosen] > 0).sum() == (gap[is_chosen] < 0).sum()
        ):
            best = int(is_chosen.sum())
    return best


@given(SMALL)
def test_selection_is_balanced_and_largest(case: tuple[np.ndarray, np.ndarray]) -> None:
    gap, words = case
    keep = word_refinement(gap, np.zeros(len(gap)), words, bins=2)
    assert not words[keep].sum(axis=0).any()
    assert (gap[keep] > 0).sum() == (gap[keep] < 0).sum()
    assert keep.sum() == largest_subset_size(gap, words)


@given(SMALL, st.randoms())
def test_selection_does_not_depend_on_order(case: tuple[np.ndarray, np.ndarray], random) -> None:
    gap, words = case
    ids = np.array([f"id {n}" for n in range(len(gap))])
    order = np.array(random.sample(range(len(ids)), len(ids)))
    keep, reordered_keep = (
        word_refinement(gap, gap, words, 4, ids),
        word_refinement(gap[order], gap[order], words[order], 4, ids[order]),
    )
    assert set(ids[keep]) == set(ids[order][reordered_keep])


def replaced_objects(n: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Captions in which one object replaces another, the first far more often than the others."""
    random = np.random.default_rng(seed)
    pairs = []
    for _ in range(n):
        old, new = random.choice(5, 2, replace=False, p=[0.4, 0.3, 0.15, 0.1, 0.05])
        pairs.append((f"A {KINDS[old]} on a hill.", f"A {KINDS[new]} on a hill."))
    captions, negatives = zip(*pairs, strict=True)
    return list(captions), list(negatives)


def test_classifier_learns_nothing_from_balanced_words() -> None:
    captions, negatives = replaced_objects(400)
    negatives[:100] = [text.replace("A ", "A small ") for text in negatives[:100]]
    words, no_gaps = word_differences(captions, negatives), np.zeros(400)
    assert np.abs(fit_logistic(words)).max() > 0.1
    keep = word_refinement(no_gaps, no_gaps, words)
    assert keep[100:].sum() > 200
    assert not keep[:100].any()  # length reveals additions
    assert np.abs(fit_logistic(words[np.flatnonzero(keep)])).max() < 1e-4


def test_inconsistent_arguments_are_rejected() -> None:
    with pytest.raises(CrossmatchError, match="words of 2 and gaps of 3"):
        word_refinement(np.zeros(3), np.zeros(3), np.zeros((2, 4)))
    with pytest.raises(CrossmatchError, match="same key"):
        word_refinement(np.zeros(2), np.zeros(2), np.zeros((2, 1)), keys=["a", "a"])
    assert word_refinement(np.zeros(0), np.zeros(0), np.zeros((0, 1))).tolist() == []
    assert word_refinement(np.zeros(2), np.zeros(2), np.zeros((2, 1))).all()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    captions, negatives = replaced_objects(900, seed=1)
    texts = [tuple(f"{text[:-1]} {n}." for text in pair) for n, pair in enumerate(zip(captions, negatives, strict=True))]
    rows = [
        {"id": f"n{n}", "image_id": f"i{n // 3}", "caption_id": f"c{n}", "caption": caption, "negative": negative}
        for n, (caption, negative) in enumerate(texts)
    ]
    write_step(tmp_path / "source", StepSpec("negatives", {}, {}, 0), lambda _: rows)
    return tmp_path / "source"


@pytest.mark.parametrize("number", [1, 2])
def test_step_balances_words_in_each_part(source: Path, tmp_path: Path, number: int) -> None:
    manifest = refine_negatives(source, tmp_path / "out", share=1.0, bins=4, words=True, parts=number)
    rows = read_rows(tmp_path / "out")
    member = assign_folds([row["image_id"] for row in rows], number)
    assert len(rows) > 300
    for part in range(number):
        rows_of_part = [row for row, is_chosen in zip(rows, member, strict=True) if is_chosen == part]
        assert (
            not word_differences([row["caption"] for row in rows_of_part], [row["negative"] for row in rows_of_part])
            .sum(axis=0)
            .any()
        )
    assert manifest["counts"]["dropped: to balance the grid and all words"] == 900 - len(rows)
    blind = json.loads((tmp_path / "out" / BLIND_FILE).read_text())
    assert blind["read"]["with words"]["low"] > 0.5
    assert blind["kept"]["with words"]["low"] <= 0.5 <= blind["kept"]["with words"]["high"]
    assert [row.get("part") for row in rows] == (member.tolist() if number > 1 else [None] * len(rows))
    assert ("kept in part 1" in manifest["counts"]) == (number > 1)
    if number > 1:  # nothing that holds in one part holds in the other
        within_kept = blind["kept, taught by itself"]["with words"]
        assert within_kept["low"] <= 0.5 <= within_kept["high"]


@pytest.mark.parametrize("words", [False, True])
def test_parts_may_be_empty(source: Path, tmp_path: Path, words: bool) -> None:
    manifest = refine_negatives(source, tmp_path / "out", share=0.02, bins=2, words=words, parts=50)
    counts = [manifest["counts"].get(f"kept in part {part}", 0) for part in range(50)]
    assert 0 in counts
    assert sum(counts) == manifest["rows"] == manifest["counts"]["kept"]


def test_rows_without_negatives_are_rejected(tmp_path: Path) -> None:
    rows = [{"id": "a", "image_id": "i", "caption_id": "c", "caption": "A dog."}]
    write_step(tmp_path / "captions", StepSpec("format", {}, {}, 0), lambda _: rows)
    with pytest.raises(UsageError, match=r"row a: negative is missing; expected captions with negatives"):
        refine_negatives(tmp_path / "captions", tmp_path / "out")


def test_options_are_recorded_and_checked(source: Path, tmp_path: Path) -> None:
    refine_negatives(source, tmp_path / "out", share=1.0, bins=4, words=True)
    assert read_manifest(tmp_path / "out")["options"]["words"] is True
    with pytest.raises(UsageError, match=r"--parts must be at least 1 \(got 0\)"):
        refine_negatives(source, tmp_path / "other", parts=0)
    with pytest.raises(UsageError, match="--bins 1 balances nothing"):
        refine_negatives(source, tmp_path / "other", bins=1)
    assert not (tmp_path / "other").exists()
