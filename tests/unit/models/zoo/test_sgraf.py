"""SGR and SAF against loops over the equations, alone and in company, and that they learn."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from crossmatch.models.zoo.inputs import FIRST_WORD, Regions, Vocabulary, Words  # noqa: E402
from crossmatch.models.zoo.sgraf import EPSILON, SGRAF, Parts, SGRAFConfig  # noqa: E402
from crossmatch.train.objectives.triplet import hinge  # noqa: E402

TEXTS = ["a dog", "", "a red cat on a very long and very blue sofa", "cat"]
MODULES = ["sgr", "saf"]
SIZES = {"dimensions": 12, "word_dimensions": 5, "similarity_dimensions": 16}


def pictures(number, most, features, seed=0):
    rng = torch.Generator().manual_seed(seed)
    real = torch.arange(most) < torch.randint(1, most + 1, (number, 1), generator=rng)
    return Regions(torch.randn(number, most, features, generator=rng) * real.unsqueeze(2), real, torch.zeros(number, most, 4))


def made(module, **more):
    """A network whose biases and batch norms are not what they are at first, so that each of them shows."""
    torch.manual_seed(0)
    net = SGRAF(SGRAFConfig(7, len(Vocabulary.of(TEXTS)), module, **{**SIZES, **more})).eval()
    with torch.no_grad():
        for name, p in net.named_parameters():
            if "bias" in name or "norm" in name or "shift" in name:
                p.add_(torch.randn_like(p) * 0.1)
        for b in net.buffers():
            if b.is_floating_point():
                b.copy_(torch.rand_like(b) + 0.5)
    return net


def encoded(net, regions, texts=TEXTS):
    return net.images(regions), net.texts(Vocabulary.of(TEXTS).numbered(texts))


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
        seen = normed(mixed(softmax([net.config.temperature * x / n for x, n in zip(row, length, strict=True)]), regions))
        nodes.append(normed(linear(net.compare.local, [(a - b) ** 2 for a, b in zip(seen, word, strict=True)])))
    return nodes


def score(net, nodes):
    if net.config.module == "sgr":
        for step in net.compare.reasoning:
            edges = [softmax([dot(linear(step.into, p), linear(step.out, q)) for q in nodes]) for p in nodes]
            nodes = [[max(0.0, x) for x in linear(step.onward, mixed(row, nodes))] for row in edges]
        vector = nodes[0]
    else:
        only = net.compare.filtration
        mean, variance = only.moments.tolist()
        said = [(linear(only.weight, p)[0] - mean) / math.sqrt(variance + EPSILON) for p in nodes]
        kept = [sigmoid(x * only.scale.item() + only.shift.item()) for x in said]
        vector = normed(mixed([x / sum(kept) for x in kept], nodes))
    return sigmoid(linear(net.compare.score, vector)[0])


def whole(module, vectors):
    """A set as one vector."""

    def normalised(x, norm):
        if norm is None:
            return x
        given = zip(x, norm.running_mean.tolist(), norm.running_var.tolist(), norm.weight.tolist(), norm.bias.tolist(), strict=True)
        return [(a - mean) / math.sqrt(variance + norm.eps) * w + b for a, mean, variance, w, b in given]

    mean = [sum(column) / len(vectors) for column in zip(*vectors, strict=True)]
    asks = [math.tanh(x) for x in normalised(linear(module.all, mean), module.all_norm)]
    each = [[math.tanh(x) for x in normalised(linear(module.one, v), module.one_norm)] for v in vectors]
    shares = softmax([linear(module.weight, [a * b for a, b in zip(one, asks, strict=True)])[0] for one in each])
    return normed(mixed(shares, vectors))


@pytest.mark.parametrize("module", MODULES)
def test_similarities_agree_with_loops_over_the_equations(module):
    net = made(module)
    with torch.inference_mode():
        images, texts = encoded(net, pictures(3, 4, 7))
        found = net.similarity(images, texts)
        nodes, real = net.compare.alignments(*images, texts.vectors[None], texts.real[None], texts.whole[None])
    assert found.shape == (3, 4)
    for i, t in np.ndindex(3, 4):
        regions, words = images.vectors[i][images.real[i]].tolist(), texts.vectors[t][texts.real[t]].tolist()
        image, text = whole(net.image_whole, regions), whole(net.text_whole, words)
        np.testing.assert_allclose(images.whole[i], image, atol=1e-5)
        np.testing.assert_allclose(texts.whole[t], text, atol=1e-5)
        slow = similarity_vectors(net, regions, image, words, text)
        np.testing.assert_allclose(nodes[i, t][real[0, t]], slow, atol=1e-5)
        assert float(found[i, t]) == pytest.approx(score(net, slow), abs=1e-5)


@pytest.mark.parametrize("module", MODULES)
def test_scores_do_not_depend_on_filling_company_or_blocks(module):
    net, regions = made(module), pictures(3, 6, 7)
    with torch.inference_mode():
        together = net.similarity(*encoded(net, regions))
        assert len(together.unique()) == together.numel()
        for block in (1, 2000):
            torch.testing.assert_close(made(module, block=block).similarity(*encoded(net, regions)), together, atol=1e-5, rtol=0)
        images, texts = encoded(net, regions)
        pairs = net.paired(images, Parts(*(each[:3] for each in texts)))
        torch.testing.assert_close(pairs, together[:, :3].diagonal(), atol=1e-5, rtol=0)
        for i in range(3):
            few = int(regions.real[i].sum())
            image = Regions(regions.features[i : i + 1, :few], regions.real[i : i + 1, :few], regions.boxes[i : i + 1, :few])
            for t, text in enumerate(TEXTS):
                alone = net.similarity(*encoded(net, image, [text]))
                torch.testing.assert_close(alone, together[i : i + 1, t : t + 1], atol=1e-5, rtol=0)


# -- training


def graph(net, images, texts):
    """All scores with one graph, and the statistics of the filtration as constants."""
    given = texts.vectors[None], texts.real[None], texts.whole[None]
    nodes, real = net.compare.alignments(*images, *given)
    moments = torch.zeros(len(texts.real), 2)
    if net.config.module == "saf":
        for t in range(len(texts.real)):
            said = net.compare.filtration.weight(nodes[:, t][:, real[0, t]].detach())
            moments[t] = torch.stack([said.mean(), said.var(correction=0)]).detach()
    return net.compare(nodes, real, moments)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("pick", [lambda s: s, lambda s: s[[0], [2]]], ids=["all", "few"])
def test_the_gradient_is_that_of_the_plain_graph(module, pick):
    found = []
    for ours in (True, False):
        net = made(module, dropout=0.0, block=4000).double().train()
        regions = pictures(4, 5, 7)
        images = net.images(Regions(regions.features.double(), regions.real, regions.boxes))
        texts = net.texts(Vocabulary.of(TEXTS).numbered(TEXTS))
        scores = net.similarity(images, texts) if ours else graph(net, images, texts)
        pick(scores).square().sum().backward()
        found.append((scores, {name: p.grad for name, p in net.named_parameters()}))
    torch.testing.assert_close(found[0][0], found[1][0])
    for name, grad in found[0][1].items():
        torch.testing.assert_close(grad, found[1][1][name], msg=lambda said, name=name: f"{name}: {said}")


def test_filtration_remembers_what_it_saw_and_evaluation_uses_it():
    net, regions = made("saf", dropout=0.0), pictures(4, 5, 7)
    only = net.compare.filtration
    before = only.moments.clone()
    net.train()
    net.similarity(*encoded(net, regions))
    after = only.moments.clone()
    assert not torch.equal(before, after)
    net.eval()
    net.similarity(*encoded(net, regions))
    assert torch.equal(only.moments, after)


@pytest.mark.parametrize("module", MODULES)
def test_without_images_or_texts_and_without_a_gradient(module):
    net, regions = made(module), pictures(4, 5, 7)
    images, texts = encoded(net, regions)
    assert net.similarity(Parts(*(each[:0] for each in images)), texts).shape == (0, 4)
    assert net.similarity(images, Parts(*(each[:0] for each in texts))).shape == (4, 0)
    (net.similarity(images, texts) * 0).sum().backward()  # as where every margin is kept
    assert not any(p.grad is not None and p.grad.any() for p in net.parameters())


def toy(images=20, kinds=12, features=10, seed=0):
    """Images of some things, each with a text that names them in another order."""
    rng = torch.Generator().manual_seed(seed)
    looks = torch.randn(kinds, features, generator=rng)
    things = torch.stack([torch.randperm(kinds, generator=rng)[:3] for _ in range(images)])
    seen = looks[things] + 0.1 * torch.randn(images, 3, features, generator=rng)
    named = torch.stack([row[torch.randperm(3, generator=rng)] for row in things]) + FIRST_WORD
    return Regions(seen, torch.ones(images, 3, dtype=torch.bool), torch.zeros(images, 3, 4)), Words(named)


@pytest.mark.parametrize("module", MODULES)
def test_it_learns_which_word_is_which_thing(module):
    torch.manual_seed(0)
    (regions, words), own = toy(), torch.arange(20)
    sizes = {"dimensions": 24, "word_dimensions": 16, "similarity_dimensions": 16, "dropout": 0.0}
    net = SGRAF(SGRAFConfig(10, FIRST_WORD + 12, module, **sizes))
    optimiser = torch.optim.Adam(net.parameters(), 5e-3)
    for step in range(40):
        scores = net.train().similarity(net.images(regions), net.texts(words))
        loss = hinge(scores, own, "sum" if step < 25 else "hardest")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.inference_mode():
        found = net.eval().similarity(net.images(regions), net.texts(words)).argmax(dim=0)
    assert float((found == own).float().mean()) >= 0.4  # chance is 0.05
