"""What was found about directions, categories and ranks: tables, and the same for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from crossmatch.metrics.proportion import Share
from crossmatch.metrics.rank_correlation import LEAST
from crossmatch.metrics.significance import Difference
from crossmatch.metrics.table import metric
from crossmatch.report.gap import PAIRS, Found, Gap, Hardest, Ranking, Reversal, doubtful
from crossmatch.report.tables import NONE, Table, p_value, told


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
                body.append((names if n == 0 else "", g.model, *map(_percent, g.shares), _span(g.difference), p_value(g.p)))
            notes += [_direction_note(mine)] if pair == PAIRS[0] else []
        head = (("", "", "first", "second", "second minus first [95 %]", "p (Holm)"),)
        notes.append(_tests([g.difference for g in found.gaps if g.task == task]) + ", corrected for the number of models")
        out.append(Table(f"{task}: the two directions, and their halves", head, tuple(body), 2, tuple(notes)))
    return out


def _tests(found: Sequence[Difference]) -> str:
    """What p is of.

    >>> _tests([Difference(0.1, 0.0, 0.2, 0.04)])
    "p: McNemar's exact test on the same trials"
    """
    if all(d.clustered is None for d in found):
        return "p: McNemar's exact test on the same trials"
    return "p: some trials share images, so it is the larger of McNemar's exact test and of the test over clusters of trials"


def _direction_note(gaps: Sequence[Gap]) -> str:
    """
    >>> none = Share(0.5, 0.4, 0.6, 9.0)
    >>> _direction_note([Gap("t", "m", ("i2t", "t2i"), (none, none), Difference(-0.2, -0.3, -0.1, 0.001), 0.001)])
    'T2I is below I2T for 1 of 1 models, above for 0, and cannot be told apart for 0 (p < .05)'
    """
    first, second = (metric(m).label for m in gaps[0].metrics)
    sure = [g for g in gaps if g.sure]
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
        place = "in parentheses the place among categories of the same level, 1 for the lowest share; equal ones share a place"
        notes = (*_hardest_notes([h for h in found.hardest if h.task == task]), place)
        title = f"{task}: {metric(mine[0].metric).label} by category, the lowest mean first"
        out.append(Table(title, (("", *models, "mean"),), tuple(body), 1, notes))
    return out


def _hardest_notes(found: Sequence[Hardest]) -> tuple[str, ...]:
    """
    >>> found = [Hardest("t", "a", "swap", 0.01), Hardest("t", "b", "swap", 0.3), Hardest("t", "c", None, 1.0)]
    >>> _hardest_notes(found)[0]
    'swap is the hardest category for 1 of 3 models; which one is cannot be told for 2'
    """
    if not found:
        return ()
    times = Counter(h.category for h in found if h.sure)
    many = len(found)
    said = [f"{category} is the hardest category for {n} of {many} models" for category, n in times.most_common()]
    doubt = many - sum(times.values())
    if doubt:
        said.append(
            f"which one is cannot be told for {doubt}"
            if said
            else f"which category is the hardest cannot be told for {doubt} of {many} models"
        )
    test = "the hardest: below each other category by Fisher's exact test, p < .05 (Holm over models)"
    return "; ".join(said), test


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
    tests = [_tests([d for r in one.reversals for d in (r.first, r.second)])] if one.reversals else []
    return (*notes, *(_reversal_note(r, one.tasks) for r in one.reversals), *tests)


def _least(many: int) -> str:
    """What the smallest p of so few models is, where that is no proof."""
    least = 2.0 / float(np.prod(np.arange(1.0, many + 1)))
    return f" (so few can give no p below {p_value(least)})" if least >= 0.05 else ""


def _reversal_note(r: Reversal, tasks: tuple[str, str]) -> str:
    return (
        f"{r.ahead} is {100 * r.first.value:.1f} above {r.behind} on {tasks[0]} (p {p_value(doubtful(r.first))}) and "
        f"{-100 * r.second.value:.1f} below it on {tasks[1]} (p {p_value(doubtful(r.second))})"
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
        "hardest": [
            {"task": h.task, "model": h.model, "category": h.category, "p_holm": h.p, "sure": h.sure} for h in found.hardest
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


def _difference(found: Difference) -> dict[str, float | None]:
    ends = {"difference": 100 * found.value, "low": 100 * found.low, "high": 100 * found.high}
    return {**ends, "p": found.p, "p_clustered": found.clustered}


def _percent(found: Share) -> str:
    return told(100 * found.value, 100 * found.low, 100 * found.high)


def _span(found: Difference) -> str:
    value, low, high = (signed(100 * x, 1, "+") for x in (found.value, found.low, found.high))
    return f"{value} [{low}, {high}]"


def signed(value: float, decimals: int = 2, plus: str = "") -> str:
    """With a minus that is one, and no sign for zero.

    >>> signed(-1 / 3), signed(-0.04, 1, "+"), signed(2.5, 1, "+")
    ('−0.33', '0.0', '+2.5')
    """
    text = f"{abs(value):.{decimals}f}"
    return text if not text.strip("0.") else f"{plus if value > 0 else '−'}{text}"
