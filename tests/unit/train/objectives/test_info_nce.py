"""InfoNCE with and without hard negatives against loops written from the papers' descriptions."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")


from hypothesis import given
from hypothesis import strategies as st

from crossmatch.data.errors import UsageError
from crossmatch.models.zoo.network_inputs import Words
from crossmatch.train.data.training_set import HardNegatives, TrainingBatch
from crossmatch.train.objectives import InfoNCEOptions, parse_objective
from crossmatch.train.objectives.info_nce import contrastive, info_nce


def negative_log_softmax(own, all_of_them):
    """−log of the softmax of one among several."""
    top = max(all_of_them)
    return top + math.log(sum(math.exp(s - top) for s in all_of_them)) - own


def in_batch(s, pairs):
    """radford2021clip, fig. 3: B images and B texts; each image against all texts, each text against all images, averaged."""
    images = [negative_log_softmax(s(i, i), [s(i, j) for j in range(pairs)]) for i in range(pairs)]
    texts = [negative_log_softmax(s(i, i), [s(j, i) for j in range(pairs)]) for i in range(pairs)]
    return (sum(images) / pairs + sum(texts) / pairs) / 2


def hard_texts(s, pairs):
    """200 images x 400 captions: an image's rivals are all captions, positive and negative; a positive caption's are all images.

    miranda2024bivlc, app. E.3, after yuksekgonul2023when. Text j + B is the negative of pair j.
    """
    images = [
        negative_log_softmax(s(i, i), [s(i, j) for j in range(pairs)] + [s(i, j + pairs) for j in range(pairs)])
        for i in range(pairs)
    ]
    texts = [negative_log_softmax(s(i, i), [s(j, i) for j in range(pairs)]) for i in range(pairs)]
    return (sum(images) / pairs + sum(texts) / pairs) / 2


def hard_pairs(s, pairs):
    """400 images x 400 captions: positive and negative pairs alike. Item j + B is the negative of pair j."""
    return in_batch(s, 2 * pairs)


def batch_of(pairs, kind, generator, twice=False):
    """A batch of random image vectors, with numbered texts and hard negatives."""
    image = torch.randint(0, max(1, pairs - 1), (pairs,), generator=generator) if twice else torch.arange(pairs)

    def vectors(n=pairs):
        return torch.randn(n, 3, generator=generator, dtype=torch.float64)

    def words(first):
        return Words(torch.arange(first, first + pairs)[:, None] + 4)

    negatives = None
    if kind != "none":
        shown = (vectors(), 100 + torch.arange(pairs)) if kind == "pairs" else (None, None)
        negatives = HardNegatives(words(50), *shown)
    owner = (
        image if kind == "none" else torch.cat([image, torch.full((pairs,), -1) if kind == "texts" else 100 + torch.arange(pairs)])
    )
    image_ids = owner if kind == "pairs" else image
    return TrainingBatch(vectors(), words(0), image, negatives=negatives, true_pairs=image_ids[:, None] == owner[None])


def net_of(generator, scale=3.0):
    table = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    return SimpleNamespace(
        images=lambda regions: regions, texts=lambda words: table[words.numbers[:, 0]], similarity=lambda a, b: a @ b.T,
        scale=lambda: torch.tensor(scale, dtype=torch.float64),
    )  # fmt: skip


def scores_of(net, batch):
    """One score at a time."""
    hard = batch.negatives
    images = [*batch.regions, *(hard.regions if hard is not None and hard.regions is not None else [])]
    texts = [*net.texts(batch.words), *(net.texts(hard.words) if hard is not None else [])]
    return lambda i, j: float(net.scale()) * sum(float(a) * float(b) for a, b in zip(images[i], texts[j], strict=True))


SLOW = {"none": in_batch, "texts": hard_texts, "pairs": hard_pairs}


@given(st.integers(2, 6), st.sampled_from(list(SLOW)), st.integers(0, 2**31), st.sampled_from(["left-out", "negatives"]))
def test_losses_equal_loops(pairs, kind, seed, same):
    """Without further true pairs, both values of `same` give the published loss."""
    generator = torch.Generator().manual_seed(seed)
    batch, net = batch_of(pairs, kind, generator), net_of(generator)
    loss = contrastive(net, batch, 1.0, InfoNCEOptions(same=same))
    assert float(loss) == pytest.approx(SLOW[kind](scores_of(net, batch), pairs), rel=1e-9)


@given(st.integers(2, 6), st.sampled_from(list(SLOW)), st.integers(0, 2**31))
def test_repeated_image_is_left_out_or_a_negative(pairs, kind, seed):
    generator = torch.Generator().manual_seed(seed)
    batch, net = batch_of(pairs, kind, generator, twice=True), net_of(generator)
    s = scores_of(net, batch)
    assert float(contrastive(net, batch, 1.0, InfoNCEOptions(same="negatives"))) == pytest.approx(SLOW[kind](s, pairs), rel=1e-9)
    image = batch.image.tolist()

    def masked(i, j):
        is_true = i != j and i < pairs and j < pairs and image[i] == image[j]
        return -math.inf if is_true else s(i, j)

    assert float(contrastive(net, batch, 1.0, InfoNCEOptions())) == pytest.approx(SLOW[kind](masked, pairs), rel=1e-9)


def test_true_pairs_are_not_negatives():
    """A negative caption may be true of another image: image 1 has one negative less."""
    true_pairs = torch.tensor([[True, False, False], [False, True, True]])
    loss = info_nce(torch.zeros(2, 3), true_pairs)
    assert float(loss) == pytest.approx(((math.log(3) + math.log(2)) / 2 + math.log(2)) / 2)


def test_in_batch_loss_is_that_of_clip():
    generator = torch.Generator().manual_seed(1)
    images, texts = (torch.nn.functional.normalize(torch.randn(5, 4, generator=generator), dim=1) for _ in range(2))
    scale = torch.tensor(14.0)
    scores, own, cross_entropy = scale * images @ texts.T, torch.arange(5), torch.nn.functional.cross_entropy
    torch.testing.assert_close(info_nce(scores), (cross_entropy(scores, own) + cross_entropy(scores.T, own)) / 2)


def test_hard_text_has_no_image_of_its_own():
    scores = torch.zeros(4, 4, requires_grad=True)
    info_nce(scores[:2]).backward()
    assert (scores.grad[:2, 2:] > 0).all()  # pushed away from the images
    assert (scores.grad[2:] == 0).all()
    scores.grad = None
    info_nce(scores).backward()
    assert (scores.grad.diagonal() < 0).all()


def test_invalid_batch_and_option_are_refused():
    generator = torch.Generator().manual_seed(3)
    batch, net = batch_of(1, "none", generator), net_of(generator)
    with pytest.raises(UsageError, match="batch of one pair"):
        contrastive(net, batch, 1.0, InfoNCEOptions())
    with pytest.raises(UsageError, match="left-out, negatives"):
        parse_objective({"name": "info-nce", "same": "positives"}, "mine")
