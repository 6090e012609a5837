"""Compare directions, categories and rankings of models on trials (miranda2024bivlc, findings 1 to 3).

The analysis uses saved results. Tasks with two images and two captions, such as BiVLC, are used for directions and categories;
tasks with one image and two captions, such as SugarCrepe, for categories and for the comparison of rankings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from scipy import special

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.result import Result, ResultPart
from crossmatch.data.trial_outcomes import Outcomes
from crossmatch.metrics.correlation.kendall_tau import MIN_MODELS, tau_b, tau_b_p_values
from crossmatch.metrics.metric_table import metric
from crossmatch.metrics.paired_tests import Difference, holm_correction, paired_difference
from crossmatch.metrics.proportions import Proportion, clustered_proportion
from crossmatch.report.comparison import require_same_protocol
from crossmatch.report.tables import (
    EMPTY_CELL,
    Table,
    format_p_value,
    format_share,
    format_signed,
    group_by_task,
    model_labels,
    task_title,
)
from crossmatch.report.trust_gate_table import is_gate_result

PAIRS = (("i2t", "t2i"), ("ipos2t", "ineg2t"), ("tpos2i", "tneg2i"))
MAIN_METRICS = {(2, 2): "group", (2, 1): "accuracy"}  # by numbers of captions and images
DATA_OPTIONS = ("size", "split")  # options that two tasks on the same data share
MACRO = "macro"  # the mean over categories, which is not a category
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class DirectionGap:
    """Two shares of a model on the same trials and their difference, second minus first; p is `larger_p`, corrected by Holm."""

    task: str
    model: str
    metrics: tuple[str, str]
    shares: tuple[Proportion, Proportion]
    difference: Difference
    p: float

    @property
    def is_significant(self) -> bool:
        return self.p < SIGNIFICANCE


@dataclass(frozen=True)
class CategoryDifficulty:
    """The share of each model in a category, and its rank among categories of the same level; rank 1 is the lowest share.

    Both are None for a model without this category.
    """

    task: str
    category: str
    metric: str
    shares: tuple[Proportion | None, ...]
    ranks: tuple[int | None, ...]

    @property
    def mean(self) -> float:
        """The mean over models."""
        return float(np.mean([s.value for s in self.shares if s is not None]))


@dataclass(frozen=True)
class HardestCategory:
    """The main category with the lowest share of a model, None for a tie, and p against all others, corrected by Holm."""

    task: str
    model: str
    category: str | None
    p: float

    @property
    def is_significant(self) -> bool:
        return self.category is not None and self.p < SIGNIFICANCE


@dataclass(frozen=True)
class RankReversal:
    """Two models that two tasks rank in opposite orders: `ahead` is better on the first task and worse on the second."""

    ahead: str
    behind: str
    first: Difference  # ahead minus behind
    second: Difference


@dataclass(frozen=True)
class TaskRanking:
    """Models ranked by two tasks. `tau` and `p` are None with fewer than three models, or if a task ties all models."""

    tasks: tuple[str, str]
    models: tuple[str, ...]
    shares: tuple[tuple[Proportion, Proportion], ...]  # of each model
    ranks: tuple[tuple[int, int], ...]  # 1 is the best; tied models share the better rank
    tau: float | None
    p: float | None
    reversals: tuple[RankReversal, ...]


@dataclass(frozen=True)
class DirectionAnalysis:
    """Gaps between directions, difficulties of categories, and rankings; `models` are the columns of each task's categories."""

    gaps: tuple[DirectionGap, ...]
    difficulties: tuple[CategoryDifficulty, ...]
    hardest: tuple[HardestCategory, ...]
    models: Mapping[str, tuple[str, ...]]
    rankings: tuple[TaskRanking, ...]


def analyse_directions(results: Sequence[Result]) -> DirectionAnalysis:
    """Analyse directions, categories and rankings.

    Results with different protocols or trials, and two results of one model, are an error.
    """
    groups = group_by_task([r for r in results if _main_metric(r) and not is_gate_result(r)])
    if not groups:
        raise UsageError(
            "No result is on a task such as bivlc or sugarcrepe. Create some with: crossmatch run -m MODEL -t bivlc,sugarcrepe"
        )
    for group in groups:
        _require_comparable(group)
    difficulties = [_category_difficulties(group) for group in groups]
    return DirectionAnalysis(
        tuple(
            gap for group in groups if _main_metric(group[0]) == "group" for pair in PAIRS for gap in _direction_gaps(group, pair)
        ),
        tuple(difficulty for by_group in difficulties for difficulty in by_group),
        tuple(
            hardest
            for group, by_group in zip(groups, difficulties, strict=True)
            for hardest in _hardest_categories(model_labels(group), by_group)
        ),
        {task_title(group[0]): tuple(model_labels(group)) for group in groups},
        tuple(_task_rankings(groups)),
    )


