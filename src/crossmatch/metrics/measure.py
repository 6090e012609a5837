"""From the evidence of one part to one number with its interval and its chance level, for each shape of evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.cuts import Cuts
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.pairs import Pairs
from crossmatch.core.ranks import Ranks
from crossmatch.core.result import Part
from crossmatch.core.standing import Standing
from crossmatch.metrics.proportion import apart, choice_shares, mean_of_alike, share_of
from crossmatch.metrics.significance import Draws, interval, replicate_means, replicates
from crossmatch.metrics.table import Metric

UNJUDGED_AT = 10  # how far down the ranking unjudged pairs are counted


@dataclass(frozen=True, eq=False)
class Measured:
    """A number, as a fraction or a rank, and what it rests on; `std` is the spread over samples where a paper tells it."""

    value: float
    low: float
    high: float
    chance: float
    n: int
    positives: int
    values: FloatArray  # for each query or trial, or for each sample
    replicates: FloatArray
    std: float | None = None
    effective: float = 0.0  # for a share of trials: how many independent ones would be as sure


@dataclass(frozen=True)
class Shape:
    """How one kind of evidence is measured. `given` is what a metric's function takes."""

    evidence: type
    fits: Callable[[Metric, Part], bool]
    given: Callable[[Metric, Part, str], Any]
    chance: Callable[[Metric, Any], float]
    positives: Callable[[Any], int]
    tied: Callable[[Part], FloatArray]
    unjudged: Callable[[Part], float | None]


def ranks_of(part: Part, ties: str, graded: bool = False) -> Ranks:
    """The ranks of a part's positives under a tie policy; `graded` takes in everything that gains something, as nDCG does."""
    assert isinstance(part.evidence, Standing)
    least = min(part.positive, np.nextafter(0.0, 1.0)) if graded else part.positive
    return Ranks.from_standing(part.evidence, least).settle(ties)


def _unjudged(part: Part) -> float | None:
    """Percent of the first `UNJUDGED_AT` retrieved that nobody judged; nothing where there is no ranking so deep."""
    if part.complete:
        return 0.0
    assert isinstance(part.evidence, Standing)
    judged = Ranks.from_standing(part.evidence, positive=-np.inf)
    seen = np.minimum(UNJUDGED_AT, judged.gallery)
    if (judged.depth < seen).any():
        return None
    return 100 * float(1 - np.mean(judged.total(judged.within(seen)) / seen))


def _offered(metric: Metric, part: Part) -> bool:
    assert isinstance(part.evidence, Outcomes)
    captions, images = (n > 1 for n in part.evidence.shape)
    there = {
        "captions": captions, "images": images, "captions images": captions and images, "one side": captions != images,
        "2x2": part.evidence.shape == (2, 2),
    }  # fmt: skip
    return there[metric.needs]


# A constant scorer under ties for rankings; random scores for trials; no correlation for pairs.
SHAPES = {
    "retrieval": Shape(
        Standing,
        lambda metric, part: True,
        lambda metric, part, ties: ranks_of(part, ties, metric.graded),
        lambda metric, ranks: metric.chance(ranks),
        lambda ranks: int(ranks.start[-1]),
        lambda part: ranks_of(part, "expected").tied,
        _unjudged,
    ),
    "cuts": Shape(
        Cuts,
        lambda metric, part: True,
        lambda metric, part, ties: part.evidence.settle(ties),  # type: ignore[union-attr]
        lambda metric, cuts: float((cuts.positives / cuts.gallery).mean()),
        lambda cuts: int(cuts.positives.sum()),
        lambda part: part.evidence.tied,  # type: ignore[union-attr, return-value, arg-type]
        lambda part: 0.0,
    ),
    "trials": Shape(
        Outcomes,
        _offered,
        lambda metric, part, ties: part.evidence,
        lambda metric, outcomes: metric.chance(outcomes.shape),
        len,
        lambda part: part.evidence.tied,  # type: ignore[union-attr, return-value, arg-type]
        lambda part: None,
    ),
    "pairs": Shape(
        Pairs,
        lambda metric, part: True,
        lambda metric, part, ties: part.evidence,
        lambda metric, pairs: 0.0,
        len,
        lambda part: part.evidence.tied,  # type: ignore[union-attr, return-value, arg-type]
        lambda part: None,
    ),
}  # fmt: skip


def shape_of(part: Part) -> Shape:
    return next(shape for shape in SHAPES.values() if isinstance(part.evidence, shape.evidence))


def applies(metric: Metric, part: Part) -> bool:
    """Whether a metric can be computed on this part."""
    shape = SHAPES.get(metric.shape)
    return shape is not None and isinstance(part.evidence, shape.evidence) and shape.fits(metric, part)


