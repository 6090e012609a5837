"""How many judgements settle the order of models: what could change it first, against pooling, in the results pages.

    python docs/built_bounds.py FOLDER        # prints the section; FOLDER/models/NAME are the trained models

The truth about every pair of diorama is known, so that it can be asked of any order of judging when the order of the models by what was
judged is the true one, and when it is certain.
"""

# ruff: noqa: E501 - prose

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from crossmatch.build.bounds import (
    Bounding,
    Choice,
    Contest,
    Question,
    State,
    by_bounds,
    by_depth,
    by_lot,
    judged_until_certain,
    posed,
)
from crossmatch.build.material import in_order, said_of
from crossmatch.core.judgements import Judgements
from crossmatch.core.scores import Scores
from crossmatch.diorama.world import Diorama
from crossmatch.metrics.bounds import UNJUDGED
from crossmatch.models import make_model
from crossmatch.models.cache import ScoreCache, default_folder
from crossmatch.report.analysis_page import Panel, write
from crossmatch.report.plots import COLOURS
from crossmatch.report.tables import Table
from make_results import markdown

HERE = Path(__file__).parent
MODELS = ("vse++", "vse-infinity", "vsrn", "pcme", "scan-t2i")
METRICS = ("map@r", "hit@1")
DEPTH = 10
SUBSETS = 5  # sets of queries
FIRST = 100  # seed of the first of them; those below were used to choose how pairs are weighed
QUERIES = 200  # captions of each, drawn by lot
BATCH = {"map@r": 100, "hit@1": 25}
TOLERANCE = 0.01  # a lead of a point
ORDERS: dict[str, Callable[[Question, int], Choice]] = {
    "bounds first": lambda question, seed: by_bounds,
    "top-k pooling": by_depth,
    "by lot": by_lot,
}


@dataclass(frozen=True, eq=False)
class Course:
    """What happened to one set of queries in one order of judging."""

    pool: int
    states: tuple[State, ...]
    true: Mapping[str, float]

    @property
    def certain(self) -> int:
        """Judgements until the order was certain."""
        return self.states[-1].judged

    def within(self, tolerance: float) -> int:
        """Judgements until no model could be ahead of another, against the order, by more than the tolerance."""
        done = (s.judged for s in self.states if all(low >= -tolerance or high <= tolerance for low, high in s.gaps.values()))
        return next(done)

    @property
    def right(self) -> int | None:
        """Judgements from which on the order by what was judged was the true one; nothing if it was not even in the end."""
        wrong = [n for n, state in enumerate(self.states) if tau(state.means, self.true) < 1]
        after = wrong[-1] + 1 if wrong else 0
        return self.states[after].judged if after < len(self.states) else None


