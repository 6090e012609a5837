"""Bounds on the order of models under missing judgements, and the unjudged pairs that could change it.

A metric counts unjudged pairs as irrelevant. `metrics/bounds/metric_bounds.py` bounds its value over all possible labels of these
pairs, and `metrics/bounds/difference_bounds.py` bounds the difference of two models. If zero lies within the bounds of a
difference, the comparison is undecided. The unjudged pairs that could decide it are listed, most influential first, for
`build pool --first`:

    {"id", "image_id", "caption_id", "caption", "direction", "metric",
     "moves": [{"models": [a, b], "by": …}, …]: how far this pair alone can move a - b, in points of the mean over the queries}

The effect of a pair on a - b is the larger of two changes by its label: if no other unjudged pair of its query matches, and if all
do (similar to carterette2006minimal, who weigh documents for the difference of two average precisions).

By default the pool is closed: pairs that no model ranks within `depth` count as irrelevant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from crossmatch.build.step_files import Row, StepOutput, StepSpec, write_step
from crossmatch.build.step_inputs import collection_hash, load_models, model_signature, pair_id, score_all_pairs
from crossmatch.data.arrays import BoolArray, FloatArray, IntArray
from crossmatch.data.collection import SIDES, Collection
from crossmatch.data.errors import CrossmatchError, UsageError
from crossmatch.data.judgements import Judgements
from crossmatch.data.rank_counts import CandidateLists
from crossmatch.data.scores import Run, Scores
from crossmatch.metrics.bounds.difference_bounds import MAX_EXHAUSTIVE, difference_bounds
from crossmatch.metrics.bounds.metric_bounds import (
    NEGATIVE,
    POSITIVE,
    UNJUDGED,
    Labels,
    Placements,
    judgement_effects,
    metric_bounds,
    require_bounded_metric,
)
from crossmatch.metrics.metric_table import Metric, metric
from crossmatch.models.cache import Cache
from crossmatch.ranking.ranks_in_run import count_ranks_in_run
from crossmatch.ranking.sweep import count_ranks
from crossmatch.ranking.top_lists import Folds, iterate_rankings

STEP = "bounds"
DEPTH = 10  # ranks per model whose pairs may match; results report how many of these are unjudged

ModelPair = tuple[str, str]


@dataclass(frozen=True)
class BoundsOptions:
    """Options of the bounds, as recorded in the manifest.

    Attributes:
        metric: The metric that orders the models.
        direction: i2t or t2i.
        depth: Number of ranks per model whose unjudged pairs may match; None: every unjudged pair may match.
        tolerance: A lead up to this size counts as a tie.

    >>> BoundsOptions(metric="hit@1", depth=5)             # only the first five items of a model may be unknown matches
    BoundsOptions(metric='hit@1', direction='t2i', depth=5, tolerance=0.0)
    """

    metric: str = "map@r"
    direction: str = "t2i"
    depth: int | None = DEPTH
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        require_bounded_metric(metric(self.metric))
        if self.direction not in ("i2t", "t2i"):
            raise UsageError(f"--direction must be i2t or t2i (got {self.direction!r}).")
        if (self.depth is not None and self.depth < 1) or not 0 <= self.tolerance < 1:
            raise UsageError(
                f"--depth must be at least 1, and the tolerance from 0 to below 1 (got {self.depth}, {self.tolerance})."
            )


@dataclass(frozen=True, eq=False)
class LabelledRankings:
    """Rankings of several models over the same queries, and the labels of their candidates.

    `item[q, w]` is candidate w of query `query[q]`; rows are padded with -1. `label` has the same shape.
    """

    metric: Metric
    query: IntArray
    item: IntArray
    label: Labels
    models: Mapping[str, Placements]

    @property
    def model_pairs(self) -> tuple[ModelPair, ...]:
        return tuple(combinations(self.models, 2))


def label_rankings(
    data: Collection, judged: Judgements, scores: Mapping[str, Scores], options: BoundsOptions, queries: IntArray | None = None
) -> LabelledRankings:
    """Collect the judged positives and the unjudged candidates of each query, with their ranks by each model.

    Collection and judgements are sorted by id. By default all queries with a positive are used.
    """
    chosen_metric = metric(options.metric)
    if judged.absent_positives:
        raise CrossmatchError(
            "The judgements have positives outside the gallery, for which bounds are not defined. Use judgements of this collection."
        )
    if chosen_metric.graded and not np.isin(judged.grades, (0.0, 1.0)).all():
        raise UsageError(f"{options.metric} uses grades, but bounds need grades 0 and 1. Choose map@r or recall@k.")
    lists = judged.candidate_lists(options.direction)
    query = lists.query if queries is None else np.intersect1d(queries, lists.query)
    grades = {
        int(q): dict(zip(lists.item[a:b].tolist(), lists.grade[a:b].tolist(), strict=True))
        for q, a, b in zip(lists.query, lists.start[:-1], lists.start[1:], strict=True)
    }
    candidates: dict[int, set[int]] = {int(q): {i for i, g in grades[int(q)].items() if g >= judged.positive} for q in query}
    if not judged.complete:
        for q, items in _possible_matches(data, scores, options, query, lists.folds):
            candidates[q].update(i for i in items.tolist() if i not in grades[q])
    rows = [sorted(candidates[int(q)]) for q in query]
    start = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    flat = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
    row_of = np.repeat(np.arange(len(rows)), np.diff(start))
    column = np.arange(len(flat)) - start[row_of]
    item = np.full((len(rows), int(np.diff(start).max())), -1, dtype=np.int64)
    item[row_of, column] = flat
    is_positive = np.array([i in grades[int(query[q])] for q, i in zip(row_of.tolist(), flat.tolist(), strict=True)])
    label = np.full(item.shape, NEGATIVE, dtype=np.int8)
    label[row_of, column] = np.where(is_positive, POSITIVE, UNJUDGED)
    listed = CandidateLists(query, start, flat, np.ones(len(flat)), lists.folds)
    placed = {
        name: _place_candidates(of_model, data, options.direction, listed, (row_of, column)) for name, of_model in scores.items()
    }
    return LabelledRankings(chosen_metric, query, item, label, placed)


def _possible_matches(
    data: Collection, scores: Mapping[str, Scores], options: BoundsOptions, queries: IntArray, folds: Folds | None
) -> Iterator[tuple[int, IntArray]]:
    """Candidates that may match if they are unjudged: what each model retrieves, or the whole gallery.

    A run file must be at least `depth` deep; otherwise candidates that it does not list would count as irrelevant.
    """
    query_ids, item_ids = (data.ids(side) for side in SIDES[options.direction])
    every_item = np.arange(len(item_ids))
    galleries = {q: every_item if folds is None else np.flatnonzero(folds[1] == folds[0][q]) for q in queries.tolist()}
    if options.depth is None:
        yield from galleries.items()
        return
    for name, of_model in scores.items():
        for q, items, _ in iterate_rankings(of_model, data, options.direction, options.depth, queries, folds):
            needed = min(options.depth, len(galleries[q]))
            if len(items) < needed:
                raise CrossmatchError(
                    f"{name} lists {len(items):,} candidates for {str(query_ids[q])!r:.60}; {needed:,} are needed. Write deeper "
                    "rankings, or lower --depth."
                )
            yield q, items


def _place_candidates(
    scores: Scores, data: Collection, direction: str, listed: CandidateLists, at: tuple[IntArray, IntArray]
) -> Placements:
    """Ranks of the listed candidates by one model, in the padded shape."""
    counts = (
        count_ranks_in_run(scores, data, direction, listed)
        if isinstance(scores, Run)
        else count_ranks(scores, {direction: listed})[direction]
    )
    shape = (len(listed.query), int(listed.count.max()))
    above, size = np.broadcast_to(counts.gallery_size[:, None], shape).copy(), np.ones(shape, dtype=np.int64)
    above[at], size[at] = counts.above, counts.tie_size
    return Placements(above, size, counts.gallery_size, counts.depth)


# -- bounds while judgements arrive


@dataclass(eq=False)
class ModelOrder:
    """Metric values and bounds of all model differences under the current labels; recomputed only where labels changed."""

    rankings: LabelledRankings
    tolerance: float = 0.0
    exhaustive: int = MAX_EXHAUSTIVE
    label: Labels = field(init=False)
    values: dict[str, FloatArray] = field(init=False)
    differences: dict[ModelPair, FloatArray] = field(init=False)  # 2 x queries: lowest and highest
    _effects: dict[str, FloatArray] = field(init=False)  # 2 x queries x candidates
    _stale: BoolArray = field(init=False)  # queries whose effects are out of date

    def __post_init__(self) -> None:
        rankings, n = self.rankings, len(self.rankings.query)
        self.label = rankings.label.copy()
        self.values = {name: np.zeros(n) for name in rankings.models}
        self.differences = {pair: np.array([[-np.inf] * n, [np.inf] * n]) for pair in rankings.model_pairs}
        self._effects = {name: np.zeros((2, *rankings.label.shape)) for name in rankings.models}
        self._stale = np.ones(n, dtype=bool)
        self._update(np.arange(n))

    def record_judgements(self, rows: IntArray, columns: IntArray, is_match: BoolArray) -> None:
        """Set the labels of judged pairs."""
        self.label[rows, columns] = np.where(is_match, POSITIVE, NEGATIVE)
        self._update(np.unique(rows))

    def _update(self, rows: IntArray) -> None:
        chosen_metric, label = self.rankings.metric, self.label[rows]
        selected = {name: placed.select(rows) for name, placed in self.rankings.models.items()}
        for name, placed in selected.items():
            self.values[name][rows] = placed.values(chosen_metric, label == POSITIVE)
        for a, b in self.undecided:  # a decided comparison stays decided
            bound = difference_bounds(chosen_metric, selected[a], selected[b], label, self.exhaustive)
            self.differences[a, b][:, rows] = bound.low, bound.high
        self._stale[rows] = True

    def mean_difference(self, pair: ModelPair) -> tuple[float, float]:
        """Bounds of the mean of a - b over all queries."""
        low, high = self.differences[pair].mean(axis=1)
        return float(low), float(high)

    @property
    def undecided(self) -> tuple[ModelPair, ...]:
        """Comparisons in which either model could still lead by more than the tolerance."""
        margin = self.tolerance + 1e-12  # rounding
        return tuple(pair for pair, gap in self.differences.items() if gap[0].mean() < -margin and gap[1].mean() > margin)

    @property
    def means(self) -> dict[str, float]:
        """Mean value of each model, with unjudged pairs as irrelevant."""
        return {name: float(values.mean()) for name, values in self.values.items()}

    def open_pairs(self, *comparisons: ModelPair) -> BoolArray:
        """Mask of the unjudged pairs in queries that leave one of these comparisons open."""
        is_open = np.zeros(len(self.label), dtype=bool)
        for pair in comparisons:
            is_open |= self.differences[pair][1] - self.differences[pair][0] > 1e-12
        return np.asarray((self.label == UNJUDGED) & is_open[:, None], dtype=bool)

    def effects(self, pair: ModelPair) -> FloatArray:
        """How far each unjudged pair alone can move a comparison in its query."""
        rows = np.flatnonzero(self._stale)
        if len(rows):
            for name, placed in self.rankings.models.items():
                self._effects[name][:, rows] = judgement_effects(self.rankings.metric, placed.select(rows), self.label[rows])
            self._stale[:] = False
        a, b = (self._effects[name] for name in pair)
        return np.asarray(np.abs(a - b).max(axis=0), dtype=np.float64)

    def judging_order(self) -> tuple[IntArray, IntArray]:
        """Rows and columns of the open pairs, by descending effect on the undecided comparisons."""
        rows, columns = np.nonzero(self.open_pairs(*self.undecided))
        weight = np.zeros(len(rows))
        for pair in self.undecided:
            weight += self.effects(pair)[rows, columns]
        order = np.argsort(-weight, kind="stable")
        return rows[order], columns[order]


# -- the step


def bound_model_order(
    data: Collection,
    judged: Judgements,
    models: Mapping[str, object] | Sequence[str],
    output: Path,
    *,
    options: BoundsOptions = BoundsOptions(),
    cache: Cache | None = None,
) -> tuple[dict[str, Any], ModelOrder]:
    """Write the unjudged pairs that could change the order of models into a folder.

    Args:
        data: The collection, with images and captions sorted by id.
        judged: Judgements of the same collection, in the same order.
        models: Names of models, or models by name.
        output: Folder of the step.
        options: Metric, direction, depth, tolerance.
        cache: Cache of scores.

    Returns:
        The manifest, and the bounds of all comparisons.

    >>> from crossmatch import Diorama, Judgements
    >>> from crossmatch.build import BoundsOptions, bound_model_order
    >>> data = Diorama.make("test", images=4).collection
    >>> models, options = ["oracle", "random:1", "random:2"], BoundsOptions(metric="hit@1", depth=1)
    >>> manifest, order = bound_model_order(data, Judgements.from_links(data), models, folder / "bounds", options=options)
    >>> manifest["counts"]["unjudged"], order.undecided     # comparisons that unjudged pairs could change
    (28, (('random:1', 'random:2'),))
    """
    models_by_name = load_models(models)
    if not models_by_name:
        raise UsageError("-m: no model is named. Name at least one.")
    data.require_texts()
    scores = {name: score_all_pairs(model, data, cache) for name, model in models_by_name.items()}
    order = ModelOrder(label_rankings(data, judged, scores, options), options.tolerance)
    inputs = {"collection": collection_hash(data), "judgements": judgements_hash(judged)}
    inputs |= {f"model {name}": model_signature(model) for name, model in models_by_name.items()}

    def make_rows(step: StepOutput) -> list[Row]:
        step.count("queries", len(order.label))
        step.count("unjudged", int((order.label == UNJUDGED).sum()))
        step.count("comparisons", len(order.differences))
        step.count("undecided", len(order.undecided))
        return list(undecided_pair_rows(order, data, options.direction))

    return write_step(output, StepSpec(STEP, inputs, asdict(options)), make_rows), order


def judgements_hash(judged: Judgements) -> str:
    """Hash of judgements, which identifies them as input of a step."""
    order = np.lexsort((judged.columns, judged.rows))
    header = f"{judged.kind} {judged.positive} {judged.complete} {judged.only_direction}".encode()
    arrays = (judged.rows[order], judged.columns[order], judged.grades[order], *(judged.folds or ()))
    return hashlib.sha256(header + b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()[:16]


def undecided_pair_rows(order: ModelOrder, data: Collection, direction: str) -> Iterator[Row]:
    """Rows of the pairs that could change the order of models, most influential first."""
    rankings, queries = order.rankings, len(order.label)
    effects = {pair: order.effects(pair) for pair in order.undecided}
    query_side, item_side = SIDES[direction]
    for row, column in zip(*(index.tolist() for index in order.judging_order()), strict=True):
        at = {query_side: int(rankings.query[row]), item_side: int(rankings.item[row, column])}
        image, caption = str(data.image_ids[at["image"]]), str(data.caption_ids[at["caption"]])
        by_points = sorted(
            ((100 * effect[row, column] / queries, pair) for pair, effect in effects.items() if effect[row, column] > 0),
            reverse=True,
        )
        yield {
            "id": pair_id(image, caption), "image_id": image, "caption_id": caption, "caption": data.captions[at["caption"]],
            "direction": direction, "metric": rankings.metric.name,
            "moves": [{"models": list(pair), "by": round(points, 6)} for points, pair in by_points],
        }  # fmt: skip


def metric_intervals(order: ModelOrder) -> dict[str, tuple[float, float]]:
    """Lowest and highest possible mean of each model."""
    rankings = order.rankings
    return {name: metric_bounds(rankings.metric, placed, order.label).mean for name, placed in rankings.models.items()}
