"""Is the difference between two results real? Paired bootstrap, on equal protocols only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crossmatch.core.errors import CrossmatchError
from crossmatch.core.progress import track
from crossmatch.core.result import Result, Row
from crossmatch.core.standing import Standing
from crossmatch.metrics.significance import Difference, Draws, compare_replicates, holm, replicate_means, replicates
from crossmatch.metrics.table import metric
from crossmatch.run import ranks_of

SAMPLES = 10_000  # more than for an interval: after Holm's correction over dozens of rows, small p must still be seen


@dataclass(frozen=True)
class Comparison:
    """One number of two models, the difference second minus first, and p after Holm's correction over all rows."""

    task: str
    first: Row
    second: Row
    difference: Difference
    p: float

    @property
    def at_floor(self) -> bool:
        """No replicate disagreed: p is as small as this many replicates can tell."""
        return self.difference.p <= 2 / (SAMPLES + 1)

    @property
    def better(self) -> int:
        """1 if the second is better, -1 if the first is, 0 if they cannot be told apart at p < .05."""
        if self.p >= 0.05 or self.difference.value == 0:
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
    adjusted = holm([difference.p for _, _, difference in found])
    return [Comparison(first.task, a, b, difference, p) for (a, b, difference), p in zip(found, adjusted, strict=True)]


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
    draws = Draws.of(first.parts[name].clusters, SAMPLES, first.seed)
    mine = [row for row in shared if row.part == name]
    means = [row.metric for row in mine if metric(row.metric).aggregate == "mean"]
    sides = [result.parts[name] for result in (first, second)]
    drawn = replicate_means([part.values[m] for part in sides for m in means], draws)
    for row in mine:
        m = metric(row.metric)
        if m.name in means:
            pair = [drawn[side * len(means) + means.index(m.name)] for side in (0, 1)]
        else:
            ranks = [ranks_of(part, first.ties) if isinstance(part.evidence, Standing) else None for part in sides]
            pair = [replicates(m, part.values[m.name], draws, r) for part, r in zip(sides, ranks, strict=True)]
        other = rows[row.key]
        yield row, other, compare_replicates(m.scale * pair[0], m.scale * pair[1], other.value - row.value)
