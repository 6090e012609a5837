"""Cross-entropy against a loop over captions and words, with every captioner."""

from __future__ import annotations

from itertools import pairwise

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.inputs import BEGIN, END, PAD, Regions, Words  # noqa: E402
from crossmatch.models.zoo.show_att_tell import ShowAttTell, ShowAttTellConfig  # noqa: E402
from crossmatch.models.zoo.show_tell import ShowTell, ShowTellConfig  # noqa: E402
from crossmatch.models.zoo.up_down import UpDown, UpDownConfig  # noqa: E402
from crossmatch.train.batch import Batch  # noqa: E402
from crossmatch.train.dual import reproducible  # noqa: E402
from crossmatch.train.objectives.cross_entropy import cross_entropy, per_word  # noqa: E402

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
def test_it_is_the_mean_over_the_words_of_all_captions(name):
    """Word by word, END included, each word of the batch the same; the empty caption is one word long."""
    net = NETS[name]().double().eval()
    regions = Regions(torch.randn(3, 4, 6).double(), torch.ones(3, 4, dtype=torch.bool), torch.zeros(3, 4, 4))
    total, words = 0.0, 0
    with torch.no_grad():
        for n, row in enumerate(NUMBERS.tolist()):
            encoded = net.images(regions[n : n + 1])
            state = net.begin(encoded)
            for before, word in pairwise(row):
                if word == PAD:
                    break
                said, state = net.step(encoded, state, torch.tensor([before]))
                total, words = total - float(said[0, word]), words + 1
        found = cross_entropy(net, Batch(regions, Words(NUMBERS), torch.arange(3)), {})
    assert words == 8
    assert float(found) == pytest.approx(total / words, rel=1e-12)


def test_filling_does_not_count():
    told = torch.randn(3, 4) * (NUMBERS[:, 1:] != PAD)
    wider = torch.cat([told, torch.zeros(3, 2)], dim=1)
    filled = torch.cat([NUMBERS, torch.full((3, 2), PAD)], dim=1)
    assert torch.equal(per_word(told, NUMBERS), per_word(wider, filled))
