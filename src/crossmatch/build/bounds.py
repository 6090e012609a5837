"""Which unjudged pairs could still change the order of models, and what order is certain already.

Models retrieve, some of the pairs were judged, and a metric counts the rest as irrelevant. `metrics/bounds.py` says between which
values it must lie whatever the rest is, and `metrics/bounds_between.py` the same for the difference of two models. If zero is
within the bounds of a difference, the comparison is undecided, and unjudged pairs of its queries could swap the two. These are
listed, those first that can move the undecided comparisons most, ready for `build pool --first`:

    {"id", "image_id", "caption_id", "caption", "direction", "metric",
     "moves": [{"models": [a, b], "by": …}, …]: how far this pair alone can move a - b, in points of the mean over the queries}

The move of a pair is the larger of two changes of a - b by its label: if no other unjudged pair of its query matches, and if all do
(much as carterette2006minimal weigh documents for the difference of two average precisions).

The pool is closed by default: what no model has among its first places is taken not to match.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.build.files import Asked, Output, Row, written
from crossmatch.build.material import collection_hash, named_models, pair_id, said_of, signature_of
from crossmatch.core.arrays import BoolArray, FloatArray, IntArray
from crossmatch.core.collection import SIDES, Collection
from crossmatch.core.errors import CrossmatchError, WrongWords
from crossmatch.core.judgements import Judgements, Listed
from crossmatch.core.rankings import Folds, rankings
from crossmatch.core.runs import stand_run
from crossmatch.core.scores import Run, Scores
from crossmatch.core.sweep import stand
from crossmatch.metrics.bounds import NEGATIVE, POSITIVE, UNJUDGED, Labels, Placed, bounds, moves, require_bounded
from crossmatch.metrics.bounds_between import EXHAUSTIVE, difference
from crossmatch.metrics.table import Metric, metric
from crossmatch.models.cache import ScoreCache

STEP = "bounds"
DEPTH = 10  # places of each model whose pairs may match: those of which every result says how many are unjudged
BATCH = 100  # pairs that are judged before the next are chosen

Two = tuple[str, str]


@dataclass(frozen=True)
class Bounding:
    """What is asked: what the manifest keeps as options."""

    metric: str = "map@r"
    direction: str = "t2i"
    depth: int | None = DEPTH  # nothing: the open reading, in which every unjudged pair may match
    tolerance: float = 0.0  # a lead of no more than this counts as none

    def __post_init__(self) -> None:
        require_bounded(metric(self.metric))
        if self.direction not in ("i2t", "t2i"):
            raise WrongWords(f"the direction is {self.direction!r}; i2t or t2i was expected.")
        if (self.depth is not None and self.depth < 1) or not 0 <= self.tolerance < 1:
            raise WrongWords(
                f"the depth is {self.depth}, the tolerance {self.tolerance}; at least 1, and from 0 to 1 was expected."
            )


@dataclass(frozen=True, eq=False)
class Question:
    """Models on the same queries. `item[q, w]` is the candidate listed at w for query `query[q]`; rows are filled up with -1."""

    metric: Metric
    query: IntArray
    item: IntArray
    label: Labels
    models: Mapping[str, Placed]

    @property
    def pairs(self) -> tuple[Two, ...]:
        return tuple(combinations(self.models, 2))

    def chosen(self, queries: IntArray) -> Question:
        """The same for some of the queries."""
        there = {name: placed.chosen(queries) for name, placed in self.models.items()}
        return Question(self.metric, self.query[queries], self.item[queries], self.label[queries], there)


def posed(
    held: Collection, judged: Judgements, said: Mapping[str, Scores], how: Bounding, queries: IntArray | None = None
) -> Question:
    """What models retrieve, and what is known of it; for the queries with a positive, or some of them."""
    measured = metric(how.metric)
    if judged.absent:
        raise CrossmatchError("these judgements have positives outside of the gallery; bounds are not known for those.")
    if measured.graded and not np.isin(judged.grades, (0.0, 1.0)).all():
        raise WrongWords(f"{how.metric} counts grades, and bounds are known for grades of 0 and 1 alone. Take map@r or recall@k.")
    known = judged.listed(how.direction)
    asked = known.query if queries is None else np.intersect1d(queries, known.query)
    grades = {
        int(q): dict(zip(known.item[a:b].tolist(), known.grade[a:b].tolist(), strict=True))
        for q, a, b in zip(known.query, known.start[:-1], known.start[1:], strict=True)
    }
    near: dict[int, set[int]] = {int(q): {i for i, g in grades[int(q)].items() if g >= judged.positive} for q in asked}
    if not judged.complete:
        for q, items in _may_match(held, said, how, asked, known.folds):
            near[q].update(i for i in items.tolist() if i not in grades[q])
    rows = [sorted(near[int(q)]) for q in asked]
    start = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    flat = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
    of_row = np.repeat(np.arange(len(rows)), np.diff(start))
    column = np.arange(len(flat)) - start[of_row]
    item = np.full((len(rows), int(np.diff(start).max())), -1, dtype=np.int64)
    item[of_row, column] = flat
    positive = np.array([i in grades[int(asked[q])] for q, i in zip(of_row.tolist(), flat.tolist(), strict=True)])
    label = np.full(item.shape, NEGATIVE, dtype=np.int8)
    label[of_row, column] = np.where(positive, POSITIVE, UNJUDGED)
    listed = Listed(asked, start, flat, np.ones(len(flat)), known.folds)
    placed = {name: _placed(scores, held, how.direction, listed, (of_row, column)) for name, scores in said.items()}
    return Question(measured, asked, item, label, placed)


def _may_match(
    held: Collection, said: Mapping[str, Scores], how: Bounding, asked: IntArray, folds: Folds | None
) -> Iterator[tuple[int, IntArray]]:
    """The candidates of a query that are open if nobody judged them: what each model retrieves, or the whole gallery.

    A run file must reach as deep as that, or what it does not list would be taken not to match.
    """
    query_ids, item_ids = (held.ids(side) for side in SIDES[how.direction])
    whole = np.arange(len(item_ids))
    galleries = {q: whole if folds is None else np.flatnonzero(folds[1] == folds[0][q]) for q in asked.tolist()}
    if how.depth is None:
        yield from galleries.items()
        return
    for name, scores in said.items():
        for q, items, _ in rankings(scores, held, how.direction, how.depth, asked, folds):
            needed = min(how.depth, len(galleries[q]))
            if len(items) < needed:
                raise CrossmatchError(
                    f"{name} lists {len(items):,} candidates for {str(query_ids[q])!r:.60}; {needed:,} are looked at. Write deeper "
                    "rankings, or look at fewer places: --depth"
                )
            yield q, items


def _placed(scores: Scores, held: Collection, direction: str, listed: Listed, at: tuple[IntArray, IntArray]) -> Placed:
    found = stand_run(scores, held, direction, listed) if isinstance(scores, Run) else stand(scores, {direction: listed})[direction]
    shape = (len(listed.query), int(listed.count.max()))
    above, size = np.broadcast_to(found.gallery[:, None], shape).copy(), np.ones(shape, dtype=np.int64)
    above[at], size[at] = found.above, found.size
    return Placed(above, size, found.gallery, found.depth)


# -- a question while it is being answered


@dataclass(eq=False)
class Contest:
    """What is known so far, and what follows for each model and each comparison; counted anew only where labels changed."""

    question: Question
    tolerance: float = 0.0
    exhaustive: int = EXHAUSTIVE
    label: Labels = field(init=False)
    values: dict[str, FloatArray] = field(init=False)
    gaps: dict[Two, FloatArray] = field(init=False)  # 2 x queries: lowest and highest
    _moves: dict[str, FloatArray] = field(init=False)  # 2 x queries x candidates
    _stale: BoolArray = field(init=False)  # queries whose moves are out of date

    def __post_init__(self) -> None:
        asked, n = self.question, len(self.question.query)
        self.label = asked.label.copy()
        self.values = {name: np.zeros(n) for name in asked.models}
        self.gaps = {two: np.array([[-np.inf] * n, [np.inf] * n]) for two in asked.pairs}
        self._moves = {name: np.zeros((2, *asked.label.shape)) for name in asked.models}
        self._stale = np.ones(n, dtype=bool)
        self._count(np.arange(n))

    def answer(self, rows: IntArray, columns: IntArray, match: BoolArray) -> None:
        """Take what was said of some pairs."""
        self.label[rows, columns] = np.where(match, POSITIVE, NEGATIVE)
        self._count(np.unique(rows))

    def _count(self, rows: IntArray) -> None:
        asked, label = self.question, self.label[rows]
        here = {name: placed.chosen(rows) for name, placed in asked.models.items()}
        for name, placed in here.items():
            self.values[name][rows] = placed.values(asked.metric, label == POSITIVE)
        for a, b in self.undecided:  # what is certain stays so
            found = difference(asked.metric, here[a], here[b], label, self.exhaustive)
            self.gaps[a, b][:, rows] = found.low, found.high
        self._stale[rows] = True

    def gap(self, two: Two) -> tuple[float, float]:
        """The bounds of a - b, over the mean of all queries."""
        low, high = self.gaps[two].mean(axis=1)
        return float(low), float(high)

    @property
    def undecided(self) -> tuple[Two, ...]:
        """The comparisons of which either could still be ahead by more than the tolerance."""
        room = self.tolerance + 1e-12  # of rounding
        return tuple(two for two, gap in self.gaps.items() if gap[0].mean() < -room and gap[1].mean() > room)

    @property
    def means(self) -> dict[str, float]:
        """Each model by what is known: the unjudged count as irrelevant."""
        return {name: float(values.mean()) for name, values in self.values.items()}

    def hanging(self, *comparisons: Two) -> BoolArray:
        """The unjudged pairs of queries in which one of these comparisons is not settled."""
        hangs = np.zeros(len(self.label), dtype=bool)
        for two in comparisons:
            hangs |= self.gaps[two][1] - self.gaps[two][0] > 1e-12
        return np.asarray((self.label == UNJUDGED) & hangs[:, None], dtype=bool)

    def moves(self, two: Two) -> FloatArray:
        """How far each unjudged pair alone can move a comparison of its query."""
        rows = np.flatnonzero(self._stale)
        if len(rows):
            for name, placed in self.question.models.items():
                self._moves[name][:, rows] = moves(self.question.metric, placed.chosen(rows), self.label[rows])
            self._stale[:] = False
        a, b = (self._moves[name] for name in two)
        return np.asarray(np.abs(a - b).max(axis=0), dtype=np.float64)

    def first(self) -> tuple[IntArray, IntArray]:
        """All pairs that may count, those first that can move the undecided comparisons most."""
        rows, columns = np.nonzero(self.hanging(*self.undecided))
        weight = np.zeros(len(rows))
        for two in self.undecided:
            weight += self.moves(two)[rows, columns]
        order = np.argsort(-weight, kind="stable")
        return rows[order], columns[order]


# -- judging until the order is certain

Choice = Callable[[Contest], tuple[IntArray, IntArray]]  # the pairs to judge next, the most urgent first
Oracle = Callable[[IntArray, IntArray], BoolArray]  # whether items match queries, by their positions


@dataclass(frozen=True)
class State:
    """After so many judgements: the models by what is known, and the comparisons that are not certain."""

    judged: int
    means: Mapping[str, float]
    undecided: tuple[Two, ...]
    gaps: Mapping[Two, tuple[float, float]]  # bounds of each difference; of one that is certain, when it became so


def by_bounds(contest: Contest) -> tuple[IntArray, IntArray]:
    """What can move the undecided comparisons most: chosen anew after each batch."""
    return contest.first()


def by_depth(question: Question, seed: int = 0) -> Choice:
    """Top-k pooling, depth by depth: what some model has first, then what some model has second, …; in a depth by lot."""
    best = np.min([placed.above for placed in question.models.values()], axis=0)
    lot = np.random.default_rng([seed, 1]).random(best.shape)
    return _fixed(np.lexsort((lot.ravel(), best.ravel())), best.shape)


def by_lot(question: Question, seed: int = 0) -> Choice:
    """The pool in an order drawn by lot."""
    return _fixed(np.random.default_rng([seed, 2]).permutation(question.label.size), question.label.shape)


def _fixed(order: IntArray, shape: tuple[int, ...]) -> Choice:
    rows, columns = np.unravel_index(order, shape)

    def choose(contest: Contest) -> tuple[IntArray, IntArray]:
        left = contest.label[rows, columns] == UNJUDGED
        return rows[left], columns[left]

    return choose


def judged_until_certain(
    question: Question,
    oracle: Oracle,
    choose: Choice = by_bounds,
    *,
    batch: int = BATCH,
    tolerance: float = 0.0,
    to_the_end: bool = False,
    exhaustive: int = EXHAUSTIVE,
) -> Iterator[State]:
    """Have pairs judged in batches until the order of all models is certain, or decided up to the tolerance; the state after each.

    `to_the_end` goes on until nothing is left to choose, for those who want to see what comes after.
    """
    contest, judged = Contest(question, tolerance, exhaustive), 0
    while True:
        yield State(judged, contest.means, contest.undecided, {two: contest.gap(two) for two in contest.gaps})
        rows, columns = choose(contest) if contest.undecided or to_the_end else (np.zeros(0, np.int64),) * 2
        rows, columns = rows[:batch], columns[:batch]
        if not len(rows):
            return
        contest.answer(rows, columns, oracle(question.query[rows], question.item[rows, columns]))
        judged += len(rows)


# -- the step


def bounded(
    held: Collection,
    judged: Judgements,
    models: Mapping[str, object] | Sequence[str],
    output: Path,
    *,
    how: Bounding = Bounding(),
    cache: ScoreCache | None = None,
) -> tuple[dict[str, Any], Contest]:
    """Write the pairs that could change the order of models into a folder; its manifest, and what is certain.

    `held` is in the order of its ids (`material.in_order`), and `judged` with it.
    """
    by_name = named_models(models)
    if not by_name:
        raise WrongWords("no model was named whose bounds are asked for. Name at least one.")
    held.texts()  # says what is missing
    said = {name: said_of(model, held, cache) for name, model in by_name.items()}
    contest = Contest(posed(held, judged, said, how), how.tolerance)
    inputs = {"collection": collection_hash(held), "judgements": judgements_hash(judged)}
    inputs |= {f"model {name}": signature_of(model) for name, model in by_name.items()}
    options = {"metric": how.metric, "direction": how.direction, "depth": how.depth, "tolerance": how.tolerance}

    def rows(made: Output) -> Iterator[Row]:
        made.count("queries", len(contest.label))
        made.count("unjudged", int((contest.label == UNJUDGED).sum()))
        made.count("comparisons", len(contest.gaps))
        made.count("undecided", len(contest.undecided))
        yield from listed_rows(contest, held, how.direction)

    return written(output, Asked(STEP, inputs, options), rows), contest


def judgements_hash(judged: Judgements) -> str:
    """What identifies judgements as an input of a step."""
    order = np.lexsort((judged.columns, judged.rows))
    told = f"{judged.kind} {judged.positive} {judged.complete} {judged.only}".encode()
    arrays = (judged.rows[order], judged.columns[order], judged.grades[order], *(judged.folds or ()))
    return hashlib.sha256(told + b"".join(np.ascontiguousarray(each).tobytes() for each in arrays)).hexdigest()[:16]


def listed_rows(contest: Contest, held: Collection, direction: str) -> Iterator[Row]:
    """The pairs that could change the order, the most urgent first."""
    asked, n = contest.question, len(contest.label)
    found = {two: contest.moves(two) for two in contest.undecided}
    for row, column in zip(*(each.tolist() for each in contest.first()), strict=True):
        at = {SIDES[direction][0]: int(asked.query[row]), SIDES[direction][1]: int(asked.item[row, column])}
        image, caption = str(held.image_ids[at["image"]]), str(held.caption_ids[at["caption"]])
        by = sorted(((100 * move[row, column] / n, two) for two, move in found.items() if move[row, column] > 0), reverse=True)
        yield {
            "id": pair_id(image, caption), "image_id": image, "caption_id": caption, "caption": held.captions[at["caption"]],
            "direction": direction, "metric": asked.metric.name,
            "moves": [{"models": list(two), "by": round(points, 6)} for points, two in by],
        }  # fmt: skip


def intervals(contest: Contest) -> dict[str, tuple[float, float]]:
    """For each model the lowest and the highest mean."""
    asked = contest.question
    return {name: bounds(asked.metric, placed, contest.label).mean for name, placed in asked.models.items()}
