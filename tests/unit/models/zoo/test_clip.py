"""CLIP: both transformers against loops over single tokens, the role of order and position, and the temperature."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from PIL import Image
from torch.nn import functional as F  # noqa: N812

from crossmatch.models.zoo.clip import CLIP, CLIPConfig
from crossmatch.models.zoo.network_inputs import BEGIN, END, MAX_WORDS, Regions, Vocabulary, Words
from crossmatch.models.zoo.trained_model import ZooConfig, build_model
from zoo_inputs import FEATURES, WORDS, random_regions, random_words

SIZES = {"dimensions": 12, "image_width": 16, "image_heads": 4, "text_width": 8, "text_heads": 2}


def small(layers=2):
    return CLIP(CLIPConfig(FEATURES, WORDS, image_layers=layers, text_layers=layers, **SIZES))


# -- one item, one token and one head at a time


def apply_block(block, tokens, causal):
    """A layer over the tokens (L, D) of one item; if `causal`, each token attends to itself and those before it."""
    normed, size = block.norm_attention(tokens), tokens.shape[1] // block.heads
    query, (key, value) = block.query(normed), block.key_value(normed).chunk(2, dim=1)
    rows = []
    for at in range(len(tokens)):
        heads = []
        for head in range(block.heads):
            cut = slice(head * size, (head + 1) * size)
            sources = range(at + 1) if causal else range(len(tokens))
            scores = [float(query[at, cut] @ key[source, cut]) / math.sqrt(size) for source in sources]
            weights = [math.exp(score - max(scores)) for score in scores]
            heads.append(sum(w / sum(weights) * value[source, cut] for w, source in zip(weights, sources, strict=True)))
        rows.append(torch.cat(heads))
    tokens = tokens + block.out(torch.stack(rows))
    return tokens + block.narrow(F.gelu(block.widen(block.norm_hidden(tokens))))


def image_by_hand(net, features, boxes):
    tokens = net.norm_regions(torch.stack([net.whole, *(net.look(f) + net.place(b) for f, b in zip(features, boxes, strict=True))]))
    for block in net.image_blocks:
        tokens = apply_block(block, tokens, causal=False)
    return F.normalize(net.project_image(net.norm_image(tokens[0])), dim=0)


def text_by_hand(net, numbers):
    tokens = torch.stack([net.word_vectors.weight[n] + net.positions.weight[at] for at, n in enumerate(numbers)])
    for block in net.text_blocks:
        tokens = apply_block(block, tokens, causal=True)
    return F.normalize(net.project_text(net.norm_text(tokens[-1])), dim=0)


@torch.no_grad()
@pytest.mark.parametrize("layers", [1, 3])
def test_transformers_equal_loops_over_tokens(layers):
    net, counts, lengths = small(layers).eval(), [4, 1, 6], [2, 7, 4]
    regions, words = random_regions(*counts), random_words(*lengths)
    images = [image_by_hand(net, regions.features[n, :k], regions.boxes[n, :k]) for n, k in enumerate(counts)]
    texts = [text_by_hand(net, words.numbers[n, : k + 2].tolist()) for n, k in enumerate(lengths)]
    torch.testing.assert_close(net.images(regions), torch.stack(images), atol=1e-5, rtol=0)
    torch.testing.assert_close(net.texts(words), torch.stack(texts), atol=1e-5, rtol=0)


# -- order and position


@torch.no_grad()
def test_order_of_words_matters_but_not_of_regions():
    net, regions = small().eval(), random_regions(5)
    order = torch.tensor([3, 0, 4, 1, 2])
    shuffled = Regions(*(values[:, order] for values in (regions.features, regions.mask, regions.boxes)))
    torch.testing.assert_close(net.images(shuffled), net.images(regions), atol=1e-5, rtol=0)
    texts = net.texts(Words(torch.tensor([[BEGIN, 5, 6, 7, END], [BEGIN, 7, 6, 5, END]])))
    assert (texts[0] - texts[1]).abs().max() > 1e-3


@torch.no_grad()
def test_position_of_a_region_matters():
    net, regions = small().eval(), random_regions(3)
    moved = Regions(regions.features, regions.mask, regions.boxes.flip(1))
    assert (net.images(moved) - net.images(regions)).abs().max() > 1e-3


@torch.no_grad()
def test_long_texts_are_truncated():
    net, vocabulary = small().eval(), Vocabulary(tuple("abcdefgh"))
    words = vocabulary.encode(["", "a " * (MAX_WORDS + 9), "a " * MAX_WORDS])
    assert words.numbers.shape[1] == MAX_WORDS + 2
    texts = net.texts(words)
    assert torch.isfinite(texts).all()
    torch.testing.assert_close(texts[1], texts[2])


# -- temperature


def test_temperature_starts_as_published_and_stays_within_its_limits():
    net = small()
    assert float(net.scale().detach()) == pytest.approx(1 / 0.07)
    for logit_scale, expected in ((9.0, 100.0), (-3.0, 1.0)):
        with torch.no_grad():
            net.logit_scale.fill_(logit_scale)
        assert float(net.scale().detach()) == pytest.approx(expected, rel=1e-5)
    assert float(net.logit_scale.detach()) == 0.0  # the parameter itself was clamped


def test_temperature_has_a_gradient_at_its_limit():
    net = small()
    with torch.no_grad():
        net.logit_scale.fill_(50.0)
    net.scale().backward()
    assert float(net.logit_scale.grad) == pytest.approx(100.0, rel=1e-5)


def test_model_accepts_pixels():
    sizes = SIZES | {"image_layers": 1, "text_layers": 1}
    model = build_model(ZooConfig("clip", sizes, ("cat", "dog"), {"kind": "pixels", "side": 16, "width": 4}))
    assert model.embed_images([Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]).shape == (2, 12)
    assert model.compare(model.extract_regions([Image.new("RGB", (20, 20))]), ["a cat", "a dog"]).shape == (1, 2)
