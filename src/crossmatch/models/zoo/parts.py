"""What several families are made of: means over the real items of a set, words as vectors, a bidirectional GRU."""

from __future__ import annotations

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.inputs import PAD, Words

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent


def mean_over(vectors: Tensor, real: Tensor) -> Tensor:
    """The mean of the real vectors of each set: (N, K, D) and (N, K) to (N, D). A set without any gives 0.

    >>> mean_over(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]))
    tensor([[2.]])
    """
    weight = real.unsqueeze(2).to(vectors.dtype)
    return (vectors * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)


class WordVectors(nn.Module):
    """A learned vector for each word, uniform in ±0.1 at first as in the released code of VSE++; that of `PAD` stays 0."""

    def __init__(self, words: int, dimensions: int) -> None:
        super().__init__()
        self.table = nn.Embedding(words, dimensions, padding_idx=PAD)
        with torch.no_grad():
            self.table.weight.uniform_(-0.1, 0.1)
            self.table.weight[PAD] = 0.0

    def forward(self, words: Words) -> Tensor:
        return self.table(words.numbers)  # type: ignore[no-any-return]


class BiGRU(nn.Module):
    """A bidirectional GRU over sequences of unequal length; what comes after the end of one changes nothing.

    Each step's output is the mean of the two directions, so that it has `out` numbers (lee2018scan, eq. 3 to 5).
    """

    def __init__(self, inputs: int, out: int) -> None:
        super().__init__()
        self.gru = nn.GRU(inputs, out, batch_first=True, bidirectional=True)

    def forward(self, vectors: Tensor, real: Tensor) -> Tensor:
        """From (N, L, inputs) and which of them are real, those first, to (N, L, out); 0 beyond the end."""
        lengths = real.sum(dim=1).clamp(min=1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        said, _ = nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=vectors.shape[1])
        forward, backward = said.chunk(2, dim=2)
        return (forward + backward) / 2 * real.unsqueeze(2)

    def ends(self, vectors: Tensor, real: Tensor) -> Tensor:
        """The mean of the last forward and the first backward output, (N, out): hu2019bison, app. D.3."""
        lengths = real.sum(dim=1).clamp(min=1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(vectors, lengths, batch_first=True, enforce_sorted=False)
        _, last = self.gru(packed)  # (2, N, out): where each direction ended
        return last.mean(dim=0)  # type: ignore[no-any-return]


def unit(vectors: Tensor) -> Tensor:
    """Along the last axis at length 1; what is 0 stays 0."""
    return F.normalize(vectors, dim=-1)
