"""PVSE's embeddings against the equations, one number at a time."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.pvse import PIE, PVSE, PartAttention, PVSEConfig, max_similarity
from zoo_inputs import FEATURES, WORDS, random_regions, random_words

SIZE = 8


def small(embeddings):
    return PVSE(PVSEConfig(FEATURES, WORDS, embeddings, dimensions=SIZE, word_dimensions=5)).eval()


def pie_by_loops(pie, whole, parts):
    """song2019pvse, sec. 3, one number at a time: sigmoid(w₃ AΨ + b₃) is added to the whole, then layer norm and length 1."""
    w1, w2 = pie.attention.w1.weight.tolist(), pie.attention.w2.weight.tolist()
    w3, b3, gain, bias = pie.guide.weight.tolist(), pie.guide.bias.tolist(), pie.norm.weight.tolist(), pie.norm.bias.tolist()

    def dot(x, y):
        return sum(a * b for a, b in zip(x, y, strict=True))

    out = []
    for head in w2:
        e = [math.exp(dot(head, [math.tanh(dot(row, part)) for row in w1])) for part in parts]
        attended = [sum(weight / sum(e) * part[f] for weight, part in zip(e, parts, strict=True)) for f in range(len(parts[0]))]
        added = [phi + 1 / (1 + math.exp(-dot(row, attended) - b)) for phi, row, b in zip(whole, w3, b3, strict=True)]
        mean = sum(added) / len(added)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in added) / len(added) + pie.norm.eps)
        normed = [g * (x - mean) / deviation + b for g, x, b in zip(gain, added, bias, strict=True)]
        out.append([x / math.sqrt(dot(normed, normed)) for x in normed])
    return out


@pytest.mark.parametrize("heads", [1, 3])
def test_pie_equals_loops(heads):
    pie, counts = PIE(heads, FEATURES, SIZE), [4, 2, 1]
    with torch.no_grad():
        for weight in (pie.norm.weight, pie.norm.bias, pie.guide.bias):
            weight.uniform_(0.5, 1.5)
    regions, whole = random_regions(*counts), torch.randn(3, SIZE)
    embedded = pie(whole, regions.features, regions.mask).embedded
    for n, count in enumerate(counts):
        expected = pie_by_loops(pie, whole[n].tolist(), regions.features[n, :count].tolist())
        torch.testing.assert_close(embedded[n], torch.tensor(expected), atol=1e-5, rtol=0)


def test_attention_without_parts_is_zero_and_has_a_finite_gradient():
    attention = PartAttention(2, FEATURES)
    parts = torch.randn(2, 3, FEATURES, requires_grad=True)
    attended = attention(parts, torch.tensor([[False] * 3, [True, False, False]]))
    assert attended[0].eq(0).all()
    assert torch.allclose(attended[1], parts[1, :1].expand(2, -1))
    attended.sum().backward()
    assert parts.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in attention.parameters())


@torch.no_grad()
@pytest.mark.parametrize("embeddings", [1, 2])
def test_similarity_is_the_highest_cosine(embeddings):
    net = small(embeddings)
    images, texts = net.images(random_regions(3, 1, 2)), net.texts(random_words(4, 2, 7))
    assert net.embeds == (embeddings == 1)
    assert images.shape == ((3, SIZE) if embeddings == 1 else (3, 2, SIZE))
    similarity = net.similarity(images, texts)
    for i, image in enumerate(images.view(3, -1, SIZE)):
        for t, text in enumerate(texts.view(3, -1, SIZE)):
            cosines = [torch.nn.functional.cosine_similarity(x, y, dim=0).item() for x in image for y in text]
            assert len(cosines) == embeddings**2
            assert similarity[i, t].item() == pytest.approx(max(cosines), abs=1e-5)


def test_two_embeddings_of_an_item_differ():
    net = small(2)
    for vectors in (net.images(random_regions(4, 3)), net.texts(random_words(5, 6))):
        assert (vectors[:, 0] - vectors[:, 1]).abs().amax(dim=1).min() > 1e-4  # far more than rounding


def test_similarity_accepts_no_images_or_no_texts():
    assert max_similarity(torch.zeros(0, 2, 4), torch.zeros(3, 2, 4)).shape == (0, 3)
    assert max_similarity(torch.zeros(2, 4), torch.zeros(0, 4)).shape == (2, 0)
