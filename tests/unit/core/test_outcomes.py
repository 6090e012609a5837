"""Codes of forced choices: what each bit says, compiled or not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmatch.core import outcomes as module
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.outcomes import Outcomes, tally

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


@pytest.mark.parametrize("many", [1, 10**9], ids=["compiled", "numpy"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_bit_by_comparison(shape, many, monkeypatch):
    monkeypatch.setattr(module, "MANY", many)
    scores = np.random.default_rng(sum(shape)).integers(0, 4, (200, *shape)).astype(float)
    scores[:50] += 5 * np.eye(*shape)  # wins, too
    found = Outcomes.of(scores)
    assert found.codes.tolist() == [slow_code(s) for s in scores]
    assert np.array_equal(found.tied, [slow_code(s) >> 2 * min(shape) & 1 for s in scores])
    assert found.codes.dtype.kind == "u"


@pytest.mark.parametrize("many", [1, 10**9], ids=["compiled", "numpy"])
@pytest.mark.parametrize("shape", [(2, 2), (9, 9)])
def test_tally_counts_each_code_in_each_group(shape, many, monkeypatch):
    monkeypatch.setattr(module, "MANY", many)
    rng = np.random.default_rng(1)
    found = Outcomes.of(rng.integers(0, 3, (500, *shape)).astype(float))
    group = rng.integers(0, 3, 500)
    codes, times = tally(found, group, 4)
    assert times.shape == (4, len(codes))
    for g in range(4):
        for at, code in enumerate(codes.tolist()):
            assert times[g, at] == sum(c == code and k == g for c, k in zip(found.codes.tolist(), group.tolist(), strict=True))
    assert tally(found)[1].sum() == 500


@given(st.lists(st.tuples(*[st.booleans()] * 4), min_size=1, max_size=20))
def test_wins_become_bits(wins):
    given_wins = np.array(wins)
    found = Outcomes.from_wins(given_wins, (2, 2))
    assert np.array_equal(np.stack([found.won(1 << bit) for bit in range(4)], axis=1), given_wins)
    assert not found.tied.any()


def test_float32_scores_are_compared_as_they_are():
    near = np.array([[[1.0, np.nextafter(np.float32(1), np.float32(2))]]], dtype=np.float32)
    assert Outcomes.of(near).codes.tolist() == [0b01]


def test_what_cannot_be_coded_is_refused():
    with pytest.raises(CrossmatchError, match="40 matched pairs; at most 31"):
        Outcomes.of(np.zeros((1, 40, 40)))
    with pytest.raises(CrossmatchError, match=r"\(trials, 4\) was expected"):
        Outcomes.from_wins(np.zeros((3, 2), dtype=bool), (2, 2))
