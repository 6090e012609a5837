"""VSE-infinity: pooling against a loop, the special cases it contains, and the same vectors with or without filling."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.inputs import BEGIN, END, FIRST_WORD, PAD, Regions, Words  # noqa: E402
from crossmatch.models.zoo.vse_infinity import (  # noqa: E402
    SHARPNESS,
    GeneralisedPooling,
    VSEInfinity,
    VSEInfinityConfig,
    position_encodings,
    shortened,
    thinned,
)
from crossmatch.train.batch import Batch  # noqa: E402
from crossmatch.train.dual import reproducible  # noqa: E402
from crossmatch.train.objectives.triplet import triplet  # noqa: E402


@pytest.fixture(autouse=True)
def _seeded():
    with reproducible(3):
        yield


def small(**other):
    return VSEInfinity(VSEInfinityConfig(features=6, words=12, dimensions=16, word_dimensions=8, **other))


def some_regions(sizes, most, features=6):
    real = torch.arange(most) < torch.tensor(sizes).unsqueeze(1)
    return Regions(torch.randn(len(sizes), most, features) * real.unsqueeze(2), real, torch.zeros(len(sizes), most, 4))


def some_words(lengths, words=12):
    out = torch.full((len(lengths), max(lengths) + 2), PAD)
    for row, length in zip(out, lengths, strict=True):
        row[: length + 2] = torch.tensor([BEGIN, *torch.randint(FIRST_WORD, words, (length,)).tolist(), END])
    return Words(out)


def pooled_by_hand(pool, vectors):
    """One set, dimension by dimension, from the definition."""
    n = len(vectors)
    encodings = [
        [
            math.sin(k / 10_000 ** (2 * (i // 2) / 32)) if i % 2 == 0 else math.cos(k / 10_000 ** (2 * (i // 2) / 32))
            for i in range(32)
        ]
        for k in range(n)
    ]
    seen = torch.tensor([encodings])
    hidden = (pool.decode.onward(seen)[0] + pool.decode.back(seen.flip(1))[0].flip(1))[0] / 2
    scores = [SHARPNESS * float(hidden[k] @ pool.score.weight[0]) for k in range(n)]
    total = sum(math.exp(s) for s in scores)
    theta = [math.exp(s) / total for s in scores]
    return [sum(w * v for w, v in zip(theta, sorted(column, reverse=True), strict=True)) for column in vectors.T.tolist()]


def test_pooling_is_the_weighted_sum_of_the_sorted_values():
    pool = GeneralisedPooling(32, 8)
    sizes = [4, 1, 7, 4]
    vectors = torch.randn(4, 7, 5)
    real = torch.arange(7) < torch.tensor(sizes).unsqueeze(1)
    with torch.no_grad():
        found = pool(vectors, real)
        slow = [pooled_by_hand(pool, vectors[n, :size]) for n, size in enumerate(sizes)]
    torch.testing.assert_close(found, torch.tensor(slow), atol=1e-5, rtol=0)


def test_members_may_stand_in_any_order_and_anywhere():
    pool, vectors = GeneralisedPooling(32, 8), torch.randn(1, 6, 5)
    real = torch.tensor([[False, True, True, False, True, False]])
    with torch.no_grad():
        alone = pool(vectors[:, [4, 2, 1]], torch.ones(1, 3, dtype=torch.bool))
        torch.testing.assert_close(pool(vectors, real), alone, atol=1e-6, rtol=0)


def test_equal_weights_are_the_mean_and_the_first_alone_the_maximum():
    pool, vectors = GeneralisedPooling(32, 8), torch.randn(2, 5, 3)
    real = torch.ones(2, 5, dtype=torch.bool)
    torch.nn.init.zeros_(pool.score.weight)
    torch.testing.assert_close(pool(vectors, real), vectors.mean(dim=1))
    pool.weights = lambda sizes: torch.tensor([[1.0, 0, 0, 0, 0]]).expand(len(sizes), -1)
    torch.testing.assert_close(pool(vectors, real), vectors.amax(dim=1))


def test_weights_sum_to_one_over_what_is_there():
    weights = GeneralisedPooling(32, 8).weights(torch.tensor([3, 0, 9, 1]))
    torch.testing.assert_close(weights.sum(dim=1), torch.tensor([1.0, 0.0, 1.0, 1.0]))
    assert (weights[0, 3:] == 0).all()
    assert weights[3, 0] == 1


def test_an_empty_set_gives_zero_and_no_nan_in_the_gradient():
    pool, vectors = GeneralisedPooling(32, 8), torch.randn(2, 3, 4, requires_grad=True)
    found = pool(vectors, torch.tensor([[True, True, False], [False, False, False]]))
    assert (found[1] == 0).all()
    found.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in (vectors, *pool.parameters()))
    assert (pool(vectors, torch.zeros(2, 3, dtype=torch.bool)) == 0).all()


def test_position_encodings_are_waves():
    assert position_encodings(7, 32).shape == (7, 32)
    assert position_encodings(7, 32)[5, 6].item() == pytest.approx(math.sin(5 / 10_000 ** (6 / 32)), abs=1e-6)


def test_the_company_and_the_filling_do_not_matter():
    net = small().eval()
    net.mlp[1].running_mean.uniform_(-1, 1)  # a batch norm that would show if it looked at the batch
    regions, words = some_regions([5, 1, 3], most=9), some_words([2, 7, 4])
    with torch.no_grad():
        images = torch.cat([net.images(some(regions, n)) for n in range(3)])
        texts = torch.cat([net.texts(words[n : n + 1]) for n in range(3)])
        torch.testing.assert_close(net.images(regions), images, atol=1e-5, rtol=0)
        torch.testing.assert_close(net.texts(words), texts, atol=1e-5, rtol=0)
        torch.testing.assert_close(images.norm(dim=1), torch.ones(3))
        assert net.similarity(images, texts).shape == (3, 3)


def some(regions, n):
    """Image n alone, with what is real of it."""
    k = int(regions.real[n].sum())
    return Regions(regions.features[n : n + 1, :k], regions.real[n : n + 1, :k], regions.boxes[n : n + 1, :k])


def test_training_does_not_see_the_filling_either():
    net, regions = small(dropped=0.0).train(), some_regions([3, 4], most=4)
    wider = Regions(*(torch.cat([t, torch.zeros_like(t)], dim=1) for t in (regions.features, regions.real, regions.boxes)))
    torch.testing.assert_close(net.images(regions), net.images(wider), atol=1e-5, rtol=0)


def test_a_fifth_is_left_out_in_training_and_nothing_otherwise():
    real = torch.arange(30) < torch.tensor([30, 10, 1]).repeat(2000).unsqueeze(1)
    left = thinned(real, real, 0.2)
    assert (left <= real).all()
    assert left.any(dim=1).all()
    assert left[real].float().mean().item() == pytest.approx(0.8, abs=0.02)
    net, regions = small(), some_regions([6], most=6)
    assert torch.equal(net.eval().images(regions), net.images(regions))
    net.train()
    assert not torch.equal(net.images(regions), net.images(regions))


def test_beginning_and_end_are_never_left_out_and_gaps_are_closed():
    words = Words(torch.tensor([[BEGIN, 5, 6, 7, END], [BEGIN, 8, END, PAD, PAD]]))
    left = torch.tensor([[True, False, True, False, True], [True, True, True, False, False]])
    assert shortened(words, left).numbers.tolist() == [[BEGIN, 6, END], [BEGIN, 8, END]]
    inner = words.real & (words.numbers != BEGIN) & (words.numbers != END)
    for _ in range(50):
        few = shortened(words, thinned(words.real, inner, 0.9)).numbers
        assert (few[:, 0] == BEGIN).all()
        assert ((few == END).sum(dim=1) == 1).all()


def test_every_weight_learns():
    net, regions, words = small().train(), some_regions([4, 5, 3, 2], most=5), some_words([3, 5, 4, 6])
    triplet(net, Batch(regions, words, torch.arange(4)), {"negatives": "sum"}).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


def test_it_learns_which_words_name_which_regions():
    """Eight kinds of regions, a word for each, two in an image. Chance is one in twenty."""
    kinds = torch.randn(8, 6)
    sets = torch.combinations(torch.arange(8), 2)[torch.randperm(28)[:20]]
    features = kinds[sets] + 0.05 * torch.randn(20, 2, 6)
    regions = Regions(features, torch.ones(20, 2, dtype=torch.bool), torch.zeros(20, 2, 4))
    ends = torch.tensor([[BEGIN, END]]).expand(20, 2)
    words = Words(torch.cat([ends[:, :1], sets + FIRST_WORD, ends[:, 1:]], dim=1))
    net = small(dropped=0.0).train()
    optimiser = torch.optim.AdamW(net.parameters(), 5e-3)
    for step in range(80):
        optimiser.zero_grad()
        triplet(net, Batch(regions, words, torch.arange(20)), {"progress": step / 80, "warm_up": 0.3}).backward()
        optimiser.step()
    with torch.no_grad():
        scores = net.eval().similarity(net.images(regions), net.texts(words))
    assert (scores.argmax(dim=1) == torch.arange(20)).float().mean() > 0.5
