"""PVSE's embeddings against the equations one number at a time, alone and in company."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from crossmatch.models.zoo.inputs import PAD, Regions, Words  # noqa: E402
from crossmatch.models.zoo.pie import PIE, Attention  # noqa: E402
from crossmatch.models.zoo.pvse import PVSE, PVSEConfig, similarity  # noqa: E402

FEATURES, WORDS, SIZE = 6, 12, 8


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small products gain nothing from a second thread, and on a busy machine each waits for it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def net_of(embeddings, seed=0):
    torch.manual_seed(seed)
    return PVSE(PVSEConfig(FEATURES, WORDS, embeddings, dimensions=SIZE, word_dimensions=5)).eval()


def regions_of(counts, most=None, seed=1, filling=0.0):
    """Images with so many regions each; absent ones hold `filling`, which nothing may look at."""
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


def pie_by_loops(pie, whole, parts):
    """song2019pvse, sec. 3, one number at a time: sigmoid(w₃ AΨ + b₃) is added to the whole, then layer norm and length 1."""
    w1, w2 = pie.attention.w1.weight.tolist(), pie.attention.w2.weight.tolist()
    w3, b3, gain, bias = pie.guide.weight.tolist(), pie.guide.bias.tolist(), pie.norm.weight.tolist(), pie.norm.bias.tolist()

    def dot(x, y):
        return sum(a * b for a, b in zip(x, y, strict=True))

    out = []
    for head in w2:
        e = [math.exp(dot(head, [math.tanh(dot(row, part)) for row in w1])) for part in parts]
        looked = [sum(weight / sum(e) * part[f] for weight, part in zip(e, parts, strict=True)) for f in range(len(parts[0]))]
        added = [phi + 1 / (1 + math.exp(-dot(row, looked) - b)) for phi, row, b in zip(whole, w3, b3, strict=True)]
        mean = sum(added) / len(added)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in added) / len(added) + pie.norm.eps)
        normed = [g * (x - mean) / deviation + b for g, x, b in zip(gain, added, bias, strict=True)]
        out.append([x / math.sqrt(dot(normed, normed)) for x in normed])
    return out


@pytest.mark.parametrize("heads", [1, 3])
def test_the_pie_is_that_of_the_loops(heads):
    torch.manual_seed(3)
    pie = PIE(heads, FEATURES, SIZE)
    with torch.no_grad():
        for weight in (pie.norm.weight, pie.norm.bias, pie.guide.bias):
            weight.uniform_(0.5, 1.5)
    regions, whole = regions_of([4, 2, 1]), torch.randn(3, SIZE)
    found = pie(whole, regions.features, regions.real).embedded.tolist()
    for n, count in enumerate([4, 2, 1]):
        slow = pie_by_loops(pie, whole[n].tolist(), regions.features[n, :count].tolist())
        assert [x for row in found[n] for x in row] == pytest.approx([x for row in slow for x in row], abs=1e-5)


def test_an_item_without_parts_is_looked_at_as_a_whole_and_has_gradients():
    attention = Attention(2, FEATURES)
    parts = torch.randn(2, 3, FEATURES, requires_grad=True)
    real = torch.tensor([[False] * 3, [True, False, False]])
    found = attention(parts, real)
    assert found[0].eq(0).all()
    assert torch.allclose(found[1], parts[1, :1].expand(2, -1))
    found.sum().backward()
    assert parts.grad.isfinite().all()
    assert all(p.grad.isfinite().all() for p in attention.parameters())


@pytest.mark.parametrize("embeddings", [1, 2])
def test_vectors_have_length_one_and_the_shape_of_an_embedder_where_there_is_one(embeddings):
    net = net_of(embeddings)
    seen, said = net.images(regions_of([3, 1])), net.texts(words_of([4, 2, 7]))
    assert net.embeds == (embeddings == 1)
    assert seen.shape == ((2, SIZE) if embeddings == 1 else (2, 2, SIZE))
    assert len(said) == 3
    assert torch.allclose(said.norm(dim=-1), torch.ones(1), atol=1e-6)
    assert torch.allclose(seen.norm(dim=-1), torch.ones(1), atol=1e-6)


@pytest.mark.parametrize("embeddings", [1, 2])
def test_similarity_is_the_highest_cosine_and_pairs_are_its_diagonal(embeddings):
    net = net_of(embeddings)
    seen, said = net.images(regions_of([3, 1, 2])), net.texts(words_of([4, 2, 7]))
    seen, said = seen.detach(), said.detach()
    found = net.similarity(seen, said)
    for i, image in enumerate(seen.view(3, -1, SIZE)):
        for t, text in enumerate(said.view(3, -1, SIZE)):
            cosines = [torch.nn.functional.cosine_similarity(x, y, dim=0).item() for x in image for y in text]
            assert len(cosines) == embeddings**2
            assert found[i, t].item() == pytest.approx(max(cosines), abs=1e-5)
    assert torch.allclose(net.paired(seen, said), found.diagonal(), atol=1e-6)


def test_two_embeddings_are_two():
    net = net_of(2)
    for vectors in (net.images(regions_of([4, 3])), net.texts(words_of([5, 6]))):
        assert (vectors[:, 0] - vectors[:, 1]).abs().amax(dim=1).min() > 1e-4  # far more than rounding


def test_similarity_takes_no_images_and_no_texts():
    assert similarity(torch.zeros(0, 2, 4), torch.zeros(3, 2, 4)).shape == (0, 3)
    assert similarity(torch.zeros(2, 4), torch.zeros(0, 4)).shape == (2, 0)


@pytest.mark.parametrize("embeddings", [1, 2])
def test_neither_padding_nor_company_changes_a_vector(embeddings):
    net = net_of(embeddings)
    regions, words = regions_of([3, 1, 9, 0], filling=7.0), words_of([4, 2, 11, 3])
    seen, said = net.images(regions), net.texts(words)
    wide, long = regions_of([3, 1, 9, 0], 20, filling=-5.0), words_of([4, 2, 11, 3], 30)
    assert torch.allclose(net.images(wide), seen, atol=1e-5)
    assert torch.allclose(net.texts(long), said, atol=1e-5)
    for n in range(4):
        alone = regions[n : n + 1]
        alone = Regions(*(each[:, : max(1, int(regions.real[n].sum()))] for each in (alone.features, alone.real, alone.boxes)))
        assert torch.allclose(net.images(alone), seen[n : n + 1], atol=1e-5)
        assert torch.allclose(net.texts(words[n : n + 1]), said[n : n + 1], atol=1e-5)