def tau(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Kendall's tau of two orders of models."""
    signs = [np.sign(one[a] - one[b]) * np.sign(other[a] - other[b]) for a, b in combinations(one, 2)]
    return float(np.mean(signs))


def courses(
    said: Mapping[str, Scores], world: Diorama, name: str, *, subsets: int = SUBSETS, queries: int = QUERIES, depth: int = DEPTH
) -> dict[str, list[Course]]:
    """Every order of judging on every set of queries."""
    held, truth = world.collection, world.truth
    linked, known = Judgements.from_links(held), Judgements.from_matrix("truth", truth)
    found: dict[str, list[Course]] = {order: [] for order in ORDERS}
    for seed in range(FIRST, FIRST + subsets):
        drawn = np.sort(np.random.default_rng([seed, 9]).permutation(held.shape[1])[:queries])
        question = posed(held, linked, said, Bounding(name, "t2i", depth), drawn)
        true = Contest(posed(held, known, said, Bounding(name, "t2i", depth), drawn)).means
        for order, chooser in ORDERS.items():
            states = judged_until_certain(
                question, lambda query, item: truth[item, query], chooser(question, seed), batch=BATCH[name]
            )
            found[order].append(Course(pool_of(question), tuple(states), true))
    return found


def pool_of(question: Question) -> int:
    return int((question.label == UNJUDGED).sum())


# -- tables and a picture


def spread(values: Sequence[float], digits: int = 0, least: float = -np.inf) -> str:
    """The mean over the sets of queries, and Student's 95 % interval of it, cut off where no value can be; none of one value.

    >>> spread([0, 10], least=0), spread([3])
    ('5 [0, 69]', '3')
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:,.{digits}f}"
    reach = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return f"{mean:,.{digits}f} [{max(mean - reach, least):,.{digits}f}, {mean + reach:,.{digits}f}]"


def in_numbers(found: Mapping[str, Mapping[str, Sequence[Course]]]) -> Table:
    """Judgements until the order is right for good, and until it is certain; and what bounds first save against the others."""
    rows = []
    for name, by_order in found.items():
        ours = by_order["bounds first"]
        for order, mine in by_order.items():
            saved = [100 * (1 - a.certain / max(b.certain, 1)) for a, b in zip(ours, mine, strict=True)]
            right = [course.right for course in mine if course.right is not None]
            rows.append(
                (name, order, spread([course.pool for course in mine]), f"{len(right)} of {len(mine)}",
                 spread(right, least=0) if right else "–", spread([course.within(TOLERANCE) for course in mine], least=0),
                 spread([course.certain for course in mine], least=0), "" if order == "bounds first" else f"{spread(saved, 1)} %")
            )  # fmt: skip
    head = (
        "metric",
        "judged in the order",
        "unjudged in the pool",
        "ends as the truth",
        "right for good after",
        "certain to a point after",
        "certain after",
        "bounds first save",
    )
    return Table("", (head,), tuple(rows), 2)


def saved_until_right(found: Mapping[str, Mapping[str, Sequence[Course]]]) -> str:
    """The same comparison for the order being right, on the sets where each order of judging ends with it."""
    told = []
    for name, by_order in found.items():
        ours = by_order["bounds first"]
        for order, theirs in by_order.items():
            gaps = [b.right - a.right for a, b in zip(ours, theirs, strict=True) if a.right is not None and b.right is not None]
            if order != "bounds first" and gaps:
                told.append(f"{name} against {order}: {spread(gaps)} judgements fewer")
    return "; ".join(told)


def settled(mine: Sequence[Course], at: Any) -> Any:
    """The share of sets, in per cent, whose order is right for good after each number of judgements."""
    return np.mean([[0 if course.right is None else 100 * (course.right <= x) for x in at] for course in mine], axis=0)


def undecided(mine: Sequence[Course], at: Any) -> Any:
    """How many comparisons are undecided after each number of judgements, mean over the sets."""
    out = []
    for course in mine:
        judged = [state.judged for state in course.states]
        left = [len(state.undecided) for state in course.states]
        out.append([left[max(0, int(np.searchsorted(judged, x, "right")) - 1)] for x in at])
    return np.mean(out, axis=0)


SIDES = ((settled, "sets whose order is right for good, %", 104), (undecided, "undecided comparisons", None))


def panel(found: Mapping[str, Mapping[str, Sequence[Course]]]) -> Panel:
    def draw(figure: Any) -> None:
        grid = figure.subplots(len(found), 2, squeeze=False)
        for axes, (name, by_order) in zip(grid, found.items(), strict=True):
            at = np.arange(0, max(course.pool for mine in by_order.values() for course in mine) + BATCH[name], BATCH[name])
            for one, (curve, label, highest) in zip(axes, SIDES, strict=True):
                for (order, mine), colour in zip(by_order.items(), COLOURS, strict=False):
                    one.plot(at, curve(mine, at), color=colour, label=order)
                one.set(xlabel="judgements", ylabel=label, title=f"t2i {name}", ylim=(0, highest))
        grid[0][1].legend(frameon=False)

    return Panel("Judgements until the order of models is known", "means over the sets of queries", 3.2 * len(found), draw)


def section(folder: Path) -> str:
    """The text for the results pages; writes docs/pictures/bounds.svg."""
    world = Diorama.make("test")
    names = [name for name in MODELS if (folder / "models" / name / "model.json").exists()]
    held, cache = in_order(world.collection), ScoreCache(default_folder())
    said = {name: said_of(make_model(str(folder / "models" / name)), held, cache) for name in names}
    found = {name: courses(said, world, name) for name in METRICS}
    return told(found, names)


def told(
    found: Mapping[str, Mapping[str, Sequence[Course]]], names: Sequence[str], picture: Path = HERE / "pictures" / "bounds.svg"
) -> str:
    write(picture, "", [], [panel(found)])
    return "\n".join(
        [
            "### False-negative bounds: how many judgements settle the order of models",
            f"Models: {', '.join(names)}. {SUBSETS} sets of {QUERIES} captions each are searched with in the test split; known at first are the original links alone, one image for each caption. Whatever some model has among its first {DEPTH} places may match, all else is taken not to. Pairs are judged by the truth, {' or '.join(map(str, BATCH.values()))} at a time, until the order of all models is certain by the bounds: *bounds first* takes the pairs that can move the undecided comparisons most, *top-k pooling* what some model has first, then second, and so on, and *by lot* the pool in random order. *Right for good* is when the order by what was judged is that of the whole truth, and stays so; the pool is closed, so that it may end otherwise (two models that are level by what was judged, one of them certain not to be behind, count as not right), and its mean is over the sets that do end so. Means over the sets, which are drawn independently of the same captions, with Student's 95 % intervals, which of {SUBSETS} sets or fewer are wide.\n",
            markdown(in_numbers(found)),
            f"\nUntil the order is right for good, bounds first need: {saved_until_right(found) or 'no set on which all end as the truth'}.\n",
            "![Judgements against the order of models](pictures/bounds.svg)",
            "",
        ]
    )


if __name__ == "__main__":
    print(section(Path(sys.argv[1] if len(sys.argv) > 1 else "demo/zoo")))
