"""False-negative bounds in the results pages: how many judgements it takes until the order of models is right, and certain.

    python docs/bounds_results.py FOLDER        # prints the section; FOLDER/models/NAME are the trained models

Pairs are judged in three orders: by bounds, by top-k pooling, and at random. The truth about every pair of diorama is known, so it
can be checked when the order of models is right.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from blocks import PICTURES, markdown
from crossmatch.build.model_order_bounds import BoundsOptions, LabelledRankings, ModelOrder, label_rankings
from crossmatch.build.step_inputs import score_all_pairs, sort_by_id
from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.judgements import Judgements
from crossmatch.data.scores import Scores
from crossmatch.diorama.world import Diorama
from crossmatch.metrics.bounds.metric_bounds import UNJUDGED
from crossmatch.models import make_model
from crossmatch.models.cache import Cache, default_cache_folder
from crossmatch.report.pages import Panel, write_analysis
from crossmatch.report.result_plots import COLOURS
from crossmatch.report.tables import Table
from simulated_judging import Choice, JudgingState, choose_at_random, choose_by_bounds, choose_by_depth, judge_until_certain

MODELS = ("vse++", "vse-infinity", "vsrn", "pcme", "scan-t2i")
METRICS = ("map@r", "hit@1")
DEPTH = 10
SAMPLES = 5  # samples of queries
FIRST_SEED = 100  # of the first sample; smaller seeds were used to choose how pairs are weighted
QUERIES = 200  # captions of a sample
BATCH = {"map@r": 100, "hit@1": 25}
TOLERANCE = 0.01  # one point
BOUNDS, POOLING, RANDOM = "by bounds", "top-k pooling", "random"
STRATEGIES: dict[str, Callable[[LabelledRankings, int], Choice]] = {
    BOUNDS: lambda rankings, seed: choose_by_bounds,
    POOLING: choose_by_depth,
    RANDOM: choose_at_random,
}


@dataclass(frozen=True, eq=False)
class Course:
    """The course of judging one sample of queries with one strategy."""

    pool_size: int
    states: tuple[JudgingState, ...]
    true_means: Mapping[str, float]

    @property
    def certain_after(self) -> int:
        """Judgements until the order of models is certain."""
        return self.states[-1].judged

    def certain_within(self, tolerance: float) -> int:
        """Judgements until no model can lead against the order by more than the tolerance."""
        return next(
            state.judged
            for state in self.states
            if all(low >= -tolerance or high <= tolerance for low, high in state.differences.values())
        )

    @property
    def right_after(self) -> int | None:
        """Judgements after which the order by judged pairs stays the true one; None if it is wrong at the end."""
        wrong = [n for n, state in enumerate(self.states) if kendall_tau(state.means, self.true_means) < 1]
        first_right = wrong[-1] + 1 if wrong else 0
        return self.states[first_right].judged if first_right < len(self.states) else None


Courses = Mapping[str, Mapping[str, Sequence[Course]]]  # by metric and strategy


def kendall_tau(first: Mapping[str, float], second: Mapping[str, float]) -> float:
    """Kendall's tau of two orders of models; a tie counts as 0."""
    signs = [np.sign(first[a] - first[b]) * np.sign(second[a] - second[b]) for a, b in combinations(first, 2)]
    return float(np.mean(signs))


def judge_samples(
    scores: Mapping[str, Scores], world: Diorama, metric: str, *, samples: int = SAMPLES, queries: int = QUERIES, depth: int = DEPTH
) -> dict[str, list[Course]]:
    """Judge every sample of queries with every strategy."""
    collection, truth = world.collection, world.truth
    links, all_pairs = Judgements.from_links(collection), Judgements.from_matrix("truth", truth)
    options = BoundsOptions(metric, "t2i", depth)
    courses: dict[str, list[Course]] = {name: [] for name in STRATEGIES}
    for seed in range(FIRST_SEED, FIRST_SEED + samples):
        sample = np.sort(np.random.default_rng([seed, 9]).permutation(collection.shape[1])[:queries])
        rankings = label_rankings(collection, links, scores, options, sample)
        true_means = ModelOrder(label_rankings(collection, all_pairs, scores, options, sample)).means
        pool_size = int((rankings.label == UNJUDGED).sum())
        for name, strategy in STRATEGIES.items():
            states = judge_until_certain(
                rankings, lambda query, item: truth[item, query], strategy(rankings, seed), batch=BATCH[metric]
            )  # fmt: skip
            courses[name].append(Course(pool_size, tuple(states), true_means))
    return courses


# -- tables and a picture