# Directions


def larger_p(difference: Difference) -> float:
    """The larger p of McNemar's test, which treats trials as independent, and of the test over clusters of trials.

    >>> larger_p(Difference(0.1, 0.0, 0.2, 0.01, cluster_p=0.2)), larger_p(Difference(0.1, 0.0, 0.2, 0.01))
    (0.2, 0.01)
    """
    return max(difference.p, difference.cluster_p or 0.0)


def _direction_gaps(group: list[Result], pair: tuple[str, str]) -> list[DirectionGap]:
    gaps = []
    for name, result in zip(model_labels(group), group, strict=True):
        part = result.parts[""]
        first, second = (_values(part, m) for m in pair)
        gaps.append((name, (_share(part, pair[0]), _share(part, pair[1])), paired_difference(first, second, part.clusters)))
    adjusted = holm_correction([larger_p(difference) for _, _, difference in gaps])
    return [
        DirectionGap(task_title(group[0]), name, pair, shares, difference, p)
        for (name, shares, difference), p in zip(gaps, adjusted, strict=True)
    ]


# Categories


def _category_difficulties(group: list[Result]) -> list[CategoryDifficulty]:
    """Main categories, then subcategories, each from the lowest to the highest mean."""
    names = [name for name in dict.fromkeys(name for r in group for name in r.parts) if name not in ("", MACRO)]
    main = _main_metric(group[0])
    difficulties: list[CategoryDifficulty] = []
    for depth in sorted({name.count("/") for name in names}):
        level = [name for name in names if name.count("/") == depth]
        shares = {name: [_share(r.parts[name], main) if name in r.parts else None for r in group] for name in level}
        ranks = [_rank([shares[name][n] for name in level], highest_first=False) for n in range(len(group))]
        of_level = [
            CategoryDifficulty(task_title(group[0]), name, main, tuple(shares[name]), tuple(of_model[at] for of_model in ranks))
            for at, name in enumerate(level)
        ]
        difficulties += sorted(of_level, key=lambda difficulty: difficulty.mean)
    return difficulties


def _hardest_categories(models: Sequence[str], difficulties: Sequence[CategoryDifficulty]) -> list[HardestCategory]:
    """The lowest main category of each model with at least two of them, tested against every other one."""
    main = [d for d in difficulties if "/" not in d.category]
    lowest = []
    for n, model in enumerate(models):
        shares = sorted(((d.category, s) for d in main if (s := d.shares[n]) is not None), key=lambda pair: pair[1].value)
        if len(shares) > 1:
            category = None if shares[0][1].value == shares[1][1].value else shares[0][0]
            lowest.append((model, category, max(fisher_p_value(shares[0][1], share) for _, share in shares[1:])))
    adjusted = holm_correction([p for _, _, p in lowest])
    return [HardestCategory(main[0].task, model, category, p) for (model, category, _), p in zip(lowest, adjusted, strict=True)]


def fisher_p_value(first: Proportion, second: Proportion) -> float:
    """The two-sided p-value of Fisher's exact test of two shares, as twice the smaller tail (fisher1935logic).

    Each share counts as its effective number of independent trials, so that clusters do not make p too small (rao1992simple). The
    lowest of several shares must be below each other one by this test; then no correction for the selection is needed
    (hung2019rank).

    >>> low, high = Proportion(0.0, 0.0, 0.6, 3.0), Proportion(1.0, 0.4, 1.0, 3.0)
    >>> round(fisher_p_value(low, high), 3), fisher_p_value(low, low)
    (0.1, 1.0)
    """
    sizes = [int(s.effective + 1e-9) for s in (first, second)]
    correct = [round(s.value * n) for s, n in zip((first, second), sizes, strict=True)]
    x = np.arange(max(0, sum(correct) - sizes[1]), min(sum(correct), sizes[0]) + 1)
    probability = np.exp(
        _ln_choose(sizes[0], x) + _ln_choose(sizes[1], sum(correct) - x) - _ln_choose(sum(sizes), np.asarray(sum(correct)))
    )
    return min(1.0, 2 * float(min(probability[x <= correct[0]].sum(), probability[x >= correct[0]].sum())))


