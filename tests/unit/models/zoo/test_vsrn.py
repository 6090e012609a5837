"""VSRN: reasoning and caption decoding against loops, and training of both."""

from __future__ import annotations

from functools import partial

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.vsrn import VSRN, CaptionDecoder, RegionReasoning, VSRNConfig
from crossmatch.train.objectives import VSRNOptions
from crossmatch.train.objectives.vsrn import vsrn
from zoo_inputs import FEATURES, WORDS, naming_task, random_regions, random_words, share_of_correct_first_texts, train


def small():
    return VSRN(VSRNConfig(FEATURES, WORDS, dimensions=16, layers=2, word_dimensions=8, decoder=12))


@torch.no_grad()
def test_reasoning_is_the_equation():
    """V* = BN(W_r(R V W_g)) + V with R_ij = φ(v_i)ᵀ ξ(v_j) / N, region by region."""
    layer, vectors = RegionReasoning(4).eval(), torch.randn(1, 3, 4)
    norm = layer.norm
    torch.nn.init.uniform_(norm.weight)
    norm.running_mean.uniform_(-1, 1)
    reasoned = layer(vectors, torch.ones(1, 3, dtype=torch.bool))[0]
    for i in range(3):
        message = torch.zeros(4)
        for j in range(3):
            relation = float(layer.phi(vectors[0, i]) @ layer.xi(vectors[0, j])) / 3
            message += relation * layer.inner(vectors[0, j])
        update = (layer.outer(message) - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
        torch.testing.assert_close(reasoned[i], update + vectors[0, i], atol=1e-5, rtol=0)


def test_layer_starts_as_the_identity():
    vectors, mask = torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    torch.testing.assert_close(RegionReasoning(4)(vectors, mask), vectors)


def test_batch_norm_ignores_padding_in_training():
    vectors, mask = torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    padded = torch.cat([vectors, torch.zeros(2, 5, 4)], dim=1)
    layer = RegionReasoning(4)
    torch.nn.init.ones_(layer.norm.weight)
    padded_result = layer(padded, torch.nn.functional.pad(mask, (0, 5)))[:, :3]
    torch.testing.assert_close(padded_result, layer(vectors, mask), atol=1e-5, rtol=0)


@torch.no_grad()
def test_image_without_regions_has_caption_probabilities():
    net, regions = small().eval(), random_regions(0, 2)
    assert torch.isfinite(net.teller(net.reason(regions), regions.mask, random_words(2, 2).numbers)).all()


@torch.no_grad()
def test_decoder_attends_to_regions_step_by_step():
    decoder = CaptionDecoder(4, 6, words=9, word_dimensions=3, dropout=0.2).eval()
    regions, mask = torch.randn(2, 5, 4), torch.arange(5) < torch.tensor([[3], [5]])
    numbers = torch.tensor([[2, 7, 3, 0], [2, 5, 6, 3]])
    log_probabilities = decoder(regions, mask, numbers)
    for n, count in enumerate((3, 5)):
        outputs, last = decoder.encoder(regions[n : n + 1, :count])
        state = last[0, 0]
        for step in range(3):
            parts = [decoder.attend_region(output) + decoder.attend_state(state) for output in outputs[0]]
            weights = torch.stack([decoder.attend(torch.tanh(part))[0] for part in parts]).softmax(dim=0)
            context = sum(w * output for w, output in zip(weights, outputs[0], strict=True))
            state = decoder.decoder(torch.cat([decoder.word_vectors(numbers[n, step]), context]), state)
            torch.testing.assert_close(log_probabilities[n, step], decoder.out(state).log_softmax(dim=0), atol=1e-5, rtol=0)


def test_network_learns_to_match_and_to_generate():
    """By chance, the match is right in one of twenty cases, and a word costs log 12 = 2.5 nats."""
    batch = naming_task()
    net = train(small(), partial(vsrn, options=VSRNOptions(warm_up=0.5)), batch, 1e-2, 100)
    with torch.no_grad():
        log_probabilities = net.teller(net.reason(batch.regions), batch.regions.mask, batch.words.numbers)
    assert share_of_correct_first_texts(net, batch) > 0.4
    assert -log_probabilities.gather(2, batch.words.numbers[:, 1:, None]).mean() < 1.2