def format_mean(values: Sequence[float], digits: int = 0, minimum: float = -np.inf) -> str:
    """The mean over samples with Student's 95 % interval, cut off at the smallest possible value; no interval of one value.

    >>> format_mean([0, 10], minimum=0), format_mean([3])
    ('5 [0, 69]', '3')
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:,.{digits}f}"
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{mean:,.{digits}f} [{max(mean - half, minimum):,.{digits}f}, {mean + half:,.{digits}f}]"


def bounds_table(courses: Courses) -> Table:
    """Judgements until the order is right and until it is certain, and what judging by bounds saves."""
    rows = []
    for metric, by_strategy in courses.items():
        for strategy, samples in by_strategy.items():
            saved = [
                100 * (1 - first.certain_after / max(second.certain_after, 1))
                for first, second in zip(by_strategy[BOUNDS], samples, strict=True)
            ]
            right = [course.right_after for course in samples if course.right_after is not None]
            rows.append(
                (metric, strategy, format_mean([course.pool_size for course in samples]), f"{len(right)} of {len(samples)}",
                 format_mean(right, minimum=0) if right else "–",
                 format_mean([course.certain_within(TOLERANCE) for course in samples], minimum=0),
                 format_mean([course.certain_after for course in samples], minimum=0),
                 "" if strategy == BOUNDS else f"{format_mean(saved, 1)} %")
            )  # fmt: skip
    header = ("metric", "strategy", "unjudged in the pool", "right at the end", "right after", "certain within a point after",
              "certain after", "saved by bounds")  # fmt: skip
    return Table("", (header,), tuple(rows), 2)


def describe_savings(courses: Courses) -> list[str]:
    """How many judgements fewer bounds need until the order is right, on the samples where both strategies end with it."""
    texts = []
    for metric, by_strategy in courses.items():
        for strategy, samples in by_strategy.items():
            gaps = [
                second.right_after - first.right_after
                for first, second in zip(by_strategy[BOUNDS], samples, strict=True)
                if first.right_after is not None and second.right_after is not None
            ]
            if strategy != BOUNDS and gaps:
                texts.append(f"- {metric}, {strategy}: {format_mean(gaps)}")
    return texts or ["- no sample ends with the true order under both strategies"]


def right_share(samples: Sequence[Course], counts: IntArray) -> FloatArray:
    """The percentage of samples whose order is right after each number of judgements."""
    shares = [[0 if course.right_after is None else 100 * (course.right_after <= n) for n in counts] for course in samples]
    return np.mean(shares, axis=0)


def undecided_comparisons(samples: Sequence[Course], counts: IntArray) -> FloatArray:
    """The mean number of undecided comparisons after each number of judgements."""
    numbers = []
    for course in samples:
        judged = [state.judged for state in course.states]
        undecided = [len(state.undecided) for state in course.states]
        numbers.append([undecided[max(0, int(np.searchsorted(judged, n, "right")) - 1)] for n in counts])
    return np.mean(numbers, axis=0)


PLOTS = ((right_share, "samples with the right order, %", 104), (undecided_comparisons, "undecided comparisons", None))


def bounds_panel(courses: Courses) -> Panel:
    def draw(figure: Any) -> None:
        grid = figure.subplots(len(courses), 2, squeeze=False)
        for row, (metric, by_strategy) in zip(grid, courses.items(), strict=True):
            largest = max(course.pool_size for samples in by_strategy.values() for course in samples)
            counts = np.arange(0, largest + BATCH[metric], BATCH[metric])
            for axes, (curve, label, highest) in zip(row, PLOTS, strict=True):
                for (strategy, samples), colour in zip(by_strategy.items(), COLOURS, strict=False):
                    axes.plot(counts, curve(samples, counts), color=colour, label=strategy)
                axes.set(xlabel="judgements", ylabel=label, title=f"t2i {metric}", ylim=(0, highest))
        grid[0][1].legend(frameon=False)

    return Panel("Judgements until the order of models is known", "means over the samples of queries", 3.2 * len(courses), draw)


def section(folder: Path) -> str:
    """The section of the results pages; writes docs/pictures/bounds.svg."""
    world = Diorama.make("test")
    names = [name for name in MODELS if (folder / "models" / name / "model.json").exists()]
    collection, cache = sort_by_id(world.collection), Cache(default_cache_folder())
    scores = {name: score_all_pairs(make_model(str(folder / "models" / name)), collection, cache) for name in names}
    courses = {metric: judge_samples(scores, world, metric) for metric in METRICS}
    write_analysis(PICTURES / "bounds.svg", "", [], [bounds_panel(courses)])
    return section_text(names, bounds_table(courses), describe_savings(courses))


def section_text(names: Sequence[str], table: Table, savings: Sequence[str]) -> str:
    batches = " or ".join(map(str, BATCH.values()))
    return "\n".join(
        [
            "### False-negative bounds: how many judgements settle the order of models",
            f"{SAMPLES} samples of {QUERIES} captions are the queries; the models are {', '.join(names)}. At first only the original links "
            f"are known, one image for each caption. A pair may match if some model has it among its first {DEPTH} positions; all "
            f"other pairs count as negatives. Pairs are judged by the truth, {batches} at a time, until the order of all models is "
            "certain by the bounds ([decision 20](decisions/0020-false-negative-bounds.md)).\n",
            "| strategy | which pairs are judged first |",
            "| :-- | :-- |",
            f"| {BOUNDS} | those that can change the undecided comparisons most |",
            f"| {POOLING} | the first item of each model, then the second, and so on |",
            f"| {RANDOM} | the pool in random order |",
            "",
            "The order is *right* when the order by the judged pairs is that of the whole truth and stays so. Only pairs of the pool "
            "are judged, so the order may still be wrong at the end: `right at the end` counts the samples with the right order, and "
            "`right after` is the mean over those. A tie of two models is not the right order, even if one is certain not to be "
            f"behind. All numbers are means with Student's 95 % intervals, which are wide with {SAMPLES} samples.\n",
            markdown(table),
            "\nJudgements saved by the strategy `by bounds`, compared with each other strategy, until "
            "the order is right (negative: `by bounds` needs more):\n",
            *savings,
            "",
            "![Judgements against the order of models](pictures/bounds.svg)",
            "",
        ]
    )


if __name__ == "__main__":
    print(section(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/zoo")))
