"""Adversarial refinement against its slow version, the best share, cleaning, the blind classifier, and the step."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crossmatch.build.balance import adversarial_refinement, draws
from crossmatch.build.blind import Pairs, blind_accuracy
from crossmatch.build.files import Asked, manifest, read_rows, written
from crossmatch.build.format import formatted
from crossmatch.build.negatives import negatives
from crossmatch.build.refine import BLIND, best, refine, unfit
from crossmatch.core.collection import Collection
from crossmatch.core.errors import CrossmatchError, WrongWords

GAPS = st.integers(1, 60).flatmap(
    lambda n: st.tuples(
        *(hnp.arrays(np.float64, n, elements=st.sampled_from([-2.0, -1.1, -1.0, -0.3, 0.0, 0.3, 0.9, 1.0, 2.0])) for _ in "ab")
    )
)


def cell_of(gap: float, bins: int, end: float) -> int:
    """By walking outwards from the origin, cell by cell."""
    width = 2 * end / bins
    number, edge = 0, width / 2 if bins % 2 else 0.0
    while abs(gap) > edge * (1 + 1e-12) and number < bins // 2:
        number, edge = number + 1, edge + width
    return number if gap > 0 else -number


def slowly_refined(gap1: np.ndarray, gap2: np.ndarray, bins: int) -> dict[tuple[int, int], int]:
    """How many pairs of each cell are kept."""
    ends = [float(np.abs(gap).max()) or 1.0 for gap in (gap1, gap2)]
    cells: dict[tuple[int, int], int] = defaultdict(int)
    for one, two in zip(gap1, gap2, strict=True):
        cells[cell_of(one, bins, ends[0]), cell_of(two, bins, ends[1])] += 1
    return {cell: n if cell == (0, 0) else min(n, cells.get((-cell[0], -cell[1]), 0)) for cell, n in dict(cells).items()}


@settings(max_examples=200, deadline=None)
@given(GAPS, st.sampled_from([2, 4, 8, 100]))
def test_as_many_of_a_cell_are_kept_as_of_its_mirror_image(gaps: tuple[np.ndarray, np.ndarray], bins: int) -> None:
    keep = adversarial_refinement(*gaps, bins)
    ends = [float(np.abs(gap).max()) or 1.0 for gap in gaps]
    kept: dict[tuple[int, int], int] = defaultdict(int)
    for one, two in zip(*(gap[keep] for gap in gaps), strict=True):
        kept[cell_of(one, bins, ends[0]), cell_of(two, bins, ends[1])] += 1
    assert dict(kept) == {cell: n for cell, n in slowly_refined(*gaps, bins).items() if n}


@settings(max_examples=100, deadline=None)
@given(GAPS, st.sampled_from([1, 2, 3, 5, 10]), st.randoms())
def test_the_order_of_pairs_does_not_matter(gaps: tuple[np.ndarray, np.ndarray], bins: int, random) -> None:
    ids = np.array([f"id {n}" for n in range(len(gaps[0]))])
    order = np.array(random.sample(range(len(ids)), len(ids)))
    keep = adversarial_refinement(*gaps, bins, ids)
    again = adversarial_refinement(gaps[0][order], gaps[1][order], bins, ids[order])
    assert set(ids[keep]) == set(ids[order][again])


@settings(max_examples=100, deadline=None)
@given(GAPS, st.sampled_from([1, 2, 3, 7, 50]))
def test_turning_captions_and_negatives_around_keeps_as_many(gaps: tuple[np.ndarray, np.ndarray], bins: int) -> None:
    assert adversarial_refinement(*gaps, bins).sum() == adversarial_refinement(-gaps[0], -gaps[1], bins).sum()


@settings(max_examples=100, deadline=None)
@given(GAPS, st.sampled_from([2, 10, 100]))
def test_neither_score_says_anything_any_more(gaps: tuple[np.ndarray, np.ndarray], bins: int) -> None:
    keep = adversarial_refinement(*gaps, bins)
    for gap in gaps:
        assert (gap[keep] > 0).sum() == (gap[keep] < 0).sum()


def test_ties_in_both_scores_are_kept_as_they_tell_nothing() -> None:
    assert adversarial_refinement(np.zeros(5), np.zeros(5)).all()
    assert len(adversarial_refinement([], [])) == 0
    assert not adversarial_refinement([1.0, 2.0], [1.0, 2.0]).any()


def test_what_is_kept_is_drawn_by_key_and_seed() -> None:
    gap = np.concatenate([np.full(50, 1.0), np.full(10, -1.0)])
    ids = np.array([f"p{n}" for n in range(60)])
    first, second = (set(ids[adversarial_refinement(gap, gap, 2, ids, seed=seed)]) for seed in (0, 1))
    assert first != second
    assert len(first) == len(second) == 20
    wide = ids.astype("<U40")
    assert set(ids[adversarial_refinement(gap, gap, 2, wide)]) == first, "the width of an array is no part of its ids"
    numbers = adversarial_refinement(gap, gap, 2, np.arange(60))
    assert numbers.sum() == 20


def test_draws_are_spread_evenly_and_differ() -> None:
    drawn = draws(np.array([f"caption-{n}" for n in range(20_000)]), 20_000, 0)
    assert len(np.unique(drawn)) == 20_000
    assert abs((drawn > 2**63).mean() - 0.5) < 0.02


def test_a_grid_of_probabilities_reaches_to_one() -> None:
    gaps = np.array([0.04, -0.06])
    assert adversarial_refinement(gaps, gaps, 2, reach=(1.0, 1.0)).all()
    assert not adversarial_refinement(gaps, gaps, 100, reach=(1.0, 1.0)).any(), "cells 2 and -3"
    assert adversarial_refinement([5.0, -9.0], [5.0, -9.0], 100, reach=(1.0, 1.0)).all(), (
        "what lies farther counts to the outermost cell"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], [1.0, 2.0]), "1 gaps of the first"),
        (([np.nan], [1.0]), "not finite"),
        (([[1.0]], [1.0]), "shape"),
        (([1.0], [1.0], 0), "1 to 4096"),
        (([1.0], [1.0], 5000), "1 to 4096"),
        (([1.0], [1.0], 2, ["a", "b"]), "keys have shape"),
        (([1.0, 1.0], [1.0, 1.0], 2, ["a", "a"]), "same key"),
    ],
)
def test_what_cannot_be_refined_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(CrossmatchError, match=message):
        adversarial_refinement(*arguments)


def test_all_negatives_of_trohn_are_refined_in_seconds() -> None:
    random = np.random.default_rng(0)
    n = 3_652_846
    first = random.normal(0.3, 1.0, n)
    start = time.process_time()
    keep = adversarial_refinement(first, 0.5 * first + random.normal(0.1, 1.0, n), 100, np.arange(n))
    assert time.process_time() - start < 20
    assert 0.5 * n < keep.sum() < n


# -- the best share, and cleaning


def test_the_best_are_best_by_both_scores_whatever_their_scales() -> None:
    one, two = np.arange(10.0), np.arange(10.0)[::-1] / 1e6
    assert best([one, one], 0.35, list("abcdefghij")).tolist() == [False] * 6 + [True] * 4
    assert best([one, two], 0.3, list("abcdefghij")).sum() == 3
    assert set(np.flatnonzero(best([np.zeros(10)] * 2, 0.3, list("abcdefghij")))) != {0, 1, 2}, "ties go by key, not by place"


@pytest.mark.parametrize("share", [0, -1, 1.1, float("nan")])
def test_a_share_lies_between_nought_and_one(share: float) -> None:
    with pytest.raises(WrongWords, match="share"):
        best([np.zeros(3)], share, list("abc"))


def test_unfit_negatives_are_told_by_their_fault() -> None:
    texts = ["A cat.", 'He says "a dog."', "狗。", "A cat!", "A bird", "Is it a cat?", "A dog.", "A cat. "]
    rows = [{"id": str(n), "image_id": "x", "caption": "A dog.", "negative": text} for n, text in enumerate(texts)]
    assert unfit(rows) == ["", "", "", "duplicate", "no end", "question", "a caption of the image", "duplicate"]
    turned = unfit(rows[::-1])[::-1]
    assert turned == unfit(rows), "the first by id stays, in whatever order they come"


# -- a blind classifier


def test_a_blind_classifier_finds_what_is_there_and_nothing_else() -> None:
    random = np.random.default_rng(1)
    names = [f"image {n // 2}" for n in range(2_000)]
    lopsided = random.normal(0.5, 1.0, (2_000, 2))
    found = blind_accuracy(Pairs(lopsided, names))
    assert found.low > 0.6
    fair = blind_accuracy(Pairs(random.normal(0.0, 1.0, (2_000, 2)), names))
    assert fair.low < 0.5 < fair.high


def test_after_refinement_what_was_learnt_before_is_worth_nothing() -> None:
    random = np.random.default_rng(2)
    gaps = random.normal([0.4, 0.2], 1.0, (8_000, 2)) @ np.array([[1.0, 0.5], [0.0, 1.0]])
    names = [str(n) for n in range(8_000)]
    keep = adversarial_refinement(gaps[:, 0], gaps[:, 1], 100, np.array(names))
    kept = [names[n] for n in np.flatnonzero(keep)]
    after = blind_accuracy(Pairs(gaps[keep], kept), Pairs(gaps, names))
    assert blind_accuracy(Pairs(gaps, names)).low > 0.55
    assert after.low < 0.5 < after.high


def test_words_give_negatives_away() -> None:
    captions = [f"A dog number {n}." for n in range(200)]
    negatives = [f"A purple dog number {n}." for n in range(200)]
    names = [str(n) for n in range(200)]
    nothing = np.zeros((200, 1))
    assert blind_accuracy(Pairs(nothing, names)).value == 0.5
    assert blind_accuracy(Pairs(nothing, names, captions, negatives)).value == 1.0


def test_the_classifier_does_not_depend_on_the_order_of_pairs() -> None:
    random = np.random.default_rng(3)
    gaps, names = random.normal(0.2, 1.0, (300, 2)), [f"{n % 90}" for n in range(300)]
    order = random.permutation(300)
    assert blind_accuracy(Pairs(gaps, names)).value == blind_accuracy(Pairs(gaps[order], [names[n] for n in order])).value


def test_one_image_teaches_nothing() -> None:
    with pytest.raises(CrossmatchError, match="one image"):
        blind_accuracy(Pairs(np.ones((3, 2)), ["a", "a", "a"]))
    with pytest.raises(CrossmatchError, match="finite"):
        blind_accuracy(Pairs(np.full((2, 2), np.inf), ["a", "b"]))


# -- the step


def rows_of(number: int) -> list[dict]:
    random = np.random.default_rng(4)
    things = ["dog", "cat", "bus", "table", "man", "tree", "cup"]
    out = []
    for n in range(number):
        one, two, three = random.choice(things, 3)
        out.append(
            {
                "id": f"c{n}~replace/obj",
                "caption_id": f"c{n}",
                "image_id": f"i{n // 3}",
                "caption": f"A {one} near a {two}.",
                "negative": f"A {one} near a {three}." if n % 5 else f"A {one} near a {three}",
                "category": "replace/obj",
                "changed": [two, three],
            }
        )
    return out


def test_a_folder_is_refined_and_tells_what_became_of_every_row(tmp_path: Path) -> None:
    written(tmp_path / "n", Asked("negatives", {}), lambda made: rows_of(300))
    told = refine(tmp_path / "n", tmp_path / "r", share=0.9, bins=10)
    rows = read_rows(tmp_path / "r", "refine")
    counts = told["counts"]
    assert counts["read"] == 300
    assert counts["kept"] == len(rows)
    assert counts["read"] == counts["kept"] + sum(n for key, n in counts.items() if key.startswith("dropped"))
    assert counts["dropped: no end"] > 0
    assert counts["dropped: duplicate"] > 0
    assert all(len(row["scores"]) == 2 and row["negative"].endswith(".") for row in rows)
    blind = json.loads((tmp_path / "r" / BLIND).read_text())
    assert blind["read"]["pairs"] == 300
    assert blind["kept"]["pairs"] == len(rows)


def test_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    written(tmp_path / "a", Asked("negatives", {}), lambda made: rows_of(120))
    written(tmp_path / "b", Asked("negatives", {}), lambda made: rows_of(120)[::-1])
    for name in "ab":
        refine(tmp_path / name, tmp_path / f"{name}r", share=1.0, bins=6)
    assert (tmp_path / "ar" / "rows.jsonl").read_bytes() == (tmp_path / "br" / "rows.jsonl").read_bytes()


def test_any_function_scores(tmp_path: Path) -> None:
    written(tmp_path / "n", Asked("negatives", {}), lambda made: rows_of(60))

    def length(texts):
        return [len(text) for text in texts]

    told = refine(tmp_path / "n", tmp_path / "r", scorers=[length, "fluency"], share=1.0)
    assert told["options"]["scorers"] == ["length", "ngram-fluency"]
    with pytest.raises(WrongWords, match="two were expected"):
        refine(tmp_path / "n", tmp_path / "s", scorers=["fluency"])
    with pytest.raises(CrossmatchError, match="finite"):
        refine(tmp_path / "n", tmp_path / "t", scorers=[lambda texts: [np.nan] * len(texts), "fluency"])
    assert not manifest(tmp_path / "t")["finished"]


def test_an_empty_folder_and_a_single_row_are_refined(tmp_path: Path) -> None:
    written(tmp_path / "none", Asked("negatives", {}), lambda made: [])
    assert refine(tmp_path / "none", tmp_path / "r")["rows"] == 0
    written(tmp_path / "one", Asked("negatives", {}), lambda made: rows_of(2)[1:])
    with pytest.raises(CrossmatchError, match="no captions of other images"):
        refine(tmp_path / "one", tmp_path / "s")


def test_a_step_that_has_no_negatives_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "n", Asked("mine", {}), lambda made: [])
    with pytest.raises(WrongWords, match="made by mine"):
        refine(tmp_path / "n", tmp_path / "r")


def test_on_real_captions_a_blind_classifier_falls_to_chance(real_data: Path, tmp_path: Path) -> None:
    from crossmatch.benchmarks.coco import collection

    data: Collection = collection("test")
    negatives(data, tmp_path / "n", seed=1, captions=1_200)
    formatted(tmp_path / "n", tmp_path / "f")
    refine(tmp_path / "f", tmp_path / "r")
    told = json.loads((tmp_path / "r" / BLIND).read_text())
    assert told["fit"]["low"] > 0.7
    assert told["kept"]["low"] < 0.5 < told["kept"]["high"]
    assert told["kept"]["pairs"] > 100
