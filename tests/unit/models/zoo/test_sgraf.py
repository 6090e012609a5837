"""SGR and SAF against loops over the equations, their gradients, and the statistics of the filtration."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.network_inputs import Regions
from crossmatch.models.zoo.sgraf import EPSILON, SGRAF, PartsAndWhole, SGRAFConfig
from zoo_inputs import FEATURES, WORDS, random_regions, random_words

MODULES = ["sgr", "saf"]
SIZES = {"dimensions": 12, "word_dimensions": 5, "similarity_dimensions": 16}


def small(module, **sizes):
    """A network whose biases and batch norms differ from their initial values, so that each has an effect."""
    torch.manual_seed(0)
    net = SGRAF(SGRAFConfig(FEATURES, WORDS, module, **{**SIZES, **sizes})).eval()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "bias" in name or "norm" in name or "shift" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
        for buffer in net.buffers():
            if buffer.is_floating_point():
                buffer.copy_(torch.rand_like(buffer) + 0.5)
    return net


def encode(net):
    """Three images and four texts, of which one has no words."""
    return net.images(random_regions(4, 1, 3)), net.texts(random_words(2, 0, 9, 1))


# -- against loops


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def normed(x):
    return [a / math.sqrt(dot(x, x)) for a in x]


def linear(layer, x):
    bias = layer.bias.tolist() if layer.bias is not None else [0.0] * layer.out_features
    return [dot(row, x) + b for row, b in zip(layer.weight.tolist(), bias, strict=True)]


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def mixed(shares, vectors):
    return [dot(shares, column) for column in zip(*vectors, strict=True)]


def softmax(x):
    powers = [math.exp(a) for a in x]
    return [p / sum(powers) for p in powers]


def similarity_vectors(net, regions, image, words, text):
    """diao2021sgraf, eq. 1, for the whole and for each word."""
    near = [[max(dot(w, v), 0.0) for v in regions] for w in words]
    length = [max(math.sqrt(sum(row[i] ** 2 for row in near)), 1e-6) for i in range(len(regions))]
    nodes = [normed(linear(net.compare.whole, [(a - b) ** 2 for a, b in zip(image, text, strict=True)]))]
    for word, row in zip(words, near, strict=True):
        attended = normed(mixed(softmax([net.config.temperature * x / n for x, n in zip(row, length, strict=True)]), regions))
        nodes.append(normed(linear(net.compare.local, [(a - b) ** 2 for a, b in zip(attended, word, strict=True)])))
    return nodes


def score(net, nodes):
    if net.config.module == "sgr":
        for step in net.compare.reasoning:
            edges = [softmax([dot(linear(step.into, p), linear(step.out, q)) for q in nodes]) for p in nodes]
            nodes = [[max(0.0, x) for x in linear(step.onward, mixed(row, nodes))] for row in edges]
        vector = nodes[0]
    else:
        filtration = net.compare.filtration
        mean, variance = filtration.moments.tolist()
        logits = [(linear(filtration.weight, p)[0] - mean) / math.sqrt(variance + EPSILON) for p in nodes]
        gates = [sigmoid(x * filtration.scale.item() + filtration.shift.item()) for x in logits]
        vector = normed(mixed([x / sum(gates) for x in gates], nodes))
    return sigmoid(linear(net.compare.score, vector)[0])


def pool_whole(module, vectors):
    """The vector of a whole image or text."""

    def normalised(x, norm):
        if norm is None:
            return x
        moments = zip(norm.running_mean.tolist(), norm.running_var.tolist(), norm.weight.tolist(), norm.bias.tolist(), strict=True)
        return [(a - mean) / math.sqrt(var + norm.eps) * w + b for a, (mean, var, w, b) in zip(x, moments, strict=True)]

    mean = [sum(column) / len(vectors) for column in zip(*vectors, strict=True)]
    query = [math.tanh(x) for x in normalised(linear(module.all, mean), module.all_norm)]
    keys = [[math.tanh(x) for x in normalised(linear(module.one, v), module.one_norm)] for v in vectors]
    shares = softmax([linear(module.weight, [a * b for a, b in zip(key, query, strict=True)])[0] for key in keys])
    return normed(mixed(shares, vectors))


@torch.no_grad()
@pytest.mark.parametrize("module", MODULES)
def test_similarities_equal_loops_over_the_equations(module):
    net = small(module)
    images, texts = encode(net)
    similarity = net.similarity(images, texts)
    nodes, mask = net.compare.alignments(*images, texts.vectors[None], texts.mask[None], texts.whole[None])
    assert similarity.shape == (3, 4)
    for i, t in np.ndindex(3, 4):
        regions, words = images.vectors[i][images.mask[i]].tolist(), texts.vectors[t][texts.mask[t]].tolist()
        image, text = pool_whole(net.image_whole, regions), pool_whole(net.text_whole, words)
        np.testing.assert_allclose(images.whole[i], image, atol=1e-5)
        np.testing.assert_allclose(texts.whole[t], text, atol=1e-5)
        expected = similarity_vectors(net, regions, image, words, text)
        np.testing.assert_allclose(nodes[i, t][mask[0, t]], expected, atol=1e-5)
        assert float(similarity[i, t]) == pytest.approx(score(net, expected), abs=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("block", [1, 2000])
def test_scores_do_not_depend_on_blocks(module, block):
    net = small(module)
    encoded = encode(net)
    torch.testing.assert_close(small(module, block=block).similarity(*encoded), net.similarity(*encoded), atol=1e-5, rtol=0)


# -- training


def scores_in_one_graph(net, images, texts):
    """All scores with one graph; the statistics of the filtration are constants."""
    nodes, mask = net.compare.alignments(*images, texts.vectors[None], texts.mask[None], texts.whole[None])
    moments = torch.zeros(len(texts.mask), 2)
    if net.config.module == "saf":
        for t in range(len(texts.mask)):
            values = net.compare.filtration.weight(nodes[:, t][:, mask[0, t]].detach())
            moments[t] = torch.stack([values.mean(), values.var(correction=0)]).detach()
    return net.compare(nodes, mask, moments)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("pick", [lambda s: s, lambda s: s[[0], [2]]], ids=["all", "few"])
def test_gradient_is_that_of_one_graph(module, pick):
    regions, words = random_regions(5, 1, 3, 4), random_words(2, 0, 9, 1)
    regions = Regions(regions.features.double(), regions.mask, regions.boxes)
    results = []
    for similarity in (SGRAF.similarity, scores_in_one_graph):
        net = small(module, dropout=0.0, block=4000).double().train()
        scores = similarity(net, net.images(regions), net.texts(words))
        pick(scores).square().sum().backward()
        results.append((scores, {name: p.grad for name, p in net.named_parameters()}))
    (scores, gradients), (expected_scores, expected_gradients) = results
    torch.testing.assert_close(scores, expected_scores)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[name], msg=lambda text, name=name: f"{name}: {text}")


def test_training_updates_the_statistics_of_the_filtration_and_evaluation_does_not():
    net = small("saf", dropout=0.0)
    moments = net.compare.filtration.moments
    before = moments.clone()
    net.train().similarity(*encode(net))
    after = moments.clone()
    assert not torch.equal(before, after)
    net.eval().similarity(*encode(net))
    assert torch.equal(moments, after)


@pytest.mark.parametrize("module", MODULES)
def test_similarity_accepts_no_images_no_texts_and_a_zero_gradient(module):
    net = small(module)
    images, texts = encode(net)
    assert net.similarity(PartsAndWhole(*(values[:0] for values in images)), texts).shape == (0, 4)
    assert net.similarity(images, PartsAndWhole(*(values[:0] for values in texts))).shape == (3, 0)
    (net.similarity(images, texts) * 0).sum().backward()  # as when no margin is violated
    assert not any(p.grad is not None and p.grad.any() for p in net.parameters())
