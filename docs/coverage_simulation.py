"""Simulated retrieval results with a known truth: how often intervals contain it, and how often `compare` tells equal models apart.

A query has positives with scores (skill + image + query + noise), and 1,000 other candidates with standard normal scores. Image and
query are normal effects, so captions of one image have correlated ranks. The number of candidates above a positive is drawn from
its exact distribution. The gallery is drawn anew for each query: results on one gallery are conditional on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from crossmatch.data.arrays import FloatArray, IntArray
from crossmatch.data.rated_pairs import RatedPairs
from crossmatch.metrics.correlation.correlation_with_ratings import (
    bootstrap_spearman,
    compare_correlations,
    correlation,
    sampled_spearman_interval,
)
from crossmatch.metrics.median_rank import median_difference, median_interval
from crossmatch.metrics.metric_table import metric
from crossmatch.metrics.paired_tests import Difference, cluster_t_test
from crossmatch.metrics.proportions import clustered_mean, clustered_total
from crossmatch.ranking.ranks import Ranks

NEGATIVES = 1000
IMAGE_EFFECT, QUERY_EFFECT, NOISE = 0.6, 0.4, 0.7
MOST_POSITIVES = 20
CALIBRATION_IMAGES = 20_000
QUERIES_PER_BLOCK = 20_000
TRUTHS = (0.02, 0.1, 0.5, 0.9, 0.98)
SAMPLES = 50  # of bootstrap-spearman: enough for the mean, whose own noise then adds 2 % to the variance

Rng = np.random.Generator
Positives = Callable[[Rng, int], IntArray]


def _exactly(n: int) -> Positives:
    return lambda rng, queries: np.full(queries, n)


def _many(rng: Rng, queries: int) -> IntArray:
    """Between 1 and 20 positives, 6 on average, as ECCV Caption has."""
    return np.minimum(MOST_POSITIVES, rng.geometric(0.16, queries)).astype(np.int64)


@dataclass(frozen=True)
class Direction:
    """Queries per image and positives per query."""

    queries: int
    positives: Positives


I2T, T2I = Direction(1, _exactly(5)), Direction(5, _exactly(1))
I2T_MANY, T2I_MANY, I2T_ONE = Direction(1, _many), Direction(5, _many), Direction(1, _exactly(1))


def draw_ranks(rng: Rng, skills: tuple[float, ...], image_effects: FloatArray, direction: Direction) -> list[Ranks]:
    """Ranks of models with these skills for the same queries of the images."""
    owner = np.repeat(np.arange(len(image_effects)), direction.queries)
    count = direction.positives(rng, len(owner))
    start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    query = np.repeat(np.arange(len(owner)), count)
    place = np.arange(start[-1]) - start[query]
    difficulty = (IMAGE_EFFECT * image_effects[owner] + QUERY_EFFECT * rng.standard_normal(len(owner)))[query]
    models = []
    for skill in skills:
        scores = skill + difficulty + NOISE * rng.standard_normal(len(query))
        tail = ndtr(-scores)  # the chance of a negative to be above
        tail = tail[np.argsort(query + tail)]  # of each query, best positive first
        above = _draw_negatives_above(rng, tail, query, place, len(owner))
        gallery_size = (NEGATIVES + count).astype(np.int64)
        models.append(Ranks(start, above + place, np.ones_like(place), np.ones(len(place)), gallery_size))
    return models


def _draw_negatives_above(rng: Rng, tail: FloatArray, query: IntArray, place: IntArray, queries: int) -> IntArray:
    """Negatives above each positive, best positive first: those not above the previous one, each with the conditional chance."""
    above, total, previous_tail = np.zeros(len(query), np.int64), np.zeros(queries, np.int64), np.zeros(queries)
    for n in range(int(place.max()) + 1):
        at = np.flatnonzero(place == n)
        member = query[at]
        chance = np.clip((tail[at] - previous_tail[member]) / np.maximum(1 - previous_tail[member], 1e-300), 0, 1)
        total[member] += rng.binomial(NEGATIVES - total[member], chance)
        above[at], previous_tail[member] = total[member], tail[at]
    return above


@dataclass(frozen=True)
class Cell:
    """Percentages of runs in which the interval contains the truth, and in which two equal models differ at p < .05."""

    case: str
    truth: float
    images: int
    runs: int
    coverage: float
    rejections: float


@dataclass(frozen=True)
class Run:
    """The interval of the first model, and the comparison of the second model with it."""

    low: float
    high: float
    difference: Difference


@dataclass(frozen=True)
class Case:
    """A row of the table: a metric in a direction, the truths, and runs of two models with equal skill."""

    name: str
    truths: tuple[float, ...]
    calibrate: Callable[[float], tuple[float, float]]  # wanted truth to skill and truth
    simulate: Callable[[float, int, int, Rng], Iterator[Run]]  # skill, images, runs

    def cell(self, wanted: float, skill: float, truth: float, images: int, runs: int) -> Cell:
        rng = np.random.default_rng([images, round(1000 * wanted)])
        results = list(self.simulate(skill, images, runs, rng))
        covered = np.mean([r.low - 1e-12 <= truth <= r.high + 1e-12 for r in results])
        rejected = np.mean([r.difference.p < 0.05 for r in results])
        return Cell(self.name, wanted, images, runs, 100 * float(covered), 100 * float(rejected))


def _bisect(value: Callable[[float], float], wanted: float, low: float = -6.0, high: float = 9.0) -> float:
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if value(middle) < wanted else (low, middle)
    return middle


def _blocks(images: int, queries: int, runs: int) -> Iterator[int]:
    """Numbers of runs that are drawn together."""
    size = max(1, QUERIES_PER_BLOCK // (images * queries))
    yield from (min(size, runs - start) for start in range(0, runs, size))


# Means over queries


@dataclass(frozen=True)
class MeanCase(Case):
    """A metric that is a mean over queries."""

    draw_values: Callable[[tuple[float, ...], int, Rng], list[FloatArray]]  # skills, images: values of each model


def mean_case(name: str, metric_name: str, direction: Direction, truths: tuple[float, ...] = TRUTHS) -> MeanCase:
    m = metric(metric_name)

    def draw(skills: tuple[float, ...], images: int, rng: Rng) -> list[FloatArray]:
        """Values of each model, scaled to 0 and 1 by the range of the metric."""
        scaled = []
        for ranks in draw_ranks(rng, skills, rng.standard_normal(images), direction):
            low, high = m.value_range(ranks)
            high = float(NEGATIVES + 1) if np.isinf(m.worst) else high
            scaled.append((m.values(ranks) - low) / (high - low))
        return scaled

    def calibrate(wanted: float) -> tuple[float, float]:
        def value(skill: float) -> float:
            return float(draw((skill,), CALIBRATION_IMAGES // 2, np.random.default_rng(1))[0].mean())

        skill = _bisect(value if m.higher_is_better else lambda s: -value(s), wanted if m.higher_is_better else -wanted)
        exact = [draw((skill,), CALIBRATION_IMAGES, np.random.default_rng(seed))[0].mean() for seed in range(2, 6)]
        return skill, float(np.mean(exact))

    def simulate(skill: float, images: int, runs: int, rng: Rng) -> Iterator[Run]:
        clusters = np.repeat(np.arange(images), direction.queries)
        for block in _blocks(images, direction.queries, runs):
            first, second = (x.reshape(block, -1) for x in draw((skill, skill), images * block, rng))
            for values, gaps in zip(first, second - first, strict=True):
                mean, gap = clustered_mean([(values, clusters)]), float(gaps.mean())
                yield Run(mean.low, mean.high, cluster_t_test(gap, (gaps - gap) / len(gaps), clusters, 1.0))

    return MeanCase(name, truths, calibrate, simulate, draw)


# The median rank


def median_case(name: str, direction: Direction, truths: tuple[float, ...]) -> Case:
    def calibrate(wanted: float) -> tuple[float, float]:
        """The skill for which the median is in the middle between this rank and the one before."""

        def value(skill: float) -> float:
            rng = np.random.default_rng(1)
            (ranks,) = draw_ranks(rng, (skill,), rng.standard_normal(CALIBRATION_IMAGES), direction)
            first = ranks.above[ranks.start[:-1]] + 1
            return float((first <= wanted).mean() + (first < wanted).mean()) / 2

        return _bisect(value, 0.5), wanted

    def simulate(skill: float, images: int, runs: int, rng: Rng) -> Iterator[Run]:
        clusters, queries = np.repeat(np.arange(images), direction.queries), images * direction.queries
        for block in _blocks(images, direction.queries, runs):
            models = draw_ranks(rng, (skill, skill), rng.standard_normal(images * block), direction)
            for n in range(block):
                first, second = ([(ranks.select(np.arange(n * queries, (n + 1) * queries)), clusters)] for ranks in models)
                _, low, high = median_interval(first)
                yield Run(low, high, median_difference(first, second, NEGATIVES))

    return Case(name, truths, calibrate, simulate)


# The sum over both directions


def rsum_case(name: str, truths: tuple[float, ...] = TRUTHS) -> Case:
    """RSUM as a share of 600. The captions of the last image of each run are no queries, so the directions differ in clusters."""
    members = tuple(metric(f"hit@{k}") for k in (1, 5, 10))

    def draw(skills: tuple[float, ...], images: int, rng: Rng) -> list[list[FloatArray]]:
        """For each model the hits of both directions, shape (members, images, queries)."""
        effects = rng.standard_normal(images)
        directions = [draw_ranks(rng, skills, effects, direction) for direction in (I2T, T2I)]
        return [
            [np.stack([m.values(ranks[n]) for m in members]).reshape(len(members), images, -1) for ranks in directions]
            for n in range(len(skills))
        ]

    def calibrate(wanted: float) -> tuple[float, float]:
        def value(skill: float, images: int, seed: int) -> float:
            return float(np.mean([hits.mean() for hits in draw((skill,), images, np.random.default_rng(seed))[0]]))

        skill = _bisect(lambda s: value(s, CALIBRATION_IMAGES // 2, 1), wanted)
        return skill, float(np.mean([value(skill, CALIBRATION_IMAGES, seed) for seed in range(2, 6)]))

    def simulate(skill: float, images: int, runs: int, rng: Rng) -> Iterator[Run]:
        clusters = [np.arange(images), np.repeat(np.arange(images - 1), T2I.queries)]
        for block in _blocks(images, 1 + T2I.queries, runs):
            models = draw((skill, skill), images * block, rng)
            for n in range(block):
                at = slice(n * images, (n + 1) * images), slice(n * images, (n + 1) * images - 1)
                first, second = (
                    [(hits[m, at[d]].ravel(), clusters[d]) for d, hits in enumerate(directions) for m in range(len(members))]
                    for directions in models
                )
                mean = clustered_total(first)
                gaps = [b - a for (a, _), (b, _) in zip(first, second, strict=True)]
                value = float(np.mean([gap.mean() for gap in gaps]))
                influence = np.concatenate([(gap - gap.mean()) / (len(gap) * len(gaps)) for gap in gaps])
                yield Run(mean.low, mean.high, cluster_t_test(value, influence, np.concatenate([c for _, c in first]), 1.0))

    return Case(name, truths, calibrate, simulate)


# Correlation with people


def spearman_case(name: str, truths: tuple[float, ...]) -> Case:
    """The mean of bootstrap-spearman over queries with one to five rated pairs."""

    def draw(noise: float, queries: int, rng: Rng, count: IntArray | None = None) -> list[RatedPairs]:
        count = rng.integers(1, 6, queries) if count is None else count
        query = np.repeat(np.arange(queries), count)
        quality = rng.standard_normal(queries)[query] + rng.standard_normal(len(query))
        human = np.round(quality + 0.5 * rng.standard_normal(len(query)), 1)
        shared = rng.standard_normal(queries)[query]
        return [RatedPairs(query, human, quality + noise * (shared + rng.standard_normal(len(query))), SAMPLES) for _ in range(2)]

    def calibrate(wanted: float) -> tuple[float, float]:
        def value(log_noise: float, seed: int) -> float:
            pairs = draw(
                np.exp(log_noise), 2 * CALIBRATION_IMAGES, np.random.default_rng(seed), np.ones(2 * CALIBRATION_IMAGES, int)
            )
            return correlation("spearman", pairs[0].human, pairs[0].model)

        log_noise = _bisect(lambda x: -value(x, 1), -wanted)
        return float(np.exp(log_noise)), float(np.mean([value(log_noise, seed) for seed in range(2, 6)]))

    def simulate(noise: float, images: int, runs: int, rng: Rng) -> Iterator[Run]:
        for _ in range(runs):
            first, second = draw(noise, images, rng)
            mean = float(bootstrap_spearman(first.query, first.human, first.model, SAMPLES).mean())
            interval = sampled_spearman_interval(first, mean)
            yield Run(interval.low, interval.high, compare_correlations("bootstrap-spearman", first, second))

    return Case(name, truths, calibrate, simulate)


MEDIANS = (1.0, 2.0, 5.0, 20.0, 100.0)
CASES = (
    mean_case("hit@1, i2t; accuracy", "hit@1", I2T),
    mean_case("hit@1, t2i", "hit@1", T2I),
    mean_case("mAP@R, i2t", "map@r", I2T_MANY),
    mean_case("mAP@R, t2i", "map@r", T2I_MANY),
    mean_case("R-precision, i2t", "r-precision", I2T_MANY),
    mean_case("nDCG@10, i2t", "ndcg@10", I2T_MANY),
    mean_case("recall@5, i2t", "recall@5", I2T),
    mean_case("precision@10, i2t", "precision@10", I2T_ONE),
    mean_case("MRR, t2i", "mrr", T2I),
    mean_case("mean rank, t2i", "mean-rank", T2I, (0.02, 0.05, 0.1, 0.2, 0.4)),
    median_case("median rank, i2t", I2T, MEDIANS),
    median_case("median rank, t2i", T2I, MEDIANS),
    rsum_case("RSUM"),
    spearman_case("bootstrap-spearman", (0.2, 0.5, 0.8)),
)
