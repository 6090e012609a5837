"""PVSE's losses against loops, and the effect of training."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from crossmatch.data.errors import UsageError
from crossmatch.models.zoo.network_inputs import BEGIN, END, FIRST_WORD, Regions, Words
from crossmatch.models.zoo.pvse import PVSE, PVSEConfig
from crossmatch.train.data.training_set import TrainingBatch
from crossmatch.train.objectives import PVSEOptions
from crossmatch.train.objectives.pvse import diversity, mean_hinge, mmd, pvse
from crossmatch.train.objectives.triplet import hinge

KINDS = 6


def objects(n, seed):
    """Images of one to three objects of six kinds, and captions that name one or two of them; captions may be equal."""
    generator = torch.Generator().manual_seed(seed)
    count = torch.randint(1, 4, (n,), generator=generator)
    kind = torch.stack([torch.randperm(KINDS, generator=generator)[:3] for _ in range(n)])
    real = torch.arange(3) < count[:, None]
    features = torch.nn.functional.one_hot(kind, KINDS).float() + 0.1 * torch.randn(n, 3, KINDS, generator=generator)
    words = kind[:, :2] + FIRST_WORD
    two = count > 1
    rows = torch.stack([torch.full((n,), BEGIN), words[:, 0], torch.where(two, words[:, 1], END), torch.where(two, END, 0)], dim=1)
    return TrainingBatch(Regions(features * real[..., None], real, torch.zeros(n, 3, 4)), Words(rows), torch.arange(n))


def net_of(embeddings):
    torch.manual_seed(0)
    return PVSE(PVSEConfig(KINDS, FIRST_WORD + KINDS, embeddings, dimensions=16, word_dimensions=8))


# -- the terms


def multiple_instance_by_loops(images, texts, image, margin):
    """Mean hinge on the hardest negative, in both directions; the score of two items is that of their closest vectors."""

    def s(i, t):
        return max(sum(a * b for a, b in zip(x, y, strict=True)) for x in images[i] for y in texts[t])

    n, total = len(images), 0.0
    for i in range(n):
        rivals = [j for j in range(n) if image[j] != image[i]]
        total += max((max(0.0, margin - s(i, i) + s(i, j)) for j in rivals), default=0.0)
        total += max((max(0.0, margin - s(i, i) + s(j, i)) for j in rivals), default=0.0)
    return total / n


def diversity_by_loops(guided):
    total = 0.0
    for rows in guided:
        k = len(rows)
        lengths = [math.sqrt(sum(a * a for a in row)) for row in rows]
        square = 0.0
        for p in range(k):
            for q in range(k):
                cosine = sum(a * b for a, b in zip(rows[p], rows[q], strict=True)) / lengths[p] / lengths[q]
                square += (cosine - (p == q)) ** 2
        total += math.sqrt(square) / k**2
    return total / len(guided)


def mmd_by_loops(x, y, gamma, power):
    def mean(first, second):
        ks = [math.exp(-gamma * math.dist(a, b) ** power) for a in first for b in second]
        return sum(ks) / len(ks)

    return mean(x, x) - 2 * mean(x, y) + mean(y, y)


def test_diversity_equals_loops():
    guided = torch.rand(5, 3, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert diversity(guided).item() == pytest.approx(diversity_by_loops(guided.tolist()), abs=1e-12)
    assert diversity(guided * 9).item() == pytest.approx(diversity(guided).item())


def test_diversity_has_a_gradient_for_orthogonal_rows():
    rows = torch.eye(3)[None].requires_grad_()
    diversity(rows).backward()
    assert rows.grad.isfinite().all()


@pytest.mark.parametrize("power", [1, 2])
def test_mmd_equals_loops_and_is_zero_for_equal_sets(power):
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (6, 9))
    assert mmd(x, y, 0.5, power).item() == pytest.approx(mmd_by_loops(x.tolist(), y.tolist(), 0.5, power), abs=1e-12)
    assert mmd(x, x[torch.randperm(6, generator=generator)], 0.5, power).item() == pytest.approx(0.0, abs=1e-12)
    assert mmd(x, x + 1, 0.5, power).item() > 0.05


def test_mmd_has_a_gradient_for_equal_vectors():
    x = torch.ones(3, 4, requires_grad=True)
    mmd(x, torch.ones(3, 4)).backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("embeddings", [2, 3])
def test_loss_is_the_sum_of_its_terms(embeddings):
    net, batch = net_of(embeddings), objects(7, seed=3)
    batch = TrainingBatch(batch.regions, batch.words, torch.tensor([0, 1, 2, 0, 3, 4, 5]))
    images, texts = net.image_senses(batch.regions), net.text_senses(batch.words)
    hinged = multiple_instance_by_loops(images.embedded.tolist(), texts.embedded.tolist(), batch.image.tolist(), 0.1)
    apart = diversity_by_loops(images.guided.tolist()) + diversity_by_loops(texts.guided.tolist())
    away = mmd_by_loops(images.embedded.flatten(0, 1).tolist(), texts.embedded.flatten(0, 1).tolist(), 0.5, 1)
    published = pvse(net, batch, 1.0, PVSEOptions()).item()
    assert published == pytest.approx(hinged + 0.1 * apart + 0.01 * away, abs=1e-5)
    assert pvse(net, batch, 1.0, PVSEOptions(diversity=0.0, mmd=0.0)).item() == pytest.approx(hinged, abs=1e-5)
    assert pvse(net, batch, 1.0, PVSEOptions(diversity=3.0, mmd=0.0)).item() == pytest.approx(hinged + 3 * apart, abs=1e-5)
    assert pvse(net, batch, 1.0, PVSEOptions(diversity=0.0, mmd=5.0)).item() == pytest.approx(hinged + 5 * away, abs=1e-5)


@pytest.mark.parametrize(("negatives", "terms"), [("hardest", 7), ("semi-hard", 7), ("sum", 49)])
def test_one_embedding_per_item_gives_the_plain_hinge(negatives, terms):
    net, batch = net_of(1), objects(7, seed=4)
    scores = net.images(batch.regions) @ net.texts(batch.words).T
    plain = hinge(scores, batch.image, negatives, 0.3) / terms
    assert pvse(net, batch, 1.0, PVSEOptions(negatives=negatives, margin=0.3)).item() == pytest.approx(plain.item(), abs=1e-6)
    assert mean_hinge(scores, batch.image, negatives, 0.3).item() == pytest.approx(plain.item(), abs=1e-6)


def test_warm_up_counts_all_negatives():
    net, batch = net_of(1), objects(7, seed=4)
    options = PVSEOptions(negatives="hardest", warm_up=0.5)
    early, late = (pvse(net, batch, at, options).item() for at in (0.2, 0.6))
    assert early == pytest.approx(pvse(net, batch, 1.0, PVSEOptions(negatives="sum")).item()) != pytest.approx(late)


# -- the network under the loss


def test_every_weight_has_a_gradient():
    net, batch = net_of(2), objects(16, seed=5)
    pvse(net, batch, 1.0, PVSEOptions()).backward()
    for name, weight in net.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


@pytest.mark.parametrize("embeddings", [1, 2])
def test_training_beats_chance(embeddings):
    """Chance is 1 of 30. Not all 30 can be found, because captions may be equal."""
    net, validation = net_of(embeddings), objects(30, seed=100)
    optimiser = torch.optim.Adam(net.parameters(), 5e-3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for step in range(120):
            optimiser.zero_grad()
            pvse(net, objects(32, seed=step), step / 120, PVSEOptions(warm_up=0.2)).backward()
            optimiser.step()
    scores = net.similarity(net.images(validation.regions), net.texts(validation.words))
    accuracies = [(scores.argmax(dim=axis) == torch.arange(30)).float().mean().item() for axis in (0, 1)]
    assert min(accuracies) > 0.3


@pytest.mark.parametrize("name", ["diversity", "mmd", "mmd_power"])
def test_weights_of_absent_terms_are_refused(name):
    with pytest.raises(UsageError, match=rf"{name} = 2, which has no effect with embeddings = 1"):
        pvse(net_of(1), objects(4, 0), 0.0, PVSEOptions(**{name: 2}))
