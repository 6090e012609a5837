"""VSRN's two losses against loops, and their sum."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.inputs import BEGIN, END, PAD, Regions, Words  # noqa: E402
from crossmatch.models.zoo.vsrn import VSRN, VSRNConfig  # noqa: E402
from crossmatch.train.batch import Batch  # noqa: E402
from crossmatch.train.dual import reproducible  # noqa: E402
from crossmatch.train.objectives.triplet import hinge  # noqa: E402
from crossmatch.train.objectives.vsrn import generation, vsrn  # noqa: E402


@pytest.fixture(autouse=True)
def _seeded():
    with reproducible(7):
        yield


NUMBERS = torch.tensor([[BEGIN, 5, 6, END, PAD], [BEGIN, 7, END, PAD, PAD], [BEGIN, 4, 4, 8, END]])


def test_generation_is_the_loop_over_captions_and_words():
    said = torch.randn(3, 4, 9).log_softmax(dim=2)
    total = 0.0
    for caption, row in zip(NUMBERS.tolist(), said, strict=True):
        for at, word in enumerate(caption[1:]):
            if word != PAD:
                total -= float(row[at, word])
    assert float(generation(said, NUMBERS)) == pytest.approx(total / 3, rel=1e-6)


def test_what_comes_after_the_end_does_not_matter():
    said = torch.randn(3, 4, 9).log_softmax(dim=2)
    other = said.clone()
    other[1, 2:] = torch.randn(2, 9).log_softmax(dim=1)
    assert torch.equal(generation(said, NUMBERS), generation(other, NUMBERS))


@pytest.fixture
def given():
    net = VSRN(VSRNConfig(features=6, words=9, dimensions=8, layers=1, word_dimensions=4, decoder=8)).eval()
    regions = Regions(torch.randn(3, 4, 6), torch.ones(3, 4, dtype=torch.bool), torch.zeros(3, 4, 4))
    return net, Batch(regions, Words(NUMBERS), torch.arange(3))


def test_the_objective_is_matching_and_generation_in_equal_parts(given):
    net, batch = given
    with torch.no_grad():
        scores = net.similarity(net.images(batch.regions), net.texts(batch.words))
        matching = hinge(scores, batch.image, "hardest", 0.2)
        told = generation(net.teller(net.reasoned(batch.regions), batch.regions.real, NUMBERS), NUMBERS)
        torch.testing.assert_close(vsrn(net, batch, {}), matching + told)
        torch.testing.assert_close(vsrn(net, batch, {"generation": 0.0}), matching)
        torch.testing.assert_close(vsrn(net, batch, {"matching": 0.0, "generation": 2.0}), 2 * told)


def test_all_negatives_count_while_it_warms_up(given):
    net, batch = given
    with torch.no_grad():
        scores = net.similarity(net.images(batch.regions), net.texts(batch.words))
        early = vsrn(net, batch, {"generation": 0.0, "warm_up": 0.5, "progress": 0.4})
        late = vsrn(net, batch, {"generation": 0.0, "warm_up": 0.5, "progress": 0.5})
    torch.testing.assert_close(early, hinge(scores, batch.image, "sum", 0.2))
    torch.testing.assert_close(late, hinge(scores, batch.image, "hardest", 0.2))
    assert early > late
