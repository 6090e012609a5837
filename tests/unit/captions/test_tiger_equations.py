"""TIGEr against equations 1 to 14 of its paper, written out one number at a time in plain Python."""

from __future__ import annotations

import math
from itertools import pairwise, permutations
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crossmatch.captions.tiger.score import mean_by_image, rrs, wds
from grounding_equations import Vector, dot, ground_by_loops


def mean_of(references: list[Vector]) -> Vector:
    """Equation 7."""
    return [math.fsum(r[i] for r in references) / len(references) for i in range(len(references[0]))]


def gain(relevance: Vector, order: list[int]) -> float:
    """Equations 8 and 9."""
    return math.fsum(relevance[region] / math.log2(place + 1) for place, region in enumerate(order, start=1))


def region_rank_similarity(candidate: Vector, reference: Vector, released: bool = False) -> float:
    """Equation 10 for scores without ties and a positive ideal gain; between 0 and 1, as below equation 14."""
    relevance = list(reference)
    if released:
        relevance = [(x - min(reference)) / (max(reference) - min(reference)) for x in reference]
    regions = list(range(len(candidate)))
    order = sorted(regions, key=lambda i: -candidate[i])
    ideal = sorted(regions, key=lambda i: -relevance[i])
    return max(0.0, gain(relevance, order) / gain(relevance, ideal))


def weight_distribution_similarity(candidate: Vector, reference: Vector, tau: float) -> float:
    """Equations 11 to 13."""

    def softmax(s: Vector) -> Vector:
        return [math.exp(x) / sum(math.exp(y) for y in s) for x in s]

    p, q = softmax(reference), softmax(candidate)
    divergence = math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    relevance = math.log(math.sqrt(dot(reference, reference)) / math.sqrt(dot(candidate, candidate)))
    d = divergence + relevance
    return 1 - math.exp(tau * d) / (math.exp(tau * d) + 1)


def padded(rows: list[Vector]) -> np.ndarray:
    out = np.full((len(rows), max(map(len, rows))), np.nan)
    for at, row in enumerate(rows):
        out[at, : len(row)] = row
    return out


@pytest.fixture(scope="module", params=[0, 1, 2])
def images(request):
    """Images with 1 to 7 regions and 2 to 5 captions of 1 to 6 words each, all in random directions and of random lengths."""
    rng = np.random.default_rng(request.param)
    out = []
    for n in range(12):
        near = rng.standard_normal(5) * (n % 3)  # every third image has vectors all around, with negative cosines
        v = (rng.standard_normal((rng.integers(1, 8), 5)) + near) * rng.lognormal(0, 1)
        captions = [(rng.standard_normal((rng.integers(1, 7), 5)) + near) * rng.lognormal(0, 1) for _ in range(rng.integers(2, 6))]
        out.append((v, captions))
    return out


@pytest.mark.parametrize("tau", [0.5, 1.5])
@pytest.mark.parametrize("released", [False, True])
def test_tiger_equals_equations_1_to_14(images, tau, released):
    groundings = [[ground_by_loops(v.tolist(), w.tolist(), 4.0) for w in captions] for v, captions in images]
    owner = np.repeat(np.arange(len(images)), [len(captions) for captions in groundings])
    scores = padded([scores for captions in groundings for scores in captions])
    is_own = np.concatenate([[True], owner[1:] != owner[:-1]])
    candidate, reference = scores[is_own], mean_by_image(scores[~is_own], owner[~is_own])
    ranks, weights = rrs(candidate, reference, "released" if released else "paper"), wds(candidate, reference, tau)
    for n, (candidate_scores, *reference_scores) in enumerate(groundings):
        mean = mean_of(reference_scores)
        np.testing.assert_allclose(reference[n, : len(mean)], mean, rtol=0, atol=1e-11)
        assert weights[n] == pytest.approx(weight_distribution_similarity(candidate_scores, mean, tau), abs=1e-9)
        ideal = gain(sorted(mean, reverse=True), list(range(len(mean))))
        if len(mean) == 1:  # of which the equations say 0/0 for the released variant
            assert ranks[n] == 1
        elif released or ideal > 0:
            assert ranks[n] == pytest.approx(region_rank_similarity(candidate_scores, mean, released), abs=1e-9)
        else:
            assert ranks[n] in (0, 1)


few = st.integers(-2, 3).map(float)
tied = st.integers(1, 5).flatmap(lambda k: st.tuples(st.lists(few, min_size=k, max_size=k), st.lists(few, min_size=k, max_size=k)))


@given(tied, st.booleans())
def test_ties_give_the_mean_over_all_orders(pair, released):
    candidate, reference = pair
    value = rrs(np.array([candidate]), np.array([reference]), "released" if released else "paper")[0]
    relevance = reference
    if released:
        span = max(reference) - min(reference)
        relevance = [(x - min(reference)) / span if span else 0.0 for x in reference]
    regions = range(len(candidate))
    ways = [order for order in permutations(regions) if all(candidate[a] >= candidate[b] for a, b in pairwise(order))]
    mean = math.fsum(gain(relevance, list(order)) for order in ways) / len(ways)
    ideal = gain(sorted(relevance, reverse=True), list(regions))
    if ideal > 1e-9:
        assert value == pytest.approx(max(0.0, mean / ideal), abs=1e-12)
    else:
        assert value == (1.0 if mean == pytest.approx(ideal, abs=1e-12) else 0.0)


ROUNDING = 1e-12  # of sums of a few ulp over the smallest ideal gain of `tied`, 0.008, which the example has
SMALL_IDEAL = ([0.0] * 4, [2.0, -1.0, -2.0, -1.0])


@given(tied, st.randoms(use_true_random=False))
@example(SMALL_IDEAL, Random(1))
def test_order_of_regions_does_not_matter(pair, random):
    candidate, reference = (np.array([side]) for side in pair)
    order = list(range(candidate.shape[1]))
    random.shuffle(order)
    for measure in (rrs, wds):
        assert measure(candidate[:, order], reference[:, order]) == pytest.approx(measure(candidate, reference), abs=ROUNDING)


@given(st.lists(tied, min_size=1, max_size=4))
@example([SMALL_IDEAL, ([0.0], [1.0])])
def test_rows_and_padding_are_independent(pairs):
    candidate, reference = padded([c for c, _ in pairs]), padded([r for _, r in pairs])
    for measure in (rrs, wds):
        alone = [measure(np.array([c]), np.array([r]))[0] for c, r in pairs]
        np.testing.assert_allclose(measure(candidate, reference), alone, rtol=0, atol=ROUNDING)
