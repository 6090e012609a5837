"""VSE-infinity: one vector for an image and one for a text, with a learned pooling operator (chen2021vseinfinity).

The operator sorts each feature over the set and takes a weighted mean of the sorted values. The weights (1, 0, …) give max pooling,
equal weights mean pooling, and (1/k, …, 1/k, 0, …) the mean of the k largest. The weights are learned.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from crossmatch.models.zoo.layers import SHARE, WIDTH, BiGRU, NetworkConfig, VectorNetwork, WordVectors, normalize
from crossmatch.models.zoo.network_inputs import BEGIN, END, PAD, Regions, Words

SHARPNESS = 10.0  # of the softmax over positions: the released code divides by 0.1; the paper does not mention it


@dataclass(frozen=True)
class VSEInfinityConfig(NetworkConfig):
    """Published sizes: 1024 dimensions, position encodings and their GRU of 32, word vectors of 300, a fifth dropped."""

    dimensions: int = field(default=1024, metadata=WIDTH)
    word_dimensions: int = field(default=300, metadata=WIDTH)
    positions: int = field(default=32, metadata=WIDTH)  # length of a position encoding
    pooling: int = field(default=32, metadata=WIDTH)  # hidden size of the GRU that computes the pooling weights
    dropped: float = field(default=0.2, metadata=SHARE)  # share of regions and words that training leaves out


def position_encodings(length: int, dimensions: int) -> Tensor:
    """Sinusoidal encodings of the positions 0 to length - 1, (length, dimensions).

        p_k[2j] = sin(w_j · k),    p_k[2j + 1] = cos(w_j · k),    w_j = 10000^(−2j/d)

    Source: chen2021vseinfinity, sec. 3; k counts from 0, as in the released code.

    >>> position_encodings(2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000], [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    frequency = 10_000.0 ** (-torch.arange(0, dimensions, 2) / dimensions)
    angle = torch.arange(length).unsqueeze(1) * frequency
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)[:, :dimensions]


class GeneralisedPooling(nn.Module):
    """The generalised pooling operator (GPO).

        v_i = Σ_k θ_k · max_k({φ_n,i}_n),    Σ_k θ_k = 1
        {h_k} = BiGRU({p_k}_k),    θ_k = softmax_k(MLP(h_k))

    max_k is the k-th largest of the set's N values in dimension i, p_k the encoding of position k. The weights depend on N alone,
    so the GRU runs once per set size. Source: chen2021vseinfinity, sec. 3; the MLP has one row, as in the released code.
    """

    def __init__(self, positions: int, hidden: int) -> None:
        super().__init__()
        self.positions = positions
        self.decode = BiGRU(positions, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)

    def weights(self, sizes: Tensor) -> Tensor:
        """θ for sets of these sizes, (N, largest): each row sums to 1 and is 0 beyond its size; all 0 for an empty set."""
        distinct, position = torch.unique(sizes, return_inverse=True)
        largest = int(distinct.max()) if len(distinct) else 0
        mask = torch.arange(largest) < distinct.unsqueeze(1)
        encoded = position_encodings(largest, self.positions).expand(len(distinct), -1, -1)
        scores = SHARPNESS * self.score(self.decode(encoded, mask)).squeeze(2)
        # the softmax over an empty set would be NaN, also in the gradient: take it over all positions, then multiply by 0
        counted = mask | (distinct == 0).unsqueeze(1)
        weights: Tensor = scores.masked_fill(~counted, -torch.inf).softmax(dim=1) * mask
        return weights[position]

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """From sets (N, K, D) and mask (N, K) to (N, D). An empty set gives 0."""
        sizes = mask.sum(dim=1)
        if not int(sizes.sum()):
            return vectors.sum(dim=1) * 0
        weights = self.weights(sizes)
        within = (torch.arange(weights.shape[1]) < sizes.unsqueeze(1)).unsqueeze(2)
        ordered = vectors.masked_fill(~mask.unsqueeze(2), -torch.inf).sort(dim=1, descending=True).values[:, : weights.shape[1]]
        return (ordered.masked_fill(~within, 0.0) * weights.unsqueeze(2)).sum(dim=1)


def drop_members(mask: Tensor, droppable: Tensor, share: float) -> Tensor:
    """Drop each droppable member of a set with probability `share`; a set that would become empty keeps all members.

    This is size augmentation: the operator must see sets of many sizes. Source: chen2021vseinfinity, sec. 3.
    """
    remaining = mask & ~(droppable & (torch.rand(mask.shape) < share))
    return torch.where(remaining.any(dim=1, keepdim=True), remaining, mask)


def drop_words(words: Words, remaining: Tensor) -> Words:
    """Keep only the words of the mask `remaining`, without gaps."""
    order = (~remaining).to(torch.int8).argsort(dim=1, stable=True)
    return Words(words.numbers.masked_fill(~remaining, PAD).gather(1, order)[:, : int(remaining.sum(dim=1).max())])


class VSEInfinity(VectorNetwork):
    """Images and texts as unit vectors, compared by the cosine.

        image:  φ_n = W x_n + MLP(x_n), pooled     an MLP with one hidden layer and batch norm, without padding
        text:   φ_n = a bidirectional GRU, pooled  the mean of both directions

    Source: chen2021vseinfinity, with region features and BiGRU. Training drops words, as in the paper; the released code for BERT
    also replaces some.
    """

    def __init__(self, config: VSEInfinityConfig) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.features, config.dimensions)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        half = config.dimensions // 2
        self.mlp = nn.Sequential(
            nn.Linear(config.features, half), nn.BatchNorm1d(half), nn.ReLU(), nn.Linear(half, config.dimensions)
        )
        self.word_vectors = WordVectors(config.words, config.word_dimensions)
        self.gru = BiGRU(config.word_dimensions, config.dimensions)
        self.pool_image = GeneralisedPooling(config.positions, config.pooling)
        self.pool_text = GeneralisedPooling(config.positions, config.pooling)

    def images(self, regions: Regions) -> Tensor:
        """Unit vectors (N, D)."""
        mask = drop_members(regions.mask, regions.mask, self.config.dropped) if self.training else regions.mask
        features = regions.features[mask]
        vectors = regions.features.new_zeros((*mask.shape, self.config.dimensions))
        vectors[mask] = self.linear(features) + self.mlp(features)
        return normalize(self.pool_image(vectors, mask))

    def texts(self, words: Words) -> Tensor:
        """Unit vectors (N, D)."""
        if self.training:
            inner = words.mask & (words.numbers != BEGIN) & (words.numbers != END)
            words = drop_words(words, drop_members(words.mask, inner, self.config.dropped))
        return normalize(self.pool_text(self.gru(self.word_vectors(words), words.mask), words.mask))
