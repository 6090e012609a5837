"""VSRN: reasoning and decoding against loops, and the same vectors with or without filling."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.inputs import BEGIN, END, FIRST_WORD, PAD, Regions, Words  # noqa: E402
from crossmatch.models.zoo.parts import last_of  # noqa: E402
from crossmatch.models.zoo.vsrn import VSRN, Reasoning, Teller, VSRNConfig  # noqa: E402
from crossmatch.train.batch import Batch  # noqa: E402
from crossmatch.train.dual import reproducible  # noqa: E402
from crossmatch.train.objectives.vsrn import vsrn  # noqa: E402


@pytest.fixture(autouse=True)
def _seeded():
    with reproducible(5):
        yield


def small(**other):
    sizes = {"dimensions": 16, "layers": 2, "word_dimensions": 8, "decoder": 12}
    net = VSRN(VSRNConfig(features=6, words=12, **sizes | other))
    for layer in net.reasoning:  # as if trained: not the identity, and statistics that would show
        torch.nn.init.uniform_(layer.norm.weight, 0.5, 1.5)
        layer.norm.running_mean.uniform_(-0.1, 0.1)
        layer.norm.running_var.uniform_(0.01, 0.1)
    return net


def some_regions(sizes, most, features=6):
    real = torch.arange(most) < torch.tensor(sizes).unsqueeze(1)
    return Regions(torch.randn(len(sizes), most, features) * real.unsqueeze(2), real, torch.zeros(len(sizes), most, 4))


def some_words(lengths, words=12):
    out = torch.full((len(lengths), max(lengths) + 2), PAD)
    for row, length in zip(out, lengths, strict=True):
        row[: length + 2] = torch.tensor([BEGIN, *torch.randint(FIRST_WORD, words, (length,)).tolist(), END])
    return Words(out)


def alone(regions, n):
    k = int(regions.real[n].sum())
    return Regions(regions.features[n : n + 1, :k], regions.real[n : n + 1, :k], regions.boxes[n : n + 1, :k])


def test_reasoning_is_the_equation():
    """V* = BN(W_r(R V W_g)) + V with R_ij = φ(v_i)ᵀ ξ(v_j) / N, region by region."""
    layer = Reasoning(4).eval()
    torch.nn.init.uniform_(layer.norm.weight)
    layer.norm.running_mean.uniform_(-1, 1)
    vectors = torch.randn(1, 3, 4)
    with torch.no_grad():
        found = layer(vectors, torch.ones(1, 3, dtype=torch.bool))[0]
        for i in range(3):
            message = torch.zeros(4)
            for j in range(3):
                relation = float(layer.phi(vectors[0, i]) @ layer.xi(vectors[0, j])) / 3
                message += relation * layer.inner(vectors[0, j])
            told, norm = layer.outer(message), layer.norm
            normed = (told - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
            torch.testing.assert_close(found[i], normed + vectors[0, i], atol=1e-5, rtol=0)


def test_a_layer_begins_as_the_identity():
    vectors, real = torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    torch.testing.assert_close(Reasoning(4)(vectors, real), vectors)


def test_batch_norm_in_training_does_not_see_the_filling():
    vectors, real = torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    wide, there = torch.cat([vectors, torch.zeros(2, 5, 4)], dim=1), torch.cat([real, torch.zeros(2, 5, dtype=torch.bool)], dim=1)
    layer = Reasoning(4)
    torch.nn.init.ones_(layer.norm.weight)
    torch.testing.assert_close(layer(wide, there)[:, :3], layer(vectors, real), atol=1e-5, rtol=0)


def test_the_last_output_is_that_of_the_last_real_item():
    gru = torch.nn.GRU(4, 5, batch_first=True)
    vectors, real = torch.randn(2, 6, 4), torch.arange(6) < torch.tensor([[2], [6]])
    outputs, last = last_of(gru, vectors, real)
    torch.testing.assert_close(last[0], gru(vectors[:1, :2])[0][0, -1])
    torch.testing.assert_close(outputs[0, 1], last[0])
    assert (outputs[0, 2:] == 0).all()


def test_the_company_and_the_filling_do_not_matter():
    net, regions, words = small().eval(), some_regions([5, 1, 3], most=9), some_words([2, 7, 4])
    with torch.no_grad():
        images = torch.cat([net.images(alone(regions, n)) for n in range(3)])
        texts = torch.cat([net.texts(words[n : n + 1]) for n in range(3)])
        torch.testing.assert_close(net.images(regions), images, atol=1e-5, rtol=0)
        torch.testing.assert_close(net.texts(words), texts, atol=1e-5, rtol=0)
        torch.testing.assert_close(images.norm(dim=1), torch.ones(3))


def test_an_image_without_regions_has_a_vector_and_can_be_told():
    net, regions = small().eval(), some_regions([0, 2], most=2)
    with torch.no_grad():
        assert torch.isfinite(net.images(regions)).all()
        told = net.teller(net.reasoned(regions), regions.real, some_words([2, 2]).numbers)
    assert torch.isfinite(told).all()


def test_the_decoder_attends_to_real_regions_step_by_step():
    teller = Teller(4, 6, words=9, word_dimensions=3, dropout=0.2).eval()
    regions, real = torch.randn(2, 5, 4), torch.arange(5) < torch.tensor([[3], [5]])
    numbers = torch.tensor([[2, 7, 3, 0], [2, 5, 6, 3]])
    with torch.no_grad():
        found = teller(regions, real, numbers)
        for n, k in enumerate((3, 5)):
            read, last = teller.encoder(regions[n : n + 1, :k])
            state = last[0, 0]
            for step in range(3):
                parts = [teller.attend_region(o) + teller.attend_state(state) for o in read[0]]
                weights = torch.stack([teller.attend(torch.tanh(part))[0] for part in parts]).softmax(dim=0)
                context = sum(w * o for w, o in zip(weights, read[0], strict=True))
                state = teller.decoder(torch.cat([teller.word_vectors(numbers[n, step]), context]), state)
                torch.testing.assert_close(found[n, step], teller.out(state).log_softmax(dim=0), atol=1e-5, rtol=0)


def test_every_weight_learns():
    net, regions, words = small().train(), some_regions([4, 5, 3, 2], most=5), some_words([3, 5, 4, 6])
    vsrn(net, Batch(regions, words, torch.arange(4)), {"negatives": "sum"}).backward()
    silent = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    # what comes before a batch norm may have any bias
    assert silent == [] or all(name.endswith("outer.bias") for name in silent)


def test_it_learns_which_words_name_which_regions():
    """Eight kinds of regions, a word for each, two in an image. Chance is one in twenty, and log 12 for each word."""
    kinds = torch.randn(8, 6)
    sets = torch.combinations(torch.arange(8), 2)[torch.randperm(28)[:20]]
    regions = Regions(kinds[sets] + 0.05 * torch.randn(20, 2, 6), torch.ones(20, 2, dtype=torch.bool), torch.zeros(20, 2, 4))
    ends = torch.tensor([[BEGIN, END]]).expand(20, 2)
    words = Words(torch.cat([ends[:, :1], sets + FIRST_WORD, ends[:, 1:]], dim=1))
    net = VSRN(VSRNConfig(features=6, words=12, dimensions=16, layers=2, word_dimensions=8, decoder=12)).train()
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    for step in range(100):
        optimiser.zero_grad()
        vsrn(net, Batch(regions, words, torch.arange(20)), {"progress": step / 100, "warm_up": 0.5}).backward()
        optimiser.step()
    with torch.no_grad():
        net.eval()
        scores = net.similarity(net.images(regions), net.texts(words))
        told = net.teller(net.reasoned(regions), regions.real, words.numbers).gather(2, words.numbers[:, 1:, None])
    assert (scores.argmax(dim=1) == torch.arange(20)).float().mean() > 0.4
    assert -told.mean() < 1.2
