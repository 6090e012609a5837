"""Which direction is harder, which category, and do two benchmarks rank models alike? (miranda2024bivlc, findings 1 to 3)

All from saved results of one's own models: tasks of two images and two captions (BiVLC's kind) for the directions and categories,
and tasks of one image and two captions (SugarCrepe's kind) for the categories and the comparison of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from scipy import special

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.result import Part, Result
from crossmatch.metrics.proportion import Share, paired, share_of
from crossmatch.metrics.rank_correlation import tau_b, tau_b_p_values
from crossmatch.metrics.significance import Difference, holm
from crossmatch.metrics.table import metric
from crossmatch.report.compare import require_same_protocol
from crossmatch.report.gate import is_gate
from crossmatch.report.tables import by_task, called, labels

PAIRS = (("i2t", "t2i"), ("ipos2t", "ineg2t"), ("tpos2i", "tneg2i"))
MAIN = {(2, 2): "group", (2, 1): "accuracy"}  # by (captions, images): BiVLC's and SugarCrepe's kind
WHERE = ("size", "split")  # options that two tasks on the same data share
MACRO = "macro"  # the mean over categories is none of them
SURE = 0.05


@dataclass(frozen=True)
class Gap:
    """Two shares of a model on the same trials, the second minus the first; p is the `doubtful` one after Holm over models."""

    task: str
    model: str
    metrics: tuple[str, str]
    shares: tuple[Share, Share]
    difference: Difference
    p: float

    @property
    def sure(self) -> bool:
        return self.p < SURE


@dataclass(frozen=True)
class Difficulty:
    """One category: the share of each model, None where it was not asked, and its place among its kind, 1 being the lowest."""

    task: str
    category: str
    metric: str
    shares: tuple[Share | None, ...]
    places: tuple[int | None, ...]

    @property
    def value(self) -> float:
        """The mean over models."""
        return float(np.mean([s.value for s in self.shares if s is not None]))


@dataclass(frozen=True)
class Hardest:
    """The whole category in which a model is lowest, None where two are level, and p of it against the rest (Holm over models)."""

    task: str
    model: str
    category: str | None
    p: float

    @property
    def sure(self) -> bool:
        return self.category is not None and self.p < SURE


@dataclass(frozen=True)
class Reversal:
    """Two models that two tasks put in opposite orders: `ahead` leads on the first task and is behind on the second."""

    ahead: str
    behind: str
    first: Difference  # ahead minus behind
    second: Difference


@dataclass(frozen=True)
class Ranking:
    """Models by two tasks. `tau` and `p` are None with fewer than three models, or where all are level by one of the tasks."""

    tasks: tuple[str, str]
    models: tuple[str, ...]
    shares: tuple[tuple[Share, Share], ...]  # of each model
    places: tuple[tuple[int, int], ...]  # 1 is the best; models that are level share the better place
    tau: float | None
    p: float | None
    reversals: tuple[Reversal, ...]


@dataclass(frozen=True)
class Found:
    """All of it; `models` are those of the columns of each task's categories."""

    gaps: tuple[Gap, ...]
    difficulties: tuple[Difficulty, ...]
    hardest: tuple[Hardest, ...]
    models: Mapping[str, tuple[str, ...]]
    rankings: tuple[Ranking, ...]


def gap(results: Sequence[Result]) -> Found:
    """Everything that these results can tell about directions, categories and ranks. Unequal protocols are refused."""
    groups = by_task([r for r in results if _main(r) and not is_gate(r)])
    if not groups:
        raise WrongWords(
            "none of these results is on a task such as bivlc or sugarcrepe. Make some: crossmatch run -m MODEL -t bivlc,sugarcrepe"
        )
    for group in groups:
        _require_alike(group)
    difficulties = [_difficulties(group) for group in groups]
    return Found(
        tuple(found for group in groups if _main(group[0]) == "group" for pair in PAIRS for found in _gaps(group, pair)),
        tuple(found for mine in difficulties for found in mine),
        tuple(found for group, mine in zip(groups, difficulties, strict=True) for found in _hardest(labels(group), mine)),
        {called(group[0]): tuple(labels(group)) for group in groups},
        tuple(_rankings(groups)),
    )


