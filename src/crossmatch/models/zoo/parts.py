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

    Each step's output is the mean of the two directions, so that it has `out` numbers (lee2018scan). Both directions
    run over padded sequences, the second over each turned round within its own length: the same numbers as a packed
    `torch.nn.GRU`, sooner on a CPU.
    """

    def __init__(self, inputs: int, out: int) -> None:
        super().__init__()
        self.onward, self.back = nn.GRU(inputs, out, batch_first=True), nn.GRU(inputs, out, batch_first=True)

    def forward(self, vectors: Tensor, real: Tensor) -> Tensor:
        """From (N, L, inputs) and which of them are real, those first, to (N, L, out); 0 beyond the end."""
        turned = turned_round(real)
        onward, back = self.onward(vectors)[0], at_places(self.back(at_places(vectors, turned))[0], turned)
        return (onward + back) / 2 * real.unsqueeze(2)  # type: ignore[no-any-return]

    def ends(self, vectors: Tensor, real: Tensor) -> Tensor:
        """The mean of the last forward and the first backward output, (N, out): hu2019bison, app. D.3."""
        onward, back = self.onward(vectors)[0], self.back(at_places(vectors, turned_round(real)))[0]
        last = last_place(real)
        return (at_places(onward, last) + at_places(back, last)).squeeze(1) / 2


def last_of(gru: nn.GRU, vectors: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """A GRU in one direction over sequences of unequal length: its outputs (N, L, D), 0 beyond the end, and the last real one of
    each (N, D).

    An empty sequence is read as one zero vector, since what stands in place of absent items is 0.
    """
    said = gru(vectors)[0]
    return said * real.unsqueeze(2), at_places(said, last_place(real)).squeeze(1)


def last_place(real: Tensor) -> Tensor:
    """(N, 1): the place of each sequence's last real item; the first place where it has none."""
    return (real.sum(dim=1, keepdim=True) - 1).clamp(min=0)


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
