"""What holds for each captioner: probabilities that add up, one truth in one go and step by step, no word from the filling."""

from __future__ import annotations

from itertools import product

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.captioner_parts import Attention, chosen, lstm  # noqa: E402
from crossmatch.models.zoo.inputs import BEGIN, END, FIRST_WORD, PAD, UNKNOWN, Regions, Words  # noqa: E402


def stepped(net, encoded, words):
    """The log-probability of each word, one step at a time."""
    out, state = torch.zeros(len(words), words.numbers.shape[1] - 1), net.begin(encoded)
    for at in range(words.numbers.shape[1] - 1):
        said, state = net.step(encoded, state, words.numbers[:, at])
        there = words.numbers[:, at + 1] != PAD
        out[there, at] = said[there].gather(1, words.numbers[there, at + 1, None]).squeeze(1)
    return out


@torch.no_grad()
def test_told_in_one_go_is_told_step_by_step(captioner, family):
    net, words = captioner.net(family), captioner.texts(3, 0, 6, 1, 6)
    encoded = net.images(captioner.regions(2, 4, 1, 0, 3))
    found = net.told(encoded, words)
    assert found.shape == (5, 7)
    torch.testing.assert_close(found, stepped(net, encoded, words), atol=1e-5, rtol=0)
    assert (found[~words.real[:, 1:]] == 0).all()
    assert (found[words.real[:, 1:]] < 0).all()


@torch.no_grad()
def test_the_probabilities_of_all_captions_sum_to_one(captioner, family):
    """All captions of up to three words and all beginnings of three; with the unknown word, without BEGIN and PAD."""
    net = captioner.net(family, words=6)
    known = (UNKNOWN, FIRST_WORD, FIRST_WORD + 1)
    whole = [(*said, END) for length in range(3) for said in product(known, repeat=length)]
    rows = [(BEGIN, *said, *[PAD] * (3 - len(said))) for said in (*whole, *product(known, repeat=3))]
    encoded = net.images(captioner.regions(3))
    told = net.told(chosen(encoded, torch.zeros(len(rows), dtype=torch.long)), Words(torch.tensor(rows)))
    likely = told.double().sum(dim=1).exp()
    assert likely.sum() == pytest.approx(1, abs=1e-6)
    assert 0.02 < likely[: len(whole)].sum() < 0.98  # else it would say little
    said, _ = net.step(encoded, net.begin(encoded), torch.tensor([BEGIN]))
    assert said.exp().sum() == pytest.approx(1, abs=1e-6)
    assert said[0].isneginf().nonzero().flatten().tolist() == [PAD, BEGIN]


@torch.no_grad()
def test_what_cannot_be_said_is_never_likely(captioner, family):
    net = captioner.net(family)
    encoded = net.images(captioner.regions(2))
    assert net.told(encoded, Words(torch.tensor([[BEGIN, FIRST_WORD, BEGIN, END]])))[0, 1] == -torch.inf


@torch.no_grad()
def test_neither_company_nor_filling_matters(captioner, family):
    net, words, regions = captioner.net(family), captioner.texts(5, 2, 0), captioner.regions(1, 4, 2)
    together = net.told(net.images(regions), words)
    for n, k in enumerate((1, 4, 2)):
        alone = Regions(regions.features[n : n + 1, :k], regions.real[n : n + 1, :k], regions.boxes[n : n + 1, :k])
        one = net.told(net.images(alone), words[n : n + 1])
        torch.testing.assert_close(one, together[n : n + 1, : one.shape[1]], atol=1e-5, rtol=0)
    other = regions.features.masked_fill(~regions.real.unsqueeze(2), 7.0)
    wide = Regions(torch.cat([other, other], dim=1), torch.cat([regions.real, regions.real & False], dim=1), regions.boxes)
    torch.testing.assert_close(net.told(net.images(wide), words), together, atol=1e-5, rtol=0)
    assert (net.told(net.images(regions[torch.tensor([1, 2, 0])]), words) - together).abs().max() > 1e-2  # it does look


@torch.no_grad()
@pytest.mark.parametrize("most", [0, 3])
def test_an_image_without_regions_has_captions(captioner, family, most):
    net = captioner.net(family)
    told = net.told(net.images(captioner.regions(0, 0, most=most)), captioner.texts(2, 4))
    assert torch.isfinite(told).all()
    assert told.abs().sum() > 0


