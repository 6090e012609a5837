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


TOGETHER = 32  # sequences of like length: fewer make small matrices, more have much filling


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

    Each step's output is the mean of the two directions, so that it has `out` numbers (lee2018scan). The second direction runs over
    each sequence turned round within its own length: the same numbers as a packed bidirectional `torch.nn.GRU`, sooner on a CPU.
    """

    def __init__(self, inputs: int, out: int) -> None:
        super().__init__()
        self.onward, self.back = nn.GRU(inputs, out, batch_first=True), nn.GRU(inputs, out, batch_first=True)

    def forward(self, vectors: Tensor, real: Tensor) -> Tensor:
        """From (N, L, inputs) and which of them are real, those first, to (N, L, out); 0 beyond the end."""
        turned = turned_round(real)
        onward, back = over(self.onward, vectors, real), over(self.back, at_places(vectors, turned), real)
        return (onward + at_places(back, turned)) / 2

    def ends(self, vectors: Tensor, real: Tensor) -> Tensor:
        """The mean of the last forward and the first backward output, (N, out): hu2019bison, app. D.3."""
        (_, onward), (_, back) = (
            last_of(self.onward, vectors, real),
            last_of(self.back, at_places(vectors, turned_round(real)), real),
        )
        return (onward + back) / 2


def last_of(gru: nn.GRU, vectors: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """The outputs of `over`, and the last of each sequence, (N, D); that of an empty one is 0."""
    said = over(gru, vectors, real)
    return said, at_places(said, (real.sum(dim=1, keepdim=True) - 1).clamp(min=0)).squeeze(1)


def over(gru: nn.GRU, vectors: Tensor, real: Tensor) -> Tensor:
    """A GRU in one direction over sequences of unequal length (N, L, inputs), the real items first: (N, L, out), 0 beyond the end.

    Sequences of like length go through it together, without the filling that only longer ones need.
    """
    lengths = real.sum(dim=1)
    out = vectors.new_zeros(*real.shape, gru.hidden_size)
    for rows in torch.split(torch.argsort(lengths, stable=True), TOGETHER):
        longest = int(lengths[rows].max())
        if longest:
            out[rows, :longest] = gru(vectors[rows, :longest])[0] * real[rows, :longest].unsqueeze(2)
    return out


def turned_round(real: Tensor) -> Tensor:
    """For each place of a sequence, the place that takes it when the real ones are read from the end.

    >>> turned_round(torch.tensor([[True, True, True, False]]))
    tensor([[2, 1, 0, 3]])
    """
    place = torch.arange(real.shape[1], device=real.device)
    return torch.where(real, real.sum(dim=1, keepdim=True) - 1 - place, place)


def at_places(vectors: Tensor, places: Tensor) -> Tensor:
    """(N, L, D) and (N, M) places to (N, M, D): the vectors that stand there."""
    return vectors.gather(1, places.unsqueeze(2).expand(-1, -1, vectors.shape[2]))


def unit(vectors: Tensor) -> Tensor:
    """Along the last axis at length 1; what is 0 stays 0."""
    return F.normalize(vectors, dim=-1)
