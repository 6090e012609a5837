"""VSRN's two losses against loops, and their sum."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.network_inputs import BEGIN, END, PAD, Regions, Words
from crossmatch.models.zoo.vsrn import VSRN, VSRNConfig
from crossmatch.train.data.training_set import TrainingBatch
from crossmatch.train.objectives import VSRNOptions
from crossmatch.train.objectives.triplet import hinge
from crossmatch.train.objectives.vsrn import generation, vsrn
from crossmatch.train.reproducibility import reproducible


@pytest.fixture(autouse=True)
def _seeded():
    with reproducible(7):
        yield


NUMBERS = torch.tensor([[BEGIN, 5, 6, END, PAD], [BEGIN, 7, END, PAD, PAD], [BEGIN, 4, 4, 8, END]])


def test_generation_equals_a_loop():
    log_probabilities = torch.randn(3, 4, 9).log_softmax(dim=2)
    total = 0.0
    for caption, row in zip(NUMBERS.tolist(), log_probabilities, strict=True):
        for at, word in enumerate(caption[1:]):
            if word != PAD:
                total -= float(row[at, word])
    assert float(generation(log_probabilities, NUMBERS)) == pytest.approx(total / 3, rel=1e-6)


def test_padding_does_not_count():
    log_probabilities = torch.randn(3, 4, 9).log_softmax(dim=2)
    changed = log_probabilities.clone()
    changed[1, 2:] = torch.randn(2, 9).log_softmax(dim=1)
    assert torch.equal(generation(log_probabilities, NUMBERS), generation(changed, NUMBERS))


@pytest.fixture
def net_and_batch():
    net = VSRN(VSRNConfig(features=6, words=9, dimensions=8, layers=1, word_dimensions=4, decoder=8)).eval()
    regions = Regions(torch.randn(3, 4, 6), torch.ones(3, 4, dtype=torch.bool), torch.zeros(3, 4, 4))
    return net, TrainingBatch(regions, Words(NUMBERS), torch.arange(3))


def test_loss_is_the_weighted_sum_of_matching_and_generation(net_and_batch):
    net, batch = net_and_batch
    with torch.no_grad():
        scores = net.similarity(net.images(batch.regions), net.texts(batch.words))
        matching = hinge(scores, batch.image, "hardest", 0.2)
        generated = generation(net.teller(net.reason(batch.regions), batch.regions.mask, NUMBERS), NUMBERS)
        torch.testing.assert_close(vsrn(net, batch, 1.0, VSRNOptions()), matching + generated)
        torch.testing.assert_close(vsrn(net, batch, 1.0, VSRNOptions(generation=0.0)), matching)
        torch.testing.assert_close(vsrn(net, batch, 1.0, VSRNOptions(matching=0.0, generation=2.0)), 2 * generated)


def test_warm_up_counts_all_negatives(net_and_batch):
    net, batch = net_and_batch
    with torch.no_grad():
        scores = net.similarity(net.images(batch.regions), net.texts(batch.words))
        early = vsrn(net, batch, 0.4, VSRNOptions(generation=0.0, warm_up=0.5))
        late = vsrn(net, batch, 0.5, VSRNOptions(generation=0.0, warm_up=0.5))
    torch.testing.assert_close(early, hinge(scores, batch.image, "sum", 0.2))
    torch.testing.assert_close(late, hinge(scores, batch.image, "hardest", 0.2))
    assert early > late
