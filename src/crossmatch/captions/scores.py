"""What a caption metric gives, and how sure its corpus value is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from crossmatch.core.arrays import FloatArray
from crossmatch.metrics.significance import Draws


@dataclass(frozen=True, eq=False)
class Scores:
    """One number for the corpus and one for each candidate.

    The first is the mean of the others unless `whole` makes it of the totals of each candidate's `sums`, as in BLEU.
    """

    value: float
    values: FloatArray
    sums: FloatArray | None = None  # (candidates, statistics)
    whole: Callable[[FloatArray], FloatArray] | None = None  # totals (…, statistics) to corpus values (…)


def replicates(scores: Scores, draws: Draws) -> FloatArray:
    """The corpus value in each replicate of the bootstrap over images; document frequencies stay as they are.

    >>> found = replicates(Scores(0.5, np.array([0.0, 1.0])), Draws.of(np.arange(2), samples=200))
    >>> sorted(set(found.tolist()))
    [0.0, 0.5, 1.0]
    """
    sums = scores.values[:, None] if scores.sums is None else scores.sums
    by_image = np.stack([np.bincount(draws.member, column, draws.clusters) for column in sums.T.astype(np.float64)], axis=1)
    totals = np.concatenate([times @ by_image for times in draws])
    if scores.whole is not None:
        return scores.whole(totals)
    each = np.bincount(draws.member, minlength=draws.clusters).astype(np.float64)
    return np.asarray(totals[:, 0] / np.concatenate([times @ each for times in draws]), dtype=np.float64)