# Directions


def doubtful(found: Difference) -> float:
    """The larger p of McNemar's test, which takes trials as independent, and of the one over clusters of them: both must be small.

    >>> doubtful(Difference(0.1, 0.0, 0.2, 0.01, clustered=0.2)), doubtful(Difference(0.1, 0.0, 0.2, 0.01))
    (0.2, 0.01)
    """
    return max(found.p, found.clustered or 0.0)


def _gaps(group: list[Result], pair: tuple[str, str]) -> list[Gap]:
    out = []
    for name, result in zip(labels(group), group, strict=True):
        part = result.parts[""]
        one, other = (_values(part, m) for m in pair)
        out.append((name, (_share(part, pair[0]), _share(part, pair[1])), paired(one, other, part.clusters)))
    adjusted = holm([doubtful(difference) for _, _, difference in out])
    return [Gap(called(group[0]), name, pair, shares, d, p) for (name, shares, d), p in zip(out, adjusted, strict=True)]


# Categories


def _difficulties(group: list[Result]) -> list[Difficulty]:
    """Categories, then those within them, each from hard to easy."""
    names = [name for name in dict.fromkeys(name for r in group for name in r.parts) if name not in ("", MACRO)]
    main = _main(group[0])
    found: list[Difficulty] = []
    for depth in sorted({name.count("/") for name in names}):
        level = [name for name in names if name.count("/") == depth]
        shares = {name: [_category(r, name, main) for r in group] for name in level}
        places = {n: _places([shares[name][n] for name in level], reverse=False) for n in range(len(group))}
        mine = [
            Difficulty(called(group[0]), name, main, tuple(shares[name]), tuple(places[n][at] for n in range(len(group))))
            for at, name in enumerate(level)
        ]
        found += sorted(mine, key=lambda one: one.value)
    return found


def _category(result: Result, name: str, main: str) -> Share | None:
    part = result.parts.get(name)
    return None if part is None else _share(part, main)


def _hardest(models: Sequence[str], difficulties: Sequence[Difficulty]) -> list[Hardest]:
    """For each model that was asked at least two whole categories, the lowest of them against every other one."""
    widest = [d for d in difficulties if "/" not in d.category]
    out = []
    for n, model in enumerate(models):
        asked = sorted(((d.category, s) for d in widest if (s := d.shares[n]) is not None), key=lambda one: one[1].value)
        if len(asked) > 1:
            level = asked[0][1].value == asked[1][1].value
            out.append((model, None if level else asked[0][0], max(unlike(asked[0][1], s) for _, s in asked[1:])))
    adjusted = holm([p for _, _, p in out])
    return [Hardest(widest[0].task, model, category, p) for (model, category, _), p in zip(out, adjusted, strict=True)]


def unlike(one: Share, other: Share) -> float:
    """The two-sided p-value of Fisher's exact test of two shares of different trials, by twice the smaller tail (fisher1935logic).

    Each share counts as so many independent trials as it is worth, so that clusters do not make it too sure (rao1992simple). To be
    called the lowest of several, a share must be below each other one by this test; no correction for having looked for the lowest
    is needed then (hung2019rank).

    >>> few, many = Share(0.0, 0.0, 0.6, 3.0), Share(1.0, 0.4, 1.0, 3.0)
    >>> round(unlike(few, many), 3), unlike(few, few)
    (0.1, 1.0)
    """
    size = [int(s.effective + 1e-9) for s in (one, other)]
    right = [round(s.value * n) for s, n in zip((one, other), size, strict=True)]
    x = np.arange(max(0, sum(right) - size[1]), min(sum(right), size[0]) + 1)
    chance = np.exp(_ln_choose(size[0], x) + _ln_choose(size[1], sum(right) - x) - _ln_choose(sum(size), np.asarray(sum(right))))
    return min(1.0, 2 * float(min(chance[x <= right[0]].sum(), chance[x >= right[0]].sum())))


