"""Layers and helper functions that several families share, and the limits of their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the usual name

from crossmatch.data.errors import UsageError
from crossmatch.models.zoo.network_inputs import PAD, Words

# Limits of a network's sizes, for the metadata of the configuration classes (see `crossmatch.data.settings`).
WIDTH: Mapping[str, float] = {"least": 1, "most": 1 << 16}  # length of a vector; published networks have up to 3,072
LAYERS: Mapping[str, float] = {"least": 0, "most": 64}
FEW: Mapping[str, float] = {"least": 1, "most": 1024}  # samples, heads, vectors of an item, steps of reasoning
SHARE: Mapping[str, float] = {"least": 0, "most": 0.99}  # dropout, or the slope of a leaky ReLU


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of a network. Each family adds its own, with the published values as defaults."""

    features: int  # length of a region's feature vector
    words: int  # size of the vocabulary

    def require_multiple(self, width: str, heads: str) -> None:
        """Raise `UsageError` unless the size `width` can be split into `heads` equal parts."""
        if getattr(self, width) % getattr(self, heads):
            raise UsageError(
                f"[model] has {width} = {getattr(self, width)} and {heads} = {getattr(self, heads)}; the former must be a multiple "
                "of the latter."
            )


class VectorNetwork(nn.Module):
    """A network with one vector for an image and one for a text, compared by the dot product: the cosine of unit vectors."""

    embeds = True

    def similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        """Score every image with every text: (I, T)."""
        return images @ texts.T


GROUP_SIZE = 32  # sequences of similar length per GRU call: fewer make small matrices, more need much padding


def masked_mean(vectors: Tensor, mask: Tensor) -> Tensor:
    """Mean of the vectors in each set: (N, K, D) and mask (N, K) to (N, D). The mean of an empty set is 0.

    >>> masked_mean(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]))
    tensor([[2.]])
    """
    weight = mask.unsqueeze(2).to(vectors.dtype)
    return (vectors * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)


class WordVectors(nn.Module):
    """Learned word vectors, initialised uniformly in ±0.1 as in the released code of VSE++. The vector of `PAD` stays 0."""

    def __init__(self, words: int, dimensions: int) -> None:
        super().__init__()
        self.table = nn.Embedding(words, dimensions, padding_idx=PAD)
        with torch.no_grad():
            self.table.weight.uniform_(-0.1, 0.1)
            self.table.weight[PAD] = 0.0

    def forward(self, words: Words) -> Tensor:
        return self.table(words.numbers)  # type: ignore[no-any-return]


class BiGRU(nn.Module):
    """Bidirectional GRU over padded sequences; padding does not change the result.

    The output at each step is the mean of the two directions, so it has `out` numbers (lee2018scan). The backward direction runs
    over each sequence reversed within its own length. This gives the numbers of a packed bidirectional `torch.nn.GRU`, but runs
    faster on a CPU.
    """

    def __init__(self, inputs: int, out: int) -> None:
        super().__init__()
        self.onward, self.back = nn.GRU(inputs, out, batch_first=True), nn.GRU(inputs, out, batch_first=True)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """From (N, L, inputs) and mask (N, L), padding last, to (N, L, out); 0 at padding."""
        reverse = reversed_positions(mask)
        onward, back = run_gru(self.onward, vectors, mask), run_gru(self.back, gather_positions(vectors, reverse), mask)
        return (onward + gather_positions(back, reverse)) / 2

    def final_output(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """Mean of the last forward and the first backward output, (N, out). Source: hu2019bison, app. D.3."""
        (_, onward), (_, back) = (
            gru_outputs_and_last(self.onward, vectors, mask),
            gru_outputs_and_last(self.back, gather_positions(vectors, reversed_positions(mask)), mask),
        )
        return (onward + back) / 2


def gru_outputs_and_last(gru: nn.GRU, vectors: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs of `run_gru`, and the last output of each sequence, (N, D); 0 for an empty sequence."""
    outputs = run_gru(gru, vectors, mask)
    return outputs, gather_positions(outputs, (mask.sum(dim=1, keepdim=True) - 1).clamp(min=0)).squeeze(1)


def run_gru(gru: nn.GRU, vectors: Tensor, mask: Tensor) -> Tensor:
    """Run a one-directional GRU over padded sequences (N, L, inputs), padding last: (N, L, out), 0 at padding.

    Sequences of similar length are processed together, so that little padding is computed.
    """
    lengths = mask.sum(dim=1)
    out = vectors.new_zeros(*mask.shape, gru.hidden_size)
    for rows in torch.split(torch.argsort(lengths, stable=True), GROUP_SIZE):
        longest = int(lengths[rows].max())
        if longest:
            out[rows, :longest] = gru(vectors[rows, :longest])[0] * mask[rows, :longest].unsqueeze(2)
    return out


def reversed_positions(mask: Tensor) -> Tensor:
    """Positions that reverse each sequence within its own length.

    >>> reversed_positions(torch.tensor([[True, True, True, False]]))
    tensor([[2, 1, 0, 3]])
    """
    position = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, mask.sum(dim=1, keepdim=True) - 1 - position, position)


def gather_positions(vectors: Tensor, positions: Tensor) -> Tensor:
    """Select the vectors at these positions: (N, L, D) and (N, M) to (N, M, D)."""
    return vectors.gather(1, positions.unsqueeze(2).expand(-1, -1, vectors.shape[2]))


def normalize(vectors: Tensor) -> Tensor:
    """Scale to length 1 along the last axis; a zero vector stays 0."""
    return F.normalize(vectors, dim=-1)
