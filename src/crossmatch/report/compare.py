"""Is the difference between two results real? Paired bootstrap, for trials McNemar's exact test, on equal protocols only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crossmatch.core.arrays import FloatArray
from crossmatch.core.errors import CrossmatchError
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.pairs import Pairs
from crossmatch.core.progress import track
from crossmatch.core.result import Part, Result, Row
from crossmatch.metrics.measure import replicates_of
from crossmatch.metrics.pairs import gap
from crossmatch.metrics.proportion import paired
from crossmatch.metrics.significance import Difference, Draws, compare_replicates, holm, replicate_means
from crossmatch.metrics.table import Metric, metric

SAMPLES = 10_000  # more than for an interval: after Holm's correction over dozens of rows, small p must still be seen


@dataclass(frozen=True)
class Comparison:
    """One number of two models, the difference second minus first, and p after Holm's correction.

    The correction is over all rows; for trials, over the categories of a metric, the whole among them. Where trials are not
    independent, `clustered` is the p of the test over clusters, corrected alike, and a verdict needs both.
    """

    task: str
    first: Row
    second: Row
    difference: Difference
    p: float
    clustered: float | None = None

    @property
    def at_floor(self) -> bool:
        """No replicate disagreed: p is as small as this many replicates can tell."""
        return self.difference.p <= self.difference.floor

    @property
    def better(self) -> int:
        """1 if the second is better, -1 if the first is, 0 if they cannot be told apart at p < .05."""
        if max(self.p, self.clustered or 0.0) >= 0.05 or self.difference.value == 0:
            return 0
        return 1 if (self.difference.value > 0) == metric(self.first.metric).higher_is_better else -1


def compare(first: Result, second: Result) -> list[Comparison]:
    """Compare two results on the same task, row by row. Unequal protocols are refused.

    >>> from crossmatch.run import evaluate
    >>> both = [evaluate(m, "diorama/retrieval", size="tiny", samples=200, metrics=("hit@10",)) for m in ("random", "oracle")]
    >>> [c.better for c in compare(*both)]
    [1, 1, 1, 1]
    """
    if first.task != second.task:
        raise CrossmatchError(f"{first.model} was run on {first.task} and {second.model} on {second.task}. Compare like with like.")
    _require_same_options(first, second)
    rows = {row.key: row for row in second.rows}
    shared = [row for row in first.rows if row.key in rows]
    if not shared:
        raise CrossmatchError(
            f"{first.model} and {second.model} share no metric on {first.task}. Evaluate both with the same metrics."
        )
    for row in shared:
        require_same_protocol(row, rows[row.key], first.model, second.model)
    parts = list(dict.fromkeys(row.part for row in shared))
    found = [pair for part in track(parts, "comparing") for pair in _differences(first, second, part, shared, rows)]
    families = [row.metric if metric(row.metric).shape == "trials" else "" for row, _, _ in found]
    adjusted = _corrected(families, [d.p for _, _, d in found])
    over_clusters = _corrected(families, [d.p if d.clustered is None else d.clustered for _, _, d in found])
    return [
        Comparison(first.task, a, b, d, p, None if d.clustered is None else q)
        for (a, b, d), p, q in zip(found, adjusted, over_clusters, strict=True)
    ]


def _corrected(families: Sequence[str], p: Sequence[float]) -> list[float]:
    """Holm's correction within each family."""
    adjusted = [0.0] * len(p)
    for family in dict.fromkeys(families):
        at = [n for n, name in enumerate(families) if name == family]
        for n, value in zip(at, holm([p[n] for n in at]), strict=True):
            adjusted[n] = value
    return adjusted


def _require_same_options(first: Result, second: Result) -> None:
    """Data that were loaded or limited in two ways, told in the words of the command; the rest of the protocol is in signatures."""
    for key in sorted({*first.options, *second.options} - {"metrics", "ties", "samples", "seed"}):
        one, other = (result.options.get(key, "as usual") for result in (first, second))
        if one != other:
            raise CrossmatchError(
                f"{first.task} of {first.model} and {second.model} cannot be compared: {key} is {one} against {other}. "
                "Evaluate both under one protocol."
            )


def require_same_protocol(a: Row, b: Row, first: str, second: str) -> None:
    """Refuse rows whose numbers came about differently, and name the first difference."""
    if a.signature == b.signature:
        return
    parts = zip(a.signature.split("|"), b.signature.split("|"), strict=False)
    unlike = next(((x, y) for x, y in parts if x != y), (a.signature, b.signature))
    raise CrossmatchError(
        f"{a.key} of {first} and {second} cannot be compared: {unlike[0]} against {unlike[1]}. Evaluate both under one protocol."
    )


def _differences(
    first: Result, second: Result, name: str, shared: list[Row], rows: dict[str, Row]
) -> Iterator[tuple[Row, Row, Difference]]:
    """All metrics of one part, in the same replicates."""
    mine = [row for row in shared if row.part == name]
    whole = [row for row in mine if metric(row.metric).shape == "total"]
    for row in whole:
        pair = [_total(result, metric(row.metric).members) for result in (first, second)]
        yield row, rows[row.key], compare_replicates(100 * pair[0], 100 * pair[1], rows[row.key].value - row.value)
    mine = [row for row in mine if row not in whole]
    if not mine:
        return
    if isinstance(first.parts[name].evidence, Outcomes):
        yield from ((row, rows[row.key], _choices(first.parts[name], second.parts[name], metric(row.metric))) for row in mine)
        return
    draws = Draws.of(first.parts[name].clusters, SAMPLES, first.seed)
    sides = [result.parts[name] for result in (first, second)]
    means = [row.metric for row in mine if metric(row.metric).aggregate == "mean" and sides[0].folds is None]
    drawn = replicate_means([part.values[m] for part in sides for m in means], draws)
    for row in mine:
        m, other = metric(row.metric), rows[row.key]
        if m.aggregate == "whole":
            yield row, other, _jackknifed(m, sides, other.value - row.value)
            continue
        if m.name in means:
            pair = [drawn[side * len(means) + means.index(m.name)] for side in (0, 1)]
        elif m.aggregate == "samples":  # the same pairs in the same samples
            pair = [part.values[m.name] for part in sides]
        else:
            pair = [replicates_of(m, part, draws, first.ties) for part in sides]
        yield row, other, compare_replicates(m.scale * pair[0], m.scale * pair[1], other.value - row.value)


def _choices(first: Part, second: Part, m: Metric) -> Difference:
    """Two models on the same trials."""
    one, other = (np.asarray(m.values(part.evidence), dtype=np.float64) for part in (first, second))
    found = paired(one, other, first.clusters, first.folds)
    return replace(found, value=100 * found.value, low=100 * found.low, high=100 * found.high)


def _total(result: Result, members: tuple[str, ...]) -> FloatArray:
    """The sum of the members over both directions, in each replicate."""
    found = []
    for name in ("i2t", "t2i"):
        part = result.parts[name]
        draws = Draws.of(part.clusters, SAMPLES, result.seed)
        found += [replicates_of(metric(m), part, draws, result.ties) for m in members]
    return np.asarray(np.sum(found, axis=0), dtype=np.float64)


def _jackknifed(m: Metric, sides: list[Part], value: float) -> Difference:
    """Two coefficients over all pairs: the same groups of queries are left out of both."""
    first, second = (part.evidence for part in sides)
    assert isinstance(first, Pairs)
    assert isinstance(second, Pairs)
    found = gap(m.name, first, second)
    return Difference(value, m.scale * found.low, m.scale * found.high, found.p)