def _ln_choose(n: int, k: IntArray) -> FloatArray:
    return np.asarray(special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1), dtype=np.float64)


# Rankings


def _task_rankings(groups: list[list[Result]]) -> list[TaskRanking]:
    """Rankings of the models that ran on both tasks, for every pair of an accuracy and a group task on the same data."""
    rankings = []
    for first in (g for g in groups if _main_metric(g[0]) == "accuracy"):
        for second in (g for g in groups if _main_metric(g[0]) == "group" and _data_key(g[0]) == _data_key(first[0])):
            shared = [(r, s) for r in first for s in second if r.model == s.model]
            if shared:
                rankings.append(_task_ranking(shared))
    return rankings


def _task_ranking(pairs: list[tuple[Result, Result]]) -> TaskRanking:
    names = tuple(model_labels([r for r, _ in pairs]))
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    metrics = [_main_metric(side[0]) for side in sides]
    shares = [[_share(r.parts[""], name) for r in side] for side, name in zip(sides, metrics, strict=True)]
    ranks = [_rank(column, highest_first=True) for column in shares]
    values = np.asarray([[s.value for s in column] for column in shares]).T
    correlation = tau_b(values)
    is_defined = not np.ma.getmaskarray(correlation.tau)[0, 1]
    return TaskRanking(
        (task_title(sides[0][0]), task_title(sides[1][0])),
        names,
        tuple(zip(*shares, strict=True)),
        tuple((int(a or 0), int(b or 0)) for a, b in zip(*ranks, strict=True)),
        float(correlation.tau[0, 1]) if is_defined else None,
        float(tau_b_p_values(values)[0, 1]) if is_defined else None,
        tuple(_rank_reversals(names, sides, metrics, values)),
    )


def _rank_reversals(names: Sequence[str], sides: list[list[Result]], metrics: list[str], values: FloatArray) -> list[RankReversal]:
    reversals = []
    for a, b in permutations(range(len(names)), 2):
        if values[a, 0] > values[b, 0] and values[a, 1] < values[b, 1]:
            first, second = (_model_difference(side[b], side[a], name) for side, name in zip(sides, metrics, strict=True))
            reversals.append(RankReversal(names[a], names[b], first, second))
    return sorted(reversals, key=lambda reversal: max(larger_p(reversal.first), larger_p(reversal.second)))


def _model_difference(first: Result, second: Result, name: str) -> Difference:
    first_part, second_part = first.parts[""], second.parts[""]
    return paired_difference(_values(first_part, name), _values(second_part, name), first_part.clusters)


# Shared helpers


def _main_metric(result: Result) -> str:
    """The metric that measures the difficulty of a task; empty for other kinds of tasks."""
    part = result.parts.get("")
    return MAIN_METRICS.get(part.evidence.shape, "") if part is not None and isinstance(part.evidence, Outcomes) else ""


def _data_key(result: Result) -> tuple[str, ...]:
    """What tasks on the same data have in common: `diorama/bivlc` and `diorama/sugarcrepe` of the same size."""
    return result.task.rpartition("/")[0], *(result.options.get(key, "") for key in DATA_OPTIONS)


def _require_comparable(group: list[Result]) -> None:
    names = [r.model for r in group]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise CrossmatchError(
            f"There are two results of {duplicate} on {task_title(group[0])}. Name one folder, or give the models different names "
            "(run --name)."
        )
    first = group[0]
    for second in group[1:]:
        rows = {row.key: row for row in second.rows}
        for row in first.rows:
            if row.key in rows:
                require_same_protocol(row, rows[row.key], first.model, second.model)
        if not np.array_equal(first.parts[""].ids, second.parts[""].ids):  # results with other metrics share no row
            raise CrossmatchError(
                f"{first.model} and {second.model} have different trials of {task_title(second)}. Run both again."
            )


def _values(part: ResultPart, name: str) -> FloatArray:
    return np.asarray(metric(name).values(part.evidence), dtype=np.float64)


def _share(part: ResultPart, name: str) -> Proportion:
    return clustered_proportion(_values(part, name), part.clusters)


def _rank(shares: Sequence[Proportion | None], highest_first: bool) -> list[int | None]:
    """Ranks from 1; ties share the better rank."""
    values = [s.value for s in shares if s is not None]
    return [None if s is None else 1 + sum(v > s.value if highest_first else v < s.value for v in values) for s in shares]


