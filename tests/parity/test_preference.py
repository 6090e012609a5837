"""Bradley-Terry strengths equal those of choix and evalica."""

import numpy as np
import pytest

from crossmatch.metrics.bradley_terry import ComparisonCounts, bradley_terry

choix = pytest.importorskip("choix", reason="choix is not installed")


def preferences(seed, items=6):
    """Counts among items that are all connected by wins."""
    return np.random.default_rng(seed).integers(1, 40, (items, items)) * (1 - np.eye(items, dtype=int))


@pytest.mark.parametrize("prior", [0, 1])
@pytest.mark.parametrize("seed", range(4))
def test_strengths_equal_choix(seed, prior):
    wins = preferences(seed)
    if prior:
        wins[2] = 0  # the third never wins
    counted = wins + prior * (1 - np.eye(len(wins), dtype=int))
    pairs = [(i, j) for i in range(len(wins)) for j in range(len(wins)) for _ in range(counted[i, j])]
    theirs = np.exp(choix.ilsr_pairwise(len(wins), pairs, max_iter=1000, tol=1e-12))
    assert bradley_terry(ComparisonCounts.from_matrix(wins), prior) == pytest.approx(theirs / theirs.sum(), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_strengths_with_ties_equal_evalica(seed):
    evalica = pytest.importorskip("evalica", reason="evalica is not installed")
    wins = preferences(seed)
    ties = np.random.default_rng(seed + 100).integers(0, 9, wins.shape)
    ties = (ties + ties.T) * (1 - np.eye(len(wins), dtype=int))
    rows = [(i, j, evalica.Winner.X) for i in range(len(wins)) for j in range(len(wins)) for _ in range(wins[i, j])]
    rows += [(i, j, evalica.Winner.Draw) for i in range(len(wins)) for j in range(i) for _ in range(ties[i, j])]
    xs, ys, winners = zip(*rows, strict=True)
    strengths = evalica.bradley_terry(xs, ys, winners, tie_weight=0.5, tolerance=1e-12, limit=10_000)
    theirs = strengths.scores.sort_index().to_numpy()
    ours = bradley_terry(ComparisonCounts(tuple("abcdef"), wins, ties))
    assert ours == pytest.approx(theirs / theirs.sum(), abs=1e-8)
