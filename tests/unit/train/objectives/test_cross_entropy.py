"""Cross-entropy against a loop over captions and words, with every captioner."""

from __future__ import annotations

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.network_inputs import BEGIN, END, PAD, Regions, Words
from crossmatch.models.zoo.show_att_tell import ShowAttTell, ShowAttTellConfig
from crossmatch.models.zoo.show_tell import ShowTell, ShowTellConfig
from crossmatch.models.zoo.up_down import UpDown, UpDownConfig
from crossmatch.train.data.training_set import TrainingBatch
from crossmatch.train.objectives import ObjectiveOptions
from crossmatch.train.objectives.cross_entropy import cross_entropy, mean_word_loss
from crossmatch.train.reproducibility import reproducible

NUMBERS = torch.tensor([[BEGIN, 5, 6, END, PAD], [BEGIN, END, PAD, PAD, PAD], [BEGIN, 4, 4, 8, END]])
NETS = {
    "show-tell": lambda: ShowTell(ShowTellConfig(6, 9, dimensions=8, word_dimensions=4)),
    "show-att-tell": lambda: ShowAttTell(ShowAttTellConfig(6, 9, dimensions=8, word_dimensions=4, attention=4)),
    "up-down": lambda: UpDown(UpDownConfig(6, 9, dimensions=8, word_dimensions=4, attention=4)),
}


@pytest.fixture(autouse=True)
def _seeded():
    with reproducible(7):
        yield


@pytest.mark.parametrize("name", NETS)
def test_loss_is_the_mean_over_all_words(name):
    """Word by word, END included, each word of the batch the same; the empty caption is one word long."""
    net = NETS[name]().double().eval()
    regions = Regions(torch.randn(3, 4, 6).double(), torch.ones(3, 4, dtype=torch.bool), torch.zeros(3, 4, 4))
    total, words = 0.0, 0
    with torch.no_grad():
        for n, row in enumerate(NUMBERS.tolist()):
            encoded = net.images(regions[n : n + 1])
            state = net.initial_state(encoded)
            for before, word in pairwise(row):
                if word == PAD:
                    break
                log_probabilities, state = net.step(encoded, state, torch.tensor([before]))
                total, words = total - float(log_probabilities[0, word]), words + 1
        loss = cross_entropy(net, TrainingBatch(regions, Words(NUMBERS), torch.arange(3)), 1.0, ObjectiveOptions())
    assert words == 8
    assert float(loss) == pytest.approx(total / words, rel=1e-12)


def test_padding_does_not_count():
    log_probabilities = torch.randn(3, 4) * (NUMBERS[:, 1:] != PAD)
    wider = torch.cat([log_probabilities, torch.zeros(3, 2)], dim=1)
    filled = torch.cat([NUMBERS, torch.full((3, 2), PAD)], dim=1)
    assert torch.equal(mean_word_loss(log_probabilities, NUMBERS), mean_word_loss(wider, filled))