# Tables and JSON


def direction_analysis_tables(analysis: DirectionAnalysis) -> list[Table]:
    """Tables of directions, categories and rankings."""
    return [*direction_tables(analysis), *_category_tables(analysis), *map(ranking_table, analysis.rankings)]


def direction_tables(analysis: DirectionAnalysis) -> list[Table]:
    """A table for each task with both directions and their halves."""
    tables = []
    for task in dict.fromkeys(gap.task for gap in analysis.gaps):
        task_gaps = [gap for gap in analysis.gaps if gap.task == task]
        rows = []
        for pair in PAIRS:
            label = " → ".join(metric(name).label for name in pair)
            for n, gap in enumerate(gap for gap in task_gaps if gap.metrics == pair):
                shares = map(format_share, gap.shares)
                rows.append(
                    (label if n == 0 else "", gap.model, *shares, _format_difference(gap.difference), format_p_value(gap.p))
                )
        notes = (
            _direction_note([gap for gap in task_gaps if gap.metrics == PAIRS[0]]),
            _test_note([gap.difference for gap in task_gaps]) + ", corrected for the number of models",
        )
        header = (("", "", "first", "second", "second minus first [95 %]", "p (Holm)"),)
        tables.append(Table(f"{task}: the two directions and their halves", header, tuple(rows), 2, notes))
    return tables


def _test_note(differences: Sequence[Difference]) -> str:
    """The test that gives p.

    >>> _test_note([Difference(0.1, 0.0, 0.2, 0.04)])
    "p: McNemar's exact test on the same trials"
    """
    if all(d.cluster_p is None for d in differences):
        return "p: McNemar's exact test on the same trials"
    return "p: the larger one of McNemar's exact test and the test over clusters, because some trials share images"


def _direction_note(gaps: Sequence[DirectionGap]) -> str:
    """How many models have a significant gap, and in which direction.

    >>> share = Proportion(0.5, 0.4, 0.6, 9.0)
    >>> _direction_note([DirectionGap("t", "m", ("i2t", "t2i"), (share, share), Difference(-0.2, -0.3, -0.1, 0.001), 0.001)])
    'T2I is below I2T for 1 of 1 models, above for 0, and not significantly different for 0 (p < .05)'
    """
    first, second = (metric(name).label for name in gaps[0].metrics)
    significant = [gap for gap in gaps if gap.is_significant]
    below = sum(gap.difference.value < 0 for gap in significant)
    return (
        f"{second} is below {first} for {below} of {len(gaps)} models, above for {len(significant) - below}, and not significantly "
        f"different for {len(gaps) - len(significant)} (p < .05)"
    )


def _category_tables(analysis: DirectionAnalysis) -> list[Table]:
    tables = []
    for task in dict.fromkeys(d.task for d in analysis.difficulties):
        difficulties = [d for d in analysis.difficulties if d.task == task]
        rows = []
        for d in difficulties:
            cells = (
                EMPTY_CELL if share is None else f"{format_share(share)} ({rank})"
                for share, rank in zip(d.shares, d.ranks, strict=True)
            )
            rows.append((d.category, *cells, f"{100 * d.mean:.1f}"))
        rank_note = "in parentheses: the rank among categories of the same level, 1 for the lowest share; ties share a rank"
        notes = (*_hardest_notes([h for h in analysis.hardest if h.task == task]), rank_note)
        title = f"{task}: {metric(difficulties[0].metric).label} by category, the lowest mean first"
        tables.append(Table(title, (("", *analysis.models[task], "mean"),), tuple(rows), 1, notes))
    return tables


def _hardest_notes(hardest: Sequence[HardestCategory]) -> tuple[str, ...]:
    """How many models have which hardest category.

    >>> rows = [("a", "swap", 0.01), ("b", "swap", 0.3), ("c", None, 1.0)]
    >>> _hardest_notes([HardestCategory("t", *row) for row in rows])[0]
    'swap is the hardest category for 1 of 3 models; for 2 the difference is not significant'
    """
    if not hardest:
        return ()
    models = len(hardest)
    counts = Counter(h.category for h in hardest if h.is_significant)
    parts = [f"{category} is the hardest category for {n} of {models} models" for category, n in counts.most_common()]
    unclear = models - sum(counts.values())
    if unclear:
        start = f"for {unclear}" if parts else f"the hardest category is unclear: for {unclear} of {models} models"
        parts.append(f"{start} the difference is not significant")
    test = "hardest category: below each other category by Fisher's exact test, p < .05 (Holm over models)"
    return "; ".join(parts), test