def _ln_choose(n: int, k: IntArray) -> FloatArray:
    return np.asarray(special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1), dtype=np.float64)


# Ranks


def _rankings(groups: list[list[Result]]) -> list[Ranking]:
    """For every two tasks of SugarCrepe's and BiVLC's kind on the same data, the models that were run on both."""
    out = []
    for one in (g for g in groups if _main(g[0]) == "accuracy"):
        for two in (g for g in groups if _main(g[0]) == "group" and _place(g[0]) == _place(one[0])):
            shared = [(r, s) for r in one for s in two if r.model == s.model]
            if shared:
                out.append(_ranking(shared))
    return out


def _ranking(pairs: list[tuple[Result, Result]]) -> Ranking:
    names = tuple(labels([r for r, _ in pairs]))
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    mains = [_main(side[0]) for side in sides]
    shares = [[_share(r.parts[""], main) for r in side] for side, main in zip(sides, mains, strict=True)]
    places = [_places(column, reverse=True) for column in shares]
    values = np.asarray([[s.value for s in column] for column in shares]).T
    found = tau_b(values)
    told = not np.ma.getmaskarray(found.tau)[0, 1]
    return Ranking(
        (called(sides[0][0]), called(sides[1][0])),
        names,
        tuple(zip(*shares, strict=True)),
        tuple((int(a or 0), int(b or 0)) for a, b in zip(*places, strict=True)),
        float(found.tau[0, 1]) if told else None,
        float(tau_b_p_values(values)[0, 1]) if told else None,
        tuple(_reversals(names, sides, mains, values)),
    )


def _reversals(names: Sequence[str], sides: list[list[Result]], mains: list[str], values: FloatArray) -> list[Reversal]:
    out = []
    for a, b in permutations(range(len(names)), 2):
        if values[a, 0] > values[b, 0] and values[a, 1] < values[b, 1]:
            first, second = (_between(side[b], side[a], main) for side, main in zip(sides, mains, strict=True))
            out.append(Reversal(names[a], names[b], first, second))
    return sorted(out, key=lambda one: max(doubtful(one.first), doubtful(one.second)))


def _between(one: Result, other: Result, main: str) -> Difference:
    first, second = one.parts[""], other.parts[""]
    return paired(_values(first, main), _values(second, main), first.clusters)


# What results have in common


def _main(result: Result) -> str:
    """The metric that tells how hard a task is; nothing for tasks of another kind."""
    part = result.parts.get("")
    return MAIN.get(part.evidence.shape, "") if part is not None and isinstance(part.evidence, Outcomes) else ""


def _place(result: Result) -> tuple[str, ...]:
    """What tasks on the same data have in common: `diorama/bivlc` goes with `diorama/sugarcrepe` of the same size."""
    return result.task.rpartition("/")[0], *(result.options.get(key, "") for key in WHERE)


def _require_alike(group: list[Result]) -> None:
    names = [r.model for r in group]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CrossmatchError(
            f"there are two results of {twice} on {called(group[0])}. Name one folder, or give the models names (run --name)."
        )
    for other in group[1:]:
        rows = {row.key: row for row in other.rows}
        for row in group[0].rows:
            if row.key in rows:
                require_same_protocol(row, rows[row.key], group[0].model, other.model)
        if not np.array_equal(group[0].parts[""].ids, other.parts[""].ids):  # results with other metrics share no row
            raise CrossmatchError(
                f"{group[0].model} and {other.model} answered different trials of {called(other)}. Run both again."
            )


def _values(part: Part, name: str) -> FloatArray:
    return np.asarray(metric(name).values(part.evidence), dtype=np.float64)


def _share(part: Part, name: str) -> Share:
    return share_of(_values(part, name), part.clusters)


def _places(shares: Sequence[Share | None], reverse: bool) -> list[int | None]:
    """1 for the lowest, or in reverse for the highest; equals share a place."""
    values = [s.value for s in shares if s is not None]
    return [None if s is None else 1 + sum(v > s.value if reverse else v < s.value for v in values) for s in shares]
