"""Outcome codes of forced choices: each bit, compiled and in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data import trial_outcomes as module
from crossmatch.data.errors import CrossmatchError
from crossmatch.data.trial_outcomes import Outcomes, count_codes

SHAPES = [(1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3), (1, 5), (4, 4), (9, 9)]


def slow_code(scores):
    """The bits of one trial, comparison by comparison."""
    c, i = scores.shape
    m = min(c, i)
    bits, tie = [], False
    for n in range(m):
        bits.append(all(scores[n, n] > scores[r, n] for r in range(c) if r != n))
        tie |= scores[n, n] == max((scores[r, n] for r in range(c) if r != n), default=-np.inf)
    for n in range(m):
        bits.append(all(scores[n, n] > scores[n, r] for r in range(i) if r != n))
        tie |= scores[n, n] == max((scores[n, r] for r in range(i) if r != n), default=-np.inf)
    return sum(1 << at for at, bit in enumerate([*bits, tie]) if bit)


@pytest.mark.parametrize("min_trials", [1, 10**9], ids=["compiled", "numpy"])
@pytest.mark.parametrize("shape", SHAPES)
def test_codes_equal_single_comparisons(shape, min_trials, monkeypatch):
    monkeypatch.setattr(module, "MIN_TRIALS_FOR_NUMBA", min_trials)
    scores = np.random.default_rng(sum(shape)).integers(0, 4, (200, *shape)).astype(float)
    scores[:50] += 5 * np.eye(*shape)  # wins, too
    outcomes = Outcomes.from_scores(scores)
    assert outcomes.codes.tolist() == [slow_code(s) for s in scores]
    assert np.array_equal(outcomes.is_tied, [slow_code(s) >> 2 * min(shape) & 1 for s in scores])
    assert outcomes.codes.dtype.kind == "u"


@pytest.mark.parametrize("min_trials", [1, 10**9], ids=["compiled", "numpy"])
@pytest.mark.parametrize("shape", [(2, 2), (9, 9)])
def test_count_codes_equals_a_loop(shape, min_trials, monkeypatch):
    monkeypatch.setattr(module, "MIN_TRIALS_FOR_NUMBA", min_trials)
    rng = np.random.default_rng(1)
    outcomes = Outcomes.from_scores(rng.integers(0, 3, (500, *shape)).astype(float))
    group = rng.integers(0, 3, 500)
    codes, counts = count_codes(outcomes, group, 4)
    assert counts.shape == (4, len(codes))
    for g in range(4):
        for at, code in enumerate(codes.tolist()):
            assert counts[g, at] == sum(c == code and k == g for c, k in zip(outcomes.codes.tolist(), group.tolist(), strict=True))
    assert count_codes(outcomes)[1].sum() == 500


@given(st.lists(st.tuples(*[st.booleans()] * 4), min_size=1, max_size=20))
def test_wins_become_bits(wins):
    win_array = np.array(wins)
    outcomes = Outcomes.from_wins(win_array, (2, 2))
    assert np.array_equal(np.stack([outcomes.has_wins(1 << bit) for bit in range(4)], axis=1), win_array)
    assert not outcomes.is_tied.any()


def test_float32_scores_are_not_rounded():
    scores = np.array([[[1.0, np.nextafter(np.float32(1), np.float32(2))]]], dtype=np.float32)
    assert Outcomes.from_scores(scores).codes.tolist() == [0b01]


def test_invalid_outcomes_are_an_error():
    with pytest.raises(CrossmatchError, match="40 matched pairs; the maximum is 31"):
        Outcomes.from_scores(np.zeros((1, 40, 40)))
    with pytest.raises(CrossmatchError, match=r"\(trials, 4\)"):
        Outcomes.from_wins(np.zeros((3, 2), dtype=bool), (2, 2))
