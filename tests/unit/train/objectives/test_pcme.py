"""PCME's losses against loops, that they teach, and that what is said of many is taken to be vague."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from crossmatch.models.zoo.inputs import BEGIN, END, FIRST_WORD, Regions, Words  # noqa: E402
from crossmatch.models.zoo.pcme import PCME, Gaussian, PCMEConfig, sampled  # noqa: E402
from crossmatch.train.batch import Batch  # noqa: E402
from crossmatch.train.objectives import pcme as module  # noqa: E402
from crossmatch.train.objectives.pcme import divergence, pcme, soft_contrastive, uniformity  # noqa: E402

KINDS, COLOURS = 5, 4


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small products gain nothing from a second thread, and on a busy machine each waits for it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def things(n, seed, vague=0.5):
    """Images of one coloured thing and its surroundings; captions name its kind, and its colour unless they are vague."""
    generator = torch.Generator().manual_seed(seed)
    kind, colour = (torch.randint(0, most, (n,), generator=generator) for most in (KINDS, COLOURS))
    one_hot = torch.nn.functional.one_hot
    features = torch.cat([one_hot(kind, KINDS), one_hot(colour, COLOURS)], dim=1).float()
    features = torch.stack([features, 0 * features], dim=1) + 0.05 * torch.randn(n, 2, KINDS + COLOURS, generator=generator)
    full = torch.rand(n, generator=generator) >= vague
    second = torch.where(full, FIRST_WORD + KINDS + colour, END)
    rows = torch.stack([torch.full((n,), BEGIN), FIRST_WORD + kind, second, torch.where(full, END, 0)], dim=1)
    return Batch(Regions(features, torch.ones(n, 2, dtype=torch.bool), torch.zeros(n, 2, 4)), Words(rows), torch.arange(n)), full


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
                for other in text:
                    x = -scale * math.sqrt(math.dist(z, other) ** 2 + 1e-6) + shift
                    p += math.exp(x) / (math.exp(x) + math.exp(-x)) / (len(image) * len(text))
            total -= math.log(p if matched[i][t] else 1 - p)
    return total


def test_the_soft_contrastive_loss_is_that_of_the_loops():
    generator = torch.Generator().manual_seed(1)
    images, texts = (torch.randn(n, j, 4, generator=generator, dtype=torch.float64) for n, j in ((3, 4), (5, 2)))
    matched = torch.rand(3, 5, generator=generator) < 0.4
    a, b = torch.tensor(0.7, dtype=torch.float64), torch.tensor(1.9, dtype=torch.float64)
    slow = soft_contrastive_by_loops(images.tolist(), texts.tolist(), matched.tolist(), 0.7, 1.9)
    assert soft_contrastive(images, texts, matched, a, b).item() == pytest.approx(slow, abs=1e-9)


def test_the_soft_contrastive_loss_is_finite_with_a_gradient_where_no_probability_is():
    far, same = torch.zeros(2, 3, 4), torch.zeros(2, 3, 4)
    far[0] = 300.0
    far.requires_grad_()
    loss = soft_contrastive(far, same, torch.eye(2, dtype=torch.bool), torch.tensor(15.0), torch.tensor(15.0))
    loss.backward()
    assert loss.isfinite()
    assert far.grad.isfinite().all()
    assert far.grad[0].abs().min() > 0.1


def test_the_divergence_is_that_of_the_loops_and_of_torch():
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


def test_uniformity_is_that_of_the_loops_and_lower_for_what_is_spread():
    points = torch.randn(6, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    terms = [math.exp(-2 * math.dist(x, y) ** 2) for n, x in enumerate(points.tolist()) for y in points[:n].tolist()]
    assert uniformity(points).item() == pytest.approx(math.log(sum(terms) / len(terms)), abs=1e-9)
    assert uniformity(3 * points).item() < uniformity(points).item() < uniformity(0 * points).item() == pytest.approx(0.0)


def test_the_loss_is_the_sum_of_its_terms_and_captions_of_one_image_belong_together():
    net, (batch, _) = net_of(scale=0.5, shift=2.0), things(5, seed=4)
    batch = Batch(batch.regions, batch.words, torch.tensor([0, 1, 0, 2, 3]))
    seen, said = net.images(batch.regions), net.texts(batch.words)
    torch.manual_seed(7)
    loss = pcme(net, batch, {"samples": 3, "kl": 0.1, "uniformity": 2.0}).item()
    torch.manual_seed(7)
    drawn = [sampled(items, torch.randn(5, 3, 16)) for items in (seen, said)]
    matched = [[a == b for b in batch.image.tolist()] for a in batch.image.tolist()]
    slow = 2 * soft_contrastive_by_loops(drawn[0].tolist(), drawn[1].tolist(), matched, 0.5, 2.0)
    slow += 0.1 * (divergence(seen) + divergence(said)).item() + 2.0 * uniformity(torch.cat(drawn).flatten(0, 1)).item()
    assert loss == pytest.approx(slow, rel=1e-4)  # single precision, hundreds of terms


def test_published_weights_are_the_default():
    net, (batch, _) = net_of(), things(5, seed=4)
    losses = []
    for options in ({}, {"samples": 7, "kl": 1e-5, "uniformity": 0.0}):
        torch.manual_seed(7)
        losses.append(pcme(net, batch, options).item())
    assert losses[0] == losses[1]
    assert (module.SAMPLES, net.config.samples) == (7, 7)
    assert (net.scale.item(), net.shift.item()) == (15.0, 15.0)


def test_every_weight_has_a_gradient():
    net, (batch, _) = net_of(), things(16, seed=5)
    pcme(net, batch, {"uniformity": 1.0}).backward()
    for name, weight in net.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


@pytest.fixture(scope="module")
def trained():
    """Trained for a few seconds on things of 5 kinds and 4 colours; half of the captions do not say the colour."""
    net = net_of(log_sigma=-2.0, scale=5.0, shift=5.0)
    optimiser = torch.optim.Adam(net.parameters(), 5e-3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for step in range(150):
            optimiser.zero_grad()
            pcme(net, things(32, seed=step)[0], {}).backward()
            optimiser.step()
    return net.eval()


@pytest.mark.parametrize("retrieval", ["means", "probability"])
def test_it_learns_which_caption_is_whose(trained, retrieval):
    """Full captions against one image of each of the 20 kinds and colours: chance is 1 of 20."""
    net = PCME(PCMEConfig(**{**vars(trained.config), "retrieval": retrieval}))
    net.load_state_dict(trained.state_dict())
    batch, _ = things(400, seed=1000, vague=0.0)
    label = batch.words.numbers[:, 1] * 100 + batch.words.numbers[:, 2]
    one_of_each = torch.tensor([label.tolist().index(each) for each in sorted(set(label.tolist()))])
    assert len(one_of_each) == KINDS * COLOURS
    with torch.inference_mode():
        scores = net.similarity(net.images(batch.regions[one_of_each]), net.texts(batch.words[one_of_each]))
    own = torch.arange(len(scores))
    assert min((scores.argmax(dim=way) == own).float().mean().item() for way in (0, 1)) > 0.5


def test_what_could_be_said_of_many_images_is_taken_to_be_vague(trained):
    batch, full = things(400, seed=2000)
    with torch.inference_mode():
        found = trained.uncertainty(trained.texts(batch.words))
    assert found[~full].mean() > found[full].mean()
