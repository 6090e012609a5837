"""Properties of every captioner: probabilities sum to 1, all words at once equal single steps, padding has no effect."""

from __future__ import annotations

from itertools import product

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.caption_decoder_layers import RegionAttention, lstm_step, select_items
from crossmatch.models.zoo.network_inputs import BEGIN, END, FIRST_WORD, PAD, UNKNOWN, Words
from zoo_inputs import image_alone, names_without_gradient, naming_task, train, with_more_padding


def log_probabilities_by_steps(net, encoded, words):
    out, state = torch.zeros(len(words), words.numbers.shape[1] - 1), net.initial_state(encoded)
    for at in range(words.numbers.shape[1] - 1):
        log_probabilities, state = net.step(encoded, state, words.numbers[:, at])
        is_word = words.numbers[:, at + 1] != PAD
        out[is_word, at] = log_probabilities[is_word].gather(1, words.numbers[is_word, at + 1, None]).squeeze(1)
    return out


@torch.no_grad()
def test_all_words_at_once_equal_single_steps(captioner, family):
    net, words = captioner.net(family), captioner.texts(3, 0, 6, 1, 6)
    encoded = net.images(captioner.regions(2, 4, 1, 0, 3))
    log_probabilities = net.word_log_probabilities(encoded, words)
    assert log_probabilities.shape == (5, 7)
    torch.testing.assert_close(log_probabilities, log_probabilities_by_steps(net, encoded, words), atol=1e-5, rtol=0)
    assert (log_probabilities[~words.mask[:, 1:]] == 0).all()
    assert (log_probabilities[words.mask[:, 1:]] < 0).all()


@torch.no_grad()
def test_probabilities_of_all_captions_sum_to_one(captioner, family):
    """All captions of up to two words, and all prefixes of three; with the unknown word, without BEGIN and PAD."""
    net = captioner.net(family, words=6)
    vocabulary = (UNKNOWN, FIRST_WORD, FIRST_WORD + 1)
    captions = [(*words, END) for length in range(3) for words in product(vocabulary, repeat=length)]
    rows = [(BEGIN, *words, *[PAD] * (3 - len(words))) for words in (*captions, *product(vocabulary, repeat=3))]
    encoded = net.images(captioner.regions(3))
    repeated = select_items(encoded, torch.zeros(len(rows), dtype=torch.long))
    probabilities = net.word_log_probabilities(repeated, Words(torch.tensor(rows))).double().sum(dim=1).exp()
    assert probabilities.sum() == pytest.approx(1, abs=1e-6)
    assert 0.02 < probabilities[: len(captions)].sum() < 0.98  # both captions and prefixes count
    first, _ = net.step(encoded, net.initial_state(encoded), torch.tensor([BEGIN]))
    assert first.exp().sum() == pytest.approx(1, abs=1e-6)
    assert first[0].isneginf().nonzero().flatten().tolist() == [PAD, BEGIN]


@torch.no_grad()
def test_begin_inside_a_caption_has_probability_zero(captioner, family):
    net = captioner.net(family)
    encoded = net.images(captioner.regions(2))
    assert net.word_log_probabilities(encoded, Words(torch.tensor([[BEGIN, FIRST_WORD, BEGIN, END]])))[0, 1] == -torch.inf


@torch.no_grad()
def test_probabilities_do_not_depend_on_padding_or_batch(captioner, family):
    net, words, regions = captioner.net(family), captioner.texts(5, 2, 0), captioner.regions(1, 4, 2)
    together = net.word_log_probabilities(net.images(regions), words)
    for n in range(3):
        alone = net.word_log_probabilities(net.images(image_alone(regions, n)), words[n : n + 1])
        torch.testing.assert_close(alone, together[n : n + 1, : alone.shape[1]], atol=1e-5, rtol=0)
    padded = net.images(with_more_padding(regions, 7.0))
    torch.testing.assert_close(net.word_log_probabilities(padded, words), together, atol=1e-5, rtol=0)
    exchanged = net.images(regions[torch.tensor([1, 2, 0])])
    assert (net.word_log_probabilities(exchanged, words) - together).abs().max() > 1e-2  # images have an effect


