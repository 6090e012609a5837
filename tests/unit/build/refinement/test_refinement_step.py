"""Adversarial refinement against a slow version, the best share, cleaning, the blind classifier, and the step."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crossmatch.build.negatives.by_rules import write_rule_negatives
from crossmatch.build.negatives.caption_format import write_formatted
from crossmatch.build.refinement.adversarial_refinement import adversarial_refinement, hash_keys
from crossmatch.build.refinement.blind_classifier import BlindPairs, blind_accuracy
from crossmatch.build.refinement.refinement_step import BLIND_FILE, refine_negatives, rejection_reasons, select_best
from crossmatch.build.step_files import StepSpec, read_manifest, read_rows, write_step
from crossmatch.data.collection import Collection
from crossmatch.data.errors import CrossmatchError, UsageError

GAPS = st.integers(1, 60).flatmap(
    lambda n: st.tuples(
        *(hnp.arrays(np.float64, n, elements=st.sampled_from([-2.0, -1.1, -1.0, -0.3, 0.0, 0.3, 0.9, 1.0, 2.0])) for _ in "ab")
    )
)


def cell_of(gap: float, bins: int, end: float) -> int:
    """Number of the cell of a gap, by walking outwards from the origin."""
    width = 2 * end / bins
    number, edge = 0, width / 2 if bins % 2 else 0.0
    while abs(gap) > edge * (1 + 1e-12) and number < bins // 2:
        number, edge = number + 1, edge + width
    return number if gap > 0 else -number


def slow_cell_counts(gap1: np.ndarray, gap2: np.ndarray, bins: int) -> dict[tuple[int, int], int]:
    """Number of pairs that are kept in each cell."""
    ends = [float(np.abs(gap).max()) or 1.0 for gap in (gap1, gap2)]
    cells: dict[tuple[int, int], int] = defaultdict(int)
    for first, second in zip(gap1, gap2, strict=True):
        cells[cell_of(first, bins, ends[0]), cell_of(second, bins, ends[1])] += 1
    return {cell: n if cell == (0, 0) else min(n, cells.get((-cell[0], -cell[1]), 0)) for cell, n in dict(cells).items()}


@given(GAPS, st.sampled_from([2, 4, 8, 100]))
def test_cells_and_their_mirror_images_keep_equally_many_pairs(gaps: tuple[np.ndarray, np.ndarray], bins: int) -> None:
    keep = adversarial_refinement(*gaps, bins)
    ends = [float(np.abs(gap).max()) or 1.0 for gap in gaps]
    kept_counts: dict[tuple[int, int], int] = defaultdict(int)
    for first, second in zip(*(gap[keep] for gap in gaps), strict=True):
        kept_counts[cell_of(first, bins, ends[0]), cell_of(second, bins, ends[1])] += 1
    assert dict(kept_counts) == {cell: n for cell, n in slow_cell_counts(*gaps, bins).items() if n}


@given(GAPS, st.sampled_from([1, 2, 3, 5, 10]), st.randoms())
def test_selection_does_not_depend_on_order(gaps: tuple[np.ndarray, np.ndarray], bins: int, random) -> None:
    ids = np.array([f"id {n}" for n in range(len(gaps[0]))])
    order = np.array(random.sample(range(len(ids)), len(ids)))
    keep = adversarial_refinement(*gaps, bins, ids)
    reordered_keep = adversarial_refinement(gaps[0][order], gaps[1][order], bins, ids[order])
    assert set(ids[keep]) == set(ids[order][reordered_keep])


@given(GAPS, st.sampled_from([1, 2, 3, 7, 50]))
def test_negated_gaps_keep_equally_many_pairs(gaps: tuple[np.ndarray, np.ndarray], bins: int) -> None:
    assert adversarial_refinement(*gaps, bins).sum() == adversarial_refinement(-gaps[0], -gaps[1], bins).sum()


@given(GAPS, st.sampled_from([2, 10, 100]))
def test_signs_of_both_gaps_are_balanced(gaps: tuple[np.ndarray, np.ndarray], bins: int) -> None:
    keep = adversarial_refinement(*gaps, bins)
    for gap in gaps:
        assert (gap[keep] > 0).sum() == (gap[keep] < 0).sum()


def test_ties_in_both_scores_are_kept() -> None:
    assert adversarial_refinement(np.zeros(5), np.zeros(5)).all()
    assert len(adversarial_refinement([], [])) == 0
    assert not adversarial_refinement([1.0, 2.0], [1.0, 2.0]).any()


def test_selection_depends_on_keys_and_seed() -> None:
    gap = np.concatenate([np.full(50, 1.0), np.full(10, -1.0)])
    ids = np.array([f"p{n}" for n in range(60)])
    first, second = (set(ids[adversarial_refinement(gap, gap, 2, ids, seed=seed)]) for seed in (0, 1))
    assert first != second
    assert len(first) == len(second) == 20
    wide = ids.astype("<U40")
    assert set(ids[adversarial_refinement(gap, gap, 2, wide)]) == first, "the width of the array does not matter"
    numbers = adversarial_refinement(gap, gap, 2, np.arange(60))
    assert numbers.sum() == 20


def test_hashes_of_keys_are_uniform_and_distinct() -> None:
    bits = hash_keys(np.array([f"caption-{n}" for n in range(20_000)]), 20_000, 0)
    assert len(np.unique(bits)) == 20_000
    assert abs((bits > 2**63).mean() - 0.5) < 0.02


def test_reach_sets_the_extent_of_the_grid() -> None:
    gaps = np.array([0.04, -0.06])
    assert adversarial_refinement(gaps, gaps, 2, reach=(1.0, 1.0)).all()
    assert not adversarial_refinement(gaps, gaps, 100, reach=(1.0, 1.0)).any(), "cells 2 and -3"
    assert adversarial_refinement([5.0, -9.0], [5.0, -9.0], 100, reach=(1.0, 1.0)).all(), "larger gaps count to the outermost cell"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [1.0, 2.0]), "got 1 of the first score"),
        (([np.nan], [1.0]), "expected finite numbers"),
        (([[1.0]], [1.0]), "shape"),
        (([1.0], [1.0], 0), "1 to 4096"),
        (([1.0], [1.0], 5000), "1 to 4096"),
        (([1.0], [1.0], 2, ["a", "b"]), "Expected one key for each"),
        (([1.0, 1.0], [1.0, 1.0], 2, ["a", "a"]), "same key"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: tuple, message: str) -> None:
    with pytest.raises(CrossmatchError, match=message):
        adversarial_refinement(*arguments)


def test_millions_of_pairs_are_refined_in_seconds() -> None:
    random = np.random.default_rng(0)
    n = 3_652_846
    first = random.normal(0.3, 1.0, n)
    start = time.process_time()
    keep = adversarial_refinement(first, 0.5 * first + random.normal(0.1, 1.0, n), 100, np.arange(n))
    assert time.process_time() - start < 20
    assert 0.5 * n < keep.sum() < n


# -- the best share, and cleaning


def test_best_share_does_not_depend_on_scales() -> None:
    first, second = np.arange(10.0), np.arange(10.0)[::-1] / 1e6
    assert select_best([first, first], 0.35, list("abcdefghij")).tolist() == [False] * 6 + [True] * 4
    assert select_best([first, second], 0.3, list("abcdefghij")).sum() == 3
    assert set(np.flatnonzero(select_best([np.zeros(10)] * 2, 0.3, list("abcdefghij")))) != {0, 1, 2}, (
        "keys break ties, not positions"
    )


@pytest.mark.parametrize("share", [0, -1, 1.1, float("nan")])
def test_share_must_be_between_0_and_1(share: float) -> None:
    with pytest.raises(UsageError, match="share"):
        select_best([np.zeros(3)], share, list("abc"))


def test_rejection_reasons() -> None:
    texts = ["A cat.", 'He says "a dog."', "狗。", "A cat!", "A bird", "Is it a cat?", "A dog.", "A cat. "]
    rows = [{"id": str(n), "image_id": "x", "caption": "A dog.", "negative": text} for n, text in enumerate(texts)]
    assert rejection_reasons(rows) == ["", "", "", "duplicate", "no end", "question", "a caption of the image", "duplicate"]
    reversed_reasons = rejection_reasons(rows[::-1])[::-1]
    assert reversed_reasons == rejection_reasons(rows), "the first by id stays, in any order"


# -- a blind classifier


def test_blind_classifier_finds_a_signal_and_nothing_else() -> None:
    random = np.random.default_rng(1)
    names = [f"image {n // 2}" for n in range(2_000)]
    biased_gaps = random.normal(0.5, 1.0, (2_000, 2))
    biased = blind_accuracy(BlindPairs(biased_gaps, names))
    assert biased.low > 0.6
    unbiased = blind_accuracy(BlindPairs(random.normal(0.0, 1.0, (2_000, 2)), names))
    assert unbiased.low < 0.5 < unbiased.high


def test_refined_pairs_defeat_an_earlier_classifier() -> None:
    random = np.random.default_rng(2)
    gaps = random.normal([0.4, 0.2], 1.0, (8_000, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]])
    names = [str(n) for n in range(8_000)]
    keep = adversarial_refinement(gaps[:, 0], gaps[:, 1], 100, np.array(names))
    kept_names = [names[n] for n in np.flatnonzero(keep)]
    after = blind_accuracy(BlindPairs(gaps[keep], kept_names), BlindPairs(gaps, names))
    assert blind_accuracy(BlindPairs(gaps, names)).low > 0.55
    assert after.low < 0.5 < after.high


def test_blind_classifier_uses_words() -> None:
    captions = [f"A dog number {n}." for n in range(200)]
    negatives = [f"A purple dog number {n}." for n in range(200)]
    names = [str(n) for n in range(200)]
    nothing = np.zeros((200, 1))
    assert blind_accuracy(BlindPairs(nothing, names)).value == 0.5
    assert blind_accuracy(BlindPairs(nothing, names, captions, negatives)).value == 1.0


def test_classifier_does_not_depend_on_order() -> None:
    random = np.random.default_rng(3)
    gaps, names = random.normal(0.2, 1.0, (300, 2)), [f"{n % 90}" for n in range(300)]
    order = random.permutation(300)
    assert blind_accuracy(BlindPairs(gaps, names)).value == blind_accuracy(BlindPairs(gaps[order], [names[n] for n in order])).value


def test_blind_accuracy_needs_two_images_and_finite_gaps() -> None:
    with pytest.raises(CrossmatchError, match="one image"):
        blind_accuracy(BlindPairs(np.ones((3, 2)), ["a", "a", "a"]))
    with pytest.raises(CrossmatchError, match="finite"):
        blind_accuracy(BlindPairs(np.full((2, 2), np.inf), ["a", "b"]))


# -- the step


def negative_rows(number: int) -> list[dict]:
    random = np.random.default_rng(4)
    nouns = ["dog", "cat", "bus", "table", "man", "tree", "cup"]
    rows = []
    for n in range(number):
        subject, near, new = random.choice(nouns, 3)
        caption, negative = f"A {subject} near a {near}.", f"A {subject} near a {new}" + "." * bool(n % 5)
        ids = {"id": f"c{n}~replace/obj", "caption_id": f"c{n}", "image_id": f"i{n // 3}"}
        rows.append({**ids, "caption": caption, "negative": negative})
    return rows


def test_step_counts_every_row(tmp_path: Path) -> None:
    write_step(tmp_path / "n", StepSpec("negatives", {}), lambda step: negative_rows(300))
    manifest = refine_negatives(tmp_path / "n", tmp_path / "r", share=0.9, bins=10)
    rows = read_rows(tmp_path / "r", "refine")
    counts = manifest["counts"]
    assert counts["read"] == 300
    assert counts["kept"] == len(rows)
    assert counts["read"] == counts["kept"] + sum(n for key, n in counts.items() if key.startswith("dropped"))
    assert counts["dropped: no end"] > 0
    assert counts["dropped: duplicate"] > 0
    assert all(len(row["scores"]) == 2 and row["negative"].endswith(".") for row in rows)
    blind = json.loads((tmp_path / "r" / BLIND_FILE).read_text())
    assert blind["read"]["pairs"] == 300
    assert blind["kept"]["pairs"] == len(rows)


def test_step_does_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    write_step(tmp_path / "a", StepSpec("negatives", {}), lambda step: negative_rows(120))
    write_step(tmp_path / "b", StepSpec("negatives", {}), lambda step: negative_rows(120)[::-1])
    for name in "ab":
        refine_negatives(tmp_path / name, tmp_path / f"{name}r", share=1.0, bins=6)
    assert (tmp_path / "ar" / "rows.jsonl").read_bytes() == (tmp_path / "br" / "rows.jsonl").read_bytes()


def test_functions_are_scorers(tmp_path: Path) -> None:
    write_step(tmp_path / "n", StepSpec("negatives", {}), lambda step: negative_rows(60))

    def length(texts):
        return [len(text) for text in texts]

    manifest = refine_negatives(tmp_path / "n", tmp_path / "r", scorers=[length, "fluency"], share=1.0)
    assert manifest["options"]["scorers"] == ["length", "ngram-fluency"]
    with pytest.raises(UsageError, match="needs two scorers"):
        refine_negatives(tmp_path / "n", tmp_path / "s", scorers=["fluency"])
    with pytest.raises(CrossmatchError, match="finite"):
        refine_negatives(tmp_path / "n", tmp_path / "t", scorers=[lambda texts: [np.nan] * len(texts), "fluency"])
    assert not read_manifest(tmp_path / "t")["finished"]


def test_empty_folder_is_refined_and_single_image_is_rejected(tmp_path: Path) -> None:
    write_step(tmp_path / "none", StepSpec("negatives", {}), lambda step: [])
    assert refine_negatives(tmp_path / "none", tmp_path / "r")["rows"] == 0
    write_step(tmp_path / "one", StepSpec("negatives", {}), lambda step: negative_rows(2)[1:])
    with pytest.raises(CrossmatchError, match="no captions of other images"):
        refine_negatives(tmp_path / "one", tmp_path / "s")


def test_folder_of_another_step_is_rejected(tmp_path: Path) -> None:
    write_step(tmp_path / "n", StepSpec("lookalikes", {}), lambda step: [])
    with pytest.raises(UsageError, match="made by step lookalikes"):
        refine_negatives(tmp_path / "n", tmp_path / "r")


def test_blind_accuracy_on_coco_falls_to_chance(real_data: Path, tmp_path: Path) -> None:
    from crossmatch.benchmarks.coco import coco_collection

    data: Collection = coco_collection("test")
    write_rule_negatives(data, tmp_path / "n", seed=1, captions=1_200)
    write_formatted(tmp_path / "n", tmp_path / "f")
    refine_negatives(tmp_path / "f", tmp_path / "r")
    manifest = json.loads((tmp_path / "r" / BLIND_FILE).read_text())
    assert manifest["fit"]["low"] > 0.7
    assert manifest["kept"]["low"] < 0.5 < manifest["kept"]["high"]
    assert manifest["kept"]["pairs"] > 100