@torch.no_grad()
def test_no_texts_are_told_as_well(captioner, family):
    net = captioner.net(family)
    encoded = chosen(net.images(captioner.regions(2)), slice(0))
    assert net.told(encoded, Words(torch.empty(0, 4, dtype=torch.long))).shape == (0, 3)


def test_dropout_is_for_training_and_not_for_what_is_seen(captioner, family):
    net, regions, words = captioner.net(family, dropout=0.5), captioner.regions(2, 3), captioner.texts(3, 4)
    with torch.no_grad():
        quiet = net.told(net.images(regions), words)
        torch.testing.assert_close(net.told(net.images(regions), words), quiet, atol=0, rtol=0)
        seen = net.images(regions)
        net.train()
        for one, other in zip(net.images(regions), seen, strict=True):
            assert torch.equal(one, other)
        first, again = (net.told(seen, words) for _ in range(2))
        steps = [net.step(seen, net.begin(seen), torch.tensor([BEGIN, BEGIN]))[0] for _ in range(2)]
    assert not torch.equal(first, again)
    assert not torch.equal(*steps)


def test_every_weight_learns(captioner, family):
    net, words = captioner.net(family).train(), captioner.texts(5, 7, 6, 4)
    net.told(net.images(captioner.regions(4, 5, 3, 2)), words).sum().backward()
    silent = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert silent == []
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())


def test_the_gradient_in_one_go_is_that_of_the_steps(captioner, family):
    net, regions, words = captioner.net(family), captioner.regions(2, 4, 3), captioner.texts(4, 1, 5)
    found = torch.autograd.grad(net.told(net.images(regions), words).sum(), list(net.parameters()))
    slow = torch.autograd.grad(stepped(net, net.images(regions), words).sum(), list(net.parameters()))
    for one, other in zip(found, slow, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_it_learns_to_name_what_it_sees(captioner, family):
    """Eight kinds of regions, a word for each; two in an image, named in the order of the words. log 12 = 2.5 nats at random."""
    kinds = torch.randn(8, 6)
    sets = torch.combinations(torch.arange(8), 2)[torch.randperm(28)[:20]]
    regions = Regions(kinds[sets] + 0.05 * torch.randn(20, 2, 6), torch.ones(20, 2, dtype=torch.bool), torch.zeros(20, 2, 4))
    ends = torch.tensor([[BEGIN, END]]).expand(20, 2)
    words = Words(torch.cat([ends[:, :1], sets + FIRST_WORD, ends[:, 1:]], dim=1))
    net = captioner.net(family, dimensions=16, dropout=0.1).train()
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(80):
        optimiser.zero_grad()
        (-net.told(net.images(regions), words).mean()).backward()
        optimiser.step()
    with torch.no_grad():
        assert -net.eval().told(net.images(regions), words).mean() < 0.5


@torch.no_grad()
def test_attention_is_a_mean_of_the_real_regions(captioner):
    attention, regions, hidden = Attention(6, 4, 5), captioner.regions(3, 1, 0, most=4), torch.randn(3, 4)
    found = attention(attention.seen(regions.features, regions.real), hidden)
    for n, k in enumerate((3, 1, 0)):
        scores = [attention.weight(torch.tanh(attention.region(v) + attention.state(hidden[n]))) for v in regions.features[n, :k]]
        weights = torch.cat([*scores, torch.empty(0)]).softmax(dim=0)
        slow = sum((w * v for w, v in zip(weights, regions.features[n], strict=False)), torch.zeros(6))
        torch.testing.assert_close(found[n], slow, atol=1e-6, rtol=0)


@torch.no_grad()
def test_the_lstm_is_pytorchs():
    theirs, hidden, cell, given = torch.nn.LSTMCell(3, 4), torch.randn(2, 4), torch.randn(2, 4), torch.randn(2, 3)
    order = torch.arange(16).view(4, 4)[[0, 1, 3, 2]].flatten()  # theirs are input, forget, candidate, output
    gates = given @ theirs.weight_ih.T + hidden @ theirs.weight_hh.T + theirs.bias_ih + theirs.bias_hh
    for one, other in zip(lstm(gates[:, order], cell), theirs(given, (hidden, cell)), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