@torch.no_grad()
@pytest.mark.parametrize("most", [0, 3])
def test_image_without_regions_has_caption_probabilities(captioner, family, most):
    net = captioner.net(family)
    log_probabilities = net.word_log_probabilities(net.images(captioner.regions(0, 0, most=most)), captioner.texts(2, 4))
    assert torch.isfinite(log_probabilities).all()
    assert log_probabilities.abs().sum() > 0


@torch.no_grad()
def test_no_texts_give_no_probabilities(captioner, family):
    net = captioner.net(family)
    encoded = select_items(net.images(captioner.regions(2)), slice(0))
    assert net.word_log_probabilities(encoded, Words(torch.empty(0, 4, dtype=torch.long))).shape == (0, 3)


def test_dropout_applies_in_training_and_not_to_encoded_images(captioner, family):
    net, regions, words = captioner.net(family, dropout=0.5), captioner.regions(2, 3), captioner.texts(3, 4)
    with torch.no_grad():
        encoded = net.images(regions)
        assert torch.equal(*(net.word_log_probabilities(encoded, words) for _ in range(2)))
        net.train()
        for in_training, in_evaluation in zip(net.images(regions), encoded, strict=True):
            assert torch.equal(in_training, in_evaluation)
        assert not torch.equal(*(net.word_log_probabilities(encoded, words) for _ in range(2)))
        steps = [net.step(encoded, net.initial_state(encoded), torch.tensor([BEGIN, BEGIN]))[0] for _ in range(2)]
    assert not torch.equal(*steps)


def test_every_weight_has_a_gradient(captioner, family):
    net, words = captioner.net(family).train(), captioner.texts(5, 7, 6, 4)
    net.word_log_probabilities(net.images(captioner.regions(4, 5, 3, 2)), words).sum().backward()
    assert names_without_gradient(net) == []
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())


def test_gradient_of_all_words_at_once_is_that_of_single_steps(captioner, family):
    net, regions, words = captioner.net(family), captioner.regions(2, 4, 3), captioner.texts(4, 1, 5)
    gradients = torch.autograd.grad(net.word_log_probabilities(net.images(regions), words).sum(), list(net.parameters()))
    by_steps = torch.autograd.grad(log_probabilities_by_steps(net, net.images(regions), words).sum(), list(net.parameters()))
    for gradient, expected in zip(gradients, by_steps, strict=True):
        torch.testing.assert_close(gradient, expected, atol=1e-4, rtol=1e-4)


def cross_entropy(net, batch, progress):
    return -net.word_log_probabilities(net.images(batch.regions), batch.words).mean()


def test_captioner_learns_to_name_regions(captioner, family):
    """An untrained captioner needs log 12 = 2.5 nats for a word."""
    batch = naming_task()
    net = train(captioner.net(family, dimensions=16, dropout=0.1), cross_entropy, batch, 1e-2, 80)
    with torch.no_grad():
        assert cross_entropy(net, batch, 1.0) < 0.5


@torch.no_grad()
def test_attention_is_a_weighted_mean_without_padding(captioner):
    attention, regions, hidden = RegionAttention(6, 4, 5), captioner.regions(3, 1, 0, most=4), torch.randn(3, 4)
    attended = attention(attention.add_keys(regions.features, regions.mask), hidden)
    for n, k in enumerate((3, 1, 0)):
        scores = [attention.weight(torch.tanh(attention.region(v) + attention.state(hidden[n]))) for v in regions.features[n, :k]]
        weights = torch.cat([*scores, torch.empty(0)]).softmax(dim=0)
        expected = sum((w * v for w, v in zip(weights, regions.features[n], strict=False)), torch.zeros(6))
        torch.testing.assert_close(attended[n], expected, atol=1e-6, rtol=0)


@torch.no_grad()
def test_lstm_step_equals_pytorch():
    theirs, hidden, cell, inputs = torch.nn.LSTMCell(3, 4), torch.randn(2, 4), torch.randn(2, 4), torch.randn(2, 3)
    order = torch.arange(16).view(4, 4)[[0, 1, 3, 2]].flatten()  # order of PyTorch: input, forget, candidate, output
    gates = inputs @ theirs.weight_ih.T + hidden @ theirs.weight_hh.T + theirs.bias_ih + theirs.bias_hh
    for values, expected in zip(lstm_step(gates[:, order], cell), theirs(inputs, (hidden, cell)), strict=True):
        torch.testing.assert_close(values, expected, atol=1e-6, rtol=0)
