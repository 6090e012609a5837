"""VSRN: regions that know of each other through a graph, read one after another into one vector (li2019vsrn).

The text is one vector as well; images and texts are compared by their cosine. In training the network must also be able to tell the
caption from the regions, which `crossmatch.train.objectives.vsrn` asks for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crossmatch.core.errors import MissingDependency
from crossmatch.models.zoo.inputs import Regions, Words
from crossmatch.models.zoo.parts import WordVectors, last_of, unit
from crossmatch.models.zoo.sizes import LAYERS, SHARE, WIDTH

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F  # noqa: N812 - the name everybody knows
except ImportError as absent:
    raise MissingDependency("PyTorch", "models") from absent


@dataclass(frozen=True)
class VSRNConfig:
    """The published sizes: 2048 dimensions, four layers of reasoning, word vectors of 300, a caption decoder of 512."""

    features: int  # numbers of a region
    words: int  # how many words there are
    dimensions: int = field(default=2048, metadata=WIDTH)
    layers: int = field(default=4, metadata=LAYERS)
    word_dimensions: int = field(default=300, metadata=WIDTH)
    decoder: int = field(default=512, metadata=WIDTH)  # hidden numbers of the caption's encoder and decoder
    dropout: float = field(default=0.2, metadata=SHARE)  # of what goes into them, in training


class Reasoning(nn.Module):
    """One layer of reasoning over the graph in which every region is joined with every region.

        R(v_i, v_j) = φ(v_i)ᵀ ξ(v_j),    V* = W_r(R V W_g) + V                                  li2019vsrn, eq. 2 and 3

    As in the released code, R is divided by the number of regions (the paper says nothing of its scale), φ, ξ, W_g and W_r have
    biases, and W_r is followed by a batch norm that begins at 0, so that a layer begins as the identity. Both the number and the
    batch norm are of the real regions alone: an image is the same with or without filling.
    """

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        self.phi, self.xi, self.inner, self.outer = (nn.Linear(dimensions, dimensions) for _ in range(4))
        self.norm = nn.BatchNorm1d(dimensions)
        nn.init.zeros_(self.norm.weight)

    def forward(self, vectors: Tensor, real: Tensor) -> Tensor:
        """Regions (N, K, D) to the same; what is not real takes no part and stays 0."""
        affinity = self.phi(vectors) @ self.xi(vectors).transpose(1, 2)  # (N, K, K): row i is R(v_i, ·)
        affinity = affinity * real.unsqueeze(1) / real.sum(dim=1).clamp(min=1)[:, None, None]
        told = self.outer(affinity @ self.inner(vectors))
        out = torch.zeros_like(vectors)
        out[real] = self.norm(told[real]) + vectors[real]
        return out


class Teller(nn.Module):
    """A caption's words one after another, from the regions: a GRU reads the regions, another attends to what it made of them.

        e_k = w ᵀ tanh(W [o_k; h_t−1]),    c_t = Σ_k softmax_k(e_k) · o_k,    h_t = GRU([y_t−1; c_t], h_t−1)

    o_k is the first GRU's output at region k, h_0 its last; y_t−1 is the vector of the word before. Source: li2019vsrn, sec. 3.4,
    with the attentive sequence-to-sequence model of venugopalan2015s2vt as released. What differs: the decoder stops at the end of
    the longest caption and not after 60 words, and W is applied to o and h apart (the same sum), once for each region.
    """

    def __init__(self, dimensions: int, hidden: int, words: int, word_dimensions: int, dropout: float) -> None:
        super().__init__()
        self.word_vectors = nn.Embedding(words, word_dimensions)
        self.encoder = nn.GRU(dimensions, hidden, batch_first=True)
        self.decoder = nn.GRUCell(word_dimensions + hidden, hidden)
        self.attend_region, self.attend_state = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden, bias=False)
        self.attend = nn.Linear(hidden, 1, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden, words)
        nn.init.xavier_normal_(self.out.weight)

    def forward(self, regions: Tensor, real: Tensor, numbers: Tensor) -> Tensor:
        """The log-probabilities (N, L - 1, words) of the second to the last of the words (N, L), each from those before it."""
        read, state = last_of(self.encoder, self.dropout(regions), real)
        keys, given = self.attend_region(read), self.word_vectors(numbers)
        # an image without regions attends to the zero vector that was read in their place
        absent = ~(real | (~real.any(dim=1, keepdim=True) & (torch.arange(real.shape[1]) == 0)))
        states = []
        for step in range(numbers.shape[1] - 1):
            scores = self.attend(torch.tanh(keys + self.attend_state(state).unsqueeze(1))).squeeze(2)
            weights = scores.masked_fill(absent, -torch.inf).softmax(dim=1)
            context = (weights.unsqueeze(1) @ read).squeeze(1)
            state = self.decoder(self.dropout(torch.cat([given[:, step], context], dim=1)), state)
            states.append(state)
        return F.log_softmax(self.out(torch.stack(states, dim=1)), dim=2)


class VSRN(nn.Module):
    """Images and texts as unit vectors.

        image:  v = W_f f + b, then reasoning, then a GRU over the regions in their order; its last output       eq. 1 to 7
        text:   the last output of a GRU over the words                                                         sec. 3.3

    Region vectors have length 1 before and after the reasoning. (The released code divides each number by its length over the
    *regions* of the image, since its norm is along the wrong axis; what is written about it in the paper is followed here.)
    """

    embeds = True

    def __init__(self, config: VSRNConfig) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.features, config.dimensions)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.reasoning = nn.ModuleList(Reasoning(config.dimensions) for _ in range(config.layers))
        self.image_gru = nn.GRU(config.dimensions, config.dimensions, batch_first=True)
        self.word_vectors = WordVectors(config.words, config.word_dimensions)
        self.text_gru = nn.GRU(config.word_dimensions, config.dimensions, batch_first=True)
        self.teller = Teller(config.dimensions, config.decoder, config.words, config.word_dimensions, config.dropout)

    def reasoned(self, regions: Regions) -> Tensor:
        """The regions after all layers of reasoning, as unit vectors (N, K, D); 0 where there is none."""
        vectors = unit(self.linear(regions.features)) * regions.real.unsqueeze(2)
        for layer in self.reasoning:
            vectors = layer(vectors, regions.real)
        return unit(vectors)

    def remembered(self, vectors: Tensor, real: Tensor) -> Tensor:
        """Reasoned regions as one unit vector for each image, (N, D)."""
        return unit(last_of(self.image_gru, vectors, real)[1])

    def images(self, regions: Regions) -> Tensor:
        """Unit vectors (N, D)."""
        return self.remembered(self.reasoned(regions), regions.real)

    def texts(self, words: Words) -> Tensor:
        """Unit vectors (N, D)."""
        return unit(last_of(self.text_gru, self.word_vectors(words), words.real)[1])

    def similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        """The cosine of each image with each text: (I, T)."""
        return images @ texts.T
