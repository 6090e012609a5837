"""The hinges against loops over the paper's equations."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.errors import UsageError
from crossmatch.train.objectives.triplet import NEGATIVES, hinge


def by_loops(scores, image, negatives, margin):
    """faghri2018vse, eq. 5 and 6, and schroff2015facenet, eq. 4, one pair at a time."""
    n, total = len(scores), 0.0
    for i in range(n):
        for ways in ([scores[i][j] for j in range(n)], [scores[j][i] for j in range(n)]):
            rivals = [ways[j] for j in range(n) if image[j] != image[i]]
            if negatives == "semi-hard":
                rivals = [s for s in rivals if s < scores[i][i]]
            costs = [max(0.0, margin - scores[i][i] + s) for s in rivals]
            total += sum(costs) if negatives == "sum" else max(costs, default=0.0)
    return total


@given(st.integers(1, 7), st.sampled_from(NEGATIVES), st.integers(0, 2**31), st.floats(0.0, 0.5))
def test_hinges_equal_loops(n, negatives, seed, margin):
    generator = torch.Generator().manual_seed(seed)
    scores = (torch.rand(n, n, generator=generator, dtype=torch.float64) * 8).round() / 8  # with ties
    image = torch.randint(0, max(1, n - 1), (n,), generator=generator)  # some images twice
    loss = hinge(scores, image, negatives, margin)
    assert float(loss) == pytest.approx(by_loops(scores.tolist(), image.tolist(), negatives, margin), rel=1e-12, abs=1e-12)


def test_only_the_hardest_negative_has_a_gradient():
    scores = torch.tensor([[0.5, 0.45, 0.44], [0.1, 0.5, 0.46], [0.1, 0.1, 0.5]], requires_grad=True)
    hinge(scores, torch.arange(3), "hardest").backward()
    assert scores.grad[0, 1] > 0
    assert scores.grad[0, 2] == 0


def test_semi_hard_ignores_negatives_closer_than_the_pair():
    scores = torch.tensor([[0.5, 0.9], [0.4, 0.5]], requires_grad=True)
    hinge(scores, torch.arange(2), "semi-hard").backward()
    assert scores.grad[0, 1] == 0
    assert scores.grad[1, 0] > 0


def test_unknown_negatives_are_refused():
    with pytest.raises(UsageError, match="sum, semi-hard, hardest"):
        hinge(torch.eye(2), torch.arange(2), "hard")
