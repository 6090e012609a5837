"""The bidirectional GRU against PyTorch's GRU on packed sequences."""

import pytest

torch = pytest.importorskip("torch")
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from crossmatch.models.zoo.layers import BiGRU, gru_outputs_and_last

LENGTHS = (5, 1, 3, 0, 4)
NOT_EMPTY = [n for n, length in enumerate(LENGTHS) if length]


def as_torch_gru(ours: BiGRU) -> torch.nn.GRU:
    """The same weights in a bidirectional `torch.nn.GRU`."""
    theirs = torch.nn.GRU(ours.onward.input_size, ours.onward.hidden_size, batch_first=True, bidirectional=True)
    backward_weights = {f"{name}_reverse": weights for name, weights in ours.back.state_dict().items()}
    theirs.load_state_dict(dict(ours.onward.state_dict()) | backward_weights)
    return theirs


@pytest.fixture
def case():
    ours, vectors = BiGRU(3, 4), torch.randn(len(LENGTHS), 6, 3)
    mask = torch.arange(6) < torch.tensor(LENGTHS).unsqueeze(1)
    lengths = torch.tensor(LENGTHS).clamp(min=1)
    packed, last = as_torch_gru(ours)(pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False))
    outputs, _ = pad_packed_sequence(packed, batch_first=True, total_length=6)
    return ours, vectors, mask, outputs, last


def test_each_output_is_the_mean_of_both_directions(case):
    ours, vectors, mask, outputs, _ = case
    expected = outputs.reshape(len(LENGTHS), 6, 2, 4).mean(dim=2) * mask.unsqueeze(2)
    torch.testing.assert_close(ours(vectors, mask), expected)


def test_final_output_is_the_mean_of_the_last_output_of_each_direction(case):
    ours, vectors, mask, _, last = case
    torch.testing.assert_close(ours.final_output(vectors, mask)[NOT_EMPTY], last.mean(dim=0)[NOT_EMPTY])
    assert (ours.final_output(vectors, mask)[LENGTHS.index(0)] == 0).all()


def test_padding_does_not_change_outputs(case):
    ours, vectors, mask, *_ = case
    changed = torch.where(mask.unsqueeze(2), vectors, torch.full_like(vectors, 7.0))
    assert torch.equal(ours(vectors, mask)[NOT_EMPTY], ours(changed, mask)[NOT_EMPTY])


def test_last_output_is_that_of_the_last_item_before_padding():
    gru = torch.nn.GRU(4, 5, batch_first=True)
    vectors, mask = torch.randn(2, 6, 4), torch.arange(6) < torch.tensor([[2], [6]])
    outputs, last = gru_outputs_and_last(gru, vectors, mask)
    torch.testing.assert_close(last[0], gru(vectors[:1, :2])[0][0, -1])
    torch.testing.assert_close(outputs[0, 1], last[0])
    assert (outputs[0, 2:] == 0).all()
