"""CLIP: the towers against loops over single items, the same vectors with or without filling, a temperature within its limits."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402, N812

from crossmatch.core.errors import WrongWords  # noqa: E402
from crossmatch.models.zoo.clip import CLIP, CLIPConfig  # noqa: E402
from crossmatch.models.zoo.inputs import BEGIN, END, FIRST_WORD, LONGEST, PAD, Regions, Vocabulary, Words  # noqa: E402
from crossmatch.train.batch import Batch  # noqa: E402
from crossmatch.train.dual import reproducible  # noqa: E402
from crossmatch.train.objectives.info_nce import contrastive  # noqa: E402


@pytest.fixture(autouse=True)
def _seeded():
    with reproducible(5):
        yield


def small(layers=2, **other):
    sizes = {"dimensions": 12, "image_width": 16, "image_heads": 4, "text_width": 8, "text_heads": 2} | other
    return CLIP(CLIPConfig(features=6, words=12, image_layers=layers, text_layers=layers, **sizes))


def some_regions(sizes, most):
    real = torch.arange(most) < torch.tensor(sizes).unsqueeze(1)
    features, boxes = torch.randn(len(sizes), most, 6), torch.rand(len(sizes), most, 4)
    return Regions(features * real.unsqueeze(2), real, boxes * real.unsqueeze(2))


def some_words(lengths):
    out = torch.full((len(lengths), max(lengths) + 2), PAD)
    for row, length in zip(out, lengths, strict=True):
        row[: length + 2] = torch.tensor([BEGIN, *torch.randint(FIRST_WORD, 12, (length,)).tolist(), END])
    return Words(out)


# One item at a time, one head at a time, every layer in full


def through(block, tokens, before):
    """A layer over the tokens (L, D) of one item; `before`: each token sees itself and those before it."""
    given, each = block.norm_attention(tokens), tokens.shape[1] // block.heads
    query = block.query(given)
    key, value = block.key_value(given)[:, : tokens.shape[1]], block.key_value(given)[:, tokens.shape[1] :]
    rows = []
    for at in range(len(tokens)):
        heads = []
        for head in range(block.heads):
            cut = slice(head * each, (head + 1) * each)
            seen = range(at + 1) if before else range(len(tokens))
            scores = [float(query[at, cut] @ key[other, cut]) / math.sqrt(each) for other in seen]
            weights = [math.exp(score - max(scores)) for score in scores]
            heads.append(sum(w / sum(weights) * value[other, cut] for w, other in zip(weights, seen, strict=True)))
        rows.append(torch.cat(heads))
    tokens = tokens + block.out(torch.stack(rows))
    return tokens + block.narrow(F.gelu(block.widen(block.norm_hidden(tokens))))


def image_by_hand(net, features, boxes):
    tokens = net.norm_regions(torch.stack([net.whole, *(net.look(f) + net.place(b) for f, b in zip(features, boxes, strict=True))]))
    for block in net.image_blocks:
        tokens = through(block, tokens, before=False)
    vector = net.project_image(net.norm_image(tokens[0]))
    return vector / vector.norm()


def text_by_hand(net, numbers):
    tokens = torch.stack([net.word_vectors.weight[n] + net.positions.weight[at] for at, n in enumerate(numbers)])
    for block in net.text_blocks:
        tokens = through(block, tokens, before=True)
    vector = net.project_text(net.norm_text(tokens[-1]))
    return vector / vector.norm()


@pytest.mark.parametrize("layers", [1, 3])
def test_the_towers_are_what_a_loop_over_tokens_gives(layers):
    net, sizes, lengths = small(layers).eval(), [4, 1, 6], [2, 7, 4]
    regions, words = some_regions(sizes, most=6), some_words(lengths)
    with torch.no_grad():
        images = [image_by_hand(net, regions.features[n, :k], regions.boxes[n, :k]) for n, k in enumerate(sizes)]
        texts = [text_by_hand(net, words.numbers[n, : k + 2].tolist()) for n, k in enumerate(lengths)]
        torch.testing.assert_close(net.images(regions), torch.stack(images), atol=1e-5, rtol=0)
        torch.testing.assert_close(net.texts(words), torch.stack(texts), atol=1e-5, rtol=0)


# What does not matter, and what does


def test_the_company_and_the_filling_do_not_matter():
    net = small().eval()
    regions, words = some_regions([5, 1, 3], most=9), some_words([2, 7, 4])
    strange = Regions(regions.features + 7 * ~regions.real.unsqueeze(2), regions.real, regions.boxes)
    with torch.no_grad():
        images = torch.cat([net.images(Regions(*(t[n : n + 1, :k] for t in (regions.features, regions.real, regions.boxes))))
                            for n, k in enumerate([5, 1, 3])])  # fmt: skip
        texts = torch.cat([net.texts(words[n : n + 1]) for n in range(3)])
        for same in (regions, strange):
            torch.testing.assert_close(net.images(same), images, atol=1e-5, rtol=0)
        torch.testing.assert_close(net.texts(words), texts, atol=1e-5, rtol=0)
        torch.testing.assert_close(images.norm(dim=1), torch.ones(3))
        torch.testing.assert_close(texts.norm(dim=1), torch.ones(3))
        assert net.similarity(images, texts).shape == (3, 3)


def test_regions_may_stand_in_any_order_but_words_may_not():
    net, regions, words = small().eval(), some_regions([5], most=5), Words(torch.tensor([[BEGIN, 5, 6, 7, END]]))
    order, turned = torch.tensor([3, 0, 4, 1, 2]), Words(torch.tensor([[BEGIN, 7, 6, 5, END]]))
    mixed = Regions(*(t[:, order] for t in (regions.features, regions.real, regions.boxes)))
    with torch.no_grad():
        torch.testing.assert_close(net.images(mixed), net.images(regions), atol=1e-5, rtol=0)
        assert (net.texts(turned) - net.texts(words)).abs().max() > 1e-3


def test_where_a_region_is_matters():
    net, regions = small().eval(), some_regions([3], most=3)
    moved = Regions(regions.features, regions.real, regions.boxes.flip(1))
    with torch.no_grad():
        assert (net.images(moved) - net.images(regions)).abs().max() > 1e-3


def test_an_image_without_regions_and_a_text_of_no_or_too_many_words():
    net, known = small().eval(), Vocabulary(tuple("abcdefgh"))
    with torch.no_grad():
        assert torch.isfinite(net.images(some_regions([0, 2], most=2))).all()
        read = known.numbered(["", "a " * (LONGEST + 9), "a " * LONGEST])
        assert read.numbers.shape[1] == LONGEST + 2
        found = net.texts(read)
        assert torch.isfinite(found).all()
        torch.testing.assert_close(found[1], found[2])


# The temperature


def test_the_temperature_begins_as_published_and_stays_within_its_limits():
    net = small()
    assert float(net.scale().detach()) == pytest.approx(1 / 0.07)
    for given, wanted in ((9.0, 100.0), (-3.0, 1.0)):
        with torch.no_grad():
            net.logit_scale.fill_(given)
        assert float(net.scale().detach()) == pytest.approx(wanted, rel=1e-5)
    assert float(net.logit_scale.detach()) == 0.0  # the parameter itself came back


def test_a_slope_that_leads_back_is_felt_at_the_border():
    net = small()
    with torch.no_grad():
        net.logit_scale.fill_(50.0)
    net.scale().backward()
    assert float(net.logit_scale.grad) == pytest.approx(100.0, rel=1e-5)


# Learning


def test_every_weight_learns():
    net = small()
    contrastive(net, Batch(some_regions([4, 5, 3, 2], most=5), some_words([3, 5, 4, 6]), torch.arange(4)), {}).backward()
    still = [name for name, p in net.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert still == []


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(WrongWords, match="image side has 2 layers, 16 numbers and 3 heads"):
        small(image_heads=3)
    with pytest.raises(WrongWords, match="text_width and text_heads"):
        small(text_heads=5)


def test_pixels_are_regions_too():
    from crossmatch.models.zoo.model import ZooConfig, made

    sizes = {
        "dimensions": 12,
        "image_width": 16,
        "image_heads": 4,
        "image_layers": 1,
        "text_width": 8,
        "text_heads": 2,
        "text_layers": 1,
    }
    model = made(ZooConfig("clip", sizes, ("cat", "dog"), {"kind": "pixels", "side": 16, "width": 4}))
    from PIL import Image

    seen = model.embed_images([Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")])
    assert seen.shape == (2, 12)
    assert model.compare(model.see([Image.new("RGB", (20, 20))]), ["a cat", "a dog"]).shape == (1, 2)
