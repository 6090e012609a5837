"""Which direction is harder, which category, and do two benchmarks rank models alike? (miranda2024bivlc, findings 1 to 3)

All from saved results of one's own models: tasks of two images and two captions (BiVLC's kind) for the directions and categories,
and tasks of one image and two captions (SugarCrepe's kind) for the categories and the comparison of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from crossmatch.core.arrays import FloatArray, IntArray
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.outcomes import Outcomes
from crossmatch.core.result import Part, Result
from crossmatch.metrics.proportion import Share, paired, share
from crossmatch.metrics.rank_correlation import LEAST, tau_b, tau_b_p_values
from crossmatch.metrics.significance import Difference, holm
from crossmatch.metrics.table import metric
from crossmatch.report.compare import require_same_protocol
from crossmatch.report.gate import is_gate
from crossmatch.report.tables import NONE, Table, by_task, labels, p_value

PAIRS = (("i2t", "t2i"), ("ipos2t", "ineg2t"), ("tpos2i", "tneg2i"))
MAIN = {(2, 2): "group", (2, 1): "accuracy"}  # by (captions, images): BiVLC's and SugarCrepe's kind
WHERE = ("size", "split")  # options that two tasks on the same data share
MACRO = "macro"  # the mean over categories is none of them


@dataclass(frozen=True)
class Gap:
    """Two shares of a model on the same trials, the second minus the first, and p after Holm's correction over models."""

    task: str
    model: str
    metrics: tuple[str, str]
    shares: tuple[Share, Share]
    difference: Difference
    p: float


@dataclass(frozen=True)
class Difficulty:
    """One category: the share of each model, None where it was not asked, and its place among its kind, 1 being the hardest."""

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
    models = {_called(group[0]): tuple(labels(group)) for group in groups}
    return Found(
        tuple(found for group in groups if _main(group[0]) == "group" for pair in PAIRS for found in _gaps(group, pair)),
        tuple(found for group in groups for found in _difficulties(group)),
        models,
        tuple(_rankings(groups)),
    )


# Directions


def _gaps(group: list[Result], pair: tuple[str, str]) -> list[Gap]:
    out = []
    for name, result in zip(labels(group), group, strict=True):
        part = result.parts[""]
        one, other = (_values(part, m) for m in pair)
        found = paired(one, other, _member(part))
        out.append(Gap(_called(result), name, pair, (_share(part, one), _share(part, other)), found, found.p))
    adjusted = holm([g.difference.p for g in out])
    return [Gap(g.task, g.model, g.metrics, g.shares, g.difference, p) for g, p in zip(out, adjusted, strict=True)]


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
            Difficulty(_called(group[0]), name, main, tuple(shares[name]), tuple(places[n][at] for n in range(len(group))))
            for at, name in enumerate(level)
        ]
        found += sorted(mine, key=lambda one: one.value)
    return found