def measure(metrics: Sequence[Metric], part: Part, draws: Draws, ties: str) -> dict[str, Measured]:
    """All metrics of one part. The ranks are made once, and the replicates of all means in one product."""
    givens: dict[bool, Any] = {}
    for m in metrics:
        if m.graded not in givens:
            givens[m.graded] = SHAPES[m.shape].given(m, part, ties)
        if isinstance(givens[m.graded], Ranks):
            _check_depth(m, givens[m.graded], part)
    given = next(iter(givens.values()), None)
    if isinstance(given, Outcomes):
        return _measure_trials(metrics, part)
    if isinstance(given, Pairs):
        pairs = replace(given, samples=draws.samples, seed=draws.seed)
        return {m.name: _measure_pairs(m, pairs) for m in metrics}
    values = {m.name: m.values(givens[m.graded]) for m in metrics}
    means = [m.name for m in metrics if m.aggregate == "mean" and _equal_folds(part)]
    drawn = dict(zip(means, replicate_means([values[name] for name in means], draws) if means else (), strict=True))
    found = {}
    for m in metrics:
        given, of_query, shape = givens[m.graded], values[m.name], SHAPES[m.shape]
        replicates = drawn[m.name] if m.name in drawn else replicates_of(m, part, draws, ties, given, of_query)
        value = float(np.mean([m.summarise(*of) for of in _by_fold(part, given, of_query)]))
        chance, positives = shape.chance(m, given), shape.positives(given)
        found[m.name] = Measured(value, *interval(replicates), chance, len(of_query), positives, of_query, replicates)
    return found


def replicates_of(
    metric: Metric, part: Part, draws: Draws, ties: str, given: Any = None, values: FloatArray | None = None
) -> FloatArray:
    """The metric in each replicate; where there are folds, the mean over them."""
    given = SHAPES[metric.shape].given(metric, part, ties) if given is None else given
    values = metric.values(given) if values is None else values
    found = [
        replicates(metric, values[which], draws.among(which), given.chosen(which) if isinstance(given, Ranks) else None)
        for which in _folds(part, len(values))
    ]
    return np.asarray(np.nanmean(found, axis=0), dtype=np.float64)  # a replicate may draw nothing from a small fold


def _measure_trials(metrics: Sequence[Metric], part: Part) -> dict[str, Measured]:
    """Shares of right answers. Where no two trials share an image they follow from how often each code occurs."""
    outcomes, n = part.evidence, len(part.ids)
    assert isinstance(outcomes, Outcomes)
    names = [m.name for m in metrics]
    if apart(part.clusters) and part.folds is None:
        (shares,) = choice_shares(outcomes, names)
    elif apart(part.clusters) and part.folds is not None:
        of_fold = choice_shares(outcomes, names, part.folds, int(part.folds.max()) + 1)
        shares = {name: mean_of_alike([found[name] for found in of_fold]) for name in names}
    else:
        shares = {m.name: share_of(m.values(outcomes), part.clusters, part.folds) for m in metrics}
    return {
        m.name: Measured(
            s.value, s.low, s.high, m.chance(outcomes.shape), n, n, np.zeros(0), np.zeros(0), effective=s.effective
        )
        for m, s in ((m, shares[m.name]) for m in metrics)
    }  # fmt: skip


def _measure_pairs(metric: Metric, pairs: Pairs) -> Measured:
    n = len(np.unique(pairs.query))
    if metric.aggregate == "whole":
        whole = metric.values(pairs)
        return Measured(whole.value, whole.low, whole.high, 0.0, n, len(pairs), np.zeros(0), np.zeros(0), whole.error)
    values = metric.values(pairs)
    return Measured(float(values.mean()), *interval(values), 0.0, n, len(pairs), values, values, float(values.std(ddof=1)))


def _folds(part: Part, n: int) -> list[IntArray]:
    """The queries of each fold; all of them where there are no folds."""
    if part.folds is None:
        return [np.arange(n)]
    return [np.flatnonzero(part.folds == fold) for fold in np.unique(part.folds)]


def _equal_folds(part: Part) -> bool:
    """The mean over folds is the mean over queries."""
    return part.folds is None or len(set(np.unique(part.folds, return_counts=True)[1].tolist())) == 1


def _by_fold(part: Part, given: Any, values: FloatArray) -> list[tuple[Any, FloatArray]]:
    if part.folds is None:
        return [(given, values)]
    return [
        (given.chosen(which) if isinstance(given, Ranks) else given, values[which]) for which in _folds(part, len(values))
    ]  # fmt: skip


def _check_depth(metric: Metric, ranks: Ranks, part: Part) -> None:
    if metric.depth is None:
        return
    short = ranks.depth < np.minimum(metric.depth(ranks), ranks.gallery)
    if short.any():
        worst = int(np.where(short, metric.depth(ranks), 0).argmax())
        raise CrossmatchError(
            f"the run lists {ranks.depth[worst]} candidates for query {str(part.ids[worst])!r}, but {metric.name} needs "
            f"{metric.depth(ranks)[worst]:,} of {ranks.gallery[worst]:,}. Write deeper rankings, or leave {metric.name} out "
            "with --metrics."
        )
