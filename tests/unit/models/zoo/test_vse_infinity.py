"""VSE-infinity: pooling against a loop, its special cases, and size augmentation."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.network_inputs import BEGIN, END, PAD, Words
from crossmatch.models.zoo.vse_infinity import (
    SHARPNESS,
    GeneralisedPooling,
    VSEInfinity,
    VSEInfinityConfig,
    drop_members,
    drop_words,
    position_encodings,
)
from zoo_inputs import FEATURES, WORDS, random_regions, with_more_padding


def small(**sizes):
    return VSEInfinity(VSEInfinityConfig(FEATURES, WORDS, dimensions=16, word_dimensions=8, **sizes))


def pool_by_hand(pool, vectors):
    """One set, dimension by dimension, from the definition."""
    n = len(vectors)
    angles = [[k / 10_000 ** (2 * (i // 2) / 32) for i in range(32)] for k in range(n)]
    encodings = torch.tensor([[[math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(row)] for row in angles]])
    hidden = (pool.decode.onward(encodings)[0] + pool.decode.back(encodings.flip(1))[0].flip(1))[0] / 2
    powers = [math.exp(SHARPNESS * float(hidden[k] @ pool.score.weight[0])) for k in range(n)]
    theta = [power / sum(powers) for power in powers]
    return [sum(w * v for w, v in zip(theta, sorted(column, reverse=True), strict=True)) for column in vectors.T.tolist()]


@torch.no_grad()
def test_pooling_is_the_weighted_sum_of_the_sorted_values():
    pool, sizes, vectors = GeneralisedPooling(32, 8), [4, 1, 7, 4], torch.randn(4, 7, 5)
    mask = torch.arange(7) < torch.tensor(sizes).unsqueeze(1)
    expected = [pool_by_hand(pool, vectors[n, :size]) for n, size in enumerate(sizes)]
    torch.testing.assert_close(pool(vectors, mask), torch.tensor(expected), atol=1e-5, rtol=0)


@torch.no_grad()
def test_order_and_position_of_members_do_not_matter():
    pool, vectors = GeneralisedPooling(32, 8), torch.randn(1, 6, 5)
    mask = torch.tensor([[False, True, True, False, True, False]])
    alone = pool(vectors[:, [4, 2, 1]], torch.ones(1, 3, dtype=torch.bool))
    torch.testing.assert_close(pool(vectors, mask), alone, atol=1e-6, rtol=0)


def test_equal_weights_give_the_mean_and_the_first_weight_alone_the_maximum():
    pool, vectors = GeneralisedPooling(32, 8), torch.randn(2, 5, 3)
    mask = torch.ones(2, 5, dtype=torch.bool)
    torch.nn.init.zeros_(pool.score.weight)
    torch.testing.assert_close(pool(vectors, mask), vectors.mean(dim=1))
    pool.weights = lambda sizes: torch.tensor([[1.0, 0, 0, 0, 0]]).expand(len(sizes), -1)
    torch.testing.assert_close(pool(vectors, mask), vectors.amax(dim=1))


def test_weights_sum_to_one_over_the_members_of_a_set():
    weights = GeneralisedPooling(32, 8).weights(torch.tensor([3, 0, 9, 1]))
    torch.testing.assert_close(weights.sum(dim=1), torch.tensor([1.0, 0.0, 1.0, 1.0]))
    assert (weights[0, 3:] == 0).all()
    assert weights[3, 0] == 1


def test_empty_set_gives_zero_and_a_finite_gradient():
    pool, vectors = GeneralisedPooling(32, 8), torch.randn(2, 3, 4, requires_grad=True)
    pooled = pool(vectors, torch.tensor([[True, True, False], [False, False, False]]))
    assert (pooled[1] == 0).all()
    pooled.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in (vectors, *pool.parameters()))
    assert (pool(vectors, torch.zeros(2, 3, dtype=torch.bool)) == 0).all()


def test_position_encodings_are_sinusoidal():
    assert position_encodings(7, 32).shape == (7, 32)
    assert position_encodings(7, 32)[5, 6].item() == pytest.approx(math.sin(5 / 10_000 ** (6 / 32)), abs=1e-6)


def test_padding_does_not_change_images_in_training():
    net, regions = small(dropped=0.0).train(), random_regions(3, 4)
    torch.testing.assert_close(net.images(regions), net.images(with_more_padding(regions, 0.0)), atol=1e-5, rtol=0)


def test_training_drops_a_fifth_and_evaluation_nothing():
    mask = torch.arange(30) < torch.tensor([30, 10, 1]).repeat(2000).unsqueeze(1)
    remaining = drop_members(mask, mask, 0.2)
    assert (remaining <= mask).all()
    assert remaining.any(dim=1).all()
    assert remaining[mask].float().mean().item() == pytest.approx(0.8, abs=0.02)
    net, regions = small(), random_regions(6)
    assert torch.equal(net.eval().images(regions), net.images(regions))
    net.train()
    assert not torch.equal(net.images(regions), net.images(regions))


def test_beginning_and_end_are_never_dropped_and_gaps_are_closed():
    words = Words(torch.tensor([[BEGIN, 5, 6, 7, END], [BEGIN, 8, END, PAD, PAD]]))
    remaining = torch.tensor([[True, False, True, False, True], [True, True, True, False, False]])
    assert drop_words(words, remaining).numbers.tolist() == [[BEGIN, 6, END], [BEGIN, 8, END]]
    inner = words.mask & (words.numbers != BEGIN) & (words.numbers != END)
    for _ in range(50):
        numbers = drop_words(words, drop_members(words.mask, inner, 0.9)).numbers
        assert (numbers[:, 0] == BEGIN).all()
        assert ((numbers == END).sum(dim=1) == 1).all()
