"""The bidirectional GRU against PyTorch's own on packed sequences."""

import pytest

torch = pytest.importorskip("torch")
from crossmatch.models.zoo.parts import BiGRU  # noqa: E402

LENGTHS = (5, 1, 3, 0, 4)


def packed(ours: BiGRU) -> torch.nn.GRU:
    """The same weights in a bidirectional `torch.nn.GRU`."""
    theirs = torch.nn.GRU(ours.onward.input_size, ours.onward.hidden_size, batch_first=True, bidirectional=True)
    both = dict(ours.onward.state_dict())
    both |= {f"{name}_reverse": each for name, each in ours.back.state_dict().items()}
    theirs.load_state_dict(both)
    return theirs


@pytest.fixture
def case():
    torch.manual_seed(0)
    ours, vectors = BiGRU(3, 4), torch.randn(len(LENGTHS), 6, 3)
    real = torch.arange(6) < torch.tensor(LENGTHS).unsqueeze(1)
    lengths = torch.tensor(LENGTHS).clamp(min=1)
    said, last = packed(ours)(torch.nn.utils.rnn.pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False))
    said, _ = torch.nn.utils.rnn.pad_packed_sequence(said, batch_first=True, total_length=6)
    return ours, vectors, real, said, last


def test_each_step_is_the_mean_of_the_directions(case):
    ours, vectors, real, said, _ = case
    expected = said.reshape(len(LENGTHS), 6, 2, 4).mean(dim=2) * real.unsqueeze(2)
    torch.testing.assert_close(ours(vectors, real), expected)


def test_the_ends_are_where_each_direction_stopped(case):
    ours, vectors, real, _, last = case
    held = [n for n, length in enumerate(LENGTHS) if length]
    torch.testing.assert_close(ours.ends(vectors, real)[held], last.mean(dim=0)[held])
    assert (ours.ends(vectors, real)[LENGTHS.index(0)] == 0).all()


def test_what_comes_after_the_end_changes_nothing(case):
    ours, vectors, real, *_ = case
    other = torch.where(real.unsqueeze(2), vectors, torch.full_like(vectors, 7.0))
    held = [n for n, length in enumerate(LENGTHS) if length]
    assert torch.equal(ours(vectors, real)[held], ours(other, real)[held])
