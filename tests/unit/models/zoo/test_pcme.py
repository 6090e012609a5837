"""PCME: its Gaussians, retrieval by means and by probability, and its uncertainty, against loops."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo import pcme
from crossmatch.models.zoo.pcme import PCME, Gaussian, PCMEConfig, draw_samples, log_match_probability, squared_distances
from zoo_inputs import FEATURES, WORDS, random_regions, random_words


def small(retrieval="means", **sizes):
    return PCME(PCMEConfig(FEATURES, WORDS, retrieval, dimensions=8, word_dimensions=5, log_sigma=-1.0, **sizes)).eval()


def probability_by_loops(image, text, scale, shift):
    """chun2021pcme, eq. 3 and 4, for one image and one text; the sigmoid is that of the released code."""
    total = 0.0
    for z_image in image:
        for z_text in text:
            x = -scale * math.sqrt(math.dist(z_image, z_text) ** 2 + 1e-6) + shift
            total += math.exp(x) / (math.exp(x) + math.exp(-x))
    return total / len(image) / len(text)


@pytest.mark.parametrize("side", ["image", "text"])
def test_deviations_have_their_own_encoders_and_no_bound(side):
    net = small()
    items = random_regions(3, 1, 2) if side == "image" else random_words(3, 6, 2)
    encode = net.images if side == "image" else net.texts
    before = encode(items)
    assert torch.allclose(before.mean.norm(dim=1), torch.ones(3), atol=1e-6)
    with torch.no_grad():
        getattr(net, f"{side}_spread").guide.bias += 30.0
    after = encode(items)
    assert torch.equal(after.mean, before.mean)
    assert torch.allclose(after.log_sigma, before.log_sigma + 30.0, atol=1e-4)


def test_deviations_are_the_sum_of_whole_and_attended_parts():
    net, regions = small(), random_regions(3, 1)
    for n, count in enumerate([3, 1]):
        parts = regions.features[n, :count]
        e = torch.tanh(parts @ net.image_spread.attention.w1.weight.T) @ net.image_spread.attention.w2.weight[0]
        attended = (e.exp() / e.exp().sum()) @ parts
        expected = net.image_wide(parts.mean(dim=0)) + net.image_spread.guide(attended)
        assert torch.allclose(net.images(regions).log_sigma[n], expected, atol=1e-5)


def test_retrieval_by_means_is_the_cosine_of_embeddings():
    net = small("means")
    images, texts = net.images(random_regions(3, 1, 2)), net.texts(random_words(4, 2, 7))
    assert net.embeds
    assert torch.equal(net.vectors(images), images.mean)
    cosine = torch.nn.functional.cosine_similarity(images.mean[:, None], texts.mean[None], dim=2)
    assert torch.allclose(net.similarity(images, texts), cosine, atol=1e-6)


def test_retrieval_by_probability_equals_loops():
    net = small("probability", samples=3)
    with torch.no_grad():
        net.scale.fill_(1.5)
        net.shift.fill_(2.0)
    images, texts = net.images(random_regions(3, 1, 2)), net.texts(random_words(4, 2, 7, 1))
    encoded = zip((images, texts), net.noise, strict=True)
    samples = [(mean[:, None] + log_sigma.exp()[:, None] * noise).tolist() for (mean, log_sigma), noise in encoded]
    expected = [[probability_by_loops(image, text, 1.5, 2.0) for text in samples[1]] for image in samples[0]]
    assert not net.embeds
    assert torch.allclose(net.similarity(images, texts).exp(), torch.tensor(expected), atol=1e-5)
    assert max(map(max, expected)) > 0.1  # not all are 0


def test_probabilities_that_round_to_zero_are_still_ordered():
    z = torch.tensor([[[0.0]], [[50.0]], [[60.0]]])
    logarithms = log_match_probability(z[:1], z[1:], torch.tensor(15.0), torch.tensor(15.0))
    assert logarithms.exp().eq(0).all()
    assert logarithms[0, 0] > logarithms[0, 1] > -torch.inf


def test_scores_do_not_depend_on_the_random_state_and_survive_loading():
    net = small("probability")
    encoded = net.images(random_regions(3, 2)), net.texts(random_words(4, 2))
    first = net.similarity(*encoded)
    state = torch.get_rng_state()
    assert torch.equal(net.similarity(*encoded), first)
    assert torch.equal(torch.get_rng_state(), state)  # scoring draws no random numbers
    loaded = small("probability")
    assert torch.equal(loaded.noise, net.noise)
    assert "noise" in loaded.state_dict()
    loaded.noise.zero_()
    loaded.load_state_dict(net.state_dict())
    assert torch.equal(loaded.similarity(*encoded), first)


def test_blocks_bound_the_memory_and_do_not_change_scores(monkeypatch):
    size = 256  # so that a squared distance is a small difference of two lengths
    log_sigma = torch.full((20, size), -6.0)
    images = Gaussian(torch.nn.functional.normalize(torch.randn(20, size)), log_sigma)
    texts = Gaussian(images.mean + 1e-3 * torch.randn(20, size), log_sigma)
    noise = torch.randn(2, 7, size)
    samples = draw_samples(images, noise[0]), draw_samples(texts, noise[1])
    a, b = torch.tensor(15.0), torch.tensor(0.3)
    block_sizes = []
    match_logits = pcme.match_logits

    def record_size(squares, scale, shift):
        block_sizes.append(squares.numel())
        return match_logits(squares, scale, shift)

    monkeypatch.setattr(pcme, "match_logits", record_size)
    whole = log_match_probability(*samples, a, b)
    for block in (1, 49 * 3, 49 * 35, 49 * 500):
        block_sizes.clear()
        assert torch.allclose(log_match_probability(*samples, a, b, block), whole, atol=1e-5, rtol=0)
        assert max(block_sizes) <= max(block, 49)
        assert sum(block_sizes) == 20 * 20 * 49
    distances = squared_distances(*(x.double().flatten(0, 1) for x in samples)).add(1e-6).sqrt().view(20, 7, 20, 7)
    expected = torch.sigmoid(2 * (b.double() - a.double() * distances)).mean(dim=(1, 3)).log()
    assert torch.allclose(whole.double(), expected, atol=1e-5, rtol=0)


def test_uncertainty_is_the_geometric_mean_of_the_deviations():
    sigma = torch.tensor([[0.5, 2.0, 4.0], [0.1, 0.1, 0.1]])
    uncertainty = small().uncertainty(Gaussian(torch.zeros(2, 3), sigma.log()))
    assert uncertainty.tolist() == pytest.approx([math.prod(row) ** (1 / 3) for row in sigma.tolist()])