def _category(result: Result, name: str, main: str) -> Share | None:
    part = result.parts.get(name)
    return None if part is None else _share(part, _values(part, main))


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
    shares = [[_share(r.parts[""], _values(r.parts[""], main)) for r in side] for side, main in zip(sides, mains, strict=True)]
    places = [_places(column, reverse=True) for column in shares]
    values = np.asarray([[s.value for s in column] for column in shares]).T
    found = tau_b(values)
    told = not np.ma.getmaskarray(found.tau)[0, 1]
    return Ranking(
        (_called(sides[0][0]), _called(sides[1][0])),
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
    return sorted(out, key=lambda one: max(one.first.p, one.second.p))


def _between(one: Result, other: Result, main: str) -> Difference:
    first, second = one.parts[""], other.parts[""]
    return paired(_values(first, main), _values(second, main), _member(first))


# Tables


def gap_tables(found: Found) -> list[Table]:
    """Directions, categories and ranks."""
    return [*direction_tables(found), *_category_tables(found), *map(ranking_table, found.rankings)]


def direction_tables(found: Found) -> list[Table]:
    """For each task both directions and their halves."""
    out = []
    for task in dict.fromkeys(g.task for g in found.gaps):
        body, notes = [], []
        for pair in PAIRS:
            mine = [g for g in found.gaps if (g.task, g.metrics) == (task, pair)]
            names = " → ".join(metric(m).label for m in pair)
            for n, g in enumerate(mine):
                body.append((names if n == 0 else "", g.model, *map(_percent, g.shares), _told(g.difference), p_value(g.p)))
            notes += [_direction_note(mine)] if pair == PAIRS[0] else []
        head = (("", "", "first", "second", "second minus first [95 %]", "p (Holm)"),)
        notes.append("p: McNemar's exact test on the same trials, corrected for the number of models")
        out.append(Table(f"{task}: the two directions, and their halves", head, tuple(body), 2, tuple(notes)))
    return out


def _direction_note(gaps: Sequence[Gap]) -> str:
    """
    >>> none = Share(0.5, 0.4, 0.6, 9.0)
    >>> _direction_note([Gap("t", "m", ("i2t", "t2i"), (none, none), Difference(-0.2, -0.3, -0.1, 0.001), 0.001)])
    'T2I is below I2T for 1 of 1 models, above for 0, and cannot be told apart for 0 (p < .05)'
    """
    first, second = (metric(m).label for m in gaps[0].metrics)
    sure = [g for g in gaps if g.p < 0.05]
    below = sum(g.difference.value < 0 for g in sure)
    return (
        f"{second} is below {first} for {below} of {len(gaps)} models, above for {len(sure) - below}, and cannot be told apart for "
        f"{len(gaps) - len(sure)} (p < .05)"
    )


def _category_tables(found: Found) -> list[Table]:
    out = []
    for task in dict.fromkeys(d.task for d in found.difficulties):
        mine = [d for d in found.difficulties if d.task == task]
        models = found.models[task]
        body = [
            (d.category, *(NONE if s is None else f"{_percent(s)} ({p})" for s, p in zip(d.shares, d.places, strict=True)),
             f"{100 * d.value:.1f}")
            for d in mine
        ]  # fmt: skip
        widest = [d for d in mine if "/" not in d.category]
        notes = ["in parentheses the place among categories of the same level, 1 is the hardest"]
        if len(widest) > 1:
            times = sum(place == 1 for place in widest[0].places)
            notes.insert(0, f"{widest[0].category} is the hardest category, for {times} of {len(models)} models")
        title = f"{task}: {metric(mine[0].metric).label} by category, the hardest first"
        out.append(Table(title, (("", *models, "mean"),), tuple(body), 1, tuple(notes)))
    return out


def ranking_table(one: Ranking) -> Table:
    """A line for each model, the best of the first task on top."""
    order = sorted(range(len(one.models)), key=lambda n: one.places[n])
    body = [(one.models[n], *(f"{_percent(s)} ({p})" for s, p in zip(one.shares[n], one.places[n], strict=True))) for n in order]
    names = ("accuracy", "Group")
    head = (("", *(f"{task} {name}" for task, name in zip(one.tasks, names, strict=True))),)
    return Table(f"Rank of models on {one.tasks[0]} against {one.tasks[1]}", head, tuple(body), 1, _ranking_notes(one))


def _ranking_notes(one: Ranking) -> tuple[str, ...]:
    many = len(one.models)
    if one.tau is not None and one.p is not None:
        notes = [f"Kendall's τ-b {signed(one.tau)} over {many} models, p {p_value(one.p)}" + _least(many)]
    elif many < LEAST:
        notes = [f"only {many} of the models ran on both: whether their ranks agree can be told from {LEAST} on"]
    else:
        notes = ["all models are level on one of the two: it ranks nothing"]
    return (*notes, *(_reversal_note(r, one.tasks) for r in one.reversals))


def _least(many: int) -> str:
    """What the smallest p of so few models is, where that is no proof."""
    least = 2.0 / float(np.prod(np.arange(1.0, many + 1)))
    return f" (so few can give no p below {p_value(least)})" if least >= 0.05 else ""


def _reversal_note(r: Reversal, tasks: tuple[str, str]) -> str:
    return (
        f"{r.ahead} is {100 * r.first.value:.1f} above {r.behind} on {tasks[0]} (p {p_value(r.first.p)}) and "
        f"{-100 * r.second.value:.1f} below it on {tasks[1]} (p {p_value(r.second.p)})"
    )


def as_json(found: Found) -> dict[str, list[dict[str, Any]]]:
    """For JSON, in percent."""
    return {
        "directions": [
            {"task": g.task, "model": g.model, "first": g.metrics[0], "second": g.metrics[1],
             "values": [100 * s.value for s in g.shares], **_difference(g.difference), "p_holm": g.p}
            for g in found.gaps
        ],
        "categories": [
            {"task": d.task, "category": d.category, "metric": d.metric, "mean": 100 * d.value,
             "models": {m: None if s is None else {"value": 100 * s.value, "low": 100 * s.low, "high": 100 * s.high, "place": p}
                        for m, s, p in zip(found.models[d.task], d.shares, d.places, strict=True)}}
            for d in found.difficulties
        ],
        "ranks": [
            {"tasks": list(r.tasks), "tau": r.tau, "p": r.p,
             "models": {m: {"values": [100 * s.value for s in pair], "places": list(places)}
                        for m, pair, places in zip(r.models, r.shares, r.places, strict=True)},
             "reversals": [{"ahead": x.ahead, "behind": x.behind, "first": _difference(x.first), "second": _difference(x.second)}
                           for x in r.reversals]}
            for r in found.rankings
        ],
    }  # fmt: skip


def _difference(found: Difference) -> dict[str, float]:
    return {"difference": 100 * found.value, "low": 100 * found.low, "high": 100 * found.high, "p": found.p}


def _percent(found: Share) -> str:
    return f"{100 * found.value:.1f} ± {50 * (found.high - found.low):.1f}"


def _told(found: Difference) -> str:
    value, low, high = (signed(100 * x, 1, "+") for x in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]"


def signed(value: float, decimals: int = 2, plus: str = "") -> str:
    """With a minus that is one, and no sign for zero.

    >>> signed(-1 / 3), signed(-0.04, 1, "+"), signed(2.5, 1, "+")
    ('−0.33', '0.0', '+2.5')
    """
    text = f"{abs(value):.{decimals}f}"
    return text if not text.strip("0.") else f"{plus if value > 0 else '−'}{text}"


# What results have in common


def _main(result: Result) -> str:
    """The metric that tells how hard a task is; nothing for tasks of another kind."""
    part = result.parts.get("")
    return MAIN.get(part.evidence.shape, "") if part is not None and isinstance(part.evidence, Outcomes) else ""


def _called(result: Result) -> str:
    """The task with what is unusual about its data."""
    return " ".join((result.task, *(f"{k} {v}" for k, v in sorted(result.options.items()) if k != "metrics")))


def _place(result: Result) -> tuple[str, ...]:
    """What tasks on the same data have in common: `diorama/bivlc` goes with `diorama/sugarcrepe` of the same size."""
    return result.task.rpartition("/")[0], *(result.options.get(key, "") for key in WHERE)


def _require_alike(group: list[Result]) -> None:
    names = [r.model for r in group]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CrossmatchError(
            f"there are two results of {twice} on {_called(group[0])}. Name one folder, or give the models names (run --name)."
        )
    for other in group[1:]:
        rows = {row.key: row for row in other.rows}
        for row in group[0].rows:
            if row.key in rows:
                require_same_protocol(row, rows[row.key], group[0].model, other.model)
        if not np.array_equal(group[0].parts[""].ids, other.parts[""].ids):  # results with other metrics share no row
            raise CrossmatchError(
                f"{group[0].model} and {other.model} answered different trials of {_called(other)}. Run both again."
            )


def _values(part: Part, name: str) -> FloatArray:
    return np.asarray(metric(name).values(part.evidence), dtype=np.float64)


def _member(part: Part) -> IntArray:
    return np.asarray(np.unique(part.clusters, return_inverse=True)[1].ravel(), dtype=np.int64)


def _share(part: Part, right: FloatArray) -> Share:
    member = _member(part)
    return share(np.asarray(np.bincount(member, weights=right), dtype=np.float64), np.bincount(member).astype(np.float64))


def _places(shares: Sequence[Share | None], reverse: bool) -> list[int | None]:
    """1 for the lowest, or in reverse for the highest; equals share a place."""
    values = [s.value for s in shares if s is not None]
    return [None if s is None else 1 + sum(v > s.value if reverse else v < s.value for v in values) for s in shares]
