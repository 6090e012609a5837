"""Simulated results with a known truth: intervals contain it, and equal models are rarely told apart (docs/coverage.md)."""

from __future__ import annotations

import numpy as np
import pytest

from coverage_simulation import CASES, Case

FEW, MANY = 200, 2000
QUICK = ("hit@1, t2i", "mAP@R, i2t", "MRR, t2i", "median rank, t2i", "RSUM")


def check(case: Case, truth: float, images: int, runs: int) -> None:
    """At least 93 % coverage from 30 images on, and at most 6.5 % false positives, with four standard errors of the runs."""
    skill, exact = case.calibrate(truth)
    cell = case.cell(truth, skill, exact, images, runs)
    assert cell.coverage >= 93 - 400 * np.sqrt(0.93 * 0.07 / runs)
    assert cell.rejections <= 6.5 + 400 * np.sqrt(0.065 * 0.935 / runs)


@pytest.mark.parametrize("case", [case for case in CASES if case.name in QUICK], ids=lambda case: case.name)
def test_intervals_hold_at_the_ends(case: Case):
    for truth in (case.truths[0], case.truths[-1]):
        check(case, truth, 30, FEW)


def test_percentile_interval_would_fail():
    """The simulation can tell: the interval of earlier versions covers far less at a truth of 0.98."""
    case = next(case for case in CASES if case.name == "mAP@R, i2t")
    skill, exact = case.calibrate(0.98)
    values = case.draw_values((skill,), 30 * FEW, np.random.default_rng(0))[0].reshape(FEW, 30)
    weights = np.random.default_rng(1).multinomial(30, np.full(30, 1 / 30), 500)
    low, high = np.quantile(values @ weights.T / 30, [0.025, 0.975], axis=1)
    assert np.mean((low <= exact) & (exact <= high)) < 0.85


@pytest.mark.slow
@pytest.mark.parametrize("images", [30, 50, 100, 300])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_intervals_hold(case: Case, images: int):
    for truth in case.truths:
        check(case, truth, images, MANY)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equal_models_are_rarely_told_apart_with_ten_images(case: Case):
    for truth in case.truths:
        skill, exact = case.calibrate(truth)
        assert case.cell(truth, skill, exact, 10, MANY).rejections <= 6.5 + 400 * np.sqrt(0.065 * 0.935 / MANY)
