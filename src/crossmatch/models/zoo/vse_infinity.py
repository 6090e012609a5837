"""VSE-infinity: one vector for an image and one for a text, pooled by an operator that is learned (chen2021vseinfinity).

Pooling sorts each feature over the set and takes a weighted mean of the sorted values. Weights of (1, 0, …) are max pooling, equal
weights are mean pooling, and (1/k, …, 1/k, 0, …) is the mean of the k largest; which of them, or what between them, is learned.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.inputs import BEGIN, END, PAD, Regions, Words
from crossmatch.models.zoo.parts import BiGRU, WordVectors, unit
from crossmatch.models.zoo.sizes import SHARE, WIDTH

try:
    import torch
    from torch import Tensor, nn
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent

SHARPNESS = 10.0  # of the softmax over positions: the released code divides by 0.1, of which the paper does not speak


@dataclass(frozen=True)
class VSEInfinityConfig:
    """The published sizes: 1024 dimensions, position encodings and their GRU of 32, word vectors of 300, a fifth dropped."""

    features: int  # numbers of a region
    words: int  # how many words there are
    dimensions: int = field(default=1024, metadata=WIDTH)
    word_dimensions: int = field(default=300, metadata=WIDTH)
    positions: int = field(default=32, metadata=WIDTH)  # numbers of a position's encoding
    pooling: int = field(default=32, metadata=WIDTH)  # hidden numbers of the GRU that makes weights of them
    dropped: float = field(default=0.2, metadata=SHARE)  # share of the regions and of the words that training leaves out


def position_encodings(length: int, dimensions: int) -> Tensor:
    """Positions 0 to length - 1 as waves of different lengths, (length, dimensions).

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

    max_k is the k-th largest of the set's N values in dimension i, p_k the encoding of position k. The weights depend on N alone:
    the GRU runs once for each size that occurs. Source: chen2021vseinfinity, sec. 3; the MLP is one row, as in the released code.
    """

    def __init__(self, positions: int, hidden: int) -> None:
        super().__init__()
        self.positions = positions
        self.decode = BiGRU(positions, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)

    def weights(self, sizes: Tensor) -> Tensor:
        """θ for sets of these sizes, (N, largest): each row sums to 1, and is 0 beyond its size. An empty set has none."""
        present, member = torch.unique(sizes, return_inverse=True)
        largest = int(present.max()) if len(present) else 0
        real = torch.arange(largest) < present.unsqueeze(1)
        encoded = position_encodings(largest, self.positions).expand(len(present), -1, -1)
        scores = SHARPNESS * self.score(self.decode(encoded, real)).squeeze(2)
        # where nothing is real the softmax would be NaN, also in the gradient: there it is over all, and then nothing
        counted = real | (present == 0).unsqueeze(1)
        weights: Tensor = scores.masked_fill(~counted, -torch.inf).softmax(dim=1) * real
        return weights[member]

    def forward(self, vectors: Tensor, real: Tensor) -> Tensor:
        """From sets (N, K, D), of which `real` (N, K) says what is in them, to (N, D). A set without anything gives 0."""
        sizes = real.sum(dim=1)
        if not int(sizes.sum()):
            return vectors.sum(dim=1) * 0
        weights = self.weights(sizes)
        there = (torch.arange(weights.shape[1]) < sizes.unsqueeze(1)).unsqueeze(2)
        ordered = vectors.masked_fill(~real.unsqueeze(2), -torch.inf).sort(dim=1, descending=True).values[:, : weights.shape[1]]
        return (ordered.masked_fill(~there, 0.0) * weights.unsqueeze(2)).sum(dim=1)


def thinned(real: Tensor, droppable: Tensor, share: float) -> Tensor:
    """Some of each set left out at random, each droppable member with probability `share`; where none would be left, all are.

    Size augmentation: the operator must see sets of many sizes. Source: chen2021vseinfinity, sec. 3.
    """
    left = real & ~(droppable & (torch.rand(real.shape) < share))
    return torch.where(left.any(dim=1, keepdim=True), left, real)


def shortened(words: Words, left: Tensor) -> Words:
    """The texts with those words alone that are left, closed up."""
    order = (~left).to(torch.int8).argsort(dim=1, stable=True)
    return Words(words.numbers.masked_fill(~left, PAD).gather(1, order)[:, : int(left.sum(dim=1).max())])


class VSEInfinity(nn.Module):
    """Images and texts as unit vectors, compared by their cosine.

        image:  φ_n = W x_n + MLP(x_n), pooled     an MLP with one hidden layer and batch norm, over the real regions alone
        text:   φ_n = a bidirectional GRU, pooled  the mean of both directions

    Source: chen2021vseinfinity, with region features and BiGRU. Words are dropped, as the paper says; the released code
    for BERT also replaces some.
    """

    embeds = True

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
        real = thinned(regions.real, regions.real, self.config.dropped) if self.training else regions.real
        seen = regions.features[real]
        vectors = regions.features.new_zeros((*real.shape, self.config.dimensions))
        vectors[real] = self.linear(seen) + self.mlp(seen)
        return unit(self.pool_image(vectors, real))

    def texts(self, words: Words) -> Tensor:
        """Unit vectors (N, D)."""
        if self.training:
            inner = words.real & (words.numbers != BEGIN) & (words.numbers != END)
            words = shortened(words, thinned(words.real, inner, self.config.dropped))
        return unit(self.pool_text(self.gru(self.word_vectors(words), words.real), words.real))

    def similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        """The cosine of each image with each text: (I, T)."""
        return images @ texts.T
