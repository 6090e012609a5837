"""PCME's losses against loops, and the effect of training: retrieval, and uncertainty of vague captions."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from crossmatch.models.zoo.network_inputs import BEGIN, END, FIRST_WORD, Regions, Words
from crossmatch.models.zoo.pcme import PCME, Gaussian, PCMEConfig, draw_samples
from crossmatch.train.data.training_set import TrainingBatch
from crossmatch.train.objectives import PCMEOptions
from crossmatch.train.objectives.pcme import divergence, pcme, soft_contrastive, uniformity

KINDS, COLOURS = 5, 4


def coloured_objects(n, seed, vague=0.5):
    """Images of a coloured object and background; captions name its kind and, unless they are vague, its colour."""
    generator = torch.Generator().manual_seed(seed)
    kind, colour = (torch.randint(0, most, (n,), generator=generator) for most in (KINDS, COLOURS))
    one_hot = torch.nn.functional.one_hot
    features = torch.cat([one_hot(kind, KINDS), one_hot(colour, COLOURS)], dim=1).float()
    features = torch.stack([features, 0 * features], dim=1) + 0.05 * torch.randn(n, 2, KINDS + COLOURS, generator=generator)
    full = torch.rand(n, generator=generator) >= vague
    second = torch.where(full, FIRST_WORD + KINDS + colour, END)
    rows = torch.stack([torch.full((n,), BEGIN), FIRST_WORD + kind, second, torch.where(full, END, 0)], dim=1)
    return TrainingBatch(
        Regions(features, torch.ones(n, 2, dtype=torch.bool), torch.zeros(n, 2, 4)), Words(rows), torch.arange(n)
    ), full


def net_of(**sizes):
    torch.manual_seed(0)
    return PCME(PCMEConfig(KINDS + COLOURS, FIRST_WORD + KINDS + COLOURS, dimensions=16, word_dimensions=8, **sizes))


def soft_contrastive_by_loops(images, texts, matched, scale, shift):
    """chun2021pcme, eq. 2 to 4, one pair of samples at a time; the sigmoid is that of the released code."""
    total = 0.0
    for i, image in enumerate(images):
        for t, text in enumerate(texts):
            p = 0.0
            for z in image:
                for w in text:
                    x = -scale * math.sqrt(math.dist(z, w) ** 2 + 1e-6) + shift
                    p += math.exp(x) / (math.exp(x) + math.exp(-x)) / (len(image) * len(text))
            total -= math.log(p if matched[i][t] else 1 - p)
    return total


def test_soft_contrastive_loss_equals_loops():
    generator = torch.Generator().manual_seed(1)
    images, texts = (torch.randn(n, j, 4, generator=generator, dtype=torch.float64) for n, j in ((3, 4), (5, 2)))
    matched = torch.rand(3, 5, generator=generator) < 0.4
    a, b = torch.tensor(0.7, dtype=torch.float64), torch.tensor(1.9, dtype=torch.float64)
    slow = soft_contrastive_by_loops(images.tolist(), texts.tolist(), matched.tolist(), 0.7, 1.9)
    assert soft_contrastive(images, texts, matched, a, b).item() == pytest.approx(slow, abs=1e-9)


def test_soft_contrastive_loss_is_finite_for_distant_samples():
    far, same = torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)
    far[0] = 300.0
    far.requires_grad_()
    loss = soft_contrastive(far, same, torch.eye(2, dtype=torch.bool), torch.tensor(15.0), torch.tensor(15.0))
    loss.backward()
    assert loss.isfinite()
    assert far.grad.isfinite().all()
    assert far.grad[0].abs().min() > 0.1


def test_divergence_equals_loops_and_torch():
    generator = torch.Generator().manual_seed(2)
    items = Gaussian(*torch.randn(2, 3, 5, generator=generator, dtype=torch.float64))
    slow = sum(
        (m * m + math.exp(s) ** 2 - 1 - math.log(math.exp(s) ** 2)) / 2
        for means, sigmas in zip(items.mean.tolist(), items.log_sigma.tolist(), strict=True)
        for m, s in zip(means, sigmas, strict=True)
    )
    normal = torch.distributions.Normal
    peer = torch.distributions.kl_divergence(normal(items.mean, items.log_sigma.exp()), normal(0.0, 1.0)).sum()
    assert divergence(items).item() == pytest.approx(slow, abs=1e-9) == pytest.approx(peer.item(), abs=1e-9)


def test_uniformity_equals_loops():
    points = torch.randn(6, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    terms = [math.exp(-2 * math.dist(x, y) ** 2) for n, x in enumerate(points.tolist()) for y in points[:n].tolist()]
    assert uniformity(points).item() == pytest.approx(math.log(sum(terms) / len(terms)), abs=1e-9)
    assert uniformity(3 * points).item() < uniformity(points).item() < uniformity(0 * points).item() == pytest.approx(0.0)


def test_loss_is_the_sum_of_its_terms():
    net, (batch, _) = net_of(scale=0.5, shift=2.0), coloured_objects(5, seed=4)
    batch = TrainingBatch(batch.regions, batch.words, torch.tensor([0, 1, 0, 2, 3]))
    images, texts = net.images(batch.regions), net.texts(batch.words)
    torch.manual_seed(7)
    loss = pcme(net, batch, 1.0, PCMEOptions(samples=3, kl=0.1, uniformity=2.0)).item()
    torch.manual_seed(7)
    drawn = [draw_samples(items, torch.randn(5, 3, 16)) for items in (images, texts)]
    matched = [[a == b for b in batch.image.tolist()] for a in batch.image.tolist()]
    slow = 2 * soft_contrastive_by_loops(drawn[0].tolist(), drawn[1].tolist(), matched, 0.5, 2.0)
    slow += 0.1 * (divergence(images) + divergence(texts)).item() + 2.0 * uniformity(torch.cat(drawn).flatten(0, 1)).item()
    assert loss == pytest.approx(slow, rel=1e-4)  # single precision, hundreds of terms


def test_defaults_are_the_published_weights():
    net, (batch, _) = net_of(), coloured_objects(5, seed=4)
    losses = []
    for options in (PCMEOptions(), PCMEOptions(samples=7, kl=1e-5, uniformity=0.0)):
        torch.manual_seed(7)
        losses.append(pcme(net, batch, 1.0, options).item())
    assert losses[0] == losses[1]
    assert net.config.samples == PCMEOptions().samples
    assert (net.scale.item(), net.shift.item()) == (15.0, 15.0)


def test_every_weight_has_a_gradient():
    net, (batch, _) = net_of(), coloured_objects(16, seed=5)
    pcme(net, batch, 1.0, PCMEOptions(uniformity=1.0)).backward()
    for name, weight in net.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


@pytest.fixture(scope="module")
def trained():
    """Trained on objects of 5 kinds and 4 colours; half of the captions do not name the colour."""
    net = net_of(log_sigma=-2.0, scale=5.0, shift=5.0)
    optimiser = torch.optim.Adam(net.parameters(), 5e-3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for step in range(150):
            optimiser.zero_grad()
            pcme(net, coloured_objects(32, seed=step)[0], 1.0, PCMEOptions()).backward()
            optimiser.step()
    return net.eval()


@pytest.mark.parametrize("retrieval", ["means", "probability"])
def test_training_beats_chance(trained, retrieval):
    """Full captions against one image of each of the 20 kinds and colours: chance is 1 of 20."""
    net = PCME(PCMEConfig(**{**vars(trained.config), "retrieval": retrieval}))
    net.load_state_dict(trained.state_dict())
    batch, _ = coloured_objects(400, seed=1000, vague=0.0)
    label = batch.words.numbers[:, 1] * 100 + batch.words.numbers[:, 2]
    one_of_each = torch.tensor([label.tolist().index(value) for value in sorted(set(label.tolist()))])
    assert len(one_of_each) == KINDS * COLOURS
    with torch.inference_mode():
        scores = net.similarity(net.images(batch.regions[one_of_each]), net.texts(batch.words[one_of_each]))
    own = torch.arange(len(scores))
    assert min((scores.argmax(dim=axis) == own).float().mean().item() for axis in (0, 1)) > 0.5


def test_vague_captions_are_uncertain(trained):
    batch, full = coloured_objects(400, seed=2000)
    with torch.inference_mode():
        uncertainty = trained.uncertainty(trained.texts(batch.words))
    assert uncertainty[~full].mean() > uncertainty[full].mean()
