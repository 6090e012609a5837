"""Simulated judging in several orders until the order of models is certain, for the results pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from crossmatch.build.model_order_bounds import LabelledRankings, ModelOrder, ModelPair
from crossmatch.data.arrays import BoolArray, IntArray
from crossmatch.metrics.bounds.difference_bounds import MAX_EXHAUSTIVE
from crossmatch.metrics.bounds.metric_bounds import UNJUDGED

BATCH = 100  # pairs judged before the next are chosen

Choice = Callable[[ModelOrder], tuple[IntArray, IntArray]]  # rows and columns of the pairs to judge next, in order
Oracle = Callable[[IntArray, IntArray], BoolArray]  # whether items match queries, by position


@dataclass(frozen=True)
class JudgingState:
    """Means, undecided comparisons and bounds after a number of judgements."""

    judged: int
    means: Mapping[str, float]
    undecided: tuple[ModelPair, ...]
    differences: Mapping[ModelPair, tuple[float, float]]  # a decided comparison keeps the bounds it was decided with


def choose_by_bounds(order: ModelOrder) -> tuple[IntArray, IntArray]:
    """Choose the pairs with the largest effect on undecided comparisons, anew after each batch."""
    return order.judging_order()


def choose_by_depth(rankings: LabelledRankings, seed: int = 0) -> Choice:
    """Choose by top-k pooling: first all pairs at rank 1 of some model, then rank 2, and so on; random within a rank."""
    best_rank = np.min([placed.above for placed in rankings.models.values()], axis=0)
    random = np.random.default_rng([seed, 1]).random(best_rank.shape)
    return _choose_in_order(np.lexsort((random.ravel(), best_rank.ravel())), best_rank.shape)


def choose_at_random(rankings: LabelledRankings, seed: int = 0) -> Choice:
    """Choose the pairs of the pool in random order."""
    return _choose_in_order(np.random.default_rng([seed, 2]).permutation(rankings.label.size), rankings.label.shape)


def _choose_in_order(order: IntArray, shape: tuple[int, ...]) -> Choice:
    rows, columns = np.unravel_index(order, shape)

    def choose(current: ModelOrder) -> tuple[IntArray, IntArray]:
        is_open = current.label[rows, columns] == UNJUDGED
        return rows[is_open], columns[is_open]

    return choose


def judge_until_certain(
    rankings: LabelledRankings,
    oracle: Oracle,
    choose: Choice = choose_by_bounds,
    *,
    batch: int = BATCH,
    tolerance: float = 0.0,
    to_the_end: bool = False,
    exhaustive: int = MAX_EXHAUSTIVE,
) -> Iterator[JudgingState]:
    """Judge pairs in batches until the order of all models is certain up to the tolerance.

    Args:
        rankings: Rankings and initial labels.
        oracle: Tells whether items match queries.
        choose: Chooses the next pairs.
        batch: Pairs per batch.
        tolerance: A lead up to this size counts as a tie.
        to_the_end: Continue until no pair is left to choose.
        exhaustive: Number of unjudged pairs up to which differences are bounded by enumeration.

    Yields:
        The state before the first and after each batch.
    """
    order, judged = ModelOrder(rankings, tolerance, exhaustive), 0
    while True:
        yield JudgingState(
            judged, order.means, order.undecided, {pair: order.mean_difference(pair) for pair in order.differences}
        )  # fmt: skip
        rows, columns = choose(order) if order.undecided or to_the_end else (np.zeros(0, np.int64),) * 2
        rows, columns = rows[:batch], columns[:batch]
        if not len(rows):
            return
        order.record_judgements(rows, columns, oracle(rankings.query[rows], rankings.item[rows, columns]))
        judged += len(rows)