def ranking_table(ranking: TaskRanking) -> Table:
    """A row for each model, the best of the first task first."""
    order = sorted(range(len(ranking.models)), key=lambda n: ranking.ranks[n])
    rows = []
    for n in order:
        cells = zip(ranking.shares[n], ranking.ranks[n], strict=True)
        rows.append((ranking.models[n], *(f"{format_share(share)} ({rank})" for share, rank in cells)))
    header = (("", *(f"{task} {name}" for task, name in zip(ranking.tasks, ("accuracy", "Group"), strict=True))),)
    title = f"Rank of models on {ranking.tasks[0]} and {ranking.tasks[1]}"
    return Table(title, header, tuple(rows), 1, _ranking_notes(ranking))


def _ranking_notes(ranking: TaskRanking) -> tuple[str, ...]:
    models = len(ranking.models)
    if ranking.tau is not None and ranking.p is not None:
        p = format_p_value(ranking.p)
        notes = [f"Kendall's τ-b {format_signed(f'{ranking.tau:.2f}')} over {models} models, p {p}" + _min_p_note(models)]
    elif models < MIN_MODELS:
        notes = [f"only {models} of the models ran on both tasks; a rank correlation needs at least {MIN_MODELS}"]
    else:
        notes = ["all models are tied on one of the two tasks, so there is no rank correlation"]
    tests = [_test_note([d for r in ranking.reversals for d in (r.first, r.second)])] if ranking.reversals else []
    return (*notes, *(_reversal_note(r, ranking.tasks) for r in ranking.reversals), *tests)


def _min_p_note(models: int) -> str:
    """The smallest possible p, if it is not significant."""
    smallest = 2 / math.factorial(models)
    return f" (with so few models p cannot be below {format_p_value(smallest)})" if smallest >= SIGNIFICANCE else ""


def _reversal_note(reversal: RankReversal, tasks: tuple[str, str]) -> str:
    first, second = reversal.first, reversal.second
    return (
        f"{reversal.ahead} is {100 * first.value:.1f} above {reversal.behind} on {tasks[0]} (p {format_p_value(larger_p(first))}) "
        f"and {-100 * second.value:.1f} below it on {tasks[1]} (p {format_p_value(larger_p(second))})"
    )


def direction_analysis_json(analysis: DirectionAnalysis) -> dict[str, list[dict[str, Any]]]:
    """The analysis for JSON, in percent."""
    return {
        "directions": [
            {"task": g.task, "model": g.model, "first": g.metrics[0], "second": g.metrics[1],
             "values": [100 * s.value for s in g.shares], **_difference_json(g.difference), "p_holm": g.p}
            for g in analysis.gaps
        ],
        "categories": [
            {"task": d.task, "category": d.category, "metric": d.metric, "mean": 100 * d.mean,
             "models": {m: None if s is None else {"value": 100 * s.value, "low": 100 * s.low, "high": 100 * s.high, "place": rank}
                        for m, s, rank in zip(analysis.models[d.task], d.shares, d.ranks, strict=True)}}
            for d in analysis.difficulties
        ],
        "hardest": [
            {"task": h.task, "model": h.model, "category": h.category, "p_holm": h.p, "sure": h.is_significant}
            for h in analysis.hardest
        ],
        "ranks": [
            {"tasks": list(r.tasks), "tau": r.tau, "p": r.p,
             "models": {m: {"values": [100 * s.value for s in pair], "places": list(ranks)}
                        for m, pair, ranks in zip(r.models, r.shares, r.ranks, strict=True)},
             "reversals": [{"ahead": x.ahead, "behind": x.behind, "first": _difference_json(x.first),
                            "second": _difference_json(x.second)}
                           for x in r.reversals]}
            for r in analysis.rankings
        ],
    }  # fmt: skip


def _difference_json(difference: Difference) -> dict[str, float | None]:
    ends = {"difference": 100 * difference.value, "low": 100 * difference.low, "high": 100 * difference.high}
    return {**ends, "p": difference.p, "p_clustered": difference.cluster_p}


def _format_difference(difference: Difference) -> str:
    value, low, high = (format_signed(f"{100 * x:.1f}", "+") for x in (difference.value, difference.low, difference.high))
    return f"{value} [{low}, {high}]"
