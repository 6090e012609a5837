"""PCME's Gaussians, its two ways of retrieval, and its uncertainty: against loops, alone and in company, and again."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from crossmatch.core.errors import WrongWords  # noqa: E402
from crossmatch.models.zoo.inputs import PAD, Regions, Words  # noqa: E402
from crossmatch.models.zoo.pcme import PCME, Gaussian, PCMEConfig, log_probability, sampled, squared  # noqa: E402

FEATURES, WORDS, SIZE = 6, 12, 8


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small products gain nothing from a second thread, and on a busy machine each waits for it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def net_of(retrieval="means", seed=0, **sizes):
    torch.manual_seed(seed)
    config = PCMEConfig(FEATURES, WORDS, retrieval, dimensions=SIZE, word_dimensions=5, log_sigma=-1.0, **sizes)
    return PCME(config).eval()


def regions_of(counts, most=None, seed=1, filling=0.0):
    generator = torch.Generator().manual_seed(seed)
    most = most or max(counts)
    real = torch.arange(most) < torch.tensor(counts)[:, None]
    features = torch.stack([torch.randn(50, FEATURES, generator=generator)[:most] for _ in counts])
    return Regions(torch.where(real[..., None], features, torch.tensor(filling)), real, torch.zeros(len(counts), most, 4))


def words_of(lengths, most=None, seed=2):
    generator = torch.Generator().manual_seed(seed)
    most = most or max(lengths)
    rows = torch.stack([torch.randint(1, WORDS, (50,), generator=generator)[:most] for _ in lengths])
    return Words(rows.masked_fill(torch.arange(most) >= torch.tensor(lengths)[:, None], PAD))


def probability_by_loops(image, text, scale, shift):
    """chun2021pcme, eq. 3 and 4, for one image and one text; the sigmoid is that of the released code."""
    total = 0.0
    for z in image:
        for other in text:
            x = -scale * math.sqrt(math.dist(z, other) ** 2 + 1e-6) + shift
            total += math.exp(x) / (math.exp(x) + math.exp(-x))
    return total / len(image) / len(text)


def some_of(encoded, which):
    return Gaussian(*(each[which] for each in encoded))


@pytest.mark.parametrize("side", ["image", "text"])
def test_deviations_come_from_encoders_of_their_own_and_are_not_bounded(side):
    net = net_of()
    given = regions_of([3, 1, 2]) if side == "image" else words_of([3, 6, 2])
    encode = net.images if side == "image" else net.texts
    before = encode(given)
    assert torch.allclose(before.mean.norm(dim=1), torch.ones(3), atol=1e-6)
    spread = getattr(net, f"{side}_spread")
    with torch.no_grad():
        spread.guide.bias += 30.0
    after = encode(given)
    assert torch.equal(after.mean, before.mean)
    assert torch.allclose(after.log_sigma, before.log_sigma + 30.0, atol=1e-4)


def test_deviations_are_the_whole_and_the_attended_parts():
    net, regions = net_of(), regions_of([3, 1])
    for n, count in enumerate([3, 1]):
        parts = regions.features[n, :count]
        e = torch.tanh(parts @ net.image_spread.attention.w1.weight.T) @ net.image_spread.attention.w2.weight[0]
        looked = (e.exp() / e.exp().sum()) @ parts
        slow = net.image_wide(parts.mean(dim=0)) + net.image_spread.guide(looked)
        assert torch.allclose(net.images(regions).log_sigma[n], slow, atol=1e-5)


def test_retrieval_by_means_is_the_cosine_and_makes_an_embedder():
    net = net_of("means")
    seen, said = net.images(regions_of([3, 1, 2])), net.texts(words_of([4, 2, 7]))
    assert net.embeds
    assert torch.equal(net.vectors(seen), seen.mean)
    cosine = torch.nn.functional.cosine_similarity(seen.mean[:, None], said.mean[None], dim=2)
    assert torch.allclose(net.similarity(seen, said), cosine, atol=1e-6)
    assert torch.allclose(net.paired(seen, said), cosine.diagonal(), atol=1e-6)


def test_retrieval_by_probability_is_that_of_the_loops():
    net = net_of("probability", samples=3)
    with torch.no_grad():
        net.scale.fill_(1.5)
        net.shift.fill_(2.0)
    seen, said = net.images(regions_of([3, 1, 2])), net.texts(words_of([4, 2, 7, 1]))
    found = net.similarity(seen, said)
    samples = [(m[:, None] + s.exp()[:, None] * noise).tolist() for (m, s), noise in zip((seen, said), net.noise, strict=True)]
    slow = [[probability_by_loops(image, text, 1.5, 2.0) for text in samples[1]] for image in samples[0]]
    assert not net.embeds
    assert torch.allclose(found.exp(), torch.tensor(slow), atol=1e-5)
    assert max(map(max, slow)) > 0.1  # else all might be 0
    one, other = some_of(seen, torch.tensor([2, 0])), some_of(said, torch.tensor([3, 1]))
    assert torch.allclose(net.paired(one, other), torch.stack([found[2, 3], found[0, 1]]), atol=1e-5)


def test_probabilities_too_small_to_be_told_from_0_are_still_in_order():
    z = torch.tensor([[[0.0]], [[50.0]], [[60.0]]])
    found = log_probability(z[:1], z[1:], torch.tensor(15.0), torch.tensor(15.0))
    assert found.exp().eq(0).all()
    assert found[0, 0] > found[0, 1] > -torch.inf


@pytest.mark.parametrize("retrieval", ["means", "probability"])
def test_neither_padding_nor_company_nor_place_changes_a_score(retrieval):
    net = net_of(retrieval)
    regions, words = regions_of([3, 1, 9, 0], filling=7.0), words_of([4, 2, 11, 3])
    seen, said = net.images(regions), net.texts(words)
    found = net.similarity(seen, said)
    wide = net.images(regions_of([3, 1, 9, 0], 20, filling=-5.0)), net.texts(words_of([4, 2, 11, 3], 30))
    assert torch.allclose(net.similarity(*wide), found, atol=1e-5)
    assert torch.allclose(net.uncertainty(wide[0]), net.uncertainty(seen), atol=1e-5)
    for i in range(4):
        for t in range(4):
            alone = net.images(regions[i : i + 1]), net.texts(words[t : t + 1])
            assert net.similarity(*alone).item() == pytest.approx(found[i, t].item(), abs=1e-5)
    order = torch.tensor([2, 0, 3, 1])
    assert torch.allclose(net.similarity(some_of(seen, order), said), found[order], atol=1e-5)


def test_the_same_score_whatever_was_drawn_before_and_after_loading():
    net = net_of("probability")
    encoded = net.images(regions_of([3, 2])), net.texts(words_of([4, 2]))
    first = net.similarity(*encoded)
    torch.randn(7)
    assert torch.equal(net.similarity(*encoded), first)
    other = net_of("probability", seed=5)
    assert torch.equal(other.noise, net.noise)
    assert "noise" in other.state_dict()
    other.noise.zero_()
    other.load_state_dict(net.state_dict())
    assert torch.equal(other.similarity(*encoded), first)
    torch.manual_seed(9)
    expected = torch.randn(3)
    torch.manual_seed(9)
    net.similarity(*encoded)
    assert torch.equal(torch.randn(3), expected)  # and it draws nothing from it


def test_blocks_change_nothing_and_bound_what_is_held(monkeypatch):
    from crossmatch.models.zoo import pcme

    generator = torch.Generator().manual_seed(3)
    many = 256  # so that a squared distance is a small difference of two lengths
    images = Gaussian(torch.nn.functional.normalize(torch.randn(20, many, generator=generator)), torch.full((20, many), -6.0))
    texts = Gaussian(images.mean + 1e-3 * torch.randn(20, many, generator=generator), torch.full((20, many), -6.0))
    noise = torch.randn(2, 7, many, generator=generator)
    drawn = sampled(images, noise[0]), sampled(texts, noise[1])
    a, b = torch.tensor(15.0), torch.tensor(0.3)
    held = []
    real = pcme.logit

    def watched(squares, scale, shift):
        held.append(squares.numel())
        return real(squares, scale, shift)

    monkeypatch.setattr(pcme, "logit", watched)
    whole = log_probability(*drawn, a, b)
    for block in (1, 49 * 3, 49 * 35, 49 * 500):
        held.clear()
        assert torch.allclose(log_probability(*drawn, a, b, block), whole, atol=1e-5, rtol=0)
        assert max(held) <= max(block, 49)
        assert sum(held) == 20 * 20 * 49
    exact = squared(*(x.double().flatten(0, 1) for x in drawn)).add(1e-6).sqrt().view(20, 7, 20, 7)
    slow = torch.sigmoid(2 * (b.double() - a.double() * exact)).mean(dim=(1, 3)).log()
    assert torch.allclose(whole.double(), slow, atol=1e-5, rtol=0)


def test_uncertainty_is_the_geometric_mean_of_the_deviations():
    sigma = torch.tensor([[0.5, 2.0, 4.0], [0.1, 0.1, 0.1]])
    found = net_of().uncertainty(Gaussian(torch.zeros(2, 3), sigma.log()))
    assert found.tolist() == pytest.approx([math.prod(row) ** (1 / 3) for row in sigma.tolist()])


def test_a_third_way_of_retrieval_is_refused():
    with pytest.raises(WrongWords, match="retrieval is 'mean'; one of means, probability was expected"):
        net_of("mean")
